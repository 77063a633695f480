//! Clients with sessions: what they are given, what reaches their upstreams, and what survives whom.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use crate::harness::{
    Broken, Config, Connection, Daemon, Folder, Gate, LEGACY_VERSION, Legacy, META, Offer, Reply, Request,
    Response, Upstream, api_key, call, eventually, in_session, initialize, legacy, legacy_call, literal,
    open_session, result_body,
};

/// A server with sessions that offers these tools and logging.
fn server(tools: &[&str]) -> Legacy {
    Legacy::new(Offer::tools(tools).with_prompts(&["p"]).with_resources(&["test://a"]))
}

#[test]
fn initialize_opens_a_session() {
    let upstream = server(&["echo"]).start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    for (offered, negotiated) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let (session, result) = open_session(daemon.address(), offered);
        assert_eq!(result["protocolVersion"], negotiated);
        assert!(session.len() <= 1024 && session.bytes().all(|byte| byte.is_ascii_graphic()), "{session}");
        assert!(!session.contains("session-"), "{session}");
    }
    let (one, _) = open_session(daemon.address(), LEGACY_VERSION);
    let (other, _) = open_session(daemon.address(), LEGACY_VERSION);
    assert_ne!(one, other);
}

#[test]
fn initialize_without_a_version_is_refused() {
    let upstream = server(&["echo"]).start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    for params in ["{}", r#"{"protocolVersion":7}"#] {
        daemon.send(&legacy("1", "initialize", params)).assert_error(200, -32602, Some("1"));
    }
}

#[test]
fn a_call_crosses_in_a_session_of_its_own() {
    let upstream = server(&["echo"]).start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let request = in_session(&session, legacy_call("\"ä\"", "echo"));
    let response = daemon.send(&request);
    response.assert_ok();
    assert_eq!(response.header("mcp-session-id"), None);
    let received = upstream.only_call();
    assert_eq!(received.client_body(), request.body);
    assert_eq!(received.headers("mcp-protocol-version"), [LEGACY_VERSION]);
    assert!(received.headers("mcp-session-id")[0].starts_with("session-"), "{received:?}");
    assert!(received.headers("mcp-method").is_empty() && received.headers("mcp-name").is_empty());
}

#[test]
fn clients_share_no_session_with_an_upstream() {
    let upstream = server(&["echo"]).start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (one, _) = open_session(daemon.address(), LEGACY_VERSION);
    let (other, _) = open_session(daemon.address(), LEGACY_VERSION);
    for session in [&one, &other, &one] {
        daemon.send(&in_session(session, legacy_call("1", "echo"))).assert_ok();
    }
    let used = upstream.sessions_of_calls();
    assert_eq!(used[0], used[2]);
    assert_ne!(used[0], used[1]);
}

#[test]
fn calls_at_once_open_one_session() {
    let legacy_server = server(&["echo"]);
    let gate = Gate::default();
    let (answering, waiting) = (legacy_server.clone(), gate.clone());
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "initialize" => Reply::default().wait(&waiting).then(answering.answer(request)),
        _ => answering.answer(request),
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    gate.open();
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let before = legacy_server.sessions_opened();
    let mut connections: Vec<_> = (0..16).map(|_| daemon.connect()).collect();
    for connection in &mut connections {
        connection.write(&in_session(&session, legacy_call("1", "echo")).bytes());
    }
    for connection in &mut connections {
        connection.response().assert_ok();
    }
    assert_eq!(legacy_server.sessions_opened(), before + 1);
    let used = upstream.sessions_of_calls();
    assert!(used.iter().all(|session| *session == used[0]), "{used:?}");
}

#[test]
fn only_the_upstream_that_is_called_gets_a_session() {
    let (files, weather) = (server(&["read"]), server(&["forecast"]));
    let (files_up, weather_up) = (files.start(), weather.start());
    let daemon = Daemon::start(&Config::legacy_pair(&files_up, &weather_up));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, legacy_call("1", "weather__forecast"))).assert_ok();
    assert_eq!(weather_up.only_call().json()["params"]["name"], "forecast");
    let own = weather_up.only_call().headers("mcp-session-id")[0].to_owned();
    assert_eq!(files_up.received_of("tools/call").len(), 0);
    daemon.send(&in_session(&session, legacy_call("2", "files__read"))).assert_ok();
    assert_eq!(weather_up.sessions_of_calls(), [own]);
}

