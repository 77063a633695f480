//! Sessions of clients with programs that the gateway itself speaks to in the newer revision.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::states::{status, upstream};
use crate::harness::{
    Child, Config, Daemon, LEGACY_VERSION, Request, Response, api_key, call, eventually, eventually_within,
    in_session, legacy, list, open_session, open_session_with, side_by_side, with_key,
};

const NO_ARGUMENTS: &str = r#"{"name":"echo","arguments":{}}"#;

fn daemon(child: &Child, lines: &str) -> Daemon {
    Daemon::start(&Config::new().raw("up", &child.keys(lines)).admin())
}

fn open(daemon: &Daemon) -> String {
    open_session(daemon.address(), LEGACY_VERSION).0
}

fn said(response: &Response) -> String {
    let events = response.text();
    let answer: Value = match events.lines().filter_map(|line| line.strip_prefix("data: ")).next_back() {
        Some(data) => serde_json::from_str(data).expect("JSON"),
        None => response.json(),
    };
    let said = answer["result"]["content"][0]["text"].as_str();
    said.unwrap_or_else(|| panic!("no content: {events}")).to_owned()
}

/// The process that serves the newer revision, once it is up, however long that takes.
fn gateways_pid(daemon: &Daemon) -> String {
    eventually("it is up", || {
        let response = daemon.send(&call("1", "echo"));
        response.text().contains("content").then(|| said(&response))
    })
}

/// The process that answers in this session.
fn pid(daemon: &Daemon, session: &str) -> String {
    said(&daemon.send(&in_session(session, legacy("1", "tools/call", NO_ARGUMENTS))))
}

fn data(event: &str) -> Value {
    let line = event.lines().find_map(|line| line.strip_prefix("data: ")).expect("data");
    serde_json::from_str(line).expect("JSON")
}

#[test]
fn a_session_speaks_its_own_revision_to_the_process_that_it_has() {
    side_by_side([&["modern"][..], &["modern", "fixes-era"]], |words| {
        let child = Child::new(words);
        let daemon = daemon(&child, "");
        // The gateway itself asks in the newer revision.
        assert!(daemon.send(&list("1", "tools/list")).text().contains("echo"));
        let of_gateway = said(&daemon.send(&call("1", "echo")));
        let params = r#"{"protocolVersion":"2025-06-18","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}"#;
        let opened = daemon.send(&legacy("0", "initialize", params));
        let session = opened.header("mcp-session-id").expect("a session").to_owned();
        let of_session = pid(&daemon, &session);
        assert_ne!(of_session, of_gateway);
        let initialized = child.received("initialize");
        assert_eq!(initialized.len(), 1, "{words:?}");
        assert_eq!(initialized[0]["params"]["protocolVersion"], "2025-06-18");
        assert_eq!(initialized[0]["params"]["capabilities"]["roots"], serde_json::json!({}));
        assert_eq!(pid(&daemon, &session), of_session);
        assert_ne!(pid(&daemon, &open(&daemon)), of_session);

        // A question of the program reaches its client, and so does what the client says while it is asked.
        let mut calling = daemon.connect();
        let asking = legacy("7", "tools/call", r#"{"name":"ask","arguments":{}}"#);
        calling.write(&in_session(&session, asking).bytes());
        assert_eq!(calling.head().status, 200);
        let question = data(&calling.event().expect("a question"));
        assert_eq!(question["method"], "roots/list");
        let tell = |body: &str| {
            let told = in_session(&session, legacy("1", "x", "{}").body(body.to_owned()));
            assert_eq!(daemon.send(&told).status, 202);
        };
        tell(r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#);
        child.wait_received("notifications/roots/list_changed", 1);
        tell(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"roots":[]}}}}"#, question["id"]));
        let last = data(&calling.event().expect("an answer"));
        assert_eq!(last["result"]["content"][0]["text"], r#"{"roots": []}"#);
    });
}

