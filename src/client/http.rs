//! HTTP towards the server: one connection per request under way, and idle ones kept for the next.
//!
//! A request is sent again only where that is safe: it never left, or repeating it does no harm and its connection
//! had been idle, which is how servers that close idle connections look.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{timeout, timeout_at};

use super::fault::{Fault, unusable};
use super::server::Address;
use net::lookup;
use net::pieces::Pieces;
use net::socket;
use net::tasks::Tasks;
use net::tls::Connector;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Shorter than what servers commonly wait before they close.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
const IDLE_CONNECTIONS_MAX: usize = 8;
/// How long the rest of a reply is read so that its connection can be used again.
const REST_TIMEOUT: Duration = Duration::from_millis(500);
/// How much memory is set aside for a reply on its sender's word.
const EXPECTED_BYTES_MAX: u64 = 64 * 1024;

/// The way to one server.
#[derive(Debug)]
pub struct Http {
    host: String,
    port: u16,
    authority: HeaderValue,
    target: Uri,
    headers: HeaderMap,
    /// `None`: in clear text.
    tls: Option<Arc<Connector>>,
    tasks: Tasks,
    idle: RefCell<Vec<(Sender, Instant)>>,
}

type Sender = SendRequest<Full<Bytes>>;

/// A reply whose body is still to be read.
#[derive(Debug)]
pub struct Reply {
    /// Status and headers.
    pub head: http::response::Parts,
    /// What follows them.
    pub body: Incoming,
    sender: Sender,
}

impl Http {
    /// The way to the server at `address`.
    pub fn new(address: &Address, tasks: Tasks) -> Result<Self, http::Error> {
        let Address { url, headers, tls } = address;
        Ok(Self {
            host: url.host.clone(),
            port: url.port,
            authority: HeaderValue::from_str(&url.authority)?,
            target: url.path_and_query.parse()?,
            headers: headers.clone(),
            tls: tls.clone(),
            tasks,
            idle: RefCell::default(),
        })
    }

    /// Sends a request and waits for the head of its reply.
    pub async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
        is_safe_to_repeat: bool,
        deadline: Instant,
    ) -> Result<Reply, Fault> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.target.clone();
        *request.headers_mut() = headers;
        request.headers_mut().insert(header::HOST, self.authority.clone());
        request.headers_mut().extend(self.headers.clone());
        let attempt = self.attempt(request, is_safe_to_repeat, deadline);
        timeout_at(deadline.into(), attempt).await.unwrap_or(Err(Fault::TimedOut))
    }

    /// Reads what is left of a reply, in case its connection can be used again.
    pub async fn put_back(&self, mut reply: Reply) {
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
    ) -> Result<Reply, Fault> {
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
                    return Ok(Reply { head, body, sender });
                }
                Err(error) => error,
            };
            // An idle connection is not taken twice, so this ends.
            request = match (error.take_message(), copy) {
                (Some(unsent), _) if was_idle => unsent,
                (Some(_), _) => return Err(Fault::Unreachable("it closed the connection".to_owned())),
                (None, Some(copy)) => copy,
                _ if error.error().is_parse() => return Err(Fault::Nonsense),
                _ => return Err(Fault::Reset),
            };
        }
    }

    fn take_idle(&self) -> Option<Sender> {
        let now = Instant::now();
        let mut idle = self.idle.borrow_mut();
        idle.retain(|(sender, expires)| *expires > now && !sender.is_closed());
        let position = idle.iter().rposition(|(sender, _)| sender.is_ready())?;
        Some(idle.swap_remove(position).0)
    }

    async fn connect(&self, deadline: Instant) -> Result<Sender, Fault> {
        // Nothing was sent as long as there is no connection, which has to be said: so this ends first.
        let patience = deadline.saturating_duration_since(Instant::now()).min(CONNECT_TIMEOUT);
        let too_slow =
            |_| Fault::Unreachable(format!("no connection within {:.0} s", patience.as_secs_f64()));
        let until = (Instant::now() + patience).into();
        let stream = timeout_at(until, self.dial()).await.map_err(too_slow)??;
        match &self.tls {
            None => self.start(stream).await,
            Some(tls) => {
                let shaken = timeout_at(until, tls.connect(stream, &self.host)).await;
                let stream = shaken.map_err(too_slow)?.map_err(Fault::Tls)?;
                self.start(stream).await
            }
        }
    }

    async fn dial(&self) -> Result<TcpStream, Fault> {
        let Self { host, port, .. } = self;
        let addresses = lookup::look_up(host, *port).await;
        let addresses = addresses.map_err(|error| {
            let why = error.to_string();
            let why = why.strip_prefix("failed to lookup address information: ").unwrap_or(&why);
            Fault::Unreachable(format!("the name {host:?} cannot be looked up: {why}"))
        })?;
        let stream = TcpStream::connect(&*addresses).await.map_err(|error| {
            Fault::Unreachable(match error.kind() {
                io::ErrorKind::ConnectionRefused => format!("nothing listens on port {port} of {host}"),
                _ => error.to_string(),
            })
        })?;
        socket::tune(&stream).map_err(unusable)?;
        Ok(stream)
    }

    async fn start(&self, stream: impl AsyncRead + AsyncWrite + Unpin + 'static) -> Result<Sender, Fault> {
        let handshake = http1::Builder::new().handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(unusable)?;
        self.tasks.spawn(async move {
            let _ = connection.await; // whoever sends on it learns how it ended
        });
        Ok(sender)
    }
}

/// The rest of a body, of at most `bytes_max`.
pub async fn collect(body: &mut Incoming, bytes_max: usize, deadline: Instant) -> Result<Bytes, Fault> {
    use http_body::Body as _;
    let expected = usize::try_from(body.size_hint().lower().min(EXPECTED_BYTES_MAX)).unwrap_or_default();
    let read = async {
        let mut pieces = Pieces::default();
        while let Some(frame) = body.frame().await {
            let data = frame.map_err(|_| Fault::Reset)?.into_data().unwrap_or_default();
            if pieces.len() + data.len() > bytes_max {
                return Err(Fault::TooLarge);
            }
            pieces.push(data, expected);
        }
        Ok(pieces.into_bytes())
    };
    timeout_at(deadline.into(), read).await.unwrap_or(Err(Fault::TimedOut))
}

/// What a list of headers that every request carries must not hold: it is ours to write.
pub fn is_reserved(name: &http::HeaderName) -> bool {
    let own = [
        header::ACCEPT,
        header::CONTENT_TYPE,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::CONNECTION,
        header::UPGRADE,
        header::TE,
        header::EXPECT,
        header::HOST,
    ];
    own.contains(name) || name.as_str() == "last-event-id" || name.as_str().starts_with("mcp-")
}
