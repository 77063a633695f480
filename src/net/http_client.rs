//! The one HTTP/1.1 client off the data path: for what the gateway fetches, for admin listeners and for the servers that a
//! command speaks to. One connection per request in flight; idle ones are kept for the next.
//!
//! A request is sent again only where that is safe: it never left, or repeating it does no harm and its connection
//! had been idle, which is how servers that close idle connections look.
//!
//! Deliberately not here: redirects, which are never followed, and the calls that the gateway forwards, whose connections
//! belong to a pool per worker.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::time::{timeout, timeout_at};

use crate::chunks::Chunks;
use crate::dial::{dial, dial_address};
use crate::proxy::{Proxy, ProxyFault};
use crate::tasks::Tasks;
use crate::tls::{self, Connector};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Shorter than what servers commonly wait before they close.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
const IDLE_CONNECTIONS_MAX: usize = 8;
/// How long the rest of a reply is read so that its connection can be used again.
const REST_TIMEOUT: Duration = Duration::from_millis(500);
/// How much memory is set aside for a reply on its sender's word.
const EXPECTED_BYTES_MAX: u64 = 64 * 1024;

/// Where a server is.
#[derive(Clone, Debug)]
pub enum Destination {
    /// A host, and how it is reached over TLS; `None`: in clear text.
    Tcp {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
        /// Checks the server's certificate.
        tls: Option<Arc<Connector>>,
    },
    /// This very address, over TLS with a server of this name.
    Address {
        /// The address and port.
        address: SocketAddr,
        /// The name that the server proves to have.
        host: String,
        /// Checks the server's certificate.
        tls: Arc<Connector>,
    },
    /// A host over TLS, through the tunnel of a proxy.
    Tunnel {
        /// The proxy that makes the tunnel.
        proxy: Arc<Proxy>,
        /// A name, which the proxy looks up, or an address.
        host: String,
        /// The port.
        port: u16,
        /// Checks the server's certificate.
        tls: Arc<Connector>,
    },
    /// A proxy, which is asked by whole URLs.
    Proxy(Arc<Proxy>),
    /// A Unix socket.
    Unix(PathBuf),
}

/// A client of one server. Must be used on a local runtime.
#[derive(Debug)]
pub struct HttpClient {
    destination: Destination,
    tasks: Tasks,
    idle: RefCell<Vec<(Http1Sender, Instant)>>,
}

type Http1Sender = SendRequest<Full<Bytes>>;

/// A reply whose body is still to be read.
#[derive(Debug)]
pub struct HttpReply {
    /// Status and headers.
    pub head: http::response::Parts,
    /// What follows them.
    pub body: Incoming,
    sender: Http1Sender,
}

/// Why there is no reply. Says nothing that a secret could be part of: neither paths nor queries, headers or bodies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// The URL is none that can be fetched.
    #[error("not a URL that can be fetched")]
    Url,
    /// No connection, for this reason: nothing was sent.
    #[error("{0}")]
    Unreachable(String),
    /// No connection within this time: nothing was sent.
    #[error("no connection within {:.0} s", .0.as_secs_f64())]
    ConnectTimedOut(Duration),
    /// None of its addresses may be asked; nothing was sent.
    #[error("not an address that may be asked")]
    Address,
    /// A proxy leads nowhere; nothing was sent to the server.
    #[error("the proxy {proxy} {fault}")]
    Proxy {
        /// Its host and port.
        proxy: String,
        /// Its fault.
        fault: ProxyFault,
    },
    /// The server is not who it should be; nothing was sent.
    #[error("no connection over TLS: {0}")]
    Tls(tls::TlsFault),
    /// The connection broke after the request may have been sent.
    #[error("the connection broke")]
    Reset,
    /// No reply in time.
    #[error("no reply in time")]
    TimedOut,
    /// The reply is not HTTP.
    #[error("the reply is not valid HTTP")]
    Malformed,
    /// The body is larger than it may be.
    #[error("the reply is larger than is accepted")]
    TooLarge,
}

impl HttpClient {
    /// A client of the server at `destination`.
    pub fn new(destination: Destination, tasks: Tasks) -> Self {
        Self { destination, tasks, idle: RefCell::default() }
    }

    /// Sends a request, whose URI is a path, and waits for the head of its reply.
    pub async fn send(
        &self,
        request: Request<Full<Bytes>>,
        is_safe_to_repeat: bool,
        deadline: Instant,
    ) -> Result<HttpReply, HttpError> {
        let attempt = self.attempt(request, is_safe_to_repeat, deadline);
        timeout_at(deadline.into(), attempt).await.unwrap_or(Err(HttpError::TimedOut))
    }

    /// Sends a request and reads the whole reply, whatever its status.
    pub async fn fetch(
        &self,
        request: Request<Full<Bytes>>,
        bytes_max: usize,
        deadline: Instant,
    ) -> Result<Response<Bytes>, HttpError> {
        let HttpReply { head, mut body, .. } = self.send(request, false, deadline).await?;
        let body = collect(&mut body, bytes_max, deadline).await?;
        Ok(Response::from_parts(head, body))
    }

