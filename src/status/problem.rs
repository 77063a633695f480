//! Something that is wrong with a gateway, as `/status` tells it and every view shows it. Pure.

use crate::words::{number_of, span};

objects! {
    /// Something that is wrong.
    struct Problem {
        /// `error`: somebody is not served, or soon is not; `warning`: it needs attention.
        level: String,
        /// With what: `upstream weather`.
        subject: String,
        /// Of what kind that is: `endpoint`, `upstream` or `gateway`.
        kind: String,
        /// Its names, of an endpoint or of upstreams.
        names: Vec<String>,
        /// The state in a word or two, as the tables have it.
        word: String,
        /// What is wrong.
        what: String,
        /// Why its calls failed, in the last minute where some did, else since the start; null: none failed, or it is not
        /// about calls.
        reasons: Option<String>,
        /// Since when, in seconds since 1970, as far as the gateway knows.
        since_s: Option<u64>,
        /// What to do: a command.
        advice: Option<String>,
        /// The section of the runbook.
        runbook: Option<String>,
    }
}

/// The severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemLevel {
    /// Somebody is not served, or soon is not.
    Error,
    /// It needs attention.
    Warning,
}

/// The numbers of errors and of warnings.
pub fn counts(problems: &[Problem]) -> (usize, usize) {
    let wrong = problems.iter().filter(|problem| problem.severity() == ProblemLevel::Error).count();
    (wrong, problems.len() - wrong)
}

/// The same in words; `None` where nothing is.
pub fn summary(problems: &[Problem]) -> Option<String> {
    let (errors, warnings) = counts(problems);
    let said = [(errors, "problem", "problems"), (warnings, "warning", "warnings")]
        .into_iter()
        .filter(|(number, ..)| *number > 0)
        .map(|(number, one, many)| number_of(number as u64, one, many));
    Some(said.collect::<Vec<_>>().join(", ")).filter(|said| !said.is_empty())
}

pub(crate) fn error(subject: impl Into<String>, what: impl Into<String>) -> Problem {
    problem(ProblemLevel::Error, subject.into(), what.into())
}

pub(crate) fn warning(subject: impl Into<String>, what: impl Into<String>) -> Problem {
    problem(ProblemLevel::Warning, subject.into(), what.into())
}

fn problem(severity: ProblemLevel, subject: String, what: String) -> Problem {
    let level = match severity {
        ProblemLevel::Error => "error",
        ProblemLevel::Warning => "warning",
    };
    let (level, kind) = (level.to_owned(), "gateway".to_owned());
    Problem { level, subject, kind, what, ..Problem::default() }
}

impl Problem {
    /// Since when, as people say it; empty where it is not known.
    pub fn since_words(&self, now_s: u64) -> String {
        let known = self.since_s.map(|since_s| format!(", for {}", span(now_s.saturating_sub(since_s))));
        known.unwrap_or_default()
    }

    /// The problem in one line: its cause, its age, and why calls failed.
    pub fn words(&self, now_s: u64) -> String {
        let reasons = self.reasons.as_ref().map(|reasons| format!("; {reasons}")).unwrap_or_default();
        format!("{}{}{reasons}", self.what, self.since_words(now_s))
    }

    /// The place in the runbook.
    pub fn runbook_place(&self) -> Option<String> {
        self.runbook.as_ref().map(|section| format!("docs/operate/runbook.md#{}", section.to_lowercase()))
    }

    /// The severity.
    pub fn severity(&self) -> ProblemLevel {
        if self.level == "error" { ProblemLevel::Error } else { ProblemLevel::Warning }
    }

    pub(crate) fn of<'n>(self, kind: &str, names: impl IntoIterator<Item = &'n String>) -> Self {
        Self { kind: kind.to_owned(), names: names.into_iter().cloned().collect(), ..self }
    }

    pub(crate) fn word(self, word: &str) -> Self {
        Self { word: word.to_owned(), ..self }
    }

    pub(crate) fn reasons(self, reasons: Option<String>) -> Self {
        Self { reasons, ..self }
    }

    pub(crate) fn since(self, since_s: Option<u64>) -> Self {
        Self { since_s, ..self }
    }

    pub(crate) fn advice(self, advice: String) -> Self {
        self.advice_if(Some(advice))
    }

    pub(crate) fn advice_if(self, advice: Option<String>) -> Self {
        Self { advice, ..self }
    }

    pub(crate) fn runbook(self, section: &'static str) -> Self {
        Self { runbook: Some(section.to_owned()), ..self }
    }
}
