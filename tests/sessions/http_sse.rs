//! The HTTP+SSE transport of 2024-11-05, towards clients: the stream, the address it names, and what ends with it.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use serde_json::{Value, json};

use crate::harness::{
    Config, Connection, Daemon, Gate, Legacy, META, Offer, Receiver, Reply, Request, Response, Upstream,
    api_key, eventually, initialize, legacy, legacy_call, post, result_body,
};

/// A client of HTTP+SSE: its stream, and where the stream told it to send messages.
struct Client<'d> {
    daemon: &'d Daemon,
    stream: Connection,
    target: String,
    authorization: Option<&'static str>,
}

impl<'d> Client<'d> {
    /// Opens the stream.
    fn open(daemon: &'d Daemon) -> Self {
        Self::open_as(daemon, None)
    }

    fn open_as(daemon: &'d Daemon, authorization: Option<&'static str>) -> Self {
        let mut stream = daemon.connect();
        stream.write(&authorized(get(), authorization).bytes());
        let head = stream.head();
        assert_eq!(head.status, 200, "{head:?}");
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        assert_eq!(head.header("mcp-session-id"), None);
        let event = stream.event().expect("the first event");
        let target =
            event.strip_prefix("event: endpoint\ndata: ").and_then(|event| event.strip_suffix("\n\n"));
        let target = target.unwrap_or_else(|| panic!("not an endpoint: {event:?}")).to_owned();
        Self { daemon, stream, target, authorization }
    }

    /// Opens the stream and a session on it.
    fn start(daemon: &'d Daemon) -> Self {
        let mut client = Self::open(daemon);
        client.introduce("2024-11-05");
        client
    }

    fn introduce(&mut self, version: &str) -> Value {
        self.send(initialize("0", version));
        let mut answer = self.message();
        assert_eq!(answer["id"], 0, "{answer}");
        self.send(post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#));
        answer["result"].take()
    }

    /// POSTs a message.
    fn post(&self, request: Request) -> Response {
        self.daemon.send(&authorized(request.target(&self.target).without("accept"), self.authorization))
    }

    /// POSTs a message that must be accepted.
    #[track_caller]
    fn send(&self, request: Request) {
        let response = self.post(request);
        assert_eq!((response.status, response.body.len()), (202, 0), "{response:?}");
    }

    /// The text of the next message on the stream.
    #[track_caller]
    fn text(&mut self) -> String {
        let event = self.stream.event().expect("an event");
        let text = event.strip_prefix("event: message\ndata: ").and_then(|event| event.strip_suffix("\n\n"));
        text.unwrap_or_else(|| panic!("not a message: {event:?}")).to_owned()
    }

    /// The next message on the stream.
    #[track_caller]
    fn message(&mut self) -> Value {
        serde_json::from_str(&self.text()).expect("messages are JSON")
    }

    #[track_caller]
    fn assert_error(&mut self, id: &Value, code: i64) {
        let answer = self.message();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (id, &json!(code)), "{answer}");
    }
}

