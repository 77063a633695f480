//! What `/status` tells of calls that failed, of who calls, and of since when something is down.

use std::net::TcpListener;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::harness::{Config, Daemon, Offer, Reply, Request, Upstream, api_key, call, eventually};

const CI: &str = "first-key-0123456789abcdefghijklmnop";
const LAPTOP: &str = "other-key-0123456789abcdefghijklmnop";

fn status(daemon: &Daemon) -> Value {
    serde_json::from_str(&daemon.get_admin("/status").text()).expect("JSON")
}

fn with_key(request: &Request, key: &str) -> Request {
    request.clone().set("Authorization", format!("Bearer {key}"))
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs()
}

/// A server of which the tool `broken` fails.
fn half_broken() -> Upstream {
    let offer = Offer {
        tools: ["echo", "broken"]
            .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}).to_string())
            .to_vec(),
        ..Offer::default()
    };
    Upstream::start(move |request| {
        let is_broken = request.method() == "tools/call" && request.json()["params"]["name"] == "broken";
        if is_broken { Reply::json("500 Internal Server Error", "{}") } else { offer.answer(request) }
    })
}

#[test]
fn failed_calls_and_callers_are_told_and_nothing_secret() {
    let upstream = half_broken();
    let config = Config::transparent(&upstream)
        .section(&api_key("ci", CI))
        .section(&api_key("laptop", LAPTOP))
        .section(
            "[[limit]]\nname = \"each\"\nby = [\"principal\"]\nprincipals = [\"laptop\"]\nrate = \"2/h\"",
        )
        .admin();
    let daemon = Daemon::start(&config);
    let before_s = now_s();
    let told = status(&daemon);
    assert_eq!(told["recent_errors"], json!([]));
    for _ in 0..5 {
        daemon.send(&with_key(&call("1", "echo"), CI)).assert_ok();
    }
    for _ in 0..3 {
        assert_ne!(daemon.send(&with_key(&call("2", "broken"), CI)).status, 200);
    }
    for expected in [200, 200, 429] {
        assert_eq!(daemon.send(&with_key(&call("3", "echo"), LAPTOP)).status, expected);
    }
    assert_eq!(daemon.send(&with_key(&call("4", "echo?token=swordfish"), "wrong-key")).status, 401);
    let told = eventually("all that failed is told", || {
        let told = status(&daemon);
        (told["recent_errors"].as_array().map(Vec::len) == Some(3)).then_some(told)
    });
    let expected = [
        json!([1, "/mcp", null, "tools/call", "echo", "refused", "credentials", null]),
        json!([1, "/mcp", null, "tools/call", "echo", "refused", "rate", "laptop"]),
        json!([3, "/mcp", "up", "tools/call", "broken", "failed", "upstream_invalid", "ci"]),
    ];
    let members = ["calls", "endpoint", "upstream", "method", "name", "outcome", "reason", "principal"];
    for (error, expected) in told["recent_errors"].as_array().expect("a list").iter().zip(expected) {
        let found = members.map(|member| error[member].clone());
        assert_eq!(json!(found), expected, "{error:#}");
        let [first, last] = ["first_s", "at_s"].map(|member| error[member].as_u64().expect("a time"));
        assert!(before_s <= first && first <= last && last <= now_s(), "{error:#}");
        assert!(error["request_id"].as_str().is_some_and(|id| !id.is_empty()), "{error:#}");
    }
    let ci = json!({"principal": "ci", "calls": 8, "errors": 3, "refused": 0});
    let laptop = json!({"principal": "laptop", "calls": 3, "errors": 1, "refused": 1});
    assert_eq!(
        told["callers"],
        json!({"known": 2, "unidentified": 1, "busiest": [ci, laptop], "most_refused": [laptop]})
    );
    let text = told.to_string();
    for secret in [CI, LAPTOP, "wrong-key", "swordfish"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}

#[test]
fn what_is_recent_is_bounded() {
    let upstream = half_broken();
    let daemon = Daemon::start(&Config::transparent(&upstream).admin());
    for number in 0..120 {
        let long = format!("{number}{}", "x".repeat(1000));
        assert_ne!(daemon.send(&call("1", "echo").set("Mcp-Name", long)).status, 200);
    }
    let told = eventually("the last one is told", || {
        let told = status(&daemon);
        (told["callers"]["busiest"][0]["errors"] == 120).then_some(told)
    });
    let errors = told["recent_errors"].as_array().expect("a list");
    assert!(errors.len() <= 50, "{}", errors.len());
    let longest = errors.iter().filter_map(|error| error["name"].as_str()).map(str::len).max();
    assert!(longest.unwrap_or_default() <= 128, "{longest:?}");
    assert_eq!(told["callers"]["busiest"][0]["principal"], Value::Null, "nobody asks who calls");
}

#[test]
fn what_is_down_says_since_when_and_where_to_ask() {
    let good = half_broken();
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let lines = "health = { interval = \"0s\" }\nbreaker = { failures_max = 1, open_time = \"1m\" }";
    let config = Config::new().upstream("good", good.address, "").upstream("gone", gone, lines).admin();
    let daemon = Daemon::start(&config.endpoint("names = \"prefixed\""));
    let before_s = now_s();
    daemon.send(&call("1", "good__echo")).assert_ok();
    assert_ne!(daemon.send(&call("2", "gone__echo")).status, 200);
    let told = eventually("its breaker opens", || {
        let told = status(&daemon);
        (told["upstreams"][1]["healthy"] == false).then_some(told)
    });
    let down = &told["upstreams"][1];
    for place in [down, &down["replicas"][0]] {
        let since_s = place["down_since_s"].as_u64().expect("a time");
        assert!((before_s.saturating_sub(1)..=now_s()).contains(&since_s), "{place:#}");
    }
    assert_eq!(down["replicas"][0]["url"], format!("http://{gone}/mcp"));
    for place in [&told["upstreams"][0], &told["upstreams"][0]["replicas"][0], &told["endpoints"][0]] {
        assert_eq!(place["down_since_s"], Value::Null, "{place:#}");
    }
}
