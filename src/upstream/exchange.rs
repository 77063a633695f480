//! One request to an upstream and the head of its reply.
//!
//! A request is sent again only where that is safe: it never left the gateway, or repeating it does no harm
//! and the connection it was written to had been waiting idle, which is how servers that close idle
//! connections look. Everything else is reported with what is known about its outcome.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::{Request, Uri, header};
use http_body::{Body, Frame, SizeHint};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{timeout, timeout_at};

use super::incoming::Incoming;
use super::pipe;
use super::pipe::host::Host;
use super::pool::{Connection, Lease, Pools};
use super::{Replica, Transport, Upstream};
use crate::protocol::error::{Error, UpstreamError};
use crate::protocol::splice::Segments;
use crate::socket::{self, Observed};
use crate::tasks::Tasks;

/// A large message is handed to its connection in pieces, which bounds what is copied ahead of the socket.
const FRAME_BYTES_MAX: usize = 64 * 1024;

/// Marks a request whose reply is a stream that is held open for long. It has a connection of its own, which whoever
/// sends it has to bound.
#[derive(Clone, Copy, Debug)]
pub struct Held;

/// There may be very many streams.
const STREAM_BUFFER_BYTES_MAX: usize = 32 * 1024;

/// What came back. The connection is leased until the body was read to its end.
#[derive(Debug)]
pub struct Reply {
    /// Status and headers.
    pub head: http::response::Parts,
    /// The rest.
    pub body: Incoming,
    /// To be given back after a clean end; `None` where no connection belongs to the reply alone.
    pub lease: Option<Lease>,
}

/// A thread's way to its upstreams.
#[derive(Clone, Debug)]
pub struct Client {
    /// Connections waiting for a request.
    pub pools: Rc<Pools>,
    /// Where connections run.
    pub tasks: Tasks,
    /// Open connections of this thread, idle ones included.
    pub open: Rc<Cell<usize>>,
    /// How many this thread may have.
    pub open_max: usize,
    /// Where connections run that many calls share.
    pub pipes: Rc<Host>,
}

/// Where a request has to go.
#[derive(Clone, Copy, Debug)]
pub struct To<'a> {
    /// The index of the replica.
    pub replica: usize,
    /// The request target, where it is not the replica's own.
    pub target: Option<&'a Uri>,
}

impl Client {
    /// Sends `request`, which needs a method but neither target nor `Host`, at `now` and waits until `deadline` for the head of
    /// the reply. `is_safe_to_repeat`: executing it twice does no harm.
    pub async fn send(
        &self,
        upstream: &Upstream,
        request: Request<RequestBody>,
        is_safe_to_repeat: bool,
        now: Instant,
        deadline: Instant,
    ) -> Result<Reply, UpstreamError> {
        let result = match &upstream.transport {
            Transport::Http(streams) if streams.is_spoken() => {
                let exchange = Box::pin(pipe::exchange::send(self, upstream, &**streams, request, deadline));
                timeout_at(deadline.into(), exchange).await
            }
            Transport::Http(_) => {
                let attempt = self.attempt(upstream, None, request, is_safe_to_repeat, now);
                timeout_at(deadline.into(), attempt).await
            }
            Transport::Stdio(children) => {
                let exchange = Box::pin(pipe::exchange::send(self, upstream, children, request, deadline));
                timeout_at(deadline.into(), exchange).await
            }
        };
        let result = result.unwrap_or(Err(UpstreamError::TimedOut));
        let reason = result.as_ref().err().map(|error| Error::from(error.clone()).outcome().reason);
        upstream.series.observe(reason, now.elapsed().as_secs_f64());
        result
    }

    /// Sends `request` to one replica.
    pub async fn send_to(
        &self,
        upstream: &Upstream,
        to: To<'_>,
        request: Request<RequestBody>,
        deadline: Instant,
    ) -> Result<Reply, UpstreamError> {
        let attempt = Box::pin(self.attempt(upstream, Some(to), request, false, Instant::now()));
        timeout_at(deadline.into(), attempt).await.unwrap_or(Err(UpstreamError::TimedOut))
    }