#[test]
fn a_forgotten_session_is_opened_again_and_the_call_repeated() {
    for status in ["404 Not Found", "400 Bad Request"] {
        let legacy_server = server(&["echo"]);
        let answering = legacy_server.clone();
        let upstream = Upstream::start(move |request| {
            let session = request.headers("mcp-session-id").first().map(|id| (*id).to_owned());
            let is_forgotten = session.is_some_and(|session| !answering.open_sessions().contains(&session));
            if is_forgotten {
                Reply::json(status, r#"{"error":"no such session"}"#)
            } else {
                answering.answer(request)
            }
        });
        let daemon = Daemon::start(&Config::legacy(&upstream).admin());
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
        legacy_server.forget_sessions();
        daemon.send(&in_session(&session, legacy_call("2", "echo"))).assert_ok();
        let used = upstream.sessions_of_calls();
        assert_eq!(used.len(), 3, "{status}: {used:?}");
        assert!(used[0] == used[1] && used[1] != used[2], "{used:?}");
        let metrics = daemon.get_admin("/metrics").text();
        assert!(metrics.contains(r#"trunkline_upstream_sessions_lost_total{upstream="up"} 1"#), "{metrics}");
    }
}

#[test]
fn an_upstream_that_keeps_no_session_fails_the_call_alone() {
    let legacy_server = server(&["echo"]);
    let answering = legacy_server.clone();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" | "ping" => Reply::json("404 Not Found", r#"{"error":"no such session"}"#),
        _ => answering.answer(request),
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, legacy_call("7", "echo"))).assert_error(200, 502, Some("7"));
    let sessions = upstream.sessions_of_calls();
    assert!(sessions.len() == 2 && sessions[0] != sessions[1], "{sessions:?}");
    daemon.send(&in_session(&session, legacy("8", "ping", "{}"))).assert_ok();
}

#[test]
fn an_error_of_the_upstream_is_no_loss_of_the_session() {
    let legacy_server = server(&["echo"]);
    let answering = legacy_server.clone();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::error(request, "400 Bad Request", -32602, "no such tool"),
        _ => answering.answer(request),
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, legacy_call("7", "echo"))).assert_error(200, -32602, Some("7"));
    assert_eq!(upstream.received_of("tools/call").len(), 1);
}

#[test]
fn a_session_id_is_good_for_its_endpoint_and_its_principal_alone() {
    let upstream = server(&["echo"]).start();
    let config = Config::legacy(&upstream)
        .section(&api_key("one", "key-of-one"))
        .section(&api_key("two", "key-of-two"))
        .section("[[endpoint]]\npath = \"/other\"\nupstreams = [\"up\"]");
    let daemon = Daemon::start(&config);
    let with_key = |request: Request, key: &str| request.set("Authorization", format!("Bearer {key}"));
    let response = daemon.send(&with_key(initialize("0", LEGACY_VERSION), "key-of-one"));
    let session = response.header("mcp-session-id").expect("a session").to_owned();
    let request = in_session(&session, legacy_call("1", "echo"));
    daemon.send(&with_key(request.clone(), "key-of-one")).assert_ok();
    daemon.send(&with_key(request.clone(), "key-of-two")).assert_error(404, 404, Some("1"));
    daemon.send(&with_key(request.target("/other"), "key-of-one")).assert_error(404, 404, Some("1"));
    assert_eq!(upstream.received_of("tools/call").len(), 1);
}

#[test]
fn a_connection_goes_on_with_a_session_for_as_long_as_it_is_one() {
    let upstream = server(&["echo"]).start();
    let folder = Folder::new();
    let keys = folder.path().join("session.key");
    let write_keys = |digit: &str| std::fs::write(&keys, digit.repeat(64)).expect("it can be written");
    write_keys("7");
    let config = Config::legacy(&upstream)
        .section(&api_key("one", "key-of-one"))
        .section(&api_key("two", "key-of-two"))
        .section(&format!("[session]\nkey = {{ file = \"{}\" }}", keys.display()));
    let daemon = Daemon::start(&config);
    let with_key = |request: Request, key: &str| request.set("Authorization", format!("Bearer {key}"));
    let response = daemon.send(&with_key(initialize("0", LEGACY_VERSION), "key-of-one"));
    let session = response.header("mcp-session-id").expect("a session").to_owned();
    let call = in_session(&session, legacy_call("1", "echo"));
    let mut connection = daemon.connect();
    let mut status_of = |key: &str| {
        connection.write(&with_key(call.clone(), key).bytes());
        connection.response().status
    };
    let statuses = ["one", "one", "two", "one"].map(|name| status_of(&format!("key-of-{name}")));
    assert_eq!(statuses, [200, 200, 404, 200]);
    for (digit, status) in [("8", 404), ("7", 200)] {
        write_keys(digit);
        daemon.hangup();
        eventually("the keys are others", || (status_of("key-of-one") == status).then_some(()));
    }
    let delete = with_key(call.clone().method("DELETE").body(""), "key-of-one");
    assert_eq!(daemon.send(&delete).status, 204);
    assert_eq!(status_of("key-of-one"), 404);
}

