//! The number of processes that ended within the last hour. Pure: by the minute, so that it takes little room however many end.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_hours(1);
const MINUTE: Duration = Duration::from_mins(1);

/// Ends within the last hour: the moment of the first in each minute, and how many there were in it.
#[derive(Debug, Default)]
pub(super) struct RecentEnds(VecDeque<(Instant, u64)>);

impl RecentEnds {
    /// One ended.
    pub(super) fn add(&mut self, now: Instant) {
        self.forget(now);
        match self.0.back_mut().filter(|(first, _)| now.saturating_duration_since(*first) < MINUTE) {
            Some((_, ends)) => *ends = ends.saturating_add(1),
            None => self.0.push_back((now, 1)),
        }
    }

    /// The number of those within the last hour, give or take a minute.
    pub(super) fn count(&mut self, now: Instant) -> u64 {
        self.forget(now);
        self.0.iter().fold(0, |sum: u64, (_, ends)| sum.saturating_add(*ends))
    }

    fn forget(&mut self, now: Instant) {
        while self.0.front().is_some_and(|(first, _)| now.saturating_duration_since(*first) >= HOUR) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_the_last_hour_are_counted_in_little_room() {
        let start = crate::clock::now();
        let mut ends = RecentEnds::default();
        assert_eq!(ends.count(start), 0);
        // One a second, for two hours.
        for second in 0..7200 {
            ends.add(start + Duration::from_secs(second));
        }
        let last = start + Duration::from_secs(7199);
        assert!((3540..=3600).contains(&ends.count(last)), "{}", ends.count(last));
        assert!(ends.0.len() <= 61, "{}", ends.0.len());
        let later = last + HOUR / 2;
        assert!((1740..=1800).contains(&ends.count(later)), "{}", ends.count(later));
        assert_eq!(ends.count(last + HOUR), 0);
        ends.add(last + HOUR);
        assert_eq!(ends.count(last + HOUR), 1);
    }
}
