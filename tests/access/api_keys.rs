//! API keys: who may call, and where the key must never appear.

use crate::harness::{Config, Daemon, Request, Upstream, api_key, call, list, trunkline};

const KEY: &str = "first-key-0123456789abcdefghijklmnop";
const OTHER: &str = "other-key-0123456789abcdefghijklmnop";

fn with_key(request: &Request, key: &str) -> Request {
    request.clone().set("Authorization", format!("Bearer {key}"))
}

#[test]
fn only_known_keys_pass() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream)
        .section(&api_key("ci", KEY))
        .section(&api_key("laptop", OTHER))
        .section("[log]\nlevel = \"trace\"");
    let daemon = Daemon::start(&config);
    let good = call("7", "echo");
    let swapped = KEY.to_uppercase();
    let longer = format!("{KEY}x");
    let refused = [
        ("none", good.clone()),
        ("an empty header", good.clone().with("Authorization", "")),
        ("no key", good.clone().with("Authorization", "Bearer")),
        ("an empty key", good.clone().with("Authorization", "Bearer ")),
        ("a wrong key", with_key(&good, "wrong-key-0123456789abcdefghijklmnop")),
        ("the key in capitals", with_key(&good, &swapped)),
        ("less than the key", with_key(&good, &KEY[..KEY.len() - 1])),
        ("more than the key", with_key(&good, &longer)),
        ("the name of a key", with_key(&good, "ci")),
        ("another scheme", good.clone().with("Authorization", format!("Basic {KEY}"))),
        ("no scheme", good.clone().with("Authorization", KEY)),
        ("two headers", with_key(&good, KEY).with("Authorization", format!("Bearer {OTHER}"))),
        ("bytes beyond ASCII", good.clone().with("Authorization", "Bearer \u{e9}")),
        ("in the target", good.clone().target(&format!("/mcp?api_key={KEY}"))),
    ];
    for (what, request) in refused {
        println!("{what}");
        let response = daemon.send(&request);
        assert_eq!(response.status, 401, "{what}");
        let challenge = response.header("www-authenticate").expect("a challenge").to_ascii_lowercase();
        assert!(challenge.starts_with("bearer"), "{challenge}");
        assert!(!response.text().contains(KEY));
    }
    assert_eq!(upstream.forwarded().len(), 0);
    daemon.send(&with_key(&good, KEY)).assert_ok();
    daemon.send(&with_key(&good, OTHER)).assert_ok();
    daemon.send(&good.clone().with("authorization", format!("bearer {KEY}"))).assert_ok();
    daemon.send(&with_key(&list("8", "tools/list"), KEY)).assert_ok();
    for request in upstream.received() {
        assert!(
            !request.head.contains(KEY) && request.headers("authorization").is_empty(),
            "{}",
            request.head
        );
    }
    for line in daemon.log() {
        assert!(!line.contains(KEY) && !line.contains(OTHER) && !line.contains("wrong-key"), "{line}");
    }
}

#[test]
fn a_refused_call_is_not_read() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).section(&api_key("ci", KEY)));
    let request = call("7", "echo").with("Content-Length", "4000000");
    let mut connection = daemon.connect();
    connection.write(&request.head());
    let response = connection.response();
    assert_eq!(response.status, 401);
    assert_eq!(response.header("connection").map(str::to_ascii_lowercase).as_deref(), Some("close"));
}

#[test]
fn an_endpoint_may_stay_open_where_the_operator_says_so() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream).endpoint("auth = []").section(&api_key("ci", KEY));
    let daemon = Daemon::start(&config);
    daemon.send(&call("7", "echo")).assert_ok();
    daemon.send(&with_key(&call("8", "echo"), "whatever")).assert_ok();
    assert!(upstream.received().iter().all(|request| request.headers("authorization").is_empty()));
}

#[test]
fn the_key_that_the_command_prints_works() {
    let (output, _) = trunkline(&["key", "build-server"], None);
    assert!(output.status.success(), "{output:?}");
    // What is appended to the configuration holds no key.
    let entry = String::from_utf8(output.stdout).unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(entry.contains("build-server") && !entry.contains("tl_"), "{entry}");
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).section(&entry));
    let good = call("7", "echo");
    assert_eq!(daemon.send(&good).status, 401);
    let words = printed
        .split(|c: char| c.is_whitespace() || c == '"')
        .filter(|word| word.len() >= 20 && word.is_ascii());
    let passing = words.filter(|word| daemon.send(&with_key(&good, word)).status == 200).count();
    assert_eq!(passing, 1, "exactly one word of the output is the key: {printed}");
}

#[test]
fn two_keys_of_one_command_differ() {
    let (first, _) = trunkline(&["key", "ci"], None);
    let (second, _) = trunkline(&["key", "ci"], None);
    assert_ne!(first.stdout, second.stdout);
}

#[test]
fn a_key_is_good_until_its_day() {
    let upstream = Upstream::with_tools(&["echo"]);
    let entry = |name: &str, key: &str, day: &str| format!("{}\nexpires = {day}", api_key(name, key));
    let (over, good) =
        (entry("over", "tl_over", "2020-01-01"), entry("good", KEY, "\"2999-12-31T12:00:00+02:00\""));
    let daemon = Daemon::start(&Config::transparent(&upstream).section(&over).section(&good));
    daemon.send(&with_key(&call("1", "echo"), KEY)).assert_ok();
    assert_eq!(daemon.send(&with_key(&call("2", "echo"), "tl_over")).status, 401);
    let wrong = Config::transparent(&upstream).section(&entry("x", KEY, "\"tomorrow\"")).to_string();
    let (output, _) = trunkline(&["check"], Some(&wrong));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("`expires`: expected a date such as \"2027-06-30\""), "{said}");
}
