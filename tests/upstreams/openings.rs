//! The opening of sessions with upstreams: its revision, the answers that count as accepted, the messages where it
//! fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::http_sse::Server as SseServer;
use crate::harness::{
    Child, Config, Daemon, Gate, LEGACY_VERSION, Legacy, Offer, Received, Reply, Request, Response, Upstream,
    call, call_as, eventually, in_session, legacy, legacy_call, list, open_session, result_body, tool_names,
};

const SSE: &str = "transport = \"sse\"\neras = [\"legacy\"]\n";

type Answer = Box<dyn Fn(&Received) -> Reply + Send + Sync>;

/// A server that makes no mistakes until it is spoilt; from then on it answers `initialize` like this.
struct Spoilt {
    upstream: Upstream,
    is_spoilt: Arc<AtomicBool>,
}

impl Spoilt {
    fn new(answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        let server = Legacy::new(Offer::tools(&["echo"]));
        let is_spoilt = Arc::<AtomicBool>::default();
        let spoilt = Arc::clone(&is_spoilt);
        let upstream = Upstream::start(move |request| match request.method().as_str() {
            "initialize" if spoilt.load(Ordering::SeqCst) => answer(request),
            _ => server.answer(request),
        });
        Self { upstream, is_spoilt }
    }
}

fn message(response: &Response) -> String {
    response.json()["error"]["message"].as_str().expect("an error").to_owned()
}

/// The calls of each kind of client: of one with a session, of one without, and of one that can be asked.
fn calls(daemon: &Daemon) -> Vec<Request> {
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    vec![
        in_session(&session, legacy_call("1", "echo")),
        call("2", "echo"),
        call_as("3", r#"{"elicitation":{}}"#),
    ]
}

#[test]
fn a_call_for_which_no_session_was_opened_is_told_so() {
    let rpc = |request: &Received| Reply::error(request, "200 OK", -32603, "database is down");
    let cases: Vec<(Answer, &str)> = vec![
        (Box::new(|_| Reply::default().reset()), "closed the connection"),
        (Box::new(|_| Reply::http("500 Internal Server Error", "", "oops")), "HTTP 500"),
        (Box::new(|_| Reply::http("404 Not Found", "", "not here")), "HTTP 404"),
        (Box::new(|_| Reply::silence()), "did not answer in time"),
        (Box::new(rpc), "error -32603, database is down"),
        (Box::new(|_| Reply::json("200 OK", "{}")), "not valid MCP"),
        (
            Box::new(|_| Reply::http("200 OK", "Content-Type: text/html; charset=utf-8\r\n", "<html>")),
            "answered with `text/html; charset=utf-8`",
        ),
        (
            Box::new(|request| {
                Reply::result(
                    request,
                    r#"{"protocolVersion":"2099-01-01","capabilities":{},"serverInfo":{}}"#,
                )
            }),
            "revision 2099-01-01, of which this gateway opens none",
        ),
        (
            Box::new(|_| {
                Reply::http("307 Temporary Redirect", "Location: https://x.example/mcp?k=1\r\n", "")
            }),
            "HTTP 307, a redirect to https://x.example/mcp?…,",
        ),
        (Box::new(|_| Reply::http("421 Misdirected Request", "", "")), "does not accept the Host"),
        (
            Box::new(|_| {
                Reply::http("200 OK", "Content-Type: application/json\r\nContent-Encoding: gzip\r\n", "x")
            }),
            "content coding `gzip`",
        ),
    ];
    for (answer, expected) in cases {
        let server = Spoilt::new(answer);
        let lines = "eras = [\"legacy\"]\nresponse_timeout = \"1s\"\nfirst_byte_timeout = \"1s\"\n";
        let daemon = Daemon::start(&Config::new().upstream("up", server.upstream.address, lines));
        server.is_spoilt.store(true, Ordering::SeqCst);
        for request in calls(&daemon) {
            let told = message(&daemon.send(&request));
            assert!(told.contains(expected) && told.contains("not executed"), "{expected}: {told}");
            assert!(!told.contains("outcome"), "{told}");
        }
        assert_eq!(server.upstream.received_of("tools/call").len(), 0);
    }
}

#[test]
fn the_same_over_a_child_process_and_over_http_sse() {
    let child = Child::new(&["dies-in-initialize"]);
    let sse = Upstream::start(|_| Reply::http("500 Internal Server Error", "", ""));
    let over_sse = Config::new().upstream("up", sse.address, SSE);
    for config in [Config::new().raw("up", &child.keys("eras = [\"legacy\"]\n")), over_sse] {
        let daemon = Daemon::start(&config);
        for request in calls(&daemon) {
            let told = message(&daemon.send(&request));
            assert!(told.contains("not executed") && !told.contains("outcome"), "{config}: {told}");
        }
    }
}

#[test]
fn the_log_of_a_list_says_nothing_of_a_call() {
    let server = Spoilt::new(|_| Reply::default().reset());
    server.is_spoilt.store(true, Ordering::SeqCst);
    let config = Config::legacy(&server.upstream).section("[log]\nlevel = \"debug\"");
    let daemon = Daemon::start(&config);
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    for request in [in_session(&session, legacy("1", "tools/list", "{}")), list("2", "tools/list")] {
        let told = message(&daemon.send(&request));
        assert!(!told.contains("of the call") && !told.contains("the call was"), "{told}");
    }
    daemon.wait_for_log(0, "the list fails", |line| line.contains("call failed"));
    let log = daemon.log();
    let wrong = log.iter().find(|line| line.contains("outcome of the call"));
    assert_eq!(wrong, None);
}

/// A server that refuses every revision but these, in this way.
fn choosy(
    taken: &'static [&'static str],
    refusal: impl Fn(&Received, &str) -> Reply + Send + Sync + 'static,
) -> Upstream {
    let server = Legacy::new(Offer::tools(&["echo"])).version("2025-06-18");
    Upstream::start(move |request| {
        if request.method() == "initialize" {
            let asked = request.json()["params"]["protocolVersion"].as_str().expect("a version").to_owned();
            if !taken.contains(&asked.as_str()) {
                return refusal(request, &asked);
            }
        }
        server.answer(request)
    })
}

