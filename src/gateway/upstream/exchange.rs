//! One request to an upstream and the head of its reply.
//!
//! Where it goes is settled here: to whoever serves the other era, into this process, or over HTTP ([`super::attempt`]).

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, Uri};

use super::attempt::RequestClock;
use super::fault::Fault;
use super::incoming::Incoming;
use super::mux::host::{Host, Limits};
use super::pool::{ConnectionLease, ConnectionPools};
use super::request::UpstreamRequest;
use super::silence;
use super::{ReplicaKey, ReplicaSelection, Transport, Upstream, masking, mux, other_era};
use crate::access::limit::payer::Payer;
use crate::buffers::Buffers;
use crate::clock;
use crate::telemetry::calls::CallLabels;
use net::fetch::Fetcher;
use net::tasks::Tasks;
use protocol::error::{Error, Redirect, UpstreamError};
use protocol::json::Scratch;
use protocol::media::Media;

/// So much of the name of a content coding is told.
const CODING_CHARS_MAX: usize = 32;
/// So much of what a reply says that it is made of is told.
const MEDIA_CHARS_MAX: usize = 64;

/// The head of a reply, as far as anybody looks at it.
#[derive(Debug)]
pub(crate) struct ReplyHead {
    pub status: StatusCode,
    pub media: Media,
    pub fields: ReplyFields,
}

/// The fields of a reply that anybody looks at. Most replies have none of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplyFields(Option<Box<NamedFields>>);

#[derive(Clone, Debug, Default)]
struct NamedFields {
    session_id: Option<HeaderValue>,
    retry_after: Option<HeaderValue>,
    location: Option<HeaderValue>,
    /// The content coding, where it is another than `identity`.
    coding: Option<HeaderValue>,
    /// What it is made of, where that is neither JSON nor events.
    media: Option<HeaderValue>,
    /// There is a challenge: whoever keeps the door has answered.
    is_challenge: bool,
}

impl ReplyHead {
    /// What a reply is that holds no message of MCP.
    pub(crate) fn fault(&self) -> UpstreamError {
        self.fields.fault(self.status)
    }
}

