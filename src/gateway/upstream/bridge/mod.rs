//! The bridge: clients of one era and servers of the other.
//!
//! A server that speaks one era only is served as if it spoke the other one, too, so that relay, sessions, streams and
//! subscriptions know nothing of it: a legacy request is answered by [`as_legacy`], a modern one by [`as_modern`], and each
//! of them asks the server in its own era. They answer with messages ([`super::messages`]), which the relay frames. What the messages look
//! like in the other era is in [`protocol::translation`].
//!
//! Lists, `server/discover` and `initialize` do not come by here: the catalog asks for them in an era that the server
//! speaks, and writes them for whoever asked.
//!
//! Deliberately not here: whether a client may call (that is decided before), and names (the relay maps them after).
//!
//! Invariant: what one client says, or is asked, reaches nobody but the call it belongs to.

pub(crate) mod as_legacy;
pub(crate) mod as_modern;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use http::{Method, Request};

use super::ask::SESSION_ID;
use super::exchange::{Reply, RequestBody, UpstreamClient};
use super::headers::{ForwardedFields, era_of};
use super::{CurrentUpstream, ReplicaSelection, Upstream};
use crate::access::limit::payer::Payer;
use crate::telemetry::metrics::families::BridgeSeries;
use protocol::error::UpstreamError;
use protocol::version::Era;

/// What the bridge to one upstream keeps; shared by all threads.
#[derive(Debug)]
pub(crate) struct Bridge {
    pub series: BridgeSeries,
    /// The sessions of legacy clients with a modern server.
    pub as_legacy: as_legacy::LegacyFacade,
    /// The sessions with a legacy server, and the calls of modern clients that wait there.
    pub as_modern: as_modern::ModernFacade,
    upstream: Arc<CurrentUpstream>,
}

/// Who makes a modern call that is bridged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct BridgedCaller {
    /// Its identity; empty for none.
    pub principal: Arc<str>,
    /// Who is charged for what is held for it.
    pub payer: Payer,
}

impl Bridge {
    /// The one to `upstream`. Nothing is kept yet.
    pub(crate) fn new(series: BridgeSeries, upstream: &Arc<CurrentUpstream>) -> Arc<Self> {
        Arc::new(Self {
            as_legacy: as_legacy::LegacyFacade::default(),
            as_modern: as_modern::ModernFacade::default(),
            upstream: Arc::clone(upstream),
            series,
        })
    }

    pub(crate) fn upstream(&self) -> Option<Arc<Upstream>> {
        self.upstream.get()
    }

    /// The upstream is no longer configured: calls that wait end.
    pub(crate) fn retire(&self) {
        self.as_legacy.retire();
        self.as_modern.retire();
    }
}

/// The era that a request is written in if it has to cross. `None`: the upstream takes it as it is.
pub(crate) fn crossing(
    upstream: &Upstream,
    request: &Request<RequestBody>,
    aim: ReplicaSelection,
) -> Option<Era> {
    // Whoever finds out what an upstream speaks asks the upstream itself.
    if matches!(aim, ReplicaSelection::Probe | ReplicaSelection::Question(_)) {
        return None;
    }
    // What was opened here ends here, whatever the upstream speaks by now.
    let ends = || request.headers().get(SESSION_ID).is_some_and(|id| upstream.bridge.as_legacy.has(id));
    if request.method() == Method::DELETE && ends() {
        return Some(Era::Legacy);
    }
    if !upstream.config.bridge.is_on {
        return None;
    }
    let eras = upstream.eras().filter(|eras| !(eras.legacy && eras.modern))?;
    let forwarded = request.body().forwarded.as_ref();
    let era = forwarded.map_or_else(|| era_of(request.headers()), ForwardedFields::era);
    (!eras.contains(era)).then_some(era)
}

/// A number that no request or question of the bridge had before, whichever session it is of: none is ever taken for
/// another's, and sessions share connections.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(2);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What comes of this future; without one, nothing ever does.
async fn or_never<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Answers a request of `era` for an upstream that speaks the other one.
pub(crate) async fn send(
    client: &UpstreamClient,
    upstream: &Upstream,
    era: Era,
    request: Request<RequestBody>,
    deadline: Instant,
) -> Result<Reply, UpstreamError> {
    let Some(upstream) = upstream.bridge.upstream() else { return Err(UpstreamError::Unreachable) };
    match era {
        Era::Legacy => as_legacy::answer(client, &upstream, request, deadline).await,
        Era::Modern => as_modern::answer(client, &upstream, request, deadline).await,
    }
}
