//! A least rate: how long somebody may go on who is slower than so many bytes a second. No clock: callers say what time it
//! is.
//!
//! Whoever is slower uses up a grace period, and whoever is faster earns it back, up to the whole of it: nobody saves for
//! later. So it is the rate of the last seconds that counts, and not that of a long transfer.
//!
//! Of a reader one sees only that a socket or a window takes more, in steps as large as those are. What was handed over last,
//! up to [`IN_FLIGHT_BYTES_MAX`], may still be on its way: so much longer it has time.

use std::time::{Duration, Instant};

use config::LimitsConfig;

/// As much may be in buffers and windows between here and a reader: what Linux gives a socket at most, by default.
const IN_FLIGHT_BYTES_MAX: usize = 4 << 20;

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
    /// The most that there is to use up.
    patience_max: Duration,
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

    /// From now on somebody is waited for to whom so many bytes were handed before. `None`: any rate will do.
    pub(crate) fn start(self, in_flight_bytes: usize, now: Instant) -> Option<LeastRate> {
        if self.bytes_per_s == 0 {
            return None;
        }
        let in_flight = self.time_of(in_flight_bytes.min(IN_FLIGHT_BYTES_MAX));
        let patience = self.grace_period + in_flight;
        Some(LeastRate { bound: self, patience_max: patience, deadline: now + patience })
    }

    /// How long so many bytes may take.
    fn time_of(self, bytes: usize) -> Duration {
        let ns = bytes as u128 * 1_000_000_000 / self.bytes_per_s.max(1) as u128;
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

impl LeastRate {
    /// So many bytes came.
    pub(crate) fn receive(&mut self, bytes: usize, now: Instant) {
        self.deadline =
            (self.deadline + self.bound.time_of(bytes).min(self.patience_max)).min(now + self.patience_max);
    }

    /// So many bytes were handed over: they are on their way, too.
    pub(crate) fn hand_over(&mut self, bytes: usize, now: Instant) {
        let bound = self.bound;
        let most = bound.grace_period + bound.time_of(IN_FLIGHT_BYTES_MAX);
        self.patience_max = (self.patience_max + bound.time_of(bytes).min(most)).min(most);
        self.receive(bytes, now);
    }

    /// When it is too late, unless there is progress before.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// A reader, which is waited for from time to time.
#[derive(Debug, Default)]
pub(crate) struct ReaderRate {
    /// While it is waited for, and how much it had been handed when that was last looked at.
    waiting: Option<(LeastRate, usize)>,
}

impl ReaderRate {
    /// It has everything there was.
    pub(crate) fn rest(&mut self) {
        self.waiting = None;
    }

    /// When it is too late for a reader that is waited for, and was handed so many bytes in all. `None`: any rate will do.
    pub(crate) fn deadline(
        &mut self,
        bound: RateBound,
        handed_bytes: usize,
        now: Instant,
    ) -> Option<Instant> {
        let (rate, before) = match &mut self.waiting {
            Some(waiting) => waiting,
            waiting @ None => waiting.insert((bound.start(handed_bytes, now)?, handed_bytes)),
        };
        rate.hand_over(handed_bytes - *before, now);
        *before = handed_bytes;
        Some(rate.deadline())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: RateBound = RateBound { bytes_per_s: 1000, grace_period: Duration::from_secs(10) };

    /// After how many seconds it is too late for somebody who moves so many bytes each second; `None`: not within an hour.
    fn too_late_after(bytes_per_s: usize) -> Option<u64> {
        let start = crate::clock::now();
        let mut rate = BOUND.start(0, start).expect("a rate");
        (1..3600).find(|second| {
            let now = start + Duration::from_secs(*second);
            let is_late = rate.deadline() <= now;
            rate.receive(bytes_per_s, now);
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
        let mut rate = BOUND.start(0, start).expect("a rate");
        let later = start + Duration::from_secs(5);
        rate.receive(usize::MAX, later);
        assert_eq!(rate.deadline(), later + BOUND.grace_period);
        assert_eq!(RateBound { bytes_per_s: 0, ..BOUND }.start(0, start), None);
    }

    #[test]
    fn what_is_on_its_way_to_a_reader_counts_as_unread() {
        let start = crate::clock::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        // It took 100,000 bytes at once, which take it 100 seconds.
        let mut rate = BOUND.start(100_000, start).expect("a rate");
        assert_eq!(rate.deadline(), after(110));
        // The next room for it is seen when a third of that is gone.
        rate.hand_over(33_000, after(33));
        assert_eq!(rate.deadline(), after(143));
        rate.hand_over(0, after(100));
        assert_eq!(rate.deadline(), after(143), "it has not moved");
        // However much it took, no more than that can be on its way.
        let rate = BOUND.start(usize::MAX, start).expect("a rate");
        assert_eq!(rate.deadline(), after(10) + Duration::from_millis(4_194_304));
    }
}
