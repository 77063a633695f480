//! Who has how much of an upstream, who has had it lately, and who is next.
//!
//! A place is held for as long as its call takes, so that who holds few for a short time uses less than who holds as many for
//! long. Whether there is room depends on what is held alone; what was used decides who goes first, and who makes room in a
//! full waiting room.
//!
//! Without a clock: each step is told the time.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use tokio::sync::oneshot;

use super::GateCounts;
use super::kept::{KeptId, KeptPlaces};
use super::use_time::{TotalUse, UseTime};
use crate::access::limit::digest::IdentityHash;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares;

/// So many are remembered who have nothing and do not wait.
const REMEMBERED_MAX: usize = 4096;
/// Of those who wait, so many are compared by what they used.
const COMPARED_MAX: usize = 128;

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
    /// Everybody who has something, waits, or had something lately.
    pub(super) principals: HashMap<Payer, PrincipalShare, IdentityHash>,
    /// Everybody who waits, once each, in turn.
    turns: VecDeque<Payer>,
    pub(super) total: TotalUse,
    /// Who came through last was ahead of its turn.
    was_ahead: bool,
    /// Places of calls that were left: of those in use.
    kept: KeptPlaces,
}

#[derive(Debug)]
pub(super) struct PrincipalShare {
    pub(super) used: UseTime,
    waiters: VecDeque<(WaiterId, oneshot::Sender<()>)>,
}

impl WaitQueue {
    pub(super) fn new(max: usize, waiting_max: usize, now: Instant) -> Self {
        Self {
            in_use: 0,
            max,
            waiting: 0,
            waiting_max,
            next_place: 0,
            principals: HashMap::default(),
            turns: VecDeque::new(),
            total: TotalUse::new(now),
            was_ahead: false,
            kept: KeptPlaces::default(),
        }
    }

    pub(super) fn set_max(&mut self, max: usize, waiting_max: usize, now: Instant) {
        (self.max, self.waiting_max) = (max, waiting_max);
        self.share_kept(None, now);
        self.hand_out(now);
    }

    pub(super) fn counts(&self) -> GateCounts {
        GateCounts { in_use: self.in_use, waiting: self.waiting }
    }

    /// Takes a permit if there is room.
    pub(super) fn pass(&mut self, who: Payer, now: Instant) -> bool {
        self.age(now);
        let has_room = self.has_room_for(who) || self.finds_room_for(who, now);
        if has_room {
            self.hold(who, now);
        }
        has_room
    }

    pub(super) fn would_refuse(&mut self, who: Payer, now: Instant) -> bool {
        self.age(now);
        !self.has_room_for(who)
            && !self.finds_room_for(who, now)
            && self.waiting >= self.waiting_max
            && self.who_makes_room_for(who).is_none()
    }

    /// How many places are kept.
    pub(super) fn kept(&mut self, now: Instant) -> usize {
        self.end_kept(now);
        self.kept.len()
    }

