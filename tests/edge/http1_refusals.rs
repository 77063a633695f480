//! Which methods and sizes HTTP/1.1 refuses, with which status, and that its client can read so. (What two readers could
//! see differently: `smuggling.rs`. Floods: `bad_http.rs`.)

use super::http1::{KEY, connection_of, write};
use crate::harness::{Config, Daemon, Response, Upstream, api_key, call, eventually, with_key};

fn gateway(limits: &str) -> (Daemon, Upstream) {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).limits(limits));
    (daemon, upstream)
}

#[test]
fn methods_that_are_not_served_are_refused() {
    let (daemon, upstream) = gateway("");
    let request = call("7", "echo");
    for request in
        [request.clone().method("TRACE"), request.clone().method("CONNECT").target("localhost:443")]
    {
        let mut connection = daemon.connect();
        connection.write(&[request.bytes(), call("8", "echo").bytes()].concat());
        let response = connection.response();
        assert_eq!((response.status, connection_of(&response)), (405, Some("close")));
        assert_eq!(response.header("allow"), Some("GET, POST, DELETE"));
        assert!(connection.wait_closed().is_empty());
    }
    assert!(upstream.forwarded().is_empty());
}

#[test]
fn a_target_says_no_more_than_a_request_may() {
    let (daemon, upstream) = gateway("");
    let request = call("7", "echo");
    for (target, host, status) in [
        ("http://localhost/mcp", true, 200),
        ("HTTP://localhost/mcp", true, 200),
        ("http://localhost/mcp", false, 400),
        ("https://localhost/mcp", true, 421),
        ("ftp://localhost/mcp", true, 421),
        ("/mcp#x", true, 400),
        ("/mcp?a#x", true, 400),
        ("http://localhost/mcp#x", true, 400),
        ("/mcp?a", true, 200),
    ] {
        let request = request.clone().target(target);
        let request = if host { request } else { request.without("Host") };
        assert_eq!(daemon.send(&request).status, status, "{target} {host}");
    }
    assert_eq!(upstream.forwarded().len(), 3);
}

#[test]
fn a_body_that_is_encoded_is_refused() {
    let (daemon, upstream) = gateway("");
    for (coding, status) in [("identity", 200), ("gzip", 415), ("GZip", 415), ("br, gzip", 415), ("", 415)] {
        let response = daemon.send(&call("7", "echo").with("Content-Encoding", coding));
        assert_eq!(response.status, status, "{coding}");
        if status == 415 {
            let told = response.assert_error(415, 415, Some("7"));
            assert!(told["error"]["message"].as_str().is_some_and(|why| why.contains("Content-Encoding")));
        }
    }
    assert_eq!(upstream.forwarded().len(), 1);
}

#[test]
fn heads_have_a_size_and_a_number_of_fields() {
    let (daemon, upstream) = gateway("header_bytes_max = \"8KiB\"");
    let request = call("7", "echo");
    let sized = |bytes: usize| {
        let room = bytes - request.clone().with("X-Fill", "").head().len();
        request.clone().with("X-Fill", "x".repeat(room))
    };
    // Seven are there already.
    let fields = |count: usize| (7..count).fold(request.clone(), |request, _| request.with("X-A", "b"));
    let cases = [
        ("8 KiB", sized(8192), 200),
        ("a byte more", sized(8193), 431),
        ("twice as much", sized(16384), 431),
        ("100 fields", fields(100), 200),
        ("one more", fields(101), 431),
        ("128 fields", fields(128), 431),
        ("still one more", fields(129), 431),
    ];
    for (what, request, status) in cases {
        for is_whole in [true, false] {
            println!("{what}, {}", if is_whole { "whole" } else { "a byte at a time" });
            let mut connection = daemon.connect();
            write(&mut connection, &request.bytes(), is_whole);
            assert_eq!(connection.response().status, status, "{what}");
        }
    }
    assert_eq!(upstream.forwarded().len(), 4);
}

/// What is said to a client that sends the rest only after it has read the whole answer; `None` where it is stopped.
fn answer_of_one_who_sends_on(daemon: &Daemon, bytes: &[u8]) -> Option<Response> {
    let (start, rest) = bytes.split_at(100 * 1024);
    let mut connection = daemon.connect();
    connection.write(start);
    let response = connection.response();
    let is_taken = rest.chunks(16 * 1024).all(|piece| connection.write(piece));
    connection.finish();
    // A connection that is closed over unread bytes is reset: who reads or who looks then sees it.
    let ends = connection.ends_properly();
    daemon.wait_metric("trunkline_connections_open", 0);
    let fault = connection.into_socket().take_error().expect("a socket");
    (is_taken && ends && fault.is_none()).then_some(response)
}

#[test]
fn who_still_sends_reads_the_whole_answer() {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream)
        .admin()
        .limits("body_bytes_max = \"8KiB\"")
        .section(&api_key("ci", KEY));
    let daemon = Daemon::start(&config);
    let request = call("7", "echo").body("x".repeat(1_000_000));
    let good = with_key(request.clone(), KEY);
    let text = String::from_utf8(good.bytes()).unwrap();
    let cases = [
        ("a long body", good.bytes(), 413),
        ("many chunks", good.bytes_chunked(10_000), 413),
        ("no key", request.bytes(), 401),
        ("no key, in chunks", request.bytes_chunked(10_000), 401),
        ("a length with a sign", text.replace("Content-Length: ", "Content-Length: +").into(), 400),
        ("another coding", text.replace("Content-Length: ", "Transfer-Encoding: ").into(), 501),
        ("no end of the head", text.replace("\r\n\r\n", "\r\nX: ").into(), 431),
        (
            "a chunk without its size",
            text.replace("Content-Length: 1000000", "Transfer-Encoding: chunked").into(),
            400,
        ),
        ("a tunnel", text.replace("POST /mcp", "CONNECT localhost:443").into(), 405),
    ];
    for (what, bytes, status) in cases {
        println!("{what}");
        let response = eventually(what, || answer_of_one_who_sends_on(&daemon, &bytes));
        assert_eq!((response.status, connection_of(&response)), (status, Some("close")), "{what}");
    }
    assert!(upstream.forwarded().is_empty());
}
