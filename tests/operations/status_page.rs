//! The status page and what it reads, as HTTP.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::harness::{
    Config, Connection, Daemon, Folder, Offer, Reply, Response, Upstream, call, eventually,
    eventually_within, list, write_secret,
};

/// The longest time from one sample to the next.
const INTERVAL_MAX: Duration = Duration::from_mins(1);

/// A GET with these further lines, each with its line end.
fn get(daemon: &Daemon, target: &str, lines: &str) -> Response {
    let mut connection = Connection::open(daemon.admin());
    let host = if lines.starts_with("Host:") { "" } else { "Host: localhost\r\n" };
    connection.write(format!("GET {target} HTTP/1.1\r\n{host}{lines}\r\n").as_bytes());
    connection.response()
}

fn json_at(daemon: &Daemon, target: &str) -> Value {
    let response = daemon.get_admin(target);
    assert_eq!(
        (response.status, response.header("content-type")),
        (200, Some("application/json")),
        "{target}"
    );
    serde_json::from_str(&response.text()).expect("JSON")
}

fn names(told: &Value) -> Vec<&str> {
    let tools = told["tools"].as_array().expect("a list");
    tools.iter().map(|tool| tool["name"].as_str().expect("a name")).collect()
}

/// A tool that takes any arguments.
fn defined(tool: &Value) -> String {
    let mut tool = tool.clone();
    tool["inputSchema"] = json!({"type": "object"});
    tool.to_string()
}

/// A server with these tools, whose schemas do not matter; one called `broken` fails.
fn offering(tools: &[Value]) -> Upstream {
    let offer = Offer { tools: tools.iter().map(defined).collect(), ..Offer::default() };
    Upstream::start(move |request| {
        let is_broken = request.method() == "tools/call" && request.json()["params"]["name"] == "broken";
        if is_broken { Reply::json("500 Internal Server Error", "{}") } else { offer.answer(request) }
    })
}

#[test]
fn a_browser_is_told_what_the_page_holds() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).admin());
    let page = daemon.get_admin("/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let text = page.text();
    assert!(text.len() <= 75_000, "{} bytes", text.len());
    let policy = page.header("content-security-policy").expect("a policy");
    for element in ["style", "script"] {
        let opening = format!("<{element}>");
        let (_, after) = text.split_once(&opening).expect("it opens");
        let (inside, _) = after.split_once(&format!("</{element}>")).expect("it closes");
        let digest = STANDARD.encode(Sha256::digest(inside.as_bytes()));
        assert!(policy.contains(&format!("{element}-src 'sha256-{digest}'")), "{policy}");
    }
    for part in ["default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
}

#[test]
fn a_person_may_come_to_the_page_from_anywhere_and_a_page_may_not() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).admin());
    let port = daemon.admin().port();
    let visit = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n";
    let framed = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n";
    let fetched = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: script\r\n";
    let rebound = format!("Host: rebound.example:{port}\r\n{visit}");
    for (target, lines, expected) in [
        ("/", visit, 200),
        ("/", framed, 403),
        ("/", fetched, 403),
        ("/", "Origin: http://evil.example\r\n", 403),
        ("/", &rebound, 403),
        ("/status", visit, 403),
        ("/status/history", visit, 403),
        ("/status/tools", visit, 403),
        ("/status/tools", &rebound, 403),
    ] {
        assert_eq!(get(&daemon, target, lines).status, expected, "{target} {lines}");
    }
}

#[test]
fn the_page_needs_no_token_and_all_it_shows_does() {
    let upstream = Upstream::with_tools(&["echo"]);
    let folder = Folder::new();
    let file = folder.path().join("token");
    write_secret(&file, "swordfish");
    let admin = format!("[admin]\naddress = \"127.0.0.1:0\"\ntoken = {{ file = \"{}\" }}", file.display());
    let daemon = Daemon::start(&Config::transparent(&upstream).section(&admin));
    assert_eq!(daemon.get_admin("/").status, 200);
    assert!(!daemon.get_admin("/").text().contains("swordfish"));
    for target in ["/status", "/status/history", "/status/tools"] {
        assert_eq!(daemon.get_admin(target).status, 401, "{target}");
        assert_eq!(get(&daemon, target, "Authorization: Bearer swordfish\r\n").status, 200, "{target}");
    }
    fs::remove_file(&file).expect("removed");
}

