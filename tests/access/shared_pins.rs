//! Pins of several gateways that share a Redis: one that is new goes by what the others have pinned, and nobody is fooled by
//! a Redis that is away, that has lost its data, or that somebody else writes.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::pins::{
    B, FULL, OFTEN, Tools, assert_unknown, assert_withheld, is_withheld, kept, listed, pins, run_ok,
    wait_pending, wait_withheld,
};
use crate::harness::{
    Config, Daemon, Folder, LEGACY_VERSION, Redis, Request, Upstream, call, eventually, in_session,
    legacy_call, open_session, side_by_side,
};

/// The Redis and the keys that all gateways of a test have in common.
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

    /// A gateway with this state directory.
    fn config(&self, upstream: &Upstream, mode: &str, state: &Folder) -> Config {
        let lines = format!("pins = \"{mode}\"\n{OFTEN}");
        let key = self.keys.path().join("session.key");
        let session = format!("[session]\nkey = {{ file = \"{}\" }}", key.display());
        let config = Config::new().upstream("up", upstream.address, &lines).section(&session);
        config.section(&self.redis.section("timeout = \"2s\"")).admin().top(&state.key())
    }

    /// The version of the record of `up`, if there is one.
    fn version(&self) -> Option<String> {
        let version = self.redis.command(&["HGET", &self.key()?, "v"]);
        Some(version.trim().to_owned()).filter(|version| !version.is_empty())
    }

    fn key(&self) -> Option<String> {
        let keys = self.redis.command(&["KEYS", "trunkline:pins:*"]);
        keys.lines().next().map(String::from)
    }

    /// Another socket of this Redis: what goes over it takes this long each way.
    fn slow_socket(&self, delay: Duration) -> PathBuf {
        let (socket, redis) = (self.keys.path().join("slow"), self.redis.socket());
        let listener = UnixListener::bind(&socket).expect("a socket");
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = UnixStream::connect(&redis) else { continue };
                let others = (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
                thread::spawn(move || pass_late(client, server, delay));
                thread::spawn(move || pass_late(others.1, others.0, delay));
            }
        });
        socket
    }

    fn wait_version(&self, fits: impl Fn(&str) -> bool) -> String {
        eventually("it is shared", || self.version().filter(|version| fits(version)))
    }
}

/// Passes on what comes, each piece this much later.
fn pass_late(mut from: UnixStream, mut to: UnixStream, delay: Duration) {
    let (sender, pieces) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        for (due, piece) in pieces {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&piece).is_err() {
                return;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if sender.send((Instant::now() + delay, bytes[..count].to_vec())).is_err() {
            return;
        }
    }
}

/// Calls of the tool `a`, by a client of each era.
fn calls(daemon: &Daemon) -> [Request; 2] {
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    [call("7", "a"), in_session(&session, legacy_call("7", "a"))]
}

/// Another description of the tool `a`.
fn changed() -> String {
    FULL.replace("does a", "does b")
}

fn upstream_pins(daemon: &Daemon) -> Value {
    daemon.get_admin("/status").json()["upstreams"][0]["pins"].clone()
}

fn has_problem(daemon: &Daemon, text: &str) -> bool {
    let status = daemon.get_admin("/status").json();
    let problems = status["problems"].as_array().expect("problems");
    problems.iter().any(|problem| {
        problem["level"] == "error" && problem["what"].as_str().is_some_and(|what| what.contains(text))
    })
}

#[test]
fn a_new_gateway_withholds_what_the_others_withhold() {
    side_by_side([("quarantine", vec!["b"]), ("block", vec![])], |(mode, left)| {
        let site = Site::new(Redis::start());
        let tools = Tools::new(&[FULL, B]);
        let (upstream, [old, new]) = (tools.start(), [Folder::new(), Folder::new()]);
        let one = Daemon::start(&site.config(&upstream, mode, &old));
        assert!(!is_withheld(&one, "a"));
        site.wait_version(|_| true);
        tools.set(&[&changed(), B]);
        wait_withheld(&one, "a", true);
        let count = upstream.received_of("tools/call").len();

        let config = site.config(&upstream, mode, &new);
        let two = Daemon::start(&config);
        // From the very first call and list on.
        assert_withheld(&two.send(&call("7", "a")));
        assert_eq!(listed(&two), left, "{mode}");
        assert_eq!(upstream.received_of("tools/call").len(), count, "{mode}: nothing reached the server");
        // It knows what it was, so that an operator sees the difference there.
        wait_pending(&new, "a");
        let shown = run_ok(&["show", "up", "a"], &config);
        assert!(shown.contains("-   \"description\": \"does a\""), "{shown}");
        let everything = site.redis.everything();
        assert!(!everything.contains("does a") && !everything.contains("inputSchema"), "{everything}");
    });
}

