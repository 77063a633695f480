//! When an upstream is asked about one era.
//!
//! Answers are refreshed at leisure; where there was none, the pauses grow. Doubts bring the next question forward, but
//! those that come to nothing do so less and less.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::upstream::facts::Fact;
use net::jitter::{doubled, jittered};

/// How often what is known is asked for again.
const REFRESH_INTERVAL: Duration = Duration::from_mins(5);
/// However long an upstream promises that its answer holds.
const REFRESH_INTERVAL_MAX: Duration = Duration::from_hours(24);
const RETRY_INTERVAL_MIN: Duration = Duration::from_millis(500);
const RETRY_INTERVAL_MAX: Duration = Duration::from_mins(1);
const DOUBT_INTERVAL_MIN: Duration = Duration::from_secs(5);
const DOUBT_INTERVAL_MAX: Duration = Duration::from_mins(1);
/// Somewhat more or less, so that many questions do not come at once for ever.
const SPREAD: Range<f64> = 0.8..1.2;
/// So many times in a row an upstream must deny an era that it was known to speak: one wrong answer, such as that of
/// a proxy whose server restarts, must not end the service.
const DENIALS_BELIEVED: u32 = 3;

#[derive(Debug)]
pub(super) struct Schedule {
    /// `None` while a question is open.
    due: Option<Instant>,
    asked: Option<Instant>,
    failures: u32,
    denials: u32,
    was_tried: bool,
    is_doubted: bool,
    doubt_interval: Duration,
}

impl Schedule {
    /// Due at once.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            due: Some(now),
            asked: None,
            failures: 0,
            denials: 0,
            was_tried: false,
            is_doubted: false,
            doubt_interval: DOUBT_INTERVAL_MIN,
        }
    }

    /// When to ask; `None` while a question is open.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether it is to be asked now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    pub(super) fn asked(&self) -> Option<Instant> {
        self.asked
    }

    pub(super) fn was_tried(&self) -> bool {
        self.was_tried
    }

    /// Questions in a row that brought nothing.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    pub(super) fn begin(&mut self, now: Instant) {
        self.due = None;
        self.asked = Some(now);
    }

    pub(super) fn note_tried(&mut self) {
        self.was_tried = true;
    }

    /// The answer is clear and holds for `fresh_for` or longer.
    pub(super) fn settle(&mut self, now: Instant, fresh_for: Duration, is_changed: bool) {
        self.failures = 0;
        self.denials = 0;
        let came_to_nothing = self.is_doubted && !is_changed;
        self.doubt_interval = if came_to_nothing {
            (self.doubt_interval * 2).min(DOUBT_INTERVAL_MAX)
        } else {
            DOUBT_INTERVAL_MIN
        };
        self.is_doubted = false;
        self.due = Some(now + jittered(fresh_for.clamp(REFRESH_INTERVAL, REFRESH_INTERVAL_MAX), SPREAD));
    }

    /// The answer says nothing.
    pub(super) fn fail(&mut self, now: Instant) {
        let pause = doubled(RETRY_INTERVAL_MIN, self.failures, RETRY_INTERVAL_MAX);
        self.failures = self.failures.saturating_add(1);
        self.due = Some(now + jittered(pause, SPREAD));
    }

    /// The era is denied, which is not yet believed.
    pub(super) fn deny(&mut self, now: Instant) {
        self.denials = self.denials.saturating_add(1);
        self.fail(now);
    }

    /// Whether one more denial makes it known that the upstream does not speak the era.
    pub(super) fn believes_denial(&self, before: &Fact) -> bool {
        !matches!(before, Fact::Present(_)) || self.denials + 1 >= DENIALS_BELIEVED
    }

    /// The answer is there already: asks now.
    pub(super) fn hasten(&mut self, now: Instant) {
        self.due = self.due.map(|due| due.min(now));
    }

    /// Something contradicts what is known: asks sooner.
    pub(super) fn doubt(&mut self, now: Instant) {
        let Some(due) = &mut self.due else { return };
        let soon = self.asked.map_or(now, |asked| now.max(asked + self.doubt_interval));
        if soon < *due {
            *due = soon;
            self.is_doubted = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(schedule: &mut Schedule, now: Instant, count: usize) -> Vec<Duration> {
        let mut pauses = Vec::new();
        for _ in 0..count {
            schedule.begin(now);
            schedule.fail(now);
            pauses.push(schedule.due().expect("due") - now);
        }
        pauses
    }

    #[test]
    fn pauses_grow_and_are_bounded() {
        let now = crate::clock::now();
        let mut schedule = Schedule::new(now);
        let exact = [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000];
        for (pause, exact_ms) in pauses(&mut schedule, now, exact.len()).into_iter().zip(exact) {
            let exact = Duration::from_millis(exact_ms);
            assert!(pause >= exact.mul_f64(0.79) && pause <= exact.mul_f64(1.21), "{pause:?} for {exact:?}");
        }
        schedule.begin(now);
        assert_eq!(schedule.due(), None);
        schedule.settle(now, Duration::ZERO, true);
        assert!(schedule.due().expect("due") - now >= REFRESH_INTERVAL.mul_f64(0.79));
        assert!(pauses(&mut schedule, now, 1)[0] < Duration::from_secs(1), "pauses begin anew");
    }

    #[test]
    fn an_answer_is_refreshed_no_sooner_than_it_says() {
        let now = crate::clock::now();
        for (fresh_for, expected) in [
            (Duration::ZERO, REFRESH_INTERVAL),
            (Duration::from_hours(1), Duration::from_hours(1)),
            (Duration::MAX, REFRESH_INTERVAL_MAX),
        ] {
            let mut schedule = Schedule::new(now);
            schedule.begin(now);
            schedule.settle(now, fresh_for, true);
            let pause = schedule.due().expect("due") - now;
            assert!(pause >= expected.mul_f64(0.79) && pause <= expected.mul_f64(1.21), "{pause:?}");
        }
    }

    #[test]
    fn doubts_that_come_to_nothing_count_less() {
        let mut now = crate::clock::now();
        let mut schedule = Schedule::new(now);
        schedule.begin(now);
        schedule.settle(now, Duration::ZERO, true);
        let mut doubted = |is_changed| {
            schedule.doubt(now);
            let pause = schedule.due().expect("due") - now;
            now += pause;
            schedule.begin(now);
            schedule.doubt(now);
            schedule.settle(now, Duration::ZERO, is_changed);
            pause.as_secs()
        };
        assert_eq!([doubted(false), doubted(false), doubted(false)], [5, 10, 20]);
        assert_eq!([doubted(true), doubted(false), doubted(false)], [40, 5, 10]);
    }

    #[test]
    fn what_was_known_is_denied_several_times() {
        let now = crate::clock::now();
        let mut schedule = Schedule::new(now);
        assert!(schedule.believes_denial(&Fact::Unknown) && schedule.believes_denial(&Fact::Absent));
        let introduction =
            crate::upstream::facts::EraIntroduction { version: "".into(), result: "{}".into() };
        let known = Fact::Present(introduction.into());
        for _ in 1..DENIALS_BELIEVED {
            assert!(!schedule.believes_denial(&known));
            schedule.deny(now);
        }
        assert!(schedule.believes_denial(&known));
        schedule.settle(now, Duration::ZERO, false);
        assert!(!schedule.believes_denial(&known));
    }
}
