//! Several gateways that share a Redis: what goes on at another, and what becomes of calls when Redis does not answer.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::harness::{
    Authority, Certificates, Config, DEADLINE, Daemon, Folder, Gate, LEGACY_VERSION, Legacy, Offer, Redis,
    Reply, Request, Upstream, api_key, call, eventually, in_session, initialize, legacy, legacy_call, list,
    literal, open_session, post, write_secret,
};

/// What all replicas of a test have in common.
struct Site {
    redis: Redis,
    keys: Folder,
}

impl Site {
    fn new(redis: Redis) -> Self {
        let keys = Folder::new();
        std::fs::write(keys.path().join("session.key"), "7".repeat(64)).expect("a key file");
        Self { redis, keys }
    }

    /// `config` for one of several replicas; `lines` are further keys of `[shared]`.
    fn config(&self, config: Config, lines: &str) -> Config {
        self.config_of_sessions(config, "", lines)
    }

    fn config_of_sessions(&self, config: Config, session_lines: &str, lines: &str) -> Config {
        let key = self.keys.path().join("session.key");
        let session = format!("[session]\nkey = {{ file = \"{}\" }}\n{session_lines}", key.display());
        config.section(&session).section(&self.redis.section(lines)).admin()
    }

    /// A replica that has found the others.
    fn replica(&self, config: &Config) -> Daemon {
        let daemon = Daemon::start(&self.config(config.clone(), ""));
        is_connected(&daemon, true);
        daemon
    }
}

fn is_connected(daemon: &Daemon, expected: bool) {
    eventually("the connection is noticed", || {
        (daemon.find_metric("trunkline_shared_connected") == Some(u64::from(expected))).then_some(())
    });
    let told: serde_json::Value = serde_json::from_str(&daemon.get_admin("/status").text()).expect("JSON");
    let shared = &told["shared"];
    assert_eq!(shared["disconnected_since_s"].is_null(), shared["connected"] == true, "{shared:#}");
}

/// A server with sessions.
fn server() -> Legacy {
    Legacy::new(Offer::tools(&["echo"]).with_resources(&["test://a"]))
}

fn delete() -> Request {
    legacy("1", "ping", "{}").method("DELETE").body("")
}

