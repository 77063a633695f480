//! HTTP/2 with prior knowledge: the same answers as over HTTP/1.1.

use crate::harness::{
    Config, Daemon, Gate, Http2, Offer, Reply, Request, Upstream, api_key, body, call, eventually, list,
    post, read_resource,
};

#[test]
fn the_error_table_holds() {
    let files = Upstream::offering(Offer::tools(&["echo"]));
    let weather = Upstream::with_tools(&["forecast"]);
    let config = Config::new().upstream("files", files.address, "bridge.enabled = false").upstream(
        "weather",
        weather.address,
        "bridge.enabled = false",
    );
    let daemon = Daemon::start(&config.limits("body_bytes_max = \"64KiB\""));
    let mut client = Http2::connect(daemon.address());
    let good = call("7", "files__echo");
    let errors: Vec<(&str, Request, u16, i64, Option<&str>)> = vec![
        ("not JSON", good.clone().body("{"), 400, -32700, None),
        ("a batch", good.clone().body("[]"), 400, -32600, None),
        ("headers disagree", good.clone().set("Mcp-Name", "files__x"), 400, -32020, Some("7")),
        ("a name twice", good.clone().with("Mcp-Name", "files__echo"), 400, -32020, Some("7")),
        ("no method", good.clone().without("Mcp-Method"), 400, -32020, Some("7")),
        ("legacy", post(body("7", "ping", "{}")), 400, -32022, Some("7")),
        ("no capabilities", good.clone().replacing("clientCapabilities", "x"), 400, -32602, Some("7")),
        ("an unknown method", list("7", "custom/thing"), 404, -32601, Some("7")),
        ("an unknown tool", call("7", "nosuch__x"), 200, -32602, Some("7")),
        ("an unknown resource", read_resource("7", "nosuch+x:y"), 200, -32602, Some("7")),
        ("a long body", good.clone().body("x".repeat(100_000)), 413, 413, None),
    ];
    for (what, request, status, code, id) in errors {
        println!("{what}");
        client.send(&request).assert_error(status, code, id);
    }
    let statuses = [
        ("another path", good.clone().target("/other"), 404),
        ("another method", good.clone().method("GET").body(""), 405),
        ("a foreign origin", good.clone().with("Origin", "https://evil.example"), 403),
        ("a foreign authority", good.clone().set("Host", "evil.example"), 403),
        ("another type", good.clone().set("Content-Type", "text/plain"), 415),
        ("another taste", good.clone().set("Accept", "text/html"), 406),
    ];
    for (what, request, status) in statuses {
        assert_eq!(client.send(&request).status, status, "{what}");
    }
    assert_eq!(files.forwarded().len() + weather.forwarded().len(), 0);
    client.send(&good).assert_ok();
    assert_eq!(files.only_call().headers("mcp-name"), ["echo"]);
}

#[test]
fn bytes_are_kept() {
    let reply = "{\"jsonrpc\": \"2.0\",\t\"id\":7,\"result\":{\"n\":123456789012345678901234567890,\"s\":\"\\ud800\"}}\n";
    let upstream = Upstream::calling(move |_| Reply::json("200 OK", reply));
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let mut client = Http2::connect(daemon.address());
    let filler = "0123456789abcdef".repeat(16 * 1024);
    let spelling =
        format!(r#""arguments":{{ "n":123456789012345678901234567890,"s":"\ud800\u0041\/{filler}" }}"#);
    let request = call("7", "echo").replacing(r#""arguments":{}"#, &spelling).with("Mcp-Param-Region", "eu");
    let response = client.send(&request);
    assert_eq!((response.status, response.text().as_str()), (200, reply));
    let received = upstream.only_call();
    assert!(received.body == request.body);
    assert_eq!(received.headers("mcp-param-region"), ["eu"]);
}

#[test]
fn events_arrive_one_by_one() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |_| Reply::stream().event("1").wait(&held).event("2").end());
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let mut client = Http2::connect(daemon.address());
    let (response, mut body) = client.open(&call("7", "echo"));
    assert_eq!((response.status, response.header("content-type")), (200, Some("text/event-stream")));
    assert_eq!(client.next(&mut body).as_deref(), Some(b"data: 1\n\n".as_slice()));
    gate.open();
    assert_eq!(client.next(&mut body).as_deref(), Some(b"data: 2\n\n".as_slice()));
    assert_eq!(client.next(&mut body), None);
}

