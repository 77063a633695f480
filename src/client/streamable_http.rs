//! Messages over Streamable HTTP: each request and its reply, the session of the legacy era and its stream.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use ::http::{HeaderMap, HeaderValue, Method as HttpMethod, StatusCode, header};
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::{Request, cancellation};
use super::error::{RequestError, RpcError};
use super::exchange_error::{ExchangeError, unusable};
use super::http_endpoint::HttpEndpoint;
use super::incoming_handler::IncomingHandler;
use super::incoming_message::{self, IncomingMessage};
use super::message_headers::{self, SESSION_ID};
use super::response_reader::{ResponseReader, StreamPosition};
use super::server::HttpServer;
use super::user_interaction::WireMessage;
use net::http_client::{HttpReply, collect};
use net::tasks::Tasks;
use protocol::method::{Method, NameSource};
use protocol::version::LegacyVersion;

/// A stream that lived for so long brought something, if only signs of life.
const LIVED: Duration = Duration::from_secs(1);
/// How much of a refusal is read.
const REFUSAL_BYTES_MAX: usize = 1 << 20;
/// How long a message may take for whose answer nobody waits.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long the stream of a session may take to begin before the first request leaves all the same.
const STREAM_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a stream that broke off is resumed in vain.
const RESUMES_MAX: u32 = 4;

/// The way to a server over HTTP.
pub(super) struct StreamableHttp {
    endpoint: HttpEndpoint,
    handler: Rc<IncomingHandler>,
    /// What has to arrive before the end.
    messages: Tasks,
    /// The revision and id of the session, in the legacy era.
    version: Cell<Option<LegacyVersion>>,
    session_id: RefCell<Option<HeaderValue>>,
    over: CancellationToken,
}

impl StreamableHttp {
    pub(super) fn new(address: &HttpServer, handler: Rc<IncomingHandler>) -> Result<Rc<Self>, RequestError> {
        let endpoint = HttpEndpoint::new(address, Tasks::default()).map_err(unusable)?;
        Ok(Rc::new(Self {
            endpoint,
            handler,
            messages: Tasks::default(),
            version: Cell::new(None),
            session_id: RefCell::default(),
            over: CancellationToken::new(),
        }))
    }

    /// The revision that `initialize` agreed to.
    pub(super) fn speak(&self, version: LegacyVersion) {
        self.version.set(Some(version));
    }

    /// Sends a request and returns its result.
    pub(super) async fn exchange(
        self: &Rc<Self>,
        request: &Request<'_>,
        patience: Duration,
    ) -> Result<Value, RequestError> {
        let headers = self.headers(Some(request));
        let body = Bytes::from(request.text());
        let is_cancellable = request.modern.is_none() && request.method != "initialize";
        let mut cancellation =
            is_cancellable.then(|| CancelOnDrop { http: Rc::clone(self), id: Some(request.id) });
        let is_safe_to_repeat = Method::of(request.method).is_safe_to_repeat();
        self.trace(true, "POST", &headers, &body);
        let outcome = match self.endpoint.post(headers, body, is_safe_to_repeat, patience).await {
            Ok(reply) => self.read(request, reply, patience).await,
            Err(fault) => Err(fault.into()),
        };
        let is_left_behind =
            matches!(outcome, Err(RequestError::Exchange(ExchangeError::TimedOut) | RequestError::Flood(_)));
        if let Some(cancellation) = cancellation.as_mut().filter(|_| !is_left_behind) {
            cancellation.id = None;
        }
        outcome
    }

    /// Sends a message that has no answer.
    pub(super) async fn tell(&self, message: &Value, patience: Duration) -> Result<(), RequestError> {
        let (headers, body) = (self.headers(None), Bytes::from(message.to_string()));
        self.trace(true, "POST", &headers, &body);
        Ok(self.endpoint.notify(headers, body, patience).await?)
    }