#[test]
fn lists_of_such_a_session_are_those_of_its_process() {
    let child = Child::new(&["modern", "fixes-era", "varies"]);
    let daemon = daemon(&child, "");
    let session = open(&daemon);
    let listed = || daemon.send(&in_session(&session, legacy("1", "tools/list", "{}"))).text();
    let before = listed();
    let of_gateway = child.pids()[0].to_string();
    assert!(before.contains(&of_gateway), "{before}");
    assert_eq!(child.pids().len(), 1, "a list starts nothing");
    let of_session = pid(&daemon, &session);
    let after = listed();
    assert!(after.contains(&of_session) && !after.contains(&of_gateway), "{after}");
}

#[test]
fn a_program_that_opens_no_session_is_asked_once_and_bridged_to() {
    side_by_side([&["modern-only"][..], &["modern", "dies-in-initialize"]], |words| {
        let child = Child::new(words);
        let daemon = daemon(&child, "");
        assert!(daemon.send(&list("1", "tools/list")).text().contains("echo"));
        let of_gateway = said(&daemon.send(&call("1", "echo")));
        for _ in 0..3 {
            let session = open(&daemon);
            assert_eq!(pid(&daemon, &session), of_gateway, "{words:?}");
            assert_eq!(pid(&daemon, &session), of_gateway, "{words:?}");
        }
        assert_eq!(child.received("initialize").len(), 1, "{words:?}");
        assert_eq!(child.pids().len(), 2, "{words:?}");
        daemon.wait_for_log(0, "that it is bridged to", |line| line.contains("opens no session"));
    });
}

#[test]
fn a_program_whose_first_process_for_a_session_ends_is_tried_again() {
    let child = Child::new(&["modern"]);
    let daemon = daemon(&child, "");
    let of_gateway = said(&daemon.send(&call("1", "echo")));
    child.breaks();
    let bridged = open(&daemon);
    assert_eq!(pid(&daemon, &bridged), of_gateway);
    daemon.wait_for_log(0, "that it is bridged to", |line| line.contains("opens no session"));
    child.is_mended();
    let of_session = eventually_within(Duration::from_secs(45), "a session has its own process", || {
        Some(pid(&daemon, &open(&daemon))).filter(|pid| *pid != of_gateway)
    });
    assert_ne!(pid(&daemon, &open(&daemon)), of_session);
    assert_eq!(pid(&daemon, &bridged), of_gateway, "a session goes on as it began");
}

#[test]
fn a_program_that_says_nothing_to_a_session_is_bridged_to_soon_after_it_has_read_that() {
    side_by_side(["modern-only", "modern"], |kind| {
        let child = Child::new(&[kind, "hangs-at=initialize", "later-starts-in=3"]);
        let daemon = daemon(&child, "response_timeout = \"30s\"");
        let of_gateway = said(&daemon.send(&call("1", "echo")));
        let since = Instant::now();
        // Sessions that are opened at once are told by the first that is silent.
        side_by_side(0..3, |_| assert_eq!(pid(&daemon, &open(&daemon)), of_gateway));
        let waited = since.elapsed();
        assert!(waited > Duration::from_secs(7) && waited < Duration::from_secs(16), "{waited:?}");
        let asked = child.received("initialize").len();
        assert_eq!(asked, 1, "one shows it to all");
        let since = Instant::now();
        assert_eq!(pid(&daemon, &open(&daemon)), of_gateway);
        assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
        assert_eq!(child.received("initialize").len(), asked, "it is known by then");
        eventually("their processes have ended", || {
            (daemon.metric("trunkline_children{upstream=\"up\"}") == 1).then_some(())
        });
        let told = upstream(&status(&daemon), "up");
        assert_eq!(
            (&told["state"], &told["why"], &told["fault"]),
            (&"up".into(), &Value::Null, &Value::Null)
        );
        assert_eq!(told["children"]["crashes"], 0, "{told:#}");
    });
}

#[test]
fn a_session_has_half_of_its_time_left_where_the_program_says_nothing_to_it() {
    let child = Child::new(&["modern-only", "hangs-at=initialize"]);
    let daemon = daemon(&child, "response_timeout = \"6s\"");
    let of_gateway = gateways_pid(&daemon);
    let since = Instant::now();
    assert_eq!(pid(&daemon, &open(&daemon)), of_gateway);
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
}