#[test]
fn a_session_goes_on_at_another_replica() {
    let (site, server) = (Site::new(Redis::start()), server());
    let upstream = server.start();
    let config = Config::legacy(&upstream);
    let (mut one, other) = (site.replica(&config), site.replica(&config));
    let (session, _) = open_session(one.address(), LEGACY_VERSION);
    one.send(&in_session(&session, legacy("1", "logging/setLevel", r#"{"level":"error"}"#))).assert_ok();
    one.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    one.kill();
    other.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    let used = upstream.sessions_of_calls();
    assert_eq!((used.len(), &used[0]), (2, &used[1]));
}

#[test]
fn a_replica_that_starts_knows_the_sessions_of_the_others_from_its_first_call() {
    let (site, server) = (Site::new(Redis::start()), server());
    let upstream = server.start();
    let config = Config::legacy(&upstream);
    let one = site.replica(&config);
    let (session, _) = open_session(one.address(), LEGACY_VERSION);
    one.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    for _ in 0..5 {
        let other = Daemon::start(&site.config(config.clone(), "timeout = \"5s\""));
        other.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    }
    let used = upstream.sessions_of_calls();
    assert!(used.iter().all(|id| *id == used[0]), "{used:?}");
}

#[test]
fn replicas_that_take_turns_have_a_session_each_with_an_upstream_of_the_other_era() {
    let site = Site::new(Redis::start());
    let offer = Offer::tools(&["echo"]);
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::result(request, r#"{"resultType":"complete","content":[]}"#),
        _ => offer.answer(request),
    });
    let lines = "eras = [\"modern\"]\nsession_loss = \"end\"";
    let config = Config::new().upstream("up", upstream.address, lines);
    let (one, other) = (site.replica(&config), site.replica(&config));
    let (session, _) = open_session(one.address(), LEGACY_VERSION);
    for daemon in [&one, &other, &one, &other, &one] {
        daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    }
    let sessions = "trunkline_bridge_sessions{client_era=\"legacy\",upstream=\"up\"}";
    assert_eq!([&one, &other].map(|daemon| daemon.find_metric(sessions)), [Some(1), Some(1)]);
    one.send(&in_session(&session, delete()));
    eventually("nothing is kept", || {
        [&one, &other].iter().all(|daemon| daemon.find_metric(sessions) == Some(0)).then_some(())
    });
}

#[test]
fn replicas_that_take_turns_have_one_session_with_an_upstream() {
    let (site, server) = (Site::new(Redis::start()), server());
    let upstream = server.start();
    let config = Config::legacy(&upstream);
    let (one, other) = (site.replica(&config), site.replica(&config));
    let (session, _) = open_session(one.address(), LEGACY_VERSION);
    // Both know the session before it has any state.
    for daemon in [&one, &other] {
        daemon.send(&in_session(&session, legacy("1", "ping", "{}"))).assert_ok();
    }
    for daemon in [&other, &one, &other] {
        daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    }
    let used = upstream.sessions_of_calls();
    assert!(used.iter().all(|id| *id == used[0]), "{used:?}");

    // The upstream forgets it. Whoever notices first opens another, and that is everybody's.
    server.forget_sessions();
    for daemon in [&one, &other, &one] {
        daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    }
    let used_now = upstream.sessions_of_calls();
    let used_now: Vec<&String> = used_now.iter().filter(|id| **id != used[0]).collect();
    assert!(used_now.len() == 3 && used_now.iter().all(|id| *id == used_now[0]), "{used_now:?}");
}

#[test]
fn a_session_that_is_ended_at_one_replica_is_gone_at_the_others() {
    let (site, server) = (Site::new(Redis::start()), server());
    let upstream = server.start();
    let config = Config::legacy(&upstream);
    let (one, other) = (site.replica(&config), site.replica(&config));
    let (session, _) = open_session(one.address(), LEGACY_VERSION);
    for daemon in [&one, &other] {
        daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    }
    let delete = in_session(&session, delete());
    assert_eq!(one.send(&delete).status, 204);
    let told = Instant::now();
    eventually("the other replica knows", || {
        (other.send(&in_session(&session, legacy_call("1", "echo"))).status == 404).then_some(())
    });
    assert!(told.elapsed() < Duration::from_secs(1), "{:?}", told.elapsed());
    eventually("the upstream session is closed", || server.client_sessions().is_empty().then_some(()));

    // One that never heard of it learns it with its first request, and so does one that was not there.
    let late = site.replica(&config);
    assert_eq!(late.send(&in_session(&session, legacy_call("1", "echo"))).status, 404);
    assert_eq!(late.send(&delete).status, 404);
}

#[test]
fn what_was_ended_without_redis_is_told_once_it_is_there() {
    let (mut site, server) = (Site::new(Redis::start()), server());
    let upstream = server.start();
    let config = Config::legacy(&upstream);
    let (one, other) = (site.replica(&config), site.replica(&config));
    let (session, _) = open_session(one.address(), LEGACY_VERSION);
    other.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    site.redis.kill();
    is_connected(&one, false);
    assert_eq!(one.send(&in_session(&session, delete())).status, 204);
    other.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    site.redis.go_on();
    eventually("the other replica knows", || {
        (other.send(&in_session(&session, legacy_call("1", "echo"))).status == 404).then_some(())
    });
}

#[test]
fn what_redis_refused_for_a_moment_is_told_again() {
    let (site, server) = (Site::new(Redis::start()), server());
    let upstream = server.start();
    let daemon = site.replica(&Config::legacy(&upstream));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    site.redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(daemon.send(&in_session(&session, delete())).status, 204);
    let ended = || site.redis.command(&["KEYS", "*ended*"]).contains("ended");
    assert!(!ended());
    site.redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    eventually("it is told", || ended().then_some(()));
}

#[test]
fn two_sessions_with_an_upstream_that_redis_kept_apart_become_one() {
    let (site, server) = (Site::new(Redis::start()), server());
    let upstream = server.start();
    let config = Config::legacy(&upstream);
    let (one, other) = (site.replica(&config), site.replica(&config));
    let (session, _) = open_session(one.address(), LEGACY_VERSION);
    for daemon in [&one, &other] {
        daemon.send(&in_session(&session, legacy("1", "ping", "{}"))).assert_ok();
    }
    other.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    site.redis.command(&["ACL", "SETUSER", "default", "-hget", "-evalsha"]);
    one.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    site.redis.command(&["ACL", "SETUSER", "default", "+@all"]);
    one.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    let used = upstream.sessions_of_calls();
    assert_eq!((used.len(), used[0] == used[1], &used[2]), (3, false, &used[0]));
}

#[test]
fn what_redis_has_lost_comes_back() {
    for is_restarted in [true, false] {
        let (mut site, server) = (Site::new(Redis::start()), server());
        let upstream = server.start();
        let config = Config::legacy(&upstream);
        let (one, other) = (site.replica(&config), site.replica(&config));
        let (session, _) = open_session(one.address(), LEGACY_VERSION);
        one.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
        if is_restarted {
            site.redis.kill();
            is_connected(&one, false);
            site.redis.go_on();
        } else {
            site.redis.command(&["FLUSHALL"]);
            for daemon in [&one, &other] {
                daemon.wait_for_log(0, "it is noticed", |line| line.contains("has lost its data"));
            }
        }
        is_connected(&one, true);
        eventually("the state is there again", || {
            one.send(&in_session(&session, legacy("1", "ping", "{}"))).assert_ok();
            site.redis.everything().contains("\no:").then_some(())
        });
        is_connected(&other, true);
        other.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
        let used = upstream.sessions_of_calls();
        assert_eq!(used[0], used[1], "restarted: {is_restarted}");
    }
}

#[test]
fn nothing_that_identifies_stands_in_redis() {
    let (site, server) = (Site::new(Redis::start()), server());
    let upstream = server.start();
    let config =
        Config::legacy(&upstream).section(&api_key("somebody", "the-key")).endpoint("auth = [\"api_key\"]");
    let daemon = site.replica(&config);
    let authorized = |request: Request| request.with("Authorization", "Bearer the-key");
    let opened = daemon.send(&authorized(initialize("0", LEGACY_VERSION)));
    let session = opened.header("mcp-session-id").expect("a session").to_owned();
    for request in [
        legacy_call("1", "echo"),
        legacy("1", "logging/setLevel", r#"{"level":"error"}"#),
        legacy("1", "resources/subscribe", r#"{"uri":"test://a"}"#),
    ] {
        daemon.send(&authorized(in_session(&session, request))).assert_ok();
    }
    let everything = eventually("all of it is there", || {
        let everything = site.redis.everything();
        ["o:", "l", "r:"].iter().all(|field| everything.contains(&format!("\n{field}"))).then_some(everything)
    });
    let used = upstream.sessions_of_calls();
    for secret in [&*used[0], "somebody", "the-key", "test://a", "error", "127.0.0.1", "7777777", &session] {
        assert!(!everything.contains(secret), "{secret}: {everything}");
    }
    // Nothing of a session stays for ever.
    for key in site.redis.command(&["KEYS", "*"]).lines() {
        assert!(site.redis.command(&["TTL", key]).trim().parse::<i64>().expect("a time") > 0, "{key}");
    }
}

#[test]
fn replicas_with_other_keys_are_told_of() {
    let (site, server) = (Site::new(Redis::start()), server());
    let upstream = server.start();
    let config = Config::legacy(&upstream);
    let one = site.replica(&config);
    std::fs::write(site.keys.path().join("session.key"), "8".repeat(64)).expect("a key file");
    let other = site.replica(&config);
    for daemon in [&one, &other] {
        daemon
            .wait_for_log(0, "a warning of keys", |line| line.contains("a key that this one does not have"));
        eventually("it is counted", || {
            (daemon.find_metric("trunkline_shared_mismatched_replicas") == Some(1)).then_some(())
        });
    }
    let (session, _) = open_session(one.address(), LEGACY_VERSION);
    assert_eq!(other.send(&in_session(&session, legacy_call("1", "echo"))).status, 404);
    let status = one.get_admin("/status").json();
    let problems = status["problems"].as_array().expect("problems");
    let told = problems.iter().find(|problem| problem["runbook"] == "TrunklineSharedKeysDiffer");
    assert!(told.is_some_and(|problem| problem["level"] == "error"), "{status:#}");
}

#[test]
fn a_restart_in_order_is_no_more_replicas_than_there_are() {
    let (site, server) = (Site::new(Redis::start()), server());
    let upstream = server.start();
    let config = Config::legacy(&upstream);
    let (one, mut other) = (site.replica(&config), site.replica(&config));
    for restart in 0..3 {
        other.terminate();
        assert_eq!(other.wait_exit().code(), Some(0));
        one.wait_metric("trunkline_shared_replicas", 1);
        other = site.replica(&config);
        assert_eq!(other.metric("trunkline_shared_replicas"), 2, "{restart}");
        one.wait_metric("trunkline_shared_replicas", 2);
    }
    // One that was killed counts a little longer, which is not worth a word.
    other.kill();
    other = site.replica(&config);
    one.wait_metric("trunkline_shared_replicas", 2);
    let warns = |daemon: &Daemon| daemon.log().iter().any(|line| line.contains("more replicas share"));
    assert!(![&one, &other].into_iter().any(warns));
    let third = site.replica(&config);
    for daemon in [&one, &other, &third] {
        let line = daemon.wait_for_log(0, "that there are more", |line| line.contains("more replicas share"));
        assert!(line.contains("replicas=3"), "{line}");
    }
}

/// Two replicas whose sessions are idle after two seconds.
fn brief(site: &Site, upstream: &Upstream) -> (Daemon, Daemon) {
    let config = site.config_of_sessions(Config::legacy(upstream), "idle_timeout = \"2s\"", "");
    let daemons = (Daemon::start(&config), Daemon::start(&config));
    is_connected(&daemons.0, true);
    is_connected(&daemons.1, true);
    daemons
}

/// A session that is known at both replicas, and in use at neither.
fn known_to_both(one: &Daemon, other: &Daemon) -> String {
    let (session, _) = open_session(one.address(), LEGACY_VERSION);
    for daemon in [one, other, one] {
        daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    }
    session
}

fn deletes(upstream: &Upstream, server: &Legacy) -> usize {
    upstream.received_of("DELETE").iter().filter(|request| !server.is_own(request)).count()
}

/// Nobody ends the session for several times the time in which it is idle.
#[track_caller]
fn stays_open(upstream: &Upstream, server: &Legacy) {
    let until = Instant::now() + Duration::from_secs(9);
    while Instant::now() < until {
        assert_eq!(deletes(upstream, server), 0, "it is in use");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Somebody ends it, and nobody else does.
#[track_caller]
fn is_ended_once(upstream: &Upstream, server: &Legacy, daemons: &[&Daemon]) {
    eventually("it is closed", || (deletes(upstream, server) > 0).then_some(()));
    eventually("everybody forgets it", || {
        let is_gone = |daemon: &&Daemon| daemon.find_metric("trunkline_upstream_sessions") == Some(0);
        daemons.iter().all(is_gone).then_some(())
    });
    // Another DELETE would come of the next sweep.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!((deletes(upstream, server), server.client_sessions().len()), (1, 0));
}

#[test]
fn a_stream_that_is_held_at_one_replica_keeps_the_session_at_all() {
    let (site, server) = (Site::new(Redis::start()), server());
    let upstream = server.start();
    let (one, other) = brief(&site, &upstream);
    let session = known_to_both(&one, &other);
    let mut stream = one.connect();
    let get = legacy("1", "ping", "{}").method("GET").body("").set("Accept", "text/event-stream");
    stream.write(&in_session(&session, get.without("content-type")).bytes());
    assert_eq!(stream.head().status, 200);
    stays_open(&upstream, &server);
    drop(stream);
    is_ended_once(&upstream, &server, &[&one, &other]);
}

#[test]
fn a_long_call_at_one_replica_keeps_the_session_at_all() {
    let (site, server) = (Site::new(Redis::start()), server());
    let gate = Gate::default();
    let (answering, waiting) = (server.clone(), gate.clone());
    let upstream = Upstream::start(move |request| {
        let answer = answering.answer(request);
        let is_long = request.method() == "tools/call" && request.client_id() == "9";
        if is_long { Reply::default().wait(&waiting).then(answer) } else { answer }
    });
    let (one, other) = brief(&site, &upstream);
    let session = known_to_both(&one, &other);
    let mut call = one.connect();
    call.write(&in_session(&session, legacy("9", "tools/call", r#"{"name":"echo","arguments":{}}"#)).bytes());
    upstream.wait_for("tools/call", 4);
    stays_open(&upstream, &server);
    gate.open();
    call.response().assert_ok();
    is_ended_once(&upstream, &server, &[&one, &other]);
}

/// A client's requests reach whichever replica comes first.
#[test]
fn a_call_is_cancelled_through_any_replica() {
    let (site, server) = (Site::new(Redis::start()), server());
    let gate = Gate::default();
    let (answering, waiting) = (server.clone(), gate.clone());
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::default().wait(&waiting).then(answering.answer(request)),
        _ => answering.answer(request),
    });
    let config = Config::legacy(&upstream);
    let (one, other) = (site.replica(&config), site.replica(&config));
    let (session, _) = open_session(one.address(), LEGACY_VERSION);
    let (bystander, _) = open_session(one.address(), LEGACY_VERSION);
    let call = |session: &str, id: &str| {
        let mut connection = one.connect();
        let request = legacy(id, "tools/call", r#"{"name":"echo","arguments":{}}"#);
        connection.write(&in_session(session, request).bytes());
        connection
    };
    let mut calls = vec![call(&bystander, "\"a/1\"")];
    upstream.wait_for("tools/call", 1);
    calls.push(call(&session, "\"a/1\""));
    let called = upstream.wait_for("tools/call", 2);
    // Of another call, and of this one.
    for id in ["7", "\"a/1\""] {
        let note = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"enough"}}}}"#
        );
        assert_eq!(other.send(&in_session(&session, post(note))).status, 202);
    }
    let expected = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{},"reason":"enough"}}}}"#,
        called.id()
    );
    let cancelled = eventually("the upstream is told", || {
        let told = upstream.received_of("notifications/cancelled");
        told.into_iter().find(|told| told.body == expected.as_bytes())
    });
    assert_eq!(cancelled.headers("mcp-session-id"), called.headers("mcp-session-id"));
    gate.open();
    for mut call in calls {
        call.response().assert_ok();
    }
    let bystanders = upstream.received_of("tools/call").remove(0).id();
    let told = upstream.received_of("notifications/cancelled");
    assert!(!told.iter().any(|told| literal(&told.body, &["params", "requestId"]) == bystanders), "{told:?}");
}

