//! The reply on its way back: which status and headers the client sees, and the bytes of the body.
//!
//! Replies of transparent endpoints are handed on frame by frame and never looked into. Aggregating endpoints
//! collect JSON replies to map the names in them, and map server-sent events one by one. Whatever an upstream
//! does wrong becomes one of our own errors; its headers beyond media type and `Retry-After` never cross.
//!
//! Invariant: a connection is given back to its pool only after the reply ended cleanly.

mod body;
mod client_attachment;
mod events;
mod gather;
mod limited;
mod new_task;
mod reopen;
mod stream;

use std::rc::Rc;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use memchr::memmem::{self, Finder};
use tokio::time::timeout_at;

use crate::access::limit::concurrency::Permit;
use crate::clock;
use crate::context::in_session::InSession;
use crate::context::worker::Worker;
use crate::mapper::{Mapper, NotMapped, is_same_text};
use crate::session::outbox::CallInFlight;
use crate::session::streams::StreamPlace;
use crate::snapshot::Endpoint;
use crate::upstream::Upstream;
use crate::upstream::body::collect;
use crate::upstream::exchange::Reply;
use crate::upstream::incoming::Incoming;
use crate::upstream::own_id::{self, OwnId};
use crate::upstream::pool::{self, ConnectionLease};
use net::chunks::Chunks;
use protocol::answer_id::{AnswerId, Verdict};
use protocol::envelope::{Envelope, MessageKind};
use protocol::error::{ClientError, Error, GatewayError, PolicyError, UpstreamError};
use protocol::json::Span;
use protocol::media::{Media, media_of};
use protocol::splice::{Segments, splice};
use protocol::version::Era;

pub(crate) use body::{BodyGuard, EventsKind, ReplyBody};
use client_attachment::ClientAttachment;
pub(crate) use new_task::NewTask;
pub(crate) use reopen::resume;
use stream::{JsonHead, RelayedReply};

/// In how much of a reply a refusal is looked for: they are short.
const REFUSAL_BYTES_MAX: usize = 1024;

/// How much of a failed reply is read to see whether it is a JSON-RPC error.
const FAILED_BYTES_MAX: usize = 64 * 1024;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const SSE: HeaderValue = HeaderValue::from_static("text/event-stream");
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const NO: HeaderValue = HeaderValue::from_static("no");

/// How a reply is to be handed on.
#[derive(Debug)]
pub(crate) struct RelayPlan<'p> {
    pub upstream: &'p Upstream,
    /// The literal of the request's id; empty where it is not known, as a client goes on with a reply.
    pub id: &'p str,
    /// The id that the upstream was sent, where that is not the client's.
    pub own_id: Option<&'p OwnId>,
    /// Where names must be mapped.
    pub mapper: Option<Mapper>,
    /// When a JSON reply must be complete.
    pub deadline: Instant,
    /// The session with the upstream, in the legacy era.
    pub session: Option<InSession>,
    /// That the upstream works on the call, in the legacy era.
    pub in_flight: Option<CallInFlight>,
    /// That it is one of the calls that the upstream may have at once, until its reply has ended.
    pub permit: Option<Rc<Permit>>,
    /// The resource that is forgotten as subscribed to if the upstream refuses.
    pub subscribing: Option<Box<str>>,
    /// Whose the task is that the reply may make.
    pub new_task: Option<Box<NewTask>>,
    /// What it counts as among the streams of clients, where it answers a GET.
    pub place: Option<StreamPlace>,
}

pub(crate) async fn relay(
    worker: &Rc<Worker>,
    reply: Reply,
    plan: RelayPlan<'_>,
) -> Result<Response<ReplyBody>, Error> {
    let (status, upstream) = (reply.head.status, plan.upstream);
    let response = match media_of(&reply.head.headers) {
        Media::Json if status.is_success() => relay_json(worker, reply, plan).await,
        Media::Sse if status.is_success() => Ok(relay_sse(worker, reply, plan)),
        media => Box::pin(relay_failure(worker, reply, media, plan)).await,
    };
    response.inspect_err(|error| {
        if matches!(error, Error::Upstream(_)) {
            upstream.durations.note_broken(error);
        }
    })
}

