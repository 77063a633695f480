//! The line a call follows, from its headers to its reply: identify, read, resolve, admit, dispatch, send, relay. Each step
//! is one module's; this file is their order.
//!
//! Everything that headers can decide is decided before the body is awaited, in the order the specification
//! gives errors. Whatever goes wrong falls to one place, which renders it. Names no library below it.
//! What is different for clients with sessions is in `legacy.rs`.

mod address;
mod answers;
mod arguments;
mod batch;
mod caller;
mod context;
mod exchange;
mod legacy;
mod lists;
mod metadata;
mod params;
mod permit;
mod resource_subscriptions;
mod sign_in;
mod sse;
mod stream;
mod tasks;
mod trace;

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method as HttpMethod, StatusCode};

use self::address::Outbound;
use self::context::RequestContext;
use self::metadata::metadata;
use self::permit::AdmittedByName;
use crate::access::auth::origin::named_host;
use crate::context::call::Call;
use crate::context::peer::InCall;
use crate::context::worker::{View, Worker};
use crate::identity::refusal::CredentialFault;
use crate::line::client_body::ClientBody;
use crate::line::cors;
use crate::line::intake::Intake;
use crate::line::message::{Message, MessageReader};
use crate::line::relay::{self, json_response};
use crate::line::request_header::RequestHeader;
use crate::line::response::ClientResponse;
use crate::snapshot::Endpoint;
use crate::tables::lists::List;
use crate::telemetry::logs::is_list;
use crate::telemetry::request_id::X_REQUEST_ID;
use crate::upstream::silence::Silence;
use net::drain::Drain;
use protocol::agreement::name_in_body;
use protocol::envelope::MessageKind;
use protocol::error::{ClientError, Error};
use protocol::fields::{FieldName, Fields, visible};
use protocol::head::Head;
use protocol::header::decode_value;
use protocol::method::Method;
use protocol::route::Route;
use protocol::version::{Era, Eras};

/// How long a call with a bare name waits for the upstreams to be listed for the first time.
const NAMES_PATIENCE: Duration = Duration::from_secs(1);

/// Serves the requests of one worker.
#[derive(Debug)]
pub(crate) struct Proxy {
    worker: Rc<Worker>,
    drain: Rc<Drain>,
}

/// What becomes of a request.
enum LineAnswer {
    Response(ClientResponse),
    /// For people: a page of another origin reads none of it.
    Page(ClientResponse),
    /// The answer goes to another stream than the response.
    Aside(Box<sse::DeferredReply>),
}

/// What becomes of a message.
enum RequestDecision {
    /// The gateway answers it.
    Answer(ClientResponse),
    /// An upstream does.
    Send(Outbound),
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
    /// `silence`: what is known of the client's, where it can be given the head of a reply before there is one.
    pub(crate) async fn handle(
        &self,
        connection: InCall,
        silence: Option<Arc<Silence>>,
        request: &mut RequestHeader,
        body: ClientBody,
    ) -> ClientResponse {
        let view = self.worker.view();
        let observers = Rc::clone(&self.worker.observers);
        let mut call = Call::start(connection, Rc::clone(&view.unmatched), observers, &request.fields);
        call.believe(&request.fields, &view.snapshot.trusted_proxies);
        let mut intake = Intake::new(body);
        let origin = origin(&request.fields);
        if let Some(silence) = &silence {
            silence.start(view.snapshot.reply_keep_alive_interval);
            if let Some(origin) = &origin {
                silence.note_origin(origin);
            }
        }
        call.silence = silence;
        let answered = self.answer(&view, request, &mut intake, &mut call).await;
        let origin = origin.filter(|_| !matches!(answered, Ok(LineAnswer::Page(_))));
        let mut response = match answered {
            Ok(LineAnswer::Response(mut response) | LineAnswer::Page(mut response)) => {
                if call.has_begun_reply() {
                    relay::fold_late(&self.worker, &mut response);
                }
                call.status = Some(response.status.as_u16());
                if !response.body.finish(&mut call) {
                    response.body.end_with_credentials(&call, &self.worker.state);
                    response.body.carry(call);
                }
                if let Some(origin) = origin {
                    cors::allow(&mut response, origin);
                }
                response
            }
            Ok(LineAnswer::Aside(posted)) => {
                let fields = std::mem::take(&mut request.fields);
                let mut response = self.answer_aside(&view, posted, fields, call);
                if let Some(origin) = origin {
                    cors::allow(&mut response, origin);
                }
                return response;
            }
            Err(error) => {
                // What was sent has its name from its body.
                if !request.fields.is_empty() {
                    call.has_name(header_name(&request.fields).as_deref());
                }
                Box::pin(self.refuse(&view, origin, &request.fields, intake, call, &error)).await
            }
        };
        if self.drain.is_quiet() || self.worker.state.drain.is_quiet() {
            close_after(&mut response);
        }
        response
    }

