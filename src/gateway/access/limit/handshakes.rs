//! Turns for TLS handshakes: a worker has so many under way, the others wait.
//!
//! A turn is asked for when the client's first message is whole, so that silence costs nobody a turn. Those who
//! wait get one in the order in which they came, but clients that have few turns before clients that have many.
//! Who holds a turn for long while others wait gives way: else a few clients that fall silent in the middle would
//! keep out everybody else until they run out of time. For a while its network then comes after the others, and
//! leaves an eighth of the turns to them: many networks that stall in turns wait for each other, not others for them.
//!
//! Invariant: a [`HandshakeTurn`] counts as long as it lives, and there are never more than the bound.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use super::per_address::client_network;

/// How long a turn is nobody else's business: enough for two round trips around the world.
const UNDISTURBED: Duration = Duration::from_millis(500);
/// So many times more than have a turn may wait for one; beyond, who waits longest is sent away.
const WAITING_PER_TURN: usize = 32;
/// How long a network comes after others once it gave way.
const STALLED: Duration = Duration::from_secs(30);
/// So many networks are remembered for that; more are as if they had not.
const STALLED_MAX: usize = 4096;
/// This part of the turns is for networks that did not stall.
const RESERVE: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    turns_max: Cell<usize>,
    held: RefCell<HashMap<IpAddr, usize>>,
    held_count: Cell<usize>,
    /// Networks that gave way, and until when that counts.
    stalled: RefCell<HashMap<IpAddr, Instant>>,
    waiting: RefCell<VecDeque<QueuedHandshake>>,
    /// Turns that are being given up for one who waits.
    yielding: Cell<usize>,
    arrived: Notify,
}

#[derive(Debug)]
struct QueuedHandshake {
    network: IpAddr,
    grant: oneshot::Sender<HandshakeTurn>,
}

/// Leave to go on with a handshake.
#[derive(Debug)]
pub(crate) struct HandshakeTurn {
    handshakes: Rc<Handshakes>,
    network: IpAddr,
    since: Instant,
    is_yielding: Cell<bool>,
    is_passed_on: Cell<bool>,
}

impl Handshakes {
    /// Waits for a turn, of which there are `turns_max`. `None`: too many wait. May be dropped at any time.
    pub(crate) async fn turn(self: &Rc<Self>, address: IpAddr, turns_max: usize) -> Option<HandshakeTurn> {
        let network = client_network(address);
        self.turns_max.set(turns_max);
        let now = Instant::now();
        if self.has_room_for(self.is_stalled(network, now)) {
            return Some(self.grant(network));
        }
        let granted = {
            let mut waiting = self.waiting.borrow_mut();
            let waiting_max = turns_max.saturating_mul(WAITING_PER_TURN);
            if waiting.len() >= waiting_max {
                waiting.retain(|one| !one.grant.is_closed());
            }
            if waiting.len() >= waiting_max {
                let least_urgent = waiting.iter().position(|one| self.is_stalled(one.network, now));
                if least_urgent.is_none() && self.is_stalled(network, now) {
                    return None;
                }
                waiting.remove(least_urgent.unwrap_or(0));
            }
            let (grant, granted) = oneshot::channel();
            waiting.push_back(QueuedHandshake { network, grant });
            granted
        };
        self.arrived.notify_waiters();
        granted.await.ok()
    }

    fn has_room_for(&self, is_stalled: bool) -> bool {
        let turns_max = self.turns_max.get();
        let reserve = if is_stalled { turns_max / RESERVE } else { 0 };
        self.held_count.get() < turns_max - reserve
    }

    fn is_stalled(&self, network: IpAddr, now: Instant) -> bool {
        self.stalled.borrow().get(&network).is_some_and(|until| now < *until)
    }

    fn remember_stalled(&self, network: IpAddr) {
        let now = Instant::now();
        let mut stalled = self.stalled.borrow_mut();
        if stalled.len() >= STALLED_MAX {
            stalled.retain(|_, until| now < *until);
        }
        if stalled.len() < STALLED_MAX || stalled.contains_key(&network) {
            stalled.insert(network, now + STALLED);
        }
    }

    fn grant(self: &Rc<Self>, network: IpAddr) -> HandshakeTurn {
        *self.held.borrow_mut().entry(network).or_insert(0) += 1;
        self.held_count.set(self.held_count.get() + 1);
        HandshakeTurn {
            handshakes: Rc::clone(self),
            network,
            since: Instant::now(),
            is_yielding: Cell::new(false),
            is_passed_on: Cell::new(true),
        }
    }

    /// Gives a turn that has become free to one who still waits.
    fn pass_on(self: &Rc<Self>) {
        while let Some(next) = self.next() {
            let turn = self.grant(next.network);
            match next.grant.send(turn) {
                Ok(()) => return,
                // It does not wait any longer: on to the one after it.
                Err(turn) => turn.give_back(),
            }
        }
        // Whoever still waits may now be one that another has to give way to.
        self.arrived.notify_waiters();
    }

