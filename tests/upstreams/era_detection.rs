//! Which eras upstreams are found to speak, what is remembered of it, and which eras endpoints serve.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{
    Config, Daemon, Folder, Gate, LEGACY_VERSION, Legacy, Offer, Received, Reply, Upstream, VERSION, call,
    eventually, refusing_address, unresponsive_address,
};

/// Whether an upstream is known to speak modern, and legacy.
fn eras(daemon: &Daemon, upstream: &str) -> [bool; 2] {
    ["modern", "legacy"].map(|era| {
        let series = format!("trunkline_upstream_eras{{era=\"{era}\",upstream=\"{upstream}\"}}");
        daemon.find_metric(&series) == Some(1)
    })
}

fn probes(daemon: &Daemon, upstream: &str, result: &str) -> u64 {
    let series = format!("trunkline_upstream_probes_total{{result=\"{result}\",upstream=\"{upstream}\"}}");
    daemon.metric(&series)
}

/// Waits until the upstream has been asked in both eras.
fn wait_tried(daemon: &Daemon, upstream: &str) {
    const RESULTS: [&str; 5] = ["modern", "not_modern", "legacy", "not_legacy", "unknown"];
    eventually(&format!("{upstream} is asked"), || {
        let counts = RESULTS.map(|result| probes(daemon, upstream, result));
        (counts.iter().sum::<u64>() >= 2).then_some(())
    });
}

/// A server that answers these two questions so, and any other with 404.
fn answering(discover: Reply, initialize: Reply) -> Upstream {
    Upstream::start(move |request| match request.method().as_str() {
        "server/discover" => discover.clone().to(request),
        "initialize" => initialize.clone().to(request),
        "notifications/initialized" => Reply::http("202 Accepted", "", ""),
        _ => Reply::http("404 Not Found", "", ""),
    })
}

fn status(status: &str) -> Reply {
    Reply::http(status, "", "")
}

