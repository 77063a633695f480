//! The end of a call whose client wants no answer any more: a server that was told so says nothing, and whoever waits for
//! its answer must not wait for ever.
//!
//! One task at a time waits for an answer, and leaves its waker here when it first has to wait ([`WaitingTask`]). A call that
//! nobody cancels costs no more than that.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Poll, Waker};

use parking_lot::Mutex;

const WANTED: u8 = 0;
const CANCELLED: u8 = 1;
const GIVEN_UP: u8 = 2;

/// Whether the answer to a call is wanted. Any thread may look.
#[derive(Debug, Default)]
pub(crate) struct Withdrawal {
    state: AtomicU8,
    waiting: Mutex<Option<Waker>>,
}

impl Withdrawal {
    /// The client wants no answer. True for the first who says so.
    pub(crate) fn cancel(&self) -> bool {
        self.state.compare_exchange(WANTED, CANCELLED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.state.load(Ordering::Relaxed) != WANTED
    }

    /// Its server had the time to answer all the same. Wakes the task that waits.
    pub(crate) fn give_up(&self) {
        self.state.store(GIVEN_UP, Ordering::Release);
        let waiting = self.waiting.lock().take();
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.state.load(Ordering::Acquire) == GIVEN_UP
    }

    /// Leaves the waker of the task that waits, in the place of another. True: it waits in vain already.
    #[inline(never)]
    pub(crate) fn watch(&self, waker: &Waker) -> bool {
        *self.waiting.lock() = Some(waker.clone());
        self.is_given_up()
    }

    /// Waits until the call is given up.
    pub(crate) async fn given_up(&self) {
        poll_fn(|cx| if self.watch(cx.waker()) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

/// The task that polls what a call may end, as far as it has left its waker: another one may poll it later.
#[derive(Debug, Default)]
pub(crate) struct WaitingTask(usize);

impl WaitingTask {
    /// True if the call is given up; else the task of this waker is woken when it is.
    pub(crate) fn is_given_up(&mut self, withdrawal: &Withdrawal, task: &Waker) -> bool {
        // A waker that was left keeps its task, so that no other one has this number.
        let number = task.data().addr();
        if std::mem::replace(&mut self.0, number) == number {
            withdrawal.is_given_up()
        } else {
            withdrawal.watch(task)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_is_woken_once_the_call_is_given_up() {
        let withdrawal = std::sync::Arc::new(Withdrawal::default());
        let held = std::sync::Arc::clone(&withdrawal);
        let waiting = tokio::spawn(async move { held.given_up().await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        assert!(withdrawal.cancel() && !withdrawal.cancel());
        assert!(withdrawal.is_cancelled() && !withdrawal.is_given_up());
        withdrawal.give_up();
        waiting.await.expect("it ends");
        assert!(withdrawal.is_given_up() && !withdrawal.cancel());
    }
}
