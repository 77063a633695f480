//! Programs that take their time to start: how often they are started, who waits for them, and in which turn.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::states::status;
use crate::harness::{
    Child, Config, Daemon, Folder, LEGACY_VERSION, Request, Response, SetOnDrop, api_key, call, eventually,
    eventually_within, in_session, legacy, legacy_call, list, open_session, side_by_side, tool_names,
    with_key,
};

/// The kinds of servers there are, by what they do with messages of the other era.
const KINDS: [&[&str]; 4] =
    [&["strict"], &["modern", "fixes-era"], &["modern-only"], &["silent-on-discover"]];

fn slow(seconds: &str, kind: &[&str]) -> Child {
    let start = format!("starts-in={seconds}");
    Child::new(&[kind, &[start.as_str()]].concat())
}

fn open(daemon: &Daemon) -> String {
    open_session(daemon.address(), LEGACY_VERSION).0
}

fn list_in(session: &str) -> Request {
    in_session(session, legacy("1", "tools/list", "{}"))
}

fn listed(response: &Response) -> usize {
    if response.status == 200 && response.json()["result"].is_object() {
        tool_names(response).len()
    } else {
        0
    }
}

/// The methods that came first to the first process of a program.
fn first_methods(child: &Child) -> Vec<String> {
    let received = child.events_of("received");
    received.iter().filter_map(|event| Some(event["message"]["method"].as_str()?.to_owned())).collect()
}

#[test]
fn the_first_list_waits_until_the_program_is_up_and_says_its_era() {
    side_by_side(KINDS, |kind| {
        for is_modern in [true, false] {
            let child = slow("1", kind);
            // One that does not say is asked again after five seconds.
            let daemon =
                Daemon::start(&Config::new().raw("up", &child.keys("list_timeout = \"10s\"")).admin());
            let response = if is_modern {
                daemon.send(&list("1", "tools/list"))
            } else {
                daemon.send(&list_in(&open(&daemon)))
            };
            assert_eq!(listed(&response), 1, "{kind:?} {is_modern}: {}", response.text());
            assert_eq!(child.pids().len(), 1, "{kind:?}");
            assert_eq!(first_methods(&child)[0], "server/discover", "{kind:?}");
        }
    });
}

#[test]
fn a_start_goes_on_whoever_gives_up() {
    side_by_side(KINDS, |kind| {
        let child = slow("7", kind);
        let keys = child.keys("list_timeout = \"500ms\"");
        let daemon = Daemon::start(&Config::new().raw("up", &keys).admin());
        let session = open(&daemon);
        let since = Instant::now();
        eventually_within(Duration::from_secs(25), "it is listed", || {
            let (modern, legacy) = (daemon.send(&list("1", "tools/list")), daemon.send(&list_in(&session)));
            (listed(&modern) == 1 && listed(&legacy) == 1).then_some(())
        });
        assert!(since.elapsed() > Duration::from_secs(6), "it was slow");
        assert_eq!(child.pids().len(), 1, "{kind:?}: it was started once");
        let methods = first_methods(&child);
        assert_eq!(methods.iter().filter(|method| *method == "server/discover").count(), 1, "{methods:?}");
        // Nothing is cancelled that a process has not begun with.
        assert!(child.received("notifications/cancelled").is_empty(), "{methods:?}");
        let asked_early = methods.iter().position(|method| method == "tools/list");
        let initialized = methods.iter().position(|method| method == "notifications/initialized");
        assert!(initialized < asked_early, "{kind:?}: {methods:?}");
    });
}

