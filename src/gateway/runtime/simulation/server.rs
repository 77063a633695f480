//! The replicas of an upstream: both eras or one, sessions that may be forgotten, streams, a list that changes, crashes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep};

use super::answers::{Answer, EventSender, events, message, plain, refusal, result_of};
use super::faults::{ConnectionHarm, FaultyStream, Place};
use super::model::Model;

const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
/// How many of a thousand requests come to each of the ends that a server has for them in a storm.
const FAILING: usize = 15;
/// Younger sessions are not forgotten: one that is lost as soon as it is opened is no session.
const YOUTH: Duration = Duration::from_secs(1);
/// What clients with sessions are called, before their numbers.
pub(super) const CLIENT_NAME: &str = "c";

/// One upstream.
pub(super) struct Server {
    pub(super) name: &'static str,
    pub(super) is_modern: bool,
    model: Rc<Model>,
    pub(super) replicas: Vec<Replica>,
}

/// One address of it.
pub(super) struct Replica {
    address: SocketAddr,
    /// Whether the name of the upstream leads to it.
    pub(super) is_listed: Cell<bool>,
    /// Whether somebody is about to restart it.
    pub(super) is_in_repair: Cell<bool>,
    /// Calls so far.
    pub(super) calls: Cell<usize>,
    accepting: RefCell<Option<JoinHandle<()>>>,
    state: Rc<RefCell<ReplicaState>>,
}

/// What is lost in a crash.
#[derive(Default)]
struct ReplicaState {
    connections: Vec<JoinHandle<()>>,
    /// By their ids.
    sessions: BTreeMap<String, ServedSession>,
    /// Streams of subscriptions, with their ids.
    listening: Vec<(Value, EventSender)>,
}

struct ServedSession {
    stream: Option<EventSender>,
    opened: Instant,
    /// One of the gateway's own that declares capabilities.
    is_for_lists: bool,
    /// The fate of the connection on which it was opened.
    harm: Rc<ConnectionHarm>,
}

impl ServedSession {
    fn stream(&self) -> Option<&EventSender> {
        self.stream.as_ref().filter(|stream| !stream.is_closed())
    }

    /// Whether nobody opens it just now, or listens in it unless that `is_heard`.
    fn may_be_forgotten(&self, is_heard: bool) -> bool {
        self.stream().is_some() == is_heard && self.opened.elapsed() > YOUTH
    }
}

impl Server {
    pub(super) async fn start(
        model: &Rc<Model>,
        (name, is_modern): (&'static str, bool),
        replicas: u8,
    ) -> Rc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let replicas = (1..=replicas).map(|number| Replica {
            address: SocketAddr::from(([127, 0, 0, number], port)),
            is_listed: Cell::new(true),
            is_in_repair: Cell::default(),
            calls: Cell::default(),
            accepting: RefCell::default(),
            state: Rc::default(),
        });
        let server = Rc::new(Self { name, is_modern, model: Rc::clone(model), replicas: replicas.collect() });
        for number in 0..server.replicas.len() {
            server.come_up(number).await;
        }
        server
    }

    pub(super) fn place(&self) -> Place {
        Place::Upstream(self.name)
    }

