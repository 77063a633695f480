//! Metrics of what replicas share.

use prometheus::{Histogram, HistogramOpts, IntCounter, IntGauge, Opts};

use super::registry::Registry;
use super::vec::IntCounterVec;

/// Upper bounds of the latency buckets, in seconds.
const BUCKETS_S: [f64; 10] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0];

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// There is no connection.
    #[error("there is no connection")]
    Away,
    /// It took too long.
    #[error("the server did not answer in time")]
    TimedOut,
    /// The server refused, or answered something else.
    #[error("the server refused")]
    Refused,
}

impl Unavailable {
    /// The word for metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Away => "away",
            Self::TimedOut => "timeout",
            Self::Refused => "refused",
        }
    }
}

/// What is counted about what replicas share.
#[derive(Clone, Debug)]
pub struct Series {
    /// Whether there is a connection: 0 or 1.
    pub connected: IntGauge,
    /// Replicas that share, with this one.
    pub replicas: IntGauge,
    /// Those whose session ids cannot be opened here.
    pub strangers: IntGauge,
    /// How long operations took that succeeded.
    pub duration: Histogram,
    /// What was dropped instead of being said to the others.
    pub lost: IntCounter,
    failures: [IntCounter; 3],
}

impl Series {
    /// Registers them. Fails only if there is one of the same name.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauge = |name, help| {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone())).map(|()| gauge)
        };
        let opts = Opts::new(
            "trunkline_shared_failures_total",
            "Operations on what replicas share that failed, by reason: away, without a connection; timeout; refused.",
        );
        let failures = IntCounterVec::new(opts, &["reason"])?;
        registry.register(Box::new(failures.clone()))?;
        let opts = HistogramOpts::new(
            "trunkline_shared_operation_duration_seconds",
            "Time of operations on what replicas share that succeeded.",
        );
        let duration = Histogram::with_opts(opts.buckets(BUCKETS_S.to_vec()))?;
        registry.register(Box::new(duration.clone()))?;
        let lost = IntCounter::new(
            "trunkline_shared_lost_total",
            "Changes that could not be told to the other replicas.",
        )?;
        registry.register(Box::new(lost.clone()))?;
        Ok(Self {
            connected: gauge(
                "trunkline_shared_connected",
                "Whether there is a connection to what replicas share.",
            )?,
            replicas: gauge("trunkline_shared_replicas", "Replicas that share, with this one.")?,
            strangers: gauge(
                "trunkline_shared_strangers",
                "Replicas that seal session ids with a key that this one does not have.",
            )?,
            duration,
            lost,
            failures: [Unavailable::Away, Unavailable::TimedOut, Unavailable::Refused]
                .map(|why| failures.with_label_values(&[why.label()])),
        })
    }

    /// Counts an operation that failed.
    pub fn failed(&self, why: Unavailable) {
        self.failures[why as usize].inc();
    }
}
