//! Places of calls that were left, at servers of every kind: until when they are kept, and who is given them.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::leaving::{FirstCall, IN_USE, KEPT, Leaver, USUALLY, WAITING, Way, wait_for};
use super::{As, keys};
use crate::harness::{
    Child, Config, Daemon, Gate, Legacy, Offer, Received, Reply, Upstream, call, side_by_side,
};
use crate::upstreams::http_sse;

/// The time for which a place is kept at least of which nobody knows when its call ends.
const KEPT_MIN: Duration = Duration::from_secs(1);

/// A server that answers the first call late and no other, and its keys.
fn silent(way: Way, is_over_sse: bool, gate: &Gate) -> (Upstream, &'static str) {
    let (held, first) = (gate.clone(), FirstCall::default());
    let is_left = move |request: &Received| request.method() == "tools/call" && !first.is_this();
    if is_over_sse {
        let server = http_sse::Server::replying(move |request| {
            is_left(request).then(|| Reply::http("202 Accepted", "", ""))
        });
        return (server.start(), "transport = \"sse\"\neras = [\"legacy\"]");
    }
    let is_modern = way == Way::Cancels;
    let (old, new) = (Legacy::new(Offer::tools(&["echo"])), Offer::tools(&["echo"]));
    let upstream = Upstream::start(move |request| {
        if is_left(request) {
            return Reply::silence().wait(&held);
        }
        if is_modern { new.answer(request) } else { old.answer(request) }
    });
    (upstream, if is_modern { "eras = [\"modern\"]" } else { "eras = [\"legacy\"]" })
}

#[test]
fn places_are_kept_over_http_sse_and_over_the_bridge() {
    let cases = [
        // Within a session, and over the bridge.
        (Way::Cancels, true),
        (Way::Disconnects, true),
        // Over the bridge to a server of the legacy era, and to one of the modern era.
        (Way::Disconnects, false),
        (Way::Cancels, false),
    ];
    side_by_side(cases, |(way, is_over_sse)| {
        let what = format!("{way:?}, over HTTP+SSE: {is_over_sse}");
        let gate = Gate::default();
        let (upstream, lines) = silent(way, is_over_sse, &gate);
        let lines = format!("{lines}\ncalls_max = 4\ncalls_wait_max = \"1m\"");
        let config = Config::new().upstream("up", upstream.address, &lines).admin().section(&keys());
        let daemon = Daemon::start(&config);
        daemon.send(&call("1", "echo").by(1)).assert_ok();
        let mut leaver = Leaver::new(&daemon, way);
        let begun: Vec<_> = (2..=5)
            .map(|number| {
                let begun = leaver.begin();
                upstream.wait_for("tools/call", number);
                begun
            })
            .collect();
        let left = Instant::now();
        for call in begun {
            leaver.leave(call);
        }
        wait_for(&daemon, KEPT, 4);
        if is_over_sse || way == Way::Disconnects {
            upstream.wait_for("notifications/cancelled", 4);
        }
        // Its next ones wait for its own.
        let waiting: Vec<_> = (0..8).map(|_| leaver.begin()).collect();
        let at_work = upstream.received_of("tools/call").len();
        if left.elapsed() < USUALLY {
            assert_eq!(at_work, 5, "{what}: the server has no more work");
            assert_eq!(daemon.find_metric_of_up(IN_USE), Some(4), "{what}");
        }
        // They begin when the others' time is over.
        upstream.wait_for("tools/call", 9);
        let waited = "trunkline_upstream_calls_waited_seconds_count{upstream=\"up\"}";
        assert!(daemon.metric(waited) > 0, "{what}");
        for call in waiting {
            leaver.leave(call);
        }
        wait_for(&daemon, WAITING, 0);
        wait_for(&daemon, KEPT, 0);
        wait_for(&daemon, IN_USE, 0);
        gate.open();
    });
}

/// A child process of these words that may have two calls at once.
fn child_of(words: &[&str], lines: &str) -> (Child, Daemon) {
    let child = Child::new(words);
    let era = if words.contains(&"modern") { "modern" } else { "legacy" };
    let bounds = "calls_max = 2\ncalls_wait_max = \"3s\"\nresponse_timeout = \"1m\"";
    let lines = child.keys(&format!("eras = [\"{era}\"]\n{bounds}\n{lines}"));
    let daemon = Daemon::start(&Config::new().raw("up", &lines).admin().section(&keys()));
    (child, daemon)
}

/// The wires on which a call of a child process is left, each with what is special about the process.
const OF_CHILDREN: [(Way, &[&str], &str); 5] = [
    (Way::Cancels, &[], ""),
    (Way::Cancels, &[], "isolation = \"shared\""),
    (Way::Disconnects, &[], "isolation = \"shared\""),
    (Way::Disconnects, &["modern"], ""),
    (Way::Disconnects, &["modern"], "isolation = \"shared\""),
];

#[test]
fn the_place_of_a_call_of_a_child_is_kept_until_it_answers_or_ends() {
    let both = OF_CHILDREN.into_iter().flat_map(|case| [(case, true), (case, false)]);
    side_by_side(both, |((way, words, lines), answers)| {
        let what = format!("{way:?} {words:?} {lines}, answers: {answers}");
        let (child, daemon) = child_of(words, lines);
        let mut leaver = Leaver::of(&daemon, way, if answers { "wait" } else { "hang" });
        let begun = leaver.begin();
        child.wait_received("tools/call", 1);
        leaver.leave(begun);
        wait_for(&daemon, KEPT, 1);
        let since = Instant::now();
        while since.elapsed() < KEPT_MIN * 3 / 2 {
            assert_eq!(daemon.find_metric_of_up(KEPT), Some(1), "{what}: after {:?}", since.elapsed());
        }
        if answers {
            child.go_on();
        } else {
            let at_work = child.events_of("received").into_iter().rev();
            let pid = at_work
                .filter(|event| event["message"]["method"] == "tools/call")
                .find_map(|event| Pid::from_raw(i32::try_from(event["pid"].as_i64()?).ok()?));
            kill_process(pid.expect("a process"), Signal::KILL).expect("it lives");
        }
        wait_for(&daemon, KEPT, 0);
        wait_for(&daemon, IN_USE, 0);
    });
}

#[test]
fn a_place_that_is_kept_for_long_is_given_to_one_that_has_waited_for_half_of_its_time() {
    side_by_side(OF_CHILDREN, |(way, words, lines)| {
        let what = format!("{way:?} {words:?} {lines}");
        let (child, daemon) = child_of(words, lines);
        let mut leaver = Leaver::of(&daemon, way, "hang");
        let left = [leaver.begin(), leaver.begin()];
        child.wait_received("tools/call", 2);
        for call in left {
            leaver.leave(call);
        }
        wait_for(&daemon, KEPT, 2);
        // Half of them are others' at once.
        let _staying = daemon.begin(&call("1", "hang").by(1));
        child.wait_received("tools/call", 3);
        wait_for(&daemon, KEPT, 1);
        let since = Instant::now();
        daemon.send(&call("2", "echo").by(2)).assert_ok();
        assert!(since.elapsed() >= Duration::from_millis(1400), "{what}: {:?}", since.elapsed());
        wait_for(&daemon, KEPT, 0);
    });
}
