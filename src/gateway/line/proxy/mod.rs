//! The line a call follows, from its headers to its reply. Each step is one module's; this file is their order.
//!
//! Everything that headers can decide is decided before the body is awaited, in the order the specification
//! gives errors. Whatever goes wrong falls to one place, which renders it. Names no library below it.
//! What is different for clients with sessions is in `legacy.rs`.

mod answers;
mod batch;
mod caller;
mod exchange;
mod legacy;
mod metadata;
mod params;
mod permit;
mod resource_subscriptions;
mod sse;
mod stream;
mod tasks;

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method as HttpMethod, Request, Response, StatusCode};
use hyper::body::Incoming;

use crate::access::policy::{Class, Reach};
use crate::catalog::lists::{self, ListRequest};
use crate::catalog::subscriptions;
use crate::context::call::Call;
use crate::context::peer::InCall;
use crate::context::worker::{View, Worker};
use crate::line::cors;
use crate::line::intake::Intake;
use crate::line::message::{Message, MessageReader};
use crate::line::relay::{self, RelayPlan, ReplyBody, json_response, relay};
use crate::mapper::{Completion, Mapper, Restriction};
use crate::session::Session;
use crate::session::outbox::CallInFlight;
use crate::snapshot::Endpoint;
use crate::tables::lists::Dialect;
use crate::tables::lists::List;
use crate::tables::sse_sessions::SseSessionId;
use crate::telemetry::calls::Spoken;
use crate::telemetry::observers::Watch;
use crate::telemetry::request_id::X_REQUEST_ID;
use crate::telemetry::tools::Tool;
use crate::upstream::bridge::BridgedCaller;
use crate::upstream::exchange::{RequestBody, SendOptions};
use crate::upstream::headers::forward;
use crate::upstream::mux::exchange::CALLER;
use crate::upstream::own_id::{OwnId, SessionTag};
use crate::upstream::stdio;
use crate::upstream::{ReplicaSelection, Upstream};
use net::drain::Drain;
use protocol::agreement::{self, name_in_body};
use protocol::envelope::{MessageKind, Reference};
use protocol::error::{ClientError, Error, GatewayError};
use protocol::head::Head;
use protocol::header::encode_value;
use protocol::json::{Document, Literal, quote};
use protocol::method::{Method, NameSource};
use protocol::route::{Kind, Route, Style};
use protocol::splice::{Edit, Segments, splice};
use protocol::version::{Era, Eras, supported_versions};

use self::metadata::metadata;

/// Longer capabilities of a client are refused where lists depend on them.
const CAPABILITIES_BYTES_MAX: usize = 16 * 1024;
/// How long a call with a bare name waits for the upstreams to be listed for the first time.
const NAMES_PATIENCE: Duration = Duration::from_secs(1);
/// How long a call waits until it is known in which era its upstream is to be asked.
const ERAS_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Proxy {
    worker: Rc<Worker>,
    drain: Rc<Drain>,
}

/// What the headers and the body of a request come to.
#[expect(clippy::large_enum_variant, reason = "there is one for a call, and a box would cost every call")]
enum RequestDecision {
    Answer(Response<ReplyBody>),
    Send(Outbound),
    /// The answer goes to another stream than the response.
    Aside(sse::DeferredReply),
}

struct Outbound {
    message: Message,
    /// The upstream's place in the endpoint.
    member: usize,
    body: Segments,
    /// What replaces `Mcp-Name`.
    inner_name: Option<HeaderValue>,
    mapper: Option<Mapper>,
    is_safe_to_repeat: bool,
    /// The tool that is called; for the metrics.
    tool: Option<Tool>,
    /// What is subscribed to, as its upstream spells it.
    uri: Option<Box<str>>,
    /// The id it has towards its upstream, where that is not the client's.
    own_id: Option<OwnId>,
    session: Option<Session>,
    /// What its cancellation finds it by, until it has its answer.
    announced: Option<CallInFlight>,
}

impl Proxy {
    pub(crate) fn new(worker: Rc<Worker>, drain: Rc<Drain>) -> Self {
        Self { worker, drain }
    }

    /// How far the end of its listener has come.
    pub(crate) fn drain(&self) -> &Drain {
        &self.drain
    }