#[test]
fn an_approval_at_one_gateway_holds_at_all_and_at_those_that_come() {
    let site = Site::new(Redis::start());
    let tools = Tools::new(&[FULL, B]);
    let (upstream, [first, second, third]) = (tools.start(), [Folder::new(), Folder::new(), Folder::new()]);
    let one = Daemon::start(&site.config(&upstream, "block", &first));
    assert!(!is_withheld(&one, "a"));
    site.wait_version(|_| true);
    let config = site.config(&upstream, "block", &second);
    let mut two = Daemon::start(&config);
    tools.set(&[&changed(), B]);
    for daemon in [&one, &two] {
        wait_withheld(daemon, "a", true);
    }
    let hash = wait_pending(&second, "a");
    run_ok(&["approve", "up", "a", "--hash", &hash], &config);
    for daemon in [&two, &one] {
        wait_withheld(daemon, "a", false);
        eventually("it is listed", || (listed(daemon).len() == 2).then_some(()));
    }
    let said = one.wait_for_log(0, "the approval", |line| line.contains("as another gateway has it"));
    assert!(said.contains("act=\"follow\" by=\"another gateway\"") && said.contains(&hash), "{said}");
    kept(&first, |file| file["tools"][0]["approved"].as_array().is_some_and(|approved| approved.len() == 2));
    let late = Daemon::start(&site.config(&upstream, "block", &third));
    assert!(!is_withheld(&late, "a"));
    // Both definitions that were approved are, and no other is.
    tools.set(&[FULL, B]);
    wait_withheld(&late, "a", false);
    tools.set(&[&FULL.replace("does a", "does worse"), B]);
    for daemon in [&one, &late] {
        wait_withheld(daemon, "a", true);
    }
    two.kill();
    drop(two);
    let two = Daemon::start(&config);
    assert!(is_withheld(&two, "a"));
}

#[test]
fn of_two_gateways_that_see_a_tool_first_one_decides() {
    for _ in 0..5 {
        let site = Site::new(Redis::start());
        let (evil, passed) = (changed(), AtomicUsize::new(0));
        side_by_side([FULL, &evil], |definition| {
            let upstream = Tools::new(&[definition, B]).start();
            let state = Folder::new();
            let daemon = Daemon::start(&site.config(&upstream, "quarantine", &state));
            passed.fetch_add(usize::from(!is_withheld(&daemon, "a")), Ordering::SeqCst);
            assert!(!is_withheld(&daemon, "b"));
            kept(&state, |file| file["complete"] == true);
        });
        assert_eq!(passed.into_inner(), 1, "one of the two definitions is called");
    }
}

