//! The moment at which a child process may be started: at once as a rule, with growing pauses while it ends before it is of any use.
//!
//! Pure. A process is of use once it has answered more than how it introduces itself, or lives on. The end of one that a
//! client has spoken to is no reason to keep it from others, and that of one which the gateway alone has spoken to, after it
//! had introduced itself, is none to keep it from clients. Processes that end at a question of the gateway's own, however
//! much they were of use before it, are started with growing pauses for its own questions. A client whose own processes end again
//! and again before they have answered it anything waits for longer and longer, be it the only one.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use crate::access::limit::payer::Payer;
use protocol::method::Method;
use protocol::version::Era;

/// After so many vain starts in a row it is said that the server does not start.
const LOOP_STARTS: u32 = 3;
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// The same after a refusal that a client has asked for: it hears that again meanwhile.
const CLIENT_PAUSE_MIN: Duration = Duration::from_secs(1);
const CLIENT_PAUSE_MAX: Duration = Duration::from_secs(5);

/// So many processes of a client in a row may end at its calls, which may be the doing of those, without a pause.
const CALLED_ENDS_FREE: u32 = 16;
/// A client whose processes did not end for so long begins anew.
const ENDS_KEPT: Duration = Duration::from_mins(5);
/// The ends of so many clients are kept; of more, those of the one whose last one is the longest ago are forgotten.
const CLIENTS_MAX: usize = 256;

/// The kinds of starts that come to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VainStart {
    /// There was no process at all.
    NoProcess,
    /// It ended before it answered anything.
    Unanswered,
    /// It had introduced itself, and ended before it was of use.
    Introduced,
}

#[derive(Debug, Default)]
pub(super) struct Starts {
    vain: u32,
    /// When the last one was found to be vain.
    failed: Option<Instant>,
    not_before: Option<Instant>,
    /// The same for the gateway's own questions.
    own_not_before: Option<Instant>,
    /// One of those had introduced itself: the first answer of another says nothing.
    is_in_doubt: bool,
    /// The last one has answered nothing, or there was none.
    is_silent: bool,
    /// The era in which the gateway asked the last one that read the question and never answered.
    silent_in: Option<Era>,
    /// They end again and again.
    is_loop: bool,
    /// Those that ended at a question of the gateway's own.
    own_ends: OwnEnds,
    /// The last moment at which one was of use.
    used: Option<Instant>,
    /// Those that refused to initialize for the gateway.
    own_refusals: Refusals,
    /// Those that did so for a client.
    client_refusals: Refusals,
    /// Those that were started for a client, and ended before they had answered it anything.
    client_ends: HashMap<Payer, ClientEnds>,
}

/// The processes of one client in a row that ended before they had answered it anything.
#[derive(Clone, Copy, Debug)]
struct ClientEnds {
    /// While it had asked nothing of them.
    uncalled: u32,
    /// At its calls.
    called: u32,
    last: Instant,
    /// None is started for it before.
    until: Option<Instant>,
}

/// The processes in a row that ended at a question of the gateway's own, and the last of these questions.
#[derive(Clone, Copy, Debug, Default)]
struct OwnEnds {
    count: u32,
    at: Option<Method>,
    /// The gateway starts none for a question of its own before.
    until: Option<Instant>,
}

/// The processes in a row that refused to initialize.
#[derive(Clone, Copy, Debug, Default)]
struct Refusals {
    count: u32,
    /// None is asked before.
    until: Option<Instant>,
}

impl Refusals {
    /// `min` and `max`: the pause until the next is asked.
    fn add(&mut self, pauses: &RangeInclusive<Duration>, now: Instant, random: f64) {
        self.until = Some(now + pause_after(self.count, *pauses.start(), *pauses.end(), random));
        self.count = self.count.saturating_add(1);
    }
}

impl Starts {
    /// The time until the next start, unless that may be now. `is_own`: the gateway asks in that process.
    pub(super) fn wait(&self, now: Instant, is_own: bool) -> Option<Duration> {
        let own = self.own_not_before.max(self.own_ends.until);
        left(if is_own { own } else { self.not_before }, now)
    }

