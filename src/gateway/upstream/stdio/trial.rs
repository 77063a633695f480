//! The first sessions of a program that the gateway speaks to in the modern era: they show that it opens any, or that it opens none
//! for clients like theirs ([`opening`](super::opening)).
//!
//! How long its process has is for the program to say, by the time that it takes to start: a client that cannot wait so long comes
//! over the bridge, or leaves, and the trial goes on without it.

use std::time::Duration;

use super::launch::call_told_at;
use super::opening::TrialWatch;
use super::{Children, own_initialize};
use crate::access::limit::payer::Payer;
use crate::clock;
use crate::upstream::mux::exchange::ConnectRequest;
use protocol::error::UpstreamError;
use protocol::version::Era;

/// The time in which a process that has read `initialize` answers it, if it ever does: so many times that of its start, within
/// these bounds.
const PATIENCE_STARTS: u32 = 2;
const PATIENCE_MIN: Duration = Duration::from_secs(5);
const PATIENCE_MAX: Duration = Duration::from_secs(20);
/// Errors of servers that do not know sessions: no method, no request of theirs, no such revision. Any other may have its cause in
/// what is asked, or pass.
const FINAL_ERRORS: [i64; 3] = [-32601, -32600, -32022];

/// The time that a process has since it has read the question: by what its start took until then, or that of the last one that came
/// up. It is over before the process is ended as one that does not start.
pub(super) fn patience(took: Duration, start_timeout: Duration) -> Duration {
    (took * PATIENCE_STARTS).clamp(PATIENCE_MIN, PATIENCE_MAX).min(start_timeout / 2)
}

/// True if the session that is asked for may be a trial: it is a client's, and the program is spoken to in the modern era alone.
pub(super) fn may_be_trial(asking: ConnectRequest<'_>) -> bool {
    let upstream = asking.upstream;
    upstream.config.eras.is_none() && upstream.lacks(Era::Legacy) && asking.payer != Payer::GATEWAY
}

/// True if the answer to `initialize` says that the program knows no sessions.
pub(super) fn is_final(answer: &[u8], json_depth_max: usize) -> bool {
    own_initialize::error_code(answer, json_depth_max).is_some_and(|code| FINAL_ERRORS.contains(&code))
}

impl Children {
    /// True if the program opened no session for a client that introduces itself as this `initialize` does, and is not to be asked
    /// for another yet.
    pub(crate) fn is_bridged_for(&self, initialize: impl FnOnce() -> String, json_depth_max: usize) -> bool {
        if !self.opening.has_tried() {
            return false;
        }
        let introduction = self.opening.introduction(initialize().as_bytes(), json_depth_max);
        self.opening.is_bridged_for(introduction, clock::now())
    }

    /// True if the program was to open sessions, and has opened none so far.
    pub(crate) fn opens_none(&self) -> bool {
        self.opening.opens_none()
    }

    /// Waits for what a trial of another session shows. `OtherEra`: this one, of a client with this introduction, is to come over
    /// the bridge.
    pub(super) async fn wait_for_trial(
        &self,
        asking: ConnectRequest<'_>,
        introduction: u64,
        trial: &TrialWatch,
    ) -> Result<(), UpstreamError> {
        let over = async {
            trial.over().await;
            let is_bridged = self.opening.is_bridged_for(introduction, clock::now());
            Some(if is_bridged { Err(UpstreamError::OtherEra) } else { Ok(()) })
        };
        self.unless_client_is_late(asking, Some(trial), self.wait_for_start(asking, over)).await
    }

    /// The outcome of `waiting`, or `OtherEra` for a client of which enough time has passed for the process of a trial.
    pub(super) async fn unless_client_is_late<T>(
        &self,
        asking: ConnectRequest<'_>,
        trial: Option<&TrialWatch>,
        waiting: impl Future<Output = Result<T, UpstreamError>>,
    ) -> Result<T, UpstreamError> {
        let late = async {
            match trial {
                Some(trial) => trial.client_time(call_told_at(asking.deadline)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            outcome = waiting => outcome,
            () = late => Err(UpstreamError::OtherEra),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_twice_the_time_of_its_start_within_bounds() {
        let minutes = Duration::from_mins(3);
        for (took_s, start_timeout, expected_s) in [
            (0, minutes, 5),
            (2, minutes, 5),
            (4, minutes, 8),
            (9, minutes, 18),
            (11, minutes, 20),
            (600, minutes, 20),
            (4, Duration::from_secs(8), 4),
            (0, Duration::from_secs(8), 4),
        ] {
            let patience = patience(Duration::from_secs(took_s), start_timeout);
            assert_eq!(patience, Duration::from_secs(expected_s), "{took_s}");
        }
    }

    #[test]
    fn only_errors_of_servers_that_know_no_sessions_are_final() {
        for (code, expected) in [
            (-32601, true),
            (-32600, true),
            (-32022, true),
            (-32603, false),
            (-32602, false),
            (-32000, false),
            (-32021, false),
        ] {
            let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"no"}}}}"#);
            assert_eq!(is_final(answer.as_bytes(), 8), expected, "{code}");
        }
        assert!(!is_final(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#, 8) && !is_final(b"[", 8));
    }
}
