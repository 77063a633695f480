use proptest::prelude::*;

use super::*;
use crate::HEAD_BYTES_MAX;

/// The verdict on a head, the same whole and a byte at a time, and how long it is.
fn read(bytes: &str) -> Result<Option<(ResponseHead, usize)>, HttpFault> {
    let bytes = bytes.as_bytes();
    let mut search = EndSearch::default();
    let pieces: Vec<_> = (0..=bytes.len()).map(|end| search.find(&bytes[..end], HEAD_BYTES_MAX)).collect();
    let in_pieces = pieces.into_iter().find(|found| *found != Ok(None)).unwrap_or(Ok(None));
    assert_eq!(
        EndSearch::default().find(bytes, HEAD_BYTES_MAX),
        in_pieces,
        "{:?}",
        bytes.escape_ascii().to_string()
    );
    let Some(length) = in_pieces? else { return Ok(None) };
    ResponseHead::read(&bytes[..length], |_, _| {}).map(|head| Some((head, length)))
}

#[test]
fn a_head_is_read() {
    for (bytes, status, framing, is_persistent) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", 200, BodyEnd::Length(7), true),
        ("HTTP/1.1 200 OK\r\nContent-Length:\t 7 \t\r\n\r\n", 200, BodyEnd::Length(7), true),
        ("HTTP/1.1 200\r\ncontent-length:7\r\n\r\n", 200, BodyEnd::Length(7), true),
        ("HTTP/1.1 200 \r\ntransfer-encoding: CHUNKED\r\n\r\n", 200, BodyEnd::Chunked, true),
        ("HTTP/1.1 404 Gone \u{e9}\r\n\r\n", 404, BodyEnd::ToEnd, false),
        (
            "HTTP/1.1 202 A\r\ncontent-length: 0\r\nconnection: x, Close\r\n\r\n",
            202,
            BodyEnd::Length(0),
            false,
        ),
        ("HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\n", 200, BodyEnd::Length(1), false),
        (
            "HTTP/1.0 200 OK\r\ncontent-length: 1\r\nconnection: keep-alive\r\n\r\n",
            200,
            BodyEnd::Length(1),
            true,
        ),
        (
            "HTTP/1.0 200 OK\r\ncontent-length: 1\r\nconnection: \u{e9}, keep-alive\r\n\r\n",
            200,
            BodyEnd::Length(1),
            false,
        ),
        ("HTTP/1.1 204 N\r\n\r\n", 204, BodyEnd::Length(0), true),
        ("HTTP/1.1 304 N\r\ncontent-length: 9\r\n\r\n", 304, BodyEnd::Length(0), true),
        ("HTTP/1.1 100 Continue\r\n\r\n", 100, BodyEnd::Length(0), true),
    ] {
        let head =
            ResponseHead { status: StatusCode::from_u16(status).expect("a status"), framing, is_persistent };
        assert_eq!(read(bytes), Ok(Some((head, bytes.len()))), "{bytes:?}");
        assert_eq!(read(&format!("{bytes}HTTP\n")), Ok(Some((head, bytes.len()))), "{bytes:?} and more");
        for end in 0..bytes.len() {
            if bytes.is_char_boundary(end) {
                assert_eq!(read(&bytes[..end]), Ok(None), "{bytes:?} to {end}");
            }
        }
    }
}

