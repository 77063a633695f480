//! Sessions that the calls of modern clients share, over every transport: lost, refused, broken off, outlived.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::bridge::to_legacy::{sample, sessions};
use crate::harness::{
    Child, Config, Connection, Daemon, Gate, LEGACY_VERSION, Legacy, META, Offer, Received, Reply, Request,
    Stream, Upstream, VERSION, body, call, eventually, literal, modern, read_resource, result_body,
};
use crate::upstreams::http_sse;

const LEGACY_ONLY: &str = "eras = [\"legacy\"]";
const CALLS: usize = 24;

/// A daemon before a server that answers this method so, and all else without mistakes.
fn over(
    server: &Legacy,
    method: &'static str,
    answer: impl Fn(&Received) -> Reply + Send + Sync + 'static,
) -> (Upstream, Daemon) {
    let well = server.clone();
    let upstream = Upstream::start(move |request| match request.method() {
        found if found == method => answer(request),
        _ => well.answer(request),
    });
    let daemon = Daemon::start(&Config::new().admin().upstream("up", upstream.address, LEGACY_ONLY));
    (upstream, daemon)
}

fn tools() -> Legacy {
    Legacy::new(Offer::tools(&["echo"]))
}

/// Calls that are under way at once.
fn at_once(daemon: &Daemon) -> Vec<Connection> {
    let open = |id: usize| {
        let mut connection = daemon.connect();
        connection.write(&call(&id.to_string(), "echo").bytes());
        connection
    };
    (0..CALLS).map(open).collect()
}

fn with_progress(request: &Request) -> Request {
    request.clone().replacing(r#""_meta":{"#, r#""_meta":{"progressToken":"mine","#)
}

fn progress(token: &str, at: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{at}}}}}"#
    )
}

/// The message in the next event that holds one.
fn message(connection: &mut Connection) -> Value {
    loop {
        let event = connection.event().expect("the stream goes on");
        if let Some(data) = event.strip_prefix("data: ") {
            return serde_json::from_str(data.trim_end()).expect("JSON");
        }
    }
}

#[test]
fn a_session_that_is_lost_under_many_calls_is_opened_again_once() {
    let server = tools();
    let upstream = server.start();
    let daemon = Daemon::start(&Config::new().admin().upstream("up", upstream.address, LEGACY_ONLY));
    daemon.send(&call("1", "echo")).assert_ok();
    server.forget_sessions();
    for (id, connection) in at_once(&daemon).iter_mut().enumerate() {
        let response = connection.response();
        response.assert_ok();
        assert_eq!(response.json()["id"], id);
    }
    // The server is asked now and then how it introduces itself, in sessions that no call uses.
    let calls = upstream.received_of("tools/call");
    let used: BTreeSet<_> = calls.iter().map(|call| call.headers("mcp-session-id").join("")).collect();
    assert_eq!(used.len(), 2, "{used:?}");
    eventually("the lost one is not counted", || (sessions(&daemon) == 1).then_some(()));
}

#[test]
fn a_session_that_is_not_to_be_had_fails_for_all_who_wait() {
    let gate = Gate::default();
    let (held, is_asked) = (gate.clone(), Arc::new(AtomicBool::new(false)));
    let (server, counts) = (tools(), Arc::clone(&is_asked));
    let well = server.clone();
    let (upstream, daemon) = over(&server, "initialize", move |request| {
        if !counts.load(Ordering::SeqCst) {
            return well.answer(request);
        }
        Reply::default().wait(&held).then(Reply::http("503 Service Unavailable", "", ""))
    });
    eventually("it has introduced itself", || (server.sessions_opened() > 0).then_some(()));
    let before = upstream.received_of("initialize").len();
    is_asked.store(true, Ordering::SeqCst);
    let mut waiting = at_once(&daemon);
    let calls = "trunkline_bridge_requests_total{client_era=\"modern\",upstream=\"up\"}";
    eventually("all wait", || (sample(&daemon, calls) == CALLS as u64).then_some(()));
    gate.open();
    for (id, connection) in waiting.iter_mut().enumerate() {
        connection.response().assert_error(503, 503, Some(&id.to_string()));
    }
    assert_eq!(upstream.received_of("initialize").len() - before, 1);
    is_asked.store(false, Ordering::SeqCst);
    daemon.send(&call("7", "echo")).assert_ok();
}

