//! What becomes of the memory that sessions took, once they are over.

use std::time::Duration;

use crate::harness::{
    Config, Daemon, LEGACY_VERSION, Legacy, Offer, Upstream, eventually_within, in_session, initialize,
    legacy, post,
};

/// They take several times the memory that the daemon starts with.
const SESSIONS: usize = 4000;
/// Says how many there are instead; `tests/run --all` does.
const SESSIONS_VARIABLE: &str = "MEMORY_TEST_SESSIONS";
/// Says which binary is started instead.
const BINARY_VARIABLE: &str = "MEMORY_TEST_BINARY";
const THREADS: usize = 4;
/// The sessions expire within a few seconds, and what is free is given back within ten.
const PATIENCE: Duration = Duration::from_mins(1);

/// The daemon, or the one that was built as `tests/run --all` says.
fn start(config: &Config) -> Daemon {
    match std::env::var_os(BINARY_VARIABLE) {
        Some(binary) => Daemon::start_build(binary, config),
        None => Daemon::start(config),
    }
}

fn sessions() -> usize {
    std::env::var(SESSIONS_VARIABLE).map_or(SESSIONS, |number| number.parse().expect("a number of sessions"))
}

fn config(upstream: &Upstream, idle_timeout: &str) -> Config {
    let session = format!("[session]\ninitialize_rate_max = 1000000\nidle_timeout = \"{idle_timeout}\"");
    Config::new().upstream("up", upstream.address, "eras = [\"legacy\"]").section(&session)
}

/// Opens so many sessions one after the other, calls something in each, and leaves them.
fn come_and_go(daemon: &Daemon, sessions: usize) {
    let mut connection = daemon.connect();
    for _ in 0..sessions {
        connection.write(&initialize("0", LEGACY_VERSION).bytes());
        let opened = connection.response();
        let session = opened.header("mcp-session-id").expect("a session id").to_owned();
        let initialized = post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        connection.write(&in_session(&session, initialized).bytes());
        assert_eq!(connection.response().status, 202);
        let call = legacy("1", "tools/call", r#"{"name":"echo","arguments":{}}"#);
        connection.write(&in_session(&session, call).bytes());
        connection.response().assert_ok();
    }
}

/// All memory is at most half as much again as before, and half of what they took is free.
#[test]
fn what_sessions_took_is_given_back_once_they_are_over() {
    let server = Legacy::new(Offer::tools(&["echo"]));
    let upstream = server.start();
    let daemon = start(&config(&upstream, "1h"));
    // What the first call takes is kept for those that follow.
    come_and_go(&daemon, 1);
    let (before, resident_before) = (daemon.anonymous_bytes(), daemon.resident_bytes());
    let sessions = sessions();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| come_and_go(&daemon, sessions / THREADS));
        }
    });
    let taken = daemon.anonymous_bytes() - before;
    let resident_full = daemon.resident_bytes();
    assert!(taken > 4 << 20, "{taken} bytes show nothing");
    daemon.reload(&config(&upstream, "1s"));
    eventually_within(PATIENCE, "the sessions expire", || server.client_sessions().is_empty().then_some(()));
    let resident = eventually_within(PATIENCE, "what they took is given back", || {
        let kept = daemon.anonymous_bytes().saturating_sub(before);
        let resident = daemon.resident_bytes();
        (kept < taken / 2 && 2 * resident <= 3 * resident_before).then_some(resident)
    });
    println!("{sessions} sessions: from {resident_before} bytes to {resident_full}, and back to {resident}");
}
