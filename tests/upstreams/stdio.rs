//! Servers that are child processes: their calls, their isolation, their faults and their end.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{
    Child, Config, Connection, Daemon, LEGACY_VERSION, META, Request, Response, api_key, body, call,
    eventually, in_session, legacy, list, listen, modern, open_session, post, side_by_side, tool_names,
    trunkline, with_key,
};

/// One child called `up` that speaks the legacy era only.
fn legacy_child(child: &Child, lines: &str) -> Config {
    Config::new().raw("up", &child.keys(&format!("eras = [\"legacy\"]\n{lines}"))).admin()
}

/// One that speaks the modern era only.
fn modern_child(child: &Child, lines: &str) -> Config {
    Config::new().raw("up", &child.keys(&format!("eras = [\"modern\"]\n{lines}"))).admin()
}

fn tool(id: &str, name: &str, arguments: &str) -> Request {
    legacy(id, "tools/call", &format!(r#"{{"name":"{name}","arguments":{arguments}}}"#))
}

fn open(daemon: &Daemon) -> String {
    open_session(daemon.address(), LEGACY_VERSION).0
}

/// What a tool said.
#[track_caller]
fn said(response: &Response) -> String {
    assert_eq!(response.status, 200, "{response:?} {}", response.text());
    let json: Value = if response.header("content-type") == Some("text/event-stream") {
        let text = response.text();
        let last = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
        serde_json::from_str(last.expect("an event")).expect("JSON")
    } else {
        response.json()
    };
    json["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {json}")).to_owned()
}

fn echo(daemon: &Daemon, session: &str, text: &str) -> String {
    let arguments = format!(r#"{{"text":"{text}"}}"#);
    said(&daemon.send(&in_session(session, tool("1", "echo", &arguments))))
}

/// The process that serves a session.
fn pid(daemon: &Daemon, session: &str) -> String {
    said(&daemon.send(&in_session(session, tool("1", "echo", "{}"))))
}

/// The JSON-RPC error of an answer.
#[track_caller]
fn error_code(response: &Response) -> i64 {
    response.json()["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error in {}", response.text()))
}

#[test]
fn a_session_has_a_process_of_its_own() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&legacy_child(&child, ""));
    let (one, two) = (open(&daemon), open(&daemon));
    assert_eq!(echo(&daemon, &one, "é \\\" line\\n"), "é \" line\n");
    assert_ne!(pid(&daemon, &one), pid(&daemon, &two));
    assert_eq!(pid(&daemon, &one), pid(&daemon, &one));
    let offered = &child.received("initialize");
    let names: Vec<&Value> = offered.iter().map(|message| &message["params"]["clientInfo"]["name"]).collect();
    assert_eq!(names.iter().filter(|name| **name == "blackbox").count(), 2, "{names:?}");

    // Its end is the session's.
    let before = daemon.find_metric_of_up("trunkline_children").expect("a gauge");
    daemon.send(&in_session(&one, legacy("1", "x", "{}")).method("DELETE").body(""));
    child.wait_for("end of input", 1);
    eventually("the process is counted no more", || {
        (daemon.find_metric_of_up("trunkline_children")? < before).then_some(())
    });
    assert_eq!(echo(&daemon, &two, "goes on"), "goes on");
}

/// How often the thread that the process began with has slept.
fn sleeps_of_control(daemon: &Daemon) -> u64 {
    let pid = daemon.pid();
    let status = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/status")).expect("it lives");
    let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    sleeps.and_then(|sleeps| sleeps.trim().parse().ok()).expect("a number")
}