#[test]
fn what_two_readers_could_see_differently_is_refused() {
    for (bytes, refusal) in [
        ("HTTP/1.1 200 OK\nContent-Length: 7\r\n\r\n", HttpFault::LineEnd),
        ("HTTP/1.1 200 OK\r\nContent-Length: 7\n\r\n", HttpFault::LineEnd),
        ("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\n", HttpFault::LineEnd),
        ("\nHTTP/1.1 200 OK\r\n\r\n", HttpFault::LineEnd),
        ("\r\nHTTP/1.1 200 OK\r\n\r\n", HttpFault::Head),
        ("HTTP/1.1 200 OK\r\nx: a\rb\r\n\r\n", HttpFault::Head),
        ("HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n", HttpFault::Head),
        ("HTTP/1.1 200 OK\r\nx: a\x7fb\r\n\r\n", HttpFault::Head),
        ("HTTP/1.1 200 O\x01K\r\n\r\n", HttpFault::Head),
        ("HTTP/1.1 200 OK\r\nContent-Length : 7\r\n\r\n", HttpFault::Head),
        ("HTTP/1.1 200 OK\r\n Content-Length: 7\r\n\r\n", HttpFault::Head),
        ("HTTP/1.1 200 OK\r\nx: a\r\n b\r\n\r\n", HttpFault::Head),
        ("HTTP/1.1 200 OK\r\n: a\r\n\r\n", HttpFault::Head),
        ("HTTP/1.1 200 OK\r\nx\r\n\r\n", HttpFault::Head),
        ("HTTP/1.1 200 OK\r\nContent-Length: 7\r\nContent-Length: 7\r\n\r\n", HttpFault::Length),
        ("HTTP/1.1 200 OK\r\nContent-Length: 7, 7\r\n\r\n", HttpFault::Length),
        ("HTTP/1.1 200 OK\r\nContent-Length: +7\r\n\r\n", HttpFault::Length),
        ("HTTP/1.1 200 OK\r\nContent-Length: 07\r\n\r\n", HttpFault::Length),
        ("HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", HttpFault::Length),
        ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", HttpFault::Length),
        ("HTTP/1.1 204 OK\r\nContent-Length: x\r\n\r\n", HttpFault::Length),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nTransfer-Encoding: chunked\r\n\r\n",
            HttpFault::TwoFramings,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 7\r\n\r\n",
            HttpFault::TwoFramings,
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", HttpFault::Coding),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            HttpFault::Coding,
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n", HttpFault::Coding),
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", HttpFault::Head),
        ("HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n", HttpFault::Head),
        ("HTTP/1.1 99 x\r\n\r\n", HttpFault::Head),
        ("HTTP/1.1 2000 x\r\n\r\n", HttpFault::Head),
        ("HTTP/1.1 +20 x\r\n\r\n", HttpFault::Head),
        ("HTTP/2.0 200 OK\r\n\r\n", HttpFault::Head),
        ("HTTP/1.2 200 OK\r\n\r\n", HttpFault::Head),
        ("http/1.1 200 OK\r\n\r\n", HttpFault::Head),
        ("ICY 200 OK\r\n\r\n", HttpFault::Head),
    ] {
        assert_eq!(read(bytes), Err(refusal), "{bytes:?}");
    }
}

#[test]
fn a_head_has_bounds() {
    let fields = |count: usize| format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(count));
    assert!(matches!(read(&fields(FIELDS_MAX)), Ok(Some(_))));
    assert_eq!(read(&fields(FIELDS_MAX + 1)), Err(HttpFault::HeadSize));
    let sized = |bytes: usize| {
        let rest = bytes - "HTTP/1.1 200 OK\r\nx: \r\n\r\n".len();
        let head = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(rest));
        EndSearch::default().find(head.as_bytes(), HEAD_BYTES_MAX)
    };
    assert_eq!(sized(HEAD_BYTES_MAX), Ok(Some(HEAD_BYTES_MAX)));
    assert_eq!(sized(HEAD_BYTES_MAX + 1), Err(HttpFault::HeadSize));
    let endless = "x".repeat(HEAD_BYTES_MAX);
    let (longest, _) = endless.as_bytes().split_at(HEAD_BYTES_MAX - 1);
    assert_eq!(EndSearch::default().find(longest, HEAD_BYTES_MAX), Ok(None));
    assert_eq!(EndSearch::default().find(endless.as_bytes(), HEAD_BYTES_MAX), Err(HttpFault::HeadSize));
}

