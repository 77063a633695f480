//! The order in which an upstream is sent what one client posts one after the other within a session.

use serde_json::Value;

use crate::harness::{
    Config, Connection, Daemon, Gate, LEGACY_VERSION, Legacy, Offer, Received, Reply, Request, Upstream,
    api_key, body, eventually, in_session, initialize, legacy, legacy_call, literal, open_session,
    open_session_with, post, result_body, tell,
};

const FIRST: &str = r#"{"jsonrpc":"2.0","method":"notifications/first"}"#;
const SECOND: &str = r#"{"jsonrpc":"2.0","method":"notifications/second"}"#;
/// What is told in a session beside the one in question.
const BESIDE: &str = r#"{"jsonrpc":"2.0","method":"notifications/beside"}"#;

/// A server that answers what `answer` does not as one that makes no mistakes.
fn server(answer: impl Fn(&Received) -> Option<Reply> + Send + Sync + 'static) -> Upstream {
    let server = Legacy::new(Offer::tools(&["echo"]));
    Upstream::start(move |request| match answer(request) {
        Some(reply) => reply,
        None if request.method().is_empty() => accepted(),
        None => server.answer(request),
    })
}

/// A server that accepts `notifications/first` once the gate is open, and everything else at once.
fn holding_the_first(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    server(move |request| {
        (request.method() == "notifications/first").then(|| Reply::default().wait(&gate).then(accepted()))
    })
}

fn accepted() -> Reply {
    Reply::http("202 Accepted", "", "")
}

/// Opens a session that has one with its upstream.
fn session_with_upstream(daemon: &Daemon) -> String {
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, legacy_call("0", "echo"))).assert_ok();
    session
}

/// What was sent after the first call, in its session, by method; a response has none.
fn methods(upstream: &Upstream) -> Vec<String> {
    let sent = upstream.forwarded();
    let start = sent.iter().position(|message| message.method() == "tools/call").expect("a call");
    let session = sent[start].headers("mcp-session-id");
    let later = sent[start + 1..].iter().filter(|message| message.headers("mcp-session-id") == session);
    later.map(Received::method).collect()
}

/// Sends messages in another session and waits until each has arrived: a message that came before them, and waits for
/// nothing, has arrived as well.
fn let_others_overtake(daemon: &Daemon, upstream: &Upstream, other: &str) {
    for count in 1..=3 {
        tell(daemon, other, BESIDE);
        upstream.wait_for("notifications/beside", count);
    }
}

fn cancel(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
}