impl ReplyFields {
    /// What a reply with this status is that holds no message of MCP.
    #[cold]
    pub(crate) fn fault(&self, status: StatusCode) -> UpstreamError {
        let named = self.0.as_deref();
        let text = |value: Option<&HeaderValue>| {
            value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        if status.is_redirection() {
            let location = text(named.and_then(|named| named.location.as_ref()));
            return UpstreamError::Redirected(Arc::new(Redirect::new(status, location.as_deref())));
        }
        if status == StatusCode::MISDIRECTED_REQUEST {
            return UpstreamError::UpstreamHost;
        }
        if let Some(coding) = text(named.and_then(|named| named.coding.as_ref())) {
            return UpstreamError::Encoded { coding: coding.chars().take(CODING_CHARS_MAX).collect() };
        }
        if !status.is_success() {
            return UpstreamError::Status { status, media: self.media() };
        }
        match text(named.and_then(|named| named.media.as_ref())) {
            Some(media) => UpstreamError::OtherMedia { media: media.chars().take(MEDIA_CHARS_MAX).collect() },
            None => UpstreamError::Nonsense,
        }
    }

    /// Whether whoever keeps the door has answered, and nobody behind it.
    pub(crate) fn is_challenge(&self) -> bool {
        self.0.as_ref().is_some_and(|named| named.is_challenge)
    }

    #[cold]
    pub(crate) fn note_challenge(&mut self) {
        self.0.get_or_insert_default().is_challenge = true;
    }

    /// The same for operators.
    pub(crate) fn told(&self, status: StatusCode) -> Fault {
        match self.fault(status) {
            // The one of 421 and that of no message at all say less.
            UpstreamError::Nonsense | UpstreamError::OtherMedia { .. } | UpstreamError::UpstreamHost => {
                Fault::Http { status, media: self.media() }
            }
            error => Fault::of_error(&error, masking::told).unwrap_or(Fault::NotMcp),
        }
    }

    /// The media that it says it is made of, where that is nothing of MCP, without parameters.
    pub(crate) fn media(&self) -> Option<Box<str>> {
        let media = self.0.as_ref()?.media.as_ref()?.to_str().ok()?;
        let essence = media.split(';').next().unwrap_or_default().trim();
        (!essence.is_empty()).then(|| essence.chars().take(MEDIA_CHARS_MAX).collect())
    }

    /// True if it is in a coding that nobody asked for.
    pub(crate) fn is_encoded(&self) -> bool {
        self.0.as_ref().is_some_and(|named| named.coding.is_some())
    }

    #[cold]
    pub(crate) fn note_location(&mut self, value: &[u8]) {
        self.0.get_or_insert_default().location = HeaderValue::from_bytes(value).ok();
    }

    #[cold]
    pub(crate) fn note_coding(&mut self, value: &[u8]) {
        self.0.get_or_insert_default().coding = HeaderValue::from_bytes(value).ok();
    }

    #[cold]
    pub(crate) fn note_media(&mut self, value: &[u8]) {
        self.0.get_or_insert_default().media = HeaderValue::from_bytes(value).ok();
    }

    /// The session that began.
    pub(crate) fn session_id(&self) -> Option<&HeaderValue> {
        self.0.as_ref()?.session_id.as_ref()
    }

    /// The same, to be kept for long: as it came, it would keep what its connection read along with it.
    pub(crate) fn kept_session_id(&self) -> Option<HeaderValue> {
        self.session_id().and_then(|id| HeaderValue::from_bytes(id.as_bytes()).ok())
    }

    pub(crate) fn set_session_id(&mut self, id: HeaderValue) {
        self.0.get_or_insert_default().session_id = Some(id);
    }

    /// When to come back.
    pub(crate) fn retry_after(&self) -> Option<&HeaderValue> {
        self.0.as_ref()?.retry_after.as_ref()
    }

    /// How long a busy server wants to be let be.
    pub(crate) fn retry_after_s(&self) -> Option<u32> {
        self.retry_after()?.to_str().ok()?.trim().parse().ok()
    }

    /// Of several, the first counts.
    pub(crate) fn add_session_id(&mut self, value: &[u8]) {
        let named = self.0.get_or_insert_default();
        named.session_id = named.session_id.take().or_else(|| HeaderValue::from_bytes(value).ok());
    }

    /// Of several, the first counts.
    pub(crate) fn add_retry_after(&mut self, value: &[u8]) {
        let named = self.0.get_or_insert_default();
        named.retry_after = named.retry_after.take().or_else(|| HeaderValue::from_bytes(value).ok());
    }
}

/// What came back. The connection is leased until the body was read to its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub head: ReplyHead,
    pub body: Incoming,
    /// To be given back after a clean end; `None` where no connection belongs to the reply alone.
    pub lease: Option<ConnectionLease>,
    pub replica: Option<ReplicaKey>,
    /// When its head had come, or as much as had to be waited for.
    pub arrived: Instant,
}

impl Reply {
    /// One that was made in this process, of this media type.
    fn made(media: Media, body: Incoming) -> Self {
        let head = ReplyHead { status: StatusCode::OK, media, fields: ReplyFields::default() };
        Self { head, body, lease: None, replica: None, arrived: clock::now() }
    }

    /// What was posted, and has no answer, is taken in; or a session is over.
    pub(crate) fn accepted() -> Self {
        let mut reply = Self::made(Media::Other, Incoming::Whole(None));
        reply.head.status = StatusCode::ACCEPTED;
        reply
    }

    pub(crate) fn json(answer: Bytes) -> Self {
        Self::made(Media::Json, Incoming::Whole(Some(answer)))
    }

    /// Of server-sent events.
    pub(crate) fn events(events: Incoming) -> Self {
        Self::made(Media::Sse, events)
    }

    /// Whether it is a success, and consists of server-sent events.
    pub(crate) fn is_stream(&self) -> bool {
        self.head.status.is_success() && self.head.media == Media::Sse
    }
}

/// A thread's way to its upstreams.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamClient {
    pub pools: Rc<ConnectionPools>,
    pub tasks: Tasks,
    /// Fetches tokens.
    pub fetcher: Fetcher,
    /// Open connections of this thread, idle ones included.
    pub open: Rc<Cell<usize>>,
    /// How many this thread may have.
    pub open_max: usize,
    /// What its connections read and write with.
    pub buffers: Rc<Buffers>,
    /// Where connections run that many calls share.
    pub host: Rc<Host>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendOptions {
    /// Executing it twice does no harm.
    pub is_safe_to_repeat: bool,
    /// Which replica it is for.
    pub aim: ReplicaSelection,
    pub asked: Option<CallLabels>,
    /// Who is charged for the connection.
    pub payer: Payer,
}

