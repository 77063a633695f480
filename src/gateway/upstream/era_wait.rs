//! Waiting until it is known which eras an upstream speaks: the first message of a connection may decide that.
//!
//! Of a program it is known once it has answered, however long its start takes. All who need it wait as long as
//! it has time, and is told that the program is still starting then. A reload that takes the upstream away ends the wait.

use std::time::{Duration, Instant};

use http::HeaderValue;
use tokio::time::{timeout, timeout_at};

use super::mux::host::Host;
use super::start_state::StartState;
use super::stdio::launch::{Wanted, call_told_at, still_starting};
use super::{Transport, Upstream};
use crate::access::limit::payer::Payer;
use crate::clock;
use protocol::error::UpstreamError;

impl Upstream {
    /// Waits as a call on the thread of `host` may: for `patience`, or as long as the program starts within the time of the
    /// call. Returns the end of that time, if it has begun.
    #[cold]
    pub(crate) async fn known_for_call(
        &self,
        host: &Host,
        patience: Duration,
    ) -> Result<Option<Instant>, UpstreamError> {
        let Transport::Stdio(children) = &self.transport else {
            self.facts.tried_within(patience).await;
            return Ok(None);
        };
        let _wanted = Wanted::new(children.wanted());
        let deadline = clock::now() + self.config.response_timeout;
        let tried = timeout_at(call_told_at(deadline).into(), self.facts.tried());
        let tried = host.unless_closing(tried).await;
        tried.and_then(Result::ok).unwrap_or_else(|| Err(still_starting())).map(|()| Some(deadline))
    }

    /// Waits as a list may: for `patience`, after which a program is still starting.
    pub(crate) async fn known_for_list(&self, host: &Host, patience: Duration) -> Result<(), UpstreamError> {
        let Transport::Stdio(children) = &self.transport else {
            self.facts.tried_within(patience).await;
            return Ok(());
        };
        let _wanted = Wanted::new(children.wanted());
        let tried = host.unless_closing(timeout(patience, self.facts.tried())).await;
        tried.and_then(Result::ok).unwrap_or_else(|| Err(still_starting()))
    }

    /// While it lives, a program is among those that somebody waits for.
    pub(crate) fn wanted(&self) -> Option<Wanted> {
        let Transport::Stdio(children) = &self.transport else { return None };
        Some(Wanted::new(children.wanted()))
    }

    /// True if a session with it is one with a process that has ended.
    pub(crate) fn has_ended(&self, session: Option<&HeaderValue>) -> bool {
        let (Transport::Stdio(children), Some(id)) = (&self.transport, session) else { return false };
        !children.carries(id)
    }

    /// The time until the gateway may start a program again to initialize it that has ended before it was of use, or has
    /// refused that.
    pub(crate) fn start_pause(&self) -> Option<Duration> {
        let Transport::Stdio(children) = &self.transport else { return None };
        children.start_pause(true, clock::now()).max(children.initialize_pause(Payer::GATEWAY))
    }

    /// True for a program that starts, or that was not asked yet what it speaks: there is nothing to be had of it.
    pub(crate) fn is_starting(&self) -> bool {
        let Some(starts) = self.starts().filter(|_| !self.facts.is_over()) else { return false };
        matches!(starts.state(), StartState::Queued { .. } | StartState::Running { .. })
            || (self.eras().is_none() && !self.facts.known().was_tried)
    }
}
