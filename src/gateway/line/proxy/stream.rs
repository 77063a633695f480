//! GET: the stream that a client opens within its session, new or after a break.
//!
//! The id of the last event that the client saw decides. After one of the client's own stream, the upstreams whose
//! events may have been lost are asked to repeat them. After one of a reply, its upstream is asked to go on with that
//! reply, and nothing else comes. If its upstream does not know the event, or nobody does, a client that holds a stream is
//! told so: one that asks for the rest of a reply must not lose that stream to it, come back for it, and so on for ever.
//! Who holds none gets its own, with what waits.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderName, HeaderValue, Method as HttpMethod, Request, Response};

use super::legacy::no_state;
use super::{Proxy, RequestDecision};
use crate::access::caller::Caller;
use crate::catalog::subscriptions;
use crate::context::call::Call;
use crate::context::in_session::InSession;
use crate::context::worker::View;
use crate::line::legacy::client_stream::ClientStream;
use crate::line::legacy::upstream_stream;
use crate::line::relay::{self, NewTask, RelayPlan, ReplyBody, relay};
use crate::mapper::Mapper;
use crate::session::outbox::{NotAttached, SessionOutbox};
use crate::session::{NoState, Session};
use crate::snapshot::Endpoint;
use crate::upstream::ask::legacy_headers;
use crate::upstream::exchange::{RequestBody, SendOptions};
use protocol::error::{ClientError, Error, GatewayError};
use protocol::event_id::{self, EventId};
use protocol::head::Head;
use protocol::media::Media;
use protocol::media::media_of;
use protocol::route::Style;
use protocol::splice::Segments;
use protocol::version::Era;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const SSE: HeaderValue = HeaderValue::from_static("text/event-stream");
/// How often a stream is tried to be attached while the state of its session is dropped and made anew.
const ATTEMPTS_MAX: usize = 3;

enum ResumePoint {
    Now,
    /// After these events of its stream, each of the upstream with this name.
    Stream(Vec<(Box<str>, Bytes)>),
    /// After an event of a reply of this member of the endpoint.
    Reply(usize, Bytes),
    /// After an event that nobody can tell more of.
    Unknown,
}

impl Proxy {
    pub(super) async fn open_stream(
        &self,
        view: &Rc<View>,
        endpoint: &Rc<Arc<Endpoint>>,
        head: &Head<'_>,
        call: &mut Call,
    ) -> Result<RequestDecision, Error> {
        call.seen.era = Era::Legacy;
        let session = self.session(endpoint, head, call).await?.ok_or(ClientError::NoSession)?;
        if self.worker.state.drain.is_quiet() {
            return Err(GatewayError::Draining.into());
        }
        let caller = Rc::clone(call.caller()?);
        let place = StreamOf { view, endpoint, session: &session, caller: &caller };
        let mut position = ResumePoint::Now;
        if let Some(last_event) = head.last_event {
            position = place.position(&*self.desk_of(&session)?, last_event);
        }
        if let ResumePoint::Reply(member, inner) = &position {
            if let Some(response) = self.resume_reply(&place, *member, inner, call).await? {
                return Ok(RequestDecision::Answer(response));
            }
            position = ResumePoint::Unknown;
        }
        if matches!(position, ResumePoint::Unknown) && self.desk_of(&session)?.has_client() {
            return Err(ClientError::EventGone.into());
        }
        self.attach(&place, position).map(RequestDecision::Answer)
    }

    fn attach(&self, place: &StreamOf<'_>, position: ResumePoint) -> Result<Response<ReplyBody>, Error> {
        let StreamOf { view, endpoint, session, caller } = place;
        let grant = &session.grant;
        let mut attempts = 0;
        let (desk, ticket) = loop {
            attempts += 1;
            let desk = self.desk_of(session)?;
            match desk.attach(place.has_several_upstreams(), |streams| streams.admit(grant)) {
                Ok(ticket) => break (desk, ticket),
                // Its state was dropped just now, and is made anew.
                Err(NotAttached::Closed) if attempts < ATTEMPTS_MAX => {}
                Err(NotAttached::Closed) => return Err(ClientError::SessionGone.into()),
                Err(NotAttached::TooMany) => {
                    self.worker.state.metrics.streams.refused.inc();
                    return Err(GatewayError::Streams.into());
                }
            }
        };
        let class = &caller.class;
        desk.set_class(class);
        let repeated = match position {
            ResumePoint::Stream(last_ids) => desk.resume(last_ids),
            ResumePoint::Now | ResumePoint::Reply(..) | ResumePoint::Unknown => Vec::new(),
        };
        for member in (0..endpoint.members.len()).filter(|member| class.reaches(*member)) {
            let Some(upstream) = view.snapshot.upstreams.get(endpoint.members[member]) else { continue };
            let sessions = &self.worker.state.sessions;
            if let Some(in_session) = self.in_session(place, &desk, member) {
                let name = &in_session.upstream.config.name;
                let after = repeated.iter().find(|(upstream, _)| **upstream == **name);
                upstream_stream::ensure(&self.worker, &in_session, after.map(|(_, id)| id.clone()));
            } else if sessions.is_subscribed(grant.id, &upstream.session_key)
                && sessions.opened(grant.id, &upstream.session_key).is_none()
            {
                upstream_stream::come_back(&self.worker, upstream, session, &desk);
            }
        }
        let news =
            subscriptions::session::join(&self.worker.state, &view.snapshot, (endpoint, caller), Some(desk));
        let interval = view.snapshot.keep_alive_interval;
        Ok(relay::session_response(Box::new(ClientStream::new(ticket, news, grant.version, interval))))
    }

