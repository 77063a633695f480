//! Somebody reads or sends too slowly: what does it hold meanwhile, and how does that end?

use std::time::{Duration, Instant};

use crate::harness::{
    Config, Connection, Daemon, Gate, Http2, Reply, Request, Upstream, call, eventually, result_body,
};

const TOO_SLOW: &str = "trunkline_connections_timed_out_total{timeout=\"reply_rate_min\"}";
/// More than the buffers of the sockets take.
const LONG_BYTES: usize = 24 << 20;

/// An upstream that answers with so many bytes.
fn talkative(bytes: usize) -> Upstream {
    Upstream::calling(move |request| {
        let text = "x".repeat(bytes);
        Reply::result(request, &format!(r#"{{"resultType":"complete","text":"{text}"}}"#))
    })
}

fn gateway(upstream: &Upstream, limits: &str) -> Daemon {
    let config = Config::new().upstream("up", upstream.address, "connections_max = 8");
    Daemon::start(&config.limits(limits).top("workers = 1").admin())
}

/// Whether a line of the log says of a client that it reads too slowly.
fn is_too_slow(line: &str) -> bool {
    line.contains(" INFO ")
        && line.contains("a client reads its reply too slowly")
        && line.contains("client=127.0.0.1")
}

#[test]
fn who_does_not_read_is_cut_off() {
    let upstream = talkative(LONG_BYTES);
    let daemon = gateway(&upstream, "rate_grace_period = \"300ms\"\nreply_rate_min = \"64MiB\"");
    let started = Instant::now();
    let deaf: Vec<Connection> = (0..6).map(|_| daemon.begin(&call("7", "echo"))).collect();
    daemon.wait_metric(TOO_SLOW, 6);
    assert!(started.elapsed() >= Duration::from_millis(300));
    eventually("the log says who reads too slowly, once for each", || {
        (daemon.log().iter().filter(|line| is_too_slow(line)).count() == 6).then_some(())
    });
    drop(deaf);
    // Their connections to the upstream are free.
    eventually("everyone else is served", || {
        (daemon.begin(&call("8", "echo")).head().status == 200).then_some(())
    });
}

/// It is the client that is waited for, and not the upstream.
#[test]
fn who_reads_is_not_cut_off_by_a_slow_upstream() {
    let slow = Upstream::calling(|request| {
        let body = result_body(request, r#"{"resultType":"complete"}"#);
        let head = format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        Reply::drip(format!("HTTP/1.1 200 OK\r\n{head}{body}"), Duration::from_millis(10))
    });
    let daemon = gateway(&slow, "rate_grace_period = \"200ms\"\nreply_rate_min = \"1MiB\"");
    daemon.send(&call("7", "echo")).assert_ok();
    assert_eq!(daemon.metric(TOO_SLOW), 0);
}

#[test]
fn a_slow_reader_of_http2_frees_its_upstream_at_once_and_is_cut_off() {
    let gate = Gate::default();
    let gate_of_rest = gate.clone();
    // In two parts, so that it is relayed as it comes.
    let upstream = Upstream::calling(move |request| {
        let text = "x".repeat(60_000);
        let body = result_body(request, &format!(r#"{{"resultType":"complete","text":"{text}"}}"#));
        let fields = format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        let (start, rest) = body.split_at(30_000);
        let begun = Reply::raw(format!("HTTP/1.1 200 OK\r\n{fields}{start}"));
        begun.wait(&gate_of_rest).then(Reply::raw(rest.to_owned()))
    });
    let daemon = gateway(&upstream, "rate_grace_period = \"3s\"\nreply_rate_min = \"64MiB\"");
    // It has to take the frame on its way before it hears of the end: by single bytes that would be as many round trips.
    let mut reader = Http2::connect_with_window(daemon.address(), 1024);
    let (_, mut body) = reader.open(&call("7", "echo"));
    gate.open();
    let idle = "trunkline_upstream_idle_connections";
    eventually("the upstream's connection is free", || {
        (daemon.find_metric_of_up(idle) == Some(1)).then_some(())
    });
    assert_eq!(daemon.metric(TOO_SLOW), 0);
    daemon.wait_metric(TOO_SLOW, 1);
    assert!(reader.fails(&mut body), "it is told that the reply is not whole");
    daemon.wait_for_log(0, "the log says who reads too slowly", is_too_slow);
    assert!(daemon.send(&call("8", "echo")).body.len() > 60_000);
}

#[test]
fn whoever_reads_fast_enough_gets_everything() {
    let upstream = talkative(2 << 20);
    let daemon = gateway(&upstream, "rate_grace_period = \"200ms\"");
    let mut reader = Http2::connect(daemon.address());
    for _ in 0..3 {
        assert!(reader.send(&call("7", "echo")).body.len() > 2 << 20);
        assert!(daemon.send(&call("7", "echo")).body.len() > 2 << 20);
    }
    assert_eq!(daemon.metric(TOO_SLOW), 0);
}

fn long_call() -> Request {
    call("7", "echo")
        .replacing(r#""arguments":{}"#, &format!(r#""arguments":{{"x":"{}"}}"#, "x".repeat(100_000)))
}

#[test]
fn who_sends_too_slowly_is_refused() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = gateway(&upstream, "rate_grace_period = \"300ms\"");
    let request = long_call();
    let mut slow = daemon.connect();
    slow.write(&request.head());
    slow.write(&request.body[..1000]);
    let started = Instant::now();
    assert_eq!(slow.response().status, 408);
    assert!(started.elapsed() < Duration::from_secs(20), "it is not the timeout of the whole body");
    // A pause that is no longer than the grace period costs nothing.
    let mut pausing = daemon.connect();
    pausing.write(&request.head());
    pausing.write(&request.body[..50_000]);
    pausing.write(&request.body[50_000..]);
    pausing.response().assert_ok();
    assert_eq!(upstream.received_of("tools/call").len(), 1);
}
