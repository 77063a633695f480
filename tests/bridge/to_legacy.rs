//! Modern clients of servers that speak the legacy era only: calls that share a session, answers, tasks, subscriptions.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::{
    Child, Config, Connection, Daemon, Gate, LEGACY_VERSION, Legacy, META, Offer, Received, Reply, Request,
    Stream, Upstream, api_key, body, call, eventually, listen, literal, modern, read_resource, result_body,
};

const LEGACY_ONLY: &str = "eras = [\"legacy\"]";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The value of a sample; 0 if there is none.
pub(crate) fn sample(daemon: &Daemon, series: &str) -> u64 {
    let text = daemon.get_admin("/metrics").text();
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0, |line| line.parse().expect("a number"))
}

/// The sessions that are kept for modern clients.
pub(crate) fn sessions(daemon: &Daemon) -> u64 {
    sample(daemon, "trunkline_bridge_sessions{client_era=\"modern\",upstream=\"up\"}")
}

/// A legacy server that answers this method so, and all else without mistakes.
fn answering(
    method: &'static str,
    answer: impl Fn(&Received) -> Reply + Send + Sync + 'static,
) -> (Legacy, Upstream) {
    let offer = Offer::tools(&["echo"]).with_prompts(&["p"]).with_resources(&["file:///a"]);
    let server = Legacy::new(offer);
    let well = server.clone();
    let upstream = Upstream::start(move |request| match request.method() {
        found if found == method => answer(request),
        _ => well.answer(request),
    });
    (server, upstream)
}

fn daemon(upstream: &Upstream, lines: &str) -> Daemon {
    Daemon::start(&Config::new().admin().upstream("up", upstream.address, &format!("{LEGACY_ONLY}\n{lines}")))
}

fn session_of(request: &Received) -> String {
    request.headers("mcp-session-id")[0].to_owned()
}

/// The stream that the gateway opened in this session.
fn stream_of(server: &Legacy, session: &str) -> Stream {
    eventually("a stream is opened", || {
        let mut streams = server.own_streams().into_iter();
        streams.find(|stream| stream.request.headers("mcp-session-id") == [session])
    })
}

fn event(request: &Received, result: &str) -> String {
    result_body(request, result)
}

