//! The reply on its way back: relayed as it comes, and given up when nobody waits for it.

use std::time::Duration;

use crate::harness::{Config, Daemon, Gate, META, Offer, Reply, Upstream, body, call, eventually, modern};

#[test]
fn the_first_event_arrives_before_the_upstream_sends_the_second() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |_| {
        let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1}}"#;
        Reply::stream().event(progress).wait(&held).event(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#).end()
    });
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let mut connection = daemon.connect();
    connection.write(&call("7", "echo").bytes());
    let response = connection.head();
    assert_eq!((response.status, response.header("content-type")), (200, Some("text/event-stream")));
    assert!(connection.event().expect("an event").contains("progressToken"));
    gate.open();
    assert!(connection.event().expect("an event").contains("\"id\":7"));
    assert_eq!(connection.event(), None);
    // The stream ended properly: the connection is still good.
    connection.write(&call("8", "echo").method("PUT").bytes());
    assert_eq!(connection.response().status, 405);
}

#[test]
fn part_of_an_event_is_not_held_back_on_a_transparent_endpoint() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |_| {
        Reply::stream().event("1").chunk(": half a ").wait(&held).chunk("comment\n\n").end()
    });
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let mut connection = daemon.connect();
    connection.write(&call("7", "echo").bytes());
    connection.head();
    assert_eq!(connection.event().as_deref(), Some("data: 1\n\n"));
    gate.open();
    assert_eq!(connection.event().as_deref(), Some(": half a comment\n\n"));
}

#[test]
fn closing_the_stream_cancels_upstream() {
    let upstream = Upstream::calling(|_| Reply::stream().event("1").wait(&Gate::default()));
    let weather = Upstream::with_tools(&["forecast"]);
    let daemons = [
        (Daemon::start(&Config::transparent(&upstream)), "echo"),
        (Daemon::start(&Config::prefixed(&upstream, &weather)), "files__echo"),
    ];
    for (count, (daemon, tool)) in daemons.iter().enumerate() {
        let mut connection = daemon.connect();
        connection.write(&call("7", tool).bytes());
        connection.head();
        let received = upstream.wait_for("tools/call", count + 1);
        drop(connection);
        upstream.wait_closed(received.connection);
    }
}

#[test]
fn a_client_that_leaves_before_the_reply_cancels_upstream() {
    let upstream = Upstream::calling(|_| Reply::silence());
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let mut connection = daemon.connect();
    connection.write(&call("7", "echo").bytes());
    let received = upstream.wait_for("tools/call", 1);
    drop(connection);
    upstream.wait_closed(received.connection);
}

#[test]
fn a_client_that_leaves_before_its_request_is_whole_reaches_nobody() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let bytes = call("7", "echo").bytes();
    for cut in [1, 20, bytes.len() - 100, bytes.len() - 1] {
        let mut connection = daemon.connect();
        connection.write(&bytes[..cut]);
        drop(connection);
    }
    daemon.send(&call("8", "echo")).assert_ok();
    assert_eq!(upstream.only_call().id(), "8");
}

