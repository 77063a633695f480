//! A request on the gateway's own behalf, and its whole answer: one JSON message, alone or among server-sent events.
//!
//! Bounded in bytes and time over the whole answer. What the answer means is the caller's business; a status that is
//! no success is handed over with whatever JSON came with it. Invariant: upstreams see no two questions with the same
//! id, and what answers another is no answer; who asks sees the id that it wrote.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use memchr::memmem;
use tokio::time::timeout_at;

use super::exchange::{Reply, ReplyFields, ReplyHead, SendOptions, UpstreamClient};
use super::incoming::{Incoming, IncomingPiece};
use super::messages::ReplyPart;
use super::mux;
use super::own_id::{self, OwnId, SessionTag};
use super::request::{RequestAttributes, UpstreamRequest};
use super::{ReplicaKey, ReplicaSelection, Upstream, pool};
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::{Share, Shares};
use crate::clock;
use crate::upstream::body::collect;
use config::LimitsConfig;
use protocol::answer_id::{AnswerId, Verdict};
use protocol::envelope::{Envelope, MessageKind};
use protocol::error::{Error, UpstreamError};
use protocol::json::{Scratch, Span};
use protocol::media::Media;
use protocol::method::Method;
use protocol::splice::{Edit, Segments, splice};
use protocol::sse::Events;
use protocol::translation::question::unasked_answer;

pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(crate) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// How much of the answer to a DELETE is read, so that its connection can be used again.
const CLOSED_BYTES_MAX: usize = 4 * 1024;
/// How much of an answer is looked through at a time for its id.
const SCANNED_BYTES: usize = 4 * 1024;
const MCP_METHOD: HeaderName = HeaderName::from_static("mcp-method");

/// A thread's way to ask upstreams.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub client: &'a UpstreamClient,
    pub scratch: &'a RefCell<Scratch>,
    pub limits: &'a LimitsConfig,
    /// What answers are counted against while they are read.
    pub budget: &'a Arc<Shares>,
    /// Who is charged; where nobody asked, the gateway, and for what is held of the answer the upstream.
    pub payer: Payer,
    /// Which replica is asked what is part of no session.
    pub aim: ReplicaSelection,
}

/// A legacy session, as requests name it.
#[derive(Clone, Debug)]
pub(crate) struct SessionHeaders<'a> {
    /// Its id; `None` for an upstream that gives none.
    pub id: Option<&'a HeaderValue>,
    /// The revision of the protocol; `None`: the upstream has not said which it speaks.
    pub version: Option<&'static str>,
    pub replica: Option<ReplicaKey>,
    /// The headers that are handed on, as its client has shown them.
    pub shown: Option<Arc<HeaderMap>>,
}

impl SessionHeaders<'_> {
    /// The headers of a request in it.
    pub(crate) fn to_map(&self) -> HeaderMap {
        let mut headers = legacy_headers(self.version, self.id);
        if let Some(shown) = &self.shown {
            show(&mut headers, shown);
        }
        headers
    }
}

/// Adds what a client has shown of the headers that are handed on.
pub(crate) fn show(headers: &mut HeaderMap, shown: &HeaderMap) {
    for (name, value) in shown {
        headers.append(name.clone(), value.clone());
    }
}

/// A question: one message and the headers that go with it.
#[derive(Debug)]
pub(crate) struct AskRequest {
    /// `Content-Type` and `Accept` are added.
    pub headers: HeaderMap,
    pub body: Bytes,
    pub is_safe_to_repeat: bool,
    /// The replica that knows the session that it is part of.
    pub replica: Option<ReplicaKey>,
    pub bytes_max: usize,
    /// When all of the answer must be there.
    pub deadline: Instant,
}

#[derive(Debug)]
pub(crate) struct AskReply {
    pub status: StatusCode,
    pub fields: ReplyFields,
    /// The JSON message; empty if there was none.
    pub body: Bytes,
    /// Whether it is a response with the id of the question.
    pub is_to_us: bool,
    pub replica: Option<ReplicaKey>,
}

/// A question that an upstream has begun to answer.
#[derive(Debug)]
pub(crate) struct BegunAnswer {
    pub reply: Reply,
    headers: HeaderMap,
    bytes_max: usize,
    deadline: Instant,
    own_id: Option<OwnId>,
}

