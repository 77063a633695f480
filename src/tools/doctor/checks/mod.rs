//! The checks: facts in, outcomes out. Pure.

mod access;
mod lists;
mod names;
mod process;
mod requests;
mod schemas;
mod sessions;
mod speed;
mod tools;
mod versions;

use super::facts::Facts;
use super::sheet::{RuleOutcome, Sheet};

/// Judges everything that was found out, in the order of areas.
pub(super) fn check(facts: &Facts) -> Vec<RuleOutcome> {
    let mut sheet = Sheet::default();
    access::check(facts, &mut sheet);
    if facts.not_inspected.is_none() {
        versions::check(facts, &mut sheet);
        requests::check(facts, &mut sheet);
        sessions::check(facts, &mut sheet);
        process::check(facts, &mut sheet);
        lists::check(facts, &mut sheet);
        tools::check(facts, &mut sheet);
        speed::check(facts, &mut sheet);
    }
    let mut outcomes = sheet.outcomes;
    outcomes.sort_by_key(|outcome| outcome.rule.area);
    outcomes
}