#[test]
fn calls_of_a_child_that_all_share_do_not_wake_the_control_thread() {
    const CALLS: u64 = 200;
    let modern = Child::new(&["modern"]);
    // The gateway starts it to learn its eras.
    let daemon = Daemon::start(&Config::new().raw("up", &modern.keys("")).admin());
    daemon.wait_metric(r#"trunkline_children{upstream="up"}"#, 1);
    daemon.send(&call("1", "echo")).assert_ok();
    let before = sleeps_of_control(&daemon);
    for _ in 0..CALLS {
        daemon.send(&call("1", "echo")).assert_ok();
    }
    let sleeps = sleeps_of_control(&daemon) - before;
    assert!(sleeps < CALLS / 2, "{sleeps} of {CALLS} calls");

    let shared = Child::new(&[]);
    let daemon = Daemon::start(&legacy_child(&shared, "isolation = \"shared\""));
    let session = open(&daemon);
    let before = sleeps_of_control(&daemon);
    for _ in 0..CALLS {
        echo(&daemon, &session, "a");
    }
    let sleeps = sleeps_of_control(&daemon) - before;
    assert!(sleeps < CALLS / 2, "{sleeps} of {CALLS} calls in a session");
}

#[test]
fn ids_and_tokens_of_two_clients_never_meet() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&legacy_child(&child, "isolation = \"shared\""));
    let (one, two) = (open(&daemon), open(&daemon));
    assert_eq!(pid(&daemon, &one), pid(&daemon, &two));
    // The first call is still open when the second comes with the same id and token.
    let params =
        |tool: &str| format!(r#"{{"name":"{tool}","arguments":{{}},"_meta":{{"progressToken":"t"}}}}"#);
    let mut hanging = daemon.connect();
    hanging.write(&in_session(&one, legacy("\"x\"", "tools/call", &params("hang"))).bytes());
    child.wait_received("tools/call", 3);
    let response = daemon.send(&in_session(&two, legacy("\"x\"", "tools/call", &params("progress"))));
    assert_eq!(said(&response), "done");
    let events = response.text();
    assert_eq!(events.matches(r#""progressToken":"t""#).count(), 3, "{events}");
    assert_eq!(events.matches(r#""id":"x""#).count(), 1, "{events}");
    let calls = child.received("tools/call");
    let (first, second) = (&calls[2], &calls[3]);
    assert_ne!(first["id"], second["id"]);
    assert_ne!(first["params"]["_meta"]["progressToken"], second["params"]["_meta"]["progressToken"]);

    // A cancellation finds its own call.
    let note = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}"#;
    let cancel = in_session(&one, legacy("1", "x", "{}").body(note));
    assert_eq!(daemon.send(&cancel).status, 202);
    let cancelled = child.wait_received("notifications/cancelled", 1);
    assert_eq!(cancelled[0]["params"]["requestId"], first["id"]);
}

#[test]
fn sessions_that_share_a_process_do_not_change_each_other() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&legacy_child(&child, "isolation = \"shared\""));
    let (one, two) = (open(&daemon), open(&daemon));
    assert_eq!(child.received("initialize").len(), child.pids().len(), "one initialize for each process");
    let ask = |session: &str, method: &str, params: &str| {
        let response = daemon.send(&in_session(session, legacy("5", method, params)));
        response.assert_ok();
        assert_eq!(response.json()["id"], 5);
    };
    let uri = r#"{"uri":"test://a"}"#;
    for (session, method) in [
        (&one, "resources/subscribe"),
        (&two, "resources/subscribe"),
        (&one, "resources/unsubscribe"),
        (&two, "resources/unsubscribe"),
    ] {
        ask(session, method, uri);
    }
    assert_eq!(child.received("resources/subscribe").len(), 1);
    assert_eq!(child.received("resources/unsubscribe").len(), 1);

    // The most verbose level of all is the child's, and each gets what it asked for.
    pid(&daemon, &one);
    pid(&daemon, &two);
    ask(&one, "logging/setLevel", r#"{"level":"error"}"#);
    ask(&two, "logging/setLevel", r#"{"level":"debug"}"#);
    ask(&one, "logging/setLevel", r#"{"level":"warning"}"#);
    let levels: Vec<Value> = child
        .wait_received("logging/setLevel", 2)
        .iter()
        .map(|told| told["params"]["level"].clone())
        .collect();
    assert_eq!(levels, ["error", "debug"]);
    let logged = |session: &str| {
        let text = daemon.send(&in_session(session, tool("1", "log", "{}"))).text();
        ["debug", "info", "error"].map(|level| text.matches(&format!(r#""data":"{level}""#)).count())
    };
    assert_eq!(logged(&one), [0, 0, 1]);
    assert_eq!(logged(&two), [1, 1, 1]);
    // Nobody can be asked anything.
    let answer = said(&daemon.send(&in_session(&one, tool("1", "ask", "{}"))));
    assert!(answer.contains("-32601"), "{answer}");
}

#[test]
fn principals_have_processes_of_their_own() {
    let child = Child::new(&[]);
    let keys = [("alice", "alice-key"), ("bob", "bob-key")];
    let config = legacy_child(&child, "isolation = \"principal\"");
    let config = keys.iter().fold(config, |config, (name, key)| config.section(&api_key(name, key)));
    let daemon = Daemon::start(&config);
    let as_of = |key: &str, request: Request| request.with("Authorization", format!("Bearer {key}"));
    let open = |key: &str| {
        let params =
            r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}"#;
        let response = daemon.send(&as_of(key, legacy("0", "initialize", params)));
        response.header("mcp-session-id").expect("a session").to_owned()
    };
    let pid = |key: &str, session: &str| {
        said(&daemon.send(&as_of(key, in_session(session, tool("1", "echo", "{}")))))
    };
    let (one, two, other) = (open("alice-key"), open("alice-key"), open("bob-key"));
    let alice = pid("alice-key", &one);
    assert_eq!(pid("alice-key", &two), alice);
    assert_ne!(pid("bob-key", &other), alice);
}

#[test]
fn a_request_of_the_child_reaches_the_client() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&legacy_child(&child, ""));
    let params = r#"{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}"#;
    let opened = daemon.send(&legacy("0", "initialize", params));
    let session = opened.header("mcp-session-id").expect("a session").to_owned();
    let mut calling = daemon.connect();
    calling.write(&in_session(&session, tool("7", "ask", "{}")).bytes());
    assert_eq!(calling.head().status, 200);
    let question = data(&calling.event().expect("a question"));
    assert_eq!(question["method"], "roots/list");
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"roots":[]}}}}"#, question["id"]);
    assert_eq!(daemon.send(&in_session(&session, legacy("1", "x", "{}").body(answer))).status, 202);
    let last = data(&calling.event().expect("an answer"));
    assert_eq!((&last["id"], &last["result"]["content"][0]["text"]), (&7.into(), &r#"{"roots": []}"#.into()));
}

#[test]
fn a_call_that_its_client_cancels_is_no_failure() {
    for (isolation, first) in [("session", "hang"), ("shared", "hang"), ("session", "hang-after-log")] {
        let child = Child::new(&[]);
        let daemon = Daemon::start(&legacy_child(&child, &format!("isolation = \"{isolation}\"")));
        let session = open(&daemon);
        assert_eq!(echo(&daemon, &session, "up"), "up");
        let from = daemon.log().len();
        let calls = child.received("tools/call").len();
        let mut hanging = daemon.connect();
        hanging.write(&in_session(&session, tool("9", first, "{}")).bytes());
        child.wait_received("tools/call", calls + 1);
        let note = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}"#;
        let cancel = in_session(&session, legacy("1", "x", "{}").body(note));
        assert_eq!(daemon.send(&cancel).status, 202);
        child.wait_received("notifications/cancelled", 1);
        // The call is over: what the child says of others is theirs, and its end breaks nothing off.
        let ended = hanging.response();
        assert_eq!(ended.status, 200);
        assert!(ended.text().contains("cancelled"), "{}", ended.text());
        let logged = daemon.send(&in_session(&session, tool("2", "log", "{}")));
        assert!(logged.text().matches("notifications/message").count() >= 2, "{}", logged.text());
        daemon.send(&in_session(&session, legacy("1", "x", "{}").method("DELETE").body("")));
        let log = daemon.log().split_off(from);
        assert!(log.iter().all(|line| !line.contains("WARN")), "{log:?}");
        let metrics = daemon.get_admin("/metrics").text();
        assert!(!metrics.contains("upstream_reset"), "{metrics}");
    }
}

#[test]
fn log_lines_of_the_only_call_come_before_its_answer() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&legacy_child(&child, ""));
    let session = open(&daemon);
    let get = legacy("1", "x", "{}").method("GET").body("").set("Accept", "text/event-stream");
    let mut listening = daemon.connect();
    listening.write(&in_session(&session, get).bytes());
    assert_eq!(listening.head().status, 200);
    assert_eq!(echo(&daemon, &session, "up"), "up");
    for _ in 0..20 {
        let text = daemon.send(&in_session(&session, tool("2", "log", "{}"))).text();
        let places: Vec<_> = ["debug", "info", "error", "logged"].map(|word| text.find(word)).into();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{text}");
    }
}

fn data(event: &str) -> Value {
    let data = event.lines().find_map(|line| line.strip_prefix("data: ")).expect("data");
    serde_json::from_str(data).expect("JSON")
}

/// Waits until so many processes have run, and each has its answer to the ping that it wrote first.
#[track_caller]
fn wait_for_pongs(child: &Child, processes: usize) {
    eventually("each ping is answered", || {
        let received = child.events_of("received");
        let is_pong =
            |event: &&Value| event["message"]["id"] == "first" && event["message"]["result"] == json!({});
        let mut answered: Vec<&Value> = received.iter().filter(is_pong).map(|event| &event["pid"]).collect();
        answered.sort_by_key(|pid| pid.as_i64());
        answered.dedup();
        (answered.len() >= processes && answered.len() == child.pids().len()).then_some(())
    });
}

#[test]
fn a_ping_that_comes_before_initialize_is_answered() {
    for isolation in ["session", "principal", "shared"] {
        let child = Child::new(&["pings-first"]);
        let lines = format!("isolation = {isolation:?}");
        // The first process is asked in both eras, and lists come from it, or from one of their own.
        let daemon = Daemon::start(&Config::new().raw("up", &child.keys(&lines)).admin());
        wait_for_pongs(&child, 1);
        let session = open(&daemon);
        daemon.send(&in_session(&session, legacy("1", "tools/list", "{}"))).assert_ok();
        assert_eq!(echo(&daemon, &session, "there"), "there", "{isolation}");
        wait_for_pongs(&child, if isolation == "session" { 2 } else { 1 });
        // A modern client reaches it over the bridge.
        daemon.send(&call("1", "echo")).assert_ok();
        wait_for_pongs(&child, child.pids().len());
    }
    let child = Child::new(&["modern", "pings-first"]);
    let daemon = Daemon::start(&modern_child(&child, ""));
    daemon.send(&call("1", "echo")).assert_ok();
    wait_for_pongs(&child, 1);
}

