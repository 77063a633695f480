//! Lists that outlive restarts, of programs and of the gateway.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{
    Child, Config, Connection, Daemon, Folder, LEGACY_VERSION, Legacy, Listened, Listening, Offer, Received,
    Reply, Request, Response, Terminal, Upstream, call, eventually, eventually_within, in_session, legacy,
    list, listen, open_session, post, tool_names, trunkline,
};

const KEPT: &str = "the kept lists of an upstream are not used";

/// Two programs, and what is kept of them.
struct Programs {
    children: [Child; 2],
    folder: Folder,
}

impl Programs {
    fn new(words: &[&str]) -> Self {
        Self { children: [Child::new(words), Child::new(words)], folder: Folder::new() }
    }

    fn config(&self) -> Config {
        let [one, two] = &self.children;
        let secret = |child: &Child, value: &str| child.keys(&format!("env = {{ SECRET = {value:?} }}"));
        Config::new()
            .raw("one", &secret(one, "a"))
            .raw("two", &secret(two, "b"))
            .top(&self.folder.key())
            .admin()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("lists").join(name)
    }

    /// Runs until all that is known is kept.
    fn run_once(&self, config: &Config) {
        let mut daemon = Daemon::start(config);
        let all = eventually("the list is complete", || {
            Some(list_once(&daemon)).filter(|response| names(response).len() == 2)
        });
        assert_eq!(names(&all), ["one__echo", "two__echo"]);
        eventually("all is kept", || {
            let upstreams = fs::read_to_string(self.folder.path().join("upstreams.json")).ok()?;
            let is_known = upstreams.matches("\"present\"").count() >= 2;
            (is_known && self.file("one").exists() && self.file("two").exists()).then_some(())
        });
        daemon.terminate();
        assert_eq!(daemon.wait_exit().code(), Some(0));
    }
}

fn list_once(daemon: &Daemon) -> Response {
    daemon.send(&list("1", "tools/list"))
}

fn names(response: &Response) -> Vec<String> {
    if response.status == 200 { tool_names(response) } else { Vec::new() }
}

fn timed(daemon: &Daemon, request: &Request) -> (Response, Duration) {
    let since = Instant::now();
    (daemon.send(request), since.elapsed())
}

/// A session opens and is listed within a second.
#[track_caller]
fn expect_listed_in_a_session_at_once(daemon: &Daemon, words: &[&str]) {
    let since = Instant::now();
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    let listed = daemon.send(&in_session(&session, legacy("2", "tools/list", "{}")));
    let took = since.elapsed();
    assert_eq!(names(&listed), ["one__echo", "two__echo"], "{words:?}");
    assert!(took < Duration::from_secs(1), "{words:?}: {took:?}");
}

#[test]
fn the_first_list_after_a_restart_is_complete_at_once_in_both_eras() {
    for words in [&[][..], &["modern"]] {
        let programs = Programs::new(words);
        programs.run_once(&programs.config());
        programs.children.iter().for_each(|child| child.starts_in(60));
        let daemon = Daemon::start(&programs.config());
        let (first, took) = timed(&daemon, &list("1", "tools/list"));
        assert_eq!(names(&first), ["one__echo", "two__echo"], "{words:?}");
        assert!(took < Duration::from_secs(1), "{took:?}");
        assert_eq!(first.json()["result"]["ttlMs"], 0);
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        let (second, took) = timed(&daemon, &in_session(&session, legacy("2", "tools/list", "{}")));
        assert_eq!(names(&second), ["one__echo", "two__echo"], "{words:?}");
        assert!(took < Duration::from_secs(1), "{took:?}");
        assert!(daemon.metric("trunkline_lists_kept_bytes") > 100);
    }
}

#[test]
fn a_session_after_a_restart_waits_for_no_program_that_introduced_itself_before() {
    for words in [&[][..], &["strict"], &["modern", "fixes-era"], &["modern-only"]] {
        let programs = Programs::new(words);
        programs.run_once(&programs.config());
        programs.children.iter().for_each(|child| child.starts_in(60));
        let daemon = Daemon::start(&programs.config());
        expect_listed_in_a_session_at_once(&daemon, words);
    }
}