#[test]
fn a_call_waits_for_the_start_and_is_told_that_it_was_not_executed() {
    side_by_side(
        [("modern-only", true), ("modern-only", false), ("strict", true), ("strict", false)],
        |case| {
            let (kind, is_modern) = case;
            let child = slow("6", &[kind]);
            let keys = child.keys("response_timeout = \"4s\"");
            let daemon = Daemon::start(&Config::new().raw("up", &keys).admin());
            let request = if is_modern {
                call("1", "echo")
            } else {
                let params = r#"{"name":"echo","arguments":{}}"#;
                in_session(&open(&daemon), legacy("1", "tools/call", params))
            };
            let since = Instant::now();
            let refused = daemon.send(&request);
            let waited = since.elapsed();
            let status = if is_modern { 503 } else { 200 };
            let error = refused.assert_error(status, 503, Some("1")).to_string();
            assert!(error.contains("still starting; the call was not executed"), "{error}");
            assert!(error.contains("retryAfterMs"), "{error}");
            assert!(waited >= Duration::from_secs(1) && waited < Duration::from_secs(4), "{waited:?}");
            let response = eventually_within(Duration::from_secs(20), "it is up", || {
                let response = daemon.send(&request);
                response.text().contains("content").then_some(response)
            });
            assert_eq!(response.status, 200);
            assert_eq!(child.received("tools/call").len(), 1, "none of them was executed before");
            // A session of the older era has a process of its own, which the first call that gave up had begun; of a
            // program that opens none it was asked once.
            let most = if kind == "strict" || !is_modern { 2 } else { 1 };
            assert!(child.pids().len() <= most, "{case:?}: {} starts", child.pids().len());
        },
    );
}

#[test]
fn a_call_to_a_program_that_never_opens_a_session_is_told_that_it_was_not_executed() {
    side_by_side([true, false], |is_modern| {
        let child = Child::new(&["strict", "hangs-at=initialize"]);
        let keys = child.keys("response_timeout = \"4s\"");
        let daemon = Daemon::start(&Config::new().raw("up", &keys).admin());
        let request = if is_modern {
            call("1", "echo")
        } else {
            let params = r#"{"name":"echo","arguments":{}}"#;
            in_session(&open(&daemon), legacy("1", "tools/call", params))
        };
        child.wait_received("initialize", 1);
        // While it is asked what it speaks, and after that.
        for _ in 0..6 {
            let status = if is_modern { 503 } else { 200 };
            let error = daemon.send(&request).assert_error(status, 503, Some("1")).to_string();
            assert!(error.contains("still starting; the call was not executed"), "{error}");
            assert!(error.contains("retryAfterMs"), "{error}");
        }
        assert_eq!(child.received("tools/call").len(), 0);
    });
}

#[test]
fn a_call_waits_once_for_the_program_and_for_its_own_process() {
    side_by_side([false, true], |is_modern| {
        let kind = if is_modern { "modern-only" } else { "strict" };
        let child = Child::new(&[kind, "starts-in=6", "later-starts-in=60"]);
        let keys = child.keys("response_timeout = \"16s\"");
        let config = Config::new().raw("up", &keys).section(&api_key("alice", "key")).admin();
        let daemon = Daemon::start(&config);
        let request = if is_modern {
            with_key(call("1", "echo"), "key")
        } else {
            let params = r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}"#;
            let opened = daemon.send(&with_key(legacy("0", "initialize", params), "key"));
            let session = opened.header("mcp-session-id").expect("a session").to_owned();
            with_key(
                in_session(&session, legacy("1", "tools/call", r#"{"name":"echo","arguments":{}}"#)),
                "key",
            )
        };
        let since = Instant::now();
        let refused = daemon.send(&request);
        let waited = since.elapsed();
        let error = refused.assert_error(if is_modern { 503 } else { 200 }, 503, Some("1")).to_string();
        assert!(error.contains("still starting; the call was not executed"), "{error}");
        assert_eq!(child.pids().len(), 2, "it had waited for both");
        assert!(waited > Duration::from_secs(6) && waited < Duration::from_secs(16), "{waited:?}");
    });
}

#[test]
fn a_program_that_an_empty_list_waits_for_starts_before_others() {
    let others = [slow("3", &["modern-only"]), slow("3", &["modern-only"])];
    let last = slow("1", &["modern-only"]);
    let keys = |child: &Child| child.keys("list_timeout = \"200ms\"");
    let config = Config::new().limits("children_starting_max = 1");
    let config = config.raw("a", &keys(&others[0])).raw("b", &keys(&others[1])).raw("c", &keys(&last));
    let endpoint = "[[endpoint]]\npath = \"/last\"\nauth = []\nupstreams = [\"c\"]";
    let daemon = Daemon::start(&config.section(endpoint).admin());
    eventually("the first one starts", || others.iter().any(|child| !child.pids().is_empty()).then_some(()));
    let response = daemon.send(&list("1", "tools/list").target("/last"));
    assert_eq!(listed(&response), 1, "{}", response.text());
    let started = |child: &Child| child.wait_for("started", 1)[0]["at"].as_f64().expect("a time");
    let of_others = others.iter().map(started).fold(0.0, f64::max);
    assert!(started(&last) < of_others, "it did not wait for its turn by order");
}

#[test]
fn sessions_that_are_opened_without_end_keep_no_other_program_from_its_turn() {
    let first = slow("0.5", &["strict"]);
    let others: Vec<Child> = (0..4).map(|_| slow("0.5", &["strict"])).collect();
    let mut config = Config::new().limits("children_starting_max = 1").admin();
    config = config.raw("a", &first.keys("eras = [\"legacy\"]"));
    for (number, child) in others.iter().enumerate() {
        config = config.raw(&format!("b{number}"), &child.keys("eras = [\"legacy\"]"));
    }
    let endpoint = "[[endpoint]]\npath = \"/first\"\nauth = []\nupstreams = [\"a\"]";
    let daemon = Daemon::start(&config.section(endpoint));
    let params =
        r#"{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}"#;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let opened = daemon.send(&legacy("0", "initialize", params).target("/first"));
                    let session = opened.header("mcp-session-id").expect("a session").to_owned();
                    let send = |request: Request| {
                        daemon.send(&in_session(&session, request).target("/first"));
                    };
                    send(legacy("1", "tools/call", r#"{"name":"echo","arguments":{}}"#));
                    send(legacy("1", "x", "{}").method("DELETE").body(""));
                }
            });
        }
        let started = || others.iter().filter(|child| !child.pids().is_empty()).count();
        let until = Instant::now() + Duration::from_secs(40);
        while started() < others.len() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(100));
        }
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(started(), others.len(), "{} starts of the first", first.pids().len());
    });
    assert!(first.pids().len() > others.len(), "the first one was started again and again");
}

