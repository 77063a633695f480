//! Telling clients what an upstream has told: of changes of its lists, of resources and of tasks.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Feed, FeedState, Lane, ResourceName};
use crate::tables::subscriptions::inbox::{HeldNotice, Inbox, UpdateTarget};
use crate::upstream::changes::ToldSession;
use protocol::subscription::Lists;

/// A list that changes more often is told of this often; the last change is never left out.
pub(super) const LIST_INTERVAL: Duration = Duration::from_millis(100);
/// What a URI is part of is looked up at this many of its slashes, the last ones.
const SLASHES_MAX: usize = 64;

impl Feed {
    /// Tells clients that a list has changed, or has the lane tell them a little later. Those who are `told` already are
    /// left out, unless it is later.
    pub(crate) fn list_changed(&self, index: usize, told: &[ToldSession], now: Instant) {
        let mut shared = self.shared();
        let list = &mut shared.lists[index];
        if list.told.is_some_and(|told| now < told + LIST_INTERVAL) {
            list.is_held = true;
            drop(shared);
            self.wakes[Lane::Lists as usize].notify_one();
            return;
        }
        shared.tell(index, told, now);
    }

    /// Those who are to be told that a list has changed; they are told by the caller, now.
    pub(crate) fn told_of_list(&self, index: usize, now: Instant) -> Vec<Arc<Inbox>> {
        let mut shared = self.shared();
        let list = &mut shared.lists[index];
        list.told = Some(now);
        list.is_held = false;
        let clients = shared.clients.iter().flatten().filter(|client| client.lists.has(index));
        clients.map(|client| Arc::clone(&client.inbox)).collect()
    }

    /// Tells of the changes that were held back. Returns when the next one is due.
    pub(crate) fn release(&self, now: Instant) -> Option<Instant> {
        let mut shared = self.shared();
        let mut next = None;
        for index in 0..Lists::COUNT {
            let due = shared.lists[index].told.map(|told| told + LIST_INTERVAL);
            match due {
                _ if !shared.lists[index].is_held => {}
                Some(due) if due > now => next = Some(next.map_or(due, |next: Instant| next.min(due))),
                _ => shared.tell(index, &[], now),
            }
        }
        next
    }

    /// Hands a notification about a task to whoever asked for it. Returns how many did.
    pub(crate) fn task_changed(&self, notice: &Arc<HeldNotice>) -> usize {
        let shared = self.shared();
        let mut told = 0;
        for (key, index) in clients_of(shared.names.get(true, &notice.name)) {
            if let Some(client) = shared.client(*key) {
                client.inbox.notice(UpdateTarget::Task(*index), notice);
                told += 1;
            }
        }
        told
    }

    /// Hands a notification about a resource to whoever asked for it or for what it is part of; if that is nobody, to
    /// everybody who asked for any. Returns how many were told.
    pub(crate) fn resource_changed(&self, notice: &Arc<HeldNotice>) -> usize {
        let shared = self.shared();
        let mut told = HashSet::new();
        for (key, index) in clients_of(shared.names.get(false, &notice.name)) {
            if let Some(client) = shared.client(*key) {
                told.insert(*key);
                client.inbox.notice(UpdateTarget::Resource(*index), notice);
            }
        }
        for prefix in prefixes(&notice.name) {
            for (key, index) in clients_of(shared.names.get(false, prefix)) {
                if let Some(client) = shared.client(*key).filter(|_| told.insert(*key)) {
                    client.inbox.notice(UpdateTarget::Resource(*index), notice);
                }
            }
        }
        // What nobody wants any more, and is still carried, is nobody's.
        if !told.is_empty() || shared.names.get(false, &notice.name).is_some() {
            return told.len();
        }
        let mut told = 0;
        for client in shared.clients.iter().flatten().filter(|client| client.uris > 0) {
            client.inbox.notice(UpdateTarget::Other(client.member), notice);
            told += 1;
        }
        told
    }
}

impl FeedState {
    fn tell(&mut self, index: usize, told: &[ToldSession], now: Instant) {
        let list = &mut self.lists[index];
        list.told = Some(now);
        list.is_held = false;
        for client in self.clients.iter().flatten().filter(|client| client.lists.has(index)) {
            if !client.inbox.is_among(told) {
                client.inbox.list_changed(index);
            }
        }
    }

    /// `for_all`: also for those who were promised nothing yet.
    pub(super) fn resource_may_have_changed(&self, inner: &str, for_all: bool) {
        for (key, index) in clients_of(self.names.get(false, inner)) {
            if let Some(client) = self.client(*key)
                && (for_all || client.inbox.is_acknowledged())
            {
                client.inbox.resource_changed(*index);
            }
        }
    }

    /// Those who wait to be acknowledged look again.
    pub(super) fn wake_waiting(&self) {
        for client in self.clients.iter().flatten().filter(|client| !client.inbox.is_acknowledged()) {
            client.inbox.wake();
        }
    }
}

/// Who wants a name, each by key and with the index in its filter.
fn clients_of(name: Option<&ResourceName>) -> &[(u32, u32)] {
    name.map(|name| name.clients.as_slice()).unwrap_or_default()
}

/// What a URI is part of: all that stands before a slash, with the slash and without, longest first.
pub(super) fn prefixes(uri: &str) -> impl Iterator<Item = &str> {
    let slashes = uri.rmatch_indices('/').map(|(at, _)| at).take(SLASHES_MAX);
    slashes.flat_map(|at| [&uri[..=at], &uri[..at]]).filter(move |prefix| *prefix != uri)
}
