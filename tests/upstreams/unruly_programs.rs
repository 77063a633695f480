//! Programs that end, refuse or answer unasked, at each point of their lives: their own calls fail and are told as what they
//! are, and nothing else does.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::states::{expect, status, upstream};
use crate::harness::{
    Child, Config, Connection, Daemon, LEGACY_VERSION, META, Request, Response, api_key, body, call,
    eventually, eventually_within, in_session, legacy, legacy_call, list, modern, open_session, side_by_side,
    tool_names, with_key,
};

/// A program that ends at one point of its life.
struct Ending {
    /// The point, and what the program is beside that.
    words: &'static [&'static str],
    /// The words that are told of it.
    state: &'static str,
    why: &'static str,
    cause: &'static str,
}

const fn down(words: &'static [&'static str]) -> Ending {
    Ending { words, state: "down", why: "in a crash loop", cause: "crash loop" }
}

const fn unlisted(words: &'static [&'static str]) -> Ending {
    let why = "tools/list: its process ended, exit status: 3";
    Ending { words, state: "cannot be listed", why, cause: "the process ended with an exit status" }
}

/// Every point at which a program may end without a client's doing.
const ENDINGS: [Ending; 9] = [
    down(&["strict", "dies-at-start"]),
    down(&["strict", "banner", "dies-at-start"]),
    down(&["strict", "crashes-at=initialize"]),
    unlisted(&["strict", "tools-only", "dies-when-initialized"]),
    unlisted(&["strict", "tools-only", "crashes-at=tools/list"]),
    down(&["modern-only", "dies-at-start"]),
    down(&["modern-only", "banner", "dies-at-start"]),
    down(&["modern-only", "crashes-at=server/discover"]),
    unlisted(&["modern-only", "crashes-at=tools/list"]),
];

/// Beside one that does nothing wrong.
fn beside(unruly: &Child, good: &Child) -> Daemon {
    let config = Config::new().raw("bad", &unruly.keys("list_timeout = \"2s\""));
    Daemon::start(&config.raw("good", &good.keys("")).admin())
}

fn open(daemon: &Daemon) -> String {
    open_session(daemon.address(), LEGACY_VERSION).0
}

fn list_in(session: &str, method: &str) -> Request {
    in_session(session, legacy("1", method, "{}"))
}

/// The tools of the other program are listed, and can be called, by clients of both eras.
#[track_caller]
fn assert_unharmed(daemon: &Daemon, session: &str) {
    for request in [list("1", "tools/list"), list_in(session, "tools/list")] {
        let names = tool_names(&daemon.send(&request));
        assert!(names.iter().any(|name| name == "good__echo"), "{names:?}");
    }
    let since = Instant::now();
    daemon.send(&call("1", "good__echo")).assert_ok();
    let answer = daemon.send(&in_session(session, legacy_call("2", "good__echo")));
    assert!(answer.text().contains("content"), "{}", answer.text());
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    let told = status(daemon);
    assert_eq!(upstream(&told, "good")["state"], "up", "{told:#}");
}

/// Fails with an error of JSON-RPC.
#[track_caller]
fn assert_refused(response: &Response) -> Value {
    let error = response.json()["error"].clone();
    assert!(error["code"].is_i64(), "{}", response.text());
    error
}

#[test]
fn a_program_that_ends_at_any_point_is_named_and_harms_nobody_else() {
    side_by_side(ENDINGS, |ending| {
        let Ending { words, state, why, cause } = ending;
        let (unruly, good) = (Child::new(words), Child::new(&["strict", "tools-only"]));
        let daemon = beside(&unruly, &good);
        let session = open(&daemon);
        let ask = || {
            daemon.send(&list("1", "tools/list"));
            daemon.send(&list_in(&session, "tools/list"));
        };
        eventually(&format!("{words:?} is told"), || {
            ask();
            let told = upstream(&status(&daemon), "bad");
            let is_told =
                told["state"] == state && told["why"].as_str().is_some_and(|told| told.contains(why));
            is_told.then_some(())
        });
        expect(&daemon, "bad", state, why, cause);
        assert_unharmed(&daemon, &session);
        // It is not started for each question.
        let (starts, since) = (unruly.pids().len(), Instant::now());
        (0..20).for_each(|_| ask());
        let lived = usize::try_from(since.elapsed().as_secs()).expect("not long");
        if words.iter().all(|word| !word.ends_with("resources/list")) {
            assert!(
                unruly.pids().len() <= starts + 2 + lived,
                "{words:?}: {starts}, {}",
                unruly.pids().len()
            );
        }
        assert_unharmed(&daemon, &session);
        // A caller is told so.
        if state == "down" {
            assert_refused(&daemon.send(&call("3", "bad__echo")));
            assert_refused(&daemon.send(&in_session(&session, legacy_call("3", "bad__echo"))));
        }
    });
}

