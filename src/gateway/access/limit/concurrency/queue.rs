//! Who has how much of an upstream, and who is next.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use tokio::sync::oneshot;

use super::GateCounts;
use crate::access::limit::digest::IdentityHash;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares;

/// A waiter's place: no two have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaiterId(u64);

#[derive(Debug)]
pub(super) struct WaitQueue {
    in_use: usize,
    max: usize,
    waiting: usize,
    waiting_max: usize,
    next_place: u64,
    /// Everybody who has something or waits, and nobody else.
    principals: HashMap<Payer, PrincipalShare, IdentityHash>,
    /// Everybody who waits, once each, in turn.
    turns: VecDeque<Payer>,
}

#[derive(Debug, Default)]
struct PrincipalShare {
    held: usize,
    waiters: VecDeque<(WaiterId, oneshot::Sender<()>)>,
}

impl WaitQueue {
    pub(super) fn new(max: usize, waiting_max: usize) -> Self {
        Self {
            in_use: 0,
            max,
            waiting: 0,
            waiting_max,
            next_place: 0,
            principals: HashMap::default(),
            turns: VecDeque::new(),
        }
    }

    pub(super) fn set_max(&mut self, max: usize, waiting_max: usize) {
        (self.max, self.waiting_max) = (max, waiting_max);
        self.hand_out();
    }

    pub(super) fn counts(&self) -> GateCounts {
        GateCounts { in_use: self.in_use, waiting: self.waiting }
    }

    /// Whether there is room for one more call of `who`: the last eighth is for those who have little.
    fn has_room_for(&self, who: Payer) -> bool {
        let held = self.principals.get(&who).map_or(0, |share| share.held);
        shares::refusal((self.max, 1), self.in_use, 1, held + 1).is_none()
    }

    /// Takes a permit if there is room.
    pub(super) fn pass(&mut self, who: Payer) -> bool {
        let has_room = self.has_room_for(who);
        if has_room {
            self.in_use += 1;
            self.principals.entry(who).or_default().held += 1;
        }
        has_room
    }

    pub(super) fn would_refuse(&self, who: Payer) -> bool {
        let is_full = self.waiting >= self.waiting_max && self.who_makes_room_for(who).is_none();
        is_full && !self.has_room_for(who)
    }

    /// Joins the queue of `who`; `None` if there is no room for one more.
    pub(super) fn wait(&mut self, who: Payer) -> Option<(WaiterId, oneshot::Receiver<()>)> {
        if self.waiting >= self.waiting_max {
            let longest = self.who_makes_room_for(who)?;
            // The sender is dropped, which tells its waiter.
            self.remove(longest, VecDeque::pop_back);
        }
        let (sender, receiver) = oneshot::channel();
        let place = WaiterId(self.next_place);
        self.next_place += 1;
        self.waiting += 1;
        let share = self.principals.entry(who).or_default();
        if share.waiters.is_empty() {
            self.turns.push_back(who);
        }
        share.waiters.push_back((place, sender));
        Some((place, receiver))
    }

    /// Leaves the queue; false if it was not in it any more.
    pub(super) fn leave(&mut self, who: Payer, place: WaiterId) -> bool {
        self.remove(who, |waiters| {
            let at = waiters.iter().position(|(waiter, _)| *waiter == place)?;
            waiters.remove(at)
        })
        .is_some()
    }

    pub(super) fn release(&mut self, who: Payer) {
        self.in_use -= 1;
        if let Entry::Occupied(mut entry) = self.principals.entry(who) {
            entry.get_mut().held -= 1;
            if entry.get().is_nothing() {
                entry.remove();
            }
        }
        self.hand_out();
    }

    fn hand_out(&mut self) {
        while let Some(who) = self.next() {
            let Some((_, sender)) = self.remove(who, VecDeque::pop_front) else { return };
            // It leaves the queue under the same lock, and so was there to hear it, or hears it when it leaves.
            if sender.send(()).is_ok() {
                self.in_use += 1;
                self.principals.entry(who).or_default().held += 1;
            }
            // Its next one waits for the others' turn.
            if let Some(at) = self.turns.iter().position(|turn| *turn == who) {
                self.turns.remove(at);
                self.turns.push_back(who);
            }
        }
    }

    /// Whose turn it is, of those for whom there is room: the first who would have no more than half, or the first of all
    /// if nobody would.
    fn next(&self) -> Option<Payer> {
        if self.in_use >= self.max {
            return None;
        }
        let half = (self.max / 2).max(1);
        let held = |who: &Payer| self.principals.get(who).map_or(0, |share| share.held);
        let mut fit = self.turns.iter().filter(|who| self.has_room_for(**who));
        let first = fit.next()?;
        let has_little = |who: &&Payer| held(who) < half;
        Some(if has_little(&first) { *first } else { *fit.find(has_little).unwrap_or(first) })
    }

    /// Who has more waiters than `who` would have with one more, and the most of all.
    fn who_makes_room_for(&self, who: Payer) -> Option<Payer> {
        let waiters = |who: &Payer| self.principals.get(who).map_or(0, |share| share.waiters.len());
        // Who has more than the average already need not be compared with each.
        if waiters(&who) > self.waiting / self.turns.len().max(1) {
            return None;
        }
        let longest = self.turns.iter().copied().max_by_key(waiters)?;
        (waiters(&longest) > waiters(&who) + 1).then_some(longest)
    }

    /// Takes a waiter of `who` out of its queue.
    fn remove(
        &mut self,
        who: Payer,
        take: impl FnOnce(
            &mut VecDeque<(WaiterId, oneshot::Sender<()>)>,
        ) -> Option<(WaiterId, oneshot::Sender<()>)>,
    ) -> Option<(WaiterId, oneshot::Sender<()>)> {
        let Entry::Occupied(mut entry) = self.principals.entry(who) else { return None };
        let taken = take(&mut entry.get_mut().waiters)?;
        self.waiting -= 1;
        if entry.get().waiters.is_empty() {
            if let Some(at) = self.turns.iter().position(|turn| *turn == who) {
                self.turns.remove(at);
            }
            if entry.get().is_nothing() {
                entry.remove();
            }
        }
        Some(taken)
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        let held: usize = self.principals.values().map(|share| share.held).sum();
        let waiting: usize = self.principals.values().map(|share| share.waiters.len()).sum();
        assert_eq!((held, waiting), (self.in_use, self.waiting));
        let has_room = |who: &Payer| self.has_room_for(*who);
        assert!(!self.turns.iter().any(has_room), "somebody waits while there is room for it");
        assert!(
            self.waiting <= self.waiting_max && self.principals.values().all(|share| !share.is_nothing())
        );
        let has_waiters = |who: &Payer| !self.principals[who].waiters.is_empty();
        assert!(self.turns.iter().all(has_waiters));
        let queues = self.principals.values().filter(|share| !share.waiters.is_empty()).count();
        assert_eq!(queues, self.turns.len());
    }
}

impl PrincipalShare {
    fn is_nothing(&self) -> bool {
        self.held == 0 && self.waiters.is_empty()
    }
}
