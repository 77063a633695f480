//! The first sessions of a program that the gateway speaks to in the modern era: whether it opens any is found out by them.
//!
//! A process that has read `initialize` and says nothing for a while opens no session: its client comes over the bridge,
//! with enough of its time left. The time before it has read is its start, and says nothing of sessions.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::launch::call_told_at;
use crate::access::limit::payer::Payer;
use crate::clock;
use crate::upstream::mux::exchange::ConnectRequest;
use protocol::error::UpstreamError;
use protocol::version::Era;

/// The time in which a process that has read `initialize` answers it, if it ever does.
const PATIENCE: Duration = Duration::from_secs(5);
/// It has as much, however soon its client is told that the program is still starting.
const PATIENCE_MIN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(super) struct SessionTrial {
    /// The moment at which its client is told that the program is still starting.
    told_at: Instant,
}

impl SessionTrial {
    /// `None`: the session that is asked for is the gateway's own, or the program is not spoken to in the modern era alone.
    pub(super) fn of(asking: ConnectRequest<'_>) -> Option<Self> {
        let upstream = asking.upstream;
        let is_modern = upstream.config.eras.is_none() && upstream.lacks(Era::Legacy);
        let is_trial = is_modern && asking.payer != Payer::GATEWAY;
        is_trial.then(|| Self { told_at: call_told_at(asking.deadline) })
    }

    /// The answer to `initialize`, or `TimedOut` where the process has had its time since it has `read` that.
    pub(super) async fn answer<T>(
        self,
        read: CancellationToken,
        start_timeout: Duration,
        asked: impl Future<Output = Result<T, UpstreamError>>,
    ) -> Result<T, UpstreamError> {
        let silent = async {
            read.cancelled().await;
            // Before it is ended as one that does not start.
            sleep(self.patience(clock::now()).min(start_timeout / 2)).await;
        };
        tokio::select! {
            biased;
            answer = asked => answer,
            () = silent => Err(UpstreamError::TimedOut),
        }
    }

    /// The time that a process has which has read the question now: at most half of what its client has left, if that waits.
    fn patience(self, now: Instant) -> Duration {
        match self.told_at.saturating_duration_since(now) {
            Duration::ZERO => PATIENCE,
            left => (left / 2).clamp(PATIENCE_MIN, PATIENCE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_keeps_half_of_its_time_for_the_bridge() {
        let now = clock::now();
        let trial = SessionTrial { told_at: now + Duration::from_secs(55) };
        for (passed_s, patience_ms) in [(0, 5000), (45, 5000), (49, 3000), (54, 1000), (55, 5000), (90, 5000)]
        {
            let patience = trial.patience(now + Duration::from_secs(passed_s));
            assert_eq!(patience, Duration::from_millis(patience_ms), "{passed_s}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_process_begins_when_it_has_read_the_question() {
        let trial = SessionTrial { told_at: clock::now() + Duration::from_mins(1) };
        let read = CancellationToken::new();
        let start_timeout = Duration::from_mins(3);
        let late = async {
            sleep(Duration::from_secs(30)).await;
            read.cancel();
            sleep(Duration::from_secs(4)).await;
            Ok(())
        };
        assert_eq!(trial.answer(read.clone(), start_timeout, late).await, Ok(()));
        let silent = trial.answer::<()>(read, start_timeout, std::future::pending());
        assert_eq!(silent.await, Err(UpstreamError::TimedOut));
    }
}
