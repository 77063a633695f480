//! Replies that are long and full of names: their names are mapped, and other clients of the same worker do not wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{
    Child, Config, Connection, Daemon, LEGACY_VERSION, Legacy, Offer, Reply, Request, Upstream, call,
    in_session, legacy_call, open_session, result_body,
};

const LINKS: usize = 60_000;

fn result() -> String {
    let link = |number: usize| format!(r#"{{"type":"resource_link","uri":"test://{number}","name":"n"}}"#);
    let links: Vec<String> = (0..LINKS).map(link).collect();
    format!(r#"{{"content":[{}],"resultType":"complete"}}"#, links.join(","))
}

/// The form in which the long reply comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Json,
    Event,
    /// One that shows to be complete only when the stream ends.
    LastEvent,
}

fn reply(kind: Kind, body: &str) -> Reply {
    match kind {
        Kind::Json => Reply::json("200 OK", body),
        Kind::Event => Reply::stream().event(body).end(),
        Kind::LastEvent => Reply::stream().chunk(&format!("data: {body}\r\r")).end(),
    }
}

/// The longest that a short call took while a long one was under way, and how long that took.
fn beside(daemon: &Daemon, long: &Request, short: &Request) -> (Duration, Duration, String) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let called = scope.spawn(|| {
            let start = Instant::now();
            let response = daemon.send(long);
            is_over.store(true, Ordering::Release);
            (start.elapsed(), response.text())
        });
        let mut longest = Duration::ZERO;
        let mut connection = daemon.connect();
        while !is_over.load(Ordering::Acquire) {
            let start = Instant::now();
            connection.write(&short.bytes());
            connection.response();
            longest = longest.max(start.elapsed());
        }
        let (took, text) = called.join().expect("the long call ends");
        (longest, took, text)
    })
}

#[track_caller]
fn assert_nobody_waits(daemon: &Daemon, long: &Request, short: &Request) {
    let (longest, took, text) = beside(daemon, long, short);
    assert_eq!(text.matches("\"uri\":\"files+test://").count(), LINKS);
    assert!(longest < took / 2, "{longest:?} of {took:?}");
}

#[test]
fn a_long_reply_of_many_names_holds_up_nobody() {
    let weather = Upstream::with_tools(&["forecast"]);
    for kind in [Kind::Json, Kind::Event, Kind::LastEvent] {
        let long = result();
        let answer = move |request: &crate::harness::Received| match request.client_id().as_str() {
            "1" => reply(kind, &result_body(request, &long)),
            _ => Reply::result(request, r#"{"content":[],"resultType":"complete"}"#),
        };
        let modern = Upstream::calling(answer.clone());
        let daemon = Daemon::start(&Config::prefixed(&modern, &weather).top("workers = 1"));
        assert_nobody_waits(&daemon, &call("1", "files__echo"), &call("2", "files__echo"));
        if kind == Kind::Json {
            continue;
        }
        let offer = Legacy::new(Offer::tools(&["echo"]));
        let legacy = Upstream::start(move |request| match request.method().as_str() {
            "tools/call" => answer(request),
            _ => offer.answer(request),
        });
        let daemon = Daemon::start(&Config::legacy_pair(&legacy, &weather).top("workers = 1"));
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        let called = |id| in_session(&session, legacy_call(id, "files__echo"));
        assert_nobody_waits(&daemon, &called("1"), &called("2"));
    }
}

#[test]
fn a_long_line_of_a_child_process_holds_up_nobody() {
    let weather = Upstream::with_tools(&["forecast"]);
    let short = call("2", "weather__forecast");
    for word in ["modern", "legacy"] {
        let child = Child::new(&[word]);
        let config = Config::new()
            .raw("files", &child.keys(&format!("eras = [{word:?}]")))
            .upstream("weather", weather.address, "")
            .top("workers = 1");
        let daemon = Daemon::start(&config);
        daemon.send(&call("1", "files__echo")).assert_ok();
        let count = format!(r#""arguments":{{"count":{LINKS}}}"#);
        let long = call("1", "files__links").replacing(r#""arguments":{}"#, &count);
        assert_nobody_waits(&daemon, &long, &short);
    }
}

#[test]
fn a_long_message_on_the_stream_of_a_session_holds_up_nobody() {
    let (files, weather) =
        (Legacy::new(Offer::tools(&["echo"])).with_streams(), Upstream::with_tools(&["forecast"]));
    let upstream = files.start();
    let daemon = Daemon::start(&Config::legacy_pair(&upstream, &weather).top("workers = 1"));
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let called = in_session(&session, legacy_call("2", "files__echo"));
    daemon.send(&called).assert_ok();
    let get = in_session(&session, crate::harness::post("").method("GET")).set("Accept", "text/event-stream");
    let mut stream: Connection = daemon.begin(&get);
    assert_eq!(stream.head().status, 200);
    let links = result();
    let message = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":1,"_meta":{{"ui":{{"resourceUri":"test://a"}}}},"x":{links}}}}}"#
    );
    let is_over = AtomicBool::new(false);
    let begun = Instant::now();
    let (longest, took) = thread::scope(|scope| {
        files.stream(1).event(&message);
        let heard = scope.spawn(|| {
            let event = stream.event().expect("an event");
            is_over.store(true, Ordering::Release);
            assert!(event.contains("files+test://a"));
            begun.elapsed()
        });
        let mut longest = Duration::ZERO;
        let mut connection = daemon.connect();
        while !is_over.load(Ordering::Acquire) {
            let start = Instant::now();
            connection.write(&called.bytes());
            connection.response();
            longest = longest.max(start.elapsed());
        }
        (longest, heard.join().expect("the event comes"))
    });
    assert!(longest < took / 2, "{longest:?} of {took:?}");
}
