//! What is sent again after a pooled connection died, and what must not be.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::{
    Config, Daemon, Folder, LEGACY_VERSION, Legacy, META, Offer, Reply, Request, Upstream, body, call,
    call_as, in_session, legacy_call, list, modern, open_session, read_resource, tell,
};

/// A server that dies on the second request of each connection, after having read it.
fn dying() -> Upstream {
    let offer = Offer::tools(&["echo"]).with_prompts(&["greet"]);
    let on_connection: Vec<AtomicUsize> = (0..64).map(|_| AtomicUsize::new(0)).collect();
    Upstream::start(move |request| match on_connection[request.connection].fetch_add(1, Ordering::SeqCst) {
        0 => offer.answer(request),
        _ => Reply::default().reset(),
    })
}

fn one_worker(upstream: &Upstream) -> Daemon {
    Daemon::start(&Config::transparent(upstream).top("workers = 1"))
}

#[test]
fn reads_are_sent_once_more_on_a_new_connection() {
    let params = format!(r#"{{"name":"greet","_meta":{META}}}"#);
    let cases: Vec<Request> = vec![
        list("\"again\"", "tools/list"),
        list("\"again\"", "prompts/list"),
        list("\"again\"", "server/discover"),
        read_resource("\"again\"", "file:///a"),
        modern("prompts/get", Some("greet"), body("\"again\"", "prompts/get", &params)),
    ];
    for request in cases {
        println!("{}", String::from_utf8_lossy(&request.body));
        let upstream = dying();
        let daemon = one_worker(&upstream);
        daemon.send(&call("1", "echo")).assert_ok();
        let connections = upstream.connections();
        daemon.send(&request).assert_ok();
        let method = upstream.received().last().unwrap().method();
        assert_eq!(upstream.received_of(&method).len(), 2, "sent, and sent once more");
        assert_eq!(upstream.connections(), connections + 1);
    }
}

#[test]
fn a_read_is_sent_once_more_and_not_twice() {
    let offer = Offer::tools(&["echo"]);
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "resources/read" => Reply::default().reset(),
        _ => offer.answer(request),
    });
    let daemon = one_worker(&upstream);
    daemon.send(&call("1", "echo")).assert_ok();
    daemon.send(&read_resource("7", "file:///a")).assert_error(502, 502, Some("7"));
    assert_eq!(upstream.received_of("resources/read").len(), 2);
}

#[test]
fn a_call_whose_outcome_is_unknown_is_not_repeated() {
    let upstream = dying();
    let daemon = one_worker(&upstream);
    daemon.send(&call("1", "echo")).assert_ok();
    let error = daemon.send(&call("7", "echo")).assert_error(502, 502, Some("7"));
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("outcome") && message.contains("unknown"), "{message}");
    assert_eq!(upstream.received_of("tools/call").len(), 2, "the tool ran at most once per call");
    daemon.send(&call("8", "echo")).assert_ok();
}

#[test]
fn nothing_is_repeated_after_the_first_byte_of_a_reply() {
    let offer = Offer::tools(&["echo"]);
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "resources/read" => Reply::raw("HTTP/1.1 200 OK\r\nConte").reset(),
        _ => offer.answer(request),
    });
    let daemon = one_worker(&upstream);
    daemon.send(&call("1", "echo")).assert_ok();
    daemon.send(&read_resource("7", "file:///a")).assert_error(502, 502, Some("7"));
    assert_eq!(upstream.received_of("resources/read").len(), 1);
}

#[test]
fn a_pooled_connection_that_the_upstream_closed_is_not_used() {
    let upstream =
        Upstream::calling(|request| Reply::result(request, r#"{"resultType":"complete"}"#).finish());
    let daemon = one_worker(&upstream);
    for count in 0..5 {
        daemon.send(&call("1", "echo")).assert_ok();
        // The gateway has seen the end when it has closed its own half.
        upstream.wait_closed(count);
    }
    assert_eq!(upstream.received_of("tools/call").len(), 5);
}

#[test]
fn a_reply_that_says_close_is_the_last_of_its_connection() {
    let upstream = Upstream::calling(|request| {
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"resultType":"complete"}}}}"#, request.id());
        Reply::http("200 OK", "Content-Type: application/json\r\nConnection: close\r\n", &body)
    });
    let daemon = one_worker(&upstream);
    for _ in 0..3 {
        daemon.send(&call("1", "echo")).assert_ok();
    }
    let connections: Vec<usize> =
        upstream.received_of("tools/call").iter().map(|call| call.connection).collect();
    assert_eq!(connections, [0, 1, 2]);
}