#[test]
fn a_session_that_is_used_at_one_replica_outlives_a_moment_without_redis_at_the_other() {
    let (mut site, server) = (Site::new(Redis::start()), server());
    let upstream = server.start();
    let (one, other) = brief(&site, &upstream);
    let session = known_to_both(&one, &other);
    let mut stream = one.connect();
    let get = legacy("1", "ping", "{}").method("GET").body("").set("Accept", "text/event-stream");
    stream.write(&in_session(&session, get.without("content-type")).bytes());
    assert_eq!(stream.head().status, 200);
    // It is idle at the other by then, which knows that it is used.
    std::thread::sleep(Duration::from_secs(4));
    site.redis.kill();
    is_connected(&other, false);
    std::thread::sleep(Duration::from_millis(1500));
    site.redis.go_on();
    is_connected(&one, true);
    is_connected(&other, true);
    assert_eq!(deletes(&upstream, &server), 0);
    one.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    drop(stream);
}

#[test]
fn a_long_call_to_a_server_of_the_other_era_is_use_of_its_session() {
    let site = Site::new(Redis::start());
    let (offer, gate, is_long) = (Offer::tools(&["echo"]), Gate::default(), Arc::new(AtomicBool::new(false)));
    let (waiting, holds) = (gate.clone(), Arc::clone(&is_long));
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => {
            let result = Reply::result(request, r#"{"resultType":"complete","content":[]}"#);
            if holds.load(Ordering::SeqCst) { Reply::default().wait(&waiting).then(result) } else { result }
        }
        _ => offer.answer(request),
    });
    let config = Config::new().upstream("up", upstream.address, "eras = [\"modern\"]");
    let config = site.config_of_sessions(config, "idle_timeout = \"2s\"", "");
    let (one, other) = (Daemon::start(&config), Daemon::start(&config));
    is_connected(&one, true);
    is_connected(&other, true);
    let session = known_to_both(&one, &other);
    is_long.store(true, Ordering::SeqCst);
    let mut call = one.connect();
    call.write(&in_session(&session, legacy_call("1", "echo")).bytes());
    upstream.wait_for("tools/call", 4);
    let sessions = "trunkline_bridge_sessions{client_era=\"legacy\",upstream=\"up\"}";
    std::thread::sleep(Duration::from_secs(7));
    assert_eq!(one.find_metric(sessions), Some(1));
    gate.open();
    call.response().assert_ok();
    eventually("both leave it", || {
        [&one, &other].iter().all(|daemon| daemon.find_metric(sessions) == Some(0)).then_some(())
    });
}

