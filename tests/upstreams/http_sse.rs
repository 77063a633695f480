//! The HTTP+SSE transport of 2024-11-05, towards upstreams: how it is found, and what its streams carry.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::harness::{
    Config, Daemon, Folder, LEGACY_VERSION, Legacy, Offer, Received, Reply, Upstream, call, eventually,
    in_session, legacy, legacy_call, open_session, open_session_with, result_body,
};

/// A server that speaks HTTP+SSE alone: its streams by their number, and how it goes wrong.
#[derive(Clone)]
pub(crate) struct Server {
    streams: Arc<Mutex<HashMap<usize, Sender<Vec<u8>>>>>,
    offer: Legacy,
    fault: Failing,
    said: Arc<Saying>,
}

/// The message that it says before it answers a request, if any.
type Saying = dyn Fn(&Received) -> Option<String> + Send + Sync;

/// What goes wrong with a request.
type Failing = Arc<dyn Fn(&Received) -> Option<Fault> + Send + Sync>;

/// What it does instead of what it should.
enum Fault {
    /// It answers this over HTTP.
    Reply(Reply),
    /// It accepts the message and puts this on the stream.
    Say(String),
}

impl Server {
    pub(crate) fn new() -> Self {
        Self::failing(|_| None)
    }

    /// The same, but for the messages that this answers.
    pub(crate) fn replying(reply: impl Fn(&Received) -> Option<Reply> + Send + Sync + 'static) -> Self {
        Self::failing(move |request| reply(request).map(Fault::Reply))
    }

    /// The same; before it answers what this fits, it says this on the stream.
    pub(crate) fn saying(said: impl Fn(&Received) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { said: Arc::new(said), ..Self::new() }
    }

    fn failing(fault: impl Fn(&Received) -> Option<Fault> + Send + Sync + 'static) -> Self {
        let offer = Legacy::new(Offer::tools(&["echo"]));
        Self { streams: Arc::default(), offer, fault: Arc::new(fault), said: Arc::new(|_| None) }
    }

    pub(crate) fn start(&self) -> Upstream {
        let server = self.clone();
        Upstream::start(move |request| server.answer(request))
    }

    /// The same for clients that may send bodies that are no messages: it accepts them and says nothing.
    pub(crate) fn start_taking_anything(&self) -> Upstream {
        let server = self.clone();
        Upstream::taking_anything(move |request| server.answer(request))
    }

    /// Puts bytes on a stream; a stream that ended takes none.
    fn write(&self, stream: usize, bytes: &str) {
        if let Some(stream) = self.streams.lock().unwrap().get(&stream) {
            let _ = stream.send(format!("{:x}\r\n{bytes}\r\n", bytes.len()).into_bytes());
        }
    }

    fn say(&self, stream: usize, message: &str) {
        self.write(stream, &format!("event: message\r\ndata: {message}\r\n\r\n"));
    }

    /// Ends every stream.
    pub(crate) fn cut(&self) {
        self.streams.lock().unwrap().clear();
    }

    fn answer(&self, request: &Received) -> Reply {
        if let Some(Fault::Reply(reply)) = (self.fault)(request) {
            return reply;
        }
        let target = request.head.split(' ').nth(1).expect("a target").to_owned();
        if request.http_method() == "GET" {
            assert_eq!(target, "/mcp");
            let mut streams = self.streams.lock().unwrap();
            let (sender, bytes) = channel();
            streams.insert(request.connection, sender);
            let endpoint =
                format!("event: endpoint\r\ndata: /messages/?session_id={}\r\n\r\n", request.connection);
            return Reply::stream().chunk(&endpoint).pipe(bytes).reset();
        }
        let Some(stream) = target.strip_prefix("/messages/?session_id=") else {
            return Reply::http("405 Method Not Allowed", "Allow: GET\r\n", "");
        };
        let stream = stream.parse().expect("a number");
        if !self.streams.lock().unwrap().contains_key(&stream) {
            return Reply::http("404 Not Found", "", "");
        }
        match (self.fault)(request) {
            Some(Fault::Say(bytes)) => self.write(stream, &bytes),
            _ => self.reply_on(stream, request),
        }
        Reply::http("202 Accepted", "", "Accepted")
    }

