//! The revisions of the legacy era, each by its own rules: what is negotiated with the client and, independently, with
//! each upstream, and what passes unchanged.

use std::sync::Mutex;

use serde_json::{Value, json};

use crate::harness::{
    Config, Daemon, LEGACY_VERSION, Legacy, Offer, Received, Reply, Upstream, VERSION, eventually,
    in_session, legacy, legacy_call, literal, open_session, result_body,
};

const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// A server whose calls are answered as the test says.
fn serving(server: &Legacy, call: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Upstream {
    let server = server.clone();
    Upstream::start(move |request| match request.method().as_str() {
        "tools/call" | "resources/read" => call(request),
        _ => server.answer(request),
    })
}

/// A server that speaks this version, whatever it is asked for.
fn insisting_on(version: &'static str, server: &Legacy) -> Upstream {
    let server = server.clone();
    Upstream::start(move |request| {
        if request.method() != "initialize" {
            return server.answer(request);
        }
        let result = json!({
            "protocolVersion": version,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "insisting", "version": "1"},
        });
        Reply::result(request, &result.to_string())
    })
}

/// The versions that were offered to the server on behalf of clients, whose name this is.
fn offered(upstream: &Upstream) -> Vec<String> {
    let initialize = upstream.received_of("initialize").into_iter().map(|request| request.json());
    let of_clients = initialize.filter(|json| json["params"]["clientInfo"]["name"] == "blackbox");
    of_clients.filter_map(|json| Some(json["params"]["protocolVersion"].as_str()?.to_owned())).collect()
}

#[test]
fn every_known_revision_is_spoken_and_an_unknown_one_answered_with_the_newest() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    for version in REVISIONS {
        let (session, result) = open_session(daemon.address(), version);
        assert_eq!(result["protocolVersion"], version);
        daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    }
    assert_eq!(offered(&upstream), REVISIONS);
    let calls = upstream.received_of("tools/call");
    let spoken: Vec<String> =
        calls.iter().map(|call| call.headers("mcp-protocol-version").join(",")).collect();
    assert_eq!(spoken, REVISIONS);
    for unknown in ["2023-01-01", "2025-11-26", "2030-01-01", VERSION, "1", ""] {
        let (_, result) = open_session(daemon.address(), unknown);
        assert_eq!(result["protocolVersion"], LEGACY_VERSION, "{unknown:?}");
    }
}

#[test]
fn nothing_newer_is_promised_than_the_upstream_speaks() {
    for (spoken, expected) in [
        ("2024-11-05", ["2024-11-05"; 4]),
        ("2025-03-26", ["2024-11-05", "2025-03-26", "2025-03-26", "2025-03-26"]),
        ("2025-06-18", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-06-18"]),
        ("2025-11-25", REVISIONS),
    ] {
        let upstream = Legacy::new(Offer::tools(&["echo"])).version(spoken).start();
        let daemon = Daemon::start(&Config::legacy(&upstream));
        for (requested, expected) in REVISIONS.into_iter().zip(expected) {
            let (_, result) = open_session(daemon.address(), requested);
            assert_eq!(result["protocolVersion"], expected, "{requested} of {spoken}");
        }
        let (_, result) = open_session(daemon.address(), "2030-01-01");
        assert_eq!(result["protocolVersion"], spoken);
    }
}

#[test]
fn each_upstream_is_spoken_to_in_its_own_revision() {
    let old = Legacy::new(Offer::tools(&["read"])).version("2024-11-05").start();
    let new = Legacy::new(Offer::tools(&["forecast"])).start();
    let daemon = Daemon::start(&Config::legacy_pair(&old, &new));
    let (session, result) = open_session(daemon.address(), LEGACY_VERSION);
    assert_eq!(result["protocolVersion"], LEGACY_VERSION);
    for tool in ["files__read", "weather__forecast"] {
        daemon.send(&in_session(&session, legacy_call("1", tool))).assert_ok();
    }
    for (upstream, spoken) in [(&old, "2024-11-05"), (&new, LEGACY_VERSION)] {
        assert_eq!(offered(upstream), [LEGACY_VERSION], "the client's own is offered first");
        assert_eq!(upstream.only_call().headers("mcp-protocol-version"), [spoken]);
        let own = upstream.only_call().headers("mcp-session-id")[0].to_owned();
        let told = upstream.received_of("notifications/initialized");
        let told = told.iter().find(|told| told.headers("mcp-session-id") == [&own]).unwrap();
        assert_eq!(told.headers("mcp-protocol-version"), [spoken]);
    }
}

#[test]
fn an_upstream_may_insist_on_a_newer_revision_than_the_client_has() {
    let server = Legacy::new(Offer::tools(&["echo"])).without_sessions();
    let upstream = insisting_on(LEGACY_VERSION, &server);
    let daemon = Daemon::start(&Config::legacy(&upstream));
    for version in ["2024-11-05", "2025-06-18"] {
        let (session, result) = open_session(daemon.address(), version);
        assert_eq!(result["protocolVersion"], version, "the client is not told a version it did not ask for");
        let named = legacy_call("1", "echo").with("MCP-Protocol-Version", version);
        daemon.send(&in_session(&session, named)).assert_ok();
    }
    for call in upstream.received_of("tools/call") {
        assert_eq!(call.headers("mcp-protocol-version"), [LEGACY_VERSION]);
    }
}

#[test]
fn an_upstream_that_answers_with_no_revision_of_the_era_fails_its_calls() {
    let server = Legacy::new(Offer::tools(&["echo"])).without_sessions();
    for version in [VERSION, "1"] {
        let upstream = insisting_on(version, &server);
        let daemon = Daemon::start(&Config::legacy(&upstream));
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_error(200, 502, Some("1"));
        assert_eq!(upstream.received_of("tools/call").len(), 0);
    }
}

#[test]
fn the_version_header_is_optional_and_must_be_known() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    for negotiated in REVISIONS {
        let (session, _) = open_session(daemon.address(), negotiated);
        let call = in_session(&session, legacy_call("1", "echo")).without("MCP-Protocol-Version");
        daemon.send(&call).assert_ok();
        for served in REVISIONS {
            daemon.send(&call.clone().with("MCP-Protocol-Version", served)).assert_ok();
        }
        for unknown in ["2025-06-19", "2030-01-01", "latest"] {
            let response = daemon.send(&call.clone().with("MCP-Protocol-Version", unknown));
            response.assert_error(400, -32022, Some("1"));
        }
        let twice = call.with("MCP-Protocol-Version", negotiated).with("MCP-Protocol-Version", negotiated);
        assert_eq!(daemon.send(&twice).status, 400, "{negotiated}");
    }
    // What goes up is what was negotiated, whatever the client's header says.
    let calls = upstream.received_of("tools/call");
    assert_eq!(calls.len(), REVISIONS.len() * 5);
    for (calls, negotiated) in calls.chunks(5).zip(REVISIONS) {
        assert!(
            calls.iter().all(|call| call.headers("mcp-protocol-version") == [negotiated]),
            "{negotiated}"
        );
    }
}