    /// The start of a child at `since` came to nothing. `random` is from 0 to 1. Returns the pause. Several that ran at
    /// once are one vain start. One that had introduced itself may have ended by chance, and is started again at once.
    pub(super) fn fail(&mut self, vain: VainStart, since: Instant, now: Instant, random: f64) -> Duration {
        if self.failed.is_some_and(|failed| since < failed) {
            return self.wait(now, true).unwrap_or_default();
        }
        self.failed = Some(now);
        self.vain = self.vain.saturating_add(1);
        self.is_in_doubt |= vain == VainStart::Introduced;
        self.is_silent = vain != VainStart::Introduced;
        self.is_loop |= self.vain >= LOOP_STARTS && vain != VainStart::NoProcess;
        if vain == VainStart::Introduced && self.vain == 1 {
            return Duration::ZERO;
        }
        let pause = pause_after(self.vain - 1, PAUSE_MIN, PAUSE_MAX, random);
        self.own_not_before = Some(now + pause);
        if vain != VainStart::Introduced {
            self.not_before = self.own_not_before;
        }
        pause
    }

    /// One that the gateway asked in this era has read that, and ended without an answer.
    pub(super) fn note_silence(&mut self, era: Era) {
        self.silent_in = Some(era);
    }

    /// The era of that silence, until one answers.
    pub(super) fn silent_in(&self) -> Option<Era> {
        self.silent_in
    }

    /// The next is asked anew in which era it answers.
    pub(super) fn forget_silence(&mut self) {
        self.silent_in = None;
    }

    /// A child refused to initialize: others would as well, for a while. `is_own`: the gateway has asked.
    pub(super) fn refuse(&mut self, is_own: bool, now: Instant, random: f64) {
        if is_own {
            self.own_refusals.add(&(PAUSE_MIN..=PAUSE_MAX), now, random);
        } else {
            self.client_refusals.add(&(CLIENT_PAUSE_MIN..=CLIENT_PAUSE_MAX), now, random);
        }
    }

    /// A child was initialized, as others would be that are asked the same.
    pub(super) fn accept(&mut self) {
        (self.own_refusals, self.client_refusals) = Default::default();
    }

    /// The time until the next one is asked to initialize, unless that may be now.
    pub(super) fn refused_for(&self, is_own: bool, now: Instant) -> Option<Duration> {
        let refusals = if is_own { &self.own_refusals } else { &self.client_refusals };
        left(refusals.until, now)
    }

    /// One ended at this question of the gateway's own. The first may have done so by chance.
    pub(super) fn end_at(&mut self, question: Method, now: Instant, random: f64) {
        let ends = &mut self.own_ends;
        ends.at = Some(question);
        ends.count = ends.count.saturating_add(1);
        if ends.count > 1 {
            ends.until = Some(now + pause_after(ends.count - 1, PAUSE_MIN, PAUSE_MAX, random));
        }
    }

    /// The question of the gateway's own at which the last one ended that did so.
    pub(super) fn last_own_end(&self) -> Option<Method> {
        self.own_ends.at
    }

    /// One lives on that was asked the same, or was not asked it for long.
    pub(super) fn outlive_own_ends(&mut self) {
        self.own_ends = OwnEnds::default();
    }

    /// The question of the gateway's own at which they end again and again, though they start.
    pub(super) fn ends_at(&self) -> Option<Method> {
        self.own_ends.at.filter(|_| self.own_ends.count >= LOOP_STARTS && !self.is_silent)
    }

    /// Nothing is known of those before this one, but what they refused, and what they ended at.
    fn begin_anew(&mut self) {
        let Self { own_ends, used, own_refusals, client_refusals, .. } = *self;
        let client_ends = std::mem::take(&mut self.client_ends);
        *self = Self { own_ends, used, own_refusals, client_refusals, client_ends, ..Self::default() };
    }