    /// Ends the session, once what is on its way has left.
    pub(super) async fn close(&self) {
        self.over.cancel();
        self.handler.cancel_all();
        let _ = timeout(FAREWELL, self.messages.wait()).await;
        if self.session_id.borrow().is_none() {
            return;
        }
        let headers = self.headers(None);
        self.trace(true, "DELETE", &headers, b"");
        let deadline = Instant::now() + FAREWELL;
        let _ = self.endpoint.send(HttpMethod::DELETE, headers, Bytes::new(), true, deadline).await;
    }

    async fn read(
        self: &Rc<Self>,
        request: &Request<'_>,
        reply: HttpReply,
        patience: Duration,
    ) -> Result<Value, RequestError> {
        if !reply.head.status.is_success() {
            return Err(self.refusal(request, reply, patience).await);
        }
        if request.method == "initialize" {
            *self.session_id.borrow_mut() = reply.head.headers.get(SESSION_ID).cloned();
        }
        let mut messages = ResponseReader::of(reply);
        let mut quiet_since = Instant::now();
        loop {
            let (begun, counted) = (Instant::now(), self.handler.message_count());
            let is_stream = messages.is_stream();
            let failure = match self.find(request, &mut messages, patience).await {
                Ok(Some(outcome)) => {
                    let http = Rc::clone(self);
                    self.messages.spawn(async move { http.endpoint.put_back(messages.reply).await });
                    return Ok(outcome?);
                }
                Ok(None) if is_stream => ExchangeError::Reset.into(),
                Ok(None) => return Err(ExchangeError::Nonsense.into()),
                Err(failure) => failure,
            };
            let is_broken = matches!(failure, RequestError::Exchange(ExchangeError::Reset));
            if !is_broken || request.modern.is_some() || messages.position.last_event_id.is_none() {
                return Err(failure);
            }
            // What counts is a server that answers each time at once, and with nothing.
            let lived = begun.elapsed() >= patience.min(LIVED);
            if lived || self.handler.message_count() != counted || self.handler.is_waiting_for_user() {
                quiet_since = Instant::now();
            } else if quiet_since.elapsed() >= patience {
                return Err(ExchangeError::TimedOut.into());
            }
            let position = messages.position;
            let reply = position.resume(RESUMES_MAX, async |position| self.get(position).await).await;
            messages = ResponseReader::behind(position, reply.ok_or(failure)?);
        }
    }

    /// What a refused request fails with.
    async fn refusal(&self, request: &Request<'_>, mut reply: HttpReply, patience: Duration) -> RequestError {
        let status = reply.head.status;
        let is_of_session = self.session_id.borrow().is_some() && request.method != "initialize";
        let body = collect(&mut reply.body, REFUSAL_BYTES_MAX, Instant::now() + patience).await;
        let body = body.unwrap_or_default();
        self.trace(false, &status.to_string(), &reply.head.headers, &body);
        if status == StatusCode::NOT_FOUND && is_of_session {
            return ExchangeError::SessionGone.into();
        }
        let answer = incoming_message::read(&body).ok().and_then(|messages| messages.into_iter().next());
        match answer {
            Some(IncomingMessage::Response { outcome: Err(error), .. }) => {
                RpcError { status: Some(status.as_u16()), ..error }.into()
            }
            _ => ExchangeError::Status(status).into(),
        }
    }

    /// The answer; `None`: the reply ended without it.
    async fn find(
        self: &Rc<Self>,
        request: &Request<'_>,
        messages: &mut ResponseReader,
        patience: Duration,
    ) -> Result<Option<Result<Value, RpcError>>, RequestError> {
        let is_stream = messages.is_stream();
        let status = messages.reply.head.status;
        loop {
            let text = match messages.next(Some(patience)).await {
                Ok(Some(text)) => text,
                Ok(None) => return Ok(None),
                Err(ExchangeError::TimedOut) if is_stream && self.handler.is_waiting_for_user() => continue,
                Err(fault) => return Err(fault.into()),
            };
            self.trace(false, &status.to_string(), &messages.reply.head.headers, &text);
            for message in incoming_message::read(&text)? {
                self.handler.count()?;
                match message {
                    IncomingMessage::Response { id, outcome }
                        if id == Some(request.id) || (id.is_none() && !is_stream) =>
                    {
                        let status = Some(status.as_u16());
                        return Ok(Some(outcome.map_err(|error| RpcError { status, ..error })));
                    }
                    // The modern era has no questions on streams.
                    IncomingMessage::Request { .. } if request.modern.is_some() => {}
                    other => self.take(other),
                }
            }
        }
    }

