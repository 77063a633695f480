//! HTTP/1.1 as a client sees it: what is asked for, cut, sent ahead, kept open and closed. (What is refused:
//! `http1_refusals.rs`.)

use super::bad_http::framed;
use crate::harness::{
    Config, Connection, Daemon, Gate, Received, Reply, Request, Response, Upstream, api_key, call,
    result_body, with_key,
};

pub(super) const KEY: &str = "first-key-0123456789abcdefghijklmnop";
const RESULT: &str = r#"{"resultType":"complete","content":[]}"#;
/// Longer than any test.
const NEVER: &str = "\"1h\"";
const SOON: &str = "\"300ms\"";

fn gateway(limits: &str) -> (Daemon, Upstream) {
    let upstream = Upstream::with_tools(&["echo"]);
    let config = Config::transparent(&upstream).admin().limits(limits).top("workers = 1");
    (Daemon::start(&config), upstream)
}

/// A server that streams an event, and the rest once the gate is open, to the call `1`; to others it answers at once.
fn streaming() -> (Upstream, Gate) {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |request| match request.id().as_str() {
        "1" => Reply::stream().event("1").wait(&held).event(&result_body(request, RESULT)).end(),
        _ => Reply::result(request, RESULT),
    });
    (upstream, gate)
}

/// Writes all of it at once, or a byte at a time.
pub(super) fn write(connection: &mut Connection, bytes: &[u8], is_whole: bool) {
    let size = if is_whole { bytes.len() } else { 1 };
    bytes.chunks(size).all(|piece| connection.write(piece));
}

/// The request in HTTP/1.0, with these lines in its head.
fn old(request: &Request, lines: &str) -> Vec<u8> {
    let text = String::from_utf8(request.bytes()).unwrap();
    text.replacen("HTTP/1.1\r\n", &format!("HTTP/1.0\r\n{lines}"), 1).into()
}

