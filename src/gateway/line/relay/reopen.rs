//! Taking the event stream of a reply up again where it broke off: a GET with the id of the last event.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderValue;

use crate::clock;
use crate::context::in_session::InSession;
use crate::context::worker::Worker;
use crate::upstream::exchange::{Reply, SendOptions};
use crate::upstream::request::UpstreamRequest;
use protocol::error::UpstreamError;

const ATTEMPTS_MAX: u32 = 3;
/// How long is waited where the upstream does not say.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_secs(30);

pub(super) type Reopening = Pin<Box<dyn Future<Output = Result<Reply, UpstreamError>>>>;

/// Begins. `retry`: how long the upstream asked to wait. `None`: no header can hold the id.
pub(super) fn begin(
    worker: &Rc<Worker>,
    session: &InSession,
    last_id: &Bytes,
    retry: Option<Duration>,
) -> Option<Reopening> {
    let last_id = HeaderValue::from_bytes(last_id).ok()?;
    let wait = retry.unwrap_or(RETRY).clamp(RETRY_MIN, RETRY_MAX);
    Some(Box::pin(reopen(Rc::clone(worker), session.clone(), last_id, wait)))
}

async fn reopen(
    worker: Rc<Worker>,
    session: InSession,
    last_id: HeaderValue,
    wait: Duration,
) -> Result<Reply, UpstreamError> {
    for _ in 0..ATTEMPTS_MAX {
        tokio::time::sleep(wait).await;
        let deadline = clock::now() + session.upstream.config.response_timeout;
        match resume(&worker, &session, last_id.clone(), deadline).await {
            Ok(reply) if reply.is_stream() => {
                session.upstream.series.resumed.inc();
                return Ok(reply);
            }
            // It does not know what is asked for, and will not learn it.
            Ok(reply) if reply.head.status.is_client_error() => break,
            Err(UpstreamError::SessionLost) => break,
            Ok(_) | Err(_) => {}
        }
    }
    Err(UpstreamError::Reset)
}

/// Asks for what came after an event of a reply.
pub(crate) async fn resume(
    worker: &Worker,
    session: &InSession,
    last_id: HeaderValue,
    deadline: Instant,
) -> Result<Reply, UpstreamError> {
    let InSession { upstream, upstream_session, .. } = session;
    let mut request = UpstreamRequest::listen(&upstream_session.named(), Some(last_id));
    let payer = session.session.owner().payer();
    let aim = upstream_session.replica.into();
    let delivery = SendOptions { is_safe_to_repeat: true, aim, asked: None, payer };
    worker.client.send(upstream, &mut request, delivery, clock::now(), deadline).await
}