#[test]
fn an_answer_does_not_overtake_the_report_before_it() {
    let (gate, end) = (Gate::default(), Gate::default());
    let (reporting, ending) = (gate.clone(), end.clone());
    let question = r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1,"_meta":{"progressToken":"t"}}}"#;
    let upstream = server(move |request| match request.method().as_str() {
        "tools/call" if request.client_id() == "1" => {
            let end = result_body(request, r#"{"content":[]}"#);
            Some(Reply::stream().event(question).wait(&ending).event(&end).end())
        }
        "notifications/progress" => Some(Reply::default().wait(&reporting).then(accepted())),
        _ => None,
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let session = open_session_with(daemon.address(), LEGACY_VERSION, r#"{"sampling":{}}"#);
    let mut call = daemon.connect();
    call.write(&in_session(&session, legacy_call("1", "echo")).bytes());
    assert_eq!(call.head().status, 200);
    let event = call.event().expect("a question");
    let other = session_with_upstream(&daemon);
    let asked: Value = serde_json::from_str(event.trim_end().trim_start_matches("data: ")).expect("JSON");
    let (id, token) = (&asked["id"], &asked["params"]["_meta"]["progressToken"]);
    let params = format!(r#"{{"progressToken":{token},"progress":1}}"#);
    tell(
        &daemon,
        &session,
        &format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#),
    );
    tell(&daemon, &session, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    upstream.wait_for("notifications/progress", 1);
    let_others_overtake(&daemon, &upstream, &other);
    assert_eq!(methods(&upstream), ["notifications/progress"]);
    gate.open();
    upstream.wait_for("", 1);
    end.open();
    assert!(call.event().expect("the answer").contains("content"));
}

#[test]
fn notifications_and_calls_keep_their_order() {
    let gate = Gate::default();
    let upstream = holding_the_first(&gate);
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let session = session_with_upstream(&daemon);
    tell(&daemon, &session, FIRST);
    tell(&daemon, &session, SECOND);
    let mut call = daemon.connect();
    call.write(&in_session(&session, legacy_call("1", "echo")).bytes());
    upstream.wait_for("notifications/first", 1);
    let_others_overtake(&daemon, &upstream, &session_with_upstream(&daemon));
    assert_eq!(methods(&upstream), ["notifications/first"]);
    gate.open();
    call.response().assert_ok();
    assert_eq!(methods(&upstream), ["notifications/first", "notifications/second", "tools/call"]);
}

#[test]
fn another_session_is_not_held_up() {
    let gate = Gate::default();
    let upstream = holding_the_first(&gate);
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (held, other) = (session_with_upstream(&daemon), session_with_upstream(&daemon));
    tell(&daemon, &held, FIRST);
    upstream.wait_for("notifications/first", 1);
    tell(&daemon, &other, SECOND);
    upstream.wait_for("notifications/second", 1);
    daemon.send(&in_session(&other, legacy_call("1", "echo"))).assert_ok();
    gate.open();
}

#[test]
fn clients_of_an_upstream_without_sessions_do_not_hold_each_other_up() {
    let gate = Gate::default();
    let (waiting, server) = (gate.clone(), Legacy::new(Offer::tools(&["echo"])).without_sessions());
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "notifications/first" => Reply::default().wait(&waiting).then(accepted()),
        _ => server.answer(request),
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (held, other) = (session_with_upstream(&daemon), session_with_upstream(&daemon));
    tell(&daemon, &held, &format!("{FIRST} "));
    tell(&daemon, &other, SECOND);
    gate.open();
    daemon.send(&in_session(&held, legacy_call("1", "echo"))).assert_ok();
}

#[test]
fn a_cancellation_does_not_overtake_a_call_that_waits_for_its_turn() {
    let (gate, end) = (Gate::default(), Gate::default());
    let gates = [gate.clone(), end.clone()];
    let upstream = server(move |request| {
        let result = || Reply::result(request, r#"{"content":[]}"#);
        (request.method() == "tools/call" && request.client_id() != "0")
            .then(|| Reply::default().wait(&gates[usize::from(request.client_id() == "2")]).then(result()))
    });
    let daemon = Daemon::start(
        &Config::new()
            .upstream(
                "up",
                upstream.address,
                "eras = [\"legacy\"]\ncalls_max = 1\ncalls_waiting_max = 4\ncalls_wait_max = \"30s\"",
            )
            .admin(),
    );
    let [one, session, other] = [(); 3].map(|()| session_with_upstream(&daemon));
    let running = open_call(&daemon, &one, "1");
    upstream.wait_for("tools/call", 4);
    let waiting = open_call(&daemon, &session, "2");
    is_waiting(&daemon);
    tell(&daemon, &session, &cancel("2"));
    // What is told after it does not wait for the call.
    tell(&daemon, &session, SECOND);
    upstream.wait_for("notifications/second", 1);
    let_others_overtake(&daemon, &upstream, &other);
    assert!(upstream.received_of("notifications/cancelled").is_empty());
    gate.open();
    let cancelled = upstream.wait_for("notifications/cancelled", 1);
    let calls = upstream.received_of("tools/call");
    let call = calls.iter().find(|call| call.client_id() == "2").expect("the call");
    assert_eq!(cancelled.headers("mcp-session-id"), call.headers("mcp-session-id"));
    assert_eq!(literal(&cancelled.body, &["params", "requestId"]), call.id());
    end.open();
    drop((running, waiting));
}

fn is_waiting(daemon: &Daemon) {
    let line = "trunkline_upstream_calls_waiting{upstream=\"up\"} 1";
    eventually("the call waits", || daemon.get_admin("/metrics").text().contains(line).then_some(()));
}

fn open_call(daemon: &Daemon, session: &str, id: &str) -> Connection {
    let mut connection = daemon.connect();
    connection.write(&in_session(session, legacy_call(id, "echo")).bytes());
    connection
}

#[test]
fn a_call_that_is_never_sent_is_not_cancelled_upstream() {
    let gate = Gate::default();
    let waiting = gate.clone();
    let upstream = server(move |request| {
        let result = || Reply::result(request, r#"{"content":[]}"#);
        (request.method() == "tools/call" && request.client_id() == "1")
            .then(|| Reply::default().wait(&waiting).then(result()))
    });
    let daemon = Daemon::start(
        &Config::new()
            .upstream(
                "up",
                upstream.address,
                "eras = [\"legacy\"]\ncalls_max = 1\ncalls_waiting_max = 4\ncalls_wait_max = \"1s\"",
            )
            .admin(),
    );
    let (one, session) = (session_with_upstream(&daemon), session_with_upstream(&daemon));
    let mut running = open_call(&daemon, &one, "1");
    upstream.wait_for("tools/call", 3);
    let mut waiting = open_call(&daemon, &session, "2");
    is_waiting(&daemon);
    tell(&daemon, &session, &cancel("2"));
    assert!(waiting.response().json()["error"].is_object());
    gate.open();
    running.response().assert_ok();
    tell(&daemon, &session, SECOND);
    upstream.wait_for("notifications/second", 1);
    assert_eq!(upstream.received_of("tools/call").len(), 3);
    assert!(upstream.received_of("notifications/cancelled").is_empty());
}

#[test]
fn a_stream_that_stays_open_instead_of_202_holds_nothing_up() {
    let gate = Gate::default();
    let waiting = gate.clone();
    let upstream = server(move |request| {
        (request.method() == "notifications/first")
            .then(|| Reply::stream().event(r#"{"jsonrpc":"2.0","method":"x"}"#).wait(&waiting).end())
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let session = session_with_upstream(&daemon);
    tell(&daemon, &session, FIRST);
    tell(&daemon, &session, SECOND);
    upstream.wait_for("notifications/second", 1);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    gate.open();
}

#[test]
fn a_message_that_is_not_accepted_in_time_is_dropped_and_the_next_goes() {
    let gate = Gate::default();
    let upstream = holding_the_first(&gate);
    let config = Config::new()
        .upstream("up", upstream.address, "eras = [\"legacy\"]\nfirst_byte_timeout = \"300ms\"")
        .admin();
    let daemon = Daemon::start(&config);
    let session = session_with_upstream(&daemon);
    tell(&daemon, &session, FIRST);
    tell(&daemon, &session, SECOND);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    assert_eq!(methods(&upstream), ["notifications/first", "notifications/second", "tools/call"]);
    assert_eq!(dropped(&daemon, "timed_out"), 1);
    gate.open();
}

fn dropped(daemon: &Daemon, reason: &str) -> u64 {
    let metrics = daemon.get_admin("/metrics");
    let line = format!("trunkline_upstream_messages_dropped_total{{reason=\"{reason}\",upstream=\"up\"}} ");
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    let value = metrics.lines().find_map(|found| found.strip_prefix(&*line)?.parse().ok());
    value.unwrap_or_else(|| panic!("no {line}"))
}

#[test]
fn what_waits_for_an_upstream_is_bounded() {
    let gate = Gate::default();
    let upstream = holding_the_first(&gate);
    let daemon = Daemon::start(&Config::legacy(&upstream).limits("session_messages_max = 2"));
    let (held, other) = (session_with_upstream(&daemon), session_with_upstream(&daemon));
    tell(&daemon, &held, FIRST);
    tell(&daemon, &held, SECOND);
    let refused = daemon.send(&in_session(&held, post(SECOND)));
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{refused:?}");
    assert_eq!(refused.json()["error"]["code"], 503);
    tell(&daemon, &other, SECOND);
    gate.open();
    eventually("there is room again", || {
        (daemon.send(&in_session(&held, post(SECOND))).status == 202).then_some(())
    });
    upstream.wait_for("notifications/second", 3);
}

#[test]
fn an_answer_for_which_there_was_no_room_can_be_given_again() {
    let (gate, end) = (Gate::default(), Gate::default());
    let (holding, ending) = (gate.clone(), end.clone());
    let question = r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}"#;
    let upstream = server(move |request| match request.method().as_str() {
        "tools/call" => {
            let end = result_body(request, r#"{"content":[]}"#);
            Some(Reply::stream().event(question).wait(&ending).event(&end).end())
        }
        "notifications/first" => Some(Reply::default().wait(&holding).then(accepted())),
        _ => None,
    });
    let daemon = Daemon::start(&Config::legacy(&upstream).limits("session_messages_max = 1"));
    let session = open_session_with(daemon.address(), LEGACY_VERSION, r#"{"sampling":{}}"#);
    let mut call = open_call(&daemon, &session, "1");
    assert_eq!(call.head().status, 200);
    let event = call.event().expect("a question");
    let asked: Value = serde_json::from_str(event.trim_end().trim_start_matches("data: ")).expect("JSON");
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, asked["id"]);
    tell(&daemon, &session, FIRST);
    assert_eq!(daemon.send(&in_session(&session, post(&*answer))).status, 503);
    gate.open();
    eventually("there is room again", || {
        (daemon.send(&in_session(&session, post(&*answer))).status == 202).then_some(())
    });
    assert_eq!(upstream.wait_for("", 1).id(), "7");
    end.open();
    assert!(call.event().expect("the answer").contains("content"));
}

#[test]
fn what_waits_is_counted_as_held_in_memory() {
    let gate = Gate::default();
    let upstream = holding_the_first(&gate);
    let daemon = Daemon::start(&Config::legacy(&upstream).admin());
    let session = session_with_upstream(&daemon);
    tell(&daemon, &session, FIRST);
    upstream.wait_for("notifications/first", 1);
    let pad = "x".repeat(4096);
    let small = format!(r#"{{"jsonrpc":"2.0","method":"notifications/second","params":{{"pad":"{pad}"}}}}"#);
    for _ in 0..20 {
        tell(&daemon, &session, &small);
    }
    let held = buffered_bytes(&daemon);
    assert!(held >= 20 * 4096, "{held}");
    gate.open();
    upstream.wait_for("notifications/second", 20);
    eventually("it is given back", || (buffered_bytes(&daemon) == 0).then_some(()));
}

fn buffered_bytes(daemon: &Daemon) -> usize {
    let metrics = daemon.get_admin("/metrics").text();
    let held = metrics.lines().find_map(|line| line.strip_prefix("trunkline_buffered_bytes ")?.parse().ok());
    held.expect("the metric")
}

#[test]
fn a_client_whose_messages_are_not_accepted_leaves_room_for_others() {
    const SESSIONS: usize = 256;
    let gate = Gate::default();
    let upstream = holding_the_first(&gate);
    let keys = [api_key("greedy", "one"), api_key("modest", "other")].join("\n");
    let config = Config::legacy(&upstream).section(&keys).endpoint("auth = [\"api_key\"]");
    let daemon = Daemon::start(&config);
    let as_client = |key: &str, request: Request| request.with("Authorization", format!("Bearer {key}"));
    let open = |key: &str| {
        let opened = daemon.send(&as_client(key, initialize("0", LEGACY_VERSION)));
        let session = opened.header("mcp-session-id").expect("a session").to_owned();
        daemon.send(&as_client(key, in_session(&session, legacy_call("0", "echo")))).assert_ok();
        session
    };
    let greedy: Vec<String> = (0..SESSIONS).map(|_| open("one")).collect();
    let modest = open("other");
    for session in &greedy {
        assert_eq!(daemon.send(&as_client("one", in_session(session, post(FIRST)))).status, 202);
    }
    assert_eq!(daemon.send(&as_client("other", in_session(&modest, post(SECOND)))).status, 202);
    upstream.wait_for("notifications/second", 1);
    // Had those of one client taken all places, each of them would have been sent before.
    let sent = upstream.received_of("notifications/first").len();
    assert!(sent < SESSIONS, "{sent}");
    gate.open();
}

/// A message that is taken in late is no call that is answered late.
#[test]
fn messages_that_are_not_accepted_keep_no_calls_away() {
    let gate = Gate::default();
    let upstream = holding_the_first(&gate);
    let config = Config::new().upstream(
        "up",
        upstream.address,
        "eras = [\"legacy\"]\nfirst_byte_timeout = \"1s\"\nbreaker.failures_max = 2",
    );
    let daemon = Daemon::start(&config.admin());
    let others = session_with_upstream(&daemon);
    for _ in 0..4 {
        tell(&daemon, &session_with_upstream(&daemon), FIRST);
    }
    upstream.wait_for("notifications/first", 4);
    let line = r#"trunkline_upstream_messages_dropped_total{reason="timed_out",upstream="up"} 4"#;
    eventually("they are given up", || {
        daemon.get_admin("/metrics").text().lines().any(|found| found == line).then_some(())
    });
    daemon.send(&in_session(&others, legacy_call("1", "echo"))).assert_ok();
    gate.open();
}

/// A server may do what is asked of it without an id, and only requests are checked.
#[test]
fn what_has_no_id_and_is_no_notification_goes_nowhere() {
    let upstream = server(|_| None);
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let session = session_with_upstream(&daemon);
    tell(&daemon, &session, r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo"}}"#);
    tell(&daemon, &session, r#"{"jsonrpc":"2.0","method":"tasks/cancel","params":{"taskId":"1"}}"#);
    tell(&daemon, &session, SECOND);
    upstream.wait_for("notifications/second", 1);
    assert_eq!(methods(&upstream), ["notifications/second"]);
}

#[test]
fn clients_of_http_sse_are_served_in_order() {
    let gate = Gate::default();
    let upstream = holding_the_first(&gate);
    let daemon = Daemon::start(&Config::legacy(&upstream).endpoint("sse = true"));
    let mut stream = daemon.connect();
    let get = legacy("1", "ping", "{}").method("GET").body("").set("Accept", "text/event-stream");
    stream.write(&get.without("content-type").bytes());
    assert_eq!(stream.head().status, 200);
    let event = stream.event().expect("the address");
    let target = event.trim_end().trim_start_matches("event: endpoint\ndata: ").to_owned();
    let send = |request: Request| assert_eq!(daemon.send(&request.target(&target)).status, 202);
    send(initialize("0", "2024-11-05"));
    assert!(stream.event().expect("an answer").contains("\"id\":0"));
    send(legacy_call("0", "echo"));
    assert!(stream.event().expect("an answer").contains("\"id\":0"));
    send(post(FIRST));
    send(post(SECOND));
    send(legacy_call("1", "echo"));
    upstream.wait_for("notifications/first", 1);
    let_others_overtake(&daemon, &upstream, &session_with_upstream(&daemon));
    assert_eq!(methods(&upstream), ["notifications/first"]);
    gate.open();
    assert!(stream.event().expect("an answer").contains("\"id\":1"));
    assert_eq!(methods(&upstream), ["notifications/first", "notifications/second", "tools/call"]);
}

#[test]
fn the_messages_of_a_batch_keep_their_order() {
    let gate = Gate::default();
    let upstream = holding_the_first(&gate);
    let daemon = Daemon::start(&Config::legacy(&upstream));
    let (session, _) = open_session(daemon.address(), "2025-03-26");
    let in_batch = |messages: &[&str]| {
        in_session(&session, post(format!("[{}]", messages.join(",")))).without("MCP-Protocol-Version")
    };
    let call = |id: &str| body(id, "tools/call", r#"{"name":"echo","arguments":{}}"#);
    let mut connection = daemon.connect();
    connection.write(&in_batch(&[&call("0")]).bytes());
    assert_eq!(connection.head().status, 200);
    assert!(connection.event().is_some() && connection.event().is_none());
    let mut connection = daemon.connect();
    connection.write(&in_batch(&[FIRST, SECOND, &call("1")]).bytes());
    upstream.wait_for("notifications/first", 1);
    let_others_overtake(&daemon, &upstream, &session_with_upstream(&daemon));
    assert_eq!(methods(&upstream), ["notifications/first"]);
    gate.open();
    assert_eq!(connection.head().status, 200);
    assert!(connection.event().is_some());
    assert_eq!(methods(&upstream), ["notifications/first", "notifications/second", "tools/call"]);
}
