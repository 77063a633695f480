//! All sessions with state, and those that were ended, in shards that are locked by themselves.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use foldhash::HashMap;
use parking_lot::{Mutex, MutexGuard};

use super::SessionId;
use super::session_state::SessionState;

const SHARDS: usize = 64;
/// A map with room for no more than this many keeps it.
const ROOM_KEPT: usize = 64;
/// Ended sessions that a shard remembers: half a million in all, which is 30 MiB of journal.
pub(super) const REVOKED_PER_SHARD_MAX: usize = 8192;
/// Sessions of which a shard remembers that others were asked: a quarter of a million in all, about 10 MiB.
pub(super) const SEEN_PER_SHARD_MAX: usize = 4096;

#[derive(Debug)]
pub(super) struct SessionTable {
    shards: Box<[Mutex<SessionShard>]>,
    /// Whoever holds one asks others of sessions.
    turns: Box<[tokio::sync::Mutex<()>]>,
}

/// Nobody chooses ids, so that a fast hash is as good as any.
#[derive(Debug, Default)]
pub(super) struct SessionShard {
    pub(super) live: HashMap<SessionId, Arc<SessionState>>,
    /// With the time when they would have expired.
    pub(super) revoked: HashMap<SessionId, u64>,
    /// At which epoch others were asked.
    seen: HashMap<SessionId, u64>,
}

impl Default for SessionTable {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            turns: (0..SHARDS).map(|_| tokio::sync::Mutex::default()).collect(),
        }
    }
}

impl SessionTable {
    pub(super) fn shard(&self, session: SessionId) -> MutexGuard<'_, SessionShard> {
        self.shards[index(session)].lock()
    }

    /// The turn to ask others of a session, among others.
    pub(super) fn turn(&self, session: SessionId) -> &tokio::sync::Mutex<()> {
        &self.turns[index(session)]
    }

    pub(super) fn entry(&self, session: SessionId) -> Option<Arc<SessionState>> {
        self.shard(session).live.get(&session).cloned()
    }

    /// One after the other, each locked while the caller holds it.
    pub(super) fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, SessionShard>> {
        self.shards.iter().map(|shard| shard.lock())
    }
}

fn index(session: SessionId) -> usize {
    // What is left of a division by the number of shards is smaller than it.
    usize::try_from(session.0 % SHARDS as u128).unwrap_or_default()
}

impl SessionShard {
    /// Gives room back that it does not use.
    pub(super) fn shrink(&mut self) {
        shrink(&mut self.live);
        shrink(&mut self.revoked);
        shrink(&mut self.seen);
    }

    pub(super) fn has_seen(&self, session: SessionId, epoch: u64) -> bool {
        self.seen.get(&session) == Some(&epoch)
    }

    /// Remembers that they were. Where there are too many any other is forgotten, and asked for again.
    pub(super) fn see(&mut self, session: SessionId, epoch: u64, seen_max: usize) {
        if self.seen.len() >= seen_max && !self.seen.contains_key(&session) {
            let any = self.seen.keys().next().copied();
            any.and_then(|any| self.seen.remove(&any));
        }
        self.seen.insert(session, epoch);
    }

    /// They are to be asked again when it is next used.
    pub(super) fn doubt(&mut self, session: SessionId) {
        self.seen.remove(&session);
    }

    pub(super) fn is_revoked(&self, session: SessionId) -> bool {
        self.revoked.contains_key(&session)
    }

    /// Remembers that a session was ended. True if another was forgotten for it.
    pub(super) fn revoke(&mut self, session: SessionId, expires_s: u64) -> bool {
        let is_full = self.revoked.len() >= REVOKED_PER_SHARD_MAX && !self.is_revoked(session);
        if is_full {
            let soonest = self.revoked.iter().min_by_key(|(_, expires_s)| **expires_s).map(|(id, _)| *id);
            soonest.and_then(|id| self.revoked.remove(&id));
        }
        self.revoked.insert(session, expires_s);
        is_full
    }
}

/// Gives room back that a map does not use, and leaves enough for it not to grow again at once.
fn shrink<K: Eq + Hash, V, S: BuildHasher>(map: &mut std::collections::HashMap<K, V, S>) {
    if map.capacity() > ROOM_KEPT.max(4 * map.len()) {
        map.shrink_to(2 * map.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_many_goes_once_there_are_few() {
        let mut shard = SessionShard::default();
        for number in 0..1000 {
            shard.revoke(SessionId(number), 10);
            shard.see(SessionId(number), 1, SEEN_PER_SHARD_MAX);
        }
        let full = (shard.revoked.capacity(), shard.seen.capacity());
        shard.shrink();
        assert_eq!((shard.revoked.capacity(), shard.seen.capacity()), full, "they are in use");
        shard.revoked.retain(|session, _| session.0 < 100);
        shard.seen.clear();
        shard.shrink();
        assert_eq!(shard.revoked.len(), 100);
        assert!((200..full.0 / 2).contains(&shard.revoked.capacity()), "{}", shard.revoked.capacity());
        assert_eq!(shard.seen.capacity(), 0);
    }

    #[test]
    fn a_full_shard_forgets_what_expires_next() {
        let mut shard = SessionShard::default();
        for number in 0..REVOKED_PER_SHARD_MAX as u128 {
            let expires_s = if number == 77 { 10 } else { 1_000 + u64::try_from(number).expect("small") };
            assert!(!shard.revoke(SessionId(number), expires_s));
        }
        assert!(!shard.revoke(SessionId(5), 2_000), "it was there already");
        assert!(shard.revoke(SessionId(1 << 100), 5));
        assert!(shard.is_revoked(SessionId(1 << 100)) && !shard.is_revoked(SessionId(77)));
        assert_eq!(shard.revoked.len(), REVOKED_PER_SHARD_MAX);
    }
}