/// The body in chunks with extensions, and trailers behind it.
fn decorated(request: &Request) -> Vec<u8> {
    let chunks = request
        .body
        .chunks(7)
        .map(|chunk| [format!("{:X};a;b=\"c d\"\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
    let body =
        [chunks.collect::<Vec<_>>().concat(), b"00;last\r\nX-Sum: 1\r\nX-Empty:\r\n\r\n".into()].concat();
    framed("Transfer-Encoding: chunked\r\n", &body)
}

pub(super) fn connection_of(response: &Response) -> Option<&str> {
    response.header("connection")
}

/// All that still comes, as text.
fn text_to_end(connection: &mut Connection) -> String {
    String::from_utf8(connection.wait_closed()).expect("text")
}

fn ids(calls: &[Received]) -> Vec<String> {
    calls.iter().map(Received::id).collect()
}

#[test]
fn a_body_is_asked_for_before_it_is_sent() {
    let (daemon, upstream) = gateway("");
    let request = call("7", "echo").with("Expect", "100-continue");
    let chunked = request.bytes_chunked(50);
    let (chunked_head, chunks) = chunked.split_at(head_length(&chunked));
    for (head, body) in [(request.head().as_slice(), request.body.as_slice()), (chunked_head, chunks)] {
        let mut connection = daemon.connect();
        for _ in 0..2 {
            connection.write(head);
            assert_eq!(connection.any_head().status, 100);
            connection.write(body);
            assert_eq!(connection.any_head().status, 200, "it was asked for once");
            connection.rest().expect("a body");
        }
    }
    assert_eq!(upstream.received_of("tools/call").len(), 4);
}

/// The length of the head that these bytes begin with.
fn head_length(bytes: &[u8]) -> usize {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4
}

#[test]
fn a_body_that_is_not_wanted_or_there_already_is_not_asked_for() {
    let upstream = Upstream::with_tools(&["echo"]);
    let limits = format!("body_timeout = {SOON}\nbody_bytes_max = \"512KiB\"");
    let daemon = Daemon::start(&Config::transparent(&upstream).section(&api_key("ci", KEY)).limits(&limits));
    let request = call("7", "echo").with("Expect", "100-continue").with("Connection", "close");
    let good = with_key(request.clone(), KEY);
    let mut old_head = old(&good, "");
    old_head.truncate(head_length(&old_head));
    let cases = [
        ("it is there", good.bytes(), 200),
        ("it has begun", [good.head(), good.body[..20].to_vec()].concat(), 408),
        ("there is none", good.clone().with("Content-Length", "0").head(), 400),
        ("it is too long", good.clone().with("Content-Length", "1000000").head(), 413),
        ("a wrong key", request.with("Content-Length", "400000").head(), 401),
        ("HTTP/1.0", old_head, 408),
    ];
    for (what, bytes, status) in cases {
        println!("{what}");
        let mut connection = daemon.connect();
        connection.write(&bytes);
        let text = text_to_end(&mut connection);
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {text}");
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{what}: {text}");
    }
}

#[test]
fn requests_are_understood_however_they_are_cut() {
    let (daemon, upstream) = gateway("");
    let request = call("7", "echo");
    let cases = [
        ("a length", request.bytes()),
        ("one chunk", request.bytes_chunked(request.body.len())),
        ("many chunks", request.bytes_chunked(1)),
        ("extensions and trailers", decorated(&request)),
        ("empty lines before it", [b"\r\n\r\n\r\n".as_slice(), &request.bytes()].concat()),
        (
            "blanks around values",
            framed(
                &format!("X-A: \t b \t\r\nX-B:\r\nContent-Length:{}\r\n", request.body.len()),
                &request.body,
            ),
        ),
    ];
    for is_whole in [true, false] {
        let mut connection = daemon.connect();
        for (what, bytes) in &cases {
            println!("{what}, {}", if is_whole { "whole" } else { "a byte at a time" });
            write(&mut connection, bytes, is_whole);
            let response = connection.response();
            response.assert_ok();
            assert_eq!(connection_of(&response), None);
        }
    }
    let calls = upstream.received_of("tools/call");
    assert_eq!(calls.len(), 2 * cases.len());
    assert!(calls.iter().all(|received| received.body == request.body), "{calls:?}");
}

#[test]
fn what_is_sent_ahead_is_answered_in_order() {
    let (daemon, upstream) = gateway("");
    let bytes = |number: usize| {
        let request = call(&number.to_string(), "echo");
        match number % 3 {
            0 => request.bytes(),
            1 => request.bytes_chunked(20),
            _ => [request.bytes(), b"\r\n".to_vec()].concat(),
        }
    };
    // More than is read at once.
    let all: Vec<u8> = (0..300).flat_map(bytes).collect();
    for (is_whole, count) in [(true, 300), (false, 20)] {
        let mut connection = daemon.connect();
        let sent: Vec<u8> = if is_whole { all.clone() } else { (0..count).flat_map(bytes).collect() };
        write(&mut connection, &sent, is_whole);
        for number in 0..count {
            assert_eq!(connection.response().json()["id"], number);
        }
    }
    assert_eq!(upstream.received_of("tools/call").len(), 320);
}

#[test]
fn a_request_behind_a_stream_waits_for_its_end() {
    let (upstream, gate) = streaming();
    let daemon = Daemon::start(&Config::transparent(&upstream));
    let mut connection = daemon.connect();
    connection.write(&[call("1", "echo").bytes(), call("2", "echo").bytes()].concat());
    assert_eq!(connection.head().header("transfer-encoding"), Some("chunked"));
    assert_eq!(connection.event().as_deref(), Some("data: 1\n\n"));
    assert_eq!(ids(&upstream.received_of("tools/call")), ["1"]);
    gate.open();
    assert!(connection.event().expect("the result").contains("\"id\":1"));
    assert_eq!(connection.event(), None);
    assert_eq!(connection.response().json()["id"], 2);
}

#[test]
fn who_leaves_takes_only_the_own_call_along() {
    let gate = Gate::default();
    let held = gate.clone();
    let upstream = Upstream::calling(move |request| match request.id().as_str() {
        "\"streamed\"" => Reply::stream().event("1").wait(&Gate::default()),
        "\"silent\"" => Reply::silence(),
        _ => Reply::default().wait(&held).then(Reply::result(request, RESULT)),
    });
    let daemon = Daemon::start(&Config::transparent(&upstream).top("workers = 1"));
    let mut neighbour = daemon.begin(&call("\"neighbour\"", "echo"));
    upstream.wait_for("tools/call", 1);
    let more = call("\"more\"", "echo").bytes();
    let mut expected = vec!["\"neighbour\"".to_owned()];
    for id in ["\"silent\"", "\"streamed\""] {
        for ahead in [Vec::new(), more.clone(), more[..40].to_vec(), more.repeat(100)] {
            for is_half in [false, true] {
                println!(
                    "{id}, {} bytes ahead, {}",
                    ahead.len(),
                    if is_half { "by half" } else { "at once" }
                );
                let mut connection = daemon.connect();
                connection.write(&[call(id, "echo").bytes(), ahead.clone()].concat());
                expected.push(id.to_owned());
                let received = upstream.wait_for("tools/call", expected.len());
                if id == "\"streamed\"" {
                    connection.head();
                }
                if is_half {
                    connection.finish();
                } else {
                    drop(connection);
                }
                upstream.wait_closed(received.connection);
            }
        }
    }
    gate.open();
    neighbour.response().assert_ok();
    daemon.send(&call("\"healthy\"", "echo")).assert_ok();
    expected.push("\"healthy\"".into());
    assert_eq!(ids(&upstream.received_of("tools/call")), expected, "what was sent ahead goes nowhere");
}

#[test]
fn http_1_0_is_kept_open_only_where_it_asks() {
    let (daemon, upstream) = gateway("");
    let request = call("7", "echo");
    for (lines, kept) in
        [("", false), ("Connection: keep-alive\r\n", true), ("Connection: Close, Keep-Alive\r\n", false)]
    {
        println!("{lines:?}");
        let before = upstream.received_of("tools/call").len();
        let mut connection = daemon.connect();
        connection.write(&[old(&request, lines), old(&request, "")].concat());
        let response = connection.response();
        response.assert_ok();
        assert_eq!(connection_of(&response), Some(if kept { "keep-alive" } else { "close" }));
        if kept {
            let last = connection.response();
            last.assert_ok();
            assert_eq!(connection_of(&last), Some("close"));
        }
        assert!(connection.wait_closed().is_empty());
        assert_eq!(upstream.received_of("tools/call").len() - before, 1 + usize::from(kept));
    }
}

#[test]
fn a_stream_in_http_1_0_ends_with_the_connection() {
    for lines in ["", "Connection: keep-alive\r\n"] {
        let (upstream, gate) = streaming();
        let daemon = Daemon::start(&Config::transparent(&upstream));
        let mut connection = daemon.connect();
        connection.write(&old(&call("1", "echo"), lines));
        upstream.wait_for("tools/call", 1);
        gate.open();
        let text = text_to_end(&mut connection);
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let head = head.to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200 ") && head.contains("\r\nconnection: close"), "{head}");
        assert!(!head.contains("transfer-encoding") && !head.contains("content-length"), "{head}");
        let result = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{RESULT}}}"#);
        assert_eq!(body, format!("data: 1\n\ndata: {result}\n\n"));
    }
}

#[test]
fn close_is_answered_and_done() {
    let (daemon, upstream) = gateway("");
    for (count, value) in ["close", "Close", "keep-alive, close", "x ,\tclose"].iter().enumerate() {
        println!("{value:?}");
        let mut connection = daemon.connect();
        let last = call("7", "echo").with("Connection", value);
        connection.write(&[last.bytes(), call("8", "echo").bytes()].concat());
        let response = connection.response();
        response.assert_ok();
        assert_eq!(connection_of(&response), Some("close"));
        assert!(connection.wait_closed().is_empty());
        assert_eq!(ids(&upstream.received_of("tools/call")), vec!["7"; count + 1]);
    }
}

#[test]
fn a_whole_uri_is_a_target() {
    let (daemon, upstream) = gateway("");
    for (target, status) in [
        ("http://localhost/mcp", 200),
        ("http://localhost/mcp?a=b", 200),
        ("HTTP://localhost/mcp", 200),
        ("http://localhost/other", 404),
        ("http://localhost", 404),
    ] {
        assert_eq!(daemon.send(&call("7", "echo").target(target)).status, status, "{target}");
    }
    let calls = upstream.received_of("tools/call");
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|received| received.head.starts_with("POST /mcp HTTP/1.1\r\n")), "{calls:?}");
}

