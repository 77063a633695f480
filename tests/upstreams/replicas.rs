//! Several addresses of one upstream: which gets a call, and what becomes of calls and sessions when one fails.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::{
    Config, Daemon, Folder, Gate, LEGACY_VERSION, Legacy, Offer, Reply, Upstream, call, eventually,
    in_session, legacy_call, open_session, refusing_address,
};

const MODERN: &str = "eras = [\"modern\"]\n";
const LEGACY: &str = "eras = [\"legacy\"]\n";
/// No replica is asked, so that calls alone tell what is fit.
const UNASKED: &str = "health = { interval = \"0s\" }\n";

/// One upstream called `up` with these replicas, on one worker.
fn replicas(addresses: &[SocketAddr], lines: &str) -> Config {
    let urls: Vec<String> = addresses.iter().map(|address| format!("\"http://{address}/mcp\"")).collect();
    Config::new().raw("up", &format!("urls = [{}]\n{lines}", urls.join(", "))).admin().top("workers = 1")
}

fn calls(upstream: &Upstream) -> usize {
    upstream.received_of("tools/call").len()
}

fn in_metrics(daemon: &Daemon, line: &str) -> bool {
    daemon.get_admin("/metrics").text().lines().any(|written| written == line)
}

#[test]
fn calls_are_spread() {
    let upstreams = [(); 3].map(|()| Upstream::with_tools(&["echo"]));
    let daemon = Daemon::start(&replicas(&upstreams.each_ref().map(|up| up.address), MODERN));
    for _ in 0..60 {
        daemon.send(&call("1", "echo")).assert_ok();
    }
    let shares = upstreams.each_ref().map(calls);
    assert!(shares.iter().all(|share| *share > 5) && shares.iter().sum::<usize>() == 60, "{shares:?}");
}

#[test]
fn a_connection_that_waits_keeps_no_call_from_another_replica() {
    let upstreams = [(); 3].map(|()| Upstream::with_tools(&["echo"]));
    let lines = format!("{MODERN}connections_max = 1\n");
    let daemon = Daemon::start(&replicas(&upstreams.each_ref().map(|up| up.address), &lines));
    for _ in 0..20 {
        daemon.send(&call("1", "echo")).assert_ok();
    }
}

#[test]
fn questions_leave_no_connections_behind() {
    let upstream = Upstream::with_tools(&["echo"]);
    let lines = format!("{MODERN}health = {{ interval = \"10ms\" }}\nidle_timeout = \"60s\"\n");
    let daemon = Daemon::start(&replicas(&[upstream.address], &lines));
    upstream.wait_for("server/discover", 20);
    let open = "trunkline_upstream_connections{upstream=\"up\"} ";
    let metrics = daemon.get_admin("/metrics").text();
    let count = metrics.lines().find_map(|line| line.strip_prefix(open)?.parse::<usize>().ok());
    assert!(count.is_some_and(|count| count < 5), "{metrics}");
}