#[test]
fn a_gateway_without_pins_trusts_nothing_while_redis_is_away() {
    let mut site = Site::new(Redis::not_started(&[]));
    let tools = Tools::new(&[FULL, B]);
    let (upstream, state, other) = (tools.start(), Folder::new(), Folder::new());
    let daemon = Daemon::start(&site.config(&upstream, "quarantine", &state));
    let warning = Daemon::start(&site.config(&upstream, "warn", &other));
    for (call, status) in calls(&daemon).iter().zip([503, 200]) {
        assert_unknown(&daemon.send(call), status);
    }
    assert_unknown(&daemon.send(&call("7", "b")), 503);
    assert!(listed(&daemon).is_empty());
    daemon.wait_for_log(0, "a warning", |line| line.contains("is not known, and nothing was kept here"));
    assert_eq!(pins(&daemon, "unasked"), 1);
    assert_eq!(upstream_pins(&daemon)["unasked"], true);
    assert!(has_problem(&daemon, "no tool is trusted"));
    assert!(upstream.received_of("tools/call").is_empty());
    // This mode withholds nothing.
    assert_eq!((listed(&warning), pins(&warning, "unasked")), (vec!["a".to_owned(), "b".to_owned()], 1));
    assert!(!is_withheld(&warning, "a"));

    site.redis.go_on();
    // The others, if there were any, get some seconds to write back what they know.
    for daemon in [&daemon, &warning] {
        daemon.wait_metric("trunkline_shared_connected", 1);
    }
    for daemon in [&daemon, &warning] {
        wait_withheld(daemon, "a", false);
        eventually("both are listed", || (listed(daemon).len() == 2).then_some(()));
        eventually("it is known", || (pins(daemon, "unasked") == 0).then_some(()));
    }
    assert_eq!(upstream_pins(&daemon)["unasked"], false);
}

#[test]
fn calls_of_a_new_gateway_wait_for_a_redis_that_is_slow_at_first() {
    side_by_side(["quarantine", "block"], |mode| {
        let site = Site::new(Redis::start());
        let tools = Tools::new(&[FULL, B]);
        let (upstream, state, new) = (tools.start(), Folder::new(), Folder::new());
        let config = site.config(&upstream, mode, &state);
        let one = Daemon::start(&config);
        assert!(!is_withheld(&one, "a"));
        tools.set(&[&changed(), B]);
        wait_withheld(&one, "a", true);
        let before = site.wait_version(|_| true);
        run_ok(&["approve", "up", "a", "--hash", &wait_pending(&state, "a")], &config);
        site.wait_version(|version| version != before);

        site.redis.pause();
        // It serves after this time, and its first attempt to connect may take longer.
        let slow = site.config(&upstream, mode, &new).to_string().replace("\"2s\"", "\"1s\"");
        let two = Daemon::start(&slow);
        let mut waiting: Vec<_> = calls(&two)
            .map(|call| {
                let mut connection = two.connect();
                connection.write(&call.bytes());
                connection
            })
            .into();
        eventually("they are connected", || {
            (two.metric("trunkline_connections_open") >= waiting.len() as u64).then_some(())
        });
        assert_eq!(pins(&two, "unasked"), 0, "{mode}");
        site.redis.resume();
        for connection in &mut waiting {
            connection.response().assert_ok();
        }
    });
}

#[test]
fn upstreams_do_not_wait_for_the_pins_of_each_other() {
    const UPSTREAMS: u32 = 48;
    const EACH_WAY: Duration = Duration::from_millis(250);
    let site = Site::new(Redis::start());
    let upstream = Tools::new(&[FULL, B]).start();
    let config = |redis: &str, state: &Folder| {
        let key = site.keys.path().join("session.key");
        let session = format!("[session]\nkey = {{ file = \"{}\" }}", key.display());
        let config = Config::new().section(&session).section(redis).admin().top(&state.key());
        (0..UPSTREAMS).fold(config, |config, number| {
            config.upstream(&format!("up{number}"), upstream.address, "pins = \"quarantine\"")
        })
    };
    let [first, second] = [Folder::new(), Folder::new()];
    let one = Daemon::start(&config(&site.redis.section("timeout = \"2s\""), &first));
    eventually("all are shared", || {
        let keys = site.redis.command(&["KEYS", "trunkline:pins:*"]);
        (keys.lines().filter(|line| line.contains("pins:")).count() == UPSTREAMS as usize).then_some(())
    });
    drop(one);
    let slow =
        format!("[shared]\nredis = \"unix://{}\"\ntimeout = \"2s\"", site.slow_socket(EACH_WAY).display());
    let begun = Instant::now();
    let two = Daemon::start(&config(&slow, &second));
    two.send(&call("7", "up0__a")).assert_ok();
    assert!(begun.elapsed() < EACH_WAY * UPSTREAMS, "they are read one after another");
}

