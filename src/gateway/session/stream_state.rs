//! Whether the stream of an upstream session is open: one at most, whichever thread wants it.
//!
//! Invariant: from [`StreamState::claim`] to [`StreamState::release`] or [`StreamState::refuse`] one task has the stream.

use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

const IDLE: u8 = 0;
const OPENING: u8 = 1;
const OPEN: u8 = 2;
const REFUSED: u8 = 3;

#[derive(Debug, Default)]
pub(crate) struct StreamState {
    state: AtomicU8,
    settled: Notify,
    resumed: Notify,
    after: Mutex<Option<Bytes>>,
}

impl StreamState {
    /// Whether nobody has to wait for it: it is open, or never will be.
    pub(crate) fn is_settled(&self) -> bool {
        self.state.load(Ordering::Acquire) >= OPEN
    }

    /// Waits until it is open, refused, or given up.
    pub(crate) async fn settled(&self) {
        // Asked for before the look, so that what happens in between is not missed.
        let settled = self.settled.notified();
        if self.state.load(Ordering::Acquire) == OPENING {
            settled.await;
        }
    }

    /// Takes it upon the caller to open it. False if another has, or the upstream refused.
    pub(crate) fn claim(&self) -> bool {
        self.state.compare_exchange(IDLE, OPENING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Nobody needs to wait for it any longer.
    pub(crate) fn settle(&self) {
        self.set(OPEN);
    }

    pub(crate) fn refuse(&self) {
        self.set(REFUSED);
    }

    pub(crate) fn release(&self) {
        self.set(IDLE);
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.state.load(Ordering::Acquire) == REFUSED
    }

    /// Asks whoever has the stream to go back to what came after an event.
    pub(crate) fn resume_after(&self, after: Bytes) {
        *self.after.lock() = Some(after);
        self.resumed.notify_one();
    }

    pub(crate) async fn resumed(&self) -> Bytes {
        loop {
            if let Some(after) = self.after.lock().take() {
                return after;
            }
            self.resumed.notified().await;
        }
    }

    fn set(&self, state: u8) {
        self.state.store(state, Ordering::Release);
        self.settled.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_has_it_and_the_others_wait() {
        let stream = StreamState::default();
        stream.settled().await;
        assert!(stream.claim() && !stream.claim() && !stream.is_settled());
        let waits = stream.settled();
        tokio::pin!(waits);
        assert!(futures_util::poll!(&mut waits).is_pending());
        stream.settle();
        waits.await;
        assert!(stream.is_settled() && !stream.claim());
        stream.release();
        assert!(stream.claim());
        stream.refuse();
        assert!(stream.is_settled() && stream.is_refused() && !stream.claim());
    }

    #[tokio::test]
    async fn the_latest_wish_counts() {
        let stream = StreamState::default();
        stream.resume_after(Bytes::from_static(b"1"));
        stream.resume_after(Bytes::from_static(b"2"));
        assert_eq!(stream.resumed().await, "2");
        let waits = stream.resumed();
        tokio::pin!(waits);
        assert!(futures_util::poll!(&mut waits).is_pending());
        stream.resume_after(Bytes::from_static(b"3"));
        assert_eq!(waits.await, "3");
    }
}
