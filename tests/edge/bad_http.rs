//! Hostile framing: floods, cut and half-closed connections. Whatever the gateway makes of it, upstreams see only what was
//! checked (the scripted server fails the test over ambiguous framing), and everyone else is served. (What two readers
//! could see differently: `smuggling.rs`.)

use crate::harness::{Broken, Config, Connection, Daemon, Response, Upstream, call};

/// A gateway that soon closes what is idle or incomplete, and the upstream behind it.
fn gateway() -> (Daemon, Upstream) {
    let upstream = Upstream::with_tools(&["echo", "smuggled"]);
    let limits = "header_timeout = \"300ms\"\nbody_timeout = \"300ms\"\nidle_timeout = \"300ms\"";
    let daemon = Daemon::start(&Config::transparent(&upstream).limits(limits));
    (daemon, upstream)
}

/// Writes the bytes and reads until the gateway closes the connection: all responses.
fn exchange(daemon: &Daemon, bytes: &[u8]) -> Vec<Response> {
    let mut connection = daemon.connect();
    connection.write(bytes);
    let mut responses = Vec::new();
    loop {
        match connection.try_response() {
            Ok(response) => responses.push(response),
            Err(Broken::Closed) => return responses,
            Err(broken) => panic!("{broken:?} after {responses:?}"),
        }
    }
}

/// No call but healthy ones has arrived; `healthy` of them have.
#[track_caller]
fn assert_only_healthy(daemon: &Daemon, upstream: &Upstream, healthy: usize) {
    daemon.send(&call("\"healthy\"", "echo")).assert_ok();
    let ids: Vec<String> = upstream.forwarded().iter().map(crate::harness::Received::id).collect();
    assert_eq!(ids, vec!["\"healthy\""; healthy + 1]);
}

/// A head whose framing lines are replaced by these.
pub(super) fn framed(lines: &str, body: &[u8]) -> Vec<u8> {
    let request = call("7", "echo").with("Content-Length", "0");
    let head = String::from_utf8(request.head()).unwrap().replace("Content-Length: 0\r\n", lines);
    [head.as_bytes(), body].concat()
}

/// One answer, a refusal, and the end of the connection; nothing of it went upstream, in whatever pieces it came.
#[track_caller]
fn assert_refused(daemon: &Daemon, upstream: &Upstream, bytes: &[u8]) {
    for first in [bytes.len(), bytes.len() / 2, 60] {
        let mut connection = daemon.connect();
        connection.write(&bytes[..first]);
        connection.write(&bytes[first..]);
        let response = connection.response();
        assert_eq!(response.status, 400, "{response:?}");
        assert_eq!(response.header("connection"), Some("close"), "{response:?}");
        assert!(connection.wait_closed().is_empty());
    }
    assert!(upstream.forwarded().is_empty());
}

