//! Bodies of replies that must be complete before they can be used.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use memchr::memmem;

use super::exchange::{Reply, ReplyHead, UpstreamClient};
use super::incoming::Incoming;
use super::{Upstream, pool};
use crate::access::limit::shares::{NoShare, Share};
use crate::clock;
use net::chunks::Chunks;
use protocol::error::{Error, GatewayError, PolicyError, UpstreamError};
use protocol::media::Media;

/// How much of a failed reply is read to see whether it is an error of JSON-RPC.
const FAILED_BYTES_MAX: usize = 64 * 1024;
/// How long the rest of a reply may take that nobody reads.
const REST_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads a reply that must be complete before it can be handed on, and counts it as long as it is held.
pub(crate) async fn collect(
    body: &mut Incoming,
    bytes_max: usize,
    deadline: Instant,
    mut held: Share,
) -> Result<(Bytes, Share), Error> {
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(UpstreamError::TooLarge.into());
    }
    if let Incoming::Whole(whole) = body {
        let whole = whole.take().unwrap_or_default();
        held.grow(whole.len()).map_err(no_memory)?;
        return Ok((whole, held));
    }
    let read = async {
        let mut pieces = Chunks::default();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| UpstreamError::Reset)?.into_data() else { continue };
            if pieces.len() + data.len() > bytes_max {
                return Err(UpstreamError::TooLarge.into());
            }
            held.grow(data.len()).map_err(no_memory)?;
            pieces.push(data, 0);
            if body.is_end_stream() {
                break;
            }
        }
        Ok(pieces.into_bytes())
    };
    let whole: Result<Bytes, Error> =
        clock::until(deadline, read).await.unwrap_or(Err(UpstreamError::TimedOut.into()));
    Ok((whole?, held))
}

impl UpstreamClient {
    /// Takes the head of a reply for all there is to it: that a message without an answer was accepted, or not. The rest
    /// is read by a task of its own, so that the connection can be used again. That of a stream of events may never end,
    /// and whoever answers what has no answer is out of step: their connections are closed.
    pub(crate) fn let_go(&self, upstream: &Upstream, reply: Reply) -> ReplyHead {
        let Reply { head, mut body, lease, .. } = reply;
        if body.is_end_stream() || matches!(body, Incoming::Whole(_)) {
            pool::let_rest(lease, clock::now());
        } else if head.media != Media::Sse && lease.is_some() {
            let held = self.limits().budget.open(upstream.payer());
            let is_refusal = !head.status.is_success();
            self.tasks.spawn(async move {
                let rest = collect(&mut body, FAILED_BYTES_MAX, clock::now() + REST_TIMEOUT, held).await;
                if rest.is_ok_and(|(rest, _)| is_refusal || !may_answer(&rest)) {
                    pool::let_rest(lease, clock::now());
                }
            });
        }
        head
    }
}

/// Whether this may be the answer to a call, which is nothing that follows a message without one.
fn may_answer(rest: &Bytes) -> bool {
    [&b"\"result\""[..], b"\"error\""].iter().any(|member| memmem::find(rest, member).is_some())
}

/// What is told to whom there is no memory for a message.
pub(crate) fn no_memory(none: NoShare) -> Error {
    match none {
        NoShare::NothingLeft => GatewayError::Buffers.into(),
        NoShare::TooMuchOfPayer => PolicyError::Buffers.into(),
    }
}

/// Reads the answer in a reply that is no stream, and says what it says of the replica. What comes with another status
/// than success may be anything.
pub(crate) async fn collect_answer(
    client: &UpstreamClient,
    upstream: &Upstream,
    reply: Reply,
    deadline: Instant,
    mut is_answer: impl FnMut(&Bytes) -> bool,
) -> Result<(Bytes, Share), UpstreamError> {
    let Reply { head, mut body, mut lease, .. } = reply;
    let limits = client.limits();
    let bytes_max = if head.status.is_success() { limits.message_bytes_max } else { FAILED_BYTES_MAX };
    let (whole, held) =
        match collect(&mut body, bytes_max, deadline, limits.budget.open(upstream.payer())).await {
            Ok(collected) => collected,
            Err(Error::Upstream(error)) => {
                pool::note_error(lease.as_mut(), &error);
                return Err(error);
            }
            Err(_) => return Err(UpstreamError::TooManyConnections),
        };
    if head.status.is_success() && !is_answer(&whole) {
        // The connection is out of step.
        upstream.series.mismatched.inc();
        pool::note_error(lease.as_mut(), &UpstreamError::Nonsense);
        return Err(head.fault());
    }
    if head.status.is_server_error()
        && head.media == Media::Json
        && let Some(lease) = &mut lease
    {
        // An error of JSON-RPC is an answer, whatever its status.
        let is_busy = head.status == StatusCode::SERVICE_UNAVAILABLE;
        lease.in_flight.decide(is_busy || is_answer(&whole));
    }
    pool::give_back(lease, clock::now());
    Ok((whole, held))
}
