//! Whose reply it is: a faulty upstream answers a request twice, the second time after the next request came on the same
//! connection. Nobody gets what is another's, whatever ids the clients chose.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use crate::harness::{
    Config, Connection, Daemon, Gate, LEGACY_VERSION, Legacy, Offer, Received, Reply, Request, Response,
    Upstream, call, in_session, legacy, literal, open_session, result_body,
};

const ROUNDS: usize = 60;
/// Faults say nothing here.
const LENIENT: &str = "breaker.failures_max = 0";
const MISMATCHED: &str = r#"trunkline_upstream_replies_mismatched_total{upstream="up"}"#;

/// How an answer comes.
#[derive(Clone, Copy, Debug)]
enum As {
    /// In one piece, the id first.
    Json,
    /// In chunks, the id last.
    IdLast,
    /// As an event.
    Event,
    /// A JSON-RPC error with this status.
    Failure(&'static str),
}

const ALL: [As; 5] = [
    As::Json,
    As::IdLast,
    As::Event,
    As::Failure("400 Bad Request"),
    As::Failure("500 Internal Server Error"),
];

impl As {
    fn reply(self, request: &Received, text: &str) -> Reply {
        let result = format!(r#"{{"content":[{{"type":"text","text":{text}}}],"resultType":"complete"}}"#);
        match self {
            Self::Json => Reply::result(request, &result),
            Self::IdLast => {
                let head =
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
                let body = format!(r#"{{"result":{result},"jsonrpc":"2.0","id":{}}}"#, request.id());
                let pieces = body.as_bytes().chunks(24).map(|piece| std::str::from_utf8(piece).unwrap());
                pieces.fold(Reply::raw(head), Reply::chunk).end()
            }
            Self::Event => Reply::stream().event(&result_body(request, &result)).end(),
            Self::Failure(status) => Reply::error(request, status, -32000, text.trim_matches('"')),
        }
    }
}

/// A server whose calls are answered with the name they were made with, and which answers the first call of every
/// connection once more as soon as the next one came.
fn stuttering(how: As, otherwise: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Upstream {
    let said: Mutex<HashMap<usize, Reply>> = Mutex::default();
    Upstream::start(move |request| {
        if request.method() != "tools/call" {
            return otherwise(request);
        }
        let reply = how.reply(request, &literal(&request.body, &["params", "arguments", "who"]));
        let before = said.lock().unwrap().insert(request.connection, reply.clone());
        match before {
            Some(before) => before.then(reply),
            None => reply,
        }
    })
}

fn who(request: Request, who: &str) -> Request {
    request.replacing(r#""arguments":{}"#, &format!(r#""arguments":{{"who":"{who}"}}"#))
}

fn one_worker(config: Config) -> Daemon {
    Daemon::start(&config.top("workers = 1").admin())
}

/// The one JSON-RPC message of a response, event or not.
fn message(response: &Response) -> String {
    let text = response.text();
    let events = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
    let last = events.rev().find(|data| !data.is_empty()).map(str::to_owned);
    last.unwrap_or(text)
}

/// Calls as Ann and Bob in turns with the same id. Whoever is not answered is told so with its own id.
fn assert_kept_apart(daemon: &Daemon, upstream: &Upstream, ask: impl Fn(&str) -> Request, id: &str) {
    let (mut refused, mut answered) = (0, 0);
    for round in 0..ROUNDS {
        let (own, other) = if round % 2 == 0 { ("Ann", "Bob") } else { ("Bob", "Ann") };
        let response = daemon.send(&ask(own));
        let text = response.text();
        assert!(!text.contains(other), "{own} got {text}");
        let message = message(&response);
        assert_eq!(literal(message.as_bytes(), &["id"]), id, "{text}");
        if text.contains(own) {
            answered += 1;
        } else {
            assert_eq!(literal(message.as_bytes(), &["error", "code"]), "502", "{text}");
            refused += 1;
        }
    }
    assert_eq!((answered, refused), (ROUNDS / 2, ROUNDS / 2), "every other connection is out of step");
    let calls = upstream.received_of("tools/call");
    let ids: BTreeSet<String> = calls.iter().map(Received::id).collect();
    assert_eq!((calls.len(), ids.len()), (ROUNDS, ROUNDS), "no id is used twice");
    for out_of_step in calls.chunks(2) {
        assert_eq!(out_of_step[0].connection, out_of_step[1].connection);
        upstream.wait_closed(out_of_step[0].connection);
    }
    daemon.wait_metric(MISMATCHED, ROUNDS as u64 / 2);
}

#[test]
fn on_prefixed_endpoints() {
    for how in ALL {
        println!("{how:?}");
        let offer = Offer::tools(&["echo"]);
        let upstream = stuttering(how, move |request| offer.answer(request));
        let other = Upstream::with_tools(&["forecast"]);
        let config = Config::new().upstream("up", upstream.address, LENIENT);
        let daemon = one_worker(config.upstream("weather", other.address, ""));
        assert_kept_apart(&daemon, &upstream, |name| who(call("1", "up__echo"), name), "1");
    }
}

#[test]
fn on_transparent_endpoints_with_unique_ids() {
    for how in ALL {
        println!("{how:?}");
        let offer = Offer::tools(&["echo"]);
        let upstream = stuttering(how, move |request| offer.answer(request));
        let lines = format!("unique_ids = true\n{LENIENT}");
        let daemon = one_worker(Config::new().upstream("up", upstream.address, &lines));
        assert_kept_apart(&daemon, &upstream, |name| who(call("\"a/1\"", "echo"), name), "\"a/1\"");
    }
}

#[test]
fn in_sessions() {
    for (names, prefix) in [(&["up"][..], ""), (&["up", "weather"], "up__")] {
        for how in ALL {
            println!("{how:?} of {names:?}");
            let server = Legacy::new(Offer::tools(&["echo"]).with_prompts(&["greet"]));
            let upstream = stuttering(how, move |request| server.answer(request));
            let lines = format!("eras = [\"legacy\"]\n{LENIENT}");
            let config = names
                .iter()
                .fold(Config::new(), |config, name| config.upstream(name, upstream.address, &lines));
            let daemon = one_worker(config);
            let sessions =
                ["Ann", "Bob"].map(|name| (name, open_session(daemon.address(), LEGACY_VERSION).0));
            let ask = |name: &str| {
                let (_, session) = sessions.iter().find(|(own, _)| *own == name).expect("a session");
                let params = format!(r#"{{"name":"{prefix}echo","arguments":{{}}}}"#);
                who(in_session(session, legacy("1", "tools/call", &params)), name)
            };
            // With its sessions open, nothing comes between two calls of a connection.
            for (_, session) in &sessions {
                let params = format!(r#"{{"name":"{prefix}greet"}}"#);
                daemon.send(&in_session(session, legacy("0", "prompts/get", &params))).assert_ok();
            }
            assert_kept_apart(&daemon, &upstream, ask, "1");
        }
    }
}

/// Without the key the bytes of a request are its client's, on whose id nothing depends.
#[test]
fn transparent_endpoints_leave_ids_as_they_are() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    daemon.send(&call("\"a/1\"", "echo")).assert_ok();
    assert_eq!(upstream.only_call().id(), "\"a/1\"");
}

/// Every client sees the id that it chose, spelled as it spelled it.
#[test]
fn clients_see_their_own_ids() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, "unique_ids = true"));
    let long = format!("\"{}\"", "x".repeat(1000));
    for id in ["0", "-7", "9007199254740993", "\"\"", "\"1\"", r#""\u00e9\"\\""#, "\"é \u{1f980}\"", &long] {
        let response = daemon.send(&call(id, "echo"));
        response.assert_ok();
        assert_eq!(literal(&response.body, &["id"]), id);
        let sent = upstream.received_of("tools/call").pop().expect("a call").id();
        assert!(sent != id && sent.is_ascii(), "{sent}");
    }
}

/// What a tool says of the id that it was called with is content like any other.
#[test]
fn only_the_id_itself_is_put_back() {
    let upstream = Upstream::calling(|request| {
        let id = request.id();
        let body = format!(
            r#"{{"result":{{"content":[],"structuredContent":{{"id":{id}}},"resultType":"complete"}},"id":{id},"jsonrpc":"2.0"}}"#
        );
        Reply::json("200 OK", &body)
    });
    let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, "unique_ids = true"));
    let response = daemon.send(&call("7", "echo"));
    assert_eq!(literal(&response.body, &["id"]), "7");
    let said = literal(&response.body, &["result", "structuredContent", "id"]);
    assert_eq!(said, upstream.only_call().id());
}

/// Clients that take the second of two ids would take the reply for that to another call of theirs.
#[test]
fn a_reply_with_two_ids_answers_nothing() {
    for second in ["\"id\":7", "\"\\u0069d\":7", "\"ID\":7"] {
        let upstream = Upstream::calling(move |request| {
            let id = request.id();
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}},{second}}}"#);
            Reply::json("200 OK", &body)
        });
        let weather = Upstream::with_tools(&["forecast"]);
        let daemon = Daemon::start(&Config::prefixed(&upstream, &weather));
        daemon.send(&call("41", "files__echo")).assert_error(502, 502, Some("41"));
    }
}

