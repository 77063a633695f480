//! Asking an admin listener: one connection per question, a bound on every answer.

use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;
use status::Object;

use super::address::AdminAddress;
use net::http_client::{Destination, HttpClient, HttpError};
use net::tasks::Tasks;

/// The largest answer: that of a gateway with thousands of upstreams has room in it.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Characters of a refusal that are shown.
const REASON_CHARS_MAX: usize = 200;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Nobody listens there.
    #[error("{0}")]
    Unreachable(String),
    /// It took too long.
    #[error("no answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The connection broke, or what came is no HTTP.
    #[error("what answers there is no admin listener, or it broke off: {0}")]
    Broken(HttpError),
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

impl AdminError {
    /// Whether an older gateway would have said so of a path it does not have.
    pub fn is_unknown_path(&self) -> bool {
        matches!(self, Self::Status(StatusCode::NOT_FOUND, _))
    }
}

/// Asks one admin listener. Must be used on a runtime that can spawn locally.
#[derive(Clone)]
pub struct AdminClient {
    place: AdminAddress,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
    timeout: Duration,
}

impl fmt::Debug for AdminClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("place", &self.place).finish_non_exhaustive()
    }
}

impl AdminClient {
    /// For the listener at `place`; `authorization` is shown with every question, and an answer may take `timeout`, all
    /// in all.
    pub fn new(place: AdminAddress, authorization: Option<HeaderValue>, timeout: Duration) -> Self {
        let host = match &place {
            AdminAddress::Address { .. } => HeaderValue::from_str(&place.to_string()).ok(),
            AdminAddress::Socket(_) => None,
        };
        let host = host.unwrap_or(HeaderValue::from_static("localhost"));
        Self { place, host, authorization, timeout }
    }

    /// The address that is asked.
    pub fn place(&self) -> &AdminAddress {
        &self.place
    }

    /// What the listener answers to a GET of `target`, as it came.
    pub async fn get(&self, target: &str) -> Result<Bytes, AdminError> {
        match self.ask(target).await? {
            (StatusCode::OK, body) => Ok(body),
            (status, body) => {
                let text = String::from_utf8_lossy(&body);
                Err(AdminError::Status(status, text.trim().chars().take(REASON_CHARS_MAX).collect()))
            }
        }
    }

    /// What the listener answers to a GET of `target`, whatever its status.
    pub async fn ask(&self, target: &str) -> Result<(StatusCode, Bytes), AdminError> {
        self.send(Method::GET, target, Bytes::new()).await
    }

    /// What the listener answers to a POST of JSON to `target`, whatever its status.
    pub async fn post(&self, target: &str, json: String) -> Result<(StatusCode, Bytes), AdminError> {
        self.send(Method::POST, target, json.into()).await
    }

    async fn send(
        &self,
        method: Method,
        target: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), AdminError> {
        let destination = match &self.place {
            AdminAddress::Address { host, port } => {
                Destination::Tcp { host: host.clone(), port: *port, tls: None }
            }
            AdminAddress::Socket(path) => Destination::Unix(path.clone()),
        };
        let client = HttpClient::new(destination, Tasks::default());
        let deadline = Instant::now() + self.timeout;
        let reply = client.fetch(self.request(method, target, body), ANSWER_BYTES_MAX, deadline).await;
        let (head, body) = reply.map_err(|error| self.fault(error))?.into_parts();
        if head.status == StatusCode::UNAUTHORIZED { Err(AdminError::Token) } else { Ok((head.status, body)) }
    }

    /// What the listener answers to a GET of `target`.
    pub async fn read<T: Object>(&self, target: &str) -> Result<T, AdminError> {
        status::parse(&self.get(target).await?).ok_or(AdminError::Nonsense)
    }

    fn fault(&self, error: HttpError) -> AdminError {
        match error {
            HttpError::Unreachable(why) => AdminError::Unreachable(why),
            HttpError::ConnectTimedOut(patience) => AdminError::TimedOut(patience),
            HttpError::TimedOut => AdminError::TimedOut(self.timeout),
            HttpError::TooLarge => AdminError::TooLarge,
            HttpError::Url
            | HttpError::Address
            | HttpError::Proxy { .. }
            | HttpError::Tls(_)
            | HttpError::Reset
            | HttpError::Malformed => AdminError::Broken(error),
        }
    }

    fn request(&self, method: Method, target: &str, body: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        if method == Method::POST {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        *request.method_mut() = method;
        *request.uri_mut() = target.parse().unwrap_or_default();
        request.headers_mut().insert(HOST, self.host.clone());
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        request
    }
}

fn reason(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {}", protocol::text::shown(text)) }
}