#[test]
fn a_session_of_http_sse_is_in_use_as_long_as_its_stream_is_held() {
    let (site, server) = (Site::new(Redis::start()), server());
    let upstream = server.start();
    let config = Config::legacy(&upstream).endpoint("sse = true");
    let daemon = Daemon::start(&site.config_of_sessions(config, "idle_timeout = \"2s\"", ""));
    is_connected(&daemon, true);
    let mut stream = daemon.connect();
    let get = legacy("1", "ping", "{}").method("GET").body("").set("Accept", "text/event-stream");
    stream.write(&get.without("content-type").bytes());
    assert_eq!(stream.head().status, 200);
    let event = stream.event().expect("the address");
    let target = event.trim_end().trim_start_matches("event: endpoint\ndata: ").to_owned();
    for request in [initialize("0", "2024-11-05"), legacy_call("1", "echo")] {
        assert_eq!(daemon.send(&request.target(&target)).status, 202);
        assert!(stream.event().expect("an answer").contains("\"result\""));
    }
    stays_open(&upstream, &server);
    drop(stream);
    is_ended_once(&upstream, &server, &[&daemon]);
}

#[test]
fn a_session_that_its_client_ends_is_closed_once() {
    let (site, server) = (Site::new(Redis::start()), server());
    let upstream = server.start();
    let config = Config::legacy(&upstream);
    let (one, other) = (site.replica(&config), site.replica(&config));
    let session = known_to_both(&one, &other);
    let delete = legacy("1", "ping", "{}").method("DELETE").body("").without("content-type");
    assert!((200..300).contains(&one.send(&in_session(&session, delete)).status));
    is_ended_once(&upstream, &server, &[&one, &other]);
}

