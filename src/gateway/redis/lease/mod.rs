//! Leases: a share of a limit that this replica may give out by itself.
//!
//! The limit itself is one number in Redis (see `grant`). A replica takes a small part of what is free of it, gives it
//! out without asking, and asks for more before it is used up, in the background. The first calls of a key are given out
//! on credit, as many as one lease has, and are paid for with the lease. Only calls that come faster than leases do wait
//! for an answer.
//!
//! A lease is at most a twentieth of the limit, divided by the number of replicas; so all of them together give out at
//! most a twentieth more than the limit while it is being used up, and nothing more over time. What is not used of a
//! lease is forgotten after a period, by which time it has recovered.
//!
//! An exact limit is not leased ahead: each call waits for an answer, and those that come together ask together.
//!
//! No I/O and no clock here: callers say what time it is, in nanoseconds of whatever clock they have.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

pub(crate) use self::grant::{LeaseDemand, LeaseGrant, LeaseServer};

mod grant;

/// Of a limit, the part that all leases together may be.
const PARTS: u32 = 20;
/// After a question without an answer none is asked for so long.
const FAILURE_PAUSE: Duration = Duration::from_millis(250);
/// What nobody fetched of an exact limit is forgotten after so long.
const LEFT_OVER_NS: u64 = 1_000_000_000;
/// After a refusal, at least.
const REFUSAL_PAUSE_NS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseTerms {
    pub calls: u32,
    pub period: Duration,
    /// of which so many may come at once.
    pub burst: u32,
}

impl LeaseTerms {
    /// Calls of one lease.
    pub(crate) fn lease(self, replicas: usize) -> u32 {
        let replicas = u32::try_from(replicas).unwrap_or(u32::MAX);
        (self.calls.min(self.burst) / PARTS / replicas.max(1)).max(1)
    }

    /// Time in which a whole burst comes back.
    fn recovery(self) -> Duration {
        self.period.saturating_mul(self.burst.max(1)) / self.calls.max(1)
    }

