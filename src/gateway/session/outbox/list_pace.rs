//! The pace at which the client's stream says that a list of a program has changed: programs that come up, and some
//! that are up, say so many times at once.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::upstream::changes::PROGRAM_CHANGES_INTERVAL;
use protocol::subscription::Lists;

/// The lists of one session's client.
#[derive(Debug, Default)]
pub(super) struct ListPace {
    /// A bit for each list of which the client is told later.
    held: AtomicU8,
    times: Mutex<[ListTimes; Lists::COUNT]>,
}

/// When the client was told last.
#[derive(Clone, Copy, Debug, Default)]
struct ListTimes {
    by_program: Option<Instant>,
    by_any: Option<Instant>,
}

impl ListPace {
    /// A program says in the session that a list has changed. False: the client is told later.
    pub(super) fn admit(&self, index: usize, now: Instant) -> bool {
        let mut times = self.times.lock();
        let times = &mut times[index];
        let is_due = due(times.by_any).is_none_or(|due| now >= due);
        if is_due {
            *times = ListTimes { by_program: Some(now), by_any: Some(now) };
        } else {
            self.held.fetch_or(Lists::one(index).bits(), Ordering::AcqRel);
        }
        is_due
    }

    /// True if the client is to be told of any list later.
    pub(super) fn holds_any(&self) -> bool {
        self.held.load(Ordering::Acquire) != 0
    }

    /// Lists of which the client is told now, of these that `changed` and of those that were held back; and when the
    /// next one is due.
    pub(super) fn take(&self, changed: Lists, now: Instant) -> (Lists, Option<Instant>) {
        let mut times = self.times.lock();
        let held = Lists::from_bits(self.held.swap(0, Ordering::AcqRel));
        let (mut told, mut later, mut next) = (Lists::default(), Lists::default(), None::<Instant>);
        for index in Lists::from_bits(changed.bits() | held.bits()).indexes() {
            let times = &mut times[index];
            // A change that was held back is a program's, and waits for the pace of all; another waits for programs alone.
            let after = if held.has(index) { times.by_any } else { times.by_program };
            if let Some(due) = due(after).filter(|due| now < *due) {
                later.add(index);
                next = Some(next.map_or(due, |next| next.min(due)));
                continue;
            }
            told.add(index);
            times.by_any = Some(now);
            if held.has(index) {
                times.by_program = Some(now);
            }
        }
        self.held.fetch_or(later.bits(), Ordering::AcqRel);
        (told, next)
    }
}

fn due(told: Option<Instant>) -> Option<Instant> {
    told.map(|told| told + PROGRAM_CHANGES_INTERVAL)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock;

    const LIST: Lists = Lists::ALL;

    #[test]
    fn a_burst_of_a_program_is_told_at_its_begin_and_at_its_end() {
        let (pace, start) = (ListPace::default(), clock::now());
        let admitted = (0..50).filter(|_| pace.admit(0, start)).count();
        assert_eq!(admitted, 1);
        let due = start + PROGRAM_CHANGES_INTERVAL;
        assert_eq!(pace.take(Lists::default(), start), (Lists::default(), Some(due)));
        assert_eq!(pace.take(Lists::default(), due), (Lists::one(0), None));
        assert_eq!(pace.take(Lists::default(), due), (Lists::default(), None), "once");
        assert!(!pace.admit(0, due + Duration::from_secs(1)));
        assert!(pace.admit(1, due), "another list has a pace of its own");
    }

    #[test]
    fn other_servers_wait_for_programs_alone() {
        let (pace, start) = (ListPace::default(), clock::now());
        for _ in 0..3 {
            assert_eq!(pace.take(LIST, start), (LIST, None));
        }
        assert!(!pace.admit(0, start));
        assert!(pace.admit(1, start + PROGRAM_CHANGES_INTERVAL));
        let (told, next) = pace.take(LIST, start + PROGRAM_CHANGES_INTERVAL);
        assert_eq!((told.bits(), next), (0b101, Some(start + PROGRAM_CHANGES_INTERVAL * 2)));
    }
}
