//! Pinned definitions of tools: what counts as a change, what becomes of it in each mode, and how it is approved.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::path::Path;
use std::process::Output;
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::harness::{
    Child, Config, Daemon, Folder, LEGACY_VERSION, Legacy, Listening, META, Offer, Reply, Request, Response,
    Upstream, body, call, eventually, in_session, legacy, list, modern, open_session, open_session_with,
    refusing_address, side_by_side, tool_names, trunkline,
};

/// A tool with every field that there is, and one that there is not.
pub(super) const FULL: &str = r#"{"name":"a","title":"A","description":"does a","icons":[{"src":"https://i.example/a.png"}],"inputSchema":{"type":"object","properties":{"x":{"type":"object","properties":{"y":{"type":"string","description":"deep"}}},"n":{"maximum":10}}},"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"execution":{"taskSupport":"forbidden"},"_meta":{"v":1},"vendor":[1,{"k":null}]}"#;
pub(super) const B: &str = r#"{"name":"b","inputSchema":{"type":"object"}}"#;
/// Looks twice a second.
pub(super) const OFTEN: &str = "pins_age_max = \"1s\"";

/// A server whose tools the test changes.
#[derive(Clone, Default)]
pub(super) struct Tools(Arc<Mutex<Vec<String>>>);

impl Tools {
    pub(super) fn new(tools: &[&str]) -> Self {
        let tools = Self(Arc::new(Mutex::new(tools.iter().map(ToString::to_string).collect())));
        assert!(!tools.0.lock().unwrap().is_empty());
        tools
    }

    pub(super) fn set(&self, tools: &[&str]) {
        *self.0.lock().unwrap() = tools.iter().map(ToString::to_string).collect();
    }

    fn offer(&self) -> Offer {
        Offer { tools: self.0.lock().unwrap().clone(), ..Offer::default() }
    }

    pub(super) fn start(&self) -> Upstream {
        let own = self.clone();
        Upstream::start(move |request| own.offer().answer(request))
    }
}

fn config(upstream: &Upstream, mode: &str, folder: &Folder) -> Config {
    let lines = format!("pins = \"{mode}\"\n{OFTEN}");
    Config::new().upstream("up", upstream.address, &lines).admin().top(&folder.key())
}

pub(super) fn listed(daemon: &Daemon) -> Vec<String> {
    tool_names(&daemon.send(&list("1", "tools/list")))
}

#[track_caller]
pub(super) fn assert_withheld(response: &Response) {
    let json = response.assert_error(200, 403, Some("7"));
    assert!(json["error"]["message"].as_str().is_some_and(|text| text.contains("definition")), "{json}");
}

/// The gateway does not know which definition is approved, so that the caller may come again.
#[track_caller]
pub(super) fn assert_unknown(response: &Response, status: u16) {
    let json = response.assert_error(status, 503, Some("7"));
    assert_eq!(response.header("retry-after"), Some("1"), "{response:?}");
    assert_eq!(json["error"]["data"]["retryAfterMs"], 1000, "{json}");
    let text = json["error"]["message"].as_str().expect("a message");
    assert!(text.contains("not known yet") && text.contains("was not executed"), "{json}");
}

/// True if the tool cannot be called for its pins, changed or not known.
pub(super) fn is_withheld(daemon: &Daemon, tool: &str) -> bool {
    let response = daemon.send(&call("7", tool));
    if response.json()["error"]["code"] == 403 {
        assert_withheld(&response);
        return true;
    }
    if response.status == 503 {
        assert_unknown(&response, 503);
        return true;
    }
    response.assert_ok();
    false
}

#[track_caller]
pub(super) fn wait_withheld(daemon: &Daemon, tool: &str, expected: bool) {
    eventually("the change is seen", || (is_withheld(daemon, tool) == expected).then_some(()));
}

