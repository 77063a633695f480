//! Somebody takes all it can of one resource: what does it get, and does everyone else still get theirs?

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::{As as _, KEYS, keys};
use crate::harness::{
    Child, Config, Connection, Daemon, Gate, LEGACY_VERSION, Reply, Request, Upstream, call, eventually,
    in_session, initialize, legacy_call,
};

/// A call with so many bytes of arguments.
fn sized(bytes: usize) -> Request {
    call("7", "echo")
        .replacing(r#""arguments":{}"#, &format!(r#""arguments":{{"x":"{}"}}"#, "x".repeat(bytes)))
}

#[test]
fn unfinished_bodies_of_one_leave_memory_to_another() {
    let upstream = Upstream::with_tools(&["echo"]);
    let limits = "buffered_bytes_max = \"8MiB\"\nbody_bytes_max = \"1MiB\"\nreply_bytes_max = \"1MiB\"";
    let daemon = Daemon::start(&Config::transparent(&upstream).limits(limits).section(&keys()).admin());
    let large = sized(900 * 1024).by(0);
    let unfinished = &large.bytes()[..large.bytes().len() - 1];
    let _held: Vec<Connection> = (0..7)
        .map(|_| {
            let mut connection = daemon.connect();
            connection.write(unfinished);
            connection
        })
        .collect();
    eventually("seven bodies have come but for their ends", || {
        (daemon.metric("trunkline_buffered_bytes") > 7 * 900 * 1024).then_some(())
    });
    let refused = daemon.send(&large);
    refused.assert_error(429, 429, None);
    assert_eq!(refused.header("retry-after"), Some("1"));
    // Others are served, however often the greedy one tries.
    for number in 1..KEYS {
        daemon.send(&sized(48 * 1024).by(number)).assert_ok();
        assert_eq!(daemon.send(&large).status, 429);
    }
}

#[test]
fn many_together_leave_memory_to_one_more() {
    let upstream = Upstream::with_tools(&["echo"]);
    let limits = "buffered_bytes_max = \"8MiB\"\nbody_bytes_max = \"1MiB\"\nreply_bytes_max = \"1MiB\"";
    let daemon = Daemon::start(&Config::transparent(&upstream).limits(limits).section(&keys()).admin());
    let begin = |number: usize, bytes: usize| {
        let request = sized(bytes).by(number).bytes();
        let mut connection = daemon.connect();
        connection.write(&request[..request.len() - 1]);
        connection
    };
    let takes = |bytes: u64| {
        eventually("that much is taken", || {
            (daemon.metric("trunkline_buffered_bytes") > bytes).then_some(())
        });
    };
    // Seven have a long body each, and then eight take as many short ones as they get.
    let mut held: Vec<Connection> = (0..7).map(|number| begin(number, 900 * 1024)).collect();
    takes(7 * 900 * 1024);
    held.extend((0..24).map(|turn| begin(turn % (KEYS - 1), 60 * 1024)));
    takes(7_000_000);
    for _ in 0..20 {
        daemon.send(&sized(48 * 1024).by(KEYS - 1)).assert_ok();
    }
    drop(held);
    daemon.wait_metric("trunkline_buffered_bytes", 0);
}

#[test]
fn one_address_leaves_connections_to_another() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).limits("connections_max = 24").admin());
    let greedy = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    let mut held: Vec<Connection> =
        (0..40).map(|_| Connection::open_from(greedy, daemon.address())).collect();
    daemon.wait_metric("trunkline_connections_open", 21);
    daemon.wait_metric("trunkline_connections_refused_total{limit=\"connections_per_address_max\"}", 19);
    let mut modest = daemon.connect();
    for _ in 0..5 {
        modest.write(&call("7", "echo").bytes());
        modest.response().assert_ok();
    }
    let is_served = |connection: &mut Connection| {
        connection.write(&call("8", "echo").bytes()) && connection.try_response().is_ok()
    };
    assert_eq!(held.iter_mut().filter_map(|connection| is_served(connection).then_some(())).count(), 21);
}

#[test]
fn calls_of_one_leave_connections_of_the_upstream_to_another() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |request| {
        let reply = Reply::result(request, r#"{"resultType":"complete"}"#);
        if request.client_id() == "7" { Reply::default().wait(&held).then(reply) } else { reply }
    });
    let config = Config::new().upstream("up", upstream.address, "connections_max = 16");
    let daemon = Daemon::start(&config.section(&keys()).top("workers = 1").admin());
    let mut waiting: Vec<Connection> = (0..14).map(|_| daemon.begin(&call("7", "echo").by(0))).collect();
    upstream.wait_for("tools/call", 14);
    let refused = daemon.send(&call("8", "echo").by(0));
    refused.assert_error(429, 429, Some("8"));
    for number in 1..KEYS {
        daemon.send(&call("9", "echo").by(number)).assert_ok();
    }
    gate.open();
    for connection in &mut waiting {
        connection.response().assert_ok();
    }
    daemon.send(&call("8", "echo").by(0)).assert_ok();
}

