//! Upstreams that speak the HTTP+SSE transport of 2024-11-05: one stream down, and messages up by POST to the address
//! that the stream names first.
//!
//! Each `initialize` opens a stream of its own, and the session lives as long as the stream. Only sessions are
//! carried: requests of the modern era have no place here. An upstream is known to speak it by configuration, or
//! because it was found to; one of the latter that no longer does is asked anew what it speaks.

mod connection;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use self::connection::SseOpenError;
use super::Upstream;
use super::exchange::{Reply, UpstreamClient};
use super::mux::MuxConnection;
use super::mux::exchange::{Connect, ConnectRequest, MuxPost, open_session};
use super::mux::sessions::MuxSessions;
use protocol::error::UpstreamError;

/// The streams of one upstream, and whether it has any.
#[derive(Debug, Default)]
pub(crate) struct SseUpstream {
    is_configured: bool,
    is_spoken: AtomicBool,
    sessions: MuxSessions,
    retired: CancellationToken,
}

impl SseUpstream {
    /// No stream yet. `is_configured`: the operator says that this is what the upstream speaks.
    pub(crate) fn new(is_configured: bool) -> Arc<Self> {
        Arc::new(Self { is_configured, is_spoken: AtomicBool::new(is_configured), ..Self::default() })
    }

    /// The upstream is no longer configured: its streams end.
    pub(crate) fn retire(&self) {
        self.retired.cancel();
    }

    pub(crate) fn is_spoken(&self) -> bool {
        self.is_spoken.load(Ordering::Relaxed)
    }

    /// The upstream was found to speak it, or not to.
    pub(crate) fn learn(&self, is_spoken: bool) {
        self.is_spoken.store(is_spoken || self.is_configured, Ordering::Relaxed);
    }

    /// Whether the upstream names an address when it is asked for a stream.
    pub(crate) async fn are_offered(
        &self,
        client: &UpstreamClient,
        upstream: &Upstream,
        deadline: Instant,
    ) -> bool {
        let Some(upstream) = self.current(upstream) else { return false };
        connection::open(client, &upstream, deadline).await.is_ok()
    }

    /// The upstream as it is configured now: new streams go by its settings.
    fn current(&self, upstream: &Upstream) -> Option<Arc<Upstream>> {
        upstream.current.get().filter(|_| !self.retired.is_cancelled())
    }
}

impl Connect for SseUpstream {
    fn sessions(&self) -> &MuxSessions {
        &self.sessions
    }

    async fn modern(
        &self,
        asking: ConnectRequest<'_>,
        _post: &MuxPost<'_>,
    ) -> Result<MuxConnection, UpstreamError> {
        if asking.upstream.eras().is_some() {
            return Err(UpstreamError::OtherEra);
        }
        // Clients of this era have the bridge as soon as it has answered.
        asking.upstream.facts.doubt();
        Err(asking.upstream.unasked())
    }

    async fn initialize(
        &self,
        asking: ConnectRequest<'_>,
        post: MuxPost<'_>,
    ) -> Result<Reply, UpstreamError> {
        let upstream = self.current(asking.upstream).filter(|_| !asking.client.host.is_leaving());
        let upstream = upstream.ok_or(UpstreamError::Unreachable)?;
        let opened = connection::open(asking.client, &upstream, asking.deadline).await;
        let opened = opened.map_err(|not_opened| {
            let (error, fault) = match not_opened {
                SseOpenError::Upstream(error) => return error,
                SseOpenError::NoStream(error) => {
                    let fault = upstream.fault_of(&error, upstream.config.response_timeout);
                    (error, fault.to_string())
                }
                SseOpenError::NoEndpoint(fault) => (UpstreamError::Nonsense, fault.to_string()),
            };
            tracing::warn!(upstream = upstream.config.name, fault, "no stream of HTTP+SSE");
            self.learn(false);
            upstream.facts.doubt();
            error
        })?;
        let host = &asking.client.host;
        let (connection, write_half, read_half) =
            MuxConnection::new(host.shared.limits().bounds(upstream.payer()));
        host.run(connection::run(opened, Rc::clone(host), self.retired.clone(), write_half, read_half));
        open_session(&self.sessions, connection, post).await
    }
}