/// A legacy server that resets a connection on which it accepted a message as soon as it is asked something there, as the
/// Python SDK may where a session ends while it still has the message in hand.
fn regretting() -> Upstream {
    let legacy = Legacy::new(Offer::tools(&["echo"]));
    let accepted = Mutex::<BTreeSet<usize>>::default();
    Upstream::start(move |request| {
        let mut accepted = accepted.lock().unwrap();
        if request.method().starts_with("notifications/") {
            accepted.insert(request.connection);
        } else if accepted.contains(&request.connection) {
            return Reply::default().reset();
        }
        legacy.answer(request)
    })
}

#[test]
fn a_call_does_not_take_a_connection_on_which_a_message_was_just_accepted() {
    let upstream = regretting();
    let daemon = Daemon::start(&Config::legacy(&upstream).top("workers = 1"));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    for id in ["1", "2", "3"] {
        daemon.send(&in_session(&session, legacy_call(id, "echo"))).assert_ok();
        tell(&daemon, &session, r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#);
    }
    // In a session of the gateway's own.
    daemon.send(&call("4", "echo")).assert_ok();
    assert_eq!(upstream.received_of("tools/call").len(), 4, "none was sent again");
    let told = upstream.received_of("notifications/roots/list_changed");
    let connections: BTreeSet<usize> = told.iter().map(|message| message.connection).collect();
    assert_eq!(connections.len(), 1, "messages do take it");
}

/// A legacy server that executes every call and then answers like this, whatever its session.
fn executing(server: &Legacy, status: &'static str, body: &'static str) -> Upstream {
    let server = server.clone();
    Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => Reply::json(status, body),
        _ => server.answer(request),
    })
}

#[test]
fn a_call_is_sent_once_to_a_server_that_knows_its_session_or_has_none() {
    let with_sessions = || Legacy::new(Offer::tools(&["echo"]));
    let foreign = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no such invoice"}}"#;
    for (has_sessions, status, body) in [
        (false, "404 Not Found", r#"{"error":"no such invoice"}"#),
        (false, "404 Not Found", foreign),
        (false, "400 Bad Request", r#"{"error":"no such invoice"}"#),
        (true, "404 Not Found", r#"{"error":"no such invoice"}"#),
        (true, "404 Not Found", foreign),
        (true, "400 Bad Request", foreign),
        (true, "401 Unauthorized", ""),
        (true, "409 Conflict", ""),
        (true, "502 Bad Gateway", ""),
    ] {
        let server = if has_sessions { with_sessions() } else { with_sessions().without_sessions() };
        let upstream = executing(&server, status, body);
        let daemon = Daemon::start(&Config::legacy(&upstream).admin());
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        let cases =
            [in_session(&session, legacy_call("7", "echo")), call("8", "echo"), with_elicitation("9")];
        for (count, request) in cases.iter().enumerate() {
            let answer = daemon.send(request);
            let message = answer.json()["error"]["message"].as_str().expect("an error").to_owned();
            let sent = upstream.received_of("tools/call").len();
            assert_eq!(sent, count + 1, "{status} {has_sessions} {body}: {message}");
            assert!(!message.contains("not executed"), "{status} {has_sessions}: {message}");
        }
        assert_eq!(daemon.metric("trunkline_upstream_sessions_lost_total{upstream=\"up\"}"), 0, "{status}");
    }
}

/// A call of a client that can be asked.
fn with_elicitation(id: &str) -> Request {
    call_as(id, r#"{"elicitation":{}}"#)
}

#[test]
fn a_call_that_no_door_refused_is_not_sent_again_with_another_token() {
    let read = read_resource("7", "file:///a");
    let challenge = "WWW-Authenticate: Bearer\r\n";
    for (challenge, request, sent) in
        [("", call("7", "echo"), 1), (challenge, call("7", "echo"), 2), ("", read, 2)]
    {
        let issuer = Upstream::taking_anything(|_| {
            Reply::json("200 OK", r#"{"access_token":"t","token_type":"Bearer","expires_in":3600}"#)
        });
        let offer = Offer::tools(&["echo"]);
        let upstream = Upstream::start(move |request| match request.method().as_str() {
            "tools/call" | "resources/read" => Reply::http("401 Unauthorized", challenge, ""),
            _ => offer.answer(request),
        });
        let folder = Folder::new();
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "secret").expect("a file");
        let oauth = format!(
            "oauth = {{ token_url = \"http://{}/token\", client_id = \"me\", client_secret = {{ file = {:?} }} }}\n",
            issuer.address,
            secret.display().to_string()
        );
        let daemon = Daemon::start(&Config::new().upstream("up", upstream.address, &oauth));
        daemon.send(&request).assert_error(502, 502, Some("7"));
        let calls = upstream.received_of("tools/call").len() + upstream.received_of("resources/read").len();
        assert_eq!(calls, sent, "{challenge:?}");
    }
}