pub(super) fn pins(daemon: &Daemon, state: &str) -> u64 {
    daemon.metric(&format!(r#"trunkline_pins{{state="{state}",upstream="up"}}"#))
}

fn changes(daemon: &Daemon) -> u64 {
    daemon.metric(r#"trunkline_pin_changes_total{upstream="up"}"#)
}

/// Waits until the gateway has looked at the tools again, twice in each of its ways.
fn wait_rounds(upstream: &Upstream) {
    let count = upstream.received_of("tools/list").len();
    upstream.wait_for("tools/list", count + 5);
}

/// What is kept of the upstream, once it says what `fits` wants.
pub(super) fn kept(folder: &Folder, fits: impl Fn(&Value) -> bool) -> Value {
    eventually("it is written down", || {
        let text = fs::read_to_string(folder.path().join("pins/up.json")).ok()?;
        let json: Value = serde_json::from_str(&text).expect("a whole file");
        fits(&json).then_some(json)
    })
}

fn pending(file: &Value, tool: &str) -> Option<String> {
    let tools = file["tools"].as_array().expect("tools");
    let tool = tools.iter().find(|found| found["name"] == tool)?;
    tool["pending"][0]["sha256"].as_str().map(String::from)
}

/// The hash of the definition of a tool that waits.
pub(super) fn wait_pending(folder: &Folder, tool: &str) -> String {
    pending(&kept(folder, |file| pending(file, tool).is_some()), tool).expect("a hash")
}

fn run(arguments: &[&str], config: &Config) -> Output {
    trunkline(&[&["pins"], arguments].concat(), Some(&config.to_string())).0
}

#[track_caller]
pub(super) fn run_ok(arguments: &[&str], config: &Config) -> String {
    let output = run(arguments, config);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn every_field_counts() {
    let changes_of = [
        ("\"does a\"", "\"does b\""),
        ("\"title\":\"A\"", "\"title\":\"B\""),
        ("a.png", "b.png"),
        ("\"deep\"", "\"deeper\""),
        ("\"maximum\":10", "\"maximum\":10.5"),
        ("\"outputSchema\":{\"type\":\"object\"}", "\"outputSchema\":{\"type\":\"object\",\"x\":1}"),
        ("\"readOnlyHint\":true", "\"readOnlyHint\":false"),
        ("\"forbidden\"", "\"required\""),
        ("\"v\":1", "\"v\":2"),
        ("{\"k\":null}", "{}"),
        ("\"vendor\":", "\"vendor\":0,\"vendor\":"),
        ("}]}", "}],\"more\":false}"),
    ];
    side_by_side(changes_of, |(from, to)| {
        let changed = FULL.replacen(from, to, 1);
        assert_ne!(changed, FULL, "{from}");
        let tools = Tools::new(&[FULL, B]);
        let (upstream, folder) = (tools.start(), Folder::new());
        let daemon = Daemon::start(&config(&upstream, "quarantine", &folder));
        assert!(!is_withheld(&daemon, "a"));
        tools.set(&[&changed, B]);
        wait_withheld(&daemon, "a", true);
        assert!(!is_withheld(&daemon, "b"));
        tools.set(&[FULL, B]);
        wait_withheld(&daemon, "a", false);
        assert_eq!(changes(&daemon), 1, "{to}");
    });
}

#[test]
fn no_spelling_counts() {
    let tools = Tools::new(&[FULL, B]);
    let (upstream, folder) = (tools.start(), Folder::new());
    let daemon = Daemon::start(&config(&upstream, "quarantine", &folder));
    assert!(!is_withheld(&daemon, "a"));
    let value: Value = serde_json::from_str(FULL).expect("JSON");
    // serde_json sorts the keys.
    let sorted = serde_json::to_string_pretty(&value).expect("JSON");
    let respelled = FULL.replace("\"does a\"", "\"\\u0064oes\\u0020a\"").replace(":10}", ":1.0e1}");
    for same in [sorted, respelled] {
        assert_ne!(same, FULL);
        tools.set(&[B, &same]);
        wait_rounds(&upstream);
        assert!(!is_withheld(&daemon, "a"));
        assert_eq!(listed(&daemon).len(), 2);
    }
    assert_eq!(changes(&daemon), 0);
}

#[test]
fn each_mode_does_what_it_says() {
    let new = r#"{"name":"c","inputSchema":{"type":"object"}}"#;
    let cases = [
        ("off", vec!["a", "b"], vec!["a", "b", "c"]),
        ("warn", vec!["a", "b"], vec!["a", "b", "c"]),
        ("quarantine", vec!["b"], vec!["a", "b", "c"]),
        ("block", vec![], vec![]),
    ];
    side_by_side(cases, |(mode, after_change, after_new)| {
        let tools = Tools::new(&[FULL, B]);
        let (upstream, folder) = (tools.start(), Folder::new());
        let daemon = Daemon::start(&config(&upstream, mode, &folder).endpoint("names = \"prefixed\""));
        let listed = || {
            let names = listed(&daemon);
            names.iter().map(|name| name.trim_start_matches("up__").to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(listed(), ["a", "b"], "{mode}");
        if mode == "off" {
            assert!(!folder.path().join("pins").exists());
            return;
        }
        eventually("it is pinned", || (pins(&daemon, "pinned") == 2).then_some(()));
        kept(&folder, |file| file["complete"] == true);
        tools.set(&[&FULL.replace("does a", "does b"), B]);
        daemon.wait_for_log(0, "a change", |line| {
            line.contains("the definition of a tool changed") && line.contains("tool=\"a\"")
        });
        eventually("the list follows", || (listed() == after_change).then_some(()));
        assert_eq!((changes(&daemon), pins(&daemon, "changed")), (1, 1), "{mode}");
        for tool in ["a", "b"] {
            assert_eq!(
                is_withheld(&daemon, &format!("up__{tool}")),
                !after_change.contains(&tool),
                "{mode} {tool}"
            );
        }
        wait_rounds(&upstream);
        let lines = daemon.log();
        let said = lines.iter().filter(|line| line.contains("the definition of a tool changed")).count();
        assert_eq!((said, changes(&daemon)), (1, 1), "{mode}: once for each definition");

        tools.set(&[FULL, B, new]);
        // `block` alone takes a new tool for a change.
        eventually("it is seen", || (pins(&daemon, "new") == u64::from(mode == "block")).then_some(()));
        eventually("it is as it was", || (listed() == after_new).then_some(()));
        assert_eq!(is_withheld(&daemon, "up__a"), mode == "block", "{mode}");
        assert_eq!(is_withheld(&daemon, "up__c"), mode == "block", "{mode}");
        // Nothing that was refused reached the server.
        let reached = upstream.received_of("tools/call");
        assert!(mode != "block" || reached.is_empty(), "{reached:?}");
    });
}

#[test]
fn an_approval_is_bound_to_what_was_shown() {
    let tools = Tools::new(&[FULL, B]);
    let (upstream, folder) = (tools.start(), Folder::new());
    let config = config(&upstream, "quarantine", &folder);
    let daemon = Daemon::start(&config);
    assert!(!is_withheld(&daemon, "a"));
    let nasty = FULL.replace("does a", "\u{9b}31m does \u{202e}b");
    tools.set(&[&nasty, B]);
    let first = wait_pending(&folder, "a");
    let shown = run_ok(&["show", "up", "a"], &config);
    assert!(shown.contains(&first) && shown.contains("-   \"description\": \"does a\""), "{shown}");
    assert!(shown.contains(r#"+   "description": "\u{9b}31m does \u{202e}b""#), "{shown}");
    assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
    let listed_by_command = run_ok(&["list"], &config);
    assert!(listed_by_command.contains(&format!("up\ta\tchanged\t{first}\n")), "{listed_by_command}");

    // Without a terminal nobody can be asked, and a hash that was not shown approves nothing.
    for arguments in [
        vec!["approve", "up", "a"],
        vec!["approve", "up", "a", "--hash", &"0".repeat(64)],
        vec!["approve", "up", "b", "--hash", &first],
        vec!["approve", "up", "--all", "--hash", &first],
        vec!["approve", "up", "a", "--hash", "abc"],
        vec!["approve", "other", "a", "--hash", &first],
    ] {
        assert!(!run(&arguments, &config).status.success(), "{arguments:?}");
    }
    wait_rounds(&upstream);
    assert!(is_withheld(&daemon, "a"));

    // It changes again before the approval is given.
    tools.set(&[&FULL.replace("does a", "does worse"), B]);
    let second = pending(&kept(&folder, |file| pending(file, "a").is_some_and(|now| now != first)), "a");
    assert!(!run(&["approve", "up", "a", "--hash", &first], &config).status.success());
    // It changes after the approval was given, and before it is taken up.
    let approvals = folder.path().join("pins/approvals");
    let stale = json!({"upstream": "up", "tool": "a", "hash": first}).to_string();
    fs::write(approvals.join("stale.json"), stale).expect("written");
    daemon.wait_for_log(0, "a refusal", |line| line.contains("not approved"));
    assert!(is_withheld(&daemon, "a"));

    let second = second.expect("a hash");
    run_ok(&["approve", "up", "a", "--hash", &second], &config);
    wait_withheld(&daemon, "a", false);
    let said = daemon.wait_for_log(0, "the approval", |line| line.contains("was approved"));
    assert!(said.contains("audit: ") && said.contains("act=\"approve\"") && said.contains(&second), "{said}");
    eventually("it is listed", || (listed(&daemon).len() == 2).then_some(()));
    kept(&folder, |file| pending(file, "a").is_none());
    eventually("the approval is gone", || {
        fs::read_dir(&approvals).expect("a directory").next().is_none().then_some(())
    });
}

#[test]
fn all_that_waits_is_approved_at_once() {
    let tools = Tools::new(&[FULL, B]);
    let (upstream, folder) = (tools.start(), Folder::new());
    let config = config(&upstream, "block", &folder);
    let daemon = Daemon::start(&config);
    assert!(!is_withheld(&daemon, "b"));
    tools.set(&[&FULL.replace("does a", "does b"), B, r#"{"name":"c","inputSchema":{"type":"object"}}"#]);
    kept(&folder, |file| pending(file, "a").is_some() && pending(file, "c").is_some());
    assert!(is_withheld(&daemon, "b"));
    let table = run_ok(&["list", "up"], &config);
    let all = table.lines().find_map(|line| line.strip_prefix("up\t--all\twaiting\t")).expect("a hash");
    run_ok(&["approve", "up", "--all", "--hash", all], &config);
    wait_withheld(&daemon, "b", false);
    eventually("all are listed", || (listed(&daemon) == ["a", "b", "c"]).then_some(()));
    assert!(!is_withheld(&daemon, "a") && !is_withheld(&daemon, "c"));
    assert!(!run(&["approve", "up", "--all", "--hash", all], &config).status.success());
}

#[test]
fn a_restart_forgets_nothing() {
    let tools = Tools::new(&[FULL, B]);
    let (upstream, folder) = (tools.start(), Folder::new());
    let config = config(&upstream, "quarantine", &folder);
    let mut daemon = Daemon::start(&config);
    assert!(!is_withheld(&daemon, "a"));
    kept(&folder, |file| file["complete"] == true);
    let file = folder.path().join("pins/up.json");
    assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
    daemon.kill();
    drop(daemon);
    tools.set(&[&FULL.replace("does a", "does b"), B]);
    let mut daemon = Daemon::start(&config);
    // The very first call is judged by what was pinned before.
    assert!(is_withheld(&daemon, "a") && !is_withheld(&daemon, "b"));
    assert_eq!(upstream.received_of("tools/call").len(), 2);
    let hash = wait_pending(&folder, "a");
    daemon.kill();
    drop(daemon);
    // Approved while nobody runs.
    run_ok(&["approve", "up", "a", "--hash", &hash], &config);
    let daemon = Daemon::start(&config);
    wait_withheld(&daemon, "a", false);
}

#[test]
fn a_gateway_that_stops_writes_down_what_it_has_just_seen() {
    let (tools, folder) = (Tools::new(&[FULL]), Folder::new());
    let upstream = tools.start();
    let mut daemon = Daemon::start(&config(&upstream, "block", &folder));
    kept(&folder, |file| file["complete"] == true);
    tools.set(&[FULL, B]);
    eventually("it is seen", || (pins(&daemon, "new") == 1).then_some(()));
    daemon.terminate();
    assert!(daemon.wait_exit().success());
    let file = fs::read_to_string(folder.path().join("pins/up.json")).expect("a file");
    let file: Value = serde_json::from_str(&file).expect("JSON");
    assert!(pending(&file, "b").is_some(), "{file:#}");
}

#[test]
fn what_cannot_be_read_lets_nothing_through() {
    let folder = Folder::new();
    let tools = Tools::new(&[FULL, B]);
    let (upstream, other) = (tools.start(), Upstream::with_tools(&["o"]));
    fs::create_dir(folder.path().join("pins")).expect("a directory");
    let file = folder.path().join("pins/up.json");
    fs::write(&file, "{\"layout\":1,").expect("written");
    let lines = |mode: &str| format!("pins = \"{mode}\"\n{OFTEN}");
    let with = |mode: &str| {
        let config = Config::new().upstream("up", upstream.address, &lines(mode));
        config.upstream("other", other.address, &lines(mode)).admin().top(&folder.key())
    };
    let daemon = Daemon::start(&with("quarantine"));
    daemon
        .wait_for_log(0, "what is wrong", |line| line.contains("cannot be read") && line.contains("up.json"));
    assert_unknown(&daemon.send(&call("7", "up__a")), 503);
    assert_eq!(listed(&daemon), ["other__o"]);
    daemon.send(&call("7", "other__o")).assert_ok();
    assert_eq!(pins(&daemon, "unreadable"), 1);
    assert!(upstream.received_of("tools/call").is_empty());
    assert!(!run(&["list"], &with("quarantine")).status.success());
    assert_eq!(fs::read_to_string(&file).expect("a file"), "{\"layout\":1,", "it stays as it is");

    daemon.reload(&with("warn"));
    eventually("it is only a warning", || (listed(&daemon).len() == 3).then_some(()));
    daemon.send(&call("7", "up__a")).assert_ok();

    daemon.reload(&with("quarantine"));
    eventually("nothing is let through", || (listed(&daemon).len() == 1).then_some(()));
    fs::remove_file(&file).expect("removed");
    daemon.reload(&with("quarantine"));
    eventually("it is pinned anew", || (listed(&daemon).len() == 3).then_some(()));
    daemon.send(&call("7", "up__a")).assert_ok();
    assert_eq!(pins(&daemon, "unreadable"), 0);
}

#[test]
fn a_notice_is_heeded_before_the_next_call() {
    let tools = Tools::new(&[FULL, B]);
    let own = tools.clone();
    let server =
        Listening::beside(move |request| own.offer().answer(request), |_| crate::harness::Listened::Honoured);
    let folder = Folder::new();
    // Nothing but the notice would make it look.
    let config = Config::new()
        .upstream("up", server.upstream.address, "pins = \"quarantine\"\npins_age_max = \"24h\"")
        .admin()
        .top(&folder.key());
    let daemon = Daemon::start(&config);
    let mut client = daemon.connect();
    let params = format!(r#"{{"notifications":{{"toolsListChanged":true}},"_meta":{META}}}"#);
    client.write(&modern("subscriptions/listen", None, body("9", "subscriptions/listen", &params)).bytes());
    let stream = server.tools_stream();
    assert!(!is_withheld(&daemon, "a"));
    wait_settled(&daemon);
    tools.set(&[&FULL.replace("does a", "does b"), B]);
    stream.notify("notifications/tools/list_changed", "{}");
    wait_withheld(&daemon, "a", true);
    assert_eq!(listed(&daemon), ["b"]);
}

/// Waits until calls are judged by what is known.
fn wait_settled(daemon: &Daemon) {
    eventually("it is pinned", || (pins(daemon, "pinned") == 2).then_some(()));
    assert!(!is_withheld(daemon, "b"));
}

#[test]
fn a_call_fails_where_the_definitions_cannot_be_had() {
    let (address, _socket) = refusing_address();
    let folder = Folder::new();
    for (mode, statuses) in [("warn", [502, 503]), ("quarantine", [502, 503]), ("block", [502, 503])] {
        let lines = format!("pins = \"{mode}\"");
        let daemon = Daemon::start(&Config::new().upstream("up", address, &lines).top(&folder.key()));
        let response = daemon.send(&call("7", "a"));
        assert!(statuses.contains(&response.status), "{mode} {response:?}");
    }
    // Calls would be answered, but lists are not: who withholds changed tools cannot know.
    let upstream = Upstream::start(|request| match request.method().as_str() {
        "tools/call" => Reply::result(request, r#"{"content":[],"resultType":"complete"}"#),
        _ => Reply::error(request, "500 Internal Server Error", -32603, "no"),
    });
    for (mode, status) in [("warn", 200), ("quarantine", 502), ("block", 502)] {
        let lines = format!("pins = \"{mode}\"");
        let daemon =
            Daemon::start(&Config::new().upstream("up", upstream.address, &lines).top(&folder.key()));
        assert_eq!(daemon.send(&call("7", "a")).status, status, "{mode}");
    }
    assert_eq!(upstream.received_of("tools/call").len(), 1);
}

#[test]
fn a_change_does_not_hide_behind_a_mistake() {
    let tools = Tools::new(&[FULL, B]);
    let (upstream, folder) = (tools.start(), Folder::new());
    let daemon = Daemon::start(&config(&upstream, "quarantine", &folder));
    assert!(!is_withheld(&daemon, "a"));
    // The tool is left out of lists, as its annotation is against the rules; it must not be callable for that.
    let broken =
        FULL.replace("\"description\":\"deep\"", "\"description\":\"evil\",\"x-mcp-header\":\"a b\"");
    tools.set(&[&broken, B]);
    daemon.wait_for_log(0, "why it is left out", |line| line.contains("annotations are left out"));
    wait_withheld(&daemon, "a", true);
    tools.set(&[B]);
    wait_rounds(&upstream);
    tools.set(&[&FULL.replace("does a", "is back"), B]);
    wait_withheld(&daemon, "a", true);
}

const VARYING_MEMBER: &str = "inputSchema.properties.limit.default";

/// A gateway before a server each of whose processes defines its tool otherwise, once it is pinned.
fn varying(child: &Child, folder: &Folder) -> (Daemon, Config) {
    let lines =
        child.keys(&format!("eras = [\"legacy\"]\npins = \"quarantine\"\nlist_sessions_max = 8\n{OFTEN}"));
    let config = Config::new().raw("up", &lines).admin().top(&folder.key());
    let daemon = Daemon::start(&config);
    eventually("the tool is pinned", || (pins(&daemon, "pinned") == 1).then_some(()));
    kept(folder, |file| file["complete"] == true);
    (daemon, config)
}

#[test]
fn a_definition_that_differs_from_process_to_process_is_told_as_that() {
    let (child, folder) = (Child::new(&["varies"]), Folder::new());
    let (daemon, config) = varying(&child, &folder);
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, legacy("1", "tools/list", "{}"))).assert_ok();
    // Another kind of client, so another process.
    let other = open_session_with(daemon.address(), LEGACY_VERSION, r#"{"roots":{}}"#);
    daemon.send(&in_session(&other, legacy("1", "tools/list", "{}"))).assert_ok();
    let line =
        daemon.wait_for_log(0, "what differs", |line| line.contains("differs from process to process"));
    assert!(line.contains(&format!("member=\"{VARYING_MEMBER}\"")), "{line}");
    assert!(line.contains("tool=\"echo\"") && line.contains("mode=\"quarantine\""), "{line}");
    wait_pending(&folder, "echo");
    kept(&folder, |file| file["tools"][0]["pending"][0]["beside"] == true);
    let list = run_ok(&["list"], &config);
    assert!(list.contains(&format!("\tdiffers from process to process, in {VARYING_MEMBER}\n")), "{list}");
    let shown = run_ok(&["show", "up", "echo"], &config);
    let expected = format!("differs from process to process, first in {VARYING_MEMBER}: no approval lasts");
    assert!(shown.contains(&expected), "{shown}");
    let status = daemon.get_admin("/status").json();
    let expected = json!([{"name": "echo", "member": VARYING_MEMBER}]);
    assert_eq!(status["upstreams"][0]["pins"]["varying"], expected, "{status}");
}

#[test]
fn the_error_of_a_call_says_that_processes_differ() {
    let (child, folder) = (Child::new(&["varies"]), Folder::new());
    let (daemon, _) = varying(&child, &folder);
    let pinned = kept(&folder, |file| file["tools"][0]["approved"].as_array().is_some());
    let approved = pinned["tools"][0]["approved"].as_array().expect("definitions");
    // The gateway's own list is asked for in another process from now on.
    let pid = approved[0]["definition"]["inputSchema"]["properties"]["limit"]["default"].as_i64();
    let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).expect("a process");
    kill_process(pid, Signal::KILL).expect("it lives");
    let message = eventually("the call is refused", || {
        let answer = daemon.send(&call("7", "echo")).json();
        answer["error"]["message"].as_str().map(str::to_owned)
    });
    let expected = format!("differs from process to process of its server, first in {VARYING_MEMBER},");
    assert!(message.contains(&expected), "{message}");
}

#[test]
fn definitions_that_differ_by_dialect_do_not_flap() {
    let offer = Offer { tools: vec![FULL.into(), B.into()], ..Offer::default() };
    let both = Legacy::new(offer).and_modern();
    let (own, is_evil) = (both.clone(), Arc::new(Mutex::new(false)));
    let evil = Arc::clone(&is_evil);
    // Those who can do something are told more, and those of the legacy era less.
    let upstream = Upstream::start(move |request| {
        let is_list = request.method() == "tools/list";
        if !is_list {
            return own.answer(request);
        }
        let capabilities =
            request.json()["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].to_string();
        let description = match capabilities.as_str() {
            "null" => "old",
            "{}" => "plain",
            odd if odd.contains("odd") => "odd",
            _ => "capable",
        };
        let evil = if *evil.lock().unwrap() { " and evil" } else { "" };
        let tool = FULL.replace("does a", &format!("{description}{evil}"));
        Reply::result(
            request,
            &format!(r#"{{"tools":[{tool},{B}],"ttlMs":0,"cacheScope":"private","resultType":"complete"}}"#),
        )
    });
    let folder = Folder::new();
    let lines = format!("pins = \"quarantine\"\n{OFTEN}");
    let config = Config::new().probed("up", upstream.address, &lines).admin().top(&folder.key());
    let daemon = Daemon::start(&config);
    eventually("both eras are served", || {
        (daemon.metric(r#"trunkline_upstream_eras{era="legacy",upstream="up"}"#) == 1).then_some(())
    });
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let old = || daemon.send(&in_session(&session, legacy("1", "tools/list", "{}")));
    let call_old = || {
        let params = r#"{"name":"a","arguments":{}}"#;
        daemon.send(&in_session(&session, legacy("7", "tools/call", params)))
    };
    eventually("it is pinned", || (listed(&daemon).len() == 2).then_some(()));
    let capable = |capabilities: &str| -> Request {
        list("1", "tools/list").replacing(
            r#""io.modelcontextprotocol/clientCapabilities":{}"#,
            &format!(r#""io.modelcontextprotocol/clientCapabilities":{capabilities}"#),
        )
    };
    for _ in 0..3 {
        assert_eq!(listed(&daemon), ["a", "b"]);
        assert_eq!(tool_names(&old()), ["a", "b"]);
        assert_eq!(tool_names(&daemon.send(&capable(r#"{"sampling":{}}"#))), ["a", "b"]);
        wait_rounds(&upstream);
    }
    assert_eq!(changes(&daemon), 0);
    // What one odd client is shown is withheld from it, and from nobody else.
    assert_eq!(tool_names(&daemon.send(&capable(r#"{"odd":{}}"#))), ["b"]);
    assert_eq!(listed(&daemon), ["a", "b"]);
    assert!(!is_withheld(&daemon, "a"));
    call_old().assert_ok();

    *is_evil.lock().unwrap() = true;
    wait_withheld(&daemon, "a", true);
    assert_eq!(listed(&daemon), ["b"]);
    assert_eq!(tool_names(&old()), ["b"]);
    let refused = call_old();
    // The outcome of a request in a session is told within the answer.
    assert_eq!(refused.json()["error"]["code"], 403, "{refused:?}");
    // No other spelling of the name gets there.
    let calls = upstream.received_of("tools/call").len();
    let params = r#"{"name":"\u0061","arguments":{}}"#;
    daemon.send(&in_session(&session, legacy("7", "tools/call", params)));
    daemon.send(&call("7", "a").set("Mcp-Name", "=?base64?YQ==?="));
    daemon.send(&call("7", "a").without("Mcp-Name"));
    daemon.send(&call("7", "a").set("Mcp-Name", "b"));
    assert_eq!(upstream.received_of("tools/call").len(), calls);
}

#[test]
fn a_reload_keeps_what_is_pinned() {
    let tools = Tools::new(&[FULL, B]);
    let (upstream, folder) = (tools.start(), Folder::new());
    let daemon = Daemon::start(&config(&upstream, "warn", &folder));
    eventually("it is pinned", || (pins(&daemon, "pinned") == 2).then_some(()));
    kept(&folder, |file| file["complete"] == true);
    tools.set(&[&FULL.replace("does a", "does b"), B]);
    daemon.wait_for_log(0, "a change", |line| line.contains("the definition of a tool changed"));
    assert!(!is_withheld(&daemon, "a"));
    daemon.reload(&config(&upstream, "quarantine", &folder));
    wait_withheld(&daemon, "a", true);
    assert_eq!(listed(&daemon), ["b"]);
    assert_eq!(changes(&daemon), 1);
    daemon.reload(&config(&upstream, "off", &folder));
    wait_withheld(&daemon, "a", false);
    daemon.reload(&config(&upstream, "block", &folder));
    wait_withheld(&daemon, "b", true);
}

#[test]
fn without_a_state_directory_a_warning_says_what_that_means() {
    let tools = Tools::new(&[FULL, B]);
    let upstream = tools.start();
    let config = Config::new().upstream("up", upstream.address, &format!("pins = \"quarantine\"\n{OFTEN}"));
    let daemon = Daemon::start(&config);
    daemon.wait_for_log(0, "a warning", |line| line.contains("what is pinned of tools is forgotten"));
    assert!(!is_withheld(&daemon, "a"));
    tools.set(&[&FULL.replace("does a", "does b"), B]);
    wait_withheld(&daemon, "a", true);
    let output = run(&["list"], &config);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no state directory"), "{output:?}");
}

#[test]
fn another_server_of_the_same_name_is_looked_at_before_it_is_called() {
    let (first, second) = (Tools::new(&[FULL, B]), Tools::new(&[&FULL.replace("does a", "does b"), B]));
    let (before, after, folder) = (first.start(), second.start(), Folder::new());
    let of = |upstream: &Upstream| {
        // What was looked at stays young for the whole test.
        let lines = "pins = \"quarantine\"\npins_age_max = \"1h\"";
        Config::new().upstream("up", upstream.address, lines).admin().top(&folder.key())
    };
    let daemon = Daemon::start(&of(&before));
    assert!(!is_withheld(&daemon, "a"));
    let from = daemon.log().len();
    daemon.reload(&of(&after));
    daemon.wait_for_log(from, "reloaded", |line| line.contains("reloaded"));
    assert!(is_withheld(&daemon, "a"));
    assert!(after.received_of("tools/call").is_empty());
    assert!(!is_withheld(&daemon, "b"));
}

#[test]
fn a_tool_with_two_names_is_not_pinned_as_one_and_read_as_the_other() {
    let tools = Tools::new(&[FULL, B]);
    let (upstream, folder) = (tools.start(), Folder::new());
    let daemon = Daemon::start(&config(&upstream, "quarantine", &folder));
    kept(&folder, |file| file["complete"] == true);
    assert_eq!(listed(&daemon), ["a", "b"]);
    for evil in [
        r#"{"name":"harmless","name":"a","description":"evil","inputSchema":{"type":"object"}}"#,
        r#"{"name":"harmless","n\u0061me":"a","description":"evil","inputSchema":{"type":"object"}}"#,
        r#"{"Name":"a","name":"harmless","description":"evil","inputSchema":{"type":"object"}}"#,
    ] {
        tools.set(&[evil, B]);
        eventually("neither is listed", || (listed(&daemon) == ["b"]).then_some(()));
        assert!(!daemon.send(&list("1", "tools/list")).text().contains("evil"));
        wait_withheld(&daemon, "a", true);
        tools.set(&[FULL, B]);
        wait_withheld(&daemon, "a", false);
        eventually("it is as it was", || (listed(&daemon) == ["a", "b"]).then_some(()));
    }
}

/// A disk that is full, a directory that is read-only: the approval holds, and nobody is told otherwise.
#[test]
fn a_file_that_cannot_be_written_is_told_once_and_refuses_no_approval() {
    let folder = Folder::new();
    let tools = Tools::new(&[FULL, B]);
    let upstream = tools.start();
    let daemon = Daemon::start(&config(&upstream, "quarantine", &folder));
    assert!(!is_withheld(&daemon, "a"));
    tools.set(&[&FULL.replace("does a", "does b"), B]);
    let hash = wait_pending(&folder, "a");
    let (file, approvals) = (folder.path().join("pins/up.json"), folder.path().join("pins/approvals"));
    fs::remove_file(&file).expect("removed");
    fs::create_dir_all(file.join("in the way")).expect("a directory");
    let approval = json!({"upstream": "up", "tool": "a", "hash": hash}).to_string();
    fs::write(approvals.join("one.json"), approval).expect("written");
    wait_withheld(&daemon, "a", false);
    let again = |line: &str| line.contains("cannot be kept") && line.contains("failures=2");
    daemon.wait_for_log(0, "the second attempt", again);
    assert_eq!(pins(&daemon, "unwritable"), 1);
    let status: Value = serde_json::from_str(&daemon.get_admin("/status").text()).expect("JSON");
    assert_eq!(status["upstreams"][0]["pins"]["unwritable"], true);
    let log = daemon.log();
    let audited: Vec<&String> = log.iter().filter(|line| line.contains("act=\"approve\"")).collect();
    assert!(audited.len() == 1 && audited[0].contains("was approved"), "{audited:?}");
    assert!(approvals.join("one.json").exists(), "what is not written down is not forgotten");

    fs::remove_dir_all(&file).expect("removed");
    kept(&folder, |file| pending(file, "a").is_none());
    daemon.wait_for_log(0, "that it is well again", |line| line.contains("is kept again"));
    eventually("the approval is gone", || (!approvals.join("one.json").exists()).then_some(()));
    assert_eq!(pins(&daemon, "unwritable"), 0);
}

/// What lies in the way of one approval is in the way of no other, and is told once.
#[test]
fn an_approval_that_cannot_be_removed_is_looked_at_once() {
    let folder = Folder::new();
    let tools = Tools::new(&[FULL, B]);
    let upstream = tools.start();
    let daemon = Daemon::start(&config(&upstream, "quarantine", &folder));
    assert!(!is_withheld(&daemon, "a"));
    tools.set(&[&FULL.replace("does a", "does b"), B]);
    let hash = wait_pending(&folder, "a");
    let approvals = folder.path().join("pins/approvals");
    fs::create_dir(approvals.join("none.json")).expect("a directory");
    daemon.wait_for_log(0, "the other", |line| line.contains("an approval cannot be removed"));
    let approval = json!({"upstream": "up", "tool": "a", "hash": hash}).to_string();
    for name in ["one.json", "again.json"] {
        fs::write(approvals.join(name), &approval).expect("written");
        eventually("the approval is gone", || (!approvals.join(name).exists()).then_some(()));
    }
    wait_withheld(&daemon, "a", false);
    let log = daemon.log();
    let count = |text: &str| log.iter().filter(|line| line.contains(text)).count();
    assert_eq!(count("cannot be read is dropped"), 1, "{log:#?}");
    assert_eq!(count("an approval cannot be removed"), 1, "{log:#?}");
    assert_eq!(count("was approved"), 1, "{log:#?}");
    assert_eq!(count("not approved"), 1, "the second one approves nothing that waits: {log:#?}");
}

/// Whoever runs the service, where the tests may be root: nobody else on this machine.
const SERVICE: u32 = 54_321;

/// The owner that a file of the service has: [`SERVICE`], or whoever runs the tests if that is not root.
fn service(folder: &Folder) -> u32 {
    let own = fs::metadata(folder.path()).expect("a directory").uid();
    if own == 0 { SERVICE } else { own }
}

fn give(path: &Path, owner: u32) {
    lchown(path, Some(owner), Some(owner))
        .or_else(|error| if owner == SERVICE { Err(error) } else { Ok(()) })
        .expect("given");
}

/// A state directory as the gateway of another user leaves it, where the tests may be root: `a` waits for approval.
fn waiting_state(folder: &Folder) -> String {
    let definition = r#"{"name":"a"}"#;
    let hash =
        Sha256::digest(definition).iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    let pending = json!({"sha256": hash, "definition": {"name": "a"}});
    let tool = json!({"name": "a", "approved": [], "pending": [pending]});
    let file = json!({"layout": 1, "complete": true, "tools": [tool]}).to_string();
    let pins = folder.path().join("pins");
    fs::create_dir_all(pins.join("approvals")).expect("directories");
    fs::write(pins.join("up.json"), file).expect("written");
    let owner = service(folder);
    for path in [folder.path(), &pins, &pins.join("approvals"), &pins.join("up.json")] {
        give(path, owner);
    }
    hash
}

/// The command is run by root, and the state directory belongs to somebody who is not.
#[test]
fn an_approval_goes_nowhere_but_into_the_state_directory() {
    let upstream = Tools::new(&[B]).start();
    let state = Folder::new();
    let hash = waiting_state(&state);
    let approve = |state: &Folder| {
        let config = config(&upstream, "quarantine", state);
        run(&["approve", "up", "a", "--hash", &hash], &config)
    };
    let output = approve(&state);
    assert!(output.status.success(), "{output:?}");
    let left = |folder: &Path| -> Vec<_> {
        fs::read_dir(folder).expect("a directory").map(|entry| entry.expect("an entry").path()).collect()
    };
    let written = left(&state.path().join("pins/approvals"));
    let [written] = &written[..] else { panic!("{written:?}") };
    let (found, owner) = (fs::metadata(written).expect("a file"), service(&state));
    assert_eq!((found.uid(), found.mode() & 0o777), (owner, 0o600));

    for component in ["pins", "pins/approvals", "pins/up.json"] {
        let (state, elsewhere) = (Folder::new(), Folder::new());
        waiting_state(&state);
        let (path, target) = (state.path().join(component), elsewhere.path().join("target"));
        fs::rename(&path, &target).expect("moved");
        // Somebody else's, wherever the tests may say so.
        if owner == SERVICE {
            chown(&target, Some(0), Some(0)).expect("given");
        }
        symlink(&target, &path).expect("a link");
        give(&path, owner);
        let before = fs::metadata(&target).expect("the target");
        let output = approve(&state);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("link"), "{component}: {output:?}");
        let after = fs::metadata(&target).expect("the target");
        assert_eq!(
            (after.uid(), after.gid(), after.mode()),
            (before.uid(), before.gid(), before.mode()),
            "{component}"
        );
        let inside = if component == "pins" { target.join("approvals") } else { target.clone() };
        assert!(inside.is_file() || left(&inside).is_empty(), "{component}: written elsewhere");
    }

    let state = Folder::new();
    waiting_state(&state);
    let file = state.path().join("pins/up.json");
    fs::hard_link(&file, state.path().join("other")).expect("a link");
    let output = approve(&state);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("link"), "{output:?}");
    fs::remove_file(&file).expect("removed");
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a pipe");
    let output = approve(&state);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("no regular file"), "{output:?}");
}