    /// The line of one request, step by step. What is not posted leaves it early.
    async fn answer(
        &self,
        view: &Rc<View>,
        request: &mut RequestHeader,
        intake: &mut Intake,
        call: &mut Call,
    ) -> Result<LineAnswer, Error> {
        // Identify: where it comes to, and who calls.
        if request.fields.len() > view.snapshot.limits.headers_max {
            return Err(ClientError::TooManyHeaders.into());
        }
        let head = Head::read(&request.fields);
        let host = || named_host(head.host, request.authority());
        let Some(index) = view.snapshot.endpoint_for(request.path(), host)? else {
            let answered = Box::pin(self.sign_in(view, request, intake, call, host())).await?;
            return Ok(match answered {
                Some(answer) => answer,
                None => LineAnswer::Response(metadata(view, request, host)?),
            });
        };
        let cx = &mut RequestContext::new(view, &view.endpoints[index], &head, &request.fields, call);
        cx.note_endpoint();
        check_http_method(&request.method, cx)?;
        check_doors(self, cx, request)?;
        if request.method != HttpMethod::POST {
            let answered = Box::pin(self.answer_without_body(cx, index, &request.method)).await;
            return answered.map(LineAnswer::Response);
        }
        cx.call.seen.method = head.method.as_str().map_or(Method::Other, Method::of);
        check_media(&head)?;
        self.authenticate(cx, index).await?;
        self.admit_posted(cx, intake).await?;
        if let Some(id) = cx.sse_session(request.query()) {
            return Box::pin(self.post_to_line(cx, id, intake)).await;
        }
        // Resolve and admit, where headers say what it is for.
        if cx.served.legacy && head.era() == Some(Era::Legacy) {
            self.find_session(cx).await?;
        }
        let route = self.route_by_headers(cx, intake).await?;
        // Read.
        let body =
            intake.collect(&view.snapshot.limits, &self.worker.state.buffered, || cx.call.payer()).await?;
        cx.call.request_bytes = body.len() as u64;
        if self.is_batch(cx, &body).await? {
            let answered = Box::pin(self.batch(cx, &body, intake.take_reservation())).await;
            return answered.map(LineAnswer::Response);
        }
        let mut message = Message::unread(body);
        let read = self.reader(view, cx.served).read(&head, &mut message, &mut cx.call.seen).await;
        if message.envelope.has_other_names {
            self.hear_of_trace(cx, &mut message);
        }
        read?;
        // Dispatch.
        let decision = match message.era {
            Era::Modern => self.dispatch(cx, &message, route).await?,
            // Made where it stays: `Box::pin` would copy all of it.
            Era::Legacy => {
                let dispatching = Box::write(Box::new_uninit(), self.dispatch_in_session(cx, &message));
                Box::into_pin(dispatching).await?
            }
        };
        let mut outbound = match decision {
            RequestDecision::Send(outbound) => outbound,
            RequestDecision::Answer(response) => return Ok(LineAnswer::Response(response)),
        };
        // Send, and relay the reply. From here on the fields are the upstream's.
        let (session, fields) = (cx.session.take(), std::mem::take(&mut request.fields));
        let sent = self.send(view, (&message, &mut outbound), session, fields, call).await;
        sent.map(LineAnswer::Response)
    }

