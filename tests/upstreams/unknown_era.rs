//! Upstreams of which it is not known yet what they speak.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{
    Child, Config, Daemon, LEGACY_VERSION, Legacy, Offer, Request, VERSION, call, eventually,
    eventually_within, in_session, legacy, list, open_session, side_by_side, tool_names,
};

/// One endpoint where names have a prefix, and one where they are learned.
const BARE: &str = "[[endpoint]]\npath = \"/bare\"\nauth = []\nnames = \"bare\"\nupstreams = [\"up\"]";

/// The words of `/status` about the upstream.
fn told(daemon: &Daemon) -> Value {
    daemon.get_admin("/status").json()["upstreams"][0].clone()
}

/// The list of tools as clients of both eras ask for it, at both endpoints.
fn lists(daemon: &Daemon) -> Vec<Request> {
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let in_session = in_session(&session, legacy("1", "tools/list", "{}"));
    vec![list("1", "tools/list"), list("1", "tools/list").target("/bare"), in_session]
}

/// The methods that the program was asked, of all its processes.
fn asked(child: &Child) -> Vec<String> {
    let received = child.events_of("received");
    received.iter().filter_map(|event| Some(event["message"]["method"].as_str()?.to_owned())).collect()
}

#[test]
fn a_program_that_opens_no_session_is_asked_for_no_list() {
    side_by_side([&["strict"][..], &["silent-on-discover"]], |words| {
        let child = Child::new(&[words, &["initializes-after=1000"]].concat());
        // One that does not answer `server/discover` is asked to initialize after five seconds.
        let config = Config::new().raw("up", &child.keys("list_timeout = \"8s\"")).section(BARE);
        let daemon = Daemon::start(&config.admin());
        let lists = lists(&daemon);
        eventually_within(Duration::from_secs(30), "it has refused to initialize", || {
            for request in &lists {
                let response = daemon.send(request);
                assert!(response.text().contains("\"error\""), "{words:?}: {}", response.text());
            }
            (child.received("initialize").len() > 3).then_some(())
        });
        let asked = asked(&child);
        assert!(!asked.iter().any(|method| method.ends_with("/list")), "{words:?}: {asked:?}");
        // While one of its processes starts to be asked again, it is starting.
        eventually("it is told", || {
            let found = told(&daemon);
            let is_named = found["why"] == "initialize: database is down (-32603)";
            (found["state"] == "failing" && is_named).then_some(())
        });
    });
}

#[test]
fn a_program_that_opens_no_session_is_not_started_for_each_list() {
    side_by_side(["session", "principal", "shared"], |isolation| {
        let child = Child::new(&["strict", "initializes-after=1000"]);
        let keys = child.keys(&format!("eras = [\"legacy\"]\nisolation = {isolation:?}"));
        let daemon = Daemon::start(&Config::new().raw("up", &keys).section(BARE).admin());
        let lists = lists(&daemon);
        child.wait_received("initialize", 1);
        let (starts, since) = (child.pids().len(), Instant::now());
        for _ in 0..10 {
            for request in &lists {
                let response = daemon.send(request);
                assert!(response.text().contains("\"error\""), "{isolation}: {}", response.text());
            }
        }
        let lived = usize::try_from(since.elapsed().as_secs()).expect("not long");
        let started = child.pids().len() - starts;
        assert!(started <= 2 + lived, "{isolation}: {started} starts in {lived} s");
    });
}

#[test]
fn clients_are_told_why_a_program_opens_no_session_and_served_soon_after_its_repair() {
    let kinds = ["session", "principal", "shared"].into_iter().flat_map(|kind| [(kind, true), (kind, false)]);
    side_by_side(kinds, |(isolation, is_modern)| {
        let child = Child::new(&["strict"]);
        child.opens_nothing();
        let keys = child.keys(&format!("eras = [\"legacy\"]\nisolation = {isolation:?}"));
        let daemon = Daemon::start(&Config::new().raw("up", &keys).admin());
        child.wait_received("initialize", 1);
        let session = open_session(daemon.address(), LEGACY_VERSION).0;
        let arguments = r#"{"name":"echo","arguments":{}}"#;
        let in_session = || in_session(&session, legacy("1", "tools/call", arguments));
        let ask = || daemon.send(&if is_modern { call("1", "echo") } else { in_session() });
        let (starts, since) = (child.pids().len(), Instant::now());
        let mut asked = 0;
        // So that pauses of the gateway's own would be long by now.
        while since.elapsed() < Duration::from_secs(12) {
            let told = ask().text();
            assert!(told.contains("database is down"), "{isolation} {is_modern}: {told}");
            asked += 1;
            std::thread::sleep(Duration::from_millis(100));
        }
        let started = child.pids().len() - starts;
        // A process of a session's own is asked what its client says.
        let starts_max = if isolation == "session" { asked + 10 } else { 14 };
        assert!(started <= starts_max, "{isolation} {is_modern}: {started} starts");
        child.opens();
        eventually_within(Duration::from_secs(10), "it is served", || {
            let response = ask();
            (response.status == 200 && response.text().contains("\"result\"")).then_some(())
        });
    });
}

#[test]
fn a_program_is_listed_once_it_opens_a_session_after_all() {
    side_by_side([1, 3], |refused| {
        let child = Child::new(&["strict", &format!("initializes-after={refused}")]);
        let config = Config::new().raw("up", &child.keys("")).section(BARE).admin();
        let daemon = Daemon::start(&config);
        for request in lists(&daemon) {
            eventually("it is listed", || {
                let response = daemon.send(&request);
                (response.status == 200 && response.json()["result"].is_object())
                    .then(|| assert_eq!(tool_names(&response), ["echo"]))
            });
        }
        let asked = asked(&child);
        let first = |method: &str| asked.iter().position(|asked| asked == method);
        assert!(first("notifications/initialized") < first("tools/list"), "{asked:?}");
        assert_eq!(asked.iter().filter(|method| *method == "initialize").count(), refused + 1, "{asked:?}");
        eventually("it is up", || {
            let found = told(&daemon);
            (found["state"] == "up" && found["list_fault"].is_null()).then_some(())
        });
    });
}

#[test]
fn a_server_is_asked_for_names_in_an_era_that_it_speaks() {
    let server = Legacy::new(Offer::tools(&["echo"])).start();
    let config = Config::new().probed("up", server.address, "").endpoint("names = \"bare\"").admin();
    let daemon = Daemon::start(&config);
    let listed = server.wait_for("tools/list", 1);
    assert_ne!(listed.headers("mcp-protocol-version"), [VERSION]);
    assert_eq!(tool_names(&daemon.send(&list("1", "tools/list"))), ["echo"]);
    let found = eventually("it is up", || Some(told(&daemon)).filter(|found| found["state"] == "up"));
    assert_eq!(found["list_fault"], Value::Null, "{found:#}");
}