#[test]
fn what_went_on_lately_is_told() {
    let upstream = offering(&[json!({"name": "echo"}), json!({"name": "broken"})]);
    let config = Config::new().upstream("up", upstream.address, "").admin();
    let daemon = Daemon::start(&config.clone().endpoint("names = \"prefixed\""));
    let none = json!({"calls_per_s": null, "errors_per_s": null, "p50_s": null, "p99_s": null});
    let before = json_at(&daemon, "/status");
    if before["sample"]["number"] == 0 {
        assert_eq!(before["calls"]["recent"], none, "{before:#}");
        assert_eq!(before["sample"]["interval_s"], json!(5.0), "{before:#}");
    }
    daemon.send(&list("1", "tools/list")).assert_ok();
    for _ in 0..20 {
        daemon.send(&call("2", "up__echo")).assert_ok();
    }
    for _ in 0..3 {
        assert_ne!(daemon.send(&call("3", "up__broken")).status, 200);
    }
    let told = eventually("all calls are counted", || {
        let told = json_at(&daemon, "/status");
        (told["calls"]["errors"] == 3 && told["tools"]["most_called"][0]["calls"] == 20).then_some(told)
    });
    assert_eq!(told["endpoints"][0]["names"], "prefixed");
    assert_eq!(told["endpoints"][0]["auth"], json!([]));
    let tools = &told["tools"];
    assert_eq!(tools["known"], 2);
    assert_eq!(tools["most_called"][0]["name"], "echo", "{tools:#}");
    assert_eq!(
        (&tools["most_called"][0]["upstream"], &tools["most_called"][0]["calls"]),
        (&json!("up"), &json!(20))
    );
    assert_eq!(tools["slowest"][0]["name"], "echo", "{tools:#}");
    let failing = ["name", "calls", "errors"].map(|member| tools["failing"][0][member].clone());
    assert_eq!(failing, [json!("broken"), json!(3), json!(3)], "each call is counted once");
    assert_eq!(told["upstreams"][0]["reasons"], json!({"upstream_invalid": 3}), "their replies began well");

    let places = ["/calls", "/endpoints/0", "/upstreams/0"];
    let told = eventually_within(
        INTERVAL_MAX,
        "an interval has passed in which there were calls and errors",
        || {
            let told = json_at(&daemon, "/status");
            let is_told = |place: &str| {
                let recent =
                    told.pointer(place).and_then(|place| place["recent"].as_object()).expect("an object");
                recent.values().all(|value| value.as_f64().is_some_and(|value| value > 0.0))
            };
            if places.into_iter().all(is_told) {
                return Some(told);
            }
            daemon.send(&call("4", "up__echo"));
            daemon.send(&call("5", "up__broken"));
            None
        },
    );
    for place in places {
        let place = told.pointer(place).expect(place);
        let reasons = place["reasons"].as_object().expect("an object");
        let errors: u64 = reasons.values().filter_map(Value::as_u64).sum();
        assert_eq!(Some(errors), place["errors"].as_u64(), "{place:#}");
    }

    let history = json_at(&daemon, "/status/history");
    let length = history["at_s"].as_array().map(Vec::len).expect("times");
    assert!((1..=60).contains(&length), "{history}");
    for line in [&history["all"], &history["endpoints"]["/mcp"], &history["upstreams"]["up"]] {
        for values in line.as_object().expect("a line").values() {
            assert_eq!(values.as_array().map(Vec::len), Some(length), "{history}");
        }
    }
    // What the configuration no longer has is gone at the next sample, and what it has stays.
    let other = config.raw("new", "url = \"http://127.0.0.1:1/mcp\"\neras = [\"modern\"]").path("/other");
    daemon.reload(&other);
    let after = eventually_within(INTERVAL_MAX, "a sample is taken of the new configuration", || {
        let after = json_at(&daemon, "/status/history");
        after["endpoints"].get("/other").is_some().then_some(after)
    });
    assert_eq!(after["endpoints"].get("/mcp"), None, "{after}");
    assert!(after["upstreams"]["up"]["calls_per_s"][0].is_f64(), "{after}");
    assert!(after["upstreams"]["new"]["calls_per_s"][0].is_null(), "{after}");
}

#[test]
fn tools_are_found_sorted_and_counted() {
    let hostile = "<img src=x onerror=alert(1)>\u{1b}[31m";
    let long = "word ".repeat(200);
    let files = offering(&[
        json!({"name": "read", "title": "Reads a file", "annotations": {"readOnlyHint": true}}),
        json!({"name": "delete", "description": long}),
        json!({"name": hostile, "annotations": {"title": "Strange", "destructiveHint": false}}),
    ]);
    let weather = offering(&[json!({"name": "forecast", "description": "Tomorrow's WEATHER"})]);
    let daemon = Daemon::start(&Config::prefixed(&files, &weather).admin());
    daemon.send(&list("1", "tools/list")).assert_ok();
    for _ in 0..3 {
        daemon.send(&call("2", "files__delete")).assert_ok();
    }
    daemon.send(&call("3", "weather__forecast")).assert_ok();
    let all = eventually("the calls are counted", || {
        let all = json_at(&daemon, "/status/tools");
        let calls = |at: usize| all["tools"][at]["calls"].as_u64();
        (calls(0) == Some(3) && calls(1) == Some(1)).then_some(all)
    });
    assert_eq!((&all["total"], &all["matched"], &all["offset"]), (&json!(4), &json!(4), &json!(0)));
    assert_eq!(names(&all), ["delete", "forecast", hostile, "read"], "by calls, then by name");
    let delete = &all["tools"][0];
    assert_eq!(delete["public"], json!([{"endpoint": "/mcp", "name": "files__delete"}]));
    assert_eq!(delete["description"].as_str().map(|text| text.chars().count()), Some(300));
    assert_eq!((&delete["read_only"], &delete["destructive"]), (&json!(false), &json!(true)));
    assert!(delete["p99_s"].is_f64() && delete["definition_bytes"].as_u64() > Some(900), "{delete:#}");
    let read = &all["tools"][3];
    assert_eq!((&read["title"], &read["calls"]), (&json!("Reads a file"), &json!(0)));
    assert_eq!((&read["read_only"], &read["destructive"]), (&json!(true), &json!(false)));
    assert_eq!(
        (&all["tools"][2]["title"], &all["tools"][2]["destructive"]),
        (&json!("Strange"), &json!(false))
    );
    for (query, expected) in [
        ("q=weather", vec!["forecast"]),
        ("q=FILE&sort=name", vec![hostile, "delete", "read"]),
        ("q=reads+a", vec!["read"]),
        ("upstream=weather", vec!["forecast"]),
        ("upstream=weather&q=read", vec![]),
        ("sort=name&offset=1&count=2", vec!["delete", "read"]),
        ("offset=4", vec![]),
        ("offset=18446744073709551615", vec![]),
        ("sort=errors&count=1", vec!["delete"]),
    ] {
        assert_eq!(names(&json_at(&daemon, &format!("/status/tools?{query}"))), expected, "{query}");
    }
}

