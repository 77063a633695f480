//! Bridged calls whose server only says that it is there, ends its streams, forgets a session, or fails.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{
    Config, Connection, Daemon, Gate, LEGACY_VERSION, Legacy, Offer, Received, Reply, Stream, Upstream,
    call_as, eventually, in_session, legacy, literal, open_session, result_body, side_by_side,
};

const LEGACY: &str = "eras = [\"legacy\"]\n";
const NOBODY: &str = "{}";
const EVERYTHING: &str = r#"{"sampling":{},"elicitation":{},"roots":{}}"#;
const DONE: &str = r#"{"content":[{"type":"text","text":"done"}]}"#;

/// A legacy server that answers this method so, as often as it answers it at all, and all else without mistakes.
fn over(
    server: &Legacy,
    method: &'static str,
    answer: impl Fn(&Received) -> Option<Reply> + Send + Sync + 'static,
) -> Upstream {
    let well = server.clone();
    Upstream::start(move |request| match request.method() {
        found if found == method => answer(request).unwrap_or_else(|| well.answer(request)),
        _ => well.answer(request),
    })
}

fn tools() -> Legacy {
    Legacy::new(Offer::tools(&["echo"]))
}

fn daemon(upstream: &Upstream, lines: &str) -> Daemon {
    Daemon::start(&Config::new().admin().upstream("up", upstream.address, &format!("{LEGACY}{lines}")))
}

/// The last message of a stream.
#[track_caller]
fn last(connection: &mut Connection) -> Value {
    let head = connection.head();
    assert_eq!(head.header("content-type"), Some("text/event-stream"), "{head:?}");
    let mut last = None;
    while let Some(event) = connection.event() {
        last = event.strip_prefix("data: ").map(str::to_owned).or(last);
    }
    serde_json::from_str(last.expect("a message").trim_end()).expect("JSON")
}

#[test]
fn a_server_that_only_says_that_it_is_there_is_waited_for() {
    // A comment in every tenth of a second, for more than three.
    let comments = "3\r\n:\n\n\r\n".repeat(40);
    let upstream = over(&tools(), "tools/call", move |request| {
        let alive = Reply::stream().then(Reply::drip(comments.clone(), Duration::from_millis(10)));
        Some(alive.event(&result_body(request, DONE)).end())
    });
    let daemon = daemon(&upstream, "stream_idle_timeout = \"700ms\"\n");
    side_by_side([NOBODY, EVERYTHING], |capabilities| {
        let answer = last(&mut daemon.begin(&call_as("1", capabilities)));
        assert_eq!(answer["result"]["content"][0]["text"], "done", "{capabilities}: {answer}");
    });
}

#[test]
fn a_session_is_lost_whatever_id_the_refusal_has() {
    for capabilities in [NOBODY, EVERYTHING] {
        let count = AtomicUsize::new(0);
        let upstream = over(&tools(), "tools/call", move |request| {
            let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
            is_first.then(|| Reply::error(request, "404 Not Found", -32001, "Session not found"))
        });
        let daemon = daemon(&upstream, "");
        daemon.send(&call_as("1", capabilities)).assert_ok();
        assert_eq!(upstream.received_of("tools/call").len(), 2, "{capabilities}");
    }
}

#[test]
fn a_request_that_its_server_cannot_stand_is_sent_once() {
    for capabilities in [NOBODY, EVERYTHING] {
        let server = tools();
        let upstream = over(&server, "tools/call", |_| Some(Reply::http("400 Bad Request", "", "")));
        let daemon = daemon(&upstream, "");
        daemon.send(&call_as("1", capabilities)).assert_error(502, 502, Some("1"));
        assert_eq!(upstream.received_of("tools/call").len(), 1, "{capabilities}");
    }
}

#[test]
fn a_session_that_is_refused_as_a_bad_request_is_opened_again() {
    for capabilities in [NOBODY, EVERYTHING] {
        let server = tools();
        let well = server.clone();
        let upstream = Upstream::start(move |request| {
            let is_known = well.open_sessions().iter().any(|id| request.headers("mcp-session-id") == [id]);
            if is_known || request.headers("mcp-session-id").is_empty() {
                return well.answer(request);
            }
            Reply::http("400 Bad Request", "", "")
        });
        let daemon = daemon(&upstream, "");
        daemon.send(&call_as("1", capabilities)).assert_ok();
        server.forget_sessions();
        daemon.send(&call_as("2", capabilities)).assert_ok();
        assert_eq!(upstream.received_of("tools/call").len(), 3, "{capabilities}");
    }
}