/// A reply that is a stream is told apart before its answer, whatever else is on it.
#[test]
fn notifications_pass_and_answers_to_others_do_not() {
    const NOTE: &str =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;
    let upstream = Upstream::calling(|request| {
        let other = r#"{"jsonrpc":"2.0","id":1,"result":{"content":"stolen"}}"#;
        match &*literal(&request.body, &["params", "arguments", "who"]) {
            "\"Ann\"" => Reply::stream().event(NOTE).event(&result_body(request, "{}")).event(other).end(),
            _ => Reply::stream().event(NOTE).event(other).event(&result_body(request, "{}")).end(),
        }
    });
    let weather = Upstream::with_tools(&["forecast"]);
    for config in [
        Config::prefixed(&upstream, &weather),
        Config::new().upstream("files", upstream.address, "unique_ids = true"),
    ] {
        let is_prefixed = config.to_string().contains("weather");
        let daemon = Daemon::start(&config);
        let tool = if is_prefixed { "files__echo" } else { "echo" };
        let ann = daemon.send(&who(call("1", tool), "Ann")).text();
        assert!(ann.contains("progressToken") && ann.contains(r#""id":1,"result":{}"#), "{ann}");
        assert!(!ann.contains("stolen"), "{ann}");
        let bob = daemon.send(&who(call("1", tool), "Bob")).text();
        assert!(bob.contains("progressToken") && bob.contains(r#""code":502"#), "{bob}");
        assert!(!bob.contains("stolen") && !bob.contains(r#""result""#), "{bob}");
    }
}

/// A cancellation names the request as its upstream knows it, on whatever connection it comes.
#[test]
fn a_cancellation_names_the_upstreams_id() {
    let held = Gate::default();
    let (gate, server) = (held.clone(), Legacy::new(Offer::tools(&["echo"])));
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::default().wait(&gate).then(Reply::result(request, "{}")),
        _ => server.answer(request),
    });
    let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, "eras = [\"legacy\"]"));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let params = r#"{"name":"echo","arguments":{},"_meta":{"progressToken":7}}"#;
    let mut connection = Connection::open(daemon.address());
    connection.write(&in_session(&session, legacy("7", "tools/call", params)).bytes());
    let called = upstream.wait_for("tools/call", 1);
    assert_eq!(literal(&called.body, &["params", "_meta", "progressToken"]), "7", "that is the client's");
    let note =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"enough"}}"#;
    let told = daemon.send(&in_session(&session, crate::harness::post(note)));
    assert_eq!(told.status, 202);
    let cancelled = upstream.wait_for("notifications/cancelled", 1);
    assert_eq!(literal(&cancelled.body, &["params", "requestId"]), called.id());
    assert_ne!(called.id(), "7");
    held.open();
    assert_eq!(literal(&connection.response().body, &["id"]), "7");
}