/// Every list but that of the tools.
const OTHER_LISTS: [&str; 3] = ["resources/list", "resources/templates/list", "prompts/list"];

/// Programs that declare every list.
const LISTING: [&[&str]; 2] = [&["strict", "declares-all"], &["modern-only", "declares-all", "ttl=100"]];

/// Its tools are listed and can be called, while another list is told to fail with this.
#[track_caller]
fn assert_only_list_fails(words: &[&str], method: &str, why: &str) {
    let (unruly, good) = (Child::new(words), Child::new(&["strict", "tools-only"]));
    let daemon = beside(&unruly, &good);
    let session = open(&daemon);
    eventually(&format!("{words:?}: {why}"), || {
        // Another list that was asked when the process ended is answered by the next one.
        for asked in OTHER_LISTS.into_iter().filter(|other| *other != method).chain([method]) {
            daemon.send(&list("1", asked));
            daemon.send(&list_in(&session, asked));
        }
        let told = upstream(&status(&daemon), "bad");
        let is_told = told["state"] == "cannot be listed"
            && told["why"].as_str().is_some_and(|told| told.starts_with(why));
        (is_told && told["usable"] == true).then_some(())
    });
    for request in [list("1", "tools/list"), list_in(&session, "tools/list")] {
        eventually("its tools are listed", || {
            (tool_names(&daemon.send(&request)) == ["bad__echo", "good__echo"]).then_some(())
        });
    }
    eventually("it is called", || (daemon.send(&call("1", "bad__echo")).status == 200).then_some(()));
    assert_unharmed(&daemon, &session);
}

#[test]
fn a_program_that_ends_at_another_list_keeps_its_tools() {
    let check = |words: &[&str], method: &str| {
        let ending = format!("crashes-at={method}");
        let why = format!("{method}: its process ended, exit status: 3");
        assert_only_list_fails(&[words, &[&*ending]].concat(), method, &why);
    };
    for words in LISTING {
        side_by_side(OTHER_LISTS, |method| check(words, method));
    }
    // One that ponders never lists its tools beside the other list.
    check(&["strict", "ponders=0.5"], "resources/list");
}

#[test]
fn a_program_that_refuses_another_list_keeps_its_tools() {
    for words in LISTING {
        side_by_side(OTHER_LISTS, |method| {
            let refusing = format!("refuses={method}");
            let why = format!("{method}: invalid key of nobody (-32603)");
            assert_only_list_fails(&[words, &[&*refusing]].concat(), method, &why);
        });
    }
}

#[test]
fn a_program_that_ends_at_subscriptions_listen_keeps_its_tools() {
    let words = ["modern-only", "declares-all", "crashes-at=subscriptions/listen"];
    let (unruly, good) = (Child::new(&words), Child::new(&["strict", "tools-only"]));
    let daemon = beside(&unruly, &good);
    let session = open(&daemon);
    let _listening = listening(&daemon);
    unruly.wait_received("subscriptions/listen", 3);
    let line = daemon.wait_for_log(0, "why", |line| line.contains("cannot listen to this upstream"));
    // Its exit status may be known a little later.
    assert!(line.contains("upstream=\"bad\" error=\"its process ended"), "{line}");
    for request in [list("1", "tools/list"), list_in(&session, "tools/list")] {
        eventually("all are listed", || (tool_names(&daemon.send(&request)).len() == 2).then_some(()));
    }
    // It is asked again after growing pauses, however much it is used meanwhile.
    let (asked, since) = (unruly.received("subscriptions/listen").len(), Instant::now());
    for _ in 0..10 {
        for request in [list("1", "tools/list"), list_in(&session, "tools/list")] {
            assert_eq!(tool_names(&daemon.send(&request)), ["bad__echo", "good__echo"]);
        }
        eventually("it is called", || (daemon.send(&call("1", "bad__echo")).status == 200).then_some(()));
    }
    let lived = usize::try_from(since.elapsed().as_secs()).expect("not long");
    assert!(unruly.received("subscriptions/listen").len() <= asked + 1 + lived, "{asked}");
    assert_unharmed(&daemon, &session);
    eventually("it is usable", || (upstream(&status(&daemon), "bad")["usable"] == true).then_some(()));
}

