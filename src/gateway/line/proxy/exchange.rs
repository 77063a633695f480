//! A request within a session on its way to its upstream: sent once more if the upstream turns out to have forgotten
//! the session, and carried on if the client leaves.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use http::{HeaderMap, HeaderValue, Method as HttpMethod, Request, Response};

use super::legacy::no_state;
use super::resource_subscriptions::{ResourceSubscription, is_refused};
use super::{Outbound, Proxy, note_end};
use crate::access::limit::concurrency::Permit;
use crate::context::call::Call;
use crate::context::in_session::InSession;
use crate::context::worker::{View, Worker};
use crate::line::legacy::detached::Detachable;
use crate::line::legacy::{self, SessionHolder, messages};
use crate::line::message::Message;
use crate::line::relay::{NewTask, RelayPlan, ReplyBody, relay};
use crate::mapper::Mapper;
use crate::session::UpstreamSession;
use crate::session::outbox::{Addressee, InFlightCall};
use crate::telemetry::calls::Asked;
use crate::upstream::Upstream;
use crate::upstream::ask::{PROTOCOL_VERSION, SESSION_ID};
use crate::upstream::exchange::{RequestBody, SendOptions};
use crate::upstream::get_stream;
use crate::upstream::headers::forward;
use crate::upstream::own_id::OwnId;
use protocol::error::{ClientError, Error, UpstreamError};
use protocol::version::Era;

impl Proxy {
    /// Sends a request within the session with its upstream, and once more if the upstream turns out to have
    /// forgotten it: then it did not look at the request.
    pub(super) async fn send_in_session(
        &self,
        view: &Rc<View>,
        outbound: Outbound,
        headers: HeaderMap,
        call: &mut Call,
    ) -> Result<Response<ReplyBody>, Error> {
        let result = self.exchange_in_session(view, &outbound, headers, call).await;
        // Only a call that failed, or still may, needs its name for the log.
        let is_answered =
            result.as_ref().is_ok_and(|response| matches!(response.body(), ReplyBody::Whole(..)));
        if !is_answered || call.watch.is_curious() {
            call.has_name(outbound.message.public_name().as_deref());
        }
        result
    }

    async fn exchange_in_session(
        &self,
        view: &Rc<View>,
        outbound: &Outbound,
        mut headers: HeaderMap,
        call: &mut Call,
    ) -> Result<Response<ReplyBody>, Error> {
        let Outbound {
            message,
            member,
            body,
            inner_name,
            mapper,
            own_id,
            session,
            uri,
            tool,
            is_safe_to_repeat,
            ..
        } = outbound;
        let (Some(endpoint), Some(session)) = (&call.endpoint, session) else {
            return Err(ClientError::NoSession.into());
        };
        let slot = endpoint.members[*member];
        let upstream = &view.snapshot.upstreams[slot];
        call.upstream = Some(Rc::clone(&view.upstream_names[slot]));
        call.tool = *tool;
        upstream.era_for(Era::Legacy)?;
        let holder = SessionHolder::Client(session.clone());
        let grant = &session.grant;
        let sessions = &self.worker.state.sessions;
        let desk = sessions.desk(grant.owner()).map_err(no_state)?;
        messages::wait_for_earlier(&desk, upstream).await;
        let permit = Self::acquire_slot(upstream, call).await?;
        forward(&mut headers, inner_name.clone(), &upstream.access.forward);
        if !endpoint.policy.is_trivial() {
            desk.set_class(&call.caller()?.class);
        }
        let subscription = uri.as_ref().map(|uri| ResourceSubscription {
            sessions,
            grant,
            upstream: &upstream.session_key,
            uri,
        });
        let ends_with_its_own = upstream.is_irreplaceable();
        let mut may_reopen = true;
        loop {
            let had_session = ends_with_its_own && sessions.opened(grant.id, &upstream.session_key).is_some();
            let upstream_session = legacy::upstream_session(&self.worker, view, upstream, &holder).await?;
            let in_session = InSession {
                upstream: Arc::clone(upstream),
                upstream_session: Arc::clone(&upstream_session),
                session: session.clone(),
                desk: Arc::clone(&desk),
                endpoint: Rc::clone(endpoint),
                member: *member,
            };
            let uris_max = view.snapshot.limits.subscription_uris_max;
            let is_new = match &subscription {
                Some(subscription) => subscription.note(message.method, uris_max)?,
                None => false,
            };
            legacy::upstream_stream::stand(&self.worker, &in_session).await;
            let mut request = Request::new(RequestBody::from(body.clone()));
            *request.method_mut() = HttpMethod::POST;
            headers.clone_into(request.headers_mut());
            let version = HeaderValue::from_static(upstream_session.version.as_str());
            request.headers_mut().insert(PROTOCOL_VERSION, version);
            if let Some(id) = &upstream_session.id {
                request.headers_mut().insert(SESSION_ID, id.clone());
            }
            let subscribing = uri.clone().filter(|_| is_new);
            call.watch.leaves(&mut request, upstream.is_child());
            let (worker, mapper) = (Rc::clone(&self.worker), mapper.clone());
            let new_task = self.new_task(view, (message, own_id.as_ref()), (*member, Some(grant.id)), call);
            let (request, place) =
                ((request, *is_safe_to_repeat, call.asked()), (in_session, permit.clone(), new_task));
            let exchange = exchange(worker, request, (message, own_id.clone()), mapper, place, subscribing);
            let result = Detachable::new(&self.worker, &upstream_session, exchange).await;
            note_end(&mut call.watch, &result);
            if is_new && is_refused(&result) {
                subscription.iter().for_each(ResourceSubscription::forget);
            }
            match result {
                // A request that its server cannot stand costs the client no session.
                Err(Error::Upstream(UpstreamError::SessionDoubted))
                    if self.is_known(view, upstream, &upstream_session).await =>
                {
                    return Err(UpstreamError::SessionDoubted.into());
                }
                Err(Error::Upstream(UpstreamError::SessionLost | UpstreamError::SessionDoubted)) => {
                    // One that was opened just now is not what is wrong.
                    if !std::mem::take(&mut may_reopen) {
                        return Err(UpstreamError::SessionLost.into());
                    }
                    upstream.is_sessionless.store(false, Ordering::Relaxed);
                    legacy::lose(&self.worker, view, upstream, &holder, &upstream_session);
                    if had_session {
                        legacy::end(&self.worker, view, session).await;
                        return Err(ClientError::SessionGone.into());
                    }
                }
                result => return result,
            }
        }
    }