#[test]
fn a_change_that_the_gateways_own_process_tells_reaches_clients() {
    for isolation in ["session", "shared"] {
        let child = Child::new(&["changes-when-listed"]);
        let daemon = Daemon::start(&legacy_child(&child, &format!("isolation = {isolation:?}")));
        let get = post("").method("GET").without("Content-Type").set("Accept", "text/event-stream");
        let mut stream = daemon.connect();
        stream.write(&in_session(&open(&daemon), get).bytes());
        assert_eq!(stream.head().status, 200, "{isolation}");
        let listens = r#"trunkline_upstream_subscription_streams{upstream="up"}"#;
        daemon.wait_metric(listens, 1);
        daemon.send(&in_session(&open(&daemon), legacy("1", "tools/list", "{}"))).assert_ok();
        let heard = data(&stream.event().expect("an event"));
        assert_eq!(heard["method"], "notifications/tools/list_changed", "{isolation}");
    }
}

#[test]
fn modern_calls_share_a_process() {
    let child = Child::new(&["modern"]);
    let daemon = Daemon::start(&modern_child(&child, ""));
    let one = said(&daemon.send(&call("1", "echo")));
    assert_eq!(said(&daemon.send(&call("1", "echo"))), one);
    let progress = call("\"p\"", "progress").replacing(r#""_meta":{"#, r#""_meta":{"progressToken":"t","#);
    let response = daemon.send(&progress);
    assert_eq!(said(&response), "done");
    assert_eq!(response.text().matches(r#""progressToken":"t""#).count(), 3);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    daemon.send(&call("1", "echo").with("traceparent", trace)).assert_ok();
    let sent = child.received("tools/call").pop().expect("a call");
    assert_eq!(sent["params"]["_meta"]["traceparent"], trace);

    // Who goes away cancels.
    let mut leaving = daemon.connect();
    leaving.write(&call("1", "hang").bytes());
    let hanging = child.wait_received("tools/call", 5).pop().expect("a call");
    drop(leaving);
    let cancelled = child.wait_received("notifications/cancelled", 1);
    assert_eq!(cancelled[0]["params"]["requestId"], hanging["id"]);
    // One that ended is started anew.
    daemon.send(&call("1", "die")).assert_error(502, 502, Some("1"));
    assert_ne!(said(&daemon.send(&call("1", "echo"))), one);
}

#[test]
fn a_call_that_ends_its_process_keeps_nobody_else_from_one() {
    let child = Child::new(&["modern"]);
    let keys = ["one", "two"].map(|name| (name, format!("{name}-key-0123456789abcdefghijklmnop")));
    let [first, second] = keys.each_ref().map(|(name, key)| api_key(name, key));
    let daemon = Daemon::start(&modern_child(&child, "").section(&first).section(&second));
    // The process of the one answers nothing before it ends; then the other needs a process of its own.
    let [one, two] = keys.each_ref().map(|(_, key)| key);
    daemon.send(&with_key(call("1", "die"), one)).assert_error(502, 502, Some("1"));
    daemon.wait_metric(r#"trunkline_child_crashes_total{upstream="up"}"#, 1);
    daemon.send(&with_key(call("1", "echo"), two)).assert_ok();
    assert_eq!(daemon.find_metric_of_up("trunkline_child_crash_loop"), Some(0));
}

#[test]
fn a_subscription_is_told_over_the_shared_process() {
    let child = Child::new(&["modern"]);
    let mut daemon =
        Daemon::start(&modern_child(&child, "").section("[drain]\nquiet = \"0s\"\nmax = \"20s\""));
    let params = format!(r#"{{"notifications":{{"toolsListChanged":true}},"_meta":{META}}}"#);
    let mut listening = daemon.connect();
    let listen = body("\"s\"", "subscriptions/listen", &params);
    listening.write(&modern("subscriptions/listen", None, listen).bytes());
    assert_eq!(listening.head().status, 200);
    let acknowledged = data(&listening.event().expect("an acknowledgement"));
    assert_eq!(acknowledged["params"]["notifications"]["toolsListChanged"], true);
    child.wait_received("subscriptions/listen", 1);
    daemon.send(&call("1", "change")).assert_ok();
    let changed = data(&listening.event().expect("a change"));
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    assert_eq!(changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "s");
    // An open subscription does not hold up the end.
    let since = Instant::now();
    daemon.terminate();
    assert!(daemon.wait_exit().success() && since.elapsed() < Duration::from_secs(8));
    child.wait_gone();
}

/// The processes that received a message of this method.
fn receivers(child: &Child, method: &str) -> Vec<i64> {
    let received =
        child.events_of("received").into_iter().filter(|event| event["message"]["method"] == method);
    received.filter_map(|event| event["pid"].as_i64()).collect()
}

#[test]
fn a_modern_subscription_to_a_resource_is_heard_in_its_principals_process() {
    let keys = ["one", "two"].map(|name| (name, format!("{name}-key-0123456789abcdefghijklmnop")));
    let [first, second] = keys.each_ref().map(|(name, key)| api_key(name, key));
    let child = Child::new(&["modern"]);
    let daemon = Daemon::start(&modern_child(&child, "").section(&first).section(&second));
    let filter = r#"{"resourceSubscriptions":["test://a"]}"#;
    let mut streams = keys.each_ref().map(|(_, key)| {
        let mut stream = daemon.begin(&with_key(listen("\"s\"", filter), key));
        assert_eq!(stream.head().status, 200);
        let acknowledged = data(&stream.event().expect("an acknowledgement"));
        assert_eq!(acknowledged["params"]["notifications"]["resourceSubscriptions"][0], "test://a");
        stream
    });
    // Equal ids and names of two principals: each hears of its own process alone.
    for ((_, key), stream) in keys.iter().zip(&mut streams) {
        let params =
            format!(r#"{{"name":"update-listened","arguments":{{"uri":"test://a"}},"_meta":{META}}}"#);
        let request = modern("tools/call", Some("update-listened"), body("1", "tools/call", &params));
        let process = said(&daemon.send(&with_key(request, key)));
        // The gateway itself tells of a change where the process was slow to listen.
        let told = std::iter::repeat_with(|| data(&stream.event().expect("an update")));
        let updated = told
            .take(2)
            .find(|updated| !updated["params"]["pid"].is_null())
            .expect("an update of the process");
        assert_eq!(updated["method"], "notifications/resources/updated");
        assert_eq!(updated["params"]["pid"].to_string(), process, "{updated}");
        assert_eq!(updated["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "s");
    }
    assert_ne!(receivers(&child, "subscriptions/listen")[0], receivers(&child, "subscriptions/listen")[1]);

    // Over the bridge, too.
    let child = Child::new(&[]);
    let config = legacy_child(&child, "isolation = \"principal\"").section(&first).section(&second);
    let daemon = Daemon::start(&config);
    for (_, key) in &keys {
        let process = said(&daemon.send(&with_key(call("1", "echo"), key)));
        let before = child.received("resources/subscribe").len();
        let mut stream = daemon.begin(&with_key(listen("1", filter), key));
        assert_eq!(stream.head().status, 200);
        child.wait_received("resources/subscribe", before + 1);
        assert_eq!(receivers(&child, "resources/subscribe").last().map(i64::to_string), Some(process));
    }
}

#[test]
fn eras_are_found_out_on_one_process() {
    // A program of both is spoken to in the newer one.
    for (words, era, starts) in [
        (&["modern"][..], "modern", 1),
        (&["modern", "fixes-era"], "modern", 1),
        (&[], "legacy", 1),
        (&["strict"], "legacy", 1),
        (&["silent-on-discover"], "legacy", 1),
    ] {
        let child = Child::new(words);
        let daemon = Daemon::start(&Config::new().raw("up", &child.keys("")).admin());
        daemon.wait_for_log(0, "the eras", |line| line.contains(&format!("upstream speaks {era} ")));
        let first = child.pids()[0];
        let of_first = |method: &str| {
            let received = child.events_of("received");
            received
                .iter()
                .filter(|event| event["message"]["method"] == method && event["pid"] == first)
                .count()
        };
        assert_eq!(of_first("server/discover"), starts, "{words:?}");
        assert_eq!(of_first("initialize"), usize::from(era == "legacy"), "{words:?}");
        assert_eq!(child.pids().len(), 1, "{words:?}");
    }
}

#[test]
fn a_process_that_takes_long_to_start_is_asked_for_its_era_once() {
    let cases = [(&["slow", "modern"][..], "modern"), (&["slow"], "legacy")];
    side_by_side(cases, |(words, era)| {
        let child = Child::new(words);
        let daemon = Daemon::start(&Config::new().raw("up", &child.keys("")).admin());
        let said = daemon.wait_for_log(0, "the eras", |line| line.contains("upstream speaks"));
        assert!(said.contains(&format!("upstream speaks {era} ")), "{said}");
        assert_eq!(child.pids().len(), 1, "it is asked on the same process");
        assert_eq!(child.received("initialize").len(), usize::from(era == "legacy"), "{words:?}");
    });
}

#[test]
fn garbage_is_skipped_and_counted() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&legacy_child(&child, ""));
    let session = open(&daemon);
    assert_eq!(said(&daemon.send(&in_session(&session, tool("1", "garbage", "{}")))), "clean");
    daemon.wait_for_log(0, "garbage", |line| line.contains("no message") && line.contains("starting up"));
    eventually("garbage is counted", || {
        (daemon.find_metric_of_up("trunkline_child_invalid_lines_total") == Some(5)).then_some(())
    });
}

#[test]
fn a_flood_harms_nobody_else() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&legacy_child(&child, "").limits("reply_bytes_max = \"64KiB\""));
    let (one, two) = (open(&daemon), open(&daemon));
    let before = pid(&daemon, &one);
    let mut flooded = daemon.connect();
    assert_eq!(echo(&daemon, &two, "before"), "before");
    flooded.write(&in_session(&one, tool("1", "flood", "{}")).bytes());
    // The flood is as fast as its own client reads it.
    let reading = std::thread::spawn(move || {
        assert_eq!(flooded.head().status, 200);
        std::iter::from_fn(|| flooded.event()).last()
    });
    let written = || child.events_of("flooding").len();
    child.wait_for("flooding", 1);
    // The other's calls are answered while more and more of the flood is taken in.
    let (mut calls, mut rises, mut before_call) = (0, 0, written());
    eventually("the flood goes on", || {
        let begun = Instant::now();
        assert_eq!(echo(&daemon, &two, &calls.to_string()), calls.to_string());
        assert!(begun.elapsed() < Duration::from_secs(5), "call {calls} took {:?}", begun.elapsed());
        calls += 1;
        let after_call = written();
        rises += usize::from(after_call > before_call);
        before_call = after_call;
        (calls >= 20 && rises >= 3).then_some(())
    });
    assert!(child.events_of("flooded").is_empty(), "the flood was over before the calls were");
    child.go_on();
    child.wait_for("flooded", 1);
    let last = reading.join().expect("read to the end").expect("events");
    assert_eq!(data(&last)["result"]["content"][0]["text"], "flooded");
    assert_eq!(pid(&daemon, &one), before);
}

#[test]
fn an_answer_that_cannot_be_read_fails_its_call_at_once() {
    let cases = [
        ("nan", "it is no JSON at byte 45: expected value"),
        ("utf8", "it is not UTF-8 from byte 4"),
        ("control", "it is no JSON at byte 4"),
        ("deep", "it is nested deeper than json_depth_max (128) at byte 1"),
        ("twice", "not a JSON-RPC 2.0 message"),
        ("joined", "it is no JSON at byte 40"),
        ("long", "it is no JSON at byte 400"),
    ];
    for (words, lines) in [(&[][..], ""), (&[], "isolation = \"shared\""), (&["modern"], "")] {
        let child = Child::new(words);
        let daemon = Daemon::start(&Config::new().raw("up", &child.keys(lines)).admin());
        daemon.wait_for_log(0, "the eras", |line| line.contains("upstream speaks"));
        let session = open(&daemon);
        let is_modern = words == ["modern"];
        let pid = || if is_modern { said(&daemon.send(&call("1", "echo"))) } else { pid(&daemon, &session) };
        let before = pid();
        for (how, why) in cases {
            let from = daemon.log().len();
            let arguments = format!(r#"{{"how":"{how}"}}"#);
            // It fails long before `response_timeout`, which is longer than this test waits.
            let response = if is_modern {
                let params = format!(r#"{{"name":"unreadable","arguments":{arguments},"_meta":{META}}}"#);
                daemon.send(&modern("tools/call", Some("unreadable"), body("1", "tools/call", &params)))
            } else {
                daemon.send(&in_session(&session, tool("1", "unreadable", &arguments)))
            };
            assert_eq!(error_code(&response), 502, "{how}");
            assert!(response.text().contains("not valid MCP"), "{how}: {}", response.text());
            let logged = daemon.wait_for_log(from, "why", |line| line.contains("a line that is no message"));
            assert!(logged.contains(why), "{how}: {logged}");
        }
        // Some runtimes write a byte order mark first.
        let marked =
            if is_modern { call("1", "marked") } else { in_session(&session, tool("1", "marked", "{}")) };
        assert_eq!(said(&daemon.send(&marked)), "marked");
        assert_eq!(pid(), before, "the process goes on");
    }
}

#[test]
fn an_answer_that_is_too_large_fails_its_call_alone() {
    for (words, lines) in [(&[][..], "isolation = \"shared\""), (&["modern"], "")] {
        let child = Child::new(words);
        let config = Config::new().raw("up", &child.keys(lines)).limits("reply_bytes_max = \"64KiB\"");
        let daemon = Daemon::start(&config.admin());
        daemon.wait_for_log(0, "the eras", |line| line.contains("upstream speaks"));
        let is_modern = words == ["modern"];
        let session = open(&daemon);
        let request = |id: &str, name: &str, arguments: &str| {
            if is_modern {
                let params = format!(r#"{{"name":"{name}","arguments":{arguments},"_meta":{META}}}"#);
                modern("tools/call", Some(name), body(id, "tools/call", &params))
            } else {
                in_session(&session, tool(id, name, arguments))
            }
        };
        let process = said(&daemon.send(&request("1", "echo", "{}")));
        let mut hanging = daemon.connect();
        hanging.write(&request("9", "hang", "{}").bytes());
        for (bytes, id_last) in [(100_000, false), (100_000, true), (3_000_000, true)] {
            let from = daemon.log().len();
            let arguments = format!(r#"{{"bytes":{bytes},"id_last":{id_last}}}"#);
            let response = daemon.send(&request("7", "large", &arguments));
            assert_eq!((error_code(&response), &response.json()["id"]), (502, &7.into()));
            let told = response.text();
            assert!(told.contains("reply_bytes_max (65536)"), "{told}");
            let size = told.split(" bytes").next().and_then(|rest| rest.rsplit(' ').next()).expect("a size");
            assert!(size.parse::<usize>().expect("a number") > bytes, "{told}");
            let logged = daemon.wait_for_log(from, "why", |line| {
                line.contains("larger than reply_bytes_max") && line.contains("is_answer")
            });
            for expected in [format!("bytes={size}"), "reply_bytes_max=65536".into(), "is_answer=true".into()]
            {
                assert!(logged.contains(&expected), "{logged}");
            }
        }
        assert_eq!(said(&daemon.send(&request("1", "echo", "{}"))), process, "the process goes on");
        if !is_modern {
            let note = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}"#;
            daemon.send(&in_session(&session, legacy("1", "x", "{}").body(note)));
            assert_eq!(error_code(&hanging.response()), -32800, "the other call went on");
        }
    }
}

#[test]
fn a_line_that_never_ends_ends_the_process() {
    let child = Child::new(&[]);
    let config = legacy_child(&child, "response_timeout = \"1s\"").limits("reply_bytes_max = \"64KiB\"");
    let daemon = Daemon::start(&config);
    let (one, two) = (open(&daemon), open(&daemon));
    eventually("both have their processes", || {
        let said = [&one, &two].map(|session| daemon.send(&in_session(session, tool("1", "echo", "{}"))));
        said.iter().all(|response| response.text().contains("content")).then_some(())
    });
    let before = pid(&daemon, &two);
    let response = daemon.send(&in_session(&one, tool("1", "endless", "{}")));
    assert!([502, 504].contains(&error_code(&response)), "{}", response.text());
    daemon.wait_for_log(0, "why", |line| line.contains("larger than reply_bytes_max and does not end"));
    assert_eq!(pid(&daemon, &two), before);
    eventually("it is up again", || {
        daemon.send(&in_session(&one, tool("1", "echo", "{}"))).text().contains("content").then_some(())
    });
}

#[test]
fn unfinished_lines_of_all_processes_are_bounded_together() {
    let child = Child::new(&[]);
    let limits = "buffered_bytes_max = \"1MiB\"\nbody_bytes_max = \"64KiB\"\nreply_bytes_max = \"1MiB\"";
    let daemon = Daemon::start(&legacy_child(&child, "").limits(limits));
    let sessions: Vec<String> = (0..3).map(|_| open(&daemon)).collect();
    let calling: Vec<Connection> = sessions
        .iter()
        .map(|session| {
            let mut connection = daemon.connect();
            connection.write(&in_session(session, tool("1", "huge", r#"{"bytes":500000}"#)).bytes());
            connection
        })
        .collect();
    daemon.wait_for_log(0, "why", |line| line.contains("as buffered_bytes_max allows"));
    drop(calling);
    let fourth = open(&daemon);
    assert_eq!(echo(&daemon, &fourth, "goes on"), "goes on");
}

#[test]
fn a_call_that_hangs_times_out_alone() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&legacy_child(&child, "isolation = \"shared\"\nresponse_timeout = \"1s\""));
    let (one, two) = (open(&daemon), open(&daemon));
    let mut hanging = daemon.connect();
    assert_eq!(echo(&daemon, &one, "up"), "up");
    hanging.write(&in_session(&one, tool("9", "hang", "{}")).bytes());
    for _ in 0..5 {
        assert_eq!(echo(&daemon, &two, "meanwhile"), "meanwhile");
    }
    let response = hanging.response();
    assert_eq!((error_code(&response), &response.json()["id"]), (504, &9.into()));
    child.wait_received("notifications/cancelled", 1);
    assert_eq!(echo(&daemon, &one, "after"), "after");
}

#[test]
fn death_in_a_call_is_told_and_the_next_call_works() {
    for (words, deadly) in [(&[][..], "die"), (&[], "die-half")] {
        let child = Child::new(words);
        let daemon = Daemon::start(&legacy_child(&child, ""));
        let (one, two) = (open(&daemon), open(&daemon));
        let (first, other) = (pid(&daemon, &one), pid(&daemon, &two));
        let response = daemon.send(&in_session(&one, tool("3", deadly, "{}")));
        assert_eq!((error_code(&response), &response.json()["id"]), (502, &3.into()));
        assert!(response.text().contains("unknown"), "{}", response.text());
        assert_ne!(pid(&daemon, &one), first, "a new process, in the same session");
        assert_eq!(pid(&daemon, &two), other, "the other goes on");
        daemon.wait_for_log(0, "the end", |line| line.contains("a child process ended unasked"));
        assert_eq!(daemon.find_metric_of_up("trunkline_child_crashes_total"), Some(1));
        // That its session was gone by the next call is no failure of that.
        let failed = |why: &str| {
            daemon
                .find_metric(&format!("mcp_client_operation_duration_seconds_count{{error_type=\"{why}\"}}"))
        };
        assert_eq!((failed("upstream_reset"), failed("upstream_session")), (Some(1), None));
    }
}

#[test]
fn a_process_that_does_not_start_is_not_started_all_the_time() {
    let cases = [
        (&["dies-at-start"][..], ""),
        (&["dies-in-initialize"], ""),
        (&["dies-at-start"], "isolation = \"shared\""),
    ];
    side_by_side(cases, |(words, lines)| {
        let child = Child::new(words);
        let daemon = Daemon::start(&legacy_child(&child, lines));
        let session = open(&daemon);
        let refused = eventually("it is said that it does not start", || {
            let response = daemon.send(&in_session(&session, tool("1", "echo", "{}")));
            (error_code(&response) == 503).then_some(response)
        });
        assert!(refused.json()["error"]["data"]["retryAfterMs"].as_u64() >= Some(1000), "{}", refused.text());
        assert!(refused.text().contains("does not start"), "{}", refused.text());
        daemon.wait_for_log(0, "the loop", |line| line.contains("end before they answer"));
        assert_eq!(daemon.find_metric_of_up("trunkline_child_crash_loop"), Some(1));
        let told: Value = serde_json::from_str(&daemon.get_admin("/status").text()).expect("JSON");
        assert!(told["upstreams"][0]["down_since_s"].as_u64() > Some(0), "{told:#}");
        // However often it is asked for, it is started only now and then.
        let (starts, since) = (child.pids().len(), Instant::now());
        for _ in 0..50 {
            daemon.send(&in_session(&session, tool("1", "echo", "{}")));
        }
        if since.elapsed() < Duration::from_secs(1) {
            assert!(child.pids().len() <= starts + 2, "{} of {starts}", child.pids().len());
        }
    });
}

#[test]
fn a_process_that_ends_when_initialized_fails_its_own_calls() {
    let child = Child::new(&["dies-when-initialized"]);
    let daemon = Daemon::start(&legacy_child(&child, ""));
    let session = open(&daemon);
    let response = daemon.send(&in_session(&session, tool("1", "echo", "{}")));
    assert!([502, 503].contains(&error_code(&response)), "{}", response.text());
    child.wait_gone();
}

#[test]
fn a_process_that_is_gone_before_its_session_begins_has_executed_nothing() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&legacy_child(&child, ""));
    assert_eq!(echo(&daemon, &open(&daemon), "up"), "up");
    child.hold();
    let mut calling = daemon.begin(&in_session(&open(&daemon), tool("1", "echo", "{}")));
    child.wait_for("holding", 1);
    // Its answer and its end are there at once.
    daemon.paused(|| {
        child.go_on();
        child.wait_for("closed", 1);
    });
    let response = calling.response();
    let error = response.assert_error(200, 502, Some("1"));
    assert!(error.to_string().contains("not executed"), "{error}");
}

/// The process that answers, once one does.
fn served(daemon: &Daemon, request: &Request) -> String {
    eventually("it is served", || {
        let response = daemon.send(request);
        response.text().contains("content").then(|| said(&response))
    })
}

#[test]
fn one_that_is_stopped_is_replaced() {
    side_by_side([true, false], |is_modern| {
        let child = Child::new(if is_modern { &["modern"] } else { &[] });
        let lines = "response_timeout = \"1s\"\nstop_timeout = \"200ms\"";
        let config = if is_modern { modern_child(&child, lines) } else { legacy_child(&child, lines) };
        let daemon = Daemon::start(&config);
        let session = (!is_modern).then(|| open(&daemon));
        let request = match &session {
            Some(session) => in_session(session, tool("1", "echo", "{}")),
            None => call("1", "echo"),
        };
        let stopped = served(&daemon, &request);
        let pid = stopped.parse().ok().and_then(Pid::from_raw).expect("a process");
        kill_process(pid, Signal::STOP).expect("it lives");
        let from = daemon.log().len();
        // A short message fits into the pipe: the call times out alone.
        assert!(daemon.send(&request).text().contains("error"));
        daemon.wait_for_log(from, "its end", |line| line.contains("it does not read its input"));
        assert_ne!(served(&daemon, &request), stopped);
    });
}

#[test]
fn one_that_works_for_long_and_reads_nothing_meanwhile_goes_on() {
    let child = Child::new(&["modern"]);
    let daemon = Daemon::start(&modern_child(&child, "response_timeout = \"1s\""));
    let before = served(&daemon, &call("1", "echo"));
    // It is told that its call is cancelled, which it reads after half a second more.
    for _ in 0..3 {
        assert!(daemon.send(&call("2", "doze")).text().contains("error"));
        assert_eq!(served(&daemon, &call("3", "echo")), before);
    }
    // One that says how far it is has as long as it says something.
    let mut calling = daemon.connect();
    let params = format!(
        r#"{{"name":"busy","arguments":{{}},"_meta":{}}}"#,
        META.replacen('{', r#"{"progressToken":"t","#, 1)
    );
    calling.write(&modern("tools/call", Some("busy"), body("4", "tools/call", &params)).bytes());
    eventually("it works", || {
        let calls = child.received("tools/call");
        calls.iter().any(|call| call["params"]["name"] == "busy").then_some(())
    });
    assert!(daemon.send(&call("5", "echo")).text().contains("error"), "it waits for too long");
    assert_eq!(served(&daemon, &call("6", "echo")), before);
}

#[test]
fn answers_in_batches_and_ids_with_a_fraction_are_understood() {
    for words in [&["batches"][..], &["fractions"], &["batches", "fractions"]] {
        for is_modern in [true, false] {
            let child = Child::new(&[words, if is_modern { &["modern"] } else { &[] }].concat());
            let config = if is_modern { modern_child(&child, "") } else { legacy_child(&child, "") };
            let daemon = Daemon::start(&config);
            let request = if is_modern {
                call("\"own\"", "echo")
            } else {
                in_session(&open(&daemon), tool("\"own\"", "echo", "{}"))
            };
            let response = daemon.send(&request);
            assert_eq!(said(&response), child.pids().last().expect("one").to_string(), "{words:?}");
            assert!(response.text().contains("\"own\""), "{words:?} {}", response.text());
            let log = daemon.log();
            assert!(!log.iter().any(|line| line.contains("that is no message")), "{words:?}: {log:?}");
        }
    }
}

#[test]
fn one_that_never_reads_is_ended() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&legacy_child(&child, "response_timeout = \"3s\"\nstop_timeout = \"200ms\""));
    let (one, two) = (open(&daemon), open(&daemon));
    assert_eq!(echo(&daemon, &two, "up"), "up");
    eventually("its process is up", || {
        daemon.send(&in_session(&one, tool("1", "echo", "{}"))).text().contains("content").then_some(())
    });
    assert_eq!(said(&daemon.send(&in_session(&one, tool("1", "deaf", "{}")))), "deaf");
    let long = "x".repeat(300_000);
    let arguments = format!(r#"{{"text":"{long}"}}"#);
    let mut waiting: Vec<Connection> = (0..3).map(|_| daemon.connect()).collect();
    for connection in &mut waiting {
        connection.write(&in_session(&one, tool("1", "echo", &arguments)).bytes());
    }
    assert_eq!(echo(&daemon, &two, "meanwhile"), "meanwhile");
    for connection in &mut waiting {
        assert!([502, 504].contains(&error_code(&connection.response())));
    }
    daemon.wait_for_log(0, "why", |line| line.contains("does not read its input"));
    assert_eq!(echo(&daemon, &one, "anew"), "anew");
}

#[test]
fn a_process_is_stopped_step_by_step() {
    for (words, said) in [
        (&[][..], vec!["end of input", "ended"]),
        (&["stays"], vec!["end of input", "SIGTERM"]),
        (&["stubborn"], vec!["end of input", "SIGTERM"]),
    ] {
        let child = Child::new(words);
        let mut daemon = Daemon::start(
            &legacy_child(&child, "stop_timeout = \"300ms\"")
                .section("[drain]\nquiet = \"0s\"\nmax = \"5s\""),
        );
        let session = open(&daemon);
        pid(&daemon, &session);
        let group = child.events_of("started").pop().expect("a process");
        assert_eq!(group["pid"], group["pgid"], "a process group of its own");
        let last = group["pid"].clone();
        daemon.terminate();
        assert!(daemon.wait_exit().success());
        child.wait_gone();
        let events = child.events();
        let of_last: Vec<&str> = events
            .iter()
            .filter(|event| event["pid"] == last && event["event"] != "received")
            .filter_map(|event| event["event"].as_str())
            .collect();
        assert_eq!(of_last, [vec!["started"], said].concat(), "{words:?}");
    }
}

#[test]
fn no_process_is_started_for_a_gateway_that_is_about_to_end() {
    let child = Child::new(&["stays"]);
    let mut daemon = Daemon::start(
        &legacy_child(&child, "stop_timeout = \"3s\"").section("[drain]\nquiet = \"0s\"\nmax = \"5s\""),
    );
    let session = open(&daemon);
    pid(&daemon, &session);
    // While a client listens, the gateway hears of changes in a session of its own, which it opens again if it ends.
    let get = post("").method("GET").without("Content-Type").set("Accept", "text/event-stream");
    let mut stream = daemon.connect();
    stream.write(&in_session(&session, get).bytes());
    assert_eq!(stream.head().status, 200);
    let listens = r#"trunkline_upstream_subscription_streams{upstream="up"}"#;
    daemon.wait_metric(listens, 1);
    let running = child.pids();
    daemon.terminate();
    assert!(daemon.wait_exit().success());
    assert_eq!(child.pids(), running);
}

#[test]
fn the_end_of_the_gateway_is_the_end_of_input() {
    let child = Child::new(&[]);
    let mut daemon = Daemon::start(&legacy_child(&child, ""));
    let session = open(&daemon);
    pid(&daemon, &session);
    let running = child.pids().len();
    let ended = child.events_of("end of input").len();
    assert!(running > ended);
    daemon.kill();
    child.wait_for("end of input", running);
    child.wait_gone();
}

#[test]
fn an_upstream_that_is_configured_no_longer_ends_its_processes() {
    let (child, other) = (Child::new(&[]), Child::new(&[]));
    let keys = |child: &Child| child.keys("eras = [\"legacy\"]");
    let both = Config::new().raw("up", &keys(&child)).raw("other", &keys(&other));
    let daemon = Daemon::start(&both);
    let session = open(&daemon);
    let pid = |daemon: &Daemon, tool_name: &str| {
        said(&daemon.send(&in_session(&session, tool("1", tool_name, "{}"))))
    };
    pid(&daemon, "other__echo");
    let kept = pid(&daemon, "up__echo");
    daemon.reload(
        &Config::new()
            .raw("up", &child.keys("eras = [\"legacy\"]\nresponse_timeout = \"50s\""))
            .endpoint("names = \"prefixed\""),
    );
    other.wait_gone();
    // Other settings of the gateway are no reason to start it anew.
    assert_eq!(pid(&daemon, "up__echo"), kept);
}

#[test]
fn an_idle_process_makes_room_for_another() {
    for (lines, limits) in [("children_max = 2", ""), ("", "children_max = 2")] {
        let child = Child::new(&[]);
        let daemon = Daemon::start(&legacy_child(&child, lines).limits(limits));
        // What it is asked at first is over.
        child.wait_for("end of input", 1);
        eventually("nothing runs", || (daemon.find_metric_of_up("trunkline_children")? == 0).then_some(()));
        let sessions = [(); 3].map(|()| open(&daemon));
        // Each waits for room until another has been idle long enough, and goes on whenever it is used.
        for round in 0..2 {
            for session in &sessions {
                eventually("there is room", || {
                    let response = daemon.send(&in_session(session, tool("1", "echo", r#"{"text":"here"}"#)));
                    if response.text().contains("here") {
                        return Some(());
                    }
                    assert_eq!(error_code(&response), 503, "round {round}: {}", response.text());
                    None
                });
            }
        }
        assert!(daemon.find_metric_of_up("trunkline_child_evictions_total").expect("a counter") >= 4);
        assert!(daemon.find_metric_of_up("trunkline_children").expect("a gauge") <= 2);
    }
}

#[test]
fn a_process_that_is_needed_makes_no_room() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&legacy_child(&child, "children_max = 2"));
    child.wait_for("end of input", 1);
    eventually("nothing runs", || (daemon.find_metric_of_up("trunkline_children")? == 0).then_some(()));
    let [calling, listening, third] = [(); 3].map(|()| open(&daemon));
    let heard_by = pid(&daemon, &listening);
    let mut hanging = daemon.connect();
    hanging.write(&in_session(&calling, tool("1", "hang", "{}")).bytes());
    child.wait_received("tools/call", 2);
    // Last: while a client listens, the gateway listens, too, with a process of its own if there is room.
    let get = post("").method("GET").without("Content-Type").set("Accept", "text/event-stream");
    let mut stream = daemon.connect();
    stream.write(&in_session(&listening, get).bytes());
    assert_eq!(stream.head().status, 200);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(2) {
        let refused = daemon.send(&in_session(&third, tool("1", "echo", "{}")));
        assert_eq!(error_code(&refused), 503, "{}", refused.text());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(pid(&daemon, &listening), heard_by);
    assert_eq!(daemon.find_metric_of_up("trunkline_child_evictions_total"), Some(0));
    // Once its client has left, it is idle.
    drop(stream);
    eventually("there is room", || {
        let response = daemon.send(&in_session(&third, tool("1", "echo", r#"{"text":"here"}"#)));
        response.text().contains("here").then_some(())
    });
    assert_eq!(child.events_of("ended").len(), child.pids().len() - 2, "the call still runs");
}

#[test]
fn the_gateway_starts_no_process_for_a_client_that_has_left() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&legacy_child(&child, "children_max = 2"));
    child.wait_for("end of input", 1);
    eventually("nothing runs", || (daemon.find_metric_of_up("trunkline_children")? == 0).then_some(()));
    let [calling, listening] = [(); 2].map(|()| open(&daemon));
    pid(&daemon, &listening);
    let mut hanging = daemon.connect();
    hanging.write(&in_session(&calling, tool("1", "hang", "{}")).bytes());
    child.wait_received("tools/call", 2);
    let get = post("").method("GET").without("Content-Type").set("Accept", "text/event-stream");
    let mut stream = daemon.connect();
    let logged = daemon.log().len();
    stream.write(&in_session(&listening, get).bytes());
    assert_eq!(stream.head().status, 200);
    daemon.wait_for_log(logged, "there is no room to listen", |line| line.contains("cannot hear of changes"));
    drop(stream);
    daemon.wait_metric("trunkline_session_streams", 0);
    let started = child.pids().len();
    let ended = daemon.send(&in_session(&listening, post("").method("DELETE").without("Content-Type")));
    assert_eq!(ended.status, 204);
    eventually("there is room", || (daemon.find_metric_of_up("trunkline_children")? == 1).then_some(()));
    // While somebody listened, it was tried again within this time.
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        assert_eq!(child.pids().len(), started);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn there_are_no_more_processes_than_allowed() {
    for (lines, limits) in [("children_max = 2", ""), ("", "children_max = 2")] {
        let child = Child::new(&["modern"]);
        let config = modern_child(&child, lines).limits(limits);
        let keys = [("a", "key-a"), ("b", "key-b"), ("c", "key-c")];
        let config = keys.iter().fold(config, |config, (name, key)| config.section(&api_key(name, key)));
        let daemon = Daemon::start(&config);
        let with = |key: &str, name: &str| call("1", name).with("Authorization", format!("Bearer {key}"));
        let before = child.received("tools/call").len();
        let _hanging = ["key-a", "key-b"].map(|key| {
            eventually("there is room", || (daemon.send(&with(key, "echo")).status == 200).then_some(()));
            daemon.begin(&with(key, "hang"))
        });
        child.wait_received("tools/call", before + 4);
        let refused = daemon.send(&with("key-c", "echo"));
        assert_eq!(refused.header("retry-after"), Some("10"));
        refused.assert_error(503, 503, Some("1"));
        assert_eq!(daemon.find_metric_of_up("trunkline_children"), Some(2));
    }
}

#[test]
fn secrets_of_its_environment_are_masked_in_the_log() {
    let child = Child::new(&[]);
    let folder = crate::harness::Folder::new();
    let file = folder.path().join("secret");
    std::fs::write(&file, "s3cret-of-the-child\n").expect("a file");
    let lines = format!("env = {{ SECRET = {{ file = {file:?} }} }}");
    let daemon = Daemon::start(&legacy_child(&child, &lines));
    let session = open(&daemon);
    assert_eq!(said(&daemon.send(&in_session(&session, tool("1", "tell-secret", "{}")))), "said");
    for kind in ["stderr", "no message"] {
        let logged = daemon.wait_for_log(0, kind, |line| line.contains(kind) && line.contains("the key is"));
        assert!(logged.contains("the key is ***"), "{logged}");
    }
    assert!(daemon.log().iter().all(|line| !line.contains("s3cret-of-the-child")));
}

#[test]
fn an_unused_process_is_stopped_and_started_again() {
    let child = Child::new(&["modern"]);
    let daemon = Daemon::start(&modern_child(&child, "child_idle_timeout = \"200ms\""));
    let first = said(&daemon.send(&call("1", "echo")));
    child.wait_for("ended", 1);
    assert_ne!(said(&daemon.send(&call("1", "echo"))), first);
}

/// The gateway's own session, in which lists are fetched, keeps none.
#[test]
fn an_unused_process_with_sessions_is_stopped_and_started_again() {
    side_by_side(["shared", "principal", "session"], |isolation| {
        let child = Child::new(&["strict", "tools-only"]);
        let keys = format!("child_idle_timeout = \"1s\"\nisolation = {isolation:?}");
        let daemon = Daemon::start(&legacy_child(&child, &keys));
        let listed = || tool_names(&daemon.send(&list("1", "tools/list")));
        assert_eq!(listed(), ["echo"]);
        child.wait_for("ended", 1);
        child.wait_gone();
        assert_eq!(child.pids().len(), 1, "{isolation}");
        assert_eq!(listed(), ["echo"], "{isolation}: its lists stay");
        child.wait_for("ended", 2);
        let answer = daemon.send(&in_session(&open(&daemon), tool("2", "echo", "{}")));
        assert_eq!(Some(said(&answer)), child.pids().last().map(ToString::to_string), "{isolation}");
        let is_warning = |line: &String| line.contains("WARN") && line.contains("upstream=");
        assert!(!daemon.log().iter().any(is_warning), "{:#?}", daemon.log());
    });
}

#[test]
fn a_child_gets_the_environment_it_is_given() {
    let child = Child::new(&[]);
    let lines = "args = [\"last word\"]\nenv = { GIVEN = \"a b\" }\nenv_pass = [\"CARGO_MANIFEST_DIR\"]\ndirectory = \"/usr\"";
    let daemon = Daemon::start(&legacy_child(&child, lines));
    let session = open(&daemon);
    let told = said(&daemon.send(&in_session(&session, tool("1", "env", "{}"))));
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!((&told["cwd"], &told["argv"]), (&"/usr".into(), &serde_json::json!(["last word"])));
    // Nothing of the gateway's is open in it; what the tests were started with may be.
    let files = told["files"].to_string();
    let is_of_gateway = |kind: &str| files.contains(kind);
    assert!(!["socket:", "anon_inode:", "trunkline"].into_iter().any(is_of_gateway), "{files}");
    let env = told["env"].as_object().expect("an object");
    assert_eq!(env["GIVEN"], "a b");
    // Cargo sets it for the tests, and so for the daemon.
    let passed = std::env::var("CARGO_MANIFEST_DIR").ok();
    assert_eq!(env.get("CARGO_MANIFEST_DIR").and_then(Value::as_str), passed.as_deref());
    assert!(env.contains_key("PATH"));
    assert!(env.keys().all(|name| !name.starts_with("CARGO_PKG")), "{env:?}");
}

#[test]
fn standard_error_is_logged() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&legacy_child(&child, ""));
    let session = open(&daemon);
    daemon.send(&in_session(&session, tool("1", "stderr", r#"{"lines":200}"#))).assert_ok();
    let line = daemon.wait_for_log(0, "its words", |line| line.contains("words"));
    assert!(line.contains("upstream=\"up\"") && !line.contains('\u{1b}'), "{line}");
    eventually("most lines are left out", || {
        daemon
            .find_metric_of_up("trunkline_child_stderr_lines_dropped_total")
            .filter(|dropped| *dropped > 100)
    });
    assert!(daemon.log().iter().filter(|line| line.contains("words")).count() < 60);
}

/// What it has said by then counts, though nothing can be written to it any more.
#[test]
fn a_child_that_reads_no_more_is_heard_out() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&legacy_child(&child, "calls_max = 9"));
    let session = open(&daemon);
    let (mut first, mut second) = (daemon.connect(), daemon.connect());
    first.write(&in_session(&session, tool("1", "shut", "{}")).bytes());
    child.wait_for("shut", 1);
    second.write(&in_session(&session, tool("2", "echo", "{}")).bytes());
    // Else another child may answer it.
    daemon.wait_metric(r#"trunkline_upstream_calls{upstream="up"}"#, 2);
    child.go_on();
    assert_eq!(said(&first.response()), "last words");
    second.response().assert_error(200, 502, Some("2"));
}

#[test]
fn a_flood_on_standard_error_waits() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&legacy_child(&child, ""));
    let session = open(&daemon);
    daemon.send(&in_session(&session, tool("1", "echo", "{}"))).assert_ok();
    let since = Instant::now();
    // 4 MB.
    daemon.send(&in_session(&session, tool("2", "stderr", r#"{"lines":200000}"#))).assert_ok();
    assert!(since.elapsed() > Duration::from_secs(1), "{:?}", since.elapsed());
}

#[test]
fn a_program_that_is_not_there_is_told() {
    let lines = "command = [\"no-such-program\", \"--password=x\"]\neras = [\"legacy\"]";
    let config = Config::new().raw("up", lines);
    let daemon = Daemon::start(&config);
    daemon.wait_for_log(0, "why", |line| line.contains("program `no-such-program` not found in PATH"));
    let session = open(&daemon);
    let response = daemon.send(&in_session(&session, tool("1", "echo", "{}")));
    assert_eq!(error_code(&response), 503, "{}", response.text());

    let (output, _) = trunkline(&["check"], Some(&config.to_string().replace("127.0.0.1:0", "127.0.0.1:1")));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    let at =
        lines.iter().position(|line| line.ends_with("warning: program `no-such-program` not found in PATH"));
    let at = at.unwrap_or_else(|| panic!("{said}"));
    assert!(lines[at + 2].ends_with(r#"command = ["no-such-program", "************"]"#), "the line: {said}");
}
