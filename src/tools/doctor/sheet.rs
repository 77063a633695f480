//! What the checks found, rule by rule.

use super::facts::{Answer, Exchange, Facts, Probe, clip};
use super::rule::InspectionRule;

/// What is kept of a finding's details, and how many.
const ITEM_CHARS_MAX: usize = 300;
const ITEMS_MAX: usize = 20;

#[derive(Clone, Debug)]
pub(crate) struct RuleOutcome {
    pub(crate) rule: &'static InspectionRule,
    pub(crate) is_kept: bool,
    /// What was seen, in the first few places.
    pub(crate) items: Vec<String>,
    pub(crate) items_total: usize,
}

#[derive(Debug, Default)]
pub(super) struct Sheet {
    pub(super) outcomes: Vec<RuleOutcome>,
}

/// What a request that is wrong must get.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    /// The statuses over HTTP; empty for any of 400 and above.
    pub(super) statuses: &'static [u16],
    /// The codes; empty for any, or none.
    pub(super) codes: &'static [i64],
}

impl Sheet {
    /// The server keeps a rule.
    pub(super) fn kept(&mut self, rule: &'static InspectionRule) {
        self.judge(rule, None);
    }

    /// The server breaks a rule, as was seen.
    pub(super) fn broken(&mut self, rule: &'static InspectionRule, seen: impl Into<String>) {
        self.judge(rule, Some(seen.into()));
    }

    /// The server keeps a rule if nothing was seen that breaks it. A rule may be judged more than once.
    pub(super) fn judge(&mut self, rule: &'static InspectionRule, seen: impl IntoIterator<Item = String>) {
        let items: Vec<_> = seen.into_iter().map(|item| clip(&item, ITEM_CHARS_MAX)).collect();
        let (total, items) = (items.len(), items.into_iter());
        match self.outcomes.iter_mut().find(|outcome| std::ptr::eq(outcome.rule, rule)) {
            Some(outcome) => {
                outcome.is_kept &= total == 0;
                outcome.items_total += total;
                let room = ITEMS_MAX - outcome.items.len();
                outcome.items.extend(items.take(room));
            }
            None => self.outcomes.push(RuleOutcome {
                rule,
                is_kept: total == 0,
                items: items.take(ITEMS_MAX).collect(),
                items_total: total,
            }),
        }
    }

    /// The same where a refusal of another kind breaks only another rule.
    pub(super) fn refused_or(
        &mut self,
        facts: &Facts,
        probe: Probe,
        rules: [&'static InspectionRule; 2],
        what: &str,
        wanted: Refusal,
    ) {
        let Some(exchange) = facts.answer(probe) else { return };
        let [rule, lesser] = rules;
        if wanted.fits(exchange) || !is_refused(exchange) {
            self.refused(facts, probe, rule, what, wanted);
        } else {
            self.kept(rule);
            self.refused(facts, probe, lesser, what, wanted);
        }
    }

    /// Judges the answer to a request that had to be refused. What was not asked is not judged.
    pub(super) fn refused(
        &mut self,
        facts: &Facts,
        probe: Probe,
        rule: &'static InspectionRule,
        what: &str,
        wanted: Refusal,
    ) {
        let Some(exchange) = facts.answer(probe) else { return };
        if matches!(exchange.answer, Answer::Silence) {
            return; // has a rule of its own
        }
        self.judge(rule, (!wanted.fits(exchange)).then(|| format!("{what}: {}", wanted.against(exchange))));
    }
}

/// Whether a request was refused, in whatever way.
pub(super) fn is_refused(exchange: &Exchange) -> bool {
    let is_error = exchange.error().is_some() || exchange.status.is_some_and(|status| status >= 400);
    is_error && exchange.result().is_none()
}

impl Refusal {
    /// One of exactly this status and code.
    pub(super) const fn new(statuses: &'static [u16], codes: &'static [i64]) -> Self {
        Self { statuses, codes }
    }

    fn fits(self, exchange: &Exchange) -> bool {
        let is_status_right = match exchange.status {
            None => true,
            Some(status) if self.statuses.is_empty() => status >= 400,
            Some(status) => self.statuses.contains(&status),
        };
        let is_code_right = match (self.codes.is_empty(), exchange.error()) {
            (true, _) => exchange.status.is_some() || exchange.error().is_some(),
            (false, Some(error)) => self.codes.contains(&error.code),
            (false, None) => false,
        };
        is_status_right && is_code_right && exchange.result().is_none()
    }

    fn against(self, exchange: &Exchange) -> String {
        let mut wanted = Vec::new();
        if exchange.status.is_some() {
            match self.statuses {
                [] => wanted.push("HTTP 4xx".to_owned()),
                statuses => wanted.push(format!("HTTP {}", alternatives(statuses))),
            }
        }
        if !self.codes.is_empty() {
            wanted.push(format!("error {}", alternatives(self.codes)));
        }
        format!("got {}, not {}", exchange.words(), wanted.join(" with "))
    }
}

fn alternatives<T: ToString>(values: &[T]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::doctor::rules::requests::GARBAGE;
    use client::RpcError;

    #[test]
    fn refusals_fit_by_status_and_code() {
        let exchange = |status, code: Option<i64>| {
            let error =
                |code| Answer::Error(RpcError { code, message: String::new(), data: None, status: None });
            let answer = code.map_or(Answer::Result(json!({})), error);
            Exchange { status, ..Exchange::failed(answer, Duration::ZERO) }
        };
        let strict = Refusal::new(&[400], &[-32020]);
        let any = Refusal::new(&[], &[]);
        for (refusal, status, code, expected) in [
            (strict, Some(400), Some(-32020), ""),
            (strict, None, Some(-32020), ""),
            (
                strict,
                Some(200),
                Some(-32020),
                "got HTTP 200 with error -32020, not HTTP 400 with error -32020",
            ),
            (strict, Some(400), Some(-1), "got HTTP 400 with error -1, not HTTP 400 with error -32020"),
            (strict, None, None, "got a result, not error -32020"),
            (any, Some(415), Some(7), ""),
            (any, Some(200), Some(7), "got HTTP 200 with error 7, not HTTP 4xx"),
            (any, Some(400), None, "got HTTP 400 with a result, not HTTP 4xx"),
        ] {
            let exchange = exchange(status, code);
            let found = if refusal.fits(&exchange) { String::new() } else { refusal.against(&exchange) };
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_rule_is_kept_only_if_nothing_breaks_it() {
        let mut sheet = Sheet::default();
        sheet.kept(&GARBAGE);
        assert!(sheet.outcomes[0].is_kept);
        sheet.judge(&GARBAGE, (0..30).map(|number| number.to_string()));
        sheet.kept(&GARBAGE);
        sheet.broken(&GARBAGE, "x".repeat(1000));
        let [outcome] = &sheet.outcomes[..] else { panic!("one rule, one outcome") };
        assert!(!outcome.is_kept);
        assert_eq!((outcome.items.len(), outcome.items_total), (ITEMS_MAX, 31));
    }
}