#[test]
fn every_field_is_shown() {
    let mut fields = Vec::new();
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Type:  a/b \r\nX:\r\ncontent-length: 1\r\n\r\n";
    ResponseHead::read(bytes, |name, value| fields.push((name, value))).expect("a head");
    let expected: [(&str, &[u8]); 3] = [("Content-Type", b"a/b"), ("X", b""), ("content-length", b"1")];
    assert_eq!(fields, expected);
}

proptest! {
    #[test]
    fn no_head_is_read_differently_in_pieces(text in "(HTTP/1\\.[01] 20[04])?[ -~\r\n\t]{0,60}(\r\n\r\n)?") {
        let _ = read(&text);
    }
}

#[test]
fn a_request_is_read() {
    let read = |bytes: &'static str| RequestHead::read(bytes.as_bytes(), |_, _| {});
    let plain = RequestHead {
        method: "POST",
        target: "/mcp",
        minor: 1,
        framing: BodyEnd::Length(0),
        is_persistent: true,
        expects_continue: false,
    };
    for (bytes, expected) in [
        ("POST /mcp HTTP/1.1\r\n\r\n", plain),
        (
            "POST /mcp HTTP/1.1\r\nContent-Length: 7\r\n\r\n",
            RequestHead { framing: BodyEnd::Length(7), ..plain },
        ),
        (
            "POST /mcp HTTP/1.1\r\nExpect: 100-Continue\r\ntransfer-encoding: chunked\r\n\r\n",
            RequestHead { framing: BodyEnd::Chunked, expects_continue: true, ..plain },
        ),
        ("POST /mcp HTTP/1.1\r\nConnection: x,close\r\n\r\n", RequestHead { is_persistent: false, ..plain }),
        (
            "POST /mcp HTTP/1.0\r\nexpect: 100-continue\r\n\r\n",
            RequestHead { minor: 0, is_persistent: false, ..plain },
        ),
        ("POST /mcp HTTP/1.0\r\nconnection: Keep-Alive\r\n\r\n", RequestHead { minor: 0, ..plain }),
        (
            "POST /mcp HTTP/1.0\r\nconnection: \u{e9}, keep-alive\r\n\r\n",
            RequestHead { minor: 0, is_persistent: false, ..plain },
        ),
        (
            "POST /mcp HTTP/1.1\r\nconnection: \u{e9}, close\r\n\r\n",
            RequestHead { is_persistent: false, ..plain },
        ),
        ("m! http://a/b?c HTTP/1.1\r\n\r\n", RequestHead { method: "m!", target: "http://a/b?c", ..plain }),
    ] {
        assert_eq!(read(bytes), Ok(expected), "{bytes:?}");
    }
    for (bytes, refusal) in [
        ("POST /mcp\r\n\r\n", HttpFault::Head),
        ("POST  /mcp HTTP/1.1\r\n\r\n", HttpFault::Head),
        ("POST /mcp  HTTP/1.1\r\n\r\n", HttpFault::Head),
        ("POST /mcp HTTP/1.1 \r\n\r\n", HttpFault::Head),
        ("POST /m cp HTTP/1.1\r\n\r\n", HttpFault::Head),
        ("PO(ST /mcp HTTP/1.1\r\n\r\n", HttpFault::Head),
        ("POST /mcp HTTP/3.0\r\n\r\n", HttpFault::Head),
        ("POST /mcp HTTP/1.1\r\nx : y\r\n\r\n", HttpFault::Head),
        ("POST /mcp HTTP/1.1\r\nx: y\r\n z\r\n\r\n", HttpFault::Head),
        ("POST /mcp HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", HttpFault::Length),
        (
            "POST /mcp HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            HttpFault::TwoFramings,
        ),
        ("POST /mcp HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", HttpFault::Coding),
        ("POST /mcp HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", HttpFault::Head),
    ] {
        assert_eq!(read(bytes), Err(refusal), "{bytes:?}");
    }
}