#[test]
fn session_ids_that_are_not_ours_are_gone() {
    let upstream = server(&["echo"]).start();
    let daemon = Daemon::start(&Config::legacy(&upstream).admin());
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let mut flipped = session.clone().into_bytes();
    let last = flipped.len() - 1;
    flipped[last] = if flipped[last] == b'A' { b'B' } else { b'A' };
    let long = "A".repeat(4096);
    for forged in ["abc", "", &session[..session.len() - 8], &String::from_utf8(flipped).unwrap(), &long] {
        let response = daemon.send(&in_session(forged, legacy_call("1", "echo")));
        response.assert_error(404, 404, Some("1"));
    }
    let twice = in_session(&session, legacy_call("1", "echo")).with("Mcp-Session-Id", &session);
    daemon.send(&twice).assert_error(404, 404, Some("1"));
    let metrics = daemon.get_admin("/metrics").text();
    assert!(metrics.contains(r#"trunkline_session_ids_refused_total{reason="unknown"} 5"#), "{metrics}");
    assert_eq!(upstream.received_of("tools/call").len(), 0);
}

#[test]
fn without_a_session_only_the_harmless_is_answered() {
    let upstream = server(&["echo"]).start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    daemon.send(&legacy("1", "ping", "{}")).assert_ok();
    for list in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
        daemon.send(&legacy("1", list, "{}")).assert_ok();
    }
    for request in [
        legacy_call("1", "echo"),
        legacy("1", "logging/setLevel", r#"{"level":"debug"}"#),
        legacy("1", "server/discover", "{}"),
        legacy("1", "no/such", "{}"),
    ] {
        daemon.send(&request).assert_error(400, -32600, Some("1"));
    }
    assert_eq!(upstream.received_of("tools/call").len(), 0);
}

#[test]
fn delete_ends_the_session_everywhere() {
    let legacy_server = server(&["echo"]);
    let upstream = legacy_server.start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    let own = upstream.only_call().headers("mcp-session-id")[0].to_owned();
    let delete = in_session(&session, legacy("1", "ping", "{}").method("DELETE").body(""));
    let response = daemon.send(&delete);
    assert_eq!((response.status, response.body.len()), (204, 0), "{response:?}");
    eventually("the upstream forgets the session", || {
        (!legacy_server.open_sessions().contains(&own)).then_some(())
    });
    daemon.send(&in_session(&session, legacy_call("2", "echo"))).assert_error(404, 404, Some("2"));
    daemon.send(&delete).assert_error(404, 404, None);
    let nameless = delete.without("Mcp-Session-Id");
    daemon.send(&nameless).assert_error(400, -32600, None);
}

#[test]
fn mirrored_headers_are_held_to_the_body() {
    let (files, weather) = (server(&["read"]).start(), server(&["forecast"]).start());
    let daemon = Daemon::start(&Config::legacy_pair(&files, &weather));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let request = in_session(&session, legacy_call("1", "weather__forecast"));
    for (method, name) in [
        (None, Some("weather__forecast")),
        (Some("tools/call"), None),
        (Some("tools/call"), Some("files__read")),
        (Some("prompts/get"), Some("weather__forecast")),
        (Some("tools/call"), Some("=?base64?!?=")),
    ] {
        let mut wrong = request.clone();
        for (header, value) in [("Mcp-Method", method), ("Mcp-Name", name)] {
            if let Some(value) = value {
                wrong = wrong.with(header, value);
            }
        }
        daemon.send(&wrong).assert_error(400, -32001, Some("1"));
    }
    daemon.send(&request.clone().with("Mcp-Param-City", "Oslo")).assert_error(400, -32001, Some("1"));
    assert_eq!(weather.received_of("tools/call").len() + files.received_of("tools/call").len(), 0);
    let right =
        request.with("Mcp-Method", "tools/call").with("Mcp-Name", "=?base64?d2VhdGhlcl9fZm9yZWNhc3Q=?=");
    daemon.send(&right).assert_ok();
    let received = weather.only_call();
    assert_eq!(received.headers("mcp-method"), ["tools/call"]);
    assert_eq!(received.headers("mcp-name"), ["forecast"]);
    let list = in_session(&session, legacy("2", "tools/list", "{}")).with("Mcp-Method", "tools/list");
    daemon.send(&list).assert_ok();
}

#[test]
fn mirrored_parameters_are_demanded_of_those_that_mirror_any() {
    let tool = r#"{"name":"read","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}"#;
    let offer = Offer { tools: vec![tool.into()], ..Offer::default() };
    let legacy_server = Legacy::new(offer.clone()).start();
    let modern_server = Upstream::offering(offer);
    for (address, eras) in [(legacy_server.address, "legacy"), (modern_server.address, "modern")] {
        let upstream = format!("eras = [\"{eras}\"]");
        for (endpoint, demands_all) in [("", false), ("param_headers = \"required\"", true)] {
            let config = Config::new().upstream("up", address, &upstream).endpoint(endpoint);
            let daemon = Daemon::start(&config);
            for version in ["2025-03-26", "2025-06-18", LEGACY_VERSION] {
                let (session, _) = open_session(daemon.address(), version);
                let bare = in_session(
                    &session,
                    legacy("1", "tools/call", r#"{"name":"read","arguments":{"region":"eu"}}"#),
                );
                let bare = bare.set("MCP-Protocol-Version", version);
                let named = bare.clone().with("Mcp-Method", "tools/call").with("Mcp-Name", "read");
                daemon.send(&in_session(&session, legacy("2", "tools/list", "{}"))).assert_ok();
                let check = |request: &Request, is_fine: bool| {
                    let response = daemon.send(request);
                    if is_fine {
                        response.assert_ok();
                    } else {
                        response.assert_error(400, -32001, Some("1"));
                    }
                };
                // Those revisions do not know of it.
                check(&bare, !demands_all);
                check(&named, !demands_all);
                // A header that is there is compared, and from then on its absence is an error.
                check(&named.clone().with("Mcp-Param-Region", "us"), false);
                check(&named.clone().with("Mcp-Param-Region", "eu"), true);
                check(&named, false);
                check(&bare, false);
                // Another session is another client.
                let (other, _) = open_session(daemon.address(), version);
                check(&named.clone().set("Mcp-Session-Id", &other), !demands_all);
            }
        }
    }
}

#[test]
fn a_legacy_header_over_a_modern_body_is_a_mismatch() {
    let upstream = server(&["echo"]).and_modern().start();
    let config = Config::new().upstream("up", upstream.address, "eras = [\"legacy\", \"modern\"]");
    let daemon = Daemon::start(&config);
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let params = format!(r#"{{"name":"echo","arguments":{{}},"_meta":{META}}}"#);
    let request = in_session(&session, legacy("1", "tools/call", &params));
    daemon.send(&request).assert_error(400, -32020, Some("1"));
    daemon.send(&request.without("MCP-Protocol-Version")).assert_error(400, -32020, Some("1"));
    daemon.send(&call("2", "echo").with("Mcp-Session-Id", &session)).assert_ok();
}

#[test]
fn failures_of_a_request_are_http_200() {
    let legacy_server = server(&["echo"]);
    let answering = legacy_server.clone();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => match request.json()["params"]["name"].as_str().unwrap_or_default() {
            "busy" => Reply::http("429 Too Many Requests", "Retry-After: 7\r\n", ""),
            "denied" => Reply::http("401 Unauthorized", "WWW-Authenticate: Bearer\r\n", ""),
            "garbage" => Reply::http("200 OK", "Content-Type: text/html\r\n", "<p>"),
            "cut" => Reply::default().reset(),
            "slow" => Reply::silence(),
            _ => answering.answer(request),
        },
        _ => answering.answer(request),
    });
    let lines = "eras = [\"legacy\"]\nresponse_timeout = \"300ms\"";
    let config = Config::new().upstream("up", upstream.address, lines);
    let cases = [("busy", 429), ("denied", 502), ("garbage", 502), ("cut", 502), ("slow", 504)];
    let daemon = Daemon::start(&config);
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    for (tool, code) in cases {
        let response = daemon.send(&in_session(&session, legacy_call("5", tool)));
        let error = response.assert_error(200, code, Some("5"));
        assert_eq!(response.header("www-authenticate"), None);
        if tool == "busy" {
            assert_eq!(error["error"]["data"], json!({"retryAfterMs": 7000}));
        }
        daemon.send(&in_session(&session, legacy_call("6", "echo"))).assert_ok();
    }
    daemon.send(&in_session(&session, legacy("7", "server/discover", "{}"))).assert_error(
        200,
        -32601,
        Some("7"),
    );
    let honest = Daemon::start(&config.endpoint("legacy_errors = \"http\""));
    let (session, _) = open_session(honest.address(), LEGACY_VERSION);
    for (tool, code) in cases {
        let status = u16::try_from(code).unwrap();
        honest.send(&in_session(&session, legacy_call("5", tool))).assert_error(status, code, Some("5"));
    }
}

#[test]
fn requests_of_a_server_are_refused_and_its_notices_relayed() {
    let legacy_server = server(&["echo"]);
    let answering = legacy_server.clone();
    let gate = Gate::default();
    let waiting = gate.clone();
    let progress =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.5}}"#;
    let message =
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#;
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::stream()
            .event(progress)
            .event(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#)
            .event(message)
            .event(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#)
            .wait(&waiting)
            .event(&result_body(request, r#"{"content":[]}"#))
            .end(),
        _ => answering.answer(request),
    });
    let prefixed = Config::legacy(&upstream).endpoint("names = \"prefixed\"");
    for (round, config) in [Config::legacy(&upstream), prefixed].into_iter().enumerate() {
        let daemon = Daemon::start(&config);
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        let tool = if config.to_string().contains("prefixed") { "up__echo" } else { "echo" };
        let mut connection = daemon.connect();
        connection.write(&in_session(&session, legacy_call("1", tool)).bytes());
        assert_eq!(connection.head().status, 200);
        assert!(connection.event().expect("progress").contains("notifications/progress"));
        assert!(connection.event().expect("a message").contains("notifications/message"));
        upstream.wait_for("", 2 * (round + 1));
        let answers = upstream.received_of("").split_off(2 * round);
        let to = |id: &str| answers.iter().find(|answer| answer.json()["id"] == id).expect("an answer");
        assert_eq!(to("q").json()["error"]["code"], -32601);
        assert_eq!(to("p").json()["result"], json!({}));
        assert!(!to("q").headers("mcp-session-id").is_empty(), "{answers:?}");
        gate.open();
        assert!(connection.event().expect("the result").contains("\"result\""));
    }
}

#[test]
fn a_log_level_reaches_every_upstream_with_its_session() {
    let (files, weather) = (server(&["read"]).start(), server(&["forecast"]).start());
    let daemon = Daemon::start(&Config::legacy_pair(&files, &weather));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, legacy_call("1", "files__read"))).assert_ok();
    let set = legacy("2", "logging/setLevel", r#"{"level":"warning"}"#);
    let response = daemon.send(&in_session(&session, set));
    assert_eq!(response.json(), json!({"jsonrpc": "2.0", "id": 2, "result": {}}));
    assert_eq!(files.wait_for("logging/setLevel", 1).json()["params"]["level"], "warning");
    assert_eq!(weather.received_of("logging/setLevel").len(), 0);
    daemon.send(&in_session(&session, legacy_call("3", "weather__forecast"))).assert_ok();
    let told = weather.wait_for("logging/setLevel", 1);
    assert_eq!(told.headers("mcp-session-id"), weather.only_call().headers("mcp-session-id"));
    let wrong = legacy("4", "logging/setLevel", r#"{"level":"loud"}"#);
    daemon.send(&in_session(&session, wrong)).assert_error(200, -32602, Some("4"));
}

#[test]
fn a_cancellation_reaches_the_upstream_in_the_same_session() {
    let legacy_server = server(&["echo"]);
    let answering = legacy_server.clone();
    let gate = Gate::default();
    let waiting = gate.clone();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::default().wait(&waiting).then(answering.answer(request)),
        _ => answering.answer(request),
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let mut connection = daemon.connect();
    connection.write(&in_session(&session, legacy_call("77", "echo")).bytes());
    let called = upstream.wait_for("tools/call", 1);
    let note = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}"#;
    let accepted = daemon.send(&in_session(&session, legacy("1", "ping", "{}").body(note)));
    assert_eq!((accepted.status, accepted.body.len()), (202, 0));
    let cancelled = upstream.wait_for("notifications/cancelled", 1);
    assert_eq!(literal(&cancelled.body, &["params", "requestId"]), called.id());
    assert_eq!(cancelled.headers("mcp-session-id"), called.headers("mcp-session-id"));
    gate.open();
    connection.response().assert_ok();
}

/// A server says nothing to a call that its client has cancelled, as the specification asks.
#[test]
fn a_cancelled_call_ends_though_its_server_says_nothing() {
    let legacy_server = server(&["echo"]);
    let (silent, keep_alives) = (Gate::default(), Gate::default());
    let (silence, alive, answering) = (silent.clone(), keep_alives.clone(), legacy_server.clone());
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => match request.json()["params"]["name"].as_str().unwrap_or_default() {
            "silent" => Reply::silence().wait(&silence),
            "stream" => Reply::stream().chunk(": hi\n\n").wait(&silence),
            "alive" => {
                let (sender, pieces) = std::sync::mpsc::channel();
                let alive = alive.clone();
                std::thread::spawn(move || {
                    let ping: &[u8] = b"8\r\n: ping\n\n\r\n";
                    while !alive.is_open() && sender.send(ping.to_vec()).is_ok() {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                });
                Reply::stream().pipe(pieces)
            }
            _ => answering.answer(request),
        },
        _ => answering.answer(request),
    });
    let lines = "eras = [\"legacy\"]\ncalls_max = 1\ncalls_wait_max = \"1m\"";
    let config = Config::new().upstream("up", upstream.address, lines).admin().endpoint("sse = true");
    let daemon = Daemon::start(&config);
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let mut connections = Vec::new();
    for (tool, stays) in [
        ("silent", true),
        ("silent", false),
        ("stream", true),
        ("stream", false),
        ("alive", true),
        ("alive", false),
    ] {
        let calls = upstream.received_of("tools/call").len();
        let mut cancelled = daemon.begin(&in_session(&session, legacy_call("77", tool)));
        let called = upstream.wait_for("tools/call", calls + 1);
        let note = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}"#;
        daemon.send(&in_session(&session, legacy("1", "ping", "{}").body(note)));
        if stays {
            let ended = cancelled.response().text();
            assert!(ended.contains("-32800") && ended.contains("\"id\":77"), "{tool}: {ended}");
        } else {
            drop(cancelled);
        }
        // The connection to the server is closed, which tells it once more.
        upstream.wait_closed(called.connection);
        // The place is free for others.
        connections.push(daemon.send(&in_session(&session, legacy_call("78", "echo"))));
    }
    connections.iter().for_each(Response::assert_ok);
    assert_eq!(upstream.received_of("notifications/cancelled").len(), connections.len());
    let breaker = daemon.find_metric("trunkline_replica_breaker{state=\"open\",upstream=\"up\"}");
    assert_eq!(breaker, Some(0), "a call that was cancelled says nothing of its server");
    silent.open();
    keep_alives.open();
}

