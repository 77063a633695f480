//! The arithmetic of a limit of rate: the generic cell rate algorithm (ITU-T I.371), one number for each who is counted.
//!
//! The number is the time at which all that was taken is paid off. Nothing needs to run for it to recover, and one that
//! lies in the past means as much as none. No clock: callers say what time it is.

use std::time::Duration;

/// A rate, and how much may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gcra {
    cost_ns: u64,
    /// How far ahead of time what was taken may be paid off: what a whole burst costs.
    tolerance_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remaining {
    /// Calls that may follow at once.
    pub calls: u32,
    /// Time to the end of which everything has recovered.
    pub recovery: Duration,
}

/// The time after which a call of this weight will pass, if nothing else is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryAfter(pub Duration);

impl Gcra {
    /// `calls` in each `period`, of which `burst` may come at once.
    pub(crate) fn new(calls: u32, period: Duration, burst: u32) -> Self {
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let cost_ns = (period_ns / u64::from(calls.max(1))).max(1);
        Self { cost_ns, tolerance_ns: cost_ns.saturating_mul(burst.max(1).into()) }
    }

    /// Takes `weight` calls at `now_ns` from one for whom all is paid off at `paid_ns`. Returns when it is paid off then.
    pub(crate) fn take(self, paid_ns: u64, weight: u32, now_ns: u64) -> Result<(u64, Remaining), RetryAfter> {
        let paid_ns = paid_ns.max(now_ns).saturating_add(self.price_ns(weight));
        let ahead_ns = paid_ns - now_ns;
        if ahead_ns > self.tolerance_ns {
            return Err(RetryAfter(Duration::from_nanos(ahead_ns - self.tolerance_ns)));
        }
        let calls = u32::try_from((self.tolerance_ns - ahead_ns) / self.cost_ns).unwrap_or(u32::MAX);
        Ok((paid_ns, Remaining { calls, recovery: Duration::from_nanos(ahead_ns) }))
    }

    /// Undoes a [`take`](Self::take).
    pub(crate) fn give_back(self, paid_ns: u64, weight: u32) -> u64 {
        paid_ns.saturating_sub(self.price_ns(weight))
    }

    fn price_ns(self, weight: u32) -> u64 {
        self.cost_ns.saturating_mul(weight.into())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use governor::clock::FakeRelativeClock;
    use governor::{Quota, RateLimiter};
    use proptest::prelude::*;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn a_burst_then_the_rate() {
        let gcra = Gcra::new(10, Duration::from_secs(1), 3);
        let mut paid = 0;
        for (now_ms, weight, expected) in [
            (1000, 1, Ok(2)),
            (1000, 2, Ok(0)),
            (1000, 1, Err(100)),
            (1000, 3, Err(300)),
            (1099, 1, Err(1)),
            (1100, 1, Ok(0)),
            (1350, 2, Ok(0)),
            (1350, 1, Err(50)),
            (9000, 3, Ok(0)),
            (99_000, 4, Err(100)),
        ] {
            let taken = gcra.take(paid, weight, now_ms * 1_000_000);
            let found = taken.map(|(_, left)| left.calls).map_err(|RetryAfter(after)| after.as_millis());
            assert_eq!(found, expected, "{weight} at {now_ms} ms");
            paid = taken.map_or(paid, |(paid, _)| paid);
        }
    }

    #[test]
    fn what_is_given_back_was_never_taken() {
        let gcra = Gcra::new(1, Duration::from_mins(1), 5);
        let (first, _) = gcra.take(0, 2, SECOND_NS).unwrap();
        let (second, _) = gcra.take(first, 3, 2 * SECOND_NS).unwrap();
        assert_eq!(gcra.give_back(second, 3), first);
        let (_, left) = gcra.take(gcra.give_back(gcra.give_back(second, 3), 2), 5, 2 * SECOND_NS).unwrap();
        assert_eq!(left.calls, 0);
    }

    #[test]
    fn nothing_overflows() {
        let gcra = Gcra::new(1, Duration::MAX, u32::MAX);
        assert!(gcra.take(u64::MAX, u32::MAX, 0).is_ok());
        assert!(Gcra::new(u32::MAX, Duration::from_nanos(1), 1).take(u64::MAX, 1, 0).is_err());
    }

    proptest! {
        #[test]
        fn governor_agrees(
            calls in 1_u32..1000,
            burst in 1_u32..50,
            steps in prop::collection::vec((0_u64..2_000_000_000, 1_u32..60), 1..100),
        ) {
            let gcra = Gcra::new(calls, Duration::from_secs(1), burst);
            let burst = NonZeroU32::new(burst).unwrap();
            let cost = Duration::from_nanos(SECOND_NS / u64::from(calls));
            let clock = FakeRelativeClock::default();
            let quota = Quota::with_period(cost).unwrap().allow_burst(burst);
            let governor = RateLimiter::direct_with_clock(quota, clock.clone());
            let (mut paid_ns, mut now_ns) = (0, 0);
            for (pause_ns, weight) in steps {
                clock.advance(Duration::from_nanos(pause_ns));
                now_ns += pause_ns;
                let taken = gcra.take(paid_ns, weight, now_ns);
                let passes = matches!(governor.check_n(NonZeroU32::new(weight).unwrap()), Ok(Ok(())));
                prop_assert_eq!(taken.is_ok(), passes);
                match taken {
                    Ok((paid, _)) => paid_ns = paid,
                    Err(RetryAfter(after)) => {
                        let then_ns = now_ns + u64::try_from(after.as_nanos()).unwrap();
                        prop_assert_eq!(gcra.take(paid_ns, weight, then_ns).is_ok(), weight <= burst.get());
                        prop_assert!(gcra.take(paid_ns, weight, then_ns - 1).is_err());
                    }
                }
            }
        }
    }
}
