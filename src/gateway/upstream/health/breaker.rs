//! A replica's breaker: requests keep away from a replica that failed several times in a row.
//!
//! | state | requests | ends |
//! |---|---|---|
//! | closed | pass | after `failures_max` failures in a row, or when questions find the replica unfit: open |
//! | open | are refused | when its time is over: half-open; where the replica is asked, only once it answers |
//! | half-open | one passes, and when that takes too long the next; the others are refused | by what becomes of the first that ends: closed, or open for twice as long |
//!
//! A replica that was not reached or broke off, and that answers questions again, is closed at once, but its next failure
//! opens it. One that let requests wait is tried with a request: it may answer questions and nothing else. A request that
//! takes long keeps the others out for as long as a first byte may take, and for [`TRIAL_MAX`] at most. Opening times that doubled are halved again as fast.
//!
//! Deliberately not here: the clock. Invariant: a trial that ends in any way makes room for the next.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::millis;

/// How long a request by which a replica is tried keeps others out, at most.
const TRIAL_MAX: Duration = Duration::from_secs(5);
/// The share that a replica begins with when it comes back, of [`WEIGHT_MAX`].
const WEIGHT_MIN: u64 = 64;
/// The weight of a replica that has its full share.
pub(crate) const WEIGHT_MAX: u64 = 1024;

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    failures_max: u32,
    open_time_ms: u64,
    open_time_max_ms: u64,
    slow_start_ms: u64,
    /// How long a trial keeps others out.
    trial_ms: u64,
    /// Whether the replica is asked whether it is fit.
    is_asked: bool,
}

impl Rules {
    /// The rules of one upstream.
    pub(crate) fn of(config: &config::ReplicasConfig, first_byte_timeout: Duration) -> Self {
        let config::ReplicasConfig { breaker, health, slow_start, .. } = config;
        Self {
            failures_max: u32::try_from(breaker.failures_max).unwrap_or(u32::MAX),
            open_time_ms: millis(breaker.open_time),
            open_time_max_ms: millis(breaker.open_time_max),
            slow_start_ms: millis(*slow_start),
            trial_ms: millis(first_byte_timeout.min(TRIAL_MAX)),
            is_asked: health.interval > Duration::ZERO,
        }
    }
}

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerState {
    Closed,
    Open,
    /// One request at a time passes.
    HalfOpen,
}

impl BreakerState {
    pub(crate) const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// How a request passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// As any other.
    Free,
    /// As the one by which the replica is judged.
    Trial,
    /// Without being asked, and whatever becomes of it says nothing.
    Aside,
}

/// What went wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestFault {
    /// There was no connection, it broke, or what came on it was no answer.
    Broken,
    TimedOut,
}

#[derive(Debug, Default)]
pub(crate) struct Breaker {
    state: AtomicU8,
    /// Counted in a row: one success begins anew.
    failures: AtomicU32,
    /// Counted in a row: one success begins anew.
    openings: AtomicU32,
    /// When it is over, while open.
    until_ms: AtomicU64,
    opened_ms: AtomicU64,
    /// When it was last closed; 0: it was never open.
    closed_ms: AtomicU64,
    /// Until when the last trial keeps others out; 0: there is none.
    trial_until_ms: AtomicU64,
    /// That questions are answered does not make it fit.
    needs_trial: AtomicBool,
}

impl Breaker {
    /// Of a replica that has joined others at this time.
    pub(crate) fn joining(now_ms: u64) -> Self {
        Self { closed_ms: AtomicU64::new(now_ms), ..Self::default() }
    }

    pub(crate) fn state(&self) -> BreakerState {
        match self.state.load(Ordering::Acquire) {
            0 => BreakerState::Closed,
            1 => BreakerState::Open,
            _ => BreakerState::HalfOpen,
        }
    }

    /// Whether a request would pass.
    pub(crate) fn is_fit(&self, rules: &Rules, now_ms: u64) -> bool {
        match self.state() {
            BreakerState::Closed => true,
            BreakerState::Open => !rules.is_asked && now_ms >= self.until_ms(),
            BreakerState::HalfOpen => now_ms >= self.trial_until_ms.load(Ordering::Relaxed),
        }
    }

