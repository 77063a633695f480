//! The sessions that a client's session has with upstreams: opened once for all who need one, and forgotten when lost.

use std::future::Future;
use std::sync::Arc;

use super::journal::JournalRecord;
use super::session_state::{ClosedSession, SessionState, UpstreamSession, UpstreamSlot};
use super::{NoState, SessionId, SessionOwner, Sessions, place_for};
use crate::access::limit::shares::Share;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UpstreamSessionError<E> {
    #[error(transparent)]
    Failed(E),
    #[error(transparent)]
    NoState(#[from] NoState),
}

impl Sessions {
    /// The session's session with an upstream: the one there is, or the one that `open` opens. Of several
    /// callers one opens and the others wait; if it fails or is dropped, the next one tries.
    ///
    /// While the result is held, the session does not count as idle.
    pub(crate) async fn upstream_session<E, F: Future<Output = Result<UpstreamSession, E>>>(
        &self,
        owner: SessionOwner<'_>,
        upstream: &str,
        open: impl FnOnce() -> F,
    ) -> Result<Arc<UpstreamSession>, UpstreamSessionError<E>> {
        let session = owner.session;
        let entry = self.entry(owner)?;
        let slot = entry.lock().slot(upstream);
        if let Some(opened) = slot.session() {
            return Ok(opened);
        }
        let _turn = slot.turn.lock().await;
        if let Some(opened) = slot.session() {
            return Ok(opened);
        }
        if entry.lock().is_closed {
            return Err(NoState::Ended.into());
        }
        let place = place_for(session, &self.upstream_places, owner.payer()).map_err(NoState::from)?;
        let opened = Arc::new(open().await.map_err(UpstreamSessionError::Failed)?);
        let is_kept = self.keep(session, &entry, &slot, (upstream.into(), Arc::clone(&opened)), place);
        if is_kept { Ok(opened) } else { Err(NoState::Ended.into()) }
    }

    pub(crate) fn opened(&self, session: SessionId, upstream: &str) -> Option<Arc<UpstreamSession>> {
        self.table.entry(session)?.lock().opened(upstream)
    }

    /// True if a session is kept that its upstream calls so.
    #[cfg(test)]
    pub(crate) fn holds(&self, id: &str) -> bool {
        let is_it = |(_, opened): &ClosedSession| opened.id.as_ref().is_some_and(|held| held == id);
        self.table
            .shards()
            .any(|shard| shard.live.values().any(|entry| entry.lock().all_opened().iter().any(is_it)))
    }

    pub(crate) fn all_opened(&self, session: SessionId) -> Vec<ClosedSession> {
        self.table.entry(session).map(|entry| entry.lock().all_opened()).unwrap_or_default()
    }

    /// Forgets an upstream session that its upstream no longer knows. False if that was done already.
    pub(crate) fn lose(&self, session: SessionId, upstream: &str, lost: &Arc<UpstreamSession>) -> bool {
        let Some(entry) = self.table.entry(session) else { return false };
        let mut changing = entry.lock();
        let is_lost = changing.slot(upstream).forget(lost);
        if is_lost {
            // To others it stays what it was, until another is in its place.
            self.journal.write(&JournalRecord::Lost { session, upstream });
        }
        is_lost
    }

    /// Takes one of the gateway's own sessions away, and its state with it. It is the caller's to close.
    pub(super) fn take_own(&self, session: SessionId, upstream: &str) -> Option<ClosedSession> {
        let opened = self.opened(session, upstream)?;
        if !self.lose(session, upstream, &opened) {
            return None;
        }
        let mut shard = self.table.shard(session);
        let is_empty =
            |entry: &Arc<SessionState>| Arc::strong_count(entry) == 1 && entry.lock().all_opened().is_empty();
        if shard.live.get(&session).is_some_and(is_empty) {
            shard.live.remove(&session);
            self.note(&JournalRecord::Dropped { session });
        }
        Some((upstream.into(), opened))
    }

    /// Takes all of the gateway's own sessions with an upstream away. They are the caller's to close.
    pub(crate) fn take_own_of(&self, upstream: &str) -> Vec<ClosedSession> {
        let mut own: Vec<SessionId> = Vec::new();
        for shard in self.table.shards() {
            own.extend(shard.live.keys().copied().filter(|session| session.is_own()));
        }
        own.into_iter().filter_map(|session| self.take_own(session, upstream)).collect()
    }

    /// Leaves upstream sessions to the next sweep to be closed.
    pub(super) fn strand(&self, closed: Vec<ClosedSession>) {
        let mut stranded = self.stranded.lock();
        stranded.extend(closed.into_iter().map(|closed| (closed, None)));
    }

    /// False: the session was ended meanwhile.
    fn keep(
        &self,
        session: SessionId,
        entry: &SessionState,
        slot: &UpstreamSlot,
        opened: ClosedSession,
        place: Share,
    ) -> bool {
        let changing = entry.lock();
        if changing.is_closed {
            opened.1.ended.cancel();
            self.stranded.lock().push((opened, Some(place)));
            return false;
        }
        let (upstream, opened) = opened;
        slot.keep(Arc::clone(&opened), place);
        let expires_s = entry.expires_s;
        self.note(&JournalRecord::Opened { session, expires_s, upstream: &upstream, opened: &opened });
        true
    }
}