    /// Answers one request. Never fails: every error becomes a response.
    pub(crate) async fn handle(&self, connection: InCall, request: Request<Incoming>) -> Response<ReplyBody> {
        let view = self.worker.view();
        let (mut parts, body) = request.into_parts();
        let observers = Rc::clone(&self.worker.observers);
        let mut call = Call::start(connection, Rc::clone(&view.unmatched), observers, &parts.headers);
        call.believe(&parts.headers, &view.snapshot.trusted_proxies);
        let mut intake = Intake::new(body);
        let head = Head::read(&parts.headers);
        let origin = head.origin.to_value();
        let result = match self.decide(&view, &parts, &head, &mut intake, &mut call).await {
            Ok(RequestDecision::Answer(response)) => Ok(response),
            // From here on the headers are the upstream's.
            Ok(RequestDecision::Send(outbound)) => {
                let headers = std::mem::take(&mut parts.headers);
                self.send(&view, outbound, headers, &mut call).await
            }
            Ok(RequestDecision::Aside(posted)) => {
                let headers = std::mem::take(&mut parts.headers);
                let mut response = self.answer_aside(&view, posted, headers, call);
                if let Some(origin) = origin {
                    cors::allow(&mut response, origin);
                }
                return response;
            }
            Err(error) => {
                call.has_name(head.decoded_name.as_deref());
                Err(error)
            }
        };
        let mut response = match result {
            Ok(mut response) => {
                call.status = Some(response.status().as_u16());
                let ends = call.caller.as_ref().and_then(|caller| caller.ends);
                response.body_mut().carry(call);
                response.body_mut().end_with(ends);
                if let Some(origin) = origin {
                    cors::allow(&mut response, origin);
                }
                response
            }
            Err(error) => Box::pin(self.refuse(&view, origin, intake, call, &error)).await,
        };
        if self.drain.is_quiet() || self.worker.state.drain.is_quiet() {
            close_after(&mut response);
        }
        response
    }

    async fn decide(
        &self,
        view: &Rc<View>,
        parts: &Parts,
        head: &Head<'_>,
        intake: &mut Intake,
        call: &mut Call,
    ) -> Result<RequestDecision, Error> {
        if parts.headers.len() > view.snapshot.limits.headers_max {
            return Err(ClientError::TooManyHeaders.into());
        }
        let Some(index) = view.snapshot.endpoint_at(parts.uri.path()) else {
            return Ok(RequestDecision::Answer(metadata(view, parts)?));
        };
        let endpoint = &view.endpoints[index];
        call.endpoint = Some(Rc::clone(endpoint));
        call.seen.era = head.era().unwrap_or(Era::Modern);
        if head.era() == Some(Era::Modern) {
            call.spoken.set(Spoken::Modern);
        }
        let served = endpoint.eras();
        let is_sse = endpoint.config.sse && served.legacy && head.era() != Some(Era::Modern);
        check_http_method(&parts.method, head, served)?;
        let is_preflight = parts.method == HttpMethod::OPTIONS;
        check_doors(endpoint, parts, head, call)?;
        if is_preflight {
            return Ok(RequestDecision::Answer(cors::preflight(&parts.headers, served.legacy)));
        }
        if matches!(parts.method, HttpMethod::GET | HttpMethod::DELETE) {
            return Box::pin(self.decide_without_body(view, (index, is_sse), &parts.method, head, call))
                .await;
        }
        if !head.is_json() {
            return Err(ClientError::ContentType.into());
        }
        if !head.accepts_reply {
            return Err(ClientError::NotAcceptable.into());
        }
        let caller = self.authenticate(view, index, head, call).await?;
        if let Some(method) = head.method.as_str() {
            call.seen.method = Method::of(method);
        }
        self.admit_posted(view, endpoint, (head, intake), call).await?;
        if is_sse && let Some(line) = parts.uri.query().and_then(SseSessionId::in_query) {
            return Box::pin(self.post_to_line(view, (line, endpoint), head, intake, call)).await;
        }
        let mut session = match head.era() {
            Some(Era::Legacy) if served.legacy => self.session(endpoint, head, call).await?,
            _ => None,
        };
        if call.seen.method.subject() == Some(NameSource::TaskId)
            && let Some(task) = head.decoded_name.as_deref()
        {
            Box::pin(self.learn_tasks(endpoint, &caller, std::iter::once(task))).await;
        }
        let by_headers = agreement::check_headers(head, call.seen.method)
            .map_err(Error::from)
            .and_then(|()| self.route_by_headers(endpoint, &caller, head));
        let by_headers = match by_headers {
            Err(Error::Gateway(GatewayError::NamesUnknown)) => {
                Box::pin(endpoint.names.settled(NAMES_PATIENCE)).await;
                self.route_by_headers(endpoint, &caller, head)
            }
            other => other,
        };
        let by_headers = match by_headers {
            Ok(Some(route)) => {
                let what = (call.seen.method, &parts.headers);
                self.admit_call(view, endpoint, call, what, &route).await.map(|()| Some(route))
            }
            other => other,
        };
        let route = match by_headers {
            Ok(route) => route,
            Err(error) => {
                // Errors that come earlier in the order win, as far as the body is at hand.
                if let Some(body) = Box::pin(intake.collect_refused()).await {
                    self.reader(view, served).read(head, body, &mut call.seen).await?;
                }
                return Err(error);
            }
        };
        let body = intake.collect(&view.snapshot.limits, &self.worker.state.buffered).await?;
        call.request_bytes = body.len() as u64;
        if crate::line::batch::is_batch(&body) && served.legacy && head.era() != Some(Era::Modern) {
            call.seen.era = Era::Legacy;
            if session.is_none() {
                session = self.session(endpoint, head, call).await?;
            }
            if let Some(session) = session.as_ref().filter(|session| batch::has_batches(session)) {
                let headers = &parts.headers;
                let body = (&body, intake.take_reservation());
                return Box::pin(self.batch(view, endpoint, (head, headers), body, session, call)).await;
            }
        }
        let message = self.reader(view, served).read(head, body, &mut call.seen).await?;
        if message.era == Era::Legacy {
            if session.is_none() {
                session = self.session(endpoint, head, call).await?;
            }
            let headers = &parts.headers;
            return Box::pin(self.dispatch_legacy(view, endpoint, (head, headers), message, session, call))
                .await;
        }
        self.dispatch(view, endpoint, &parts.headers, message, route, call).await
    }

