//! The URL of an MCP server: what every request to it carries, and the kinds of requests that Streamable HTTP has.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::Full;

use super::exchange_error::ExchangeError;
use super::response_reader::StreamPosition;
use super::server::HttpServer;
use net::http_client::{Destination, HttpClient, HttpReply, collect};
use net::tasks::Tasks;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// How much of the reply to a message that has no answer is read, and for how long.
const ACCEPTED_BYTES_MAX: usize = 64 << 10;
const ACCEPTED_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a server may take to begin a stream.
const STREAM_TIMEOUT: Duration = Duration::from_secs(30);

/// The URL of a server, with a client for it.
#[derive(Debug)]
pub struct HttpEndpoint {
    client: HttpClient,
    authority: HeaderValue,
    target: Uri,
    /// What a user adds to every request.
    headers: HeaderMap,
}

impl HttpEndpoint {
    /// The endpoint at `address`.
    pub fn new(address: &HttpServer, tasks: Tasks) -> Result<Self, http::Error> {
        let HttpServer { url, headers, tls } = address;
        let destination = Destination::Tcp { host: url.host.clone(), port: url.port, tls: tls.clone() };
        Ok(Self {
            client: HttpClient::new(destination, tasks),
            authority: HeaderValue::from_str(&url.authority)?,
            target: url.path_and_query.parse()?,
            headers: headers.clone(),
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
    ) -> Result<HttpReply, ExchangeError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.target.clone();
        *request.headers_mut() = headers;
        request.headers_mut().insert(HOST, self.authority.clone());
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        request.headers_mut().extend(self.headers.clone());
        Ok(self.client.send(request, is_safe_to_repeat, deadline).await?)
    }

    /// Sends a message and waits for the head of its reply, which may be JSON or a stream.
    pub async fn post(
        &self,
        mut headers: HeaderMap,
        message: Bytes,
        is_safe_to_repeat: bool,
        patience: Duration,
    ) -> Result<HttpReply, ExchangeError> {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        self.send(Method::POST, headers, message, is_safe_to_repeat, Instant::now() + patience).await
    }

    /// Sends a message that has no answer.
    pub async fn notify(
        &self,
        headers: HeaderMap,
        message: Bytes,
        patience: Duration,
    ) -> Result<(), ExchangeError> {
        self.accepted(self.post(headers, message, false, patience).await?).await
    }

    /// Whether a message was accepted that has no answer here.
    pub(super) async fn accepted(&self, mut reply: HttpReply) -> Result<(), ExchangeError> {
        let status = reply.head.status;
        let deadline = Instant::now() + ACCEPTED_TIMEOUT;
        if collect(&mut reply.body, ACCEPTED_BYTES_MAX, deadline).await.is_ok() {
            self.put_back(reply).await;
        }
        if status.is_success() { Ok(()) } else { Err(ExchangeError::Status(status)) }
    }

    /// Opens the stream of a session, or resumes one behind `position`.
    pub async fn open_stream(
        &self,
        mut headers: HeaderMap,
        position: &StreamPosition,
    ) -> Result<HttpReply, ExchangeError> {
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(id) = &position.last_event_id {
            headers.insert(LAST_EVENT_ID, id.clone());
        }
        self.send(Method::GET, headers, Bytes::new(), true, Instant::now() + STREAM_TIMEOUT).await
    }

    /// Reads what is left of a reply, in case its connection can be used again.
    pub async fn put_back(&self, reply: HttpReply) {
        self.client.put_back(reply).await;
    }
}

/// What a list of headers that every request carries must not hold: it is ours to write.
pub fn is_reserved(name: &HeaderName) -> bool {
    let own = [
        ACCEPT,
        CONTENT_TYPE,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::CONNECTION,
        header::UPGRADE,
        header::TE,
        header::EXPECT,
        HOST,
    ];
    own.contains(name) || *name == LAST_EVENT_ID || name.as_str().starts_with("mcp-")
}