    async fn attempt(
        &self,
        upstream: &Upstream,
        to: Option<To<'_>>,
        mut request: Request<RequestBody>,
        mut may_repeat: bool,
        now: Instant,
    ) -> Result<Reply, UpstreamError> {
        let is_stream = request.extensions().get::<Held>().is_some();
        let mut replica_index = to.map_or_else(|| upstream.next_replica(), |to| to.replica);
        let mut replicas_tried = 0;
        loop {
            let replica = upstream.replicas.get(replica_index).ok_or(UpstreamError::Unreachable)?;
            let pooled = if is_stream { None } else { self.pools.take(upstream, replica_index, now) };
            let is_pooled = pooled.is_some();
            let mut lease = match pooled {
                Some(lease) => lease,
                None => match Box::pin(self.connect(upstream, replica, is_stream)).await {
                    Ok(connection) => self.pools.lease(upstream, replica_index, connection),
                    Err(error) if to.is_some() || replicas_tried + 1 >= upstream.replicas.len() => {
                        return Err(error);
                    }
                    Err(_) => {
                        replicas_tried += 1;
                        replica_index = (replica_index + 1) % upstream.replicas.len();
                        continue;
                    }
                },
            };
            address(&mut request, replica);
            if let Some(target) = to.and_then(|to| to.target) {
                target.clone_into(request.uri_mut());
            }
            let copy = (is_pooled && may_repeat).then(|| copy(&request));
            let received_before = lease.connection.received_bytes.get();
            let mut error = match lease.connection.sender.try_send_request(request).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    lease.respect_keep_alive(&head.headers);
                    return Ok(Reply { head, body: Incoming::Http(body), lease: Some(lease) });
                }
                Err(error) => error,
            };
            let unsent = error.take_message();
            let error = error.into_error();
            tracing::debug!(upstream = upstream.config.name, %error, is_pooled, "exchange failed");
            let is_silent = lease.connection.received_bytes.get() == received_before;
            request = match (unsent, copy) {
                (Some(request), _) if is_pooled => request,
                (Some(_), _) => return Err(UpstreamError::Unreachable),
                (None, Some(copy)) if is_silent => {
                    may_repeat = false;
                    copy
                }
                _ if error.is_parse() => return Err(UpstreamError::Nonsense),
                _ => return Err(UpstreamError::Reset),
            };
            upstream.series.retries.inc();
        }
    }

    /// Streams are bounded by those who open them, so that calls always find connections.
    async fn connect(
        &self,
        upstream: &Upstream,
        replica: &Replica,
        is_stream: bool,
    ) -> Result<Connection, UpstreamError> {
        if self.open.get() >= self.open_max && !is_stream {
            return Err(UpstreamError::TooManyConnections);
        }
        let counter = if is_stream { Rc::default() } else { Rc::clone(&self.open) };
        let open = OpenConnection::new(&counter, upstream.series.connections.clone());
        let connected = timeout(upstream.config.connect_timeout, async {
            let stream = TcpStream::connect((replica.host.as_str(), replica.port)).await?;
            socket::tune(&stream)?;
            Ok::<_, io::Error>(stream)
        });
        let stream = match connected.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                upstream.series.connect_failed.inc();
                tracing::debug!(upstream = upstream.config.name, %error, "cannot connect");
                return Err(UpstreamError::Unreachable);
            }
            Err(_) => {
                upstream.series.connect_failed.inc();
                tracing::debug!(upstream = upstream.config.name, "connecting took too long");
                return Err(UpstreamError::Unreachable);
            }
        };
        let received_bytes = Rc::new(Cell::new(0));
        // A request may be repeated only while nothing of its reply came.
        let counter = Rc::clone(&received_bytes);
        let io = Observed::new(Vec::new(), stream, move |count| counter.set(counter.get() + count as u64));
        let mut builder = http1::Builder::new();
        if is_stream {
            builder.max_buf_size(STREAM_BUFFER_BYTES_MAX);
        }
        let (sender, connection) =
            builder.handshake(TokioIo::new(io)).await.map_err(|_| UpstreamError::Unreachable)?;
        upstream.series.connected.inc();
        self.tasks.spawn(async move {
            let _open = open;
            if let Err(error) = connection.await {
                tracing::debug!(%error, "upstream connection ended");
            }
        });
        Ok(Connection { sender, received_bytes })
    }
}

fn address(request: &mut Request<RequestBody>, replica: &Replica) {
    *request.uri_mut() = replica.target.clone();
    request.headers_mut().insert(header::HOST, replica.authority.clone());
}

fn copy(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(RequestBody(request.body().0.clone()));
    request.method().clone_into(copy.method_mut());
    request.headers().clone_into(copy.headers_mut());
    copy
}

/// Counts an open connection while it lives.
struct OpenConnection {
    open: Rc<Cell<usize>>,
    gauge: prometheus::IntGauge,
}

impl OpenConnection {
    fn new(open: &Rc<Cell<usize>>, gauge: prometheus::IntGauge) -> Self {
        gauge.inc();
        open.set(open.get() + 1);
        Self { open: Rc::clone(open), gauge }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.gauge.dec();
        self.open.set(self.open.get().saturating_sub(1));
    }
}

/// A message on its way up: pieces of known total length.
#[derive(Debug)]
pub struct RequestBody(pub Segments);

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_at_most(FRAME_BYTES_MAX).map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len())
    }
}
