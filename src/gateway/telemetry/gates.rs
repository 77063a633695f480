//! Metrics of the calls that upstreams with a bound have at once.

use prometheus::{Histogram, HistogramOpts, IntCounter, IntGauge, Opts};

use super::registry::Registry;
use super::vec::{HistogramVec, IntCounterVec, IntGaugeVec};

/// Upper bounds of the buckets of waiting, in seconds.
const BUCKETS_S: [f64; 10] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0];

/// What is counted about calls at once.
#[derive(Clone, Debug)]
pub struct Gates {
    in_use: IntGaugeVec,
    waiting: IntGaugeVec,
    refused: IntCounterVec,
    waited: HistogramVec,
}

/// What is counted about the calls of one upstream.
#[derive(Clone, Debug)]
pub struct GateSeries {
    /// Those under way; set when scraped.
    pub in_use: IntGauge,
    /// Those that wait; set when scraped.
    pub waiting: IntGauge,
    /// Those that were refused.
    pub refused: IntCounter,
    /// How long those waited that had to.
    pub waited: Histogram,
}

impl Gates {
    /// Registers them. Fails only if there is one of the same name.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauges = |name, help| {
            let vec = IntGaugeVec::new(Opts::new(name, help), &["upstream"])?;
            registry.register(Box::new(vec.clone())).map(|()| vec)
        };
        let refused = Opts::new(
            "trunkline_upstream_calls_refused_total",
            "Calls refused because their upstream had as many as it may, and as many waited or the wait was too long.",
        );
        let refused = IntCounterVec::new(refused, &["upstream"])?;
        registry.register(Box::new(refused.clone()))?;
        let waited = HistogramOpts::new(
            "trunkline_upstream_calls_waited_seconds",
            "Time that calls waited for another one to end, of those that had to.",
        );
        let waited = HistogramVec::new(waited.buckets(BUCKETS_S.to_vec()), &["upstream"])?;
        registry.register(Box::new(waited.clone()))?;
        Ok(Self {
            in_use: gauges("trunkline_upstream_calls", "Calls under way at upstreams with calls_max.")?,
            waiting: gauges("trunkline_upstream_calls_waiting", "Calls that wait for another one to end.")?,
            refused,
            waited,
        })
    }

    /// The series of the upstream `name`.
    pub fn of(&self, name: &str) -> GateSeries {
        GateSeries {
            in_use: self.in_use.with_label_values(&[name]),
            waiting: self.waiting.with_label_values(&[name]),
            refused: self.refused.with_label_values(&[name]),
            waited: self.waited.with_label_values(&[name]),
        }
    }

    /// The upstream of this name is no more.
    pub fn forget(&self, name: &str) {
        for gauge in [&self.in_use, &self.waiting] {
            // One that was never set is none.
            let _ = gauge.remove_label_values(&[name]);
        }
    }
}

#[cfg(test)]
impl GateSeries {
    /// Series that nobody reads.
    pub(crate) fn unread() -> Self {
        Gates::new(&Registry::new()).unwrap().of("u")
    }
}
