//! What an upstream refused by name, and who asked for it.
//!
//! A name that was refused alone is not asked for again for a minute, whoever wants it. Who brings many such names is cut
//! off for a minute: its new names are asked for only if somebody else wants them, too. Both tables are bounded; the oldest
//! entries make room. They hold digests: names may be long.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

/// How long a refusal is remembered, and counted against whoever asked.
const KEPT: Duration = Duration::from_mins(1);
const NAMES_MAX: usize = 8192;
const SOURCES_MAX: usize = 1024;
/// Who asked for so many refused names is cut off.
const REFUSED_PER_SOURCE_MAX: u32 = 16;

#[derive(Debug, Default)]
pub(crate) struct Refusals {
    hasher: RandomState,
    names: RecentCounts,
    sources: RecentCounts,
}

/// Counters by digest. Each is forgotten a fixed time after it began.
#[derive(Debug, Default)]
struct RecentCounts {
    by_digest: HashMap<u64, (Instant, u32)>,
    /// Oldest first.
    order: VecDeque<(Instant, u64)>,
}

impl Refusals {
    /// Who asks: the principal, or, where nothing tells clients apart, the one subscription with this number.
    pub(crate) fn source(&self, endpoint: &str, principal: &str, number: u64) -> u64 {
        let number = if principal.is_empty() { number } else { 0 };
        self.hasher.hash_one((endpoint, principal, number))
    }

    /// A name was refused alone. True if that cuts its source off.
    pub(crate) fn add(&mut self, is_task: bool, inner: &str, source: u64, now: Instant) -> bool {
        let digest = self.hasher.hash_one((is_task, inner));
        self.names.add(digest, NAMES_MAX, now);
        self.sources.add(source, SOURCES_MAX, now) == REFUSED_PER_SOURCE_MAX
    }

    /// Until when a name is refused.
    pub(crate) fn name_until(&self, is_task: bool, inner: &str, now: Instant) -> Option<Instant> {
        if self.names.by_digest.is_empty() {
            return None;
        }
        let (until, _) = self.names.get(self.hasher.hash_one((is_task, inner)), now)?;
        Some(until)
    }

    pub(crate) fn is_cut_off(&self, source: u64, now: Instant) -> bool {
        self.sources.get(source, now).is_some_and(|(_, count)| count >= REFUSED_PER_SOURCE_MAX)
    }
}

impl RecentCounts {
    /// Counts one more; returns how many there are.
    fn add(&mut self, digest: u64, entries_max: usize, now: Instant) -> u32 {
        while let Some((until, oldest)) = self.order.front().copied()
            && (until <= now || self.order.len() >= entries_max)
        {
            self.order.pop_front();
            self.by_digest.remove(&oldest);
        }
        let (_, count) = self.by_digest.entry(digest).or_insert_with(|| {
            self.order.push_back((now + KEPT, digest));
            (now + KEPT, 0)
        });
        *count += 1;
        *count
    }

    fn get(&self, digest: u64, now: Instant) -> Option<(Instant, u32)> {
        self.by_digest.get(&digest).copied().filter(|(until, _)| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_remembered_for_a_while() {
        let mut refusals = Refusals::default();
        let now = crate::clock::now();
        let source = refusals.source("/mcp", "key:a", 1);
        assert_eq!(source, refusals.source("/mcp", "key:a", 2));
        assert_ne!(refusals.source("/mcp", "", 1), refusals.source("/mcp", "", 2));
        assert!(!refusals.add(false, "x", source, now));
        assert_eq!(refusals.name_until(false, "x", now), Some(now + KEPT));
        assert_eq!(refusals.name_until(true, "x", now), None);
        assert_eq!(refusals.name_until(false, "x", now + KEPT), None);
        let more =
            (2..=REFUSED_PER_SOURCE_MAX).map(|number| refusals.add(false, &number.to_string(), source, now));
        assert_eq!(more.filter(|cuts_off| *cuts_off).count(), 1);
        assert!(refusals.is_cut_off(source, now) && !refusals.is_cut_off(source, now + KEPT));
        assert!(!refusals.add(false, "y", source, now + KEPT), "it begins anew");
    }

    #[test]
    fn the_oldest_make_room() {
        let mut recent = RecentCounts::default();
        let now = crate::clock::now();
        for digest in 0..5 {
            recent.add(digest, 3, now);
        }
        assert_eq!((recent.by_digest.len(), recent.order.len()), (3, 3));
        assert!(recent.get(1, now).is_none() && recent.get(4, now).is_some());
    }
}