#[test]
fn head_is_answered_without_the_body() {
    let (daemon, _upstream) = gateway("");
    let head = call("7", "echo").method("HEAD").body("");
    let mut connection = daemon.connect();
    connection.write(&[head.bytes(), call("8", "echo").with("Connection", "close").bytes()].concat());
    let text = text_to_end(&mut connection);
    let (first, second) = text.split_once("\r\n\r\n").expect("a head");
    let first = first.to_ascii_lowercase();
    assert!(first.starts_with("http/1.1 405 "), "{text}");
    let length = first.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
    assert!(length.parse::<usize>().is_ok_and(|length| length > 0), "what another method would get: {text}");
    assert!(second.starts_with("HTTP/1.1 200 "), "{text}");
}

#[test]
fn a_head_that_stalls_is_closed_by_its_clock() {
    let (daemon, upstream) = gateway(&format!("header_timeout = {SOON}\nidle_timeout = {NEVER}"));
    let request = call("7", "echo");
    let half = &request.head()[..60];
    let mut first = daemon.connect();
    first.write(half);
    let mut kept = daemon.connect();
    kept.write(&[&request.bytes(), half].concat());
    kept.response().assert_ok();
    for mut connection in [first, kept] {
        assert!(connection.wait_closed().is_empty());
    }
    daemon.wait_metric("trunkline_connections_timed_out_total{timeout=\"header_timeout\"}", 2);
    assert_eq!(upstream.forwarded().len(), 1);
}