/// A tools/call that wants to hear of its progress under this token.
fn with_progress(id: &str, token: &str) -> Request {
    call(id, "echo").replacing(r#""_meta":{"#, &format!(r#""_meta":{{"progressToken":{token},"#))
}

/// The message in the next event that holds one.
fn message(connection: &mut Connection) -> Value {
    serde_json::from_str(&message_text(connection)).expect("JSON")
}

fn message_text(connection: &mut Connection) -> String {
    loop {
        let event = connection.event().expect("the stream goes on");
        if let Some(data) = event.strip_prefix("data: ") {
            return data.trim_end().to_owned();
        }
    }
}

#[test]
fn a_call_is_made_as_clients_of_the_servers_era_make_it() {
    let (server, upstream) = answering("none", |_| unreachable!("no such method"));
    let daemon = daemon(&upstream, "");
    let response = daemon.send(
        &call(r#""a-7""#, "echo")
            .with("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    );
    response.assert_ok();
    let answered = response.json();
    assert_eq!(answered["id"], "a-7");
    assert_eq!(answered["result"]["resultType"], "complete");
    assert_eq!(answered["result"]["content"][0]["text"], "done");
    let info = &answered["result"]["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(*info, json!({"name": "scripted", "version": "1"}));
    let sent = upstream.only_call();
    assert_eq!(sent.headers("mcp-protocol-version"), [LEGACY_VERSION]);
    assert_eq!(sent.headers("mcp-session-id").len(), 1);
    for gone in ["mcp-method", "mcp-name"] {
        assert!(sent.headers(gone).is_empty(), "{gone}");
    }
    assert_eq!(sent.headers("traceparent").len(), 1);
    assert_eq!(sent.json()["params"], json!({"name": "echo", "arguments": {}}));
    assert!(server.open_sessions().contains(&session_of(&sent)));
}

#[test]
fn each_method_gets_what_its_results_must_say() {
    let (_server, upstream) = answering("none", |_| unreachable!("no such method"));
    let daemon = daemon(&upstream, "");
    let read = daemon.send(&read_resource("1", "file:///a"));
    read.assert_ok();
    let result = &read.json()["result"];
    assert_eq!(result["contents"][0]["text"], "text");
    assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(0), &json!("private")));
    let params = format!(r#"{{"name":"p","_meta":{META}}}"#);
    let got = daemon.send(&modern("prompts/get", Some("p"), body("2", "prompts/get", &params)));
    got.assert_ok();
    assert_eq!(got.json()["result"]["resultType"], "complete");
    let reference = r#""ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"b"}"#;
    let params = format!(r#"{{{reference},"_meta":{META}}}"#);
    let completed =
        daemon.send(&modern("completion/complete", None, body("3", "completion/complete", &params)));
    completed.assert_ok();
    assert_eq!(completed.json()["result"]["completion"]["values"], json!(["x"]));
    let methods = ["resources/read", "prompts/get", "completion/complete"];
    let of = |method: &&str| session_of(&upstream.wait_for(method, 1));
    let sessions: BTreeSet<String> = methods.iter().map(of).collect();
    assert_eq!(sessions.len(), 1, "they share a session");
}

#[test]
fn errors_are_those_of_the_clients_era() {
    for (legacy, data, status, modern) in [
        (-32601, "", 404, -32601),
        (-32602, "", 200, -32602),
        (-32002, "", 200, -32602),
        (-32022, "", 200, -32603),
        (-32603, r#","data":{"x":1}"#, 200, -32603),
        (-32000, "", 200, -32000),
    ] {
        let (_server, upstream) = answering("tools/call", move |request| {
            let id = request.id();
            Reply::json(
                "200 OK",
                &format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{legacy},"message":"m"{data}}}}}"#),
            )
        });
        let daemon = daemon(&upstream, "");
        let response = daemon.send(&call("7", "echo"));
        let error = response.assert_error(status, modern, Some("7"))["error"].take();
        assert_eq!(error["message"], "m", "{legacy}");
        assert_eq!(error["data"].is_object(), !data.is_empty(), "{legacy}");
    }
}

#[test]
fn calls_of_a_principal_share_a_session_and_those_of_others_do_not() {
    let (gate, held) = (Gate::default(), Gate::default());
    let (first, second) = (gate.clone(), held.clone());
    let (_server, upstream) = answering("tools/call", move |request| {
        let whose = request.json()["params"]["arguments"]["who"].as_str().unwrap_or_default().to_owned();
        let gate = if whose == "slow" { &first } else { &second };
        let content = format!(r#"{{"content":[{{"type":"text","text":"{whose}"}}]}}"#);
        Reply::default().wait(gate).then(Reply::result(request, &content))
    });
    let config = Config::new()
        .admin()
        .upstream("up", upstream.address, LEGACY_ONLY)
        .endpoint("auth = [\"api_key\"]")
        .section(&api_key("one", "key-one"))
        .section(&api_key("two", "key-two"));
    let daemon = Daemon::start(&config);
    let open = |who: &str, key: &str| {
        let mut connection = daemon.connect();
        let request =
            call("7", "echo").replacing(r#""arguments":{}"#, &format!(r#""arguments":{{"who":"{who}"}}"#));
        connection.write(&request.with("Authorization", format!("Bearer {key}")).bytes());
        connection
    };
    let mut slow = open("slow", "key-one");
    upstream.wait_for("tools/call", 1);
    let mut fast = open("fast", "key-one");
    let mut other = open("other", "key-two");
    upstream.wait_for("tools/call", 3);
    held.open();
    for (connection, who) in [(&mut fast, "fast"), (&mut other, "other")] {
        let answered = connection.response().json();
        assert_eq!((&answered["id"], &answered["result"]["content"][0]["text"]), (&json!(7), &json!(who)));
    }
    gate.open();
    assert_eq!(slow.response().json()["result"]["content"][0]["text"], "slow");
    let calls = upstream.received_of("tools/call");
    let of = |who: &str| {
        let call = calls.iter().find(|call| call.json()["params"]["arguments"]["who"] == who);
        let call = call.expect("a call");
        (call.headers("mcp-session-id")[0].to_owned(), call.id())
    };
    assert_eq!(of("slow").0, of("fast").0);
    assert_ne!(of("slow").1, of("fast").1, "ids are the session's own");
    assert_ne!(of("slow").0, of("other").0);
    assert_eq!(sessions(&daemon), 2);
}

#[test]
fn a_session_that_the_server_forgot_is_opened_again_once() {
    let (server, upstream) = answering("none", |_| unreachable!("no such method"));
    let daemon = daemon(&upstream, "");
    daemon.send(&call("1", "echo")).assert_ok();
    server.forget_sessions();
    daemon.send(&call("2", "echo")).assert_ok();
    let calls = upstream.received_of("tools/call");
    let [first, lost, again] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!(session_of(first), session_of(lost));
    assert_ne!(session_of(lost), session_of(again));
    eventually("the lost one is not counted", || (sessions(&daemon) == 1).then_some(()));

    let lost = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#;
    let (_server, forgetful) = answering("tools/call", move |_| Reply::json("404 Not Found", lost));
    let daemon = self::daemon(&forgetful, "");
    daemon.send(&call("1", "echo")).assert_error(502, 502, Some("1"));
    assert_eq!(forgetful.received_of("tools/call").len(), 2);
}

#[test]
fn a_session_that_nobody_uses_is_closed() {
    let (server, upstream) = answering("none", |_| unreachable!("no such method"));
    let daemon = daemon(&upstream, "[upstream.up.bridge]\nsession_idle_timeout = \"100ms\"");
    daemon.send(&call("1", "echo")).assert_ok();
    let used = session_of(&upstream.only_call());
    let is_open = || server.open_sessions().contains(&used);
    eventually("it is closed", || (sessions(&daemon) == 0 && !is_open()).then_some(()));
    daemon.send(&call("2", "echo")).assert_ok();
    assert_ne!(session_of(&upstream.wait_for("tools/call", 2)), used);
}

#[test]
fn there_are_only_so_many_sessions() {
    let gate = Gate::default();
    let held = gate.clone();
    let (server, upstream) = answering("tools/call", move |request| {
        Reply::default().wait(&held).then(Reply::result(request, r#"{"content":[]}"#))
    });
    let config = Config::new()
        .upstream("up", upstream.address, &format!("{LEGACY_ONLY}\n[upstream.up.bridge]\nsessions_max = 1"))
        .endpoint("auth = [\"api_key\"]")
        .section(&api_key("one", "key-one"))
        .section(&api_key("two", "key-two"));
    let daemon = Daemon::start(&config);
    let mut first = daemon.connect();
    first.write(&call("1", "echo").with("Authorization", "Bearer key-one").bytes());
    let used = session_of(&upstream.wait_for("tools/call", 1));
    let other = call("2", "echo").with("Authorization", "Bearer key-two");
    let refused = daemon.send(&other);
    refused.assert_error(503, 503, Some("2"));
    assert!(refused.header("retry-after").is_some());
    gate.open();
    first.response().assert_ok();
    // The one that nobody uses any more makes room.
    eventually("there is room", || (daemon.send(&other).status == 200).then_some(()));
    eventually("the other is closed", || (!server.open_sessions().contains(&used)).then_some(()));
}

#[test]
fn progress_comes_under_the_clients_token_and_questions_are_refused() {
    let (_server, upstream) = answering("tools/call", |request| {
        let token = literal(&request.body, &["params", "_meta", "progressToken"]);
        let progress = |token: &str, at: u32| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{at}}}}}"#
            )
        };
        Reply::stream()
            .event(&progress(&token, 1))
            .event(&progress("4711", 9))
            .event(
                r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#,
            )
            .event(r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"m"}}"#)
            .event(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#)
            .event(&progress(&token, 2))
            .event(&event(request, r#"{"content":[]}"#))
            .end()
    });
    let daemon = daemon(&upstream, "");
    let mut connection = daemon.connect();
    connection.write(&with_progress("7", r#""mine""#).bytes());
    assert_eq!(connection.head().header("content-type"), Some("text/event-stream"));
    for at in [1, 2] {
        let told = message(&mut connection);
        assert_eq!(told["method"], "notifications/progress");
        assert_eq!(told["params"], json!({"progressToken": "mine", "progress": at}));
    }
    let last = message(&mut connection);
    assert_eq!((&last["id"], &last["result"]["resultType"]), (&json!(7), &json!("complete")));
    assert_eq!(connection.event(), None, "nothing follows the answer");
    let answers = eventually("both are answered", || {
        let received = upstream.received().into_iter().filter(|request| request.http_method() == "POST");
        let answers: Vec<Value> = received.map(|request| request.json()).collect();
        let of =
            |id: &str| answers.iter().find(|answer| answer["id"] == id && answer.get("method").is_none());
        Some((of("q")?.clone(), of("p")?.clone()))
    });
    assert_eq!(answers.0["error"]["code"], -32601);
    assert_eq!(answers.1["result"], json!({}));
}

#[test]
fn progress_on_the_sessions_stream_goes_to_its_call() {
    let gate = Gate::default();
    let held = gate.clone();
    let server = Legacy::new(Offer::tools(&["echo"])).with_streams();
    let well = server.clone();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => {
            let answer = event(request, r#"{"content":[]}"#);
            Reply::stream().chunk(":\n\n").wait(&held).event(&answer).end()
        }
        _ => well.answer(request),
    });
    let daemon = daemon(&upstream, "");
    let mut connection = daemon.connect();
    connection.write(&with_progress("7", "5").bytes());
    let sent = upstream.wait_for("tools/call", 1);
    let stream = stream_of(&server, &session_of(&sent));
    stream.event(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#);
    let token = literal(&sent.body, &["params", "_meta", "progressToken"]);
    stream.event(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
    ));
    connection.head();
    assert_eq!(message(&mut connection)["params"], json!({"progressToken": 5, "progress": 1}));
    let refused = eventually("the question is refused", || {
        let received = upstream.received().into_iter().filter(|request| request.http_method() == "POST");
        received.map(|request| request.json()).find(|said| said["id"] == "q")
    });
    assert_eq!(refused["error"]["code"], -32601);
    gate.open();
    assert_eq!(message(&mut connection)["id"], 7);
}

#[test]
fn however_many_leave_at_once_each_call_is_cancelled() {
    const CLIENTS: usize = 100;
    let gate = Gate::default();
    let held = gate.clone();
    let (_server, upstream) = answering("tools/call", move |request| {
        Reply::default().wait(&held).then(Reply::result(request, r#"{"content":[]}"#))
    });
    let daemon = daemon(&upstream, "");
    let connections: Vec<_> = (0..CLIENTS)
        .map(|id| {
            let mut connection = daemon.connect();
            connection.write(&call(&id.to_string(), "echo").bytes());
            connection
        })
        .collect();
    upstream.wait_for("tools/call", CLIENTS);
    drop(connections);
    upstream.wait_for("notifications/cancelled", CLIENTS);
    gate.open();
}

#[test]
fn a_client_that_leaves_cancels_and_the_session_goes_on() {
    let gate = Gate::default();
    let held = gate.clone();
    let (_server, upstream) = answering("tools/call", move |request| {
        let answer = Reply::result(request, r#"{"content":[]}"#);
        if request.json()["params"]["arguments"]["x"] == 1 {
            answer
        } else {
            Reply::default().wait(&held).then(answer)
        }
    });
    let daemon = daemon(&upstream, "");
    let mut connection = daemon.connect();
    connection.write(&call("7", "echo").bytes());
    let sent = upstream.wait_for("tools/call", 1);
    drop(connection);
    let cancelled = upstream.wait_for("notifications/cancelled", 1);
    assert_eq!(literal(&cancelled.body, &["params", "requestId"]), sent.id());
    assert_eq!(cancelled.headers("mcp-session-id"), sent.headers("mcp-session-id"));
    gate.open();
    daemon.send(&call("8", "echo").replacing(r#""arguments":{}"#, r#""arguments":{"x":1}"#)).assert_ok();
    assert_eq!(session_of(&upstream.wait_for("tools/call", 2)), session_of(&sent));
    assert_eq!(upstream.received_of("notifications/cancelled").len(), 1, "what is over is not cancelled");
}

#[test]
fn a_stream_that_breaks_off_is_asked_for_where_it_stopped() {
    let offer = Offer::tools(&["echo"]);
    let server = Legacy::new(offer);
    let last = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let (well, kept) = (server.clone(), last.clone());
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => {
            *kept.lock().unwrap() = event(request, r#"{"content":[]}"#);
            Reply::stream().chunk("id: e1\nretry: 20\ndata: \n\n").end()
        }
        "GET" if request.headers("last-event-id") == ["e1"] => {
            Reply::stream().event(&kept.lock().unwrap()).end()
        }
        _ => well.answer(request),
    });
    let daemon = daemon(&upstream, "");
    let mut connection = daemon.connect();
    connection.write(&call("7", "echo").bytes());
    let answered = connection.response().json();
    assert_eq!((&answered["id"], &answered["result"]["resultType"]), (&json!(7), &json!("complete")));
}

#[test]
fn a_stream_that_breaks_off_for_good_is_an_error() {
    let (_server, upstream) = answering("tools/call", |request| {
        if request.json()["params"]["_meta"].get("progressToken").is_none() {
            return Reply::stream().chunk(": nothing\n\n").end();
        }
        let token = literal(&request.body, &["params", "_meta", "progressToken"]);
        let params = format!(r#"{{"progressToken":{token},"progress":1}}"#);
        let progress = format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#);
        Reply::stream().event(&progress).end()
    });
    let daemon = daemon(&upstream, "");
    daemon.send(&call("7", "echo")).assert_error(502, 502, Some("7"));
    let mut connection = daemon.connect();
    connection.write(&with_progress("8", "5").bytes());
    connection.head();
    assert_eq!(message(&mut connection)["params"]["progress"], 1);
    let failed = message(&mut connection);
    assert_eq!((&failed["id"], &failed["error"]["code"]), (&json!(8), &json!(502)));
    let failed =
        |line: &str| line.starts_with("trunkline_requests_total{") && line.contains("outcome=\"failed\"");
    eventually("both calls are counted as failed", || {
        let text = daemon.get_admin("/metrics").text();
        text.lines().any(|line| failed(line) && line.ends_with(" 2")).then_some(())
    });
}

#[test]
fn a_url_that_must_be_visited_first_is_asked_for() {
    let data =
        r#"{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://a.example/","message":"go"}]}"#;
    let (_server, upstream) = answering("tools/call", move |request| {
        let id = request.id();
        let error = format!(r#"{{"code":-32042,"message":"first","data":{data}}}"#);
        Reply::json("200 OK", &format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#))
    });
    let daemon = daemon(&upstream, "");
    let refused = daemon.send(&call("7", "echo")).assert_error(400, -32021, Some("7"))["error"].take();
    assert_eq!(refused["data"]["requiredCapabilities"], json!({"elicitation": {"url": {}}}));
    let able =
        call("8", "echo").replacing(r#"Capabilities":{}"#, r#"Capabilities":{"elicitation":{"url":{}}}"#);
    let asked = daemon.send(&able);
    asked.assert_ok();
    let result = &asked.json()["result"];
    assert_eq!(result["resultType"], "input_required");
    assert!(result.get("requestState").is_none(), "the retry simply calls again");
    let question = &result["inputRequests"]["url-elicitation-1"];
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"], json!({"mode": "url", "message": "go", "url": "https://a.example/"}));
    let calls = upstream.received_of("tools/call").len();
    let answers =
        |action: &str| format!(r#""inputResponses":{{"url-elicitation-1":{{"action":"{action}"}}}},"_meta""#);
    let again = able.clone().replacing("\"_meta\"", &answers("accept"));
    daemon.send(&again).assert_ok();
    let sent = upstream.wait_for("tools/call", calls + 1);
    assert!(sent.json()["params"].get("inputResponses").is_none(), "the server is called as before");
    daemon.send(&able.replacing("\"_meta\"", &answers("decline"))).assert_error(200, -32603, Some("8"));
    assert_eq!(upstream.received_of("tools/call").len(), calls + 1);
}

#[test]
fn what_has_no_counterpart_is_refused_clearly() {
    let (_server, upstream) = answering("none", |_| unreachable!("no such method"));
    let daemon = daemon(&upstream, "");
    let params = format!(r#"{{"taskId":"t","_meta":{META}}}"#);
    let get = modern("tasks/get", Some("t"), body("7", "tasks/get", &params));
    let error = daemon.send(&get).assert_error(404, -32601, Some("7"));
    assert!(error["error"]["message"].as_str().unwrap().contains("tasks"), "{error}");
    let unknown = modern("x/y", None, body("7", "x/y", &format!(r#"{{"_meta":{META}}}"#)));
    daemon.send(&unknown).assert_error(404, -32601, Some("7"));
    let params = format!(r#"{{"_meta":{META}}}"#);
    let notification =
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":{params}}}"#);
    let accepted = daemon.send(&modern("notifications/roots/list_changed", None, notification));
    assert_eq!((accepted.status, accepted.body.len()), (202, 0));
    assert!(upstream.received_of("notifications/roots/list_changed").is_empty());
}

/// A server whose tool is run as a task alone; its list says this of it, and other calls it refuses in this way.
fn of_tasks(listed: &'static str, refusal: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Upstream {
    let polls = std::sync::atomic::AtomicUsize::new(0);
    let server = Legacy::new(Offer::tools(&["echo"]));
    Upstream::start(move |request| match request.method().as_str() {
        "initialize" => {
            let reply = json!({
                "protocolVersion": LEGACY_VERSION,
                "capabilities": {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}, "cancel": {}}},
                "serverInfo": {"name": "tasks", "version": "1"},
            });
            Reply::result(request, &reply.to_string())
        }
        "tools/call" if request.json()["params"]["task"].is_null() => refusal(request),
        "tools/list" => {
            let tool = format!(r#"{{"name":"echo","inputSchema":{{"type":"object"}}{listed}}}"#);
            Reply::result(request, &format!(r#"{{"tools":[{tool}]}}"#))
        }
        "tools/call" => {
            let task = r#"{"task":{"taskId":"t-1","status":"working","ttl":60000,"createdAt":"","lastUpdatedAt":"","pollInterval":50}}"#;
            Reply::result(request, task)
        }
        "tasks/get" => {
            let count = polls.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let status = if count == 0 { "working" } else { "completed" };
            Reply::result(
                request,
                &format!(r#"{{"taskId":"t-1","status":"{status}","ttl":60000,"pollInterval":50}}"#),
            )
        }
        "tasks/result" => {
            let related = r#""_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t-1"}}"#;
            Reply::result(request, &format!(r#"{{"content":[{{"type":"text","text":"slow"}}],{related}}}"#))
        }
        "tasks/cancel" => Reply::result(request, "{}"),
        "GET" => Reply::http("405 Method Not Allowed", "", ""),
        _ if request.json().get("id").is_none() => Reply::http("202 Accepted", "", ""),
        _ => server.answer(request),
    })
}

#[track_caller]
fn assert_driven(daemon: &Daemon, upstream: &Upstream) {
    for id in [7, 8] {
        let mut connection = daemon.connect();
        connection.write(&call(&id.to_string(), "echo").bytes());
        connection.head();
        let answered = message(&mut connection);
        assert_eq!(answered["id"], id);
        assert_eq!(answered["result"]["content"][0]["text"], "slow");
        assert!(answered["result"]["_meta"].get("io.modelcontextprotocol/related-task").is_none());
    }
    assert_eq!(upstream.received_of("tasks/result")[0].json()["params"], json!({"taskId": "t-1"}));
    assert!(upstream.received_of("tasks/cancel").is_empty());
}

#[test]
fn a_tool_that_is_a_task_is_driven_to_its_end() {
    let upstream =
        of_tasks("", |request| Reply::error(request, "200 OK", -32601, "Task augmentation required"));
    let daemon = daemon(&upstream, "");
    assert_driven(&daemon, &upstream);
    // Refused once, and then known.
    assert_eq!(upstream.received_of("tools/call").len(), 3);
}

#[test]
fn a_tool_that_is_a_task_by_its_list_is_never_called_otherwise() {
    // As servers refuse it that make results of their own errors.
    let refused = r#"{"content":[{"type":"text","text":"requires a task"}],"isError":true}"#;
    let upstream = of_tasks(r#","execution":{"taskSupport":"required"}"#, move |request| {
        Reply::result(request, refused)
    });
    let daemon = daemon(&upstream, "");
    let listed =
        daemon.send(&modern("tools/list", None, body("1", "tools/list", &format!(r#"{{"_meta":{META}}}"#))));
    listed.assert_ok();
    assert_driven(&daemon, &upstream);
    assert_eq!(upstream.received_of("tools/call").len(), 2);
}

#[test]
fn resources_are_listened_to_in_a_session() {
    let offer = Offer::tools(&["echo"]).with_resources(&["file:///a", "file:///b"]);
    let server = Legacy::new(offer).with_streams();
    let upstream = server.start();
    let daemon = daemon(&upstream, "");
    let mut connection = daemon.connect();
    connection
        .write(&listen("7", r#"{"resourceSubscriptions":["file:///a"],"toolsListChanged":true}"#).bytes());
    connection.head();
    let acknowledged = message(&mut connection);
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    let expected = json!({"resourceSubscriptions": ["file:///a"], "toolsListChanged": true});
    assert_eq!(acknowledged["params"]["notifications"], expected);
    let subscribed = upstream.wait_for("resources/subscribe", 1);
    assert_eq!(subscribed.json()["params"], json!({"uri": "file:///a"}));
    let session = subscribed.headers("mcp-session-id")[0].to_owned();
    let stream = stream_of(&server, &session);
    stream.event(
        r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a"}}"#,
    );
    let updated = message(&mut connection);
    assert_eq!(updated["method"], "notifications/resources/updated");
    assert_eq!(updated["params"]["uri"], "file:///a");
    assert_eq!(updated["params"]["_meta"][SUBSCRIPTION], 7);
    drop(connection);
    eventually("the session ends", || (!server.open_sessions().contains(&session)).then_some(()));
}

#[test]
fn a_child_is_called_in_a_session_of_its_principal() {
    let child = Child::new(&["legacy"]);
    let config = Config::new().admin().raw("up", &child.keys(LEGACY_ONLY));
    let daemon = Daemon::start(&config);
    for id in ["1", "2"] {
        let response = daemon.send(&call(id, "echo"));
        response.assert_ok();
        assert_eq!(response.json()["result"]["resultType"], "complete", "{}", response.text());
    }
    let initialized = child.received("initialize");
    let own = initialized.iter().filter(|message| message["params"]["capabilities"] == json!({}));
    assert!(own.count() >= 1, "{initialized:?}");
}
