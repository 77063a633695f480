//! How far a request has come on its way to its upstream, for whoever must not overtake it.
//!
//! A request is *written* once its connection has taken all of it: a message that another connection carries may still
//! be read before it. It is *taken* once its reply has begun, or where the way to the upstream is one that keeps the order.

use std::pin::pin;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::withdrawal::Withdrawal;
use crate::clock;

/// How long after it was written a request counts as read, should its reply not begin earlier.
const READ_WITHIN: Duration = Duration::from_millis(200);

/// How far one request has come. Any thread may look.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    stage: Mutex<SendStage>,
    changed: Notify,
    /// Whether its client still wants an answer.
    pub(crate) withdrawal: Withdrawal,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SendStage {
    #[default]
    Waits,
    Written(Instant),
    Taken,
    Over,
}

impl Sending {
    /// Its connection has taken all of it.
    pub(crate) fn mark_written(&self) {
        self.advance(|stage| (stage == SendStage::Waits).then(|| SendStage::Written(clock::now())));
    }

    /// What is sent after it cannot overtake it.
    pub(crate) fn mark_taken(&self) {
        self.advance(|stage| (stage != SendStage::Over).then_some(SendStage::Taken));
    }

    /// It is about to be sent once more, elsewhere.
    pub(crate) fn restart(&self) {
        self.advance(|stage| (stage != SendStage::Over).then_some(SendStage::Waits));
    }

    /// It has its answer, or will never have one.
    pub(crate) fn mark_over(&self) {
        self.advance(|_| Some(SendStage::Over));
    }

    /// Whether what is sent now cannot overtake it.
    pub(crate) fn is_behind(&self) -> bool {
        match self.stage() {
            SendStage::Waits => false,
            SendStage::Written(at) => clock::since(at) >= READ_WITHIN,
            SendStage::Taken | SendStage::Over => true,
        }
    }

    /// Waits until what is sent then cannot overtake it. False: it is over.
    pub(crate) async fn behind(&self) -> bool {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Before the look, so that no change is missed.
            changed.as_mut().enable();
            match self.stage() {
                SendStage::Waits => changed.await,
                SendStage::Taken => return true,
                SendStage::Over => return false,
                SendStage::Written(at) => {
                    let until = at + READ_WITHIN;
                    if clock::now() >= until {
                        return true;
                    }
                    tokio::select! {
                        () = changed => {}
                        () = sleep_until(until.into()) => {}
                    }
                }
            }
        }
    }

    fn stage(&self) -> SendStage {
        *self.stage.lock()
    }

    fn advance(&self, next: impl FnOnce(SendStage) -> Option<SendStage>) {
        let mut stage = self.stage.lock();
        let Some(next) = next(*stage).filter(|next| next != &*stage) else { return };
        *stage = next;
        drop(stage);
        self.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_written_is_waited_for_a_moment() {
        let sending = Sending::default();
        let mut behind = Box::pin(sending.behind());
        assert!(futures_util::poll!(behind.as_mut()).is_pending() && !sending.is_behind());
        sending.mark_written();
        assert!(futures_util::poll!(behind.as_mut()).is_pending() && !sending.is_behind());
        sending.mark_taken();
        assert!(behind.await && sending.is_behind());
        sending.restart();
        assert!(!sending.is_behind());
        sending.mark_over();
        sending.restart();
        assert!(!sending.behind().await);
    }
}
