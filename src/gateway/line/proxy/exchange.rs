//! A message on its way to its upstream, and the reply on its way back: modern as it is; within a session sent once more
//! if the upstream turns out to have forgotten the session, and carried on if the client leaves.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::Proxy;
use super::address::{BodyChange, Outbound, Rewrite};
use super::resource_subscriptions::ResourceSubscription;
use crate::access::limit::concurrency::place::CallPlace;
use crate::access::limit::payer::Payer;
use crate::clock;
use crate::context::call::Call;
use crate::context::in_session::InSession;
use crate::context::worker::{View, Worker};
use crate::line::legacy::detached::Detachable;
use crate::line::legacy::{self, SessionHolder, messages, no_state};
use crate::line::message::Message;
use crate::line::relay::{NewTask, RelayPlan, ReplyBody, relay};
use crate::line::response::ClientResponse;
use crate::session::outbox::InFlightCall;
use crate::session::{Session, UpstreamSession};
use crate::telemetry::observers::Watch;
use crate::upstream::exchange::SendOptions;
use crate::upstream::headers::ForwardedFields;
use crate::upstream::request::{RequestAttributes, UpstreamRequest};
use crate::upstream::{ReplicaSelection, Upstream, get_stream};
use protocol::envelope::Envelope;
use protocol::error::{ClientError, Error, UpstreamError};
use protocol::fields::Fields;
use protocol::splice::Segments;
use protocol::version::Era;

/// How long a call waits until it is known in which era its upstream is to be asked.
const ERAS_PATIENCE: Duration = Duration::from_secs(1);

impl Proxy {
    /// Sends a message to its upstream and relays the reply. The fields are the upstream's from here on.
    pub(super) async fn send(
        &self,
        view: &Rc<View>,
        (message, outbound): (&Message, &mut Outbound),
        session: Option<Session>,
        fields: Fields,
        call: &mut Call,
    ) -> Result<ClientResponse, Error> {
        let Some(endpoint) = &call.endpoint else { return Err(ClientError::NoEndpoint.into()) };
        let slot = endpoint.members[outbound.member];
        let upstream = &view.snapshot.upstreams[slot];
        call.upstream = Some(Rc::clone(&view.called[slot]));
        call.tool = outbound.tool;
        let result = match session {
            Some(session) => {
                let sent = (message, &*outbound);
                // Made where it stays: `Box::pin` would copy all of it.
                let sending = Box::write(
                    Box::new_uninit(),
                    self.send_in_session(view, upstream, &session, sent, fields, call),
                );
                Box::into_pin(sending).await
            }
            None => self.send_modern(view, upstream, (message, outbound), fields, call).await,
        };
        // Only a call that failed, or still may, needs its name for the log.
        if !is_answered(&result) || call.watch.is_curious() {
            call.has_name(message.public_name().as_deref());
        }
        result
    }

    async fn send_modern(
        &self,
        view: &View,
        upstream: &Upstream,
        (message, outbound): (&Message, &mut Outbound),
        fields: Fields,
        call: &mut Call,
    ) -> Result<ClientResponse, Error> {
        let new_task = self.new_task(view, (message, outbound), None, call);
        let mut begun_until = None;
        if upstream.eras().is_none() {
            begun_until = Box::pin(upstream.known_for_call(&self.worker.client.host, ERAS_PATIENCE)).await?;
        }
        upstream.era_for(Era::Modern)?;
        let place = Self::acquire_slot(upstream, call).await?;
        // That it lacks the era may have become known while the call waited.
        let envelope = known_envelope(upstream, Era::Modern, (message, outbound));
        let rewrite = outbound.rewrite.take();
        let inner_name = rewrite.as_ref().and_then(|rewrite| rewrite.inner_name.clone());
        let forwarded = ForwardedFields::new(fields, inner_name, &upstream.access.forward);
        let mut request = post(std::mem::take(&mut outbound.body), forwarded);
        if reads_messages(upstream, Era::Modern) {
            request.attributes.principal = RequestAttributes::principal(call.principal().id());
        }
        request.envelope = envelope;
        request.attributes.silence.clone_from(&call.silence);
        leave(&mut call.watch, &mut request, upstream);
        if let Some(place) = &place {
            place.begin();
            request.attributes.place = Some(Arc::clone(place));
        }
        let now = clock::now();
        let deadline = begun_until.unwrap_or(now + upstream.config.response_timeout);
        let delivery = send_options(outbound, ReplicaSelection::Any, call);
        let result = match self.worker.client.send(upstream, &mut request, delivery, now, deadline).await {
            Ok(mut reply) => {
                let mut plan = RelayPlan::new(upstream, message.id(), deadline);
                if let Some(Rewrite { own_id, mapper, .. }) = rewrite.as_deref() {
                    (plan.own_id, plan.mapper) = (own_id.as_ref(), mapper.clone());
                }
                (plan.call_place, plan.new_task, plan.call) = (place, new_task, Some(&*call));
                plan.silence = call.silence.as_ref();
                let relayed = relay(&self.worker, &mut reply, &mut plan).await;
                end_place(plan.call_place, false);
                relayed
            }
            Err(error) => {
                end_place(place, false);
                Err(error.into())
            }
        };
        note_end(&mut call.watch, &result);
        result
    }