/// When each process of a program was started, and when it was up.
fn spans(child: &Child) -> Vec<(f64, f64)> {
    let at = |event: &Value| event["at"].as_f64().expect("a time");
    let up = child.events_of("up");
    let started = child.events_of("started").into_iter();
    started
        .map(|event| {
            let up = up.iter().find(|up| up["pid"] == event["pid"]).map_or(f64::INFINITY, at);
            (at(&event), up)
        })
        .collect()
}

#[test]
fn many_programs_start_in_turn_and_each_once() {
    const PROGRAMS: usize = 35;
    const AT_ONCE: usize = 4;
    let children: Vec<Child> = (0..PROGRAMS).map(|number| slow("2", KINDS[number % 3])).collect();
    let mut config = Config::new().admin().limits(&format!("children_starting_max = {AT_ONCE}"));
    for (number, child) in children.iter().enumerate() {
        config = config.raw(&format!("p{number:02}"), &child.keys(""));
    }
    let daemon = Daemon::start(&config);
    let since = Instant::now();
    let session = open(&daemon);
    // One after the other takes 70 s; so many at once take a quarter of that, and this machine has more to do.
    let bound = Duration::from_secs(70).mul_f64(1.3 / 2.0);
    eventually_within(bound, "all are listed to clients of both eras", || {
        let (modern, legacy) = (daemon.send(&list("1", "tools/list")), daemon.send(&list_in(&session)));
        let is_complete = listed(&modern) == PROGRAMS && listed(&legacy) == PROGRAMS;
        if !is_complete {
            std::thread::sleep(Duration::from_millis(500));
        }
        is_complete.then_some(())
    });
    assert!(since.elapsed() >= Duration::from_secs(2 * (PROGRAMS / AT_ONCE) as u64), "they had turns");
    let all: Vec<(f64, f64)> = children
        .iter()
        .flat_map(|child| {
            let spans = spans(child);
            assert_eq!(spans.len(), 1, "each is started once: {:?}", first_methods(child));
            spans
        })
        .collect();
    for (started, _) in &all {
        let starting = all.iter().filter(|(from, until)| from <= started && started < until).count();
        assert!(starting <= AT_ONCE, "{starting} at once");
    }
    assert_eq!(daemon.metric("trunkline_child_starts_waiting"), 0);
}

