//! The processes of one upstream, as they are found and waited for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::access::limit::payer::Payer;
use crate::clock;
use crate::flight::Flight;
use crate::upstream::mux::MuxConnection;
use net::jitter::doubled;
use protocol::error::UpstreamError;

/// The pause after a process that was to open the first session and did not answer, doubled with each.
const VAIN_DOUBTED_MIN: Duration = Duration::from_secs(15);
const VAIN_DOUBTED_MAX: Duration = Duration::from_hours(1);

/// The outcome of the start of a process for one caller of the modern era.
pub(super) type ModernOutcome = Result<MuxConnection, UpstreamError>;

/// The process of one caller of the modern era.
#[derive(Debug)]
pub(super) struct ModernChild {
    pub(super) connection: MuxConnection,
    /// The payer that is charged for it.
    pub(super) payer: Payer,
}

/// A process that was asked to initialize, and what it answered.
#[derive(Clone, Debug)]
pub(super) struct OpenedSession {
    pub(super) connection: MuxConnection,
    pub(super) answer: Bytes,
}

pub(super) type SessionOutcome = Result<OpenedSession, UpstreamError>;

/// The things in which two openings are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionWish {
    pub(super) principal: Option<Box<str>>,
    pub(super) payer: Payer,
    /// `initialize`, under the same id whoever asks.
    pub(super) message: Bytes,
}

/// The last words of a process of the gateway's own at `initialize`, until they are taken in. They may be of another version of
/// the program than what is known.
#[derive(Debug, Default)]
pub(crate) struct OwnIntroductions(Mutex<Option<Bytes>>);

impl OwnIntroductions {
    /// A process for which this payer is charged gave this result.
    pub(super) fn note(&self, payer: Payer, result: Bytes) {
        if payer == Payer::GATEWAY {
            *self.0.lock() = Some(result);
        }
    }

    /// True if there is one that was not taken in.
    pub(crate) fn are_any(&self) -> bool {
        self.0.lock().is_some()
    }

    pub(crate) fn take(&self) -> Option<Bytes> {
        self.0.lock().take()
    }
}

/// The readiness of the program to open sessions, as the first that was to be opened tells. The end of its process, or its
/// silence, may have had another cause: after a pause, another session is tried.
#[derive(Debug, Default)]
pub(super) struct SessionOpening(Mutex<OpeningTrials>);

#[derive(Debug, Default)]
struct OpeningTrials {
    is_open: Option<bool>,
    /// The trials in a row that came to nothing before anything was known; of several at once one counts.
    vain: u32,
    /// The moment at which the last of them did.
    failed: Option<Instant>,
    /// Until then no other session is tried.
    tried_again: Option<Instant>,
}

impl SessionOpening {
    /// It answered. Returns whether that is news.
    pub(super) fn note_answer(&self, is_open: bool) -> bool {
        let mut trials = self.0.lock();
        let is_news = trials.is_open.is_none();
        trials.is_open.get_or_insert(is_open);
        is_news
    }

    /// Its process, whose start had `begun` then, ended or said nothing instead. Returns whether that is news.
    pub(super) fn note_vain(&self, begun: Instant, now: Instant) -> bool {
        let mut trials = self.0.lock();
        if trials.is_open.is_some() || trials.failed.is_some_and(|failed| begun < failed) {
            return false;
        }
        trials.wait(now);
        trials.failed = Some(now);
        trials.vain = trials.vain.saturating_add(1);
        trials.vain == 1
    }

    /// A session is to be opened. True if that is a trial. After one that came to nothing, one at a time is tried.
    pub(super) fn begin_trial(&self, now: Instant) -> bool {
        let mut trials = self.0.lock();
        if trials.is_open.is_some() {
            return false;
        }
        if trials.vain > 0 {
            trials.wait(now);
        }
        true
    }

    /// The program may be another by now.
    pub(super) fn forget(&self) {
        *self.0.lock() = OpeningTrials::default();
    }

    pub(super) fn is_refused(&self) -> bool {
        let trials = self.0.lock();
        match trials.is_open {
            Some(is_open) => !is_open,
            None => trials.tried_again.is_some_and(|at| clock::now() < at),
        }
    }
}

impl OpeningTrials {
    fn wait(&mut self, now: Instant) {
        self.tried_again = Some(now + doubled(VAIN_DOUBTED_MIN, self.vain, VAIN_DOUBTED_MAX));
    }
}

/// The starts that nobody waits for.
#[derive(Debug, Default)]
pub(super) struct UnclaimedStarts(Mutex<Vec<UnclaimedStart>>);

