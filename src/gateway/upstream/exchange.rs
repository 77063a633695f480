//! One request to an upstream and the head of its reply.
//!
//! Where it goes is settled here: to whoever serves the other era, into this process, or over HTTP ([`super::attempt`]).

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};

use super::attempt::RequestClock;
use super::headers::ForwardedFields;
use super::incoming::Incoming;
use super::mux::host::{Host, Limits};
use super::pool::{ConnectionLease, ConnectionPools};
use super::sending::Sending;
use super::{ReplicaKey, ReplicaSelection, Transport, Upstream, mux, other_era};
use crate::access::limit::payer::Payer;
use crate::buffers::Buffers;
use crate::clock;
use crate::telemetry::calls::CallLabels;
use crate::telemetry::trace::Trail;
use net::tasks::Tasks;
use protocol::envelope::Envelope;
use protocol::error::{Error, UpstreamError};
use protocol::json::Scratch;
use protocol::media::Media;
use protocol::splice::Segments;

/// What is known of a request beside what it says. Nothing of it is sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestAttributes {
    /// The identity of the principal that makes it, where processes or sessions are told apart by that. `None` for those
    /// whom nobody tells apart, and for the gateway itself.
    pub principal: Option<Arc<str>>,
    /// Who is charged for what is held for it.
    pub payer: Payer,
    /// The gateway itself asks.
    pub is_own: bool,
    pub reply: ExpectedReply,
    /// Where it is noted where it went, if it is traced.
    pub trail: Option<Arc<Trail>>,
}

/// What comes of a request, and when it is late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ExpectedReply {
    /// An answer, which begins within the time of the upstream for a first byte.
    #[default]
    Answer,
    /// An answer that may take longer: somebody else ends what takes too long.
    SlowAnswer,
    /// Nothing of use, as of a notification or the end of a session: that it is taken in late, or not at all, says nothing
    /// of how a replica answers calls.
    Receipt,
    /// A stream that is held open for long. It has a connection of its own, which whoever asks has to bound.
    Stream,
}

impl RequestAttributes {
    /// The principal with this identity; `None` for an empty one.
    pub(crate) fn principal(identity: &str) -> Option<Arc<str>> {
        (!identity.is_empty()).then(|| identity.into())
    }
}

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
}

impl ReplyFields {
    /// The session that began.
    pub(crate) fn session_id(&self) -> Option<&HeaderValue> {
        self.0.as_ref()?.session_id.as_ref()
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

    /// Without a body.
    pub(crate) fn empty(status: StatusCode) -> Self {
        let head = ReplyHead { status, media: Media::Other, fields: ReplyFields::default() };
        Self { head, body: Incoming::Whole(None), lease: None, replica: None, arrived: clock::now() }
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

    /// Sends `request`, which needs a method but neither target nor `Host`, at `now` and waits until `deadline` for the head of
    /// the reply. What is left of the request is of no use.
    pub(crate) async fn send(
        &self,
        upstream: &Upstream,
        request: &mut Request<RequestBody>,
        delivery: SendOptions,
        now: Instant,
        deadline: Instant,
    ) -> Result<Reply, UpstreamError> {
        let result = match other_era::crossing(upstream, request, delivery.aim) {
            None => self.send_as_it_is(upstream, request, delivery, now, deadline).await,
            Some(era) => {
                let request = RequestBody::take_charged(request, delivery.payer);
                Arc::clone(&upstream.other_era).answer(self, era, request, deadline).await
            }
        };
        let reason = result.as_ref().err().map(|error| Error::from(error.clone()).outcome().reason);
        let ended = result.as_ref().map_or_else(|_| clock::now(), |reply| reply.arrived);
        upstream.durations.observe(delivery.asked, reason, ended.duration_since(now).as_secs_f64());
        result
    }

    /// As [`UpstreamClient::send`], in the era that the request is written in.
    pub(crate) async fn send_as_it_is(
        &self,
        upstream: &Upstream,
        request: &mut Request<RequestBody>,
        delivery: SendOptions,
        now: Instant,
        deadline: Instant,
    ) -> Result<Reply, UpstreamError> {
        match &upstream.transport {
            Transport::Http(streams) if streams.is_spoken() => {
                let request = RequestBody::take_charged(request, delivery.payer);
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
                let request = RequestBody::take_charged(request, delivery.payer);
                Box::pin(mux::exchange::send(self, upstream, children, request, deadline)).await
            }
        }
    }

    pub(crate) async fn send_to(
        &self,
        upstream: &Upstream,
        to: ReplicaTarget<'_>,
        request: &mut Request<RequestBody>,
        deadline: Instant,
    ) -> Result<Reply, UpstreamError> {
        let delivery = SendOptions { aim: ReplicaSelection::Session(to.replica), ..SendOptions::default() };
        let clock = RequestClock { now: clock::now(), deadline };
        Box::pin(self.attempt_with_token(upstream, (delivery, to.target), request, clock)).await
    }
}

/// A message on its way up: pieces of known total length, and what goes along of its client's header.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestBody {
    /// The message.
    pub message: Segments,
    /// What was found in it, where that is known.
    pub envelope: Option<Box<Envelope>>,
    /// What the header of the request holds beside its own fields.
    pub forwarded: Option<ForwardedFields>,
    /// Told how far it has come, where somebody must not overtake it.
    pub sending: Option<Arc<Sending>>,
    pub attributes: RequestAttributes,
}

impl RequestBody {
    /// The request that posts it with these headers, and takes any kind of reply.
    pub(crate) fn posted(self, mut headers: HeaderMap) -> Request<Self> {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        let mut request = Request::new(self);
        *request.method_mut() = Method::POST;
        *request.headers_mut() = headers;
        request
    }

    /// What the request says itself, its client does not say as well.
    pub(crate) fn yield_to_own(request: &mut Request<Self>) {
        if request.headers().is_empty() {
            return;
        }
        let headers = std::mem::take(request.headers_mut());
        if let Some(forwarded) = &mut request.body_mut().forwarded {
            forwarded.yield_to(&headers);
        }
        *request.headers_mut() = headers;
    }

    /// For whoever keeps it and charges this payer.
    fn take_charged(request: &mut Request<Self>, payer: Payer) -> Request<Self> {
        request.body_mut().attributes.payer = payer;
        std::mem::take(request)
    }

    /// Adds what goes along to the fields of the request, for whoever looks into them.
    pub(crate) fn spell_out(request: &mut Request<Self>) {
        if let Some(forwarded) = request.body_mut().forwarded.take() {
            let mut headers = HeaderMap::with_capacity(8);
            forwarded.add_to(&mut headers);
            headers.extend(std::mem::take(request.headers_mut()));
            *request.headers_mut() = headers;
        }
    }
}

impl From<Segments> for RequestBody {
    fn from(message: Segments) -> Self {
        Self { message, ..Self::default() }
    }
}
