//! How often each of many may do something: so often a second, and as much at once. No clock: callers say what time it
//! is.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::access::limit::digest::IdentityHash;
use crate::access::limit::payer::Payer;

/// How much may come at once, in seconds of the rate.
const BURST: Duration = Duration::from_secs(1);
/// As many are told apart; beyond, the rest are one.
const KNOWN_MAX: usize = 16 * 1024;

#[derive(Debug, Default)]
pub(super) struct Rate {
    /// When all that was taken is paid off.
    paid: Mutex<HashMap<Payer, Instant, IdentityHash>>,
    /// Nanoseconds that one costs.
    cost_ns: AtomicU64,
}

impl Rate {
    pub(super) fn set_max(&self, max: usize) {
        let max = u64::try_from(max).unwrap_or(u64::MAX).max(1);
        self.cost_ns.store(1_000_000_000 / max, Ordering::Relaxed);
    }

    /// Takes one, if `who` may.
    pub(super) fn admit(&self, who: Payer, now: Instant) -> bool {
        let cost = Duration::from_nanos(self.cost_ns.load(Ordering::Relaxed));
        let mut paid = self.paid.lock();
        if paid.len() >= KNOWN_MAX && !paid.contains_key(&who) {
            paid.retain(|_, paid| *paid > now);
        }
        let who = if paid.len() < KNOWN_MAX || paid.contains_key(&who) { who } else { Payer::OTHERS };
        let before = paid.get(&who).copied().unwrap_or(now).max(now);
        let is_admitted = before.duration_since(now) + cost <= BURST;
        if is_admitted {
            paid.insert(who, before + cost);
        }
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_a_second_as_there_may_be() {
        let rate = Rate::default();
        rate.set_max(4);
        let start = crate::clock::now();
        let at = |ms| start + Duration::from_millis(ms);
        for (who, ms, expected) in [
            ("a", 0, true),
            ("a", 0, true),
            ("a", 0, true),
            ("a", 0, true),
            ("a", 0, false),
            ("b", 0, true),
            ("a", 249, false),
            ("a", 250, true),
            ("a", 250, false),
            ("a", 750, true),
            ("a", 750, true),
            ("a", 750, false),
        ] {
            assert_eq!(rate.admit(Payer::principal(who), at(ms)), expected, "{who} at {ms} ms");
        }
    }

    #[test]
    fn too_many_to_know_share_one_rate() {
        let rate = Rate::default();
        rate.set_max(1);
        let now = crate::clock::now();
        let admit = |who: &str, now| rate.admit(Payer::principal(who), now);
        assert!((0..KNOWN_MAX).all(|number| admit(&number.to_string(), now)));
        assert!(admit("one", now) && !admit("other", now));
        let later = now + Duration::from_secs(2);
        assert!(admit("other", later) && admit("another", later));
        assert!(rate.paid.lock().len() < 4);
    }
}