    /// When the next kept place is over.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.kept.next_end()
    }

    /// Keeps a place of `who` that was held. True: it is over before all others.
    pub(super) fn keep(&mut self, who: Payer, until: Instant, now: Instant) -> (KeptId, bool) {
        let is_next = self.kept.next_end().is_none_or(|next| until < next);
        let id = self.kept.keep(who, until);
        self.share_kept(None, now);
        (id, is_next)
    }

    /// Gives back a kept place, unless it is kept no longer.
    pub(super) fn give_back(&mut self, id: KeptId, now: Instant) {
        if let Some(who) = self.kept.remove(id) {
            self.release(who, now);
        }
    }

    /// Gives away kept places that are over, and what is too much of one while `who` waits. With `takes`, who has waited for
    /// long, the oldest one of another, too.
    pub(super) fn make_room_for(&mut self, who: Payer, takes: bool, now: Instant) {
        self.end_kept(now);
        self.share_kept(Some(who), now);
        if takes && let Some(oldest) = self.kept.oldest_of_most_but(who) {
            self.give_back(oldest, now);
        }
    }

    #[cold]
    fn finds_room_for(&mut self, who: Payer, now: Instant) -> bool {
        if self.kept.len() == 0 {
            return false;
        }
        self.make_room_for(who, false, now);
        self.has_room_for(who)
    }

    fn end_kept(&mut self, now: Instant) {
        while let Some(over) = self.kept.over(now) {
            self.give_back(over, now);
        }
    }

    /// While another one needs a place, at most half of all are kept for one.
    fn share_kept(&mut self, needs: Option<Payer>, now: Instant) {
        while let Some((most, oldest)) = self.kept.oldest_of_most() {
            let is_other = |who: &Payer| *who != most;
            let is_wanted = needs.as_ref().is_some_and(is_other) || self.turns.iter().take(2).any(is_other);
            if self.kept.of(most) <= self.max / 2 || !is_wanted {
                return;
            }
            self.give_back(oldest, now);
        }
    }

    /// Joins the queue of `who`; `None` if there is no room for one more.
    pub(super) fn wait(&mut self, who: Payer, now: Instant) -> Option<(WaiterId, oneshot::Receiver<()>)> {
        if self.waiting >= self.waiting_max {
            let longest = self.who_makes_room_for(who)?;
            // The sender is dropped, which tells its waiter.
            self.remove(longest, VecDeque::pop_back);
        }
        let (sender, receiver) = oneshot::channel();
        let place = WaiterId(self.next_place);
        self.next_place += 1;
        self.waiting += 1;
        let share = self.principals.entry(who).or_insert_with(|| PrincipalShare::new(now));
        if share.waiters.is_empty() {
            self.turns.push_back(who);
        }
        share.waiters.push_back((place, sender));
        Some((place, receiver))
    }

    /// Leaves the queue; false if it was not in it any more.
    pub(super) fn leave(&mut self, who: Payer, place: WaiterId) -> bool {
        let left = self.remove(who, |waiters| {
            let at = waiters.iter().position(|(waiter, _)| *waiter == place)?;
            waiters.remove(at)
        });
        self.forget_one_too_many(who);
        left.is_some()
    }

    pub(super) fn release(&mut self, who: Payer, now: Instant) {
        self.in_use = self.in_use.saturating_sub(1);
        if let Some(share) = self.principals.get_mut(&who) {
            share.used.settle(&mut self.total, now);
            share.used.held = share.used.held.saturating_sub(1);
            self.forget_one_too_many(who);
        }
        self.age(now);
        self.hand_out(now);
    }

    fn hold(&mut self, who: Payer, now: Instant) {
        self.in_use += 1;
        let used = &mut self.principals.entry(who).or_insert_with(|| PrincipalShare::new(now)).used;
        used.settle(&mut self.total, now);
        used.held += 1;
    }

    /// Forgets a part of what was used in earlier seconds, and who has nothing left.
    fn age(&mut self, now: Instant) {
        let seconds = self.total.seconds_passed(now);
        if seconds > 0 {
            self.total.age(self.principals.values_mut().map(|share| &mut share.used), seconds);
            self.principals.retain(|_, share| !share.used.is_nothing() || !share.waiters.is_empty());
        }
    }

    fn forget_one_too_many(&mut self, who: Payer) {
        let idle_at_least = self.principals.len().saturating_sub(self.in_use + self.waiting);
        if idle_at_least > REMEMBERED_MAX
            && let Entry::Occupied(entry) = self.principals.entry(who)
            && entry.get().used.held == 0
            && entry.get().waiters.is_empty()
        {
            self.total.forget(&entry.remove().used);
        }
    }

    /// Whether there is room for one more call of `who`: the last eighth is for those who have little.
    fn has_room_for(&self, who: Payer) -> bool {
        let held = self.principals.get(&who).map_or(0, |share| share.used.held);
        shares::refusal((self.max, 1), self.in_use, 1, held + 1).is_none()
    }

    fn hand_out(&mut self, now: Instant) {
        while let Some(who) = self.next() {
            let Some((_, sender)) = self.remove(who, VecDeque::pop_front) else { return };
            // It leaves the queue under the same lock, and so was there to hear it, or hears it when it leaves.
            if sender.send(()).is_ok() {
                self.hold(who, now);
            }
            // Its next one waits for the others' turn.
            if let Some(at) = self.turns.iter().position(|turn| *turn == who) {
                self.turns.remove(at);
                self.turns.push_back(who);
            }
        }
    }

    /// Who is next, of those for whom there is room: who has the turn, or the lightest of all, unless the last one was that.
    fn next(&mut self) -> Option<Payer> {
        if self.in_use >= self.max {
            return None;
        }
        let turn = self.turn()?;
        let lightest = (!self.was_ahead).then(|| self.lightest()).flatten().filter(|who| *who != turn);
        self.was_ahead = lightest.is_some();
        lightest.or(Some(turn))
    }

    /// The first who would have no more than half, or the first of all if nobody would.
    fn turn(&self) -> Option<Payer> {
        let mut fit = self.turns.iter().copied().filter(|who| self.has_room_for(*who)).peekable();
        let first = *fit.peek()?;
        Some(fit.find(|who| self.has_little(*who)).unwrap_or(first))
    }

    fn has_little(&self, who: Payer) -> bool {
        self.principals.get(&who).is_none_or(|share| share.used.held < (self.max / 2).max(1))
    }

    /// Who has used least, of those who have used less than half of the average.
    fn lightest(&self) -> Option<Payer> {
        let fits = |who: &Payer| {
            let used = self.principals.get(who)?.used;
            let is_light = used.is_light(&self.total) && self.has_little(*who) && self.has_room_for(*who);
            is_light.then(|| (used.roughly(), *who))
        };
        let light = self.turns.iter().take(COMPARED_MAX).filter_map(fits);
        light.min_by_key(|(used, _)| *used).map(|(_, who)| who)
    }

    /// Who has the most waiters of all, and more than `who` would have with one more. Else, for a light one that has none: who
    /// has used most, and more than the average.
    fn who_makes_room_for(&self, who: Payer) -> Option<Payer> {
        let waiters = |who: &Payer| self.principals.get(who).map_or(0, |share| share.waiters.len());
        // Who has more than the average already need not be compared with each.
        if waiters(&who) > self.waiting / self.turns.len().max(1) {
            return None;
        }
        let longest = self.turns.iter().copied().max_by_key(waiters)?;
        if waiters(&longest) > waiters(&who) + 1 {
            return Some(longest);
        }
        let is_light = self.principals.get(&who).is_none_or(|share| share.used.is_light(&self.total));
        (is_light && waiters(&who) == 0).then(|| self.heaviest()).flatten()
    }

    fn heaviest(&self) -> Option<Payer> {
        let used = |who: &Payer| self.principals.get(who).map(|share| (share.used, *who));
        let compared = self.turns.iter().rev().take(COMPARED_MAX).filter_map(used);
        let heavy = compared.filter(|(used, _)| used.is_heavy(&self.total));
        heavy.max_by_key(|(used, _)| used.roughly()).map(|(_, who)| who)
    }

    /// Takes a waiter of `who` out of its queue.
    fn remove(
        &mut self,
        who: Payer,
        take: impl FnOnce(
            &mut VecDeque<(WaiterId, oneshot::Sender<()>)>,
        ) -> Option<(WaiterId, oneshot::Sender<()>)>,
    ) -> Option<(WaiterId, oneshot::Sender<()>)> {
        let share = self.principals.get_mut(&who)?;
        let taken = take(&mut share.waiters)?;
        self.waiting -= 1;
        if share.waiters.is_empty()
            && let Some(at) = self.turns.iter().position(|turn| *turn == who)
        {
            self.turns.remove(at);
        }
        Some(taken)
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        let held: usize = self.principals.values().map(|share| share.used.held).sum();
        let waiting: usize = self.principals.values().map(|share| share.waiters.len()).sum();
        assert_eq!((held, waiting), (self.in_use, self.waiting));
        let has_room = |who: &Payer| self.has_room_for(*who);
        assert!(!self.turns.iter().any(has_room), "somebody waits while there is room for it");
        assert!(self.waiting <= self.waiting_max);
        let has_waiters = |who: &Payer| !self.principals[who].waiters.is_empty();
        assert!(self.turns.iter().all(has_waiters));
        let queues = self.principals.values().filter(|share| !share.waiters.is_empty()).count();
        assert_eq!(queues, self.turns.len());
    }
}

impl PrincipalShare {
    fn new(now: Instant) -> Self {
        Self { used: UseTime::new(now), waiters: VecDeque::new() }
    }
}