    /// Something happened there that excuses what became of it.
    pub(super) fn harm(&self, places: &[fn(&'static str) -> Place]) {
        for place in places {
            self.model.weather.harm(&place(self.name));
        }
    }

    /// The name that leads to its replicas, as far as they are listed.
    pub(super) fn host(&self) -> String {
        format!("{}.example", self.name)
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}:{}/mcp", self.host(), self.replicas[0].address.port())
    }

    pub(super) fn listed(&self) -> Vec<SocketAddr> {
        let listed = self.replicas.iter().filter(|replica| replica.is_listed.get());
        listed.map(|replica| replica.address).collect()
    }

    /// The gateway's sessions for lists that were opened since then.
    pub(super) fn list_sessions(&self, since: Instant) -> Vec<String> {
        let listed = self.replicas.iter().filter(|replica| replica.is_listed.get());
        let ids = listed.flat_map(|replica| {
            let state = replica.state.borrow();
            let lists = state.sessions.iter();
            let lists = lists.filter(|(_, session)| session.is_for_lists && session.opened > since);
            lists.map(|(id, _)| id.clone()).collect::<Vec<_>>()
        });
        ids.collect()
    }

    /// All of them, but for those of which the gateway may never have heard.
    pub(super) fn told_list_sessions(&self) -> Vec<String> {
        let listed = self.replicas.iter().filter(|replica| replica.is_listed.get());
        let ids = listed.flat_map(|replica| {
            let state = replica.state.borrow();
            let told = state.sessions.iter();
            let told = told.filter(|(_, session)| session.is_for_lists && !session.harm.is_lost());
            told.map(|(id, _)| id.clone()).collect::<Vec<_>>()
        });
        ids.collect()
    }

    /// Connections that are open for no stream.
    pub(super) fn spare_connections(&self) -> usize {
        let counts = self.replicas.iter().map(|replica| {
            let state = replica.state.borrow();
            let open = state.connections.iter().filter(|task| !task.is_finished()).count();
            let streams = state.sessions.values().filter_map(ServedSession::stream).count();
            let listening = state.listening.iter().filter(|(_, stream)| !stream.is_closed()).count();
            open.saturating_sub(streams + listening)
        });
        counts.sum()
    }

    /// One of its replicas no longer knows a session, in which somebody listens if it `is_heard`. False: there is none.
    pub(super) fn forget_a_session(&self, choice: usize, is_heard: bool) -> bool {
        let candidates: Vec<(usize, String)> = (0..self.replicas.len())
            .flat_map(|number| {
                let state = self.replicas[number].state.borrow();
                let old = state.sessions.iter().filter(|(_, session)| session.may_be_forgotten(is_heard));
                old.map(|(id, _)| (number, id.clone())).collect::<Vec<_>>()
            })
            .collect();
        let Some((replica, session)) = candidates.get(choice % candidates.len().max(1)) else { return false };
        if is_heard {
            self.harm(&[Place::Streams]);
        }
        self.forget(*replica, session);
        true
    }

    fn forget(&self, replica: usize, session: &str) {
        self.model.lose_session(session);
        self.replicas[replica].state.borrow_mut().sessions.remove(session);
    }

    /// The sessions of a replica are of no use any more.
    pub(super) fn lose_sessions(&self, replica: usize) {
        let state = self.replicas[replica].state.borrow();
        state.sessions.keys().for_each(|session| self.model.lose_session(session));
    }

    pub(super) fn is_up(&self, replica: usize) -> bool {
        self.replicas[replica].accepting.borrow().is_some()
    }

    /// The replica crashes: connections and sessions are gone.
    pub(super) fn go_down(&self, replica: usize) {
        self.lose_sessions(replica);
        let Replica { accepting, state, .. } = &self.replicas[replica];
        accepting.take().into_iter().for_each(|task| task.abort());
        let ReplicaState { connections, sessions, listening, .. } = &mut *state.borrow_mut();
        connections.drain(..).for_each(|task| task.abort());
        sessions.clear();
        listening.clear();
    }

    /// It is started again.
    pub(super) async fn come_up(self: &Rc<Self>, replica: usize) {
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
                let (serving, harm) = (Rc::clone(&server), stream.harm());
                let answer = service_fn(move |request| {
                    let (server, harm) = (Rc::clone(&serving), Rc::clone(&harm));
                    async move { server.answer((replica, harm), request).await }
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
        self.model.change_list(self.name);
        let changed = "notifications/tools/list_changed";
        for replica in &self.replicas {
            let state = replica.state.borrow();
            for stream in state.sessions.values().filter_map(ServedSession::stream) {
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
            let open = state
                .sessions
                .iter()
                .filter_map(|(id, session)| Some((self.model.owner(id)?, session.stream()?.clone())));
            open.collect::<Vec<_>>()
        });
        let mut streams: Vec<(usize, EventSender)> = streams.collect();
        streams.sort_by_key(|(client, _)| *client);
        let (client, stream) = streams.get(choice % streams.len().max(1))?;
        let token = self.model.tell(*client);
        stream.send(message(&token)).ok()?;
        Some((*client, token))
    }

    async fn answer(
        self: Rc<Self>,
        (replica, harm): (usize, Rc<ConnectionHarm>),
        request: Request<Incoming>,
    ) -> std::io::Result<Answer> {
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
            self.lose_sessions(replica);
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
            return Ok(self.initialize(replica, harm, &message));
        }
        if !self.replicas[replica].state.borrow().sessions.contains_key(&session) {
            return Ok(plain(StatusCode::NOT_FOUND, "no such session"));
        }
        Ok(match parts.method.as_str() {
            "GET" => {
                let (sender, stream) = events();
                if let Some(session) = self.replicas[replica].state.borrow_mut().sessions.get_mut(&session) {
                    session.stream = Some(sender);
                }
                stream
            }
            "DELETE" => {
                self.replicas[replica].state.borrow_mut().sessions.remove(&session);
                plain(StatusCode::OK, "")
            }
            _ => self.legacy(replica, &session, &message).await,
        })
    }

    fn initialize(&self, replica: usize, harm: Rc<ConnectionHarm>, message: &Value) -> Answer {
        let mut state = self.replicas[replica].state.borrow_mut();
        let session = format!("{}-{replica}-{}", self.name, self.model.token());
        let params = &message["params"];
        let by = params["clientInfo"]["name"].as_str().unwrap_or_default();
        if let Some(client) = by.strip_prefix(CLIENT_NAME).and_then(|number| number.parse().ok()) {
            self.model.use_session(&session, client);
        }
        let is_for_lists =
            by == "trunkline" && params["capabilities"].as_object().is_some_and(|all| !all.is_empty());
        let opened = ServedSession { stream: None, opened: Instant::now(), is_for_lists, harm };
        state.sessions.insert(session.clone(), opened);
        if !self.replicas[replica].is_listed.get() {
            // The gateway has yet to hear of that.
            self.model.lose_session(&session);
        }
        let result = json!({
            "protocolVersion": LEGACY,
            "capabilities": {"tools": {"listChanged": true}, "logging": {}},
            "serverInfo": {"name": self.name, "version": "1"},
        });
        let mut answer = result_of(message, &result);
        answer.headers_mut().insert("mcp-session-id", session.parse().expect("a header"));
        answer
    }

    async fn legacy(&self, replica: usize, session: &str, message: &Value) -> Answer {
        if message.get("id").is_none() {
            return plain(StatusCode::ACCEPTED, "");
        }
        match message["method"].as_str() {
            Some("tools/list") => self.list_in_session(replica, session, message).await,
            Some("tools/call") => {
                let arguments = &message["params"]["arguments"];
                if let Some(client) =
                    arguments["client"].as_u64().and_then(|client| usize::try_from(client).ok())
                {
                    self.model.use_session(session, client);
                }
                self.call(replica, message).await
            }
            _ => result_of(message, &json!({})),
        }
    }

    /// Sometimes it has forgotten the session just then.
    async fn list_in_session(&self, replica: usize, session: &str, message: &Value) -> Answer {
        let weather = &self.model.weather;
        let may_be_forgotten = {
            let state = self.replicas[replica].state.borrow();
            state.sessions.get(session).is_some_and(|session| session.may_be_forgotten(false))
        };
        if may_be_forgotten && weather.die(3) == 0 {
            self.forget(replica, session);
            return plain(StatusCode::NOT_FOUND, "no such session");
        }
        sleep(Duration::from_millis(weather.die(200) as u64)).await;
        result_of(message, &json!({"tools": self.tools()}))
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
            Some("tools/call") => self.call(replica, message).await,
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
        json!([
            tool("echo"),
            tool("tell"),
            tool(&format!("v{}", self.model.version_at(self.name, Instant::now())))
        ])
    }

    /// `echo` says what it is told, `tell` says so on a stream, after something else.
    async fn call(&self, replica: usize, message: &Value) -> Answer {
        let calls = &self.replicas[replica].calls;
        calls.set(calls.get() + 1);
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
