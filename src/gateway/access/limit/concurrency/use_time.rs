//! For how long somebody has held places lately: what was longer ago counts less.
//!
//! Pure: whoever asks says what time it is. What is held counts once it is settled, each second at the latest.

use std::time::{Duration, Instant};

const SECOND_NS: u64 = 1_000_000_000;
/// Each second, one part in so many is forgotten. Who always holds one place comes to seven seconds.
const FORGOTTEN_PART: u64 = 8;
/// Less than this is little, whatever others have used.
const LITTLE_NS: u64 = 100_000_000;
/// Less than this is nothing.
const NOTHING_NS: u64 = 1_000_000;
/// After so many seconds everything is forgotten.
const SECONDS_MAX: u64 = 240;

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
    /// How many have used more than a little: the average is theirs.
    users: usize,
    /// Until when what is to be forgotten is.
    aged: Instant,
}

impl UseTime {
    pub(super) fn new(now: Instant) -> Self {
        Self { held: 0, used_ns: 0, settled: now }
    }

    /// Counts what was held until now, in the total too.
    pub(super) fn settle(&mut self, total: &mut TotalUse, now: Instant) {
        let was_little = self.is_little();
        let before = self.used_ns;
        self.count_until(now);
        total.used_ns = total.used_ns.saturating_add(self.used_ns - before);
        total.users += usize::from(was_little && !self.is_little());
    }

    /// Whether it is little, or less than half of the average.
    pub(super) fn is_light(&self, total: &TotalUse) -> bool {
        self.is_little() || self.used_ns.saturating_mul(2 * total.users as u64) < total.used_ns
    }

    /// Whether it is more than the average, and no little.
    pub(super) fn is_heavy(&self, total: &TotalUse) -> bool {
        !self.is_little() && self.used_ns.saturating_mul(total.users as u64) > total.used_ns
    }

    /// The same number for all whose difference is little.
    pub(super) fn roughly(&self) -> u64 {
        self.used_ns / LITTLE_NS
    }

    pub(super) fn is_little(&self) -> bool {
        self.used_ns < LITTLE_NS
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.held == 0 && self.used_ns < NOTHING_NS
    }

    fn count_until(&mut self, now: Instant) {
        let since = u64::try_from(now.saturating_duration_since(self.settled).as_nanos()).unwrap_or(u64::MAX);
        self.used_ns = self.used_ns.saturating_add(since.saturating_mul(self.held as u64));
        self.settled = self.settled.max(now);
    }

    /// Forgets a part of it for each of so many seconds, the last of which ends `at`.
    fn age(&mut self, seconds: u64, at: Instant) {
        let held_ns = SECOND_NS.saturating_mul(self.held as u64);
        // What was held in the seconds before the last one, of which each is forgotten in its turn.
        for second in (1..=seconds).rev() {
            if second == seconds {
                self.count_until(at.checked_sub(Duration::from_secs(second - 1)).unwrap_or(at));
            } else {
                self.used_ns = self.used_ns.saturating_add(held_ns);
            }
            self.used_ns -= self.used_ns.div_ceil(FORGOTTEN_PART);
            if self.used_ns == 0 && self.held == 0 {
                break;
            }
        }
        self.settled = self.settled.max(at);
    }
}

impl TotalUse {
    pub(super) fn new(now: Instant) -> Self {
        Self { used_ns: 0, users: 0, aged: now }
    }

    /// Whole seconds since the last time that this was not zero.
    pub(super) fn seconds_passed(&mut self, now: Instant) -> u64 {
        let seconds = now.saturating_duration_since(self.aged).as_secs();
        self.aged += Duration::from_secs(seconds);
        seconds
    }

    /// Begins anew with what each payer has used, of which so many seconds are to be forgotten.
    pub(super) fn age<'a>(&mut self, each: impl Iterator<Item = &'a mut UseTime>, seconds: u64) {
        (self.used_ns, self.users) = (0, 0);
        for used in each {
            used.age(seconds.min(SECONDS_MAX), self.aged);
            self.used_ns = self.used_ns.saturating_add(used.used_ns);
            self.users += usize::from(!used.is_little());
        }
    }

    /// One payer is forgotten.
    pub(super) fn forget(&mut self, used: &UseTime) {
        self.used_ns = self.used_ns.saturating_sub(used.used_ns);
        self.users = self.users.saturating_sub(usize::from(!used.is_little()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(places: usize, since: Instant) -> UseTime {
        UseTime { held: places, ..UseTime::new(since) }
    }

    #[test]
    fn who_holds_little_for_a_short_time_is_light() {
        let start = crate::clock::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut total = TotalUse::new(start);
        let mut each = [held(4, start), held(1, start), held(0, start)];
        let mut settle = |each: &mut [UseTime; 3], ms| {
            for used in each.iter_mut() {
                used.settle(&mut total, after(ms));
            }
            (each.map(|used| used.is_light(&total)), each.map(|used| used.is_heavy(&total)), total)
        };
        // All of it is little.
        let (light, heavy, total) = settle(&mut each, 20);
        assert_eq!((light, heavy, total.used_ns, total.users), ([true; 3], [false; 3], 100_000_000, 0));
        // A fifth of all is less than half of the average of the two that have used much.
        let (light, heavy, mut total) = settle(&mut each, 800);
        assert_eq!((light, heavy), ([false, true, true], [true, false, false]));
        assert_eq!((total.used_ns, total.users), (4_000_000_000, 2));
        total.forget(&each[0]);
        assert_eq!((total.used_ns, total.users), (800_000_000, 1));
        assert!(!each[1].is_light(&total) && !each[1].is_heavy(&total), "it is all there is");
    }

    #[test]
    fn what_is_held_all_the_time_comes_to_seven_seconds_however_often_that_is_looked_at() {
        let start = crate::clock::now();
        for pause_ms in [300, 1000, 2500, 60_000, 3_600_000] {
            let (mut total, mut used, mut now) = (TotalUse::new(start), held(3, start), start);
            while now < start + Duration::from_mins(2) {
                now += Duration::from_millis(pause_ms);
                let seconds = total.seconds_passed(now);
                total.age(std::iter::once(&mut used), seconds);
                used.settle(&mut total, now);
            }
            let seconds = used.used_ns / 3 / 1_000_000;
            assert!((6_900..=8_000).contains(&seconds), "{pause_ms}: {seconds}");
            assert_eq!(total.used_ns, used.used_ns);
            // What is given back is forgotten in the end.
            used.held = 0;
            total.age(std::iter::once(&mut used), u64::MAX);
            assert!(used.is_nothing() && total.users == 0, "{used:?}");
        }
    }

    #[test]
    fn a_clock_that_goes_back_adds_nothing() {
        let start = crate::clock::now();
        let (mut total, mut used) = (TotalUse::new(start), held(1, start + Duration::from_secs(9)));
        used.settle(&mut total, start);
        assert_eq!((used.used_ns, total.used_ns, total.seconds_passed(start)), (0, 0, 0));
        assert_eq!(used.settled, start + Duration::from_secs(9));
    }
}