#[test]
fn a_trace_that_a_message_names_goes_on() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    let (receiver, upstream) = (Receiver::start(), server().start());
    let config = one(&upstream).section(&receiver.table("ratio = 0.0"));
    let daemon = Daemon::start_with(&config, &[("OTEL_BSP_SCHEDULE_DELAY", "20")]);
    let mut client = Client::start(&daemon);
    let meta = format!(r#"{{"traceparent":"00-{TRACE}-b7ad6b7169203331-01"}}"#);
    let params = format!(r#"{{"name":"echo","arguments":{{}},"_meta":{meta}}}"#);
    client.send(legacy("1", "tools/call", &params));
    assert!(client.message()["result"].is_object());
    let (of_call, of_exchange) = receiver.wait_pair();
    assert_eq!([&*of_call.trace_id, &of_exchange.trace_id], [TRACE; 2]);
    assert_eq!(of_call.parent_id, "b7ad6b7169203331");
    let (sent, name) = (upstream.only_call(), format!("00-{TRACE}-{}-01", of_exchange.id));
    assert_eq!(sent.headers("traceparent"), [&*name]);
    assert_eq!(sent.json()["params"]["_meta"]["traceparent"], name);
}

#[test]
fn what_was_accepted_is_counted_until_it_is_answered() {
    let server = server();
    let gate = Gate::default();
    let (answering, waiting) = (server.clone(), gate.clone());
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::default().wait(&waiting).then(answering.answer(request)),
        _ => answering.answer(request),
    });
    let daemon =
        Daemon::start(&one(&upstream).limits(
            "buffered_bytes_max = \"1MiB\"\nbody_bytes_max = \"512KiB\"\nreply_bytes_max = \"512KiB\"",
        ));
    let mut client = Client::start(&daemon);
    let long = "x".repeat(290 * 1024);
    let call = |id: usize| {
        let params = format!(r#"{{"name":"echo","arguments":{{"text":"{long}"}}}}"#);
        client.post(legacy(&id.to_string(), "tools/call", &params)).status
    };
    let statuses: Vec<u16> = (1..6).map(call).collect();
    assert_eq!(statuses, [202, 202, 202, 429, 429]);
    gate.open();
    for _ in 0..3 {
        assert!(client.message()["result"].is_object());
    }
}

#[test]
fn the_address_is_where_clients_reach_the_endpoint() {
    let server = server();
    let upstream = server.start();
    for (public_url, path) in [
        ("https://mcp.example.com/tools/mcp", "/tools/mcp"),
        ("https://mcp.example.com", "/mcp"),
        ("https://mcp.example.com/", "/"),
        ("https://mcp.example.com//evil.example", "/mcp"),
    ] {
        let line = format!("sse = true\npublic_url = \"{public_url}\"\nhosts = [\"localhost\"]");
        let config = Config::new().upstream("up", upstream.address, "eras = [\"legacy\"]").endpoint(&line);
        let daemon = Daemon::start(&config);
        let client = Client::open(&daemon);
        let (reference, _) = client.target.split_once("?sessionId=").expect("a query");
        assert_eq!(reference, path, "{public_url}");
    }
}

fn get() -> Request {
    post("").method("GET").without("content-type").set("Accept", "text/event-stream")
}

fn authorized(request: Request, authorization: Option<&str>) -> Request {
    match authorization {
        Some(authorization) => request.with("Authorization", authorization),
        None => request,
    }
}

/// One upstream called `up`, which speaks the legacy era, behind an endpoint for clients of both transports.
fn one(upstream: &Upstream) -> Config {
    Config::new().upstream("up", upstream.address, "eras = [\"legacy\"]").endpoint("sse = true")
}

fn server() -> Legacy {
    Legacy::new(Offer::tools(&["echo"]))
}

/// A server whose `tools/call` is answered like this.
fn calling(
    server: &Legacy,
    answer: impl Fn(&crate::harness::Received) -> Reply + Send + Sync + 'static,
) -> Upstream {
    let server = server.clone();
    Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => answer(request),
        _ => server.answer(request),
    })
}

/// Waits until the gateway has closed this session with the upstream.
fn wait_deleted(upstream: &Upstream, session: &str) {
    eventually("the upstream is told", || {
        let deleted = upstream.received_of("DELETE");
        deleted.iter().any(|request| request.headers("mcp-session-id") == [session]).then_some(())
    });
}

#[test]
fn a_stream_names_the_address_of_its_messages() {
    let upstream = server().start();
    let daemon = Daemon::start(&one(&upstream));
    let (first, second) = (Client::open(&daemon), Client::open(&daemon));
    for client in [&first, &second] {
        let id = client.target.strip_prefix("/mcp?sessionId=").expect("a reference to the endpoint itself");
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    }
    assert_ne!(first.target, second.target);
}

