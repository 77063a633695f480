//! GET: the stream that a client opens within its session, new or after a break.
//!
//! The id of the last event that the client saw decides. After one of the client's own stream, the upstreams whose
//! events may have been lost are asked to repeat them. After one of a reply, its upstream is asked to go on with that
//! reply, and nothing else comes. If its upstream does not know the event, or nobody does, a client that holds a stream is
//! told so: one that asks for the rest of a reply must not lose that stream to it, come back for it, and so on for ever.
//! Who holds none gets its own, with what waits.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;

use super::Proxy;
use super::context::RequestContext;
use crate::catalog::subscriptions;
use crate::clock;
use crate::context::in_session::InSession;
use crate::line::legacy::client_stream::ClientStream;
use crate::line::legacy::{no_state, upstream_stream};
use crate::line::relay::{EventsKind, NewTask, RelayPlan, events_response, relay, resume};
use crate::line::response::ClientResponse;
use crate::mapper::Mapper;
use crate::session::outbox::{NotAttached, SessionOutbox};
use crate::session::{NoState, Session};
use crate::upstream::headers;
use protocol::error::{ClientError, Error, GatewayError};
use protocol::event_id::{self, EventId};

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
    pub(super) async fn open_stream(&self, cx: &mut RequestContext<'_>) -> Result<ClientResponse, Error> {
        self.find_session(cx).await?;
        let session = &cx.session()?.clone();
        if self.worker.state.drain.is_quiet() {
            return Err(GatewayError::Draining.into());
        }
        let mut position = ResumePoint::Now;
        if let Some(last_event) = cx.head.last_event {
            let outbox = self.outbox_of(session)?;
            position = resume_point(cx, &outbox, last_event)?;
        }
        if let ResumePoint::Reply(member, inner) = &position {
            if let Some(response) = self.resume_reply(cx, *member, inner).await? {
                cx.call.upstream =
                    cx.endpoint.members.get(*member).map(|slot| Rc::clone(&cx.view.called[*slot]));
                return response;
            }
            position = ResumePoint::Unknown;
        }
        if matches!(position, ResumePoint::Unknown) && self.outbox_of(session)?.has_client() {
            return Err(ClientError::EventGone.into());
        }
        self.attach(cx, session, position)
    }

    /// The client's own stream.
    fn attach(
        &self,
        cx: &RequestContext<'_>,
        session: &Session,
        position: ResumePoint,
    ) -> Result<ClientResponse, Error> {
        let (grant, caller, members) = (&session.grant, cx.caller()?, 0..cx.endpoint.members.len());
        let attached = self
            .worker
            .state
            .sessions
            .attach(session.owner(), members.len() > 1, |streams| streams.admit(session.owner().payer()));
        let (outbox, reader) = attached.map_err(|error| match error {
            NotAttached::NoState(none) => no_stream(none),
            NotAttached::TooMany => {
                self.worker.state.metrics.streams.refused.inc();
                GatewayError::Streams.into()
            }
        })?;
        outbox.set_class(&caller.class);
        let repeated = match position {
            ResumePoint::Stream(last_ids) => outbox.resume(last_ids),
            ResumePoint::Now | ResumePoint::Reply(..) | ResumePoint::Unknown => Vec::new(),
        };
        for member in members.filter(|member| caller.class.reaches(*member)) {
            let Some(upstream) = cx.upstream(member) else { continue };
            let sessions = &self.worker.state.sessions;
            let shown = headers::shown(cx.fields, &upstream.access.forward);
            if let Some(in_session) = self.in_session(cx, session, &outbox, member) {
                if let Some(shown) = &shown {
                    in_session.upstream_session.shown.set(shown);
                }
                let name = &in_session.upstream.config.name;
                let after = repeated.iter().find(|(upstream, _)| **upstream == **name);
                upstream_stream::ensure(&self.worker, &in_session, after.map(|(_, id)| id.clone()));
            } else if sessions.is_subscribed(grant.id, &upstream.session_key)
                && sessions.opened(grant.id, &upstream.session_key).is_none()
            {
                upstream_stream::come_back(&self.worker, upstream, session, &outbox, shown);
            }
        }
        let snapshot = &cx.view.snapshot;
        let place = (&**cx.endpoint, &**caller);
        let issued_s = grant.issued_s;
        let news =
            subscriptions::subscriber::join(&self.worker.state, snapshot, place, Some(outbox), issued_s);
        let mut stream = ClientStream::new(reader, news, grant.version, snapshot.keep_alive_interval);
        Ok(events_response(EventsKind::Session, move |cx| stream.poll(cx)))
    }

    /// The rest of a reply, from the upstream that it is of. `None`: the upstream does not have it.
    async fn resume_reply(
        &self,
        cx: &RequestContext<'_>,
        member: usize,
        inner: &Bytes,
    ) -> Result<Option<Result<ClientResponse, Error>>, Error> {
        let session = cx.session()?;
        let outbox = self.outbox_of(session)?;
        let Some(in_session) = self.in_session(cx, session, &outbox, member) else { return Ok(None) };
        let Ok(last_event) = HeaderValue::from_bytes(inner) else { return Ok(None) };
        let sessions = &self.worker.state.sessions;
        let admitted = sessions.admit_stream(cx.call.payer());
        if admitted.is_none() {
            self.worker.state.metrics.streams.refused.inc();
            return Err(GatewayError::Streams.into());
        }
        let upstream = Arc::clone(&in_session.upstream);
        let deadline = clock::now() + upstream.config.response_timeout;
        let Ok(mut reply) = resume(&self.worker, &in_session, last_event, deadline).await else {
            return Ok(None);
        };
        if !reply.is_stream() {
            return Ok(None);
        }
        let (depth_max, owner) = (cx.depth_max(), &session.grant.principal);
        let mapper = (!cx.is_transparent())
            .then(|| Mapper::of_any(Rc::clone(cx.endpoint), member, depth_max))
            .map(|mapper| mapper.for_owner(sessions, owner));
        // What was called is not known any more.
        let new_task = NewTask::new(
            sessions,
            (cx.endpoint, member),
            (cx.caller()?, Some(session.grant.id)),
            (Box::default(), [b""; 2]),
            depth_max,
        );
        let mut plan = RelayPlan {
            mapper,
            session: Some(in_session),
            new_task: Some(new_task),
            place: admitted,
            silence: cx.call.silence.as_ref(),
            ..RelayPlan::new(&upstream, "", deadline)
        };
        Ok(Some(relay(&self.worker, &mut reply, &mut plan).await))
    }

    /// What the upstream says in the session, if it has one with an id.
    fn in_session(
        &self,
        cx: &RequestContext<'_>,
        session: &Session,
        outbox: &Arc<SessionOutbox>,
        member: usize,
    ) -> Option<InSession> {
        // What its class may not use at all, a session may still have from before.
        let may_use = cx.caller().is_ok_and(|caller| caller.class.reaches(member));
        let upstream = cx.upstream(member).filter(|_| may_use)?;
        let sessions = &self.worker.state.sessions;
        let upstream_session = sessions.opened(session.grant.id, &upstream.session_key)?;
        upstream_session.id.as_ref()?;
        Some(InSession {
            upstream: Arc::clone(upstream),
            upstream_session,
            session: session.clone(),
            outbox: Arc::clone(outbox),
            endpoint: Rc::clone(cx.endpoint),
            member,
        })
    }

    fn outbox_of(&self, session: &Session) -> Result<Arc<SessionOutbox>, Error> {
        self.worker.state.sessions.outbox(session.owner()).map_err(no_stream)
    }
}

