//! Calls during which nothing happens for long: what the client gets meanwhile, so that nobody between takes the connection
//! for dead, and what that changes in the reply.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{
    Child, Config, Connection, Daemon, Gate, Http2, LEGACY_VERSION, Legacy, META, Offer, Received, Reply,
    Request, Response, Upstream, body, call, event_data, eventually, get_prompt, in_session, legacy,
    legacy_call, modern, open_session, open_session_with, post, result_body, side_by_side,
    unresponsive_address,
};

const OFTEN: &str = "[session]\nkeep_alive_interval = \"100ms\"";
const RESULT: &str = r#"{"content":[{"type":"text","text":"late"}],"resultType":"complete"}"#;

fn often(config: Config) -> Daemon {
    Daemon::start(&config.section(OFTEN))
}

/// A modern server that answers calls so, once the gate is open.
fn held(gate: &Gate, reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Upstream {
    let gate = gate.clone();
    Upstream::calling(move |request| Reply::default().wait(&gate).then(reply(request)))
}

fn result(request: &Received) -> Reply {
    Reply::result(request, RESULT)
}

/// A legacy server that answers calls so, once the gate is open.
fn held_legacy(gate: &Gate, reply: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Upstream {
    let (gate, offer) = (gate.clone(), Legacy::new(Offer::tools(&["echo"])).with_streams());
    Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::default().wait(&gate).then(reply(request)),
        _ => offer.answer(request),
    })
}

/// The head of JSON and then blanks: as many as this are read.
#[track_caller]
fn assert_blanks(connection: &mut Connection, count: usize) {
    let head = connection.head();
    assert_eq!((head.status, head.header("content-type")), (200, Some("application/json")), "{head:?}");
    assert_eq!(head.header("transfer-encoding"), Some("chunked"));
    assert_eq!(head.header("x-accel-buffering"), Some("no"));
    for _ in 0..count {
        assert_eq!(connection.piece().as_deref(), Some(&b" "[..]));
    }
}

/// The JSON that follows blanks.
#[track_caller]
fn late_json(connection: &mut Connection) -> Value {
    let rest = connection.rest().expect("a whole body");
    serde_json::from_slice(&rest)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&rest)))
}

#[track_caller]
fn assert_late(json: &Value, id: u64) {
    assert_eq!((&json["id"], &json["result"]["content"][0]["text"]), (&id.into(), &"late".into()), "{json}");
}

/// Begins a request in a session.
fn begin_in_session(daemon: &Daemon, request: Request) -> Connection {
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.begin(&in_session(&session, request))
}

#[test]
fn a_quiet_call_gets_a_head_and_blanks_and_then_its_reply() {
    type Case = (&'static str, fn(&Gate) -> Upstream, bool);
    let weather = Upstream::with_tools(&["forecast"]);
    let cases: [Case; 6] = [
        ("modern", |gate| held(gate, result), true),
        ("modern, prefixed", |gate| held(gate, result), true),
        (
            "modern, the head comes",
            |gate| {
                let gate = gate.clone();
                Upstream::calling(move |request| {
                    let body = result_body(request, RESULT);
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                        body.len()
                    );
                    Reply::raw(head).wait(&gate).then(Reply::raw(body))
                })
            },
            true,
        ),
        ("legacy", |gate| held_legacy(gate, result), false),
        ("a modern client of a legacy server", |gate| held_legacy(gate, result), true),
        ("a legacy client of a modern server", |gate| held(gate, result), false),
    ];
    side_by_side(cases, |(name, server, is_modern)| {
        let gate = Gate::default();
        let upstream = server(&gate);
        let daemon = often(match name {
            "modern, prefixed" => Config::prefixed(&upstream, &weather),
            "legacy" | "a modern client of a legacy server" => Config::legacy(&upstream),
            _ => Config::transparent(&upstream),
        });
        let tool = if name == "modern, prefixed" { "files__echo" } else { "echo" };
        let mut connection = if is_modern {
            daemon.begin(&call("7", tool))
        } else {
            begin_in_session(&daemon, legacy_call("7", tool))
        };
        assert_blanks(&mut connection, 2);
        gate.open();
        assert_late(&late_json(&mut connection), 7);
        // The connection is still good.
        connection.write(&call("8", tool).method("PUT").bytes());
        assert_eq!(connection.response().status, 405, "{name}");
    });
}

