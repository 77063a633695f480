//! A client that leaves its calls, or cancels them, gives its server no more work than it may have, and takes nobody's place.
//!
//! The server works on: it is told, and nobody sees when it stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{As, keys};
use crate::harness::{
    Config, Connection, Daemon, Gate, LEGACY_VERSION, Legacy, Offer, Reply, Request, Upstream, call,
    eventually, in_session, initialize, legacy, legacy_call, result_body, side_by_side,
};

const RESULT: &str = r#"{"content":[],"resultType":"complete"}"#;
pub(super) const KEPT: &str = "trunkline_upstream_calls_kept";
pub(super) const IN_USE: &str = "trunkline_upstream_calls";
pub(super) const WAITING: &str = "trunkline_upstream_calls_waiting";

/// The ways in which a client leaves a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// In the modern era.
    Disconnects,
    /// Within a session.
    Cancels,
}

/// Calls of the tool take so long usually: a place is kept for so long at least, and a busy machine gets as far meanwhile.
pub(super) const USUALLY: Duration = Duration::from_millis(1500);

/// True for the first call, after the usual time.
#[derive(Default)]
pub(super) struct FirstCall(AtomicBool);

impl FirstCall {
    pub(super) fn is_this(&self) -> bool {
        let is_first = !self.0.swap(true, Ordering::SeqCst);
        if is_first {
            sleep(USUALLY);
        }
        is_first
    }
}

/// A server of both eras whose calls are answered as `answer` says, and a gateway that lets it have four at once.
fn start(answer: impl Fn() -> Reply + Send + Sync + 'static, lines: &str) -> (Upstream, Daemon) {
    let server = Legacy::new(Offer::tools(&["echo", "other"])).and_modern();
    let upstream = Upstream::start(move |request| match request.method().as_str() {
        "tools/call" => answer().then(Reply::json("200 OK", &result_body(request, RESULT))),
        _ => server.answer(request),
    });
    let lines = format!("eras = [\"modern\", \"legacy\"]\ncalls_max = 4\n{lines}");
    let config = Config::new().upstream("up", upstream.address, &lines).admin().section(&keys());
    let daemon = Daemon::start(&config);
    (upstream, daemon)
}

/// A client that leaves every call of a tool.
pub(super) struct Leaver<'d> {
    daemon: &'d Daemon,
    way: Way,
    tool: &'static str,
    session: String,
    next: usize,
}

impl<'d> Leaver<'d> {
    pub(super) fn new(daemon: &'d Daemon, way: Way) -> Self {
        Self::of(daemon, way, "echo")
    }

    pub(super) fn of(daemon: &'d Daemon, way: Way, tool: &'static str) -> Self {
        let opened = daemon.send(&initialize("0", LEGACY_VERSION).by(0));
        let session = opened.header("mcp-session-id").expect("a session").to_owned();
        Self { daemon, way, tool, session, next: 1 }
    }

    fn request(&mut self) -> (String, Request) {
        let id = self.next.to_string();
        self.next += 1;
        let request = match self.way {
            Way::Disconnects => call(&id, self.tool),
            Way::Cancels => in_session(&self.session, legacy_call(&id, self.tool)),
        };
        (id, request.by(0))
    }

    /// Begins a call, which is left at once when it is under way.
    pub(super) fn begin(&mut self) -> (String, Connection) {
        let (id, request) = self.request();
        (id, self.daemon.begin(&request))
    }

    pub(super) fn leave(&self, (id, connection): (String, Connection)) {
        if self.way == Way::Cancels {
            let note = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
            );
            let note = in_session(&self.session, legacy("1", "ping", "{}").body(note)).by(0);
            assert_eq!(self.daemon.send(&note).status, 202);
        }
        drop(connection);
    }
}

pub(super) fn wait_for(daemon: &Daemon, metric: &str, count: u64) {
    eventually(metric, || (daemon.find_metric_of_up(metric) == Some(count)).then_some(()));
}

