//! What the generator counts, and the result it prints.
//!
//! Invariant: a call is counted once, as an answer with a latency or as an error of one kind. Errors of the warm-up
//! count too: a server under test should make none at any time.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Why a call was not answered with its result.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Connect,
    /// TLS did not come about, or did not end as it should.
    Handshake,
    /// The connection closed or broke before the whole reply.
    Closed,
    Status(String),
    /// Not HTTP, not JSON, or neither a result nor an error.
    Malformed,
    WrongId,
    JsonRpcError,
    /// No reply before the generator gave up.
    Unanswered,
}

/// Latencies up to this are told apart.
const LATENCY_MAX: Duration = Duration::from_mins(2);

/// Quantiles of the distribution in the result, for a plot.
const QUANTILES: [f64; 22] = [
    0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.975, 0.98, 0.99, 0.995, 0.9975,
    0.999, 0.9995, 0.9999, 1.0,
];

/// What happened to the calls.
pub(crate) struct Tally {
    /// Nanoseconds.
    latencies: Histogram<u64>,
    /// How many of them came after the window: a sign that the rate was too high.
    late: u64,
    errors: BTreeMap<Fault, u64>,
}

impl Tally {
    pub(crate) fn new() -> Result<Self, hdrhistogram::CreationError> {
        let max = u64::try_from(LATENCY_MAX.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self { latencies: Histogram::new_with_bounds(1_000, max, 3)?, late: 0, errors: BTreeMap::new() })
    }

    pub(crate) fn answered(&mut self, latency: Duration, late: bool) {
        self.late += u64::from(late);
        self.latencies.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn failed(&mut self, fault: Fault) {
        *self.errors.entry(fault).or_default() += 1;
    }

    /// The result as JSON; `rate` is the one asked for.
    pub(crate) fn result(&self, duration: Duration, rate: u32) -> Value {
        let requests = self.latencies.len();
        let microseconds = |quantile| nanoseconds_to_us(self.latencies.value_at_quantile(quantile));
        let errors: BTreeMap<_, _> = self.errors.iter().map(|(fault, count)| (fault.name(), count)).collect();
        json!({
            "mode": if rate == 0 { "closed" } else { "open" },
            "rate_asked_per_s": rate,
            "duration_s": duration.as_secs_f64(),
            "requests": requests,
            "requests_late": self.late,
            "requests_per_s": round(to_f64(requests - self.late) / duration.as_secs_f64()),
            "errors": self.errors.values().sum::<u64>(),
            "errors_by_kind": errors,
            "mean_us": round(self.latencies.mean() / 1_000.0),
            "p50_us": microseconds(0.5),
            "p90_us": microseconds(0.9),
            "p99_us": microseconds(0.99),
            "p99_9_us": microseconds(0.999),
            "max_us": nanoseconds_to_us(self.latencies.max()),
            "distribution": QUANTILES.map(|quantile| [quantile, microseconds(quantile)]),
        })
    }
}

impl Fault {
    /// Whether a whole reply said so.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Status(_) | Self::JsonRpcError)
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Self::Connect => "connect".into(),
            Self::Handshake => "handshake".into(),
            Self::Closed => "closed".into(),
            Self::Status(status) => format!("status_{status}"),
            Self::Malformed => "malformed".into(),
            Self::WrongId => "wrong_id".into(),
            Self::JsonRpcError => "json_rpc_error".into(),
            Self::Unanswered => "unanswered".into(),
        }
    }
}

fn nanoseconds_to_us(nanoseconds: u64) -> f64 {
    round(to_f64(nanoseconds) / 1_000.0)
}

/// To one decimal.
fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_counts_answers_and_errors_apart() {
        let mut tally = Tally::new().unwrap();
        for milliseconds in 1..=100 {
            tally.answered(Duration::from_millis(milliseconds), milliseconds > 90);
        }
        tally.failed(Fault::Status("503".into()));
        tally.failed(Fault::WrongId);
        tally.failed(Fault::WrongId);
        let result = tally.result(Duration::from_secs(2), 0);
        assert_eq!(
            (&result["requests"], &result["requests_late"], &result["errors"]),
            (&json!(100), &json!(10), &json!(3))
        );
        assert_eq!(result["errors_by_kind"], json!({"status_503": 1, "wrong_id": 2}));
        assert_eq!(result["requests_per_s"], json!(45.0));
        let p50_us = result["p50_us"].as_f64().unwrap();
        assert!((49_900.0..50_200.0).contains(&p50_us), "{p50_us}");
    }
}