#[test]
fn a_gateway_with_pins_goes_on_with_them_while_redis_is_away() {
    let mut site = Site::new(Redis::start());
    let tools = Tools::new(&[FULL, B]);
    let (upstream, state) = (tools.start(), Folder::new());
    let config = site.config(&upstream, "quarantine", &state);
    let mut daemon = Daemon::start(&config);
    assert!(!is_withheld(&daemon, "a"));
    kept(&state, |file| file["complete"] == true && file["began"].is_u64());
    site.redis.kill();
    daemon.kill();
    drop(daemon);
    let daemon = Daemon::start(&config);
    assert!(!is_withheld(&daemon, "a") && !is_withheld(&daemon, "b"));
    tools.set(&[&changed(), B]);
    wait_withheld(&daemon, "a", true);
    // An approval that is given meanwhile holds, and is told later.
    let hash = wait_pending(&state, "a");
    run_ok(&["approve", "up", "a", "--hash", &hash], &config);
    wait_withheld(&daemon, "a", false);
    site.redis.go_on();
    site.wait_version(|_| true);
    let new = Daemon::start(&site.config(&upstream, "quarantine", &Folder::new()));
    assert!(!is_withheld(&new, "a"));
}

#[test]
fn what_redis_has_lost_is_written_back_and_no_change_is_trusted() {
    let site = Site::new(Redis::start());
    let tools = Tools::new(&[FULL, B]);
    let (upstream, [first, second]) = (tools.start(), [Folder::new(), Folder::new()]);
    let one = Daemon::start(&site.config(&upstream, "quarantine", &first));
    assert!(!is_withheld(&one, "a"));
    let before = site.wait_version(|_| true);
    site.redis.command(&["FLUSHALL"]);
    let began = &before[..16];
    site.wait_version(|version| version.starts_with(began) && version != before);
    one.wait_for_log(0, "that it was lost", |line| {
        line.contains("WARN") && line.contains("Redis has lost what gateways share of pins")
    });

    // All is lost, and the only gateway that is asked is new.
    let mut two = None;
    one.paused(|| {
        site.redis.command(&["FLUSHALL"]);
        tools.set(&[&changed(), B]);
        let daemon = Daemon::start(&site.config(&upstream, "quarantine", &second));
        assert!(!is_withheld(&daemon, "a"), "nobody knows better");
        site.wait_version(|version| !version.starts_with(began));
        two = Some(daemon);
    });
    let two = two.expect("it was started");
    wait_withheld(&one, "a", true);
    wait_withheld(&two, "a", true);
    site.wait_version(|version| version.starts_with(began));
}

#[test]
fn an_older_record_that_is_put_back_takes_no_approval_back() {
    let site = Site::new(Redis::start());
    let tools = Tools::new(&[FULL, B]);
    let (upstream, state) = (tools.start(), Folder::new());
    let config = site.config(&upstream, "quarantine", &state);
    let one = Daemon::start(&config);
    assert!(!is_withheld(&one, "a"));
    let old = site.wait_version(|_| true);
    let key = site.key().expect("a record");
    site.redis.command(&["COPY", &key, "old"]);
    tools.set(&[&changed(), B]);
    let hash = wait_pending(&state, "a");
    run_ok(&["approve", "up", "a", "--hash", &hash], &config);
    let new = site.wait_version(|version| version != old);
    site.redis.command(&["COPY", "old", &key, "REPLACE"]);
    site.wait_version(|version| version != old && version != new);
    assert!(!is_withheld(&one, "a"));
    let two = Daemon::start(&site.config(&upstream, "quarantine", &Folder::new()));
    assert!(!is_withheld(&two, "a"));
}

