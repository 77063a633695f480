//! A least rate: how long somebody may go on who is slower than so many bytes a second. No clock: callers say what time it
//! is.
//!
//! Whoever is slower uses up a grace period, and whoever is faster earns it back, up to the whole of it: nobody saves for
//! later. So it is the rate of the last seconds that counts, and not that of a long transfer.

use std::time::{Duration, Instant};

use config::LimitsConfig;

/// What is asked of whoever is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateBound {
    bytes_per_s: usize,
    grace_period: Duration,
}

/// How long somebody may go on who is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeastRate {
    bound: RateBound,
    deadline: Instant,
}

impl RateBound {
    /// Of clients that send a body.
    pub(crate) fn of_bodies(limits: &LimitsConfig) -> Self {
        Self { bytes_per_s: limits.body_rate_min, grace_period: limits.rate_grace_period }
    }

    /// Of clients that read a reply.
    pub(crate) fn of_replies(limits: &LimitsConfig) -> Self {
        Self { bytes_per_s: limits.reply_rate_min, grace_period: limits.rate_grace_period }
    }

    /// From now on bytes are waited for. `None`: any rate will do.
    pub(crate) fn start(self, now: Instant) -> Option<LeastRate> {
        (self.bytes_per_s > 0).then(|| LeastRate { bound: self, deadline: now + self.grace_period })
    }
}

impl LeastRate {
    /// So many bytes came or went.
    pub(crate) fn progress(&mut self, bytes: usize, now: Instant) {
        if bytes > 0 {
            let RateBound { bytes_per_s, grace_period } = self.bound;
            // As many as make up for the whole grace period make up for everything.
            let earned_ns = bytes as u128 * 1_000_000_000 / bytes_per_s.max(1) as u128;
            let earned = u64::try_from(earned_ns).map_or(grace_period, Duration::from_nanos);
            self.deadline = (self.deadline + earned.min(grace_period)).min(now + grace_period);
        }
    }

    /// When it is too late, unless there is progress before.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: RateBound = RateBound { bytes_per_s: 1000, grace_period: Duration::from_secs(10) };

    /// After how many seconds it is too late for somebody who moves so many bytes each second; `None`: not within an hour.
    fn too_late_after(bytes_per_s: usize) -> Option<u64> {
        let start = crate::clock::now();
        let mut rate = BOUND.start(start).expect("a rate");
        (1..3600).find(|second| {
            let now = start + Duration::from_secs(*second);
            let is_late = rate.deadline() <= now;
            rate.progress(bytes_per_s, now);
            is_late
        })
    }

    #[test]
    fn who_is_slower_than_the_rate_runs_out_of_time() {
        for (bytes_per_s, expected) in
            [(0, Some(10)), (1, Some(11)), (500, Some(19)), (900, Some(91)), (1000, None), (5000, None)]
        {
            assert_eq!(too_late_after(bytes_per_s), expected, "{bytes_per_s} bytes/s");
        }
    }

    #[test]
    fn nobody_saves_for_later() {
        let start = crate::clock::now();
        let mut rate = BOUND.start(start).expect("a rate");
        let later = start + Duration::from_secs(5);
        rate.progress(usize::MAX, later);
        assert_eq!(rate.deadline(), later + BOUND.grace_period);
        assert_eq!(RateBound { bytes_per_s: 0, ..BOUND }.start(start), None);
    }
}
