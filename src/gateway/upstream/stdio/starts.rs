//! When a child process may be started: at once as a rule, with growing pauses while it ends before it answers anything.
//!
//! Pure. What it does after its first answer is no reason to keep it from others.

use std::time::{Duration, Instant};

/// After so many vain starts in a row it is said that the server does not start.
const LOOP_STARTS: u32 = 3;
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
pub(super) struct Starts {
    vain: u32,
    /// When the last one was found to be vain.
    failed: Option<Instant>,
    not_before: Option<Instant>,
}

impl Starts {
    /// How long it is until the next start, unless that may be now.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.not_before.and_then(|at| at.checked_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// A child that was started at `since` ended before it answered anything. `random` is from 0 to 1. Returns the
    /// pause, and whether this makes it a loop. Several that ran at once are one vain start.
    pub(super) fn fail(&mut self, since: Instant, now: Instant, random: f64) -> (Duration, bool) {
        if self.failed.is_some_and(|failed| since < failed) {
            return (self.wait(now).unwrap_or_default(), false);
        }
        self.failed = Some(now);
        self.vain = self.vain.saturating_add(1);
        let doublings = (self.vain - 1).min(16);
        let pause = (PAUSE_MIN * (1 << doublings)).min(PAUSE_MAX).mul_f64(0.8 + 0.4 * random);
        self.not_before = Some(now + pause);
        (pause, self.vain == LOOP_STARTS)
    }

    /// A child answered. True if that ends a loop.
    pub(super) fn succeed(&mut self) -> bool {
        let was_loop = self.vain >= LOOP_STARTS;
        *self = Self::default();
        was_loop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_end_with_an_answer() {
        let now = crate::clock::now();
        let mut starts = Starts::default();
        assert_eq!(starts.wait(now), None);
        for (number, expected_ms) in
            [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000].iter().enumerate()
        {
            let (pause, is_loop) = starts.fail(now, now, 0.5);
            assert_eq!((pause, is_loop), (Duration::from_millis(*expected_ms), number == 2));
            assert_eq!(starts.wait(now), Some(pause));
            assert_eq!(starts.wait(now + pause), None);
        }
        assert!(starts.succeed() && !starts.succeed());
        assert_eq!(starts.wait(now), None);
        let (least, _) = starts.fail(now, now, 0.0);
        let (most, _) = Starts::default().fail(now, now, 1.0);
        assert_eq!((least, most), (PAUSE_MIN.mul_f64(0.8), PAUSE_MIN.mul_f64(1.2)));
        assert!(!starts.succeed(), "one vain start is no loop");
    }

    #[test]
    fn many_that_end_together_are_one_vain_start() {
        let started = crate::clock::now();
        let mut starts = Starts::default();
        let ended = started + Duration::from_millis(5);
        for number in 0..50 {
            let (pause, is_loop) = starts.fail(started, ended, 0.5);
            assert_eq!((pause, is_loop), (PAUSE_MIN, false), "{number}");
        }
        assert_eq!(starts.fail(ended + pause_of(&starts, ended), ended + PAUSE_MAX, 0.5).0, PAUSE_MIN * 2);
    }

    fn pause_of(starts: &Starts, now: Instant) -> Duration {
        starts.wait(now).expect("a pause")
    }
}
