//! Somebody takes all it can of what sessions need: what does it get, and does everyone else still get theirs?

use std::net::{IpAddr, Ipv4Addr};

use super::{As as _, KEYS, keys};
use crate::harness::{
    Config, Connection, Daemon, Gate, LEGACY_VERSION, Legacy, Offer, Reply, Request, Upstream, call,
    eventually, in_session, initialize, legacy_call, post,
};

/// A GET for the stream of a session.
fn get(session: &str) -> Request {
    let request = post("").method("GET").without("Content-Type").set("Accept", "text/event-stream");
    in_session(session, request)
}

#[test]
fn sessions_of_one_leave_room_for_another() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).start();
    let limits = "[session]\nsessions_max = 16\nsessions_per_principal_max = 16";
    let daemon = Daemon::start(&Config::legacy(&upstream).section(&keys()).section(limits));
    let used = |number: usize| {
        let opened = daemon.send(&initialize("1", LEGACY_VERSION).by(number));
        let session = opened.header("mcp-session-id").expect("a session").to_owned();
        daemon.send(&in_session(&session, legacy_call("2", "echo")).by(number))
    };
    for _ in 0..14 {
        used(0).assert_ok();
    }
    let refused = used(0);
    assert!(refused.text().contains("too many sessions"), "{refused:?}");
    used(1).assert_ok();
    used(2).assert_ok();
}

/// Without credentials the address is who pays.
#[test]
fn sessions_of_one_address_leave_room_for_another() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).start();
    let limits = "[session]\nsessions_max = 16\nsessions_per_principal_max = 16";
    let daemon = Daemon::start(&Config::legacy(&upstream).section(limits));
    let used = |last: u8| {
        let source = IpAddr::V4(Ipv4Addr::new(127, 0, 0, last));
        let mut connection = Connection::open_from(source, daemon.address());
        connection.write(&initialize("1", LEGACY_VERSION).bytes());
        let session = connection.response().header("mcp-session-id").expect("a session").to_owned();
        connection.write(&in_session(&session, legacy_call("2", "echo")).bytes());
        connection.response()
    };
    for _ in 0..14 {
        used(2).assert_ok();
    }
    assert!(used(2).json()["error"].is_object());
    used(3).assert_ok();
    used(4).assert_ok();
}

#[test]
fn streams_of_one_leave_room_for_another() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).with_streams().start();
    let limits = "[session]\nstreams_max = 16\nstreams_per_principal_max = 16";
    let daemon = Daemon::start(&Config::legacy(&upstream).section(&keys()).section(limits));
    let attach = |session: &str, number: usize| {
        let mut connection = daemon.connect();
        connection.write(&get(session).by(number).bytes());
        (connection.any_head().status, connection)
    };
    let open = |number: usize| {
        let opened = daemon.send(&initialize("1", LEGACY_VERSION).by(number));
        let session = opened.header("mcp-session-id").expect("a session").to_owned();
        let (status, connection) = attach(&session, number);
        (status, connection, session)
    };
    let held: Vec<_> = (0..14).map(|_| open(0)).collect();
    assert!(held.iter().all(|(status, ..)| *status == 200));
    assert_eq!(open(0).0, 503);
    let others = [open(1), open(2)];
    assert!(others.iter().all(|(status, ..)| *status == 200));
    // A stream that takes over from another of its session has that one's place.
    assert_eq!(attach(&held[0].2, 0).0, 200);
}

#[test]
fn upstream_sessions_of_one_leave_room_for_another() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).start();
    let limits = "[session]\nupstream_sessions_max = 16\nupstream_sessions_per_principal_max = 16";
    let daemon = Daemon::start(&Config::legacy(&upstream).section(&keys()).section(limits));
    let used = |number: usize| {
        let opened = daemon.send(&initialize("1", LEGACY_VERSION).by(number));
        let session = opened.header("mcp-session-id").expect("a session").to_owned();
        daemon.send(&in_session(&session, legacy_call("2", "echo")).by(number))
    };
    let is_served = |number: usize| used(number).json()["error"].is_null();
    // The gateway's own session for lists may be one of them.
    let held = (0..16).filter(|_| is_served(0)).count();
    assert!((12..=14).contains(&held), "{held}");
    used(0).assert_error(200, 429, Some("2"));
    used(1).assert_ok();
    used(2).assert_ok();
}

#[test]
fn upstream_streams_of_one_leave_room_for_another() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).with_streams().start();
    let limits = "[session]\nupstream_streams_max = 16";
    let daemon = Daemon::start(&Config::legacy(&upstream).section(&keys()).section(limits).admin());
    // A client that can be asked something needs one.
    let use_session = |number: usize| {
        let offer = initialize("1", LEGACY_VERSION)
            .replacing(r#""capabilities":{}"#, r#""capabilities":{"sampling":{}}"#);
        let opened = daemon.send(&offer.by(number));
        let session = opened.header("mcp-session-id").expect("a session");
        daemon.send(&in_session(session, legacy_call("2", "echo")).by(number)).assert_ok();
    };
    (0..20).for_each(|_| use_session(0));
    let held = daemon.metric("trunkline_upstream_streams");
    assert!((12..=14).contains(&held), "{held}");
    for number in 1..3 {
        use_session(number);
        daemon.wait_metric("trunkline_upstream_streams", held + u64::try_from(number).expect("a number"));
    }
}

