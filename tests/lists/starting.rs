//! What clients see while programs start, and from which of their processes lists come.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{
    Child, Config, Daemon, LEGACY_VERSION, Offer, Upstream, call, event_data, eventually, in_session,
    initialize, legacy, legacy_call, list, listen, open_session_with, side_by_side, tool_names,
};

const SECOND: Duration = Duration::from_secs(1);

/// Two programs that take longer than anybody waits.
fn slow() -> (Config, [Child; 2]) {
    let children = [Child::new(&["starts-in=60"]), Child::new(&["starts-in=60"])];
    let [memory, git] = &children;
    let keys = |child: &Child| child.keys("list_timeout = \"1s\"");
    (Config::new().raw("memory", &keys(memory)).raw("git", &keys(git)), children)
}

#[test]
fn a_list_that_would_be_empty_says_what_is_still_starting() {
    let (config, _children) = slow();
    let daemon = Daemon::start(&config);
    let session = open_session_with(daemon.address(), LEGACY_VERSION, "{}");
    side_by_side([false, true], |is_legacy| {
        let since = Instant::now();
        let request = if is_legacy {
            in_session(&session, legacy("1", "tools/list", "{}"))
        } else {
            list("1", "tools/list")
        };
        let response = daemon.send(&request);
        let took = since.elapsed();
        let status = if is_legacy { 200 } else { 503 };
        let error = response.assert_error(status, 503, Some("1"))["error"].take();
        assert_eq!(error["message"], "still starting: memory, git (0 of 2 are up)");
        assert_eq!(error["data"]["retryAfterMs"], 2000);
        assert_eq!(response.header("retry-after"), Some("2"));
        assert!(took > 7 * SECOND && took < 9 * SECOND, "{took:?}");
    });
}

#[test]
fn introductions_do_not_wait_for_programs() {
    let (config, _children) = slow();
    let daemon = Daemon::start(&config);
    side_by_side([initialize("1", LEGACY_VERSION), list("1", "server/discover")], |request| {
        let since = Instant::now();
        daemon.send(&request).assert_ok();
        let took = since.elapsed();
        assert!(took < SECOND * 3 / 2, "{took:?}");
    });
}

#[test]
fn a_list_goes_without_what_starts_and_is_said_to_have_changed_once_in_a_while() {
    let other = Upstream::start(|request| Offer::tools(&["quick"]).answer(request));
    let children = ["1", "2", "2"].map(|seconds| Child::new(&["modern", &format!("starts-in={seconds}")]));
    let mut config = Config::new().upstream("other", other.address, "");
    for (name, child) in ["a", "b", "c"].into_iter().zip(&children) {
        config = config.raw(name, &child.keys("list_timeout = \"200ms\""));
    }
    let daemon = Daemon::start(&config);
    let mut stream = daemon.begin(&listen("1", r#"{"toolsListChanged":true}"#));
    assert_eq!(stream.head().status, 200);
    let first = tool_names(&daemon.send(&list("2", "tools/list")));
    assert_eq!(first, ["other__quick"]);
    let mut last: Option<Instant> = None;
    let mut count = first.len();
    while count < 4 {
        let event = stream.event().expect("the stream goes on");
        if !event.starts_with("data: ") || !event.contains("list_changed") {
            continue;
        }
        assert_eq!(event_data(&event)["method"], "notifications/tools/list_changed");
        let now = Instant::now();
        let pause = last.map(|last| now - last);
        assert!(pause.is_none_or(|pause| pause > SECOND * 19 / 10), "{pause:?}");
        last = Some(now);
        let listed = tool_names(&daemon.send(&list("3", "tools/list"))).len();
        assert!(listed > count, "{listed} tools after {count}");
        count = listed;
    }
    for child in &children {
        assert_eq!(child.pids().len(), 1, "each was started once");
    }
}

#[test]
fn a_gateway_is_ready_as_it_serves_or_once_all_is_listed() {
    let server = Upstream::start(|request| Offer::tools(&["echo"]).answer(request));
    let daemon = |ready: &str, words: &[&str], keys: &str| {
        let child = Child::new(words);
        let config = Config::new().upstream("other", server.address, "").raw("slow", &child.keys(keys));
        let admin = format!("[admin]\naddress = \"127.0.0.1:0\"\n{ready}");
        (Daemon::start(&config.section(&admin)), child)
    };
    let (at_once, _child) = daemon("", &["starts-in=2"], "");
    assert_eq!(at_once.get_admin("/readyz").status, 200);
    // Of one whose era is fixed, nothing else is asked.
    let (fixed, _fixed_child) = daemon("ready = \"listed\"", &["modern"], "eras = [\"modern\"]");
    eventually("it is ready", || (fixed.get_admin("/readyz").status == 200).then_some(()));
    let (listed, _child) = daemon("ready = \"listed\"", &["starts-in=2"], "");
    let early = listed.get_admin("/readyz");
    assert_eq!(early.status, 503);
    assert!(early.text().starts_with("not listed yet: ") && early.text().contains("slow"), "{early:?}");
    let late =
        eventually("it is ready", || Some(listed.get_admin("/readyz")).filter(|late| late.status == 200));
    assert!(late.text().starts_with("ok"), "{late:?}");
}

#[test]
fn a_program_that_nobody_uses_ends_and_is_not_started_for_its_names() {
    // Its lists do not hold: whoever wants one asks it.
    let child = Child::new(&["modern", "tools-only", "ttl=0"]);
    // Names can be denied where it is known which there are.
    let config = Config::new().raw("up", &child.keys("child_idle_timeout = \"1s\""));
    let daemon = Daemon::start(&config.endpoint("deny = [\"secret\"]"));
    child.wait_received("tools/list", 1);
    child.wait_gone();
    // It is looked four times a second what is due.
    let since = Instant::now();
    while since.elapsed() < 3 * SECOND {
        assert_eq!(child.pids().len(), 1, "it is not started again");
        std::thread::sleep(Duration::from_millis(50));
    }
    // It is there for who needs it.
    daemon.send(&call("1", "echo")).assert_ok();
    assert_eq!(child.pids().len(), 2);
}

/// Capabilities of clients, no two alike.
const DECLARED: [&str; 10] = [
    "{}",
    r#"{"roots":{}}"#,
    r#"{"roots":{"listChanged":true}}"#,
    r#"{"sampling":{}}"#,
    r#"{"sampling":{"tools":{}}}"#,
    r#"{"elicitation":{}}"#,
    r#"{"elicitation":{"form":{}}}"#,
    r#"{"elicitation":{"url":{}}}"#,
    r#"{"roots":{},"sampling":{}}"#,
    r#"{"experimental":{"x":{}}}"#,
];

#[test]
fn ten_different_clients_have_one_process_where_it_is_shared() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&Config::new().raw("up", &child.keys("isolation = \"shared\"")));
    for (index, declared) in DECLARED.into_iter().enumerate() {
        let version = [LEGACY_VERSION, "2025-06-18", "2025-03-26"][index % 3];
        let session = open_session_with(daemon.address(), version, declared);
        let request = |request| in_session(&session, request).set("MCP-Protocol-Version", version);
        let names = tool_names(&daemon.send(&request(legacy("1", "tools/list", "{}"))));
        assert_eq!(names, ["echo"], "{declared}");
        daemon.send(&request(legacy_call("2", "echo"))).assert_ok();
    }
    assert_eq!(child.pids().len(), 1);
}

