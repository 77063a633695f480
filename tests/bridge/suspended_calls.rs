//! Calls of modern clients that a legacy server asks something in the middle of.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::harness::{
    Child, Config, Connection, Daemon, Legacy, Offer, Received, Reply, Request, Response, Stream, Upstream,
    api_key, call_as, event_data, eventually,
};

pub(super) const EVERYTHING: &str = r#"{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{}}"#;
pub(super) const DONE: &str = r#"{"content":[{"type":"text","text":"done"}]}"#;

/// A legacy server whose every call of a tool is a stream that the test writes.
pub(super) struct Server {
    pub(super) legacy: Legacy,
    pub(super) upstream: Upstream,
    calls: Arc<Mutex<Vec<Option<Stream>>>>,
}

impl Server {
    fn start() -> Self {
        Self::with(|_| None)
    }

    /// As [`start`](Self::start), but what `answer` answers.
    pub(super) fn with(answer: impl Fn(&Received) -> Option<Reply> + Send + Sync + 'static) -> Self {
        let legacy = Legacy::new(Offer::tools(&["echo"])).with_streams();
        let calls = Arc::<Mutex<Vec<Option<Stream>>>>::default();
        let (server, streams) = (legacy.clone(), Arc::clone(&calls));
        let upstream = Upstream::start(move |request| {
            if let Some(reply) = answer(request) {
                return reply;
            }
            let is_known = server.open_sessions().iter().any(|id| request.headers("mcp-session-id") == [id]);
            match request.method().as_str() {
                "tools/call" if is_known => {
                    let (stream, bytes) = Stream::answering(request);
                    streams.lock().unwrap().push(Some(stream));
                    Reply::stream().pipe(bytes)
                }
                "" if request.http_method() == "POST" => Reply::http("202 Accepted", "", ""),
                _ => server.answer(request),
            }
        });
        Self { legacy, upstream, calls }
    }

    pub(super) fn config(&self, lines: &str) -> Config {
        Config::new().upstream("up", self.upstream.address, &format!("eras = [\"legacy\"]\n{lines}"))
    }

    /// The `count`th call of a tool; waits for it. It is the test's to answer.
    #[track_caller]
    pub(super) fn call(&self, count: usize) -> Stream {
        eventually("a call reaches the server", || self.calls.lock().unwrap().get_mut(count - 1)?.take())
    }

    /// The `count`th response that the server was sent.
    #[track_caller]
    pub(super) fn told(&self, count: usize) -> Value {
        self.upstream.wait_for("", count).json()
    }
}

