//! Whose turn it is to start a program: so many at once as the machine can bear, those first that somebody waits for,
//! then in the order of the configuration.
//!
//! A turn lasts until the program has answered, or for [`TURN_TIME_MAX`](super::launch::TURN_TIME_MAX).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The programs that start, and those that wait for it. Shared by all threads.
#[derive(Debug)]
pub(crate) struct StartQueue(Mutex<Turns>);

#[derive(Debug)]
struct Turns {
    max: usize,
    taken: usize,
    next: u64,
    waiting: Vec<Waiting>,
}

/// One that waits.
#[derive(Debug)]
struct Waiting {
    place: StartPlace,
    number: u64,
    turn: oneshot::Sender<StartTurn>,
}

/// The things that say whose turn is next.
#[derive(Clone, Debug)]
pub(crate) struct StartPlace {
    /// Where its upstream stands in the configuration.
    pub order: usize,
    /// The number of calls and lists that wait for the upstream.
    pub wanted: Arc<AtomicUsize>,
}

/// The right to start one program. Dropped, it is the next one's.
#[derive(Debug)]
pub(crate) struct StartTurn(Option<Arc<StartQueue>>);

impl StartQueue {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Turns { max, taken: 0, next: 0, waiting: Vec::new() })))
    }

    pub(crate) fn set_max(self: &Arc<Self>, max: usize) {
        self.0.lock().max = max;
        self.advance();
    }

    /// Waits for the turn of a program. Dropped before, it waits no more.
    pub(crate) async fn turn(self: &Arc<Self>, place: StartPlace) -> StartTurn {
        let receiver = {
            let mut turns = self.0.lock();
            let (turn, receiver) = oneshot::channel();
            let number = turns.next;
            turns.next += 1;
            turns.waiting.push(Waiting { place, number, turn });
            receiver
        };
        self.advance();
        match receiver.await {
            Ok(turn) => turn,
            // The queue lets go of nobody; it is this future's own.
            Err(_) => std::future::pending().await,
        }
    }

    /// Gives turns to those who are next.
    fn advance(self: &Arc<Self>) {
        loop {
            let Some(next) = self.0.lock().next() else { return };
            if let Err(mut refused) = next.turn.send(StartTurn(Some(Arc::clone(self)))) {
                // It has left; the turn is given back here, as its drop would come to this again.
                refused.0 = None;
                let mut turns = self.0.lock();
                turns.taken -= 1;
                turns.waiting.retain(|waiting| !waiting.turn.is_closed());
            }
        }
    }
}

impl Turns {
    fn next(&mut self) -> Option<Waiting> {
        if self.taken >= self.max {
            return None;
        }
        let rank = |waiting: &Waiting| {
            let is_wanted = waiting.place.wanted.load(Ordering::Relaxed) > 0;
            (!is_wanted, waiting.place.order, waiting.number)
        };
        let (at, _) = self.waiting.iter().enumerate().min_by_key(|(_, waiting)| rank(waiting))?;
        self.taken += 1;
        Some(self.waiting.swap_remove(at))
    }
}

impl Drop for StartTurn {
    fn drop(&mut self) {
        if let Some(queue) = self.0.take() {
            queue.0.lock().taken -= 1;
            queue.advance();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn place(order: usize, waiters: usize) -> StartPlace {
        StartPlace { order, wanted: Arc::new(AtomicUsize::new(waiters)) }
    }

    #[tokio::test]
    async fn those_come_first_that_somebody_waits_for_then_in_order() {
        let queue = StartQueue::new(1);
        let running = queue.turn(place(0, 0)).now_or_never().expect("there is room");
        let mut turns: Vec<_> =
            [place(3, 0), place(2, 0), place(9, 1)].map(|place| Box::pin(queue.turn(place))).into();
        assert!(turns.iter_mut().all(|turn| turn.now_or_never().is_none()));
        drop(running);
        let wanted = (&mut turns[2]).now_or_never().expect("somebody waits for it");
        assert!((&mut turns[1]).now_or_never().is_none());
        drop(wanted);
        let second = (&mut turns[1]).now_or_never().expect("it stands first");
        drop(second);
        assert!((&mut turns[0]).now_or_never().is_some());
    }

    #[tokio::test]
    async fn who_leaves_keeps_no_turn_and_more_may_start_at_once() {
        let queue = StartQueue::new(1);
        let running = queue.turn(place(0, 0)).await;
        let mut left = Box::pin(queue.turn(place(1, 0)));
        let mut stays = Box::pin(queue.turn(place(2, 0)));
        assert!((&mut left).now_or_never().is_none() && (&mut stays).now_or_never().is_none());
        drop(left);
        drop(running);
        let one = (&mut stays).now_or_never().expect("the one before it has left");
        let mut other = Box::pin(queue.turn(place(3, 0)));
        assert!((&mut other).now_or_never().is_none());
        queue.set_max(2);
        assert!((&mut other).now_or_never().is_some());
        drop(one);
        assert_eq!(queue.0.lock().taken, 0);
    }
}
