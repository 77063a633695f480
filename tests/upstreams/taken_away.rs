//! A program that is taken away while somebody waits for it: by a reload that replaces or removes its upstream, and by the
//! end of the gateway.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{
    Child, Config, Daemon, LEGACY_VERSION, Request, call, eventually, in_session, legacy, list, open_session,
    side_by_side,
};

/// One worker: what is answered after a request was sent is answered after that has come as far as it can.
const ONE_WORKER: &str = "workers = 1";
/// Calls are told as well what became of them.
const NOT_EXECUTED: &str = "; the call was not executed";
/// A gateway that waits for anything else than its processes does not end in the time of a test.
const LONG_DRAIN: &str = "[drain]\nquiet = \"0s\"\nmax = \"10m\"";

/// The era is sure, and nobody need ask.
const LEGACY_ALONE: &str = "eras = [\"legacy\"]";

/// A program that is not up in the time of a test.
fn never_up() -> Child {
    Child::new(&["strict", "starts-in=600"])
}

fn keys(child: &Child) -> String {
    child.keys("stop_timeout = \"100ms\"")
}

fn request(daemon: &Daemon, is_modern: bool, method: &str) -> Request {
    let is_call = method == "tools/call";
    if is_modern {
        return if is_call { call("1", "up__echo") } else { list("1", method) };
    }
    let params = if is_call { r#"{"name":"up__echo","arguments":{}}"# } else { "{}" };
    in_session(&open_session(daemon.address(), LEGACY_VERSION).0, legacy("1", method, params))
}

/// The error of a request that waits when the gateway is told this configuration.
fn refused_after_reload(daemon: &Daemon, request: &Request, is_modern: bool, config: &Config) -> Value {
    let mut waiting = daemon.begin(request);
    assert_eq!(daemon.send(&call("2", "echo").target("/nowhere")).status, 404);
    daemon.reload(config);
    waiting.response().assert_error(if is_modern { 503 } else { 200 }, 503, Some("1"))
}

fn assert_says_so(error: &Value, outcome: &str) {
    let said = format!("the configuration has changed meanwhile{outcome}, try again in a moment");
    assert_eq!(error["error"]["message"], said, "{error}");
    assert_eq!(error["error"]["data"]["retryAfterMs"], 1000, "{error}");
}

#[test]
fn a_call_is_told_that_the_program_it_waits_for_is_gone() {
    side_by_side([(true, true), (true, false), (false, true), (false, false)], |(is_modern, is_replaced)| {
        let (old, new, other) = (never_up(), Child::new(&["strict"]), Child::new(&["strict"]));
        let without = || Config::new().admin().top(ONE_WORKER).raw("other", &keys(&other));
        let with = |child: &Child| without().raw("up", &keys(child));
        let daemon = Daemon::start(&with(&old));
        old.wait_for("started", 1);
        let request = request(&daemon, is_modern, "tools/call");
        let config = if is_replaced { with(&new) } else { without() };
        assert_says_so(&refused_after_reload(&daemon, &request, is_modern, &config), NOT_EXECUTED);
        old.wait_gone();
        daemon.wait_for_log(0, "the reload", |line| line.contains(" reloaded "));
        let log = daemon.log();
        let blames = |line: &&String| line.contains("cannot learn") && line.contains("upstream=\"up\"");
        assert_eq!(log.iter().find(blames), None, "nobody has to mend what is gone");
        if is_replaced {
            eventually("the new one is called", || {
                daemon.send(&request).text().contains("content").then_some(())
            });
            assert_eq!(new.received("tools/call").len(), 1, "none of them was executed before");
        }
    });
}

#[test]
fn a_call_is_told_that_its_upstream_has_other_settings() {
    side_by_side([true, false], |is_modern| {
        let (up, other) = (never_up(), Child::new(&["strict"]));
        let config = |lines: &str| {
            let config = Config::new().admin().top(ONE_WORKER).raw("other", &keys(&other));
            config.raw("up", &up.keys(lines))
        };
        let daemon = Daemon::start(&config("stop_timeout = \"100ms\""));
        up.wait_for("started", 1);
        let request = request(&daemon, is_modern, "tools/call");
        // The process stays, and is asked anew.
        let changed = config("stop_timeout = \"100ms\"\nprefix = \"renamed\"");
        assert_says_so(&refused_after_reload(&daemon, &request, is_modern, &changed), NOT_EXECUTED);
    });
}

#[test]
fn a_list_is_told_that_the_program_it_waits_for_is_gone() {
    side_by_side([true, false], |is_modern| {
        let (old, new) = (never_up(), Child::new(&["strict"]));
        let config = |child: &Child| Config::new().admin().top(ONE_WORKER).raw("up", &keys(child));
        let daemon = Daemon::start(&config(&old));
        old.wait_for("started", 1);
        let request = request(&daemon, is_modern, "tools/list");
        assert_says_so(&refused_after_reload(&daemon, &request, is_modern, &config(&new)), "");
        eventually("the new one is listed", || {
            daemon.send(&request).text().contains("\"tools\"").then_some(())
        });
    });
}

#[test]
fn a_call_is_told_that_the_process_of_its_session_is_gone() {
    side_by_side([(true, true), (true, false), (false, true), (false, false)], |(is_modern, is_replaced)| {
        let (old, new, other) = (Child::new(&["strict"]), Child::new(&["strict"]), Child::new(&["strict"]));
        let without = || Config::new().admin().raw("other", &keys(&other));
        let with = |child: &Child| without().raw("up", &keys(child));
        let daemon = Daemon::start(&with(&old));
        eventually("the program is known", || {
            daemon.send(&list("1", "tools/list")).text().contains("up__echo").then_some(())
        });
        old.hold();
        let mut waiting = daemon.begin(&request(&daemon, is_modern, "tools/call"));
        old.wait_for("holding", 1);
        daemon.reload(&if is_replaced { with(&new) } else { without() });
        let refused = waiting.response().assert_error(if is_modern { 503 } else { 200 }, 503, Some("1"));
        assert_says_so(&refused, NOT_EXECUTED);
        old.wait_gone();
    });
}

#[test]
fn a_program_that_hangs_in_initialize_ends_with_its_upstream() {
    side_by_side(["session", "shared"], |isolation| {
        let (old, new) = (Child::new(&["strict"]), Child::new(&["strict"]));
        old.hold();
        let lines = format!("isolation = {isolation:?}\nstop_timeout = \"100ms\"");
        let config = |child: &Child| Config::new().admin().raw("up", &child.keys(&lines));
        let daemon = Daemon::start(&config(&old));
        old.wait_for("holding", 1);
        daemon.reload(&config(&new));
        old.wait_gone();
    });
}

#[test]
fn a_question_of_the_gateway_does_not_hold_up_its_end() {
    side_by_side(["session", "shared"], |isolation| {
        let child = Child::new(&["strict"]);
        child.hold();
        let lines = format!("isolation = {isolation:?}\nstop_timeout = \"100ms\"");
        let mut daemon = Daemon::start(&Config::new().raw("up", &child.keys(&lines)).section(LONG_DRAIN));
        child.wait_for("holding", 1);
        daemon.terminate();
        assert!(daemon.wait_exit().success());
        child.wait_gone();
        assert_eq!(child.pids().len(), 1, "{isolation}: none was started in its place");
    });
}

#[test]
fn the_end_of_the_gateway_waits_for_no_start_whoever_does() {
    let waiting = [(true, "tools/call"), (false, "tools/call"), (true, "tools/list"), (false, "tools/list")];
    // A program of unknown era is asked for its era first.
    let programs = [("session", ""), ("shared", ""), ("session", LEGACY_ALONE), ("shared", LEGACY_ALONE)];
    let kinds = programs.into_iter().flat_map(|program| waiting.map(|request| (program, request)));
    side_by_side(kinds, |((isolation, eras), (is_modern, method))| {
        // It answers what it speaks, and hangs in `initialize`.
        let child = Child::new(&[]);
        child.hold();
        let lines = format!("isolation = {isolation:?}\nstop_timeout = \"100ms\"\n{eras}");
        let config = Config::new().top(ONE_WORKER).raw("up", &child.keys(&lines));
        let mut daemon = Daemon::start(&config.section(LONG_DRAIN));
        child.wait_for("holding", 1);
        let mut waiting = daemon.begin(&request(&daemon, is_modern, method));
        assert_eq!(daemon.send(&call("2", "echo").target("/nowhere")).status, 404);
        daemon.terminate();
        let refused = waiting.response().assert_error(if is_modern { 503 } else { 200 }, 503, Some("1"));
        let said = refused["error"]["message"].as_str().expect("a message");
        assert!(said.contains("still starting"), "{isolation} {eras} {method}: {said}");
        assert!(daemon.wait_exit().success());
        child.wait_gone();
    });
}

#[test]
fn the_end_of_a_program_that_is_not_up_is_the_end_of_the_gateway() {
    let child = never_up();
    let keys = child.keys("stop_timeout = \"2s\"");
    let mut daemon = Daemon::start(&Config::new().raw("up", &keys).section(LONG_DRAIN));
    child.wait_for("started", 1);
    daemon.terminate();
    assert!(daemon.wait_exit().success());
    assert_eq!(
        child.pids().len(),
        1,
        "none was started in its place, which would take its time to end as well"
    );
}

/// Programs whose era nobody knows yet, and the message that they have read and say nothing to; none: they read nothing.
const UNKNOWN: [(&[&str], Option<&str>); 6] = [
    (&["strict", "starts-in=20"], None),
    (&["modern", "fixes-era", "starts-in=20"], None),
    (&["modern-only", "starts-in=20"], None),
    (&["modern-only", "hangs-at=server/discover"], Some("server/discover")),
    (&["silent-on-discover", "hangs-at=initialize"], Some("initialize")),
    (&["strict", "hangs-at=initialize"], Some("initialize")),
];

#[test]
fn the_end_of_the_gateway_ends_the_first_start_of_a_program_and_blames_nobody() {
    let waiting = [None, Some((true, "tools/call")), Some((false, "tools/call")), Some((true, "tools/list"))];
    for (words, read) in UNKNOWN {
        side_by_side(waiting, |waiting| {
            let child = Child::new(words);
            let config = Config::new().admin().top(ONE_WORKER).raw("up", &keys(&child));
            let mut daemon = Daemon::start(&config.section(LONG_DRAIN));
            match read {
                Some(method) => drop(child.wait_received(method, 1)),
                None => drop(child.wait_for("started", 1)),
            }
            let waiting = waiting.map(|(is_modern, method)| {
                let begun = daemon.begin(&request(&daemon, is_modern, method));
                assert_eq!(daemon.send(&call("2", "echo").target("/nowhere")).status, 404);
                (begun, is_modern)
            });
            let since = Instant::now();
            daemon.terminate();
            if let Some((mut waiting, is_modern)) = waiting {
                let refused =
                    waiting.response().assert_error(if is_modern { 503 } else { 200 }, 503, Some("1"));
                let said = refused["error"]["message"].as_str().expect("a message");
                assert!(said.contains("still starting"), "{words:?}: {said}");
            }
            assert!(daemon.wait_exit().success());
            assert!(since.elapsed() < Duration::from_secs(5), "{words:?}: {:?}", since.elapsed());
            child.wait_gone();
            assert_eq!(child.pids().len(), 1, "{words:?}: none was started in its place");
            let log = daemon.log();
            let is_of_start = |line: &str| {
                ["no state_directory", "run as root", "call failed"].iter().any(|word| line.contains(word))
            };
            let blames =
                |line: &&String| (line.contains("WARN") || line.contains("ERROR")) && !is_of_start(line);
            assert_eq!(log.iter().find(blames), None, "{words:?}");
        });
    }
}
