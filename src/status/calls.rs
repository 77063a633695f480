//! How many calls, how they ended, and how long they took.

use std::collections::BTreeMap;

objects! {
    /// What was counted since the start, and lately. Latencies are estimated within the bucket that they were counted in, as Prometheus does.
    struct Figures {
        /// How many; unknown where nothing is measured.
        calls: Option<u64>,
        errors: Option<u64>,
        seconds: f64,
        p50_s: Option<f64>,
        p90_s: Option<f64>,
        p99_s: Option<f64>,
        reasons: BTreeMap<String, u64>,
        recent: Recent,
    }

    /// Calls that did not succeed, and are alike.
    struct FailedCalls {
        /// When the latest of them ended, in seconds since 1970.
        at_s: u64,
        /// When the first of them ended.
        first_s: u64,
        /// How many.
        calls: u64,
        endpoint: Option<String>,
        upstream: Option<String>,
        method: String,
        /// The tool or whatever else was called, without a URI's query.
        name: Option<String>,
        /// `refused`, `failed` or `cancelled`.
        outcome: String,
        /// The `error_type`.
        reason: String,
        /// What the latest of them failed by: what the server did, where it is its fault. For operators.
        message: Option<String>,
        /// Who called; null: it is not known.
        principal: Option<String>,
        /// By which the latest of them is found in the logs.
        request_id: String,
    }

    /// The interval between the two latest samples; unknown before the first.
    struct Recent {
        calls_per_s: Option<f64>,
        errors_per_s: Option<f64>,
        p50_s: Option<f64>,
        p99_s: Option<f64>,
    }
}

impl Figures {
    /// Whether nothing is measured: then it is not written.
    pub fn is_unmeasured(&self) -> bool {
        self.calls.is_none()
    }

    /// The share of calls that failed.
    pub fn error_share(&self) -> Option<f64> {
        share(self.errors?, self.calls?)
    }
}

/// `part` of `all`, if there is any.
pub(crate) fn share(part: u64, all: u64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    (all > 0).then(|| part as f64 / all as f64)
}