/// A client that comes back for the rest of a reply gets its own answer, by its own id, and nobody else's.
#[test]
fn the_rest_of_a_reply_is_its_own() {
    let asked: Arc<Mutex<Vec<Received>>> = Arc::default();
    let (calls, server) = (Arc::clone(&asked), Legacy::new(Offer::tools(&["echo"])));
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => {
            let mut calls = calls.lock().unwrap();
            calls.push(request.clone());
            Reply::stream().chunk(&format!("id: {}\nretry: 10\ndata: \n\n", calls.len())).end()
        }
        // It mixes up its streams: the answers to all calls are on each of them.
        "GET" if !request.headers("last-event-id").is_empty() => {
            let calls = calls.lock().unwrap();
            let answers = calls.iter().map(|call| {
                let who = literal(&call.body, &["params", "arguments", "who"]);
                result_body(call, &format!(r#"{{"content":[{{"type":"text","text":{who}}}]}}"#))
            });
            answers.fold(Reply::stream(), |stream, answer| stream.event(&answer)).end()
        }
        _ => server.answer(request),
    });
    let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, "eras = [\"legacy\"]"));
    let sessions = ["Ann", "Bob"].map(|name| (name, open_session(daemon.address(), LEGACY_VERSION).0));
    let mut positions = Vec::new();
    for (name, session) in &sessions {
        let request = legacy("\"é\"", "tools/call", r#"{"name":"echo","arguments":{}}"#);
        let began = daemon.send(&who(in_session(session, request), name)).text();
        let id = began.lines().find_map(|line| line.strip_prefix("id: ")).expect("an event id");
        positions.push(id.to_owned());
    }
    for ((name, session), position) in sessions.iter().zip(&positions) {
        let get = in_session(session, crate::harness::post("").method("GET")).with("Last-Event-ID", position);
        let rest = daemon.send(&get.set("Accept", "text/event-stream")).text();
        let other = if *name == "Ann" { "Bob" } else { "Ann" };
        assert!(rest.contains(name) && !rest.contains(other), "{name} got {rest}");
        assert!(rest.contains("\"id\":\"é\""), "{rest}");
    }
}

/// Bytes that come before any request belong to nobody: the connection that they came on is not used.
#[test]
fn what_was_not_asked_for_is_noticed_before_the_next_request() {
    let offer = Offer::tools(&["echo"]);
    let upstream = Upstream::start(move |request| {
        let reply = offer.answer(request);
        reply.clone().then(reply)
    });
    let daemon = one_worker(Config::transparent(&upstream));
    for id in ["1", "2", "3"] {
        let response = daemon.send(&call(id, "echo"));
        response.assert_ok();
        assert_eq!(literal(&response.body, &["id"]), id);
        let used = upstream.received_of("tools/call").pop().expect("a call").connection;
        upstream.wait_closed(used);
    }
}
