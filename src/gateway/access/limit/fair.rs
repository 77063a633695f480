//! Which of those that hold a bounded resource makes room for one who asks for it and finds none left.
//!
//! One rule: of those that hold most, if that is more than the asker does, the one that rests for longest; else the asker's
//! own that does; else the asker waits. So one who takes everything makes room for all others, and nobody loses what is in
//! use.
//!
//! Pure. What rests, and since when, is the holder's to say: it is looked at when there is no room, so that using a
//! resource costs nothing.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use super::payer::Payer;

/// The rule, with how long something rests at least before it makes room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fair {
    /// For another of the same payer.
    pub own_rest_min: Duration,
    /// For another payer's.
    pub others_rest_min: Duration,
}

/// Something that is held, and that nobody uses.
#[derive(Clone, Debug)]
pub(crate) struct Resting<K> {
    pub key: K,
    pub payer: Payer,
    pub since: Instant,
}

impl<K> Resting<K> {
    pub(crate) fn map<L>(self, key: impl FnOnce(K) -> L) -> Resting<L> {
        Resting { key: key(self.key), payer: self.payer, since: self.since }
    }
}

/// What becomes of one who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turn<K> {
    /// This makes room.
    Instead(K),
    /// Nothing does before then, unless somebody gives something back.
    Wait(Instant),
    /// All that might is in use.
    Nothing,
}

impl Fair {
    /// What rests makes room at once.
    pub(crate) const AT_ONCE: Self = Self { own_rest_min: Duration::ZERO, others_rest_min: Duration::ZERO };

    /// What makes room for `asker`, of what rests. `held_by`: how much each payer holds in all.
    pub(crate) fn turn<K>(
        self,
        asker: Payer,
        now: Instant,
        resting: impl Iterator<Item = Resting<K>>,
        held_by: impl Fn(Payer) -> usize,
    ) -> Turn<K> {
        let own = held_by(asker);
        let mut at: Option<Instant> = None;
        let mut chosen: Option<(Resting<K>, usize)> = None;
        for resting in resting {
            let held = held_by(resting.payer);
            let is_own = resting.payer == asker;
            if !is_own && held <= own {
                continue;
            }
            let due = resting.since + if is_own { self.own_rest_min } else { self.others_rest_min };
            if due > now {
                at = Some(at.map_or(due, |at| at.min(due)));
                continue;
            }
            let rank = (Reverse(held), resting.since);
            if chosen.as_ref().is_none_or(|(best, most)| rank < (Reverse(*most), best.since)) {
                chosen = Some((resting, held));
            }
        }
        match (chosen, at) {
            (Some((chosen, _)), _) => Turn::Instead(chosen.key),
            (None, Some(at)) => Turn::Wait(at),
            (None, None) => Turn::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const FAIR: Fair = Fair { own_rest_min: Duration::from_secs(1), others_rest_min: Duration::from_secs(5) };

    /// Which of those makes room that rest for so many seconds, where principals hold so many.
    fn turn(asker: &str, resting: &[(&str, u64)], held: &[(&str, usize)]) -> Result<usize, Option<u64>> {
        let now = clock::now() + Duration::from_hours(1);
        let all = resting.iter().enumerate().map(|(key, (who, seconds))| Resting {
            key,
            payer: Payer::principal(who),
            since: now.checked_sub(Duration::from_secs(*seconds)).expect("a late start"),
        });
        let held_by = |payer| {
            let found = held.iter().find(|(who, _)| Payer::principal(who) == payer);
            found.map_or(0, |(_, count)| *count)
        };
        match FAIR.turn(Payer::principal(asker), now, all, held_by) {
            Turn::Instead(key) => Ok(key),
            Turn::Wait(at) => Err(Some((at - now).as_secs())),
            Turn::Nothing => Err(None),
        }
    }

    #[test]
    fn whoever_holds_most_makes_room_and_never_for_one_who_holds_more() {
        let resting = [("b", 100), ("c", 6), ("c", 7), ("a", 9)];
        assert_eq!(turn("a", &resting, &[("a", 1), ("b", 2), ("c", 3)]), Ok(2), "its idlest");
        assert_eq!(turn("a", &resting, &[("a", 3), ("b", 2), ("c", 3)]), Ok(3), "else one's own");
        assert_eq!(turn("d", &resting, &[("a", 1), ("b", 1), ("c", 1)]), Ok(0));
        assert_eq!(turn("a", &resting[..3], &[("a", 3), ("b", 2), ("c", 3)]), Err(None));
        assert_eq!(turn("a", &[], &[("c", 3)]), Err(None));
    }

    #[test]
    fn what_was_used_just_now_makes_room_in_a_while() {
        assert_eq!(turn("a", &[("b", 2), ("b", 1)], &[("b", 2)]), Err(Some(3)));
        assert_eq!(turn("a", &[("a", 0)], &[("a", 1)]), Err(Some(1)));
        assert_eq!(turn("a", &[("a", 1), ("b", 4)], &[("a", 1), ("b", 2)]), Ok(0));
    }
}
