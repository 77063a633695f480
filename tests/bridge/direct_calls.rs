//! Calls of modern clients that could be asked, on a session that an earlier call has left to them.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::suspended_calls::{DONE, EVERYTHING, Server, answer, ask, asked, elicit, is_done, retry};
use crate::harness::{Config, Connection, Daemon, Reply, Stream, call_as, event_data, eventually};

const SESSIONS: &str = r#"trunkline_bridge_sessions{client_era="modern",upstream="up"}"#;

/// A server that answers the first call at once.
fn server() -> Server {
    let is_first = AtomicBool::new(true);
    Server::with(move |request| {
        let is_answered = request.method() == "tools/call" && is_first.swap(false, Ordering::Relaxed);
        is_answered.then(|| Reply::result(request, DONE))
    })
}

/// With one thread, so that every call finds the session that rests.
fn config(server: &Server) -> Config {
    server.config("").top("workers = 1").admin()
}

/// Makes the first call, and begins the next on its session.
#[track_caller]
fn second(daemon: &Daemon, server: &Server) -> (Connection, Stream) {
    is_done(&daemon.send(&call_as("1", EVERYTHING)), 1);
    let connection = daemon.begin(&call_as("2", EVERYTHING));
    let stream = server.call(1);
    assert_eq!(server.legacy.client_sessions(), stream.request.headers("mcp-session-id"));
    (connection, stream)
}

#[test]
fn a_client_that_leaves_cancels_and_nobody_else_gets_the_session() {
    let server = server();
    let daemon = Daemon::start(&config(&server));
    let (connection, stream) = second(&daemon, &server);
    let mut other = daemon.begin(&call_as("3", EVERYTHING));
    let of_other = server.call(2);
    assert_eq!(server.legacy.client_sessions().len(), 2, "one that has a call is nobody else's");
    daemon.wait_metric(SESSIONS, 2);
    drop(connection);
    let cancelled = server.upstream.wait_for("notifications/cancelled", 1);
    assert_eq!(cancelled.json()["params"]["requestId"].to_string(), stream.request.id());
    assert_eq!(cancelled.headers("mcp-session-id"), stream.request.headers("mcp-session-id"));
    let closed =
        || (server.legacy.client_sessions() == of_other.request.headers("mcp-session-id")).then_some(());
    eventually("the session is closed", closed);
    daemon.wait_metric(SESSIONS, 1);
    answer(&of_other, DONE);
    is_done(&other.response(), 3);
}

#[test]
fn a_question_on_the_sessions_stream_is_heard_during_the_call_and_refused_after_it() {
    let server = server();
    let daemon = Daemon::start(&config(&server));
    let (mut connection, stream) = second(&daemon, &server);
    let beside = server.legacy.stream(1);
    elicit(&beside, "7", "Who?");
    let question = asked(&connection.response());
    let again = retry(call_as("3", EVERYTHING), r#"{"q1":{"action":"accept"}}"#, &question);
    let mut connection = daemon.begin(&again);
    assert_eq!(server.told(1), json!({"jsonrpc": "2.0", "id": 7, "result": {"action": "accept"}}));
    answer(&stream, DONE);
    is_done(&connection.response(), 3);
    ask(&beside, "8", "roots/list", "{}");
    assert_eq!(server.told(2)["error"]["code"], -32601, "nobody calls");

    let mut connection = daemon.begin(&call_as("4", EVERYTHING));
    answer(&server.call(2), DONE);
    is_done(&connection.response(), 4);
    ask(&beside, "9", "roots/list", "{}");
    assert_eq!(server.told(3)["error"]["code"], -32601, "nor after a call that went by quietly");
    assert_eq!(server.legacy.client_sessions().len(), 1);
}

#[test]
fn a_question_after_a_quiet_start_ends_the_exchange() {
    let server = server();
    let daemon = Daemon::start(&config(&server));
    let (mut connection, stream) = second(&daemon, &server);
    // The server says nothing for so long that the client gets a stream.
    assert_eq!(connection.head().header("content-type"), Some("text/event-stream"));
    elicit(&stream, "7", "Who?");
    let event = std::iter::from_fn(|| connection.event()).find(|event| !event.starts_with(':'));
    let question = event_data(&event.expect("an event"));
    assert_eq!(question["result"]["resultType"], "input_required", "{question}");
    let again = retry(call_as("3", EVERYTHING), r#"{"q1":{"action":"accept"}}"#, &question);
    let mut connection = daemon.begin(&again);
    assert_eq!(server.told(1)["id"], 7);
    answer(&stream, DONE);
    is_done(&connection.response(), 3);
}

#[test]
fn a_reply_whose_end_comes_late_keeps_the_session_from_the_next_call() {
    let server = server();
    let daemon = Daemon::start(&config(&server));
    let (mut connection, stream) = second(&daemon, &server);
    stream.event(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{DONE}}}"#, stream.request.id()));
    is_done(&connection.response(), 2);
    ask(&stream, "7", "roots/list", "{}");
    let mut connection = daemon.begin(&call_as("3", EVERYTHING));
    let other = server.call(2);
    assert_eq!(server.legacy.client_sessions().len(), 2, "the reply before is not over");
    assert_eq!(server.told(1)["error"]["code"], -32601, "after the answer nobody is asked");
    stream.end();
    answer(&other, DONE);
    is_done(&connection.response(), 3);
    daemon.wait_metric(SESSIONS, 2);
}
