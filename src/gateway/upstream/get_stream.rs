//! The stream on which an upstream speaks to a session unasked: asking for it with GET, and its events.
//!
//! When it is opened, and again, and what becomes of its messages, is the caller's business.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use tokio::time::timeout;

use super::Upstream;
use super::ask::{AskRequest, Asker, SessionHeaders};
use super::exchange::{Reply, SendOptions, UpstreamClient};
use super::incoming::{Incoming, IncomingPiece};
use super::pool::{self, ConnectionLease};
use super::request::{ExpectedReply, UpstreamRequest};
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Share;
use crate::clock;
use protocol::error::UpstreamError;
use protocol::media::Media;
use protocol::sse::{Event, Events};

/// How long an upstream may take over the head of the stream: some send it with the first event.
const HEAD_TIMEOUT: Duration = Duration::from_mins(5);
/// How soon, and how late, an upstream may have its stream opened again.
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_mins(5);
/// How long an upstream may take to say whether it knows a session.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
const PING_ANSWER_BYTES_MAX: usize = 64 * 1024;
/// How long the end of a stream is waited for after its answer.
const END_PATIENCE: Duration = Duration::from_secs(1);
/// A longer event id is not remembered: it has to fit into a header.
const EVENT_ID_BYTES_MAX: usize = 1024;

/// What came of a GET.
pub(crate) enum GetResult {
    /// The stream stands.
    Stream(Box<Reply>),
    /// The upstream has none.
    Refused,
    /// Either it does not know the session, or nothing at all answers a GET.
    Doubtful,
    /// There is none now.
    Failed(Option<UpstreamError>),
}

/// Asks for the stream of a session. `after`: the id of the last event that was seen.
pub(crate) async fn open(
    client: &UpstreamClient,
    upstream: &Upstream,
    session: SessionHeaders<'_>,
    after: Option<&Bytes>,
) -> GetResult {
    let after = after.and_then(|after| HeaderValue::from_bytes(after).ok());
    let replica = session.replica;
    let mut request = UpstreamRequest::listen(&session, after);
    request.attributes.reply = ExpectedReply::Stream;
    let now = clock::now();
    let delivery =
        SendOptions { is_safe_to_repeat: true, aim: replica.into(), asked: None, payer: Payer::GATEWAY };
    let reply = match client.send(upstream, &mut request, delivery, now, now + HEAD_TIMEOUT).await {
        // It is over, or its replica is gone.
        Err(UpstreamError::SessionLost) => return GetResult::Doubtful,
        Ok(reply) => reply,
        Err(error) => return GetResult::Failed(Some(error)),
    };
    match reply.head.status {
        StatusCode::OK if reply.head.media == Media::Sse => GetResult::Stream(Box::new(reply)),
        StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST => GetResult::Doubtful,
        status if status.is_success() || status == StatusCode::METHOD_NOT_ALLOWED => GetResult::Refused,
        StatusCode::NOT_ACCEPTABLE | StatusCode::NOT_IMPLEMENTED => GetResult::Refused,
        _ => GetResult::Failed(None),
    }
}