#[test]
fn a_session_whose_first_client_leaves_is_there_for_the_next() {
    let gate = Gate::default();
    let (held, is_held) = (gate.clone(), Arc::new(AtomicBool::new(false)));
    let (server, holds) = (tools(), Arc::clone(&is_held));
    let well = server.clone();
    let (upstream, daemon) = over(&server, "notifications/initialized", move |request| {
        let answer = well.answer(request);
        if holds.load(Ordering::SeqCst) { Reply::default().wait(&held).then(answer) } else { answer }
    });
    let count = |method: &str| upstream.received_of(method).len();
    let is_quiet = || count("initialize") == count("notifications/initialized");
    eventually("it has introduced itself", || (server.sessions_opened() > 0 && is_quiet()).then_some(()));
    is_held.store(true, Ordering::SeqCst);
    let before = count("initialize");
    let mut leaving = daemon.connect();
    leaving.write(&call("1", "echo").bytes());
    eventually("it is half open", || (count("initialize") > before && is_quiet()).then_some(()));
    drop(leaving);
    let connections = || sample(&daemon, "trunkline_connections_open");
    eventually("the client is known to have left", || (connections() == 0).then_some(()));
    assert_eq!(sessions(&daemon), 0);
    gate.open();
    eventually("it is open nevertheless", || (sessions(&daemon) == 1).then_some(()));
    daemon.send(&call("2", "echo")).assert_ok();
    assert_eq!((sessions(&daemon), count("tools/call")), (1, 1));
}

#[test]
fn sessions_that_make_room_do_not_pile_up_before_a_server_that_hangs() {
    const SESSIONS_MAX: u64 = 40;
    const ENDING_MAX: u64 = 64;
    let server = tools();
    let upstream = Upstream::start(move |request| match request.http_method() {
        "DELETE" => Reply::silence(),
        _ => server.answer(request),
    });
    let lines = format!("{LEGACY_ONLY}\n[upstream.up.bridge]\nsessions_max = {SESSIONS_MAX}");
    let daemon = Daemon::start(&Config::new().admin().upstream("up", upstream.address, &lines));
    // Each client can do something else, so that each needs a session of its own.
    let begin = |id: u64| {
        let declared = format!(r#""io.modelcontextprotocol/clientCapabilities":{{"roots":{{"x":{id}}}}}"#);
        let none = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
        let mut connection = daemon.connect();
        connection.write(&call(&id.to_string(), "echo").replacing(none, &declared).bytes());
        connection
    };
    for round in 0..8 {
        let under_way: Vec<Connection> = (0..SESSIONS_MAX).map(|n| begin(round * SESSIONS_MAX + n)).collect();
        // Where a session is not at rest yet, there is no room, or none for one client.
        for mut connection in under_way {
            assert!([200, 429, 503].contains(&connection.response().status));
        }
        // Some may be about to end.
        let open = sessions(&daemon);
        assert!(open <= SESSIONS_MAX + ENDING_MAX + 8, "{open}");
    }
}

#[test]
fn a_session_is_lost_whatever_id_the_refusal_has() {
    let server = tools();
    let (well, is_lost) = (server.clone(), AtomicBool::new(true));
    let (upstream, daemon) = over(&server, "tools/call", move |request| {
        if is_lost.swap(false, Ordering::SeqCst) {
            return Reply::error(request, "404 Not Found", -32001, "Session not found");
        }
        well.answer(request)
    });
    daemon.send(&call("7", "echo")).assert_ok();
    let of = |call: &Received| call.headers("mcp-session-id").join("");
    let calls = upstream.received_of("tools/call");
    assert_ne!(of(&calls[0]), of(&calls[1]));
}

#[test]
fn a_server_that_learned_the_modern_era_is_found_out_by_its_refusals() {
    let (old, new) = (tools(), Offer::tools(&["echo"]));
    let has_learned = Arc::new(AtomicBool::new(false));
    let learned = Arc::clone(&has_learned);
    let upstream = Upstream::start(move |request| {
        if !learned.load(Ordering::SeqCst) {
            return old.answer(request);
        }
        match (request.http_method(), request.headers("mcp-protocol-version") == [VERSION]) {
            ("POST", true) => new.answer(request),
            ("POST", false) => Reply::error(request, "400 Bad Request", -32022, "Unsupported version"),
            _ => Reply::http("405 Method Not Allowed", "", ""),
        }
    });
    let daemon = Daemon::start(&Config::new().admin().probed("up", upstream.address, ""));
    eventually("it is known", || (daemon.send(&call("1", "echo")).status == 200).then_some(()));
    has_learned.store(true, Ordering::SeqCst);
    eventually("it is asked in its era", || daemon.send(&call("2", "echo")).json().get("result").map(|_| ()));
    let last = upstream.received_of("tools/call").pop().expect("a call");
    assert_eq!(last.headers("mcp-protocol-version"), [VERSION]);
}

#[test]
fn a_stream_is_asked_for_again_whatever_is_told_elsewhere_meanwhile() {
    let server = tools().with_streams();
    let well = server.clone();
    let kept = Arc::new(std::sync::Mutex::new(String::new()));
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => {
            *kept.lock().unwrap() = result_body(request, r#"{"content":[]}"#);
            Reply::stream().chunk("id: e1\nretry: 1500\ndata: \n\n").end()
        }
        "GET" if request.headers("last-event-id") == ["e1"] => {
            Reply::stream().event(&kept.lock().unwrap()).end()
        }
        _ => well.answer(request),
    });
    let daemon = Daemon::start(&Config::new().admin().upstream("up", upstream.address, LEGACY_ONLY));
    let mut connection = daemon.connect();
    connection.write(&with_progress(&call("7", "echo")).bytes());
    let sent = upstream.wait_for("tools/call", 1);
    let stream: Stream = eventually("the session has a stream", || {
        let mut streams = server.own_streams().into_iter();
        streams.find(|stream| stream.request.headers("mcp-session-id") == sent.headers("mcp-session-id"))
    });
    let token = literal(&sent.body, &["params", "_meta", "progressToken"]);
    for at in 0..20 {
        stream.event(&progress(&token, at));
    }
    connection.head();
    for at in 0..20 {
        let told = message(&mut connection);
        assert_eq!(told["params"], json!({"progressToken": "mine", "progress": at}), "{told}");
    }
    let last = message(&mut connection);
    assert_eq!((&last["id"], &last["result"]["resultType"]), (&json!(7), &json!("complete")), "{last}");
}