#[test]
fn a_session_that_ends_with_its_own_is_closed_once() {
    let (site, server) = (Site::new(Redis::start()), server());
    let upstream = server.start();
    let config =
        Config::new().upstream("up", upstream.address, "eras = [\"legacy\"]\nsession_loss = \"end\"");
    let config = site.config_of_sessions(config, "idle_timeout = \"2s\"", "");
    let (one, other) = (Daemon::start(&config), Daemon::start(&config));
    is_connected(&one, true);
    is_connected(&other, true);
    known_to_both(&one, &other);
    is_ended_once(&upstream, &server, &[&one, &other]);
}

#[test]
fn a_session_whose_replica_died_is_ended_by_another() {
    let (site, server) = (Site::new(Redis::start()), server());
    let upstream = server.start();
    let (mut one, other) = brief(&site, &upstream);
    let session = known_to_both(&one, &other);
    let mut stream = one.connect();
    let get = legacy("1", "ping", "{}").method("GET").body("").set("Accept", "text/event-stream");
    stream.write(&in_session(&session, get.without("content-type")).bytes());
    assert_eq!(stream.head().status, 200);
    one.kill();
    is_ended_once(&upstream, &server, &[&other]);
}

#[test]
fn a_list_that_is_invalid_at_one_replica_is_at_the_others() {
    let site = Site::new(Redis::start());
    let upstream = Upstream::start(|request| match request.method().as_str() {
        "tools/call" => Reply::error(request, "200 OK", -32602, "Unknown tool"),
        _ => Offer::tools(&["echo"]).answer(request),
    });
    let config = Config::transparent(&upstream);
    let (one, other) = (site.replica(&config), site.replica(&config));
    for daemon in [&one, &other] {
        daemon.send(&list("1", "tools/list")).assert_ok();
        daemon.send(&list("1", "tools/list")).assert_ok();
    }
    let before = upstream.received_of("tools/list").len();
    let _ = one.send(&call("1", "echo"));
    eventually("the other replica fetches it again", || {
        other.send(&list("1", "tools/list")).assert_ok();
        (upstream.received_of("tools/list").len() > before).then_some(())
    });
}

#[test]
fn without_redis_each_replica_goes_on_alone() {
    let (mut site, server) = (Site::new(Redis::not_started(&[])), server());
    let upstream = server.start();
    let config = Config::legacy(&upstream);
    let daemon = Daemon::start(&site.config(config.clone(), ""));
    daemon.wait_for_log(0, "a warning", |line| line.contains("no connection to what replicas share"));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let started = Instant::now();
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(daemon.get_admin("/readyz").status, 200);
    site.redis.go_on();
    is_connected(&daemon, true);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    let other = site.replica(&config);
    other.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    let used = upstream.sessions_of_calls();
    assert!(used.iter().all(|id| *id == used[0]), "{used:?}");
}

