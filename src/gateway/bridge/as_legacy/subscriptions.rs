//! The resources that a session wants to hear of, and how far its server knows: what calls on any thread ask for, the task
//! that holds the session's stream brings about.
//!
//! Invariant: every change has a number; what is settled is settled up to a number.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use protocol::subscription::is_within;

#[derive(Debug)]
pub(super) struct LegacySubscriptions {
    uris: Mutex<BTreeSet<Box<str>>>,
    /// The number of the latest change.
    changed: watch::Sender<u64>,
    settled: watch::Sender<AgreedUris>,
    /// The number of the latest stream; 0: there was none.
    streams: watch::Sender<u64>,
}

/// What the server knows.
#[derive(Clone, Debug, Default)]
pub(super) struct AgreedUris {
    /// Up to this change.
    pub(super) number: u64,
    /// What of it the server tells of.
    pub(super) honoured: Arc<HashSet<Box<str>>>,
}

impl Default for LegacySubscriptions {
    fn default() -> Self {
        Self {
            uris: Mutex::default(),
            changed: watch::Sender::new(0),
            settled: watch::Sender::new(AgreedUris::default()),
            streams: watch::Sender::new(0),
        }
    }
}

impl LegacySubscriptions {
    /// The session wants to hear of one more. Returns the number of the change; `None`: there are `uris_max`.
    pub(super) fn add(&self, uri: &str, uris_max: usize) -> Option<u64> {
        let mut uris = self.uris.lock();
        if !uris.contains(uri) && uris.len() >= uris_max {
            return None;
        }
        let is_new = uris.insert(uri.into());
        Some(self.note(is_new))
    }

    /// It does so no longer.
    pub(super) fn remove(&self, uri: &str) {
        let was_there = self.uris.lock().remove(uri);
        self.note(was_there);
    }

    fn note(&self, is_change: bool) -> u64 {
        if is_change {
            self.changed.send_modify(|number| *number += 1);
        }
        self.number()
    }

    /// The number of the latest change: read before [`Self::uris`], which then have it, and perhaps more.
    pub(super) fn number(&self) -> u64 {
        *self.changed.borrow()
    }

    pub(super) fn uris(&self) -> Vec<Box<str>> {
        self.uris.lock().iter().cloned().collect()
    }

    /// Whether it wants to hear of this resource: of it, or of one that contains it.
    pub(super) fn wants(&self, uri: &str) -> bool {
        is_within(uri, &self.uris.lock())
    }

    /// Sees every change.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// A stream begins, and an earlier one ends. Returns its number, and where the number of the latest is seen.
    pub(super) fn begin_stream(&self) -> (u64, watch::Receiver<u64>) {
        let receiver = self.streams.subscribe();
        let mut own = 0;
        self.streams.send_modify(|number| {
            *number += 1;
            own = *number;
        });
        (own, receiver)
    }

    /// The server knows of the changes up to this one.
    pub(super) fn settle(&self, settled: AgreedUris) {
        self.settled.send_replace(settled);
    }

    /// Waits until the server knows of this change. `None` at once if there is no stream that would tell it.
    pub(super) async fn settled(&self, number: u64) -> Option<AgreedUris> {
        if self.streams.receiver_count() == 0 {
            return None;
        }
        let mut settled = self.settled.subscribe();
        let found = settled.wait_for(|settled| settled.number >= number).await.ok()?;
        Some(found.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_has_a_number() {
        let subscribed = LegacySubscriptions::default();
        assert_eq!(subscribed.add("a:/x", 2), Some(1));
        assert_eq!(subscribed.add("a:/x", 2), Some(1), "nothing changed");
        assert_eq!(subscribed.add("b", 2), Some(2));
        assert_eq!(subscribed.add("c", 2), None, "there are as many as there may be");
        assert_eq!((subscribed.number(), subscribed.uris()), (2, vec!["a:/x".into(), "b".into()]));
        for (uri, is_wanted) in [("a:/x", true), ("a:/x/y", true), ("a:/xy", false), ("a:/", false)] {
            assert_eq!(subscribed.wants(uri), is_wanted, "{uri}");
        }
        subscribed.remove("b");
        subscribed.remove("b");
        assert_eq!((subscribed.number(), subscribed.uris()), (3, vec!["a:/x".into()]));
    }

    #[tokio::test]
    async fn who_subscribes_waits_for_the_server_only_where_there_is_a_stream() {
        let subscribed = LegacySubscriptions::default();
        assert!(subscribed.settled(1).await.is_none());
        let (first, seen) = subscribed.begin_stream();
        let (second, _) = subscribed.begin_stream();
        assert_eq!((first, second, *seen.borrow()), (1, 2, 2));
        let honoured = Arc::new(HashSet::from(["a".into()]));
        subscribed.settle(AgreedUris { number: 3, honoured });
        let settled = subscribed.settled(2).await.expect("it is settled");
        assert!(settled.honoured.contains("a"));
    }
}