    /// GET and DELETE at the endpoint of this index: streams and the end of sessions.
    async fn decide_without_body(
        &self,
        view: &Rc<View>,
        (index, is_sse): (usize, bool),
        method: &HttpMethod,
        head: &Head<'_>,
        call: &mut Call,
    ) -> Result<RequestDecision, Error> {
        let endpoint = &view.endpoints[index];
        if *method == HttpMethod::GET && !head.accepts_events {
            return Err(ClientError::NotAcceptable.into());
        }
        self.authenticate(view, index, head, call).await?;
        if *method == HttpMethod::DELETE {
            return self.end_session(view, endpoint, head, call).await;
        }
        // A client of Streamable HTTP always names its session with a GET, one of HTTP+SSE never does.
        if is_sse && !head.session.is_present() {
            return self.open_line(view, endpoint, call);
        }
        self.open_stream(view, endpoint, head, call).await
    }

    /// Which of the gateway's own answers, or which upstream, a message gets.
    async fn dispatch(
        &self,
        view: &Rc<View>,
        endpoint: &Rc<Arc<Endpoint>>,
        headers: &HeaderMap,
        message: Message,
        route: Option<Route<'_>>,
        call: &mut Call,
    ) -> Result<RequestDecision, Error> {
        call.watch.identify(message.envelope.id.as_ref().map(|_| message.id()));
        match message.method {
            _ if message.envelope.kind == MessageKind::Notification => {
                Ok(RequestDecision::Answer(accepted()))
            }
            method if method.is_foreign_to(Era::Modern) => Err(ClientError::Method.into()),
            Method::Discover => Box::pin(self.discover(view, endpoint, &message, call)).await,
            method if List::of(method).is_some() => Box::pin(self.list(view, endpoint, &message, call)).await,
            Method::Complete if !endpoint.is_untouched_for(&call.caller()?.class) => {
                self.settle_names(endpoint).await;
                self.complete(view, endpoint, headers, message, (None, call)).await
            }
            Method::Listen => Box::pin(self.listen(view, endpoint, &message, call)).await,
            method => match route {
                Some(route) => {
                    let literal = method
                        .name_source()
                        .and_then(|source| name_in_body(&message.envelope, source))
                        .cloned();
                    if method == Method::ToolsCall {
                        self.check_params(view, endpoint, headers, &message, &route).await?;
                    }
                    Ok(self.address(
                        view,
                        endpoint,
                        message,
                        (&route, literal.as_ref()),
                        (None, call.principal().id()),
                    ))
                }
                None if endpoint.is_untouched_for(&call.caller()?.class) => {
                    tasks::check_method(endpoint, &message)?;
                    let only = Route { member: 0, inner: "".into() };
                    self.admit_call(view, endpoint, call, (method, headers), &only).await?;
                    Ok(self.address(view, endpoint, message, (&only, None), (None, call.principal().id())))
                }
                None => Err(ClientError::Method.into()),
            },
        }
    }