/// The stream in which an answer is looked for, and what belongs to it.
struct EventsScope<'a> {
    /// Messages that are sent beside it carry these.
    headers: HeaderMap,
    replica: Option<ReplicaKey>,
    deadline: Instant,
    bytes_max: usize,
    own_id: Option<&'a OwnId>,
}

impl<'a> Asker<'a> {
    fn share(&self, upstream: &Upstream) -> Share {
        let is_own = self.payer == Payer::GATEWAY;
        self.budget.open(if is_own { upstream.payer() } else { self.payer })
    }

    /// In the memory of this thread, under these bounds.
    pub(crate) fn of(client: &'a UpstreamClient, limits: &'a mux::host::Limits) -> Self {
        let scratch = &client.host.scratch;
        Self {
            client,
            scratch,
            limits: &limits.all,
            budget: &limits.budget,
            payer: Payer::GATEWAY,
            aim: ReplicaSelection::Any,
        }
    }

    /// Sends a request and waits until `deadline` for the head of the reply. `replica`: the one that knows its session.
    pub(crate) async fn send(
        &self,
        upstream: &Upstream,
        mut request: UpstreamRequest,
        (is_safe_to_repeat, replica): (bool, Option<ReplicaKey>),
        deadline: Instant,
    ) -> Result<Reply, UpstreamError> {
        request.attributes.is_own = true;
        let delivery =
            SendOptions { is_safe_to_repeat, aim: self.aim_at(replica), asked: None, payer: self.payer };
        self.client.send(upstream, &mut request, delivery, clock::now(), deadline).await
    }

    /// Asks. An error is a fault of the exchange; a refusal is an answer.
    pub(crate) async fn ask(
        &self,
        upstream: &Upstream,
        question: AskRequest,
    ) -> Result<AskReply, UpstreamError> {
        self.ask_for(None, upstream, question).await
    }

    /// As [`ask`](Self::ask), for the principal with this identity, where processes are told apart by that.
    pub(crate) async fn ask_for(
        &self,
        principal: Option<Arc<str>>,
        upstream: &Upstream,
        question: AskRequest,
    ) -> Result<AskReply, UpstreamError> {
        let attributes = RequestAttributes { principal, ..RequestAttributes::default() };
        let begun = self.begin(attributes, upstream, question).await?;
        self.finish(upstream, begun).await
    }

    /// Asks, and waits for the head of the reply. The rest is for [`finish`](Self::finish).
    pub(crate) async fn begin(
        &self,
        attributes: RequestAttributes,
        upstream: &Upstream,
        question: AskRequest,
    ) -> Result<BegunAnswer, UpstreamError> {
        let AskRequest { headers, body, is_safe_to_repeat, replica, bytes_max, deadline } = question;
        let (body, own_id) = self.with_own_id(body);
        let mut request = UpstreamRequest::post(Segments::from(body), headers.clone());
        request.attributes = attributes;
        let reply = self.send(upstream, request, (is_safe_to_repeat, replica), deadline).await?;
        Ok(BegunAnswer { reply, headers, bytes_max, deadline, own_id })
    }

    /// Reads the rest of an answer.
    pub(crate) async fn finish(
        &self,
        upstream: &Upstream,
        begun: BegunAnswer,
    ) -> Result<AskReply, UpstreamError> {
        let BegunAnswer { reply, headers, bytes_max, deadline, own_id } = begun;
        if own_id.is_none() && reply.head.status.is_success() {
            // It has no answer: that it was accepted is all there is.
            let replica = reply.replica;
            let ReplyHead { status, fields, .. } = self.client.let_go(upstream, reply);
            return Ok(AskReply { status, fields, body: Bytes::new(), is_to_us: false, replica });
        }
        let Reply { head, mut body, mut lease, replica, .. } = reply;
        let media = head.media;
        let answer = |body: Bytes| {
            let restored = own_id.as_ref().and_then(|own_id| self.restored(&body, own_id));
            let (status, fields) = (head.status, head.fields.clone());
            AskReply { status, fields, is_to_us: restored.is_some(), body: restored.unwrap_or(body), replica }
        };
        match media {
            Media::Sse if head.status.is_success() => {
                let mut headers = headers;
                if let Some(session) = head.fields.session_id() {
                    headers.insert(SESSION_ID, session.clone());
                }
                let within = EventsScope { headers, replica, deadline, bytes_max, own_id: own_id.as_ref() };
                let found = self.answer_in_events(upstream, &mut body, &within);
                let found = timeout_at(deadline.into(), found).await;
                found.unwrap_or(Err(UpstreamError::TimedOut)).map(answer)
            }
            // Of anything else than JSON only the end is of use: it frees the connection.
            _ => {
                let collected = collect(&mut body, bytes_max, deadline, self.share(upstream)).await;
                // The budget bounds what is read; an answer is short-lived enough to be counted only so far.
                let (body, _) = collected.map_err(|error| match error {
                    Error::Upstream(error) => error,
                    _ => UpstreamError::TooManyConnections,
                })?;
                if media == Media::Json && self.is_of_another(&body, head.status, own_id.as_ref()) {
                    upstream.series.mismatched.inc();
                    pool::note_error(lease.as_mut(), &UpstreamError::Nonsense);
                    return Err(UpstreamError::Nonsense);
                }
                if media == Media::Json
                    && head.status.is_server_error()
                    && let Some(lease) = &mut lease
                {
                    let is_busy = head.status == StatusCode::SERVICE_UNAVAILABLE;
                    lease.in_flight.decide(is_busy || self.response_id(&body).is_some());
                }
                if head.status == StatusCode::ACCEPTED {
                    pool::let_rest(lease, clock::now());
                } else {
                    pool::give_back(lease, clock::now());
                }
                Ok(answer(if media == Media::Json { body } else { Bytes::new() }))
            }
        }
    }