/// A stream of a client that hears of changes of tools.
fn listening(daemon: &Daemon) -> Connection {
    let params = format!(r#"{{"notifications":{{"toolsListChanged":true}},"_meta":{META}}}"#);
    let mut listening = daemon.connect();
    let listen = modern("subscriptions/listen", None, body("1", "subscriptions/listen", &params));
    listening.write(&listen.bytes());
    assert_eq!(listening.head().status, 200);
    listening
}

/// Programs that end at a question of the gateway's own, though they answer others.
const ENDING_AT_OWN: [(&[&str], &str); 4] = [
    (&["modern-only", "declares-all"], "subscriptions/listen"),
    (&["modern", "declares-all"], "subscriptions/listen"),
    (&["modern-only", "declares-all", "ttl=100", "crashes-after=2"], "tools/list"),
    (&["strict", "declares-all", "crashes-after=1"], "tools/list"),
];

#[test]
fn a_program_that_ends_again_and_again_at_a_question_of_the_gateway_is_told_until_it_lives_on() {
    side_by_side(ENDING_AT_OWN, |(words, method)| {
        let crash = format!("crashes-at={method}");
        let (unruly, good) =
            (Child::new(&[words, &[&*crash]].concat()), Child::new(&["strict", "tools-only"]));
        let daemon = beside(&unruly, &good);
        // A list that it promises to tell changes of is kept.
        let _listening = (method == "subscriptions/listen").then(|| listening(&daemon));
        let ask = || {
            daemon.send(&list("1", "tools/list"));
            daemon.send(&in_session(&open(&daemon), legacy("1", "tools/list", "{}")));
        };
        let metric = "trunkline_child_crash_loop{upstream=\"bad\"}";
        let found = eventually(&format!("{words:?} {method}: it is told"), || {
            ask();
            let told = status(&daemon);
            let found = upstream(&told, "bad");
            let is_told = found["state"] != "up"
                && found["why"].as_str().is_some_and(|why| {
                    why.starts_with(method) && why.contains("ended") && why.contains("crash loop")
                });
            let is_problem = told["problems"]
                .as_array()
                .is_some_and(|all| all.iter().any(|problem| problem["names"].to_string().contains("bad")));
            (is_told && is_problem && daemon.find_metric(metric) == Some(1)).then_some(found)
        });
        if method == "subscriptions/listen" {
            assert_eq!((&found["state"], &found["usable"]), (&"failing".into(), &true.into()), "{found:#}");
        }
        daemon.wait_for_log(0, "it is logged", |line| {
            line.contains("end at a question of the gateway's own") && line.contains(method)
        });
        // Calls of clients start it, however long the gateway waits with its own questions.
        for number in 0..5 {
            eventually(&format!("{words:?} {method}: call {number}"), || {
                (daemon.send(&call("1", "bad__echo")).status == 200).then_some(())
            });
            assert_ne!(upstream(&status(&daemon), "bad")["state"], "up", "{words:?}");
        }
        assert_unharmed(&daemon, &open(&daemon));
        unruly.crashes_no_more();
        eventually_within(Duration::from_mins(1), &format!("{words:?} {method}: it is up"), || {
            ask();
            let is_up = upstream(&status(&daemon), "bad")["state"] == "up";
            (is_up && daemon.find_metric(metric) == Some(0)).then_some(())
        });
    });
}

#[test]
fn a_program_that_ends_at_each_call_is_up_and_started_for_the_next() {
    side_by_side([&["strict", "tools-only"], &["modern-only", "tools-only"]], |words| {
        let words = [&words[..], &["crashes-at=tools/call"]].concat();
        let (unruly, good) = (Child::new(&words), Child::new(&["strict", "tools-only"]));
        let daemon = beside(&unruly, &good);
        let session = open(&daemon);
        eventually("it is listed", || {
            let names = tool_names(&daemon.send(&list("1", "tools/list")));
            (names == ["bad__echo", "good__echo"]).then_some(())
        });
        for number in 1..=6 {
            let refused = daemon.send(&call("3", "bad__echo"));
            let error = assert_refused(&refused);
            assert_eq!(refused.status, 502, "{number}: {error:#}");
            let refused = daemon.send(&in_session(&open(&daemon), legacy_call("3", "bad__echo")));
            assert_refused(&refused);
        }
        assert_eq!(unruly.received("tools/call").len(), 12, "each of them has reached a process");
        assert_unharmed(&daemon, &session);
        assert_eq!(daemon.find_metric("trunkline_child_crash_loop{upstream=\"bad\"}"), Some(0));
        let told = upstream(&status(&daemon), "bad");
        assert!(!told["why"].as_str().unwrap_or_default().contains("loop"), "{told:#}");
    });
}

#[test]
fn one_client_alone_waits_for_longer_and_longer_where_its_processes_end() {
    let child = Child::new(&["strict", "tools-only", "crashes-at=tools/call"]);
    let config = Config::new().raw("up", &child.keys("")).admin();
    let config = ["one", "other"].iter().fold(config, |config, name| config.section(&api_key(name, name)));
    let daemon = Daemon::start(&config);
    let call_of = |name: &str| {
        let params =
            r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}"#;
        let opened = daemon.send(&with_key(legacy("0", "initialize", params), name));
        let session = opened.header("mcp-session-id").expect("a session").to_owned();
        let refused = daemon.send(&with_key(in_session(&session, legacy_call("3", "echo")), name));
        assert_refused(&refused)["code"].as_i64().expect("a code")
    };
    // Its calls may be the reason of many.
    let mut reached = 0;
    eventually_within(Duration::from_mins(3), "it waits", || {
        let code = call_of("one");
        reached += usize::from(code == 502);
        (code == 503).then_some(())
    });
    assert!(reached > 12, "{reached}");
    let (before, since) = (child.received("tools/call").len(), Instant::now());
    while since.elapsed() < Duration::from_secs(6) {
        call_of("one");
    }
    let more = child.received("tools/call").len() - before;
    assert!((1..=5).contains(&more), "{more}");
    assert_eq!(call_of("other"), 502, "its call reaches a process");
}