    /// One that was started for this client ended before it had answered it anything, be it at a call. The first may have done so
    /// by chance.
    pub(super) fn fail_for(&mut self, client: Payer, was_called: bool, now: Instant, random: f64) {
        self.client_ends.retain(|_, ends| now.saturating_duration_since(ends.last) < ENDS_KEPT);
        if self.client_ends.len() >= CLIENTS_MAX && !self.client_ends.contains_key(&client) {
            let oldest = self.client_ends.iter().min_by_key(|(_, ends)| ends.last).map(|(client, _)| *client);
            oldest.map(|oldest| self.client_ends.remove(&oldest));
        }
        let none = ClientEnds { uncalled: 0, called: 0, last: now, until: None };
        let ends = self.client_ends.entry(client).or_insert(none);
        let count = if was_called { &mut ends.called } else { &mut ends.uncalled };
        *count = count.saturating_add(1);
        ends.last = now;
        let counted = ends.uncalled.saturating_add(ends.called.saturating_sub(CALLED_ENDS_FREE));
        if counted > 1 {
            ends.until = Some(now + pause_after(counted - 2, PAUSE_MIN, PAUSE_MAX, random));
        }
    }

    /// One that was started for this client was of use to it, or lived on.
    pub(super) fn settle(&mut self, client: Payer) {
        self.client_ends.remove(&client);
    }

    /// The time until the next is started for this client, unless that may be now.
    pub(super) fn wait_of(&self, client: Payer, now: Instant) -> Option<Duration> {
        left(self.client_ends.get(&client)?.until, now)
    }

    /// A child answered for the first time. True if that shows that it starts: those before it ended without any answer.
    pub(super) fn succeed(&mut self) -> bool {
        if self.is_in_doubt {
            (self.is_silent, self.silent_in) = (false, None);
            return false;
        }
        self.begin_anew();
        true
    }

    /// A child is of use. True if that was in doubt.
    pub(super) fn note_use(&mut self, now: Instant) -> bool {
        let was_in_doubt = self.is_in_doubt;
        if was_in_doubt {
            self.begin_anew();
        }
        self.used = Some(now);
        was_in_doubt
    }

    /// True if one was of use since then.
    pub(super) fn was_used_since(&self, since: Instant) -> bool {
        self.used.is_some_and(|used| used >= since)
    }

    /// True if one ended that had introduced itself, and none was of use since.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }

    /// True if the last one came to nothing before it answered anything.
    pub(super) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// True if one ended before it was of use more than once in a row.
    pub(super) fn is_repeated(&self) -> bool {
        self.vain > 1
    }

    /// True if they end again and again before they are of use.
    pub(super) fn is_loop(&self) -> bool {
        self.is_loop || self.ends_at().is_some()
    }
}

/// The pause after one that came to nothing, after so many others.
fn pause_after(others: u32, min: Duration, max: Duration, random: f64) -> Duration {
    (min * (1 << others.min(16))).min(max).mul_f64(0.8 + 0.4 * random)
}