#[test]
fn a_cancelled_call_ends_after_a_reload_that_takes_its_server_away() {
    let legacy_server = server(&["echo"]);
    let (gate, answering) = (Gate::default(), legacy_server.clone());
    let waiting = gate.clone();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::stream().chunk(": hi\n\n").wait(&waiting),
        _ => answering.answer(request),
    });
    let other = server(&["echo"]).start();
    let daemon = Daemon::start(&Config::legacy_pair(&upstream, &other));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let mut cancelled = daemon.begin(&in_session(&session, legacy_call("77", "files__echo")));
    cancelled.head();
    let lines = daemon.log().len();
    daemon.reload(
        &Config::new()
            .upstream("weather", other.address, "eras = [\"legacy\"]")
            .endpoint("names = \"prefixed\""),
    );
    daemon.wait_for_log(lines, "reloaded", |line| line.contains("reloaded"));
    let note = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}"#;
    daemon.send(&in_session(&session, legacy("1", "ping", "{}").body(note)));
    let mut events = Vec::new();
    while let Ok(Some(event)) = cancelled.try_event() {
        events.push(event);
    }
    assert!(events.last().is_some_and(|event| event.contains("-32800")), "{events:?}");
    gate.open();
}

#[test]
fn answers_to_nothing_and_unknown_notifications_are_accepted() {
    let upstream = server(&["echo"]).start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    for message in [
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/unheard/of"}"#,
    ] {
        let accepted = daemon.send(&in_session(&session, legacy("1", "ping", "{}").body(message)));
        assert_eq!((accepted.status, accepted.body.len()), (202, 0), "{message}");
    }
}

