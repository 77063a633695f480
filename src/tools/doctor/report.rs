//! A report: what the checks found, with the figures. Pure.

use super::checks;
use super::facts::Facts;
use super::measured::Measured;
use super::rule::{InspectionRule, Severity};
use super::sheet::RuleOutcome;
use protocol::version::Era;

/// What is wrong with a server, and what is right.
#[derive(Debug)]
pub struct Report {
    /// Where it is, or how it is started.
    pub(super) server: String,
    pub(super) facts: Facts,
    /// What each rule led to, by area.
    pub(super) outcomes: Vec<RuleOutcome>,
    /// Findings that somebody chose not to see.
    pub(super) ignored: usize,
    pub(super) measured: Measured,
}

impl Report {
    /// Judges what was found out about the server that is called `server`. Findings of ignored rules are only
    /// counted.
    pub(super) fn of(server: &str, facts: Facts, ignored: &[&'static InspectionRule]) -> Self {
        let is_ignored = |outcome: &RuleOutcome| ignored.iter().any(|rule| std::ptr::eq(*rule, outcome.rule));
        let (hidden, outcomes): (Vec<_>, Vec<_>) = checks::check(&facts).into_iter().partition(is_ignored);
        let ignored = hidden.iter().filter(|outcome| !outcome.is_kept).count();
        Self { server: server.to_owned(), outcomes, ignored, measured: Measured::of(&facts), facts }
    }

    /// Whether the server could be inspected.
    pub fn is_inspected(&self) -> bool {
        self.facts.not_inspected.is_none()
    }

    /// The era by whose specification it is judged where both say something.
    pub(super) fn era(&self) -> Era {
        let is_legacy = self.facts.modern.is_none() && !self.facts.legacy.is_empty();
        if is_legacy { Era::Legacy } else { Era::Modern }
    }

    /// The revisions that it speaks, newest first.
    pub(super) fn versions(&self) -> Vec<&str> {
        let Facts { modern, legacy, .. } = &self.facts;
        let modern = modern.iter().map(|introduction| &*introduction.version);
        let spoken = legacy.iter().filter(|(asked, found)| *asked == found.version);
        let mut versions: Vec<&str> = modern.chain(spoken.map(|(asked, _)| *asked)).collect();
        if versions.is_empty() {
            versions.extend(legacy.first().map(|(_, found)| &*found.version));
        }
        versions
    }

    /// What the server breaks, what matters most first.
    pub(super) fn findings(&self) -> Vec<&RuleOutcome> {
        let mut findings: Vec<_> = self.outcomes.iter().filter(|outcome| !outcome.is_kept).collect();
        findings.sort_by_key(|outcome| outcome.rule.severity);
        findings
    }

    /// How many findings there are of this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.outcomes.iter().filter(|outcome| !outcome.is_kept && outcome.rule.severity == severity).count()
    }

    pub(super) fn kept(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.is_kept).count()
    }
}
