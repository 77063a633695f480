//! One stream to an upstream: the request, its acknowledgement, and the messages that follow.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt as _;
use tokio::time::timeout_at;

use crate::clock;
use crate::context::state::State;
use crate::tables::subscriptions::feed::{Feed, FeedFilter, FeedScope};
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::ask::modern_headers;
use crate::upstream::body::collect;
use crate::upstream::exchange::{Reply, SendOptions, UpstreamClient};
use crate::upstream::facts::Fact;
use crate::upstream::incoming::Incoming;
use crate::upstream::pool::ConnectionLease;
use crate::upstream::request::UpstreamRequest;
use protocol::error::{Refusal, UpstreamError};
use protocol::json::Scratch;
use protocol::media::Media;
use protocol::method::Method;
use protocol::splice::Segments;
use protocol::sse::Events;
use protocol::subscription::{self, Acknowledged, Heard, hear};
use protocol::version::{Era, Eras, MODERN};

/// How long an upstream may take to acknowledge.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest event: a finished task brings its result.
const EVENT_BYTES_MAX: usize = 1024 * 1024;
/// How much of a refusal is read.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// An acknowledged stream. Dropped, it is closed, which ends the subscription at the upstream.
pub(super) struct SubscriptionStream {
    pub(super) id: String,
    /// When it was acknowledged.
    pub(super) since: Instant,
    reader: EventReader,
    _counted: GaugeGuard,
}

#[derive(Debug)]
pub(super) enum SubscribeError {
    Refused,
    /// It does not take this request; another it may take.
    Rejected,
    Failed(UpstreamError),
}

impl From<UpstreamError> for SubscribeError {
    fn from(error: UpstreamError) -> Self {
        if error == UpstreamError::OtherEra { Self::Refused } else { Self::Failed(error) }
    }
}

struct EventReader {
    body: Incoming,
    events: Events,
    /// Keeps the connection, which is never used again.
    _lease: Option<ConnectionLease>,
}

/// Opens a stream and waits until it is acknowledged.
pub(super) async fn open(
    state: &State,
    client: &UpstreamClient,
    scratch: &RefCell<Scratch>,
    feed: &Feed,
    ask: &FeedFilter,
    id: u64,
) -> Result<(SubscriptionStream, Acknowledged), SubscribeError> {
    let upstream = &feed.upstream;
    if upstream.eras().is_none() {
        // A refusal would be believed for long.
        upstream.facts.tried_within(OPEN_TIMEOUT).await;
    }
    // Its lists are watched otherwise.
    let is_only_legacy = upstream.eras() == Some(Eras::only(Era::Legacy));
    let is_bridged = upstream.config.bridge.is_on && is_only_legacy && ask.lists.is_empty();
    let is_absent = upstream.facts.known().modern == Fact::Absent || upstream.lacks(Era::Modern);
    if is_absent && !is_bridged {
        return Err(SubscribeError::Refused);
    }
    let now = clock::now();
    let deadline = now + upstream.config.response_timeout.min(OPEN_TIMEOUT);
    let id = id.to_string();
    let mut request = request(ask, &id);
    // A stream for lists alone keeps no program that nobody calls.
    request.attributes.is_own = ask.names() == 0;
    let asked_bytes = usize::try_from(request.message.len()).unwrap_or(usize::MAX);
    let mut delivery = SendOptions { is_safe_to_repeat: true, ..SendOptions::default() };
    if let Some(FeedScope { principal, payer }) = &feed.scope {
        request.attributes.principal = Some(Arc::clone(principal));
        delivery.payer = *payer;
    }
    let reply = client.send(upstream, &mut request, delivery, now, deadline).await?;
    let limits = state.snapshot.load().limits.clone();
    let Reply { head, mut body, lease, .. } = reply;
    let media = head.media;
    if !head.status.is_success() || media != Media::Sse {
        let held = state.buffered.open(upstream.payer());
        let collected = collect(&mut body, REFUSAL_BYTES_MAX, deadline, held).await;
        let answer = collected.map(|(answer, _)| answer).unwrap_or_default();
        let heard = hear(&mut scratch.borrow_mut(), &answer, &id, limits.json_depth_max);
        return Err(refusal(head.status, heard.unwrap_or(Heard::Other)));
    }
    // The acknowledgement says again what was asked for, and may escape more of it.
    let event_bytes_max = EVENT_BYTES_MAX.max(asked_bytes.saturating_mul(2));
    let events = Events::new(limits.reply_bytes_max.min(event_bytes_max));
    let mut reader = EventReader { body, events, _lease: lease };
    let acknowledged = async {
        loop {
            let message = reader.next().await.map_err(SubscribeError::Failed)?;
            let heard = hear(&mut scratch.borrow_mut(), &message, &id, limits.json_depth_max);
            match heard.map_err(|_| SubscribeError::Failed(UpstreamError::Nonsense))? {
                Heard::Acknowledged(acknowledged) => return Ok(acknowledged),
                Heard::Refused(code) => return Err(refusal(head.status, Heard::Refused(code))),
                Heard::Ended => return Err(SubscribeError::Failed(UpstreamError::Reset)),
                _ => {}
            }
        }
    };
    let acknowledged = timeout_at(deadline.into(), acknowledged).await;
    let acknowledged = acknowledged.unwrap_or(Err(SubscribeError::Failed(UpstreamError::TimedOut)))?;
    let counted = GaugeGuard::new(&upstream.series.subscription_streams);
    Ok((SubscriptionStream { id, since: clock::now(), reader, _counted: counted }, acknowledged))
}

