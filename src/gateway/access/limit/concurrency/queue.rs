//! Who has how much of an upstream, who has had it lately, and who is next.
//!
//! A place is held for as long as its call takes, so that who holds few for a short time uses less than who holds as many for
//! long. Who uses less than half of the average goes ahead of its turn, but not twice in succession, and has the reserve.
//!
//! Without a clock: each step is told the time.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use tokio::sync::oneshot;

use super::GateCounts;
use super::use_time::{TotalUse, UseTime};
use crate::access::limit::digest::IdentityHash;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares;

/// Who uses less than this part of the average goes ahead; who uses less than that part has the reserve, too.
const LIGHT_PART: usize = 2;
const RESERVE_PART: usize = 4;
/// So many are remembered who have nothing and do not wait.
const REMEMBERED_MAX: usize = 4096;

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
    principals: HashMap<Payer, PrincipalShare, IdentityHash>,
    /// Everybody who waits, once each, in turn.
    turns: VecDeque<Payer>,
    total: TotalUse,
    /// Who came through last was ahead of its turn.
    was_ahead: bool,
}

#[derive(Debug)]
struct PrincipalShare {
    used: UseTime,
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
        }
    }

    pub(super) fn set_max(&mut self, max: usize, waiting_max: usize, now: Instant) {
        (self.max, self.waiting_max) = (max, waiting_max);
        self.hand_out(now);
    }

    pub(super) fn counts(&self) -> GateCounts {
        GateCounts { in_use: self.in_use, waiting: self.waiting }
    }

    /// Takes a permit if there is room.
    pub(super) fn pass(&mut self, who: Payer, now: Instant) -> bool {
        self.age(now);
        let has_room = self.has_room_for(who);
        if has_room {
            self.hold(who, now);
        }
        has_room
    }

    pub(super) fn would_refuse(&self, who: Payer) -> bool {
        let is_full = self.waiting >= self.waiting_max && self.who_makes_room_for(who).is_none();
        is_full && !self.has_room_for(who)
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
        self.in_use -= 1;
        if let Some(share) = self.principals.get_mut(&who) {
            share.used.settle(&mut self.total, now);
            share.used.held -= 1;
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
            self.total.age(self.principals.values_mut().map(|share| &mut share.used), seconds, now);
            self.principals.retain(|_, share| !share.used.is_nothing() || !share.waiters.is_empty());
        }
    }

    fn forget_one_too_many(&mut self, who: Payer) {
        if self.principals.len() <= REMEMBERED_MAX {
            return;
        }
        if let Entry::Occupied(entry) = self.principals.entry(who)
            && entry.get().used.held == 0
            && entry.get().waiters.is_empty()
        {
            self.total.forget(&entry.remove().used);
        }
    }

    fn held(&self, who: Payer) -> usize {
        self.principals.get(&who).map_or(0, |share| share.used.held)
    }

    fn used_roughly(&self, who: Payer) -> u64 {
        self.principals.get(&who).map_or(0, |share| share.used.roughly())
    }

    fn is_light(&self, who: Payer) -> bool {
        self.uses_less_than(who, LIGHT_PART)
    }

    /// Whether it has used less lately than one in `part` of what each has on average.
    fn uses_less_than(&self, who: Payer, part: usize) -> bool {
        let parts = part.saturating_mul(self.principals.len());
        self.principals.get(&who).is_none_or(|share| share.used.is_less_than(&self.total, parts))
    }

    /// Whether there is room for one more call of `who`: the last eighth is for those who have little, and had little.
    fn has_room_for(&self, who: Payer) -> bool {
        let is_reserve = shares::is_scarce(self.max, self.in_use + 1);
        let refusal = shares::refusal((self.max, 1), self.in_use, 1, self.held(who) + 1);
        refusal.is_none() && (!is_reserve || self.uses_less_than(who, RESERVE_PART))
    }

    fn hand_out(&mut self, now: Instant) {
        while let Some(who) = self.next() {
            self.was_ahead = self.turns.front() != Some(&who);
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

    /// Whose turn it is, of those for whom there is room: of those who are light, the lightest, unless the last one was ahead of
    /// its turn; the first who would have no more than half; or the first of all if nobody would.
    fn next(&self) -> Option<Payer> {
        if self.in_use >= self.max {
            return None;
        }
        let half = (self.max / 2).max(1);
        let has_little = |who: &Payer| self.held(*who) < half;
        let mut fit = self.turns.iter().copied().filter(|who| self.has_room_for(*who)).peekable();
        let first = *fit.peek()?;
        let mut little = fit.filter(has_little).peekable();
        let next = little.peek().copied().unwrap_or(first);
        let lightest = || little.filter(|who| self.is_light(*who)).min_by_key(|who| self.used_roughly(*who));
        Some(if self.was_ahead { next } else { lightest().unwrap_or(next) })
    }

    /// Who has more waiters than `who` would have with one more, and the most of all. One who is not light makes room for one
    /// who is, even if both would have as many.
    fn who_makes_room_for(&self, who: Payer) -> Option<Payer> {
        let waiters = |who: Payer| self.principals.get(&who).map_or(0, |share| share.waiters.len());
        // Who has more than the average already need not be compared with each.
        if waiters(who) > self.waiting / self.turns.len().max(1) {
            return None;
        }
        let longest =
            self.turns.iter().copied().max_by_key(|other| (waiters(*other), !self.is_light(*other)))?;
        let more = usize::from(!self.is_light(who) || self.is_light(longest));
        (waiters(longest) > waiters(who) + more).then_some(longest)
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
    pub(super) fn remembered(&self) -> usize {
        self.principals.len()
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