#[test]
fn a_refusal_that_may_pass_is_not_the_whole_era() {
    let child = Child::new(&["modern", "initializes-after=1"]);
    let daemon = daemon(&child, "");
    let of_gateway = said(&daemon.send(&call("1", "echo")));
    let bridged = open(&daemon);
    assert_eq!(pid(&daemon, &bridged), of_gateway);
    eventually_within(Duration::from_secs(45), "a session has its own process", || {
        (pid(&daemon, &open(&daemon)) != of_gateway).then_some(())
    });
    assert_eq!(child.received("initialize").len(), 2);
    assert_eq!(pid(&daemon, &bridged), of_gateway, "a session goes on as it began");
}

#[test]
fn a_refusal_holds_for_clients_that_introduce_themselves_alike() {
    let child = Child::new(&["modern", "wants-roots"]);
    let daemon = daemon(&child, "");
    let of_gateway = said(&daemon.send(&call("1", "echo")));
    for _ in 0..2 {
        assert_eq!(pid(&daemon, &open(&daemon)), of_gateway);
    }
    assert_eq!(child.received("initialize").len(), 1);
    let params = r#"{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}"#;
    let opened = daemon.send(&legacy("0", "initialize", params));
    let session = opened.header("mcp-session-id").expect("a session").to_owned();
    assert_ne!(pid(&daemon, &session), of_gateway);
}