fn refused(request: &Received, status: &str, error: &Value) -> Reply {
    let body = json!({"jsonrpc": "2.0", "id": request.json()["id"], "error": error});
    Reply::json(status, &body.to_string())
}

#[test]
fn a_server_that_refuses_a_revision_is_offered_the_one_that_it_names_or_the_next_older_one() {
    let named = |request: &Received, asked: &str| {
        let data = json!({"supported": ["2024-11-05", "2025-06-18"], "requested": asked});
        refused(
            request,
            "200 OK",
            &json!({"code": -32602, "message": "Unsupported protocol version", "data": data}),
        )
    };
    let named_in_400 = |request: &Received, asked: &str| {
        let data = json!({"supported": ["2025-03-26"], "requested": asked});
        refused(request, "400 Bad Request", &json!({"code": -32602, "message": "no", "data": data}))
    };
    let unnamed = |_: &Received, _: &str| {
        let body = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Unsupported protocol version"},"id":null}"#;
        Reply::json("400 Bad Request", body)
    };
    let servers: [(Upstream, &[&str]); 3] = [
        (choosy(&["2024-11-05", "2025-06-18"], named), &["2025-11-25", "2025-06-18"]),
        (choosy(&["2025-03-26"], named_in_400), &["2025-11-25", "2025-03-26"]),
        (choosy(&["2025-03-26"], unnamed), &["2025-11-25", "2025-06-18", "2025-03-26"]),
    ];
    for (upstream, offered) in servers {
        let daemon = Daemon::start(&Config::legacy(&upstream));
        for request in calls(&daemon) {
            daemon.send(&request).assert_ok();
        }
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        let tools = daemon.send(&in_session(&session, legacy("4", "tools/list", "{}")));
        assert_eq!(tool_names(&tools), ["echo"]);
        daemon.send(&in_session(&session, legacy_call("5", "echo"))).assert_ok();
        let versions: Vec<String> = upstream
            .received_of("initialize")
            .iter()
            .map(|request| request.json()["params"]["protocolVersion"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(versions[..offered.len()], *offered, "{versions:?}");
        let last = offered.last().unwrap();
        let again = versions.iter().filter(|version| *version == last).count();
        // The gateway asks for the eras anew whenever it must, and remembers what was found for everything else.
        assert!(again > versions.len() / 2, "{versions:?}");
    }
}

#[test]
fn no_revision_is_tried_where_the_server_refuses_for_another_reason() {
    let server = Spoilt::new(|request| Reply::error(request, "200 OK", -32603, "database is down"));
    let daemon = Daemon::start(&Config::legacy(&server.upstream));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    server.is_spoilt.store(true, Ordering::SeqCst);
    let before = server.upstream.received_of("initialize").len();
    let told = message(&daemon.send(&in_session(&session, legacy_call("1", "echo"))));
    assert!(told.contains("database is down"), "{told}");
    let named = |request: &&Received| request.json()["params"]["clientInfo"]["name"] == "blackbox";
    let asked = server.upstream.received_of("initialize");
    assert_eq!(asked[before..].iter().filter(named).count(), 1);
}

/// Answers to a message that has none.
fn acceptances() -> Vec<(&'static str, Reply)> {
    vec![
        ("open stream", Reply::stream()),
        ("empty stream", Reply::stream().end()),
        ("stream with a comment", Reply::stream().chunk(": hello\n\n")),
        ("200 with an object", Reply::json("200 OK", "{}")),
        ("204", Reply::http("204 No Content", "", "")),
        ("202 with text", Reply::http("202 Accepted", "Content-Type: text/plain\r\n", "Accepted")),
        (
            "unfinished body",
            Reply::raw("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\nA"),
        ),
    ]
}

#[test]
fn any_success_accepts_a_message_without_an_answer() {
    for (name, acceptance) in acceptances() {
        let server = Legacy::new(Offer::tools(&["echo"]));
        let told = Arc::<Mutex<Vec<String>>>::default();
        let (answering, hears) = (server.clone(), Arc::clone(&told));
        let upstream = Upstream::start(move |request| {
            let method = request.method();
            if method.starts_with("notifications/") {
                hears.lock().unwrap().push(method);
                return acceptance.clone();
            }
            answering.answer(request)
        });
        let daemon = Daemon::start(&Config::legacy(&upstream));
        for request in calls(&daemon) {
            daemon.send(&request).assert_ok();
        }
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        daemon.send(&in_session(&session, legacy_call("4", "echo"))).assert_ok();
        let tools = daemon.send(&in_session(&session, legacy("5", "tools/list", "{}")));
        assert_eq!(tool_names(&tools), ["echo"], "{name}");
        // More than may be on their way at once: none of them is waited for.
        for number in 0..40 {
            let progress = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/roots/list_changed","params":{{"n":{number}}}}}"#
            );
            crate::harness::tell(&daemon, &session, &progress);
        }
        eventually(&format!("{name}: all is told"), || {
            let told = told.lock().unwrap();
            (told.iter().filter(|method| method.contains("roots")).count() == 40).then_some(())
        });
    }
}

#[test]
fn the_same_over_http_sse() {
    for (name, acceptance) in acceptances() {
        let server = SseServer::replying(move |request| {
            request.method().starts_with("notifications/").then(|| acceptance.clone())
        });
        let upstream = server.start();
        let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, SSE));
        for request in calls(&daemon) {
            let answer = daemon.send(&request);
            assert_eq!(answer.status, 200, "{name}: {}", answer.text());
            assert!(answer.text().contains("\"result\""), "{name}: {}", answer.text());
        }
    }
}

