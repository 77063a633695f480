//! Child processes that write faster than their clients read: who waits, who loses what, and what is said of it.

use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{
    Child, Config, Connection, Daemon, LEGACY_VERSION, META, Request, body, eventually, in_session, legacy,
    modern, open_session, post, tell,
};

/// More than waits for a reader and fits into the buffers of sockets.
const LINES: usize = 150_000;
/// How long a client does not read.
const PAUSE: Duration = Duration::from_millis(500);

fn child_of(child: &Child, era: &str, lines: &str) -> Config {
    Config::new()
        .raw("up", &child.keys(&format!("eras = [\"{era}\"]\n{lines}")))
        .limits("reply_bytes_max = \"1MiB\"")
        .admin()
}

fn tool(id: &str, name: &str, arguments: &str) -> Request {
    legacy(id, "tools/call", &format!(r#"{{"name":"{name}","arguments":{arguments}}}"#))
}

fn modern_tool(id: &str, name: &str, arguments: &str) -> Request {
    let params = format!(r#"{{"name":"{name}","arguments":{arguments},"_meta":{META}}}"#);
    modern("tools/call", Some(name), body(id, "tools/call", &params))
}

fn open(daemon: &Daemon) -> String {
    open_session(daemon.address(), LEGACY_VERSION).0
}

/// Begins a call that brings so many log lines, and does not read yet.
fn burst(daemon: &Daemon, child: &Child, session: &str, lines: usize, more: &str) -> Connection {
    let arguments = format!(r#"{{"lines":{lines}{more}}}"#);
    begin(daemon, child, &in_session(session, tool("7", "burst", &arguments)))
}

/// Sends a call that does not end at once, until the child has it.
fn begin(daemon: &Daemon, child: &Child, request: &Request) -> Connection {
    let before = child.received("tools/call").len();
    let connection = daemon.begin(request);
    child.wait_received("tools/call", before + 1);
    connection
}

/// All messages of a stream.
fn messages(connection: &mut Connection) -> Vec<Value> {
    assert_eq!(connection.head().status, 200);
    let rest = String::from_utf8(connection.rest().expect("a clean end")).expect("text");
    let data = rest.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).expect("JSON")).collect()
}

/// So many log lines in order, and the answer.
#[track_caller]
fn assert_whole(messages: &[Value], lines: usize) {
    let (last, logged) = messages.split_last().expect("messages");
    assert_eq!(last["result"]["content"][0]["text"], "burst", "after {}: {last}", logged.len());
    assert_eq!(logged.len(), lines);
    assert!(logged.iter().enumerate().all(|(number, line)| line["params"]["data"] == number), "in order");
}

#[track_caller]
fn assert_echoes(daemon: &Daemon, session: &str) {
    let response = daemon.send(&in_session(session, tool("1", "echo", r#"{"text":"there"}"#)));
    assert!(response.text().contains("there"), "{}", response.text());
}

#[test]
fn a_child_that_one_client_has_to_itself_writes_no_faster_than_it_reads() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&child_of(&child, "legacy", ""));
    let (session, other) = (open(&daemon), open(&daemon));
    let mut slow = burst(&daemon, &child, &session, LINES, "");
    sleep(PAUSE);
    assert_echoes(&daemon, &other);
    assert!(child.events_of("burst").is_empty(), "all was written before anything was read");
    assert_whole(&messages(&mut slow), LINES);
    assert_echoes(&daemon, &session);
}

#[test]
fn a_modern_call_that_is_alone_is_waited_for() {
    let child = Child::new(&["modern"]);
    let daemon = Daemon::start(&child_of(&child, "modern", ""));
    let mut slow = begin(&daemon, &child, &modern_tool("7", "burst", &format!(r#"{{"lines":{LINES}}}"#)));
    sleep(PAUSE);
    assert!(child.events_of("burst").is_empty(), "all was written before anything was read");
    assert_whole(&messages(&mut slow), LINES);
}

#[test]
fn where_others_use_the_child_a_slow_client_loses_its_call_and_learns_why() {
    let child = Child::new(&["modern"]);
    let daemon = Daemon::start(&child_of(&child, "modern", ""));
    let meta = META.replacen('{', r#"{"progressToken":"t","#, 1);
    let params = format!(r#"{{"name":"burst","arguments":{{"lines":{LINES}}},"_meta":{meta}}}"#);
    let request = modern("tools/call", Some("burst"), body("7", "tools/call", &params));
    let mut slow = begin(&daemon, &child, &request);
    sleep(PAUSE);
    assert!(child.events_of("burst").is_empty());
    let other = daemon.send(&modern_tool("1", "echo", r#"{"text":"there"}"#));
    assert!(other.text().contains("there"), "{}", other.text());
    let last = messages(&mut slow).pop().expect("an end");
    assert_eq!((&last["id"], &last["error"]["code"]), (&json!(7), &json!(502)), "{last}");
    let why = last["error"]["message"].as_str().unwrap_or_default();
    assert!(why.contains("reads more slowly than the server behind this name writes"), "{why}");
    eventually("it is counted", || {
        let metrics = daemon.get_admin("/metrics").text();
        assert!(!metrics.contains("upstream_reset"), "{metrics}");
        metrics.contains("slow_client").then_some(())
    });
}

#[test]
fn a_client_that_leaves_or_cancels_is_not_waited_for() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&child_of(&child, "legacy", ""));
    for cancels in [false, true] {
        let session = open(&daemon);
        let mut slow = burst(&daemon, &child, &session, LINES, "");
        sleep(PAUSE);
        let before = child.events_of("burst").len();
        if cancels {
            tell(
                &daemon,
                &session,
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
            );
            child.wait_for("burst", before + 1);
            let last = messages(&mut slow).pop().expect("an end");
            assert_eq!(last["error"]["code"], -32800, "{last}");
        } else {
            drop(slow);
            child.wait_for("burst", before + 1);
        }
        assert_echoes(&daemon, &session);
    }
}

#[test]
fn what_a_child_said_before_it_ended_is_heard_to_the_end() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&child_of(&child, "legacy", ""));
    let session = open(&daemon);
    // What waits for the client, and is in the pipe.
    for lines in [1000, 100_000] {
        let mut slow = burst(&daemon, &child, &session, lines, r#","dies":true"#);
        sleep(2 * PAUSE);
        assert_whole(&messages(&mut slow), lines);
    }
}

#[test]
fn a_session_whose_client_does_not_read_ends_as_any_other() {
    let child = Child::new(&[]);
    // Of so few the gateway keeps none for itself.
    let daemon = Daemon::start(&child_of(&child, "legacy", "stop_timeout = \"500ms\"\nchildren_max = 8"));
    let session = open(&daemon);
    let _slow = burst(&daemon, &child, &session, LINES, "");
    sleep(PAUSE);
    let ended = daemon.send(&in_session(&session, post("").method("DELETE")));
    assert_eq!(ended.status, 204);
    child.wait_gone();
}