pub(super) fn ask(stream: &Stream, id: &str, method: &str, params: &str) {
    stream.event(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#));
}

pub(super) fn elicit(stream: &Stream, id: &str, message: &str) {
    let params =
        format!(r#"{{"message":"{message}","requestedSchema":{{"type":"object","properties":{{}}}}}}"#);
    ask(stream, id, "elicitation/create", &params);
}

/// Answers the call, and ends its reply.
pub(super) fn answer(stream: &Stream, result: &str) {
    stream.event(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, stream.request.id()));
    stream.end();
    // The server ends its stream with the answer.
}

fn with_meta(request: Request, member: &str) -> Request {
    request.replacing(r#""_meta":{"#, &format!(r#""_meta":{{{member},"#))
}

/// The retry of a call, with these answers.
pub(super) fn retry(request: Request, answers: &str, asked: &Value) -> Request {
    let state = &asked["result"]["requestState"];
    let params = format!(r#""arguments":{{}},"inputResponses":{answers},"requestState":{state}"#);
    request.replacing(r#""arguments":{}"#, &params)
}

#[track_caller]
pub(super) fn asked(response: &Response) -> Value {
    assert_eq!(response.status, 200, "{response:?}");
    let asked = response.json();
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    asked
}

#[track_caller]
pub(super) fn is_done(response: &Response, id: i64) {
    let answer = response.json();
    assert_eq!((response.status, &answer["id"]), (200, &json!(id)), "{answer}");
    assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}");
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
}

/// Calls, is asked one thing, and gives the stream of the server and what was asked.
#[track_caller]
fn parked(daemon: &Daemon, server: &Server, count: usize) -> (Stream, Value) {
    let mut connection = daemon.begin(&call_as("1", EVERYTHING));
    let stream = server.call(count);
    elicit(&stream, "7", "Who?");
    (stream, asked(&connection.response()))
}

#[track_caller]
#[test]
fn a_question_ends_the_exchange_and_the_answer_goes_on_with_the_call() {
    let server = Server::start();
    let daemon = Daemon::start(&server.config("").admin());
    let mut connection = daemon.begin(&call_as("1", EVERYTHING));
    let stream = server.call(1);
    // The stream of the session stands before the call goes out.
    assert_eq!(server.legacy.streams().len(), 1);
    let opened = server.upstream.received_of("initialize");
    let opening = opened.iter().find(|init| init.json()["params"]["clientInfo"]["name"] == "blackbox");
    let opening = opening.expect("a session for the client");
    let declared: Value = serde_json::from_str(EVERYTHING).expect("JSON");
    assert_eq!(opening.json()["params"]["capabilities"], declared);
    let params = stream.request.json()["params"].clone();
    assert!(params.get("_meta").is_none(), "what only modern servers understand is left out: {params}");
    assert_ne!(stream.request.id(), opening.id(), "no id is used twice in a session");

    elicit(&stream, r#""a\u00e9""#, "Who?");
    let question = asked(&connection.response());
    assert_eq!(question["id"], 1);
    let request = json!({"method": "elicitation/create", "params":
        {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}});
    assert_eq!(question["result"]["inputRequests"], json!({"q1": request}));
    daemon.wait_metric(r#"trunkline_bridge_suspended_calls{upstream="up"}"#, 1);

    let answers = r#"{"q1":{"action":"accept","content":{"n":1}},"other":{}}"#;
    let mut connection = daemon.begin(&retry(call_as("2", EVERYTHING), answers, &question));
    let told = server.told(1);
    assert_eq!(
        told,
        json!({"jsonrpc": "2.0", "id": "aé", "result": {"action": "accept", "content": {"n": 1}}})
    );
    answer(&stream, DONE);
    is_done(&connection.response(), 2);
    daemon.wait_metric(r#"trunkline_bridge_suspended_calls{upstream="up"}"#, 0);
    daemon.wait_metric(r#"trunkline_bridge_suspensions_total{result="resumed",upstream="up"}"#, 1);

    let mut connection = daemon.begin(&call_as("3", EVERYTHING));
    answer(&server.call(2), DONE);
    is_done(&connection.response(), 3);
    assert_eq!(server.legacy.client_sessions().len(), 1, "the session is used again");
    let mut connection = daemon.begin(&call_as("4", r#"{"roots":{}}"#));
    answer(&server.call(3), DONE);
    is_done(&connection.response(), 4);
    assert_eq!(server.legacy.client_sessions().len(), 2, "but not for a client that says otherwise");
}

#[test]
fn what_comes_on_the_sessions_stream_belongs_to_its_call() {
    let server = Server::start();
    let daemon = Daemon::start(&server.config(""));
    let mut one = daemon.begin(&call_as("1", EVERYTHING));
    let first = server.call(1);
    let mut two = daemon.begin(&call_as("2", EVERYTHING));
    let second = server.call(2);
    let session = |stream: &Stream| stream.request.headers("mcp-session-id")[0].to_owned();
    assert_ne!(session(&first), session(&second), "each has a session to itself");
    for (call, message) in [(&first, "of one"), (&second, "of two")] {
        let own = |stream: &Stream| session(stream) == session(call);
        let streams = server.legacy.streams();
        elicit(streams.iter().find(|stream| own(stream)).expect("a stream"), "1", message);
    }
    let (of_one, of_two) = (asked(&one.response()), asked(&two.response()));
    assert_eq!(of_one["result"]["inputRequests"]["q1"]["params"]["message"], "of one");
    assert_eq!(of_two["result"]["inputRequests"]["q1"]["params"]["message"], "of two");
    let mut two = daemon.begin(&retry(call_as("4", EVERYTHING), r#"{"q1":{"action":"decline"}}"#, &of_two));
    server.told(1);
    assert_eq!(server.upstream.wait_for("", 1).headers("mcp-session-id"), [session(&second)]);
    answer(&second, DONE);
    is_done(&two.response(), 4);
    let mut one = daemon.begin(&retry(call_as("3", EVERYTHING), r#"{"q1":{"action":"cancel"}}"#, &of_one));
    assert_eq!(server.told(2)["result"]["action"], "cancel");
    answer(&first, DONE);
    is_done(&one.response(), 3);
}

#[test]
fn questions_go_together_and_what_is_not_answered_is_asked_again() {
    let server = Server::start();
    let daemon = Daemon::start(&server.config(""));
    let mut connection = daemon.begin(&call_as("1", EVERYTHING));
    let stream = server.call(1);
    let question = |id, method, params| {
        format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{params}}}\n\n")
    };
    let sampling = r#"{"messages":[],"maxTokens":9,"includeContext":"allServers","task":{},"_meta":{"progressToken":1}}"#;
    stream.chunk(
        &[
            question(1, "roots/list", "{}"),
            question(2, "sampling/createMessage", sampling),
            // One id twice is one request.
            question(2, "sampling/createMessage", sampling),
        ]
        .concat(),
    );
    let first = asked(&connection.response());
    let requests = &first["result"]["inputRequests"];
    assert_eq!(requests.as_object().expect("an object").len(), 2, "{requests}");
    let params = json!({"messages": [], "maxTokens": 9, "includeContext": "none"});
    assert_eq!(requests["q2"], json!({"method": "sampling/createMessage", "params": params}));

    let mut connection =
        daemon.begin(&retry(call_as("2", EVERYTHING), r#"{"q2":{"role":"assistant"},"q1":7}"#, &first));
    let second = asked(&connection.response());
    assert_eq!(second["result"]["inputRequests"], json!({"q1": {"method": "roots/list", "params": {}}}));
    assert_eq!(server.told(1), json!({"jsonrpc": "2.0", "id": 2, "result": {"role": "assistant"}}));
    // Asked while the client was away.
    elicit(&stream, "3", "More?");
    let mut connection = daemon.begin(&retry(call_as("3", EVERYTHING), r#"{"q1":{"roots":[]}}"#, &second));
    let third = asked(&connection.response());
    assert_eq!(third["result"]["inputRequests"]["q3"]["params"]["message"], "More?");
    assert_eq!(server.told(2)["id"], 1);
    let mut connection =
        daemon.begin(&retry(call_as("4", EVERYTHING), r#"{"q3":{"action":"accept"}}"#, &third));
    assert_eq!(server.told(3)["id"], 3);
    answer(&stream, DONE);
    is_done(&connection.response(), 4);
}

#[test]
fn progress_and_log_lines_reach_whoever_waits() {
    let server = Server::start();
    let daemon = Daemon::start(&server.config(""));
    let first = with_meta(
        call_as("1", EVERYTHING),
        r#""progressToken":"one","io.modelcontextprotocol/logLevel":"warning""#,
    );
    let again = with_meta(call_as("2", EVERYTHING), r#""progressToken":2"#);
    let mut connection = daemon.begin(&first);
    let stream = server.call(1);
    assert_eq!(server.upstream.wait_for("logging/setLevel", 1).json()["params"]["level"], "warning");
    let token = stream.request.json()["params"]["_meta"]["progressToken"].clone();
    let progress = |progress: u32| {
        let params = json!({"progressToken": token, "progress": progress});
        stream.event(
            &json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).to_string(),
        );
    };
    let log = |level: &str| {
        let params = json!({"level": level, "data": "x"});
        stream.event(
            &json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}).to_string(),
        );
    };
    progress(1);
    log("info");
    log("error");
    assert_eq!(connection.head().status, 200);
    let mut next = || event_data(&connection.event().expect("an event"));
    assert_eq!(next()["params"], json!({"progressToken": "one", "progress": 1}));
    assert_eq!(next()["params"]["level"], "error", "what is less severe was not asked for");
    elicit(&stream, "7", "Who?");
    let question = next();
    assert_eq!(connection.event(), None, "the question ends the exchange");
    let mut connection = daemon.begin(&retry(again, r#"{"q1":{"action":"accept"}}"#, &question));
    server.told(1);
    // Of this, the retry wants nothing.
    log("error");
    progress(2);
    assert_eq!(connection.head().status, 200);
    let found = event_data(&connection.event().expect("an event"));
    assert_eq!(found["params"], json!({"progressToken": 2, "progress": 2}));
    answer(&stream, DONE);
    let last = event_data(&connection.event().expect("an event"));
    assert_eq!((&last["id"], &last["result"]["resultType"]), (&json!(2), &json!("complete")));
    assert_eq!(connection.event(), None);
}

#[test]
fn a_state_is_good_for_its_call_its_client_and_once() {
    let server = Server::start();
    let config = server.config("").section(&api_key("alice", "a")).section(&api_key("bob", "b"));
    let daemon = Daemon::start(&config.admin());
    let by = |request: Request, key: &str| request.with("Authorization", format!("Bearer {key}"));
    let mut connection = daemon.begin(&by(call_as("1", EVERYTHING), "a"));
    let stream = server.call(1);
    elicit(&stream, "7", "Who?");
    let question = asked(&connection.response());
    let answers = r#"{"q1":{"action":"accept"}}"#;
    let again = |id: &str| retry(call_as(id, EVERYTHING), answers, &question);
    let mut changed = question.clone();
    changed["result"]["requestState"] = "x".into();
    for (what, request) in [
        ("another client", by(again("2"), "b")),
        ("another call", by(again("2").replacing(r#""arguments":{}"#, r#""arguments":{"x":1}"#), "a")),
        ("nonsense", by(retry(call_as("2", EVERYTHING), answers, &changed), "a")),
    ] {
        let refused = daemon.send(&request);
        let error = refused.assert_error(400, -32602, Some("2"));
        assert!(
            error["error"]["message"].as_str().expect("a message").contains("without requestState"),
            "{what}"
        );
    }
    assert_eq!(server.upstream.received_of("").len(), 0, "nobody else answers");
    let mut connection = daemon.begin(&by(again("3"), "a"));
    server.told(1);
    daemon.send(&by(again("4"), "a")).assert_error(400, -32602, Some("4"));
    answer(&stream, DONE);
    is_done(&connection.response(), 3);
    daemon.send(&by(again("5"), "a")).assert_error(400, -32602, Some("5"));
    daemon.wait_metric(r#"trunkline_bridge_suspensions_total{result="rejected",upstream="up"}"#, 5);
    assert_eq!(server.upstream.received_of("").len(), 1);
}

#[test]
fn of_two_retries_at_once_one_goes_on() {
    let server = Server::start();
    let daemon = Daemon::start(&server.config(""));
    let (stream, question) = parked(&daemon, &server, 1);
    let again = |id: &str| retry(call_as(id, EVERYTHING), r#"{"q1":{"action":"accept"}}"#, &question);
    let mut connections = ["2", "3", "4", "5"].map(|id| daemon.begin(&again(id)));
    server.told(1);
    answer(&stream, DONE);
    let responses: Vec<Response> = connections.iter_mut().map(Connection::response).collect();
    let done = responses.iter().filter(|response| response.status == 200).count();
    let refused = responses.iter().filter(|response| response.status == 400).count();
    assert_eq!((done, refused), (1, 3), "{responses:?}");
    assert_eq!(server.upstream.received_of("").len(), 1);
}

#[test]
fn a_call_that_waits_too_long_ends_and_the_server_is_told() {
    let server = Server::start();
    let daemon = Daemon::start(&server.config("bridge.suspended_call_timeout = \"300ms\"").admin());
    let (stream, question) = parked(&daemon, &server, 1);
    let refused = server.told(1);
    assert_eq!((&refused["id"], refused["error"].is_object()), (&json!(7), true), "{refused}");
    let cancelled = server.upstream.wait_for("notifications/cancelled", 1).json();
    assert_eq!(cancelled["params"]["requestId"].to_string(), stream.request.id());
    server.upstream.wait_for("DELETE", 1);
    daemon.wait_metric(r#"trunkline_bridge_suspensions_total{result="expired",upstream="up"}"#, 1);
    daemon.wait_metric(r#"trunkline_bridge_suspended_calls{upstream="up"}"#, 0);
    daemon.wait_metric(r#"trunkline_bridge_sessions{client_era="modern",upstream="up"}"#, 0);
    let late = retry(call_as("2", EVERYTHING), r#"{"q1":{"action":"accept"}}"#, &question);
    daemon.send(&late).assert_error(400, -32602, Some("2"));
}

#[test]
fn so_many_calls_wait_and_no_more() {
    let server = Server::start();
    let daemon =
        Daemon::start(&server.config("bridge.suspended_calls_max = 1\nbridge.sessions_max = 2").admin());
    let (first, question) = parked(&daemon, &server, 1);
    let mut connection = daemon.begin(&call_as("2", EVERYTHING));
    let second = server.call(2);
    let mut third = daemon.begin(&call_as("3", EVERYTHING));
    third.response().assert_error(503, 503, Some("3"));
    elicit(&second, "8", "Who?");
    connection.response().assert_error(503, 503, Some("2"));
    let refused = server.told(1);
    assert_eq!((&refused["id"], refused["error"].is_object()), (&json!(8), true), "{refused}");
    server.upstream.wait_for("notifications/cancelled", 1);
    daemon.wait_metric(r#"trunkline_bridge_suspensions_total{result="refused",upstream="up"}"#, 1);
    let again = retry(call_as("4", EVERYTHING), r#"{"q1":{"action":"accept"}}"#, &question);
    let mut connection = daemon.begin(&again);
    server.told(2);
    answer(&first, DONE);
    is_done(&connection.response(), 4);
}

#[test]
fn a_client_that_leaves_cancels_its_call() {
    let server = Server::start();
    let daemon = Daemon::start(&server.config(""));
    let connection = daemon.begin(&call_as("1", EVERYTHING));
    let stream = server.call(1);
    drop(connection);
    let cancelled = server.upstream.wait_for("notifications/cancelled", 1).json();
    assert_eq!(cancelled["params"]["requestId"].to_string(), stream.request.id());
    server.upstream.wait_for("DELETE", 1);
    let mut connection = daemon.begin(&call_as("2", EVERYTHING));
    answer(&server.call(2), DONE);
    is_done(&connection.response(), 2);
}

#[test]
fn a_client_is_asked_what_it_can_do_and_while_it_calls() {
    let server = Server::start();
    let daemon = Daemon::start(&server.config(""));
    let mut connection = daemon.begin(&call_as("1", r#"{"roots":{}}"#));
    let stream = server.call(1);
    ask(&stream, "1", "sampling/createMessage", r#"{"messages":[],"maxTokens":1}"#);
    assert_eq!(server.told(1)["error"]["code"], -32601);
    ask(&stream, "2", "ping", "{}");
    assert_eq!(server.told(2), json!({"jsonrpc": "2.0", "id": 2, "result": {}}));
    answer(&stream, DONE);
    is_done(&connection.response(), 1);
    let between = server.legacy.streams().remove(0);
    ask(&between, "3", "roots/list", "{}");
    let refused = server.told(3);
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(3), &json!(-32601)));

    let mut connection = daemon.begin(&call_as("2", r#"{"roots":{}}"#));
    let stream = server.call(2);
    let id = stream.request.id();
    stream.event(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{DONE}}}"#));
    ask(&stream, "4", "roots/list", "{}");
    is_done(&connection.response(), 2);
    assert_eq!(server.told(4)["error"]["code"], -32601, "after the answer nobody is asked");
    stream.end();
}

#[test]
fn an_answer_that_comes_while_the_call_waits_is_kept() {
    let server = Server::start();
    let daemon = Daemon::start(&server.config(""));
    let (stream, question) = parked(&daemon, &server, 1);
    answer(&stream, DONE);
    assert_eq!(server.told(1)["error"]["code"], -32601, "what it asked is of no use any more");
    let again = retry(call_as("2", EVERYTHING), r#"{"q1":{"action":"accept"}}"#, &question);
    is_done(&daemon.send(&again), 2);
    assert_eq!(server.upstream.received_of("").len(), 1);
}

#[test]
fn an_answer_is_kept_whatever_the_server_says_to_the_rest() {
    // It knows nothing any more of what it asked.
    let server = Server::with(|request| {
        (request.method().is_empty() && request.http_method() == "POST")
            .then(|| Reply::json("404 Not Found", ""))
    });
    let daemon = Daemon::start(&server.config("").admin());
    let (stream, question) = parked(&daemon, &server, 1);
    answer(&stream, DONE);
    server.told(1);
    let again = retry(call_as("2", EVERYTHING), r#"{"q1":{"action":"accept"}}"#, &question);
    is_done(&daemon.send(&again), 2);
}

#[test]
fn a_client_that_never_answers_does_not_call_for_ever() {
    let server = Server::start();
    let daemon = Daemon::start(&server.config("bridge.input_requests_max = 3").admin());
    let (_stream, mut question) = parked(&daemon, &server, 1);
    for id in ["2", "3"] {
        question = asked(&daemon.send(&retry(call_as(id, EVERYTHING), "{}", &question)));
    }
    let refused = daemon.send(&retry(call_as("4", EVERYTHING), "{}", &question));
    refused.assert_error(502, 502, Some("4"));
    assert!(server.told(1)["error"].is_object());
    server.upstream.wait_for("notifications/cancelled", 1);
    daemon.wait_metric(r#"trunkline_bridge_suspended_calls{upstream="up"}"#, 0);
}

#[test]
fn what_a_server_asks_is_bounded_in_bytes() {
    let server = Server::start();
    let limits = "buffered_bytes_max = \"1MiB\"\nbody_bytes_max = \"64KiB\"\nreply_bytes_max = \"600KiB\"";
    let daemon = Daemon::start(&server.config("").limits(limits));
    let long = "x".repeat(400 * 1024);
    let mut connection = daemon.begin(&call_as("1", EVERYTHING));
    let first = server.call(1);
    elicit(&first, "7", &long);
    let question = asked(&connection.response());
    let mut connection = daemon.begin(&call_as("2", EVERYTHING));
    let second = server.call(2);
    elicit(&second, "8", &long);
    // It is no fault of the server that there is no memory.
    connection.response().assert_error(503, 503, Some("2"));
    let refused = server.told(1);
    assert_eq!((&refused["id"], refused["error"].is_object()), (&json!(8), true), "{refused}");
    let again = retry(call_as("3", EVERYTHING), r#"{"q1":{"action":"accept"}}"#, &question);
    let mut connection = daemon.begin(&again);
    server.told(2);
    answer(&first, DONE);
    is_done(&connection.response(), 3);
}

#[test]
fn a_server_that_takes_nothing_in_is_not_listened_to_for_ever() {
    let server = Server::with(|request| {
        (request.method().is_empty() && request.http_method() == "POST").then(Reply::silence)
    });
    let daemon = Daemon::start(&server.config("").admin());
    let _connection = daemon.begin(&call_as("1", EVERYTHING));
    let stream = server.call(1);
    for id in 1..=200 {
        ask(&stream, &id.to_string(), "ping", "{}");
    }
    server.upstream.wait_for("", 32);
    // Others are served meanwhile, and it is not told more at once.
    let mut other = daemon.begin(&call_as("2", EVERYTHING));
    answer(&server.call(2), DONE);
    is_done(&other.response(), 2);
    assert_eq!(server.upstream.received_of("").len(), 32);
}

#[test]
fn a_stream_that_breaks_while_the_call_waits_loses_it() {
    let server = Server::start();
    let daemon = Daemon::start(&server.config("").admin());
    let (stream, question) = parked(&daemon, &server, 1);
    stream.end();
    drop(stream);
    daemon.wait_metric(r#"trunkline_bridge_suspensions_total{result="lost",upstream="up"}"#, 1);
    let again = retry(call_as("2", EVERYTHING), r#"{"q1":{"action":"accept"}}"#, &question);
    daemon.send(&again).assert_error(400, -32602, Some("2"));
    let mut connection = daemon.begin(&call_as("3", EVERYTHING));
    answer(&server.call(2), DONE);
    is_done(&connection.response(), 3);
}

#[test]
fn a_stream_with_event_ids_is_taken_up_again() {
    let server = Server::start();
    let daemon = Daemon::start(&server.config(""));
    let mut connection = daemon.begin(&call_as("1", EVERYTHING));
    let stream = server.call(1);
    let id = stream.request.id();
    stream.chunk("id: e1\nretry: 10\ndata:\n\n");
    stream.end();
    drop(stream);
    let resumed = eventually("the stream is asked for again", || {
        let streams = server.legacy.streams();
        streams.into_iter().find(|stream| stream.request.headers("last-event-id") == ["e1"])
    });
    resumed.event(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{DONE}}}"#));
    is_done(&connection.response(), 1);
}

#[test]
fn an_elicitation_elsewhere_may_be_complete_before_the_client_says_so() {
    let server = Server::start();
    let daemon = Daemon::start(&server.config(""));
    let mut connection = daemon.begin(&call_as("1", EVERYTHING));
    let stream = server.call(1);
    let params = r#"{"mode":"url","elicitationId":"e-1","url":"https://x.example/","message":"m"}"#;
    ask(&stream, "7", "elicitation/create", params);
    let question = asked(&connection.response());
    let expected = json!({"mode": "url", "url": "https://x.example/", "message": "m"});
    assert_eq!(question["result"]["inputRequests"]["q1"]["params"], expected);
    let complete =
        r#"{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e-1"}}"#;
    server.legacy.streams()[0].event(complete);
    assert_eq!(server.told(1), json!({"jsonrpc": "2.0", "id": 7, "result": {"action": "accept"}}));
    let mut connection = daemon.begin(&retry(call_as("2", EVERYTHING), "{}", &question));
    answer(&stream, DONE);
    is_done(&connection.response(), 2);
    assert_eq!(server.upstream.received_of("").len(), 1, "it is told once");
}

#[test]
fn a_question_that_is_taken_back_needs_no_answer() {
    let server = Server::start();
    let daemon = Daemon::start(&server.config(""));
    let (stream, question) = parked(&daemon, &server, 1);
    stream.event(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#);
    // Answered once what came before it was read.
    ask(&stream, "8", "ping", "{}");
    assert_eq!(server.told(1)["id"], 8);
    answer(&stream, DONE);
    let again = retry(call_as("2", EVERYTHING), r#"{"q1":{"action":"accept"}}"#, &question);
    is_done(&daemon.send(&again), 2);
    assert_eq!(server.upstream.received_of("").len(), 1, "the question itself is not answered");
}

#[test]
fn a_session_that_the_server_forgot_is_opened_once_more() {
    let server = Server::start();
    let daemon = Daemon::start(&server.config(""));
    let mut connection = daemon.begin(&call_as("1", EVERYTHING));
    answer(&server.call(1), DONE);
    is_done(&connection.response(), 1);
    server.legacy.forget_sessions();
    let mut connection = daemon.begin(&call_as("2", EVERYTHING));
    answer(&server.call(2), DONE);
    is_done(&connection.response(), 2);

    let lost = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#;
    let forgetful = Server::with(|request| {
        (request.method() == "tools/call").then(|| Reply::json("404 Not Found", lost))
    });
    let daemon = Daemon::start(&forgetful.config(""));
    daemon.send(&call_as("1", EVERYTHING)).assert_error(502, 502, Some("1"));
    assert_eq!(forgetful.upstream.received_of("tools/call").len(), 2);
}

#[test]
fn what_waits_outlasts_a_reload_and_ends_with_its_upstream() {
    let server = Server::start();
    let config = server.config("");
    let daemon = Daemon::start(&config.clone().admin());
    let (stream, question) = parked(&daemon, &server, 1);
    let from = daemon.log().len();
    daemon.reload(&server.config("bridge.suspended_calls_max = 5").admin());
    daemon.wait_for_log(from, "reloaded", |line| line.contains("reloaded"));
    let again = retry(call_as("2", EVERYTHING), r#"{"q1":{"action":"accept"}}"#, &question);
    let mut connection = daemon.begin(&again);
    server.told(1);
    answer(&stream, DONE);
    is_done(&connection.response(), 2);

    let (_stream, _) = parked(&daemon, &server, 2);
    let other = Server::start();
    let lines = "eras = [\"legacy\"]";
    daemon.reload(&Config::new().upstream("other", other.upstream.address, lines).admin());
    assert!(server.told(2)["error"].is_object());
    server.upstream.wait_for("notifications/cancelled", 1);
}

#[test]
fn a_process_that_ends_tells_the_server() {
    let server = Server::start();
    let drain = "[drain]\nquiet = \"100ms\"\nmax = \"15s\"";
    let mut daemon = Daemon::start(&server.config("").section(drain));
    let (_stream, _) = parked(&daemon, &server, 1);
    daemon.terminate();
    assert!(server.told(1)["error"].is_object());
    server.upstream.wait_for("notifications/cancelled", 1);
    server.upstream.wait_for("DELETE", 1);
    assert!(daemon.wait_exit().success());
}

#[test]
fn a_process_that_ends_tells_all_servers_of_all_calls() {
    const CALLS: usize = 150;
    let server = Server::start();
    let drain = "[drain]\nquiet = \"100ms\"\nmax = \"20s\"";
    // Each call that waits has a session and one of the connections, and is told of on another; an eighth is for other
    // clients.
    let bounds =
        "connections_max = 184\nbridge.sessions_max = 184\nbridge.suspended_calls_per_principal_max = 150";
    let mut daemon = Daemon::start(&server.config(bounds).section(drain));
    let _streams: Vec<Stream> = (1..=CALLS).map(|count| parked(&daemon, &server, count).0).collect();
    daemon.terminate();
    assert!(daemon.wait_exit().success());
    assert_eq!(server.upstream.received_of("").len(), CALLS);
    assert_eq!(server.upstream.received_of("notifications/cancelled").len(), CALLS);
    assert_eq!(server.legacy.client_sessions().len(), 0, "all sessions are closed");
}

/// A server with one tool that it runs as a task alone; the answers to requests of these methods are streams that the test
/// writes, in the order in which they are asked for.
struct TaskServer {
    server: Server,
    streams: Arc<Mutex<Vec<Option<Stream>>>>,
}

const TASK: &str = r#"{"task":{"taskId":"t","status":"working","ttl":60000,"pollInterval":50}}"#;

impl TaskServer {
    fn streaming(methods: &'static [&'static str]) -> Self {
        let streams = Arc::<Mutex<Vec<Option<Stream>>>>::default();
        let written = Arc::clone(&streams);
        let server = Server::with(move |request| match request.method().as_str() {
            "initialize" => {
                let offer = json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}},
                    "serverInfo": {"name": "tasks", "version": "1"},
                });
                Some(Reply::result(request, &offer.to_string()))
            }
            "tools/call" if request.json()["params"]["task"].is_null() => {
                Some(Reply::error(request, "200 OK", -32601, "Only as a task"))
            }
            method if methods.contains(&method) => {
                let (stream, bytes) = Stream::answering(request);
                written.lock().unwrap().push(Some(stream));
                // Dropped, it breaks.
                Some(Reply::stream().pipe(bytes).reset())
            }
            "tools/call" => Some(Reply::result(request, TASK)),
            "tasks/cancel" => Some(Reply::result(request, r#"{"taskId":"t","status":"cancelled","ttl":1}"#)),
            "notifications/initialized" => Some(Reply::http("202 Accepted", "", "")),
            "GET" => Some(Reply::http("405 Method Not Allowed", "", "")),
            _ => None,
        });
        Self { server, streams }
    }

    /// The `count`th stream; waits for it.
    fn stream(&self, count: usize) -> Stream {
        eventually("a stream is asked for", || self.streams.lock().unwrap().get_mut(count - 1)?.take())
    }

    fn calls(&self) -> usize {
        self.server.upstream.received_of("tools/call").len()
    }
}

#[test]
fn a_tool_that_is_run_as_a_task_may_ask_too() {
    let tasks = TaskServer::streaming(&["tasks/result"]);
    let server = &tasks.server;
    let daemon = Daemon::start(&server.config("stream_idle_timeout = \"900ms\"\n"));
    let request = call_as("1", EVERYTHING).replacing(r#""_meta":{"#, r#""_meta":{"progressToken":"mine","#);
    let mut connection = daemon.begin(&request);
    connection.head();
    let stream = tasks.stream(1);
    // Its client is kept while the server says nothing.
    assert!(connection.event().expect("an event").starts_with(':'));
    let made = &server.upstream.received_of("tools/call")[1].json()["params"];
    assert_eq!(made["task"]["ttl"], 3_600_000, "{made}");
    let token = made["_meta"]["progressToken"].clone();
    let params = json!({"progressToken": token, "progress": 1});
    stream
        .event(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).to_string());
    let progress = message(&mut connection);
    assert_eq!(progress["params"], json!({"progressToken": "mine", "progress": 1}));
    elicit(&stream, "7", "Which city?");
    let question = message(&mut connection);
    assert_eq!(question["result"]["inputRequests"]["q1"]["params"]["message"], "Which city?", "{question}");
    let again = retry(call_as("2", EVERYTHING), r#"{"q1":{"action":"accept"}}"#, &question);
    let mut connection = daemon.begin(&again);
    connection.head();
    assert_eq!(server.told(1)["result"]["action"], "accept");
    answer(&stream, DONE);
    let last = message(&mut connection);
    assert_eq!((&last["id"], &last["result"]["resultType"]), (&json!(2), &json!("complete")), "{last}");

    let mut leaving = daemon.begin(&call_as("3", EVERYTHING));
    leaving.head();
    tasks.stream(2);
    drop(leaving);
    let cancelled = server.upstream.wait_for("tasks/cancel", 1).json();
    assert_eq!(cancelled["params"], json!({"taskId": "t"}));
    // What was found out about the tool is remembered.
    assert_eq!(tasks.calls(), 3);
}

#[test]
fn a_question_before_the_task_is_made_belongs_to_it() {
    let tasks = TaskServer::streaming(&["tools/call", "tasks/result"]);
    let daemon = Daemon::start(&tasks.server.config(""));
    let mut connection = daemon.begin(&call_as("1", EVERYTHING));
    let making = tasks.stream(1);
    elicit(&making, "7", "Which city?");
    let question = asked(&connection.response());
    // The task is there before its client is back.
    answer(&making, TASK);
    let result = tasks.stream(2);
    let again = retry(call_as("2", EVERYTHING), r#"{"q1":{"action":"accept"}}"#, &question);
    let mut connection = daemon.begin(&again);
    assert_eq!(tasks.server.told(1)["result"]["action"], "accept");
    answer(&result, DONE);
    let last = final_message(&mut connection);
    assert_eq!(last["result"]["content"][0]["text"], "done", "{last}");
}

#[test]
fn a_task_is_made_once_whatever_comes_of_it() {
    let tasks = TaskServer::streaming(&["tasks/result"]);
    let daemon = Daemon::start(&tasks.server.config(""));
    let mut connection = daemon.begin(&call_as("1", EVERYTHING));
    // A connection that breaks costs no task.
    drop(tasks.stream(1));
    let result = tasks.stream(2);
    let error = r#"{"code":-32601,"message":"it was not found"}"#;
    result.event(&format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, result.request.id()));
    result.end();
    let last = final_message(&mut connection);
    assert_eq!(last["error"]["message"], "it was not found", "{last}");
    // Without a task, and with one.
    assert_eq!(tasks.calls(), 2);
    assert_eq!(tasks.server.upstream.received_of("tasks/cancel").len(), 0);
}

/// The answer, in a reply that is a stream if it took long.
#[track_caller]
fn final_message(connection: &mut Connection) -> Value {
    let head = connection.head();
    assert_eq!(head.status, 200, "{head:?}");
    if head.header("content-type") == Some("text/event-stream") {
        return message(connection);
    }
    serde_json::from_slice(&connection.rest().expect("a body")).expect("JSON")
}

/// The next message on a stream; comments are passed over.
fn message(connection: &mut Connection) -> Value {
    loop {
        let event = connection.event().expect("an event");
        if !event.starts_with(':') {
            return event_data(&event);
        }
    }
}

#[test]
fn a_child_process_asks_likewise() {
    let child = Child::new(&[]);
    let config = Config::new().raw("up", &child.keys("eras = [\"legacy\"]"));
    let daemon = Daemon::start(&config);
    let by = |id: &str| {
        call_as(id, r#"{"roots":{}}"#).set("Mcp-Name", "ask").replacing(r#""name":"echo""#, r#""name":"ask""#)
    };
    let question = asked(&daemon.send(&by("1")));
    assert_eq!(question["result"]["inputRequests"], json!({"q1": {"method": "roots/list"}}));
    let again = retry(by("2"), r#"{"q1":{"roots":[{"uri":"file:///a"}]}}"#, &question);
    let response = daemon.send(&again);
    let answer = response.json();
    assert_eq!((response.status, &answer["id"]), (200, &json!(2)), "{answer}");
    let said = answer["result"]["content"][0]["text"].as_str().expect("a text");
    assert_eq!(serde_json::from_str::<Value>(said).expect("JSON"), json!({"roots": [{"uri": "file:///a"}]}));
}
