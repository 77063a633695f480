//! Room for child processes where as many run as may: which of those that rest make room for whom, in every era.

use std::time::{Duration, Instant};

use crate::harness::{
    Child, Config, Daemon, LEGACY_VERSION, Request, api_key, call, eventually, in_session, legacy,
    side_by_side, with_key,
};

fn key_of(name: &str) -> String {
    format!("{name}-key-0123456789abcdefghijklmnop")
}

/// A child called `up` with a few processes, and callers with keys.
fn daemon(child: &Child, (lines, limits): (&str, &str), callers: &[&str]) -> Daemon {
    let config = Config::new().raw("up", &child.keys(lines)).limits(limits).admin();
    let config = callers.iter().fold(config, |config, name| config.section(&api_key(name, &key_of(name))));
    let daemon = Daemon::start(&config);
    if !lines.contains("eras") {
        daemon.wait_for_log(0, "the eras", |line| line.contains("upstream speaks"));
    }
    daemon
}

fn as_of(name: &str, request: Request) -> Request {
    with_key(request, &key_of(name))
}

fn evictions(daemon: &Daemon) -> u64 {
    daemon.find_metric_of_up("trunkline_child_evictions_total").expect("a counter")
}

/// Sends a call that is not answered, and waits until the child has it.
fn hang(daemon: &Daemon, child: &Child, name: &str) -> crate::harness::Connection {
    let before = child.received("tools/call").len();
    let hanging = daemon.begin(&as_of(name, call("1", "hang")));
    child.wait_received("tools/call", before + 1);
    hanging
}

#[test]
fn of_modern_callers_each_is_served_in_its_turn() {
    // Natively, and over the bridge.
    let cases = [
        (&["modern"][..], "children_max = 2", ""),
        (&["modern"], "", "children_max = 2"),
        (&[], "children_max = 2", ""),
        (&[], "isolation = \"principal\"\nchildren_max = 2", ""),
    ];
    side_by_side(cases, |(words, lines, limits)| {
        let child = Child::new(words);
        let callers = ["a", "b", "c", "d"];
        let daemon = daemon(&child, (lines, limits), &callers);
        for name in callers {
            eventually(&format!("{name} is served"), || {
                let response = daemon.send(&as_of(name, call("1", "echo")));
                (response.status == 200).then_some(())
            });
            assert!(daemon.find_metric_of_up("trunkline_children").expect("a gauge") <= 2);
        }
        assert!(evictions(&daemon) >= 1);
    });
}

#[test]
fn one_call_is_enough_where_a_process_rests() {
    let child = Child::new(&["modern"]);
    let callers = ["a", "b", "c", "d"];
    let daemon = daemon(&child, ("eras = [\"modern\"]\nchildren_max = 2", ""), &callers);
    for name in callers {
        daemon.send(&as_of(name, call("1", "echo"))).assert_ok();
    }
}

#[test]
fn idle_sessions_of_one_caller_keep_no_modern_caller_out() {
    let child = Child::new(&["modern"]);
    let lines = "eras = [\"modern\", \"legacy\"]\nchildren_max = 4";
    let daemon = daemon(&child, (lines, ""), &["greedy", "other"]);
    let sessions: Vec<String> = (0..7)
        .map(|_| {
            let params = format!(
                r#"{{"protocolVersion":"{LEGACY_VERSION}","capabilities":{{}},"clientInfo":{{"name":"c","version":"1"}}}}"#
            );
            let opened = daemon.send(&as_of("greedy", legacy("0", "initialize", &params)));
            opened.header("mcp-session-id").expect("a session").to_owned()
        })
        .collect();
    let echo = |session: &str| {
        let params = r#"{"name":"echo","arguments":{"text":"here"}}"#;
        daemon.send(&as_of("greedy", in_session(session, legacy("1", "tools/call", params))))
    };
    for session in &sessions {
        eventually("its own idlest makes room", || echo(session).text().contains("here").then_some(()));
    }
    daemon.send(&as_of("other", call("1", "echo"))).assert_ok();
    // A session whose process made room goes on.
    eventually("the first goes on", || echo(&sessions[0]).text().contains("here").then_some(()));
}

#[test]
fn what_is_in_use_makes_no_room() {
    let child = Child::new(&["modern"]);
    let daemon = daemon(&child, ("eras = [\"modern\"]\nchildren_max = 2", ""), &["a", "b", "c"]);
    let _hanging = ["a", "b"].map(|name| {
        eventually("there is room", || {
            (daemon.send(&as_of(name, call("1", "echo"))).status == 200).then_some(())
        });
        hang(&daemon, &child, name)
    });
    let since = Instant::now();
    let before = evictions(&daemon);
    let refused = daemon.send(&as_of("c", call("1", "echo")));
    refused.assert_error(503, 503, Some("1"));
    assert!(since.elapsed() < Duration::from_secs(5), "nothing is waited for where nothing rests");
    assert_eq!(evictions(&daemon), before);
}