#[test]
fn passwords_are_needed_and_not_shown() {
    let (site, server) = (Site::new(Redis::start_with(&["--requirepass", "correct-horse"])), server());
    let upstream = server.start();
    let password = site.keys.path().join("password");
    let lines = format!("password = {{ file = \"{}\" }}", password.display());
    std::fs::write(&password, "wrong-donkey\n").expect("written");
    let daemon = Daemon::start(&site.config(Config::legacy(&upstream), &lines));
    daemon.wait_for_log(0, "a warning", |line| line.contains("no connection to what replicas share"));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    std::fs::write(&password, "correct-horse\n").expect("written");
    let other = Daemon::start(&site.config(Config::legacy(&upstream), &lines));
    is_connected(&other, true);
    // One with no more rights than the manual says.
    let rights = "~trunkline:* &trunkline:* +@read +@write +@scripting +@connection +@pubsub +time";
    let rights: Vec<&str> = rights.split(' ').collect();
    site.redis.command(&[&["ACL", "SETUSER", "gateway", "on", ">correct-horse"], &*rights].concat());
    let lines = format!("username = \"gateway\"\n{lines}");
    let config = Config::legacy(&upstream).section(&limit(10, "exact = true"));
    let restricted = Daemon::start(&site.config(config, &lines));
    is_connected(&restricted, true);
    restricted.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    assert_eq!(restricted.send(&in_session(&session, delete())).status, 204);
    assert_eq!(restricted.find_metric("trunkline_shared_failures_total{reason=\"refused\"}"), Some(0));
    eventually("the others know", || {
        (other.send(&in_session(&session, legacy_call("1", "echo"))).status == 404).then_some(())
    });
    for line in daemon.log().iter().chain(&other.log()) {
        assert!(!line.contains("donkey") && !line.contains("horse"), "{line}");
    }
}

#[test]
fn a_password_that_was_rotated_is_read_by_the_next_connection() {
    let (site, upstream) = (Site::new(Redis::start()), modern());
    let password = site.keys.path().join("password");
    let rotate = |word: &str, is_written: bool| {
        let shown = format!(">{word}");
        let user = ["ACL", "SETUSER", "gateway", "on", "resetpass", &shown, "~*", "&*", "+@all"];
        assert!(site.redis.command(&user).contains("OK"));
        if is_written {
            write_secret(&password, word);
        }
        site.redis.command(&["CLIENT", "KILL", "USER", "gateway"]);
    };
    rotate("donkey-1", true);
    let lines = format!("username = \"gateway\"\npassword = {{ file = \"{}\" }}", password.display());
    let config = site.config(Config::transparent(&upstream), &lines);
    let daemon = Daemon::start(&config);
    is_connected(&daemon, true);
    // The server first: until the file is replaced there is no connection. Nobody has to reload.
    let from = daemon.log().len();
    rotate("donkey-2", false);
    daemon.wait_for_log(from, "the old password is refused", |line| line.contains("WRONGPASS"));
    write_secret(&password, "donkey-2");
    is_connected(&daemon, true);
    // The file first: the connection goes on, and a reload tells what the next one is made with.
    let from = daemon.log().len();
    write_secret(&password, "donkey-3");
    daemon.reload(&config);
    let told = format!("shared, from its next connection on: password changed, {}", password.display());
    daemon.wait_for_log(from, "the password has changed", |line| line.contains(&told));
    daemon.wait_for_log(from, "a reload", |line| line.contains("reloaded"));
    is_connected(&daemon, true);
    let from = daemon.log().len();
    rotate("donkey-3", false);
    daemon.wait_for_log(from, "another connection", |line| line.contains("connected to what replicas share"));
    // The last reload took up all there was.
    let from = daemon.log().len();
    daemon.reload(&config);
    daemon.wait_for_log(from, "nothing is different", |line| {
        line.contains("reloaded") && line.contains("changes=0")
    });
    // Without its file, the old configuration stays in force.
    std::fs::remove_file(&password).expect("it goes");
    let from = daemon.log().len();
    daemon.reload(&config);
    let refused = daemon.wait_for_log(from, "a refusal", |line| line.contains("reloaded"));
    assert!(refused.contains("not reloaded") && refused.contains("[shared] password"), "{refused}");
    assert!(!daemon.log().iter().any(|line| line.contains("donkey")), "{:?}", daemon.log());
}

#[test]
fn authorities_of_a_redis_that_were_replaced_are_read_by_the_next_connection() {
    let (authority, files) = (Authority::new(), Certificates::new());
    let (redis, port) = Redis::start_tls(&files, &authority.issue(&["localhost"]));
    let ca = files.write("ca.pem", &Authority::new().pem);
    let section = format!("[shared]\nredis = \"rediss://localhost:{port}\"\nca = \"{}\"", ca.display());
    let daemon = Daemon::start(&Config::transparent(&modern()).section(&section).admin());
    daemon.wait_for_log(0, "a warning", |line| line.contains("no TLS"));
    files.write("ca.pem", &authority.pem);
    is_connected(&daemon, true);
    drop(redis);
}

