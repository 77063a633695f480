//! The reply on its way back: which status and headers the client sees, and the bytes of the body.
//!
//! Replies of transparent endpoints are handed on frame by frame and never looked into. Aggregating endpoints
//! collect JSON replies to map the names in them, and map server-sent events one by one. Whatever an upstream
//! does wrong becomes one of our own errors; its headers beyond media type and `Retry-After` never cross.
//!
//! Invariant: a connection is given back to its pool only after the reply ended cleanly.

mod body;
mod client_attachment;
mod credential_watch;
mod events;
mod failure;
mod gather;
mod json;
mod late_reply;
mod limited;
mod new_task;
mod passing_answer;
mod reopen;
mod stream;

use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};

use crate::access::limit::concurrency::place::CallPlace;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Share;
use crate::context::call::Call;
use crate::context::in_session::InSession;
use crate::context::worker::Worker;
use crate::line::response::ClientResponse;
use crate::mapper::Mapper;
use crate::session::outbox::CallInFlight;
use crate::snapshot::Endpoint;
use crate::upstream::Upstream;
use crate::upstream::exchange::Reply;
use crate::upstream::own_id::OwnId;
use crate::upstream::pool::{self, ConnectionLease};
use crate::upstream::silence;
pub(crate) use crate::upstream::silence::Silence;
use protocol::error::{ClientError, Error, PolicyError, UpstreamError};
use protocol::media::Media;
use protocol::splice::Segments;
use protocol::version::Era;

pub(crate) use body::{BodyGuard, EventsKind, ReplyBody};
use client_attachment::ClientAttachment;
use failure::relay_failure;
use json::relay_json;
pub(crate) use late_reply::{begin_late, fold_late};
pub(crate) use new_task::NewTask;
pub(crate) use reopen::resume;
use stream::RelayedReply;

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
    pub call_place: Option<Arc<CallPlace>>,
    /// The resource that is forgotten as subscribed to if the upstream refuses.
    pub subscribing: Option<Box<str>>,
    /// Whose the task is that the reply may make.
    pub new_task: Option<Box<NewTask>>,
    /// What it counts as among the streams of clients, where it answers a GET.
    pub place: Option<Share>,
    /// The call that is answered, where it is none of a session.
    pub call: Option<&'p Call>,
    /// The silence of its client.
    pub silence: Option<&'p Arc<Silence>>,
}

/// What the client gets of a reply. What is left of the reply and of the plan is of no use.
pub(crate) async fn relay(
    worker: &Rc<Worker>,
    reply: &mut Reply,
    plan: &mut RelayPlan<'_>,
) -> Result<ClientResponse, Error> {
    let (status, upstream) = (reply.head.status, plan.upstream);
    let response = match reply.head.media {
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
            call_place: None,
            subscribing: None,
            new_task: None,
            place: None,
            call: None,
            silence: None,
        }
    }

    /// Who is charged for what is held of the reply.
    fn payer(&self) -> Payer {
        match (&self.session, self.call) {
            (Some(session), _) => session.session.owner().payer(),
            (None, Some(call)) => call.payer(),
            (None, None) => Payer::upstream(&self.upstream.config.name),
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

    /// Awaits a part of the reply in time.
    async fn patiently<F: Future>(&self, future: F) -> Option<F::Output> {
        silence::until(
            self.silence.map(|silence| &**silence),
            self.deadline,
            self.upstream.config.response_timeout,
            future,
        )
        .await
    }

    /// True if the client takes nothing but one message in JSON.
    fn takes_one_message(&self) -> bool {
        self.silence.is_some_and(|silence| silence.begun() == Some(Media::Json))
    }

    fn era(&self) -> Era {
        if self.session.is_some() { Era::Legacy } else { Era::Modern }
    }
}

fn relay_sse(worker: &Rc<Worker>, reply: &mut Reply, plan: &mut RelayPlan<'_>) -> ClientResponse {
    let head = &reply.head;
    let media = if plan.takes_one_message() { Media::Json } else { Media::Sse };
    let stream = RelayedReply::events(worker, (std::mem::take(&mut reply.body), reply.lease.take()), plan);
    ClientResponse::new(head.status, media, ReplyBody::Stream(ClientAttachment::new(stream)))
}

/// A stream of the gateway's own.
pub(crate) fn events_response(
    kind: EventsKind,
    poll: impl FnMut(&mut Context<'_>) -> Poll<Option<Bytes>> + 'static,
) -> ClientResponse {
    ClientResponse::new(StatusCode::OK, Media::Sse, ReplyBody::events(kind, poll))
}

pub(crate) fn json_response(status: StatusCode, json: impl Into<Segments>) -> ClientResponse {
    ClientResponse::new(status, Media::Json, ReplyBody::Whole(json.into(), BodyGuard::default()))
}

/// Adds the headers that go with an error at `endpoint`.
pub(crate) fn describe(response: &mut ClientResponse, error: &Error, endpoint: Option<&Endpoint>) {
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