fn no_stream(none: NoState) -> Error {
    match none {
        // Told as what it is: there is no request whose outcome it could be.
        NoState::TooMany => GatewayError::Streams.into(),
        NoState::TooManyOfPrincipal | NoState::Ended => no_state(none),
    }
}

/// Where a client goes on. An id that it was not given is refused, where all that it was given is remembered: of a server
/// that gives everybody the same ids, it could be told what is another's.
fn resume_point(
    cx: &RequestContext<'_>,
    outbox: &SessionOutbox,
    last_event: &[u8],
) -> Result<ResumePoint, ClientError> {
    let is_of_stream = outbox.has_given_out(last_event);
    if outbox.knows_given()
        && !last_event.is_empty()
        && !is_of_stream
        && !outbox.has_given_in_reply(last_event)
    {
        return Err(ClientError::EventUnknown);
    }
    let name_of = |member| cx.upstream(member).map(|upstream| &*upstream.config.name);
    let members = 0..cx.endpoint.members.len();
    let member = |name: &str| members.clone().find(|member| name_of(*member) == Some(name));
    if members.len() > 1 {
        return Ok(match event_id::read(last_event) {
            EventId::Get(mut last_ids) => {
                last_ids.retain(|(name, _)| member(name).is_some());
                ResumePoint::Stream(last_ids)
            }
            EventId::Post { upstream, inner } => {
                member(&upstream).map_or(ResumePoint::Unknown, |member| ResumePoint::Reply(member, inner))
            }
            EventId::Other if last_event.is_empty() => ResumePoint::Now,
            EventId::Other => ResumePoint::Unknown,
        });
    }
    let inner = Bytes::copy_from_slice(last_event);
    Ok(match name_of(0) {
        Some(name) if is_of_stream => ResumePoint::Stream(vec![(name.into(), inner)]),
        Some(_) if !inner.is_empty() => ResumePoint::Reply(0, inner),
        _ => ResumePoint::Now,
    })
}
