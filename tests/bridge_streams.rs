//! Bridged calls whose server only says that it is there, ends its streams, forgets a session, or fails.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::harness::{
    Config, Connection, Daemon, Gate, Legacy, Offer, Received, Reply, Request, Upstream, call, literal,
    result_body,
};

const LEGACY: &str = "eras = [\"legacy\"]\n";
const NOBODY: &str = "{}";
const EVERYTHING: &str = r#"{"sampling":{},"elicitation":{},"roots":{}}"#;
const DONE: &str = r#"{"content":[{"type":"text","text":"done"}]}"#;

/// A legacy server that answers this method so, as often as it answers it at all, and all else without mistakes.
fn over(
    server: &Legacy,
    method: &'static str,
    answer: impl Fn(&Received) -> Option<Reply> + Send + Sync + 'static,
) -> Upstream {
    let well = server.clone();
    Upstream::start(move |request| match request.method() {
        found if found == method => answer(request).unwrap_or_else(|| well.answer(request)),
        _ => well.answer(request),
    })
}

fn tools() -> Legacy {
    Legacy::new(Offer::tools(&["echo"]))
}

fn daemon(upstream: &Upstream, lines: &str) -> Daemon {
    Daemon::start(&Config::new().admin().upstream("up", upstream.address, &format!("{LEGACY}{lines}")))
}

/// A call of a client that can do this.
fn call_as(id: &str, capabilities: &str) -> Request {
    let declared = format!(r#""io.modelcontextprotocol/clientCapabilities":{capabilities}"#);
    call(id, "echo").replacing(r#""io.modelcontextprotocol/clientCapabilities":{}"#, &declared)
}

fn post(daemon: &Daemon, request: &Request) -> Connection {
    let mut connection = daemon.connect();
    connection.write(&request.bytes());
    connection
}

/// The last message of a stream.
#[track_caller]
fn last(connection: &mut Connection) -> Value {
    let head = connection.head();
    assert_eq!(head.header("content-type"), Some("text/event-stream"), "{head:?}");
    let mut last = None;
    while let Some(event) = connection.event() {
        last = event.strip_prefix("data: ").map(str::to_owned).or(last);
    }
    serde_json::from_str(last.expect("a message").trim_end()).expect("JSON")
}

#[test]
fn a_server_that_only_says_that_it_is_there_is_waited_for() {
    // A comment in every tenth of a second, for more than three.
    let comments = "3\r\n:\n\n\r\n".repeat(40);
    let upstream = over(&tools(), "tools/call", move |request| {
        let alive = Reply::stream().then(Reply::drip(comments.clone(), Duration::from_millis(10)));
        Some(alive.event(&result_body(request, DONE)).end())
    });
    let daemon = daemon(&upstream, "stream_idle_timeout = \"700ms\"\n");
    for capabilities in [NOBODY, EVERYTHING] {
        let answer = last(&mut post(&daemon, &call_as("1", capabilities)));
        assert_eq!(answer["result"]["content"][0]["text"], "done", "{capabilities}: {answer}");
    }
}

#[test]
fn a_session_is_lost_whatever_id_the_refusal_has() {
    for capabilities in [NOBODY, EVERYTHING] {
        let count = AtomicUsize::new(0);
        let upstream = over(&tools(), "tools/call", move |request| {
            let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
            is_first.then(|| Reply::error(request, "404 Not Found", -32001, "Session not found"))
        });
        let daemon = daemon(&upstream, "");
        daemon.send(&call_as("1", capabilities)).assert_ok();
        assert_eq!(upstream.received_of("tools/call").len(), 2, "{capabilities}");
    }
}

#[test]
fn a_request_that_its_server_cannot_stand_is_sent_once() {
    for capabilities in [NOBODY, EVERYTHING] {
        let server = tools();
        let upstream = over(&server, "tools/call", |_| Some(Reply::http("400 Bad Request", "", "")));
        let daemon = daemon(&upstream, "");
        daemon.send(&call_as("1", capabilities)).assert_error(502, 502, Some("1"));
        assert_eq!(upstream.received_of("tools/call").len(), 1, "{capabilities}");
    }
}

#[test]
fn a_session_that_is_refused_as_a_bad_request_is_opened_again() {
    for capabilities in [NOBODY, EVERYTHING] {
        let server = tools();
        let well = server.clone();
        let upstream = Upstream::start(move |request| {
            let is_known = well.open_sessions().iter().any(|id| request.headers("mcp-session-id") == [id]);
            if is_known || request.headers("mcp-session-id").is_empty() {
                return well.answer(request);
            }
            Reply::http("400 Bad Request", "", "")
        });
        let daemon = daemon(&upstream, "");
        daemon.send(&call_as("1", capabilities)).assert_ok();
        server.forget_sessions();
        daemon.send(&call_as("2", capabilities)).assert_ok();
        assert_eq!(upstream.received_of("tools/call").len(), 3, "{capabilities}");
    }
}

#[test]
fn a_client_learns_why_its_call_failed_after_a_stream_began() {
    let upstream = over(&tools(), "tools/call", |request| {
        let token = literal(&request.body, &["params", "_meta", "progressToken"]);
        let params = format!(r#"{{"progressToken":{token},"progress":1}}"#);
        let progress = format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#);
        let question = r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#;
        Some(Reply::stream().event(&progress).event(question).wait(&Gate::default()))
    });
    let daemon = daemon(&upstream, "bridge = { parked_max = 0 }\n");
    let request = call_as("1", EVERYTHING).replacing(r#""_meta":{"#, r#""_meta":{"progressToken":"mine","#);
    let failed = last(&mut post(&daemon, &request));
    assert_eq!(failed["error"]["code"], 503, "{failed}");
}