impl<'p> RelayPlan<'p> {
    /// Of a reply in which nothing is mapped or checked.
    pub(crate) fn new(upstream: &'p Upstream, id: &'p str, deadline: Instant) -> Self {
        Self {
            upstream,
            id,
            own_id: None,
            mapper: None,
            deadline,
            session: None,
            in_flight: None,
            permit: None,
            subscribing: None,
            new_task: None,
            place: None,
        }
    }

    /// The literal of the id that the upstream's answer must have.
    fn sent_id(&self) -> &[u8] {
        self.own_id.map_or(self.id.as_bytes(), |own_id| own_id.sent())
    }

    /// Whether nothing of a JSON reply is handed on before it is known whose it is.
    fn is_checked(&self) -> bool {
        self.session.is_some() || self.own_id.is_some()
    }

    /// The reply answers another request: its connection is out of step.
    fn mismatch(&self, lease: Option<&mut ConnectionLease>) -> UpstreamError {
        self.upstream.series.mismatched.inc();
        pool::note_error(lease, &UpstreamError::Nonsense);
        UpstreamError::Nonsense
    }

    fn era(&self) -> Era {
        if self.session.is_some() { Era::Legacy } else { Era::Modern }
    }
}

async fn relay_json(
    worker: &Rc<Worker>,
    reply: Reply,
    plan: RelayPlan<'_>,
) -> Result<Response<ReplyBody>, Error> {
    let Reply { head, mut body, mut lease, .. } = reply;
    let deadline = plan.deadline;
    if let Some(mapper) = &plan.mapper {
        let reply_bytes_max = worker.limits().reply_bytes_max;
        let collected = collect(&mut body, reply_bytes_max, deadline, &worker.state.buffered).await;
        let (whole, reservation) = collected.inspect_err(|error| note_broken(lease.as_mut(), error))?;
        note_refusal(plan.upstream, &whole);
        note_task(worker, plan.new_task.as_deref(), &whole).await;
        let ids = (plan.sent_id(), plan.own_id);
        let mapped = mapper.map_reply(&mut worker.scratch.borrow_mut(), &whole, ids);
        let mapped = mapped.map_err(|error| match error {
            NotMapped::OtherId => plan.mismatch(lease.as_mut()),
            NotMapped::Json(_) => UpstreamError::Nonsense,
        })?;
        pool::give_back(lease, clock::now());
        let segments = mapped.unwrap_or_else(|| Segments::from(whole));
        return Ok(respond(head, JSON, ReplyBody::Whole(segments, BodyGuard::new(reservation))));
    }
    let first = next_piece(&mut body, lease.as_mut(), deadline).await?.unwrap_or_default();
    if plan.is_checked() {
        let mut check = AnswerId::default();
        check.push(&first, plan.sent_id());
        let reply = Reply { head, body, lease, replica: None };
        // Nearly every reply says whose it is with its first piece.
        if check.is_ours() || check.is_others() || reply.body.is_end_stream() {
            if makes_task(worker, &reply, (&first, &check), &plan) {
                note_task(worker, plan.new_task.as_deref(), &first).await;
            }
            return hand_on_checked(worker, reply, (first, check, BodyGuard::default()), plan);
        }
        return Box::pin(relay_held(worker, reply, (first, check), plan)).await;
    }
    note_refusal(plan.upstream, &first);
    if first.is_empty() && body.is_end_stream() {
        return Err(UpstreamError::Nonsense.into());
    }
    let body = if body.is_end_stream() {
        note_task(worker, plan.new_task.as_deref(), &first).await;
        pool::give_back(lease, clock::now());
        ReplyBody::Whole(Segments::from(first), BodyGuard::default())
    } else {
        let first = JsonHead { pieces: first.into(), check: None, held: BodyGuard::default() };
        ReplyBody::Stream(ClientAttachment::new(RelayedReply::json(worker, first, body, lease, plan)))
    };
    Ok(respond(head, JSON, body))
}