#[test]
fn giving_up_a_stream_cancels_upstream_and_leaves_the_others() {
    let upstream = Upstream::calling(|request| match request.client_id().as_str() {
        "1" => Reply::stream().event("1").wait(&Gate::default()),
        _ => Reply::result(request, r#"{"resultType":"complete"}"#),
    });
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let mut client = Http2::connect(daemon.address());
    let (_, mut body) = client.open(&call("1", "echo"));
    assert!(client.next(&mut body).is_some());
    let received = upstream.wait_for("tools/call", 1);
    drop(body);
    client.run_until(|| upstream.is_closed(received.connection));
    client.send(&call("2", "echo")).assert_ok();
}

#[test]
fn streams_that_are_opened_and_given_up_at_once_harm_nobody() {
    let upstream = Upstream::calling(|request| match request.client_id().as_str() {
        "1" => Reply::silence(),
        _ => Reply::result(request, r#"{"resultType":"complete"}"#),
    });
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let mut rude = Http2::connect(daemon.address());
    rude.open_and_drop(&call("1", "echo"), 2000);
    let mut client = Http2::connect(daemon.address());
    client.send(&call("2", "echo")).assert_ok();
    drop(rude);
    eventually("nothing goes on that nobody waits for", || {
        let open = (0..upstream.connections()).filter(|connection| !upstream.is_closed(*connection)).count();
        // The one of the healthy call stays in the pool.
        (open <= 1).then_some(())
    });
    assert!(daemon.peak_resident_bytes() < 256 * 1024 * 1024);
}

#[test]
fn many_streams_share_a_connection() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |request| {
        Reply::default().wait(&held).then(Reply::result(request, r#"{"resultType":"complete"}"#))
    });
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let mut client = Http2::connect(daemon.address());
    let requests: Vec<Request> = (0..40).map(|id| call(&id.to_string(), "echo")).collect();
    let waiter = std::thread::spawn({
        let gate = gate.clone();
        move || {
            upstream.wait_for("tools/call", 40);
            gate.open();
            upstream
        }
    });
    let responses = client.send_all(&requests);
    for (id, response) in responses.iter().enumerate() {
        response.assert_ok();
        assert_eq!(response.json()["id"], id);
    }
    waiter.join().expect("all calls were on their way at once");
}

#[test]
fn streams_beyond_the_limit_wait_their_turn() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).limits("streams_per_connection_max = 4"));
    let mut client = Http2::connect(daemon.address());
    // By its answer the client has learned the limit.
    client.send(&call("0", "echo")).assert_ok();
    let requests: Vec<Request> = (0..50).map(|id| call(&id.to_string(), "echo")).collect();
    for response in client.send_all(&requests) {
        response.assert_ok();
    }
}

#[test]
fn a_connection_that_has_grown_old_is_ended_without_loss() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).limits("connection_age_max = \"1s\""));
    let mut client = Http2::connect(daemon.address());
    while client.is_open() {
        if let Some(response) = client.try_send(&call("7", "echo")) {
            response.assert_ok();
        }
    }
    Http2::connect(daemon.address()).send(&call("8", "echo")).assert_ok();
}

#[test]
fn keys_are_asked_for() {
    let key = "a-key-for-http2-0123456789abcdefgh";
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).section(&api_key("ci", key)));
    let mut client = Http2::connect(daemon.address());
    let refused = client.send(&call("7", "echo"));
    assert_eq!(refused.status, 401);
    assert!(refused.header("www-authenticate").is_some());
    client.send(&call("7", "echo").with("Authorization", format!("Bearer {key}"))).assert_ok();
    assert!(upstream.only_call().headers("authorization").is_empty());
}

#[test]
fn a_drain_lets_streams_finish() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |_| Reply::stream().event("1").wait(&held).event("2").end());
    let config = Config::transparent(&upstream).admin().section("[drain]\nquiet = \"200ms\"\nmax = \"15s\"");
    let mut daemon = Daemon::start(&config);
    let mut client = Http2::connect(daemon.address());
    let (_, mut body) = client.open(&call("7", "echo"));
    assert!(client.next(&mut body).is_some());
    daemon.terminate();
    client.run_until(|| daemon.get_admin("/readyz").status == 503);
    gate.open();
    assert_eq!(client.next(&mut body).as_deref(), Some(b"data: 2\n\n".as_slice()));
    assert_eq!(client.next(&mut body), None);
    drop(client);
    assert_eq!(daemon.wait_exit().code(), Some(0));
}
