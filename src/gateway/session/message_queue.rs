//! Notifications and responses of one client's session that wait for one upstream, in the order in which they came.
//!
//! Whoever posts the first one sends all that come until the queue is empty ([`QueueDelivery`]); any thread may post. Places are
//! taken before a message is, so that who finds no room is told before anything has changed.
//!
//! Deliberately not here: how a message is sent, and how long that may take.
//!
//! Invariants: messages leave in the order in which they were posted, one at a time; there are never more than there are
//! places; nothing waits under the lock.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::session_state::UpstreamSession;
use crate::access::limit::shares::Share;

#[derive(Debug, Default)]
pub(crate) struct MessageQueue {
    inner: Mutex<MessageQueueState>,
    /// A message was sent or given up.
    changed: Notify,
}

#[derive(Debug, Default)]
struct MessageQueueState {
    waiting: VecDeque<QueuedMessage>,
    /// Places that are taken: for messages that wait, that are on their way, or that are about to be posted.
    places: usize,
    posted: u64,
    finished: u64,
    is_delivering: bool,
}

#[derive(Debug)]
pub(crate) struct QueuedMessage {
    pub session: Arc<UpstreamSession>,
    pub body: Bytes,
    pub posted_at: Instant,
    /// Its share of the memory for messages.
    pub reservation: Option<Share>,
}

/// Room for one message; given back when it is dropped unused.
#[derive(Debug)]
pub(crate) struct QueuePlace {
    queue: Arc<MessageQueue>,
    is_used: bool,
}

/// The right and the duty to send what waits. Only one has it at a time. Whoever drops it early gives up the message that it
/// has taken; the rest waits for the next one who posts.
#[derive(Debug)]
pub(crate) struct QueueDelivery {
    queue: Arc<MessageQueue>,
    is_sending: bool,
    is_over: bool,
}

impl MessageQueue {
    /// Room for one more message. `None`: `messages_max` are there.
    pub(crate) fn reserve(self: &Arc<Self>, messages_max: usize) -> Option<QueuePlace> {
        let mut inner = self.inner.lock();
        if inner.places >= messages_max {
            return None;
        }
        inner.places += 1;
        Some(QueuePlace { queue: Arc::clone(self), is_used: false })
    }

    /// Whether nothing waits and nothing is on its way.
    pub(crate) fn is_empty(&self) -> bool {
        let inner = self.inner.lock();
        inner.posted == inner.finished
    }

    /// Waits until all that was posted by now was sent or given up.
    pub(crate) async fn sent_so_far(&self) {
        let until = self.inner.lock().posted;
        loop {
            let mut changed = pin!(self.changed.notified());
            // Before the look, so that no change is missed.
            changed.as_mut().enable();
            if self.inner.lock().finished >= until {
                return;
            }
            changed.await;
        }
    }
}

impl QueuePlace {
    /// Puts a message at the end of the queue. The one who is given the delivery sends it.
    pub(crate) fn post(mut self, message: QueuedMessage) -> Option<QueueDelivery> {
        self.is_used = true;
        let mut inner = self.queue.inner.lock();
        inner.waiting.push_back(message);
        inner.posted += 1;
        let is_first = !std::mem::replace(&mut inner.is_delivering, true);
        drop(inner);
        let queue = &self.queue;
        is_first.then(|| QueueDelivery { queue: Arc::clone(queue), is_sending: false, is_over: false })
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        if !self.is_used {
            self.queue.inner.lock().places -= 1;
        }
    }
}

impl QueueDelivery {
    /// The next message, to be told [`QueueDelivery::finish`] of. `None`: there is none, and whoever posts the next one is
    /// given another delivery.
    pub(crate) fn take_next(&mut self) -> Option<QueuedMessage> {
        let mut inner = self.queue.inner.lock();
        let next = inner.waiting.pop_front();
        inner.is_delivering = next.is_some();
        (self.is_sending, self.is_over) = (next.is_some(), next.is_none());
        next
    }

    /// The message was sent, or given up.
    pub(crate) fn finish(&mut self) {
        self.is_sending = false;
        let mut inner = self.queue.inner.lock();
        inner.finished += 1;
        inner.places -= 1;
        drop(inner);
        self.queue.changed.notify_waiters();
    }
}

impl Drop for QueueDelivery {
    fn drop(&mut self) {
        if self.is_sending {
            self.finish();
        }
        if !self.is_over {
            self.queue.inner.lock().is_delivering = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::version::LegacyVersion;

    fn message(text: &'static str) -> QueuedMessage {
        let session = Arc::new(UpstreamSession::new(None, LegacyVersion::NEWEST));
        QueuedMessage {
            session,
            body: Bytes::from_static(text.as_bytes()),
            posted_at: crate::clock::now(),
            reservation: None,
        }
    }

    #[test]
    fn one_delivers_all_in_order() {
        let queue = Arc::new(MessageQueue::default());
        let post = |text| queue.reserve(9).expect("room").post(message(text));
        let mut delivery = post("a").expect("the first one delivers");
        assert!(post("b").is_none());
        for text in ["a", "b"] {
            assert!(!queue.is_empty());
            assert_eq!(delivery.take_next().expect("a message").body, text);
            delivery.finish();
        }
        assert!(queue.is_empty() && delivery.take_next().is_none());
        assert!(post("c").is_some());
    }

    #[test]
    fn a_delivery_that_is_dropped_leaves_the_rest_to_the_next() {
        let queue = Arc::new(MessageQueue::default());
        let post = |text| queue.reserve(3).expect("room").post(message(text));
        let mut delivery = post("a").expect("the first one delivers");
        assert!(post("b").is_none() && delivery.take_next().is_some());
        drop(delivery);
        let mut delivery = post("c").expect("nobody delivers");
        for text in ["b", "c"] {
            assert_eq!(delivery.take_next().expect("a message").body, text);
            delivery.finish();
        }
        assert!(delivery.take_next().is_none() && queue.is_empty());
        let next = post("d").expect("nobody delivers");
        drop(delivery);
        assert!(post("e").is_none());
        drop(next);
    }

    #[test]
    fn places_are_bounded_and_given_back() {
        let queue = Arc::new(MessageQueue::default());
        let unused = queue.reserve(2).expect("room");
        let mut delivery = queue.reserve(2).expect("room").post(message("a")).expect("the first one");
        assert!(queue.reserve(2).is_none());
        drop(unused);
        let place = queue.reserve(2).expect("room");
        assert!(queue.reserve(2).is_none());
        drop(place);
        assert!(delivery.take_next().is_some());
        delivery.finish();
        let places: Vec<_> = (0..3).map_while(|_| queue.reserve(2)).collect();
        assert_eq!(places.len(), 2);
    }

    #[tokio::test]
    async fn only_what_came_before_is_waited_for() {
        let queue = Arc::new(MessageQueue::default());
        queue.sent_so_far().await;
        let mut delivery = queue.reserve(9).expect("room").post(message("a")).expect("the first one");
        let mut waiting = pin!(queue.sent_so_far());
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        assert!(queue.reserve(9).expect("room").post(message("b")).is_none());
        assert!(delivery.take_next().is_some());
        delivery.finish();
        assert!(futures_util::poll!(waiting.as_mut()).is_ready());
    }
}
