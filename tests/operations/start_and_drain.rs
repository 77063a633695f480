//! The two ends of a process: what a start waits for, and what a drain lets finish.

use std::time::{Duration, Instant};

use crate::harness::{
    Broken, Config, Connection, Daemon, Gate, Reply, Response, Upstream, call, eventually, list,
    refusing_address, unresponsive_address,
};

fn closes(response: &Response) -> bool {
    response.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
}

#[test]
fn a_drain_lets_calls_finish() {
    let (upstream, gate) = Upstream::gated();
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
fn a_stop_with_nobody_connected_waits_for_nobody() {
    let upstream = Upstream::with_tools(&["echo"]);
    let mut daemon = Daemon::start(&Config::transparent(&upstream).admin());
    let mut gone = daemon.connect();
    gone.write(&call("1", "echo").bytes());
    gone.response().assert_ok();
    drop(gone);
    eventually("nobody is connected", || {
        daemon.get_admin("/metrics").text().contains("\ntrunkline_connections_open 0\n").then_some(())
    });
    let started = Instant::now();
    daemon.terminate();
    assert_eq!(daemon.wait_exit().code(), Some(0));
    assert!(started.elapsed() < Duration::from_millis(1900), "took {:?}", started.elapsed());
}

#[test]
fn a_quiet_phase_that_is_written_is_for_those_who_come_back() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream).admin().section("[drain]\nquiet = \"3s\"\nmax = \"15s\"");
    let mut daemon = Daemon::start(&config);
    daemon.terminate();
    eventually("the daemon says it is not ready", || {
        (daemon.get_admin("/readyz").status == 503).then_some(())
    });
    daemon.send(&call("3", "echo")).assert_ok();
    assert_eq!(daemon.wait_exit().code(), Some(0));
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
    let (dead, _socket) = refusing_address();
    let (unresponsive, _sockets) = unresponsive_address();
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