/// A modern client that can be asked, before a legacy server.
fn askable(number: usize, patient: bool) -> Request {
    let capabilities = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
    let asked = r#""io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}"#;
    let arguments = format!(r#""arguments":{{"patient":{patient}}}"#);
    call("7", "echo").replacing(capabilities, asked).replacing(r#""arguments":{}"#, &arguments).by(number)
}

/// A legacy server whose patient calls wait for the gate, and a gateway that may have sixteen sessions with it.
fn bridged(gate: &Gate) -> (Upstream, Daemon) {
    let held = gate.clone();
    let server = Legacy::new(Offer::tools(&["echo"]));
    let upstream = Upstream::start(move |request| {
        let is_patient = request.body.windows(14).any(|bytes| bytes == br#""patient":true"#);
        let reply = server.answer(request);
        if is_patient { Reply::default().wait(&held).then(reply) } else { reply }
    });
    let config =
        Config::new().upstream("up", upstream.address, "eras = [\"legacy\"]\nbridge = { sessions_max = 16 }");
    let daemon = Daemon::start(&config.section(&keys()).admin());
    (upstream, daemon)
}

#[test]
fn bridged_sessions_of_one_leave_room_for_another() {
    let gate = Gate::default();
    let (upstream, daemon) = bridged(&gate);
    let mut waiting: Vec<Connection> = (0..14).map(|_| daemon.begin(&askable(0, true))).collect();
    upstream.wait_for("tools/call", 14);
    daemon.send(&askable(0, false)).assert_error(429, 429, Some("7"));
    for number in 1..KEYS {
        let reply = daemon.send(&askable(number, false));
        assert!(reply.text().contains("\"result\""), "{reply:?}");
    }
    gate.open();
    for connection in &mut waiting {
        assert_eq!(connection.any_head().status, 200);
    }
}

/// Whoever holds most makes room for others, and for more of its own only out of its own.
#[test]
fn bridged_sessions_of_one_do_not_oust_those_of_others() {
    let gate = Gate::default();
    let (upstream, daemon) = bridged(&gate);
    let named = |number: usize, name: usize| {
        askable(number, false).replacing(r#""name":"blackbox""#, &format!(r#""name":"other-{name}""#))
    };
    let is_served = |request: &Request| daemon.send(request).text().contains("\"result\"");
    let mut waiting: Vec<Connection> = (0..14).map(|_| daemon.begin(&askable(0, true))).collect();
    upstream.wait_for("tools/call", 14);
    assert!(is_served(&askable(1, false)) && is_served(&askable(2, false)), "the last two places");
    gate.open();
    for connection in &mut waiting {
        assert_eq!(connection.any_head().status, 200);
    }
    // All places are taken, and these two have been idle for longest.
    for name in 0..3 {
        eventually("one of its own makes room", || is_served(&named(0, name)).then_some(()));
    }
    assert!(is_served(&askable(1, false)) && is_served(&askable(2, false)));
    let sessions = upstream.sessions_of_calls();
    assert_eq!(sessions[14..16], sessions[19..], "theirs are still there");
    for name in 0..3 {
        assert!(is_served(&named(1, name)), "it has fewer than the first");
    }
    assert!(is_served(&askable(2, false)));
    assert_eq!(upstream.sessions_of_calls()[24], sessions[15]);
}

#[test]
fn of_bridged_sessions_that_calls_share_the_one_idle_for_longest_makes_room() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).start();
    let config =
        Config::new().upstream("up", upstream.address, "eras = [\"legacy\"]\nbridge = { sessions_max = 8 }");
    let daemon = Daemon::start(&config.section(&keys()));
    let plain = |number: usize| daemon.send(&call("7", "echo").by(number)).assert_ok();
    (0..8).for_each(plain);
    // So that the second is the one that has been idle for longest.
    plain(0);
    plain(8);
    (2..9).chain([0]).for_each(plain);
    let sessions = upstream.sessions_of_calls();
    assert_eq!(sessions[10..16], sessions[2..8]);
    assert_eq!(sessions[16..], sessions[9..10].iter().chain(&sessions[..1]).cloned().collect::<Vec<_>>());
}

/// Leaving is no cancellation in the legacy era: 256 exchanges of a worker go on without their clients.
#[test]
fn exchanges_that_one_has_left_leave_room_for_another() {
    let gate = Gate::default();
    let held = gate.clone();
    let server = Legacy::new(Offer::tools(&["echo"]));
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::default().wait(&held).then(Reply::result(request, r#"{"content":[]}"#)),
        _ => server.answer(request),
    });
    let daemon = Daemon::start(&Config::legacy(&upstream).section(&keys()).top("workers = 1").admin());
    let session_of = |number: usize| {
        let opened = daemon.send(&initialize("1", LEGACY_VERSION).by(number));
        opened.header("mcp-session-id").expect("a session").to_owned()
    };
    let leave = |number: usize, calls: usize, all: usize| {
        let session = session_of(number);
        let request = in_session(&session, legacy_call("2", "echo")).by(number);
        let begun: Vec<Connection> = (0..calls).map(|_| daemon.begin(&request)).collect();
        upstream.wait_for("tools/call", all);
        drop(begun);
    };
    let counted = |result: &str, times: u64| {
        daemon.wait_metric(&format!(r#"trunkline_exchanges_detached_total{{result="{result}"}}"#), times);
    };
    leave(0, 230, 230);
    counted("dropped", 6);
    counted("kept", 224);
    leave(1, 1, 231);
    counted("kept", 225);
    gate.open();
    counted("ended", 225);
}
