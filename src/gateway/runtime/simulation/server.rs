//! The replicas of an upstream: both eras or one, sessions, streams, a list that changes, crashes.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::unfold;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::sleep;

use super::faults::{FaultyStream, Place};
use super::model::Model;

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
/// How many of a thousand requests come to each of the ends that a server has for them in a storm.
const FAILING: usize = 15;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;
type EventSender = mpsc::UnboundedSender<String>;

/// One upstream.
pub(super) struct Server {
    pub(super) name: &'static str,
    is_modern: bool,
    model: Rc<Model>,
    /// How often its list of tools has changed.
    pub(super) version: Cell<usize>,
    pub(super) replicas: Vec<Replica>,
}

/// One address of it.
pub(super) struct Replica {
    pub(super) address: SocketAddr,
    accepting: RefCell<Option<JoinHandle<()>>>,
    state: Rc<RefCell<ReplicaState>>,
}

/// What is lost in a crash.
#[derive(Default)]
struct ReplicaState {
    connections: Vec<JoinHandle<()>>,
    /// Streams of sessions, by their ids.
    sessions: HashMap<String, Option<EventSender>>,
    /// Streams of subscriptions, with their ids.
    listening: Vec<(Value, EventSender)>,
    opened: usize,
}

impl Server {
    pub(super) async fn start(
        model: &Rc<Model>,
        (name, is_modern): (&'static str, bool),
        replicas: usize,
    ) -> Rc<Self> {
        let mut addresses = Vec::new();
        for _ in 0..replicas {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            addresses.push(listener.local_addr().expect("an address"));
        }
        let replicas = addresses.into_iter();
        let replicas =
            replicas.map(|address| Replica { address, accepting: RefCell::default(), state: Rc::default() });
        let server = Rc::new(Self {
            name,
            is_modern,
            model: Rc::clone(model),
            version: Cell::new(1),
            replicas: replicas.collect(),
        });
        for number in 0..server.replicas.len() {
            server.come_up(number).await;
        }
        server
    }

    pub(super) fn place(&self) -> Place {
        Place::Upstream(self.name)
    }

    pub(super) fn is_up(&self, replica: usize) -> bool {
        self.replicas[replica].accepting.borrow().is_some()
    }

    /// The replica crashes: connections and sessions are gone.
    pub(super) fn go_down(&self, replica: usize) {
        self.model.weather.harm(&self.place());
        let Replica { accepting, state, .. } = &self.replicas[replica];
        accepting.take().into_iter().for_each(|task| task.abort());
        let ReplicaState { connections, sessions, listening, .. } = &mut *state.borrow_mut();
        connections.drain(..).for_each(|task| task.abort());
        sessions.clear();
        listening.clear();
    }

    /// It is started again.
    pub(super) async fn come_up(self: &Rc<Self>, replica: usize) {
        self.model.weather.harm(&self.place());
        let address = self.replicas[replica].address;
        // The end of the old listener is a matter of the next moments.
        let listener = loop {
            match TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(_) => sleep(Duration::from_millis(10)).await,
            }
        };
        let server = Rc::clone(self);
        let accepting = spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let stream = FaultyStream::new(stream, &server.model.weather, server.place());
                let serving = Rc::clone(&server);
                let answer = service_fn(move |request| {
                    let server = Rc::clone(&serving);
                    async move { server.answer(replica, request).await }
                });
                let connection =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
                let task = spawn_local(async move { drop(connection.await) });
                let mut state = server.replicas[replica].state.borrow_mut();
                state.connections.retain(|task| !task.is_finished());
                state.connections.push(task);
            }
        });
        *self.replicas[replica].accepting.borrow_mut() = Some(accepting);
    }

    /// Its list of tools changes, and it says so.
    pub(super) fn change_list(&self) {
        self.version.set(self.version.get() + 1);
        let changed = "notifications/tools/list_changed";
        for replica in &self.replicas {
            let state = replica.state.borrow();
            for stream in state.sessions.values().flatten() {
                let _ = stream.send(json!({"jsonrpc": "2.0", "method": changed}).to_string());
            }
            for (id, stream) in &state.listening {
                let params = json!({"_meta": {SUBSCRIPTION: id}});
                let _ =
                    stream.send(json!({"jsonrpc": "2.0", "method": changed, "params": params}).to_string());
            }
        }
    }

    /// Tells one of the sessions that listen something. Returns for whom and what.
    pub(super) fn tell_somebody(&self, choice: usize) -> Option<(usize, String)> {
        let streams = self.replicas.iter().flat_map(|replica| {
            let state = replica.state.borrow();
            let open = state.sessions.iter().filter_map(|(id, stream)| {
                let stream = stream.as_ref().filter(|stream| !stream.is_closed())?;
                Some((self.model.owner(id)?, stream.clone()))
            });
            open.collect::<Vec<_>>()
        });
        let mut streams: Vec<(usize, EventSender)> = streams.collect();
        streams.sort_by_key(|(client, _)| *client);
        let (client, stream) = streams.get(choice % streams.len().max(1))?;
        let token = self.model.tell(*client);
        stream.send(message(&token)).ok()?;
        Some((*client, token))
    }

    async fn answer(self: Rc<Self>, replica: usize, request: Request<Incoming>) -> std::io::Result<Answer> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
        let (weather, place) = (&self.model.weather, self.place());
        if weather.strikes(&place, FAILING) {
            return Err(std::io::ErrorKind::ConnectionAborted.into());
        }
        if weather.strikes(&place, FAILING) {
            return Ok(plain(StatusCode::INTERNAL_SERVER_ERROR, "it is broken"));
        }
        if weather.strikes(&place, FAILING) {
            return Ok(plain(StatusCode::OK, "{\"jsonrpc\":\"2.0\",\"id\":"));
        }
        if weather.strikes(&place, FAILING / 3) {
            std::future::pending::<()>().await;
        }
        if weather.strikes(&place, FAILING) {
            self.replicas[replica].state.borrow_mut().sessions.clear();
        }
        let header =
            |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let session = header("mcp-session-id").to_owned();
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        if header("mcp-protocol-version") == MODERN {
            return Ok(if self.is_modern { self.modern(replica, &message).await } else { refusal(&message) });
        }
        if message["method"] == "initialize" {
            return Ok(self.initialize(replica, &message));
        }
        if !self.replicas[replica].state.borrow().sessions.contains_key(&session) {
            return Ok(plain(StatusCode::NOT_FOUND, "no such session"));
        }
        Ok(match parts.method.as_str() {
            "GET" => {
                let (sender, stream) = events();
                self.replicas[replica].state.borrow_mut().sessions.insert(session, Some(sender));
                stream
            }
            "DELETE" => {
                self.replicas[replica].state.borrow_mut().sessions.remove(&session);
                plain(StatusCode::OK, "")
            }
            _ => self.legacy(&session, &message).await,
        })
    }

    fn initialize(&self, replica: usize, message: &Value) -> Answer {
        let mut state = self.replicas[replica].state.borrow_mut();
        state.opened += 1;
        let session = format!("{}-{replica}-{}", self.name, self.model.token());
        state.sessions.insert(session.clone(), None);
        let result = json!({
            "protocolVersion": LEGACY,
            "capabilities": {"tools": {"listChanged": true}, "logging": {}},
            "serverInfo": {"name": self.name, "version": "1"},
        });
        let mut answer = result_of(message, &result);
        answer.headers_mut().insert("mcp-session-id", session.parse().expect("a header"));
        answer
    }

    async fn legacy(&self, session: &str, message: &Value) -> Answer {
        if message.get("id").is_none() {
            return plain(StatusCode::ACCEPTED, "");
        }
        match message["method"].as_str() {
            Some("tools/list") => result_of(message, &json!({"tools": self.tools()})),
            Some("tools/call") => {
                let arguments = &message["params"]["arguments"];
                if let Some(client) =
                    arguments["client"].as_u64().and_then(|client| usize::try_from(client).ok())
                {
                    self.model.use_session(session, client);
                }
                self.call(message).await
            }
            _ => result_of(message, &json!({})),
        }
    }

    async fn modern(&self, replica: usize, message: &Value) -> Answer {
        let complete = json!({"ttlMs": 600_000, "cacheScope": "public", "resultType": "complete"});
        let with = |mut result: Value| {
            let members = complete.as_object().expect("an object").clone();
            result.as_object_mut().expect("an object").extend(members);
            result_of(message, &result)
        };
        match message["method"].as_str() {
            Some("server/discover") => with(json!({
                "supportedVersions": [MODERN], "capabilities": {"tools": {"listChanged": true}},
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": self.name, "version": "1"}},
            })),
            Some("tools/list") => with(json!({"tools": self.tools()})),
            Some("tools/call") => self.call(message).await,
            Some("subscriptions/listen") => {
                let (sender, stream) = events();
                let params = json!({"_meta": {SUBSCRIPTION: message["id"]}, "notifications": message["params"]["notifications"]});
                let acknowledged = json!({
                    "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params,
                });
                let _ = sender.send(acknowledged.to_string());
                let mut state = self.replicas[replica].state.borrow_mut();
                state.listening.retain(|(_, stream)| !stream.is_closed());
                state.listening.push((message["id"].clone(), sender));
                stream
            }
            _ => refusal(message),
        }
    }

    fn tools(&self) -> Value {
        let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
        json!([tool("echo"), tool("tell"), tool(&format!("v{}", self.version.get()))])
    }

    /// `echo` says what it is told, `tell` says so on a stream, after something else.
    async fn call(&self, message: &Value) -> Answer {
        let arguments = &message["params"]["arguments"];
        let token = arguments["token"].as_str().unwrap_or_default().to_owned();
        self.model.execute(&token);
        sleep(Duration::from_millis(arguments["pause_ms"].as_u64().unwrap_or_default())).await;
        self.model.note(&token, "answered");
        let text = format!("{} {token}", self.name);
        let result = json!({"content": [{"type": "text", "text": text}], "resultType": "complete"});
        if message["params"]["name"] != "tell" {
            return result_of(message, &result);
        }
        let (sender, stream) = events();
        let progress = json!({"progressToken": token, "progress": 1});
        let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress});
        let _ = sender.send(progress.to_string());
        let _ = sender.send(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string());
        stream
    }
}