    pub(super) async fn is_known(&self, view: &View, upstream: &Upstream, session: &UpstreamSession) -> bool {
        let asker = self.worker.asker(view);
        Box::pin(get_stream::is_session_known(&asker, upstream, session.named())).await == Some(true)
    }
}

/// One exchange within a session, which needs nobody to wait for it.
fn exchange(
    worker: Rc<Worker>,
    (mut request, is_safe_to_repeat, asked): (Request<RequestBody>, bool, Asked),
    (message, own_id): (&Message, Option<OwnId>),
    mapper: Option<Mapper>,
    (session, permit, new_task): (InSession, Option<Rc<Permit>>, Option<Box<NewTask>>),
    subscribing: Option<Box<str>>,
) -> impl Future<Output = Result<Response<ReplyBody>, Error>> + 'static {
    let id = message.envelope.id.clone().map(|id| message.body.slice(id)).unwrap_or_default();
    async move {
        let id = std::str::from_utf8(&id).unwrap_or("null");
        let upstream = Arc::clone(&session.upstream);
        let addressee = Addressee {
            upstream: Arc::clone(&upstream.session_key),
            session: Arc::clone(&session.upstream_session),
        };
        let sent_id = own_id.as_ref().map_or(id.as_bytes(), |own_id| own_id.sent());
        let in_flight = session.desk.begin(id, InFlightCall::new(addressee, sent_id));
        request.body_mut().sending = Some(Arc::clone(&in_flight.sending));
        let now = Instant::now();
        let deadline = now + upstream.config.reply_timeout;
        let aim = session.upstream_session.replica.into();
        let delivery = SendOptions { is_safe_to_repeat, aim, asked: Some(asked) };
        let reply = worker.client.send(&upstream, request, delivery, now, deadline).await?;
        if reply.head.status.is_success() {
            in_flight.sending.mark_taken();
        }
        let plan = RelayPlan {
            upstream: &upstream,
            id,
            own_id: own_id.as_ref(),
            mapper,
            deadline,
            session: Some(session),
            in_flight: Some(in_flight),
            permit,
            subscribing,
            new_task,
            place: None,
        };
        relay(&worker, reply, plan).await
    }
}
