//! Sessions with upstreams whose child processes may make room for others. The client's session goes on; its session with the
//! upstream is opened again when it is next used.
//!
//! Not here: what a process is, and which one goes. Callers say which upstream sessions are processes that nothing is under
//! way in, and since when.

use std::sync::Arc;
use std::time::Instant;

use super::journal::JournalRecord;
use super::{SessionId, Sessions, UpstreamSession};
use crate::access::limit::fair::Resting;

/// A session with an upstream that nobody works with.
#[derive(Clone, Debug)]
pub(crate) struct RestingSession {
    session: SessionId,
    /// `Upstream::session_key`.
    pub upstream: Box<str>,
}

impl Sessions {
    /// Those whose processes are quiet, as `quiet_since` says, and whose clients do not listen.
    pub(crate) fn resting(
        &self,
        quiet_since: impl Fn(&str, &UpstreamSession) -> Option<Instant>,
    ) -> Vec<Resting<RestingSession>> {
        let mut resting = Vec::new();
        for shard in self.table.shards() {
            for (session, entry) in &shard.live {
                if entry.outbox.has_client() {
                    continue;
                }
                entry.lock().look_at_opened(|upstream, opened| {
                    if let Some(since) = quiet_since(upstream, &opened.session)
                        && !opened.is_in_use()
                    {
                        let key = RestingSession { session: *session, upstream: upstream.into() };
                        resting.push(Resting { key, payer: opened.place.payer(), since });
                    }
                });
            }
        }
        resting
    }

    /// Takes one of them away, which is the caller's to close. `None`: somebody works with it by now.
    pub(crate) fn part_with(&self, resting: &RestingSession) -> Option<Arc<UpstreamSession>> {
        let RestingSession { session, upstream } = resting;
        let entry = self.table.entry(*session)?;
        let changing = entry.lock();
        let opened = changing.take_unused(upstream)?;
        self.note(&JournalRecord::Lost { session: *session, upstream });
        Some(opened)
    }
}
