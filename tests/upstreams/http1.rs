//! Replies as bytes: every way to frame one is understood however it is cut, and nothing that two readers could see
//! differently is.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use crate::harness::{Config, Daemon, Reply, Upstream, call};

const JSON: &str = "Content-Type: application/json\r\n";
/// Only what the test sends is sent.
const UNASKED: &str = "health = { interval = \"0s\" }\neras = [\"modern\"]\n";
const RESULT: &str = r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","content":[]}}"#;

/// A reply in chunks of this size, with extensions and trailers where `more`.
fn chunked(size: usize, more: bool) -> String {
    let (extension, trailers) = if more { (";a=\"b\"", "X-Sum: 1\r\nX-Other: 2\r\n") } else { ("", "") };
    let chunks: Vec<String> = RESULT
        .as_bytes()
        .chunks(size)
        .map(|chunk| format!("{:X}{extension}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk)))
        .collect();
    let head = format!("HTTP/1.1 200 OK\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n");
    format!("{head}{}0{extension}\r\n{trailers}\r\n", chunks.concat())
}

fn with_length(lines: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{JSON}{lines}Content-Length: {}\r\n\r\n{RESULT}", RESULT.len())
}

/// An upstream that sends these bytes as the reply to each call, whole or a byte at a time.
fn upstream(bytes: &str, is_whole: bool) -> Upstream {
    let bytes = bytes.to_owned();
    Upstream::calling(move |_| {
        if is_whole { Reply::raw(bytes.clone()) } else { Reply::drip(bytes.clone(), Duration::ZERO) }
    })
}

#[test]
fn every_framing_is_understood_however_it_is_cut() {
    let cases = [
        ("a length", with_length("")),
        ("blanks around the values", with_length("X-Other: \t a \t\r\nX-Empty:\r\n")),
        ("one chunk", chunked(RESULT.len(), false)),
        ("many chunks", chunked(1, false)),
        ("extensions and trailers", chunked(7, true)),
        ("interim heads", format!("HTTP/1.1 102 Processing\r\n\r\n{}", with_length(""))),
        ("HTTP/1.0 kept alive", with_length("Connection: keep-alive\r\n").replacen("1.1", "1.0", 1)),
    ];
    for (what, bytes) in &cases {
        for is_whole in [true, false] {
            println!("{what}, {}", if is_whole { "whole" } else { "a byte at a time" });
            let upstream = upstream(bytes, is_whole);
            let daemon = Daemon::start(&Config::transparent(&upstream).top("workers = 1"));
            for _ in 0..3 {
                let response = daemon.send(&call("7", "echo"));
                response.assert_ok();
                assert_eq!(response.text(), RESULT);
            }
            // The gateway's own questions have used one as well.
            let calls: Vec<usize> =
                upstream.received_of("tools/call").iter().map(|request| request.connection).collect();
            assert_eq!(calls, [calls[0]; 3], "the connection is used again");
        }
    }
}

#[test]
fn what_two_readers_could_see_differently_is_no_answer() {
    let length = RESULT.len();
    let head = |lines: &str| format!("HTTP/1.1 200 OK\r\n{JSON}{lines}\r\n");
    let plain = |lines: &str| format!("{}{RESULT}", head(lines));
    let chunks = |body: &str| format!("{}{body}", head("Transfer-Encoding: chunked\r\n"));
    let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(17);
    let cases = [
        ("a sign", plain(&format!("Content-Length: +{length}\r\n"))),
        ("a leading zero", plain(&format!("Content-Length: 0{length}\r\n"))),
        ("a list of lengths", plain(&format!("Content-Length: {length}, {length}\r\n"))),
        ("the length twice", plain(&format!("Content-Length: {length}\r\nContent-Length: {length}\r\n"))),
        ("too long a length", plain("Content-Length: 18446744073709551617\r\n")),
        ("a blank before the colon", plain(&format!("Content-Length : {length}\r\n"))),
        ("a folded line", plain(&format!("X-A: b\r\n c\r\nContent-Length: {length}\r\n"))),
        ("a bare line feed", plain(&format!("X-A: b\nContent-Length: {length}\r\n"))),
        ("a bare carriage return", plain(&format!("X-A: b\rc\r\nContent-Length: {length}\r\n"))),
        ("a control byte", plain(&format!("X-A: \x01\r\nContent-Length: {length}\r\n"))),
        ("an empty line first", format!("\r\n{}", with_length(""))),
        ("another coding", plain("Transfer-Encoding: gzip, chunked\r\n")),
        ("chunks in HTTP/1.0", chunked(9, false).replacen("1.1", "1.0", 1)),
        ("too many fields", plain(&format!("{}Content-Length: {length}\r\n", "X: y\r\n".repeat(130)))),
        ("too many interim heads", format!("{interim}{}", with_length(""))),
        ("another version", with_length("").replacen("1.1", "2.0", 1)),
        ("a chunk's size with a sign", chunks(&format!("+{length:x}\r\n{RESULT}\r\n0\r\n\r\n"))),
        ("a chunk's size with 0x", chunks(&format!("0x{length:x}\r\n{RESULT}\r\n0\r\n\r\n"))),
        ("a chunk's size of 16 digits", chunks(&format!("{length:016x}\r\n{RESULT}\r\n0\r\n\r\n"))),
        ("a chunk's size before a bare line feed", chunks(&format!("{length:x}\n{RESULT}\r\n0\r\n\r\n"))),
        ("a long extension", chunks(&format!("{length:x};{}\r\n{RESULT}\r\n0\r\n\r\n", "x".repeat(300)))),
    ];
    for (what, bytes) in &cases {
        for is_whole in [true, false] {
            println!("{what}, {}", if is_whole { "whole" } else { "a byte at a time" });
            let upstream = upstream(bytes, is_whole);
            let daemon = Daemon::start(&Config::transparent(&upstream));
            daemon.send(&call("7", "echo")).assert_error(502, 502, Some("7"));
        }
    }
}

/// The data were there before the fault: the client has seen some of them, but never an end.
#[test]
fn a_fault_behind_the_data_ends_the_reply_before_its_end() {
    let length = RESULT.len();
    let head = format!("HTTP/1.1 200 OK\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{RESULT}");
    for (what, rest) in [
        ("data without their end", "0\r\n\r\n"),
        ("a bare line feed behind data", "\n0\r\n\r\n"),
        ("a folded trailer", "\r\n0\r\nx: y\r\n z\r\n\r\n"),
        ("a bare line feed behind a trailer", "\r\n0\r\nx: y\n\r\n"),
    ] {
        println!("{what}");
        let upstream = upstream(&format!("{head}{rest}"), true);
        let daemon = Daemon::start(&Config::transparent(&upstream));
        let mut connection = daemon.connect();
        connection.write(&call("7", "echo").bytes());
        if let Ok(response) = connection.try_response() {
            response.assert_error(502, 502, Some("7"));
        }
    }
}

#[test]
fn an_answer_may_come_before_the_request_was_read() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            // It reads no further, and says so.
            let _ = stream.write_all(with_length("Connection: close\r\n").as_bytes());
            open.push(stream);
        }
    });
    let daemon = Daemon::start(&Config::new().upstream("up", address, UNASKED));
    let long = format!(r#""arguments":{{"text":"{}"}}"#, "x".repeat(3 << 20));
    for _ in 0..2 {
        let response = daemon.send(&call("7", "echo").replacing(r#""arguments":{}"#, &long));
        assert_eq!(response.text(), RESULT);
    }
}