#[test]
fn a_busy_replica_gets_fewer_calls() {
    let gate = Gate::default();
    let door = gate.clone();
    let slow = Upstream::calling(move |request| {
        Reply::default().wait(&door).then(Reply::result(request, r#"{"resultType":"complete"}"#))
    });
    let quick = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&replicas(&[slow.address, quick.address], MODERN));
    let mut waiting = Vec::new();
    while calls(&slow) == 0 {
        let mut connection = daemon.connect();
        let before = calls(&slow) + calls(&quick);
        connection.write(&call("1", "echo").bytes());
        eventually("the call arrives", || (calls(&slow) + calls(&quick) > before).then_some(()));
        waiting.push(connection);
    }
    for _ in 0..20 {
        daemon.send(&call("2", "echo")).assert_ok();
    }
    assert_eq!(calls(&slow), 1, "the other one has nothing to do");
    gate.open();
    for connection in &mut waiting {
        connection.response().assert_ok();
    }
}

#[test]
fn no_call_is_lost_to_a_replica_that_is_not_there() {
    let (refusing, _socket) = refusing_address();
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&replicas(&[refusing, upstream.address], &format!("{MODERN}{UNASKED}")));
    for _ in 0..40 {
        daemon.send(&call("1", "echo")).assert_ok();
    }
    assert_eq!(calls(&upstream), 40);
    let open =
        format!(r#"trunkline_replica_breaker{{replica="{refusing}/mcp",state="open",upstream="up"}} 1"#);
    assert!(in_metrics(&daemon, &open), "{}", daemon.get_admin("/metrics").text());
}

#[test]
fn a_replica_that_fails_is_left_out_and_comes_back() {
    let is_well = Arc::new(AtomicBool::new(false));
    let well = Arc::clone(&is_well);
    let offer = Offer::tools(&["echo"]);
    let sick = Upstream::start(move |request| {
        if well.load(Ordering::SeqCst) { offer.answer(request) } else { Reply::http("500 Oh", "", "no") }
    });
    let other = Upstream::with_tools(&["echo"]);
    let lines = "slow_start = \"0s\"\nbreaker = { failures_max = 3, open_time = \"50ms\" }\n";
    let daemon = Daemon::start(&replicas(&[sick.address, other.address], &format!("{MODERN}{lines}")));
    let mut failed = 0;
    for _ in 0..60 {
        let response = daemon.send(&call("1", "echo"));
        failed += usize::from(response.status == 502);
        assert!(matches!(response.status, 200 | 502), "{response:?}");
    }
    assert!((3..=10).contains(&failed), "three failures tell, and one more now and then: {failed}");
    is_well.store(true, Ordering::SeqCst);
    let before = calls(&sick);
    eventually("it is called again", || {
        daemon.send(&call("1", "echo")).assert_ok();
        (calls(&sick) > before + 3).then_some(())
    });
}

#[test]
fn a_session_stays_with_its_replica() {
    let servers = [(); 3].map(|()| Legacy::new(Offer::tools(&["echo"])));
    let upstreams = servers.each_ref().map(Legacy::start);
    let folder = Folder::new();
    let config = replicas(&upstreams.each_ref().map(|up| up.address), LEGACY).top(&folder.key());
    let mut daemon = Daemon::start(&config);
    let sessions: Vec<String> = (0..6).map(|_| open_session(daemon.address(), LEGACY_VERSION).0).collect();
    let call_all = |daemon: &Daemon| {
        for session in &sessions {
            daemon.send(&in_session(session, legacy_call("1", "echo"))).assert_ok();
        }
    };
    for _ in 0..4 {
        call_all(&daemon);
    }
    let opened = |servers: &[Legacy; 3]| servers.each_ref().map(|server| server.client_sessions().len());
    assert_eq!(opened(&servers).iter().sum::<usize>(), 6, "one for each session of a client");
    let before = upstreams.each_ref().map(calls);
    assert_eq!(before.iter().sum::<usize>(), 24);
    daemon.kill();
    let daemon = Daemon::start(&config);
    call_all(&daemon);
    assert_eq!(opened(&servers).iter().sum::<usize>(), 6, "none was lost by the restart");
    assert_eq!(upstreams.each_ref().map(calls).iter().sum::<usize>(), 30);
}

#[test]
fn a_session_whose_replica_is_no_longer_configured_is_opened_again() {
    let one = Legacy::new(Offer::tools(&["echo"]));
    let other = Legacy::new(Offer::tools(&["echo"]));
    let (first, second) = (one.start(), other.start());
    let daemon = Daemon::start(&replicas(&[first.address], LEGACY));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    let lines = daemon.log().len();
    daemon.reload(&replicas(&[second.address], LEGACY));
    daemon.wait_for_log(lines, "it is reloaded", |line| line.contains("reloaded"));
    daemon.send(&in_session(&session, legacy_call("2", "echo"))).assert_ok();
    assert_eq!(calls(&second), 1);
}

#[test]
fn a_name_is_looked_up() {
    let upstream = Upstream::with_tools(&["echo"]);
    let port = upstream.address.port();
    let lines = format!("url = \"http://localhost:{port}/mcp\"\n{MODERN}");
    let daemon = Daemon::start(&Config::new().raw("up", &lines).admin());
    daemon.send(&call("1", "echo")).assert_ok();
    assert_eq!(upstream.only_call().headers("host"), [format!("localhost:{port}")]);
    let closed = format!(
        r#"trunkline_replica_breaker{{replica="127.0.0.1:{port}/mcp",state="closed",upstream="up"}} 1"#
    );
    assert!(in_metrics(&daemon, &closed), "{}", daemon.get_admin("/metrics").text());
}

#[test]
fn a_name_that_is_not_known_costs_no_start() {
    let weather = Upstream::with_tools(&["forecast"]);
    let lines = format!("url = \"http://nowhere.invalid:1/mcp\"\n{MODERN}");
    let daemon = Daemon::start(&Config::new().raw("files", &lines).upstream("weather", weather.address, ""));
    daemon.send(&call("1", "weather__forecast")).assert_ok();
    daemon.send(&call("2", "files__echo")).assert_error(502, 502, Some("2"));
}
