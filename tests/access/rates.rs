//! Limits of rate: what a refused client is told, what counts, and who is counted together.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{
    Config, Connection, Daemon, LEGACY_VERSION, Legacy, Offer, Request, Response, Upstream, api_key, call,
    eventually, in_session, initialize, legacy, list, open_session, post,
};

const KEYS: [(&str, &str); 2] =
    [("ci", "ci-key-0123456789abcdefghijklmnop"), ("dev", "dev-key-0123456789abcdefghijklmnop")];

fn limit(name: &str, lines: &str) -> String {
    format!("[[limit]]\nname = \"{name}\"\n{lines}")
}

fn with_keys(config: Config) -> Config {
    KEYS.iter().fold(config, |config, (name, key)| config.section(&api_key(name, key)))
}

/// The request of the holder of the key so called.
fn of(name: &str, request: Request) -> Request {
    let (_, key) = KEYS.iter().find(|(known, _)| *known == name).unwrap();
    request.with("Authorization", format!("Bearer {key}"))
}

#[track_caller]
fn assert_limited(response: &Response, limit: &str, id: Option<&str>) {
    let error = response.assert_error(429, 429, id);
    assert!(error["error"]["message"].as_str().unwrap().contains(&format!("`{limit}`")), "{error}");
    let retry_after: u64 = response.header("retry-after").unwrap().parse().unwrap();
    assert!(retry_after >= 1, "{response:?}");
    assert_eq!(response.header("ratelimit"), Some(&*format!("\"{limit}\";r=0;t={retry_after}")));
}

#[track_caller]
fn assert_limited_in_session(response: &Response, limit: &str, id: Option<&str>) {
    let error = response.assert_error(200, 429, id);
    assert!(error["error"]["message"].as_str().unwrap().contains(&format!("`{limit}`")), "{error}");
    assert!(error["error"]["data"]["retryAfterMs"].as_u64().unwrap() > 1000, "{error}");
    assert!(
        response.header("retry-after").is_some() && response.header("ratelimit").is_some(),
        "{response:?}"
    );
}

#[test]
fn a_refused_client_is_told_when_to_come_back() {
    let upstream = Upstream::with_tools(&["echo"]);
    let limits = limit("own", "by = [\"principal\"]\ncalls = 1800\nperiod = \"1h\"\nburst = 2");
    let config = with_keys(Config::transparent(&upstream).admin()).section(&limits);
    let config = config.endpoint("origins = [\"https://app.example\"]");
    let daemon = Daemon::start(&config);
    daemon.send(&of("ci", call("1", "echo"))).assert_ok();
    daemon.send(&of("ci", list("2", "tools/list"))).assert_ok();
    for request in [call("3", "echo"), list("3", "tools/list"), list("3", "server/discover")] {
        let response = daemon.send(&of("ci", request).with("Origin", "https://app.example"));
        assert_limited(&response, "own", Some("3"));
        assert_eq!(response.header("retry-after"), Some("2"));
        assert_eq!(response.header("ratelimit-policy"), Some("\"own\";q=1800;w=3600"));
        let exposed = response.header("access-control-expose-headers").unwrap();
        assert!(
            exposed.contains("RateLimit, RateLimit-Policy") && exposed.contains("Retry-After"),
            "{exposed}"
        );
    }
    daemon.send(&of("dev", call("4", "echo"))).assert_ok();
    let refused = Instant::now();
    eventually("a call passes again", || {
        (daemon.send(&of("ci", call("5", "echo"))).status == 200).then_some(())
    });
    assert!(refused.elapsed() > Duration::from_millis(500));
    assert_eq!(upstream.forwarded().len(), 3);
    let metrics = daemon.get_admin("/metrics").text();
    assert!(metrics.contains("trunkline_limiter_keys{limit=\"own\"} 2"), "{metrics}");
    let refused = "error_type=\"rate\",gen_ai_tool_name=\"\",mcp_method_name=\"tools/call\"";
    assert!(metrics.contains(refused), "{metrics}");
    let counted =
        metrics.lines().find(|line| line.starts_with("trunkline_rate_limited_total{limit=\"own\"}"));
    let counted: u64 = counted.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(counted >= 3, "{metrics}");
}

#[test]
fn a_limit_that_needs_no_body_waits_for_none() {
    let upstream = Upstream::with_tools(&["echo"]);
    let own = limit("own", "by = [\"principal\"]\ncalls = 2\nperiod = \"1h\"");
    let tool = limit("tool", "by = [\"tool\"]\ncalls = 1\nperiod = \"1h\"");
    let daemon = Daemon::start(&Config::transparent(&upstream).section(&own).section(&tool));
    daemon.send(&call("1", "echo")).assert_ok();
    for name in ["tool", "own"] {
        let mut connection = daemon.connect();
        connection.write(&call("2", "echo").set("Content-Length", "1000").head());
        let response = connection.response();
        assert_limited(&response, name, None);
        assert_eq!(response.header("connection"), Some("close"));
    }
    assert_eq!(upstream.forwarded().len(), 1);
}

