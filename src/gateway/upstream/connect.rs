//! A new connection to a replica.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::exchange::Client;
use super::pool::{Connection, ConnectionSlot};
use super::{Replica, Upstream};
use crate::telemetry::metrics::GaugeGuard;
use net::framing::{Framed, Sender};
use net::socket::{self, Observed};
use net::tls::Fault;
use protocol::error::UpstreamError;

/// There may be very many streams.
const STREAM_BUFFER_BYTES_MAX: usize = 32 * 1024;

impl Client {
    /// Streams are bounded by those who open them, so that calls always find connections.
    pub(super) async fn connect(
        &self,
        upstream: &Upstream,
        replica: &Replica,
        is_stream: bool,
    ) -> Result<Connection, UpstreamError> {
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
        let connected = timeout(upstream.config.connect_timeout, async {
            let stream = replica.open().await?;
            socket::tune(&stream)?;
            match &replica.tls {
                None => Ok(MaybeTls::Clear(stream)),
                Some(tls) => Ok(MaybeTls::Tls(Box::new(tls.connect(stream, &replica.host).await?))),
            }
        });
        let line = match connected.await {
            Ok(Ok(line)) => line,
            Ok(Err(NotConnected::Io(error))) => {
                upstream.series.connects.error.inc();
                tracing::debug!(upstream = upstream.config.name, %error, "cannot connect");
                return Err(UpstreamError::Unreachable);
            }
            Ok(Err(NotConnected::Tls(fault))) => {
                upstream.series.connects.error.inc();
                upstream.access.remark(&upstream.config.name, fault);
                return Err(UpstreamError::Unreachable);
            }
            Err(_) => {
                upstream.series.connects.error.inc();
                tracing::debug!(upstream = upstream.config.name, "connecting took too long");
                return Err(UpstreamError::Unreachable);
            }
        };
        match line {
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
    ) -> Result<Connection, UpstreamError> {
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
        Ok(Connection { sender, received_bytes })
    }
}

/// What leads to a replica.
enum MaybeTls {
    Clear(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

enum NotConnected {
    Io(io::Error),
    Tls(Fault),
}

impl From<io::Error> for NotConnected {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Fault> for NotConnected {
    fn from(fault: Fault) -> Self {
        Self::Tls(fault)
    }
}
