//! Batches: several messages in one body, in sessions of 2025-03-26 alone.

use serde_json::Value;

use crate::harness::{
    Config, Connection, Daemon, Gate, Legacy, META, Offer, Received, Reply, Request, Upstream, body,
    eventually, in_session, open_session, post, result_body,
};

const VERSION: &str = "2025-03-26";

/// A server whose calls are answered as the test says.
fn serving(call: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Upstream {
    let server = Legacy::new(Offer::tools(&["echo"]));
    Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => call(request),
        _ => server.answer(request),
    })
}

fn start(upstream: &Upstream) -> Daemon {
    Daemon::start(&Config::new().upstream("up", upstream.address, "eras = [\"legacy\"]"))
}

fn call(id: &str, tool: &str) -> String {
    body(id, "tools/call", &format!(r#"{{"name":"{tool}","arguments":{{"of":{id}}}}}"#))
}

/// A batch in this session. Clients of the revision name it in no header.
fn batch(session: &str, messages: &[&str]) -> Request {
    in_session(session, post(format!("[{}]", messages.join(" ,\n")))).without("MCP-Protocol-Version")
}

fn data(event: &str) -> Value {
    let data = event.lines().filter_map(|line| line.strip_prefix("data: ")).collect::<Vec<_>>().join("\n");
    serde_json::from_str(&data).unwrap_or_else(|error| panic!("{error}: {event:?}"))
}

fn events(connection: &mut Connection) -> Vec<Value> {
    std::iter::from_fn(|| connection.event()).map(|event| data(&event)).collect()
}

/// Sends a batch and reads the whole answer.
#[track_caller]
fn answers(daemon: &Daemon, request: &Request) -> Vec<Value> {
    let mut connection = daemon.connect();
    connection.write(&request.bytes());
    let head = connection.head();
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")), "{head:?}");
    events(&mut connection)
}

fn of_id<'a>(answers: &'a [Value], id: &Value) -> &'a Value {
    let mut found = answers.iter().filter(|answer| answer["id"] == *id);
    let answer = found.next().unwrap_or_else(|| panic!("no answer to {id} in {answers:?}"));
    assert!(found.next().is_none(), "two answers to {id}");
    answer
}

#[test]
fn each_call_is_answered_when_it_is_done() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = serving(move |request| {
        let reply = Reply::result(request, r#"{"content":[]}"#);
        if request.client_id() == "1" { Reply::default().wait(&held).then(reply) } else { reply }
    });
    let daemon = start(&upstream);
    let (session, result) = open_session(daemon.address(), VERSION);
    assert_eq!(result["protocolVersion"], VERSION);
    let mut connection = daemon.connect();
    connection.write(&batch(&session, &[&call("1", "echo"), &call("\"b\"", "echo")]).bytes());
    assert_eq!(connection.head().header("content-type"), Some("text/event-stream"));
    let first = data(&connection.event().unwrap());
    assert_eq!(first["id"], "b");
    gate.open();
    assert_eq!(data(&connection.event().unwrap())["id"], 1);
    assert_eq!(connection.event(), None);
    // Each is a call of its own, byte for byte but for its id.
    let mut bodies: Vec<Vec<u8>> =
        upstream.received_of("tools/call").into_iter().map(|call| call.client_body()).collect();
    bodies.sort();
    assert_eq!(bodies, [call("\"b\"", "echo").into_bytes(), call("1", "echo").into_bytes()]);
}