    /// What is not posted to the endpoint of this index: questions of browsers, streams, and the end of sessions.
    async fn answer_without_body(
        &self,
        cx: &mut RequestContext<'_>,
        index: usize,
        method: &HttpMethod,
    ) -> Result<ClientResponse, Error> {
        if *method == HttpMethod::OPTIONS {
            return Ok(cors::preflight(cx.fields, cx.served.legacy));
        }
        if *method == HttpMethod::GET && !cx.head.accepts_events {
            return Err(ClientError::NotAcceptable.into());
        }
        self.authenticate(cx, index).await?;
        cx.call.seen.era = Era::Legacy;
        if *method == HttpMethod::DELETE {
            return self.end_session(cx).await;
        }
        // A client of Streamable HTTP always names its session with a GET, one of HTTP+SSE never does.
        if cx.has_sse() && !cx.head.session.is_present() {
            return self.open_line(cx);
        }
        self.open_stream(cx).await
    }

    /// Which of the gateway's own answers, or which upstream, a message gets.
    async fn dispatch(
        &self,
        cx: &mut RequestContext<'_>,
        message: &Message,
        route: Option<AdmittedByName<'_>>,
    ) -> Result<RequestDecision, Error> {
        cx.call.watch.identify(|| message.envelope.id.as_ref().map(|_| message.id()));
        match message.method {
            _ if message.envelope.kind == MessageKind::Notification => {
                Ok(RequestDecision::Answer(accepted()))
            }
            method if method.is_foreign_to(Era::Modern) => Err(ClientError::Method.into()),
            Method::Discover => Box::pin(self.discover(cx, message)).await,
            method if List::of(method).is_some() => Box::pin(self.list(cx, message)).await,
            Method::Complete if !cx.is_untouched()? => {
                Box::pin(self.complete(cx, message)).await.map(RequestDecision::Send)
            }
            Method::Listen => Box::pin(self.listen(cx, message)).await,
            method => match route {
                Some(route) => {
                    let source = method.name_source();
                    let literal = source.and_then(|source| name_in_body(&message.envelope, source));
                    if method == Method::ToolsCall {
                        self.check_params(cx, message, &route).await?;
                    }
                    let route = self.admit_arguments(cx, message, route).await?;
                    Ok(RequestDecision::Send(self.address(cx, message, &route, literal)))
                }
                None if cx.is_untouched()? => {
                    Box::pin(self.pass_through(cx, message)).await.map(RequestDecision::Send)
                }
                None => Err(ClientError::Method.into()),
            },
        }
    }

    /// A method that only the one upstream may know goes there as it is.
    async fn pass_through(&self, cx: &RequestContext<'_>, message: &Message) -> Result<Outbound, Error> {
        tasks::check_method(cx.endpoint, message)?;
        let only = Route { member: 0, inner: "".into() };
        let only = self.admit_call(cx, message, only).await?;
        Ok(self.address(cx, message, &only, None))
    }

    /// Waits a moment for names that are not known yet.
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

    /// What a refused call was about, from its body where the headers do not say it.
    fn note_subject(&self, view: &View, call: &mut Call, body: &Bytes) {
        if call.seen.method != Method::Other && call.name.is_some() {
            return;
        }
        if let Some(message) = self.reader(view, Eras::BOTH).look(body) {
            call.seen.method = message.method;
            call.has_name(message.public_name().as_deref());
        }
    }

