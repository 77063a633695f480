//! Trace context in and out, and spans as an OTLP receiver gets them.

use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use crate::harness::{
    Child, Config, Daemon, Gate, Http2, LEGACY_VERSION, Legacy, META, Offer, Receiver, Reply, Request, Span,
    Upstream, body, call, eventually, in_session, legacy, legacy_call, list, modern, open_session, post,
    read_resource, refusing_address, result_body, side_by_side,
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const UNSAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
/// Nobody waits for long.
const SOON: (&str, &str) = ("OTEL_BSP_SCHEDULE_DELAY", "20");

fn start(config: Config, receiver: &Receiver) -> Daemon {
    Daemon::start_with(&config.section(&receiver.table("")), &[SOON])
}

fn span_count(daemon: &Daemon, result: &str) -> u64 {
    daemon.find_metric(&format!("trunkline_trace_spans_total{{result=\"{result}\"}}")).expect("a counter")
}

/// The `traceparent` of a span.
fn named(span: &Span) -> String {
    format!("00-{}-{}-01", span.trace_id, span.id)
}

/// Ends the process, which sends what it still has.
fn end(mut daemon: Daemon, receiver: &Receiver) -> Vec<Span> {
    daemon.terminate();
    assert!(daemon.wait_exit().success());
    receiver.spans()
}

#[test]
fn a_call_is_a_span_and_its_exchange_another() {
    let receiver = Receiver::start();
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = start(Config::prefixed(&upstream, &Upstream::with_tools(&["other"])).admin(), &receiver);
    let request = call("\"seven\"", "files__echo").with("traceparent", PARENT).with("tracestate", "a=1,b=2");
    daemon.send(&request).assert_ok();
    let (server, client) = receiver.wait_pair();

    let sent = upstream.only_call();
    assert_eq!(sent.headers("traceparent"), [named(&client)]);
    assert_eq!(sent.headers("tracestate"), ["a=1,b=2"]);
    assert_eq!([&*server.trace_id, &client.trace_id], [TRACE; 2]);
    assert_eq!([&*server.parent_id, &client.parent_id], ["b7ad6b7169203331", &server.id]);
    assert_eq!([&*server.state, &client.state], ["a=1,b=2"; 2]);
    assert_eq!([&*server.name, &client.name], ["tools/call files__echo", "tools/call echo"]);
    assert!(!server.is_error && !client.is_error && client.nanoseconds <= server.nanoseconds);
    for (span, key, value) in [
        (&server, "mcp.method.name", "tools/call"),
        (&server, "gen_ai.tool.name", "files__echo"),
        (&server, "gen_ai.operation.name", "execute_tool"),
        (&server, "mcp.protocol.version", "2026-07-28"),
        (&server, "jsonrpc.request.id", "seven"),
        (&server, "client.address", "127.0.0.1"),
        (&server, "network.transport", "tcp"),
        (&server, "network.protocol.name", "http"),
        (&server, "http.response.status_code", "200"),
        (&server, "trunkline.endpoint", "/mcp"),
        (&client, "mcp.method.name", "tools/call"),
        (&client, "gen_ai.tool.name", "echo"),
        (&client, "trunkline.upstream", "files"),
        (&client, "server.address", "127.0.0.1"),
        (&client, "server.port", &upstream.address.port().to_string()),
        (&client, "http.response.status_code", "200"),
    ] {
        assert_eq!(span.attribute(key), Some(value), "{key} of {span:?}");
    }
    for key in ["error.type", "mcp.session.id", "http.request.resend_count"] {
        assert!(server.attribute(key).is_none() && client.attribute(key).is_none(), "{key}");
    }
    assert_eq!(server.resource.get("service.name").map(String::as_str), Some("trunkline"));
    let version = daemon.get_admin("/status").json()["version"].clone();
    assert_eq!(version.as_str(), server.resource.get("service.version").map(String::as_str));
    assert!(receiver.heads()[0].to_ascii_lowercase().contains("content-type: application/x-protobuf\r\n"));
    eventually("they are counted", || (span_count(&daemon, "exported") == 2).then_some(()));
}

#[test]
fn the_parent_or_the_ratio_decides() {
    let fresh = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    let cases = [
        ("ratio = 1.0", None, true),
        ("ratio = 0.0", None, false),
        ("ratio = 0.0", Some(PARENT), true),
        ("ratio = 1.0", Some(UNSAMPLED), false),
        ("ratio = 0.0\nfollow_parent = false", Some(PARENT), false),
        ("ratio = 1.0\nfollow_parent = false", Some(fresh), true),
    ];
    side_by_side(cases, |(lines, parent, is_traced)| {
        let receiver = Receiver::start();
        let upstream = Upstream::with_tools(&["echo"]);
        let config = Config::transparent(&upstream).section(&receiver.table(lines));
        let daemon = Daemon::start(&config);
        let request =
            parent.iter().fold(call("1", "echo"), |request, parent| request.with("traceparent", parent));
        daemon.send(&request).assert_ok();
        let sent = upstream.only_call();
        let spans = end(daemon, &receiver);
        assert_eq!(spans.len(), if is_traced { 2 } else { 0 }, "{lines} {parent:?}");
        if !is_traced {
            assert_eq!(sent.headers("traceparent"), parent.as_slice(), "{lines}");
        }
    });
}

#[test]
fn a_share_is_traced() {
    let receiver = Receiver::start();
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).section(&receiver.table("ratio = 0.25")));
    let mut connection = daemon.connect();
    for _ in 0..400 {
        connection.write(&call("1", "echo").bytes());
        connection.response().assert_ok();
    }
    let traced = end(daemon, &receiver).len() / 2;
    // Out of these bounds once in ten million times.
    assert!((55..=145).contains(&traced), "{traced} of 400");
}