#[test]
fn a_reply_that_comes_in_many_streams_is_heard_to_its_end() {
    const STREAMS: usize = 12;
    let event = |number: usize| format!("id: e{number}\nretry: 10\ndata:\n\n");
    let kept = Arc::new(Mutex::new(String::new()));
    let well = tools();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => {
            *kept.lock().unwrap() = result_body(request, DONE);
            Reply::stream().chunk(&event(0)).end()
        }
        "GET" => match request.headers("last-event-id").first() {
            None => Reply::http("405 Method Not Allowed", "", ""),
            Some(last) => {
                let number: usize = last[1..].parse().expect("a number");
                let more = Reply::stream().chunk(&event(number + 1));
                if number < STREAMS { more.end() } else { more.event(&kept.lock().unwrap()).end() }
            }
        },
        _ => well.answer(request),
    });
    let daemon = daemon(&upstream, "");
    for capabilities in [NOBODY, EVERYTHING] {
        let response = daemon.send(&call_as("1", capabilities));
        response.assert_ok();
        assert_eq!(response.json()["result"]["content"][0]["text"], "done", "{capabilities}");
    }
}

/// A server that answers the GETs of clients' sessions so, by their number, until it has no more to say to them; then
/// there is a stream.
fn with_gets(
    answer: impl Fn(usize, &Received) -> Option<Reply> + Send + Sync + 'static,
) -> (Legacy, Upstream, Arc<Mutex<Vec<Stream>>>) {
    let (server, streams) = (tools(), Arc::<Mutex<Vec<Stream>>>::default());
    let (well, opened, count) = (server.clone(), Arc::clone(&streams), AtomicUsize::new(0));
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::stream().wait(&Gate::default()),
        "GET" if !well.is_own(request) => answer(count.fetch_add(1, Ordering::SeqCst), request)
            .unwrap_or_else(|| {
                let (stream, bytes) = Stream::answering(request);
                opened.lock().unwrap().push(stream);
                Reply::stream().pipe(bytes)
            }),
        _ => well.answer(request),
    });
    (server, upstream, streams)
}

/// A question on the stream of its session reaches the client of the call.
#[track_caller]
fn assert_heard(connection: &mut Connection, streams: &Mutex<Vec<Stream>>) {
    let stream = eventually("there is a stream", || streams.lock().unwrap().first().cloned());
    stream.event(r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#);
    let asked = connection.response().json();
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
}

#[test]
fn the_stream_of_a_session_is_opened_again_as_often_as_it_ends() {
    let (_server, upstream, streams) =
        with_gets(|number, _| (number < 20).then(|| Reply::stream().chunk("retry: 10\n: here\n\n").end()));
    let daemon = daemon(&upstream, "");
    let mut connection = daemon.begin(&call_as("1", EVERYTHING));
    assert_heard(&mut connection, &streams);
}

#[test]
fn the_stream_of_a_session_goes_on_without_an_event_that_its_server_forgot() {
    let (_server, upstream, streams) = with_gets(|number, request| match number {
        0 => Some(Reply::stream().chunk("id: e1\nretry: 10\ndata:\n\n").end()),
        _ if request.headers("last-event-id").is_empty() => None,
        _ => Some(Reply::http("400 Bad Request", "", "")),
    });
    let daemon = daemon(&upstream, "");
    let mut connection = daemon.begin(&call_as("1", EVERYTHING));
    assert_heard(&mut connection, &streams);
}

#[test]
fn the_stream_of_a_shared_session_is_opened_again_when_its_server_says() {
    let server = tools();
    let well = server.clone();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "GET" => Reply::stream().chunk("retry: 10\n: here\n\n").end(),
        _ => well.answer(request),
    });
    let daemon = daemon(&upstream, "");
    daemon.send(&call_as("1", NOBODY)).assert_ok();
    let session = upstream.only_call().headers("mcp-session-id").join("");
    eventually("it is opened again and again", || {
        let of = |get: &Received| get.headers("mcp-session-id") == [&session];
        (upstream.received_of("GET").iter().filter(|get| of(get)).count() >= 20).then_some(())
    });
}