#[test]
fn a_redis_is_reached_over_tls_only_if_it_can_be_believed() {
    let (authority, files) = (Authority::new(), Certificates::new());
    let (redis, port) = Redis::start_tls(&files, &authority.issue(&["localhost"]));
    let trusted = files.write("ca.pem", &authority.pem);
    let other = files.write("other.pem", &Authority::new().pem);
    let upstream = modern();
    for (host, ca, expected) in
        [("localhost", &trusted, true), ("127.0.0.1", &trusted, false), ("localhost", &other, false)]
    {
        let section = format!("[shared]\nredis = \"rediss://{host}:{port}\"\nca = \"{}\"", ca.display());
        let daemon = Daemon::start(&Config::transparent(&upstream).section(&section).admin());
        if !expected {
            daemon.wait_for_log(0, "a warning", |line| line.contains("no TLS"));
        }
        is_connected(&daemon, expected);
        daemon.send(&call("1", "echo")).assert_ok();
    }
    drop(redis);
}

/// Calls from several clients until told to stop; returns how long each took, sorted, and how many failed.
fn under_load(daemon: &Daemon, sessions: &[String], meanwhile: impl FnOnce()) -> (Vec<Duration>, usize) {
    let (is_over, failed) = (AtomicBool::new(false), AtomicUsize::new(0));
    let times = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for session in sessions {
            let (is_over, failed, times) = (&is_over, &failed, &times);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let started = Instant::now();
                    let response = daemon.send(&in_session(session, legacy_call("1", "echo")));
                    times.lock().unwrap().push(started.elapsed());
                    failed.fetch_add(usize::from(response.status != 200), Ordering::Relaxed);
                }
            });
        }
        meanwhile();
        is_over.store(true, Ordering::Relaxed);
    });
    let mut times = times.into_inner().unwrap();
    times.sort_unstable();
    (times, failed.into_inner())
}

#[test]
fn a_redis_that_hangs_or_dies_under_load_holds_up_nobody() {
    type Fault = (&'static str, fn(&mut Redis), fn(&mut Redis));
    let (site, server) = (Site::new(Redis::start()), server());
    let upstream = server.start();
    let daemon = site.replica(&Config::legacy(&upstream));
    let sessions: Vec<String> = (0..4).map(|_| open_session(daemon.address(), LEGACY_VERSION).0).collect();
    let site = Arc::new(Mutex::new(site));
    let faults: [Fault; 2] =
        [("hangs", |redis| redis.pause(), |redis| redis.resume()), ("dies", Redis::kill, Redis::go_on)];
    for (name, harm, mend) in faults {
        let (times, failed) = under_load(&daemon, &sessions, || {
            harm(&mut site.lock().unwrap().redis);
            is_connected(&daemon, false);
            // New sessions are met, and state changes, while nobody answers.
            let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
            daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
            assert_eq!(daemon.send(&in_session(&session, delete())).status, 204);
            mend(&mut site.lock().unwrap().redis);
            is_connected(&daemon, true);
        });
        let worst = times.last().copied().unwrap_or_default();
        let p99 = times[times.len() * 99 / 100];
        assert_eq!(failed, 0, "{name}");
        assert!(
            p99 < Duration::from_millis(600) && worst < Duration::from_secs(2),
            "{name}: {p99:?} {worst:?}"
        );
    }
}

/// A stranger in the place of Redis cannot fill the gateway's memory.
#[test]
fn a_reply_of_redis_that_does_not_end_is_not_read_on() {
    const REPLY_BYTES_MAX: usize = 16 << 20;
    let folder = Folder::new();
    let (socket, key) = (folder.path().join("redis"), folder.path().join("session.key"));
    std::fs::write(&key, "7".repeat(64)).expect("a key file");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let (sent, taken) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // A text, a line, and arrays in arrays without an end.
        let replies: [(&[u8], &[u8]); 3] = [(b"$4000000000\r\n", b"x"), (b"+", b"x"), (b"", b"*1\r\n")];
        for (stream, (start, more)) in listener.incoming().zip(replies) {
            let mut stream = stream.expect("a connection");
            let _ = stream.read(&mut [0; 4096]);
            let more = more.repeat(64 << 10);
            let (mut bytes, mut written) = (0, stream.write_all(start));
            while written.is_ok() && bytes < 4 * REPLY_BYTES_MAX {
                written = stream.write_all(&more);
                bytes += more.len();
            }
            let _ = sent.send(bytes);
        }
    });
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream)
        .section(&format!("[session]\nkey = {{ file = \"{}\" }}", key.display()))
        .section(&format!("[shared]\nredis = \"unix://{}\"", socket.display()))
        .admin();
    let daemon = Daemon::start(&config);
    for kind in ["a text", "a line", "arrays"] {
        let bytes = taken.recv_timeout(DEADLINE).expect("the connection is given up");
        assert!(bytes <= REPLY_BYTES_MAX + (1 << 20), "{kind}: {bytes}");
        daemon.send(&call("1", "echo")).assert_ok();
    }
    is_connected(&daemon, false);
}

/// A server without sessions.
fn modern() -> Upstream {
    Upstream::start(|request| Offer::tools(&["echo"]).answer(request))
}

/// A limit that is shared, for all calls to the endpoint.
fn limit(calls: usize, lines: &str) -> String {
    format!(
        "[[limit]]\nname = \"all\"\nby = [\"endpoint\"]\ncalls = {calls}\nperiod = \"1h\"\nshared = true\n{lines}"
    )
}