    fn next(&self) -> Option<QueuedHandshake> {
        let mut waiting = self.waiting.borrow_mut();
        let held = self.held.borrow();
        waiting.retain(|one| !one.grant.is_closed());
        let now = Instant::now();
        let mut first: Option<((bool, usize), usize)> = None;
        for (place, one) in waiting.iter().enumerate() {
            let turns = held.get(&one.network).copied().unwrap_or(0);
            let order = (self.is_stalled(one.network, now), turns);
            if first.is_none_or(|(least, _)| order < least) {
                first = Some((order, place));
            }
            if order == (false, 0) {
                break;
            }
        }
        let ((is_stalled, _), place) = first?;
        if self.has_room_for(is_stalled) { waiting.remove(place) } else { None }
    }

    fn release(&self, network: IpAddr) {
        let mut held = self.held.borrow_mut();
        if let Some(count) = held.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                held.remove(&network);
            }
        }
        self.held_count.set(self.held_count.get().saturating_sub(1));
    }

    /// Whether one more turn than are being given up would be taken: networks that stalled take none of the reserve.
    fn is_waited_for(&self) -> bool {
        let (now, waiting) = (Instant::now(), self.waiting.borrow());
        let waiting = waiting.iter().filter(|one| !one.grant.is_closed());
        let (last, first): (Vec<_>, Vec<_>) = waiting.partition(|one| self.is_stalled(one.network, now));
        let yielded = self.yielding.get() + 1;
        let held = (self.held_count.get() + first.len()).saturating_sub(yielded);
        let turns_max = self.turns_max.get();
        let for_last = (turns_max - turns_max / RESERVE).saturating_sub(held);
        first.len() >= yielded || (for_last > 0 && last.len() >= for_last)
    }
}

impl HandshakeTurn {
    /// Returns when this turn must be given up for another.
    pub(crate) async fn overstayed(&self) {
        sleep_until(self.since + UNDISTURBED).await;
        loop {
            let arrived = self.handshakes.arrived.notified();
            if self.handshakes.is_waited_for() {
                self.is_yielding.set(true);
                self.handshakes.yielding.set(self.handshakes.yielding.get() + 1);
                return;
            }
            arrived.await;
        }
    }

    /// Gives the turn back, for the one who holds it to pass on.
    fn give_back(self) {
        self.is_passed_on.set(false);
    }
}