#[test]
fn a_malformed_parent_is_none() {
    let malformed = "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let upstream = Upstream::with_tools(&["echo"]);
    let request = call("1", "echo").with("traceparent", malformed).with("tracestate", "a=1");

    let receiver = Receiver::start();
    let daemon = start(Config::transparent(&upstream), &receiver);
    daemon.send(&request).assert_ok();
    let (server, client) = receiver.wait_pair();
    assert_eq!(server.parent_id, "");
    assert_ne!(server.trace_id, TRACE);
    let sent = upstream.wait_for("tools/call", 1);
    assert_eq!(sent.headers("traceparent"), [named(&client)]);
    assert!(sent.headers("tracestate").is_empty());

    // What is not traced is not touched.
    let daemon = Daemon::start(&Config::transparent(&upstream));
    daemon.send(&request).assert_ok();
    let sent = upstream.wait_for("tools/call", 2);
    assert_eq!([sent.headers("traceparent"), sent.headers("tracestate")], [[malformed], ["a=1"]]);
}

#[test]
fn a_child_process_reads_it_in_meta() {
    let receiver = Receiver::start();
    let child = Child::new(&["modern"]);
    let daemon = start(Config::new().raw("up", &child.keys("eras = [\"modern\"]")), &receiver);
    daemon.send(&call("1", "echo").with("traceparent", PARENT).with("tracestate", "a=1")).assert_ok();
    let (server, client) = receiver.wait_pair();
    let meta = child.received("tools/call").remove(0)["params"]["_meta"].clone();
    assert_eq!(meta["traceparent"], named(&client));
    assert_eq!(meta["tracestate"], "a=1");
    assert_eq!(client.parent_id, server.id);
    assert_eq!(client.attribute("network.transport"), Some("pipe"));

    // A name that its client wrote there itself is replaced: servers look in both places.
    let own = r#""_meta":{"traceparent":"its own","#;
    daemon.send(&call("1", "echo").with("traceparent", PARENT).replacing(r#""_meta":{"#, own)).assert_ok();
    let spans = receiver.wait(4);
    let names: Vec<String> = spans[2..].iter().map(named).collect();
    let told = child.received("tools/call")[1]["params"]["_meta"]["traceparent"].clone();
    assert!(names.iter().any(|name| told == **name), "{told} is none of {names:?}");
}

#[test]
fn every_kind_of_call_has_its_name() {
    let receiver = Receiver::start();
    let offer = Offer::tools(&["echo"]).with_prompts(&["greet"]).with_resources(&["file:///a"]);
    let upstream = Upstream::offering(offer);
    let daemon = start(Config::transparent(&upstream), &receiver);
    let prompt = format!(r#"{{"name":"greet","_meta":{META}}}"#);
    for (request, name, attribute) in [
        (list("1", "tools/list"), "tools/list", None),
        (
            modern("prompts/get", Some("greet"), body("1", "prompts/get", &prompt)),
            "prompts/get greet",
            Some(("gen_ai.prompt.name", "greet")),
        ),
        // URIs are many.
        (read_resource("1", "file:///a"), "resources/read", Some(("mcp.resource.uri", "file:///a"))),
    ] {
        let before = receiver.spans().len();
        daemon.send(&request).assert_ok();
        let spans = eventually("the span of the call arrives", || {
            let spans = receiver.spans().split_off(before);
            spans.iter().any(|span| span.kind == SpanKind::Server).then_some(spans)
        });
        for span in spans {
            assert_eq!(span.name, name);
            assert_eq!(attribute.and_then(|(key, _)| span.attribute(key)), attribute.map(|(_, value)| value));
        }
    }
}

#[test]
fn what_fails_says_why() {
    let receiver = Receiver::start();
    let (address, _socket) = refusing_address();
    let daemon = start(Config::new().upstream("up", address, ""), &receiver);
    let name = format!("a\u{e9}{}", "x".repeat(400));
    let encoded = format!("=?base64?{}?=", {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(&name)
    });
    let params = format!(r#"{{"name":"{name}","arguments":{{}},"_meta":{META}}}"#);
    let request = modern("tools/call", Some(&encoded), body("1", "tools/call", &params));
    let status = daemon.send(&request).status.to_string();
    let (server, client) = receiver.wait_pair();
    let reason = server.attribute("error.type").expect("a reason").to_owned();
    assert_eq!(client.attribute("error.type"), Some(&*reason));
    assert!(server.is_error && client.is_error);
    assert_eq!(server.attribute("http.response.status_code"), Some(&*status));
    assert_eq!(client.attribute("http.response.status_code"), None);
    assert_eq!(client.attribute("server.port"), Some(&*address.port().to_string()));
    assert!(server.name.starts_with("tools/call a\u{e9}x") && server.name.len() < 200, "{}", server.name);

    // What the gateway refuses has no exchange.
    daemon.send(&call("1", "echo").set("Mcp-Name", "other")).assert_error(400, -32020, Some("1"));
    let spans = receiver.wait(3);
    assert_eq!((spans.len(), spans[2].kind), (3, SpanKind::Server));
    assert!(spans[2].is_error && spans[2].attribute("error.type").is_some_and(|other| other != reason));
}

#[test]
fn what_is_sent_again_is_marked() {
    let receiver = Receiver::start();
    let offer = Offer::tools(&["echo"]);
    let upstream = Upstream::start(move |request| match (request.connection, request.method().as_str()) {
        (0, "resources/read") => Reply::default().reset(),
        _ => offer.answer(request),
    });
    let daemon = start(Config::transparent(&upstream).top("workers = 1"), &receiver);
    daemon.send(&call("1", "echo")).assert_ok();
    daemon.send(&read_resource("2", "file:///a")).assert_ok();
    let spans = receiver.wait(4);
    let resends = spans.iter().filter_map(|span| {
        span.attribute("http.request.resend_count").map(|count| (span.kind, &*span.name, count))
    });
    assert_eq!(resends.collect::<Vec<_>>(), [(SpanKind::Client, "resources/read", "1")]);
    let parents: Vec<String> = upstream
        .received_of("resources/read")
        .iter()
        .map(|sent| sent.headers("traceparent").concat())
        .collect();
    assert_eq!(parents[0], parents[1]);
}

#[test]
fn a_stream_is_traced_to_its_end() {
    let receiver = Receiver::start();
    let gate = Gate::default();
    let waiting = gate.clone();
    let upstream = Upstream::calling(move |request| {
        let answer = crate::harness::result_body(request, r#"{"content":[]}"#);
        let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;
        Reply::stream().event(progress).wait(&waiting).event(&answer).end()
    });
    let daemon = start(Config::transparent(&upstream), &receiver);
    let mut connection = daemon.connect();
    connection.write(&call("1", "echo").bytes());
    assert_eq!(connection.head().status, 200);
    connection.event().expect("an event");
    assert!(receiver.spans().is_empty(), "it has not ended");
    gate.open();
    while connection.event().is_some() {}
    let (server, client) = receiver.wait_pair();
    assert!(!server.is_error && !client.is_error);
    assert_eq!(client.attribute("http.response.status_code"), Some("200"));
}

#[test]
fn who_leaves_is_seen() {
    let receiver = Receiver::start();
    let upstream = Upstream::calling(|_| Reply::silence());
    let daemon = start(Config::transparent(&upstream), &receiver);
    let mut leaving = daemon.connect();
    leaving.write(&call("1", "echo").bytes());
    upstream.wait_for("tools/call", 1);
    drop(leaving);
    let (server, client) = receiver.wait_pair();
    assert_eq!(server.attribute("error.type"), client.attribute("error.type"));
    assert!(server.is_error && server.attribute("http.response.status_code").is_none());
}

#[test]
fn a_call_that_was_answered_is_no_cancelled_one() {
    let (receiver, gate) = (Receiver::start(), Gate::default());
    let (door, server) = (gate.clone(), Legacy::new(Offer::tools(&["echo"])).and_modern());
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => {
            let answer = result_body(request, r#"{"content":[],"resultType":"complete"}"#);
            Reply::stream().event(&answer).wait(&door).end()
        }
        _ => server.answer(request),
    });
    let config = Config::new().upstream("up", upstream.address, "eras = [\"modern\", \"legacy\"]");
    let daemon = start(config, &receiver);
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    for request in [in_session(&session, legacy_call("1", "echo")), call("2", "echo")] {
        // A client that has its answer does not wait for the end of the stream.
        let mut leaving = daemon.begin(&request);
        assert_eq!(leaving.head().status, 200);
        assert!(leaving.event().is_some_and(|event| event.contains("result")));
        drop(leaving);
        let mut leaving = Http2::connect(daemon.address());
        let (head, mut body) = leaving.open(&request);
        assert_eq!(head.status, 200);
        assert!(leaving.next(&mut body).is_some());
        drop((body, leaving));
    }
    let calls = eventually("each call has its spans", || {
        let spans = receiver.spans().into_iter();
        let calls: Vec<Span> = spans.filter(|span| span.name.starts_with("tools/call")).collect();
        (calls.len() == 8).then_some(calls)
    });
    for span in calls {
        assert!(!span.is_error && span.attribute("error.type").is_none(), "{span:?}");
        assert_eq!(span.attribute("http.response.status_code"), Some("200"), "{span:?}");
    }
    gate.open();
}

fn in_legacy(session: &str, id: &str) -> Request {
    let request = legacy(id, "tools/call", r#"{"name":"echo","arguments":{}}"#);
    in_session(session, request).with("traceparent", PARENT)
}

#[test]
fn calls_within_sessions_are_traced() {
    let receiver = Receiver::start();
    let server = Legacy::new(Offer::tools(&["echo"]));
    let upstream = Upstream::start(move |request| server.answer(request));
    let config = Config::new().upstream("up", upstream.address, "eras = [\"legacy\"]");
    let daemon = Daemon::start_with(&config.section(&receiver.table("ratio = 0.0")), &[SOON]);
    let session = open_session(daemon.address(), LEGACY_VERSION).0;
    daemon.send(&in_legacy(&session, "1")).assert_ok();
    let (server, client) = receiver.wait_pair();
    assert_eq!([&*server.name, &client.name], ["tools/call echo"; 2]);
    assert_eq!(upstream.only_call().headers("traceparent"), [named(&client)]);
    assert_eq!(server.attribute("mcp.protocol.version"), Some(LEGACY_VERSION));
    for span in [server, client] {
        assert!(!format!("{span:?}").contains(&session), "a session id is a secret: {span:?}");
    }
}

#[test]
fn each_call_of_a_batch_is_a_span_below_it() {
    let receiver = Receiver::start();
    let server = Legacy::new(Offer::tools(&["echo"]));
    let upstream = Upstream::start(move |request| server.answer(request));
    let config = Config::new().upstream("up", upstream.address, "eras = [\"legacy\"]");
    let daemon = Daemon::start_with(&config.section(&receiver.table("ratio = 0.0")), &[SOON]);
    let session = open_session(daemon.address(), "2025-03-26").0;
    let params = r#"{"name":"echo","arguments":{}}"#;
    let messages = [body("1", "tools/call", params), body("2", "tools/call", params)].join(",");
    let batch = in_session(&session, post(format!("[{messages}]"))).without("MCP-Protocol-Version");
    assert_eq!(daemon.send(&batch.with("traceparent", PARENT)).status, 200);
    let spans = receiver.wait(5);
    let whole = spans.iter().find(|span| span.parent_id == "b7ad6b7169203331").expect("the batch");
    let calls: Vec<&Span> = spans.iter().filter(|span| span.parent_id == whole.id).collect();
    assert_eq!(calls.len(), 2, "{spans:?}");
    for call in calls {
        assert_eq!((call.kind, &*call.name), (SpanKind::Server, "tools/call echo"));
        let below: Vec<&Span> = spans.iter().filter(|span| span.parent_id == call.id).collect();
        assert!(matches!(below[..], [span] if span.kind == SpanKind::Client), "{spans:?}");
    }
}

/// Whatever the receiver does: calls are answered, and what is lost is counted.
#[test]
fn a_broken_receiver_costs_a_counter() {
    let (refusing, _socket) = refusing_address();
    let receivers = [
        Receiver::answering(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"),
        Receiver::answering(
            b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
        ),
        Receiver::answering(b"HTTP/1.1 301 Moved\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"),
        Receiver::answering(b"SSH-2.0-OpenSSH_9.2\r\n"),
        Receiver::answering(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n"),
        Receiver::answering(b""),
    ];
    let addresses = receivers.iter().map(|receiver| receiver.address).chain([refusing]);
    for address in addresses {
        let upstream = Upstream::with_tools(&["echo"]);
        let table = format!("[trace]\nendpoint = \"http://{address}/v1/traces\"");
        let config = Config::transparent(&upstream).admin().section(&table);
        let environment = [SOON, ("OTEL_BSP_EXPORT_TIMEOUT", "300"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "200")];
        let daemon = Daemon::start_with(&config, &environment);
        daemon.send(&call("1", "echo")).assert_ok();
        eventually("they are counted as lost", || (span_count(&daemon, "failed") == 2).then_some(()));
        daemon.wait_for_log(0, "it is told", |line| line.contains("spans are lost"));
        daemon.send(&call("1", "echo")).assert_ok();
        eventually("these too", || (span_count(&daemon, "failed") == 4).then_some(()));
        assert_eq!(span_count(&daemon, "exported"), 0);
        let told = daemon.log().iter().filter(|line| line.contains("spans are lost")).count();
        assert_eq!(told, 1, "one line a minute");
    }
}

#[test]
fn what_the_receiver_rejects_is_counted() {
    // partial_success { rejected_spans: 1, error_message: "no" }
    let receiver = Receiver::answering(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 8\r\n\r\n\x0a\x06\x08\x01\x12\x02no",
    );
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = start(Config::transparent(&upstream).admin(), &receiver);
    daemon.send(&call("1", "echo")).assert_ok();
    receiver.wait(2);
    eventually("it is counted", || {
        let counted = ["rejected", "exported", "failed"].map(|result| span_count(&daemon, result));
        (counted[0] > 0 && counted.iter().sum::<u64>() == 2 && counted[2] == 0).then_some(())
    });
}

#[test]
fn a_slow_receiver_delays_no_call() {
    let receiver = Receiver::answering(b"");
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream).admin().section(&receiver.table(""));
    let environment = [SOON, ("OTEL_BSP_MAX_QUEUE_SIZE", "8"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")];
    let mut daemon = Daemon::start_with(&config, &environment);
    let mut connection = daemon.connect();
    for _ in 0..50 {
        connection.write(&call("1", "echo").bytes());
        connection.response().assert_ok();
    }
    drop(connection);
    // One batch is on its way, and eight spans wait.
    eventually("the rest is dropped", || (span_count(&daemon, "dropped") >= 100 - 4 - 8).then_some(()));
    // Nor does it hold up the end.
    let began = Instant::now();
    daemon.terminate();
    assert!(daemon.wait_exit().success());
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn a_receiver_that_comes_back_gets_the_batch() {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let upstream = Upstream::with_tools(&["echo"]);
    let table = format!("[trace]\nendpoint = \"http://{address}/\"");
    let daemon = Daemon::start_with(&Config::transparent(&upstream).admin().section(&table), &[SOON]);
    daemon.send(&call("1", "echo")).assert_ok();
    let refusal: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
    for answer in [refusal, crate::harness::TAKEN] {
        let (mut stream, _) = listener.accept().expect("a connection");
        assert!(stream.read(&mut [0; 16 * 1024]).expect("a batch") > 0);
        stream.write_all(answer).expect("answered");
    }
    eventually("it is counted once", || (span_count(&daemon, "exported") == 2).then_some(()));
    assert_eq!(span_count(&daemon, "failed"), 0);
}

#[test]
fn the_last_spans_are_sent_at_the_end() {
    let receiver = Receiver::start();
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream).section(&receiver.table(""));
    let daemon = Daemon::start_with(&config, &[("OTEL_BSP_SCHEDULE_DELAY", "600000")]);
    daemon.send(&call("1", "echo")).assert_ok();
    assert!(receiver.spans().is_empty());
    assert_eq!(end(daemon, &receiver).len(), 2);
}

#[test]
fn the_environment_is_heard() {
    let receiver = Receiver::start();
    let base = format!("http://{}/base", receiver.address);
    let upstream = Upstream::with_tools(&["echo"]);
    let environment = [
        SOON,
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*base),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20s3cret"),
        ("OTEL_SERVICE_NAME", "edge"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.name=other"),
        ("OTEL_TRACES_SAMPLER", "parentbased_always_off"),
    ];
    let daemon = Daemon::start_with(&Config::transparent(&upstream), &environment);
    daemon.send(&call("1", "echo")).assert_ok();
    daemon.send(&call("1", "echo").with("traceparent", PARENT)).assert_ok();
    let (server, _) = receiver.wait_pair();
    assert_eq!(server.trace_id, TRACE);
    assert_eq!(server.resource["service.name"], "edge");
    assert_eq!(server.resource["deployment.environment.name"], "test");
    let head = receiver.heads().remove(0);
    assert!(head.starts_with("POST /base/v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("authorization: Bearer s3cret\r\n"), "{head}");
    assert!(!daemon.log().join("\n").contains("s3cret"));

    let disabled = [&environment[..], &[("OTEL_SDK_DISABLED", "true")]].concat();
    let daemon = Daemon::start_with(&Config::transparent(&upstream), &disabled);
    daemon.send(&call("1", "echo").with("traceparent", PARENT)).assert_ok();
    assert_eq!(end(daemon, &receiver).len(), 2);
}