    /// Sends a request within the session with its upstream, and once more if the upstream turns out to have
    /// forgotten it: then it did not look at the request.
    async fn send_in_session(
        &self,
        view: &Rc<View>,
        upstream: &Arc<Upstream>,
        session: &Session,
        (message, outbound): (&Message, &Outbound),
        fields: Fields,
        call: &mut Call,
    ) -> Result<ClientResponse, Error> {
        let Some(endpoint) = call.endpoint.clone() else { return Err(ClientError::NoEndpoint.into()) };
        let Outbound { member, rewrite, uri, .. } = outbound;
        let mut begun_until = None;
        if upstream.eras().is_none() && upstream.is_child() {
            begun_until = Box::pin(upstream.known_for_call(&self.worker.client.host, ERAS_PATIENCE)).await?;
        }
        upstream.era_for(Era::Legacy)?;
        let (grant, sessions) = (&session.grant, &self.worker.state.sessions);
        let outbox = sessions.outbox(session.owner()).map_err(no_state)?;
        messages::wait_for_earlier(&outbox, upstream).await;
        let place = Self::acquire_slot(upstream, call).await?;
        let inner_name = rewrite.as_ref().and_then(|rewrite| rewrite.inner_name.clone());
        let forwarded = ForwardedFields::new(fields, inner_name, &upstream.access.forward);
        if !endpoint.policy.is_trivial() {
            outbox.set_class(&call.caller()?.class);
        }
        let sending = outbound.announced.as_ref().map(|announced| Arc::clone(&announced.sending));
        let sending = sending.unwrap_or_default();
        let key = &upstream.session_key;
        let subscription = ResourceSubscription { sessions, session, upstream: key, uri: uri.as_deref() };
        let shown = forwarded.shown(&upstream.access.forward);
        let mut attempts = SessionAttempts::new(self, view, upstream, session, shown);
        attempts.begun_until = begun_until;
        loop {
            let upstream_session = attempts.begin().await?;
            let in_session = InSession {
                upstream: Arc::clone(upstream),
                upstream_session: Arc::clone(&upstream_session),
                session: session.clone(),
                outbox: Arc::clone(&outbox),
                endpoint: Rc::clone(&endpoint),
                member: *member,
            };
            let is_new = subscription.note(message.method, view.snapshot.limits.subscription_uris_max)?;
            legacy::upstream_stream::stand(&self.worker, &in_session).await;
            let named = upstream_session.named();
            let mut request = post(outbound.body.clone(), forwarded.clone().in_session(&named));
            request.envelope = known_envelope(upstream, Era::Legacy, (message, outbound));
            request.attributes.silence.clone_from(&call.silence);
            leave(&mut call.watch, &mut request, upstream);
            let exchange = SessionExchange {
                worker: Rc::clone(&self.worker),
                request,
                delivery: send_options(outbound, upstream_session.replica.into(), call),
                session: in_session,
                id: message.envelope.id.clone().map(|id| message.body.slice(id)).unwrap_or_default(),
                rewrite: rewrite.clone(),
                place: place.clone(),
                subscribing: uri.clone().filter(|_| is_new),
                new_task: self.new_task(view, (message, outbound), Some(grant.id), call),
            };
            let (sending, owner) = (sending.clone(), (&*upstream_session, call.payer()));
            let result = Detachable::new(&self.worker, owner, sending, || exchange.run()).await;
            note_end(&mut call.watch, &result);
            subscription.settle(is_new, &result);
            if let Some(result) = attempts.settle(&upstream_session, result).await? {
                return Ok(result);
            }
        }
    }
}

/// One exchange within a session, which needs nobody to wait for it.
struct SessionExchange {
    worker: Rc<Worker>,
    request: UpstreamRequest,
    delivery: SendOptions,
    session: InSession,
    id: Bytes,
    rewrite: Option<Rc<Rewrite>>,
    place: Option<Arc<CallPlace>>,
    subscribing: Option<Box<str>>,
    new_task: Option<Box<NewTask>>,
}

