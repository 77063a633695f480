//! Asking an admin listener: one connection per question, a bound on every answer.

use std::fmt;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::place::Place;

/// The largest answer: that of a gateway with thousands of upstreams has room in it.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Characters of a refusal that are shown.
const REASON_CHARS_MAX: usize = 200;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Nobody listens there.
    #[error("{0}")]
    Unreachable(io::Error),
    /// It took too long.
    #[error("no answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The connection broke, or what came is no HTTP.
    #[error("what answers there is no admin listener, or it broke off: {0}")]
    Broken(hyper::Error),
    /// The token is missing or wrong.
    #[error("it wants the token of [admin]: give the right one with --token-file or TRUNKLINE_ADMIN_TOKEN")]
    Token,
    /// It answered something else.
    #[error("it answered with HTTP status {}{}", .0.as_u16(), reason(.1))]
    Status(StatusCode, String),
    /// There is more than a gateway would say.
    #[error("its answer is larger than {ANSWER_BYTES_MAX} bytes")]
    TooLarge,
    /// It is no JSON object.
    #[error("its answer is no JSON object: is this the address of [admin]?")]
    Nonsense,
}

impl Fault {
    /// Whether an older gateway would have said so of a path it does not have.
    pub fn is_unknown_path(&self) -> bool {
        matches!(self, Self::Status(StatusCode::NOT_FOUND, _))
    }
}

/// Asks one admin listener. Must be used on a runtime that can spawn locally.
#[derive(Clone)]
pub struct Watcher {
    place: Place,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
    timeout: Duration,
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Watcher {
    /// For the listener at `place`; `authorization` is shown with every question, and an answer may take `timeout`, all
    /// in all.
    pub fn new(place: Place, authorization: Option<HeaderValue>, timeout: Duration) -> Self {
        let host = match &place {
            Place::Address { .. } => HeaderValue::from_str(&place.to_string()).ok(),
            Place::Socket(_) => None,
        };
        let host = host.unwrap_or(HeaderValue::from_static("localhost"));
        Self { place, host, authorization, timeout }
    }

    /// Where it is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// What the listener answers to a GET of `target`, as it came.
    pub async fn get(&self, target: &str) -> Result<Bytes, Fault> {
        let answer = async {
            match &self.place {
                Place::Address { host, port } => {
                    let stream = TcpStream::connect((host.as_str(), *port)).await;
                    self.ask(stream.map_err(Fault::Unreachable)?, target).await
                }
                Place::Socket(path) => {
                    let stream = UnixStream::connect(path).await;
                    self.ask(stream.map_err(Fault::Unreachable)?, target).await
                }
            }
        };
        timeout(self.timeout, answer).await.unwrap_or(Err(Fault::TimedOut(self.timeout)))
    }

    /// The JSON object that the listener answers to a GET of `target`.
    pub async fn object(&self, target: &str) -> Result<Value, Fault> {
        object(&self.get(target).await?)
    }

    async fn ask<S>(&self, stream: S, target: &str) -> Result<Bytes, Fault>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(Fault::Broken)?;
        let connection = tokio::task::spawn_local(connection);
        let answer = async {
            let response = sender.send_request(self.request(target)).await.map_err(Fault::Broken)?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| {
                match error.downcast::<hyper::Error>() {
                    Ok(error) => Fault::Broken(*error),
                    Err(_) => Fault::TooLarge,
                }
            })?;
            judge(head.status, body.to_bytes())
        };
        let answer = answer.await;
        connection.abort();
        answer
    }

    fn request(&self, target: &str) -> Request<Empty<Bytes>> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = target.parse().unwrap_or_default();
        request.headers_mut().insert(HOST, self.host.clone());
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        request
    }
}

/// The JSON object that `text` is.
pub fn object(text: &[u8]) -> Result<Value, Fault> {
    serde_json::from_slice::<Value>(text).ok().filter(Value::is_object).ok_or(Fault::Nonsense)
}

fn judge(status: StatusCode, body: Bytes) -> Result<Bytes, Fault> {
    match status {
        StatusCode::OK => Ok(body),
        StatusCode::UNAUTHORIZED => Err(Fault::Token),
        status => {
            let text = String::from_utf8_lossy(&body);
            Err(Fault::Status(status, text.trim().chars().take(REASON_CHARS_MAX).collect()))
        }
    }
}

fn reason(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {}", protocol::text::shown(text)) }
}