    /// Reads what is left of a reply, in case its connection can be used again.
    pub async fn put_back(&self, mut reply: HttpReply) {
        let rest = async {
            while let Some(frame) = reply.body.frame().await {
                frame?;
            }
            reply.sender.ready().await
        };
        if matches!(timeout(REST_TIMEOUT, rest).await, Ok(Ok(()))) {
            let mut idle = self.idle.borrow_mut();
            if idle.len() < IDLE_CONNECTIONS_MAX {
                idle.push((reply.sender, Instant::now() + IDLE_TIMEOUT));
            }
        }
    }

    async fn attempt(
        &self,
        mut request: Request<Full<Bytes>>,
        is_safe_to_repeat: bool,
        deadline: Instant,
    ) -> Result<HttpReply, HttpError> {
        loop {
            let idle = self.take_idle();
            let was_idle = idle.is_some();
            let mut sender = match idle {
                Some(sender) => sender,
                None => self.connect(deadline).await?,
            };
            let copy = (was_idle && is_safe_to_repeat).then(|| request.clone());
            let mut error = match sender.try_send_request(request).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    return Ok(HttpReply { head, body, sender });
                }
                Err(error) => error,
            };
            // An idle connection is not taken twice, so this ends.
            request = match (error.take_message(), copy) {
                (Some(unsent), _) if was_idle => unsent,
                (Some(_), _) => return Err(HttpError::Unreachable("it closed the connection".to_owned())),
                (None, Some(copy)) => copy,
                _ if error.error().is_parse() => return Err(HttpError::Malformed),
                _ => return Err(HttpError::Reset),
            };
        }
    }

    fn take_idle(&self) -> Option<Http1Sender> {
        let now = Instant::now();
        let mut idle = self.idle.borrow_mut();
        idle.retain(|(sender, expires)| *expires > now && !sender.is_closed());
        let position = idle.iter().rposition(|(sender, _)| sender.is_ready())?;
        Some(idle.swap_remove(position).0)
    }

    async fn connect(&self, deadline: Instant) -> Result<Http1Sender, HttpError> {
        // Nothing was sent as long as there is no connection, which has to be said: so this ends first.
        let now = Instant::now();
        let end = deadline.min(now + CONNECT_TIMEOUT);
        let connecting = timeout_at(end.into(), self.connect_and_shake_hands());
        connecting.await.unwrap_or_else(|_| {
            let patience = end.saturating_duration_since(now);
            Err(match &self.destination {
                Destination::Proxy(proxy) | Destination::Tunnel { proxy, .. } => {
                    HttpError::of_proxy(proxy, ProxyFault::TimedOut(patience))
                }
                _ => HttpError::ConnectTimedOut(patience),
            })
        })
    }

    async fn connect_and_shake_hands(&self) -> Result<Http1Sender, HttpError> {
        match &self.destination {
            Destination::Unix(path) => {
                let stream = UnixStream::connect(path).await;
                self.start(stream.map_err(unreachable)?).await
            }
            Destination::Tcp { host, port, tls } => {
                let stream = dial(host, *port).await.map_err(HttpError::Unreachable)?;
                match tls {
                    None => self.start(stream).await,
                    Some(tls) => self.shake_hands(tls, stream, host).await,
                }
            }
            Destination::Address { address, host, tls } => {
                let stream = dial_address(&[*address]).await.map_err(unreachable)?;
                self.shake_hands(tls, stream, host).await
            }
            Destination::Proxy(proxy) => {
                let stream = proxy.connect().await;
                self.start(stream.map_err(|fault| HttpError::of_proxy(proxy, fault))?).await
            }
            Destination::Tunnel { proxy, host, port, tls } => {
                let tunnel = proxy.tunnel(host, *port, &self.tasks).await;
                let tunnel = tunnel.map_err(|fault| HttpError::of_proxy(proxy, fault))?;
                self.shake_hands(tls, tunnel, host).await
            }
        }
    }

    async fn shake_hands(
        &self,
        tls: &Connector,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
        host: &str,
    ) -> Result<Http1Sender, HttpError> {
        self.start(tls.connect(stream, host).await.map_err(HttpError::Tls)?).await
    }

    async fn start(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    ) -> Result<Http1Sender, HttpError> {
        let handshake = http1::Builder::new().handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(unreachable)?;
        self.tasks.spawn(async move {
            let _ = connection.await; // whoever sends on it learns how it ended
        });
        Ok(sender)
    }
}

impl HttpError {
    pub(crate) fn of_proxy(proxy: &Proxy, fault: ProxyFault) -> Self {
        Self::Proxy { proxy: proxy.to_string(), fault }
    }
}

fn unreachable(error: impl std::fmt::Display) -> HttpError {
    HttpError::Unreachable(error.to_string())
}

/// The rest of a body, of at most `bytes_max`.
pub async fn collect(body: &mut Incoming, bytes_max: usize, deadline: Instant) -> Result<Bytes, HttpError> {
    let expected = usize::try_from(body.size_hint().lower().min(EXPECTED_BYTES_MAX)).unwrap_or_default();
    let read = async {
        let mut pieces = Chunks::default();
        while let Some(frame) = body.frame().await {
            let data = frame.map_err(|_| HttpError::Reset)?.into_data().unwrap_or_default();
            if pieces.len() + data.len() > bytes_max {
                return Err(HttpError::TooLarge);
            }
            pieces.push(data, expected);
        }
        Ok(pieces.into_bytes())
    };
    timeout_at(deadline.into(), read).await.unwrap_or(Err(HttpError::TimedOut))
}