#[test]
fn one_slow_call_holds_up_nobody() {
    let upstream = Upstream::calling(|request| match request.client_id().as_str() {
        "1" => Reply::silence(),
        _ => Reply::result(request, r#"{"content":[],"resultType":"complete"}"#),
    });
    let daemon = Daemon::start(&Config::transparent(&upstream).top("workers = 1"));
    let mut slow = daemon.connect();
    slow.write(&call("1", "echo").bytes());
    upstream.wait_for("tools/call", 1);
    for id in 2..10 {
        daemon.send(&call(&id.to_string(), "echo")).assert_ok();
    }
}

#[test]
fn equal_ids_of_different_clients_do_not_meet() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |request| {
        let name = request.json()["params"]["arguments"]["who"].to_string();
        let reply = Reply::result(request, &format!(r#"{{"who":{name},"resultType":"complete"}}"#));
        Reply::default().wait(&held).then(reply)
    });
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let mut connections: Vec<_> = (0..8).map(|_| daemon.connect()).collect();
    for (who, connection) in connections.iter_mut().enumerate() {
        let arguments = format!(r#""arguments":{{"who":{who}}}"#);
        connection.write(&call("1", "echo").replacing(r#""arguments":{}"#, &arguments).bytes());
    }
    upstream.wait_for("tools/call", 8);
    gate.open();
    for (who, connection) in connections.iter_mut().enumerate() {
        assert_eq!(connection.response().json()["result"]["who"], who);
    }
}

#[test]
fn connections_to_an_upstream_are_reused() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).top("workers = 1"));
    for _ in 0..10 {
        daemon.send(&call("1", "echo")).assert_ok();
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn an_idle_connection_to_an_upstream_is_closed_by_the_gateway() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::new().upstream("up", upstream.address, "idle_timeout = \"100ms\"");
    let daemon = Daemon::start(&config);
    daemon.send(&call("1", "echo")).assert_ok();
    upstream.wait_closed(0);
    daemon.send(&call("2", "echo")).assert_ok();
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn idle_connections_to_an_upstream_are_bounded() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |request| {
        Reply::default().wait(&held).then(Reply::result(request, r#"{"resultType":"complete"}"#))
    });
    let config =
        Config::new().upstream("up", upstream.address, "idle_connections_max = 2\nidle_timeout = \"1m\"");
    let daemon = Daemon::start(&config.top("workers = 1"));
    let mut clients: Vec<_> = (0..6).map(|_| daemon.connect()).collect();
    for client in &mut clients {
        client.write(&call("1", "echo").bytes());
    }
    upstream.wait_for("tools/call", 6);
    gate.open();
    for client in &mut clients {
        client.response().assert_ok();
    }
    eventually("all but two are closed", || {
        let open = (0..upstream.connections()).filter(|connection| !upstream.is_closed(*connection)).count();
        (open == 2).then_some(())
    });
}

#[test]
fn a_stream_may_be_quiet_for_its_idle_timeout_and_no_longer() {
    let upstream = Upstream::calling(|_| Reply::stream().event("1").wait(&Gate::default()));
    let config = Config::new().upstream(
        "up",
        upstream.address,
        "response_timeout = \"1s\"\nstream_idle_timeout = \"1500ms\"",
    );
    let daemon = Daemon::start(&config);
    let mut connection = daemon.connect();
    let started = std::time::Instant::now();
    connection.write(&call("7", "echo").bytes());
    connection.head();
    assert_eq!(connection.event().as_deref(), Some("data: 1\n\n"));
    // It is cut, or it ends with an error.
    if let Ok(Some(last)) = connection.try_event() {
        assert!(last.contains("\"error\""), "{last}");
    }
    assert!(started.elapsed() >= Duration::from_millis(1500), "cut after {:?}", started.elapsed());
    upstream.wait_closed(0);
}

#[test]
fn an_unknown_method_passes_through_a_transparent_endpoint() {
    let upstream = Upstream::start(|request| Reply::result(request, r#"{"resultType":"complete","own":1}"#));
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let request = modern("vendor/thing", None, body("7", "vendor/thing", &format!(r#"{{"_meta":{META}}}"#)));
    let response = daemon.send(&request);
    response.assert_ok();
    assert_eq!(response.json()["result"]["own"], 1);
    assert_eq!(upstream.forwarded()[0].headers("mcp-method"), ["vendor/thing"]);
}

#[test]
fn several_endpoints_share_a_listener() {
    let (one, two) = (Upstream::with_tools(&["echo"]), Upstream::offering(Offer::tools(&["echo"])));
    let config = Config::transparent(&one).section(&format!(
        "[[endpoint]]\npath = \"/other/mcp\"\nupstreams = [\"second\"]\n[upstream.second]\nurl = \"http://{}/mcp\"",
        two.address
    ));
    let daemon = Daemon::start(&config);
    daemon.send(&call("1", "echo")).assert_ok();
    daemon.send(&call("2", "echo").target("/other/mcp")).assert_ok();
    assert_eq!((one.only_call().id().as_str(), two.only_call().id().as_str()), ("1", "2"));
    assert_eq!(daemon.send(&call("3", "echo").target("/other")).status, 404);
}

#[test]
fn the_path_of_the_upstream_is_its_own() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).path("/public/tools"));
    daemon.send(&call("1", "echo").target("/public/tools")).assert_ok();
    assert!(upstream.only_call().head.starts_with("POST /mcp HTTP/1.1\r\n"));
}

#[test]
fn replicas_stand_for_one_upstream() {
    let (one, two) = (Upstream::with_tools(&["echo"]), Upstream::with_tools(&["echo"]));
    let config = Config::transparent(&one).to_string();
    let single = format!("url = \"http://{}/mcp\"", one.address);
    let both = format!("urls = [\"http://{}/mcp\", \"http://{}/mcp\"]", one.address, two.address);
    let daemon = Daemon::start(&config.replace(&single, &both));
    for _ in 0..10 {
        daemon.send(&call("1", "echo")).assert_ok();
    }
    assert_eq!(one.received_of("tools/call").len() + two.received_of("tools/call").len(), 10);
}

#[test]
fn every_listener_serves() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream).to_string();
    let config = config.replace("[listener]", "[[listener]]\naddress = \"127.0.0.1:0\"\n[[listener]]");
    let daemon = Daemon::start(&config);
    assert_eq!(daemon.addresses.len(), 2);
    for address in &daemon.addresses {
        let mut connection = crate::harness::Connection::open(*address);
        connection.write(&call("1", "echo").bytes());
        connection.response().assert_ok();
    }
}

#[test]
fn a_reply_of_many_pieces_is_counted_as_answered_and_keeps_its_connection() {
    let text = "x".repeat(300_000);
    let upstream =
        Upstream::calling(move |request| Reply::result(request, &format!(r#"{{"text":"{text}"}}"#)));
    let daemon = Daemon::start(&Config::transparent(&upstream).admin());
    for id in ["1", "2", "3"] {
        daemon.send(&call(id, "echo")).assert_ok();
    }
    let metrics = daemon.get_admin("/metrics").text();
    let is_cancelled = |line: &str| !line.starts_with('#') && line.contains("error_type=\"cancelled\"");
    assert!(!metrics.lines().any(is_cancelled), "{metrics}");
    let is_answered_call = |line: &&str| {
        line.starts_with("mcp_server_operation_duration_seconds_count")
            && line.contains("error_type=\"\"")
            && line.contains("mcp_method_name=\"tools/call\"")
    };
    let counts = metrics.lines().filter(is_answered_call).map(|line| line.rsplit(' ').next().unwrap());
    assert_eq!(counts.map(|count| count.parse::<u32>().unwrap()).sum::<u32>(), 3, "{metrics}");
}

#[test]
fn a_compressed_reply_is_no_reply() {
    let upstream = Upstream::calling(|_| {
        Reply::http("200 OK", "Content-Type: application/json\r\nContent-Encoding: gzip\r\n", "\u{1f}")
    });
    let daemon = Daemon::start(&Config::transparent(&upstream));
    daemon.send(&call("7", "echo")).assert_error(502, 502, Some("7"));
}
