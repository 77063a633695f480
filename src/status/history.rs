//! The last minutes of a gateway: `/status/history`.

use std::collections::BTreeMap;
use std::ops::Deref;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::object::Object;

/// Points of a line that are read.
const POINTS_MAX: usize = 240;

objects! {
    /// The last minutes.
    struct History {
        /// How many samples there were since the start.
        number: u64,
        /// Seconds from one value to the next.
        interval_s: Option<f64>,
        /// When each sample was taken, in seconds since 1970.
        at_s: Vec<u64>,
        all: HistoryLines,
        endpoints: BTreeMap<String, HistoryLines>,
        upstreams: BTreeMap<String, HistoryLines>,
    }

    /// What is known of one thing over time.
    struct HistoryLines {
        calls_per_s: HistoryLine,
        errors_per_s: HistoryLine,
        p50_s: HistoryLine,
        p99_s: HistoryLine,
    }
}

/// Values of equal intervals, oldest first; `None`: not known. Only the latest are read.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HistoryLine(pub Vec<Option<f64>>);

impl Deref for HistoryLine {
    type Target = [Option<f64>];

    fn deref(&self) -> &[Option<f64>] {
        &self.0
    }
}

impl Object for HistoryLine {
    fn read(value: &Value) -> Option<Self> {
        let all = value.as_array()?;
        Some(Self(all[all.len().saturating_sub(POINTS_MAX)..].iter().map(f64::read).collect()))
    }

    fn schema(definitions: &mut Map<String, Value>) -> Value {
        Vec::<Option<f64>>::schema(definitions)
    }
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
        let history = History::read(&answer).unwrap_or_default();
        assert_eq!(history.all.calls_per_s.0, [Some(1.0), None, None, None, Some(3.5)]);
        assert_eq!(history.upstreams["a"].p99_s.len(), POINTS_MAX);
        assert_eq!((history.upstreams.len(), history.endpoints.len()), (1, 0));
    }
}