/// Over the bridge, too, it is the client that is charged and not the server.
#[test]
fn bridged_calls_of_one_leave_connections_of_the_upstream_to_another() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |request| {
        let is_patient = request.json()["params"]["arguments"]["patient"] == true;
        let reply = Reply::result(request, r#"{"resultType":"complete","content":[]}"#);
        if is_patient { Reply::default().wait(&held).then(reply) } else { reply }
    });
    let config = Config::new().upstream("up", upstream.address, "connections_max = 16");
    let daemon = Daemon::start(&config.section(&keys()).top("workers = 1").admin());
    let in_session_of = |number: usize, request: Request| {
        let opened = daemon.send(&initialize("1", LEGACY_VERSION).by(number));
        in_session(opened.header("mcp-session-id").expect("a session"), request).by(number)
    };
    let patient = || legacy_call("7", "echo").replacing("{}", r#"{"patient":true}"#);
    let mut waiting: Vec<Connection> = (0..14).map(|_| daemon.begin(&in_session_of(0, patient()))).collect();
    upstream.wait_for("tools/call", 14);
    let refused = daemon.send(&in_session_of(0, legacy_call("8", "echo")));
    assert_eq!(refused.json()["error"]["code"], 429, "{refused:?}");
    for number in 1..KEYS {
        let served = daemon.send(&in_session_of(number, legacy_call("9", "echo")));
        assert!(served.text().contains("\"result\""), "{served:?}");
    }
    gate.open();
    for connection in &mut waiting {
        assert_eq!(connection.any_head().status, 200);
    }
}

#[test]
fn child_processes_of_one_leave_room_for_another() {
    for (lines, limits) in [("children_max = 16", ""), ("", "children_max = 16")] {
        let child = Child::new(&[]);
        let config =
            Config::new().raw("up", &child.keys(&format!("eras = [\"legacy\"]\n{lines}"))).limits(limits);
        let daemon = Daemon::start(&config.section(&keys()).admin());
        child.wait_for("end of input", 1);
        eventually("nothing runs", || (daemon.find_metric_of_up("trunkline_children")? == 0).then_some(()));
        let call_of = |number: usize| {
            let opened = daemon.send(&initialize("1", LEGACY_VERSION).by(number));
            let session = opened.header("mcp-session-id").expect("a session");
            daemon.send(&in_session(session, legacy_call("7", "echo")).by(number))
        };
        for _ in 0..14 {
            let served = call_of(0);
            assert!(served.text().contains("\"result\""), "{served:?}");
        }
        // Refused, or in place of its own idlest.
        call_of(0);
        assert_eq!(daemon.find_metric_of_up("trunkline_children"), Some(14));
        let evicted = daemon.find_metric_of_up("trunkline_child_evictions_total");
        let served = call_of(1);
        assert_eq!(daemon.find_metric_of_up("trunkline_child_evictions_total"), evicted);
        assert!(served.text().contains("\"result\""), "{served:?}");
    }
}

#[test]
fn calls_of_one_leave_an_upstream_that_takes_few_to_another() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |request| {
        let is_patient = request.json()["params"]["arguments"]["patient"] == true;
        let reply = Reply::result(request, r#"{"resultType":"complete","content":[]}"#);
        if is_patient { Reply::default().wait(&held).then(reply) } else { reply }
    });
    let config = Config::new().upstream("up", upstream.address, "calls_max = 16\ncalls_waiting_max = 64");
    let daemon = Daemon::start(&config.section(&keys()).admin());
    let patient =
        || call("7", "echo").replacing(r#""arguments":{}"#, r#""arguments":{"patient":true}"#).by(0);
    let mut waiting: Vec<Connection> = (0..20).map(|_| daemon.begin(&patient())).collect();
    upstream.wait_for("tools/call", 14);
    daemon.wait_metric(r#"trunkline_upstream_calls_waiting{upstream="up"}"#, 6);
    for number in 1..KEYS {
        daemon.send(&call("9", "echo").by(number)).assert_ok();
    }
    gate.open();
    for connection in &mut waiting {
        connection.response().assert_ok();
    }
}

/// What a principal held lately counts, too.
#[test]
fn who_had_nothing_of_an_upstream_goes_ahead_of_who_had_much() {
    let gates = [Gate::default(), Gate::default(), Gate::default()];
    let held = gates.clone();
    let upstream = Upstream::calling(move |request| {
        let gate = &held[request.client_id().parse::<usize>().unwrap()];
        Reply::default().wait(gate).then(Reply::result(request, r#"{"resultType":"complete","content":[]}"#))
    });
    let config = Config::new().upstream("up", upstream.address, "calls_max = 1");
    let daemon = Daemon::start(&config.section(&keys()).admin());
    let begin = |id: &str, number: usize| daemon.begin(&call(id, "echo").by(number));
    let is_waiting = |calls: u64| {
        daemon.wait_metric(r#"trunkline_upstream_calls_waiting{upstream="up"}"#, calls);
    };
    let mut first = begin("0", 0);
    upstream.wait_for("tools/call", 1);
    // The first principal waits with another call before the second comes.
    let mut second = begin("1", 0);
    is_waiting(1);
    let mut other = begin("2", 1);
    is_waiting(2);
    // Time is what is counted: a tenth of a second is still little.
    std::thread::sleep(Duration::from_millis(150));
    gates[0].open();
    first.response().assert_ok();
    upstream.wait_for("tools/call", 2);
    gates[2].open();
    other.response().assert_ok();
    upstream.wait_for("tools/call", 3);
    gates[1].open();
    second.response().assert_ok();
}