    /// Ends a legacy session that nobody needs any more, at the replica that opened it, fit or not. `false`: the upstream
    /// keeps it until it forgets it by itself. An error says nothing of what it does with sessions.
    pub(crate) async fn close_session(
        &self,
        upstream: &Upstream,
        session: SessionHeaders<'_>,
        deadline: Instant,
    ) -> Result<bool, UpstreamError> {
        if session.id.is_none() {
            return Ok(true);
        }
        let request = UpstreamRequest::end_session(&session);
        let aim = session.replica.map_or(self.aim, ReplicaSelection::Closing);
        let own = Self { payer: Payer::GATEWAY, aim, ..*self };
        let sent = own.send(upstream, request, (true, session.replica), deadline).await;
        let Reply { head, mut body, lease, .. } = sent.inspect_err(|error| {
            tracing::debug!(upstream = upstream.config.name, %error, "cannot close a session");
        })?;
        if collect(&mut body, CLOSED_BYTES_MAX, deadline, self.share(upstream)).await.is_ok() {
            pool::let_rest(lease, clock::now());
        }
        match head.status {
            // These may come from something in between, or pass.
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Err(head.fault()),
            status => Ok(status.is_success() || status == StatusCode::NOT_FOUND),
        }
    }

    fn aim_at(&self, session: Option<ReplicaKey>) -> ReplicaSelection {
        match (self.aim, session) {
            (ReplicaSelection::Any, session) => session.into(),
            // Fit or not.
            (ReplicaSelection::Probe, Some(replica)) => ReplicaSelection::Question(replica),
            (aim, _) => aim,
        }
    }

    /// The answer among server-sent events. The stream need not end with it.
    async fn answer_in_events(
        &self,
        upstream: &Upstream,
        body: &mut Incoming,
        within: &EventsScope<'_>,
    ) -> Result<Bytes, UpstreamError> {
        let EventsScope { bytes_max, own_id, .. } = *within;
        let mut events = Events::new(bytes_max);
        let mut held = self.share(upstream);
        let mut bytes = 0;
        while let Some(piece) = body.piece().await {
            let data = match piece.map_err(|_| body.fault())? {
                IncomingPiece::Bytes(data) => data,
                IncomingPiece::Part(part) => {
                    bytes += part.len();
                    match part {
                        _ if bytes > bytes_max => return Err(UpstreamError::TooLarge),
                        ReplyPart::Message(message) if self.is_answer(&message, own_id) => {
                            return Ok(message);
                        }
                        _ => continue,
                    }
                }
            };
            bytes += data.len();
            if bytes > bytes_max {
                return Err(UpstreamError::TooLarge);
            }
            held.grow(data.len()).map_err(|_| UpstreamError::TooManyConnections)?;
            events.push(data);
            while let Some(event) = events.next() {
                let data = event.map_err(|_| UpstreamError::TooLarge)?.data.unwrap_or_default();
                if self.is_answer(&data, own_id) {
                    return Ok(data);
                }
                self.answer_ping(upstream, &data, within).await;
            }
        }
        let last = events.finish().and_then(|event| event.data).filter(|data| self.is_answer(data, own_id));
        last.ok_or(UpstreamError::Nonsense)
    }