    /// Lets a request pass, or not. What passes must [`succeed`](Self::succeed), [`fail`](Self::fail) or
    /// [`give_up`](Self::give_up).
    pub(crate) fn pass(&self, rules: &Rules, now_ms: u64) -> Option<Pass> {
        if self.state() == BreakerState::Closed {
            return Some(Pass::Free);
        }
        if !self.is_fit(rules, now_ms) {
            return None;
        }
        self.change(BreakerState::Open, BreakerState::HalfOpen);
        let before_ms = self.trial_until_ms.load(Ordering::Relaxed);
        let until_ms = now_ms.saturating_add(rules.trial_ms.max(1));
        let is_first = now_ms >= before_ms
            && self
                .trial_until_ms
                .compare_exchange(before_ms, until_ms, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
        is_first.then_some(Pass::Trial)
    }

    /// A request was answered. True if that closed the breaker.
    pub(crate) fn succeed(&self, pass: Pass, now_ms: u64) -> bool {
        if pass == Pass::Aside {
            return false;
        }
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
        let is_closed = pass == Pass::Trial && self.close(now_ms);
        self.give_up(pass);
        is_closed
    }

    /// A request failed. True if that opened the breaker.
    pub(crate) fn fail(&self, pass: Pass, failure: RequestFault, rules: &Rules, now_ms: u64) -> bool {
        let is_opened = match pass {
            Pass::Aside => false,
            Pass::Trial => self.open_from(BreakerState::HalfOpen, failure, rules, now_ms),
            Pass::Free => {
                let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
                rules.failures_max > 0
                    && failures >= rules.failures_max
                    && self.open_from(BreakerState::Closed, failure, rules, now_ms)
            }
        };
        self.give_up(pass);
        is_opened
    }

    /// What became of a request says nothing.
    pub(crate) fn give_up(&self, pass: Pass) {
        if pass == Pass::Trial {
            self.trial_until_ms.store(0, Ordering::Release);
        }
    }

    /// The replica answers questions. True if that closed the breaker.
    pub(crate) fn found_fit(&self, rules: &Rules, now_ms: u64) -> bool {
        if self.state() != BreakerState::Open || now_ms < self.until_ms() {
            return false;
        }
        if self.needs_trial.load(Ordering::Relaxed) {
            self.change(BreakerState::Open, BreakerState::HalfOpen);
            return false;
        }
        self.failures.store(rules.failures_max.saturating_sub(1), Ordering::Relaxed);
        self.close(now_ms)
    }

    /// The replica answers no questions. True if that opened the breaker.
    pub(crate) fn found_unfit(&self, rules: &Rules, now_ms: u64) -> bool {
        match self.state() {
            BreakerState::Open => {
                self.prolong(rules, now_ms);
                false
            }
            state => self.open_from(state, RequestFault::Broken, rules, now_ms),
        }
    }

    /// When an open one is to be tried; 0 if it was never open.
    pub(crate) fn until_ms(&self) -> u64 {
        self.until_ms.load(Ordering::Relaxed)
    }

    /// How long it has been open; 0 if it is not.
    pub(crate) fn open_for_ms(&self, now_ms: u64) -> u64 {
        match self.state() {
            BreakerState::Closed => 0,
            BreakerState::Open | BreakerState::HalfOpen => {
                now_ms.saturating_sub(self.opened_ms.load(Ordering::Relaxed))
            }
        }
    }

    /// How much of its share the replica gets, up to [`WEIGHT_MAX`].
    pub(crate) fn weight(&self, rules: &Rules, now_ms: u64) -> u64 {
        let closed_ms = self.closed_ms.load(Ordering::Relaxed);
        let since_ms = now_ms.saturating_sub(closed_ms);
        if closed_ms == 0 || since_ms >= rules.slow_start_ms {
            return WEIGHT_MAX;
        }
        (WEIGHT_MAX * since_ms / rules.slow_start_ms).max(WEIGHT_MIN)
    }

    fn close(&self, now_ms: u64) -> bool {
        self.closed_ms.store(now_ms, Ordering::Relaxed);
        self.change(BreakerState::HalfOpen, BreakerState::Closed)
            || self.change(BreakerState::Open, BreakerState::Closed)
    }

    /// Opens it, if nobody was faster.
    fn open_from(&self, state: BreakerState, failure: RequestFault, rules: &Rules, now_ms: u64) -> bool {
        // What was on its way when it opened, and fails only now, says nothing new.
        if self.state() != state {
            return false;
        }
        if state == BreakerState::Closed {
            // One that served for long begins anew.
            let closed_for_ms = now_ms.saturating_sub(self.closed_ms.load(Ordering::Relaxed));
            let openings = self.openings.load(Ordering::Relaxed);
            self.openings.store(openings_after(rules, openings, closed_for_ms), Ordering::Relaxed);
            self.opened_ms.store(now_ms, Ordering::Relaxed);
        }
        let until_before_ms = self.until_ms();
        let openings = self.openings.load(Ordering::Relaxed);
        self.until_ms.store(now_ms.saturating_add(open_time_ms(rules, openings)), Ordering::Relaxed);
        self.needs_trial.store(failure == RequestFault::TimedOut, Ordering::Relaxed);
        let is_first = self.change(state, BreakerState::Open);
        if is_first {
            self.openings.store(openings.saturating_add(1), Ordering::Relaxed);
        } else {
            self.until_ms.store(until_before_ms.max(self.until_ms()), Ordering::Relaxed);
        }
        is_first
    }

    fn prolong(&self, rules: &Rules, now_ms: u64) {
        let openings = self.openings.fetch_add(1, Ordering::Relaxed);
        self.until_ms.store(now_ms.saturating_add(open_time_ms(rules, openings)), Ordering::Relaxed);
    }

    fn change(&self, from: BreakerState, to: BreakerState) -> bool {
        self.state.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// How many openings count after it has been closed for so long.
fn openings_after(rules: &Rules, openings: u32, closed_for_ms: u64) -> u32 {
    if closed_for_ms > rules.open_time_max_ms.saturating_mul(2) {
        return 0;
    }
    let (mut openings, mut left_ms) = (openings, closed_for_ms);
    while let Some(fewer) = openings.checked_sub(1) {
        let Some(rest_ms) = left_ms.checked_sub(open_time_ms(rules, fewer).max(1)) else { break };
        (openings, left_ms) = (fewer, rest_ms);
    }
    openings
}

fn open_time_ms(rules: &Rules, openings: u32) -> u64 {
    rules.open_time_ms.saturating_mul(1 << openings.min(32)).min(rules.open_time_max_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules {
        failures_max: 3,
        open_time_ms: 100,
        open_time_max_ms: 1000,
        slow_start_ms: 1000,
        trial_ms: 100,
        is_asked: false,
    };

    fn opened(rules: &Rules, failure: RequestFault) -> Breaker {
        let breaker = Breaker::default();
        for left in (0..3).rev() {
            assert_eq!(breaker.pass(rules, 1), Some(Pass::Free));
            assert_eq!(breaker.fail(Pass::Free, failure, rules, 1), left == 0);
        }
        breaker
    }

    #[test]
    fn opens_after_failures_in_a_row() {
        let breaker = Breaker::default();
        for _ in 0..10 {
            assert!(!breaker.fail(Pass::Free, RequestFault::Broken, &RULES, 1));
            assert!(!breaker.fail(Pass::Free, RequestFault::Broken, &RULES, 1));
            breaker.succeed(Pass::Free, 1);
            breaker.fail(Pass::Aside, RequestFault::Broken, &RULES, 1);
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
        assert_eq!(opened(&RULES, RequestFault::Broken).state(), BreakerState::Open);
        let never = Rules { failures_max: 0, ..RULES };
        for _ in 0..100 {
            assert!(!breaker.fail(Pass::Free, RequestFault::Broken, &never, 1));
        }
    }

    #[test]
    fn one_at_a_time_is_tried_when_its_time_is_over() {
        let breaker = opened(&RULES, RequestFault::TimedOut);
        assert_eq!(breaker.pass(&RULES, 100), None);
        assert_eq!(breaker.pass(&RULES, 101), Some(Pass::Trial));
        assert_eq!(breaker.pass(&RULES, 101), None);
        breaker.give_up(Pass::Trial);
        assert_eq!(breaker.pass(&RULES, 102), Some(Pass::Trial), "the next after one that says nothing");
        assert!(breaker.succeed(Pass::Trial, 103));
        assert_eq!(
            (breaker.pass(&RULES, 103), breaker.pass(&RULES, 103)),
            (Some(Pass::Free), Some(Pass::Free))
        );
    }

    #[test]
    fn a_trial_that_takes_long_keeps_others_out_for_a_while_only() {
        let breaker = opened(&RULES, RequestFault::TimedOut);
        assert_eq!(breaker.pass(&RULES, 101), Some(Pass::Trial));
        assert!(breaker.pass(&RULES, 200).is_none() && !breaker.is_fit(&RULES, 200));
        assert_eq!((breaker.pass(&RULES, 201), breaker.pass(&RULES, 201)), (Some(Pass::Trial), None));
        assert!(breaker.succeed(Pass::Trial, 210), "the second is done first");
        assert!(
            !breaker.fail(Pass::Trial, RequestFault::TimedOut, &RULES, 300),
            "what fails late changes nothing"
        );
        assert_eq!(breaker.pass(&RULES, 301), Some(Pass::Free));
    }

    #[test]
    fn opening_times_that_doubled_come_down_as_fast() {
        for (closed_for_ms, expected) in
            [(0, 3), (399, 3), (400, 2), (599, 2), (600, 1), (700, 0), (10_000, 0)]
        {
            assert_eq!(openings_after(&RULES, 3, closed_for_ms), expected, "after {closed_for_ms} ms");
        }
    }

    #[test]
    fn what_fails_late_changes_nothing() {
        let breaker = opened(&RULES, RequestFault::TimedOut);
        let before = (breaker.until_ms(), breaker.open_for_ms(90));
        for now_ms in 2..90 {
            assert!(!breaker.fail(Pass::Free, RequestFault::Broken, &RULES, now_ms));
        }
        assert_eq!((breaker.until_ms(), breaker.open_for_ms(90)), before, "it is not open for longer");
        assert!(!breaker.found_fit(&RULES, 200), "it still needs a trial");
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
    }

    #[test]
    fn each_opening_is_longer_up_to_the_longest() {
        let breaker = opened(&RULES, RequestFault::Broken);
        let mut now_ms = 1;
        for time_ms in [100, 200, 400, 800, 1000, 1000] {
            assert_eq!(breaker.until_ms(), now_ms + time_ms);
            now_ms += time_ms;
            assert_eq!(breaker.pass(&RULES, now_ms), Some(Pass::Trial));
            assert!(breaker.fail(Pass::Trial, RequestFault::Broken, &RULES, now_ms));
        }
        now_ms = breaker.until_ms();
        assert_eq!(breaker.pass(&RULES, now_ms), Some(Pass::Trial));
        breaker.succeed(Pass::Trial, now_ms);
        now_ms += 2001;
        for _ in 0..3 {
            breaker.fail(Pass::Free, RequestFault::Broken, &RULES, now_ms);
        }
        assert_eq!(breaker.until_ms(), now_ms + 100, "one that served for long begins anew");
    }

    #[test]
    fn where_it_is_asked_its_answers_decide() {
        let rules = Rules { is_asked: true, ..RULES };
        let breaker = opened(&rules, RequestFault::Broken);
        assert_eq!(breaker.pass(&rules, 5000), None, "no request is tried before it answers");
        assert!(!breaker.found_fit(&rules, 50), "its time is not over");
        assert!(!breaker.found_unfit(&rules, 101));
        assert_eq!(breaker.until_ms(), 301);
        assert!(breaker.found_fit(&rules, 301));
        assert_eq!(breaker.pass(&rules, 301), Some(Pass::Free));
        assert!(breaker.fail(Pass::Free, RequestFault::Broken, &rules, 302), "its next failure opens it");

        let silent = opened(&rules, RequestFault::TimedOut);
        assert!(!silent.found_fit(&rules, 101));
        assert_eq!((silent.pass(&rules, 102), silent.pass(&rules, 102)), (Some(Pass::Trial), None));
        assert!(silent.fail(Pass::Trial, RequestFault::TimedOut, &rules, 103));
        assert_eq!(silent.pass(&rules, 103), None);

        let idle = Breaker::default();
        assert!(idle.found_unfit(&rules, 1) && !idle.is_fit(&rules, 1));
        assert_eq!(idle.open_for_ms(11), 10);
    }

    #[test]
    fn who_comes_back_gets_more_and_more() {
        let breaker = Breaker::default();
        assert_eq!(breaker.weight(&RULES, 0), WEIGHT_MAX);
        let breaker = Breaker::joining(1000);
        for (now_ms, weight) in [(1000, 64), (1500, 512), (1999, 1022), (2000, 1024)] {
            assert_eq!(breaker.weight(&RULES, now_ms), weight, "{now_ms}");
        }
        assert_eq!(breaker.weight(&Rules { slow_start_ms: 0, ..RULES }, 1000), WEIGHT_MAX);
    }
}