#[test]
fn calls_are_answered_on_the_stream() {
    let upstream = server().start();
    let daemon = Daemon::start(&one(&upstream));
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = Client::open(&daemon);
        let result = client.introduce(version);
        assert_eq!(result["protocolVersion"], version);
        client.send(legacy("\"p\"", "ping", "{}"));
        assert_eq!(client.message(), json!({"jsonrpc": "2.0", "id": "p", "result": {}}));
        client.send(legacy("1", "tools/list", "{}"));
        assert_eq!(client.message()["result"]["tools"][0]["name"], "echo");
        client.send(legacy_call("2", "echo"));
        let answer = client.message();
        assert!(answer["id"] == 2 && answer["result"].is_object(), "{answer}");
    }
    for call in upstream.received_of("tools/call") {
        assert_eq!(call.headers("accept"), ["application/json, text/event-stream"]);
        assert!(call.headers("mcp-session-id")[0].starts_with("session-"), "{call:?}");
    }
}

#[test]
fn names_are_mapped_and_failures_told_on_the_stream() {
    let (files, weather) = (Legacy::new(Offer::tools(&["read"])), server());
    let (files_up, weather_up) = (files.start(), weather.start());
    let config = Config::new()
        .upstream("files", files_up.address, "eras = [\"legacy\"]")
        .upstream("weather", weather_up.address, "eras = [\"legacy\"]")
        .endpoint("sse = true");
    let daemon = Daemon::start(&config);
    let mut client = Client::start(&daemon);
    client.send(legacy_call("1", "files__read"));
    assert_eq!(client.message()["id"], 1);
    assert_eq!(files_up.only_call().json()["params"]["name"], "read");
    client.send(legacy_call("\"3\"", "nobody__read"));
    client.assert_error(&json!("3"), -32602);
    client.send(legacy("4", "no/such/method", "{}"));
    client.assert_error(&json!(4), -32601);
    client.send(initialize("5", "2025-11-25"));
    client.assert_error(&json!(5), -32600);
    client.send(legacy_call("6", "files__read"));
    assert_eq!(client.message()["id"], 6);
}

#[test]
fn events_of_a_reply_become_messages() {
    let upstream = calling(&server(), |request| {
        let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1}}"#;
        Reply::stream()
            .chunk("id: 7\ndata: \n\n: comment\n\n")
            .event(progress)
            .event(&result_body(request, r#"{"content":[]}"#))
            .end()
    });
    let daemon = Daemon::start(&one(&upstream));
    let mut client = Client::start(&daemon);
    client.send(legacy_call("1", "echo"));
    assert_eq!(client.message()["method"], "notifications/progress");
    assert_eq!(client.message()["id"], 1);
    client.send(legacy("2", "ping", "{}"));
    assert_eq!(client.message()["id"], 2);
}

#[test]
fn a_reply_that_ends_early_is_taken_up_again_whatever_the_version() {
    let sessions = server();
    let last_call: Mutex<Option<crate::harness::Received>> = Mutex::default();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => {
            *last_call.lock().unwrap() = Some(request.clone());
            Reply::stream().chunk("id: 1\nretry: 10\ndata: \n\n").end()
        }
        "GET" if request.headers("last-event-id") == ["1"] => {
            let call = last_call.lock().unwrap().clone().expect("a call");
            Reply::stream().event(&result_body(&call, r#"{"content":[]}"#)).end()
        }
        _ => sessions.answer(request),
    });
    let daemon = Daemon::start(&one(&upstream));
    for version in ["2025-11-25", "2024-11-05"] {
        let mut client = Client::open(&daemon);
        client.introduce(version);
        client.send(legacy_call("1", "echo"));
        assert_eq!(
            client.message(),
            json!({"jsonrpc": "2.0", "id": 1, "result": {"content": []}}),
            "{version}"
        );
    }
}

