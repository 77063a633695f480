//! Limits: each is refused with its own answer, and everyone else is served on.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use crate::harness::{Broken, Config, Connection, Daemon, Gate, Reply, Request, Upstream, call, eventually};

fn sized(bytes: usize) -> Request {
    let empty = call("7", "echo");
    let filler = "x".repeat(bytes - empty.body.len() - r#""fill":"""#.len());
    empty.replacing(r#""arguments":{}"#, &format!(r#""arguments":{{"fill":"{filler}"}}"#))
}

fn gateway(limits: &str) -> (Daemon, Upstream) {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).limits(limits));
    (daemon, upstream)
}

#[test]
fn bodies_are_bounded() {
    let (daemon, upstream) = gateway("body_bytes_max = \"8KiB\"");
    daemon.send(&sized(8 * 1024)).assert_ok();
    daemon.send_bytes(&sized(8 * 1024).bytes_chunked(1000)).assert_ok();
    daemon.send(&sized(8 * 1024 + 1)).assert_error(413, 413, Some("7"));
    let chunked = daemon.send_bytes(&sized(8 * 1024 + 1).bytes_chunked(1000));
    assert_eq!((chunked.status, &chunked.json()["error"]["code"]), (413, &413.into()));
    daemon.send(&sized(1024 * 1024)).assert_error(413, 413, None);
    assert_eq!(upstream.forwarded().len(), 2);
}

#[test]
fn a_body_that_says_it_is_too_long_is_refused_before_it_comes() {
    let (daemon, upstream) = gateway("body_bytes_max = \"8KiB\"");
    for length in ["8193", "99999999999", "9223372036854775807"] {
        let mut connection = daemon.connect();
        connection.write(&call("7", "echo").with("Content-Length", length).head());
        assert_eq!(connection.response().status, 413, "{length}");
    }
    assert_eq!(upstream.forwarded().len(), 0);
}

#[test]
fn the_default_body_limit_is_4_mib() {
    let (daemon, upstream) = gateway("");
    daemon.send(&sized(4 * 1024 * 1024)).assert_ok();
    daemon.send(&sized(4 * 1024 * 1024 + 1)).assert_error(413, 413, None);
    assert_eq!(upstream.forwarded().len(), 1);
}

#[test]
fn heads_are_bounded() {
    let (daemon, upstream) = gateway("header_bytes_max = \"16KiB\"\nheaders_max = 40");
    let good = call("7", "echo");
    daemon.send(&good.clone().with("X-Long", "x".repeat(8 * 1024))).assert_ok();
    let many =
        |count: usize| (0..count).fold(good.clone(), |request, n| request.with(&format!("X-{n}"), "y"));
    daemon.send(&many(20)).assert_ok();
    let floods = [
        ("one long header", good.clone().with("X-Long", "x".repeat(64 * 1024))),
        ("a long header of MCP", good.clone().with("Mcp-Param-Long", "x".repeat(64 * 1024))),
        ("many headers", many(60)),
        ("very many headers", many(5000)),
        ("a megabyte of head", good.clone().with("X-Long", "x".repeat(1024 * 1024))),
    ];
    for (what, request) in floods {
        println!("{what}");
        assert_eq!(daemon.send(&request).status, 431);
        daemon.send(&good).assert_ok();
    }
    assert_eq!(upstream.forwarded().len(), 7);
}

#[test]
fn a_slow_head_is_cut_off() {
    let (daemon, upstream) = gateway("header_timeout = \"400ms\"\nidle_timeout = \"15s\"");
    let head = call("7", "echo").bytes();
    for written in [0, 1, 40] {
        let started = Instant::now();
        let mut connection = daemon.connect();
        connection.write(&head[..written]);
        let rest = String::from_utf8(connection.wait_closed()).unwrap();
        assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 408 "), "{rest}");
        assert!(started.elapsed() < Duration::from_secs(8), "took {:?}", started.elapsed());
    }
    assert_eq!(upstream.forwarded().len(), 0);
}

/// Each byte comes in time, the whole does not.
#[test]
fn a_head_that_drips_is_cut_off() {
    let (daemon, upstream) = gateway("header_timeout = \"500ms\"");
    let bytes = call("7", "echo").bytes();
    let mut connection = daemon.connect();
    assert!(drip(&mut connection, &bytes[..80]), "the head was never cut off");
    let rest = String::from_utf8(connection.wait_closed()).unwrap();
    assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 408 "), "{rest}");
    assert_eq!(upstream.forwarded().len(), 0);
    daemon.send(&call("8", "echo")).assert_ok();
}

#[test]
fn a_body_that_drips_is_cut_off() {
    let (daemon, upstream) = gateway("body_timeout = \"500ms\"");
    let request = call("7", "echo");
    let mut connection = daemon.connect();
    connection.write(&request.head());
    drip(&mut connection, &request.body[..80]);
    let started = Instant::now();
    match connection.try_response() {
        Ok(response) => assert_eq!(response.status, 408, "{response:?}"),
        Err(Broken::Closed) => {}
        Err(broken) => panic!("{broken:?}"),
    }
    connection.wait_closed();
    assert!(started.elapsed() < Duration::from_secs(5), "took {:?}", started.elapsed());
    assert_eq!(upstream.forwarded().len(), 0);
    daemon.send(&call("8", "echo")).assert_ok();
}