    /// Renders an error: with the request's id where it can be had cheaply.
    async fn refuse(
        &self,
        view: &Rc<View>,
        origin: Option<HeaderValue>,
        fields: &Fields,
        mut intake: Intake,
        mut call: Call,
        error: &Error,
    ) -> ClientResponse {
        let body = intake.collect_refused().await.unwrap_or_default();
        call.request_bytes = body.len() as u64;
        self.note_subject(view, &mut call, &body);
        self.hear_of_refused(&mut call, &body, fields, view);
        let id = self.reader(view, Eras::BOTH).find_id(&body).await;
        let id = id.and_then(|id| std::str::from_utf8(body.get(id)?).ok());
        let is_origin_allowed = call.is_origin_allowed;
        let era = call.seen.era;
        let endpoint = call.endpoint.as_ref();
        let status =
            endpoint.map_or_else(|| error.outcome().status, |endpoint| endpoint.status_of(error, era));
        let has_begun = call.has_begun_reply();
        call.status = Some(if has_begun { 200 } else { status.as_u16() });
        let said =
            if is_list(call.seen.method.label()) { error.without_outcome() } else { error.to_string() };
        let body = error.body_saying(&said, id, era);
        call.reply_bytes = body.len() as u64;
        call.fail(error);
        let mut response = json_response(status, body);
        if let Ok(id) = HeaderValue::try_from(call.watch.request_id.to_string()) {
            response.headers_mut().insert(X_REQUEST_ID, id);
        }
        relay::describe(&mut response, error, call.endpoint.as_ref().map(|endpoint| &***endpoint));
        if has_begun {
            relay::fold_late(&self.worker, &mut response);
        }
        if let Some(origin) = origin.filter(|_| is_origin_allowed) {
            cors::allow(&mut response, origin);
        }
        if intake.is_unread() {
            close_after(&mut response);
        }
        response
    }
}

/// Where the page is from that a browser asks for.
fn origin(fields: &Fields) -> Option<HeaderValue> {
    HeaderValue::from_str(visible(fields.only(FieldName::Origin)?)?).ok()
}

/// What a call is about by its headers alone.
fn header_name(fields: &Fields) -> Option<Cow<'_, str>> {
    decode_value(fields.only(FieldName::McpName)?)
}

fn check_media(head: &Head<'_>) -> Result<(), ClientError> {
    match (head.is_json(), head.accepts_reply) {
        (false, _) => Err(ClientError::ContentType),
        _ if head.is_encoded => Err(ClientError::Encoded),
        (_, false) => Err(ClientError::NotAcceptable),
        _ => Ok(()),
    }
}

/// `Origin` and `Host`, whether this host belongs on this connection, and whether the certificate that its client showed
/// would still be believed.
fn check_doors(proxy: &Proxy, cx: &mut RequestContext<'_>, request: &RequestHeader) -> Result<(), Error> {
    let RequestContext { endpoint, head, call, .. } = cx;
    endpoint.doors.check_origin(head.origin, call.on_loopback())?;
    call.is_origin_allowed = true;
    let (peer, authority) = (call.peer(), request.authority());
    if peer.has_expired(&proxy.worker.state.tls) {
        return Err(proxy.refuse_credentials(endpoint, peer, CredentialFault::Expired));
    }
    // A connection names the same host again and again; after a reload the endpoint has another id.
    let only_host = head.host.as_str().filter(|_| authority.is_none());
    if only_host.is_some_and(|host| peer.is_last_host(endpoint.id, host)) {
        return Ok(());
    }
    let host = endpoint.doors.check_host(head.host, authority, call.on_loopback())?;
    if !peer.is_for(host) {
        return Err(ClientError::Misdirected.into());
    }
    if peer.is_disbelieved(&proxy.worker.state.tls) {
        return Err(proxy.refuse_credentials(endpoint, peer, CredentialFault::Certificate));
    }
    if let Some(host) = only_host {
        peer.keep_host(endpoint.id, host);
    }
    Ok(())
}

/// GET and DELETE belong to sessions, and so to the legacy era.
fn check_http_method(method: &HttpMethod, cx: &RequestContext<'_>) -> Result<(), ClientError> {
    match *method {
        HttpMethod::POST | HttpMethod::OPTIONS => Ok(()),
        HttpMethod::GET | HttpMethod::DELETE if cx.may_be_legacy() => Ok(()),
        _ if cx.may_be_legacy() => Err(ClientError::HttpMethod { allow: "GET, POST, DELETE" }),
        _ => Err(ClientError::HttpMethod { allow: "POST" }),
    }
}

fn answer(message: &Message, result: &str) -> RequestDecision {
    let json = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, message.id());
    RequestDecision::Answer(json_response(StatusCode::OK, json))
}

fn accepted() -> ClientResponse {
    ClientResponse::empty(StatusCode::ACCEPTED)
}

fn close_after(response: &mut ClientResponse) {
    response.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
}