#[test]
fn a_reply_over_several_lines_stays_one_message() {
    let upstream = calling(&server(), |request| {
        let id = request.id();
        Reply::json(
            "200 OK",
            &format!("{{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": {id},\n  \"result\": {{}}\n}}\n"),
        )
    });
    let daemon = Daemon::start(&one(&upstream));
    let mut client = Client::start(&daemon);
    client.send(legacy_call("1", "echo"));
    let event = client.stream.event().expect("an event");
    assert!(event.starts_with("event: message\ndata: {\ndata:   \"jsonrpc\""), "{event:?}");
    let joined = event.replace("event: message\n", "").replace("data: ", "");
    let answer: Value = serde_json::from_str(&joined).expect("JSON");
    assert_eq!(answer, json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
}

#[test]
fn a_reply_that_breaks_is_an_error_on_the_stream() {
    let upstream = calling(&server(), |request| match request.client_id().as_str() {
        "1" => Reply::stream().chunk("data: {\"jsonrpc\"").reset(),
        "2" => Reply::raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{")
            .reset(),
        "3" => Reply::default().reset(),
        _ => Reply::result(request, "{}"),
    });
    let daemon = Daemon::start(&one(&upstream));
    let mut client = Client::start(&daemon);
    for id in [1, 2, 3] {
        client.send(legacy_call(&id.to_string(), "echo"));
        client.assert_error(&json!(id), 502);
    }
    client.send(legacy_call("4", "echo"));
    assert_eq!(client.message()["id"], 4);
}

#[test]
fn a_slow_call_holds_up_nobody() {
    let gate = Gate::default();
    let waiting = gate.clone();
    let upstream = calling(&server(), move |request| match request.client_id().as_str() {
        "1" => Reply::default().wait(&waiting).then(Reply::result(request, "{}")),
        _ => Reply::result(request, "{}"),
    });
    let daemon = Daemon::start(&one(&upstream));
    let mut client = Client::start(&daemon);
    let mut other = Client::start(&daemon);
    client.send(legacy_call("1", "echo"));
    client.send(legacy_call("2", "echo"));
    assert_eq!(client.message()["id"], 2);
    other.send(legacy_call("3", "echo"));
    assert_eq!(other.message()["id"], 3);
    gate.open();
    assert_eq!(client.message()["id"], 1);
}

#[test]
fn clients_meet_neither_on_the_stream_nor_upstream() {
    let upstream = server().start();
    let daemon = Daemon::start(&one(&upstream));
    let (mut one, mut other) = (Client::start(&daemon), Client::start(&daemon));
    for round in 1..4 {
        let id = round.to_string();
        one.send(legacy_call(&id, "echo"));
        other.send(legacy_call(&id, "echo"));
        assert_eq!((&one.message()["id"], &other.message()["id"]), (&json!(round), &json!(round)));
    }
    let calls = upstream.received_of("tools/call");
    let mut sessions: Vec<_> = calls.iter().map(|call| call.headers("mcp-session-id")[0]).collect();
    sessions.sort_unstable();
    sessions.dedup();
    assert_eq!((calls.len(), sessions.len()), (6, 2), "{sessions:?}");
}

#[test]
fn what_ends_with_the_stream() {
    let legacy_server = server();
    let gate = Gate::default();
    let (answering, waiting) = (legacy_server.clone(), gate.clone());
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" if request.client_id() == "2" => Reply::default().wait(&waiting),
        _ => answering.answer(request),
    });
    let daemon = Daemon::start(&one(&upstream));
    let mut client = Client::start(&daemon);
    client.send(legacy_call("1", "echo"));
    assert_eq!(client.message()["id"], 1);
    client.send(legacy_call("2", "echo"));
    let hanging = upstream.wait_for("tools/call", 2);
    let target = client.target.clone();
    drop(client);
    // The call is given up, the session closed, and the address leads nowhere.
    upstream.wait_closed(hanging.connection);
    wait_deleted(&upstream, hanging.headers("mcp-session-id")[0]);
    eventually("the upstream's session is closed", || {
        legacy_server.client_sessions().is_empty().then_some(())
    });
    let request = legacy("3", "ping", "{}").target(&target);
    eventually("the address is forgotten", || (daemon.send(&request).status == 404).then_some(()));
    daemon.send(&request).assert_error(404, 404, Some("3"));
    gate.open();
}