/// The next piece of a JSON reply; `None` at its end.
async fn next_piece(
    body: &mut Incoming,
    lease: Option<&mut ConnectionLease>,
    deadline: Instant,
) -> Result<Option<Bytes>, UpstreamError> {
    match timeout_at(deadline.into(), body.frame()).await {
        Ok(Some(Ok(frame))) => Ok(Some(frame.into_data().unwrap_or_default())),
        Ok(None) => Ok(None),
        broken => {
            let error = if broken.is_err() { UpstreamError::TimedOut } else { UpstreamError::Reset };
            pool::note_error(lease, &error);
            Err(error)
        }
    }
}

/// A JSON reply of which nothing is handed on before its id is known to be the request's: a connection that is out of
/// step must not give one client's reply to another. Servers that write the id last have their replies held until then.
async fn relay_held(
    worker: &Rc<Worker>,
    reply: Reply,
    (first, mut check): (Bytes, AnswerId),
    plan: RelayPlan<'_>,
) -> Result<Response<ReplyBody>, Error> {
    let Reply { head, mut body, mut lease, .. } = reply;
    let (bytes_max, mut held) = (worker.limits().reply_bytes_max, worker.state.buffered.reservation());
    let mut pieces = Chunks::default();
    pieces.push(first, 0);
    while !check.is_ours() && !check.is_others() && !body.is_end_stream() {
        let Some(piece) = next_piece(&mut body, lease.as_mut(), plan.deadline).await? else { break };
        let bytes = pieces.len() + piece.len();
        if bytes > bytes_max {
            return Err(UpstreamError::TooLarge.into());
        }
        if !held.grow_to(bytes) {
            return Err(GatewayError::Buffers.into());
        }
        check.push(&piece, plan.sent_id());
        pieces.push(piece, 0);
    }
    let reply = Reply { head, body, lease, replica: None };
    let begun = pieces.into_bytes();
    if makes_task(worker, &reply, (&begun, &check), &plan) {
        note_task(worker, plan.new_task.as_deref(), &begun).await;
    }
    hand_on_checked(worker, reply, (begun, check, BodyGuard::new(held)), plan)
}

/// Whether a reply may make a task, is complete, and is the request's.
fn makes_task(
    worker: &Worker,
    reply: &Reply,
    (whole, check): (&Bytes, &AnswerId),
    plan: &RelayPlan<'_>,
) -> bool {
    let is_whole = plan.new_task.is_some() && reply.body.is_end_stream();
    is_whole && id_span(worker, whole, check, plan.sent_id()).is_some()
}

/// Hands on a reply that has begun with these bytes, if it is the request's.
fn hand_on_checked(
    worker: &Rc<Worker>,
    reply: Reply,
    (begun, check, held): (Bytes, AnswerId, BodyGuard),
    plan: RelayPlan<'_>,
) -> Result<Response<ReplyBody>, Error> {
    let Reply { head, body, mut lease, .. } = reply;
    note_refusal(plan.upstream, &begun);
    let span = id_span(worker, &begun, &check, plan.sent_id());
    let Some(span) = span else {
        // What has no id at all is no answer to anything.
        let is_answer = check.is_others() || check.verdict() == Verdict::Unclear;
        let error = if is_answer { plan.mismatch(lease.as_mut()) } else { UpstreamError::Nonsense };
        return Err(error.into());
    };
    let pieces = match plan.own_id {
        Some(own_id) => splice(&begun, &[own_id.restored(span)]),
        None => Segments::from(begun),
    };
    let body = if body.is_end_stream() {
        pool::give_back(lease, clock::now());
        ReplyBody::Whole(pieces, held)
    } else {
        let first = JsonHead { pieces, check: Some(check), held };
        ReplyBody::Stream(ClientAttachment::new(RelayedReply::json(worker, first, body, lease, plan)))
    };
    Ok(respond(head, JSON, body))
}

