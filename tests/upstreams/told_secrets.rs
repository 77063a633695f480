//! Secrets that the gateway gives an upstream stay out of all that it tells of the upstream, whatever that says itself.

use crate::harness::{
    Child, Config, Daemon, Folder, LEGACY_VERSION, Received, Reply, Request, Upstream, call, eventually,
    in_session, initialize, legacy, list, trunkline, write_secret,
};

/// Questions come soon, and each is answered soon.
const PACE: &str = "list_timeout = \"1s\"\nhealth = { interval = \"200ms\", timeout = \"1s\" }\n";

/// A source of this secret.
fn secret(folder: &Folder, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    write_secret(&path, text);
    format!("{{ file = \"{}\" }}", path.display())
}

/// All that clients and operators are told of an upstream that refuses something, once `word` of its refusal is told.
fn all_told(daemon: &Daemon, word: &str) -> String {
    let mut told = Vec::new();
    let mut ask = |request: &Request| {
        let response = daemon.send(request);
        told.push(response.text());
        response
    };
    ask(&call("1", "echo"));
    ask(&list("2", "tools/list"));
    let opened = ask(&initialize("0", LEGACY_VERSION));
    if let Some(session) = opened.header("mcp-session-id") {
        for (method, params) in [("tools/list", "{}"), ("tools/call", r#"{"name":"echo","arguments":{}}"#)] {
            ask(&in_session(session, legacy("3", method, params)));
        }
    }
    told.push(eventually("the refusal is told", || {
        Some(daemon.get_admin("/status").text()).filter(|status| status.contains(word))
    }));
    let (output, _) = trunkline(&["status", "--all", "--admin", &daemon.admin().to_string()], None);
    told.push(String::from_utf8_lossy(&output.stdout).into_owned());
    told.push(daemon.log().join("\n"));
    told.join("\n")
}

#[test]
fn a_program_that_names_its_key_in_a_refusal_is_told_of_without_it() {
    const KEY: &str = "sk-live-51Habcdef";
    for words in
        [&["refuses=initialize"][..], &["refuses=tools/list"], &["refuses=tools/list", "modern-only"]]
    {
        let (child, folder) = (Child::new(words), Folder::new());
        let env = format!("env = {{ SECRET = {} }}\n{PACE}", secret(&folder, "key", KEY));
        let daemon = Daemon::start(&Config::new().raw("up", &child.keys(&env)).admin());
        let told = all_told(&daemon, "invalid key");
        assert!(told.contains("invalid key ***"), "{words:?}: {told}");
        assert!(!told.contains("sk-live"), "{words:?}: {told}");
    }
}

#[test]
fn a_server_that_names_what_it_was_shown_is_told_of_without_it() {
    let folder = Folder::new();
    // As it was shown them, and as it has read them.
    let answer = |request: &Received| {
        // The answer to a call is the client's.
        if request.method() == "tools/call" {
            return Reply::result(request, r#"{"content":[],"resultType":"complete"}"#);
        }
        let said = format!("denied {} by query key/of+query and pa:ss-word", shown(request));
        Reply::error(request, "200 OK", -32603, &said)
    };
    let server = Upstream::taking_anything(answer);
    let lines = format!(
        "url = \"http://{}/mcp\"\nbasic = {{ user = \"me\", password = {} }}\nquery = {{ key = {} }}\n{PACE}",
        server.address,
        secret(&folder, "password", "pa:ss-word"),
        secret(&folder, "query", "key/of+query"),
    );
    let daemon = Daemon::start(&Config::new().raw("up", &lines).admin());
    let told = all_told(&daemon, "denied");
    assert!(told.contains("denied *** by query *** and ***"), "{told}");
    for hidden in ["key/of", "key%2Fof", "pa:ss", "bWU6cGE6c3Mtd29yZA"] {
        assert!(!told.contains(hidden), "{hidden}: {told}");
    }
}

/// A secret that is not the gateway's own is known by its name alone, and no character of a text turns around what stands
/// beside it.
const NAMED: &str =
    "password: hunter2 or token=hunter2; Authorization: Bearer hunter2\u{202e} and \u{2066}\u{200f}x";

#[test]
fn what_a_server_calls_a_secret_is_told_nowhere() {
    let server = Upstream::taking_anything(|request| Reply::error(request, "200 OK", -32603, NAMED));
    let lines = format!("url = \"http://{}/mcp\"\n{PACE}", server.address);
    let daemon = Daemon::start(&Config::new().raw("up", &lines).admin());
    let opened = daemon.send(&initialize("0", LEGACY_VERSION)).text();
    let called = daemon.send(&call("1", "echo")).text();
    // The answer of the server itself is the client's.
    assert!(called.contains("hunter2"), "{called}");
    let status = eventually("the refusal is told", || {
        Some(daemon.get_admin("/status").text()).filter(|status| status.contains("password: ***"))
    });
    let (output, _) = trunkline(&["status", "--all", "--admin", &daemon.admin().to_string()], None);
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    for told in [opened, status, output, daemon.log().join("\n")] {
        assert!(!told.contains("hunter2"), "{told}");
        assert!(!told.contains(['\u{202e}', '\u{2066}', '\u{200f}']), "{told:?}");
    }
}

#[test]
fn what_a_program_calls_a_secret_is_not_logged() {
    let child = Child::new(&[]);
    let daemon = Daemon::start(&Config::new().raw("up", &child.keys("eras = [\"legacy\"]")).admin());
    let opened = daemon.send(&initialize("0", LEGACY_VERSION));
    let session = opened.header("mcp-session-id").expect("a session");
    let words = serde_json::json!({ "name": "stderr", "arguments": { "words": NAMED } }).to_string();
    daemon.send(&in_session(session, legacy("3", "tools/call", &words)));
    let logged = daemon.wait_for_log(0, "its words", |line| line.contains("password: ***"));
    assert!(logged.contains("token=***; Authorization: Bearer ***"), "{logged}");
    let log = daemon.log().join("\n");
    assert!(!log.contains("hunter2") && !log.contains(['\u{202e}', '\u{2066}', '\u{200f}']), "{log}");
}

/// The value of its query, or what stands behind the scheme of its credentials.
fn shown(request: &Received) -> String {
    let target = request.head.split(' ').nth(1).unwrap_or_default();
    let value = target.split_once("key=").map_or("", |(_, value)| value);
    assert!(!value.is_empty() && !request.headers("authorization").is_empty(), "{request:?}");
    let basic = request.headers("authorization")[0].split(' ').nth(1).unwrap_or_default();
    if request.method() == "initialize" { basic.to_owned() } else { value.to_owned() }
}