impl SessionExchange {
    async fn run(self) -> Result<ClientResponse, Error> {
        let Self { worker, mut request, delivery, session, rewrite, place, .. } = self;
        let own_id = rewrite.as_ref().and_then(|rewrite| rewrite.own_id.as_ref());
        let id = std::str::from_utf8(&self.id).unwrap_or("null");
        let upstream = Arc::clone(&session.upstream);
        let silence = request.attributes.silence.clone();
        // Kept until the reply has ended, which may be a stream.
        let sent_id = own_id.map_or_else(|| Bytes::copy_from_slice(&self.id), |own_id| own_id.sent().clone());
        let held = place.as_ref().map(Arc::downgrade).unwrap_or_default();
        let in_flight = InFlightCall { addressee: session.addressee(), sent_id, place: held };
        let in_flight = session.outbox.begin(id, in_flight);
        let sending = Arc::clone(&in_flight.sending);
        request.sending = Some(Arc::clone(&sending));
        if let Some(place) = &place {
            place.begin();
            request.attributes.place = Some(Arc::clone(place));
        }
        let now = clock::now();
        let deadline = now + upstream.config.response_timeout;
        let reply = worker.client.send(&upstream, &mut request, delivery, now, deadline).await;
        let mut reply = match reply {
            Ok(reply) => reply,
            Err(error) => {
                end_place(place, sending.withdrawal.is_cancelled());
                return Err(error.into());
            }
        };
        if reply.head.status.is_success() {
            in_flight.sending.mark_taken();
        }
        let mut plan = RelayPlan {
            own_id,
            mapper: rewrite.as_ref().and_then(|rewrite| rewrite.mapper.clone()),
            session: Some(session),
            in_flight: Some(in_flight),
            call_place: place,
            subscribing: self.subscribing,
            new_task: self.new_task,
            silence: silence.as_ref(),
            ..RelayPlan::new(&upstream, id, deadline)
        };
        let relayed = relay(&worker, &mut reply, &mut plan).await;
        end_place(plan.call_place, sending.withdrawal.is_cancelled());
        relayed
    }
}

/// A call that has its place no more, as it is over; of a stream the stream has it.
fn end_place(place: Option<Arc<CallPlace>>, is_cancelled: bool) {
    if let Some(place) = place {
        place.end(is_cancelled);
    }
}

/// Something that is done within a session with an upstream, and once more if the upstream has forgotten it.
pub(super) struct SessionAttempts<'a> {
    proxy: &'a Proxy,
    view: &'a Rc<View>,
    upstream: &'a Arc<Upstream>,
    session: &'a Session,
    pub(super) holder: SessionHolder,
    /// The client's session ends with that of this upstream, and there was one.
    ends_with_it: bool,
    may_reopen: bool,
    /// The end of the time of a call that has waited already.
    begun_until: Option<Instant>,
    /// How the upstream refused what was sent without a session.
    refused: Option<UpstreamError>,
}

impl<'a> SessionAttempts<'a> {
    pub(super) fn new(
        proxy: &'a Proxy,
        view: &'a Rc<View>,
        upstream: &'a Arc<Upstream>,
        session: &'a Session,
        shown: Option<Arc<HeaderMap>>,
    ) -> Self {
        let holder = SessionHolder::Client(session.clone(), shown);
        let (ends_with_it, may_reopen) = (false, true);
        Self {
            proxy,
            view,
            upstream,
            session,
            holder,
            ends_with_it,
            may_reopen,
            begun_until: None,
            refused: None,
        }
    }

    /// The session there is, if any.
    pub(super) fn find(&mut self) -> Option<Arc<UpstreamSession>> {
        let sessions = &self.proxy.worker.state.sessions;
        let opened = sessions.opened(self.session.grant.id, &self.upstream.session_key);
        self.ends_with_it = self.upstream.is_irreplaceable() && opened.is_some();
        opened
    }

    /// The session, opened where there is none.
    pub(super) async fn begin(&mut self) -> Result<Arc<UpstreamSession>, Error> {
        let opened = self.find();
        if let Some(opened) = opened.filter(|_| !self.upstream.is_one_for_all()) {
            if let SessionHolder::Client(_, Some(shown)) = &self.holder {
                opened.shown.set(shown);
            }
            return Ok(opened);
        }
        let until = self.begun_until.take();
        let (worker, view) = (&self.proxy.worker, self.view);
        let opened = legacy::upstream_session(worker, view, self.upstream, &self.holder, until).await?;
        match self.refused.take() {
            // Without a session before and after, nothing was lost: what was sent is not sent again.
            Some(refused) if opened.id.is_none() => Err(refused.into()),
            _ => Ok(opened),
        }
    }

