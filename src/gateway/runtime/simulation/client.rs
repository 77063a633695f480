//! Clients of both eras: calls, lists, sessions with streams, subscriptions.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep, timeout};

use super::answers::read_events;
use super::dice::Dice;
use super::faults::{FaultyStream, Place};
use super::model::{Model, Outcome};
use super::server::CLIENT_NAME;

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";
/// Longer than any bound of the gateway's.
const PATIENCE: Duration = Duration::from_secs(40);
const CALLS_OF_SESSION_MAX: usize = 12;
/// How many kinds of clients there are.
const KINDS: usize = 4;

/// Somebody who calls.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) number: usize,
    pub(super) gateway: SocketAddr,
    pub(super) model: Rc<Model>,
    pub(super) dice: Rc<RefCell<Dice>>,
    pub(super) audience: Rc<Audience>,
}

/// Who listens, to what they must be told of.
#[derive(Default)]
pub(super) struct Audience {
    /// Clients with sessions by number, and since when their streams are open.
    pub(super) streams: RefCell<Vec<(usize, Instant)>>,
    /// Subscriptions: since when they are acknowledged, and when they last heard of a change.
    pub(super) listeners: RefCell<Vec<Rc<Listener>>>,
    next: Cell<usize>,
}

pub(super) struct Listener {
    pub(super) client: usize,
    pub(super) since: Instant,
    pub(super) heard: Cell<Option<Instant>>,
    pub(super) is_open: Cell<bool>,
}

/// What a message is answered by.
struct Exchange {
    status: StatusCode,
    session: Option<String>,
    outcome: Outcome,
    result: Value,
}

impl Client {
    fn die(&self, count: usize) -> usize {
        self.dice.borrow_mut().below(count)
    }

    fn place(&self) -> Place {
        Place::Client(self.number)
    }

    /// Does one thing after another until `is_over`.
    pub(super) async fn run(mut self, is_over: Rc<Cell<bool>>) {
        while !is_over.get() {
            // Each is somebody else, so that nobody takes another's session for its own.
            self.audience.next.set(self.audience.next.get() + 1);
            self.number = self.audience.next.get();
            match self.die(11) {
                0..5 => self.call_in_modern_era().await,
                5 => self.list().await,
                6 => self.list_for_all().await,
                7 => self.listen().await,
                _ => self.session().await,
            }
            let pause = self.dice.borrow_mut().pause(1500);
            sleep(pause).await;
        }
    }

    /// Where a call may go: endpoint, upstream, and the tool as it is called there.
    fn aim(&self) -> (&'static str, &'static str, String) {
        let tool = ["echo", "echo", "tell"][self.die(3)];
        match self.die(3) {
            0 => ("/one", "a", tool.to_owned()),
            1 => ("/all", "a", format!("a__{tool}")),
            _ => ("/all", "b", format!("b__{tool}")),
        }
    }

    async fn call_in_modern_era(&self) {
        let (endpoint, upstream, tool) = self.aim();
        let token = self.model.token();
        let arguments = json!({"token": token, "pause_ms": self.die(300)});
        let mut meta = meta(&self.capabilities());
        meta["progressToken"] = json!(token);
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        let since = Instant::now();
        self.model.note(&token, &format!("{endpoint} {tool} in the modern era by client {}", self.number));
        let exchange = self.modern(endpoint, ("tools/call", Some(&tool)), params).await;
        let places = [Place::Upstream(upstream), Place::Connections(upstream), self.place()];
        self.model.answer((&token, &format!("{upstream} {token}")), &places, since, exchange.outcome);
    }

    /// Looks at the tools that a client of the modern era is shown.
    async fn list_tools(&self, endpoint: &str, capabilities: &Value) {
        let since = Instant::now();
        let params = json!({"_meta": meta(capabilities)});
        let exchange = self.modern(endpoint, ("tools/list", None), params).await;
        self.look_at_tools(endpoint, since, &exchange);
    }

