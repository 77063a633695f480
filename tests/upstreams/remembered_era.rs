//! Programs that do not answer in the era in which they are known: because they are other ones by now, or for a while.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::states::{status, upstream};
use crate::harness::{
    Child, Config, Daemon, Folder, LEGACY_VERSION, Request, SetOnDrop, call, eventually, eventually_within,
    in_session, legacy, list, open_session, side_by_side,
};

const ISOLATIONS: [&str; 3] = ["shared", "principal", "session"];
const TIMES: &str = "start_timeout = \"8s\"\nstop_timeout = \"100ms\"\nresponse_timeout = \"10s\"";
/// It is logged of one that is asked as one that is not known.
const ASKED_ANEW: &str = "it is asked anew what it speaks";
/// A program of the other era is found by then: its starts in vain are not many.
const FOUND_WITHIN: Duration = Duration::from_secs(45);

/// A gateway that was stopped once it knew the program, and what the next one of its configuration needs.
struct Remembering {
    config: Config,
    _state: Folder,
}

impl Remembering {
    fn new(child: &Child, lines: &str) -> Self {
        let state = Folder::new();
        let config = Config::new().raw("up", &child.keys(lines)).admin().top(&state.key());
        let mut daemon = Daemon::start(&config);
        eventually("it serves", || serves(&daemon).then_some(()));
        eventually("it is listed", || is_listed(&daemon).then_some(()));
        eventually("it is kept", || {
            let kept = std::fs::read_to_string(state.path().join("upstreams.json")).unwrap_or_default();
            kept.contains("\"version\"").then_some(())
        });
        daemon.terminate();
        daemon.wait_exit();
        Self { config, _state: state }
    }

    fn start(&self) -> Daemon {
        Daemon::start(&self.config)
    }
}

fn in_new_session(daemon: &Daemon) -> Request {
    let session = open_session(daemon.address(), LEGACY_VERSION).0;
    in_session(&session, legacy("1", "tools/call", r#"{"name":"echo","arguments":{}}"#))
}

/// True if clients of both eras are served.
fn serves(daemon: &Daemon) -> bool {
    [call("1", "echo"), in_new_session(daemon)]
        .iter()
        .all(|request| daemon.send(request).text().contains("\"content\""))
}

fn is_listed(daemon: &Daemon) -> bool {
    daemon.send(&list("1", "tools/list")).text().contains("\"echo\"")
}

fn eras(daemon: &Daemon) -> Value {
    upstream(&status(daemon), "up")["eras"].clone()
}

#[test]
fn a_program_that_has_become_one_of_the_other_era_is_found_out_though_it_does_not_say_so() {
    for words in [&[][..], &["ends"]] {
        let cases =
            ["turns-legacy", "turns-modern"].into_iter().flat_map(|turns| ISOLATIONS.map(|of| (turns, of)));
        side_by_side(cases, |(turns, isolation)| check_turned(words, turns, isolation));
    }
}

/// A program is found that has become one of the other era. `words`: what it is beside that.
fn check_turned(words: &[&str], turns: &str, isolation: &str) {
    let child = Child::new(&[&[turns], words].concat());
    let gateway = Remembering::new(&child, &format!("isolation = \"{isolation}\"\n{TIMES}"));
    child.turns();
    let daemon = gateway.start();
    eventually_within(FOUND_WITHIN, &format!("{turns} {isolation} serves again"), || {
        // Its list is the one that is kept.
        assert!(is_listed(&daemon), "{turns} {isolation}");
        serves(&daemon).then_some(())
    });
    let expected = if turns == "turns-legacy" { "legacy" } else { "modern" };
    assert_eq!(eras(&daemon), json!([expected]), "{turns} {words:?} {isolation}");
}

#[test]
fn a_program_that_ends_before_it_has_read_anything_is_known_as_it_was() {
    let child = Child::new(&["modern-only"]);
    let gateway = Remembering::new(&child, &format!("isolation = \"shared\"\n{TIMES}"));
    child.breaks();
    let daemon = gateway.start();
    child.wait_for("started", 4);
    child.is_mended();
    eventually("it serves again", || serves(&daemon).then_some(()));
    assert!(child.received("initialize").is_empty());
    assert!(!daemon.log().iter().any(|line| line.contains(ASKED_ANEW)), "{:#?}", daemon.log());
}

#[test]
fn a_program_that_has_read_late_is_known_as_it_was() {
    let child = Child::new(&["modern-only"]);
    let gateway = Remembering::new(&child, &format!("isolation = \"shared\"\n{TIMES}"));
    child.falls_silent();
    child.starts_in(6);
    let daemon = gateway.start();
    daemon.wait_for_log(0, "its end", |line| line.contains("had to be ended"));
    child.speaks();
    child.starts_in(0);
    eventually("it serves again", || serves(&daemon).then_some(()));
    assert!(child.received("initialize").is_empty());
    assert!(!daemon.log().iter().any(|line| line.contains(ASKED_ANEW)), "{:#?}", daemon.log());
}

#[test]
fn what_is_known_of_a_program_is_right_after_starts_that_came_to_nothing() {
    let kinds = [&["modern", "fixes-era"][..], &["modern"], &["strict"], &["silent-on-discover"]];
    // Not all at once: a start of one that speaks is not to take as long as one that is silent.
    let check = |kind: &[&str], isolation: &str| {
        let child = Child::new(kind);
        let gateway = Remembering::new(&child, &format!("isolation = \"{isolation}\"\n{TIMES}"));
        child.falls_silent();
        let daemon = gateway.start();
        daemon.wait_for_log(0, "its end", |line| line.contains("had to be ended"));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let over = SetOnDrop(&is_over);
            // Clients of both eras go on to ask.
            for is_modern in [true, false] {
                let (daemon, is_over) = (&daemon, &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        daemon.send(&if is_modern { call("1", "echo") } else { in_new_session(daemon) });
                        std::thread::sleep(Duration::from_millis(50));
                    }
                });
            }
            child.speaks();
            eventually_within(FOUND_WITHIN, &format!("{kind:?} {isolation} serves again"), || {
                assert!(is_listed(&daemon), "{kind:?} {isolation}");
                serves(&daemon).then_some(())
            });
            drop(over);
        });
        let expected = if kind.contains(&"modern") { "modern" } else { "legacy" };
        eventually("its era is known", || (eras(&daemon) == json!([expected])).then_some(()));
    };
    for isolation in ISOLATIONS {
        side_by_side(kinds, |kind| check(kind, isolation));
    }
}

#[test]
fn eras_that_are_fixed_are_not_doubted() {
    let child = Child::new(&["turns-legacy"]);
    let gateway = Remembering::new(&child, &format!("isolation = \"shared\"\neras = [\"modern\"]\n{TIMES}"));
    child.turns();
    let daemon = gateway.start();
    let from = child.events_of("received").len();
    eventually_within(FOUND_WITHIN, "it is started again", || {
        let _ = daemon.send(&call("1", "echo"));
        (child.received("server/discover").len() > 2).then_some(())
    });
    let asked = &child.events_of("received")[from..];
    assert!(asked.iter().all(|event| event["message"]["method"] != "initialize"), "{asked:?}");
    assert_eq!(eras(&daemon), json!(["modern"]));
}
