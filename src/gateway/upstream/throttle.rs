//! How often something may happen: once in an interval, or a few lines of the log in a second.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Lines in a second.
const LINES_MAX: u32 = 20;

/// Lets something happen once in an interval.
#[derive(Debug)]
pub(crate) struct Throttle {
    interval: Duration,
    last: Mutex<Option<Instant>>,
}

/// One kind of lines of the log: a few a second, and how many were left out.
#[derive(Debug, Default)]
pub(crate) struct LogPace {
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl Throttle {
    pub(crate) fn new(interval: Duration) -> Self {
        Self { interval, last: Mutex::new(None) }
    }

    /// True if it may happen at `now`; then the interval begins again.
    pub(crate) fn admits(&self, now: Instant) -> bool {
        let mut last = self.last.lock();
        let admits = last.is_none_or(|last| now.saturating_duration_since(last) >= self.interval);
        if admits {
            *last = Some(now);
        }
        admits
    }
}

impl LogPace {
    /// Asks for one line; how many were left out since the last one. `None`: this one is, too.
    pub(crate) fn next(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now.duration_since(since) >= Duration::from_secs(1)) {
            self.since = Some(now);
            self.lines = 0;
        }
        if self.lines >= LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttle_admits_once_in_its_interval() {
        let throttle = Throttle::new(Duration::from_secs(10));
        let start = crate::clock::now();
        for (after_s, admits) in [(0, true), (1, false), (9, false), (10, true), (11, false), (30, true)] {
            assert_eq!(throttle.admits(start + Duration::from_secs(after_s)), admits, "{after_s}");
        }
    }

    #[test]
    fn lets_a_few_lines_through_in_a_second() {
        let (mut pace, now) = (LogPace::default(), crate::clock::now());
        for _ in 0..LINES_MAX {
            assert_eq!(pace.next(now), Some(0));
        }
        assert_eq!(pace.next(now), None);
        assert_eq!(pace.next(now + Duration::from_millis(999)), None);
        assert_eq!(pace.next(now + Duration::from_secs(1)), Some(2));
        assert_eq!(pace.next(now + Duration::from_secs(1)), Some(0));
    }
}