    fn look_at_tools(&self, endpoint: &str, since: Instant, exchange: &Exchange) {
        let names = exchange.result["tools"].as_array().into_iter().flatten();
        let names: Vec<String> = names.filter_map(|tool| Some(tool["name"].as_str()?.to_owned())).collect();
        let places = [Place::Upstream("a"), Place::Upstream("b"), Place::Sessions("a"), self.place()];
        if self.model.was_calm(&places, since) && names.len() != if endpoint == "/one" { 3 } else { 6 } {
            self.model.fault(format!("the tools of {endpoint} are {names:?}: {:?}", exchange.outcome));
        }
        let upstreams: &[_] =
            if endpoint == "/one" { &[("a", "v")] } else { &[("a", "a__v"), ("b", "b__v")] };
        for (upstream, prefix) in upstreams {
            let shown = names.iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok());
            if self.model.was_calm(&places, since) {
                self.model.show_versions(upstream, since, shown);
            }
        }
    }

    async fn list(&self) {
        let endpoint = ["/one", "/all"][self.die(2)];
        self.list_tools(endpoint, &self.capabilities()).await;
    }

    /// For clients of all kinds at once, more than there are sessions for.
    async fn list_for_all(&self) {
        let kinds = all_capabilities();
        join_all(kinds.iter().map(|kind| self.list_tools("/all", kind))).await;
    }

    fn capabilities(&self) -> Value {
        all_capabilities()[self.die(KINDS)].clone()
    }

    async fn listen(&self) {
        let params = json!({"notifications": {"toolsListChanged": true}, "_meta": meta(&json!({}))});
        let id = format!("l{}", self.number);
        let message = json!({"jsonrpc": "2.0", "id": id, "method": "subscriptions/listen", "params": params});
        let request = self.request("/all", Some(&message)).header("mcp-protocol-version", MODERN);
        let request = request.header("mcp-method", "subscriptions/listen");
        let Ok(response) = timeout(PATIENCE, self.send(request, Some(&message))).await else {
            return self.model.fault(format!("client {} is not let listen", self.number));
        };
        let Ok(response) = response else { return };
        let mut listener: Option<Rc<Listener>> = None;
        let reading = read_events(response, |event| {
            if event["method"] == "notifications/subscriptions/acknowledged" {
                let (client, since) = (self.number, Instant::now());
                let new = Listener { client, since, heard: Cell::new(None), is_open: Cell::new(true) };
                let new = listener.insert(Rc::new(new));
                self.audience.listeners.borrow_mut().push(Rc::clone(new));
            }
            if event["method"] == "notifications/tools/list_changed"
                && let Some(listener) = &listener
            {
                listener.heard.set(Some(Instant::now()));
            }
            false
        });
        let length = Duration::from_secs(1) + self.dice.borrow_mut().pause(30_000);
        let _ = timeout(length, reading).await;
        if let Some(listener) = listener {
            listener.is_open.set(false);
            self.audience.listeners.borrow_mut().retain(|one| !Rc::ptr_eq(one, &listener));
        }
    }

    async fn session(&self) {
        let endpoint = ["/one", "/all"][self.die(2)];
        let since = Instant::now();
        let info = json!({"name": format!("{CLIENT_NAME}{}", self.number), "version": "1"});
        let offer =
            json!({"protocolVersion": LEGACY, "capabilities": self.capabilities(), "clientInfo": info});
        let opened = self.post(endpoint, None, "initialize", offer).await;
        let Some(session) = opened.session else {
            let places = [Place::Upstream("a"), Place::Upstream("b"), self.place()];
            if self.model.was_calm(&places, since) {
                self.model.fault(format!("no session at {endpoint}: {:?}", opened.outcome));
            }
            return;
        };
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let _ = timeout(
            PATIENCE,
            self.send(self.in_session(endpoint, &session, &initialized), Some(&initialized)),
        )
        .await;
        let stream = (self.die(3) > 0).then(|| self.open_stream(endpoint, &session));
        for _ in 0..self.die(CALLS_OF_SESSION_MAX) {
            if !self.call_in_session(endpoint, &session).await {
                break;
            }
            if self.die(4) == 0 {
                self.list_in_session(endpoint, &session).await;
            }
            let pause = self.dice.borrow_mut().pause(3000);
            sleep(pause).await;
        }
        if let Some(stream) = stream {
            stream.abort();
            self.audience.streams.borrow_mut().retain(|(client, _)| *client != self.number);
        }
        if self.die(10) > 2 {
            let request = self.request(endpoint, None).method("DELETE").header("mcp-session-id", &session);
            let _ = timeout(PATIENCE, self.send(request.header("mcp-protocol-version", LEGACY), None)).await;
        }
    }

    async fn list_in_session(&self, endpoint: &str, session: &str) {
        let since = Instant::now();
        let exchange = self.post(endpoint, Some(session), "tools/list", json!({})).await;
        if exchange.status != StatusCode::NOT_FOUND || !self.model.may_have_ended(self.number) {
            self.look_at_tools(endpoint, since, &exchange);
        }
    }

    /// False: there is no such session any more.
    async fn call_in_session(&self, endpoint: &str, session: &str) -> bool {
        let (upstream, tool) = loop {
            let (at, upstream, tool) = self.aim();
            if at == endpoint {
                break (upstream, tool);
            }
        };
        let token = self.model.token();
        let arguments = json!({"token": token, "pause_ms": self.die(300), "client": self.number});
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": token}});
        let since = Instant::now();
        self.model.note(&token, &format!("{endpoint} {tool} in the session of client {}", self.number));
        let exchange = self.post(endpoint, Some(session), "tools/call", params).await;
        let has_ended = exchange.status == StatusCode::NOT_FOUND;
        if !has_ended || !self.model.may_have_ended(self.number) {
            let places = [Place::Upstream(upstream), Place::Sessions(upstream), self.place()];
            self.model.answer((&token, &format!("{upstream} {token}")), &places, since, exchange.outcome);
        }
        !has_ended
    }

    /// Reads what it is told beside its calls, for as long as the task lives.
    fn open_stream(&self, endpoint: &'static str, session: &str) -> JoinHandle<()> {
        let (client, session) = (self.clone(), session.to_owned());
        spawn_local(async move {
            loop {
                let request = client.request(endpoint, None).method("GET").header("mcp-session-id", &session);
                let request = request.header("mcp-protocol-version", LEGACY);
                if let Ok(Ok(response)) = timeout(PATIENCE, client.send(request, None)).await {
                    if response.status() != StatusCode::OK {
                        return;
                    }
                    client.audience.streams.borrow_mut().push((client.number, Instant::now()));
                    read_events(response, |event| {
                        client.hear(event);
                        false
                    })
                    .await;
                    client.audience.streams.borrow_mut().retain(|(number, _)| *number != client.number);
                }
                sleep(Duration::from_millis(200)).await;
            }
        })
    }

    fn hear(&self, event: &Value) {
        if event["method"] == "notifications/message" {
            self.model.hear(self.number, event["params"]["data"].as_str().unwrap_or_default());
        }
    }

    async fn modern(&self, endpoint: &str, (method, name): (&str, Option<&str>), params: Value) -> Exchange {
        let message = json!({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params});
        let request = self.request(endpoint, Some(&message)).header("mcp-protocol-version", MODERN);
        let mut request = request.header("mcp-method", method);
        if let Some(name) = name {
            request = request.header("mcp-name", name);
        }
        self.ask(request, &message).await
    }

    async fn post(&self, endpoint: &str, session: Option<&str>, method: &str, params: Value) -> Exchange {
        let message = json!({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params});
        let request = match session {
            Some(session) => self.in_session(endpoint, session, &message),
            None => self.request(endpoint, Some(&message)),
        };
        self.ask(request, &message).await
    }

    fn request(&self, endpoint: &str, message: Option<&Value>) -> http::request::Builder {
        let request =
            Request::builder().method("POST").uri(endpoint).header("host", self.gateway.to_string());
        let accept =
            if message.is_some() { "application/json, text/event-stream" } else { "text/event-stream" };
        let request = request.header("accept", accept);
        if message.is_some() { request.header("content-type", "application/json") } else { request }
    }

    fn in_session(&self, endpoint: &str, session: &str, message: &Value) -> http::request::Builder {
        let request = self.request(endpoint, Some(message)).header("mcp-session-id", session);
        request.header("mcp-protocol-version", LEGACY)
    }

    async fn ask(&self, request: http::request::Builder, message: &Value) -> Exchange {
        let asked = async {
            let response = match self.send(request, Some(message)).await {
                Ok(response) => response,
                Err(error) => return Exchange::failed(Outcome::Broken(error)),
            };
            let status = response.status();
            let session = response.headers().get("mcp-session-id");
            let session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
            let found = self.answer_in(response, &message["id"]).await;
            let (outcome, result) = match found {
                Ok(message) => judged(message),
                Err(outcome) => (outcome, Value::Null),
            };
            Exchange { status, session, outcome, result }
        };
        match timeout(PATIENCE, asked).await {
            Ok(exchange) => exchange,
            Err(_) => Exchange::failed(Outcome::Nonsense("nothing, and the connection stays open".into())),
        }
    }

    async fn send(
        &self,
        request: http::request::Builder,
        message: Option<&Value>,
    ) -> Result<Response<Incoming>, String> {
        let said = |error: &dyn std::fmt::Display| error.to_string();
        let stream = TcpStream::connect(self.gateway).await.map_err(|error| said(&error))?;
        let stream = FaultyStream::new(stream, &self.model.weather, self.place());
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|error| said(&error))?;
        spawn_local(async move { drop(connection.await) });
        let body = message.map(ToString::to_string).unwrap_or_default();
        let request = request.body(Full::new(Bytes::from(body))).map_err(|error| said(&error))?;
        let response = sender.send_request(request).await.map_err(|error| said(&error))?;
        Ok(response)
    }

    /// The message that answers the one of this id.
    async fn answer_in(&self, response: Response<Incoming>, id: &Value) -> Result<Value, Outcome> {
        let kind =
            response.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            let status = response.status();
            let body =
                response.into_body().collect().await.map_err(|error| Outcome::Broken(error.to_string()))?;
            let text = body.to_bytes();
            let message: Option<Value> = serde_json::from_slice(&text).ok();
            let fits = |message: &Value| {
                message["id"] == *id || message["id"].is_null() && message["error"].is_object()
            };
            return message
                .filter(fits)
                .ok_or_else(|| Outcome::Nonsense(format!("{status} {}", String::from_utf8_lossy(&text))));
        }
        let mut found = None;
        read_events(response, |event| {
            self.hear(event);
            if event["id"] == *id && event.get("method").is_none() {
                found = Some(event.clone());
            }
            found.is_some()
        })
        .await;
        found.ok_or_else(|| Outcome::Broken("its stream ended".into()))
    }
}

impl Exchange {
    fn failed(outcome: Outcome) -> Self {
        Self { status: StatusCode::OK, session: None, outcome, result: Value::Null }
    }
}

/// What clients can do, of each kind.
fn all_capabilities() -> [Value; KINDS] {
    [json!({}), json!({"roots": {}}), json!({"sampling": {}}), json!({"elicitation": {}})]
}

/// What a request of the modern era says of its client.
fn meta(capabilities: &Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "client", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    })
}

fn judged(mut message: Value) -> (Outcome, Value) {
    if message["error"].is_object() {
        return (Outcome::Refused(message["error"].to_string()), Value::Null);
    }
    let result = message["result"].take();
    match result["content"][0]["text"].as_str() {
        Some(text) => (Outcome::Text(text.to_owned()), result),
        None => (Outcome::Nonsense(result.to_string()), result),
    }
}