/// Writes a byte every 30 ms; whether the peer stopped taking them.
fn drip(connection: &mut Connection, bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| {
        std::thread::sleep(Duration::from_millis(30));
        !connection.write(&[*byte])
    })
}

#[test]
fn an_idle_connection_is_closed() {
    let (daemon, _upstream) = gateway("idle_timeout = \"400ms\"");
    let mut connection = daemon.connect();
    for _ in 0..2 {
        connection.write(&call("7", "echo").bytes());
        connection.response().assert_ok();
    }
    let started = Instant::now();
    connection.wait_closed();
    assert!(started.elapsed() < Duration::from_secs(8), "took {:?}", started.elapsed());
}

#[test]
fn a_busy_connection_is_not_idle() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |request| {
        Reply::default().wait(&held).then(Reply::result(request, r#"{"resultType":"complete"}"#))
    });
    let limits = "idle_timeout = \"200ms\"\nheader_timeout = \"200ms\"\nbody_timeout = \"200ms\"";
    let daemon = Daemon::start(&Config::transparent(&upstream).limits(limits));
    let mut waiting = daemon.connect();
    waiting.write(&call("7", "echo").bytes());
    upstream.wait_for("tools/call", 1);
    // Another connection idles out meanwhile, so more than the idle time has passed.
    let mut idle = daemon.connect();
    idle.write(&call("8", "echo").method("PUT").bytes());
    idle.response();
    idle.wait_closed();
    gate.open();
    waiting.response().assert_ok();
}

/// Whether a new connection is served.
fn served(connection: &mut Connection) -> bool {
    connection.write(&call("7", "echo").bytes());
    match connection.try_response() {
        Ok(response) if response.status == 200 => true,
        Ok(response) => {
            assert_eq!(response.status, 503, "{response:?}");
            false
        }
        Err(Broken::Closed) => false,
        Err(broken) => panic!("{broken:?}"),
    }
}

#[test]
fn connections_are_bounded_in_all() {
    let (daemon, _upstream) = gateway("connections_max = 3");
    let mut held: Vec<_> = (0..3).map(|_| daemon.connect()).collect();
    assert!(held.iter_mut().all(served));
    assert!(!served(&mut daemon.connect()));
    assert!(held.iter_mut().all(served), "those who are in stay in");
    held.pop();
    eventually("a place that was left is given to the next", || served(&mut daemon.connect()).then_some(()));
}

#[test]
fn connections_are_bounded_per_address() {
    let (daemon, _upstream) = gateway("connections_per_address_max = 2");
    let mut held: Vec<_> = (0..2).map(|_| daemon.connect()).collect();
    assert!(held.iter_mut().all(served));
    assert!(!served(&mut daemon.connect()));
    let neighbour = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
    assert!(served(&mut Connection::open_from(neighbour, daemon.address())));
    drop(held);
    eventually("places that were left are given to the next", || served(&mut daemon.connect()).then_some(()));
}

#[test]
fn bodies_in_memory_are_bounded() {
    let upstream = Upstream::with_tools(&["echo"]);
    let limits = "buffered_bytes_max = \"1MiB\"\nbody_bytes_max = \"900KiB\"\nreply_bytes_max = \"900KiB\"";
    let daemon = Daemon::start(&Config::transparent(&upstream).limits(limits).admin());
    let request = sized(700 * 1024);
    let mut half = daemon.connect();
    half.write(&request.bytes()[..request.bytes().len() - 1]);
    // What is only announced takes no room.
    eventually("the first body has arrived but for its end", || {
        (daemon.find_metric("trunkline_buffered_bytes").expect("a gauge") > 700_000).then_some(())
    });
    let refused = daemon.send(&request);
    // Its sender holds the most already.
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &429.into()));
    daemon.send(&call("8", "echo")).assert_ok();
    half.write(b"}");
    half.response().assert_ok();
    eventually("the room is given back", || (daemon.send(&request).status == 200).then_some(()));
    assert!(upstream.received().iter().all(|call| !call.body.is_empty()));
}

#[test]
fn depth_is_bounded() {
    let (daemon, upstream) = gateway("json_depth_max = 16");
    let deep = |levels: usize| {
        let arguments = format!(r#""arguments":{{"x":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
        call("7", "echo").replacing(r#""arguments":{}"#, &arguments)
    };
    // The message itself, `params` and `arguments` are three levels.
    daemon.send(&deep(13)).assert_ok();
    let refused = daemon.send(&deep(14));
    assert_eq!(refused.status, 400, "{refused:?}");
    assert_eq!(upstream.forwarded().len(), 1);
}

#[test]
fn a_burst_of_connections_is_survived() {
    let (daemon, upstream) = gateway("");
    let mut connections: Vec<_> = (0..300).map(|_| daemon.connect()).collect();
    for connection in &mut connections {
        connection.write(&call("7", "echo").bytes());
    }
    for connection in &mut connections {
        connection.response().assert_ok();
    }
    assert_eq!(upstream.received_of("tools/call").len(), 300);
}
