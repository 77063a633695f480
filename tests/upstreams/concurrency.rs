//! How many calls an upstream has at once: who waits, whose turn it is, and what frees a place.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::harness::{
    Config, Daemon, Gate, LEGACY_VERSION, Legacy, Offer, Received, Reply, Request, Upstream, api_key, call,
    eventually, in_session, legacy, list, open_session, result_body,
};

const KEYS: [(&str, &str); 2] =
    [("ci", "ci-key-0123456789abcdefghijklmnop"), ("dev", "dev-key-0123456789abcdefghijklmnop")];
const RESULT: &str = r#"{"content":[],"resultType":"complete"}"#;

/// The request of the holder of the key so called.
fn of(name: &str, request: Request) -> Request {
    let (_, key) = KEYS.iter().find(|(known, _)| *known == name).unwrap();
    request.with("Authorization", format!("Bearer {key}"))
}

/// What lets each call end, by its id.
#[derive(Clone, Default)]
struct Gates(Arc<Mutex<BTreeMap<String, Gate>>>);

impl Gates {
    fn of(&self, id: &str) -> Gate {
        self.0.lock().unwrap().entry(id.to_owned()).or_default().clone()
    }

    fn open(&self, id: &str) {
        self.of(id).open();
    }
}

/// An upstream whose calls end when they are let, and what lets them.
fn gated() -> (Upstream, Gates) {
    let gates = Gates::default();
    let doors = gates.clone();
    let answer = move |request: &Received| {
        Reply::silence().wait(&doors.of(&request.client_id())).then(Reply::result(request, RESULT))
    };
    (Upstream::calling(answer), gates)
}

fn start(upstream: &Upstream, lines: &str) -> Daemon {
    let lines = format!("{lines}\neras = [\"modern\", \"legacy\"]");
    let config = Config::new().upstream("up", upstream.address, &lines).admin();
    Daemon::start(&KEYS.iter().fold(config, |config, (name, key)| config.section(&api_key(name, key))))
}

fn wait_for_waiting(daemon: &Daemon, count: u64) {
    let waiting = || daemon.find_metric_of_up("trunkline_upstream_calls_waiting");
    eventually("as many wait as should", || (waiting() == Some(count)).then_some(()));
}

fn ids(upstream: &Upstream) -> Vec<String> {
    upstream.received_of("tools/call").iter().map(Received::client_id).collect()
}

#[test]
fn principals_take_turns_and_nobody_else_waits() {
    let (upstream, gates) = gated();
    let daemon = start(&upstream, "calls_max = 2");
    let mut calls = Vec::new();
    for (id, name) in
        [("1", "ci"), ("2", "ci"), ("3", "ci"), ("4", "ci"), ("5", "ci"), ("6", "dev"), ("7", "dev")]
    {
        calls.push((id, daemon.begin(&of(name, call(id, "echo")))));
        // Each in its turn: connections are served by two workers.
        let begun: usize = id.parse().unwrap();
        upstream.wait_for("tools/call", begun.min(2));
        wait_for_waiting(&daemon, begun.saturating_sub(2) as u64);
    }
    assert_eq!(daemon.find_metric_of_up("trunkline_upstream_calls"), Some(2));
    // What is no call of the upstream's passes by.
    daemon.send(&of("ci", list("8", "tools/list"))).assert_ok();
    let mut begun = 2;
    for (ends, next) in [("1", "6"), ("2", "3"), ("6", "7"), ("7", "4"), ("3", "5")] {
        gates.open(ends);
        begun += 1;
        upstream.wait_for("tools/call", begun);
        assert_eq!(ids(&upstream)[begun - 1], next, "after {ends}: {:?}", ids(&upstream));
    }
    for id in ["4", "5"] {
        gates.open(id);
    }
    for (_, connection) in &mut calls {
        connection.response().assert_ok();
    }
    eventually("nothing is left", || {
        (daemon.find_metric_of_up("trunkline_upstream_calls") == Some(0)).then_some(())
    });
    assert_eq!(daemon.find_metric_of_up("trunkline_upstream_calls_refused_total"), Some(0));
    assert_eq!(daemon.find_metric_of_up("trunkline_upstream_calls_waited_seconds_count"), Some(5));
}

