//! A state disk without room: what is told of it, and what is written once there is room again.
//!
//! The tests bound the size of the files that the process may write, which for the process is as a full disk is.

use std::fmt::Write as _;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::harness::{
    Config, DEADLINE, Daemon, Folder, LEGACY_VERSION, Legacy, Offer, Request, Upstream, eventually,
    in_session, legacy, legacy_call, list, open_session,
};

/// Starts a gateway to which a file that is too large is an error and not the end.
fn start(config: &Config) -> Daemon {
    Daemon::start_by(&["/bin/sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh"], config, DEADLINE)
}

/// From now on no file of the gateway's may grow beyond this; `None`: there is room again.
fn bound_files(daemon: &Daemon, bytes_max: Option<u64>) {
    let process = Pid::from_raw(daemon.pid().try_into().expect("a process")).expect("a process");
    prlimit(Some(process), Resource::Fsize, Rlimit { current: bytes_max, maximum: None }).expect("a bound");
}

fn delete(session: &str) -> Request {
    in_session(session, legacy("1", "ping", "{}").method("DELETE").body(""))
}

fn problem(daemon: &Daemon) -> Option<serde_json::Value> {
    problem_of(daemon, "session journal")
}

fn problem_of(daemon: &Daemon, subject: &str) -> Option<serde_json::Value> {
    let status = daemon.get_admin("/status").json();
    let problems = status["problems"].as_array().expect("problems");
    problems.iter().find(|problem| problem["subject"] == subject).cloned()
}

#[test]
fn a_full_state_disk_is_a_problem_and_what_was_lost_is_written_once_there_is_room() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).start();
    let folder = Folder::new();
    let config = Config::legacy(&upstream).top(&folder.key()).admin();
    let mut daemon = start(&config);
    let sessions: Vec<String> = (0..4).map(|_| open_session(daemon.address(), LEGACY_VERSION).0).collect();
    let [ended, ended_at_stop, kept, told] = &sessions[..] else { unreachable!() };
    for session in &sessions {
        daemon.send(&in_session(session, legacy_call("1", "echo"))).assert_ok();
    }
    daemon.wait_metric("trunkline_journal_behind", 0);
    assert_eq!(problem(&daemon), None);

    bound_files(&daemon, Some(0));
    assert_eq!(daemon.send(&delete(ended)).status, 204);
    let level = legacy("2", "logging/setLevel", r#"{"level":"error"}"#);
    let lost = eventually("the status tells it", || problem(&daemon));
    assert_eq!(lost["level"], "error", "{lost}");
    assert_eq!(lost["runbook"], "TrunklineJournalRecordsLost", "{lost}");
    assert!(lost["what"].as_str().is_some_and(|what| what.contains("File too large")), "{lost}");
    assert_eq!(daemon.metric("trunkline_journal_behind"), 1);
    assert_eq!(daemon.metric("trunkline_journal_records_lost_total"), 1);
    // Calls and sessions go on.
    daemon.send(&in_session(kept, legacy_call("3", "echo"))).assert_ok();
    daemon.send(&in_session(told, level)).assert_ok();

    bound_files(&daemon, None);
    eventually("the journal is written anew", || problem(&daemon).is_none().then_some(()));
    assert_eq!(daemon.metric("trunkline_journal_behind"), 0);
    daemon.wait_for_log(0, "that it is", |line| line.contains("the session journal was written anew"));
    daemon.kill();

    let mut daemon = start(&config);
    daemon.send(&in_session(ended, legacy_call("4", "echo"))).assert_error(404, 404, Some("4"));
    let used = upstream.sessions_of_calls();
    for session in [kept, told, ended_at_stop] {
        daemon.send(&in_session(session, legacy_call("5", "echo"))).assert_ok();
    }
    let after = upstream.sessions_of_calls().split_off(used.len());
    assert_eq!(after.len(), 3);
    assert!(after.iter().all(|session| used.contains(session)), "sessions with the upstream were forgotten");

    // There is room by the time it stops: nothing is waited for.
    bound_files(&daemon, Some(0));
    assert_eq!(daemon.send(&delete(ended_at_stop)).status, 204);
    bound_files(&daemon, None);
    daemon.terminate();
    assert_eq!(daemon.wait_exit().code(), Some(0));
    let daemon = start(&config);
    daemon.send(&in_session(ended_at_stop, legacy_call("6", "echo"))).assert_error(404, 404, Some("6"));
    daemon.send(&in_session(kept, legacy_call("7", "echo"))).assert_ok();
}

#[test]
fn a_start_without_room_is_a_problem_until_there_is() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).start();
    let folder = Folder::new();
    let config = Config::legacy(&upstream).top(&folder.key()).admin();
    let mut daemon = start(&config);
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    daemon.send(&in_session(&session, legacy_call("1", "echo"))).assert_ok();
    daemon.kill();
    let journal = folder.path().join("sessions.journal");
    let written = fs::read_to_string(&journal).expect("a journal");

    let limited = "trap '' XFSZ; ulimit -S -f 0; exec \"$@\"";
    let daemon = Daemon::start_by(&["/bin/sh", "-c", limited, "sh"], &config, DEADLINE);
    assert!(problem(&daemon).is_some_and(|problem| problem["level"] == "error"));
    assert_eq!(fs::read_to_string(&journal).expect("a journal"), written);
    daemon.send(&in_session(&session, legacy_call("2", "echo"))).assert_ok();
    bound_files(&daemon, None);
    eventually("the journal is written anew", || problem(&daemon).is_none().then_some(()));
}

