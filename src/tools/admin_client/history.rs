//! The last minutes of a gateway: `/status/history`. Pure.

use std::collections::HashMap;

use serde_json::Value;

use super::json::{member, number};

/// Points that are kept of each line.
const POINTS_MAX: usize = 240;

/// Values of equal intervals, oldest first. What is not known is `None`.
pub type HistoryLine = Vec<Option<f64>>;

/// What is known of one thing over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lines {
    /// Calls per second.
    pub calls_per_s: HistoryLine,
    /// Errors per second.
    pub errors_per_s: HistoryLine,
    /// Median latency.
    pub p50_s: HistoryLine,
    /// Latency that one in a hundred calls exceeds.
    pub p99_s: HistoryLine,
}

/// The last minutes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// Seconds from one value to the next.
    pub interval_s: Option<f64>,
    /// Of the whole gateway.
    pub all: Lines,
    /// By path.
    pub endpoints: HashMap<String, Lines>,
    /// By name.
    pub upstreams: HashMap<String, Lines>,
}

impl History {
    /// What the answer says.
    pub fn read(answer: &Value) -> Self {
        Self {
            interval_s: number(answer, "interval_s"),
            all: lines(member(answer, "all")),
            endpoints: by_name(member(answer, "endpoints")),
            upstreams: by_name(member(answer, "upstreams")),
        }
    }
}

fn by_name(of: &Value) -> HashMap<String, Lines> {
    let entries = of.as_object().into_iter().flatten();
    entries.map(|(name, one)| (name.clone(), lines(one))).collect()
}

fn lines(of: &Value) -> Lines {
    Lines {
        calls_per_s: line(of, "calls_per_s"),
        errors_per_s: line(of, "errors_per_s"),
        p50_s: line(of, "p50_s"),
        p99_s: line(of, "p99_s"),
    }
}

fn line(of: &Value, name: &str) -> HistoryLine {
    let all = member(of, name).as_array().map_or(&[][..], Vec::as_slice);
    let latest = &all[all.len().saturating_sub(POINTS_MAX)..];
    latest.iter().map(|value| value.as_f64().filter(|value| value.is_finite() && *value >= 0.0)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn history_is_read_whatever_is_in_it() {
        let answer = json!({
            "interval_s": 5.0,
            "all": {"calls_per_s": [1, null, "x", -2.0, 3.5]},
            "upstreams": {"a": {"p99_s": vec![0.1; 300]}, "b": 7},
            "endpoints": [],
        });
        let history = History::read(&answer);
        assert_eq!(history.all.calls_per_s, [Some(1.0), None, None, None, Some(3.5)]);
        assert_eq!(history.upstreams["a"].p99_s.len(), POINTS_MAX);
        assert_eq!(history.upstreams["b"], Lines::default());
        assert!(history.endpoints.is_empty());
    }
}
