//! Which ids of events a client was given in the replies to its calls: it may come back with one of these, and with no other.
//!
//! Of each reply the last few are kept, as some may be lost on the way, and of the replies those that are open, and of the
//! others the latest. Invariant: an id is kept before it is handed on.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::session::given_ids::digest;

/// Replies whose ids are kept.
const REPLIES_MAX: usize = 64;
/// Ids that are kept of each.
const IDS_MAX: usize = 32;

/// The ids of one reply.
#[derive(Debug, Default)]
pub(crate) struct ReplyIds(Mutex<VecDeque<u64>>);

/// The part of its own ids that a reply keeps.
#[derive(Debug, Default)]
pub(crate) struct GivenIds {
    kept: Option<Arc<ReplyIds>>,
    last: Bytes,
}

/// The ids of all replies of a session, oldest first.
#[derive(Debug, Default)]
pub(super) struct IdsOfReplies(VecDeque<Arc<ReplyIds>>);

impl GivenIds {
    /// The client is given this id, as it spells it. `begin` makes room for those of this reply.
    pub(crate) fn note(&mut self, id: &Bytes, begin: impl FnOnce() -> Arc<ReplyIds>) {
        if self.last == *id {
            return;
        }
        self.last.clone_from(id);
        let mut ids = self.kept.get_or_insert_with(begin).0.lock();
        if ids.len() >= IDS_MAX {
            ids.pop_front();
        }
        ids.push_back(digest(id));
    }
}

impl IdsOfReplies {
    pub(super) fn begin(&mut self) -> Arc<ReplyIds> {
        if self.0.len() >= REPLIES_MAX {
            // One that is still open may break off, and its client has nothing else to go on with.
            let is_over = |ids: &Arc<ReplyIds>| Arc::strong_count(ids) == 1;
            self.0.remove(self.0.iter().position(is_over).unwrap_or_default());
        }
        let ids = Arc::<ReplyIds>::default();
        self.0.push_back(Arc::clone(&ids));
        ids
    }

    /// All that are kept, as if one reply had given them, for another process.
    pub(super) fn digests(&self) -> Vec<u64> {
        self.0.iter().flat_map(|ids| ids.0.lock().clone()).collect()
    }

    pub(super) fn restored(digests: Vec<u64>) -> Self {
        Self(VecDeque::from([Arc::new(ReplyIds(Mutex::new(digests.into())))]))
    }

    pub(super) fn has(&self, id: &[u8]) -> bool {
        let digest = digest(id);
        self.0.iter().any(|ids| ids.0.lock().contains(&digest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ids_of_the_latest_replies_are_known() {
        let mut all = IdsOfReplies::default();
        let mut first = GivenIds::default();
        for number in 0..IDS_MAX + 2 {
            for _ in 0..2 {
                first.note(&Bytes::from(format!("a{number}")), || all.begin());
            }
        }
        assert_eq!(all.0.len(), 1);
        assert!(!all.has(b"a0") && !all.has(b"a1") && all.has(b"a2") && all.has(b"a33") && !all.has(b"b0"));
        for number in 0..REPLIES_MAX {
            GivenIds::default().note(&Bytes::from(format!("b{number}")), || all.begin());
        }
        assert!(!all.has(b"b0") && all.has(b"b1") && all.has(b"b63"));
        // An open reply goes on, however many came after it.
        first.note(&Bytes::from_static(b"a34"), || all.begin());
        assert!(all.has(b"a33") && all.has(b"a34"));
        drop(first);
        GivenIds::default().note(&Bytes::from_static(b"c"), || all.begin());
        assert!(!all.has(b"a34") && all.has(b"b1") && all.has(b"c"));
        // There is a bound even where all are open.
        let mut open: Vec<GivenIds> = (0..=REPLIES_MAX).map(|_| GivenIds::default()).collect();
        for (number, reply) in open.iter_mut().enumerate() {
            reply.note(&Bytes::from(format!("d{number}")), || all.begin());
        }
        assert_eq!(all.0.len(), REPLIES_MAX);
        assert!(!all.has(b"d0") && all.has(b"d1") && all.has(b"d64"));
    }
}
