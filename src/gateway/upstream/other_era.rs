//! Clients of the era that an upstream does not speak. Whoever serves them lies above, and is given to each upstream when
//! it is made; here is which requests that are.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::LocalBoxFuture;
use http::HeaderValue;

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

    /// The upstream is no longer configured: calls that wait end.
    fn retire(&self);
}

/// The era that a request is written in if the upstream does not speak it. `None`: the upstream takes it as it is.
pub(super) fn crossing(upstream: &Upstream, request: &UpstreamRequest, aim: ReplicaSelection) -> Option<Era> {
    // Whoever finds out what an upstream speaks asks the upstream itself.
    if matches!(aim, ReplicaSelection::Probe | ReplicaSelection::Question(_)) {
        return None;
    }
    // What was opened by the other era ends there, whatever the upstream speaks by now.
    let ends = || request.session_id().is_some_and(|id| upstream.other_era.has_session(id));
    if request.kind == RequestKind::EndSession && ends() {
        return Some(Era::Legacy);
    }
    if !upstream.config.bridge.is_on {
        return None;
    }
    let eras = upstream.eras().filter(|eras| !(eras.legacy && eras.modern))?;
    let era = request.era();
    (!eras.contains(era)).then_some(era)
}