#[test]
fn what_a_program_says_before_it_is_asked_answers_nothing() {
    let kinds: [&[&str]; 4] =
        [&["strict"], &["modern", "fixes-era"], &["modern-only"], &["silent-on-discover"]];
    side_by_side(kinds, |kind| {
        let words = [kind, &["tools-only", "early"]].concat();
        let (unruly, good) = (Child::new(&words), Child::new(&["strict", "tools-only"]));
        let daemon = beside(&unruly, &good);
        let session = open(&daemon);
        for request in [list("1", "tools/list"), list_in(&session, "tools/list")] {
            let names = eventually(&format!("{kind:?} is listed"), || {
                let names = tool_names(&daemon.send(&request));
                assert!(names.iter().all(|name| name.ends_with("__echo")), "{kind:?}: {names:?}");
                (names.len() == 2).then_some(names)
            });
            assert_eq!(names, ["bad__echo", "good__echo"], "{kind:?}");
        }
        let first = daemon.send(&call("1", "bad__echo"));
        assert!(first.text().contains("content"), "{kind:?}: {}", first.text());
        let first = daemon.send(&in_session(&session, legacy_call("2", "bad__echo")));
        assert!(first.text().contains("content"), "{kind:?}: {}", first.text());
        assert_unharmed(&daemon, &session);
        let told = status(&daemon);
        assert_eq!(upstream(&told, "bad")["state"], "up", "{kind:?}: {told:#}");
        assert_eq!(daemon.find_metric("trunkline_child_crashes_total{upstream=\"bad\"}"), Some(0));
    });
}

#[test]
fn a_program_that_only_says_what_nobody_asked_does_not_start() {
    let child = Child::new(&["early", "starts-in=60"]);
    let keys = child.keys("start_timeout = \"1s\"\nstop_timeout = \"100ms\"");
    let daemon = Daemon::start(&Config::new().raw("up", &keys).admin());
    daemon.wait_for_log(0, "why", |line| line.contains("has not answered anything within start_timeout"));
    let cause = "the process has not answered within start_timeout";
    expect(&daemon, "up", "down", "has not answered anything within start_timeout", cause);
    daemon.send(&call("1", "echo")).assert_error(503, 503, Some("1"));
}

#[test]
fn a_list_that_is_refused_after_it_was_given_stays_and_is_told() {
    side_by_side([&["strict", "tools-only"][..], &["modern-only", "ttl=100"]], |kind| {
        let words = [kind, &["lists=1"]].concat();
        let (unruly, good) = (Child::new(&words), Child::new(&["strict", "tools-only"]));
        let daemon = beside(&unruly, &good);
        let session = open(&daemon);
        let both = ["bad__echo", "good__echo"];
        eventually("it is listed", || {
            (tool_names(&daemon.send(&list("1", "tools/list"))) == both).then_some(())
        });
        // The list that is kept in the older era holds until somebody asks for it anew.
        let refresh = || {
            if kind.contains(&"strict") {
                daemon.send(&in_session(&open(&daemon), legacy("1", "tools/list", "{}")));
            }
        };
        eventually("it is asked again", || {
            refresh();
            let names = tool_names(&daemon.send(&list("1", "tools/list")));
            assert_eq!(names, both, "{kind:?}: a complete list is not replaced");
            (unruly.received("tools/list").len() > 1).then_some(())
        });
        expect(&daemon, "bad", "cannot be listed", "tools/list: fetch failed (-32603)", "tools/list: error");
        for request in [list("1", "tools/list"), list_in(&session, "tools/list")] {
            assert_eq!(tool_names(&daemon.send(&request)), both, "{kind:?}");
        }
        // A tool that it lists no more can be called.
        daemon.send(&call("1", "bad__echo")).assert_ok();
        assert_unharmed(&daemon, &session);
        assert_eq!(daemon.find_metric("trunkline_child_crashes_total{upstream=\"bad\"}"), Some(0));
    });
}