/// Where a request has to go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplicaTarget<'a> {
    /// The replica that it must reach.
    pub replica: ReplicaKey,
    /// The request target, where it is not the replica's own.
    pub target: Option<&'a Uri>,
}

impl UpstreamClient {
    /// The bounds in force.
    pub(crate) fn limits(&self) -> Arc<Limits> {
        Arc::clone(&self.host.shared.limits())
    }

    /// Reads JSON in this thread's memory for it, as deep as it may be nested.
    pub(crate) fn read_json<T>(&self, read: impl FnOnce((&mut Scratch, usize)) -> T) -> T {
        let depth_max = self.host.shared.limits().json_depth_max;
        read((&mut self.host.scratch.borrow_mut(), depth_max))
    }

    /// Sends `request` at `now` and waits until `deadline` for the head of the reply. What is left of the request is of no use.
    pub(crate) async fn send(
        &self,
        upstream: &Upstream,
        request: &mut UpstreamRequest,
        delivery: SendOptions,
        now: Instant,
        deadline: Instant,
    ) -> Result<Reply, UpstreamError> {
        let result = match other_era::crossing(upstream, request, delivery.aim) {
            None => self.send_as_it_is(upstream, request, delivery, now, deadline).await,
            Some(era) => {
                let silence = request.attributes.silence.clone();
                let request = request.take_charged(delivery.payer);
                let answer = Arc::clone(&upstream.other_era).answer(self, era, request, deadline);
                match silence {
                    // The bridge minds the deadline.
                    Some(silence) => silence::noted(&silence, now, answer).await,
                    None => answer.await,
                }
            }
        };
        // As over HTTP, where a server that does not know the session has answered.
        let is_gone = matches!(result, Err(UpstreamError::SessionLost)) && upstream.has_local_sessions();
        let failed = result.as_ref().err().filter(|_| !is_gone);
        let reason = failed.map(|error| Error::from(error.clone()).outcome().reason);
        let ended = result.as_ref().map_or_else(|_| clock::now(), |reply| reply.arrived);
        upstream.durations.observe(delivery.asked, reason, ended.duration_since(now).as_secs_f64());
        result
    }

    /// As [`UpstreamClient::send`], in the era that the request is written in.
    pub(crate) async fn send_as_it_is(
        &self,
        upstream: &Upstream,
        request: &mut UpstreamRequest,
        delivery: SendOptions,
        now: Instant,
        deadline: Instant,
    ) -> Result<Reply, UpstreamError> {
        match &upstream.transport {
            Transport::Http(streams) if streams.is_spoken() => {
                let request = request.take_charged(delivery.payer);
                Box::pin(mux::exchange::send(self, upstream, &**streams, request, deadline)).await
            }
            Transport::Http(_) => {
                let clock = RequestClock { now, deadline };
                if upstream.access.has_tokens() {
                    Box::pin(self.attempt_with_token(upstream, (delivery, None), request, clock)).await
                } else {
                    self.attempt(upstream, (delivery, None), request, clock).await
                }
            }
            Transport::Stdio(children) => {
                // Made where it stays: `Box::pin` would copy all of it.
                let request = request.take_charged(delivery.payer);
                let sending = Box::write(
                    Box::new_uninit(),
                    mux::exchange::send(self, upstream, children, request, deadline),
                );
                Box::into_pin(sending).await
            }
        }
    }

    pub(crate) async fn send_to(
        &self,
        upstream: &Upstream,
        to: ReplicaTarget<'_>,
        request: &mut UpstreamRequest,
        deadline: Instant,
    ) -> Result<Reply, UpstreamError> {
        let delivery = SendOptions { aim: ReplicaSelection::Session(to.replica), ..SendOptions::default() };
        let clock = RequestClock { now: clock::now(), deadline };
        Box::pin(self.attempt_with_token(upstream, (delivery, to.target), request, clock)).await
    }
}
