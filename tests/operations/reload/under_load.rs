//! Clients of every kind, while the configuration changes about them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{assert_reloads, upstream_of};
use crate::harness::{
    Child, Config, Connection, Daemon, Gate, LEGACY_VERSION, Legacy, Listening, META, Offer, Reply, Request,
    Upstream, api_key, body, call, eventually, in_session, initialize, legacy, modern, post,
};

const TOOLS: &str = r#"{"toolsListChanged":true}"#;

/// As the holder of the key that no reload touches.
fn of_ci(request: Request) -> Request {
    request.with("Authorization", "Bearer ci-key")
}

fn legacy_call(session: &str, path: &str) -> Request {
    let call = legacy("1", "tools/call", r#"{"name":"echo","arguments":{}}"#);
    of_ci(in_session(session, call).target(path))
}

fn open(daemon: &Daemon, path: &str) -> String {
    let response = daemon.send(&of_ci(initialize("0", LEGACY_VERSION).target(path)));
    response.assert_ok();
    response.header("mcp-session-id").expect("a session").to_owned()
}

/// A server of each kind.
struct Servers {
    modern: Upstream,
    legacy: Legacy,
    legacy_at: Upstream,
    listening: Listening,
    slow: Upstream,
    child: Child,
    gate: Gate,
}

impl Servers {
    fn start() -> Self {
        let gate = Gate::default();
        let held = gate.clone();
        let legacy = Legacy::new(Offer::tools(&["echo"])).with_streams();
        Self {
            modern: Upstream::with_tools(&["echo"]),
            legacy_at: legacy.start(),
            legacy,
            listening: Listening::start(Offer::tools(&["echo"])),
            slow: Upstream::calling(move |_| {
                let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#;
                let end = r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete"}}"#;
                Reply::stream().event(progress).wait(&held).event(end).end()
            }),
            child: Child::new(&[]),
            gate,
        }
    }

    /// All of them, with these keys for each.
    fn config(&self, lines: &str) -> Config {
        let one = |name: &str, keys: String, eras: &str| {
            format!(
                "[[endpoint]]\npath = \"/{name}\"\nupstreams = [\"{name}\"]\n\
                 [upstream.{name}]\n{keys}\neras = [\"{eras}\"]\n{lines}"
            )
        };
        let url = |upstream: &Upstream| format!("url = \"http://{}/mcp\"", upstream.address);
        Config::transparent(&self.modern)
            .section(&api_key("ci", "ci-key"))
            .section(&one("old", url(&self.legacy_at), "legacy"))
            .section(&one("listening", url(&self.listening.upstream), "modern"))
            .section(&one("slow", url(&self.slow), "modern"))
            .section(&one("child", self.child.keys(""), "legacy"))
    }
}

/// What clients hold open, each opened before the first reload.
struct Held {
    stream: Connection,
    subscription: Connection,
    reply: Connection,
    old: String,
    child: String,
    /// Which process it was.
    child_said: String,
}

impl Held {
    fn open(daemon: &Daemon) -> Self {
        let (old, child) = (open(daemon, "/old"), open(daemon, "/child"));
        daemon.send(&legacy_call(&old, "/old")).assert_ok();
        let child_said = daemon.send(&legacy_call(&child, "/child")).text();
        let get = post("").method("GET").without("Content-Type").set("Accept", "text/event-stream");
        let mut stream = daemon.connect();
        stream.write(&of_ci(in_session(&old, get.target("/old"))).bytes());
        assert_eq!(stream.head().status, 200);
        let params = format!(r#"{{"notifications":{TOOLS},"_meta":{META}}}"#);
        let listen = modern("subscriptions/listen", None, body("\"s\"", "subscriptions/listen", &params));
        let mut subscription = daemon.connect();
        subscription.write(&of_ci(listen.target("/listening")).bytes());
        assert_eq!(subscription.head().status, 200);
        expect(&mut subscription, "acknowledged");
        let mut reply = daemon.connect();
        reply.write(&of_ci(call("7", "echo").target("/slow")).bytes());
        assert_eq!(reply.head().status, 200);
        expect(&mut reply, "progress");
        Self { stream, subscription, reply, old, child, child_said }
    }

    /// All of it goes on.
    fn assert_goes_on(&mut self, daemon: &Daemon, servers: &Servers) {
        let note =
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"m"}}"#;
        servers.legacy.stream(1).event(note);
        expect(&mut self.stream, "notifications/message");
        servers.listening.tools_stream().notify("tools/list_changed", "");
        expect(&mut self.subscription, "tools/list_changed");
        daemon.send(&legacy_call(&self.old, "/old")).assert_ok();
        assert_eq!(daemon.send(&legacy_call(&self.child, "/child")).text(), self.child_said);
        assert_eq!(servers.legacy.client_sessions().len(), 1, "the session at the upstream is the same");
    }
}