#[test]
fn a_tool_that_is_no_task_any_more_is_called_again() {
    let is_task = Arc::new(AtomicBool::new(true));
    let (wants_task, server) = (Arc::clone(&is_task), tools());
    let well = server.clone();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "initialize" => {
            let reply = json!({
                "protocolVersion": LEGACY_VERSION,
                "capabilities": {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}},
                "serverInfo": {"name": "tasks", "version": "1"},
            });
            Reply::result(request, &reply.to_string())
        }
        "tools/call" if request.json()["params"]["task"].is_null() == wants_task.load(Ordering::SeqCst) => {
            Reply::error(request, "200 OK", -32601, "Not so")
        }
        "tools/call" if wants_task.load(Ordering::SeqCst) => Reply::result(
            request,
            r#"{"task":{"taskId":"t","status":"completed","ttl":1,"pollInterval":50}}"#,
        ),
        "tasks/get" => Reply::result(request, r#"{"taskId":"t","status":"completed","ttl":1}"#),
        "tools/call" | "tasks/result" => Reply::result(request, r#"{"content":[]}"#),
        "GET" => Reply::http("405 Method Not Allowed", "", ""),
        _ if request.json().get("id").is_none() => Reply::http("202 Accepted", "", ""),
        _ => well.answer(request),
    });
    let daemon = Daemon::start(&Config::new().admin().upstream("up", upstream.address, LEGACY_ONLY));
    let mut connection = daemon.connect();
    connection.write(&call("7", "echo").bytes());
    connection.head();
    assert_eq!(message(&mut connection)["result"]["resultType"], "complete");
    is_task.store(false, Ordering::SeqCst);
    for _ in 0..2 {
        daemon.send(&call("8", "echo")).assert_ok();
    }
    // Without a task, with one; with one in vain, without; without.
    assert_eq!(upstream.received_of("tools/call").len(), 5);
}

#[test]
fn a_child_tells_of_progress_is_told_who_left_and_is_started_again() {
    let child = Child::new(&["legacy"]);
    let daemon = Daemon::start(&Config::new().admin().raw("up", &child.keys(LEGACY_ONLY)));
    let mut connection = daemon.connect();
    connection.write(&with_progress(&call("7", "progress")).bytes());
    connection.head();
    for at in 0..3 {
        assert_eq!(message(&mut connection)["params"], json!({"progressToken": "mine", "progress": at}));
    }
    assert_eq!(message(&mut connection)["id"], 7);

    let mut leaving = daemon.connect();
    leaving.write(&call("8", "hang").bytes());
    let sent = eventually("it is called", || {
        child.received("tools/call").into_iter().find(|call| call["params"]["name"] == "hang")
    });
    drop(leaving);
    let cancelled = child.wait_received("notifications/cancelled", 1);
    assert_eq!(cancelled[0]["params"]["requestId"], sent["id"]);

    let mut hanging = daemon.connect();
    hanging.write(&call("9", "hang").bytes());
    eventually("it is called", || {
        (child.received("tools/call").iter().filter(|call| call["params"]["name"] == "hang").count() == 2)
            .then_some(())
    });
    daemon.send(&call("10", "die")).assert_error(502, 502, Some("10"));
    hanging.response().assert_error(502, 502, Some("9"));
    for (id, connection) in at_once(&daemon).iter_mut().enumerate() {
        let response = connection.response();
        response.assert_ok();
        assert_eq!(response.json()["id"], id);
    }
    eventually("one session is left", || (sessions(&daemon) == 1).then_some(()));
}

