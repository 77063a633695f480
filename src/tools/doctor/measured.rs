//! Figures of a server, from the facts. Pure.

use std::time::Duration;

use serde_json::Value;

use super::facts::{Facts, ListKind, Listing};
use super::tokens;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Measured {
    pub(crate) tools: usize,
    /// Their list, in bytes of JSON.
    pub(crate) tools_bytes: usize,
    /// What they cost in a model's context, estimated.
    pub(crate) tools_tokens: usize,
    pub(crate) prompts: usize,
    pub(crate) resources: usize,
    pub(crate) templates: usize,
    /// How long requests take that do nothing.
    pub(crate) latency: Option<Latency>,
    /// How long the calls took that were asked for.
    pub(crate) calls: Option<Latency>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Latency {
    pub(crate) count: usize,
    /// Half took at most this.
    pub(crate) median: Duration,
    /// All took at most this.
    pub(crate) most: Duration,
}

impl Measured {
    pub(crate) fn of(facts: &Facts) -> Self {
        let count = |kind| facts.listing(kind).map_or(0, |listing| listing.items().count());
        let calls: Vec<_> =
            facts.called.calls.iter().filter(|call| call.outcome.is_ok()).map(|call| call.took).collect();
        Self {
            tools: count(ListKind::Tools),
            tools_bytes: facts.listing(ListKind::Tools).map_or(0, bytes),
            tools_tokens: facts.tools().map(tokens::of_tool).sum(),
            prompts: count(ListKind::Prompts),
            resources: count(ListKind::Resources),
            templates: count(ListKind::Templates),
            latency: Latency::of(&facts.latencies),
            calls: Latency::of(&calls),
        }
    }
}

impl Latency {
    /// `None` of nothing.
    pub(crate) fn of(times: &[Duration]) -> Option<Self> {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let median = *sorted.get(sorted.len().checked_sub(1)? / 2)?;
        Some(Self { count: sorted.len(), median, most: *sorted.last()? })
    }
}

fn bytes(listing: &Listing) -> usize {
    // With the brackets and commas of one array.
    listing.items().map(|item: &Value| item.to_string().len() + 1).sum::<usize>() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_take_at_most_the_median() {
        let ms = Duration::from_millis;
        for (times, expected) in [
            (vec![], None),
            (vec![3], Some((1, 3, 3))),
            (vec![9, 1], Some((2, 1, 9))),
            (vec![5, 1, 9], Some((3, 5, 9))),
        ] {
            let times: Vec<_> = times.into_iter().map(ms).collect();
            let expected =
                expected.map(|(count, median, most)| Latency { count, median: ms(median), most: ms(most) });
            assert_eq!(Latency::of(&times), expected);
        }
    }
}