#[test]
fn a_session_that_is_refused_takes_none_from_other_clients() {
    let child = Child::new(&["modern", "checks-roots"]);
    let daemon = daemon(&child, "");
    let of_gateway = gateways_pid(&daemon);
    let odd = || open_session_with(daemon.address(), LEGACY_VERSION, r#"{"roots":5}"#);
    assert_eq!(pid(&daemon, &odd()), of_gateway);
    let asked = child.received("initialize").len();
    assert_eq!(pid(&daemon, &odd()), of_gateway);
    assert_eq!(child.received("initialize").len(), asked, "it is known of that client, in any revision");
    assert_ne!(pid(&daemon, &open(&daemon)), of_gateway);
}

#[test]
fn refusals_of_many_clients_are_none_of_another() {
    let child = Child::new(&["modern", "wants-roots"]);
    let daemon = daemon(&child, "");
    let of_gateway = gateways_pid(&daemon);
    for number in 0..6 {
        let capabilities = format!(r#"{{"experimental":{{"e{number}":{{}}}}}}"#);
        let session = open_session_with(daemon.address(), LEGACY_VERSION, &capabilities);
        assert_eq!(pid(&daemon, &session), of_gateway, "{number}");
    }
    assert_eq!(child.received("initialize").len(), 6);
    let session = open_session_with(daemon.address(), LEGACY_VERSION, r#"{"roots":{}}"#);
    assert_ne!(pid(&daemon, &session), of_gateway);
}

#[test]
fn a_session_that_waits_for_the_first_one_is_not_judged_by_its_refusal() {
    let child = Child::new(&["modern", "wants-roots", "later-starts-in=3"]);
    let daemon = daemon(&child, "");
    let of_gateway = gateways_pid(&daemon);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(pid(&daemon, &open(&daemon)), of_gateway));
        child.wait_for("started", 2);
        let session = open_session_with(daemon.address(), LEGACY_VERSION, r#"{"roots":{}}"#);
        assert_ne!(pid(&daemon, &session), of_gateway);
    });
    assert_eq!(child.received("initialize").len(), 2);
}

#[test]
fn a_program_that_starts_slowly_has_longer_for_its_first_session() {
    let child = Child::new(&["modern", "later-starts-in=4", "later-initializes-in=6"]);
    let daemon = daemon(&child, "");
    let of_gateway = said(&daemon.send(&call("1", "echo")));
    assert_ne!(pid(&daemon, &open(&daemon)), of_gateway);
}

#[test]
fn a_client_that_cannot_wait_shows_nothing_of_a_program() {
    let child = Child::new(&["modern", "later-initializes-in=4"]);
    let daemon = daemon(&child, "response_timeout = \"10s\"");
    let of_gateway = gateways_pid(&daemon);
    let since = Instant::now();
    let bridged = open(&daemon);
    assert_eq!(pid(&daemon, &bridged), of_gateway);
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
    // Its process has answered by now, or will.
    let of_session = eventually("a session has its own process", || {
        let session = open(&daemon);
        let response = daemon.send(&in_session(&session, legacy("1", "tools/call", NO_ARGUMENTS)));
        let is_answered = response.text().contains("content");
        is_answered.then(|| said(&response)).filter(|pid| *pid != of_gateway)
    });
    assert_ne!(of_session, of_gateway);
    assert_eq!(pid(&daemon, &bridged), of_gateway, "a session goes on as it began");
    let log = daemon.log();
    assert!(!log.iter().any(|line| line.contains("opens no session")), "{log:#?}");
}

#[test]
fn a_question_before_a_session_is_open_is_answered() {
    let child = Child::new(&["modern", "asks-first"]);
    let daemon = daemon(&child, "");
    let of_gateway = said(&daemon.send(&call("1", "echo")));
    let since = Instant::now();
    assert_ne!(pid(&daemon, &open(&daemon)), of_gateway);
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
    let answered = &child.events_of("answered early")[0]["message"];
    assert_eq!(
        (&answered["id"], &answered["error"]["code"]),
        (&"early".into(), &(-32601).into()),
        "{answered}"
    );
}

#[test]
fn a_program_that_reads_late_has_a_process_for_each_session() {
    let child = Child::new(&["modern", "later-starts-in=7"]);
    let daemon = daemon(&child, "response_timeout = \"4s\"");
    let of_gateway = gateways_pid(&daemon);
    let session = open(&daemon);
    let mut calls = 0;
    let of_session = eventually("it is up", || {
        calls += 1;
        let response = daemon.send(&in_session(&session, legacy("1", "tools/call", NO_ARGUMENTS)));
        response.text().contains("content").then(|| said(&response))
    });
    assert_ne!(of_session, of_gateway);
    assert!(calls > 1, "its client had given up before");
    assert_eq!(child.received("initialize").len(), 1);
}

#[test]
fn what_a_revision_refuses_is_not_the_whole_era() {
    let child = Child::new(&["modern", "fixes-era", "speaks=2025-03-26"]);
    let daemon = daemon(&child, "");
    let session = open(&daemon);
    let of_session = pid(&daemon, &session);
    let last = child.received("initialize").pop().expect("one");
    assert_eq!(last["params"]["protocolVersion"], "2025-03-26");
    assert_ne!(of_session, child.pids()[0].to_string());
}

#[test]
fn sessions_that_share_a_process_come_over_the_bridge() {
    side_by_side(["principal", "shared"], |isolation| {
        let child = Child::new(&["modern", "fixes-era"]);
        let lines = format!("isolation = \"{isolation}\"");
        let config = Config::new().raw("up", &child.keys(&lines)).section(&api_key("alice", "key")).admin();
        let daemon = Daemon::start(&config);
        let as_alice = |request: Request| with_key(request, "key");
        let params =
            r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}"#;
        let mut pids: Vec<String> = (0..10)
            .map(|_| {
                let opened = daemon.send(&as_alice(legacy("0", "initialize", params)));
                let session = opened.header("mcp-session-id").expect("a session").to_owned();
                let calling = in_session(&session, legacy("1", "tools/call", NO_ARGUMENTS));
                said(&daemon.send(&as_alice(calling)))
            })
            .collect();
        pids.push(said(&daemon.send(&as_alice(call("1", "echo")))));
        pids.dedup();
        assert_eq!(pids.len(), 1, "{isolation}");
        assert!(child.received("initialize").is_empty(), "{isolation}");
        let most = if isolation == "shared" { 1 } else { 2 };
        assert!(child.pids().len() <= most, "{isolation}: {:?}", child.pids());
    });
}