#[test]
fn a_length_beside_chunks_is_refused() {
    let (daemon, upstream) = gateway();
    let body = call("7", "echo").body;
    let chunked = [format!("{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    let smuggled = call("8", "smuggled").bytes();
    for length in [0, 4, body.len(), chunked.len(), chunked.len() + smuggled.len()] {
        for lines in [
            format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n"),
            format!("Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n"),
        ] {
            println!("{lines}");
            let bytes = framed(&lines, &[chunked.as_slice(), &smuggled].concat());
            assert_refused(&daemon, &upstream, &bytes);
        }
    }
    assert_only_healthy(&daemon, &upstream, 0);
}

/// A chunked body that ends before the smuggled bytes do: they are a request of their own, or nothing.
#[test]
fn what_follows_the_last_chunk_is_checked_like_any_request() {
    let (daemon, upstream) = gateway();
    let first = call("1", "echo").bytes_chunked(50);
    let second = call("2", "smuggled").set("Mcp-Name", "echo").bytes();
    let mut connection = daemon.connect();
    connection.write(&[first, second].concat());
    connection.response().assert_ok();
    connection.response().assert_error(400, -32020, Some("2"));
    assert_eq!(upstream.only_call().id(), "1");
}

#[test]
fn chunks_that_are_none() {
    let (daemon, upstream) = gateway();
    let body = call("7", "echo").body;
    let size = format!("{:x}", body.len());
    let chunk =
        |size: &str, data: &[u8], end: &str| [size.as_bytes(), b"\r\n", data, end.as_bytes()].concat();
    let cases = [
        ("no size", chunk("", &body, "\r\n0\r\n\r\n")),
        ("a size that is no number", chunk("zz", &body, "\r\n0\r\n\r\n")),
        ("a signed size", chunk(&format!("+{size}"), &body, "\r\n0\r\n\r\n")),
        ("a size with a prefix", chunk(&format!("0x{size}"), &body, "\r\n0\r\n\r\n")),
        ("a size beyond 64 bits", chunk("fffffffffffffffff", &body, "\r\n0\r\n\r\n")),
        ("the largest size", chunk("ffffffffffffffff", &body, "\r\n0\r\n\r\n")),
        ("a size too small", chunk("5", &body, "\r\n0\r\n\r\n")),
        ("no end of the chunk", chunk(&size, &body, "0\r\n\r\n")),
        ("no last chunk", chunk(&size, &body, "\r\n")),
        ("half a chunk", chunk(&size, &body[..20], "")),
        ("a size without its line", size.clone().into_bytes()),
        (
            "an endless extension",
            chunk(&format!("{size};{}", "x".repeat(1024 * 1024)), &body, "\r\n0\r\n\r\n"),
        ),
        ("a flood of trailers", chunk(&size, &body, &format!("\r\n0\r\n{}\r\n", "X: y\r\n".repeat(100_000)))),
    ];
    for (what, bytes) in cases {
        println!("{what}");
        let responses = exchange(&daemon, &framed("Transfer-Encoding: chunked\r\n", &bytes));
        let statuses: Vec<u16> = responses.iter().map(|response| response.status).collect();
        assert!(matches!(statuses[..], [400 | 408 | 413 | 431]), "{what}: {responses:?}");
    }
    assert_only_healthy(&daemon, &upstream, 0);
}

#[test]
fn trailers_and_small_extensions_change_nothing() {
    let (daemon, upstream) = gateway();
    let body = call("7", "echo").body;
    let bytes = [
        format!("{:x};name=value\r\n", body.len()).as_bytes(),
        &body,
        b"\r\n0\r\nMcp-Name: smuggled\r\nAuthorization: Bearer x\r\n\r\n",
    ]
    .concat();
    for response in exchange(&daemon, &framed("Transfer-Encoding: chunked\r\n", &bytes)) {
        assert!(matches!(response.status, 200 | 400), "{response:?}");
    }
    for received in upstream.forwarded() {
        assert_eq!(received.headers("mcp-name"), ["echo"]);
        assert!(received.headers("trailer").is_empty() && !received.head.contains("smuggled"));
    }
    daemon.send(&call("8", "echo")).assert_ok();
}

#[test]
fn heads_that_are_none() {
    let (daemon, upstream) = gateway();
    let good = String::from_utf8(call("7", "echo").bytes()).unwrap();
    let start = "POST /mcp HTTP/1.1";
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", Vec::new()),
        ("line ends", b"\r\n\r\n\r\n".to_vec()),
        ("noise", (0..=255).cycle().take(4096).collect()),
        ("zeros", vec![0; 4096]),
        ("a TLS hello", [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 500]].concat()),
        ("no version", good.replace(start, "POST /mcp").into()),
        ("a version of the future", good.replace(start, "POST /mcp HTTP/3.0").into()),
        ("no target", good.replace(start, "POST HTTP/1.1").into()),
        ("a target with a space", good.replace(start, "POST /mcp /x HTTP/1.1").into()),
        ("a method that is no token", good.replace(start, "PO(ST /mcp HTTP/1.1").into()),
        ("an endless method", "P".repeat(1024 * 1024).into()),
        ("an endless target", format!("POST /{}", "x".repeat(1024 * 1024)).into()),
        (
            "the HTTP/2 preface and noise",
            [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &[0xff; 1000]].concat(),
        ),
        ("half the HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nS".to_vec()),
        ("a proxy's CONNECT", b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        ("a PROXY line", format!("PROXY TCP4 203.0.113.7 203.0.113.8 1 2\r\n{good}").into()),
    ];
    for (what, bytes) in cases {
        println!("{what}");
        let mut connection = daemon.connect();
        connection.write(&bytes);
        let answer = connection.wait_closed();
        let http1 =
            answer.is_empty() || answer.starts_with(b"HTTP/1.1 4") || answer.starts_with(b"HTTP/1.1 505");
        assert!(http1 || what.contains("HTTP/2"), "{what}: {:?}", String::from_utf8_lossy(&answer));
    }
    assert_only_healthy(&daemon, &upstream, 0);
}

/// A target that names another host than the `Host` header is for that host.
#[test]
fn an_absolute_target_does_not_get_around_the_host_check() {
    let (daemon, upstream) = gateway();
    let response = daemon.send(&call("7", "echo").target("http://evil.example/mcp"));
    assert!(matches!(response.status, 400 | 403 | 404), "{response:?}");
    let response = daemon.send(&call("7", "echo").target("http://localhost/mcp").set("Host", "evil.example"));
    assert!(matches!(response.status, 400 | 403 | 404), "{response:?}");
    assert_only_healthy(&daemon, &upstream, 0);
}

#[test]
fn bare_line_feeds_are_refused() {
    let (daemon, upstream) = gateway();
    let request = call("7", "echo");
    let head = String::from_utf8(request.head()).unwrap();
    let last = head.strip_suffix("\r\n\r\n").expect("a head");
    for head in [
        head.replace("\r\n", "\n"),
        head.replacen("\r\n", "\n", 1),
        format!("{last}\r\n\n"),
        format!("{last}\n\r\n"),
        // A header hidden behind a bare line feed.
        head.replace("Mcp-Name: echo\r\n", "Mcp-Name: echo\r\nX-Hidden: y\nMcp-Name: smuggled\r\n"),
        head.replace("Mcp-Name: echo\r\n", "Mcp-Name: echo\r\nX-Hidden: y\nX-More: z\r\n"),
    ] {
        println!("{head:?}");
        assert_refused(&daemon, &upstream, &[head.as_bytes(), &request.body].concat());
    }
    assert_only_healthy(&daemon, &upstream, 0);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let (daemon, upstream) = gateway();
    let bytes = [
        call("1", "echo").bytes(),
        call("2", "echo").set("Mcp-Name", "other").bytes(),
        call("3", "echo").bytes_chunked(11),
        call("4", "echo").target("/other").bytes(),
        call("5", "echo").bytes(),
    ]
    .concat();
    let mut connection = daemon.connect();
    connection.write(&bytes);
    connection.response().assert_ok();
    connection.response().assert_error(400, -32020, Some("2"));
    let third = connection.response();
    third.assert_ok();
    assert_eq!(third.json()["id"], 3);
    assert_eq!(connection.response().status, 404);
    assert_eq!(connection.response().json()["id"], 5);
    let ids: Vec<String> = upstream.forwarded().iter().map(crate::harness::Received::id).collect();
    assert_eq!(ids, ["1", "3", "5"]);
}

#[test]
fn a_client_that_expects_to_be_asked_is_asked() {
    let (daemon, upstream) = gateway();
    let request = call("7", "echo").with("Expect", "100-continue");
    let mut connection = daemon.connect();
    connection.write(&request.head());
    connection.write(&request.body);
    connection.response().assert_ok();
    let received = upstream.only_call();
    assert!(received.headers("expect").is_empty());
}

#[test]
fn half_closed_and_vanished_clients_leave_nothing_behind() {
    let (daemon, upstream) = gateway();
    let bytes = call("7", "echo").bytes();
    for cut in [0, 1, 16, 100, bytes.len() - 1, bytes.len()] {
        let mut connection = daemon.connect();
        connection.write(&bytes[..cut]);
        connection.finish();
        // Whether a half-closed client is answered or counts as gone, its connection ends.
        connection.wait_closed();
    }
    let whole = upstream.forwarded().len();
    assert!(whole <= 1, "{whole}");
    assert!(upstream.forwarded().iter().all(|received| received.body == call("7", "echo").body));
    daemon.send(&call("8", "echo")).assert_ok();
}

#[test]
fn a_client_that_never_reads_holds_up_nobody() {
    let upstream = Upstream::calling(|request| {
        let text = "x".repeat(4 * 1024 * 1024);
        crate::harness::Reply::result(request, &format!(r#"{{"resultType":"complete","text":"{text}"}}"#))
    });
    let daemon = Daemon::start(&Config::transparent(&upstream).top("workers = 1"));
    let mut deaf: Vec<Connection> = (0..10).map(|_| daemon.connect()).collect();
    for connection in &mut deaf {
        connection.write(&call("7", "echo").bytes());
    }
    upstream.wait_for("tools/call", 10);
    daemon.send(&call("8", "echo")).assert_ok();
    assert!(daemon.peak_resident_bytes() < 256 * 1024 * 1024);
}
