//! The names that clients want of one upstream, and those that its streams still carry, with counts of what is asked of them
//! at every turn: nobody looks through all of them to find out whether there is anything to do.
//!
//! Deliberately not here: what any of it means to whoever wants a name.
//!
//! Invariant: the counts are what a look at all names would find.

use std::collections::HashMap;
use std::sync::Arc;

use super::{OfferState, ResourceName};

/// Of both kinds: URIs and ids of tasks.
#[derive(Debug, Default)]
pub(super) struct FeedNames {
    uris: HashMap<Arc<str>, ResourceName>,
    tasks: HashMap<Arc<str>, ResourceName>,
    counts: NameCounts,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NameCounts {
    /// Somebody wants them.
    pub(super) wanted: usize,
    /// Somebody wants them, and the upstream has not answered.
    pub(super) pending: usize,
    /// Likewise, and they are not being tried.
    pub(super) newcomers: usize,
    /// They are being tried, or wait to be.
    pub(super) suspects: usize,
    /// By the number of the stream.
    carried: HashMap<u64, CarriedNames>,
}

/// What a stream carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CarriedNames {
    pub(super) wanted: usize,
    pub(super) unwanted: usize,
}

impl FeedNames {
    pub(super) fn counts(&self) -> &NameCounts {
        &self.counts
    }

    pub(super) fn get(&self, is_task: bool, inner: &str) -> Option<&ResourceName> {
        self.of_kind(is_task).get(inner)
    }

    pub(super) fn of_kind(&self, is_task: bool) -> &HashMap<Arc<str>, ResourceName> {
        if is_task { &self.tasks } else { &self.uris }
    }

    /// Changes a name, if there is one.
    pub(super) fn change<T>(
        &mut self,
        is_task: bool,
        inner: &str,
        change: impl FnOnce(&mut ResourceName) -> T,
    ) -> Option<T> {
        let (names, counts) = self.parts(is_task);
        names.get_mut(inner).map(|name| counts.changed(name, change))
    }

    /// Changes a name, which is a new one if there was none.
    pub(super) fn put<T>(
        &mut self,
        is_task: bool,
        inner: &str,
        change: impl FnOnce(&mut ResourceName) -> T,
    ) -> T {
        let (names, counts) = self.parts(is_task);
        if let Some(name) = names.get_mut(inner) {
            return counts.changed(name, change);
        }
        let mut name = ResourceName::default();
        let result = change(&mut name);
        counts.add(&name);
        names.insert(inner.into(), name);
        result
    }

    pub(super) fn remove(&mut self, is_task: bool, inner: &str) {
        let (names, counts) = self.parts(is_task);
        if let Some(name) = names.remove(inner) {
            counts.take_out(&name);
        }
    }

    /// Changes every name, and counts them all anew.
    pub(super) fn change_all(&mut self, mut change: impl FnMut(bool, &Arc<str>, &mut ResourceName)) {
        let Self { uris, tasks, counts } = self;
        *counts = NameCounts::default();
        for (is_task, names) in [(false, uris), (true, tasks)] {
            for (inner, name) in names {
                change(is_task, inner, name);
                counts.add(name);
            }
        }
    }

    /// Forgets the names that nobody wants, but for those that streams before the one of this number carry.
    pub(super) fn forget_unwanted(&mut self, stream: u64) {
        let Self { uris, tasks, counts } = self;
        let carried = counts.carried.iter().filter(|(number, _)| **number < stream);
        let kept = counts.wanted + carried.map(|(_, carried)| carried.unwanted).sum::<usize>();
        if uris.len() + tasks.len() == kept {
            return;
        }
        for names in [uris, tasks] {
            names.retain(|_, name| {
                let is_carried = name.offer == OfferState::Honoured && name.stream < stream;
                let is_kept = name.is_wanted() || is_carried;
                if !is_kept {
                    counts.take_out(name);
                }
                is_kept
            });
        }
    }

    fn parts(&mut self, is_task: bool) -> (&mut HashMap<Arc<str>, ResourceName>, &mut NameCounts) {
        (if is_task { &mut self.tasks } else { &mut self.uris }, &mut self.counts)
    }
}

impl NameCounts {
    /// What the stream of this number carries.
    pub(super) fn carried_by(&self, stream: u64) -> CarriedNames {
        self.carried.get(&stream).copied().unwrap_or_default()
    }

    fn changed<T>(&mut self, name: &mut ResourceName, change: impl FnOnce(&mut ResourceName) -> T) -> T {
        self.take_out(name);
        let result = change(name);
        self.add(name);
        result
    }

    fn add(&mut self, name: &ResourceName) {
        let is_wanted = name.is_wanted();
        let is_pending = is_wanted && name.offer == OfferState::Pending;
        self.wanted += usize::from(is_wanted);
        self.pending += usize::from(is_pending);
        self.newcomers += usize::from(is_pending && !name.is_suspect);
        self.suspects += usize::from(name.is_suspect);
        if name.offer == OfferState::Honoured {
            let carried = self.carried.entry(name.stream).or_default();
            carried.wanted += usize::from(is_wanted);
            carried.unwanted += usize::from(!is_wanted);
        }
    }

    fn take_out(&mut self, name: &ResourceName) {
        let is_wanted = name.is_wanted();
        let is_pending = is_wanted && name.offer == OfferState::Pending;
        self.wanted -= usize::from(is_wanted);
        self.pending -= usize::from(is_pending);
        self.newcomers -= usize::from(is_pending && !name.is_suspect);
        self.suspects -= usize::from(name.is_suspect);
        if name.offer == OfferState::Honoured
            && let Some(carried) = self.carried.get_mut(&name.stream)
        {
            carried.wanted -= usize::from(is_wanted);
            carried.unwanted -= usize::from(!is_wanted);
            if *carried == CarriedNames::default() {
                self.carried.remove(&name.stream);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    /// What a look at all names finds.
    fn counted(names: &FeedNames) -> NameCounts {
        let mut counts = NameCounts::default();
        names.uris.values().chain(names.tasks.values()).for_each(|name| counts.add(name));
        counts
    }

    fn set(name: &mut ResourceName, step: u8, now: Instant) {
        match step % 7 {
            0 => name.offer = OfferState::Pending,
            1 => name.offer = OfferState::Honoured,
            2 => name.offer = OfferState::Refused(now),
            3 => name.is_suspect = !name.is_suspect,
            4 => name.stream += 1,
            5 => name.clients.push((1, 1)),
            _ => name.clients.clear(),
        }
    }

    proptest! {
        #[test]
        fn the_counts_are_those_of_a_look(
            steps in prop::collection::vec((0_u8..5, any::<u8>(), any::<bool>(), select(&["a", "b", "c"][..])), 0..60),
        ) {
            let now = crate::clock::now();
            let mut names = FeedNames::default();
            for (what, step, is_task, inner) in steps {
                match what {
                    0 => names.put(is_task, inner, |name| set(name, step, now)),
                    1 => names.change(is_task, inner, |name| set(name, step, now)).unwrap_or_default(),
                    2 => names.remove(is_task, inner),
                    3 => names.change_all(|_, _, name| set(name, step, now)),
                    _ => {
                        names.forget_unwanted(2);
                        let mut left = names.uris.values().chain(names.tasks.values());
                        let is_kept = |name: &ResourceName| {
                            name.is_wanted() || (name.offer == OfferState::Honoured && name.stream < 2)
                        };
                        prop_assert!(left.all(is_kept));
                    }
                }
                prop_assert_eq!(names.counts(), &counted(&names));
            }
        }
    }
}
