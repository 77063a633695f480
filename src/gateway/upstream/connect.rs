//! A new connection to a replica.

use std::cell::Cell;
use std::rc::Rc;

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use net::socket::{self, Observed, TcpStream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::exchange::UpstreamClient;
use super::pool::{ConnectionSlot, PooledConnection};
use super::{Replica, Upstream};
use crate::telemetry::metrics::GaugeGuard;
use net::framing::{Framed, Sender};
use protocol::error::UpstreamError;

/// There may be very many streams.
const STREAM_BUFFER_BYTES_MAX: usize = 32 * 1024;

impl UpstreamClient {
    /// Streams are bounded by those who open them, so that calls always find connections.
    pub(super) async fn connect(
        &self,
        upstream: &Upstream,
        replica: &Replica,
        is_stream: bool,
    ) -> Result<PooledConnection, UpstreamError> {
        if self.open.get() >= self.open_max && !is_stream {
            // One that waits, at another upstream, must not keep a call from this one.
            if !self.pools.make_room() {
                return Err(UpstreamError::TooManyConnections);
            }
            // Its task ends, and no longer counts.
            yield_now().await;
        }
        let counter = if is_stream { Rc::default() } else { Rc::clone(&self.open) };
        let open = (ConnectionSlot::new(counter), GaugeGuard::new(&upstream.series.connections));
        let name = upstream.config.name.as_str();
        let connected = timeout(upstream.config.connect_timeout, async {
            let stream = replica.open().await.and_then(|stream| socket::tune(&stream).map(|()| stream));
            let stream = stream
                .inspect_err(|error| tracing::debug!(upstream = name, %error, "cannot connect"))
                .ok()?;
            let Some(tls) = &replica.tls else { return Some(MaybeTls::Clear(stream)) };
            let stream = tls.connect(stream, &replica.host).await;
            let stream = stream.inspect_err(|fault| upstream.access.remark(name, *fault)).ok()?;
            Some(MaybeTls::Tls(Box::new(stream)))
        });
        let connected = connected.await.unwrap_or_else(|_| {
            tracing::debug!(upstream = name, "connecting took too long");
            None
        });
        let Some(connected) = connected else {
            upstream.series.connects.error.inc();
            return Err(UpstreamError::Unreachable);
        };
        match connected {
            MaybeTls::Clear(stream) => self.start(upstream, stream, open, is_stream).await,
            MaybeTls::Tls(stream) => self.start(upstream, *stream, open, is_stream).await,
        }
    }

    /// For each kind of stream by itself, so that one in clear text pays nothing for the other.
    async fn start<S: AsyncRead + AsyncWrite + Unpin + 'static>(
        &self,
        upstream: &Upstream,
        stream: S,
        open: (ConnectionSlot, GaugeGuard),
        is_stream: bool,
    ) -> Result<PooledConnection, UpstreamError> {
        let received_bytes = Rc::new(Cell::new(0));
        // A request may be repeated only while nothing of its reply came.
        let counter = Rc::clone(&received_bytes);
        let io = Observed::new(Vec::new(), stream, move |count| counter.set(counter.get() + count as u64));
        let io = Framed::new(io, Sender::Server);
        let mut builder = http1::Builder::new();
        if is_stream {
            builder.max_buf_size(STREAM_BUFFER_BYTES_MAX);
        }
        let (sender, connection) =
            builder.handshake(TokioIo::new(io)).await.map_err(|_| UpstreamError::Unreachable)?;
        upstream.series.connects.ok.inc();
        self.tasks.spawn(async move {
            let _open = open;
            if let Err(error) = connection.await {
                tracing::debug!(%error, "upstream connection ended");
            }
        });
        Ok(PooledConnection { sender, received_bytes })
    }
}

/// What leads to a replica.
enum MaybeTls {
    Clear(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}
