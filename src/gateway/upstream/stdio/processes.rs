//! The processes of one upstream, as they are found and waited for.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::opening::TrialWatch;
use crate::access::limit::payer::Payer;
use crate::flight::Flight;
use crate::upstream::mux::MuxConnection;
use protocol::error::UpstreamError;

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

/// The starts that nobody waits for.
#[derive(Debug, Default)]
pub(super) struct UnclaimedStarts(Mutex<Vec<UnclaimedStart>>);

/// A start that nobody waits for.
#[derive(Debug)]
pub(super) struct UnclaimedStart {
    pub(super) wish: SessionWish,
    pub(super) number: u64,
    pub(super) flight: Arc<Flight<SessionOutcome>>,
    /// It shows whether the program opens sessions.
    pub(super) trial: Option<TrialWatch>,
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
    use super::*;
    use crate::flight::{FlightRole, Flights, Landing};

    fn begun(
        flights: &Arc<Flights<u64, SessionOutcome>>,
        number: u64,
    ) -> (Landing<u64, SessionOutcome>, UnclaimedStart) {
        let FlightRole::Begin(landing) = flights.join(&number) else { panic!("it is under way") };
        let flight = Arc::clone(&landing.flight);
        (landing, UnclaimedStart { wish: wish(), number, flight, trial: None })
    }

    fn wish() -> SessionWish {
        SessionWish { principal: None, payer: Payer::GATEWAY, message: Bytes::from_static(b"{}") }
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