#[test]
fn each_quiet_call_of_a_connection_gets_its_blanks() {
    side_by_side([false, true], |is_bridged| {
        // Every second call is held.
        let gates: [Gate; 2] = Default::default();
        let (held, calls) = (gates.clone(), AtomicUsize::new(0));
        let reply = move |request: &Received| match calls.fetch_add(1, Ordering::Relaxed) {
            call if call % 2 == 0 => result(request),
            call => Reply::default().wait(&held[call / 2]).then(result(request)),
        };
        let offer = Legacy::new(Offer::tools(&["echo"]));
        let upstream = if is_bridged {
            Upstream::start(move |request| match request.method().as_str() {
                "tools/call" => reply(request),
                _ => offer.answer(request),
            })
        } else {
            Upstream::calling(reply)
        };
        let config = if is_bridged { Config::legacy(&upstream) } else { Config::transparent(&upstream) };
        let daemon = often(config);
        let mut connection = daemon.connect();
        for (gate, id) in gates.iter().zip([1, 3]) {
            connection.write(&call(&id.to_string(), "echo").bytes());
            assert_eq!(connection.response().json()["id"], id);
            connection.write(&call(&(id + 1).to_string(), "echo").bytes());
            assert_blanks(&mut connection, 2);
            gate.open();
            assert_late(&late_json(&mut connection), id + 1);
        }
    });
}

#[test]
fn a_quiet_call_over_http2_gets_a_head_and_blanks() {
    let gate = Gate::default();
    let upstream = held(&gate, result);
    let daemon = often(Config::transparent(&upstream));
    let mut client = Http2::connect(daemon.address());
    let (head, mut body) = client.open(&call("7", "echo"));
    assert_eq!((head.status, head.header("content-type")), (200, Some("application/json")), "{head:?}");
    assert_eq!((head.header("content-length"), head.header("x-accel-buffering")), (None, Some("no")));
    assert_eq!(client.next(&mut body).as_deref(), Some(&b" "[..]));
    gate.open();
    let mut rest = Vec::new();
    while let Some(piece) = client.next(&mut body) {
        rest.extend_from_slice(&piece);
    }
    assert_late(&serde_json::from_slice(&rest).expect("JSON"), 7);
}