fn left(until: Option<Instant>, now: Instant) -> Option<Duration> {
    until?.checked_duration_since(now).filter(|wait| !wait.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_end_with_an_answer() {
        let now = crate::clock::now();
        let mut starts = Starts::default();
        assert_eq!(starts.wait(now, false), None);
        for (number, expected_ms) in
            [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000].iter().enumerate()
        {
            let pause = starts.fail(VainStart::Unanswered, now, now, 0.5);
            assert_eq!((pause, starts.is_loop()), (Duration::from_millis(*expected_ms), number >= 2));
            assert_eq!(starts.wait(now, false), Some(pause));
            assert_eq!(starts.wait(now + pause, false), None);
        }
        assert!(starts.succeed() && !starts.is_loop());
        assert_eq!(starts.wait(now, false), None);
        let least = starts.fail(VainStart::Unanswered, now, now, 0.0);
        let most = Starts::default().fail(VainStart::Unanswered, now, now, 1.0);
        assert_eq!((least, most), (PAUSE_MIN.mul_f64(0.8), PAUSE_MIN.mul_f64(1.2)));
        assert!(!starts.is_loop(), "one vain start is no loop");
    }

    #[test]
    fn an_introduction_alone_ends_no_row_of_those_that_introduced_themselves() {
        let now = crate::clock::now();
        let mut starts = Starts::default();
        for (number, expected_ms) in [0, 1000, 2000, 4000].into_iter().enumerate() {
            let pause = starts.fail(VainStart::Introduced, now, now, 0.5);
            let own = Some(pause).filter(|pause| !pause.is_zero());
            assert_eq!((starts.wait(now, true), starts.wait(now, false)), (own, None), "clients may call it");
            assert_eq!((pause, starts.is_loop()), (Duration::from_millis(expected_ms), number >= 2));
            assert!(!starts.succeed() && starts.is_in_doubt(), "it will end as those before it");
        }
        assert!(starts.note_use(now) && !starts.is_loop() && !starts.is_in_doubt());
        assert!(starts.was_used_since(now) && !starts.was_used_since(now + PAUSE_MIN));
        assert_eq!(starts.wait(now, false), None);
    }

    #[test]
    fn pauses_after_ends_at_own_questions_grow_however_much_is_answered_before_until_one_lives_on() {
        let now = crate::clock::now();
        let mut starts = Starts::default();
        for (number, expected_ms) in [0, 1000, 2000, 4000].into_iter().enumerate() {
            assert!(starts.succeed());
            starts.note_use(now);
            starts.end_at(Method::Listen, now, 0.5);
            let own = Some(Duration::from_millis(expected_ms)).filter(|pause| !pause.is_zero());
            assert_eq!((starts.wait(now, true), starts.wait(now, false)), (own, None), "clients may call it");
            let ends_at = (number >= 2).then_some(Method::Listen);
            assert_eq!((starts.ends_at(), starts.is_loop()), (ends_at, number >= 2));
        }
        assert!(starts.succeed() && starts.is_loop(), "it answers as those before it");
        starts.fail(VainStart::Unanswered, now, now, 0.5);
        assert_eq!(starts.ends_at(), None, "by now it does not start");
        assert!(starts.succeed());
        starts.outlive_own_ends();
        assert_eq!((starts.ends_at(), starts.last_own_end(), starts.wait(now, true)), (None, None, None));
        assert!(!starts.is_loop());
    }

    #[test]
    fn whoever_refuses_to_initialize_is_asked_again_after_pauses_that_grow() {
        let now = crate::clock::now();
        let mut starts = Starts::default();
        for expected_ms in [500, 1000, 2000] {
            // Its refusal was its first answer.
            assert!(starts.succeed());
            starts.refuse(true, now, 0.5);
            assert_eq!(starts.refused_for(true, now), Some(Duration::from_millis(expected_ms)));
            assert_eq!(starts.wait(now, true), None, "it is started for something else");
        }
        assert_eq!(starts.refused_for(true, now + 2 * PAUSE_MIN * 2), None);
        starts.accept();
        assert_eq!(starts.refused_for(true, now), None);
        starts.refuse(true, now, 0.5);
        assert_eq!(starts.refused_for(true, now), Some(PAUSE_MIN));
    }

    #[test]
    fn pauses_after_refusals_are_short_for_clients_and_lengthen_no_other() {
        let now = crate::clock::now();
        let mut starts = Starts::default();
        for _ in 0..9 {
            starts.refuse(true, now, 0.5);
        }
        assert_eq!(starts.refused_for(false, now), None, "no client was refused");
        for expected_s in [1, 2, 4, 5, 5] {
            starts.refuse(false, now, 0.5);
            assert_eq!(starts.refused_for(false, now), Some(Duration::from_secs(expected_s)));
            assert_eq!(starts.refused_for(true, now), Some(PAUSE_MAX));
        }
        starts.accept();
        assert_eq!((starts.refused_for(true, now), starts.refused_for(false, now)), (None, None));
    }

    #[test]
    fn one_client_alone_waits_for_longer_and_longer_while_its_own_end() {
        let (one, other) = (Payer::principal("one"), Payer::principal("other"));
        for was_called in [false, true] {
            let mut now = crate::clock::now();
            let mut starts = Starts::default();
            let free = if was_called { CALLED_ENDS_FREE } else { 0 };
            for number in 0..free {
                starts.fail_for(one, was_called, now, 0.5);
                assert_eq!(starts.wait_of(one, now), None, "{number}");
            }
            for expected_ms in [0, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000] {
                assert!(starts.succeed(), "each has introduced itself");
                starts.note_use(now);
                starts.fail_for(one, was_called, now, 0.5);
                let expected = Some(Duration::from_millis(expected_ms)).filter(|pause| !pause.is_zero());
                assert_eq!(starts.wait_of(one, now), expected);
                assert_eq!((starts.wait_of(other, now), starts.wait(now, false)), (None, None));
                now += Duration::from_millis(expected_ms);
                assert_eq!(starts.wait_of(one, now), None);
            }
            starts.settle(one);
            starts.fail_for(one, false, now, 0.5);
            assert_eq!(starts.wait_of(one, now), None, "it begins anew");
            starts.fail_for(one, false, now, 0.5);
            assert_eq!(starts.wait_of(one, now), Some(PAUSE_MIN));
            starts.fail_for(one, false, now + ENDS_KEPT, 0.5);
            assert_eq!(starts.wait_of(one, now + ENDS_KEPT), None, "the others are long ago");
        }
    }

    #[test]
    fn the_ends_of_so_many_clients_are_kept() {
        let (mut starts, now) = (Starts::default(), crate::clock::now());
        for number in 0..=CLIENTS_MAX {
            let at = now + Duration::from_millis(number as u64);
            starts.fail_for(Payer::principal(&number.to_string()), false, at, 0.5);
        }
        assert_eq!(starts.client_ends.len(), CLIENTS_MAX);
        assert!(!starts.client_ends.contains_key(&Payer::principal("0")));
    }

    #[test]
    fn the_last_one_tells_whether_it_starts_at_all() {
        let now = crate::clock::now();
        let mut starts = Starts::default();
        for (vain, is_silent) in [
            (VainStart::Introduced, false),
            (VainStart::NoProcess, true),
            (VainStart::Introduced, false),
            (VainStart::Unanswered, true),
        ] {
            starts.fail(vain, now, now, 0.5);
            assert_eq!(starts.is_silent(), is_silent, "{vain:?}");
        }
        assert!(!starts.succeed() && !starts.is_silent());
    }

    #[test]
    fn an_answer_ends_the_silence_of_those_before_it() {
        let now = crate::clock::now();
        for before in [VainStart::Unanswered, VainStart::Introduced] {
            let mut starts = Starts::default();
            starts.fail(before, now, now, 0.5);
            starts.note_silence(Era::Modern);
            starts.fail(VainStart::NoProcess, now, now, 0.5);
            assert_eq!(starts.silent_in(), Some(Era::Modern), "another start says nothing of it");
            starts.succeed();
            assert_eq!(starts.silent_in(), None, "{before:?}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_no_loop_of_crashes() {
        let now = crate::clock::now();
        let mut starts = Starts::default();
        for _ in 0..9 {
            starts.fail(VainStart::NoProcess, now, now, 0.5);
        }
        assert!(!starts.is_loop() && starts.wait(now, false).is_some());
        starts.fail(VainStart::Unanswered, now, now, 0.5);
        assert!(starts.is_loop(), "by now it is there");
    }

    #[test]
    fn many_that_end_together_are_one_vain_start() {
        let started = crate::clock::now();
        let mut starts = Starts::default();
        let ended = started + Duration::from_millis(5);
        for number in 0..50 {
            let pause = starts.fail(VainStart::Unanswered, started, ended, 0.5);
            assert_eq!((pause, starts.is_loop()), (PAUSE_MIN, false), "{number}");
        }
        let next = ended + pause_of(&starts, ended);
        assert_eq!(starts.fail(VainStart::Unanswered, next, ended + PAUSE_MAX, 0.5), PAUSE_MIN * 2);
    }

    fn pause_of(starts: &Starts, now: Instant) -> Duration {
        starts.wait(now, false).expect("a pause")
    }
}