#[test]
fn all_that_is_known_at_a_stop_is_kept() {
    for words in [&[][..], &["strict"], &["modern", "fixes-era"]] {
        let programs = Programs::new(words);
        let mut daemon = Daemon::start(&programs.config());
        eventually("the list is complete", || {
            Some(list_once(&daemon)).filter(|response| names(response).len() == 2)
        });
        open_session(daemon.address(), LEGACY_VERSION);
        daemon.terminate();
        assert_eq!(daemon.wait_exit().code(), Some(0));
        programs.children.iter().for_each(|child| child.starts_in(60));
        let daemon = Daemon::start(&programs.config());
        expect_listed_in_a_session_at_once(&daemon, words);
    }
}

/// Programs that are up, and answer late as many start at once.
#[test]
fn lists_that_were_kept_are_shown_while_programs_are_asked_anew() {
    for words in [&["tools-only", "later-lists-in=5"][..], &["tools-only", "modern", "later-lists-in=5"]] {
        let programs = Programs::new(words);
        programs.run_once(&programs.config());
        let daemon = Daemon::start(&programs.config());
        eventually("both are up", || {
            let told = daemon.get_admin("/status").json();
            let mut upstreams = told["upstreams"].as_array().expect("a list").iter();
            upstreams.all(|upstream| upstream["state"] == "up").then_some(())
        });
        let (first, took) = timed(&daemon, &list("1", "tools/list"));
        assert_eq!(names(&first), ["one__echo", "two__echo"], "{words:?}");
        assert!(took < Duration::from_secs(1), "{words:?}: {took:?}");
        expect_listed_in_a_session_at_once(&daemon, words);
    }
}

/// The old list is at hand, so that the new one is not waited for.
#[test]
fn a_list_that_is_on_its_way_is_no_failure() {
    for words in [&["tools-only", "later-lists-in=2"][..], &["tools-only", "modern", "later-lists-in=2"]] {
        let programs = Programs::new(words);
        programs.run_once(&programs.config());
        let daemon = Daemon::start(&programs.config());
        eventually("all are fetched", || {
            let told = daemon.get_admin("/status").json();
            let mut upstreams = told["upstreams"].as_array().expect("a list").iter();
            upstreams.all(|upstream| upstream["lists_kept_s"].is_null()).then_some(())
        });
        let blames = |line: &&String| line.contains("cannot learn") || line.contains("timed out");
        let log = daemon.log();
        assert_eq!(log.iter().find(blames), None, "{words:?}");
    }
}

#[test]
fn lists_that_were_kept_are_marked_until_they_are_fetched() {
    let programs = Programs::new(&[]);
    programs.run_once(&programs.config());
    programs.children.iter().for_each(|child| child.starts_in(8));
    let daemon = Daemon::start(&programs.config());
    let kept_s = || {
        let told = daemon.get_admin("/status").json();
        let upstreams = told["upstreams"].as_array().expect("a list").clone();
        upstreams.iter().map(|upstream| upstream["lists_kept_s"].as_u64()).collect::<Vec<_>>()
    };
    let marked = kept_s();
    assert!(marked.len() == 2 && marked.iter().all(|kept_s| *kept_s > Some(1_600_000_000)), "{marked:?}");
    let admin = daemon.admin().to_string();
    let (output, _) = trunkline(&["status", "--admin", &admin], None);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = said.lines().find(|line| line.contains("kept over a restart")).unwrap_or_default();
    assert!(line.contains("lists of") && line.contains("one, two"), "{said}");
    let mut top = Terminal::start(&["top", "--interval", "1", "--admin", &admin], &[], (120, 40));
    top.wait_for("UPSTREAM");
    top.keys("\r");
    top.wait_for("kept over a restart");
    eventually_within(Duration::from_secs(25), "they are fetched", || {
        (kept_s() == [None, None]).then_some(())
    });
}