#[test]
fn the_status_of_a_late_reply_stands_in_its_error() {
    fn error(request: &Received, status: &str, headers: &str, error: &str) -> Reply {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, request.id());
        Reply::http(status, &format!("Content-Type: application/json\r\n{headers}"), &body)
    }
    type Case = (&'static str, fn(&Received) -> Reply, i64, u64, Option<u64>);
    let cases: [Case; 6] = [
        ("busy", |_| Reply::http("503 Service Unavailable", "Retry-After: 2\r\n", ""), 503, 503, Some(2000)),
        ("nonsense", |_| Reply::http("500 Internal Server Error", "", ""), 502, 502, None),
        (
            "a capability",
            |request| {
                let told =
                    r#"{"code":-32021,"message":"no","data":{"requiredCapabilities":{"sampling":{}}}}"#;
                error(request, "400 Bad Request", "", told)
            },
            -32021,
            400,
            None,
        ),
        (
            "a method",
            |request| error(request, "404 Not Found", "", r#"{"code":-32601,"message":"no"}"#),
            -32601,
            404,
            None,
        ),
        (
            "its own limit",
            |request| {
                error(request, "429 Too Many Requests", "Retry-After: 3\r\n", r#"{"code":-1,"message":"no"}"#)
            },
            -1,
            429,
            Some(3000),
        ),
        ("it breaks off", |_| Reply::default().reset(), 502, 502, None),
    ];
    side_by_side(cases, |(name, reply, code, status, retry_after_ms)| {
        let gate = Gate::default();
        let upstream = held(&gate, reply);
        let daemon = often(Config::transparent(&upstream));
        let mut connection = daemon.begin(&call("7", "echo"));
        assert_blanks(&mut connection, 1);
        gate.open();
        let json = late_json(&mut connection);
        let error = &json["error"];
        assert_eq!((&json["id"], &error["code"]), (&7.into(), &code.into()), "{name}: {json}");
        assert_eq!(error["data"]["httpStatus"], status, "{name}: {json}");
        assert_eq!(error["data"]["retryAfterMs"].as_u64(), retry_after_ms, "{name}: {json}");
        if name == "a capability" {
            assert!(error["data"]["requiredCapabilities"]["sampling"].is_object(), "{json}");
        }
    });
}

#[test]
fn nothing_begins_before_the_server_is_sent_the_call() {
    let gate = Gate::default();
    let upstream = held(&gate, result);
    let busy = Config::new().upstream("up", upstream.address, "calls_max = 1\ncalls_wait_max = \"1s\"");
    let busy = often(busy);
    let mut first = busy.begin(&call("1", "echo"));
    assert_blanks(&mut first, 1);
    // While it waits for its place, the first gets blanks.
    let mut second = busy.begin(&call("2", "echo"));
    assert_eq!(second.response().status, 429);
    gate.open();
    assert_late(&late_json(&mut first), 1);
    let (deaf, _held) = unresponsive_address();
    let deaf = often(Config::new().upstream("up", deaf, "connect_timeout = \"500ms\""));
    let refused = deaf.send(&call("3", "echo"));
    assert!(refused.status >= 502, "{refused:?}");
}

#[test]
fn a_request_is_sent_again_while_nothing_but_blanks_was_written() {
    let gate = Gate::default();
    let held = gate.clone();
    let offer = Offer::tools(&["echo"]).with_prompts(&["greet"]);
    let upstream =
        Upstream::start(move |request| match (request.method().as_str(), request.client_id().as_str()) {
            // On the connection that had been idle.
            ("prompts/get", "2") if request.connection == 0 => Reply::default().wait(&held).reset(),
            ("prompts/get", _) => Reply::result(request, r#"{"messages":[],"resultType":"complete"}"#),
            _ => offer.answer(request),
        });
    let daemon = often(Config::transparent(&upstream).top("workers = 1"));
    daemon.send(&get_prompt("1", "greet")).assert_ok();
    let mut connection = daemon.begin(&get_prompt("2", "greet"));
    assert_blanks(&mut connection, 1);
    gate.open();
    let json = late_json(&mut connection);
    assert!(json["result"]["messages"].is_array(), "{json}");
    assert_eq!(upstream.received_of("prompts/get").len(), 3);
}

#[test]
fn replies_are_let_be_where_they_are_to_be() {
    let gate = Gate::default();
    let upstream = held(&gate, result);
    let never =
        Daemon::start(&Config::transparent(&upstream).section("[session]\nkeep_alive_interval = \"0s\""));
    let often = often(Config::transparent(&upstream));
    let mut whole = never.begin(&call("1", "echo"));
    let old =
        String::from_utf8(call("2", "echo").bytes()).expect("text").replace(" HTTP/1.1\r\n", " HTTP/1.0\r\n");
    let mut of_old = often.connect();
    of_old.write(old.as_bytes());
    upstream.wait_for("tools/call", 2);
    // Time passes.
    let mut chunked = often.begin(&call("3", "echo"));
    assert_blanks(&mut chunked, 3);
    gate.open();
    for connection in [&mut whole, &mut of_old] {
        let response = connection.response();
        assert!(response.header("content-length").is_some(), "{response:?}");
        assert_eq!(response.body.first(), Some(&b'{'), "{}", response.text());
    }
}

#[test]
fn a_quiet_stream_gets_comments_between_its_events() {
    let progress =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;
    let weather = Upstream::with_tools(&["forecast"]);
    for kind in ["modern", "prefixed", "legacy"] {
        let gate = Gate::default();
        let events = {
            let gate = gate.clone();
            move |request: &Received| {
                let answer = result_body(request, RESULT);
                let (start, end) = answer.split_at(20);
                Reply::stream()
                    .event(progress)
                    .wait(&gate)
                    .chunk(&format!("data: {start}"))
                    .chunk(&format!("{end}\n\n"))
                    .end()
            }
        };
        let open = Gate::default();
        open.open();
        let upstream = if kind == "legacy" { held_legacy(&open, events) } else { held(&open, events) };
        let daemon = often(match kind {
            "modern" => Config::transparent(&upstream),
            "prefixed" => Config::prefixed(&upstream, &weather),
            _ => Config::legacy(&upstream),
        });
        let mut connection = match kind {
            "modern" => daemon.begin(&call("7", "echo")),
            "prefixed" => daemon.begin(&call("7", "files__echo")),
            _ => begin_in_session(&daemon, legacy_call("7", "echo")),
        };
        assert_eq!(connection.head().header("content-type"), Some("text/event-stream"));
        assert!(connection.event().expect("an event").contains("progressToken"));
        assert_eq!(connection.event().as_deref(), Some(":\n\n"), "{kind}");
        assert_eq!(connection.event().as_deref(), Some(":\n\n"), "{kind}");
        gate.open();
        let mut last = connection.event().expect("an event");
        while last == ":\n\n" {
            last = connection.event().expect("an event");
        }
        assert_late(&event_data(&last), 7);
    }
}

#[test]
fn a_quiet_batch_gets_comments() {
    let gate = Gate::default();
    let upstream = held_legacy(&gate, result);
    let daemon = often(Config::legacy(&upstream));
    let (session, _) = open_session(daemon.address(), "2025-03-26");
    let call = body("7", "tools/call", r#"{"name":"echo","arguments":{}}"#);
    let batch = in_session(&session, post(format!("[{call}]"))).without("MCP-Protocol-Version");
    let mut connection = daemon.begin(&batch);
    assert_eq!(connection.head().header("content-type"), Some("text/event-stream"));
    assert_eq!(connection.event().as_deref(), Some(":\n\n"));
    assert_eq!(connection.event().as_deref(), Some(":\n\n"));
    gate.open();
    let mut events = std::iter::from_fn(|| connection.event()).filter(|event| event != ":\n\n");
    assert_late(&event_data(&events.next().expect("an answer")), 7);
}

#[test]
fn an_unfinished_event_is_not_broken_by_a_comment() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |request| {
        let answer = result_body(request, RESULT);
        Reply::stream().chunk("data: ").wait(&held).chunk(&format!("{answer}\n\n")).end()
    });
    let daemon = often(Config::transparent(&upstream));
    let mut connection = daemon.begin(&call("7", "echo"));
    connection.head();
    assert_eq!(connection.piece().as_deref(), Some(&b"data: "[..]));
    // Time passes.
    let other = Gate::default();
    let waits = self::held(&other, result);
    let other_daemon = often(Config::transparent(&waits));
    assert_blanks(&mut other_daemon.begin(&call("1", "echo")), 3);
    gate.open();
    let rest = String::from_utf8(connection.rest().expect("a whole stream")).expect("text");
    assert!(rest.starts_with('{') && !rest.contains(":\n\n"), "{rest}");
}

#[test]
fn quiet_children_and_connections_get_blanks_or_events_as_was_asked() {
    side_by_side(
        [("modern", false), ("modern", true), ("legacy", false), ("legacy", true)],
        |(era, progress)| {
            let words: &[&str] = if era == "modern" { &["modern"] } else { &[] };
            let child = Child::new(words);
            let daemon = often(Config::new().raw("up", &child.keys(&format!("eras = [{era:?}]"))));
            let token = if progress { r#","_meta":{"progressToken":"t"}"# } else { "" };
            let mut connection = if era == "modern" {
                let meta =
                    if progress { META.replacen('{', r#"{"progressToken":"t","#, 1) } else { META.into() };
                let params = format!(r#"{{"name":"wait","arguments":{{}},"_meta":{meta}}}"#);
                daemon.begin(&modern("tools/call", Some("wait"), body("7", "tools/call", &params)))
            } else {
                let params = format!(r#"{{"name":"wait","arguments":{{}}{token}}}"#);
                begin_in_session(&daemon, legacy("7", "tools/call", &params))
            };
            if progress {
                assert_eq!(connection.head().header("content-type"), Some("text/event-stream"), "{era}");
                assert_eq!(connection.event().as_deref(), Some(":\n\n"));
            } else {
                assert_blanks(&mut connection, 1);
            }
            child.go_on();
            if progress {
                let mut events = std::iter::from_fn(|| connection.event()).filter(|event| event != ":\n\n");
                assert_eq!(event_data(&events.next().expect("progress"))["params"]["progressToken"], "t");
                assert_late(&event_data(&events.next().expect("an answer")), 7);
            } else {
                assert_late(&late_json(&mut connection), 7);
            }
        },
    );
}

#[test]
fn an_error_that_comes_late_on_a_stream_is_an_event() {
    let child = Child::new(&["modern"]);
    let daemon = often(Config::new().raw("up", &child.keys("eras = [\"modern\"]")));
    let meta = META.replacen('{', r#"{"progressToken":"t","#, 1);
    let params = format!(r#"{{"name":"wait","arguments":{{"dies":true}},"_meta":{meta}}}"#);
    let mut connection = daemon.begin(&modern("tools/call", Some("wait"), body("7", "tools/call", &params)));
    assert_eq!(connection.head().header("content-type"), Some("text/event-stream"));
    assert_eq!(connection.event().as_deref(), Some(":\n\n"));
    child.go_on();
    let mut events = std::iter::from_fn(|| connection.event()).filter(|event| event != ":\n\n");
    let error = event_data(&events.next().expect("an error"));
    assert_eq!((&error["id"], &error["error"]["data"]["httpStatus"]), (&7.into(), &502.into()), "{error}");
}

#[test]
fn a_stream_that_comes_late_is_its_answer_alone() {
    let progress =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#;
    let question = r#"{"jsonrpc":"2.0","id":5,"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}"#;
    for kind in ["modern", "legacy"] {
        let (gate, answered) = (Gate::default(), Gate::default());
        let events = {
            let (answered, is_legacy) = (answered.clone(), kind == "legacy");
            move |request: &Received| {
                let stream = Reply::stream().event(progress);
                let stream = if is_legacy { stream.event(question) } else { stream };
                stream.wait(&answered).event(&result_body(request, RESULT)).end()
            }
        };
        let upstream = if kind == "legacy" { held_legacy(&gate, events) } else { held(&gate, events) };
        let daemon =
            often(if kind == "legacy" { Config::legacy(&upstream) } else { Config::transparent(&upstream) });
        let mut stream = None;
        let mut connection = if kind == "legacy" {
            let session = open_session_with(daemon.address(), LEGACY_VERSION, r#"{"elicitation":{}}"#);
            let get = in_session(&session, legacy_call("1", "echo")).method("GET").body("");
            let mut events = daemon.begin(&get.set("Accept", "text/event-stream"));
            assert_eq!(events.head().status, 200);
            stream = Some(events);
            daemon.begin(&in_session(&session, legacy_call("7", "echo")))
        } else {
            daemon.begin(&call("7", "echo"))
        };
        assert_blanks(&mut connection, 1);
        gate.open();
        if let Some(stream) = &mut stream {
            // A question of the reply is asked on the stream of the session.
            let mut events = std::iter::from_fn(|| stream.event());
            events.find(|event| event.contains("elicitation/create")).expect("a question");
        }
        answered.open();
        assert_late(&late_json(&mut connection), 7);
    }
}

#[test]
fn a_client_that_leaves_a_begun_reply_cancels_the_call() {
    let gate = Gate::default();
    let upstream = held(&gate, result);
    let daemon = often(Config::transparent(&upstream));
    let mut connection = daemon.begin(&call("7", "echo"));
    assert_blanks(&mut connection, 1);
    let received = upstream.wait_for("tools/call", 1);
    drop(connection);
    upstream.wait_closed(received.connection);
    let mut client = Http2::connect(daemon.address());
    let (_, body) = client.open(&call("8", "echo"));
    let received = eventually("a second call", || upstream.received_of("tools/call").get(1).cloned());
    drop((body, client));
    upstream.wait_closed(received.connection);
}

#[test]
fn a_page_may_read_a_reply_that_began_early() {
    let gate = Gate::default();
    let upstream = held(&gate, result);
    let daemon = often(Config::transparent(&upstream));
    let mut connection = daemon.begin(&call("7", "echo").with("Origin", "http://localhost:3000"));
    let head: Response = connection.head();
    assert_eq!(head.header("access-control-allow-origin"), Some("http://localhost:3000"), "{head:?}");
    gate.open();
    assert_late(&late_json(&mut connection), 7);
}

#[test]
fn a_reply_that_began_early_is_for_no_page_of_an_earlier_call() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |request| match request.client_id().as_str() {
        "1" => result(request),
        _ => Reply::default().wait(&held).then(result(request)),
    });
    let daemon = often(Config::transparent(&upstream));
    let mut connection = daemon.connect();
    connection.write(&call("1", "echo").with("Origin", "http://localhost:3000").bytes());
    connection.response().assert_ok();
    connection.write(&call("2", "echo").bytes());
    let begun = connection.head();
    assert_eq!(begun.header("x-accel-buffering"), Some("no"), "{begun:?}");
    assert_eq!(begun.header("access-control-allow-origin"), None, "{begun:?}");
    gate.open();
    assert_late(&late_json(&mut connection), 2);
}

#[test]
fn a_call_over_http2_that_is_cancelled_after_its_head_ends_in_time() {
    let upstream = held_legacy(&Gate::default(), result);
    let daemon = Daemon::start(&Config::legacy(&upstream).section("[session]\nkeep_alive_interval = \"4s\""));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let mut client = Http2::connect(daemon.address());
    let (head, mut body) = client.open(&in_session(&session, legacy_call("7", "echo")));
    assert_eq!((head.status, head.header("x-accel-buffering")), (200, Some("no")));
    let cancelled = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    let start = Instant::now();
    assert_eq!(daemon.send(&in_session(&session, post(cancelled))).status, 202);
    let mut rest = Vec::new();
    while let Some(piece) = client.next(&mut body) {
        rest.extend_from_slice(&piece);
    }
    let json: Value = serde_json::from_slice(&rest).expect("JSON");
    assert_eq!(json["error"]["code"], -32800, "{json}");
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[test]
fn what_a_server_says_beside_a_late_answer_is_on_the_stream_of_the_session() {
    let said = r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a"}}"#;
    let gate = Gate::default();
    let upstream = held_legacy(&gate, move |request| {
        Reply::stream().event(said).event(&result_body(request, RESULT)).end()
    });
    let daemon = often(Config::legacy(&upstream));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let get = in_session(&session, legacy_call("1", "echo")).method("GET").body("");
    let mut stream = daemon.begin(&get.set("Accept", "text/event-stream"));
    assert_eq!(stream.head().status, 200);
    let mut connection = daemon.begin(&in_session(&session, legacy_call("7", "echo")));
    assert_blanks(&mut connection, 1);
    gate.open();
    assert_late(&late_json(&mut connection), 7);
    let mut events = std::iter::from_fn(|| stream.event()).take(50);
    assert!(events.any(|event| event.contains("file:///a")), "what was said");
}
