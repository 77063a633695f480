//! The right to the session in which a legacy upstream is asked for a list. Each request has one of its own before it joins
//! a fetch, and pays for the session if that has to be opened; where there is no room for it, it waits.
//!
//! Not here: which session makes room for which (`session::list_pool`), and how one is opened.

use std::sync::Arc;
use std::time::Instant;

use tokio::time::timeout_at;

use super::fetch::FetchContext;
use super::gather::PartRequest;
use super::upstream_dialect::{UpstreamDialect, own_session};
use crate::clock;
use crate::session::{ListClaim, ListLease, NoLease, UpstreamSession, WaitingForList};
use crate::tables::lists::CatalogQuery;
use crate::upstream::Upstream;
use crate::upstream::closing::LeftSession;
use protocol::error::UpstreamError;

impl PartRequest {
    /// The right to the session that the fetch takes, within its bounds; waits for room until `deadline`. `None`: it takes
    /// none, or that which the gateway has anyway.
    pub(super) async fn lease(
        &self,
        thread: &FetchContext,
        deadline: Instant,
    ) -> Result<Option<Arc<ListLease>>, UpstreamError> {
        let UpstreamDialect::Legacy(version, capabilities) = &self.dialect else { return Ok(None) };
        let depth_max = thread.snapshot.limits.json_depth_max;
        let session = own_session(&self.owner, *version, capabilities);
        let is_own = self.owner.is_session() || !session.is_for_lists();
        if self.key.kind == CatalogQuery::Discover || is_own || self.is_undeclared(depth_max) {
            return Ok(None);
        }
        let upstream = &self.upstream;
        let sessions_max = upstream.list_sessions_max();
        let claim = ListClaim { upstream: &upstream.session_key, session, payer: self.payer, sessions_max };
        let refused = &upstream.series.list_sessions_refused;
        let leased = lease(thread, upstream, &claim, deadline).await;
        leased.map(|lease| Some(Arc::new(lease))).inspect_err(|_| refused.inc())
    }
}

async fn lease(
    thread: &FetchContext,
    upstream: &Arc<Upstream>,
    claim: &ListClaim<'_>,
    deadline: Instant,
) -> Result<ListLease, UpstreamError> {
    let sessions = &thread.state.sessions;
    let mut waiting: Option<WaitingForList> = None;
    loop {
        let notify = waiting.as_ref().map(|waiting| Arc::clone(&waiting.released));
        // Asked for before the look, so that what is released in between is not missed.
        let released = notify.as_ref().map(|notify| notify.notified());
        let (mut ousted, now) = (Vec::new(), clock::now());
        let leased = sessions.lease_for_list(claim, now, &mut ousted);
        for (_, session) in ousted {
            close(thread, upstream, &session);
        }
        let until = match leased {
            Ok(lease) => return Ok(lease),
            Err(NoLease::Rate) => return Err(UpstreamError::ListSessionRate),
            Err(NoLease::TooManyOfPrincipal) => return Err(UpstreamError::ListSessionsOfPrincipal),
            Err(NoLease::NoRoom(_)) if now >= deadline => return Err(UpstreamError::TooManyListSessions),
            Err(NoLease::NoRoom(until)) => until.map_or(deadline, |until| until.min(deadline)),
        };
        match released {
            Some(released) => {
                // Either way it is tried again.
                let _ = timeout_at(until.into(), released).await;
            }
            None => waiting = Some(sessions.wait_for_list(claim)),
        }
    }
}

/// Closes a session that made room.
fn close(thread: &FetchContext, upstream: &Arc<Upstream>, session: &UpstreamSession) {
    let closed = &upstream.series.list_sessions_closed;
    closed.inc();
    tracing::debug!(upstream = upstream.config.name, "a session for lists makes room for another");
    thread.client.close_sessions(LeftSession::new(Arc::clone(upstream), &session.named()));
}
