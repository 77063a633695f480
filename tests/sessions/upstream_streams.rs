//! What upstreams are told of the clients behind the gateway, and the streams on which they speak unasked.

use serde_json::json;

use crate::harness::{
    Config, Daemon, Gate, LEGACY_VERSION, Legacy, Offer, Received, Reply, Request, Upstream, eventually,
    in_session, initialize, legacy, legacy_call, open_session, open_session_with,
};

const SAMPLING: &str = r#"{"sampling":{}}"#;

fn server() -> Legacy {
    Legacy::new(Offer::tools(&["echo"]).with_resources(&["test://a", "test://b"]))
}

fn delete(session: &str) -> Request {
    in_session(session, legacy("1", "ping", "{}").method("DELETE").body(""))
}

/// What arrived in the session of the first call, in order.
fn methods_in_session_of_call(upstream: &Upstream) -> Vec<String> {
    let session = upstream.wait_for("tools/call", 1).session();
    let received = upstream.received();
    received.iter().filter(|request| request.session() == session).map(Received::method).collect()
}

#[test]
fn an_upstream_sees_who_the_client_is_and_what_it_can_do() {
    let upstream = server().start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let capabilities =
        r#"{ "elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"experimental":{"x":1e3} }"#;
    let client = r#""clientInfo":{"name":"black\"box","title":"Box","version":"7","icons":[]}"#;
    let params = format!(r#"{{"protocolVersion":"2025-06-18","capabilities":{capabilities},{client}}}"#);
    let opened = daemon.send(&legacy("0", "initialize", &params));
    let session = opened.header("mcp-session-id").expect("a session").to_owned();
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    let offers = upstream.received_of("initialize");
    let offer = offers.last().expect("an initialize");
    assert!(String::from_utf8_lossy(&offer.body).contains(&format!("\"capabilities\":{capabilities}")));
    let said = &offer.json()["params"];
    assert_eq!(said["protocolVersion"], "2025-06-18");
    assert_eq!(said["clientInfo"], json!({"name": "black\"box", "title": "Box", "version": "7"}));
}

#[test]
fn the_gateways_own_sessions_are_in_its_own_name_and_declare_what_the_client_does() {
    let upstream = server().start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    for capabilities in ["{}", SAMPLING, "{}", SAMPLING] {
        let session = open_session_with(daemon.address(), LEGACY_VERSION, capabilities);
        daemon.send(&in_session(&session, legacy("1", "tools/list", "{}"))).assert_ok();
    }
    let mut declared = Vec::new();
    for offer in upstream.received_of("initialize") {
        let said = &offer.json()["params"];
        assert_eq!(said["clientInfo"]["name"], "trunkline");
        if said["protocolVersion"] == LEGACY_VERSION {
            declared.push(said["capabilities"].to_string());
        }
    }
    declared.sort();
    declared.dedup();
    let sampling: serde_json::Value = serde_json::from_str(SAMPLING).expect("JSON");
    assert_eq!(declared, [sampling.to_string(), "{}".to_owned()]);
}

#[test]
fn the_stream_stands_before_the_first_call() {
    let server = server().with_streams();
    let upstream = server.start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    for capabilities in [SAMPLING, r#"{"elicitation":{}}"#, r#"{"roots":{"listChanged":true}}"#] {
        let session = open_session_with(daemon.address(), "2025-06-18", capabilities);
        let before = upstream.received().len();
        daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
        daemon.send(&in_session(&session, legacy_call("2", "echo"))).assert_ok();
        let received = upstream.received().split_off(before);
        let methods: Vec<String> = received.iter().map(Received::method).collect();
        let expected = ["initialize", "notifications/initialized", "GET", "tools/call", "tools/call"];
        assert_eq!(methods, expected, "{capabilities}");
        let get = &received[2];
        assert_eq!(get.session(), received[3].session());
        assert_eq!(get.headers("accept"), ["text/event-stream"]);
        assert_eq!(get.headers("mcp-protocol-version"), ["2025-06-18"]);
        assert!(get.headers("last-event-id").is_empty() && get.headers("content-type").is_empty());
    }
}

#[test]
fn who_needs_no_stream_has_none() {
    let server = server().with_streams();
    let upstream = server.start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    assert_eq!(upstream.received_of("GET").len(), 0);
}

#[test]
fn calls_at_once_open_one_stream() {
    let server = server().with_streams();
    let upstream = server.start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let session = open_session_with(daemon.address(), LEGACY_VERSION, SAMPLING);
    let mut connections: Vec<_> = (0..16).map(|_| daemon.connect()).collect();
    for connection in &mut connections {
        connection.write(&in_session(&session, legacy_call("1", "echo")).bytes());
    }
    for connection in &mut connections {
        connection.response().assert_ok();
    }
    assert_eq!(upstream.received_of("GET").len(), 1);
}

#[test]
fn an_upstream_without_streams_is_asked_once_for_each_session() {
    for status in ["405 Method Not Allowed", "404 Not Found", "400 Bad Request", "406 Not Acceptable"] {
        let answering = server();
        let upstream = Upstream::start(move |request| match request.method().as_str() {
            "GET" => Reply::http(status, "", ""),
            _ => answering.answer(request),
        });
        let daemon = Daemon::start(&Config::legacy(&upstream).admin());
        let session = open_session_with(daemon.address(), LEGACY_VERSION, SAMPLING);
        for _ in 0..3 {
            daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
        }
        assert_eq!(upstream.received_of("GET").len(), 1, "{status}");
        let used: Vec<String> = upstream.received_of("tools/call").iter().map(Received::session).collect();
        assert!(used.iter().all(|session| *session == used[0]), "{status}: {used:?}");
        let metrics = daemon.get_admin("/metrics").text();
        assert!(metrics.contains("trunkline_upstream_streams 0"), "{metrics}");
        assert!(metrics.contains(r#"trunkline_upstream_sessions_lost_total{upstream="up"} 0"#), "{metrics}");
    }
}

#[test]
fn a_stream_that_breaks_is_opened_again_where_it_broke() {
    let server = server().with_streams();
    let upstream = server.start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let session = open_session_with(daemon.address(), LEGACY_VERSION, SAMPLING);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    server.stream(1).chunk("retry: 20\nid: one\ndata:\n\n");
    server.stream(1).chunk(": nothing\n\nid: t");
    server.stream(1).chunk("wo\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1}}\n\n");
    server.stream(1).chunk("id: three\ndata: {\"jso");
    server.cut_streams();
    let again = upstream.wait_for("GET", 2);
    assert_eq!(again.headers("last-event-id"), ["two"], "{again:?}");
    assert_eq!(again.session(), upstream.only_call().session());
    server.stream(1).end();
    let again = upstream.wait_for("GET", 3);
    assert_eq!(again.headers("last-event-id"), ["two"]);
}

#[test]
fn a_ping_on_the_stream_is_answered() {
    let server = server().with_streams();
    let upstream = server.start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let session = open_session_with(daemon.address(), LEGACY_VERSION, SAMPLING);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    server.stream(1).event(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#);
    let answer = upstream.wait_for("", 1);
    assert_eq!(answer.json(), json!({"jsonrpc": "2.0", "id": "p", "result": {}}));
    assert_eq!(answer.session(), upstream.only_call().session());
}

#[test]
fn a_stream_ends_with_its_session() {
    let server = server().with_streams();
    let upstream = server.start();
    let daemon = Daemon::start(&Config::legacy(&upstream).admin());
    let session = open_session_with(daemon.address(), LEGACY_VERSION, SAMPLING);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    let stream = server.stream(1);
    assert!(!upstream.is_closed(stream.request.connection));
    assert!(daemon.get_admin("/metrics").text().contains("trunkline_upstream_streams 1"));
    assert_eq!(daemon.send(&delete(&session)).status, 204);
    upstream.wait_closed(stream.request.connection);
    eventually("the upstream forgets the session", || {
        (!server.open_sessions().contains(&stream.request.session())).then_some(())
    });
    eventually("the stream is no longer counted", || {
        daemon.get_admin("/metrics").text().contains("trunkline_upstream_streams 0").then_some(())
    });
}

#[test]
fn a_stream_keeps_no_session_from_being_idle() {
    let server = server().with_streams();
    let upstream = server.start();
    let daemon = Daemon::start(&Config::legacy(&upstream).section("[session]\nidle_timeout = \"1s\""));
    let session = open_session_with(daemon.address(), LEGACY_VERSION, SAMPLING);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    let stream = server.stream(1);
    upstream.wait_closed(stream.request.connection);
    daemon.send(&in_session(&session, legacy_call("2", "echo"))).assert_ok();
    assert_eq!(upstream.received_of("GET").len(), 2);
}

#[test]
fn a_drain_does_not_wait_for_streams() {
    let server = server().with_streams();
    let upstream = server.start();
    let mut daemon =
        Daemon::start(&Config::legacy(&upstream).section("[drain]\nquiet = \"0s\"\nmax = \"1h\""));
    let session = open_session_with(daemon.address(), LEGACY_VERSION, SAMPLING);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    server.stream(1);
    daemon.terminate();
    assert!(daemon.wait_exit().success());
}

#[test]
fn a_session_that_is_gone_is_noticed_on_the_stream() {
    let server = server().with_streams();
    let upstream = server.start();
    let daemon = Daemon::start(&Config::legacy(&upstream).admin());
    let session = open_session_with(daemon.address(), LEGACY_VERSION, SAMPLING);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    server.stream(1).chunk("retry: 20\n\n");
    server.forget_sessions();
    server.cut_streams();
    eventually("the loss is counted", || {
        let metrics = daemon.get_admin("/metrics").text();
        metrics.contains(r#"trunkline_upstream_sessions_lost_total{upstream="up"} 1"#).then_some(())
    });
    daemon.send(&in_session(&session, legacy_call("2", "echo"))).assert_ok();
    let calls = upstream.received_of("tools/call");
    assert_eq!(calls.len(), 2, "the second call had to be repeated");
    assert_ne!(calls[0].session(), calls[1].session());
}

#[test]
fn a_call_does_not_wait_long_for_a_stream() {
    let (server, gate) = (server().with_streams(), Gate::default());
    let (answering, waiting) = (server.clone(), gate.clone());
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "GET" => Reply::default().wait(&waiting).then(answering.answer(request)),
        _ => answering.answer(request),
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let session = open_session_with(daemon.address(), LEGACY_VERSION, SAMPLING);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    assert!(!gate.is_open());
    gate.open();
    server.stream(1).event(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#);
    upstream.wait_for("", 1);
    assert_eq!(methods_in_session_of_call(&upstream)[..2], ["notifications/initialized", "GET"]);
}

#[test]
fn beyond_the_bound_there_is_no_stream() {
    let server = server().with_streams();
    let upstream = server.start();
    let limit = "[session]\nupstream_streams_max = 1";
    let daemon = Daemon::start(&Config::legacy(&upstream).section(limit).admin());
    for _ in 0..2 {
        let session = open_session_with(daemon.address(), LEGACY_VERSION, SAMPLING);
        daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    }
    assert_eq!(upstream.received_of("GET").len(), 1);
    let metrics = daemon.get_admin("/metrics").text();
    assert!(metrics.contains("trunkline_upstream_streams_refused_total 1"), "{metrics}");
}

#[test]
fn an_upstream_session_with_a_very_long_id_is_closed() {
    let answering = server();
    let long = "x".repeat(2000);
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "initialize" => {
            let body = crate::harness::result_body(
                request,
                r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}"#,
            );
            Reply::http(
                "200 OK",
                &format!("Content-Type: application/json\r\nMcp-Session-Id: {long}\r\n"),
                &body,
            )
        }
        "DELETE" => Reply::http("200 OK", "", ""),
        _ => answering.answer(request),
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let opened = daemon.send(&initialize("0", LEGACY_VERSION));
    let session = opened.header("mcp-session-id").expect("a session").to_owned();
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_error(200, 502, Some("1"));
    assert_eq!(upstream.wait_for("DELETE", 1).session().len(), 2000);
    assert_eq!(upstream.received_of("tools/call").len(), 0);
}

fn subscribe(id: &str, uri: &str) -> Request {
    legacy(id, "resources/subscribe", &format!(r#"{{"uri":"{uri}"}}"#))
}

/// The URIs that were subscribed to in this session of an upstream.
fn subscribed_in(upstream: &Upstream, session: &str) -> Vec<String> {
    let received = upstream.received_of("resources/subscribe");
    let in_session = received.iter().filter(|request| request.session() == session);
    in_session
        .map(|request| request.json()["params"]["uri"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn a_subscription_opens_the_stream_first() {
    let server = server().with_streams();
    let upstream = server.start();
    let config = Config::new()
        .upstream("files", upstream.address, "eras = [\"legacy\"]")
        .endpoint("names = \"prefixed\"");
    let daemon = Daemon::start(&config);
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, subscribe("1", "files+test://a"))).assert_ok();
    let told = upstream.wait_for("resources/subscribe", 1);
    assert_eq!(told.json()["params"]["uri"], "test://a");
    let received = upstream.received();
    let own = received.iter().filter(|request| request.session() == told.session());
    let methods: Vec<String> = own.map(Received::method).collect();
    assert_eq!(methods, ["notifications/initialized", "GET", "resources/subscribe"]);
}

#[test]
fn a_new_session_is_told_what_the_old_one_was() {
    let server = server().with_streams();
    let answering = server.clone();
    let upstream = Upstream::start(move |request| {
        let is_subscription = request.method() == "resources/subscribe";
        let is_of = |uri: &str| is_subscription && request.json()["params"]["uri"] == uri;
        if is_of("test://no") {
            Reply::error(request, "200 OK", -32002, "no such resource")
        } else if is_of("test://nor-this") {
            let error = r#""error":{"code":-32002,"message":"no such resource"}"#;
            Reply::stream().event(&format!(r#"{{"jsonrpc":"2.0","id":{},{error}}}"#, request.id())).end()
        } else {
            answering.answer(request)
        }
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    for uri in ["test://a", "test://b", "test://c"] {
        daemon.send(&in_session(&session, subscribe("1", uri))).assert_ok();
    }
    daemon.send(&in_session(&session, subscribe("1", "test://no"))).assert_error(200, -32002, Some("1"));
    let refused = daemon.send(&in_session(&session, subscribe("1", "test://nor-this")));
    assert!(refused.text().contains("-32002"), "{refused:?}");
    let unsubscribe = legacy("2", "resources/unsubscribe", r#"{"uri":"test://b"}"#);
    daemon.send(&in_session(&session, unsubscribe)).assert_ok();
    let set_level = legacy("3", "logging/setLevel", r#"{"level":"error"}"#);
    daemon.send(&in_session(&session, set_level)).assert_ok();
    server.forget_sessions();
    daemon.send(&in_session(&session, legacy_call("4", "echo"))).assert_ok();
    let calls = upstream.received_of("tools/call");
    let new = calls[1].session();
    assert_ne!(calls[0].session(), new);
    let mut told = subscribed_in(&upstream, &new);
    told.sort_unstable();
    assert_eq!(told, ["test://a", "test://c"]);
    let methods = upstream.received().into_iter().filter(|request| request.session() == new);
    let methods: Vec<String> = methods.map(|request| request.method()).collect();
    let expected =
        ["notifications/initialized", "logging/setLevel", "resources/subscribe", "resources/subscribe"];
    assert_eq!(methods[..4], expected);
    assert_eq!(methods[4..], ["GET", "tools/call"]);
    upstream.wait_closed(server.stream(1).request.connection);
}

#[test]
fn a_session_with_subscriptions_comes_back_without_a_call() {
    let server = server().with_streams();
    let upstream = server.start();
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, subscribe("1", "test://a"))).assert_ok();
    let old = upstream.wait_for("resources/subscribe", 1).session();
    server.stream(1).chunk("retry: 20\n\n");
    server.forget_sessions();
    server.cut_streams();
    let told = upstream.wait_for("resources/subscribe", 2);
    assert_eq!(told.json()["params"]["uri"], "test://a");
    assert_ne!(told.session(), old);
    assert_eq!(server.stream(1).request.session(), told.session());
}

#[test]
fn subscriptions_survive_a_kill() {
    let server = server().with_streams();
    let upstream = server.start();
    let folder = crate::harness::Folder::new();
    let config = Config::legacy(&upstream).top(&folder.key());
    let daemon = Daemon::start(&config);
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, subscribe("1", "test://a"))).assert_ok();
    let old = upstream.wait_for("resources/subscribe", 1).session();
    // What is answered next was written after the subscription.
    daemon.send(&delete(&open_session(daemon.address(), LEGACY_VERSION).0));
    drop(daemon); // by SIGKILL

    let daemon = Daemon::start(&config);
    daemon.send(&in_session(&session, legacy_call("2", "echo"))).assert_ok();
    assert_eq!(upstream.only_call().session(), old);
    assert_eq!(upstream.wait_for("GET", 2).session(), old);
    server.forget_sessions();
    daemon.send(&in_session(&session, legacy_call("3", "echo"))).assert_ok();
    assert_eq!(subscribed_in(&upstream, &upstream.wait_for("tools/call", 3).session()), ["test://a"]);
}

#[test]
fn a_session_has_only_so_many_subscriptions() {
    let server = server().with_streams();
    let upstream = server.start();
    let daemon = Daemon::start(&Config::legacy(&upstream).limits("subscription_uris_max = 1"));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, subscribe("1", "test://a"))).assert_ok();
    daemon.send(&in_session(&session, subscribe("2", "test://b"))).assert_error(200, 503, Some("2"));
    daemon.send(&in_session(&session, subscribe("3", "test://a"))).assert_ok();
    let long = format!("test://{}", "x".repeat(5000));
    daemon.send(&in_session(&session, subscribe("4", &long))).assert_error(200, -32602, Some("4"));
    let unsubscribe = legacy("5", "resources/unsubscribe", r#"{"uri":"test://a"}"#);
    daemon.send(&in_session(&session, unsubscribe)).assert_ok();
    daemon.send(&in_session(&session, subscribe("6", "test://b"))).assert_ok();
}

#[test]
fn a_loss_on_the_stream_may_end_the_session() {
    let server = server().with_streams();
    let upstream = server.start();
    let lines = "eras = [\"legacy\"]\nsession_loss = \"end\"";
    let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, lines));
    let session = open_session_with(daemon.address(), LEGACY_VERSION, SAMPLING);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    server.stream(1).chunk("retry: 20\n\n");
    server.forget_sessions();
    server.cut_streams();
    eventually("the session is over", || {
        let response = daemon.send(&in_session(&session, legacy("2", "ping", "{}")));
        (response.status == 404).then_some(())
    });
    assert_eq!(upstream.received_of("tools/call").len(), 1);
}

#[test]
fn a_client_that_listens_is_not_idle_and_hears_its_upstreams() {
    let server = server().with_streams();
    let upstream = server.start();
    let daemon = Daemon::start(&Config::legacy(&upstream).section("[session]\nidle_timeout = \"1s\""));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let (other, _) = open_session(daemon.address(), LEGACY_VERSION);
    let mut client = daemon.connect();
    let get = in_session(&session, legacy("1", "ping", "{}").method("GET").body(""));
    client.write(&get.set("Accept", "text/event-stream").bytes());
    assert_eq!(client.head().status, 200);
    for session in [&session, &other] {
        daemon.send(&in_session(session, legacy_call("1", "echo"))).assert_ok();
    }
    let calls = upstream.received_of("tools/call");
    let mut streams = upstream.received_of("GET");
    streams.retain(|get| !server.is_own(get));
    assert_eq!(streams.len(), 1, "the other client listens to nothing");
    assert_eq!(streams[0].session(), calls[0].session());
    // The other session, which came later, is closed as idle; this one is not.
    let is_open = |call: &Received| server.open_sessions().contains(&call.session());
    eventually("the idle session is closed", || (!is_open(&calls[1])).then_some(()));
    assert!(is_open(&calls[0]));
    let note = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
    server.stream(1).chunk(&format!("id: 5\ndata: {note}\n\n"));
    let heard = loop {
        let event = client.event().expect("an event");
        if event.contains("notifications/message") {
            break event;
        }
    };
    assert!(heard.contains("id: 5\n") && heard.contains(note), "{heard}");
    drop(client);
    eventually("the session is closed after its client left", || (!is_open(&calls[0])).then_some(()));
    upstream.wait_closed(streams[0].connection);
}

#[test]
fn a_client_that_was_idle_comes_back_to_its_subscriptions() {
    let server = server().with_streams();
    let upstream = server.start();
    let daemon = Daemon::start(&Config::legacy(&upstream).section("[session]\nidle_timeout = \"1s\""));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, subscribe("1", "test://a"))).assert_ok();
    let first = upstream.wait_for("resources/subscribe", 1).session();
    eventually("the idle session is closed", || (!server.open_sessions().contains(&first)).then_some(()));
    let mut client = daemon.connect();
    let get = legacy("1", "ping", "{}").method("GET").body("").without("Content-Type");
    client.write(&in_session(&session, get.set("Accept", "text/event-stream")).bytes());
    assert_eq!(client.head().status, 200);
    let again = upstream.wait_for("resources/subscribe", 2);
    assert_ne!(again.session(), first);
    assert_eq!(again.json()["params"]["uri"], "test://a");
    let updated =
        r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"test://a"}}"#;
    server.stream(2).event(updated);
    assert!(client.event().expect("an event").contains("test://a"));
}

#[test]
fn what_may_have_changed_without_a_session_is_told() {
    let server = server().with_streams();
    let upstream = server.start();
    let lines = "eras = [\"legacy\"]";
    let config =
        Config::new().upstream("up", upstream.address, lines).upstream("other", upstream.address, lines);
    let daemon = Daemon::start(&config);
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let mut client = daemon.connect();
    let get = legacy("1", "ping", "{}").method("GET").body("").without("Content-Type");
    client.write(&in_session(&session, get.set("Accept", "text/event-stream")).bytes());
    assert_eq!(client.head().status, 200);
    daemon.send(&in_session(&session, subscribe("1", "up+test://a"))).assert_ok();
    upstream.wait_for("resources/subscribe", 1);
    server.stream(1).chunk("retry: 20\n\n");
    server.forget_sessions();
    server.cut_streams();
    let told = loop {
        let event = client.event().expect("an event");
        if event.contains("resources/updated") {
            break event;
        }
    };
    assert!(told.contains(r#"{"uri":"up+test://a"}"#), "{told}");
}
