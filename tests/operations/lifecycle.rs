//! From start to stop: reload, drain, exit.

use std::time::{Duration, Instant};

use crate::harness::{
    Broken, Config, Connection, Daemon, Gate, Reply, Upstream, api_key, call, eventually, list,
};

/// A server whose calls wait at a gate, and the gate.
fn gated() -> (Upstream, Gate) {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |request| {
        Reply::default().wait(&held).then(Reply::result(request, r#"{"resultType":"complete"}"#))
    });
    (upstream, gate)
}

fn closes(response: &crate::harness::Response) -> bool {
    response.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
}

#[test]
fn a_good_configuration_is_swapped_in() {
    let (one, two) = (Upstream::with_tools(&["echo"]), Upstream::with_tools(&["echo"]));
    let daemon = Daemon::start(&Config::transparent(&one));
    let mut connection = daemon.connect();
    connection.write(&call("1", "echo").bytes());
    connection.response().assert_ok();
    let address = daemon.address();
    let listener = format!("address = \"{address}\"");
    let changed = Config::transparent(&two).listener(&listener).path("/new");
    daemon.reload(&changed);
    eventually("the new path is served", || {
        (daemon.send(&call("2", "echo").target("/new")).status == 200).then_some(())
    });
    assert_eq!(two.received_of("tools/call").len(), 1);
    assert_eq!(daemon.send(&call("3", "echo")).status, 404, "the old path is gone");
    // The connection that was open goes on, under the new configuration.
    connection.write(&call("4", "echo").target("/new").bytes());
    connection.response().assert_ok();
    assert_eq!(one.received_of("tools/call").len(), 1);
}

#[test]
fn a_reload_with_port_zero_keeps_the_listener() {
    let (one, two) = (Upstream::with_tools(&["echo"]), Upstream::with_tools(&["echo"]));
    let daemon = Daemon::start(&Config::transparent(&one));
    daemon.reload(&Config::transparent(&two));
    eventually("the new upstream is used", || {
        daemon.send(&call("1", "echo")).assert_ok();
        (!two.received_of("tools/call").is_empty()).then_some(())
    });
}

#[test]
fn a_bad_configuration_changes_nothing_and_says_why() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let bad = [
        "this is not TOML [".to_owned(),
        Config::transparent(&upstream).endpoint("colour = \"blue\"").to_string(),
        Config::new().to_string(),
    ];
    for config in bad {
        let before = daemon.log().len();
        daemon.reload(&config);
        let line =
            daemon.wait_for_log(before, "an error about the configuration", |line| line.contains("ERROR"));
        println!("{line}");
        daemon.send(&call("1", "echo")).assert_ok();
    }
    let before = daemon.log().len();
    daemon.reload(&Config::transparent(&upstream).path("/mended"));
    eventually("the mended one is taken", || {
        (daemon.send(&call("2", "echo").target("/mended")).status == 200).then_some(())
    });
    assert!(!daemon.log()[before..].iter().any(|line| line.contains("ERROR")));
}

#[test]
fn the_reason_for_keeping_the_old_configuration_names_the_key() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let before = daemon.log().len();
    daemon.reload(&Config::transparent(&upstream).endpoint("colour = \"blue\""));
    daemon.wait_for_log(before, "the unknown key by name", |line| line.contains("colour"));
}

#[test]
fn a_call_in_flight_survives_a_reload() {
    let (upstream, gate) = gated();
    let other = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let mut connection = daemon.connect();
    connection.write(&call("7", "echo").bytes());
    upstream.wait_for("tools/call", 1);
    daemon.reload(&Config::transparent(&other).path("/new"));
    let new = call("1", "echo").target("/new");
    eventually("the new path is served", || (daemon.send(&new).status == 200).then_some(()));
    gate.open();
    connection.response().assert_ok();
}

#[test]
fn no_call_is_lost_in_reloads() {
    let (one, two) = (Upstream::with_tools(&["echo"]), Upstream::with_tools(&["echo"]));
    let daemon = Daemon::start(&Config::transparent(&one));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut connection = daemon.connect();
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        connection.write(&call("1", "echo").bytes());
                        connection.response().assert_ok();
                    }
                })
            })
            .collect();
        for round in 1..=5 {
            for upstream in [&two, &one] {
                let before = upstream.received_of("tools/call").len();
                daemon.reload(&Config::transparent(upstream));
                upstream.wait_for("tools/call", before + 20 * round);
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for client in clients {
            client.join().expect("no call was lost");
        }
    });
}

#[test]
fn a_drain_lets_calls_finish() {
    let (upstream, gate) = gated();
    let config = Config::transparent(&upstream).admin().section("[drain]\nquiet = \"300ms\"\nmax = \"15s\"");
    let mut daemon = Daemon::start(&config);
    assert_eq!(daemon.get_admin("/readyz").status, 200);
    let mut busy = daemon.connect();
    busy.write(&call("7", "echo").bytes());
    upstream.wait_for("tools/call", 1);
    daemon.terminate();
    eventually("the daemon says it is not ready", || {
        (daemon.get_admin("/readyz").status == 503).then_some(())
    });
    assert_eq!(daemon.get_admin("/livez").status, 200, "draining is not dying");
    gate.open();
    let response = busy.response();
    response.assert_ok();
    assert!(closes(&response), "{response:?}");
    busy.wait_closed();
    assert_eq!(daemon.wait_exit().code(), Some(0));
}

