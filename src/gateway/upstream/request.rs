//! What an upstream is asked, in words of MCP: to take a message, to say what belongs to no request, or to end a session.
//!
//! Only what goes over HTTP becomes a request of HTTP, where it is written ([`super::http1`]): connections that many calls
//! share ([`super::mux`]) and the bridge take it as it is. Deliberately not here: where it goes, and what comes of it
//! ([`super::exchange`]).
//!
//! Invariant: whatever is no message belongs to the legacy era; the modern one has no sessions.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::ReplicaKey;
use super::ask::{SESSION_ID, SessionHeaders};
use super::exchange::UpstreamClient;
use super::headers::{ForwardedFields, era_of};
use super::http1::connection::PooledConnection;
use super::sending::Sending;
use super::silence::Silence;
use crate::access::limit::concurrency::place::CallPlace;
use crate::access::limit::payer::Payer;
use crate::telemetry::trace::Trail;
use protocol::envelope::Envelope;
use protocol::error::UpstreamError;
use protocol::json::Scratch;
use protocol::splice::Segments;
use protocol::version::Era;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What is asked, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// To take a message, and to answer it if it is a request.
    #[default]
    Post,
    /// To say what belongs to no request of a session, or what came after an event.
    Listen,
    /// To end a session.
    EndSession,
}

/// What goes to an upstream: a message in pieces of known total length, what goes along of its client's header, and what
/// the gateway knows of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpstreamRequest {
    pub kind: RequestKind,
    /// The message; empty where none is posted.
    pub message: Segments,
    /// What was found in it, where that is known.
    pub envelope: Option<Box<Envelope>>,
    /// Fields of its own. Neither `Host` nor `Content-Length` is among them.
    pub headers: HeaderMap,
    /// What its header holds beside them.
    pub forwarded: Option<ForwardedFields>,
    /// Told how far it has come, where somebody must not overtake it.
    pub sending: Option<Arc<Sending>>,
    pub attributes: RequestAttributes,
}

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
    /// Its place among the calls that the upstream may have at once, where these are counted.
    pub place: Option<Arc<CallPlace>>,
    /// Where it is noted where it went, if it is traced.
    pub trail: Option<Arc<Trail>>,
    /// The silence of its client, where one waits for the reply.
    pub silence: Option<Arc<Silence>>,
    /// The opener of a session, if it opens one.
    pub opens: Option<Arc<dyn SessionOpener>>,
}

/// Opens a session, which may succeed when nobody waits for it any more.
pub(crate) trait SessionOpener: std::fmt::Debug + Send + Sync {
    /// True if the bridge is to open it, though the upstream may open it itself.
    fn is_bridged(&self) -> bool;

    /// Takes over this reply, which no request waits for any more.
    fn leave(self: Arc<Self>, client: &UpstreamClient, reply: LateReply);
}

/// A reply that may still come.
#[derive(Debug)]
pub(crate) struct LateReply {
    pub connection: Rc<PooledConnection>,
    /// The replica that gives it.
    pub replica: ReplicaKey,
}

/// What comes of a request, and when it is late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ExpectedReply {
    /// An answer, which begins within the time of the upstream for a first byte.
    #[default]
    Answer,
    /// An answer that may take longer: somebody else ends what takes too long.
    SlowAnswer,
    /// Nothing of use, as of a notification: that it is taken in late, or not at all, says nothing of how a replica answers
    /// calls.
    Receipt,
    /// The same of the end of a session. Servers need not take it: whatever comes of it says nothing of the replica.
    LastReceipt,
    /// A stream that is held open for long. It has a connection of its own, which whoever asks has to bound.
    Stream,
}

impl ExpectedReply {
    /// True if nothing is made of it.
    pub(crate) fn is_of_no_use(self) -> bool {
        matches!(self, Self::Receipt | Self::LastReceipt)
    }
}

impl RequestAttributes {
    /// The principal with this identity; `None` for an empty one.
    pub(crate) fn principal(identity: &str) -> Option<Arc<str>> {
        (!identity.is_empty()).then(|| identity.into())
    }
}

impl UpstreamRequest {
    /// Posts a message with these fields, and takes any kind of reply.
    pub(crate) fn post(message: Segments, mut headers: HeaderMap) -> Self {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        Self { message, headers, ..Self::default() }
    }

    /// Asks for what belongs to no request of this session, or for what came `after` an event.
    pub(crate) fn listen(session: &SessionHeaders<'_>, after: Option<HeaderValue>) -> Self {
        let mut headers = session.to_map();
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.extend(after.map(|after| (LAST_EVENT_ID, after)));
        Self { kind: RequestKind::Listen, headers, ..Self::default() }
    }

    /// Asks for the end of this session.
    pub(crate) fn end_session(session: &SessionHeaders<'_>) -> Self {
        let attributes =
            RequestAttributes { reply: ExpectedReply::LastReceipt, ..RequestAttributes::default() };
        Self { kind: RequestKind::EndSession, headers: session.to_map(), attributes, ..Self::default() }
    }

    /// The era that it is written in.
    pub(crate) fn era(&self) -> Era {
        self.forwarded.as_ref().map_or_else(|| era_of(&self.headers), ForwardedFields::era)
    }

    /// The session that it names.
    pub(crate) fn session_id(&self) -> Option<&HeaderValue> {
        self.headers.get(SESSION_ID).or_else(|| self.forwarded.as_ref()?.session_id())
    }

    /// `traceparent`, `tracestate` and `baggage`.
    pub(crate) fn trace(&self) -> [Option<&str>; 3] {
        let [parent, state, baggage] =
            self.forwarded.as_ref().map(ForwardedFields::trace).unwrap_or_default();
        let own = |name: &str| self.headers.get(name).and_then(|value| value.to_str().ok());
        [own("traceparent").or(parent), own("tracestate").or(state), own("baggage").or(baggage)]
    }

    /// What the request says itself, its client does not say as well.
    pub(crate) fn yield_to_own(&mut self) {
        if let Some(forwarded) = self.forwarded.as_mut().filter(|_| !self.headers.is_empty()) {
            forwarded.yield_to(&self.headers);
        }
    }

    /// Adds what goes along to its own fields, for whoever looks into them.
    pub(crate) fn spell_out(&mut self) {
        if let Some(forwarded) = self.forwarded.take() {
            let mut headers = HeaderMap::with_capacity(8);
            forwarded.add_to(&mut headers);
            headers.extend(std::mem::take(&mut self.headers));
            self.headers = headers;
        }
    }

    /// Takes its message, for whoever keeps it, and what is in it: read only where nobody has read it before. Only what was
    /// checked comes here, so it can be read.
    pub(crate) fn take_message(
        &mut self,
        (scratch, depth_max): (&mut Scratch, usize),
    ) -> Result<(Bytes, Envelope), UpstreamError> {
        let message = Bytes::from(std::mem::take(&mut self.message));
        let envelope = match self.envelope.take() {
            Some(known) => *known,
            None => Envelope::parse(scratch, &message, depth_max).map_err(|_| UpstreamError::Nonsense)?,
        };
        Ok((message, envelope))
    }

    /// For whoever keeps it and charges this payer.
    pub(super) fn take_charged(&mut self, payer: Payer) -> Self {
        self.attributes.payer = payer;
        std::mem::take(self)
    }
}