#[test]
fn a_call_that_was_left_keeps_its_place_for_a_while() {
    side_by_side([Way::Disconnects, Way::Cancels], |way| {
        let gate = Gate::default();
        let held = gate.clone();
        let first = FirstCall::default();
        let answer = move || if first.is_this() { Reply::default() } else { Reply::silence().wait(&held) };
        let (upstream, daemon) = start(answer, "calls_wait_max = \"1m\"");
        daemon.send(&call("1", "echo").by(1)).assert_ok();
        let mut leaver = Leaver::new(&daemon, way);
        for number in 2..=5 {
            let begun = leaver.begin();
            upstream.wait_for("tools/call", number);
            leaver.leave(begun);
        }
        wait_for(&daemon, KEPT, 4);
        // Its next ones wait for its own, and go when it leaves them.
        let waiting: Vec<_> = (0..20).map(|_| leaver.begin()).collect();
        wait_for(&daemon, WAITING, 20);
        if way == Way::Disconnects {
            drop(waiting);
            wait_for(&daemon, WAITING, 0);
            assert_eq!(upstream.received_of("tools/call").len(), 5, "{way:?}: the server has no more work");
            // After a while nobody knows of any work.
            wait_for(&daemon, KEPT, 0);
            wait_for(&daemon, IN_USE, 0);
        } else {
            // They begin when the others' time is over, and not before.
            upstream.wait_for("tools/call", 9);
        }
        gate.open();
    });
}

#[test]
fn a_place_that_is_kept_for_one_is_given_to_others() {
    let gate = Gate::default();
    let held = gate.clone();
    let lines = "response_timeout = \"60s\"\ncalls_wait_max = \"4s\"";
    let (upstream, daemon) = start(move || Reply::silence().wait(&held), lines);
    let mut leaver = Leaver::new(&daemon, Way::Disconnects);
    let left: Vec<_> = (1..=4).map(|_| leaver.begin()).collect();
    upstream.wait_for("tools/call", 4);
    for begun in left {
        leaver.leave(begun);
    }
    // Half of them at once.
    let first = daemon.begin(&call("1", "echo").by(1));
    let second = daemon.begin(&call("2", "echo").by(1));
    upstream.wait_for("tools/call", 6);
    gate.open();
    for mut connection in [first, second] {
        connection.response().assert_ok();
    }
}

#[test]
fn the_place_of_a_call_is_kept_for_as_long_as_its_tool_usually_takes() {
    let is_slow = Arc::new(AtomicBool::new(true));
    let (slow, gate) = (Arc::clone(&is_slow), Gate::default());
    let held = gate.clone();
    let answer = move || {
        if slow.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(1200));
            return Reply::default();
        }
        Reply::silence().wait(&held)
    };
    let (upstream, daemon) = start(answer, "");
    let mut usual = daemon.begin(&call("1", "echo").by(1));
    usual.response().assert_ok();
    is_slow.store(false, Ordering::SeqCst);
    let mut leaver = Leaver::new(&daemon, Way::Disconnects);
    let begun = leaver.begin();
    upstream.wait_for("tools/call", 2);
    leaver.leave(begun);
    wait_for(&daemon, KEPT, 1);
    let from = Instant::now();
    wait_for(&daemon, KEPT, 0);
    assert!(from.elapsed() >= Duration::from_millis(1100), "{:?}", from.elapsed());
    gate.open();
}

/// The duration of the slowest of some calls of the client that stays.
fn slowest(daemon: &Daemon) -> Duration {
    let calls = (0..12).map(|number| {
        let begun = Instant::now();
        daemon.send(&call(&format!("\"s{number}\""), "other").by(1)).assert_ok();
        begun.elapsed()
    });
    calls.max().expect("calls")
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[test]
fn one_that_leaves_all_the_time_slows_nobody_down() {
    const WORK: Duration = Duration::from_millis(60);
    for way in [Way::Disconnects, Way::Cancels] {
        let answer = || {
            sleep(WORK);
            Reply::default()
        };
        let (_upstream, daemon) = start(answer, "");
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        slowest(&daemon);
        for _ in 0..5 {
            alone.push(slowest(&daemon));
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut leaver = Leaver::new(&daemon, way);
                    while !is_over.load(Ordering::SeqCst) {
                        let begun = leaver.begin();
                        sleep(Duration::from_millis(5));
                        leaver.leave(begun);
                        sleep(Duration::from_millis(5));
                    }
                });
                beside.push(slowest(&daemon));
                is_over.store(true, Ordering::SeqCst);
            });
        }
        let (alone, beside) = (median(alone), median(beside));
        assert!(beside <= alone * 2, "{way:?}: {beside:?} beside, {alone:?} alone");
    }
}