#[test]
fn an_address_is_good_for_nobody_else() {
    let upstream = server().start();
    let mut config = one(&upstream).section(&api_key("me", "k-me")).section(&api_key("you", "k-you"));
    let others = "[[endpoint]]\npath = \"/other\"\nupstreams = [\"up\"]\nsse = true\n\n[[endpoint]]\npath = \"/plain\"\nupstreams = [\"up\"]";
    config = config.section(others);
    let daemon = Daemon::start(&config);
    for (authorization, status) in [(None, 401), (Some("Bearer no"), 401)] {
        let response = daemon.send(&authorized(get(), authorization));
        response.assert_error(status, i64::from(status), None);
    }
    let mut client = Client::open_as(&daemon, Some("Bearer k-me"));
    client.introduce("2024-11-05");
    let ping = |target: &str, authorization| {
        daemon.send(&authorized(legacy("1", "ping", "{}").target(target), authorization))
    };
    let me = Some("Bearer k-me");
    ping(&client.target, None).assert_error(401, 401, Some("1"));
    ping(&client.target, Some("Bearer k-you")).assert_error(404, 404, Some("1"));
    ping(&client.target.replace("/mcp", "/other"), me).assert_error(404, 404, Some("1"));
    ping("/mcp?sessionId=00000000000000000000000000000000", me).assert_error(404, 404, Some("1"));
    ping("/mcp?sessionId=x", me).assert_error(404, 404, Some("1"));
    // Another query is none of ours: this is Streamable HTTP.
    ping("/mcp?a=b", me).assert_ok();
    client.send(legacy("2", "ping", "{}"));
    assert_eq!(client.message()["id"], 2);
    let elsewhere = daemon.send(&authorized(get().target("/plain"), me));
    elsewhere.assert_error(400, -32600, None);
}