    fn reply_on(&self, stream: usize, request: &Received) {
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if message.get("id").is_none() || message.get("method").is_none() {
            return;
        }
        if let Some(said) = (self.said)(request) {
            self.say(stream, &said);
        }
        let method = request.method();
        let result = match method.as_str() {
            "initialize" => json!({
                "protocolVersion": request.json()["params"]["protocolVersion"],
                "capabilities": {"tools": {}, "logging": {}},
                "serverInfo": {"name": "old", "version": "1"},
            })
            .to_string(),
            _ => self.offer.result(request, &method).unwrap_or_else(|| "{}".into()),
        };
        self.say(stream, &result_body(request, &result));
    }
}

fn configured(upstream: &Upstream) -> Config {
    Config::new().upstream("up", upstream.address, "transport = \"sse\"\neras = [\"legacy\"]")
}

fn called(daemon: &Daemon, session: &str, id: &str) -> Value {
    daemon.send(&in_session(session, legacy_call(id, "echo"))).json()
}

/// The streams on which calls were made, in order.
fn streams_of_calls(upstream: &Upstream) -> Vec<String> {
    let target = |call: &Received| call.head.split(' ').nth(1).unwrap_or_default().to_owned();
    upstream.received_of("tools/call").iter().map(target).collect()
}

#[test]
fn sessions_have_streams_of_their_own() {
    let server = Server::new();
    let upstream = server.start();
    let daemon = Daemon::start(&configured(&upstream));
    let (one, result) = open_session(daemon.address(), LEGACY_VERSION);
    assert_eq!(result["capabilities"]["logging"], json!({}));
    let (other, _) = open_session(daemon.address(), "2024-11-05");
    for (session, id) in [(&one, "1"), (&other, "1"), (&one, "\"x\"")] {
        let answer = called(&daemon, session, id);
        assert_eq!(answer["id"].to_string(), id);
        assert!(answer["result"].is_object(), "{answer}");
    }
    let streams = streams_of_calls(&upstream);
    assert!(streams[0] == streams[2] && streams[0] != streams[1], "{streams:?}");
    for call in upstream.received_of("tools/call") {
        assert_eq!(call.headers("content-type"), ["application/json"]);
        assert!(call.headers("mcp-session-id").is_empty(), "{call:?}");
    }
    let list = daemon.send(&in_session(&one, legacy("2", "tools/list", "{}"))).json();
    assert_eq!(list["result"]["tools"][0]["name"], "echo");
    // Nothing of the other transport is tried.
    let posts = upstream.received();
    assert!(posts.iter().all(|request| !request.head.starts_with("POST /mcp ")), "{posts:?}");
}

#[test]
fn a_session_that_ends_closes_its_stream() {
    let server = Server::new();
    let upstream = server.start();
    let daemon = Daemon::start(&configured(&upstream));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    called(&daemon, &session, "1");
    let stream =
        streams_of_calls(&upstream)[0].rsplit('=').next().expect("a number").parse().expect("a number");
    assert!(!upstream.is_closed(stream));
    let deleted = daemon.send(&in_session(&session, legacy("0", "ping", "{}")).method("DELETE").body(""));
    assert_eq!(deleted.status, 204);
    upstream.wait_closed(stream);
}

#[test]
fn a_stream_that_ended_is_opened_again() {
    let server = Server::new();
    let upstream = server.start();
    let daemon = Daemon::start(&configured(&upstream));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    called(&daemon, &session, "1");
    server.cut();
    eventually("calls are answered again", || called(&daemon, &session, "2").get("result").map(|_| ()));
    let streams = streams_of_calls(&upstream);
    assert_ne!(streams.first(), streams.last());
}

#[test]
fn a_call_fails_when_its_stream_ends() {
    let server = Server::new();
    let cutting = server.clone();
    let failing = Server {
        fault: Arc::new(move |request| {
            if request.method() == "tools/call" {
                cutting.cut();
            }
            None
        }),
        ..server.clone()
    };
    let upstream = failing.start();
    let daemon = Daemon::start(&configured(&upstream));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_error(200, 502, Some("1"));
    daemon.send(&in_session(&session, legacy("2", "ping", "{}"))).assert_ok();
}