/// A bridged call fails, and is sent no more.
#[track_caller]
fn assert_counted(config: &Config, upstream: &Upstream, send: impl Fn(&Daemon, &str) -> Value) {
    let daemon = Daemon::start(config);
    assert_eq!(send(&daemon, "1")["error"]["code"], 502);
    assert_eq!(send(&daemon, "2")["error"]["code"], 503);
    assert_eq!(upstream.received_of("tools/call").len(), 1);
}

#[test]
fn bridged_calls_that_fail_count_as_failures_of_their_server() {
    type Failing = fn() -> Reply;
    let failing: [(&str, Failing); 3] = [
        ("an error of its own", || Reply::json("500 Internal Server Error", r#"{"detail":"no"}"#)),
        ("an end without an answer", || Reply::stream().chunk(": here\n\n").end()),
        ("a stream that breaks off", || Reply::stream().chunk(": here\n\n").reset()),
    ];
    let lines = "health = { interval = \"0s\" }\nbreaker = { failures_max = 1, open_time = \"1m\" }";
    let config = |upstream: &Upstream, era: &str| {
        let lines = format!("eras = [\"{era}\"]\n{lines}");
        Config::new().top("workers = 1").upstream("up", upstream.address, &lines)
    };
    for (what, fails) in failing {
        for capabilities in [NOBODY, EVERYTHING] {
            println!("{what}, {capabilities}");
            let upstream = over(&tools(), "tools/call", move |_| Some(fails()));
            assert_counted(&config(&upstream, "legacy"), &upstream, |daemon, id| {
                daemon.send(&call_as(id, capabilities)).json()
            });
        }
        println!("{what}, a modern server");
        let upstream = Upstream::calling(move |_| fails());
        let session = Mutex::new(None);
        assert_counted(&config(&upstream, "modern"), &upstream, |daemon, id| {
            let mut session = session.lock().unwrap();
            let session = session.get_or_insert_with(|| open_session(daemon.address(), LEGACY_VERSION).0);
            let request = legacy(id, "tools/call", r#"{"name":"echo","arguments":{}}"#);
            let response = daemon.send(&in_session(session, request));
            match response.header("content-type") {
                Some("text/event-stream") => {
                    let text = response.text();
                    let last = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
                    serde_json::from_str(last.expect("a message")).expect("JSON")
                }
                _ => response.json(),
            }
        });
    }
}

#[test]
fn a_client_learns_why_its_call_failed_after_a_stream_began() {
    let upstream = over(&tools(), "tools/call", |request| {
        let token = literal(&request.body, &["params", "_meta", "progressToken"]);
        let params = format!(r#"{{"progressToken":{token},"progress":1}}"#);
        let progress = format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#);
        let question = r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#;
        Some(Reply::stream().event(&progress).event(question).wait(&Gate::default()))
    });
    let daemon = daemon(&upstream, "bridge = { suspended_calls_max = 0 }\n");
    let request = call_as("1", EVERYTHING).replacing(r#""_meta":{"#, r#""_meta":{"progressToken":"mine","#);
    let failed = last(&mut daemon.begin(&request));
    assert_eq!(failed["error"]["code"], 503, "{failed}");
}

#[test]
fn a_task_is_looked_at_as_seldom_as_its_server_wants_and_its_client_kept() {
    let server = tools();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "initialize" => {
            let reply = json!({
                "protocolVersion": LEGACY_VERSION,
                "capabilities": {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}},
                "serverInfo": {"name": "tasks", "version": "1"},
            });
            Reply::result(request, &reply.to_string())
        }
        "tools/call" if request.json()["params"]["task"].is_null() => {
            Reply::error(request, "200 OK", -32601, "Task augmentation required")
        }
        "tools/call" => Reply::result(
            request,
            r#"{"task":{"taskId":"t","status":"working","ttl":60000,"pollInterval":2000}}"#,
        ),
        "tasks/get" => Reply::result(request, r#"{"taskId":"t","status":"completed","ttl":60000}"#),
        "tasks/result" => Reply::result(request, DONE),
        "GET" => Reply::http("405 Method Not Allowed", "", ""),
        _ if request.json().get("id").is_none() => Reply::http("202 Accepted", "", ""),
        _ => server.answer(request),
    });
    let daemon = daemon(&upstream, "stream_idle_timeout = \"700ms\"\n");
    let answer = last(&mut daemon.begin(&call_as("1", NOBODY)));
    assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}");
    assert_eq!(upstream.received_of("tasks/get").len(), 1);
}