    /// Answers a ping that comes before the answer: its server may wait for that. All else it asks is nobody's.
    async fn answer_ping(&self, upstream: &Upstream, message: &Bytes, within: &EventsScope<'_>) {
        let depth_max = self.limits.json_depth_max;
        let envelope = Envelope::parse(&mut self.scratch.borrow_mut(), message, depth_max);
        let Ok(envelope) = envelope else { return };
        let is_ping = envelope.method.as_ref().is_some_and(|method| method.equals(message, "ping"));
        let Some(id) = envelope.id.filter(|_| is_ping && envelope.kind == MessageKind::Request) else {
            return;
        };
        let pong = unasked_answer(message.get(id).unwrap_or_default(), true);
        let request = UpstreamRequest::post(Segments::from(pong), within.headers.clone());
        if let Ok(reply) = self.send(upstream, request, (true, within.replica), within.deadline).await {
            self.client.let_go(upstream, reply);
        }
    }

    /// The message under an id that no other has; as it is if it has none.
    fn with_own_id(&self, message: Bytes) -> (Bytes, Option<OwnId>) {
        let depth_max = self.limits.json_depth_max;
        let envelope = Envelope::parse(&mut self.scratch.borrow_mut(), &message, depth_max);
        let request = envelope.ok().filter(|envelope| envelope.kind == MessageKind::Request);
        let Some(span) = request.and_then(|envelope| envelope.id) else { return (message, None) };
        let own_id = OwnId::new(message.slice(span.clone()), SessionTag::default());
        let edit = Edit { span, with: own_id.sent().clone() };
        (splice(&message, &[edit]).to_bytes(), Some(own_id))
    }

    fn is_answer(&self, message: &Bytes, own_id: Option<&OwnId>) -> bool {
        match own_id {
            Some(own_id) => self.own_id_in(message, own_id).is_some(),
            None => self.response_id(message).is_some(),
        }
    }

    /// An answer with the id that the question had.
    fn restored(&self, message: &Bytes, own_id: &OwnId) -> Option<Bytes> {
        let id = self.own_id_in(message, own_id)?;
        Some(splice(message, &[own_id.restored(id)]).to_bytes())
    }

    /// Where the id of the question stands in an answer to it.
    fn own_id_in(&self, message: &[u8], own_id: &OwnId) -> Option<Span> {
        let mut scan = AnswerId::default();
        // Lists are long, and most servers begin with the id.
        for piece in message.chunks(SCANNED_BYTES) {
            scan.push(piece, own_id.sent());
            if scan.is_ours() {
                return Some(scan.span(own_id.sent()));
            }
        }
        let is_unclear = scan.verdict() == Verdict::Unclear;
        let id = is_unclear.then(|| self.response_id(message)).flatten();
        id.filter(|id| message.get(id.clone()) == Some(own_id.sent()))
    }

    /// Whether a JSON reply answers another question. Servers write ids of all kinds where they refuse one.
    fn is_of_another(&self, message: &Bytes, status: StatusCode, own_id: Option<&OwnId>) -> bool {
        if own_id.is_some_and(|own_id| self.own_id_in(message, own_id).is_some()) {
            return false;
        }
        let Some(id) = self.response_id(message).and_then(|id| message.get(id)) else { return false };
        let is_result = status.is_success() && memmem::find(message, b"\"result\"").is_some();
        own_id::is_own(id) || (own_id.is_some() && is_result)
    }

    /// Where the id of a response stands.
    fn response_id(&self, message: &[u8]) -> Option<Span> {
        let mut scratch = self.scratch.borrow_mut();
        let envelope = Envelope::parse(&mut scratch, message, self.limits.json_depth_max).ok()?;
        envelope.id.filter(|_| envelope.kind == MessageKind::Response)
    }
}

pub(crate) fn modern_headers(version: &'static str, method: Method) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(version));
    headers.insert(MCP_METHOD, HeaderValue::from_static(method.label()));
    headers
}

/// The headers of a request in a legacy session; `None` for an upstream that gives no session id.
fn legacy_headers(version: Option<&'static str>, session: Option<&HeaderValue>) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    if let Some(version) = version {
        headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(version));
    }
    if let Some(session) = session {
        headers.insert(SESSION_ID, session.clone());
    }
    headers
}
