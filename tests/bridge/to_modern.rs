//! Clients of the legacy era at a server that speaks the modern era only.

use serde_json::{Value, json};

use crate::harness::{
    Child, Config, Connection, Daemon, Folder, Gate, LEGACY_VERSION, Listened, Listening, Offer, Received,
    Reply, Request, Upstream, VERSION, eventually, in_session, legacy, literal, open_session_with, post,
    tell,
};

const EVERYTHING: &str = r#"{"sampling":{"tools":{}},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true},"tasks":{"list":{}}}"#;
const DONE: &str = r#"{"resultType":"complete","content":[{"type":"text","text":"done"}]}"#;

/// A server that answers calls as the test says, prompts, resources and completions too, and lists an annotated tool.
fn server(answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Upstream {
    let offer = offer();
    Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => answer(request),
        _ => offer.answer(request),
    })
}

fn offer() -> Offer {
    let map = r#"{"name":"map","inputSchema":{"type":"object","properties":{"city":{"type":"string","x-mcp-header":"City"}}}}"#;
    let mut offer = Offer::tools(&["echo"]).with_prompts(&["p"]).with_resources(&["file:///r"]);
    offer.tools.push(map.into());
    offer
}

fn config(upstream: &Upstream, lines: &str) -> Config {
    Config::new().upstream("up", upstream.address, lines).admin()
}

fn bridged(upstream: &Upstream) -> Daemon {
    Daemon::start(&config(upstream, ""))
}

fn session(daemon: &Daemon) -> String {
    open_session_with(daemon.address(), LEGACY_VERSION, EVERYTHING)
}