fn message(token: &str) -> String {
    let params = json!({"level": "error", "data": token});
    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}).to_string()
}

fn result_of(message: &Value, result: &Value) -> Answer {
    let text = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
    json_answer(StatusCode::OK, text)
}

fn refusal(message: &Value) -> Answer {
    let error = json!({"code": -32601, "message": "there is no such method here"});
    json_answer(
        StatusCode::BAD_REQUEST,
        json!({"jsonrpc": "2.0", "id": message["id"], "error": error}).to_string(),
    )
}

fn json_answer(status: StatusCode, text: String) -> Answer {
    let mut answer = Response::new(Full::from(text).boxed_unsync());
    *answer.status_mut() = status;
    answer.headers_mut().insert("content-type", "application/json".parse().expect("a header"));
    answer
}

fn plain(status: StatusCode, text: &'static str) -> Answer {
    let mut answer = Response::new(Full::from(text).boxed_unsync());
    *answer.status_mut() = status;
    answer
}

/// A stream of events, and where they are put in.
fn events() -> (EventSender, Answer) {
    let (sender, receiver) = mpsc::unbounded_channel::<String>();
    let events = unfold(receiver, |mut receiver| async move {
        let text = receiver.recv().await?;
        Some((Ok(Frame::data(Bytes::from(format!("data: {text}\n\n")))), receiver))
    });
    let mut answer = Response::new(BodyExt::boxed_unsync(StreamBody::new(events)));
    answer.headers_mut().insert("content-type", "text/event-stream".parse().expect("a header"));
    (sender, answer)
}