#[test]
fn a_session_over_http_sse_is_shared_and_opened_again() {
    let server = http_sse::Server::new();
    let upstream = server.start();
    let lines = format!("transport = \"sse\"\n{LEGACY_ONLY}");
    let daemon = Daemon::start(&Config::new().admin().upstream("up", upstream.address, &lines));
    for _ in 0..2 {
        for (id, connection) in at_once(&daemon).iter_mut().enumerate() {
            let response = connection.response();
            response.assert_ok();
            assert_eq!(
                (&response.json()["id"], &response.json()["result"]["resultType"]),
                (&json!(id), &json!("complete"))
            );
        }
        server.cut();
        eventually("it is opened again", || (daemon.send(&call("1", "echo")).status == 200).then_some(()));
        eventually("one session is left", || (sessions(&daemon) == 1).then_some(()));
    }
}

#[test]
fn what_comes_before_a_server_is_known_waits_for_that() {
    let gate = Gate::default();
    let held = gate.clone();
    let server = Legacy::new(Offer::tools(&["echo"]).with_resources(&["file:///a"])).with_streams();
    let well = server.clone();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "server/discover" => Reply::default().wait(&held).then(well.answer(request)),
        _ => well.answer(request),
    });
    let daemon = Daemon::start(&Config::new().admin().probed("up", upstream.address, ""));
    upstream.wait_for("server/discover", 1);
    let (mut calling, mut listening) = (daemon.connect(), daemon.connect());
    let filter = r#"{"resourceSubscriptions":["file:///a"]}"#;
    let params = format!(r#"{{"notifications":{filter},"_meta":{META}}}"#);
    let listen = modern("subscriptions/listen", None, body("8", "subscriptions/listen", &params));
    listening.write(&listen.bytes());
    // It is told at the latest after a while, whatever its upstream does: what was asked for was asked for by then.
    listening.head();
    calling.write(&call("7", "echo").bytes());
    gate.open();
    calling.response().assert_ok();
    upstream.wait_for("resources/subscribe", 1);
    assert!(upstream.received_of("subscriptions/listen").is_empty());
}

#[test]
fn names_and_addresses_are_mapped_over_the_bridge() {
    const LINK: &str = r#"{"content":[{"type":"resource_link","uri":"file:///a","name":"a"}]}"#;
    let offer = Offer::tools(&["echo"]).with_prompts(&["p"]).with_resources(&["file:///a"]);
    let server = Legacy::new(offer).with_streams();
    let well = server.clone();
    let one = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::result(request, LINK),
        _ => well.answer(request),
    });
    let two = tools().start();
    let config =
        Config::new().upstream("one", one.address, LEGACY_ONLY).upstream("two", two.address, LEGACY_ONLY);
    let daemon = Daemon::start(&config);
    let called = daemon.send(&call("1", "one__echo")).json();
    assert_eq!(called["result"]["content"][0]["uri"], "one+file:///a", "{called}");
    assert_eq!(one.only_call().json()["params"]["name"], "echo");
    let read = daemon.send(&read_resource("2", "one+file:///a")).json();
    assert_eq!(read["result"]["contents"][0]["uri"], "one+file:///a", "{read}");
    let reference = r#""ref":{"type":"ref/prompt","name":"one__p"},"argument":{"name":"a","value":"b"}"#;
    let params = format!(r#"{{{reference},"_meta":{META}}}"#);
    let completing = modern("completion/complete", None, body("3", "completion/complete", &params));
    daemon.send(&completing).assert_ok();
    assert_eq!(one.wait_for("completion/complete", 1).json()["params"]["ref"]["name"], "p");

    let mut listening = daemon.connect();
    let filter = r#"{"resourceSubscriptions":["one+file:///a"]}"#;
    let params = format!(r#"{{"notifications":{filter},"_meta":{META}}}"#);
    let listen = modern("subscriptions/listen", None, body("4", "subscriptions/listen", &params));
    listening.write(&listen.bytes());
    listening.head();
    let acknowledged = message(&mut listening);
    assert_eq!(
        acknowledged["params"]["notifications"],
        serde_json::from_str::<Value>(filter).expect("JSON"),
        "{acknowledged}"
    );
    let subscribed = one.wait_for("resources/subscribe", 1);
    assert_eq!(subscribed.json()["params"]["uri"], "file:///a");
    let stream: Stream = eventually("the session has a stream", || {
        let of = |stream: &Stream| stream.request.headers("mcp-session-id").join("");
        server
            .own_streams()
            .into_iter()
            .find(|stream| of(stream) == subscribed.headers("mcp-session-id").join(""))
    });
    stream.event(
        r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a"}}"#,
    );
    assert_eq!(message(&mut listening)["params"]["uri"], "one+file:///a");
    assert!(two.received_of("resources/subscribe").is_empty());
}
