//! Counts of the last minute: what was seen when in, what was seen a minute ago out. No clock, no metrics, no I/O.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use status::Seen;

const MINUTE: Duration = Duration::from_mins(1);

/// Counts at moments, oldest first: one that is a minute old, and those after it.
#[derive(Debug, Default)]
pub(super) struct LastMinute(VecDeque<(Instant, Arc<Seen>)>);

impl LastMinute {
    /// Takes in the counts of a moment.
    pub(super) fn add(&mut self, at: Instant, seen: Seen) {
        self.0.push_back((at, Arc::new(seen)));
        while self.0.get(1).is_some_and(|(next, _)| at >= *next + MINUTE) {
            self.0.pop_front();
        }
    }

    /// The counts of a minute ago; of the first moment, if that is not as long ago. `None`: there was none yet.
    pub(super) fn before(&self, now: Instant) -> Option<Arc<Seen>> {
        let old = self.0.iter().rev().find(|(at, _)| now >= *at + MINUTE);
        old.or_else(|| self.0.front()).map(|(_, seen)| Arc::clone(seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn counts_are_a_minute_old_as_soon_as_there_are_any() {
        let (mut minute, start) = (LastMinute::default(), clock::now());
        assert_eq!(minute.before(start), None);
        let at = |seconds| start + Duration::from_secs(seconds);
        for number in 0..100 {
            let seen = Seen { connections_refused: number, ..Seen::default() };
            minute.add(at(number * 5), seen);
            let before = minute.before(at(number * 5)).map(|seen| seen.connections_refused);
            assert_eq!(before, Some(number.saturating_sub(12)));
        }
        assert_eq!(minute.0.len(), 13);
        assert_eq!(minute.before(at(10_000)).map(|seen| seen.connections_refused), Some(99));
    }
}