#[test]
fn a_message_that_is_refused_fails_alone() {
    let server = Server::failing(|request| {
        let refused = |status| Some(Fault::Reply(Reply::http(status, "", "no")));
        match request.json_id().as_str() {
            "1" => None,
            _ if request.method() != "tools/call" => None,
            _ if request.is_named("bad") => refused("400 Bad Request"),
            _ if request.is_named("busy") => refused("503 Service Unavailable"),
            _ if request.is_named("late") => Some(Fault::Say(": nothing\n\n".into())),
            _ => None,
        }
    });
    let upstream = server.start();
    let daemon = Daemon::start(&Config::new().upstream(
        "up",
        upstream.address,
        "transport = \"sse\"\neras = [\"legacy\"]\nresponse_timeout = \"1s\"",
    ));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    for (tool, code) in [("bad", 502), ("busy", 503), ("late", 504)] {
        let answer = daemon.send(&in_session(&session, legacy_call("7", tool))).json();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(code)), "{tool}: {answer}");
        assert!(called(&daemon, &session, "8")["result"].is_object());
    }
    let streams = streams_of_calls(&upstream);
    assert!(streams.iter().all(|stream| *stream == streams[0]), "one session throughout: {streams:?}");
}

#[test]
fn an_answer_that_is_too_large_fails_its_call_alone() {
    let server = Server::failing(|request| {
        if request.method() != "tools/call" || request.is_named("echo") {
            return None;
        }
        if request.is_named("late") {
            return Some(Fault::Say(": later\n\n".into()));
        }
        let result = format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "x".repeat(100_000));
        let answer = result_body(request, &result);
        // The id may come first or last, and the data in any number of lines.
        let answer = if request.is_named("last") {
            format!(r#"{{"jsonrpc":"2.0","result":{result},"id":{}}}"#, request.json_id())
        } else {
            answer.replace(r#","text":"#, "\ndata: ,\ndata: \"text\":")
        };
        Some(Fault::Say(format!("event: message\r\ndata: {answer}\n\n")))
    });
    let upstream = server.start();
    let daemon = Daemon::start(&configured(&upstream).limits("reply_bytes_max = \"64KiB\"\n"));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let late = daemon.begin(&in_session(&session, legacy_call("1", "late")));
    upstream.wait_for("tools/call", 1);
    for tool in ["first", "last", "first"] {
        let before = daemon.log().len();
        let answer = daemon.send(&in_session(&session, legacy_call("7", tool))).json();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(502)), "{tool}: {answer}");
        let said = answer["error"]["message"].as_str().expect("a message");
        assert!(said.contains("reply_bytes_max (65536)") && said.contains(" 100"), "{said}");
        daemon.wait_for_log(before, "it is logged", |line| {
            line.contains("larger than reply_bytes_max") && line.contains("65536")
        });
        assert!(called(&daemon, &session, "8")["result"].is_object(), "{tool}");
    }
    let calls = upstream.received_of("tools/call");
    let stream = calls[0].head.rsplit_once("session_id=").expect("a stream").1;
    let stream = stream.split(' ').next().and_then(|number| number.parse().ok()).expect("a number");
    server.say(stream, &result_body(&calls[0], "{}"));
    let mut late = late;
    late.response().assert_ok();
    let streams = streams_of_calls(&upstream);
    assert!(streams.iter().all(|other| *other == streams[0]), "one session throughout: {streams:?}");
}