#[test]
fn sessions_survive_a_kill_with_those_of_their_upstreams() {
    let legacy_server = server(&["echo"]);
    let upstream = legacy_server.start();
    let folder = Folder::new();
    let config = Config::legacy(&upstream).top(&folder.key());
    let daemon = Daemon::start(&config);
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    let (ended, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&ended, legacy_call("2", "echo"))).assert_ok();
    let delete = in_session(&ended, legacy("1", "ping", "{}").method("DELETE").body(""));
    assert_eq!(daemon.send(&delete).status, 204);
    drop(daemon); // by SIGKILL

    let daemon = Daemon::start(&config);
    daemon.send(&in_session(&session, legacy_call("3", "echo"))).assert_ok();
    daemon.send(&in_session(&ended, legacy_call("4", "echo"))).assert_error(404, 404, Some("4"));
    let used = upstream.sessions_of_calls();
    assert_eq!(used.len(), 3);
    assert_eq!(used[0], used[2], "the session with the upstream was not kept");
}

#[test]
fn without_a_state_directory_sessions_end_with_the_process() {
    let upstream = server(&["echo"]).start();
    let config = Config::legacy(&upstream);
    let daemon = Daemon::start(&config);
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    drop(daemon);
    let daemon = Daemon::start(&config);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_error(404, 404, Some("1"));
}

