//! How a server behaves that is started as a program.

use crate::doctor::facts::{Facts, Tally};
use crate::doctor::rules::process as rules;
use crate::doctor::sheet::Sheet;

/// More on standard error than a start-up message.
const STDERR_BYTES_MAX: usize = 8 * 1024;

pub(super) fn check(facts: &Facts, sheet: &mut Sheet) {
    let Some(process) = &facts.process else { return };
    sheet.judge(&rules::STDOUT, lines(&process.noise, "lines"));
    let crash = process.crash.as_ref().map(|how| format!("it exited by itself: {how}"));
    sheet.judge(&rules::CRASH, crash);
    if process.crash.is_none() {
        sheet.judge(
            &rules::EXIT,
            process.exit.is_none().then(|| "it had to be stopped after 5 seconds".to_owned()),
        );
    }
    if facts.modern.is_some() {
        sheet.judge(&rules::REQUESTS, lines(&process.modern_requests, "requests"));
    }
    let seen = if process.remarks.total > STDERR_BYTES_MAX {
        let first = process.remarks.first.first().map(String::as_str).unwrap_or_default();
        vec![format!("{} KiB, beginning with {first:?}", process.remarks.total >> 10)]
    } else {
        Vec::new()
    };
    sheet.judge(&rules::STDERR, seen);
}

fn lines(tally: &Tally, what: &str) -> Vec<String> {
    let mut seen: Vec<String> = tally.first.iter().map(|line| format!("{line:?}")).collect();
    if tally.total > seen.len() {
        seen.push(format!("{} {what} in all", tally.total));
    }
    seen
}