/// Opens a stream on which a client of this era hears of changes.
fn hearing(daemon: &Daemon, is_modern: bool) -> Connection {
    let mut stream = if is_modern {
        daemon.begin(&listen("1", r#"{"toolsListChanged":true}"#))
    } else {
        let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
        let get = post("").method("GET").without("Content-Type").set("Accept", "text/event-stream");
        daemon.begin(&in_session(&session, get))
    };
    assert_eq!(stream.head().status, 200);
    stream
}

#[test]
fn clients_are_told_of_a_list_that_is_another_than_the_one_that_was_kept() {
    for words in [&[][..], &["modern-only"]] {
        let programs = Programs::new(words);
        programs.run_once(&programs.config());
        programs.children[0].offers_more();
        programs.children.iter().for_each(|child| child.starts_in(4));
        let daemon = Daemon::start(&programs.config());
        assert_eq!(names(&list_once(&daemon)), ["one__echo", "two__echo"], "{words:?}");
        for mut stream in [true, false].map(|is_modern| hearing(&daemon, is_modern)) {
            let said = loop {
                let event = stream.event().expect("the stream goes on");
                if event.contains("list_changed") {
                    break event;
                }
            };
            assert!(said.contains("notifications/tools/list_changed"), "{said}");
        }
        assert_eq!(names(&list_once(&daemon)), ["one__echo", "one__more", "two__echo"], "{words:?}");
    }
}

#[test]
fn calls_know_of_a_list_that_is_the_one_that_was_kept() {
    let tool =
        r#"{"name":"echo","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}"#.to_owned();
    let sessions = Legacy::new(Offer { tools: vec![tool], ..Offer::default() });
    // Its modern era is not known after a restart, until it was asked again.
    let server = Upstream::taking_anything(move |request| match request.method().as_str() {
        "server/discover" => Reply::http("500 Internal Server Error", "", ""),
        _ => sessions.answer(request),
    });
    let folder = Folder::new();
    let rule = "[[rule]]\nname = \"readers\"\neffect = \"allow\"\nannotations = { readOnlyHint = true }";
    let config =
        Config::new().probed("up", server.address, "").top(&folder.key()).section(rule).admin().to_string();
    for _ in 0..2 {
        let mut daemon = Daemon::start(&config);
        eventually("it may be called", || {
            daemon.send(&call("1", "echo")).text().contains("done").then_some(())
        });
        eventually("all is kept", || {
            let known = fs::read_to_string(folder.path().join("upstreams.json")).ok()?;
            (known.contains("\"present\"") && folder.path().join("lists/up").exists()).then_some(())
        });
        daemon.terminate();
        assert_eq!(daemon.wait_exit().code(), Some(0));
    }
}

#[test]
fn a_program_that_restarts_keeps_its_tools_listed() {
    let programs = Programs::new(&[]);
    let daemon = Daemon::start(&programs.config());
    eventually("the list is complete", || (names(&list_once(&daemon)).len() == 2).then_some(()));
    programs.children[0].starts_in(60);
    let started = programs.children[0].pids();
    for pid in &started {
        // Some may have ended already.
        let _ = kill_process(Pid::from_raw(*pid).expect("a process"), Signal::KILL);
    }
    for id in 3..6 {
        let response = daemon.send(&list(&id.to_string(), "tools/list"));
        assert_eq!(names(&response), ["one__echo", "two__echo"]);
    }
    eventually("it is started again", || (programs.children[0].pids().len() > started.len()).then_some(()));
}

#[test]
fn what_was_kept_otherwise_is_left_aside_and_said_so() {
    let programs = Programs::new(&[]);
    let config = programs.config();
    programs.run_once(&config);
    let good = fs::read(programs.file("one")).expect("a file");
    let damage = |bytes: Vec<u8>| fs::write(programs.file("one"), bytes).expect("written");
    let expect_fresh = |config: &Config, why: &str| {
        let mut daemon = Daemon::start(config);
        let said = daemon.wait_for_log(0, why, |line| line.contains(KEPT) && line.contains(why));
        assert!(said.contains("one"), "{said}");
        assert!(daemon.log().iter().filter(|line| line.contains(KEPT)).count() == 1, "{:?}", daemon.log());
        eventually("it starts afresh", || (names(&list_once(&daemon)).len() == 2).then_some(()));
        eventually("it is kept anew", || fs::read(programs.file("one")).ok().filter(|file| *file != good));
        daemon.terminate();
        daemon.wait_exit();
    };
    damage(good[..good.len() - 1].to_vec());
    expect_fresh(&config, "damaged");
    damage(Vec::new());
    expect_fresh(&config, "another version");
    damage([&b"trunkline lists 3\n"[..], &good[18..]].concat());
    expect_fresh(&config, "another version");
    damage(good.clone());
    let other = config.to_string().replacen("SECRET = \"a\"", "SECRET = \"c\"", 1);
    let mut daemon = Daemon::start(&other);
    daemon.wait_for_log(0, "other credentials", |line| {
        line.contains(KEPT) && line.contains("other credentials")
    });
    daemon.terminate();
    daemon.wait_exit();
    // A file of an upstream that is gone goes as well.
    fs::write(programs.file("gone"), "x").expect("written");
    let _daemon = Daemon::start(&config);
    eventually("it is removed", || (!programs.file("gone").exists()).then_some(()));
}

#[test]
fn a_file_that_is_too_large_is_not_read() {
    let programs = Programs::new(&[]);
    let config = programs.config();
    programs.run_once(&config);
    fs::File::create(programs.file("one")).and_then(|file| file.set_len(3 << 30)).expect("a long file");
    let daemon = Daemon::start(&config);
    let said = daemon.wait_for_log(0, "it says so", |line| line.contains(KEPT));
    assert!(said.contains("the file is too large"), "{said}");
    assert!(daemon.peak_resident_bytes() < 500 << 20, "{} bytes", daemon.peak_resident_bytes());
    eventually("it starts afresh", || (names(&list_once(&daemon)).len() == 2).then_some(()));
}

#[test]
fn a_gateway_works_where_nothing_can_be_kept() {
    let programs = Programs::new(&[]);
    fs::write(programs.folder.path().join("lists"), "in the way").expect("a file");
    let daemon = Daemon::start(&programs.config());
    eventually("the list is complete", || (names(&list_once(&daemon)).len() == 2).then_some(()));
    daemon.wait_for_log(0, "it says so", |line| line.contains("cannot be kept for the next start"));
    // It is tried again, and said to be well once all is written.
    fs::remove_file(programs.folder.path().join("lists")).expect("out of the way");
    daemon.wait_for_log(0, "it heals", |line| line.contains("are kept in the state directory again"));
    assert!(programs.file("one").exists() && programs.file("two").exists());
    for said in ["cannot be kept for the next start", "are kept in the state directory again"] {
        assert_eq!(daemon.log().iter().filter(|line| line.contains(said)).count(), 1, "{said}");
    }
    // Nothing is kept where nothing may be.
    let programs = Programs::new(&[]);
    let daemon = Daemon::start(&programs.config().limits("kept_lists_bytes_max = \"0B\""));
    eventually("the list is complete", || (names(&list_once(&daemon)).len() == 2).then_some(()));
    eventually("it is counted", || {
        (daemon.metric("trunkline_lists_not_kept_total{upstream=\"one\"}") > 0).then_some(())
    });
    assert_eq!(daemon.metric("trunkline_lists_kept_bytes"), 0);
}

#[test]
fn what_was_kept_counts_for_calls_once_the_eras_are_known() {
    let programs = Programs::new(&[]);
    let config = programs.config().to_string();
    let ready = config.replacen("[admin]\n", "[admin]\nready = \"listed\"\n", 1);
    assert_ne!(ready, config);
    programs.run_once(&programs.config());
    // Their eras are not known any more.
    fs::remove_file(programs.folder.path().join("upstreams.json")).expect("a file");
    let daemon = Daemon::start(&ready);
    eventually("all are listed", || (daemon.get_admin("/readyz").status == 200).then_some(()));
}

#[test]
fn a_change_over_a_restart_is_told_whichever_capabilities_are_asked_with_first() {
    let folder = Folder::new();
    let version = Arc::new(AtomicUsize::new(0));
    let current = Arc::clone(&version);
    let answer = move |request: &Received| {
        Offer::tools(&[&format!("t{}", current.load(Ordering::SeqCst))]).answer(request)
    };
    let server = Listening::beside(answer, |_| Listened::Honoured);
    let config = Config::new().probed("up", server.upstream.address, "").top(&folder.key()).admin();
    let with = |capabilities: &str| {
        let declared = format!("clientCapabilities\":{capabilities}");
        list("1", "tools/list").replacing("clientCapabilities\":{}", &declared)
    };
    let mut daemon = Daemon::start(&config);
    assert_eq!(tool_names(&daemon.send(&with("{}"))), ["t0"]);
    eventually("it is kept", || folder.path().join("lists/up").exists().then_some(()));
    daemon.terminate();
    daemon.wait_exit();
    version.store(1, Ordering::SeqCst);
    let daemon = Daemon::start(&config);
    let mut stream = daemon.begin(&listen("1", r#"{"toolsListChanged":true}"#));
    assert_eq!(stream.head().status, 200);
    server.tools_stream();
    assert_eq!(tool_names(&daemon.send(&with(r#"{"roots":{}}"#))), ["t1"]);
    while !stream.event().expect("the stream goes on").contains("notifications/tools/list_changed") {}
}

#[test]
fn a_reload_finds_the_lists_of_new_programs_and_removes_those_of_former_ones() {
    let programs = Programs::new(&[]);
    let config = programs.config();
    let daemon = Daemon::start(&config);
    eventually("the list is complete", || (names(&list_once(&daemon)).len() == 2).then_some(()));
    eventually("all is kept", || {
        (programs.file("one").exists() && programs.file("two").exists()).then_some(())
    });
    programs.children.iter().for_each(|child| child.starts_in(60));
    let session = open_session(daemon.address(), LEGACY_VERSION).0;
    // Both are others for the gateway, and reached as ever.
    let other = |name: &str, value: &str, child: &Child| {
        child.keys(&format!("prefix = \"new-{name}\"\nenv = {{ SECRET = {value:?} }}"))
    };
    let [one, two] = &programs.children;
    let renamed = Config::new().raw("one", &other("one", "a", one)).raw("two", &other("two", "b", two));
    daemon.reload(&renamed.top(&programs.folder.key()).admin());
    daemon.wait_for_log(0, "the reload", |line| line.contains(" reloaded "));
    for request in [in_session(&session, legacy("1", "tools/list", "{}")), list("1", "tools/list")] {
        let (response, took) = timed(&daemon, &request);
        assert_eq!(names(&response), ["new-one__echo", "new-two__echo"]);
        assert!(took < Duration::from_secs(3), "{took:?}");
    }
    let fewer = Config::new().raw("one", &other("one", "a", one)).top(&programs.folder.key());
    daemon.reload(&fewer.admin());
    eventually("the other is removed", || (!programs.file("two").exists()).then_some(()));
    assert!(programs.file("one").exists());
}

#[test]
fn an_upstream_with_a_long_list_makes_room_for_another() {
    let folder = Folder::new();
    let offering = |tools: usize| {
        let names: Vec<String> = (0..tools).map(|number| format!("tool-{number}")).collect();
        Upstream::with_tools(&names.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let (long, short) = (offering(2_000), offering(500));
    let size = |name: &str| fs::metadata(folder.path().join("lists").join(name)).map_or(0, |file| file.len());
    // Not for both of them: what is remembered of each entry counts as well.
    let config =
        |config: Config| config.limits("kept_lists_bytes_max = \"350KiB\"").top(&folder.key()).admin();
    let mut daemon = Daemon::start(&config(Config::new().upstream("long", long.address, "")));
    daemon.send(&list("1", "tools/list"));
    eventually("the long one is kept", || (size("long") > 80_000).then_some(()));
    daemon.terminate();
    daemon.wait_exit();
    let both = Config::new().upstream("long", long.address, "").upstream("short", short.address, "");
    let daemon = Daemon::start(&config(both));
    assert_eq!(tool_names(&daemon.send(&list("1", "tools/list"))).len(), 2_500);
    eventually("the short one is kept", || (size("short") > 20_000).then_some(()));
    eventually("the long one is not", || (size("long") < 1_000).then_some(()));
}
