//! For how long somebody has held places lately: what was longer ago counts less.
//!
//! Pure: whoever asks says what time it is.

use std::time::{Duration, Instant};

/// Each second, one part in so many is forgotten. Who always holds one place comes to eight seconds.
const FORGOTTEN_PART: u64 = 8;
/// So much is little, whatever others have used.
const LITTLE_NS: u64 = 100_000_000;
/// So much is nothing.
const NOTHING_NS: u64 = 1_000_000;
/// After so many seconds everything is forgotten.
const AGES_MAX: u64 = 240;

/// Of one payer.
#[derive(Clone, Copy, Debug)]
pub(super) struct UseTime {
    /// Places that it holds now.
    pub held: usize,
    /// Place-nanoseconds until `settled`.
    used_ns: u64,
    settled: Instant,
}

/// Of all payers together.
#[derive(Clone, Copy, Debug)]
pub(super) struct TotalUse {
    used_ns: u64,
    aged: Instant,
}

impl UseTime {
    pub(super) fn new(now: Instant) -> Self {
        Self { held: 0, used_ns: 0, settled: now }
    }

    /// Counts what was held until now, in the total too.
    pub(super) fn settle(&mut self, total: &mut TotalUse, now: Instant) {
        let added = self.count_until(now);
        total.used_ns = total.used_ns.saturating_add(added);
    }

    fn count_until(&mut self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.settled);
        let added = nanoseconds(since).saturating_mul(self.held as u64);
        self.used_ns = self.used_ns.saturating_add(added);
        self.settled = self.settled.max(now);
        added
    }

    /// Whether it is little, or less than one in `parts` of what all have used.
    pub(super) fn is_less_than(&self, total: &TotalUse, parts: usize) -> bool {
        self.used_ns < LITTLE_NS || self.used_ns.saturating_mul(parts as u64) < total.used_ns
    }

    /// The same number for all whose difference is little.
    pub(super) fn roughly(&self) -> u64 {
        self.used_ns / LITTLE_NS
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.held == 0 && self.used_ns < NOTHING_NS
    }

    /// Forgets a part of it, for each of so many seconds.
    fn age(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.used_ns -= self.used_ns.div_ceil(FORGOTTEN_PART);
        }
    }
}

impl TotalUse {
    pub(super) fn new(now: Instant) -> Self {
        Self { used_ns: 0, aged: now }
    }

    /// Whole seconds since the last time that this was not zero.
    pub(super) fn seconds_passed(&mut self, now: Instant) -> u64 {
        let seconds = now.saturating_duration_since(self.aged).as_secs();
        self.aged += Duration::from_secs(seconds);
        seconds.min(AGES_MAX)
    }

    /// Begins anew with what each payer has used, of which so many seconds are to be forgotten.
    pub(super) fn age<'a>(
        &mut self,
        each: impl Iterator<Item = &'a mut UseTime>,
        seconds: u64,
        now: Instant,
    ) {
        self.used_ns = 0;
        for used in each {
            used.count_until(now);
            used.age(seconds);
            self.used_ns = self.used_ns.saturating_add(used.used_ns);
        }
    }

    /// One payer is forgotten.
    pub(super) fn forget(&mut self, used: &UseTime) {
        self.used_ns = self.used_ns.saturating_sub(used.used_ns);
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_little_for_a_short_time_is_light() {
        let start = crate::clock::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut total = TotalUse::new(start);
        let mut each = [UseTime { held: 4, ..UseTime::new(start) }; 2];
        each[1].held = 1;
        let is_light = |each: &[UseTime; 2], total: &TotalUse| each.map(|used| used.is_less_than(total, 4));
        for used in &mut each {
            used.settle(&mut total, after(20));
        }
        assert_eq!(
            (is_light(&each, &total), total.used_ns),
            ([true, true], 100_000_000),
            "all of it is little"
        );
        for used in &mut each {
            used.settle(&mut total, after(800));
        }
        // A fifth of all is less than a quarter.
        assert_eq!((is_light(&each, &total), total.used_ns), ([false, true], 4_000_000_000));
        // Alone, it would be all there is.
        assert!(!each[1].is_less_than(&TotalUse { used_ns: 800_000_000, ..total }, 2));
        assert_eq!(total.seconds_passed(after(999)), 0);
        assert_eq!((total.seconds_passed(after(2500)), total.seconds_passed(after(2999))), (2, 0));
        for used in &mut each {
            used.held = 0;
        }
        total.age(each.iter_mut(), 2, after(2500));
        let left = |used_ns: u64| (used_ns * 7 / 8) * 7 / 8;
        assert_eq!(each.map(|used| used.used_ns), [left(3_200_000_000), left(800_000_000)]);
        assert_eq!(total.used_ns, left(3_200_000_000) + left(800_000_000));
        total.forget(&each[0]);
        assert_eq!(total.used_ns, each[1].used_ns);
    }

    #[test]
    fn everything_is_forgotten_in_the_end_and_what_is_held_is_not() {
        let start = crate::clock::now();
        let mut total = TotalUse::new(start);
        let mut used = UseTime { held: 1 << 20, ..UseTime::new(start) };
        let day = start + Duration::from_hours(24);
        let seconds = total.seconds_passed(day);
        assert_eq!(seconds, AGES_MAX);
        total.age(std::iter::once(&mut used), seconds, day);
        assert!(!used.is_nothing(), "{used:?}");
        used.held = 0;
        total.age(std::iter::once(&mut used), AGES_MAX, day);
        assert!(used.is_nothing(), "{used:?}");
        // A clock that went back adds nothing.
        used.held = 1;
        used.settle(&mut total, start);
        assert_eq!(used.settled, day);
    }
}