/// Waits for an event that holds `what`.
#[track_caller]
fn expect(stream: &mut Connection, what: &str) {
    while !stream.event().unwrap_or_else(|| panic!("the stream ended before {what}")).contains(what) {}
}

/// Runs `work` while two clients call without a pause, each over one connection. Every call must succeed.
fn while_calling(daemon: &Daemon, sessions: [(&str, &str); 1], work: impl FnOnce()) {
    let (stop, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    let modern = of_ci(call("1", "echo")).bytes();
    let requests: Vec<Vec<u8>> =
        sessions.iter().map(|(session, path)| legacy_call(session, path).bytes()).chain([modern]).collect();
    std::thread::scope(|scope| {
        let clients: Vec<_> = requests
            .iter()
            .map(|request| {
                let (stop, calls) = (&stop, &calls);
                scope.spawn(move || {
                    let mut connection = daemon.connect();
                    while !stop.load(Ordering::Relaxed) {
                        connection.write(request);
                        connection.response().assert_ok();
                        calls.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let before = calls.load(Ordering::Relaxed);
        if result.is_ok() {
            eventually("calls go on", || (calls.load(Ordering::Relaxed) > before + 10).then_some(()));
        }
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("every call succeeds");
        }
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn what_does_not_concern_a_client_it_never_notices() {
    let servers = Servers::start();
    let config = servers.config("");
    let daemon = Daemon::start(&config);
    let mut held = Held::open(&daemon);
    let other = Upstream::with_tools(&["echo"]);
    let rule = "[[rule]]\nname = \"dev\"\neffect = \"deny\"\nprincipals = [\"dev\"]\ntools = [\"*\"]";
    let changes = [
        config.clone().limits("headers_max = 99"),
        config.clone().section(&upstream_of("more", other.address)),
        config.clone().section(&api_key("dev", "dev-key")),
        config.clone().section(rule),
        config.clone().section("[log]\nlevel = \"debug\""),
        config.clone().section("[[limit]]\nname = \"dev\"\nby = [\"principal\"]\ncalls = 1\nperiod = \"1s\"\nprincipals = [\"dev\"]"),
        config.clone().section("[session]\nidle_timeout = \"29m\""),
        config.clone(),
    ];
    let old = held.old.clone();
    while_calling(&daemon, [(&old, "/old")], || {
        for change in &changes {
            assert_reloads(&daemon, change);
            held.assert_goes_on(&daemon, &servers);
        }
    });
    servers.gate.open();
    expect(&mut held.reply, "\"id\":7");
}

#[test]
fn what_its_upstream_is_allowed_and_what_others_are_told_ends_nothing() {
    let servers = Servers::start();
    let daemon = Daemon::start(&servers.config(""));
    let mut held = Held::open(&daemon);
    let old = held.old.clone();
    let of_endpoints = servers.config("").to_string().replace(
        "path = \"/",
        "legacy_errors = \"http\"\nprefix_elicitations = true\nlist_page_bytes_max = \"1MiB\"\n\
         instructions = \"Think.\"\npath = \"/",
    );
    let of_upstreams = [
        "response_timeout = \"40s\"",
        "response_timeout = \"41s\"",
        "list_ttl_min = \"1m\"",
        "stale_while_revalidate = \"1m\"",
        "stale_if_error = \"2h\"",
        "trust_public_cache = true",
        "pins_age_max = \"2m\"",
    ];
    let configs = of_upstreams.map(|line| servers.config(line).to_string());
    while_calling(&daemon, [(&old, "/old")], || {
        for config in configs.iter().chain([&of_endpoints]) {
            assert_reloads(&daemon, config);
            held.assert_goes_on(&daemon, &servers);
        }
    });
    servers.gate.open();
    expect(&mut held.reply, "\"id\":7");
}

#[test]
fn an_upstream_that_is_added_to_an_endpoint_is_heard_on_the_streams_that_are_open() {
    let first = Listening::start(Offer::tools(&["one"]));
    let second = Listening::start(Offer::tools(&["two"]));
    let config = |members: &[(&str, &Listening)]| {
        let config = Config::new().endpoint("names = \"prefixed\"");
        members.iter().fold(config, |config, (name, it)| config.upstream(name, it.upstream.address, ""))
    };
    let (one, two) = (("one", &first), ("two", &second));
    let daemon = Daemon::start(&config(&[one]));
    let params = format!(r#"{{"notifications":{TOOLS},"_meta":{META}}}"#);
    let listen = modern("subscriptions/listen", None, body("\"s\"", "subscriptions/listen", &params));
    let mut subscription = daemon.connect();
    subscription.write(&listen.bytes());
    assert_eq!(subscription.head().status, 200);
    expect(&mut subscription, "acknowledged");
    assert_reloads(&daemon, &config(&[one, two]));
    // Its lists are longer now.
    expect(&mut subscription, "tools/list_changed");
    for upstream in [&second, &first] {
        upstream.tools_stream().notify("tools/list_changed", "");
        expect(&mut subscription, "tools/list_changed");
    }
    // Without it again, what is open would promise too much.
    assert_reloads(&daemon, &config(&[one]));
    expect(&mut subscription, "\"id\":\"s\"");
}

#[test]
fn an_upstream_that_is_added_to_an_endpoint_leaves_the_streams_of_sessions_open() {
    let servers = [(); 3].map(|()| Legacy::new(Offer::tools(&["echo"])).with_streams().start());
    let config = |count: usize| {
        let config = Config::new().endpoint("names = \"prefixed\"");
        let members = ["one", "two", "three"].into_iter().zip(&servers).take(count);
        members.fold(config, |config, (name, it)| config.upstream(name, it.address, "eras = [\"legacy\"]"))
    };
    let daemon = Daemon::start(&config(1));
    let response = daemon.send(&initialize("0", LEGACY_VERSION));
    let session = response.header("mcp-session-id").expect("a session");
    let get = post("").method("GET").without("Content-Type").set("Accept", "text/event-stream");
    let mut stream = daemon.connect();
    stream.write(&in_session(session, get).bytes());
    assert_eq!(stream.head().status, 200);
    assert_reloads(&daemon, &config(2));
    expect(&mut stream, "tools/list_changed");
    let list = daemon.send(&in_session(session, legacy("2", "tools/list", "{}"))).text();
    assert!(list.contains("one_") && list.contains("two_"), "{list}");
    assert_reloads(&daemon, &config(2).endpoint("instructions = \"Think.\""));
    let call = legacy("3", "tools/call", r#"{"name":"two__echo","arguments":{}}"#);
    daemon.send(&in_session(session, call)).assert_ok();
    assert_reloads(&daemon, &config(3));
    expect(&mut stream, "tools/list_changed");
}

#[test]
fn an_upstream_that_is_removed_finishes_what_it_has_begun() {
    let servers = Servers::start();
    let daemon = Daemon::start(&servers.config(""));
    let mut held = Held::open(&daemon);
    let old = held.old.clone();
    let left = Config::transparent(&servers.modern).section(&api_key("ci", "ci-key")).section(&format!(
        "[[endpoint]]\npath = \"/old\"\nupstreams = [\"old\"]\n\
         [upstream.old]\nurl = \"http://{}/mcp\"\neras = [\"legacy\"]",
        servers.legacy_at.address
    ));
    while_calling(&daemon, [(&old, "/old")], || {
        assert_reloads(&daemon, &left);
        assert_eq!(daemon.send(&of_ci(call("8", "echo").target("/slow"))).status, 404);
        let session = daemon.send(&legacy_call(&held.child, "/child"));
        assert_eq!(session.status, 404);
        servers.child.wait_gone();
        // It is told that it is over.
        expect(&mut held.subscription, "\"id\":\"s\"");
        servers.gate.open();
        expect(&mut held.reply, "\"id\":7");
    });
}

#[test]
fn a_call_in_flight_survives_a_reload() {
    let (upstream, gate) = Upstream::gated();
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
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut connection = daemon.connect();
                    while !stop.load(Ordering::Relaxed) {
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
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("no call was lost");
        }
    });
}