fn request(ask: &FeedFilter, id: &str) -> UpstreamRequest {
    let body = subscription::request(
        id,
        ask.lists,
        ask.uris.iter().map(|uri| &**uri),
        ask.task_ids.iter().map(|task| &**task),
    );
    UpstreamRequest::post(Segments::from(body), modern_headers(MODERN[0], Method::Listen))
}

/// What an answer that opens no stream means: that there is nothing to be had, or that it may work later.
fn refusal(status: StatusCode, heard: Heard) -> SubscribeError {
    match (status, heard) {
        (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, _) => {
            SubscribeError::Failed(UpstreamError::Busy { status, retry_after_s: None })
        }
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
            SubscribeError::Failed(UpstreamError::Credentials)
        }
        (StatusCode::REQUEST_TIMEOUT, _) => SubscribeError::Failed(UpstreamError::TimedOut),
        (_, Heard::Refused(Some(-32601))) => SubscribeError::Refused,
        // Any other error of JSON-RPC but an internal one is about the request.
        (_, Heard::Refused(Some(code))) if code != -32603 => SubscribeError::Rejected,
        (StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _) => SubscribeError::Refused,
        (status, _) if status.is_client_error() => SubscribeError::Rejected,
        (_, Heard::Refused(Some(code))) => {
            let refusal = Refusal { method: Method::Listen.label(), code, message: Box::default() };
            SubscribeError::Failed(UpstreamError::Refused(refusal.into()))
        }
        (status, _) if status.is_server_error() => {
            SubscribeError::Failed(UpstreamError::Status { status, media: None })
        }
        _ => SubscribeError::Failed(UpstreamError::Nonsense),
    }
}

impl SubscriptionStream {
    /// The next message. Silence is no fault: a dead peer is noticed by TCP. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Result<Bytes, UpstreamError> {
        self.reader.next().await
    }
}

impl EventReader {
    async fn next(&mut self) -> Result<Bytes, UpstreamError> {
        loop {
            while let Some(event) = self.events.next() {
                if let Some(data) =
                    event.map_err(|_| UpstreamError::TooLarge)?.data.filter(|data| !data.is_empty())
                {
                    return Ok(data);
                }
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.events.push(frame.into_data().unwrap_or_default()),
                Some(Err(_)) => return Err(UpstreamError::Reset),
                None => {
                    let last = self.events.finish().and_then(|event| event.data);
                    return last.ok_or(UpstreamError::Reset);
                }
            }
        }
    }
}