#[test]
fn what_is_no_message_harms_nobody() {
    let server = Server::failing(|request| {
        (request.method() == "tools/call" && request.is_named("noisy")).then(|| {
            let answer = result_body(request, "{}");
            Fault::Say(format!(
                "event: endpoint\ndata: http://evil.example/\n\nevent: ping\ndata: x\n\ndata: {{\n\ndata:\n\n:\n\ndata: {answer}\n\n"
            ))
        })
    });
    let upstream = server.start();
    let daemon = Daemon::start(&configured(&upstream));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let answer = daemon.send(&in_session(&session, legacy_call("1", "noisy"))).json();
    assert_eq!(answer, json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    assert!(called(&daemon, &session, "2")["result"].is_object());
}

#[test]
fn progress_comes_before_the_answer() {
    let server = Server::failing(|request| {
        (request.method() == "tools/call").then(|| {
            let token = request.json()["params"]["_meta"]["progressToken"].clone();
            let progress = json!({
                "jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}
            });
            Fault::Say(format!("data: {progress}\n\ndata: {}\n\n", result_body(request, "{}")))
        })
    });
    let upstream = server.start();
    let daemon = Daemon::start(&configured(&upstream));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let params = r#"{"name":"echo","_meta":{"progressToken":"mine"}}"#;
    let response = daemon.send(&in_session(&session, legacy("1", "tools/call", params)));
    let text = response.text();
    let progress = text.find(r#""progressToken":"mine""#).expect("the progress");
    assert!(progress < text.find(r#""id":1"#).expect("the answer"), "{text}");
}

/// A server that asks for the client's roots when it gets a request of this method.
fn asking(method: &'static str) -> Server {
    Server::failing(move |request| {
        (request.method() == method).then(|| {
            let question = r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#;
            Fault::Say(format!("data: {question}\n\n"))
        })
    })
}

#[test]
fn a_question_and_its_answer_cross() {
    let server = asking("tools/call");
    let upstream = server.start();
    let daemon = Daemon::start(&configured(&upstream));
    let session = open_session_with(daemon.address(), LEGACY_VERSION, r#"{"roots":{}}"#);
    let mut calling = daemon.connect();
    calling.write(&in_session(&session, legacy_call("1", "echo")).bytes());
    assert_eq!(calling.head().status, 200);
    let event = calling.event().expect("the question");
    let question = event.lines().find_map(|line| line.strip_prefix("data: ")).expect("data");
    let question: Value = serde_json::from_str(question).expect("JSON");
    assert_eq!(question["method"], "roots/list");
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}}).to_string();
    assert_eq!(daemon.send(&in_session(&session, crate::harness::post(answer))).status, 202);
    let call = upstream.only_call();
    let stream = call.head.split(' ').nth(1).and_then(|target| target.rsplit('=').next()).expect("a number");
    let (posted, target) = eventually("the answer arrives", || {
        let posted = upstream.received().into_iter().find(|posted| {
            !posted.body.is_empty() && posted.json()["id"] == "q" && posted.json()["result"].is_object()
        })?;
        let target = posted.head.split(' ').nth(1).unwrap_or_default().to_owned();
        Some((posted, target))
    });
    assert_eq!(posted.json()["result"], json!({"roots": []}));
    assert_eq!(target, format!("/messages/?session_id={stream}"));
    server.say(stream.parse().expect("a number"), &result_body(&call, "{}"));
    let event = calling.event().expect("the result");
    assert!(event.contains(r#""id":1"#), "{event}");
}

#[test]
fn what_the_gateway_asks_swallows_no_question() {
    let server = asking("logging/setLevel");
    let upstream = server.start();
    let daemon = Daemon::start(&configured(&upstream));
    let session = open_session_with(daemon.address(), LEGACY_VERSION, r#"{"roots":{}}"#);
    assert_eq!(daemon.send(&in_session(&session, legacy_call("1", "echo"))).status, 200);
    let get = legacy("1", "x", "{}").method("GET").body("").set("Accept", "text/event-stream");
    let mut listening = daemon.connect();
    listening.write(&in_session(&session, get).bytes());
    assert_eq!(listening.head().status, 200);
    let mut telling = daemon.connect();
    telling.write(&in_session(&session, legacy("2", "logging/setLevel", r#"{"level":"info"}"#)).bytes());
    loop {
        let event = listening.event().expect("the question");
        if event.contains("roots/list") {
            break;
        }
    }
}

#[test]
fn an_address_elsewhere_or_none_opens_nothing() {
    let stranger = Upstream::start(|request| Reply::result(request, "{}"));
    let elsewhere = format!("http://{}/mcp", stranger.address);
    for stream in [
        format!("event: endpoint\ndata: {elsewhere}\n\n"),
        "event: endpoint\ndata: //evil.example/\n\n".into(),
        "event: endpoint\ndata: \u{7}\n\n".into(),
        format!("event: endpoint\ndata: /{}\n\n", "x".repeat(5000)),
        "data: {}\n\n".into(),
        String::new(),
    ] {
        let server = Server::failing(move |request| {
            let ending = Reply::stream().chunk(&format!(": x\n\n{stream}")).end();
            (request.http_method() == "GET").then(|| Fault::Reply(ending))
        });
        let upstream = server.start();
        let daemon = Daemon::start(&configured(&upstream));
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        let answer = called(&daemon, &session, "1");
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(502)), "{answer}");
        assert!(upstream.received_of("tools/call").is_empty());
    }
    assert_eq!(stranger.received().len(), 0);
}

#[test]
fn an_address_that_does_not_come_is_waited_for_within_bounds() {
    let server = Server::failing(|request| {
        let silent = Reply::stream().chunk(": wait\n\n").wait(&crate::harness::Gate::default());
        (request.http_method() == "GET").then_some(Fault::Reply(silent))
    });
    let upstream = server.start();
    let config = "transport = \"sse\"\neras = [\"legacy\"]\nresponse_timeout = \"300ms\"";
    let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, config));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let answer = called(&daemon, &session, "1");
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(504)), "{answer}");
    let stream = upstream.wait_for("GET", 1);
    upstream.wait_closed(stream.connection);
}

#[test]
fn it_is_found_out_and_remembered() {
    let server = Server::new();
    let upstream = server.start();
    let folder = Folder::new();
    let state = format!("state_directory = {:?}", folder.path());
    let config = Config::new().top(&state).probed("up", upstream.address, "");
    let daemon = Daemon::start(&config);
    let session = eventually("the upstream is known", || {
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        called(&daemon, &session, "1").get("result").map(|_| session)
    });
    assert!(called(&daemon, &session, "2")["result"].is_object());
    let memory = folder.path().join("upstreams.json");
    eventually("it is kept", || {
        std::fs::read_to_string(&memory).ok()?.contains(r#""sse":true"#).then_some(())
    });
    daemon.terminate();
    drop(daemon);
    let before = upstream.received().len();
    let daemon = Daemon::start(&config);
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    assert!(called(&daemon, &session, "3")["result"].is_object());
    let since: Vec<_> = upstream.received().into_iter().skip(before).collect();
    assert!(since.iter().all(|request| !request.head.starts_with("POST /mcp ")), "{since:?}");
}

#[test]
fn a_server_that_merely_refuses_is_not_taken_for_one() {
    let upstream = Upstream::start(|_| Reply::http("405 Method Not Allowed", "Allow: PUT\r\n", ""));
    let daemon = Daemon::start(&Config::new().probed("up", upstream.address, ""));
    upstream.wait_for("GET", 1);
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let answer = called(&daemon, &session, "1");
    assert!(answer["error"].is_object(), "{answer}");
}

/// What it speaks is not known before it has answered: a modern client is told that it cannot be reached.
#[test]
fn a_server_that_is_down_at_the_start_is_not_told_to_speak_another_revision() {
    let is_up = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_up);
    let server = Server::failing(move |_| {
        (!flag.load(Ordering::Relaxed)).then(|| Fault::Reply(Reply::default().reset()))
    });
    let upstream = server.start();
    let daemon = Daemon::start(&Config::new().probed("up", upstream.address, "transport = \"sse\""));
    upstream.wait_for("GET", 1);
    let error = daemon.send(&call("1", "echo")).assert_error(502, 502, Some("1"));
    assert!(error.to_string().contains("cannot be reached"), "{error}");
    is_up.store(true, Ordering::Relaxed);
    eventually("it is called", || (daemon.send(&call("2", "echo")).status == 200).then_some(()));
}

#[test]
fn a_server_that_learned_the_new_transport_is_asked_anew() {
    let server = Server::new();
    let newer = Legacy::new(Offer::tools(&["echo"]));
    let is_newer = Arc::new(Mutex::new(false));
    let (old, new, flag) = (server.clone(), newer.clone(), Arc::clone(&is_newer));
    let upstream =
        Upstream::start(
            move |request| if *flag.lock().unwrap() { new.answer(request) } else { old.answer(request) },
        );
    let daemon = Daemon::start(&Config::new().probed("up", upstream.address, ""));
    let session = eventually("the upstream is known", || {
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        called(&daemon, &session, "1").get("result").map(|_| session)
    });
    *is_newer.lock().unwrap() = true;
    server.cut();
    eventually("it is spoken to as what it is now", || {
        called(&daemon, &session, "2").get("result").map(|_| ())
    });
    assert!(newer.sessions_opened() > 0);
}

impl Received {
    fn json_id(&self) -> String {
        if self.body.is_empty() { String::new() } else { self.json()["id"].to_string() }
    }

    fn is_named(&self, tool: &str) -> bool {
        self.json()["params"]["name"] == tool
    }
}
