//! Programs whose lists changed, of which clients are told together: where several come up, or one says so again and
//! again, a list is said to have changed once in a while.

use std::collections::HashMap;
use std::time::Instant;

use parking_lot::Mutex;

use crate::upstream::changes::{ChangedList, PROGRAM_CHANGES_INTERVAL, ToldSession};
use crate::upstream::{Upstream, UpstreamId};

#[derive(Debug, Default)]
pub(super) struct Returns(Mutex<[ReturnedLists; 3]>);

/// Upstreams whose lists clients are to be told of together, each with the sessions that it has told itself.
pub(super) type ChangedUpstreams = HashMap<UpstreamId, Vec<ToldSession>>;

/// Programs of which one list has changed.
#[derive(Debug, Default)]
struct ReturnedLists {
    upstreams: ChangedUpstreams,
    told: Option<Instant>,
}

impl Returns {
    pub(super) fn add(&self, upstream: &Upstream, changed: ChangedList, told: &[ToldSession]) {
        self.0.lock()[changed as usize].add(upstream, told);
    }

    /// True if clients are to be told at once. Else they are later, but for these sessions.
    pub(super) fn admit(
        &self,
        upstream: &Upstream,
        changed: ChangedList,
        told: &[ToldSession],
        now: Instant,
    ) -> bool {
        let returned = &mut self.0.lock()[changed as usize];
        let is_due = returned.upstreams.is_empty() && returned.is_rested(now);
        if is_due {
            returned.told = Some(now);
        } else {
            returned.add(upstream, told);
        }
        is_due
    }

    /// Those of which clients are to be told now, with the index of the list.
    pub(super) fn take(&self, now: Instant) -> Vec<(usize, ChangedUpstreams)> {
        let mut returned = self.0.lock();
        let due = returned
            .iter_mut()
            .enumerate()
            .filter(|(_, lists)| !lists.upstreams.is_empty() && lists.is_rested(now));
        due.map(|(index, lists)| {
            lists.told = Some(now);
            (index, std::mem::take(&mut lists.upstreams))
        })
        .collect()
    }
}

impl ReturnedLists {
    fn add(&mut self, upstream: &Upstream, told: &[ToldSession]) {
        // Of several changes, a session that was not told of each is told.
        let told_of_all = self.upstreams.entry(upstream.id).or_insert_with(|| told.to_vec());
        told_of_all.retain(|session| told.contains(session));
    }

    fn is_rested(&self, now: Instant) -> bool {
        self.told.is_none_or(|told| now >= told + PROGRAM_CHANGES_INTERVAL)
    }
}
