//! Replies as bytes: every way to frame one is understood however it is cut, and nothing that two readers could see
//! differently (`replies.toml`).

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;

use crate::harness::{Config, Daemon, Gate, Received, Reply, Upstream, call, eventually, side_by_side};

const JSON: &str = "Content-Type: application/json\r\n";
/// Only what the test sends is sent.
const UNASKED: &str = "health = { interval = \"0s\" }\neras = [\"modern\"]\n";
const NO_BREAKER: &str = "breaker = { failures_max = 0 }\n";
const COMPLETE: &str = r#"{"resultType":"complete","content":[]}"#;
/// Pairs of a server and a gateway that run at once.
const SERVERS: usize = 6;
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
            let calls = connections_of_calls(&upstream);
            assert_eq!(calls, [calls[0]; 3], "the connection is used again");
        }
    }
}

/// Which connection each call came by.
fn connections_of_calls(upstream: &Upstream) -> Vec<usize> {
    upstream.received_of("tools/call").iter().map(|request| request.connection).collect()
}

#[test]
fn a_connection_is_idle_from_the_end_of_its_reply_on() {
    let gate = Gate::default();
    let opened = gate.clone();
    let upstream = Upstream::calling(move |_| {
        let (head, body) = with_length("")
            .split_once("\r\n\r\n")
            .map(|(head, body)| (format!("{head}\r\n\r\n"), body.to_owned()))
            .expect("a head");
        Reply::raw(head).wait(&gate).then(Reply::raw(body))
    });
    let lines = format!("{UNASKED}idle_timeout = \"300ms\"\n");
    let config = Config::new().upstream("up", upstream.address, &lines);
    let daemon = Daemon::start(&config.top("workers = 1"));
    let mut slow = daemon.connect();
    slow.write(&call("7", "echo").bytes());
    upstream.wait_for("tools/call", 1);
    // As long as an idle connection may live, and more: what is waited for is that time goes by.
    std::thread::sleep(Duration::from_millis(400));
    opened.open();
    assert_eq!(slow.response().text(), RESULT);
    slow.write(&call("7", "echo").bytes());
    assert_eq!(slow.response().text(), RESULT);
    let connections = connections_of_calls(&upstream);
    assert_eq!(connections, [connections[0]; 2]);
}

#[test]
fn how_long_connections_may_be_idle_changes_under_those_that_are_open() {
    let upstream = upstream(&with_length(""), true);
    let config = |lines: &str| {
        Config::new().upstream("up", upstream.address, &format!("{UNASKED}{lines}")).top("workers = 1")
    };
    let daemon = Daemon::start(&config("idle_timeout = \"60s\"\n"));
    for _ in 0..2 {
        daemon.send(&call("7", "echo")).assert_ok();
    }
    let connections = connections_of_calls(&upstream);
    assert_eq!(connections, [connections[0]; 2]);
    daemon.reload(&config("idle_timeout = \"60s\"\nidle_connections_max = 0\n"));
    eventually("each call has a connection of its own", || {
        daemon.send(&call("7", "echo")).assert_ok();
        let connections = connections_of_calls(&upstream);
        let [.., last, new] = connections[..] else { return None };
        (last != new).then_some(())
    });
}

#[derive(Deserialize)]
struct Fixtures {
    json: String,
    result: String,
    #[serde(rename = "reply")]
    replies: Vec<Fixture>,
}

#[derive(Deserialize)]
struct Fixture {
    name: String,
    bytes: String,
    #[serde(default)]
    ends: bool,
    answers: Vec<u16>,
}

impl Fixtures {
    /// The answer to the call with this id.
    fn result(&self, id: &str) -> String {
        self.result.replace("<id>", id)
    }

    fn bytes(&self, fixture: &Fixture, id: &str) -> String {
        let (body, ok) = (self.result(id), format!("HTTP/1.1 200 OK\r\n{}", self.json));
        let stray = body.replace("[]", "[\"stray\"]");
        let mut bytes = fixture.bytes.clone();
        for (name, text) in [
            ("<ok>", ok.clone()),
            ("<json>", self.json.clone()),
            ("<chunked>", format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())),
            ("<len>", body.len().to_string()),
            ("<hex>", format!("{:x}", body.len())),
            ("<HEX>", format!("{:X}", body.len())),
            ("<body>", body),
            ("<stray>", format!("{ok}Content-Length: {}\r\n\r\n{stray}", stray.len())),
            ("<fill>", "x".repeat(300)),
        ] {
            bytes = bytes.replace(name, &text);
        }
        bytes
    }

    /// What the server does with a call whose id is the number of a fixture.
    fn reply(&self, request: &Received) -> Reply {
        let id: String = serde_json::from_str(&request.id()).expect("an id");
        let Some((number, is_whole)) = id.split_once('-') else { return Reply::result(request, COMPLETE) };
        let fixture = &self.replies[number.parse::<usize>().expect("a number")];
        let bytes = self.bytes(fixture, &id);
        let reply = if is_whole == "true" { Reply::raw(bytes) } else { Reply::drip(bytes, Duration::ZERO) };
        if fixture.ends { reply.finish() } else { reply }
    }
}

/// What is wrong with the answer to a call that gets this reply, and with the next answer.
fn fault_of(daemon: &Daemon, fixtures: &Fixtures, number: usize, is_whole: bool) -> Option<String> {
    let (fixture, id) = (&fixtures.replies[number], format!("{number}-{is_whole}"));
    let mut connection = daemon.connect();
    connection.write(&call(&format!("\"{id}\""), "echo").bytes());
    let response = connection.try_response();
    let status = response.as_ref().map_or(0, |response| response.status);
    let is_whole_body =
        status != 200 || response.is_ok_and(|response| response.text() == fixtures.result(&id));
    let next = daemon.send(&call("\"next\"", "echo")).text();
    let is_expected = fixture.answers.contains(&status) && is_whole_body && next == fixtures.result("next");
    (!is_expected)
        .then(|| format!("{}, {is_whole}: {status}, its body: {is_whole_body}, then {next}", fixture.name))
}

#[test]
fn nothing_is_an_answer_but_what_is_plain() {
    let fixtures: Fixtures = toml::from_str(include_str!("replies.toml")).expect("fixtures");
    let fixtures = Arc::new(fixtures);
    let faults = Mutex::new(Vec::new());
    side_by_side(0..SERVERS, |server| {
        let answering = Arc::clone(&fixtures);
        let upstream = Upstream::calling(move |request| answering.reply(request));
        let config = Config::new().upstream("up", upstream.address, &format!("{UNASKED}{NO_BREAKER}"));
        let daemon = Daemon::start(&config.top("workers = 1"));
        for number in (server..fixtures.replies.len()).step_by(SERVERS) {
            let found = [true, false].map(|is_whole| fault_of(&daemon, &fixtures, number, is_whole));
            faults.lock().unwrap().extend(found.into_iter().flatten());
        }
    });
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
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
