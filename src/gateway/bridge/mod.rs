//! The bridge: clients of one era and servers of the other.
//!
//! A server that speaks one era only is served as if it spoke the other one, too, so that relay, sessions, streams and
//! subscriptions know nothing of it: a legacy request is answered by [`as_legacy`], a modern one by [`as_modern`], and each
//! of them asks the server in its own era. They answer with messages ([`crate::upstream::messages`]), which the relay frames. What the messages look
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

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use futures_util::future::LocalBoxFuture;
use http::{HeaderMap, HeaderValue};

use crate::access::limit::fair::Resting;
use crate::access::limit::payer::Payer;
use crate::telemetry::metrics::families::BridgeSeries;
use crate::upstream::exchange::{Reply, UpstreamClient};
use crate::upstream::headers::fingerprint;
use crate::upstream::other_era::BridgedRest;
use crate::upstream::request::UpstreamRequest;
use crate::upstream::{CurrentUpstream, LateWord, OtherEra, Upstream};
use protocol::error::UpstreamError;
use protocol::version::Era;
use tokens::sealing::hex;

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

/// A server, with what the bridge to it keeps.
#[derive(Clone, Debug)]
pub(crate) struct BridgedServer {
    upstream: Arc<Upstream>,
    bridge: Arc<Bridge>,
}

/// Who makes a modern call that is bridged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BridgedCaller {
    /// Its identity; empty for none.
    pub principal: Arc<str>,
    /// Who is charged for what is held for it.
    pub payer: Payer,
    /// The headers that are handed on, as its client has shown them: sessions are opened with them.
    pub shown: Option<Arc<HeaderMap>>,
    /// Its identity with what is `shown`, where that is handed on.
    apart: Option<Arc<str>>,
}

impl BridgedCaller {
    /// The same, apart from those who have shown something else.
    pub(crate) fn showing(self, shown: Arc<HeaderMap>) -> Self {
        let apart = format!("{} {}", self.principal, hex(&fingerprint(&shown)));
        Self { apart: Some(apart.into()), shown: Some(shown), ..self }
    }

    /// Names whose sessions its calls may use.
    pub(crate) fn sessions_of(&self) -> &Arc<str> {
        self.apart.as_ref().unwrap_or(&self.principal)
    }
}

impl Bridge {
    /// The one to `upstream`. Nothing is kept yet.
    pub(crate) fn new(series: BridgeSeries, upstream: &Arc<CurrentUpstream>) -> Arc<Self> {
        Arc::new(Self {
            as_legacy: as_legacy::LegacyFacade::default(),
            as_modern: as_modern::ModernFacade::default(),
            upstream: upstream.clone(),
            series,
        })
    }

    fn server(self: &Arc<Self>) -> Option<BridgedServer> {
        Some(BridgedServer { upstream: self.upstream.get()?, bridge: Arc::clone(self) })
    }
}

impl OtherEra for Bridge {
    fn answer(
        self: Arc<Self>,
        client: &UpstreamClient,
        era: Era,
        request: UpstreamRequest,
        deadline: Instant,
    ) -> LocalBoxFuture<'_, Result<Reply, UpstreamError>> {
        // Written where it stays: it is many kilobytes, which nobody needs to move.
        let answering = Box::write(Box::new_uninit(), async move {
            let server = self.server().ok_or(UpstreamError::Unreachable)?;
            match era {
                Era::Legacy => as_legacy::answer(client, &server, request, deadline).await,
                Era::Modern => as_modern::answer(client, &server, request, deadline).await,
            }
        });
        Box::into_pin(answering)
    }

    fn has_session(&self, id: &HeaderValue) -> bool {
        self.as_legacy.has(id)
    }

    fn resting(&self) -> Vec<Resting<BridgedRest>> {
        self.as_modern.resting().collect()
    }

    fn end_resting(&self, resting: BridgedRest) -> bool {
        self.as_modern.end_resting(resting)
    }

    fn retire(&self) {
        self.as_legacy.retire();
        self.as_modern.retire();
    }

    fn hear_late(&self, client: &UpstreamClient, session: &HeaderValue, said: LateWord<'_>) -> bool {
        self.as_legacy.hear_late(client, session, said)
    }
}

impl Deref for BridgedServer {
    type Target = Upstream;

    fn deref(&self) -> &Upstream {
        &self.upstream
    }
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