#[test]
fn sessions_survive_a_refusal() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).start();
    let own = limit("own", "by = [\"address\"]\ncalls = 4\nperiod = \"1h\"");
    let config =
        Config::new().upstream("up", upstream.address, "eras = [\"legacy\", \"modern\"]").section(&own);
    let daemon = Daemon::start(&config);
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let of_session =
        |id: &str| in_session(&session, legacy(id, "tools/call", r#"{"name":"echo","arguments":{}}"#));
    daemon.send(&of_session("1")).assert_ok();
    daemon.send(&of_session("2")).assert_ok();
    assert_limited_in_session(&daemon.send(&of_session("3")), "own", Some("3"));
    // Without its version in a header only the body shows of which era a message is.
    assert_limited_in_session(&daemon.send(&initialize("4", LEGACY_VERSION)), "own", Some("4"));
    let unversioned = of_session("5").without("MCP-Protocol-Version");
    assert_limited_in_session(&daemon.send(&unversioned), "own", Some("5"));
    let notice = in_session(&session, post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#));
    assert_limited_in_session(&daemon.send(&notice), "own", None);
    assert_limited(&daemon.send(&call("6", "echo")), "own", Some("6"));
    assert_eq!(upstream.received_of("tools/call").len(), 2);
}

#[test]
fn every_message_of_a_batch_counts() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).start();
    let own = limit("own", "by = [\"principal\"]\ncalls = 5\nperiod = \"1h\"");
    let config = Config::new().upstream("up", upstream.address, "eras = [\"legacy\"]").section(&own);
    let daemon = Daemon::start(&config);
    let (session, _) = open_session(daemon.address(), "2025-03-26");
    let message =
        |id| crate::harness::body(&format!("{id}"), "tools/call", r#"{"name":"echo","arguments":{}}"#);
    let messages: Vec<String> = (1..=6).map(message).collect();
    let batch =
        in_session(&session, post(format!("[{}]", messages.join(",")))).without("MCP-Protocol-Version");
    let mut connection = daemon.connect();
    connection.write(&batch.bytes());
    connection.head();
    let events: Vec<String> = std::iter::from_fn(|| connection.event()).collect();
    let refused = events.iter().filter(|event| event.contains(r#""code":429"#)).count();
    assert_eq!((events.len(), refused), (6, 3), "{events:?}");
    assert_eq!(upstream.received_of("tools/call").len(), 3);
}

#[test]
fn tools_weigh_what_they_are_said_to_at_every_name() {
    let (files, weather) = (Upstream::with_tools(&["read", "scan"]), Upstream::with_tools(&["scan"]));
    let lines = "by = [\"principal\"]\ncalls = 10\nperiod = \"1h\"\nupstreams = [\"files\"]\nweights = { \"sc*\" = 4 }";
    let config = Config::prefixed(&files, &weather).section(&limit("files", lines));
    let daemon = Daemon::start(&config.endpoint("aliases = { light = \"files__scan\" }"));
    for name in ["files__scan", "light", "files__read"] {
        daemon.send(&call("1", name)).assert_ok();
    }
    assert_limited(&daemon.send(&call("2", "light")), "files", Some("2"));
    assert_limited(&daemon.send(&call("2", "files__scan")), "files", Some("2"));
    // Whoever was refused has taken nothing.
    daemon.send(&call("3", "files__read")).assert_ok();
    assert_limited(&daemon.send(&call("4", "files__read")), "files", Some("4"));
    daemon.send(&call("5", "weather__scan")).assert_ok();
    daemon.send(&list("6", "tools/list")).assert_ok();
}

#[test]
fn spraying_values_resets_nothing() {
    let upstream = Upstream::with_tools(&["echo"]);
    let own = limit("own", "by = [\"principal\"]\ncalls = 50\nperiod = \"1h\"");
    let region = limit("region", "by = [\"argument:region\"]\ncalls = 2\nperiod = \"1h\"");
    let config = with_keys(Config::transparent(&upstream).admin());
    let daemon = Daemon::start(&config.section(&own).section(&region));
    let of_region = |name: &str, region: &str| {
        let arguments = format!(r#""arguments":{{"region":"{region}"}}"#);
        of(name, call("7", "echo").replacing(r#""arguments":{}"#, &arguments))
    };
    for expected in [200, 200, 429] {
        assert_eq!(daemon.send(&of_region("ci", "eu")).status, expected);
    }
    assert_limited(&daemon.send(&of_region("ci", "\\u0065u")), "region", Some("7"));
    let mut connection = daemon.connect();
    let mut passed = 0;
    for number in 0..200 {
        connection.write(&of_region("ci", &number.to_string()).bytes());
        let response = connection.response();
        passed += usize::from(response.status == 200);
    }
    assert_eq!(passed, 50 - 4);
    daemon.send(&of_region("dev", "eu")).assert_ok();
    let metrics = daemon.get_admin("/metrics").text();
    assert!(metrics.contains(&format!("trunkline_limiter_keys{{limit=\"region\"}} {}", 46 + 2)), "{metrics}");
}

#[test]
fn who_finds_no_room_shares_one_limit_and_the_others_keep_theirs() {
    let upstream = Upstream::with_tools(&["echo"]);
    let own = limit("own", "by = [\"principal\"]\ncalls = 3\nperiod = \"1h\"");
    let config = with_keys(Config::transparent(&upstream).admin());
    let daemon = Daemon::start(&config.section(&own).limits("limiter_keys_max = 1"));
    let status = |name| daemon.send(&of(name, call("1", "echo"))).status;
    assert_eq!([status("ci"), status("dev"), status("dev"), status("dev")], [200; 4]);
    assert_eq!([status("dev"), status("ci"), status("ci"), status("ci")], [429, 200, 200, 429]);
    let metrics = daemon.get_admin("/metrics").text();
    assert!(metrics.contains("trunkline_limiter_overflow_total{limit=\"own\"} 4"), "{metrics}");
}

#[test]
fn a_reload_forgets_nothing_of_what_stays() {
    let upstream = Upstream::with_tools(&["echo"]);
    let kept = limit("kept", "by = [\"principal\"]\ncalls = 1\nperiod = \"1h\"");
    let start = |lines: &str| with_keys(Config::transparent(&upstream)).section(&kept).section(lines);
    let daemon = Daemon::start(&start(""));
    daemon.send(&of("ci", call("1", "echo"))).assert_ok();
    daemon.reload(&start(&limit("new", "by = [\"endpoint\"]\ncalls = 9\nperiod = \"1h\"")));
    daemon.wait_for_log(0, "reloaded", |line| line.contains("reloaded"));
    assert_limited(&daemon.send(&of("ci", call("2", "echo"))), "kept", Some("2"));
    daemon.send(&of("dev", call("3", "echo"))).assert_ok();
}

#[test]
fn a_call_whose_body_comes_late_is_counted_when_it_is_there() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).start();
    let tool = limit("tool", "by = [\"tool\"]\ncalls = 1\nperiod = \"500ms\"");
    let config = Config::new().upstream("up", upstream.address, "eras = [\"legacy\"]").section(&tool);
    let daemon = Daemon::start(&config);
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let of_session =
        |id: &str| in_session(&session, legacy(id, "tools/call", r#"{"name":"echo","arguments":{}}"#));
    let late = of_session("1");
    let (begin, rest) = late.body.split_at(20);
    let mut slow = daemon.connect();
    slow.write(&[&*late.head(), begin].concat());
    let outcome = |id: &str| daemon.send(&of_session(id)).json();
    assert!(outcome("2")["error"].is_null());
    eventually("a call passes again", || outcome("3")["error"].is_null().then_some(()));
    let after = outcome("4")["error"]["data"]["retryAfterMs"].as_u64().unwrap();
    std::thread::sleep(Duration::from_millis(after));
    slow.write(rest);
    slow.response().assert_ok();
    assert_eq!(upstream.received_of("tools/call").len(), 3);
}

#[test]
fn limits_are_the_same_over_http2_and_http_1() {
    let upstream = Upstream::with_tools(&["echo"]);
    let own = limit("own", "by = [\"address\"]\ncalls = 2\nperiod = \"1h\"");
    let daemon = Daemon::start(&Config::transparent(&upstream).section(&own));
    let mut one: Connection = daemon.connect();
    one.write(&call("1", "echo").bytes());
    one.response().assert_ok();
    let mut http2 = crate::harness::Http2::connect(daemon.address());
    let http2_status = |http2: &mut crate::harness::Http2| http2.send(&call("2", "echo")).status;
    assert_eq!([http2_status(&mut http2), http2_status(&mut http2)], [200, 429]);
    assert_eq!(json!(429), daemon.send(&call("3", "echo")).json()["error"]["code"]);
}
