//! A new connection to a replica.

use std::rc::Rc;

use tokio::time::timeout;

use super::exchange::UpstreamClient;
use super::fault::Fault;
use super::http1::connection::PooledConnection;
use super::pool::{ConnectionSlot, PoolMembership, PoolPlace};
use super::{Replica, Upstream};
use crate::telemetry::metrics::GaugeGuard;
use net::socket;
use net::stream::{MaybeTls, Tls};
use protocol::error::UpstreamError;

impl UpstreamClient {
    /// One of those that the upstream may have. Streams are bounded by those who open them, so that calls always find connections.
    pub(super) async fn connect(
        &self,
        upstream: &Upstream,
        replica: &Replica,
        place: PoolPlace,
        is_stream: bool,
    ) -> Result<Rc<PooledConnection>, UpstreamError> {
        // One that waits, at another upstream, must not keep a call from this one.
        if self.open.get() >= self.open_max && !is_stream && !self.pools.make_room() {
            return Err(UpstreamError::TooManyConnections);
        }
        let counter = if is_stream { Rc::default() } else { Rc::clone(&self.open) };
        let open = (ConnectionSlot::new(counter), GaugeGuard::new(&upstream.series.connections));
        let name = upstream.config.name.as_str();
        let patience = upstream.config.connect_timeout;
        let connected = timeout(patience, async {
            let stream = replica.open().await.and_then(|stream| socket::tune(&stream).map(|()| stream));
            let stream = stream
                .inspect_err(|error| tracing::debug!(upstream = name, %error, "cannot connect"))
                .map_err(|error| Fault::of_connect(&error))?;
            let Some(tls) = &replica.tls else { return Ok(MaybeTls::Clear(stream)) };
            let stream = tls.connect(stream, &replica.host).await;
            let stream =
                stream.inspect_err(|fault| upstream.access.remark(name, *fault)).map_err(Fault::Tls)?;
            Ok(MaybeTls::Tls(Tls(Box::new(stream.into()))))
        });
        let connected = connected.await.unwrap_or_else(|_| {
            tracing::debug!(upstream = name, "connecting took too long");
            Err(Fault::ConnectTimedOut(patience))
        });
        let connected = match connected {
            Ok(connected) => connected,
            Err(fault) => {
                upstream.series.connects.error.inc();
                replica.note_fault(fault);
                return Err(UpstreamError::Unreachable);
            }
        };
        upstream.series.connects.ok.inc();
        let membership = PoolMembership::new(upstream, place);
        Ok(PooledConnection::new(connected, &self.buffers, membership, open))
    }
}
