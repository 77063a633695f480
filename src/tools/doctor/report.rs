//! A report: what the checks found, with the figures. Pure.

use super::checks;
use super::facts::Facts;
use super::measured::Measured;
use super::rule::{Rule, Severity};
use super::sheet::Outcome;
use client::Introduction;
use protocol::version::Era;

/// What is wrong with a server, and what is right.
#[derive(Debug)]
pub struct Report {
    /// Where it is, or how it is started.
    pub server: String,
    /// How it introduced itself.
    pub introduction: Option<Introduction>,
    /// The revisions that it speaks, newest first.
    pub versions: Vec<String>,
    /// The era by whose specification it is judged where both say something.
    pub era: Era,
    /// What each rule led to, by area.
    pub outcomes: Vec<Outcome>,
    /// Findings that somebody chose not to see.
    pub ignored: usize,
    /// The figures.
    pub measured: Measured,
    /// How many requests were made.
    pub requests: u32,
    /// Why not everything was asked.
    pub cut_short: Option<String>,
    /// Why nothing was.
    pub not_inspected: Option<String>,
}

impl Report {
    /// Judges what was found out about the server that is called `server`. Findings of ignored rules are only
    /// counted.
    pub fn of(server: &str, facts: &Facts, ignored: &[&'static Rule]) -> Self {
        let is_ignored = |outcome: &Outcome| ignored.iter().any(|rule| std::ptr::eq(*rule, outcome.rule));
        let (hidden, outcomes): (Vec<_>, Vec<_>) = checks::check(facts).into_iter().partition(is_ignored);
        Self {
            server: server.to_owned(),
            introduction: facts.introduction().cloned(),
            versions: versions(facts),
            era: if facts.modern.is_none() && !facts.legacy.is_empty() { Era::Legacy } else { Era::Modern },
            outcomes,
            ignored: hidden.iter().filter(|outcome| !outcome.is_kept).count(),
            measured: Measured::of(facts),
            requests: facts.requests,
            cut_short: facts.cut_short.clone(),
            not_inspected: facts.not_inspected.clone(),
        }
    }

    /// What the server breaks, what matters most first.
    pub fn findings(&self) -> Vec<&Outcome> {
        let mut findings: Vec<_> = self.outcomes.iter().filter(|outcome| !outcome.is_kept).collect();
        findings.sort_by_key(|outcome| outcome.rule.severity);
        findings
    }

    /// How many findings there are of this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.outcomes.iter().filter(|outcome| !outcome.is_kept && outcome.rule.severity == severity).count()
    }

    /// How many rules are kept.
    pub fn kept(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.is_kept).count()
    }
}

fn versions(facts: &Facts) -> Vec<String> {
    let modern = facts.modern.iter().map(|introduction| introduction.version.clone());
    let spoken = facts.legacy.iter().filter(|(asked, found)| *asked == found.version);
    let mut versions: Vec<String> = modern.chain(spoken.map(|(asked, _)| (*asked).to_owned())).collect();
    if versions.is_empty() {
        versions.extend(facts.legacy.first().map(|(_, found)| found.version.clone()));
    }
    versions
}
