//! One process for the modern calls of several principals: how far the gateway keeps them apart.

use serde_json::Value;

use crate::harness::{
    Child, Config, Daemon, META, Request, api_key, body, call, eventually, modern, with_key,
};

const KEYS: [&str; 2] = ["one-key-0123456789abcdefghijklmnop", "two-key-0123456789abcdefghijklmnop"];

fn daemon(child: &Child) -> Daemon {
    let keys = child.keys("eras = [\"modern\"]\nisolation = \"shared\"");
    let config = Config::new().raw("up", &keys).admin();
    Daemon::start(&config.section(&api_key("one", KEYS[0])).section(&api_key("two", KEYS[1])))
}

/// A call of each with the same id and the same progress token.
fn tool(name: &str, more: &str) -> Request {
    let meta = META.replacen('{', r#"{"progressToken":"t","#, 1);
    let params = format!(r#"{{"name":"{name}","arguments":{{}}{more},"_meta":{meta}}}"#);
    modern("tools/call", Some(name), body("\"x\"", "tools/call", &params))
}

#[test]
fn ids_tokens_and_cancellations_of_two_principals_never_meet() {
    let child = Child::new(&["modern"]);
    let daemon = daemon(&child);
    let send = |key: &str, request: Request| daemon.send(&with_key(request, key));
    for key in KEYS {
        send(key, call("1", "echo")).assert_ok();
    }
    let pids: Vec<Value> = child
        .events_of("received")
        .into_iter()
        .filter(|event| event["message"]["method"] == "tools/call")
        .map(|event| event["pid"].clone())
        .collect();
    assert_eq!(pids[0], pids[1], "they share a process");

    let hanging = daemon.begin(&with_key(tool("hang", ""), KEYS[0]));
    let first = child.wait_received("tools/call", 3).pop().expect("a call");
    // The second's progress and answer are its own, and log lines that name no call are nobody's.
    let progress = send(KEYS[1], tool("progress", "")).text();
    assert_eq!(progress.matches(r#""progressToken":"t""#).count(), 3, "{progress}");
    assert_eq!(progress.matches(r#""id":"x""#).count(), 1, "{progress}");
    let logged = send(KEYS[1], tool("log", "")).text();
    assert!(logged.contains("logged") && !logged.contains("notifications/message"), "{logged}");
    // A client that leaves cancels its own call alone.
    let leaving = daemon.begin(&with_key(tool("hang", ""), KEYS[1]));
    let second = child.wait_received("tools/call", 6).pop().expect("a call");
    drop(leaving);
    let cancelled = child.wait_received("notifications/cancelled", 1);
    assert_eq!(cancelled[0]["params"]["requestId"], second["id"]);
    assert_ne!(first["id"], second["id"]);
    // The first still waits: it is cancelled only now.
    assert_eq!(child.received("notifications/cancelled").len(), 1);
    drop(hanging);
    let cancelled = child.wait_received("notifications/cancelled", 2);
    assert_eq!(cancelled[1]["params"]["requestId"], first["id"]);
}

#[test]
fn a_state_goes_back_for_its_principal_alone() {
    let child = Child::new(&["modern"]);
    let daemon = daemon(&child);
    let send = |key: &str, request: Request| daemon.send(&with_key(request, key));
    let asked = send(KEYS[0], tool("input", ""));
    let result = asked.json();
    let state = result["result"]["requestState"].as_str().expect("a state").to_owned();
    assert_ne!(state, "s", "the server's own state is not shown");
    let retry = |state: &str| {
        tool("input", &format!(r#","requestState":"{state}","inputResponses":{{"where":{{"roots":[]}}}}"#))
    };
    let before = child.received("tools/call").len();
    for (key, state) in [(KEYS[1], state.as_str()), (KEYS[0], "s")] {
        let refused = send(key, retry(state));
        assert_eq!(refused.json()["error"]["code"], -32602, "{}", refused.text());
    }
    assert_eq!(child.received("tools/call").len(), before, "nothing of it reaches the server");
    let answered = eventually("its own goes on", || {
        let answered = send(KEYS[0], retry(&state));
        (answered.status == 200).then_some(answered)
    });
    assert!(answered.text().contains("roots"), "{}", answered.text());
    let last = child.received("tools/call").pop().expect("a call");
    assert_eq!(last["params"]["requestState"], "s");
}

/// `7.0` is an integer to some languages, which write it as `7`.
#[test]
fn a_progress_token_in_no_spelling_is_that_of_another() {
    let child = Child::new(&["modern"]);
    let daemon = daemon(&child);
    let mut hanging = daemon.begin(&with_key(tool("hang", ""), KEYS[0]));
    let other = child.wait_received("tools/call", 1)[0]["id"].to_string();
    for token in [format!("{other}.0"), format!("{other}e0"), format!("{other}0E-1")] {
        let meta = META.replacen('{', &format!(r#"{{"progressToken":{token},"#), 1);
        let params = format!(r#"{{"name":"progress","arguments":{{}},"_meta":{meta}}}"#);
        let request = modern("tools/call", Some("progress"), body("1", "tools/call", &params));
        let progress = daemon.send(&with_key(request, KEYS[1])).text();
        assert_eq!(progress.matches(&format!(r#""progressToken":{token}"#)).count(), 3, "{progress}");
    }
    daemon.send(&with_key(tool("gives-up", ""), KEYS[1])).assert_ok();
    let late = hanging.response().text();
    assert!(late.contains("all the same") && !late.contains("notifications/progress"), "{late}");
}

#[test]
fn a_server_that_gives_up_calls_ends_nobodys() {
    let child = Child::new(&["modern"]);
    let daemon = daemon(&child);
    let mut waiting = daemon.begin(&with_key(tool("hang", ""), KEYS[0]));
    child.wait_received("tools/call", 1);
    let answered = daemon.send(&with_key(tool("gives-up", ""), KEYS[1]));
    assert!(answered.text().contains("all the same"), "{}", answered.text());
    let late = waiting.response();
    assert!(late.text().contains("all the same"), "{}", late.text());
}
