//! What is kept of each who is counted.

use std::sync::Arc;

use super::gcra::{Gcra, Remaining, RetryAfter};
use crate::redis::lease::RateLease;

/// What is kept of one key of one limit.
#[derive(Debug)]
pub(crate) enum Cell {
    /// Counted in this process alone: when all that was taken is paid off.
    Local {
        /// In nanoseconds of the limiter's clock.
        paid_ns: u64,
    },
    /// Counted for all replicas.
    Shared {
        /// It knows as well what is counted here alone while the shared count cannot be had. This part begins with what is known
        /// of the shared count: a part of the limit recovers as slowly as the whole, and is as far used up.
        lease: Arc<RateLease>,
    },
}

impl Cell {
    pub(crate) fn new() -> Self {
        Self::Local { paid_ns: 0 }
    }

    /// What this replica may give out; `make` says where it comes from.
    pub(crate) fn lease(&mut self, make: impl FnOnce() -> RateLease) -> Arc<RateLease> {
        match self {
            Self::Shared { lease } => Arc::clone(lease),
            Self::Local { paid_ns } => {
                let lease = Arc::new(make());
                lease.with_paid(|known_ns| *known_ns = *paid_ns);
                *self = Self::Shared { lease: Arc::clone(&lease) };
                lease
            }
        }
    }

    /// Takes `weight` calls of those that are counted here, if that many may be.
    pub(crate) fn take(&mut self, gcra: Gcra, weight: u32, now_ns: u64) -> Result<Remaining, RetryAfter> {
        let take = |paid_ns: &mut u64| {
            let (paid, remaining) = gcra.take(*paid_ns, weight, now_ns)?;
            *paid_ns = paid;
            Ok(remaining)
        };
        match self {
            Self::Local { paid_ns } => take(paid_ns),
            Self::Shared { lease } => lease.with_paid(take),
        }
    }

    /// Undoes a [`take`](Self::take).
    pub(crate) fn give_back(&mut self, gcra: Gcra, weight: u32) {
        let give_back = |paid_ns: &mut u64| *paid_ns = gcra.give_back(*paid_ns, weight);
        match self {
            Self::Local { paid_ns } => give_back(paid_ns),
            Self::Shared { lease } => lease.with_paid(give_back),
        }
    }

    /// Whether a new one would do as well, and has for `linger_ns`.
    pub(crate) fn is_forgettable(&self, now_ns: u64, linger_ns: u64) -> bool {
        match self {
            Self::Local { paid_ns } => paid_ns.saturating_add(linger_ns) <= now_ns,
            Self::Shared { lease } => {
                // Who has just found it here is about to take of it.
                let is_held = Arc::strong_count(lease) > 1;
                !is_held
                    && lease.paid_ns().saturating_add(linger_ns) <= now_ns
                    && lease.is_forgettable(now_ns, linger_ns)
            }
        }
    }
}

impl Default for Cell {
    fn default() -> Self {
        Self::new()
    }
}