#[test]
fn opening_sessions_costs_nothing_upstream() {
    let legacy_server = server(&["echo"]);
    let upstream = legacy_server.start();
    let rate = "[session]\ninitialize_rate_max = 1000000";
    // The gateway's own session is not what is counted.
    let lines = "eras = [\"legacy\"]\nhealth = { interval = \"0s\" }";
    let config = Config::new().upstream("up", upstream.address, lines).admin();
    let daemon = Daemon::start(&config.section(rate));
    open_session(daemon.address(), LEGACY_VERSION);
    let (opened, held) = (legacy_server.sessions_opened(), daemon.peak_resident_bytes());
    let mut connection = daemon.connect();
    for _ in 0..10_000 {
        connection.write(&initialize("0", LEGACY_VERSION).bytes());
        assert!(connection.response().header("mcp-session-id").is_some());
    }
    assert_eq!(legacy_server.sessions_opened(), opened);
    let grown = daemon.peak_resident_bytes() - held;
    assert!(grown < 8 << 20, "{grown} bytes for 10 000 sessions");
    let metrics = daemon.get_admin("/metrics").text();
    assert!(metrics.contains(r#"trunkline_sessions{state="live"} "#), "{metrics}");
}

#[test]
fn a_server_without_session_ids_is_opened_once_for_all() {
    let legacy_server = server(&["echo"]).without_sessions();
    let upstream = legacy_server.start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (one, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&one, legacy_call("1", "echo"))).assert_ok();
    let opened = legacy_server.sessions_opened();
    for _ in 0..3 {
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    }
    assert!(legacy_server.sessions_opened() <= opened + 1, "{}", legacy_server.sessions_opened());
    assert!(upstream.sessions_of_calls().iter().all(String::is_empty));
}

#[test]
fn a_server_that_begins_to_keep_sessions_gets_one_for_each_client() {
    let (stateless, stateful) = (server(&["echo"]).without_sessions(), server(&["echo"]));
    let has_changed = Arc::new(AtomicBool::new(false));
    let changing = Arc::clone(&has_changed);
    let upstream = Upstream::start(move |request| {
        if changing.load(Ordering::SeqCst) { stateful.answer(request) } else { stateless.answer(request) }
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let sessions = [(); 2].map(|()| open_session(daemon.address(), LEGACY_VERSION).0);
    for session in &sessions {
        daemon.send(&in_session(session, legacy_call("1", "echo"))).assert_ok();
    }
    has_changed.store(true, Ordering::SeqCst);
    for session in sessions.iter().chain(&sessions) {
        daemon.send(&in_session(session, legacy_call("2", "echo"))).assert_ok();
    }
    let used: Vec<String> =
        upstream.sessions_of_calls().into_iter().filter(|session| !session.is_empty()).collect();
    let [one, other, one_again, other_again] = &used[..] else { panic!("{used:?}") };
    assert_eq!((one, other), (one_again, other_again));
    assert_ne!(one, other);
}

#[test]
fn empty_events_go_only_to_clients_that_know_them() {
    let legacy_server = server(&["echo"]);
    let answering = legacy_server.clone();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => {
            Reply::stream().chunk("id: 1\ndata:\n\n").event(&result_body(request, r#"{"content":[]}"#)).end()
        }
        _ => answering.answer(request),
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    for (version, events) in [("2025-11-25", 2), ("2025-06-18", 1)] {
        let (session, _) = open_session(daemon.address(), version);
        let request = legacy_call("1", "echo").with("MCP-Protocol-Version", version);
        let response = daemon.send(&in_session(&session, request));
        let text = response.text();
        assert_eq!(text.matches("data:").count(), events, "{version}: {text}");
        assert!(text.contains("\"result\""), "{text}");
    }
}

#[test]
fn another_legacy_version_than_the_negotiated_one_is_accepted() {
    let upstream = server(&["echo"]).start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (session, _) = open_session(daemon.address(), "2025-06-18");
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let request = legacy_call("1", "echo").with("MCP-Protocol-Version", version);
        daemon.send(&in_session(&session, request)).assert_ok();
    }
    daemon.send(&in_session(&session, legacy_call("1", "echo")).without("MCP-Protocol-Version")).assert_ok();
    let sent = upstream.received_of("tools/call");
    assert!(sent.iter().all(|call| call.headers("mcp-protocol-version") == ["2025-06-18"]), "{sent:?}");
}

#[test]
fn idle_sessions_are_closed_upstream_and_come_back() {
    let legacy_server = server(&["echo"]);
    let upstream = legacy_server.start();
    let daemon = Daemon::start(&Config::legacy(&upstream).section("[session]\nidle_timeout = \"1s\""));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    let own = upstream.only_call().headers("mcp-session-id")[0].to_owned();
    eventually("the idle session is closed", || {
        (!legacy_server.open_sessions().contains(&own)).then_some(())
    });
    daemon.send(&in_session(&session, legacy_call("2", "echo"))).assert_ok();
    let used = upstream.sessions_of_calls();
    assert_ne!(used[0], used[1]);
}

#[test]
fn one_client_too_many_is_told_to_wait() {
    let upstream = server(&["echo"]).start();
    let limits = "[session]\nsessions_max = 2\nsessions_per_principal_max = 2\nupstream_sessions_max = 2";
    let daemon = Daemon::start(&Config::legacy(&upstream).section(limits));
    let mut refused = 0;
    for _ in 0..4 {
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        let response = daemon.send(&in_session(&session, legacy_call("1", "echo")));
        if response.json().get("error").is_some() {
            let error = response.assert_error(200, 503, Some("1"));
            assert!(error["error"]["data"]["retryAfterMs"].is_u64(), "{error}");
            refused += 1;
        }
    }
    assert!((2..4).contains(&refused), "{refused} refused");
}

#[test]
fn sessions_are_opened_only_so_fast() {
    let upstream = server(&["echo"]).start();
    let keys = api_key("one", "key-of-one");
    let rate = "[session]\ninitialize_rate_max = 3";
    let with_keys = Config::legacy(&upstream).section(&keys).section(rate);
    let second_key = api_key("two", "key-of-two");
    let elsewhere = IpAddr::from(Ipv4Addr::new(127, 0, 0, 2));
    for (config, key) in [
        (Config::legacy(&upstream).section(rate), None),
        (with_keys.section(&second_key), Some("key-of-one")),
    ] {
        let daemon = Daemon::start(&config);
        let initialize = |key: Option<&str>| match key {
            Some(key) => initialize("0", LEGACY_VERSION).with("Authorization", format!("Bearer {key}")),
            None => initialize("0", LEGACY_VERSION),
        };
        let refused = eventually("a session too many is refused", || {
            let response = daemon.send(&initialize(key));
            response.header("mcp-session-id").is_none().then_some(response)
        });
        let error = refused.assert_error(200, 429, Some("0"));
        assert_eq!(error["error"]["data"], json!({"retryAfterMs": 1000}));
        let mut other = Connection::open_from(elsewhere, daemon.address());
        other.write(&initialize(key.map(|_| "key-of-two")).bytes());
        other.response().assert_ok();
        eventually("the next is opened", || daemon.send(&initialize(key)).header("mcp-session-id").map(drop));
    }
}

#[test]
fn a_principal_has_only_so_many_sessions() {
    // A quarter of all.
    for bound in
        ["upstream_sessions_per_principal_max = 1", "sessions_per_principal_max = 1", "sessions_max = 4"]
    {
        println!("{bound}");
        is_a_bound_of_each_principal(bound);
    }
}

fn is_a_bound_of_each_principal(bound: &str) {
    let upstream = server(&["echo"]).start();
    let config = Config::legacy(&upstream)
        .section(&api_key("one", "key-of-one"))
        .section(&api_key("two", "key-of-two"))
        .section(&format!("[session]\n{bound}"));
    let daemon = Daemon::start(&config);
    let with_key = |request: Request, key: &str| request.set("Authorization", format!("Bearer {key}"));
    let open = |key: &str| {
        let response = daemon.send(&with_key(initialize("0", LEGACY_VERSION), key));
        response.header("mcp-session-id").expect("a session").to_owned()
    };
    let call =
        |session: &str, key: &str| daemon.send(&with_key(in_session(session, legacy_call("1", "echo")), key));
    let [first, second] = [(); 2].map(|()| open("key-of-one"));
    call(&first, "key-of-one").assert_ok();
    let error = call(&second, "key-of-one").assert_error(200, 429, Some("1"));
    assert_eq!(error["error"]["data"], json!({"retryAfterMs": 30_000}));
    call(&first, "key-of-one").assert_ok();
    call(&open("key-of-two"), "key-of-two").assert_ok();
    let delete = in_session(&first, legacy("1", "ping", "{}").method("DELETE").body(""));
    assert_eq!(daemon.send(&with_key(delete, "key-of-one")).status, 204);
    eventually("there is room again", || {
        call(&second, "key-of-one").json().get("result").is_some().then_some(())
    });
}

#[test]
fn a_session_ends_with_that_of_an_upstream_that_keeps_state() {
    let legacy_server = server(&["echo"]);
    let upstream = legacy_server.start();
    let lines = "eras = [\"legacy\"]\nsession_loss = \"end\"";
    let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, lines).admin());
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    let (other, _) = open_session(daemon.address(), LEGACY_VERSION);
    legacy_server.forget_sessions();
    for id in ["2", "3"] {
        daemon.send(&in_session(&session, legacy_call(id, "echo"))).assert_error(404, 404, Some(id));
    }
    daemon.send(&in_session(&other, legacy_call("4", "echo"))).assert_ok();
    assert_eq!(upstream.received_of("tools/call").len(), 3);
    let metrics = daemon.get_admin("/metrics").text();
    assert!(metrics.contains(r#"trunkline_upstream_sessions_lost_total{upstream="up"} 1"#), "{metrics}");
}

/// What became of a client's calls.
#[derive(Default)]
struct Tally {
    answered: AtomicUsize,
    cut: AtomicUsize,
}

/// Calls until it is stopped; after a failure only on a gateway at another address.
fn call_on_and_on(session: &str, address: &Mutex<SocketAddr>, is_over: &AtomicBool, tally: &Tally) {
    let mut failed_at = None;
    let mut connection: Option<(SocketAddr, Connection)> = None;
    while !is_over.load(Ordering::SeqCst) {
        let address = *address.lock().unwrap();
        if failed_at == Some(address) {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        let Some((address, mut open)) =
            connection.take().or_else(|| Some((address, Connection::try_open(address)?)))
        else {
            continue;
        };
        open.write(&in_session(session, legacy_call("1", "echo")).bytes());
        match open.try_response() {
            Ok(response) => {
                response.assert_ok();
                tally.answered.fetch_add(1, Ordering::SeqCst);
                connection = Some((address, open));
            }
            Err(Broken::Closed | Broken::Truncated(_)) => {
                tally.cut.fetch_add(1, Ordering::SeqCst);
                failed_at = Some(address);
            }
            Err(broken) => panic!("{broken:?}"),
        }
    }
}

#[test]
fn a_kill_under_load_costs_the_calls_in_flight_alone() {
    let upstream = server(&["echo"]).start();
    let folder = Folder::new();
    let config = Config::legacy(&upstream).top(&folder.key());
    let daemon = Daemon::start(&config);
    let sessions = [(); 6].map(|()| open_session(daemon.address(), LEGACY_VERSION).0);
    for session in &sessions {
        daemon.send(&in_session(session, legacy_call("0", "echo"))).assert_ok();
    }
    let (address, is_over) = (Mutex::new(daemon.address()), AtomicBool::new(false));
    let tallies = [(); 6].map(|()| Tally::default());
    let answered = || tallies.iter().map(|tally| tally.answered.load(Ordering::SeqCst)).min().unwrap();
    let goes_on = |more: usize| {
        let before = answered();
        eventually("every client is answered", || (answered() >= before + more).then_some(()));
    };
    // It outlives the clients.
    let mut second = None;
    std::thread::scope(|scope| {
        // Whatever fails here, the clients stop.
        let stop = Stop(&is_over);
        for (session, tally) in sessions.iter().zip(&tallies) {
            scope.spawn(|| call_on_and_on(session, &address, &is_over, tally));
        }
        goes_on(20);
        drop(daemon); // by SIGKILL
        let next = second.insert(Daemon::start(&config));
        *address.lock().unwrap() = next.address();
        goes_on(20);
        drop(stop);
    });
    for tally in &tallies {
        assert!(tally.cut.load(Ordering::SeqCst) <= 1, "more was lost than one call in flight");
    }
    let mut used = upstream.sessions_of_calls();
    used.sort_unstable();
    used.dedup();
    assert_eq!(used.len(), sessions.len(), "sessions with the upstream were not kept");
}

struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_level_that_is_set_while_a_session_is_opened_reaches_it() {
    let legacy_server = server(&["echo"]);
    let answering = legacy_server.clone();
    let gate = Gate::default();
    let waiting = gate.clone();
    let upstream = Upstream::start(move |request| {
        let is_held = request.method() == "logging/setLevel" && request.json()["params"]["level"] == "info";
        let reply = answering.answer(request);
        if is_held { Reply::default().wait(&waiting).then(reply) } else { reply }
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let set = |level: &str| {
        let params = format!(r#"{{"level":"{level}"}}"#);
        daemon.send(&in_session(&session, legacy("1", "logging/setLevel", &params))).assert_ok();
    };
    set("info");
    let mut connection = daemon.connect();
    connection.write(&in_session(&session, legacy_call("2", "echo")).bytes());
    upstream.wait_for("logging/setLevel", 1);
    set("error");
    gate.open();
    connection.response().assert_ok();
    let told = upstream.wait_for("logging/setLevel", 2);
    assert_eq!(told.json()["params"]["level"], "error");
    assert_eq!(told.headers("mcp-session-id"), upstream.only_call().headers("mcp-session-id"));
}

#[test]
fn a_request_that_an_upstream_cannot_stand_costs_no_session() {
    for lines in ["", "\nsession_loss = \"end\""] {
        let legacy_server = server(&["echo"]);
        let answering = legacy_server.clone();
        let upstream = Upstream::start(move |request| match request.method().as_str() {
            "tools/call" if request.client_id() == "7" => Reply::json(
                "400 Bad Request",
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}"#,
            ),
            _ => answering.answer(request),
        });
        let daemon = Daemon::start(&Config::new().upstream(
            "up",
            upstream.address,
            &format!("eras = [\"legacy\"]{lines}"),
        ));
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
        let opened = legacy_server.sessions_opened();
        for _ in 0..3 {
            daemon.send(&in_session(&session, legacy_call("7", "echo"))).assert_error(200, 502, Some("7"));
        }
        daemon.send(&in_session(&session, legacy_call("2", "echo"))).assert_ok();
        assert_eq!(legacy_server.sessions_opened(), opened);
        assert_eq!(upstream.received_of("tools/call").len(), 5, "none is sent twice");
    }
}

#[test]
fn an_idle_session_ends_with_that_of_an_upstream_that_keeps_state() {
    let legacy_server = server(&["echo"]);
    let upstream = legacy_server.start();
    let config =
        Config::new().upstream("up", upstream.address, "eras = [\"legacy\"]\nsession_loss = \"end\"");
    let daemon = Daemon::start(&config.section("[session]\nidle_timeout = \"1s\""));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    let own = upstream.only_call().headers("mcp-session-id")[0].to_owned();
    eventually("the idle session is closed", || {
        (!legacy_server.open_sessions().contains(&own)).then_some(())
    });
    daemon.send(&in_session(&session, legacy_call("2", "echo"))).assert_error(404, 404, Some("2"));
}
