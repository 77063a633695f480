//! Programs that end: the rows of problems that they make, and the ways to their log.

use std::process::Command;

use serde_json::Value;

use super::states::{status, upstream};
use crate::harness::{Child, Config, Daemon, Folder, call, eventually, list, trunkline};

/// Problems of upstreams.
fn problems(daemon: &Daemon) -> Vec<Value> {
    let told = status(daemon);
    let all = told["problems"].as_array().expect("a list").iter();
    all.filter(|problem| problem["kind"] == "upstream").cloned().collect()
}

/// The problem of which this is the section of the runbook, as soon as there is one.
fn problem_of(daemon: &Daemon, runbook: &str) -> Value {
    eventually(runbook, || problems(daemon).into_iter().find(|problem| problem["runbook"] == runbook))
}

#[test]
fn programs_that_end_alike_are_one_row_whatever_each_has_said() {
    let mut config = Config::new().admin();
    let names: Vec<String> = (1..=9).map(|number| format!("exits-{number}")).collect();
    for (number, name) in (1..).zip(&names) {
        let script = format!("echo there is no key {number} >&2; exit {number}");
        config = config.raw(name, &format!("command = [\"sh\", \"-c\", \"{script}\"]"));
    }
    for name in ["killed-1", "killed-2"] {
        let script = format!("echo {name} says so >&2; kill -9 $$");
        config = config.raw(name, &format!("command = [\"sh\", \"-c\", \"{script}\"]"));
    }
    for name in ["mute-1", "mute-2"] {
        let keys = "command = [\"sleep\", \"600\"]\nstart_timeout = \"200ms\"\nstop_timeout = \"100ms\"";
        config = config.raw(name, keys);
    }
    let daemon = Daemon::start(&config);
    let subjects = |told: &[Value]| -> Vec<String> {
        let loops =
            told.iter().filter(|one| one["what"].as_str().is_some_and(|what| what.contains("crash loop")));
        let mut all: Vec<String> =
            loops.map(|one| one["subject"].as_str().unwrap_or_default().to_owned()).collect();
        all.sort();
        all
    };
    let expected = [
        "upstreams exits-1, exits-2, exits-3 and 6 more",
        "upstreams killed-1, killed-2",
        "upstreams mute-1, mute-2",
    ];
    let told = eventually("a row for each kind of end", || {
        let told = problems(&daemon);
        (told.len() == 3 && subjects(&told) == expected).then_some(told)
    });
    let exits =
        told.iter().find(|one| one["names"].as_array().is_some_and(|all| all.len() == 9)).expect("one");
    let what = exits["what"].as_str().unwrap_or_default();
    let common = "down: its child process is in a crash loop: the process ended with an exit status; \
                  the last error of exits-1: its process ended, exit status: 1: there is no key 1";
    assert!(what.starts_with(common), "{what}");
    assert_eq!(exits["names"], serde_json::json!(names));
    // Nothing of it depends on where it is read.
    let (output, _) = trunkline(&["status", "--admin", &daemon.admin().to_string()], None);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("\n3 problems\n"), "{said}");
    for subject in expected {
        assert!(said.contains(&format!("✗ {subject}")), "{subject}: {said}");
    }
    assert!(said.contains(what), "{said}");
}

#[test]
fn the_log_is_advised_where_it_goes() {
    let folder = Folder::new();
    let file = folder.path().join("gate way.log");
    let config = |log: &str| {
        let program = "command = [\"sh\", \"-c\", \"echo there is no key >&2; exit 4\"]";
        Config::new().raw("up", program).section(log).admin()
    };
    let daemon = Daemon::start(&config(""));
    let found = problem_of(&daemon, "TrunklineChildCrashLoop");
    // Standard error is a pipe here, and somebody else knows what becomes of it.
    assert_eq!(found["advice"], Value::Null, "{found:#}");
    let told = status(&daemon);
    assert_eq!((&told["log"]["place"], &told["service"]), (&"other".into(), &Value::Null), "{told:#}");
    daemon.reload(&config(&format!("[log]\nfile = {:?}", file.display().to_string())));
    let advice = eventually("the file is advised", || {
        problem_of(&daemon, "TrunklineChildCrashLoop")["advice"].as_str().map(str::to_owned)
    });
    assert_eq!(advice, format!("grep -E 'child process|stderr' '{}'", file.display()));
    let told = status(&daemon)["log"].clone();
    assert_eq!(told, serde_json::json!({"place": "file", "file": file}));
    eventually("the advice shows why", || {
        let output = Command::new("sh").args(["-c", &advice]).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).contains("there is no key").then_some(())
    });
    let (output, _) = trunkline(&["status", "--admin", &daemon.admin().to_string()], None);
    assert!(String::from_utf8_lossy(&output.stdout).contains(&format!("→ {advice}")), "{output:?}");
}