#[test]
fn questions_that_make_no_sense_are_answered_with_what_would() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::new().upstream("weather", upstream.address, "").admin());
    let long = format!("q={}", "x".repeat(5000));
    for (query, expected) in [
        ("limit=5", "there is upstream, q, sort, offset and count"),
        ("sort=speed", "sort is calls, errors, p99 or name"),
        ("count=201", "count is a number from 1 to 200"),
        ("offset=-1", "offset is a number from 0 on"),
        ("q=%ff", "it is not UTF-8"),
        ("upstream=wether", "there is no upstream \"wether\"; did you mean `weather`?"),
        ("upstream=%1b%5d0;x%07%3Cscript%3E", "there is no upstream \"\\u{1b}]0;x\\u{7}<script>\""),
        (&*long, "q has at most 200 characters"),
    ] {
        let answer = daemon.get_admin(&format!("/status/tools?{query}"));
        assert_eq!(answer.status, 400, "{query}");
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
        assert!(answer.text().starts_with(expected), "{query}: {}", answer.text());
    }
    assert_eq!(daemon.get_admin("/status/tool").status, 404);
}

#[test]
fn tools_whose_definitions_wait_are_named() {
    let folder = Folder::new();
    let tools = Arc::new(Mutex::new("first"));
    let description = Arc::clone(&tools);
    let upstream = Upstream::start(move |request| {
        let changed = json!({"name": "changed", "description": *description.lock().unwrap()});
        let offer =
            Offer { tools: vec![defined(&json!({"name": "same"})), defined(&changed)], ..Offer::default() };
        offer.answer(request)
    });
    let lines = "pins = \"quarantine\"\npins_age_max = \"1s\"";
    let config = Config::new().upstream("up", upstream.address, lines).admin().top(&folder.key());
    let daemon = Daemon::start(&config);
    daemon.send(&list("1", "tools/list")).assert_ok();
    eventually("both are pinned", || {
        (json_at(&daemon, "/status")["upstreams"][0]["pins"]["pinned"] == 2).then_some(())
    });
    // A call waits for the end of the first look: what it sees until then is pinned, too.
    daemon.send(&call("2", "same")).assert_ok();
    *tools.lock().unwrap() = "second";
    eventually("the change is seen", || {
        daemon.send(&call("2", "same"));
        let told = json_at(&daemon, "/status");
        (told["upstreams"][0]["pins"]["waiting"] == json!(["changed"])).then_some(())
    });
    eventually("the list is without it", || {
        daemon.send(&list("3", "tools/list")).assert_ok();
        let told = json_at(&daemon, "/status/tools?sort=name");
        let [changed, same] = told["tools"].as_array()?.as_slice() else { return None };
        assert_eq!((&changed["pin"], &same["pin"]), (&json!("changed"), &json!("pinned")), "{told:#}");
        assert_eq!(same["left_out"], Value::Null);
        (changed["left_out"].is_string() && changed["public"] == json!([])).then_some(())
    });
}

#[test]
fn nothing_is_made_up_where_nothing_is_measured() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream).section("[metrics]\ndurations = false").admin();
    let daemon = Daemon::start(&config);
    daemon.send(&list("1", "tools/list")).assert_ok();
    daemon.send(&call("2", "echo")).assert_ok();
    let told = json_at(&daemon, "/status");
    assert_eq!((&told["calls"], &told["tools"]), (&Value::Null, &Value::Null));
    assert_eq!(told["endpoints"][0].get("recent"), None);
    let tools = json_at(&daemon, "/status/tools");
    assert_eq!(names(&tools), ["echo"]);
    assert_eq!(
        (&tools["tools"][0]["calls"], &tools["tools"][0]["calls_per_s"]),
        (&Value::Null, &Value::Null)
    );
}