    async fn settle_names(&self, endpoint: &Endpoint) {
        if endpoint.needs_directory() {
            Box::pin(endpoint.names.settled(NAMES_PATIENCE)).await;
        }
    }

    fn reader<'r>(&'r self, view: &'r View, served: Eras) -> MessageReader<'r> {
        MessageReader {
            scratch: &self.worker.scratch,
            tasks: &self.worker.client.tasks,
            depth_max: view.snapshot.limits.json_depth_max,
            served,
        }
    }

    async fn discover(
        &self,
        view: &Rc<View>,
        endpoint: &Rc<Arc<Endpoint>>,
        message: &Message,
        call: &Call,
    ) -> Result<RequestDecision, Error> {
        let capabilities = capabilities(message)?;
        let (worker, id, class) = (&self.worker, message.id(), &call.caller()?.class);
        let supported = supported_versions(endpoint.eras());
        let answer = lists::discover(worker, view, (endpoint, class), capabilities, id, &supported).await?;
        Ok(RequestDecision::Answer(json_response(StatusCode::OK, answer)))
    }

    async fn list(
        &self,
        view: &Rc<View>,
        endpoint: &Rc<Arc<Endpoint>>,
        message: &Message,
        call: &Call,
    ) -> Result<RequestDecision, Error> {
        let cursor = match &message.envelope.cursor {
            Some(cursor) => Some(cursor.decode(&message.body).ok_or(ClientError::Cursor)?),
            None => None,
        };
        let ask = ListRequest {
            list: List::of(message.method).ok_or(ClientError::Method)?,
            dialect: Dialect::Modern { capabilities: capabilities(message)? },
            cursor: cursor.as_deref(),
            id: message.id(),
            class: &call.caller()?.class,
            asker: Some(call),
        };
        let answer = lists::list(&self.worker, view, endpoint, ask).await?;
        Ok(RequestDecision::Answer(json_response(StatusCode::OK, answer)))
    }

    /// `completion/complete` names what it completes in the body alone.
    async fn complete(
        &self,
        view: &Rc<View>,
        endpoint: &Rc<Arc<Endpoint>>,
        headers: &HeaderMap,
        message: Message,
        (session, call): (Option<Session>, &Call),
    ) -> Result<RequestDecision, Error> {
        let (kind, literal) = match &message.envelope.reference {
            Some(Reference::Prompt(literal)) => (Kind::Prompt, literal.clone()),
            Some(Reference::Resource(literal)) => (Kind::Resource, literal.clone()),
            None => return Err(ClientError::Params { why: "params.ref names no prompt or resource" }.into()),
        };
        let public = literal.decode(&message.body).map(Cow::into_owned);
        let public = public.ok_or(ClientError::Params { why: "params.ref is not valid text" })?;
        let caller = call.caller()?;
        let route = self.find_route(endpoint, caller, kind, &public)?;
        self.admit_call(view, endpoint, call, (message.method, headers), &route).await?;
        let sees_all =
            endpoint.naming.hides_nothing() && caller.class.reach(route.member) == Reach::Everything;
        let completion = (kind == Kind::Resource && !sees_all)
            .then(|| self.completion(view, (endpoint, &caller.class), &message, &route))
            .transpose()?;
        let (method, depth_max) = (message.method, view.snapshot.limits.json_depth_max);
        let mut decision =
            self.address(view, endpoint, message, (&route, Some(&literal)), (session, call.principal().id()));
        if let (RequestDecision::Send(outbound), Some(completion)) = (&mut decision, completion) {
            let mapper = outbound.mapper.take();
            let mapper =
                mapper.unwrap_or_else(|| Mapper::new(Rc::clone(endpoint), route.member, method, depth_max));
            outbound.mapper = Some(mapper.restricting(Restriction::Completion(Rc::new(completion))));
        }
        Ok(decision)
    }

