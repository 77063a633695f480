//! Whose turn it is to start a program: so many at once as the machine can bear, those first that somebody waits for,
//! then in the order of the configuration.
//!
//! After their first turns, upstreams take turns: first the one that holds the fewest, then the one that had its last turn
//! longest ago. Programs that somebody waits for again and again keep no other from its turn for good.
//!
//! A turn lasts until the program has answered, or for [`TURN_TIME_MAX`](super::launch::TURN_TIME_MAX).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// So many turns go to upstreams that had one before, and the next is given without regard to who is waited for.
const REPEATED_MAX: usize = 3;

/// The programs that start, and those that wait for it. Shared by all threads.
#[derive(Debug)]
pub(crate) struct StartQueue(Mutex<Turns>);

#[derive(Debug)]
struct Turns {
    max: usize,
    taken: usize,
    /// Counts who comes and who has a turn.
    next: u64,
    /// The turns of upstreams that had one before, since one was given without regard to who is waited for.
    repeated: usize,
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
    past: Arc<PastTurns>,
}

/// The turns that one upstream had. They change while the queue is locked.
#[derive(Debug, Default)]
struct PastTurns {
    /// Those that it has now.
    held: AtomicUsize,
    /// The number of its last one; 0: it had none.
    last: AtomicU64,
}

/// The right to start one program. Dropped, it is the next one's.
#[derive(Debug)]
pub(crate) struct StartTurn {
    queue: Option<Arc<StartQueue>>,
    past: Arc<PastTurns>,
}

impl StartPlace {
    pub(crate) fn new(order: usize) -> Self {
        Self { order, wanted: Arc::default(), past: Arc::default() }
    }
}

impl StartQueue {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Turns { max, taken: 0, next: 1, repeated: 0, waiting: Vec::new() })))
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
            let number = turns.number();
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
            let turn = StartTurn { queue: Some(Arc::clone(self)), past: next.place.past };
            if let Err(mut refused) = next.turn.send(turn) {
                // It has left; the turn is given back here, as its drop would come to this again.
                refused.queue = None;
                self.0.lock().give_back(&refused.past);
            }
        }
    }
}

impl Turns {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn next(&mut self) -> Option<Waiting> {
        if self.taken >= self.max {
            return None;
        }
        self.waiting.retain(|waiting| !waiting.turn.is_closed());
        let is_for_any = self.repeated >= REPEATED_MAX;
        let rank = |Waiting { place, number, .. }: &Waiting| {
            let is_ahead = !is_for_any && place.wanted.load(Ordering::Relaxed) > 0;
            let PastTurns { held, last } = &*place.past;
            (!is_ahead, held.load(Ordering::Relaxed), last.load(Ordering::Relaxed), place.order, *number)
        };
        let (at, _) = self.waiting.iter().enumerate().min_by_key(|(_, waiting)| rank(waiting))?;
        let next = self.waiting.swap_remove(at);
        self.taken += 1;
        next.place.past.held.fetch_add(1, Ordering::Relaxed);
        let is_first = next.place.past.last.swap(self.number(), Ordering::Relaxed) == 0;
        self.repeated = if is_for_any { 0 } else { self.repeated + usize::from(!is_first) };
        Some(next)
    }

    fn give_back(&mut self, past: &PastTurns) {
        self.taken -= 1;
        past.held.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for StartTurn {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.0.lock().give_back(&self.past);
            queue.advance();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn place(order: usize, waiters: usize) -> StartPlace {
        StartPlace { wanted: Arc::new(AtomicUsize::new(waiters)), ..StartPlace::new(order) }
    }

    /// Those whose turns come, one after the other, where each comes again as soon as its turn is over.
    async fn turns_of(places: &[StartPlace], count: usize) -> Vec<usize> {
        let queue = StartQueue::new(1);
        let mut running = queue.turn(place(0, 0)).await;
        let mut waiting: Vec<_> = places.iter().map(|place| Box::pin(queue.turn(place.clone()))).collect();
        assert!(waiting.iter_mut().all(|turn| turn.now_or_never().is_none()));
        let mut had = Vec::new();
        for _ in 0..count {
            drop(running);
            let next = waiting.iter_mut().enumerate().find_map(|(at, turn)| Some((at, turn.now_or_never()?)));
            let (at, turn) = next.expect("it is somebody's turn");
            waiting[at] = Box::pin(queue.turn(places[at].clone()));
            assert!((&mut waiting[at]).now_or_never().is_none(), "there is one turn");
            running = turn;
            had.push(at);
        }
        had
    }

    #[tokio::test]
    async fn upstreams_that_start_again_and_again_take_turns() {
        // Those that hang come again: whoever stands behind them has a turn before.
        let places: Vec<_> = [(0, 1), (1, 1), (2, 1), (3, 0), (4, 0)].map(|(at, of)| place(at, of)).into();
        assert_eq!(turns_of(&places, 7).await, [0, 1, 2, 0, 1, 2, 3]);
        let had = turns_of(&places, 60).await;
        for at in 0..places.len() {
            let turns = had.iter().filter(|had| **had == at).count();
            assert!(turns >= 6, "{at} had {turns} turns: {had:?}");
        }
        // Starts of one upstream without end.
        let first = place(0, 1);
        let mut places = vec![first; 8];
        places.extend([place(1, 1), place(2, 0)]);
        let had = turns_of(&places, 8).await;
        assert_eq!(had.iter().position(|at| *at == 8), Some(1), "{had:?}");
        assert!(had.contains(&9), "{had:?}");
    }

    #[tokio::test]
    async fn an_upstream_whose_starts_take_long_does_not_hold_all_turns() {
        let queue = StartQueue::new(3);
        let (slow, other) = (place(0, 1), place(1, 1));
        let mut held: Vec<StartTurn> = Vec::new();
        for _ in 0..2 {
            held.push(queue.turn(slow.clone()).await);
        }
        let running = queue.turn(other.clone()).await;
        // The other one had its turn last, and holds none by now.
        let mut again = Box::pin(queue.turn(slow.clone()));
        let mut others = Box::pin(queue.turn(other.clone()));
        assert!((&mut again).now_or_never().is_none() && (&mut others).now_or_never().is_none());
        drop(running);
        assert!((&mut again).now_or_never().is_none() && (&mut others).now_or_never().is_some());
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
