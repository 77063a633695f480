//! How many connections are served at once, and who makes room: the one that has been there longest, once it had time
//! enough for an honest request. So those who open connections and say nothing cannot keep others out.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::pending;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use prometheus::IntCounter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// Connections served at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 64;
/// Time that every connection has.
const UNDISTURBED: Duration = Duration::from_secs(2);

/// The connections that are served.
#[derive(Debug)]
pub(super) struct ConnectionLimiter {
    places: Arc<Semaphore>,
    /// Those that came first stand first.
    present: Rc<RefCell<VecDeque<(Instant, CancellationToken)>>>,
    undisturbed: Duration,
    evicted: IntCounter,
}

/// A place that nobody has yet.
pub(super) struct FreeSlot {
    permit: Option<OwnedSemaphorePermit>,
    present: Rc<RefCell<VecDeque<(Instant, CancellationToken)>>>,
}

/// The place of a connection.
pub(super) struct ServedConnection {
    wanted: CancellationToken,
    present: Rc<RefCell<VecDeque<(Instant, CancellationToken)>>>,
    since: Instant,
    _permit: Option<OwnedSemaphorePermit>,
}

impl ConnectionLimiter {
    pub(super) fn new(evicted: IntCounter) -> Self {
        Self::with(UNDISTURBED, evicted)
    }

    fn with(undisturbed: Duration, evicted: IntCounter) -> Self {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Self { places, present: Rc::default(), undisturbed, evicted }
    }

    /// Waits for a place; somebody may have to make room.
    pub(super) async fn place(&self) -> FreeSlot {
        let free = pin!(Arc::clone(&self.places).acquire_owned());
        let make_room = async {
            let oldest = self.present.borrow().front().map(|(since, _)| *since + self.undisturbed);
            if let Some(due) = oldest {
                sleep_until(due).await;
            }
            let oldest = self.present.borrow_mut().pop_front();
            if let Some((_, wanted)) = oldest {
                self.evicted.inc();
                wanted.cancel();
            }
            // One is enough. It leaves when its task runs.
            pending().await
        };
        let permit = tokio::select! {
            biased;
            permit = free => permit,
            permit = make_room => permit,
        };
        // Nobody closes the semaphore.
        FreeSlot { permit: permit.ok(), present: Rc::clone(&self.present) }
    }
}

impl FreeSlot {
    /// A connection has come.
    pub(super) fn taken(self) -> ServedConnection {
        let Self { permit, present } = self;
        let (since, wanted) = (Instant::now(), CancellationToken::new());
        present.borrow_mut().push_back((since, wanted.clone()));
        ServedConnection { wanted, present, since, _permit: permit }
    }
}

impl ServedConnection {
    /// Waits until it is needed for another.
    pub(super) async fn wanted(&self) {
        self.wanted.cancelled().await;
    }
}

impl Drop for ServedConnection {
    fn drop(&mut self) {
        let mut present = self.present.borrow_mut();
        let first = present.partition_point(|(since, _)| *since < self.since);
        let own = (first..present.len()).find(|at| present[*at].1 == self.wanted);
        if let Some(at) = own {
            present.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNDISTURBED: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn the_oldest_makes_room_but_not_at_once() {
        let counter = IntCounter::new("c", "C.").expect("a counter");
        let limiter = ConnectionLimiter::with(UNDISTURBED, counter.clone());
        let mut places = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            places.push(limiter.place().await.taken());
        }
        let oldest = places.remove(0);
        let leave = async move {
            oldest.wanted().await;
            oldest.since.elapsed()
        };
        let (free, waited) = tokio::join!(limiter.place(), leave);
        assert!(waited >= UNDISTURBED, "{waited:?}");
        assert_eq!(counter.get(), 1, "one is enough, though all have had their time");
        drop(free.taken());
        drop(limiter.place().await);
        assert_eq!(counter.get(), 1, "there was room");
    }
}
