//! A proxy on the way to servers: what it is asked, and why it leads nowhere.
//!
//! To servers over TLS it makes a tunnel (CONNECT, RFC 9110 §9.3.6), in which TLS is spoken with the server itself. Others
//! it is asked for by their whole URL.
//!
//! Invariants: nothing that was meant for the server is sent before the tunnel is there; the answer to CONNECT is bounded;
//! an error names the proxy and its status, and shows neither the credentials nor a word of its answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, PROXY_AUTHORIZATION};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::dial::dial;
use crate::tasks::Tasks;
use crate::tls::{Connector, TlsFault};

/// The head of an answer to CONNECT, at most.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// A proxy.
#[derive(Debug)]
pub struct Proxy {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// TLS to the proxy itself; `None`: it is reached in clear text.
    pub(crate) tls: Option<Arc<Connector>>,
    /// The credentials that it is shown.
    pub(crate) authorization: Option<HeaderValue>,
}

/// The reason for which a proxy leads nowhere, as the end of a sentence that begins with it. Nothing was sent to the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyFault {
    /// No connection to it, for this reason.
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    /// It is not who it should be.
    #[error("cannot be reached over TLS: {0}")]
    Tls(TlsFault),
    /// No way to the server within this time.
    #[error("led nowhere within {:.0} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// It does not lead there.
    #[error("answered {0}")]
    Refused(StatusCode),
    /// It does not speak HTTP.
    #[error("gave an answer that is not valid HTTP")]
    Malformed,
    /// The head of its answer is too large.
    #[error("gave an answer whose head is larger than {HEAD_BYTES_MAX} bytes")]
    TooLarge,
    /// It has no answer.
    #[error("closed the connection without an answer")]
    Closed,
}

/// The bytes of a connection to a proxy.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Wire for S {}

impl ProxyFault {
    /// True if trying again may help.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::TimedOut(_) | Self::Closed => true,
            Self::Refused(status) => status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS,
            Self::Tls(_) | Self::Malformed | Self::TooLarge => false,
        }
    }
}

impl Proxy {
    /// A connection to it.
    pub(crate) async fn connect(&self) -> Result<Box<dyn Wire>, ProxyFault> {
        let stream = dial(&self.host, self.port).await.map_err(ProxyFault::Unreachable)?;
        Ok(match &self.tls {
            None => Box::new(stream),
            Some(tls) => Box::new(tls.connect(stream, &self.host).await.map_err(ProxyFault::Tls)?),
        })
    }

    /// A tunnel through it to `port` of `host`.
    pub(crate) async fn tunnel(
        &self,
        host: &str,
        port: u16,
        tasks: &Tasks,
    ) -> Result<TokioIo<Upgraded>, ProxyFault> {
        let place = Place { host, port }.to_string();
        let header = HeaderValue::from_str(&place).map_err(|_| ProxyFault::Malformed)?;
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.method_mut() = Method::CONNECT;
        *request.uri_mut() = place.parse().map_err(|_| ProxyFault::Malformed)?;
        request.headers_mut().insert(HOST, header);
        self.show(&mut request);
        let mut builder = http1::Builder::new();
        builder.max_buf_size(HEAD_BYTES_MAX);
        let shaken = builder.handshake(TokioIo::new(self.connect().await?)).await;
        let (mut sender, connection) = shaken.map_err(|error| fault(&error))?;
        tasks.spawn(async move {
            let _ = connection.with_upgrades().await; // the one that waits for an answer learns how it ended
        });
        let answer = sender.send_request(request).await.map_err(|error| fault(&error))?;
        if !answer.status().is_success() {
            return Err(ProxyFault::Refused(answer.status()));
        }
        hyper::upgrade::on(answer).await.map(TokioIo::new).map_err(|error| fault(&error))
    }

    /// Adds to a request what the proxy is shown.
    pub(crate) fn show<B>(&self, request: &mut Request<B>) {
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(PROXY_AUTHORIZATION, authorization.clone());
        }
    }
}

fn fault(error: &hyper::Error) -> ProxyFault {
    if error.is_parse_too_large() {
        ProxyFault::TooLarge
    } else if error.is_parse() {
        ProxyFault::Malformed
    } else {
        ProxyFault::Closed
    }
}

impl PartialEq for Proxy {
    fn eq(&self, other: &Self) -> bool {
        let settings = |proxy: &Self| proxy.tls.as_deref().map(Connector::settings).cloned();
        self.host == other.host
            && self.port == other.port
            && self.authorization == other.authorization
            && settings(self) == settings(other)
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Place { host: &self.host, port: self.port }.fmt(f)
    }
}

/// Host and port as an authority has them, where an IPv6 address is in brackets.
struct Place<'h> {
    host: &'h str,
    port: u16,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}