    fn period_ns(self) -> u64 {
        u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// What this replica may give out of one limit for one key.
#[derive(Debug)]
pub(crate) struct RateLease {
    key: Box<str>,
    terms: LeaseTerms,
    /// Calls of one lease; none for an exact limit.
    size: u32,
    state: Mutex<LeaseState>,
    /// There was an answer, or there will be none.
    answered: Notify,
}

#[derive(Debug, Default)]
struct LeaseState {
    /// What may be given out; below zero, what was given out on credit.
    left: i64,
    ends_ns: u64,
    /// What is free elsewhere is free at this time at the earliest.
    refused_until_ns: u64,
    /// No answer is to be expected until then.
    failed_until_ns: u64,
    used_ns: u64,
    /// Until then what was taken is paid off, as far as is known here: by answers, and by what was counted here alone.
    paid_ns: u64,
    is_asking: bool,
    /// So many calls wait,
    wanted: u32,
    /// of which one counts as so many.
    heaviest: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseVerdict {
    Pass,
    /// The limit is used up: it will pass after this time, if nothing else is taken.
    Refused(Duration),
    /// The answer to a question decides; see [`RateLease::answered`].
    Wait,
    /// Nobody answers.
    Away,
}

impl RateLease {
    pub(crate) fn new(key: String, terms: LeaseTerms, replicas: usize) -> Self {
        Self::with_size(key, terms, terms.lease(replicas))
    }

    /// One that is never ahead of what is called.
    pub(crate) fn exact(key: String, terms: LeaseTerms) -> Self {
        Self::with_size(key, terms, 0)
    }

    fn with_size(key: String, terms: LeaseTerms, size: u32) -> Self {
        Self { key: key.into(), terms, size, state: Mutex::default(), answered: Notify::new() }
    }

    /// Takes `weight` calls. True beside the verdict: [`LeaseServer::ask`] must be called.
    pub(crate) fn take(&self, weight: u32, now_ns: u64) -> (LeaseVerdict, bool) {
        let mut state = self.state.lock();
        state.used_ns = now_ns;
        let is_new = state.ends_ns <= now_ns;
        if is_new {
            state.left = state.left.min(0);
        }
        let (price, size) = (i64::from(weight), i64::from(self.size));
        let is_refused = now_ns < state.refused_until_ns;
        // On credit: where nothing is known yet, one lease; but not again and again from a server that fails.
        let has_credit = size > 0 && is_new && !is_refused && state.failed_until_ns == 0;
        let floor = if has_credit { -size.max(price) } else { 0 };
        if state.left - price >= floor {
            state.left -= price;
            let is_low = size > 0 && state.left * 2 <= size && now_ns >= state.refused_until_ns;
            return (LeaseVerdict::Pass, is_low && state.begin(now_ns));
        }
        if is_refused {
            return (LeaseVerdict::Refused(Duration::from_nanos(state.refused_until_ns - now_ns)), false);
        }
        if state.is_asking {
            state.want(weight);
            return (LeaseVerdict::Wait, false);
        }
        if now_ns < state.failed_until_ns {
            return (LeaseVerdict::Away, false);
        }
        state.begin(now_ns);
        state.want(weight);
        (LeaseVerdict::Wait, true)
    }

    /// Undoes a [`take`](Self::take) that passed.
    pub(crate) fn give_back(&self, weight: u32) {
        self.state.lock().left += i64::from(weight);
    }

    /// Waits for the answer to the question that is being asked, if it still is.
    pub(crate) async fn answered(&self) {
        let answered = self.answered.notified();
        if self.state.lock().is_asking {
            answered.await;
        }
    }

    /// Until when what was taken is paid off, as far as is known here.
    pub(crate) fn paid_ns(&self) -> u64 {
        self.state.lock().paid_ns
    }

    /// Changes it where calls are counted here alone. No answer comes in between.
    pub(crate) fn with_paid<T>(&self, change: impl FnOnce(&mut u64) -> T) -> T {
        change(&mut self.state.lock().paid_ns)
    }

    /// Whether a new one would do as well, and has for `linger_ns`.
    pub(crate) fn is_forgettable(&self, now_ns: u64, linger_ns: u64) -> bool {
        let state = self.state.lock();
        let recovered_ns = state.used_ns.saturating_add(self.terms.period_ns()).max(state.ends_ns);
        !state.is_asking && recovered_ns.saturating_add(linger_ns) <= now_ns
    }

    /// What is to be asked for at this moment.
    fn ask(&self) -> LeaseDemand {
        let state = self.state.lock();
        let debt = u32::try_from(-state.left.min(0)).unwrap_or(u32::MAX);
        let held = u32::try_from(state.left.max(0)).unwrap_or(u32::MAX);
        let least = state.heaviest.saturating_sub(held).max(1);
        LeaseDemand { debt, want: state.wanted.saturating_sub(held).max(self.size).max(least), least }
    }

    fn settle(&self, ask: LeaseDemand, answer: Option<LeaseGrant>, now_ns: u64) {
        let mut state = self.state.lock();
        state.is_asking = false;
        (state.wanted, state.heaviest) = (0, 0);
        if let Some(LeaseGrant { granted, wait, ahead }) = answer {
            let ahead_ns = u64::try_from(ahead.as_nanos()).unwrap_or(u64::MAX);
            state.paid_ns = state.paid_ns.max(now_ns.saturating_add(ahead_ns));
            state.left += i64::from(ask.debt) + i64::from(granted);
            let kept_ns = if self.size > 0 { self.terms.period_ns() } else { LEFT_OVER_NS };
            state.ends_ns = now_ns.saturating_add(kept_ns);
            state.failed_until_ns = 0;
            let wait_ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
            state.refused_until_ns = match wait_ns {
                0 => 0,
                _ => now_ns.saturating_add(wait_ns.max(REFUSAL_PAUSE_NS)),
            };
        } else {
            // What was given out on credit while nobody answered is not paid for later.
            state.left = state.left.max(0);
            let pause_ns = u64::try_from(FAILURE_PAUSE.as_nanos()).unwrap_or(u64::MAX);
            state.failed_until_ns = now_ns.saturating_add(pause_ns);
        }
        drop(state);
        self.answered.notify_waiters();
    }
}

impl LeaseState {
    /// Begins to ask for more, unless it is no use.
    fn begin(&mut self, now_ns: u64) -> bool {
        let begins = !self.is_asking && now_ns >= self.failed_until_ns;
        self.is_asking |= begins;
        begins
    }

    fn want(&mut self, weight: u32) {
        self.wanted = self.wanted.saturating_add(weight);
        self.heaviest = self.heaviest.max(weight);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn terms(calls: u32) -> LeaseTerms {
        LeaseTerms { calls, period: Duration::from_mins(1), burst: calls }
    }

    fn lease(calls: u32) -> RateLease {
        RateLease::new("k".into(), terms(calls), 2)
    }

    fn settle(lease: &RateLease, granted: u32, wait_s: u64, now_ns: u64) {
        let answer = LeaseGrant { granted, wait: Duration::from_secs(wait_s), ahead: Duration::ZERO };
        lease.settle(lease.ask(), Some(answer), now_ns);
    }

    #[test]
    fn a_lease_is_a_small_part() {
        for (calls, burst, replicas, expected) in
            [(1000, 1000, 2, 25), (1000, 10, 2, 1), (10, 10, 1, 1), (100, 100, 5, 1), (4000, 2000, 1, 100)]
        {
            let terms = LeaseTerms { burst, ..terms(calls) };
            assert_eq!(terms.lease(replicas), expected, "{calls} {burst} {replicas}");
        }
    }

    #[test]
    fn the_first_calls_are_on_credit_and_paid_for() {
        let lease = lease(1000);
        assert_eq!(lease.take(1, SECOND_NS), (LeaseVerdict::Pass, true));
        for _ in 1..25 {
            assert_eq!(lease.take(1, SECOND_NS), (LeaseVerdict::Pass, false));
        }
        assert_eq!(lease.take(1, SECOND_NS), (LeaseVerdict::Wait, false));
        assert_eq!(lease.ask(), LeaseDemand { debt: 25, want: 25, least: 1 });
        settle(&lease, 25, 0, SECOND_NS);
        for taken in 1..=25 {
            assert_eq!(lease.take(1, SECOND_NS), (LeaseVerdict::Pass, taken == 13), "{taken}");
        }
        // More is being asked for already, and there is no credit any more.
        assert_eq!(lease.take(1, SECOND_NS), (LeaseVerdict::Wait, false));
        settle(&lease, 3, 7, SECOND_NS);
        for _ in 0..3 {
            assert_eq!(lease.take(1, SECOND_NS), (LeaseVerdict::Pass, false));
        }
        assert_eq!(lease.take(1, 2 * SECOND_NS), (LeaseVerdict::Refused(Duration::from_secs(6)), false));
        assert_eq!(lease.take(1, 8 * SECOND_NS), (LeaseVerdict::Wait, true));
    }

    #[test]
    fn what_is_known_of_the_whole_is_kept_while_nobody_answers() {
        let lease = lease(1000);
        let answer =
            |ahead_s| LeaseGrant { granted: 25, wait: Duration::ZERO, ahead: Duration::from_secs(ahead_s) };
        lease.settle(lease.ask(), Some(answer(40)), SECOND_NS);
        lease.settle(lease.ask(), None, 2 * SECOND_NS);
        assert_eq!(lease.paid_ns(), 41 * SECOND_NS);
        lease.with_paid(|paid_ns| *paid_ns = 50 * SECOND_NS);
        lease.settle(lease.ask(), Some(answer(0)), 3 * SECOND_NS);
        assert_eq!(
            lease.paid_ns(),
            50 * SECOND_NS,
            "its own part is used up, whatever a server has forgotten"
        );
    }

    #[test]
    fn heavy_calls_ask_for_what_they_need() {
        let lease = lease(100);
        assert_eq!(lease.take(10, SECOND_NS), (LeaseVerdict::Pass, true));
        assert_eq!(lease.take(30, SECOND_NS), (LeaseVerdict::Wait, false));
        assert_eq!(lease.ask(), LeaseDemand { debt: 10, want: 30, least: 30 });
        settle(&lease, 30, 0, SECOND_NS);
        assert_eq!(lease.take(30, SECOND_NS), (LeaseVerdict::Pass, true));
    }

    #[test]
    fn of_an_exact_limit_nothing_is_had_ahead() {
        let lease = RateLease::exact("k".into(), terms(10));
        assert_eq!(lease.take(1, SECOND_NS), (LeaseVerdict::Wait, true));
        assert_eq!(lease.take(2, SECOND_NS), (LeaseVerdict::Wait, false));
        assert_eq!(lease.ask(), LeaseDemand { debt: 0, want: 3, least: 2 });
        settle(&lease, 3, 0, SECOND_NS);
        assert_eq!(lease.take(2, SECOND_NS), (LeaseVerdict::Pass, false));
        lease.give_back(2);
        assert_eq!(lease.take(3, SECOND_NS), (LeaseVerdict::Pass, false));
        assert_eq!(lease.take(1, SECOND_NS), (LeaseVerdict::Wait, true));
        settle(&lease, 0, 6, SECOND_NS);
        assert_eq!(lease.take(1, 3 * SECOND_NS), (LeaseVerdict::Refused(Duration::from_secs(4)), false));
        assert_eq!(lease.take(1, 7 * SECOND_NS), (LeaseVerdict::Wait, true));
        // Who waited for it left.
        settle(&lease, 1, 0, 7 * SECOND_NS);
        assert_eq!(lease.take(1, 9 * SECOND_NS), (LeaseVerdict::Wait, true));
    }

    #[test]
    fn nobody_who_answers_is_noticed_and_asked_again() {
        let lease = lease(1000);
        assert_eq!(lease.take(1, SECOND_NS), (LeaseVerdict::Pass, true));
        lease.settle(lease.ask(), None, SECOND_NS);
        assert_eq!(lease.take(1, SECOND_NS), (LeaseVerdict::Away, false));
        assert_eq!(lease.take(1, 2 * SECOND_NS), (LeaseVerdict::Wait, true), "there is credit only once");
        lease.settle(lease.ask(), None, 2 * SECOND_NS);
        assert_eq!(lease.take(1, 3 * SECOND_NS), (LeaseVerdict::Wait, true));
        settle(&lease, 25, 0, 3 * SECOND_NS);
        assert_eq!(lease.take(1, 3 * SECOND_NS), (LeaseVerdict::Pass, false));
        assert_eq!(lease.take(1, 63 * SECOND_NS), (LeaseVerdict::Pass, true), "it answers again");
    }

    #[test]
    fn what_is_left_ends_with_its_period() {
        let lease = lease(1000);
        assert_eq!(lease.take(1, 0), (LeaseVerdict::Pass, true));
        settle(&lease, 25, 0, 0);
        let later_ns = 60 * SECOND_NS;
        assert!(!lease.is_forgettable(later_ns - 1, 0) && lease.is_forgettable(later_ns, 0));
        assert!(!lease.is_forgettable(later_ns, 1));
        assert_eq!(lease.take(1, later_ns), (LeaseVerdict::Pass, true));
        assert_eq!(lease.ask(), LeaseDemand { debt: 1, want: 25, least: 1 });
        assert!(!lease.is_forgettable(u64::MAX, 0), "it is being asked for");
    }

    proptest! {
        /// Whatever happens in which order: what passes was paid for, or is owed and no more than one lease.
        #[test]
        fn what_passes_is_paid_for(steps in prop::collection::vec((0_u8..4, 1_u32..5), 1..200)) {
            let lease = lease(1000);
            let (mut free, mut passed, mut is_asking) = (300_u32, 0_u32, false);
            for (what, weight) in steps {
                if what > 0 {
                    let (verdict, asks) = lease.take(weight, SECOND_NS);
                    passed += if verdict == LeaseVerdict::Pass { weight } else { 0 };
                    is_asking |= asks;
                } else if is_asking {
                    let ask = lease.ask();
                    free = free.saturating_sub(ask.debt);
                    let granted = ask.want.min(free);
                    free -= granted;
                    let wait = if granted < ask.least { Duration::from_secs(1) } else { Duration::ZERO };
                    lease.settle(ask, Some(LeaseGrant { granted, wait, ahead: Duration::ZERO }), SECOND_NS);
                    is_asking = false;
                }
                prop_assert!(passed <= 300 + 25);
            }
        }
    }
}
