//! Verdicts, the same in whatever pieces the bytes come, and hyper's own reading of the same bytes.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// The verdict on bytes that come in pieces of these sizes, and where it leaves the reader.
fn verdict(bytes: &[u8], sizes: &[usize]) -> (Result<(), usize>, At) {
    let mut framing = Framing::default();
    let (mut at, mut sizes) = (0, sizes.iter().cycle());
    while at < bytes.len() {
        let end = sizes.next().map_or(bytes.len(), |size| (at + size.max(&1)).min(bytes.len()));
        if let Err(place) = framing.follow(&bytes[at..end]) {
            return (Err(at + place), framing.at);
        }
        at = end;
    }
    (Ok(()), framing.at)
}

fn request(lines: &str, body: &str) -> Vec<u8> {
    format!("POST /mcp HTTP/1.1\r\nHost: x\r\n{lines}\r\n{body}").into_bytes()
}

#[test]
fn one_framing_said_once_is_followed() {
    let chunked = "Transfer-Encoding: chunked\r\n";
    for (lines, body) in [
        ("", ""),
        ("Content-Length: 0\r\n", ""),
        ("content-length:5\r\n", "a\nb\n\n"),
        ("CONTENT-LENGTH: \t 5 \r\n", "12345"),
        (chunked, "0\r\n\r\n"),
        ("transfer-encoding:CHUNKED\r\n", "3\r\na\nb\r\n0A;x=y\r\n0123456789\r\n0\r\nX: y\r\n\r\n"),
        ("Content-Lengthy: x\r\nTransfer-Encodings: y\r\nC: d\r\n", ""),
    ] {
        let bytes = request(lines, body).repeat(3);
        assert_eq!(verdict(&bytes, &[]), (Ok(()), At::Start), "{lines:?} {body:?}");
    }
    let (verdict, at) = verdict(&request("Content-Length: 5\r\n", "1234"), &[]);
    assert_eq!((verdict, at), (Ok(()), At::Body(1)));
}

#[test]
fn what_readers_see_differently_is_refused() {
    let long = format!("Content-Length: {}5\r\n", " ".repeat(80));
    for lines in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: \r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "X: y\nContent-Length: 5\r\n",
        "Content-Length: 5\n",
        "X: y\r\n\n",
        &long,
    ] {
        let bytes = request(lines, "");
        for sizes in [&[][..], &[1], &[7, 3]] {
            let (verdict, _) = verdict(&bytes, sizes);
            assert!(verdict.is_err_and(|at| bytes[at] == b'\n'), "{lines:?} {sizes:?}");
        }
    }
    for body in ["x\r\n", "\r\n", "5\n", "-1\r\n", "5\r\n123456\r\n", "0\r\nX: y\n", "00000000000000005\r\n"]
    {
        let bytes = request("Transfer-Encoding: chunked\r\n", body);
        assert!(verdict(&bytes, &[]).0.is_err(), "{body:?}");
    }
    assert!(verdict(b"\nGET / HTTP/1.1\r\n", &[]).0.is_err());
}

/// A message with a body that looks like framing.
fn message() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let piece = prop_oneof![
        Just(b"\r\n".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"0\r\n\r\n".to_vec()),
        Just(b"GET / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..40),
    ];
    let body = proptest::collection::vec(piece, 0..5);
    (body, any::<bool>(), 0..100_usize).prop_map(|(pieces, is_chunked, padding)| {
        let body = pieces.concat();
        let padding = format!("X-Padding: {}\r\n", "y".repeat(padding));
        let mut bytes = request(&format!("{padding}Content-Length: {}\r\n", body.len()), "");
        if is_chunked {
            bytes = request(&format!("{padding}Transfer-Encoding: chunked\r\n"), "");
            for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
                bytes.extend_from_slice(format!("{:X};e\r\n", piece.len()).as_bytes());
                bytes.extend_from_slice(piece);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
        } else {
            bytes.extend_from_slice(&body);
        }
        (bytes, body)
    })
}

/// The bodies of the requests that hyper sees, over bytes that come in pieces of this size, and what it answers.
fn served(bytes: &[u8], size: usize) -> (Vec<Vec<u8>>, Vec<u8>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let bodies = Rc::new(RefCell::new(Vec::new()));
    let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
        let bodies = Rc::clone(&bodies);
        async move {
            if let Ok(body) = request.into_body().collect().await {
                bodies.borrow_mut().push(body.to_bytes().to_vec());
            }
            Ok::<_, Infallible>(http::Response::new(Full::<Bytes>::default()))
        }
    });
    let answer = runtime.block_on(async {
        let (near, far) = tokio::io::duplex(size);
        let io = TokioIo::new(Framed::new(far));
        let serving =
            hyper::server::conn::http1::Builder::new().half_close(true).serve_connection(io, service);
        let (mut replies, mut requests) = tokio::io::split(near);
        let writing = async {
            let _ = requests.write_all(bytes).await;
            let _ = requests.shutdown().await;
        };
        let mut answer = Vec::new();
        let _ = tokio::join!(serving, writing, replies.read_to_end(&mut answer));
        answer
    });
    (bodies.take(), answer)
}

#[test]
fn what_is_refused_is_answered_in_whatever_pieces_it_comes() {
    let bytes =
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    for size in 1..=bytes.len() {
        let (bodies, replied) = served(bytes, size);
        assert!(bodies.is_empty(), "in pieces of {size}");
        assert!(replied.starts_with(b"HTTP/1.1 400 "), "in pieces of {size}: {:?}", replied.escape_ascii());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The reader is between messages exactly where they end, and hyper has seen the same messages.
    #[test]
    fn ends_are_where_hyper_sees_them(
        messages in proptest::collection::vec(message(), 1..5),
        sizes in proptest::collection::vec(1..90_usize, 1..8),
    ) {
        let mut framing = Framing::default();
        for (bytes, _) in &messages {
            let (last, first) = bytes.split_last().expect("a head");
            let mut at = 0;
            for size in sizes.iter().cycle() {
                let end = (at + size).min(first.len());
                prop_assert_eq!(framing.follow(&first[at..end]), Ok(()));
                at = end;
                if at == first.len() {
                    break;
                }
            }
            prop_assert_ne!(framing.at, At::Start);
            prop_assert_eq!(framing.follow(&[*last]), Ok(()));
            prop_assert_eq!(framing.at, At::Start);
        }
        let all: Vec<u8> = messages.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
        let bodies: Vec<Vec<u8>> = messages.into_iter().map(|(_, body)| body).collect();
        prop_assert_eq!(served(&all, sizes[0]).0, bodies);
    }

    /// A verdict does not depend on pieces.
    #[test]
    fn pieces_change_nothing(
        bytes in "(POST / HTTP/1.1\r\n|Content-Length: ?[0-9+, ]{0,3}|Transfer-Encoding: ?(chunked)?|\r\n|\n|[ -~]{0,70}|[0-9a-f]{1,18}(;x)?\r\n|0\r\n\r\n){0,12}",
        sizes in proptest::collection::vec(1..90_usize, 1..8),
    ) {
        prop_assert_eq!(verdict(bytes.as_bytes(), &sizes), verdict(bytes.as_bytes(), &[]));
    }
}