#[test]
fn programs_that_take_long_are_listed_as_soon_as_they_are_up() {
    let children: Vec<Child> = (0..4).map(|number| slow("12", KINDS[number % 3])).collect();
    let mut config = Config::new().admin().limits("children_starting_max = 4");
    for (number, child) in children.iter().enumerate() {
        config = config.raw(&format!("p{number}"), &child.keys("list_timeout = \"500ms\""));
    }
    let daemon = Daemon::start(&config);
    let complete = eventually_within(Duration::from_secs(30), "all are listed", || {
        let is_complete = listed(&daemon.send(&list("1", "tools/list"))) == children.len();
        is_complete
            .then(|| std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time"))
    });
    let last_up = children.iter().flat_map(spans).map(|(_, up)| up).fold(0.0, f64::max);
    assert!(
        complete.as_secs_f64() - last_up < 3.0,
        "{} s after the last was up",
        complete.as_secs_f64() - last_up
    );
    assert!(children.iter().all(|child| child.pids().len() == 1));
}

#[test]
fn a_program_that_is_replaced_while_it_starts_ends_at_once() {
    let (old, new) = (slow("60", &["strict"]), slow("0.5", &["strict"]));
    let daemon = Daemon::start(&Config::new().raw("up", &old.keys("")).admin());
    old.wait_for("started", 1);
    daemon.reload(&Config::new().raw("up", &new.keys("stop_timeout = \"100ms\"")).admin());
    eventually("the new one is listed", || {
        (listed(&daemon.send(&list("1", "tools/list"))) == 1).then_some(())
    });
    old.wait_gone();
    assert_eq!((old.pids().len(), new.pids().len()), (1, 1));
}

#[test]
fn a_program_that_never_answers_is_ended_and_told() {
    let child = slow("60", &[]);
    let keys = child.keys("start_timeout = \"1s\"\nstop_timeout = \"100ms\"");
    let daemon = Daemon::start(&Config::new().raw("up", &keys).admin());
    daemon.wait_for_log(0, "why", |line| line.contains("has not answered anything within start_timeout"));
    let refused = eventually("it is told", || {
        let response = daemon.send(&call("1", "echo"));
        response.text().contains("does not start").then_some(response)
    });
    refused.assert_error(503, 503, Some("1"));
}

#[test]
fn a_program_that_does_not_come_up_holds_up_the_first_lists_alone() {
    let ended = "start_timeout = \"1s\"\nstop_timeout = \"100ms\"";
    let cases = KINDS.iter().flat_map(|kind| [(kind, ""), (kind, ended)]);
    side_by_side(cases, |(kind, lines)| {
        let (child, good) = (slow("60", kind), slow("0", &["strict"]));
        let config = Config::new().raw("bad", &child.keys(lines)).raw("good", &good.keys(""));
        let daemon = Daemon::start(&config.admin());
        let session = open(&daemon);
        // Its first start has had its time, or it has failed.
        eventually("the other is listed", || {
            (listed(&daemon.send(&list("1", "tools/list"))) == 1).then_some(())
        });
        let begun = Instant::now();
        eventually("lists go without it", || {
            for request in [list("1", "tools/list"), list_in(&session)] {
                let since = Instant::now();
                assert_eq!(listed(&daemon.send(&request)), 1, "{kind:?} {lines}");
                if since.elapsed() > Duration::from_secs(3) {
                    return None;
                }
            }
            Some(())
        });
        assert!(begun.elapsed() < Duration::from_secs(20), "{kind:?} {lines}: {:?}", begun.elapsed());
    });
}

#[test]
fn what_a_program_speaks_is_remembered() {
    for (kind, first) in [("strict", "initialize"), ("modern-only", "server/discover")] {
        let (child, state) = (Child::new(&[kind]), Folder::new());
        let config = || Config::new().raw("up", &child.keys("")).admin().top(&state.key());
        let mut daemon = Daemon::start(&config());
        eventually("it is listed", || (listed(&daemon.send(&list("1", "tools/list"))) == 1).then_some(()));
        eventually("it is kept", || {
            let kept = std::fs::read_to_string(state.path().join("upstreams.json")).unwrap_or_default();
            kept.contains("\"version\"").then_some(())
        });
        daemon.terminate();
        daemon.wait_exit();
        let before = child.events_of("received").len();
        let daemon = Daemon::start(&config());
        eventually("it is listed", || (listed(&daemon.send(&list("1", "tools/list"))) == 1).then_some(()));
        // The list is the kept one until its program has been asked.
        eventually("it is asked", || (first_methods(&child).len() > before).then_some(()));
        assert_eq!(first_methods(&child)[before], first);
        let afterwards = &first_methods(&child)[before..];
        let other = if first == "initialize" { "server/discover" } else { "initialize" };
        assert!(!afterwards.iter().any(|method| method == other), "{afterwards:?}");
    }
}

#[test]
fn a_program_of_which_only_the_lists_are_remembered_is_not_said_to_need_a_translation() {
    let (child, state) = (Child::new(&["strict", "tools-only"]), Folder::new());
    let config = || Config::new().raw("up", &child.keys("")).admin().top(&state.key());
    let mut daemon = Daemon::start(&config());
    eventually("it is listed", || (listed(&daemon.send(&list("1", "tools/list"))) == 1).then_some(()));
    let known = state.path().join("upstreams.json");
    let lists = || std::fs::read_dir(state.path().join("lists")).map_or(0, Iterator::count);
    eventually("it is kept", || (known.exists() && lists() > 0).then_some(()));
    daemon.terminate();
    daemon.wait_exit();
    std::fs::remove_file(&known).expect("the file is there");
    let daemon = Daemon::start(&config());
    eventually("it is listed", || (listed(&daemon.send(&list("1", "tools/list"))) == 1).then_some(()));
    daemon.wait_for_log(0, "its era", |line| line.contains("upstream speaks legacy"));
    child.wait_received("tools/list", 2);
    let log = daemon.log().join("\n");
    assert!(!log.contains("not to translate"), "{log}");
}

#[test]
fn a_banner_is_one_line_of_the_log() {
    let child = Child::new(&["banner", "starts-in=0.5"]);
    let daemon = Daemon::start(&Config::new().raw("up", &child.keys("")).admin());
    let logged = daemon.wait_for_log(0, "the banner", |line| line.contains("banner line 19"));
    assert!(logged.contains("banner line 0 | banner line 1 |") && logged.contains("lines=20"), "{logged}");
    eventually("it is listed", || (listed(&daemon.send(&list("1", "tools/list"))) == 1).then_some(()));
    let log = daemon.log();
    assert_eq!(log.iter().filter(|line| line.contains("banner line")).count(), 1);
    assert_eq!(log.iter().filter(|line| line.contains("a line that is no message")).count(), 1);
    assert_eq!(daemon.find_metric_of_up("trunkline_child_invalid_lines_total"), Some(3));
}

/// An executable file.
fn program(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::fs::write(path, text).expect("a file");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("permissions");
}

#[test]
fn what_npx_has_fetched_is_started_without_it() {
    let folder = Folder::new();
    let home = folder.path();
    // As npx keeps it: the name is the beginning of a digest of `srv@1.0.0`.
    let modules = home.join(".npm/_npx/53097641974e4288/node_modules");
    let child = Child::new(&["strict"]);
    let keys = child.keys("");
    let command: Vec<String> = serde_json::from_str(
        keys.lines().next().and_then(|line| line.strip_prefix("command = ")).expect("a command"),
    )
    .expect("an array");
    program(&modules.join("srv/main.sh"), "#!/bin/sh\nexec python3 \"$@\"\n");
    std::fs::write(modules.join("srv/package.json"), r#"{"name":"srv","version":"1.0.0","bin":"main.sh"}"#)
        .expect("a file");
    std::fs::create_dir_all(modules.join(".bin")).expect("a folder");
    std::os::unix::fs::symlink("../srv/main.sh", modules.join(".bin/srv")).expect("a link");
    // Where npx itself were started, nothing would be.
    program(&home.join("bin/npx"), "#!/bin/sh\nexit 1\n");
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", home.join("bin").display());
    let mut words = vec!["npx".to_owned(), "-y".to_owned(), "srv@1.0.0".to_owned()];
    words.extend_from_slice(&command[1..]);
    let lines = format!(
        "command = {}\ndirectory = {:?}\nenv = {{ HOME = {:?}, PATH = {path:?} }}",
        serde_json::to_string(&words).expect("JSON"),
        home.join("bin"),
        home,
    );
    let daemon = Daemon::start(&Config::new().raw("up", &lines).admin());
    eventually("it is listed", || (listed(&daemon.send(&list("1", "tools/list"))) == 1).then_some(()));
    assert_eq!(child.pids().len(), 1);
}

#[test]
fn all_who_share_a_process_wait_for_its_one_start() {
    side_by_side([&["strict"][..], &["modern", "fixes-era"], &["modern-only"]], |kind| {
        let child = slow("2", kind);
        let keys = child.keys("isolation = \"shared\"\nlist_timeout = \"10s\"");
        let daemon = Daemon::start(&Config::new().raw("up", &keys).admin());
        let echo = || call("1", "echo");
        let in_new_session = || {
            let params = r#"{"name":"echo","arguments":{}}"#;
            in_session(&open(&daemon), legacy("1", "tools/call", params))
        };
        let requests =
            [echo(), in_new_session(), in_new_session(), list("1", "tools/list"), list_in(&open(&daemon))];
        side_by_side(requests, |request| {
            let response = daemon.send(&request);
            assert_eq!(response.status, 200, "{}", response.text());
            assert!(response.text().contains("\"result\""), "{}", response.text());
        });
        assert_eq!(child.pids().len(), 1, "{kind:?}: {:?}", first_methods(&child));
    });
}

#[test]
fn a_shared_program_that_never_answers_is_started_one_at_a_time_and_after_pauses_that_grow() {
    const STARTS: usize = 5;
    let words = ["silent-on-discover", "hangs-at=initialize", "stubborn"];
    let child = Child::new(&words);
    let times =
        "start_timeout = \"1s\"\nstop_timeout = \"1s\"\nresponse_timeout = \"2s\"\nlist_timeout = \"1s\"";
    let keys = child.keys(&format!("isolation = \"shared\"\n{times}"));
    let daemon = Daemon::start(&Config::new().raw("up", &keys).admin());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = SetOnDrop(&is_over);
        for is_modern in [true, false] {
            let (daemon, is_over) = (&daemon, &is_over);
            scope.spawn(move || {
                let params = r#"{"name":"echo","arguments":{}}"#;
                let session = open(daemon);
                let request = if is_modern {
                    call("1", "echo")
                } else {
                    in_session(&session, legacy("1", "tools/call", params))
                };
                while !is_over.load(Ordering::Relaxed) {
                    let refused = daemon.send(&request);
                    assert!(refused.text().contains("error"), "{}", refused.text());
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
        }
        let started = eventually_within(Duration::from_mins(1), "it is started again and again", || {
            let started: Vec<f64> =
                child.events_of("started").iter().filter_map(|event| event["at"].as_f64()).collect();
            (started.len() >= STARTS).then_some(started)
        });
        drop(over);
        let mut pause_s = 0.4;
        for pair in started.windows(2).take(STARTS - 1) {
            // The time of a start is not in it: on a busy machine a program says late that it is there.
            assert!(pair[1] - pair[0] >= pause_s, "{pause_s}: {started:?} {:?}", first_methods(&child));
            pause_s *= 2.0;
        }
    });
}

#[test]
fn a_program_that_crashes_at_some_point_harms_no_other() {
    let points = ["server/discover", "initialize", "notifications/initialized", "tools/list"];
    side_by_side(points, |point| {
        let crash = format!("crashes-at={point}");
        let (crashing, sound) = (Child::new(&[crash.as_str(), "strict"]), Child::new(&["strict"]));
        let config = Config::new().admin().raw("bad", &crashing.keys("list_timeout = \"1s\""));
        let daemon = Daemon::start(&config.raw("good", &sound.keys("")));
        let names = eventually("the other one is listed", || {
            let response = daemon.send(&list("1", "tools/list"));
            (listed(&response) > 0)
                .then(|| tool_names(&response))
                .filter(|names| names.contains(&"good__echo".into()))
        });
        // A server that only dies of a method that it need not know is reached in its era.
        let is_reached = point == "server/discover";
        if is_reached {
            eventually("it is listed", || {
                (listed(&daemon.send(&list("1", "tools/list"))) == 2).then_some(())
            });
        } else {
            assert_eq!(names, ["good__echo"], "{point}");
        }
        let said = daemon.send(&call("1", "good__echo"));
        assert_eq!(said.status, 200, "{point}: {}", said.text());
    });
}

#[test]
fn the_words_of_a_program_that_does_not_start_come_before_its_end() {
    let child = Child::new(&["banner", "dies-at-start"]);
    let daemon = Daemon::start(&Config::new().raw("up", &child.keys("")).admin());
    daemon.wait_for_log(0, "the end", |line| line.contains("a child process ended unasked"));
    let log = daemon.log();
    let at = |what: &str| log.iter().position(|line| line.contains(what));
    assert!(at("banner line 19").is_some() && at("banner line 19") < at("ended unasked"), "{log:#?}");
}

#[test]
fn the_process_that_was_asked_is_that_of_the_lists() {
    let cases = [
        ("children_max = 1", ""),
        ("children_max = 4", ""),
        ("", "children_max = 8"),
        ("children_max = 4\neras = [\"legacy\"]", ""),
    ];
    side_by_side(cases, |(lines, limits)| {
        let child = Child::new(&["strict"]);
        let daemon = Daemon::start(&Config::new().raw("up", &child.keys(lines)).limits(limits).admin());
        let session = open(&daemon);
        eventually("it is listed", || {
            let lists = [daemon.send(&list("1", "tools/list")), daemon.send(&list_in(&session))];
            lists.iter().all(|response| listed(response) == 1).then_some(())
        });
        assert_eq!(child.pids().len(), 1, "{lines} {limits}: {:?}", first_methods(&child));
    });
}

#[test]
fn of_few_processes_the_one_that_was_asked_leaves_its_place_to_a_client() {
    let cases = ["", "eras = [\"legacy\"]", "session_loss = \"end\""];
    side_by_side(cases, |lines| {
        let child = Child::new(&["strict"]);
        let keys = child.keys(&format!("children_max = 1\n{lines}"));
        let daemon = Daemon::start(&Config::new().raw("up", &keys).admin());
        child.wait_received("notifications/initialized", 1);
        let session = open(&daemon);
        eventually(&format!("it is called: {lines}"), || {
            let called = daemon.send(&in_session(&session, legacy_call("1", "echo")));
            called.text().contains("content").then_some(())
        });
    });
}

#[test]
fn programs_without_a_place_are_told_the_bound_that_keeps_it_from_them() {
    let never = "command = [\"sleep\", \"600\"]\nstop_timeout = \"10ms\"";
    let config = Config::new().admin().limits("children_max = 2").raw("a", never).raw("b", never);
    let daemon = Daemon::start(&config.raw("c", never).raw("d", never));
    eventually_within(Duration::from_secs(20), "it is told", || {
        let told = status(&daemon);
        let problems = told["problems"].as_array()?;
        problems.iter().any(|problem| problem.to_string().contains("limits.children_max")).then_some(())
    });
}

#[test]
fn a_program_that_refuses_one_era_and_is_silent_on_the_other_holds_up_the_first_lists_alone() {
    side_by_side(["shared", "session"], |isolation| {
        let (silent, good) = (Child::new(&["strict", "hangs-at=initialize"]), Child::new(&["modern-only"]));
        let config =
            Config::new().admin().raw("silent", &silent.keys(&format!("isolation = \"{isolation}\"")));
        let daemon = Daemon::start(&config.raw("good", &good.keys("")));
        silent.wait_received("initialize", 1);
        let since = Instant::now();
        assert_eq!(listed(&daemon.send(&list("1", "tools/list"))), 1);
        for _ in 0..3 {
            assert_eq!(listed(&daemon.send(&list("1", "tools/list"))), 1);
        }
        assert!(since.elapsed() < Duration::from_secs(13), "{isolation}: {:?}", since.elapsed());
    });
}

#[test]
fn a_call_that_is_bridged_to_a_process_which_starts_keeps_its_margin_once() {
    let child = Child::new(&["strict", "later-starts-in=30"]);
    let daemon = Daemon::start(&Config::new().raw("up", &child.keys("response_timeout = \"8s\"")).admin());
    eventually("it is listed", || (listed(&daemon.send(&list("1", "tools/list"))) == 1).then_some(()));
    let since = Instant::now();
    let refused = daemon.send(&call("1", "echo"));
    let waited = since.elapsed();
    assert!(refused.text().contains("still starting; the call was not executed"), "{}", refused.text());
    assert!(waited >= Duration::from_millis(3500) && waited < Duration::from_secs(7), "{waited:?}");
}