/// Where the expected id stands in a message, or in as much of it as was needed to find that out. `None`: it answers
/// another request.
fn id_span(worker: &Worker, message: &[u8], check: &AnswerId, sent_id: &[u8]) -> Option<Span> {
    match check.verdict() {
        Verdict::Ours => Some(check.span(sent_id)),
        Verdict::Others => None,
        Verdict::Unclear => {
            let depth_max = worker.json_depth_max();
            let envelope = Envelope::parse(&mut worker.scratch.borrow_mut(), message, depth_max).ok()?;
            let span = envelope.id?;
            let id = message.get(span.clone())?;
            (id == sent_id || is_same_text(id, sent_id)).then_some(span)
        }
    }
}

/// Remembers whose the task is that a reply makes, before the reply is handed on.
async fn note_task(worker: &Worker, new_task: Option<&NewTask>, reply: &[u8]) {
    let Some(new_task) = new_task else { return };
    let is_new = new_task.read(&mut worker.scratch.borrow_mut(), reply);
    if is_new {
        Box::pin(new_task.shared()).await;
    }
}

fn note_broken(lease: Option<&mut ConnectionLease>, error: &Error) {
    if let Error::Upstream(error) = error {
        pool::note_error(lease, error);
    }
}

fn relay_sse(worker: &Rc<Worker>, reply: Reply, plan: RelayPlan<'_>) -> Response<ReplyBody> {
    let Reply { head, body, lease, .. } = reply;
    let stream = RelayedReply::events(worker, body, lease, plan);
    let mut response = respond(head, SSE, ReplyBody::Stream(ClientAttachment::new(stream)));
    unbuffered(response.headers_mut());
    response
}

/// Nobody on the way is to keep events back.
fn unbuffered(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, NO_CACHE);
    headers.insert(X_ACCEL_BUFFERING, NO);
}

/// A stream of the gateway's own.
pub(crate) fn events_response(
    kind: EventsKind,
    poll: impl FnMut(&mut Context<'_>) -> Poll<Option<Bytes>> + 'static,
) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::events(kind, poll));
    response.headers_mut().insert(CONTENT_TYPE, SSE);
    unbuffered(response.headers_mut());
    response
}

/// An upstream's refusal. Its own JSON-RPC error is relayed with its status if it answers our request.
async fn relay_failure(
    worker: &Rc<Worker>,
    reply: Reply,
    media: Media,
    plan: RelayPlan<'_>,
) -> Result<Response<ReplyBody>, Error> {
    let Reply { head, mut body, lease, .. } = reply;
    let status = head.status;
    if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
        return Err(UpstreamError::Credentials.into());
    }
    let (era, upstream, retry_after) = (plan.era(), plan.upstream, head.headers.get(RETRY_AFTER).cloned());
    if media == Media::Json
        && (status.is_client_error() || status.is_server_error())
        && let Ok((whole, _)) =
            collect(&mut body, FAILED_BYTES_MAX, plan.deadline, &worker.state.buffered).await
        && let Some(response) = relay_error(worker, head, lease, &whole, plan)?
    {
        return Ok(response);
    }
    // A server of this era that has its senses answers otherwise.
    if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS && era == Era::Modern {
        upstream.facts.doubt();
    }
    Err(match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            let seconds = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
            UpstreamError::Busy { status, retry_after_s: seconds }
        }
        // It does not know the session it gave us: the request was not looked at.
        StatusCode::NOT_FOUND if era == Era::Legacy => UpstreamError::SessionLost,
        // Either that, or it does not like this request.
        StatusCode::BAD_REQUEST if era == Era::Legacy => UpstreamError::SessionDoubted,
        _ => UpstreamError::Nonsense,
    }
    .into())
}

