//! Programs that came up, of which clients are told together: where several come, a list is said to have changed once in a
//! while.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::upstream::changes::ChangedList;
use crate::upstream::{Upstream, UpstreamId};

/// Least time between two times that clients are told.
const INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(super) struct Returns(Mutex<[ReturnedLists; 3]>);

/// Upstreams with a list of one kind that clients went without, or had as it was before the start.
#[derive(Debug, Default)]
struct ReturnedLists {
    upstreams: Vec<UpstreamId>,
    told: Option<Instant>,
}

impl Returns {
    pub(super) fn add(&self, upstream: &Upstream, changed: ChangedList) {
        let returned = &mut self.0.lock()[changed as usize];
        if !returned.upstreams.contains(&upstream.id) {
            returned.upstreams.push(upstream.id);
        }
    }

    /// Those of which clients are to be told now, with the index of the list.
    pub(super) fn take(&self, now: Instant) -> Vec<(usize, Vec<UpstreamId>)> {
        let mut returned = self.0.lock();
        let due = returned.iter_mut().enumerate().filter(|(_, lists)| lists.is_due(now));
        due.map(|(index, lists)| {
            lists.told = Some(now);
            (index, std::mem::take(&mut lists.upstreams))
        })
        .collect()
    }
}

impl ReturnedLists {
    fn is_due(&self, now: Instant) -> bool {
        !self.upstreams.is_empty() && self.told.is_none_or(|told| now >= told + INTERVAL)
    }
}
