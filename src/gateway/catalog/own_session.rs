//! Sessions of the gateway's own with upstreams of the legacy era: opened once, and kept in the table of all sessions.

use std::sync::Arc;
use std::time::Instant;

use crate::session::{SessionId, SessionOwner, Sessions, UpstreamSession, UpstreamSessionError};
use crate::upstream::Upstream;
use crate::upstream::ask::Asker;
use crate::upstream::closing::LeftSession;
use crate::upstream::exchange::UpstreamClient;
use crate::upstream::initialize::{InitializeError, InitializeOffer, open};
use protocol::error::UpstreamError;

/// The gateway's own session `id`, which makes this offer: the one that is open, or a new one.
pub(crate) async fn own_session(
    asker: &Asker<'_>,
    sessions: &Sessions,
    upstream: &Upstream,
    (id, offer): (SessionId, InitializeOffer<'_>),
    deadline: Instant,
) -> Result<Arc<UpstreamSession>, UpstreamError> {
    let open_anew = || async {
        let opened = open(asker, upstream, offer, deadline).await?;
        let shown = opened.shown;
        let session = UpstreamSession::new(opened.id, opened.version).at(opened.replica);
        Ok::<_, InitializeError>(session.showing(shown.as_ref()))
    };
    // Its process may have ended, as nobody used it.
    if let Some(before) = sessions.opened(id, &upstream.session_key)
        && upstream.has_ended(before.id.as_ref())
    {
        sessions.lose(id, &upstream.session_key, &before);
    }
    let owner = SessionOwner::gateway(id, u64::MAX);
    let session = sessions.upstream_session(owner, &upstream.session_key, open_anew);
    match tokio::time::timeout_at(deadline.into(), session).await {
        Ok(Ok(session)) => Ok(session),
        Ok(Err(UpstreamSessionError::Failed(error))) => Err(error.into()),
        Ok(Err(UpstreamSessionError::NoState(_))) => Err(UpstreamError::TooManyListSessions),
        Err(_) => Err(UpstreamError::TimedOut.before_call()),
    }
}

/// Closes all of the gateway's own sessions with an upstream that the configuration no longer names.
pub(crate) fn close_own_sessions(client: &UpstreamClient, sessions: &Sessions, gone: &Arc<Upstream>) {
    let taken = sessions.take_own_of(&gone.session_key);
    // Others have ended with what they were on.
    if gone.has_own_connections() {
        return;
    }
    let left = taken.iter().filter_map(|(_, session)| LeftSession::new(Arc::clone(gone), &session.named()));
    client.close_sessions(left);
}