#[test]
fn lists_start_nothing_whatever_a_client_declares() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&Config::new().raw("up", &child.keys("")));
    let list = |declared: &str| {
        let session = open_session_with(daemon.address(), LEGACY_VERSION, declared);
        tool_names(&daemon.send(&in_session(&session, legacy("1", "tools/list", "{}"))))
    };
    assert_eq!(list("{}"), ["echo"]);
    let started = child.pids();
    for declared in DECLARED {
        assert_eq!(list(declared), ["echo"], "{declared}");
    }
    assert_eq!(child.pids(), started);
}

#[test]
fn more_sessions_for_lists_tell_apart_what_clients_take() {
    let child = Child::new(&["shows-roots"]);
    let daemon = Daemon::start(&Config::new().raw("up", &child.keys("list_sessions_max = 8")));
    let list = |declared: &str| {
        let session = open_session_with(daemon.address(), LEGACY_VERSION, declared);
        tool_names(&daemon.send(&in_session(&session, legacy("1", "tools/list", "{}"))))
    };
    assert_eq!(list("{}"), ["echo"]);
    assert_eq!(list(r#"{"roots":{}}"#), ["echo", "rooted"]);
    let started = child.pids();
    assert_eq!(list(r#"{"roots":{"listChanged":true}}"#), ["echo", "rooted"]);
    assert_eq!(list(r#"{"experimental":{"x":{}}}"#), ["echo"]);
    assert_eq!(child.pids(), started);
}

#[test]
fn a_session_with_a_process_of_its_own_has_that_ones_lists() {
    let child = Child::new(&["shows-roots"]);
    let daemon = Daemon::start(&Config::new().raw("up", &child.keys("")));
    let session = open_session_with(daemon.address(), LEGACY_VERSION, r#"{"roots":{}}"#);
    let listed = || tool_names(&daemon.send(&in_session(&session, legacy("1", "tools/list", "{}"))));
    assert_eq!(listed(), ["echo"], "nobody has declared anything to the gateway's own process");
    daemon.send(&in_session(&session, legacy_call("2", "echo"))).assert_ok();
    let own = child.received("tools/call").len();
    assert_eq!(own, 1);
    assert_eq!(listed(), ["echo", "rooted"]);
    // Another client without a process of its own is shown what all are.
    let other = open_session_with(daemon.address(), LEGACY_VERSION, r#"{"roots":{}}"#);
    let response = eventually("a list", || {
        let response = daemon.send(&in_session(&other, legacy("3", "tools/list", "{}")));
        Some(response.json()).filter(|json: &Value| json.get("result").is_some())
    });
    assert_eq!(response["result"]["tools"].as_array().map(Vec::len), Some(1), "{response}");
}
