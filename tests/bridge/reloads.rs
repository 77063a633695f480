//! Calls of legacy clients at a modern server that a reload leaves out, or changes, while they are under way.

use serde_json::Value;

use crate::harness::{
    Config, Connection, Daemon, Gate, LEGACY_VERSION, Received, Reply, Request, Upstream, eventually,
    in_session, legacy, open_session_with, post, tell,
};

const CAPABILITIES: &str = r#"{"elicitation":{"form":{}}}"#;
const DONE: &str = r#"{"resultType":"complete","content":[{"type":"text","text":"done"}]}"#;
const ASKS: &str = r#"{"resultType":"input_required","inputRequests":{"who":{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}}},"requestState":"s"}"#;
const ERAS: &str = "eras = [\"modern\"]";

/// What a reload may do to an upstream so that it is another one.
const CHANGES: [&str; 3] = ["disabled", "another address", "other eras"];

/// With this upstream, and one that stays.
fn config(upstream: &Upstream, host: &str, lines: &str) -> Config {
    let url = format!("url = \"http://{host}:{}/mcp\"", upstream.address.port());
    let other = format!("url = \"http://{}/other\"\n{ERAS}", upstream.address);
    Config::new().raw("up", &format!("{url}\n{lines}")).raw("stays", &other)
}

fn before(upstream: &Upstream) -> Config {
    config(upstream, "127.0.0.1", ERAS)
}

#[track_caller]
fn change(daemon: &Daemon, upstream: &Upstream, what: &str) {
    let changed = match what {
        "disabled" => config(upstream, "127.0.0.1", &format!("{ERAS}\nenabled = false")),
        "another address" => config(upstream, "localhost", ERAS),
        _ => config(upstream, "127.0.0.1", ""),
    };
    let from = daemon.log().len();
    daemon.reload(&changed);
    let line = daemon.wait_for_log(from, "the outcome of a reload", |line| line.contains("reloaded"));
    assert!(!line.contains("not reloaded"), "{line}");
}

fn session(daemon: &Daemon) -> String {
    open_session_with(daemon.address(), LEGACY_VERSION, CAPABILITIES)
}

fn tool_call(arguments: &str) -> Request {
    legacy("7", "tools/call", &format!(r#"{{"name":"up__echo","arguments":{arguments}}}"#))
}

fn begin(daemon: &Daemon, session: &str, arguments: &str) -> Connection {
    let mut connection = daemon.connect();
    connection.write(&in_session(session, tool_call(arguments)).bytes());
    connection
}

/// The next message of a stream; comments are passed over.
#[track_caller]
fn next(connection: &mut Connection) -> Value {
    loop {
        let event = connection.event().expect("an event");
        if let Some(data) = event.trim_end().strip_prefix("data: ") {
            return serde_json::from_str(data).expect("JSON");
        }
        assert!(event.starts_with(':'), "{event}");
    }
}

fn text(message: &Value) -> &str {
    message["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no result: {message}"))
}

/// It answers calls once the gate is open, after progress where they want a stream.
fn slow(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    Upstream::calling(move |request: &Received| {
        if request.json()["params"]["arguments"]["stream"] == true {
            let progress =
                r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"m"}}"#;
            let end = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{DONE}}}"#, request.id());
            return Reply::stream().event(progress).wait(&gate).event(&end).end();
        }
        Reply::raw("").wait(&gate).then(Reply::result(request, DONE))
    })
}

/// It asks once, and then is done.
fn asking() -> Upstream {
    Upstream::calling(|request: &Received| {
        let is_retry = request.json()["params"].get("inputResponses").is_some();
        Reply::result(request, if is_retry { DONE } else { ASKS })
    })
}

#[test]
fn calls_that_are_under_way_are_finished() {
    for what in CHANGES {
        let gate = Gate::default();
        let upstream = slow(&gate);
        let daemon = Daemon::start(&before(&upstream));
        let session = session(&daemon);
        let mut whole = begin(&daemon, &session, "{}");
        let mut stream = begin(&daemon, &session, r#"{"stream":true}"#);
        assert_eq!(stream.head().status, 200);
        assert_eq!(next(&mut stream)["method"], "notifications/message");
        upstream.wait_for("tools/call", 2);
        change(&daemon, &upstream, what);
        gate.open();
        assert_eq!(text(&whole.response().json()), "done", "{what}");
        assert_eq!(text(&next(&mut stream)), "done", "{what}");
        assert!(stream.event().is_none());
    }
}

#[test]
fn their_clients_are_asked_and_answer_as_before() {
    for what in CHANGES {
        let upstream = asking();
        let daemon = Daemon::start(&before(&upstream));
        let session = session(&daemon);
        let mut stream = begin(&daemon, &session, "{}");
        assert_eq!(stream.head().status, 200);
        let asked = next(&mut stream);
        assert_eq!(asked["method"], "elicitation/create", "{asked}");
        change(&daemon, &upstream, what);
        let answer = r#"{"action":"accept","content":{"n":"Ada"}}"#;
        tell(&daemon, &session, &format!(r#"{{"jsonrpc":"2.0","id":{},"result":{answer}}}"#, asked["id"]));
        assert_eq!(text(&next(&mut stream)), "done", "{what}");
        let retry = upstream.received_of("tools/call").pop().expect("a call").json();
        assert_eq!(retry["params"]["inputResponses"]["who"]["content"]["n"], "Ada", "{what}");
    }
}

#[test]
fn their_clients_end_them_as_before() {
    let cancelled = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    for what in CHANGES {
        for ends_session in [true, false] {
            let gate = Gate::default();
            let upstream = slow(&gate);
            let daemon = Daemon::start(&before(&upstream));
            let session = session(&daemon);
            let mut stream = begin(&daemon, &session, r#"{"stream":true}"#);
            assert_eq!(stream.head().status, 200);
            next(&mut stream);
            change(&daemon, &upstream, what);
            if ends_session {
                let ended = daemon.send(&in_session(&session, post("").method("DELETE")));
                assert_eq!(ended.status, 204, "{ended:?}");
            } else {
                tell(&daemon, &session, cancelled);
            }
            let last = next(&mut stream);
            assert_eq!(last["error"]["code"], -32800, "{what}: {last}");
            eventually("the server is left", || {
                (upstream.received_of("tools/call").len() == 1).then_some(())
            });
        }
    }
}

#[test]
fn what_begins_afterwards_is_for_the_server_as_it_is_configured_by_then() {
    let gate = Gate::default();
    let upstream = slow(&gate);
    let daemon = Daemon::start(&before(&upstream));
    let session = session(&daemon);
    let mut early = begin(&daemon, &session, "{}");
    upstream.wait_for("tools/call", 1);
    change(&daemon, &upstream, "another address");
    let mut late = begin(&daemon, &session, "{}");
    upstream.wait_for("tools/call", 2);
    gate.open();
    assert_eq!(text(&early.response().json()), "done");
    assert_eq!(text(&late.response().json()), "done");
    let hosts: Vec<_> =
        upstream.received_of("tools/call").iter().map(|call| call.headers("host").concat()).collect();
    assert!(hosts[0].starts_with("127.0.0.1") && hosts[1].starts_with("localhost"), "{hosts:?}");
}