#[test]
fn a_server_that_pings_before_it_answers_is_answered() {
    const PING: &str = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
    let server = Legacy::new(Offer::tools(&["echo"]));
    let gates = Mutex::<Vec<Gate>>::default();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "initialize" => {
            let (gate, opened) = (Gate::default(), server.answer(request));
            gates.lock().unwrap().push(gate.clone());
            let session = opened.header("mcp-session-id").expect("a session");
            let result = json!({
                "protocolVersion": LEGACY_VERSION, "capabilities": {"tools": {}},
                "serverInfo": {"name": "pinging", "version": "1"},
            });
            let answer = result_body(request, &result.to_string());
            Reply::stream_with(&format!("Mcp-Session-Id: {session}\r\n"))
                .event(PING)
                .wait(&gate)
                .event(&answer)
                .end()
        }
        "" if request.json()["id"] == "p" => {
            assert!(request.json()["result"].is_object() && !request.session().is_empty(), "{request:?}");
            gates.lock().unwrap().iter().for_each(Gate::open);
            Reply::http("202 Accepted", "", "")
        }
        _ => server.answer(request),
    });
    let daemon = Daemon::start(&Config::legacy(&upstream));
    for request in calls(&daemon) {
        daemon.send(&request).assert_ok();
    }
}

#[test]
fn the_same_where_it_pings_over_http_sse() {
    let server = SseServer::saying(|request| {
        (request.method() == "initialize").then(|| r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#.to_owned())
    });
    let upstream = server.start();
    let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, SSE));
    for request in calls(&daemon) {
        assert!(daemon.send(&request).text().contains("\"result\""));
    }
    let pongs = upstream.received_of("");
    assert!(
        pongs.iter().any(|pong| pong.json()["id"] == "p" && pong.json()["result"].is_object()),
        "{pongs:?}"
    );
}