#[test]
fn the_doors_are_those_of_every_request() {
    let upstream = server().start();
    let daemon = Daemon::start(&one(&upstream));
    let client = Client::start(&daemon);
    let foreign = |request: Request| request.with("Origin", "https://evil.example");
    daemon.send(&foreign(get())).assert_error(403, 403, None);
    client.post(foreign(legacy("1", "ping", "{}"))).assert_error(403, 403, Some("1"));
    client.post(legacy("1", "ping", "{}").set("Host", "evil.example")).assert_error(403, 403, Some("1"));
    client.post(legacy("1", "ping", "{}").set("Content-Type", "text/plain")).assert_error(
        415,
        415,
        Some("1"),
    );
    client.post(post("{")).assert_error(400, -32700, None);
    client.post(post("[]")).assert_error(400, -32600, None);
    client.post(post(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#)).assert_error(400, -32600, None);
    daemon.send(&get().set("Accept", "application/json")).assert_error(406, 406, None);
    let modern = format!(r#"{{"name":"echo","_meta":{META}}}"#);
    client.post(legacy("9", "tools/call", &modern)).assert_error(400, -32022, Some("9"));
    // With a session id, or in the other era, it is no GET of this transport.
    assert_ne!(daemon.send(&get().with("Mcp-Session-Id", "x")).status, 200);
    daemon.send(&get().with("MCP-Protocol-Version", "2026-07-28")).assert_error(405, 405, None);
}

#[test]
fn a_session_comes_first() {
    let upstream = server().start();
    let daemon = Daemon::start(&one(&upstream));
    let mut client = Client::open(&daemon);
    client.send(legacy_call("1", "echo"));
    client.assert_error(&json!(1), -32600);
    // An `initialize` that fails may be repeated.
    client.send(legacy("2", "initialize", "{}"));
    client.assert_error(&json!(2), -32602);
    client.introduce("2025-06-18");
    client.send(legacy_call("3", "echo"));
    assert_eq!(client.message()["id"], 3);
}

#[test]
fn calls_of_one_stream_are_bounded() {
    let gate = Gate::default();
    let waiting = gate.clone();
    let upstream =
        calling(&server(), move |request| Reply::default().wait(&waiting).then(Reply::result(request, "{}")));
    let daemon = Daemon::start(&one(&upstream).limits("streams_per_connection_max = 2"));
    let mut client = Client::start(&daemon);
    let mut other = Client::start(&daemon);
    client.send(legacy_call("1", "echo"));
    client.send(legacy_call("2", "echo"));
    upstream.wait_for("tools/call", 2);
    client.post(legacy_call("3", "echo")).assert_error(503, 503, Some("3"));
    // Notifications are no calls, and another stream has its own.
    client.send(post(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}"#));
    other.send(legacy("1", "ping", "{}"));
    assert_eq!(other.message()["id"], 1);
    gate.open();
    let mut ids = [client.message()["id"].clone(), client.message()["id"].clone()];
    ids.sort_by_key(Value::as_i64);
    assert_eq!(ids, [json!(1), json!(2)]);
    eventually("there is room again", || (client.post(legacy_call("4", "echo")).status == 202).then_some(()));
    assert_eq!(client.message()["id"], 4);
}

#[test]
fn notifications_of_one_stream_are_bounded() {
    let (legacy, gate) = (server(), Gate::default());
    let waiting = gate.clone();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "notifications/roots/list_changed" => Reply::default().wait(&waiting).then(legacy.answer(request)),
        _ => legacy.answer(request),
    });
    let daemon = Daemon::start(&one(&upstream).limits("session_messages_max = 2"));
    let mut client = Client::start(&daemon);
    client.send(legacy_call("1", "echo"));
    assert_eq!(client.message()["id"], 1);
    let changed = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":{{"_meta":{{"x":"{}"}}}}}}"#,
        "x".repeat(100_000)
    );
    client.send(post(&*changed));
    client.send(post(&*changed));
    upstream.wait_for("notifications/roots/list_changed", 1);
    assert_eq!(client.post(post(&*changed)).status, 503);
    gate.open();
    eventually("there is room again", || (client.post(post(&*changed)).status == 202).then_some(()));
}

#[test]
fn a_client_that_does_not_read_is_held_within_bounds() {
    let big = "x".repeat(200_000);
    let upstream = calling(&server(), move |request| {
        Reply::result(request, &format!(r#"{{"content":[{{"type":"text","text":"{big}"}}]}}"#))
    });
    let daemon = Daemon::start(&one(&upstream));
    let (client, mut other) = (Client::start(&daemon), Client::start(&daemon));
    let before = daemon.peak_resident_bytes();
    let refused = (1..=400).find(|id| client.post(legacy_call(&id.to_string(), "echo")).status == 503);
    // What it did not read keeps its calls from ending, and so the next is refused.
    assert!(refused.is_some_and(|refused| refused > 100), "{refused:?}");
    let grown = daemon.peak_resident_bytes().saturating_sub(before);
    assert!(grown < 120 << 20, "{grown} bytes");
    other.send(legacy("1", "ping", "{}"));
    assert_eq!(other.message()["id"], 1);
}

#[test]
fn streams_end_with_the_gateway() {
    let legacy_server = server();
    let upstream = legacy_server.start();
    let mut daemon = Daemon::start(&one(&upstream));
    let mut client = Client::start(&daemon);
    client.send(legacy_call("1", "echo"));
    assert_eq!(client.message()["id"], 1);
    let used = upstream.only_call();
    let Client { mut stream, .. } = client;
    daemon.terminate();
    assert_eq!(stream.event(), None);
    wait_deleted(&upstream, used.headers("mcp-session-id")[0]);
    assert!(daemon.wait_exit().success());
}

#[test]
fn a_client_that_leaves_in_the_middle_of_initialize_leaves_nothing() {
    let upstream = server().start();
    let daemon = Daemon::start(&one(&upstream).admin());
    for _ in 0..8 {
        let client = Client::open(&daemon);
        let mut posting = daemon.connect();
        posting.write(&initialize("0", "2025-11-25").target(&client.target).bytes());
        drop(client);
        // Either came first.
        assert!(matches!(posting.response().status, 202 | 404));
    }
    eventually("no stream is left", || {
        let metrics = daemon.get_admin("/metrics").text();
        metrics.contains("trunkline_sse_streams 0\n").then_some(())
    });
}

#[test]
fn what_upstreams_say_unasked_comes_on_the_stream() {
    let legacy_server = server();
    let (sender, bytes) = channel::<Vec<u8>>();
    let stream = Mutex::new(Some(bytes));
    let answering = legacy_server.clone();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "GET" if !answering.is_own(request) => match stream.lock().unwrap().take() {
            Some(bytes) => Reply::stream().pipe(bytes).reset(),
            None => answering.answer(request),
        },
        _ => answering.answer(request),
    });
    let daemon = Daemon::start(&one(&upstream));
    let mut client = Client::start(&daemon);
    client.send(legacy_call("1", "echo"));
    assert_eq!(client.message()["id"], 1);
    let note = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#;
    let event = format!("id: 1\ndata: {note}\n\n");
    sender.send(format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()).expect("the stream is open");
    assert_eq!(client.text(), note);
}

#[test]
fn streams_are_bounded() {
    let upstream = server().start();
    let config = one(&upstream).section("[session]\nstreams_max = 2");
    let daemon = Daemon::start(&config);
    let (one, mut two) = (Client::open(&daemon), Client::start(&daemon));
    daemon.send(&get()).assert_error(503, 503, None);
    two.send(legacy("1", "ping", "{}"));
    assert_eq!(two.message()["id"], 1);
    drop(one);
    eventually("there is room again", || {
        let mut connection = daemon.connect();
        connection.write(&get().bytes());
        (connection.head().status == 200).then_some(())
    });
}

#[test]
fn a_reload_that_changes_the_names_of_an_endpoint_ends_its_streams() {
    let upstream = server().start();
    let daemon = Daemon::start(&one(&upstream));
    let (new, old) = (Client::open(&daemon), Client::start(&daemon));
    daemon.reload(&one(&upstream).endpoint("deny = [\"hidden*\"]"));
    for Client { mut stream, .. } in [new, old] {
        assert_eq!(stream.event(), None);
    }
}

#[test]
fn a_call_that_is_left_keeps_its_place() {
    const KEPT: &str = "trunkline_upstream_calls_kept";
    let gate = Gate::default();
    let (held, server) = (gate.clone(), server());
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::silence().wait(&held),
        _ => server.answer(request),
    });
    let lines = "eras = [\"legacy\"]\ncalls_max = 2\ncalls_wait_max = \"1m\"";
    let config = Config::new().upstream("up", upstream.address, lines).admin().endpoint("sse = true");
    let daemon = Daemon::start(&config);
    let kept = |count| eventually(KEPT, || (daemon.find_metric_of_up(KEPT) == Some(count)).then_some(()));
    let mut client = Client::start(&daemon);
    for (id, calls) in [("1", 1), ("2", 2)] {
        client.send(legacy_call(id, "echo"));
        upstream.wait_for("tools/call", calls);
    }
    let note = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    client.send(post(note));
    upstream.wait_for("notifications/cancelled", 1);
    kept(1);
    client.assert_error(&json!(1), -32800);
    // The next one begins when the time of the first is over, though its client has been told that it is.
    client.send(legacy_call("3", "echo"));
    upstream.wait_for("tools/call", 3);
    kept(0);
    // Those of a client that is gone are kept as well.
    drop(client);
    kept(2);
    kept(0);
    gate.open();
}