#[test]
fn the_quiet_phase_serves_on_and_says_close() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream).admin().section("[drain]\nquiet = \"3s\"\nmax = \"15s\"");
    let mut daemon = Daemon::start(&config);
    let mut idle = daemon.connect();
    idle.write(&call("1", "echo").bytes());
    assert!(!closes(&idle.response()));
    daemon.terminate();
    eventually("the daemon says it is not ready", || {
        (daemon.get_admin("/readyz").status == 503).then_some(())
    });
    idle.write(&call("2", "echo").bytes());
    let response = idle.response();
    response.assert_ok();
    assert!(closes(&response), "{response:?}");
    let response = daemon.send(&call("3", "echo"));
    response.assert_ok();
    assert!(closes(&response), "{response:?}");
    assert_eq!(daemon.wait_exit().code(), Some(0));
}

#[test]
fn a_drain_ends_at_its_maximum() {
    let upstream = Upstream::calling(|_| Reply::stream().event("1").wait(&Gate::default()));
    let config = Config::transparent(&upstream).section("[drain]\nquiet = \"100ms\"\nmax = \"500ms\"");
    let mut daemon = Daemon::start(&config);
    let mut busy = daemon.connect();
    busy.write(&call("7", "echo").bytes());
    busy.head();
    let started = Instant::now();
    daemon.terminate();
    busy.wait_closed();
    daemon.wait_exit();
    assert!(started.elapsed() < Duration::from_secs(10), "took {:?}", started.elapsed());
    upstream.wait_closed(0);
}

#[test]
fn an_idle_daemon_stops_at_once_after_the_quiet_phase() {
    let upstream = Upstream::with_tools(&["echo"]);
    let mut daemon =
        Daemon::start(&Config::transparent(&upstream).section("[drain]\nquiet = \"100ms\"\nmax = \"18s\""));
    let mut idle = daemon.connect();
    idle.write(&call("1", "echo").bytes());
    idle.response().assert_ok();
    let started = Instant::now();
    daemon.terminate();
    idle.wait_closed();
    assert_eq!(daemon.wait_exit().code(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(8), "took {:?}", started.elapsed());
    let gone = std::net::TcpStream::connect_timeout(&daemon.address(), Duration::from_secs(5));
    assert!(gone.is_err(), "somebody still listens");
}

#[test]
fn no_call_is_lost_in_a_drain() {
    let upstream = Upstream::with_tools(&["echo"]);
    let mut daemon =
        Daemon::start(&Config::transparent(&upstream).section("[drain]\nquiet = \"500ms\"\nmax = \"15s\""));
    let address = daemon.address();
    let clients: Vec<_> =
        (0..8).map(|_| std::thread::spawn(move || calls_until_told_to_close(address))).collect();
    upstream.wait_for("tools/call", 50);
    daemon.terminate();
    for client in clients {
        client.join().expect("no call was lost");
    }
    assert_eq!(daemon.wait_exit().code(), Some(0));
}

/// Calls on one connection until an answer says that it is the last.
fn calls_until_told_to_close(address: std::net::SocketAddr) {
    let mut connection = Connection::open(address);
    loop {
        connection.write(&call("1", "echo").bytes());
        match connection.try_response() {
            Ok(response) => {
                response.assert_ok();
                if closes(&response) {
                    return;
                }
            }
            Err(broken @ Broken::Closed) => panic!("cut without a last answer: {broken:?}"),
            Err(broken) => panic!("{broken:?}"),
        }
    }
}

#[test]
fn starting_does_not_wait_for_upstreams() {
    let (dead, _socket) = crate::harness::refusing_address();
    let (unresponsive, _sockets) = crate::harness::unresponsive_address();
    let config = Config::new().upstream("files", dead, "").upstream("weather", unresponsive, "").admin();
    let started = Instant::now();
    let daemon = Daemon::start(&config);
    assert!(started.elapsed() < Duration::from_secs(5), "took {:?}", started.elapsed());
    assert_eq!(daemon.get_admin("/livez").status, 200);
    assert_eq!(daemon.send(&list("1", "custom/thing")).status, 404);
}

/// The shortest configuration, with every default, on whatever machine this is.
#[test]
fn the_minimum_is_enough() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = format!(
        "[listener]\naddress = \"127.0.0.1:0\"\n\n[[endpoint]]\npath = \"/mcp\"\nupstreams = [\"up\"]\n\n\
         [upstream.up]\nurl = \"http://{}/mcp\"\n",
        upstream.address
    );
    let daemon = Daemon::start(&config);
    daemon.send(&call("7", "echo")).assert_ok();
}

#[test]
fn a_reload_never_opens_what_the_listener_still_exposes() {
    let upstream = Upstream::with_tools(&["echo"]);
    let entry = api_key("ci", "tl_a-key-for-this-test");
    let public = Config::transparent(&upstream).listener("address = \"0.0.0.0:0\"").section(&entry);
    let daemon = Daemon::start(&public);
    let before = daemon.log().len();
    daemon.reload(&Config::transparent(&upstream).section(&entry).endpoint("auth = []"));
    daemon.wait_for_log(before, "the refusal", |line| {
        line.contains("ERROR") && line.contains("open to a network")
    });
}
