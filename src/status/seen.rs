//! Counts as they were a minute ago: by them it is told what happens now. Pure.

use std::collections::{BTreeMap, HashMap};

use crate::calls::Figures;
use crate::words::number_of;

/// Failed calls that are worth a word, in a minute.
const FAILING_CALLS_MIN: u64 = 3;
/// Their share of all calls in it, in percent.
const FAILING_PERCENT: u64 = 5;
/// Reasons that are named.
const REASONS_MAX: usize = 3;

/// A gateway a minute ago, or as long ago as it was looked at first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Calls at each endpoint, by its path.
    pub endpoints: HashMap<String, SeenCalls>,
    /// Calls of each upstream, by its name.
    pub upstreams: HashMap<String, SeenCalls>,
    /// Calls that each limit had refused, by its name.
    pub limits: HashMap<String, u64>,
    /// Connections that were refused.
    pub connections_refused: u64,
    /// Spans that were given up, as too many waited.
    pub spans_dropped: u64,
    /// Spans that could not be handed on.
    pub spans_failed: u64,
}

/// Calls since the start of the gateway until then.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeenCalls {
    /// Their number.
    pub calls: u64,
    /// The number of those that failed.
    pub errors: u64,
    /// The same by their reasons.
    pub reasons: BTreeMap<String, u64>,
    /// Since when some fail again and again, in seconds since 1970.
    pub failing_since_s: Option<u64>,
}

impl SeenCalls {
    /// The share of calls since then that failed, in percent, if that is worth a word.
    pub(crate) fn failing_percent(&self, now: &Figures) -> Option<u64> {
        let calls = now.calls?.checked_sub(self.calls)?;
        let errors = now.errors?.checked_sub(self.errors)?;
        let is_worth_it = errors >= FAILING_CALLS_MIN
            && errors.saturating_mul(100) >= calls.saturating_mul(FAILING_PERCENT);
        let percent = errors.saturating_mul(100).saturating_add(calls / 2).checked_div(calls.max(errors));
        percent.filter(|_| is_worth_it).map(|percent| percent.min(100))
    }
}

/// Why calls failed: in the last minute where some did, else since the start. `None`: none did.
pub(crate) fn reasons(now: &Figures, before: Option<&SeenCalls>) -> Option<String> {
    let lately = |before: &SeenCalls| {
        let more = now.reasons.iter().map(|(why, times)| {
            let old = before.reasons.get(why).copied().unwrap_or_default();
            (&**why, times.saturating_sub(old))
        });
        Some(format!("{} in the last minute", most(more)?))
    };
    let all = || {
        let all = now.reasons.iter().map(|(why, times)| (&**why, *times));
        Some(format!("{} since the start", most(all)?))
    };
    before.and_then(lately).or_else(all)
}

/// The most frequent ones, with their numbers.
fn most<'r>(reasons: impl Iterator<Item = (&'r str, u64)>) -> Option<String> {
    let mut some: Vec<(&str, u64)> = reasons.filter(|(_, times)| *times > 0).collect();
    some.sort_by(|(a, a_times), (b, b_times)| b_times.cmp(a_times).then_with(|| a.cmp(b)));
    let said: Vec<String> =
        some.iter().take(REASONS_MAX).map(|(why, times)| format!("{why} {times}")).collect();
    Some(said.join(", ")).filter(|said| !said.is_empty())
}

/// So many more in the last minute; `None`: no more.
pub(crate) fn more(now: u64, before: Option<u64>, one: &str, many: &str, what: &str) -> Option<String> {
    let more = now.saturating_sub(before?);
    (more > 0).then(|| format!("{} {what} in the last minute", number_of(more, one, many)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(calls: u64, errors: u64, reasons: &[(&str, u64)]) -> Figures {
        let reasons = reasons.iter().map(|(why, times)| ((*why).to_owned(), *times)).collect();
        Figures { calls: Some(calls), errors: Some(errors), reasons, ..Figures::default() }
    }

    #[test]
    fn only_calls_since_then_fail() {
        let before = SeenCalls { calls: 100, errors: 50, ..SeenCalls::default() };
        for (calls, errors, percent) in [
            (100, 50, None),
            (110, 52, None),
            (110, 53, Some(30)),
            (200, 54, None),
            (160, 53, Some(5)),
            (103, 53, Some(100)),
            (0, 0, None),
        ] {
            assert_eq!(before.failing_percent(&figures(calls, errors, &[])), percent, "{calls} {errors}");
        }
        assert_eq!(before.failing_percent(&Figures::default()), None, "nothing is measured");
    }

    #[test]
    fn reasons_are_of_the_last_minute_where_it_has_any() {
        let before = SeenCalls { reasons: [("timeout".to_owned(), 4)].into(), ..SeenCalls::default() };
        let now = figures(9, 9, &[("timeout", 4), ("reset", 2)]);
        assert_eq!(reasons(&now, Some(&before)).as_deref(), Some("reset 2 in the last minute"));
        assert_eq!(reasons(&now, None).as_deref(), Some("timeout 4, reset 2 since the start"));
        let same = figures(9, 9, &[("timeout", 4)]);
        assert_eq!(reasons(&same, Some(&before)).as_deref(), Some("timeout 4 since the start"));
        assert_eq!(reasons(&Figures::default(), Some(&before)), None);
    }
}