/// How many of so many calls at each daemon pass, made by several clients at the same time; the rest are refused with
/// `status`.
fn passes(daemons: &[&Daemon], calls_of_each: usize, status: u16) -> usize {
    const CLIENTS: usize = 4;
    let passed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for daemon in daemons {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    let mut connection = daemon.connect();
                    for _ in 0..calls_of_each / CLIENTS {
                        connection.write(&call("1", "echo").bytes());
                        match connection.response().status {
                            200 => passed.fetch_add(1, Ordering::Relaxed),
                            refused => {
                                assert_eq!(refused, status);
                                0
                            }
                        };
                    }
                });
            }
        }
    });
    passed.into_inner()
}

#[test]
fn replicas_together_keep_a_limit() {
    let (site, upstream) = (Site::new(Redis::start()), modern());
    let config = Config::transparent(&upstream).section(&limit(1000, ""));
    let (one, other) = (site.replica(&config), site.replica(&config));
    // One is called more than the other.
    let passed = passes(&[&one], 400, 429) + passes(&[&one, &other], 600, 429);
    assert!((950..=1050).contains(&passed), "{passed}");
    // What the limit is about cannot be read off its name.
    assert!(!site.redis.everything().contains("mcp"));
}

#[test]
fn an_exact_limit_is_kept_to_the_call() {
    let (site, upstream) = (Site::new(Redis::start()), modern());
    let config = Config::transparent(&upstream).section(&limit(10, "exact = true"));
    let (one, other) = (site.replica(&config), site.replica(&config));
    assert_eq!(passes(&[&one, &other], 40, 429), 10);
    let refused = one.send(&call("1", "echo"));
    let seconds: u64 = refused.header("retry-after").expect("when to come back").parse().expect("a number");
    assert!((300..=360).contains(&seconds), "{seconds}");
}

#[test]
fn without_redis_a_shared_limit_is_what_its_fallback_says() {
    for (fallback, is_exact, expected, status) in [
        ("local", false, 10, 429),
        ("local", true, 10, 429),
        ("allow", false, 40, 0),
        ("deny", false, 0, 503),
        ("deny", true, 0, 503),
    ] {
        let (mut site, upstream) = (Site::new(Redis::not_started(&[])), modern());
        let lines = format!("exact = {is_exact}\nfallback = \"{fallback}\"");
        let config = Config::transparent(&upstream).section(&limit(20, &lines));
        let daemon = Daemon::start(&site.config(config, ""));
        assert_eq!(passes(&[&daemon], 40, status), expected, "{fallback} {is_exact}");
        site.redis.go_on();
        is_connected(&daemon, true);
        let passed = passes(&[&daemon], 40, 429);
        assert!((20..=22).contains(&passed), "{fallback} {is_exact}: {passed}");
    }
}

#[test]
fn the_local_part_of_a_limit_begins_with_what_is_known() {
    for is_exact in [false, true] {
        let (mut site, upstream) = (Site::new(Redis::start()), modern());
        let config = Config::transparent(&upstream).section(&limit(100, &format!("exact = {is_exact}")));
        let daemon = site.replica(&config);
        let passed = passes(&[&daemon], 200, 429);
        assert!((100..=105).contains(&passed), "{is_exact}: {passed}");
        site.redis.kill();
        is_connected(&daemon, false);
        // Nothing was left of the whole, so that nothing is of a part.
        assert!(passes(&[&daemon], 40, 429) <= 1, "{is_exact}");
    }
}

#[test]
fn what_is_no_count_lifts_no_limit() {
    for (command, expected) in [("SET", 40..=42), ("LPUSH", 20..=24)] {
        let (site, upstream) = (Site::new(Redis::start()), modern());
        let daemon = site.replica(&Config::transparent(&upstream).section(&limit(40, "")));
        daemon.send(&call("1", "echo")).assert_ok();
        let key = eventually("it is counted", || {
            let keys = site.redis.command(&["KEYS", "*limit*"]);
            keys.lines().find(|line| !line.is_empty()).map(str::to_owned)
        });
        site.redis.command(&["DEL", &key]);
        site.redis.command(&[command, &key, "nonsense"]);
        let passed = passes(&[&daemon], 80, 429);
        assert!(expected.contains(&passed), "{command}: {passed}");
    }
}

#[test]
fn a_redis_that_hangs_holds_up_no_limited_call_for_long() {
    for is_exact in [false, true] {
        let (site, upstream) = (Site::new(Redis::start()), modern());
        let lines = format!("exact = {is_exact}\nfallback = \"allow\"");
        let config = Config::transparent(&upstream).section(&limit(1_000_000, &lines));
        let daemon = site.replica(&config);
        daemon.send(&call("1", "echo")).assert_ok();
        site.redis.pause();
        let mut times: Vec<Duration> = Vec::new();
        while times.len() < 200 {
            let started = Instant::now();
            daemon.send(&call("1", "echo")).assert_ok();
            times.push(started.elapsed());
        }
        times.sort_unstable();
        assert!(times[199] < Duration::from_secs(2) && times[190] < Duration::from_millis(100), "{times:?}");
        site.redis.resume();
        is_connected(&daemon, true);
        daemon.send(&call("1", "echo")).assert_ok();
    }
}