fn answer(status: &str, rest: &str) -> Reply {
    Reply::json(status, &format!(r#"{{"jsonrpc":"2.0","id":1,{rest}}}"#))
}

#[test]
fn answers_tell_the_eras() {
    let error = |code: i64| answer("400 Bad Request", &format!(r#""error":{{"code":{code},"message":"m"}}"#));
    let ok_error = |code: i64| answer("200 OK", &format!(r#""error":{{"code":{code},"message":"m"}}"#));
    let discovered =
        |versions: &str| answer("200 OK", &format!(r#""result":{{"supportedVersions":{versions}}}"#));
    let initialized = |version: &str| {
        let fields = r#""capabilities":{},"serverInfo":{"name":"n","version":"1"}"#;
        answer("200 OK", &format!(r#""result":{{"protocolVersion":"{version}",{fields}}}"#))
    };
    let not_found = || status("404 Not Found");
    let event = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"supportedVersions":["{VERSION}"]}}}}"#);
    let cases = [
        (discovered(&format!("[\"{VERSION}\"]")), not_found(), [true, false]),
        (Reply::stream().event(&event), not_found(), [true, false]),
        (error(-32020), not_found(), [true, false]),
        (error(-32021), status("405 Method Not Allowed"), [true, false]),
        (error(-32022), error(-32600), [true, false]),
        (discovered(&format!("[\"{VERSION}\"]")), initialized("2025-11-25"), [true, true]),
        (error(-32022), initialized("2024-11-05"), [true, true]),
        (discovered("[\"2025-11-25\"]"), initialized("2025-11-25"), [false, true]),
        (error(-32600), initialized("2025-06-18"), [false, true]),
        (ok_error(-32601), initialized("2025-03-26"), [false, true]),
        (not_found(), initialized("2024-11-05"), [false, true]),
        (status("406 Not Acceptable"), initialized("2025-11-25"), [false, true]),
        (status("401 Unauthorized"), initialized("2025-11-25"), [false, true]),
        (status("401 Unauthorized"), status("403 Forbidden"), [false, false]),
        (status("407 Proxy Authentication Required"), status("408 Request Timeout"), [false, false]),
        (status("429 Too Many Requests"), status("500 Internal Server Error"), [false, false]),
        (Reply::http("302 Found", "Location: /else\r\n", ""), status("503 Busy"), [false, false]),
        (Reply::raw("SSH-2.0-x\r\n\r\n"), Reply::default().reset(), [false, false]),
        (Reply::http("200 OK", "Content-Type: text/html\r\n", "<html>"), initialized("1.0"), [false, false]),
        (not_found(), not_found(), [false, false]),
        (ok_error(-32601), ok_error(-32601), [false, false]),
    ];
    let upstreams: Vec<(Upstream, [bool; 2])> = cases
        .into_iter()
        .map(|(discover, initialize, eras)| (answering(discover, initialize), eras))
        .collect();
    let named = upstreams.iter().enumerate();
    let config = named.clone().fold(Config::new().admin(), |config, (index, (upstream, _))| {
        config.probed(&format!("u{index}"), upstream.address, "")
    });
    let daemon = Daemon::start(&config);
    for (index, (_, expected)) in named {
        let name = format!("u{index}");
        wait_tried(&daemon, &name);
        assert_eq!(eras(&daemon, &name), *expected, "case {index}");
    }
}

#[test]
fn both_eras_are_asked_for_as_a_client_of_each_asks() {
    let server = Legacy::new(Offer::tools(&["echo"])).and_modern();
    let upstream = server.start();
    let daemon = Daemon::start(&Config::new().probed("up", upstream.address, "").admin());
    wait_tried(&daemon, "up");
    assert_eq!(eras(&daemon, "up"), [true, true]);
    let discover = upstream.wait_for("server/discover", 1);
    assert_eq!(discover.headers("mcp-protocol-version"), [VERSION]);
    assert_eq!(discover.headers("mcp-method"), ["server/discover"]);
    assert_eq!(discover.json()["params"]["_meta"]["io.modelcontextprotocol/clientInfo"]["name"], "trunkline");
    let initialize = upstream.wait_for("initialize", 1);
    assert!(
        initialize.headers("mcp-protocol-version").is_empty() && initialize.headers("mcp-method").is_empty()
    );
    assert_eq!(initialize.json()["params"]["protocolVersion"], LEGACY_VERSION);
    assert_eq!(initialize.json()["params"]["capabilities"], json!({}));
    for request in [upstream.wait_for("notifications/initialized", 1), upstream.wait_for("DELETE", 1)] {
        assert_eq!(request.headers("mcp-session-id"), ["session-1"]);
        assert_eq!(request.headers("mcp-protocol-version"), [LEGACY_VERSION]);
    }
    eventually("the session is closed", || server.open_sessions().is_empty().then_some(()));
    assert_eq!(server.sessions_opened(), 1);
}

#[test]
fn a_session_is_closed_even_where_opening_it_fails() {
    let server = Legacy::new(Offer::default());
    let well = server.clone();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "notifications/initialized" => status("400 Bad Request"),
        _ => well.answer(request),
    });
    let daemon = Daemon::start(&Config::new().probed("up", upstream.address, "").admin());
    wait_tried(&daemon, "up");
    assert_eq!(eras(&daemon, "up"), [false, false]);
    upstream.wait_for("DELETE", 1);
    eventually("the session is closed", || server.open_sessions().is_empty().then_some(()));
}

#[test]
fn fixed_eras_are_not_asked_for() {
    let (modern, legacy) = (Upstream::with_tools(&["a"]), Legacy::new(Offer::tools(&["b"])));
    let old = legacy.start();
    let config = Config::new()
        .upstream("modern", modern.address, "eras = [\"modern\"]")
        .upstream("old", old.address, "eras = [\"legacy\"]")
        .admin();
    let daemon = Daemon::start(&config);
    old.wait_for("DELETE", 1);
    assert_eq!((eras(&daemon, "modern"), eras(&daemon, "old")), ([true, false], [false, true]));
    // One session to see how it introduces itself, and one to learn its names in.
    old.wait_for("tools/list", 1);
    assert_eq!(old.received_of("initialize").len(), 2);
    assert!(old.received_of("server/discover").is_empty());
    let own = |request: &Received| ["initialize", "server/discover"].contains(&request.method().as_str());
    assert!(!modern.received().iter().any(own), "{:?}", modern.received());
}

#[test]
fn a_removed_upstream_leaves_no_series() {
    let (one, two) = (Upstream::with_tools(&["a"]), Upstream::with_tools(&["b"]));
    let before = Config::new().probed("one", one.address, "").admin();
    let daemon = Daemon::start(&before);
    wait_tried(&daemon, "one");
    daemon.reload(&Config::new().probed("two", two.address, "").admin());
    wait_tried(&daemon, "two");
    assert_eq!(eras(&daemon, "two"), [true, false]);
    assert!(
        !daemon
            .get_admin("/metrics")
            .text()
            .contains("trunkline_upstream_eras{era=\"modern\",upstream=\"one\"")
    );
}

#[test]
fn a_reload_keeps_what_is_known_of_a_server() {
    let server = Legacy::new(Offer::default());
    let upstream = server.start();
    let config = |lines: &str| Config::new().probed("up", upstream.address, lines).admin();
    let daemon = Daemon::start(&config(""));
    daemon.wait_for_log(0, "the endpoint", |line| {
        line.contains("serves modern and legacy endpoint=\"/mcp\" bridged=\"up\"")
    });
    let before = daemon.log().len();
    daemon.reload(&config("response_timeout = \"7s\""));
    daemon.wait_for_log(before, "the reload", |line| line.contains("reloaded"));
    assert_eq!(eras(&daemon, "up"), [false, true]);
    eventually("it is asked anew", || (server.sessions_opened() == 2).then_some(()));
    assert_eq!(eras(&daemon, "up"), [false, true]);
    assert!(
        !daemon.log()[before..].iter().any(|line| line.contains("endpoint serves")),
        "{:?}",
        daemon.log()
    );
}

/// Everything that two daemons need to be the same gateway, one after the other.
fn remembering(state: &Folder, upstream: &Upstream) -> Config {
    Config::new().probed("up", upstream.address, "").admin().top(&state.key())
}

#[test]
fn what_was_known_is_remembered() {
    let (state, silent) = (Folder::new(), Gate::default());
    let server = Legacy::new(Offer::tools(&["echo"]));
    let (well, gate) = (server.clone(), silent.clone());
    let upstream =
        Upstream::start(move |request| if gate.is_open() { Reply::silence() } else { well.answer(request) });
    let daemon = Daemon::start(&remembering(&state, &upstream));
    let file = state.path().join("upstreams.json");
    let kept = eventually("it is written", || {
        let kept: Value = serde_json::from_slice(&std::fs::read(&file).ok()?).expect("the file is whole");
        (kept["upstreams"][0]["legacy"]["present"]["version"] == LEGACY_VERSION).then_some(kept)
    });
    assert_eq!(kept["upstreams"][0]["legacy"]["present"]["result"]["serverInfo"]["name"], "scripted");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    drop(daemon);

    silent.open();
    let daemon = Daemon::start(&remembering(&state, &upstream));
    assert_eq!(eras(&daemon, "up"), [false, true]);
    let first = daemon.wait_for_log(0, "the endpoint", |line| line.contains("endpoint serves"));
    assert!(first.contains("serves modern and legacy endpoint=\"/mcp\" bridged=\"up\""), "{first}");
    drop(daemon);

    let elsewhere = Upstream::start(|_| Reply::silence());
    let daemon = Daemon::start(&remembering(&state, &elsewhere));
    assert_eq!(eras(&daemon, "up"), [false, false], "another server of that name");
}

#[test]
fn what_was_half_known_excludes_nothing() {
    let state = Folder::new();
    let server = Legacy::new(Offer::tools(&["echo"])).and_modern();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "initialize" => Reply::silence(),
        _ => server.answer(request),
    });
    let daemon = Daemon::start(&remembering(&state, &upstream));
    eventually("half of it is written", || {
        let kept: Value =
            serde_json::from_slice(&std::fs::read(state.path().join("upstreams.json")).ok()?).ok()?;
        let kept = &kept["upstreams"][0];
        (kept["modern"]["present"].is_object() && kept["legacy"].is_null()).then_some(())
    });
    drop(daemon);

    let daemon = Daemon::start(&remembering(&state, &upstream));
    let first = daemon.wait_for_log(0, "the endpoint", |line| line.contains("endpoint serves"));
    assert!(first.contains("endpoint serves modern and legacy, as far as"), "{first}");
}

#[test]
fn a_damaged_memory_is_left_aside() {
    let upstream = Upstream::with_tools(&["echo"]);
    let nested = "[".repeat(100_000);
    let cases: [&[u8]; 7] = [
        b"",
        b"{\"layout\":1,\"upstreams\":[{\"name\":\"up\"",
        b"\xff\xfe",
        b"{\"layout\":7,\"upstreams\":[]}",
        b"{\"layout\":1,\"upstreams\":[{\"name\":7}]}",
        b"[]",
        nested.as_bytes(),
    ];
    for damaged in cases {
        let state = Folder::new();
        std::fs::write(state.path().join("upstreams.json"), damaged).unwrap();
        let daemon = Daemon::start(&remembering(&state, &upstream));
        daemon
            .wait_for_log(0, "the warning", |line| line.contains("WARN") && line.contains("upstreams.json"));
        wait_tried(&daemon, "up");
        assert_eq!(eras(&daemon, "up"), [true, false]);
        daemon.send(&call("7", "echo")).assert_ok();
    }
}

#[test]
fn without_the_bridge_an_endpoint_serves_what_all_of_its_upstreams_speak() {
    let modern = || Upstream::with_tools(&["a"]);
    let legacy = || Legacy::new(Offer::tools(&["b"])).start();
    let dual = || Legacy::new(Offer::tools(&["c"])).and_modern().start();
    let down = || Upstream::start(|_| status("503 Service Unavailable"));
    let cases = [
        (vec![modern()], "endpoint serves modern ", None),
        (vec![legacy()], "endpoint serves legacy ", None),
        (vec![dual()], "endpoint serves modern and legacy ", None),
        (vec![dual(), modern()], "endpoint serves modern ", None),
        (vec![legacy(), dual()], "endpoint serves legacy ", None),
        (vec![down()], "endpoint serves modern and legacy, as far as its upstreams are known", None),
        (vec![down(), legacy()], "endpoint serves legacy, as far as its upstreams are known", None),
        (vec![modern(), legacy(), dual()], "endpoint serves modern,", Some("missing=\"u1\"")),
        (vec![legacy(), modern(), modern()], "endpoint serves legacy,", Some("missing=\"u1, u2\"")),
    ];
    for (upstreams, served, warned) in cases {
        let named = upstreams.iter().enumerate();
        let config = named.clone().fold(Config::new().admin(), |config, (index, upstream)| {
            config.probed(&format!("u{index}"), upstream.address, "bridge.enabled = false")
        });
        let daemon = Daemon::start(&config);
        for (index, _) in named {
            wait_tried(&daemon, &format!("u{index}"));
        }
        eventually(served, || {
            let said: Vec<String> =
                daemon.log().into_iter().filter(|line| line.contains("endpoint serves")).collect();
            let last = said.last()?;
            let is_warned = last.contains("WARN");
            (last.contains(served)
                && is_warned == warned.is_some()
                && warned.is_none_or(|missing| last.contains(missing)))
            .then_some(())
        });
    }
}

#[test]
fn an_upstream_that_never_answers_delays_no_other() {
    let sick: Vec<Upstream> = (0..8).map(|_| Upstream::start(|_| Reply::silence())).collect();
    let ((refusing, _socket), (unresponsive, _sockets)) = (refusing_address(), unresponsive_address());
    let well = Legacy::new(Offer::default()).and_modern().start();
    let slow = "list_timeout = \"1h\"\nconnect_timeout = \"1h\"";
    let config = sick.iter().enumerate().fold(Config::new(), |config, (index, upstream)| {
        config.probed(&format!("sick{index}"), upstream.address, slow)
    });
    let config = config
        .probed("refusing", refusing, slow)
        .probed("unresponsive", unresponsive, slow)
        .probed("well", well.address, "")
        .admin();
    let daemon = Daemon::start(&config);
    let started = Instant::now();
    eventually("the healthy one is known", || (eras(&daemon, "well") == [true, true]).then_some(()));
    assert!(started.elapsed() < Duration::from_secs(3), "took {:?}", started.elapsed());
}

#[test]
fn an_upstream_that_says_nothing_is_asked_less_and_less() {
    let busy = Upstream::start(|_| status("503 Service Unavailable"));
    let started = Instant::now();
    let daemon = Daemon::start(&Config::new().probed("up", busy.address, "").admin());
    for method in ["server/discover", "initialize"] {
        busy.wait_for(method, 4);
    }
    // 0.5 s, 1 s and 2 s, each a fifth less at least.
    assert!(started.elapsed() >= Duration::from_millis(2800), "took {:?}", started.elapsed());
    let warned = daemon.log().iter().filter(|line| line.contains("cannot learn whether")).count();
    assert_eq!(warned, 1, "once is enough: {:?}", daemon.log());
    assert!(probes(&daemon, "up", "unknown") <= 10);
}

#[test]
fn an_upstream_that_comes_late_is_found() {
    let open = Gate::default();
    let gate = open.clone();
    let server = Legacy::new(Offer::default()).and_modern();
    let upstream =
        Upstream::start(
            move |request| {
                if gate.is_open() { server.answer(request) } else { status("404 Not Found") }
            },
        );
    let daemon = Daemon::start(&Config::new().probed("up", upstream.address, "").admin());
    wait_tried(&daemon, "up");
    assert_eq!(eras(&daemon, "up"), [false, false]);
    daemon.wait_for_log(0, "the doubt", |line| line.contains("upstream speaks neither era"));
    open.open();
    eventually("it is found", || (eras(&daemon, "up") == [true, true]).then_some(()));
    daemon.wait_for_log(0, "the finding", |line| line.contains("upstream speaks modern and legacy"));
}

#[test]
fn huge_answers_are_harmless() {
    let huge = "x".repeat(3 << 20);
    let discover = format!(r#""result":{{"supportedVersions":["{VERSION}"],"instructions":"{huge}"}}"#);
    let long = "y".repeat(100 << 10);
    let fields = format!(r#""capabilities":{{"tools":{{}}}},"instructions":"{long}""#);
    let initialize = format!(r#""result":{{"protocolVersion":"2025-11-25",{fields}}}"#);
    let upstream = answering(answer("200 OK", &discover), answer("200 OK", &initialize));
    let state = Folder::new();
    let daemon = Daemon::start(&remembering(&state, &upstream).limits("reply_bytes_max = \"1MiB\""));
    wait_tried(&daemon, "up");
    assert_eq!(eras(&daemon, "up"), [false, true]);
    let result = eventually("it is written", || {
        let kept = std::fs::read(state.path().join("upstreams.json")).ok()?;
        let mut kept: Value = serde_json::from_slice(&kept).expect("the file is whole");
        Some(kept["upstreams"][0]["legacy"]["present"]["result"].take()).filter(Value::is_object)
    });
    assert_eq!(result, json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}));
}

#[test]
fn more_upstreams_than_the_gateway_has_connections_for_questions_are_all_asked() {
    const COUNT: usize = 200;
    let server = Legacy::new(Offer::tools(&["echo"])).and_modern();
    let upstream = server.start();
    let config = (0..COUNT)
        .fold(Config::new(), |config, number| config.probed(&format!("up{number}"), upstream.address, ""));
    let daemon = Daemon::start(&config.admin());
    eventually("all are known", || {
        let metrics = daemon.get_admin("/metrics").text();
        let is_known = |line: &&str| {
            line.starts_with("trunkline_upstream_eras") && line.contains("modern") && line.ends_with(" 1")
        };
        (metrics.lines().filter(is_known).count() == COUNT).then_some(())
    });
    let refused = daemon.log().into_iter().find(|line| line.contains("too many connections"));
    assert_eq!(refused, None, "connections that waited kept others from being asked");
}