/// Whether an upstream knows a session of this id, or answers without one; `None` if it does not say.
pub(crate) async fn is_session_known(
    asker: &Asker<'_>,
    upstream: &Upstream,
    session: SessionHeaders<'_>,
) -> Option<bool> {
    let question = AskRequest {
        headers: session.to_map(),
        body: Bytes::from_static(br#"{"jsonrpc":"2.0","id":"trunkline-ping","method":"ping"}"#),
        is_safe_to_repeat: true,
        replica: session.replica,
        bytes_max: PING_ANSWER_BYTES_MAX,
        deadline: clock::now() + PING_TIMEOUT,
    };
    let answer = match asker.ask(upstream, question).await {
        Ok(answer) => answer,
        Err(UpstreamError::SessionLost) => return Some(false),
        Err(_) => return None,
    };
    let answers_us = answer.is_to_us;
    match answer.status {
        status if status.is_success() || answers_us => Some(true),
        StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST => Some(false),
        _ => None,
    }
}

/// How long after its end the stream is to be opened again, where an event says so.
pub(crate) fn retry(event: &Event) -> Option<Duration> {
    Some(Duration::from_millis(event.retry_ms?).clamp(RETRY_MIN, RETRY_MAX))
}

/// The id of an event, if it can be asked for what came after it.
pub(crate) fn id(event: &Event) -> Option<Bytes> {
    let id = event.id.as_ref().filter(|id| id.len() <= EVENT_ID_BYTES_MAX);
    id.map(|id| Bytes::copy_from_slice(id))
}

/// The message in an event, if there is one; a priming event has an empty one.
pub(crate) fn message(event: Event) -> Option<Bytes> {
    let is_message = event.event.is_none_or(|kind| kind == "message");
    event.data.filter(|_| is_message)
}

/// The message in an event that is more than a priming one.
pub(crate) fn nonempty_message(event: Event) -> Option<Bytes> {
    message(event).filter(|message| !message.is_empty())
}

/// A stream, read event by event.
pub(crate) struct Messages {
    body: Incoming,
    events: Events,
    /// What is held of an event that is not complete.
    held: Share,
    /// Bytes of an event that is not complete.
    begun_bytes: usize,
    /// The connection that belongs to the stream, and is closed with it unless it is given back.
    lease: Option<ConnectionLease>,
}

impl Messages {
    /// Reads a reply. Longer events than `event_bytes_max` end the stream; incomplete ones count in `held`.
    pub(crate) fn new(reply: Reply, event_bytes_max: usize, held: Share) -> Self {
        let Reply { body, lease, .. } = reply;
        let events = Events::new(event_bytes_max);
        Self { body, events, held, begun_bytes: 0, lease }
    }

    /// [`Messages::new`] under the bounds in force on the thread of `client`.
    pub(crate) fn of(client: &UpstreamClient, upstream: &Upstream, reply: Reply) -> Self {
        let limits = client.host.shared.limits();
        Self::new(reply, limits.message_bytes_max, limits.budget.open(upstream.payer()))
    }

    /// What is to be said of the replica after this error.
    pub(crate) fn note_error(&mut self, error: &UpstreamError) {
        pool::note_error(self.lease.as_mut(), error);
    }

    /// The stream has ended as it should: its connection can be used again.
    pub(crate) fn give_back(&mut self) {
        pool::give_back(self.lease.take(), clock::now());
    }

    /// Reads what comes after an answer, so that the connection can be used again.
    pub(crate) async fn drain(mut self) {
        let rest = async {
            while self.next().await?.is_some() {}
            Ok::<_, UpstreamError>(())
        };
        if let Ok(Ok(())) = timeout(END_PATIENCE, rest).await {
            self.give_back();
        }
    }

    /// The next piece of an event that was too large, and whether that is the last: then [`next`](Self::next) goes on. `None`
    /// at the end of the stream.
    pub(crate) async fn pass(&mut self) -> Option<(Bytes, bool)> {
        loop {
            if let Some(passed) = self.events.pass() {
                self.begun_bytes = 0;
                self.held.clear();
                return Some(passed);
            }
            match self.body.piece().await?.ok()? {
                IncomingPiece::Bytes(data) => self.events.push(data),
                // Messages are no events that could be cut off.
                IncomingPiece::Part(_) => return None,
            }
        }
    }

    /// The next event; `None` at the end. What was read is kept if nobody waits for it any more.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, UpstreamError> {
        loop {
            if let Some(event) = self.events.next() {
                let event = event.map_err(|_| UpstreamError::TooLarge)?;
                self.begun_bytes = self.begun_bytes.saturating_sub(event.raw.len());
                if self.begun_bytes == 0 {
                    self.held.clear();
                }
                return Ok(Some(event));
            }
            let Some(piece) = self.body.piece().await else { return Ok(self.events.finish()) };
            let data = match piece.map_err(|_| self.body.fault())? {
                IncomingPiece::Part(part) => return Ok(Some(part.into_event())),
                IncomingPiece::Bytes(data) => data,
            };
            self.begun_bytes += data.len();
            self.events.push(data);
            if self.held.grow_to(self.begun_bytes).is_err() {
                self.events.give_up();
                return Err(UpstreamError::NoBuffers);
            }
        }
    }
}