    fn completion(
        &self,
        view: &View,
        (endpoint, class): (&Rc<Arc<Endpoint>>, &Arc<Class>),
        message: &Message,
        route: &Route<'_>,
    ) -> Result<Completion, ClientError> {
        let mut scratch = self.worker.scratch.borrow_mut();
        let request = scratch.index(&message.body, view.snapshot.limits.json_depth_max).map(Document::root);
        let request = request.map_err(|_| ClientError::Params { why: "params cannot be read" })?;
        Completion::new((endpoint, class), (route.member, &route.inner), request)
            .map_err(|why| ClientError::Params { why })
    }

    /// Spells a message as its upstream does. `literal` is the name it is routed by, where the body has one.
    fn address(
        &self,
        view: &Rc<View>,
        endpoint: &Rc<Arc<Endpoint>>,
        message: Message,
        (route, literal): (&Route<'_>, Option<&Literal>),
        (session, principal): (Option<Session>, &str),
    ) -> RequestDecision {
        let depth_max = view.snapshot.limits.json_depth_max;
        let new_mapper = || {
            let mapper = Mapper::new(Rc::clone(endpoint), route.member, message.method, depth_max)
                .for_owner(&self.worker.state.sessions, principal);
            let is_of_task = message.method.subject() == Some(NameSource::TaskId);
            match literal.filter(|_| is_of_task).and_then(|literal| literal.decode(&message.body)) {
                Some(public) => mapper.about(&route.inner, &public),
                None => mapper,
            }
        };
        let mapper = (endpoint.naming.style() != Style::Transparent).then(new_mapper);
        let mut edits = match &mapper {
            Some(mapper) => mapper.inner_names(&mut self.worker.scratch.borrow_mut(), &message.body),
            None => Vec::new(),
        };
        let mut inner_name = None;
        if let Some(literal) = literal.filter(|literal| !literal.equals(&message.body, &route.inner)) {
            edits.push(Edit { span: literal.span.clone(), with: quote(&route.inner).into() });
            if message.method.subject().is_some() {
                inner_name = HeaderValue::from_str(&encode_value(&route.inner)).ok();
            }
        }
        let upstream = endpoint.members.get(route.member).and_then(|slot| view.snapshot.upstreams.get(*slot));
        // What carries the messages of a child has ids of its own.
        let upstream_over_http = upstream.filter(|upstream| !upstream.is_child());
        let own_id = upstream_over_http
            .filter(|upstream| mapper.is_some() || session.is_some() || upstream.config.unique_ids)
            .and_then(|upstream| own_id(&message, session.as_ref(), upstream));
        edits.extend(own_id.as_ref().map(|(_, edit)| edit.clone()));
        let body = if edits.is_empty() {
            Segments::from(message.body.clone())
        } else {
            edits.sort_unstable_by_key(|edit| edit.span.start);
            splice(&message.body, &edits)
        };
        // By the rule for lists: what credentials or rules can change is nobody else's.
        let is_private =
            message.method == Method::ResourcesRead && message.era == Era::Modern && !endpoint.is_open();
        let mapper = if is_private {
            Some(mapper.unwrap_or_else(new_mapper).restricting(Restriction::Private))
        } else {
            mapper
        };
        let is_subscription = matches!(message.method, Method::Subscribe | Method::Unsubscribe);
        let uri = is_subscription.then(|| (*route.inner).into());
        let is_safe_to_repeat = message.method.is_safe_to_repeat()
            || (message.method == Method::ToolsCall
                && upstream.is_some_and(|upstream| upstream.may_call_twice(&route.inner)));
        let tool = upstream.filter(|_| message.method == Method::ToolsCall);
        let tool = tool.map(|upstream| note_tool(endpoint, upstream, route));
        RequestDecision::Send(Outbound {
            is_safe_to_repeat,
            tool,
            message,
            member: route.member,
            body,
            inner_name,
            mapper,
            uri,
            own_id: own_id.map(|(own_id, _)| own_id),
            session,
            announced: None,
        })
    }

    /// `subscriptions/listen` names what it is about in the body alone; what it cannot name, it does not get.
    async fn listen(
        &self,
        view: &Rc<View>,
        endpoint: &Rc<Arc<Endpoint>>,
        message: &Message,
        call: &Call,
    ) -> Result<RequestDecision, Error> {
        let names_max = view.snapshot.limits.subscription_uris_max;
        let mut filter = self.reader(view, Eras::BOTH).filter(message, names_max).await?;
        if !filter.uris.is_empty() && endpoint.naming.needs_directory() {
            endpoint.names.settled(NAMES_PATIENCE).await;
        }
        let (state, caller) = (&self.worker.state, call.caller()?);
        filter.uris.retain(|uri| self.find_route(endpoint, caller, Kind::Resource, &uri.value).is_ok());
        let tasks = filter.task_ids.iter().map(|task| &*task.value);
        self.learn_tasks(endpoint, caller, tasks).await;
        filter.task_ids.retain_mut(|task| {
            let route = self.find_route(endpoint, caller, Kind::Task, &task.value);
            // From here on it is known to be the caller's, and spelled as everybody's.
            let found =
                route.map(|route| endpoint.naming.spell(Kind::Task, route.member, &route.inner).into_owned());
            found.map(|found| task.value = found).is_ok()
        });
        let place = (&**endpoint, &**caller);
        let subscription = subscriptions::client::open(state, &view.snapshot, place, message.id(), filter)?;
        Ok(RequestDecision::Answer(relay::subscription_response(subscription)))
    }

    async fn send(
        &self,
        view: &Rc<View>,
        outbound: Outbound,
        mut headers: HeaderMap,
        call: &mut Call,
    ) -> Result<Response<ReplyBody>, Error> {
        if outbound.session.is_some() {
            return Box::pin(self.send_in_session(view, outbound, headers, call)).await;
        }
        let Outbound { message, member, body, inner_name, mapper, own_id, tool, is_safe_to_repeat, .. } =
            outbound;
        let Some(endpoint) = &call.endpoint else { return Err(ClientError::NoEndpoint.into()) };
        let new_task = self.new_task(view, (&message, own_id.as_ref()), (member, None), call);
        let slot = endpoint.members[member];
        let upstream = &view.snapshot.upstreams[slot];
        call.upstream = Some(Rc::clone(&view.upstream_names[slot]));
        call.tool = tool;
        if upstream.eras().is_none() {
            Box::pin(upstream.facts.tried_within(ERAS_PATIENCE)).await;
        }
        upstream.era_for(Era::Modern)?;
        let permit = Self::acquire_slot(upstream, call).await?;
        forward(&mut headers, inner_name, &upstream.access.forward);
        if upstream.is_child()
            && let Some(caller) = stdio::caller(call.principal().id())
        {
            headers.insert(CALLER, caller);
        }
        let mut request = Request::new(RequestBody::from(body));
        *request.method_mut() = HttpMethod::POST;
        *request.headers_mut() = headers;
        // It may have become known while the call waited.
        if upstream.lacks(Era::Modern) {
            request.extensions_mut().insert(BridgedCaller::of(call.principal().id()));
        }
        call.watch.leaves(&mut request, upstream.is_child());
        let now = Instant::now();
        let deadline = now + upstream.config.reply_timeout;
        let delivery =
            SendOptions { is_safe_to_repeat, aim: ReplicaSelection::Any, asked: Some(call.asked()) };
        let result = match self.worker.client.send(upstream, request, delivery, now, deadline).await {
            Ok(reply) => {
                let plan = RelayPlan {
                    upstream,
                    id: message.id(),
                    own_id: own_id.as_ref(),
                    mapper,
                    deadline,
                    session: None,
                    in_flight: None,
                    permit,
                    subscribing: None,
                    new_task,
                    place: None,
                };
                relay(&self.worker, reply, plan).await
            }
            Err(error) => Err(error.into()),
        };
        let is_answered = note_end(&mut call.watch, &result);
        // Only a call that failed, or still may, needs its name for the log.
        if !is_answered || call.watch.is_curious() {
            call.has_name(message.public_name().as_deref());
        }
        result
    }

    /// Renders an error: with the request's id where it can be had cheaply.
    async fn refuse(
        &self,
        view: &Rc<View>,
        origin: Option<HeaderValue>,
        mut intake: Intake,
        mut call: Call,
        error: &Error,
    ) -> Response<ReplyBody> {
        let body = intake.collect_refused().await.unwrap_or_default();
        call.request_bytes = body.len() as u64;
        let id = self.reader(view, Eras::BOTH).find_id(&body).await;
        let id = id.and_then(|id| std::str::from_utf8(body.get(id)?).ok());
        let is_origin_allowed = call.is_origin_allowed;
        let era = call.seen.era;
        let is_told_in_ok = era == Era::Legacy
            && !error.is_of_transport()
            && call.endpoint.as_ref().is_none_or(|endpoint| endpoint.tells_legacy_errors_in_ok());
        let status = if is_told_in_ok { StatusCode::OK } else { error.outcome().status };
        call.status = Some(status.as_u16());
        let body = error.body(id, era);
        call.reply_bytes = body.len() as u64;
        call.fail(error);
        let mut response = json_response(status, body);
        if let Ok(id) = HeaderValue::try_from(call.watch.request_id.to_string()) {
            response.headers_mut().insert(X_REQUEST_ID, id);
        }
        relay::describe(&mut response, error, call.endpoint.as_ref().map(|endpoint| &***endpoint));
        if let Some(origin) = origin.filter(|_| is_origin_allowed) {
            cors::allow(&mut response, origin);
        }
        if intake.is_unread() {
            close_after(&mut response);
        }
        response
    }
}

/// `Origin` and `Host`, and whether this host belongs on this connection.
fn check_doors(endpoint: &Endpoint, parts: &Parts, head: &Head<'_>, call: &mut Call) -> Result<(), Error> {
    endpoint.doors.check_origin(head.origin, call.on_loopback())?;
    call.is_origin_allowed = true;
    let host = endpoint.doors.check_host(head.host, &parts.uri, call.on_loopback())?;
    if call.peer().is_for(host) { Ok(()) } else { Err(ClientError::Misdirected.into()) }
}

/// Whether the exchange with an upstream is complete, which its span is told: it has failed, or its reply is at hand.
fn note_end(watch: &mut Watch, result: &Result<Response<ReplyBody>, Error>) -> bool {
    match result {
        Err(error) => watch.failed(error),
        Ok(response) if matches!(response.body(), ReplyBody::Whole(..)) => {
            watch.answered();
            return true;
        }
        Ok(_) => {}
    }
    false
}

/// GET and DELETE belong to sessions, and so to the legacy era.
fn check_http_method(method: &HttpMethod, head: &Head<'_>, served: Eras) -> Result<(), ClientError> {
    let is_legacy = served.legacy && head.era() != Some(Era::Modern);
    match *method {
        HttpMethod::POST | HttpMethod::OPTIONS => Ok(()),
        HttpMethod::GET | HttpMethod::DELETE if is_legacy => Ok(()),
        _ if is_legacy => Err(ClientError::HttpMethod { allow: "GET, POST, DELETE" }),
        _ => Err(ClientError::HttpMethod { allow: "POST" }),
    }
}

/// The tool that a call is counted as, at the endpoint and at its upstream.
fn note_tool(endpoint: &Endpoint, upstream: &Upstream, route: &Route<'_>) -> Tool {
    let tool = upstream.tools.find(&route.inner);
    endpoint
        .series
        .note_tool(tool, || endpoint.naming.spell(Kind::Tool, route.member, &route.inner).into_owned());
    upstream.durations.note_tool(tool, &route.inner);
    tool
}

/// An id of the gateway's own for a request, and where to put it.
fn own_id(message: &Message, session: Option<&Session>, upstream: &Upstream) -> Option<(OwnId, Edit)> {
    let span = message.envelope.id.clone()?;
    let tag = session.map(|session| SessionTag::new(session.grant.id.0, &upstream.session_key));
    let own_id = OwnId::new(message.body.slice(span.clone()), tag.unwrap_or_default());
    let edit = Edit { span, with: own_id.sent().clone() };
    Some((own_id, edit))
}

fn answer(message: &Message, result: &str) -> RequestDecision {
    let json = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, message.id());
    RequestDecision::Answer(json_response(StatusCode::OK, json))
}

/// What the client says it can do, as it wrote it.
fn capabilities(message: &Message) -> Result<&[u8], ClientError> {
    let span = message.envelope.meta.as_ref().and_then(|meta| meta.client_capabilities.clone());
    let capabilities = span.and_then(|span| message.body.get(span)).unwrap_or(b"{}");
    // Every upstream is sent them with every page.
    if capabilities.len() > CAPABILITIES_BYTES_MAX {
        return Err(ClientError::Params { why: "the client's capabilities are longer than 16 KiB" });
    }
    Ok(capabilities)
}

fn accepted() -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

fn close_after(response: &mut Response<ReplyBody>) {
    response.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
}