/// A refusal in JSON, where it is an error of JSON-RPC that answers the request.
fn relay_error(
    worker: &Worker,
    head: Parts,
    mut lease: Option<ConnectionLease>,
    whole: &Bytes,
    plan: RelayPlan<'_>,
) -> Result<Option<Response<ReplyBody>>, Error> {
    let (status, era) = (head.status, plan.era());
    let envelope = Envelope::parse(&mut worker.scratch.borrow_mut(), whole, worker.json_depth_max());
    let answer = envelope.ok().filter(|envelope| envelope.kind == MessageKind::Response);
    let answered = answer.and_then(|envelope| envelope.id);
    let answers_us = answered.clone().is_some_and(|id| &whole[id] == plan.sent_id());
    // Servers write ids of all kinds where they did not look at the request, but none of another request.
    if !answers_us && answered.clone().is_some_and(|id| own_id::is_own(&whole[id])) {
        return Err(plan.mismatch(lease.as_mut()).into());
    }
    if status.is_server_error()
        && let Some(lease) = &mut lease
    {
        // An error of JSON-RPC is an answer, whatever its status.
        lease.in_flight.decide(answers_us || status == StatusCode::SERVICE_UNAVAILABLE);
    }
    pool::give_back(lease, clock::now());
    note_refusal(plan.upstream, whole);
    // Servers of this era answer what they do not understand with codes of this era.
    let is_of_era =
        ["-32602", "-32020", "-32021"].iter().any(|code| memmem::find(whole, code.as_bytes()).is_some());
    if era == Era::Modern && status == StatusCode::BAD_REQUEST && !is_of_era {
        plan.upstream.facts.doubt();
    }
    if !answers_us {
        return Ok(None);
    }
    let retry_after = head.headers.get(RETRY_AFTER).cloned();
    let id = plan.own_id.zip(answered).map(|(own_id, span)| own_id.restored(span));
    let mapped = plan.mapper.and_then(|mapper| {
        mapper.map_with(&mut worker.scratch.borrow_mut(), whole, id.clone()).ok().flatten()
    });
    let segments = mapped.unwrap_or_else(|| match id {
        Some(id) => splice(whole, &[id]),
        None => Segments::from(whole.clone()),
    });
    let mut response = respond(head, JSON, ReplyBody::Whole(segments, BodyGuard::default()));
    if era == Era::Legacy {
        *response.status_mut() = StatusCode::OK;
    }
    if let Some(retry_after) = retry_after {
        response.headers_mut().insert(RETRY_AFTER, retry_after);
    }
    Ok(Some(response))
}

/// Looks for the error codes that a client with an old list gets: unknown names and parameters, other headers.
fn note_refusal(upstream: &Upstream, reply: &[u8]) {
    static ERROR: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"error\""));
    if reply.len() > REFUSAL_BYTES_MAX {
        return;
    }
    // Nearly every reply holds none, and one look at it tells.
    if ERROR.find(reply).is_none() {
        return;
    }
    let holds = |code: &str| memmem::find(reply, code.as_bytes()).is_some();
    if holds("-32602") || holds("-32020") {
        upstream.changes.note_refusal(clock::now());
    }
    if holds("-32022") {
        upstream.facts.doubt();
    }
}

/// A response with an upstream's status, our media type and nothing else. The reply's header map is used
/// again, as its memory fits.
fn respond(head: Parts, media: HeaderValue, body: ReplyBody) -> Response<ReplyBody> {
    let mut headers = head.headers;
    headers.clear();
    headers.insert(CONTENT_TYPE, media);
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = headers;
    response
}

pub(crate) fn json_response(status: StatusCode, json: impl Into<Segments>) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::Whole(json.into(), BodyGuard::default()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// Adds the headers that go with an error at `endpoint`.
pub(crate) fn describe(response: &mut Response<ReplyBody>, error: &Error, endpoint: Option<&Endpoint>) {
    let headers = response.headers_mut();
    if let Some(retry_after) = error.outcome().retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(limited::whole_seconds(retry_after)));
    }
    match error {
        Error::Policy(PolicyError::Rate(limited)) => limited::describe(headers, limited),
        Error::Client(ClientError::HttpMethod { allow }) => {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        Error::Client(ClientError::TooSlow | ClientError::Aborted) => {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Error::Policy(error) => {
            if let Some(challenge) = endpoint.and_then(|endpoint| endpoint.challenge.of(error)) {
                headers.insert(WWW_AUTHENTICATE, challenge);
            }
        }
        _ => {}
    }
}