#[test]
fn a_program_that_is_of_use_and_ends_again_and_again_gets_a_warning() {
    let child = Child::new(&["modern"]);
    let daemon = Daemon::start(&Config::new().raw("up", &child.keys("")).admin());
    let ended = || upstream(&status(&daemon), "up")["children"]["ended_last_hour"].as_u64();
    for number in 1..=10 {
        daemon.send(&call("1", "echo")).assert_ok();
        daemon.send(&call("1", "die"));
        eventually("its end is counted", || (ended() == Some(number)).then_some(()));
        let is_told = problems(&daemon).iter().any(|one| one["runbook"] == "TrunklineChildCrashes");
        assert_eq!(is_told, number == 10, "{number}");
    }
    daemon.send(&call("1", "echo")).assert_ok();
    let found = problem_of(&daemon, "TrunklineChildCrashes");
    assert_eq!((&found["level"], &found["subject"]), (&"warning".into(), &"upstream up".into()), "{found:#}");
    let what = found["what"].as_str().unwrap_or_default();
    assert!(what.starts_with("ended 10 times in the last hour, and came up again"), "{found:#}");
    let told = upstream(&status(&daemon), "up");
    assert!(told["children"]["crash_loop"] == false && told["usable"] == true, "{told:#}");
    let (output, _) = trunkline(&["status", "--admin", &daemon.admin().to_string()], None);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("! upstream up") && said.contains(what), "{said}");
    assert!(output.status.success(), "a warning is no failure: {said}");
}

#[test]
fn a_program_that_a_reload_mends_is_in_no_crash_loop() {
    let daemon = Daemon::start(&Config::new().raw("up", "command = [\"sh\", \"-c\", \"exit 4\"]").admin());
    let metric = "trunkline_child_crash_loop{upstream=\"up\"}";
    eventually("it is in a loop", || (daemon.find_metric(metric) == Some(1)).then_some(()));
    let child = Child::new(&["modern"]);
    daemon.reload(&Config::new().raw("up", &child.keys("")).admin());
    eventually("it is up", || daemon.send(&call("1", "echo")).text().contains("content").then_some(()));
    let told = upstream(&status(&daemon), "up");
    assert!(told["state"] == "up" && told["children"]["crash_loop"] == false, "{told:#}");
    assert_eq!(daemon.find_metric(metric), Some(0));
}

#[test]
fn tools_from_before_a_reload_are_not_counted() {
    let child = Child::new(&["modern"]);
    let config = |lines: &str| Config::new().raw("up", &child.keys(lines)).admin();
    let daemon = Daemon::start(&config(""));
    let counted = || {
        daemon.send(&list("1", "tools/list"));
        let told = status(&daemon);
        let of_endpoint = told["endpoints"][0]["tools"].as_u64().filter(|tools| *tools > 0)?;
        Some((of_endpoint, told["tools"]["known"].as_u64()))
    };
    let (before, _) = eventually("its tools are listed", counted);
    let from = daemon.log().len();
    daemon.reload(&config("response_timeout = \"7s\""));
    daemon.wait_for_log(from, "the reload", |line| line.contains("reloaded"));
    let (after, known) = eventually("its tools are listed again", counted);
    assert_eq!((after, known), (before, Some(before)));
}