    /// The rest of a reply, from the upstream that it is of. `None`: the upstream does not have it.
    async fn resume_reply(
        &self,
        place: &StreamOf<'_>,
        member: usize,
        inner: &Bytes,
        call: &mut Call,
    ) -> Result<Option<Response<ReplyBody>>, Error> {
        let StreamOf { view, endpoint, session, .. } = place;
        let desk = self.desk_of(session)?;
        let Some(in_session) = self.in_session(place, &desk, member) else { return Ok(None) };
        let Ok(last_event) = HeaderValue::from_bytes(inner) else { return Ok(None) };
        let sessions = &self.worker.state.sessions;
        let admitted = sessions.admit_stream(&session.grant.endpoint, &session.grant.principal);
        if admitted.is_none() {
            self.worker.state.metrics.streams.refused.inc();
            return Err(GatewayError::Streams.into());
        }
        let upstream = Arc::clone(&in_session.upstream);
        let upstream_session = &in_session.upstream_session;
        let mut request = Request::new(RequestBody::from(Segments::default()));
        *request.method_mut() = HttpMethod::GET;
        let mut headers = legacy_headers(upstream_session.version.as_str(), upstream_session.id.as_ref());
        headers.insert(ACCEPT, SSE);
        headers.insert(LAST_EVENT_ID, last_event);
        *request.headers_mut() = headers;
        let now = Instant::now();
        let deadline = now + upstream.config.reply_timeout;
        let delivery =
            SendOptions { is_safe_to_repeat: true, aim: upstream_session.replica.into(), asked: None };
        let Ok(reply) = self.worker.client.send(&upstream, request, delivery, now, deadline).await else {
            return Ok(None);
        };
        if !reply.head.status.is_success() || media_of(&reply.head.headers) != Media::Sse {
            return Ok(None);
        }
        call.upstream = Some(Rc::clone(&view.upstream_names[endpoint.members[member]]));
        let depth_max = view.snapshot.limits.json_depth_max;
        let mapper = (endpoint.naming.style() != Style::Transparent)
            .then(|| Mapper::of_any(Rc::clone(endpoint), member, depth_max))
            .map(|mapper| mapper.for_owner(sessions, &session.grant.principal));
        // What was called is not known any more.
        let new_task = Some(NewTask::new(
            sessions,
            (endpoint, member),
            (place.caller, Some(session.grant.id)),
            (Box::default(), [b""; 2]),
            depth_max,
        ));
        let session = Some(in_session);
        let plan = RelayPlan {
            upstream: &upstream,
            id: "",
            own_id: None,
            mapper,
            deadline,
            session,
            in_flight: None,
            permit: None,
            subscribing: None,
            new_task,
            place: admitted,
        };
        relay(&self.worker, reply, plan).await.map(Some)
    }

    /// What the upstream says in the session, if it has one with an id.
    fn in_session(
        &self,
        place: &StreamOf<'_>,
        desk: &Arc<SessionOutbox>,
        member: usize,
    ) -> Option<InSession> {
        // What its class may not use at all, a session may still have from before.
        let slot = place.endpoint.members.get(member).filter(|_| place.caller.class.reaches(member))?;
        let upstream = place.view.snapshot.upstreams.get(*slot)?;
        let sessions = &self.worker.state.sessions;
        let upstream_session = sessions.opened(place.session.grant.id, &upstream.session_key)?;
        upstream_session.id.as_ref()?;
        Some(InSession {
            upstream: Arc::clone(upstream),
            upstream_session,
            session: place.session.clone(),
            desk: Arc::clone(desk),
            endpoint: Rc::clone(place.endpoint),
            member,
        })
    }

    fn desk_of(&self, session: &Session) -> Result<Arc<SessionOutbox>, Error> {
        let grant = &session.grant;
        self.worker.state.sessions.desk(grant.owner()).map_err(|none| match none {
            // Told as what it is: there is no request whose outcome it could be.
            NoState::TooMany => GatewayError::Streams.into(),
            NoState::TooManyOfPrincipal | NoState::Ended => no_state(none),
        })
    }
}

struct StreamOf<'a> {
    view: &'a Rc<View>,
    endpoint: &'a Rc<Arc<Endpoint>>,
    session: &'a Session,
    caller: &'a Caller,
}

impl StreamOf<'_> {
    fn has_several_upstreams(&self) -> bool {
        self.endpoint.members.len() > 1
    }

    /// The members of the endpoint by name.
    fn member(&self, name: &str) -> Option<usize> {
        (0..self.endpoint.members.len()).find(|member| self.name(*member) == Some(name))
    }

    fn name(&self, member: usize) -> Option<&str> {
        let upstream = self.view.snapshot.upstreams.get(*self.endpoint.members.get(member)?)?;
        Some(&upstream.config.name)
    }

    fn position(&self, desk: &SessionOutbox, last_event: &[u8]) -> ResumePoint {
        if self.has_several_upstreams() {
            return match event_id::read(last_event) {
                EventId::Get(mut last_ids) => {
                    last_ids.retain(|(name, _)| self.member(name).is_some());
                    ResumePoint::Stream(last_ids)
                }
                EventId::Post { upstream, inner } => self
                    .member(&upstream)
                    .map_or(ResumePoint::Unknown, |member| ResumePoint::Reply(member, inner)),
                EventId::Other if last_event.is_empty() => ResumePoint::Now,
                EventId::Other => ResumePoint::Unknown,
            };
        }
        let inner = Bytes::copy_from_slice(last_event);
        match self.name(0) {
            Some(name) if desk.has_given_out(last_event) => ResumePoint::Stream(vec![(name.into(), inner)]),
            Some(_) if !inner.is_empty() => ResumePoint::Reply(0, inner),
            _ => ResumePoint::Now,
        }
    }
}