    /// What came of it. `None`: it is to be done again, in another session. That is safe where the upstream knows the
    /// session no more, so that it cannot have looked at what was sent; whoever answers 404 for another reason may have.
    pub(super) async fn settle<T>(
        &mut self,
        used: &Arc<UpstreamSession>,
        result: Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        let error = match result {
            Err(Error::Upstream(error @ (UpstreamError::SessionLost | UpstreamError::SessionDoubted))) => {
                error
            }
            result => return result.map(Some),
        };
        let Self { proxy, view, upstream, session, holder, .. } = self;
        let worker = &proxy.worker;
        // A request that its server cannot stand costs the client no session.
        if is_known((worker, view, session.owner().payer()), upstream, used).await {
            return Err(refused(&error).into());
        }
        // One that was opened just now is not what is wrong.
        if !std::mem::take(&mut self.may_reopen) {
            return Err(UpstreamError::SessionLost.into());
        }
        self.refused = used.id.is_none().then(|| refused(&error));
        upstream.is_sessionless.store(false, Ordering::Relaxed);
        legacy::lose(worker, view, upstream, holder, used);
        if self.ends_with_it {
            legacy::end(worker, view, session).await;
            return Err(ClientError::SessionGone.into());
        }
        Ok(None)
    }
}

/// What a refusal means that looked like the end of a session, and is none.
fn refused(error: &UpstreamError) -> UpstreamError {
    match error {
        UpstreamError::SessionLost => UpstreamError::Status { status: StatusCode::NOT_FOUND, media: None },
        _ => UpstreamError::SessionDoubted,
    }
}

async fn is_known(
    (worker, view, payer): (&Worker, &View, Payer),
    upstream: &Upstream,
    session: &UpstreamSession,
) -> bool {
    let asker = worker.asker(view, payer);
    Box::pin(get_stream::is_session_known(&asker, upstream, session.named())).await == Some(true)
}

fn send_options(outbound: &Outbound, aim: ReplicaSelection, call: &Call) -> SendOptions {
    let asked = Some(call.asked());
    SendOptions { is_safe_to_repeat: outbound.is_safe_to_repeat, aim, asked, payer: call.payer() }
}

/// Whether messages of this era are read on the way to the upstream: for a child process, and by the bridge.
fn reads_messages(upstream: &Upstream, era: Era) -> bool {
    upstream.is_child() || upstream.lacks(era)
}

/// What is in the body, for whoever would read it otherwise; as far as that is known.
fn known_envelope(
    upstream: &Upstream,
    era: Era,
    (message, outbound): (&Message, &Outbound),
) -> Option<Box<Envelope>> {
    let known = || match outbound.change {
        BodyChange::None => Some(Box::new(message.envelope.clone())),
        BodyChange::Id => {
            let own_id = outbound.rewrite.as_ref()?.own_id.as_ref()?;
            Some(Box::new(message.envelope.with_id(own_id.sent().len())))
        }
        BodyChange::Names => None,
    };
    reads_messages(upstream, era).then(known).flatten()
}

fn post(message: Segments, forwarded: ForwardedFields) -> UpstreamRequest {
    UpstreamRequest { message, forwarded: Some(forwarded), ..UpstreamRequest::default() }
}

/// Notes that a request leaves for its upstream, which is told of the span where there is one.
fn leave(watch: &mut Watch, request: &mut UpstreamRequest, upstream: &Upstream) {
    if watch.trace.span.is_some() {
        request.spell_out();
        request.attributes.trail = watch.leaves(&mut request.headers, upstream.is_child());
        rename_span(watch, request);
    }
}

/// The `_meta` of what is sent once more names the exchange before, by what nobody else can have written.
fn rename_span(watch: &Watch, request: &mut UpstreamRequest) {
    let Some([named, name]) = watch.trace.span.as_ref().and_then(|span| span.renamed()) else { return };
    let mut message = Vec::from(request.message.to_bytes());
    if let Some(at) = memchr::memmem::find(&message, named.as_bytes()) {
        message.splice(at..at + named.len(), name.into_bytes());
        request.message = Segments::from(Bytes::from(message));
    }
}

/// Whether the whole reply is at hand.
fn is_answered(result: &Result<ClientResponse, Error>) -> bool {
    result.as_ref().is_ok_and(|response| matches!(&response.body, ReplyBody::Whole(..)))
}

/// Tells the span of the exchange with an upstream that it is complete: it has failed, or its reply is at hand.
fn note_end(watch: &mut Watch, result: &Result<ClientResponse, Error>) {
    match result {
        Err(error) => watch.failed(error),
        Ok(_) if is_answered(result) => watch.answered(),
        Ok(_) => {}
    }
}
