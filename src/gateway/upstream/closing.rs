//! The end of sessions that nobody needs any more, in tasks of their own.
//!
//! Each is closed once: an upstream that refuses that, or does not answer, keeps it until it forgets it by itself. One that
//! answers slowly holds up the sessions of no other upstream, and the end of the gateway for no more than a moment.
//!
//! A session may be opened when nobody waits for it any more, as `initialize` was not answered in time. That answer is waited
//! for, within bounds and as long as the upstream is configured, and the session is closed.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use http::{HeaderMap, HeaderValue};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::ask::{Asker, SessionHeaders};
use super::exchange::UpstreamClient;
use super::request::{LateReply, SessionOpener};
use super::{CurrentUpstream, ReplicaKey, Upstream, UpstreamId};
use crate::clock;
use crate::telemetry::metrics::GaugeGuard;
use protocol::version::LegacyVersion;

/// The time that closing one may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The same of all that are being closed, once the gateway is about to end.
const LAST_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Those of one upstream that are closed at once by one task.
const CLOSING_MAX: usize = 8;
/// The time in which a session may be opened that nobody waits for any more. An upstream that is slower forgets it by itself.
const LATE_PATIENCE: Duration = Duration::from_secs(30);

/// A session that nobody needs any more.
#[derive(Debug)]
pub(crate) struct LeftSession {
    upstream: Arc<Upstream>,
    id: HeaderValue,
    /// `None`: the upstream has not said which it speaks.
    version: Option<&'static str>,
    replica: Option<ReplicaKey>,
    shown: Option<Arc<HeaderMap>>,
    /// The upstream knows it, so that its answer says whether it closes sessions.
    is_known: bool,
}

impl LeftSession {
    /// `None`: the upstream gives its sessions no ids, and keeps none.
    pub(crate) fn new(upstream: Arc<Upstream>, session: &SessionHeaders<'_>) -> Option<Self> {
        let SessionHeaders { id, version, replica, shown } = session;
        let (id, shown) = (HeaderValue::clone((*id)?), shown.clone());
        Some(Self { upstream, id, version: *version, replica: *replica, shown, is_known: false })
    }

    /// One that the upstream has just opened.
    #[must_use]
    pub(crate) fn known(self) -> Self {
        Self { is_known: true, ..self }
    }

    /// The upstream has said which version it speaks.
    pub(super) fn agree_on(&mut self, version: LegacyVersion) {
        self.version = Some(version.as_str());
    }

    fn named(&self) -> SessionHeaders<'_> {
        let (id, shown) = (Some(&self.id), self.shown.clone());
        SessionHeaders { id, version: self.version, replica: self.replica, shown }
    }
}

impl UpstreamClient {
    /// Closes sessions, at each upstream a few at a time.
    pub(crate) fn close_sessions(&self, left: impl IntoIterator<Item = LeftSession>) {
        for of_one in by_upstream(left) {
            let client = self.clone();
            self.tasks.spawn(async move { client.close_in_time(of_one).await });
        }
    }

    /// Closes one as [`close_sessions`](Self::close_sessions) does, and waits so long for its end.
    pub(crate) async fn close_session_within(&self, left: LeftSession, patience: Duration) {
        let (client, (done, is_done)) = (self.clone(), oneshot::channel::<()>());
        self.tasks.spawn(async move {
            client.close_in_time(vec![left]).await;
            drop(done);
        });
        // It is closed, or goes on to be.
        let _ = timeout(patience, is_done).await;
    }

    async fn close_in_time(&self, left: Vec<LeftSession>) {
        let last_moment = async {
            self.host.closing().await;
            sleep(LAST_CLOSE_TIMEOUT).await;
        };
        tokio::select! {
            () = self.close_few(left) => {}
            () = last_moment => {}
        }
    }

    /// Closes sessions as [`close_sessions`](Self::close_sessions) does, and waits for the end of all.
    pub(crate) async fn close_all(&self, left: impl IntoIterator<Item = LeftSession>) {
        join_all(by_upstream(left).map(|of_one| self.close_few(of_one))).await;
    }

    /// Closes sessions, a few at a time.
    async fn close_few(&self, left: Vec<LeftSession>) {
        let limits = self.limits();
        let asker = &Asker::of(self, &limits);
        let close = async |session: LeftSession| {
            #[cfg(test)]
            tests::note_asked(&session.id);
            let (upstream, deadline) = (&session.upstream, clock::now() + CLOSE_TIMEOUT);
            let is_closed = asker.close_session(upstream, session.named(), deadline).await;
            // Of one that could not be asked nothing is known.
            if let Ok(is_closed) = is_closed
                && session.is_known
            {
                upstream.facts.note_session_end(is_closed);
            }
        };
        stream::iter(left).for_each_concurrent(CLOSING_MAX, close).await;
    }
}

fn by_upstream(left: impl IntoIterator<Item = LeftSession>) -> impl Iterator<Item = Vec<LeftSession>> {
    let mut of_each: HashMap<UpstreamId, Vec<LeftSession>> = HashMap::new();
    for session in left {
        of_each.entry(session.upstream.id).or_default().push(session);
    }
    of_each.into_values()
}

/// The terms on which a session is opened, by which it can be closed if that is too late.
#[derive(Debug)]
pub(super) struct OfferedSession {
    /// The upstream itself would stay as long as its answer is waited for.
    pub(super) upstream: Arc<CurrentUpstream>,
    /// The headers that are handed on, as it is shown them.
    pub(super) shown: Option<Arc<HeaderMap>>,
    /// It is opened by the bridge, though the upstream may open it itself.
    pub(super) is_bridged: bool,
}

impl SessionOpener for OfferedSession {
    fn is_bridged(&self) -> bool {
        self.is_bridged
    }

    fn leave(self: Arc<Self>, client: &UpstreamClient, reply: LateReply) {
        let Some(upstream) = self.upstream.get() else { return };
        let Ok(place) = client.pools.late.0.take(upstream.payer()) else { return };
        let counted = GaugeGuard::new(&upstream.series.late_answers);
        drop(upstream);
        let waiting = client.clone();
        client.tasks.spawn(async move {
            tokio::select! {
                () = self.close_late(&waiting, reply) => {}
                () = waiting.host.closing() => {}
                () = self.upstream.gone() => {}
            }
            drop((place, counted));
        });
    }
}

impl OfferedSession {
    /// Closes the session once it is open.
    async fn close_late(&self, client: &UpstreamClient, reply: LateReply) {
        let LateReply { connection, replica } = reply;
        let until = clock::now() + LATE_PATIENCE;
        let Ok((start, _)) = poll_fn(|cx| connection.poll_reply(cx, until)).await else { return };
        let id = start.head.fields.kept_session_id().filter(|_| start.head.status.is_success());
        let (Some(id), Some(upstream)) = (id, self.upstream.get()) else { return };
        tracing::debug!(upstream = upstream.config.name, "a session is closed that was opened too late");
        upstream.series.late_sessions.inc();
        // It chooses a revision in the answer, which is not read.
        let (version, shown) = (None, self.shown.clone());
        let named = SessionHeaders { id: Some(&id), version, replica: Some(replica), shown };
        client.close_sessions(LeftSession::new(upstream, &named));
    }
}

#[cfg(test)]
pub(crate) use self::tests::was_asked_to_forget;
#[cfg(test)]
mod tests;