#[test]
fn what_a_call_says_on_the_way_is_told_too() {
    let progress =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;
    let upstream = serving(move |request| {
        Reply::stream()
            .chunk("id: 7\ndata:\n\n")
            .chunk(&format!("id: 8\ndata: {progress}\n\n"))
            .event(&result_body(request, r#"{"content":[]}"#))
            .end()
    });
    let daemon = start(&upstream);
    let (session, _) = open_session(daemon.address(), VERSION);
    let mut connection = daemon.connect();
    connection.write(&batch(&session, &[&call("1", "echo"), &body("2", "ping", "{}")]).bytes());
    connection.head();
    let mut told = Vec::new();
    while let Some(event) = connection.event() {
        // The stream is one of several and cannot be resumed.
        assert!(event.starts_with("data: {"), "{event}");
        told.push(data(&event));
    }
    assert_eq!(told.len(), 3, "{told:?}");
    let place = |is: &dyn Fn(&Value) -> bool| told.iter().position(is).unwrap();
    assert!(place(&|told| told["method"] == "notifications/progress") < place(&|told| told["id"] == 1));
    assert_eq!(of_id(&told, &2.into())["result"], serde_json::json!({}));
}

#[test]
fn what_is_wrong_with_one_is_its_own_answer() {
    let upstream = serving(|request| Reply::result(request, r#"{"content":[]}"#));
    let daemon = start(&upstream);
    let (session, _) = open_session(daemon.address(), VERSION);
    let modern = body("5", "tools/list", &format!(r#"{{"_meta":{META}}}"#));
    let messages = [
        &call("1", "echo"),
        r#"{"jsonrpc":"2.0","id":2}"#,
        "3",
        "[]",
        &body("4", "server/discover", "{}"),
        &modern,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#,
        &body("6", "tools/list", "{}"),
    ];
    let answers = answers(&daemon, &batch(&session, &messages));
    let code = |id: u8| of_id(&answers, &id.into())["error"]["code"].as_i64();
    assert!(of_id(&answers, &1.into())["result"].is_object());
    assert_eq!((code(2), code(4)), (Some(-32600), Some(-32601)));
    assert!(code(5).is_some(), "{answers:?}");
    assert_eq!(of_id(&answers, &6.into())["result"]["tools"][0]["name"], "echo");
    let nameless: Vec<&Value> = answers.iter().filter(|answer| answer.get("id").is_none()).collect();
    assert_eq!(nameless.len(), 2, "{answers:?}");
    assert!(nameless.iter().all(|answer| answer["error"]["code"] == -32600));
    assert_eq!(answers.len(), 7, "{answers:?}");
}

#[test]
fn a_failing_upstream_fails_its_calls_alone() {
    let upstream = serving(|request| match request.client_id().as_str() {
        "1" => Reply::default().reset(),
        "2" => Reply::stream().chunk("data: {\"jsonrpc\"").reset(),
        "3" => Reply::json("500 Internal Server Error", "no"),
        _ => Reply::result(request, r#"{"content":[]}"#),
    });
    let daemon = start(&upstream);
    let (session, _) = open_session(daemon.address(), VERSION);
    let messages = ["1", "2", "3", "4"].map(|id| call(id, "echo"));
    let answers = answers(&daemon, &batch(&session, &messages.each_ref().map(String::as_str)));
    for id in 1..=3 {
        let answer = of_id(&answers, &id.into());
        assert_eq!(answer["error"]["code"], 502, "{answer}");
    }
    assert!(of_id(&answers, &4.into())["result"].is_object());
}

#[test]
fn without_requests_there_is_nothing_to_answer() {
    let upstream = serving(|request| Reply::result(request, "{}"));
    let daemon = start(&upstream);
    let (session, _) = open_session(daemon.address(), VERSION);
    let messages = [
        r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#,
        r#"{"jsonrpc":"2.0","id":"nobody-asked","result":{}}"#,
    ];
    let response = daemon.send(&batch(&session, &messages));
    assert_eq!((response.status, response.body.len()), (202, 0), "{response:?}");
}

#[test]
fn batches_that_are_refused_whole() {
    let upstream = serving(|request| Reply::result(request, "{}"));
    let daemon = start(&upstream);
    let (session, _) = open_session(daemon.address(), VERSION);
    let ping = body("1", "ping", "{}");
    let initialize = body("2", "initialize", r#"{"protocolVersion":"2025-03-26","capabilities":{}}"#);
    let pings = |count| vec![ping.as_str(); count];
    daemon.send(&batch(&session, &[])).assert_error(400, -32600, None);
    daemon.send(&batch(&session, &pings(51))).assert_error(400, -32600, None);
    daemon.send(&batch(&session, &[&ping, &initialize])).assert_error(400, -32600, None);
    daemon.send(&batch(&session, &["{", &ping])).assert_error(400, -32700, None);
    for header in ["Mcp-Method", "Mcp-Name", "Mcp-Param-A"] {
        let request = batch(&session, &[&ping]).with(header, "ping");
        daemon.send(&request).assert_error(400, -32001, None);
    }
    assert_eq!(answers(&daemon, &batch(&session, &pings(50))).len(), 50);
    daemon.send(&batch("nosuch", &[&ping])).assert_error(404, 404, None);
    let (ended, _) = open_session(daemon.address(), VERSION);
    daemon.send(&in_session(&ended, post("")).method("DELETE"));
    daemon.send(&batch(&ended, &[&ping])).assert_error(404, 404, None);
}

#[test]
fn other_revisions_have_no_batches() {
    let upstream = serving(|request| Reply::result(request, "{}"));
    let daemon = start(&upstream);
    let ping = body("1", "ping", "{}");
    for version in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let (session, _) = open_session(daemon.address(), version);
        daemon.send(&batch(&session, &[&ping])).assert_error(400, -32600, None);
        let named = batch(&session, &[&ping]).with("MCP-Protocol-Version", VERSION);
        daemon.send(&named).assert_error(400, -32600, None);
    }
    daemon.send(&post(format!("[{ping}]"))).assert_error(400, -32600, None);
    daemon
        .send(&post(format!("[{ping}]")).with("MCP-Protocol-Version", VERSION))
        .assert_error(400, -32600, None);
}

#[test]
fn a_client_that_leaves_cancels_nothing_and_harms_nobody() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = serving(move |request| {
        let reply = Reply::result(request, r#"{"content":[]}"#);
        if request.client_id().len() == 1 { Reply::default().wait(&held).then(reply) } else { reply }
    });
    let daemon = start(&upstream);
    let (session, _) = open_session(daemon.address(), VERSION);
    let mut connection = daemon.connect();
    connection.write(&batch(&session, &[&call("1", "echo"), &call("2", "echo")]).bytes());
    connection.head();
    upstream.wait_for("tools/call", 2);
    drop(connection);
    assert_eq!(answers(&daemon, &batch(&session, &[&call("10", "echo")])).len(), 1);
    gate.open();
    assert_eq!(answers(&daemon, &batch(&session, &[&call("11", "echo")])).len(), 1);
    assert!(upstream.received_of("notifications/cancelled").is_empty());
}

#[test]
fn a_batch_is_counted_until_its_calls_are_answered() {
    let gate = Gate::default();
    let opened = gate.clone();
    let upstream =
        serving(move |request| Reply::default().wait(&opened).then(Reply::result(request, r#"{"a":1}"#)));
    let config = Config::new().upstream("up", upstream.address, "eras = [\"legacy\"]").admin();
    let daemon = Daemon::start(&config);
    let (session, _) = open_session(daemon.address(), VERSION);
    let long = body("2", "tools/call", &format!(r#"{{"name":"b","arguments":"{}"}}"#, "x".repeat(50_000)));
    let mut connection = daemon.connect();
    connection.write(&batch(&session, &[&call("1", "a"), &long]).bytes());
    assert_eq!(connection.head().status, 200);
    upstream.wait_for("tools/call", 2);
    let held = |daemon: &Daemon| daemon.find_metric("trunkline_buffered_bytes").expect("the metric");
    assert!(held(&daemon) > 50_000, "{}", held(&daemon));
    gate.open();
    assert_eq!(events(&mut connection).len(), 2);
    eventually("nothing is held", || (held(&daemon) == 0).then_some(()));
}

#[test]
fn answers_that_nobody_reads_are_counted() {
    let long = "x".repeat(1_000_000);
    let upstream = serving(move |request| Reply::result(request, &format!(r#"{{"long":"{long}"}}"#)));
    let config = Config::new().upstream("up", upstream.address, "eras = [\"legacy\"]");
    let daemon = Daemon::start(&config.limits("buffered_bytes_max = \"4MiB\"\nreply_bytes_max = \"2MiB\""));
    let (session, _) = open_session(daemon.address(), VERSION);
    let messages: Vec<String> = (0..50).map(|id| call(&id.to_string(), "echo")).collect();
    let messages: Vec<&str> = messages.iter().map(String::as_str).collect();
    let mut connection = daemon.connect();
    connection.write(&batch(&session, &messages).bytes());
    assert_eq!(connection.head().status, 200);
    upstream.wait_for("tools/call", 50);
    let answers = events(&mut connection);
    assert_eq!(answers.len(), 50);
    let refused = answers.iter().filter(|answer| answer["error"]["code"] == 429).count();
    assert!((1..50).contains(&refused), "{refused}");
}

#[test]
fn a_batch_is_written_as_it_is_read() {
    let long = "x".repeat(100_000);
    let upstream = serving(move |request| Reply::result(request, &format!(r#"{{"long":"{long}"}}"#)));
    let daemon = start(&upstream);
    let (session, _) = open_session(daemon.address(), VERSION);
    let messages: Vec<String> = (0..50).map(|id| call(&id.to_string(), "echo")).collect();
    let messages: Vec<&str> = messages.iter().map(String::as_str).collect();
    let answers = answers(&daemon, &batch(&session, &messages));
    assert_eq!(answers.len(), 50);
    assert!(
        answers
            .iter()
            .all(|answer| answer["result"]["long"].as_str().is_some_and(|long| long.len() == 100_000))
    );
}