    /// Takes what answers nothing.
    fn take(self: &Rc<Self>, message: IncomingMessage) {
        let http = Rc::clone(self);
        let send = async move |answer: &Value| drop(http.tell(answer, FAREWELL).await);
        self.handler.take(message, &self.messages, send);
    }

    /// Listens to the session for as long as it lasts. Returns when that has begun, or cannot.
    pub(super) async fn listen(self: &Rc<Self>) {
        if self.session_id.borrow().is_none() {
            return;
        }
        let (http, begun) = (Rc::clone(self), Rc::new(Notify::new()));
        let told = Rc::clone(&begun);
        self.messages.spawn(async move {
            tokio::select! {
                () = http.listen_on(&told) => told.notify_one(),
                () = http.over.cancelled() => {}
            }
        });
        let _ = timeout(STREAM_TIMEOUT, begun.notified()).await;
    }

    async fn listen_on(self: &Rc<Self>, begun: &Notify) {
        let mut position = StreamPosition::default();
        let mut failures = 0;
        while failures < RESUMES_MAX {
            match self.get(&position).await {
                Ok(reply) if reply.head.status.is_success() => {
                    begun.notify_one();
                    let mut messages = ResponseReader::behind(position, reply);
                    if !messages.is_stream() {
                        return;
                    }
                    while let Ok(Some(text)) = messages.next(None).await {
                        failures = 0;
                        self.trace(false, "stream", &HeaderMap::new(), &text);
                        incoming_message::read(&text)
                            .unwrap_or_default()
                            .into_iter()
                            .for_each(|incoming_message| self.take(incoming_message));
                    }
                    position = messages.position;
                }
                Ok(reply) if reply.head.status.is_client_error() => return,
                Ok(_) | Err(_) => {}
            }
            sleep(position.delay(failures)).await;
            failures += 1;
        }
    }

    async fn get(&self, position: &StreamPosition) -> Result<HttpReply, ExchangeError> {
        let headers = self.headers(None);
        self.trace(true, "GET", &headers, b"");
        self.endpoint.open_stream(headers, position).await
    }

    fn headers(&self, request: Option<&Request<'_>>) -> HeaderMap {
        match request {
            Some(request) if request.method == "initialize" => HeaderMap::new(),
            Some(Request { modern: Some(version), method, params, param_headers, .. }) => {
                let key = Method::of(method).name_source().map(|source| match source {
                    NameSource::Name => "name",
                    NameSource::Uri => "uri",
                    NameSource::TaskId => "taskId",
                });
                let name = key.and_then(|key| params.get(key)?.as_str());
                let mut headers = message_headers::mirrored(version, Some(method), name).unwrap_or_default();
                headers.extend(param_headers.clone());
                headers
            }
            _ => message_headers::in_session(self.version.get(), self.session_id.borrow().as_ref()),
        }
    }

    fn trace(&self, is_sent: bool, line: &str, headers: &HeaderMap, body: &[u8]) {
        let mut head = line.to_owned();
        for (name, value) in headers {
            if name.as_str().starts_with("mcp-") || name == header::CONTENT_TYPE {
                head.push('\n');
                head.push_str(name.as_str());
                head.push_str(": ");
                head.push_str(&String::from_utf8_lossy(value.as_bytes()));
            }
        }
        self.handler.user.trace(&WireMessage { is_sent, head, body });
    }
}

/// A request of the legacy era that is cancelled when this is dropped, as long as it has the id.
struct CancelOnDrop {
    http: Rc<StreamableHttp>,
    id: Option<u64>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let http = Rc::clone(&self.http);
        self.http.messages.spawn(async move {
            let _ = http.tell(&cancellation(id), FAREWELL).await;
        });
    }
}