/// A gateway that is new makes as many changes of an older record as there were since.
#[test]
fn what_another_made_of_an_older_record_takes_no_pin_back() {
    let c = B.replace("\"b\"", "\"c\"");
    let evil = c.replace("\"object\"", "\"object\",\"title\":\"evil\"");
    side_by_side([true, false], |is_restarted| {
        let site = Site::new(Redis::start());
        let tools = Tools::new(&[FULL, B]);
        let (upstream, [first, second]) = (tools.start(), [Folder::new(), Folder::new()]);
        let config = site.config(&upstream, "quarantine", &first);
        let mut one = Daemon::start(&config);
        assert!(!is_withheld(&one, "a"));
        let old = site.wait_version(|_| true);
        let key = site.key().expect("a record");
        site.redis.command(&["COPY", &key, "old"]);
        tools.set(&[FULL, B, &c]);
        wait_withheld(&one, "c", false);
        let new = site.wait_version(|version| version != old);
        kept(&first, |file| file["version"] == new);
        tools.set(&[FULL, B, &evil]);
        wait_withheld(&one, "c", true);

        let mut two = None;
        let mut fork = || {
            site.redis.command(&["COPY", "old", &key, "REPLACE"]);
            let daemon = Daemon::start(&site.config(&upstream, "quarantine", &second));
            assert!(!is_withheld(&daemon, "c"), "nobody knows better");
            let made = site.wait_version(|version| version != old);
            assert_eq!((&made[..32], made == new), (&new[..32], false), "as many changes");
            two = Some(daemon);
        };
        if is_restarted {
            one.kill();
            fork();
            one = Daemon::start(&config);
        } else {
            one.paused(&mut fork);
        }
        let two = two.expect("it was started");
        site.wait_version(|version| version[..32] > new[..32]);
        for daemon in [&one, &two] {
            wait_withheld(daemon, "c", true);
        }
        assert!(is_withheld(&one, "c") && !is_withheld(&one, "b"));
    });
}

#[test]
fn a_record_of_other_gateways_with_the_same_session_key_is_refused() {
    let site = Site::new(Redis::start());
    let tools = Tools::new(&[&changed(), B]);
    let (upstream, [first, second]) = (tools.start(), [Folder::new(), Folder::new()]);
    let staging = site.config(&upstream, "quarantine", &first).to_string();
    let staging = Daemon::start(&staging.replace("timeout =", "prefix = \"staging:\"\ntimeout ="));
    assert!(!is_withheld(&staging, "a"));
    let found = eventually("it is shared", || {
        let keys = site.redis.command(&["KEYS", "staging:pins:*"]);
        keys.lines().find(|found| found.starts_with("staging:")).map(String::from)
    });
    let key = found.replace("staging:", "trunkline:");
    site.redis.command(&["COPY", &found, &key]);
    let one = Daemon::start(&site.config(&upstream, "quarantine", &second));
    assert_unknown(&one.send(&call("7", "a")), 503);
    assert_eq!(pins(&one, "unshared"), 1);
    assert!(has_problem(&one, "the record in Redis is refused"));
}