#[test]
fn who_finds_no_room_to_wait_or_waits_too_long_is_refused() {
    let (upstream, gates) = gated();
    let daemon = start(&upstream, "calls_max = 1\ncalls_waiting_max = 1\ncalls_wait_max = \"1s\"");
    let opened = daemon.send(&of("dev", crate::harness::initialize("0", LEGACY_VERSION)));
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    let mut first = daemon.begin(&of("ci", call("1", "echo")));
    upstream.wait_for("tools/call", 1);
    let mut waiting = daemon.begin(&of("ci", call("2", "echo")));
    wait_for_waiting(&daemon, 1);
    let refused = daemon.send(&of("dev", call("3", "echo")));
    let error = refused.assert_error(429, 429, Some("3"));
    assert_eq!(error["error"]["data"]["retryAfterMs"], 1000);
    assert_eq!(refused.header("retry-after"), Some("1"));
    let in_session = in_session(&session, legacy("4", "tools/call", r#"{"name":"echo","arguments":{}}"#));
    let refused = daemon.send(&of("dev", in_session)).assert_error(200, 429, Some("4"));
    assert_eq!(refused["error"]["data"]["retryAfterMs"], 1000);
    waiting.response().assert_error(429, 429, Some("2"));
    gates.open("1");
    first.response().assert_ok();
    assert_eq!(
        (ids(&upstream), daemon.find_metric_of_up("trunkline_upstream_calls_refused_total")),
        (vec!["1".into()], Some(3))
    );
}

#[test]
fn who_leaves_waits_no_longer() {
    let (upstream, gates) = gated();
    let daemon = start(&upstream, "calls_max = 1");
    let mut first = daemon.begin(&of("ci", call("1", "echo")));
    upstream.wait_for("tools/call", 1);
    let leaving = daemon.begin(&of("ci", call("2", "echo")));
    wait_for_waiting(&daemon, 1);
    drop(leaving);
    wait_for_waiting(&daemon, 0);
    gates.open("1");
    gates.open("3");
    first.response().assert_ok();
    daemon.send(&of("dev", call("3", "echo"))).assert_ok();
    assert_eq!(ids(&upstream), ["1", "3"]);
}

#[test]
fn a_slow_body_takes_nobodys_place() {
    let (upstream, gates) = gated();
    let daemon = start(&upstream, "calls_max = 1");
    let request = of("ci", call("1", "echo"));
    let (begin, rest) = request.body.split_at(20);
    let mut slow = daemon.connect();
    slow.write(&[&*request.head(), begin].concat());
    gates.open("2");
    daemon.send(&of("ci", call("2", "echo"))).assert_ok();
    gates.open("1");
    slow.write(rest);
    slow.response().assert_ok();
}

#[test]
fn a_stream_is_under_way_until_it_ends_or_its_client_leaves() {
    let gates = Gates::default();
    let doors = gates.clone();
    let upstream = Upstream::calling(move |request| {
        let progress =
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
        let begun = Reply::stream().event(progress).wait(&doors.of(&request.client_id()));
        begun.event(&result_body(request, RESULT)).end()
    });
    let daemon = start(&upstream, "calls_max = 1");
    for leaves in [false, true] {
        let mut streaming = daemon.begin(&of("ci", call("1", "echo")));
        assert_eq!(streaming.head().status, 200);
        assert!(streaming.event().is_some());
        let mut next = daemon.begin(&of("ci", call("2", "echo")));
        wait_for_waiting(&daemon, 1);
        if leaves {
            drop(streaming);
        } else {
            gates.open("1");
            assert!(streaming.event().is_some() && streaming.event().is_none());
            gates.0.lock().unwrap().remove("1");
        }
        gates.open("2");
        assert_eq!(next.head().status, 200);
        wait_for_waiting(&daemon, 0);
        while next.event().is_some() {}
    }
}

#[test]
fn a_stream_that_stays_open_after_the_answer_holds_up_nobody() {
    for era in ["legacy", "modern"] {
        let gate = Gate::default();
        let door = gate.clone();
        let answer =
            move |request: &Received| Reply::stream().event(&result_body(request, RESULT)).wait(&door).end();
        let upstream = if era == "modern" {
            Upstream::calling(answer)
        } else {
            let server = Legacy::new(Offer::tools(&["echo"]));
            Upstream::start(move |request| match request.method().as_str() {
                "tools/call" => answer(request),
                _ => server.answer(request),
            })
        };
        let lines = format!("eras = [{era:?}]\ncalls_max = 1\ncalls_waiting_max = 0");
        let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, &lines));
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        let mut calls = Vec::new();
        for id in ["1", "2"] {
            let message = legacy(id, "tools/call", r#"{"name":"echo","arguments":{}}"#);
            let mut connection = daemon.begin(&in_session(&session, message));
            assert_eq!(connection.head().header("content-type"), Some("text/event-stream"), "{era} {id}");
            assert!(connection.event().is_some());
            calls.push(connection);
        }
        gate.open();
        for connection in &mut calls {
            assert!(connection.event().is_none());
        }
    }
}

#[test]
fn a_call_that_outlives_its_client_keeps_its_place() {
    let gates = Gates::default();
    let doors = gates.clone();
    let server = Legacy::new(Offer::tools(&["echo"]));
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => {
            Reply::silence().wait(&doors.of(&request.client_id())).then(Reply::result(request, RESULT))
        }
        _ => server.answer(request),
    });
    let config = Config::new().upstream("up", upstream.address, "eras = [\"legacy\"]\ncalls_max = 1").admin();
    let daemon = Daemon::start(&config);
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let of_session =
        |id: &str| in_session(&session, legacy(id, "tools/call", r#"{"name":"echo","arguments":{}}"#));
    let leaving = daemon.begin(&of_session("1"));
    upstream.wait_for("tools/call", 1);
    drop(leaving);
    let mut next = daemon.begin(&of_session("2"));
    wait_for_waiting(&daemon, 1);
    assert_eq!(daemon.find_metric_of_up("trunkline_upstream_calls"), Some(1));
    gates.open("1");
    gates.open("2");
    next.response().assert_ok();
    assert_eq!(ids(&upstream), ["1", "2"]);
}

#[test]
fn a_reload_keeps_who_is_under_way_and_lets_in_whom_there_is_room_for() {
    let (upstream, gates) = gated();
    let config = |calls_max| {
        Config::new().upstream("up", upstream.address, &format!("calls_max = {calls_max}")).admin()
    };
    let daemon = Daemon::start(&config(1));
    let mut calls: Vec<_> = Vec::new();
    for id in ["1", "2", "3"] {
        calls.push(daemon.begin(&call(id, "echo")));
        wait_for_waiting(&daemon, id.parse::<u64>().unwrap() - 1);
    }
    daemon.reload(&config(2));
    upstream.wait_for("tools/call", 2);
    wait_for_waiting(&daemon, 1);
    assert_eq!(daemon.find_metric_of_up("trunkline_upstream_calls"), Some(2));
    for id in ["1", "2", "3"] {
        gates.open(id);
    }
    for connection in &mut calls {
        connection.response().assert_ok();
    }
}