#[test]
fn who_names_no_version_is_taken_for_one_of_2025_03_26() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    daemon.send(&legacy("1", "tools/list", "{}")).assert_ok();
    let listed = eventually("the list is fetched", || {
        upstream
            .received_of("tools/list")
            .into_iter()
            .find(|list| list.headers("mcp-protocol-version") == ["2025-03-26"])
    });
    assert!(listed.headers("mcp-method").is_empty());
}

#[test]
fn errors_of_their_own_pass_unchanged() {
    // 2025-11-25, "Elicitation", and 2025-06-18, "Resources".
    let url = r#"{"code":-32042, "message":"This request requires more information.","data":{"elicitations":[{"mode":"url","elicitationId":"550e-84","url":"https://a.example/connect?x=1\u00262","message":"Authorization is required"}],"n":1.0}}"#;
    let not_found =
        r#"{"code":-32002,"message":"Resource not found","data":{"uri":"file:///nonexistent.txt"}}"#;
    let answer = move |request: &Received| {
        let error = if request.method() == "tools/call" { url } else { not_found };
        let body = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, request.id());
        if request.client_id() == "1" {
            Reply::json("200 OK", &body)
        } else {
            Reply::stream().event(&body).end()
        }
    };
    let server = Legacy::new(Offer::tools(&["echo"]).with_resources(&["file:///nonexistent.txt"]));
    let (one, other) = (serving(&server, answer), serving(&Legacy::new(Offer::tools(&["other"])), answer));
    for (config, tool, uri) in [
        (Config::legacy(&one), "echo", "file:///nonexistent.txt"),
        (Config::legacy_pair(&one, &other), "files__echo", "files+file:///nonexistent.txt"),
    ] {
        let daemon = Daemon::start(&config);
        for version in REVISIONS {
            let (session, _) = open_session(daemon.address(), version);
            for id in ["1", "2"] {
                let called = daemon.send(&in_session(&session, legacy_call(id, tool)));
                let read = legacy(id, "resources/read", &format!(r#"{{"uri":"{uri}"}}"#));
                let read = daemon.send(&in_session(&session, read));
                assert_eq!((called.status, read.status), (200, 200));
                assert_eq!(error_of(&called.text(), id), url, "{version}");
                // The client knows the resource by its public URI.
                let not_found = not_found.replace("file:///nonexistent.txt", uri);
                assert_eq!(error_of(&read.text(), id), not_found, "{version}");
            }
        }
    }
}

/// The error of a reply, as it is spelled, whether it came as JSON or as the one event of a stream.
#[track_caller]
fn error_of(reply: &str, id: &str) -> String {
    let mut data = reply.lines().filter_map(|line| line.strip_prefix("data: "));
    let message = data.next().unwrap_or(reply);
    assert_eq!(literal(message.as_bytes(), &["id"]), id);
    literal(message.as_bytes(), &["error"])
}

#[test]
fn structured_output_passes_to_every_revision() {
    let tool = r#"{"name":"echo","title":"Echo","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"n":{"type":"number"}}},"_meta":{"a":1}}"#;
    let result = r#"{"content":[{"type":"text","text":"1.50"},{"type":"resource_link","uri":"file:///a","name":"a"}],"structuredContent":{"n": 1.50},"isError":false}"#;
    let server = Legacy::new(Offer { tools: vec![tool.into()], ..Offer::default() });
    let upstream = serving(&server, |request| Reply::result(request, result));
    let daemon = Daemon::start(&Config::legacy(&upstream));
    for version in REVISIONS {
        let (session, _) = open_session(daemon.address(), version);
        let listed = daemon.send(&in_session(&session, legacy("1", "tools/list", "{}")));
        assert_eq!(literal(&listed.body, &["result", "tools", "0"]), tool, "{version}");
        let called = daemon.send(&in_session(&session, legacy_call("2", "echo")));
        assert_eq!(literal(&called.body, &["result"]), result, "{version}");
    }
}

#[test]
fn only_the_newest_revision_has_priming_events() {
    let completed =
        r#"{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e"}}"#;
    let upstream = serving(&Legacy::new(Offer::tools(&["echo"])), move |request| {
        Reply::stream()
            .chunk("id: 1\nretry: 20\ndata:\n\n")
            .event(completed)
            .event(&result_body(request, r#"{"content":[]}"#))
            .end()
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    for version in REVISIONS {
        let (session, _) = open_session(daemon.address(), version);
        let request = legacy_call("1", "echo").with("MCP-Protocol-Version", version);
        let text = daemon.send(&in_session(&session, request)).text();
        let is_newest = version == LEGACY_VERSION;
        assert_eq!(text.contains("id: 1\nretry: 20\ndata:\n\n"), is_newest, "{version}: {text}");
        assert_eq!(text.contains("retry"), is_newest, "{version}: {text}");
        let messages: Vec<Value> = text
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(|data| serde_json::from_str(data).expect("a message"))
            .collect();
        assert_eq!(messages.len(), 2, "{version}: {text}");
        assert_eq!(messages[0], serde_json::from_str::<Value>(completed).unwrap());
        assert_eq!(messages[1]["id"], 1);
    }
}

#[test]
fn a_stream_that_ends_to_be_asked_for_again_is_asked_for_by_the_gateway_where_the_client_cannot() {
    let server = Legacy::new(Offer::tools(&["echo"]));
    let answering = server.clone();
    let last_call: Mutex<Option<Received>> = Mutex::default();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => {
            *last_call.lock().unwrap() = Some(request.clone());
            Reply::stream().chunk("id: 1\nretry: 20\ndata:\n\n").end()
        }
        "GET" if request.headers("last-event-id") == ["1"] => {
            let call = last_call.lock().unwrap().clone().expect("a call");
            Reply::stream().event(&result_body(&call, r#"{"content":[]}"#)).end()
        }
        _ => answering.answer(request),
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    for version in REVISIONS {
        let (session, _) = open_session(daemon.address(), version);
        let request = legacy_call("7", "echo").with("MCP-Protocol-Version", version);
        let text = daemon.send(&in_session(&session, request)).text();
        if version == LEGACY_VERSION {
            assert_eq!(text, "id: 1\nretry: 20\ndata:\n\n", "the client comes back by itself");
        } else {
            assert!(!text.contains("retry") && text.contains(r#""id":7,"result""#), "{version}: {text}");
        }
    }
}

#[test]
fn methods_of_other_revisions_are_the_upstream_s_to_refuse() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    for version in REVISIONS {
        let (session, _) = open_session(daemon.address(), version);
        let tasks = daemon.send(&in_session(&session, legacy("1", "tasks/list", "{}")));
        tasks.assert_error(200, -32601, Some("1"));
        // Of the modern era.
        for method in ["server/discover", "subscriptions/listen"] {
            let request = in_session(&session, legacy("2", method, "{}"));
            daemon.send(&request).assert_error(200, -32601, Some("2"));
        }
        daemon.send(&in_session(&session, legacy("3", "ping", "{}"))).assert_ok();
        let notification = r#"{"jsonrpc":"2.0","method":"notifications/unheard-of"}"#;
        let told = daemon.send(&in_session(&session, legacy("4", "x", "{}").body(notification)));
        assert_eq!((told.status, told.body.len()), (202, 0));
    }
    assert!(upstream.received_of("server/discover").iter().all(|asked| asked.json()["id"] != 2));
}