/// Some clients end a body with an empty line of their own.
#[test]
fn an_empty_line_is_no_beginning_of_a_head() {
    let (daemon, _upstream) = gateway(&format!("header_timeout = {SOON}\nidle_timeout = {NEVER}"));
    let bytes = [call("7", "echo").bytes(), b"\r\n".to_vec()].concat();
    let mut connection = daemon.connect();
    connection.write(&bytes);
    connection.response().assert_ok();
    // Another head runs out of time meanwhile.
    let mut stalled = daemon.connect();
    stalled.write(&bytes[..60]);
    stalled.wait_closed();
    connection.write(&bytes);
    connection.response().assert_ok();
}

#[test]
fn an_idle_connection_is_closed_by_its_clock() {
    let (daemon, _upstream) = gateway(&format!("header_timeout = {NEVER}\nidle_timeout = {SOON}"));
    let mut connection = daemon.begin(&call("7", "echo"));
    connection.response().assert_ok();
    assert!(connection.wait_closed().is_empty());
    daemon.wait_metric("trunkline_connections_timed_out_total{timeout=\"idle_timeout\"}", 1);
}

#[test]
fn a_stream_is_not_idle() {
    let (upstream, gate) = streaming();
    let daemon = Daemon::start(&Config::transparent(&upstream).limits(&format!("idle_timeout = {SOON}")));
    let mut connection = daemon.connect();
    connection.write(&[call("1", "echo").bytes(), call("2", "echo").bytes()].concat());
    connection.head();
    assert_eq!(connection.event().as_deref(), Some("data: 1\n\n"));
    // Another connection idles out meanwhile.
    let mut idle = daemon.begin(&call("3", "echo"));
    idle.response().assert_ok();
    assert!(idle.wait_closed().is_empty());
    gate.open();
    assert!(connection.event().expect("the result").contains("\"id\":1"));
    assert_eq!(connection.event(), None);
    assert_eq!(connection.response().json()["id"], 2);
}

#[test]
fn a_body_that_never_comes_is_too_slow() {
    let (daemon, upstream) =
        gateway(&format!("body_timeout = {SOON}\nheader_timeout = {NEVER}\nidle_timeout = {NEVER}"));
    let request = call("7", "echo");
    let chunked = request.bytes_chunked(50);
    for bytes in
        [&request.head(), &request.bytes()[..request.bytes().len() - 1], &chunked[..chunked.len() - 1]]
    {
        let mut connection = daemon.connect();
        connection.write(bytes);
        let response = connection.response();
        response.assert_error(408, 408, None);
        assert_eq!(connection_of(&response), Some("close"));
        assert!(connection.wait_closed().is_empty());
    }
    assert!(upstream.forwarded().is_empty());
}

#[test]
fn a_drain_closes_what_is_idle_and_answers_what_runs() {
    let (upstream, gate) = Upstream::gated();
    let config = Config::transparent(&upstream).section("[drain]\nquiet = \"100ms\"\nmax = \"15s\"");
    let mut daemon = Daemon::start(&config);
    let mut idle = daemon.begin(&call("1", "echo").method("PUT"));
    assert_eq!(idle.response().status, 405);
    let mut begun = daemon.connect();
    begun.write(&call("1", "echo").head()[..60]);
    let mut busy = daemon.connect();
    busy.write(&[call("1", "echo").bytes(), call("2", "echo").bytes()].concat());
    upstream.wait_for("tools/call", 1);
    daemon.terminate();
    assert!(idle.wait_closed().is_empty());
    assert!(begun.wait_closed().is_empty());
    gate.open();
    let response = busy.response();
    response.assert_ok();
    assert_eq!(connection_of(&response), Some("close"));
    assert!(busy.wait_closed().is_empty());
    assert_eq!(daemon.wait_exit().code(), Some(0));
    assert_eq!(upstream.only_call().id(), "1", "what came behind the last call was not begun");
}