fn tool_call(id: &str, tool: &str, more: &str) -> Request {
    legacy(id, "tools/call", &format!(r#"{{"name":"{tool}","arguments":{{}}{more}}}"#))
}

/// Sends a request and reads the head of its reply.
#[track_caller]
fn begin(daemon: &Daemon, session: &str, request: Request) -> Connection {
    let mut connection = daemon.connect();
    connection.write(&in_session(session, request).bytes());
    let head = connection.head();
    assert_eq!(head.status, 200, "{head:?}");
    assert_eq!(head.header("content-type"), Some("text/event-stream"), "{head:?}");
    connection
}

/// The next message of a stream, which must come; comments are passed over.
#[track_caller]
fn next(connection: &mut Connection) -> Value {
    loop {
        let event = connection.event().expect("an event");
        if let Some(data) = event.trim_end().strip_prefix("data: ") {
            return serde_json::from_str(data).expect("JSON");
        }
        assert!(event.starts_with(':'), "{event}");
    }
}

fn answer(id: &Value, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

fn is_retry(request: &Received) -> bool {
    request.json()["params"].get("inputResponses").is_some()
        || request.json()["params"].get("requestState").is_some()
}

/// The result that asks for this.
fn input_required(requests: &str, state: &str) -> String {
    format!(r#"{{"resultType":"input_required","inputRequests":{{{requests}}},"requestState":"{state}"}}"#)
}

const FORM: &str = r#""who":{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}}"#;

/// A server that asks this once, and then is done.
fn asking(requests: &str, state: &str) -> Upstream {
    let asks = input_required(requests, state);
    server(move |request| Reply::result(request, if is_retry(request) { DONE } else { &asks }))
}

#[test]
fn a_call_is_written_as_a_modern_client_writes_it_and_its_answer_as_a_legacy_server_does() {
    let result = r#"{"resultType":"complete","content":[{"type":"text","text":"1.50"}],"structuredContent":[1],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"},"x":1e3}}"#;
    let upstream = server(move |request| Reply::result(request, result));
    let daemon = bridged(&upstream);
    let session = session(&daemon);
    let params = r#"{"name":"map","arguments":{"city":"Ås","n":1.50},"_meta":{"progressToken":"t"},"requestState":"x","task":{"ttl":1}}"#;
    let response = daemon.send(&in_session(&session, legacy("\"a\"", "tools/call", params)));
    response.assert_ok();
    assert_eq!(
        response.text(),
        r#"{"jsonrpc":"2.0","id":"a","result":{"content":[{"type":"text","text":"1.50"}],"_meta":{"x":1e3}}}"#
    );
    let call = upstream.only_call();
    for (name, value) in [
        ("mcp-protocol-version", VERSION),
        ("mcp-method", "tools/call"),
        ("mcp-name", "map"),
        ("mcp-param-city", "=?base64?w4Vz?="),
    ] {
        assert_eq!(call.headers(name), [value], "{name}");
    }
    assert!(call.headers("mcp-session-id").is_empty());
    assert_ne!(call.id(), "\"a\"", "ids of the gateway's own");
    let params = &call.json()["params"];
    let meta = &params["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], VERSION);
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"], json!({"name": "blackbox", "version": "1"}));
    let capabilities =
        json!({"sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}, "roots": {}});
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], capabilities);
    assert_eq!(meta["progressToken"], "t");
    assert!(meta.get("io.modelcontextprotocol/logLevel").is_none());
    assert_eq!(literal(&call.body, &["params", "arguments"]), r#"{"city":"Ås","n":1.50}"#);
    assert!(params.get("requestState").is_none() && params.get("task").is_none(), "{params}");
    for (method, params, name) in [
        ("prompts/get", r#"{"name":"p"}"#, vec!["p"]),
        ("resources/read", r#"{"uri":"file:///r"}"#, vec!["file:///r"]),
        (
            "completion/complete",
            r#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"b"}}"#,
            vec![],
        ),
    ] {
        let response = daemon.send(&in_session(&session, legacy("1", method, params)));
        response.assert_ok();
        let text = response.text();
        let modern = ["resultType", "ttlMs", "cacheScope"];
        assert!(!modern.iter().any(|word| text.contains(word)), "{text}");
        let request = upstream.wait_for(method, 1);
        assert_eq!(request.headers("mcp-name"), name, "{method}");
        assert_eq!(request.headers("mcp-method"), [method]);
    }
    assert!(upstream.received_of("initialize").is_empty());
}

#[test]
fn headers_that_the_server_wants_are_learned_from_it() {
    // The first list does not say so; the server changed its mind.
    let learned = Gate::default();
    let gate = learned.clone();
    let offer = offer();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" if request.headers("mcp-param-city").is_empty() => {
            gate.open();
            Reply::error(request, "400 Bad Request", -32020, "no city")
        }
        "tools/list" if !gate.is_open() => Offer::tools(&["map"]).answer(request),
        _ => offer.answer(request),
    });
    let daemon = bridged(&upstream);
    let session = session(&daemon);
    // The list of the start is one; the throttle lets the next one pass.
    daemon.send(&legacy("1", "tools/list", "{}")).assert_ok();
    let params = r#"{"name":"map","arguments":{"city":"Oslo"}}"#;
    daemon.send(&in_session(&session, legacy("7", "tools/call", params))).assert_ok();
    let calls = upstream.received_of("tools/call");
    assert_eq!(calls.len(), 2);
    assert_ne!(calls[0].id(), calls[1].id());
    assert_eq!(calls[1].headers("mcp-param-city"), ["Oslo"]);
}

#[test]
fn errors_are_told_as_the_legacy_era_tells_them() {
    for (status, code, message, expected) in [
        ("200 OK", -32602, "bad", (-32602, "bad")),
        ("400 Bad Request", -32602, "bad", (-32602, "bad")),
        ("404 Not Found", -32601, "none", (-32601, "none")),
        ("400 Bad Request", -32021, "roots", (-32600, "roots")),
        ("500 Internal Server Error", -32603, "oops", (-32603, "oops")),
        ("400 Bad Request", -32020, "headers", (502, "not valid MCP")),
        ("400 Bad Request", -32022, "version", (502, "not valid MCP")),
    ] {
        let upstream = server(move |request| Reply::error(request, status, code, message));
        let daemon = bridged(&upstream);
        let session = session(&daemon);
        let response = daemon.send(&in_session(&session, tool_call("7", "echo", "")));
        let error = response.assert_error(200, expected.0, Some("7"));
        assert!(error["error"]["message"].as_str().unwrap().contains(expected.1), "{error}");
        // The session is not lost by it.
        daemon.send(&in_session(&session, legacy("8", "prompts/get", r#"{"name":"p"}"#))).assert_ok();
        assert_eq!(daemon.find_metric(r#"trunkline_bridge_sessions{client_era="legacy"}"#), Some(1));
    }
    for (status, expected) in [
        ("401 Unauthorized", 502),
        ("404 Not Found", 502),
        ("429 Too Many Requests", 429),
        ("503 Service Unavailable", 503),
        ("502 Bad Gateway", 502),
    ] {
        let upstream = server(move |_| Reply::http(status, "", ""));
        let daemon = bridged(&upstream);
        let session = session(&daemon);
        let response = daemon.send(&in_session(&session, tool_call("7", "echo", "")));
        response.assert_error(200, expected, Some("7"));
    }
}

#[test]
fn results_of_unknown_kinds_are_invalid() {
    for result in [
        r#"{"resultType":"task","task":{}}"#,
        r#"{"resultType":7}"#,
        r#"{"resultType":"input_required"}"#,
        r#"{"resultType":"input_required","inputRequests":{"a":{"method":"tools/call","params":{}}}}"#,
        "[]",
    ] {
        let upstream = server(move |request| Reply::result(request, result));
        let daemon = bridged(&upstream);
        let session = session(&daemon);
        let response = daemon.send(&in_session(&session, tool_call("7", "echo", "")));
        response.assert_error(200, 502, Some("7"));
    }
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "completion/complete" => Reply::result(request, &input_required(FORM, "s")),
        _ => offer().answer(request),
    });
    let daemon = bridged(&upstream);
    let session = session(&daemon);
    let params = r#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"b"}}"#;
    let response = daemon.send(&in_session(&session, legacy("7", "completion/complete", params)));
    response.assert_error(200, 502, Some("7"));
}

#[test]
fn questions_become_requests_and_answers_the_next_round() {
    let requests = format!(
        r#"{FORM},"\u0072":{{"method":"roots/list"}},"s":{{"method":"sampling/createMessage","params":{{"messages":[],"maxTokens":7}}}}"#
    );
    let upstream = asking(&requests, r#"a\"b"#);
    let daemon = bridged(&upstream);
    let session = session(&daemon);
    let mut stream = begin(&daemon, &session, tool_call("7", "echo", r#","_meta":{"progressToken":1}"#));
    let asked: Vec<Value> = (0..3).map(|_| next(&mut stream)).collect();
    let methods: Vec<&str> = asked.iter().filter_map(|asked| asked["method"].as_str()).collect();
    assert_eq!(methods, ["elicitation/create", "roots/list", "sampling/createMessage"]);
    assert_eq!(asked[0]["params"]["message"], "Who?");
    assert_eq!(asked[2]["params"]["maxTokens"], 7);
    let ids: Vec<&str> = asked.iter().filter_map(|asked| asked["id"].as_str()).collect();
    assert!(ids.len() == 3 && ids[0] != ids[1] && ids[1] != ids[2]);
    // In another order than they were asked.
    tell(
        &daemon,
        &session,
        &answer(
            &asked[2]["id"],
            r#"{"role":"assistant","content":{"type":"text","text":"1.50"},"model":"m"}"#,
        ),
    );
    tell(&daemon, &session, &answer(&asked[0]["id"], r#"{"action":"accept","content":{"n":1e3}}"#));
    // A second answer goes nowhere.
    tell(&daemon, &session, &answer(&asked[0]["id"], r#"{"action":"decline"}"#));
    tell(&daemon, &session, &answer(&asked[1]["id"], r#"{"roots":[]}"#));
    let last = next(&mut stream);
    assert_eq!(
        last,
        json!({"jsonrpc": "2.0", "id": 7, "result": {"content": [{"type": "text", "text": "done"}]}})
    );
    assert_eq!(stream.event(), None);
    let calls = upstream.received_of("tools/call");
    assert_eq!(calls.len(), 2);
    let (first, retry) = (&calls[0], &calls[1]);
    assert!(first.id() != retry.id(), "an id of its own");
    assert_eq!(literal(&retry.body, &["params", "requestState"]), r#""a\"b""#);
    let given = retry.json()["params"]["inputResponses"].clone();
    assert_eq!(given["who"], json!({"action": "accept", "content": {"n": 1e3}}));
    assert_eq!(given["r"], json!({"roots": []}));
    assert_eq!(given["s"]["content"]["text"], "1.50");
    assert_eq!(given.as_object().map(serde_json::Map::len), Some(3));
    assert_eq!(first.json()["params"]["arguments"], retry.json()["params"]["arguments"]);
    assert_eq!(retry.json()["params"]["_meta"]["progressToken"], 1);
    assert_eq!(retry.headers("mcp-name"), ["echo"]);
    assert_eq!(daemon.find_metric(r#"trunkline_bridge_input_requests_total{client_era="legacy"}"#), Some(1));
}

#[test]
fn prompts_and_resources_may_ask_too() {
    let offer = offer();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "prompts/get" | "resources/read" if !is_retry(request) => {
            Reply::result(request, &input_required(FORM, "s"))
        }
        _ => offer.answer(request),
    });
    let daemon = bridged(&upstream);
    let session = session(&daemon);
    for (method, params) in [("prompts/get", r#"{"name":"p"}"#), ("resources/read", r#"{"uri":"file:///r"}"#)]
    {
        let mut stream = begin(&daemon, &session, legacy("7", method, params));
        let asked = next(&mut stream);
        tell(&daemon, &session, &answer(&asked["id"], r#"{"action":"cancel"}"#));
        let last = next(&mut stream);
        assert!(last["result"].is_object() && last["id"] == 7, "{last}");
        assert_eq!(
            upstream.wait_for(method, 2).json()["params"]["inputResponses"]["who"]["action"],
            "cancel"
        );
    }
}

#[test]
fn a_url_to_visit_gets_an_id_that_legacy_clients_know_it_by() {
    let url = r#""u":{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://example.com"}}"#;
    let upstream = asking(url, "s");
    let daemon = bridged(&upstream);
    let session = session(&daemon);
    let mut stream = begin(&daemon, &session, tool_call("7", "echo", ""));
    let asked = next(&mut stream);
    assert_eq!(asked["params"]["url"], "https://example.com");
    assert!(asked["params"]["elicitationId"].as_str().is_some_and(|id| id.len() == 32), "{asked}");
    tell(&daemon, &session, &answer(&asked["id"], r#"{"action":"accept"}"#));
    assert_eq!(next(&mut stream)["result"]["content"][0]["text"], "done");
}

#[test]
fn a_server_may_ask_again_but_not_for_ever() {
    let requests = FORM.to_owned();
    let upstream = server(move |request| Reply::result(request, &input_required(&requests, "s")));
    let daemon = Daemon::start(&config(&upstream, "bridge = { input_requests_max = 3 }"));
    let session = session(&daemon);
    let mut stream = begin(&daemon, &session, tool_call("7", "echo", ""));
    for _ in 0..3 {
        let asked = next(&mut stream);
        assert_eq!(asked["method"], "elicitation/create");
        tell(&daemon, &session, &answer(&asked["id"], r#"{"action":"accept"}"#));
    }
    let last = next(&mut stream);
    assert_eq!((&last["id"], &last["error"]["code"]), (&json!(7), &json!(502)), "{last}");
    assert_eq!(stream.event(), None);
    assert_eq!(upstream.received_of("tools/call").len(), 4);

    // One that only wants to be called again is called again at once.
    let again = r#"{"resultType":"input_required","requestState":"s"}"#;
    let upstream = server(move |request| Reply::result(request, again));
    let daemon = Daemon::start(&config(&upstream, "bridge = { input_requests_max = 3 }"));
    let session = self::session(&daemon);
    let response = daemon.send(&in_session(&session, tool_call("7", "echo", "")));
    let error = response.assert_error(200, 502, Some("7"));
    assert!(error["error"]["message"].as_str().unwrap().contains("asks again and again"), "{error}");
    let calls = upstream.received_of("tools/call");
    assert_eq!(calls.len(), 4);
    let params = &calls[3].json()["params"];
    assert!(params["requestState"] == "s" && params.get("inputResponses").is_none(), "{params}");
    let mut ids: Vec<String> = calls.iter().map(Received::id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4, "each request has an id of its own");
}

#[test]
fn a_state_without_measure_is_refused() {
    for (bytes, is_taken) in [(1000, true), (1 << 20, false)] {
        let state = "s".repeat(bytes);
        let asks = input_required(FORM, &state);
        let upstream =
            server(move |request| Reply::result(request, if is_retry(request) { DONE } else { &asks }));
        let daemon = bridged(&upstream);
        let session = session(&daemon);
        if is_taken {
            let mut stream = begin(&daemon, &session, tool_call("7", "echo", ""));
            let asked = next(&mut stream);
            tell(&daemon, &session, &answer(&asked["id"], r#"{"action":"accept"}"#));
            assert_eq!(next(&mut stream)["id"], 7);
        } else {
            let response = daemon.send(&in_session(&session, tool_call("7", "echo", "")));
            response.assert_error(200, 502, Some("7"));
        }
    }
}

#[test]
fn a_question_that_the_client_refuses_ends_the_call() {
    let two = format!(r#"{FORM},"r":{{"method":"roots/list"}}"#);
    let upstream = asking(&two, "s");
    let daemon = bridged(&upstream);
    let session = session(&daemon);
    let mut stream = begin(&daemon, &session, tool_call("7", "echo", ""));
    let asked = [next(&mut stream), next(&mut stream)];
    let id = &asked[0]["id"];
    let refusal = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-1,"message":"no user here"}}}}"#);
    tell(&daemon, &session, &refusal);
    let withdrawn = next(&mut stream);
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], asked[1]["id"]);
    let last = next(&mut stream);
    assert_eq!((&last["id"], &last["error"]["code"]), (&json!(7), &json!(-32603)));
    let why = last["error"]["message"].as_str().unwrap();
    assert!(why.contains("elicitation/create") && why.contains("no user here"), "{why}");
    assert_eq!(stream.event(), None);
    assert_eq!(upstream.received_of("tools/call").len(), 1);
}

#[test]
fn a_client_is_not_asked_for_what_it_did_not_declare() {
    let upstream = asking(FORM, "s");
    let daemon = bridged(&upstream);
    let session = open_session_with(daemon.address(), LEGACY_VERSION, r#"{"roots":{}}"#);
    let mut stream = begin(&daemon, &session, tool_call("7", "echo", ""));
    let last = next(&mut stream);
    assert_eq!((&last["id"], &last["error"]["code"]), (&json!(7), &json!(-32603)), "{last}");
    assert!(last["error"]["message"].as_str().unwrap().contains("did not declare"), "{last}");
}

#[test]
fn two_clients_at_once_are_asked_each_its_own() {
    let upstream = server(|request| {
        let name = literal(&request.body, &["params", "arguments", "name"]);
        let name = name.trim_matches('"');
        if is_retry(request) {
            return Reply::result(request, DONE);
        }
        Reply::result(request, &input_required(&FORM.replace("Who?", name), name))
    });
    let daemon = bridged(&upstream);
    let names = ["a", "b", "c", "d"];
    let mut calls: Vec<(String, Connection)> = names
        .iter()
        .map(|name| {
            let session = session(&daemon);
            let request =
                legacy("7", "tools/call", &format!(r#"{{"name":"echo","arguments":{{"name":"{name}"}}}}"#));
            let stream = begin(&daemon, &session, request);
            (session, stream)
        })
        .collect();
    let asked: Vec<Value> = calls.iter_mut().map(|(_, stream)| next(stream)).collect();
    for (asked, name) in asked.iter().zip(names) {
        assert_eq!(asked["params"]["message"], name);
    }
    // An answer in another's session goes nowhere.
    tell(&daemon, &calls[0].0, &answer(&asked[1]["id"], r#"{"action":"accept","content":{"n":"stolen"}}"#));
    for (((session, _), asked), name) in calls.iter().zip(&asked).zip(names) {
        let given = format!(r#"{{"action":"accept","content":{{"n":"{name}"}}}}"#);
        tell(&daemon, session, &answer(&asked["id"], &given));
    }
    for (_, stream) in &mut calls {
        assert_eq!(next(stream)["id"], 7);
    }
    let retries: Vec<Received> = upstream.received_of("tools/call").into_iter().filter(is_retry).collect();
    assert_eq!(retries.len(), 4);
    for retry in retries {
        let params = &retry.json()["params"];
        assert_eq!(params["inputResponses"]["who"]["content"]["n"], params["arguments"]["name"]);
        assert_eq!(params["requestState"], params["arguments"]["name"]);
    }
}

#[test]
fn a_client_that_thinks_is_not_taken_for_a_server_that_is_silent() {
    let upstream = asking(FORM, "s");
    let daemon = Daemon::start(&config(&upstream, "stream_idle_timeout = \"300ms\""));
    let session = session(&daemon);
    let mut stream = begin(&daemon, &session, tool_call("7", "echo", ""));
    let asked = next(&mut stream);
    for _ in 0..12 {
        assert_eq!(stream.event().as_deref(), Some(":\n\n"));
    }
    tell(&daemon, &session, &answer(&asked["id"], r#"{"action":"accept"}"#));
    assert_eq!(next(&mut stream)["result"]["content"][0]["text"], "done");
}

#[test]
fn a_question_that_nobody_answers_in_time_ends_the_call() {
    let upstream = asking(FORM, "s");
    let daemon = Daemon::start(&config(&upstream, "client_response_timeout = \"1s\""));
    let session = session(&daemon);
    let mut stream = begin(&daemon, &session, tool_call("7", "echo", ""));
    next(&mut stream);
    let last = next(&mut stream);
    assert_eq!((&last["id"], &last["error"]["code"]), (&json!(7), &json!(-32603)), "{last}");
    assert!(last["error"]["message"].as_str().unwrap().contains("in time"), "{last}");
}

#[test]
fn without_the_bridge_questions_end_in_time_and_its_sessions_with_their_clients() {
    let upstream = asking(FORM, "s");
    let with = |lines: &str| {
        let lines = format!("client_response_timeout = \"1s\"\n{lines}");
        config(&upstream, &lines).section("[session]\nidle_timeout = \"1s\"")
    };
    let daemon = Daemon::start(&with(""));
    let session = session(&daemon);
    let mut stream = begin(&daemon, &session, tool_call("7", "echo", ""));
    next(&mut stream);
    let before = daemon.log().len();
    // Nothing leads to the call any more, not even that the client is given up.
    daemon.reload(&with("bridge.enabled = false"));
    daemon.wait_for_log(before, "the reload", |line| line.contains("reloaded"));
    let last = std::iter::repeat_with(|| next(&mut stream)).find(|message| message["method"].is_null());
    let last = last.expect("an answer");
    assert_eq!((&last["id"], &last["error"]["code"]), (&json!(7), &json!(-32603)), "{last}");
    eventually("nothing is kept", || {
        (daemon.find_metric(r#"trunkline_bridge_sessions{client_era="legacy"}"#) == Some(0)).then_some(())
    });
}

#[test]
fn an_answer_that_says_nothing_is_none() {
    for said in [r#""error":null"#, r#""result":[]"#] {
        let upstream = asking(FORM, "s");
        let daemon = bridged(&upstream);
        let session = session(&daemon);
        let mut stream = begin(&daemon, &session, tool_call("7", "echo", ""));
        let asked = next(&mut stream);
        tell(&daemon, &session, &format!(r#"{{"jsonrpc":"2.0","id":{},{said}}}"#, asked["id"]));
        let last = next(&mut stream);
        assert_eq!((&last["id"], &last["error"]["code"]), (&json!(7), &json!(-32603)), "{last}");
    }
}

#[test]
fn a_call_takes_back_no_question_of_another() {
    let asks = input_required(FORM, "s");
    let upstream = server(move |request| match &*literal(&request.body, &["params", "name"]) {
        "\"map\"" => {
            let taken_back = |number| {
                format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{number}}}}}"#
                )
            };
            let reply = (0..64).fold(Reply::stream(), |reply, number| reply.event(&taken_back(number)));
            reply.event(&crate::harness::result_body(request, DONE)).end()
        }
        _ => Reply::result(request, if is_retry(request) { DONE } else { &asks }),
    });
    let daemon = bridged(&upstream);
    let session = session(&daemon);
    let mut asking = begin(&daemon, &session, tool_call("7", "echo", ""));
    let asked = next(&mut asking);
    let mut other = begin(&daemon, &session, tool_call("8", "map", ""));
    assert_eq!(next(&mut other)["id"], 8, "it is told of no question");
    tell(&daemon, &session, &answer(&asked["id"], r#"{"action":"accept"}"#));
    assert_eq!(next(&mut asking)["result"]["content"][0]["text"], "done");
}

#[test]
fn a_call_that_breaks_off_between_two_rounds_is_counted_as_failed() {
    let asks = input_required(FORM, "s");
    let upstream =
        server(
            move |request| {
                if is_retry(request) { Reply::default().reset() } else { Reply::result(request, &asks) }
            },
        );
    let daemon = bridged(&upstream);
    let session = session(&daemon);
    let mut stream = begin(&daemon, &session, tool_call("7", "echo", ""));
    let asked = next(&mut stream);
    tell(&daemon, &session, &answer(&asked["id"], r#"{"action":"accept"}"#));
    let last = next(&mut stream);
    assert_eq!(last["id"], 7);
    assert!(last["error"]["message"].as_str().unwrap().contains("closed the connection"), "{last}");
    let failed = || {
        let text = daemon.get_admin("/metrics").text();
        let mut lines = text.lines().filter(|line| line.starts_with("trunkline_requests_total{"));
        lines.any(|line| line.contains("outcome=\"failed\"") && line.ends_with(" 1")).then_some(())
    };
    eventually("the call is counted as failed", failed);
}

#[test]
fn progress_and_log_lines_pass() {
    let upstream = server(|request| {
        let done = crate::harness::result_body(request, DONE);
        Reply::stream()
            .chunk(": hello\n\n")
            .event(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1}}"#)
            .event(r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#)
            .event(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.50}}"#)
            .chunk(&format!("id: 5\nevent: message\ndata: {done}\n\n"))
            .end()
    });
    let daemon = bridged(&upstream);
    let session = session(&daemon);
    daemon.send(&in_session(&session, legacy("1", "logging/setLevel", r#"{"level":"info"}"#))).assert_ok();
    for round in 1..=3 {
        let mut stream =
            begin(&daemon, &session, tool_call("7", "echo", r#","_meta":{"progressToken":"t"}"#));
        let progress = next(&mut stream);
        assert_eq!(
            (&progress["method"], &progress["params"]["progressToken"]),
            (&json!("notifications/progress"), &json!("t"))
        );
        assert_eq!(next(&mut stream)["params"]["data"], 1.5);
        assert_eq!(next(&mut stream)["result"]["content"][0]["text"], "done");
        assert_eq!(stream.event(), None);
        let call = upstream.wait_for("tools/call", round);
        assert_eq!(call.json()["params"]["_meta"]["io.modelcontextprotocol/logLevel"], "info");
    }
    // The connection is used again.
    assert!(upstream.connections() < 4, "{}", upstream.connections());
}

#[test]
fn a_cancelled_call_ends_at_the_server_and_its_client_hears_so() {
    let hang = Gate::default();
    let gate = hang.clone();
    let upstream = server(move |request| match &*literal(&request.body, &["params", "name"]) {
        "\"echo\"" => Reply::silence(),
        _ => Reply::stream()
            .event(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#)
            .wait(&gate),
    });
    let daemon = bridged(&upstream);
    let session = session(&daemon);
    for (count, tool, method) in [(1, "echo", "tools/call"), (2, "map", "tools/call")] {
        let mut connection = daemon.connect();
        connection.write(&in_session(&session, tool_call("7", tool, "")).bytes());
        let call = upstream.wait_for(method, count);
        if tool == "map" {
            assert_eq!(connection.head().status, 200);
            next(&mut connection);
        }
        tell(
            &daemon,
            &session,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
        );
        let error = if tool == "map" { next(&mut connection) } else { connection.response().json() };
        assert_eq!((&error["id"], &error["error"]["code"]), (&json!(7), &json!(-32800)), "{error}");
        hang.open();
        upstream.wait_closed(call.connection);
    }
    // A question that waits is taken back.
    let upstream = asking(FORM, "s");
    let daemon = bridged(&upstream);
    let session = self::session(&daemon);
    let mut stream = begin(&daemon, &session, tool_call("7", "echo", ""));
    let asked = next(&mut stream);
    tell(
        &daemon,
        &session,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
    );
    let withdrawn = next(&mut stream);
    assert_eq!(withdrawn["params"]["requestId"], asked["id"]);
    assert_eq!(next(&mut stream)["error"]["code"], -32800);
    tell(&daemon, &session, &answer(&asked["id"], r#"{"action":"accept"}"#));
    daemon.send(&in_session(&session, legacy("8", "ping", "{}"))).assert_ok();
    assert_eq!(upstream.received_of("tools/call").len(), 1);
}

#[test]
fn leaving_is_no_cancellation() {
    let gate = Gate::default();
    let hold = gate.clone();
    let upstream = server(move |request| Reply::default().wait(&hold).then(Reply::result(request, DONE)));
    let daemon = bridged(&upstream);
    let session = session(&daemon);
    let mut connection = daemon.connect();
    connection.write(&in_session(&session, tool_call("7", "echo", "")).bytes());
    let call = upstream.wait_for("tools/call", 1);
    drop(connection);
    daemon.send(&in_session(&session, legacy("8", "ping", "{}"))).assert_ok();
    assert!(!upstream.is_closed(call.connection));
    gate.open();
    daemon.send(&in_session(&session, tool_call("9", "echo", ""))).assert_ok();
    assert!(!upstream.is_closed(call.connection), "the connection is used again");
}

#[test]
fn a_session_ends_with_all_that_is_under_way_in_it() {
    let upstream = asking(FORM, "s");
    let daemon = bridged(&upstream);
    let session = session(&daemon);
    let mut stream = begin(&daemon, &session, tool_call("7", "echo", ""));
    next(&mut stream);
    assert_eq!(daemon.find_metric(r#"trunkline_bridge_sessions{client_era="legacy"}"#), Some(1));
    let ended = daemon.send(&in_session(&session, post("").method("DELETE")));
    assert_eq!(ended.status, 204);
    eventually("nothing is kept", || {
        (daemon.find_metric(r#"trunkline_bridge_sessions{client_era="legacy"}"#) == Some(0)).then_some(())
    });
    while let Ok(Some(_)) = stream.try_event() {}
    let gone = daemon.send(&in_session(&session, tool_call("8", "echo", "")));
    assert_eq!(gone.status, 404);
}

/// A server of this era with streams.
fn listening() -> Listening {
    let offer = offer();
    Listening::start(Offer {
        resources: vec![
            r#"{"uri":"file:///r","name":"r"}"#.into(),
            r#"{"uri":"file:///s","name":"s"}"#.into(),
        ],
        ..offer
    })
}

fn subscribe(daemon: &Daemon, session: &str, method: &str, uri: &str) -> Value {
    let params = format!(r#"{{"uri":"{uri}"}}"#);
    daemon.send(&in_session(session, legacy("1", &format!("resources/{method}"), &params))).json()
}

/// The next change of a resource; changes of lists are passed over.
#[track_caller]
fn updated(stream: &mut Connection) -> Value {
    loop {
        let mut message = next(stream);
        if message["method"] == "notifications/resources/updated" {
            return message["params"].take();
        }
        assert!(message["method"].as_str().unwrap().ends_with("/list_changed"), "{message}");
    }
}

/// The streams that are open for these resources, and no others.
fn of_resources(server: &Listening, uris: &[&str]) -> Option<crate::harness::Stream> {
    let wanted = json!(uris);
    let is_open = |stream: &crate::harness::Stream| !server.upstream.is_closed(stream.request.connection);
    server.streams(|filter| filter["resourceSubscriptions"] == wanted).into_iter().rfind(is_open)
}

#[test]
fn changes_of_resources_are_heard_on_the_stream_of_the_session() {
    let server = listening();
    let daemon = bridged(&server.upstream);
    let session = session(&daemon);
    let mut stream = begin(&daemon, &session, post("").method("GET").set("Accept", "text/event-stream"));
    assert_eq!(subscribe(&daemon, &session, "subscribe", "file:///r")["result"], json!({}));
    let first = of_resources(&server, &["file:///r"]).expect("it is listened to before the answer");
    first.update("file:///r");
    assert_eq!(updated(&mut stream), json!({"uri": "file:///r"}));

    assert_eq!(subscribe(&daemon, &session, "subscribe", "file:///s")["result"], json!({}));
    let both = of_resources(&server, &["file:///r", "file:///s"]).expect("both are listened to");
    server.upstream.wait_closed(first.request.connection);
    both.update("file:///s");
    assert_eq!(updated(&mut stream)["uri"], "file:///s");
    both.update("file:///r/below");
    assert_eq!(updated(&mut stream)["uri"], "file:///r/below");

    assert_eq!(subscribe(&daemon, &session, "unsubscribe", "file:///r")["result"], json!({}));
    // What is not wanted any more is not heard, however late the server learns of it.
    both.update("file:///r");
    let rest = eventually("the rest is listened to", || of_resources(&server, &["file:///s"]));
    server.upstream.wait_closed(both.request.connection);
    rest.update("file:///s");
    assert_eq!(updated(&mut stream)["uri"], "file:///s");

    assert_eq!(subscribe(&daemon, &session, "unsubscribe", "file:///s")["result"], json!({}));
    server.upstream.wait_closed(rest.request.connection);
}

#[test]
fn a_subscription_that_breaks_is_opened_again_and_what_was_missed_is_told() {
    let server = listening();
    let daemon = bridged(&server.upstream);
    let session = session(&daemon);
    let mut stream = begin(&daemon, &session, post("").method("GET").set("Accept", "text/event-stream"));
    assert_eq!(subscribe(&daemon, &session, "subscribe", "file:///r")["result"], json!({}));
    let first = of_resources(&server, &["file:///r"]).expect("it is listened to");
    first.end();
    drop(first);
    server.cut();
    assert_eq!(updated(&mut stream), json!({"uri": "file:///r"}));
    let again = eventually("it is listened to again", || of_resources(&server, &["file:///r"]));
    again.update("file:///r");
    assert_eq!(updated(&mut stream)["uri"], "file:///r");
    let ended = daemon.send(&in_session(&session, post("").method("DELETE")));
    assert_eq!(ended.status, 204);
    server.upstream.wait_closed(again.request.connection);
}

#[test]
fn a_resource_that_the_server_does_not_tell_of_cannot_be_subscribed_to() {
    let open = Gate::default();
    open.open();
    for server in [
        Listening::taking(offer(), move |_| Listened::Partly("{}".into(), open.clone())),
        Listening::taking(offer(), |request| {
            Listened::Answered(Reply::error(request, "404 Not Found", -32601, "no such method"))
        }),
    ] {
        let daemon = bridged(&server.upstream);
        let session = session(&daemon);
        let answer = subscribe(&daemon, &session, "subscribe", "file:///r");
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
}

#[test]
fn what_the_server_does_not_have_is_answered_by_the_gateway() {
    let upstream = server(|request| Reply::result(request, DONE));
    let daemon = bridged(&upstream);
    let session = session(&daemon);
    for (method, params, code) in [
        ("tasks/get", r#"{"taskId":"t"}"#, -32601),
        ("tasks/list", "{}", -32601),
        ("tasks/result", r#"{"taskId":"t"}"#, -32601),
        ("logging/setLevel", r#"{"level":"loud"}"#, -32602),
    ] {
        let response = daemon.send(&in_session(&session, legacy("7", method, params)));
        response.assert_error(200, code, Some("7"));
    }
    daemon.send(&in_session(&session, legacy("7", "ping", "{}"))).assert_ok();
    for message in [
        r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"none"}}"#,
        r#"{"jsonrpc":"2.0","id":"none","result":{}}"#,
    ] {
        tell(&daemon, &session, message);
    }
    assert!(upstream.forwarded().is_empty(), "{:?}", upstream.forwarded());
}

#[test]
fn a_question_outlasts_a_reload() {
    let upstream = asking(FORM, "s");
    let daemon = bridged(&upstream);
    let session = session(&daemon);
    let mut stream = begin(&daemon, &session, tool_call("7", "echo", ""));
    let asked = next(&mut stream);
    let before = daemon.log().len();
    daemon.reload(&config(&upstream, "response_timeout = \"7s\""));
    daemon.wait_for_log(before, "the reload", |line| line.contains("reloaded"));
    tell(&daemon, &session, &answer(&asked["id"], r#"{"action":"accept"}"#));
    assert_eq!(next(&mut stream)["result"]["content"][0]["text"], "done");
    assert_eq!(daemon.find_metric(r#"trunkline_bridge_sessions{client_era="legacy"}"#), Some(1));
}

#[test]
fn a_client_goes_on_with_its_session_after_a_restart() {
    let state = Folder::new();
    let upstream = server(|request| Reply::result(request, DONE));
    // Nothing that a server kept is lost.
    let config = config(&upstream, "session_loss = \"end\"").top(&state.key());
    let mut daemon = Daemon::start(&config);
    let session = session(&daemon);
    daemon.send(&in_session(&session, legacy("1", "logging/setLevel", r#"{"level":"error"}"#))).assert_ok();
    daemon.send(&in_session(&session, tool_call("2", "echo", ""))).assert_ok();
    daemon.kill();
    let daemon = Daemon::start(&config);
    daemon.send(&in_session(&session, tool_call("3", "echo", ""))).assert_ok();
    let meta = upstream.wait_for("tools/call", 2).json()["params"]["_meta"].clone();
    assert_eq!(meta["io.modelcontextprotocol/logLevel"], "error");
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "blackbox");
}

#[test]
fn a_child_that_speaks_the_modern_era_serves_legacy_clients_too() {
    let child = Child::new(&["modern"]);
    let daemon = Daemon::start(&Config::new().raw("up", &child.keys("eras = [\"modern\"]")).admin());
    let (one, other) = (session(&daemon), session(&daemon));
    let mut calls = [&one, &other].map(|session| {
        let mut stream = begin(&daemon, session, tool_call("7", "input", ""));
        let asked = next(&mut stream);
        (session, stream, asked)
    });
    for (number, (session, stream, asked)) in calls.iter_mut().enumerate() {
        assert_eq!(asked["method"], "roots/list");
        let roots = format!(r#"{{"roots":[{{"uri":"file:///{number}"}}]}}"#);
        tell(&daemon, session, &answer(&asked["id"], &roots));
        let last = next(stream);
        let said = last["result"]["content"][0]["text"].as_str().expect("text");
        let expected = json!([{"where": {"roots": [{"uri": format!("file:///{number}")}]}}, "s"]);
        assert_eq!(serde_json::from_str::<Value>(said).expect("JSON"), expected);
    }
    let mut stream = begin(&daemon, &one, tool_call("8", "progress", r#","_meta":{"progressToken":"t"}"#));
    for step in 0..3 {
        assert_eq!(next(&mut stream)["params"], json!({"progressToken": "t", "progress": step}));
    }
    assert_eq!(next(&mut stream)["result"]["content"][0]["text"], "done");
    let mut hanging = daemon.connect();
    hanging.write(&in_session(&one, tool_call("9", "hang", "")).bytes());
    child.wait_received("tools/call", 6);
    tell(&daemon, &one, r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}"#);
    assert_eq!(hanging.response().json()["error"]["code"], -32800);
    child.wait_received("notifications/cancelled", 1);
    assert!(child.received("initialize").is_empty());
    assert_eq!(child.pids().len(), 1, "one process serves both");
}
