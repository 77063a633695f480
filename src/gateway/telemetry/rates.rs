//! Metrics of the limits of rate, by the limit's name.

use prometheus::{IntCounter, IntGauge, Opts};

use super::registry::Registry;
use super::vec::{IntCounterVec, IntGaugeVec};

/// What is counted about limits of rate.
#[derive(Clone, Debug)]
pub struct Rates {
    refused: IntCounterVec,
    overflowed: IntCounterVec,
    keys: IntGaugeVec,
}

/// What is counted about one limit.
#[derive(Clone, Debug)]
pub struct LimitSeries {
    /// Requests it refused.
    pub refused: IntCounter,
    /// Requests counted together with those of others, as there was no room to tell them apart.
    pub overflowed: IntCounter,
    /// Who is told apart; set when scraped.
    pub keys: IntGauge,
}

impl Rates {
    /// Registers them. Fails only if there is one of the same name.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counters = |name, help| {
            let vec = IntCounterVec::new(Opts::new(name, help), &["limit"])?;
            registry.register(Box::new(vec.clone())).map(|()| vec)
        };
        let keys =
            Opts::new("trunkline_limiter_keys", "Callers, addresses and the like that a limit tells apart.");
        let keys = IntGaugeVec::new(keys, &["limit"])?;
        registry.register(Box::new(keys.clone()))?;
        Ok(Self {
            refused: counters("trunkline_rate_limited_total", "Requests refused by a limit of rate.")?,
            overflowed: counters(
                "trunkline_limiter_overflow_total",
                "Requests that a limit counted together with those of others, as it told as many apart as it may.",
            )?,
            keys,
        })
    }

    /// The series of the limit `name`.
    pub fn of(&self, name: &str) -> LimitSeries {
        LimitSeries {
            refused: self.refused.with_label_values(&[name]),
            overflowed: self.overflowed.with_label_values(&[name]),
            keys: self.keys.with_label_values(&[name]),
        }
    }
}

#[cfg(test)]
impl LimitSeries {
    /// Series that nobody reads.
    pub(crate) fn unread() -> Self {
        Rates::new(&Registry::new()).unwrap().of("l")
    }
}
