//! Programs that end again and again, though each of their processes was of use. Pure.
//!
//! Each look finds such an upstream up. Those that end before they are of use are in a crash loop, which is its state.

use super::advice::Advice;
use super::upstreams::{OF_PROGRAMS, subject};
use crate::gateway::Status;
use crate::problem::{Problem, warning};
use crate::servers::UpstreamStatus;

/// Ends within an hour that get a warning. A program that ends by itself when it has been idle for ten minutes stays below.
const ENDS_WARNING: u64 = 10;

/// Upstreams whose processes end often are one problem.
pub(super) fn of_ends(status: &Status, advice: &Advice<'_>, found: &mut Vec<Problem>) {
    let mut all: Vec<(&UpstreamStatus, u64)> = status.upstreams.iter().filter_map(ends).collect();
    // The worst is the example.
    all.sort_by_key(|(_, ends)| std::cmp::Reverse(*ends));
    let (Some((worst, most)), Some((_, fewest))) = (all.first(), all.last()) else { return };
    let last = worst.fault.as_ref().filter(|fault| fault.kind == "process").map(|fault| &fault.why);
    let what = if all.len() == 1 {
        let last = last.map(|last| format!("; the last error: {last}")).unwrap_or_default();
        format!("ended {most} times in the last hour, and came up again{last}")
    } else {
        let times = if fewest == most { format!("{most}") } else { format!("{fewest} to {most}") };
        let last = last.map(|last| format!("; the last error of {}: {last}", worst.name)).unwrap_or_default();
        format!("ended {times} times each in the last hour, and came up again{last}")
    };
    let problem = warning(subject(all.iter().map(|(upstream, _)| &*upstream.name)), what).word("unstable");
    let problem = problem.of("upstream", all.iter().map(|(upstream, _)| &upstream.name));
    found.push(problem.advice_if(advice.log_lines("-1h", OF_PROGRAMS)).runbook("TrunklineChildCrashes"));
}

/// The ends of one in the last hour, where they are worth a word. One that is down is told as that.
fn ends(upstream: &UpstreamStatus) -> Option<(&UpstreamStatus, u64)> {
    let children = upstream.children.as_ref().filter(|children| !children.crash_loop)?;
    let is_ended = upstream.fault.as_ref().is_some_and(|fault| fault.kind == "process" && fault.stands);
    if is_ended && children.serving == 0 {
        return None;
    }
    (children.ended_last_hour >= ENDS_WARNING).then_some((upstream, children.ended_last_hour))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::object::Object as _;

    const NOW_S: u64 = 1_800_000_000;

    fn ending(name: &str, ends: u64, is_loop: bool) -> Value {
        let why = format!("its process ended, exit status: 3: {name} is out of memory");
        json!({
            "name": name, "transport": "stdio",
            "children": {"ended_last_hour": ends, "crash_loop": is_loop},
            "fault": {"kind": "process", "why": why, "stands": false},
        })
    }

    fn found(upstreams: &[Value]) -> Vec<Problem> {
        let log = json!({"place": "file", "file": "/var/log/gate.log"});
        let status = Status::read(&json!({"log": log, "upstreams": upstreams})).unwrap();
        crate::problems::problems(&status, None, NOW_S)
    }

    #[test]
    fn one_that_ends_now_and_then_is_well_and_one_that_does_so_often_gets_a_warning() {
        assert_eq!(found(&[ending("a", ENDS_WARNING - 1, false), json!({"name": "b"})]), []);
        let all = found(&[ending("a", ENDS_WARNING, false)]);
        let [one] = &all[..] else { panic!("{all:?}") };
        assert_eq!((&*one.level, &*one.subject, &*one.word), ("warning", "upstream a", "unstable"));
        let why = "its process ended, exit status: 3: a is out of memory";
        let what = format!("ended 10 times in the last hour, and came up again; the last error: {why}");
        assert_eq!(one.what, what);
        let advice = "grep -E 'child process|stderr' /var/log/gate.log";
        assert_eq!(
            (one.advice.as_deref(), one.runbook.as_deref()),
            (Some(advice), Some("TrunklineChildCrashes"))
        );
    }

    #[test]
    fn one_that_is_down_has_not_come_up_again() {
        let mut down = ending("a", ENDS_WARNING, false);
        down["fault"]["stands"] = true.into();
        let all = found(&[down.clone()]);
        assert_eq!(all.iter().map(|one| &*one.word).collect::<Vec<_>>(), ["down"], "{all:?}");
        // Others of its processes serve.
        down["children"]["serving"] = 1.into();
        assert!(found(&[down]).iter().any(|one| one.word == "unstable"));
    }

    #[test]
    fn several_are_one_problem_and_a_crash_loop_is_another() {
        let all = found(&[ending("a", 12, false), ending("b", 40, false), ending("c", 99, true)]);
        let said: Vec<(&str, &str)> = all.iter().map(|one| (&*one.subject, &*one.what)).collect();
        let words = "ended 12 to 40 times each in the last hour, and came up again; the last error of b: \
                     its process ended, exit status: 3: b is out of memory";
        assert_eq!(said[1..], [("upstreams b, a", words)]);
        assert!(said[0].1.starts_with("down: its child process is in a crash loop"), "{said:?}");
    }
}
