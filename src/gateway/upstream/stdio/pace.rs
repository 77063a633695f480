//! How often something is said: a few times a second, and how much was left out.

use std::time::{Duration, Instant};

/// Lines in a second.
const LINES_MAX: u32 = 20;

/// One kind of lines.
#[derive(Debug, Default)]
pub(super) struct LogPace {
    since: Option<Instant>,
    said: u32,
    left_out: u64,
}

/// Whether a line is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Say {
    Line {
        /// How many lines were left out since the last one.
        left_out: u64,
    },
    /// The line is left out.
    Nothing,
}

impl LogPace {
    /// Asks for one line.
    pub(super) fn next(&mut self, now: Instant) -> Say {
        let is_new = self.since.is_none_or(|since| now.duration_since(since) >= Duration::from_secs(1));
        if is_new {
            self.since = Some(now);
            self.said = 0;
        }
        if self.said >= LINES_MAX {
            self.left_out += 1;
            return Say::Nothing;
        }
        self.said += 1;
        Say::Line { left_out: std::mem::take(&mut self.left_out) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_a_few_lines_a_second() {
        let (mut pace, now) = (LogPace::default(), Instant::now());
        for _ in 0..LINES_MAX {
            assert_eq!(pace.next(now), Say::Line { left_out: 0 });
        }
        assert_eq!(pace.next(now), Say::Nothing);
        assert_eq!(pace.next(now + Duration::from_millis(999)), Say::Nothing);
        assert_eq!(pace.next(now + Duration::from_secs(1)), Say::Line { left_out: 2 });
        assert_eq!(pace.next(now + Duration::from_secs(1)), Say::Line { left_out: 0 });
    }
}