#[test]
fn a_record_that_somebody_else_wrote_is_refused() {
    let move_text = "redis.call('HSET', KEYS[1], 'r', redis.call('HGET', KEYS[2], 'r'))";
    let move_all = "redis.call('DEL', KEYS[1]) redis.call('COPY', KEYS[2], KEYS[1])";
    // A gateway that has pins reads the record again only where its version is another one.
    let tampered = [
        ("another text", "redis.call('HSET', KEYS[1], 'r', 'x')", false),
        ("no text", "redis.call('HDEL', KEYS[1], 'r')", false),
        ("another version", "redis.call('HSET', KEYS[1], 'v', string.rep('f', 48))", true),
        ("no version", "redis.call('HSET', KEYS[1], 'v', 'x')", true),
        ("a version that is no text", "redis.call('HSET', KEYS[1], 'v', string.rep('\\255', 48))", true),
        ("the text of another upstream", move_text, false),
        ("the record of another upstream", move_all, true),
        ("another kind", "redis.call('SET', KEYS[1], 'x')", true),
        ("a text that is too long", "redis.call('HSET', KEYS[1], 'r', string.rep('x', 3000000))", false),
    ];
    side_by_side(tampered, |(name, script, is_seen)| {
        let site = Site::new(Redis::start());
        let tools = Tools::new(&[FULL, B]);
        let (upstream, [first, second]) = (tools.start(), [Folder::new(), Folder::new()]);
        let with = |state: &Folder| site.config(&upstream, "quarantine", state);
        let one = Daemon::start(&with(&first));
        assert!(!is_withheld(&one, "a"));
        site.wait_version(|_| true);
        let key = site.key().expect("a record");
        let other = "trunkline:other";
        // One that the same gateways sealed, of an upstream that does not list `a`.
        let alone = Tools::new(&[B]).start();
        let decoy = with(&Folder::new())
            .to_string()
            .replace("\"up\"", "\"decoy\"")
            .replace("[upstream.up]", "[upstream.decoy]");
        let decoy = decoy.replace(&upstream.address.to_string(), &alone.address.to_string());
        let decoy = Daemon::start(&decoy);
        let found = eventually("the other is shared", || {
            let keys = site.redis.command(&["KEYS", "trunkline:pins:*"]);
            keys.lines().find(|found| *found != key).map(String::from)
        });
        site.redis.command(&["COPY", &found, other]);
        drop(decoy);
        let answer = site.redis.command(&["EVAL", &format!("{script} return 1"), "2", &key, other]);
        assert_eq!(answer.trim(), "1", "{name}");

        tools.set(&[&changed(), B]);
        let two = Daemon::start(&with(&second));
        for tool in ["a", "b"] {
            assert_unknown(&two.send(&call("7", tool)), 503);
        }
        for daemon in [Some(&two), is_seen.then_some(&one)].into_iter().flatten() {
            daemon.wait_for_log(0, "that it is refused", |line| {
                line.contains("ERROR") && line.contains("cannot be shared") && line.contains(&key)
            });
            eventually("it is told", || (pins(daemon, "unshared") == 1).then_some(()));
            assert!(has_problem(daemon, "the record in Redis is refused"), "{name}");
        }
        // A gateway with pins goes on with them.
        wait_withheld(&one, "a", true);
        assert!(!is_withheld(&one, "b"), "{name}");
        assert!(is_withheld(&two, "b"), "{name}");

        site.redis.command(&["DEL", &key]);
        wait_withheld(&two, "b", false);
        // Nothing was trusted meanwhile.
        assert_withheld(&two.send(&call("7", "a")));
        for daemon in [&one, &two] {
            eventually("all is well", || (pins(daemon, "unshared") == 0).then_some(()));
        }
    });
}

#[test]
fn a_record_of_gateways_with_another_session_key_is_refused() {
    let site = Site::new(Redis::start());
    let upstream = Tools::new(&[FULL, B]).start();
    let one = Daemon::start(&site.config(&upstream, "quarantine", &Folder::new()));
    assert!(!is_withheld(&one, "a"));
    let version = site.wait_version(|_| true);
    std::fs::write(site.keys.path().join("session.key"), "8".repeat(64)).expect("a key file");
    let two = Daemon::start(&site.config(&upstream, "quarantine", &Folder::new()));
    assert_unknown(&two.send(&call("7", "a")), 503);
    assert_eq!((pins(&two, "unshared"), pins(&one, "unshared")), (1, 0));
    assert_eq!(site.version().as_deref(), Some(&*version), "it is left as it is");
}

#[test]
fn definitions_that_take_too_much_room_are_not_shared_and_not_trusted_unshared() {
    let site = Site::new(Redis::start());
    let long = FULL.replace("does a", &"x".repeat(1 << 20));
    let tools = Tools::new(&[FULL, B]);
    let (upstream, [first, second]) = (tools.start(), [Folder::new(), Folder::new()]);
    let one = Daemon::start(&site.config(&upstream, "quarantine", &first));
    assert!(!is_withheld(&one, "b"));
    site.wait_version(|_| true);
    let other = long.replace("\"a\"", "\"c\"");
    tools.set(&[
        FULL,
        B,
        &long.replace("\"name\":\"a\"", "\"name\":\"d\""),
        &other.replace("xx", "xy"),
        &other,
    ]);
    one.wait_for_log(0, "that it is too long", |line| line.contains("it takes more than 2097152 bytes"));
    eventually("it is told", || (pins(&one, "unshared") == 1).then_some(()));
    // Others still go by what was shared before.
    tools.set(&[&changed(), B]);
    let two = Daemon::start(&site.config(&upstream, "quarantine", &second));
    assert!(is_withheld(&two, "a") && !is_withheld(&two, "b"));
    two.send(&call("7", "b")).assert_ok();
}
