//! What HTTP/1.1 refuses, with which status, and that its client can read so. (Smuggling and floods: `bad_http.rs`.)

use super::bad_http::framed;
use super::http1::{KEY, connection_of, old, write};
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

/// One answer of this status and the end of the connection, whole and a byte at a time, whatever follows.
#[track_caller]
fn assert_refused(daemon: &Daemon, what: &str, bytes: &[u8], status: u16) {
    let bytes = [bytes, &call("8", "echo").bytes()].concat();
    for is_whole in [true, false] {
        println!("{what}, {}", if is_whole { "whole" } else { "a byte at a time" });
        let mut connection = daemon.connect();
        write(&mut connection, &bytes, is_whole);
        let response = connection.response();
        assert_eq!((response.status, connection_of(&response)), (status, Some("close")), "{what}");
        assert!(connection.wait_closed().is_empty());
    }
}

#[test]
fn heads_that_are_not_plain_are_refused() {
    let (daemon, upstream) = gateway("");
    let body = call("7", "echo").body;
    let length = format!("Content-Length: {}\r\n", body.len());
    let lines = [
        ("a sign", format!("Content-Length: +{}\r\n", body.len())),
        ("a blank in a length", "Content-Length: 1 2\r\n".into()),
        ("a leading zero", format!("Content-Length: 0{}\r\n", body.len())),
        ("a space before a colon", length.replace(':', " :")),
        ("a tab before a colon", length.replace(':', "\t:")),
        ("a folded line", format!("X-A: b\r\n c\r\n{length}")),
        ("a line folded by a tab", format!("X-A: b\r\n\tc\r\n{length}")),
        ("a control byte", format!("X-A: b\x01c\r\n{length}")),
        ("a deletion", format!("X-A: b\x7fc\r\n{length}")),
        ("a control byte in a name", format!("X\x01A: b\r\n{length}")),
        ("a NUL", format!("X-A: \0\r\n{length}")),
        ("a bare carriage return", format!("X-A: b\rc\r\n{length}")),
        ("a bare line feed", format!("X-A: b\n{length}")),
        ("two carriage returns", format!("X-A: b\r\r\n{length}")),
    ];
    for (what, lines) in lines {
        assert_refused(&daemon, what, &framed(&lines, &body), 400);
    }
    assert_refused(&daemon, "many empty lines", b"\r\n\r\n\r\n\r\n\r\n", 400);
    assert!(upstream.forwarded().is_empty());
}

#[test]
fn chunks_that_are_not_plain_are_refused() {
    let (daemon, upstream) = gateway("");
    let body = String::from_utf8(call("7", "echo").body).unwrap();
    let size = format!("{:x}", body.len());
    let long = "x".repeat(300);
    let sized = |size: &str| format!("{size}\r\n{body}\r\n0\r\n\r\n");
    let behind = |end: &str| format!("{size}\r\n{body}{end}");
    let chunks = [
        ("a sign", sized(&format!("+{size}"))),
        ("a prefix", sized(&format!("0x{size}"))),
        ("a blank before a size", sized(&format!(" {size}"))),
        ("sixteen digits", sized(&format!("{:016x}", body.len()))),
        ("a long extension", sized(&format!("{size};{long}"))),
        ("a control byte in an extension", sized(&format!("{size};\x01"))),
        ("a bare carriage return in an extension", sized(&format!("{size};a\rb"))),
        ("a bare line feed behind a size", sized(&size).replacen("\r\n", "\n", 1)),
        ("a bare line feed behind data", behind("\n0\r\n\r\n")),
        ("nothing behind data", behind("0\r\n\r\n")),
        ("a long extension of the last chunk", behind(&format!("\r\n0;{long}\r\n\r\n"))),
        ("long trailers", behind(&format!("\r\n0\r\n{}\r\n", format!("X-A: {long}\r\n").repeat(30)))),
        ("a folded trailer", behind("\r\n0\r\nX-A: b\r\n c\r\n\r\n")),
        ("a control byte in a trailer", behind("\r\n0\r\nX-A: \x01\r\n\r\n")),
        ("a bare carriage return in a trailer", behind("\r\n0\r\nX-A: b\rc\r\n\r\n")),
        ("a bare line feed behind a trailer", behind("\r\n0\r\nX-A: b\n\r\n")),
    ];
    for (what, body) in chunks {
        assert_refused(&daemon, what, &framed("Transfer-Encoding: chunked\r\n", body.as_bytes()), 400);
    }
    assert!(upstream.forwarded().is_empty());
}

#[test]
fn codings_that_are_not_chunked_are_not_implemented() {
    let (daemon, upstream) = gateway("");
    let chunks = "0\r\n\r\n".as_bytes();
    for coding in [
        "gzip",
        "gzip, chunked",
        "chunked, gzip",
        "identity",
        "chunked, chunked",
        "xchunked",
        "",
        "chunked;a=b",
    ] {
        let bytes = framed(&format!("Transfer-Encoding: {coding}\r\n"), chunks);
        assert_refused(&daemon, coding, &bytes, 501);
    }
    // There are none in HTTP/1.0, whatever they are.
    for coding in ["chunked", "gzip"] {
        let bytes = old(&call("7", "echo").with("Transfer-Encoding", coding).body("0\r\n\r\n"), "");
        assert_refused(&daemon, "a coding in HTTP/1.0", &bytes, 400);
    }
    assert!(upstream.forwarded().is_empty());
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
