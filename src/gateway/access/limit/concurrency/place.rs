//! The place of one call at an upstream, from when it may begin until its server is done with it, as far as that can be
//! known.
//!
//! A call that ends with an answer or an error gives its place back at once. One that was left (its client is gone, or has
//! cancelled it) keeps it for as long as calls of its tool usually take: its server is told, but nobody sees when it has
//! stopped. Where an answer can still be seen, as of a child process, the place is kept until it comes, and no longer than
//! the upstream has for an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Permit;
use crate::clock;
use crate::telemetry::metrics::EndpointSeries;
use crate::telemetry::tools::ToolId;

/// A place is kept for so long at least.
const KEPT_MIN: Duration = Duration::from_secs(1);
/// Nearly all calls of a tool take no longer than this part of them.
const USUAL_PERCENT: u8 = 90;

/// What is known of how long a call may take.
#[derive(Debug)]
pub(crate) struct UsualTime {
    /// Where calls of its tool are measured.
    pub series: Arc<EndpointSeries>,
    pub tool: Option<ToolId>,
    /// The time that its upstream has for an answer.
    pub max: Duration,
}

/// How the end of a call is seen that nobody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndSeen {
    /// It is not.
    Never,
    /// It is not, and the answer to a call that was cancelled is the gateway's own, as its server speaks another era.
    Bridged,
    /// By its answer, or by the end of its process.
    ByAnswer,
}

/// Shared by all who have to do with the call; given back, or kept, with the last of them, or once it is answered.
#[derive(Debug)]
pub(crate) struct CallPlace {
    permit: Permit,
    usual: UsualTime,
    end_seen: EndSeen,
    /// Its server may be at work on the call.
    is_at_work: AtomicBool,
}

impl CallPlace {
    pub(crate) fn new(permit: Permit, usual: UsualTime, end_seen: EndSeen) -> Arc<Self> {
        Arc::new(Self { permit, usual, end_seen, is_at_work: AtomicBool::new(false) })
    }

    /// The call is about to be sent.
    pub(crate) fn begin(&self) {
        self.is_at_work.store(true, Ordering::Relaxed);
    }

    /// The call is over: its server has answered, or did not get it. With `is_cancelled`, its client wanted no answer.
    pub(crate) fn end(&self, is_cancelled: bool) {
        if !(is_cancelled && self.end_seen == EndSeen::Bridged) {
            self.is_at_work.store(false, Ordering::Relaxed);
        }
    }

    /// As [`end`](Self::end), where the call is not made again: the place is free, whoever else still holds it.
    pub(crate) fn finish(&self, is_cancelled: bool) {
        self.end(is_cancelled);
        if !self.is_at_work.load(Ordering::Relaxed) {
            self.permit.give_back();
        }
    }

    /// Nobody waits for the answer any more. Others may be given the place from now on.
    #[cold]
    pub(crate) fn keep(&self) {
        if self.is_at_work.load(Ordering::Relaxed) {
            let sees_end = self.end_seen == EndSeen::ByAnswer;
            let time = if sees_end { self.usual.max } else { self.usual.time() };
            self.permit.keep(clock::now() + time);
        }
    }

    #[cold]
    fn leave(&self) {
        self.permit.leave(clock::now() + self.usual.time());
    }
}

impl UsualTime {
    fn time(&self) -> Duration {
        let measured = self.tool.and_then(|tool| self.series.tool_quantile(tool, USUAL_PERCENT));
        measured.unwrap_or_default().max(KEPT_MIN).min(self.max)
    }
}

impl Drop for CallPlace {
    fn drop(&mut self) {
        if *self.is_at_work.get_mut() {
            self.leave();
        }
    }
}