/// A start that nobody waits for.
#[derive(Debug)]
pub(super) struct UnclaimedStart {
    pub(super) wish: SessionWish,
    pub(super) number: u64,
    pub(super) flight: Arc<Flight<SessionOutcome>>,
}

impl UnclaimedStarts {
    /// Takes one that is as this wish has it. Those that came to nothing are let go of.
    pub(super) fn claim(&self, wish: &SessionWish) -> Option<UnclaimedStart> {
        let mut all = self.0.lock();
        all.retain(UnclaimedStart::is_of_use);
        let at = all.iter().position(|start| start.wish == *wish)?;
        Some(all.swap_remove(at))
    }

    /// Nobody waits for this one any more.
    pub(super) fn give_back(&self, start: UnclaimedStart) {
        // A start that has landed is forgotten under this lock: it is here by then, or has its outcome now.
        let mut all = self.0.lock();
        match start.flight.outcome() {
            None if !start.flight.is_given_up() => all.push(start),
            Some(Ok(opened)) => opened.connection.close(),
            None | Some(Err(_)) => {}
        }
    }

    /// True if nobody waits for this start.
    pub(super) fn forget(&self, number: u64) -> bool {
        let mut all = self.0.lock();
        let at = all.iter().position(|start| start.number == number);
        at.map(|at| all.swap_remove(at)).is_some()
    }
}

impl UnclaimedStart {
    /// False for one that failed, or was given up.
    fn is_of_use(&self) -> bool {
        match self.flight.outcome() {
            None => !self.flight.is_given_up(),
            Some(outcome) => outcome.is_ok_and(|opened| !opened.connection.is_over()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::flight::{FlightRole, Flights, Landing};

    fn begun(
        flights: &Arc<Flights<u64, SessionOutcome>>,
        number: u64,
    ) -> (Landing<u64, SessionOutcome>, UnclaimedStart) {
        let FlightRole::Begin(landing) = flights.join(&number) else { panic!("it is under way") };
        let flight = Arc::clone(&landing.flight);
        (landing, UnclaimedStart { wish: wish(), number, flight })
    }

    fn wish() -> SessionWish {
        SessionWish { principal: None, payer: Payer::GATEWAY, message: Bytes::from_static(b"{}") }
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_process_or_its_silence_is_no_refusal_for_good() {
        let opening = SessionOpening::default();
        assert!(!opening.is_refused());
        for number in 0..3 {
            let begun = clock::now();
            assert!(opening.begin_trial(begun));
            assert_eq!(opening.is_refused(), number > 0, "one at a time is tried again");
            advance(Duration::from_secs(1)).await;
            assert_eq!(opening.note_vain(begun, clock::now()), number == 0);
            assert!(!opening.note_vain(begun, clock::now()), "several at once are one");
            assert!(opening.is_refused());
            advance(VAIN_DOUBTED_MIN * (1 << number)).await;
            assert!(!opening.is_refused(), "another session is tried");
        }
        assert!(opening.note_answer(true) && !opening.begin_trial(clock::now()));
        assert!(
            !opening.note_vain(clock::now(), clock::now()) && !opening.is_refused(),
            "it has other causes now"
        );
        let opening = SessionOpening::default();
        assert!(opening.note_answer(false) && !opening.note_answer(true) && opening.is_refused());
    }

    #[test]
    fn only_starts_that_may_come_to_something_are_claimed() {
        let (flights, unclaimed) = (Arc::default(), UnclaimedStarts::default());
        let (_landing, under_way) = begun(&flights, 0);
        unclaimed.give_back(under_way);
        let claimed = unclaimed.claim(&wish()).expect("it is under way");
        assert!(claimed.number == 0 && unclaimed.claim(&wish()).is_none(), "it is one client's");
        // Given back after, and before, they came to nothing.
        let (failed, given_up) = (begun(&flights, 1), begun(&flights, 2));
        failed.0.land(Err(UpstreamError::Reset));
        drop(given_up.0);
        unclaimed.give_back(failed.1);
        unclaimed.give_back(given_up.1);
        assert!(!unclaimed.forget(1) && !unclaimed.forget(2));
        let (failing, fails) = begun(&flights, 3);
        let (leaving, leaves) = begun(&flights, 4);
        unclaimed.give_back(fails);
        unclaimed.give_back(leaves);
        failing.land(Err(UpstreamError::Reset));
        drop(leaving);
        assert!(unclaimed.claim(&wish()).is_none());
        assert!(!unclaimed.forget(3) && !unclaimed.forget(4));
    }
}
