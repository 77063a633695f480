//! Places of calls that were left: nobody waits for an answer any more, but their servers may still be at work on them.
//!
//! Each is kept until its time is over, or until it is given away, the oldest first. Without a clock: each step is told
//! the time. No step takes longer than the logarithm of how many there are.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use crate::access::limit::digest::IdentityHash;
use crate::access::limit::payer::Payer;

/// A kept place; older ones come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeptId(pub(super) u64);

#[derive(Debug, Default)]
pub(super) struct KeptPlaces {
    next: u64,
    places: HashMap<u64, (Payer, Instant)>,
    ends: BTreeSet<(Instant, u64)>,
    /// Those of each payer, in order.
    of: HashMap<Payer, BTreeSet<u64>, IdentityHash>,
    /// The payers by how many they have; two with as many are told apart by their numbers.
    most: BTreeMap<(usize, u64), Payer>,
}

impl KeptPlaces {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn of(&self, who: Payer) -> usize {
        self.of.get(&who).map_or(0, BTreeSet::len)
    }

    /// When the next one is over.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.ends.first().map(|(end, _)| *end)
    }

    pub(super) fn keep(&mut self, who: Payer, until: Instant) -> KeptId {
        let id = self.next;
        self.next += 1;
        self.places.insert(id, (who, until));
        self.ends.insert((until, id));
        self.change(who, |ids| ids.insert(id));
        KeptId(id)
    }

    /// Whose place it was; `None`: it is kept no longer.
    pub(super) fn remove(&mut self, KeptId(id): KeptId) -> Option<Payer> {
        let (who, until) = self.places.remove(&id)?;
        self.ends.remove(&(until, id));
        self.change(who, |ids| ids.remove(&id));
        Some(who)
    }

    /// One that is over.
    pub(super) fn over(&self, now: Instant) -> Option<KeptId> {
        self.ends.first().filter(|(end, _)| *end <= now).map(|(_, id)| KeptId(*id))
    }

    /// The oldest of the one who has most, but for `who`.
    pub(super) fn oldest_of_most_but(&self, who: Payer) -> Option<KeptId> {
        let most = self.most.values().rev().find(|most| **most != who)?;
        self.of.get(most)?.first().copied().map(KeptId)
    }

    /// The oldest of the one who has most.
    pub(super) fn oldest_of_most(&self) -> Option<(Payer, KeptId)> {
        let (_, most) = self.most.last_key_value()?;
        Some((*most, KeptId(*self.of.get(most)?.first()?)))
    }

    fn change(&mut self, who: Payer, change: impl FnOnce(&mut BTreeSet<u64>) -> bool) {
        let ids = self.of.entry(who).or_default();
        let before = ids.len();
        change(ids);
        let after = ids.len();
        self.most.remove(&(before, who.number()));
        if after > 0 {
            self.most.insert((after, who.number()), who);
        } else {
            self.of.remove(&who);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_oldest_of_the_one_who_has_most_comes_first() {
        let (start, [a, b]) = (crate::clock::now(), ["a", "b"].map(Payer::principal));
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut kept = KeptPlaces::default();
        let first = kept.keep(a, after(9));
        let (second, _) = (kept.keep(b, after(1)), kept.keep(a, after(2)));
        assert_eq!((kept.len(), kept.of(a), kept.next_end()), (3, 2, Some(after(1))));
        assert_eq!(kept.oldest_of_most(), Some((a, first)));
        assert_eq!((kept.oldest_of_most_but(a), kept.oldest_of_most_but(b)), (Some(second), Some(first)));
        assert_eq!((kept.over(start), kept.over(after(1))), (None, Some(second)));
        assert_eq!((kept.remove(second), kept.remove(second)), (Some(b), None));
        assert_eq!((kept.oldest_of_most_but(a), kept.next_end()), (None, Some(after(2))));
        kept.remove(first);
        assert_eq!(kept.oldest_of_most().map(|(who, _)| who), Some(a));
    }
}