/// Sessions with as many subscriptions as one may have, together more than a journal holds.
fn journal_of_too_much() -> String {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs();
    let mut journal = String::new();
    for session in 1..=230 {
        for number in 0..60 {
            let uri = URL_SAFE_NO_PAD.encode(format!("{number:03}{}", "a".repeat(3750)));
            let record = format!("subscribed {session:032x} {} up ={uri}", now_s + 3600);
            let sum = record
                .bytes()
                .fold(0x811c_9dc5_u32, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193));
            let _ = writeln!(journal, "{sum:08x} {record}");
        }
    }
    assert!(journal.len() > 64 << 20);
    journal
}

/// Bytes that the gateway has written, to files and sockets.
fn written_bytes(daemon: &Daemon) -> u64 {
    let io = fs::read_to_string(format!("/proc/{}/io", daemon.pid())).expect("it lives");
    let written = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    written.and_then(|bytes| bytes.parse().ok()).expect("a number")
}

#[test]
fn a_journal_that_would_be_too_large_is_not_written_over_and_over() {
    let upstream = Legacy::new(Offer::tools(&["echo"])).start();
    let folder = Folder::new();
    fs::write(folder.path().join("sessions.journal"), journal_of_too_much()).expect("a journal");
    let config = Config::legacy(&upstream).top(&folder.key()).admin();
    let daemon = start(&config);
    let (session, _) = open_session(daemon.address(), LEGACY_VERSION);
    bound_files(&daemon, Some(0));
    assert_eq!(daemon.send(&delete(&session)).status, 204);
    eventually("the status tells it", || problem(&daemon));
    let before = written_bytes(&daemon);
    bound_files(&daemon, None);
    let is_too_large = |problem: &serde_json::Value| problem["what"].to_string().contains("largest size");
    eventually("it is found to be too much", || problem(&daemon).filter(is_too_large));
    let written = written_bytes(&daemon) - before;
    assert!(written < 16 << 20, "{written} bytes were written for nothing");
}

/// Upstreams of these names, all the same one.
fn upstreams(names: &[&str], folder: &Folder, upstream: &Upstream) -> Config {
    let config = Config::new().top(&folder.key()).admin();
    names.iter().fold(config, |config, name| config.probed(name, upstream.address, ""))
}

/// The state directory has what is known of this upstream, and its list.
fn has_kept(folder: &Folder, name: &str) -> Option<()> {
    let known = fs::read_to_string(folder.path().join("upstreams.json")).ok()?;
    let known: serde_json::Value = serde_json::from_str(&known).ok()?;
    let facts = known["upstreams"].as_array()?.iter().find(|upstream| upstream["name"] == name)?;
    let is_kept = facts["modern"].to_string().contains("present");
    (is_kept && folder.path().join("lists").join(name).exists()).then_some(())
}

#[test]
fn what_is_known_of_upstreams_and_their_lists_is_written_once_there_is_room() {
    let subject = "state directory";
    let (upstream, folder) = (Upstream::with_tools(&["echo"]), Folder::new());
    let mut daemon = start(&upstreams(&["a"], &folder, &upstream));
    daemon.send(&list("1", "tools/list")).assert_ok();
    eventually("it is kept", || has_kept(&folder, "a"));
    assert_eq!((problem_of(&daemon, subject), daemon.metric("trunkline_state_directory_behind")), (None, 0));

    // Takes another in, of which nothing can be written.
    let without_room = |names: &[&str]| {
        bound_files(&daemon, Some(0));
        let asked_before = upstream.received_of("tools/list").len();
        daemon.reload(&upstreams(names, &folder, &upstream));
        for part in ["upstreams.json: File too large", "lists: File too large"] {
            eventually(part, || {
                if upstream.received_of("tools/list").len() == asked_before {
                    daemon.send(&list("1", "tools/list")).assert_ok();
                }
                let problem = problem_of(&daemon, subject)?;
                assert_eq!(
                    (&problem["level"], &problem["runbook"]),
                    (&"warning".into(), &"TrunklineStateDirectoryBehind".into())
                );
                problem["what"].as_str()?.contains(part).then_some(())
            });
        }
        assert_eq!(daemon.metric("trunkline_state_directory_behind"), 1);
        bound_files(&daemon, None);
    };
    without_room(&["a", "b"]);
    eventually("it is kept", || has_kept(&folder, "b"));
    eventually("nothing is lacking", || problem_of(&daemon, subject).is_none().then_some(()));
    assert_eq!(daemon.metric("trunkline_state_directory_behind"), 0);

    // There is room by the time it stops: nothing is waited for.
    without_room(&["a", "b", "c"]);
    daemon.terminate();
    assert_eq!(daemon.wait_exit().code(), Some(0));
    has_kept(&folder, "c").expect("it was written at the end");
}
