//! Clients of the era that an upstream does not speak. Whoever serves them lies above, and is given to each upstream when
//! it is made; here is which requests that are.
//!
//! An upstream that is no longer configured as it was leaves calls behind, which are finished. Their clients reach them
//! through [`RetiredBridges`], as the upstream that is configured by now, if any, knows nothing of them.

use std::sync::{Arc, Weak};
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use http::HeaderValue;
use parking_lot::Mutex;

use crate::access::limit::fair::Resting;
use crate::access::limit::payer::Payer;

use super::exchange::{Reply, UpstreamClient};
use super::request::{RequestKind, UpstreamRequest};
use super::{ReplicaSelection, Upstream};
use protocol::error::UpstreamError;
use protocol::version::Era;

/// Serves clients of the other era, for one upstream. Shared by all threads.
pub(crate) trait OtherEra: std::fmt::Debug + Send + Sync {
    /// Answers a request of `era`, which the upstream does not speak.
    fn answer(
        self: Arc<Self>,
        client: &UpstreamClient,
        era: Era,
        request: UpstreamRequest,
        deadline: Instant,
    ) -> LocalBoxFuture<'_, Result<Reply, UpstreamError>>;

    /// Whether it has opened the legacy session of this id.
    fn has_session(&self, id: &HeaderValue) -> bool;

    /// Sessions with the upstream that nobody uses.
    fn resting(&self) -> Vec<Resting<BridgedRest>>;

    /// Ends one that makes room. False: it is none any more.
    fn end_resting(&self, resting: BridgedRest) -> bool;

    /// The upstream is no longer configured: nothing new begins. Calls that are under way are finished, as far as they
    /// do not wait for a client to come back.
    fn retire(&self);

    /// After that, what a client says to its calls that are under way in this legacy session. False: there are none.
    fn hear_late(&self, client: &UpstreamClient, session: &HeaderValue, said: LateWord<'_>) -> bool;
}

/// A session of the bridge that nobody uses: who is charged for it, and since when.
pub(crate) type BridgedRest = (Payer, Instant);

/// What a client says to calls of an upstream that is no longer configured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LateWord<'a> {
    /// Its session is over.
    SessionEnded,
    /// It wants no answer any more to the call of this id, a literal.
    Cancelled(&'a [u8]),
    /// It answers the question of this id, a literal.
    Answer { id: &'a str, message: &'a Bytes },
}

/// Those whose upstream is no longer configured, for as long as they have calls under way. Shared by all threads.
#[derive(Debug, Default)]
pub(crate) struct RetiredBridges(Mutex<Vec<Weak<dyn OtherEra>>>);

impl RetiredBridges {
    /// Calls keep it alive, nothing here does.
    pub(crate) fn add(&self, retired: &Arc<dyn OtherEra>) {
        let mut all = self.0.lock();
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(retired));
    }

    /// False: nobody here has calls under way in this session.
    pub(crate) fn tell(
        &self,
        client: &UpstreamClient,
        session: Option<&HeaderValue>,
        said: LateWord<'_>,
    ) -> bool {
        let Some(session) = session else { return false };
        let all: Vec<Arc<dyn OtherEra>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        all.iter().any(|one| one.hear_late(client, session, said))
    }
}

/// The era that a request is written in if the upstream does not speak it. `None`: the upstream takes it as it is.
pub(super) fn crossing(upstream: &Upstream, request: &UpstreamRequest, aim: ReplicaSelection) -> Option<Era> {
    // Whoever finds out what an upstream speaks asks the upstream itself. A session that a replica has opened ends there.
    if matches!(aim, ReplicaSelection::Probe | ReplicaSelection::Question(_) | ReplicaSelection::Closing(_)) {
        return None;
    }
    // What was opened by the other era ends there, whatever the upstream speaks by now.
    let is_bridged = || {
        request.attributes.opens.as_ref().is_some_and(|opens| opens.is_bridged())
            || request.session_id().is_some_and(|id| upstream.other_era.has_session(id))
    };
    if request.kind == RequestKind::EndSession && is_bridged() {
        return Some(Era::Legacy);
    }
    if !upstream.config.bridge.is_on {
        return None;
    }
    let eras = upstream.asked_in().filter(|eras| !(eras.legacy && eras.modern))?;
    let era = request.era();
    // A session goes on as it began.
    let is_own = || era == Era::Legacy && upstream.opens_own_sessions() && !is_bridged();
    let is_spoken = eras.contains(era) || is_own();
    (!is_spoken).then_some(era)
}