impl Drop for HandshakeTurn {
    fn drop(&mut self) {
        if self.is_yielding.get() {
            self.handshakes.yielding.set(self.handshakes.yielding.get().saturating_sub(1));
            self.handshakes.remember_stalled(self.network);
        }
        self.handshakes.release(self.network);
        if self.is_passed_on.get() {
            self.handshakes.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::runtime::Builder;
    use tokio::time::timeout;

    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("address")
    }

    #[test]
    fn who_has_fewest_turns_is_next_and_then_who_came_first() {
        let handshakes = Rc::new(Handshakes::default());
        let take = |from: &str| {
            let mut turn = Box::pin({
                let (handshakes, from) = (Rc::clone(&handshakes), address(from));
                async move { handshakes.turn(from, 2).await }
            });
            let now = turn.as_mut().now_or_never().flatten();
            (now, turn)
        };
        let (first, _) = take("192.0.2.1");
        let (second, _) = take("192.0.2.1");
        let (first, second) = (first.expect("a turn"), second.expect("a turn"));
        let (none, mut third) = take("192.0.2.1");
        assert!(none.is_none());
        let (_, given_up) = take("192.0.2.3");
        let (_, mut other) = take("192.0.2.2");
        drop(given_up);
        drop(first);
        let other = other.as_mut().now_or_never().flatten().expect("the one without a turn is next");
        assert!(third.as_mut().now_or_never().is_none());
        drop(second);
        assert!(third.as_mut().now_or_never().flatten().is_some());
        drop((third, other));
        assert_eq!(handshakes.held_count.get(), 0);
        assert!(handshakes.held.borrow().is_empty());
    }

    #[test]
    fn who_waits_longest_is_sent_away_when_too_many_wait() {
        let handshakes = Rc::new(Handshakes::default());
        let held = handshakes.turn(address("192.0.2.1"), 1).now_or_never().flatten();
        assert!(held.is_some());
        let mut waiting: Vec<_> = (0..=WAITING_PER_TURN)
            .map(|_| {
                let handshakes = Rc::clone(&handshakes);
                let mut turn = Box::pin(async move { handshakes.turn(address("192.0.2.2"), 1).await });
                assert!(turn.as_mut().now_or_never().is_none());
                turn
            })
            .collect();
        assert!(waiting[0].as_mut().now_or_never().expect("an answer").is_none());
        assert!(waiting[1].as_mut().now_or_never().is_none());
        drop(held);
        assert!(waiting[1].as_mut().now_or_never().flatten().is_some());
    }

    #[test]
    fn networks_that_stalled_come_last_and_leave_an_eighth_to_others() {
        let runtime = Builder::new_current_thread().enable_time().build().expect("runtime");
        runtime.block_on(async {
            let handshakes = Rc::new(Handshakes::default());
            let ask = |last: u8| {
                let handshakes = Rc::clone(&handshakes);
                let mut turn = Box::pin(async move { handshakes.turn([192, 0, 2, last].into(), 8).await });
                (turn.as_mut().now_or_never().flatten(), turn)
            };
            let held: Vec<_> = (0..8).map(|last| ask(last).0.expect("a turn")).collect();
            let mut others: Vec<_> = (20..28).map(|last| ask(last).1).collect();
            for turn in held {
                turn.overstayed().await;
            }
            let others: Vec<_> =
                others.iter_mut().map(|turn| turn.as_mut().now_or_never().flatten()).collect();
            assert!(others.iter().all(Option::is_some));
            let mut again: Vec<_> = (0..8).map(|last| ask(last).1).collect();
            drop(others);
            let turns: Vec<_> = again.iter_mut().map(|turn| turn.as_mut().now_or_never().flatten()).collect();
            assert_eq!(turns.iter().flatten().count(), 7, "one in eight is left");
            drop(again);
            let (newcomer, _) = ask(9);
            let newcomer = newcomer.expect("what is left is for others");
            let (none, mut second) = ask(9);
            assert!(none.is_none());
            let (none, mut third) = ask(10);
            assert!(none.is_none());
            drop(turns);
            assert!(third.as_mut().now_or_never().flatten().is_some());
            assert!(second.as_mut().now_or_never().flatten().is_some());
            drop(newcomer);
            handshakes.stalled.borrow_mut().values_mut().for_each(|until| *until = Instant::now());
            let every: Vec<_> = (0..8).map(|last| ask(last).0).collect();
            assert!(every.iter().all(Option::is_some), "it is forgotten after a while");
        });
    }

    #[test]
    fn nobody_gives_way_to_one_who_may_not_use_the_turn() {
        let runtime = Builder::new_current_thread().enable_time().build().expect("runtime");
        runtime.block_on(async {
            let handshakes = Rc::new(Handshakes::default());
            let ask = |last: u8| {
                let handshakes = Rc::clone(&handshakes);
                let mut turn = Box::pin(async move { handshakes.turn([192, 0, 2, last].into(), 8).await });
                (turn.as_mut().now_or_never().map(|turn| turn.is_some()), turn)
            };
            let mut held: Vec<_> = (0..8)
                .map(|_| handshakes.turn(address("192.0.2.1"), 8).now_or_never().flatten().expect("a turn"))
                .collect();
            (100..200).for_each(|last| handshakes.remember_stalled([192, 0, 2, last].into()));
            let (_, first_last) = ask(100);
            assert!(!handshakes.is_waited_for(), "the eighth turn is for others");
            drop(held.pop());
            assert!(handshakes.is_waited_for(), "the seventh is not");
            let (_, other) = ask(2);
            assert!(handshakes.is_waited_for());
            drop((other, first_last));
            assert!(!handshakes.is_waited_for());
        });
    }

    #[test]
    fn a_network_that_stalled_sends_nobody_away_who_did_not() {
        let handshakes = Rc::new(Handshakes::default());
        let _held = handshakes.turn(address("192.0.2.1"), 1).now_or_never().flatten();
        let ask = |from: &str| {
            let (handshakes, from) = (Rc::clone(&handshakes), address(from));
            let mut turn = Box::pin(async move { handshakes.turn(from, 1).await });
            (turn.as_mut().now_or_never().map(|turn| turn.is_some()), turn)
        };
        handshakes.remember_stalled(address("192.0.2.3"));
        let mut waiting: Vec<_> = (0..WAITING_PER_TURN).map(|_| ask("192.0.2.2").1).collect();
        assert_eq!(ask("192.0.2.3").0, Some(false));
        assert!(waiting[0].as_mut().now_or_never().is_none(), "it still waits");
        let _last = waiting.pop();
        assert_eq!(ask("192.0.2.2").0, None);
        assert!(waiting[0].as_mut().now_or_never().is_some(), "among others, who waits longest is sent away");
    }

    #[test]
    fn a_long_turn_ends_when_another_waits_and_only_then() {
        let runtime = Builder::new_current_thread().enable_time().build().expect("runtime");
        runtime.block_on(async {
            let handshakes = Rc::new(Handshakes::default());
            let one = handshakes.turn(address("192.0.2.1"), 2).await.expect("a turn");
            let two = handshakes.turn(address("192.0.2.2"), 2).await.expect("a turn");
            assert!(timeout(UNDISTURBED * 2, one.overstayed()).await.is_err(), "nobody waits");
            let (first, waiting) = {
                let handshakes = Rc::clone(&handshakes);
                let mut turn = Box::pin(async move { handshakes.turn(address("192.0.2.3"), 2).await });
                (turn.as_mut().now_or_never(), turn)
            };
            assert!(first.is_none());
            one.overstayed().await;
            assert!(two.overstayed().now_or_never().is_none(), "one turn is enough");
            drop(one);
            assert!(waiting.await.is_some());
        });
    }
}
