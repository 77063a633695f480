//! The HTTP side of an exchange: path, method, origin, media types, the bounded body; then the reply as JSON
//! or as a stream of server-sent events.
//!
//! A stream is polled by its connection and by nothing else: a client that goes away drops it and so cancels
//! the work.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use futures_util::{FutureExt as _, StreamExt as _};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri};
use serde_json::Value;

use super::legacy::LegacySessions;
use super::methods::{McpServer, RpcReply};
use super::{legacy, message, modern, rpc};

/// The path of the MCP endpoint.
pub(super) const PATH: &str = "/mcp";

const BODY_BYTES_MAX: usize = 1024 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// What a reply's bytes are made of.
pub(super) type ResponseBody = UnsyncBoxBody<Bytes, Infallible>;

/// What is served at [`PATH`]: one server, and the sessions of its legacy clients.
pub(super) struct DemoEndpoint {
    server: Arc<McpServer>,
    sessions: LegacySessions,
}

impl DemoEndpoint {
    pub(super) fn new(server: McpServer) -> Self {
        Self { server: Arc::new(server), sessions: LegacySessions::default() }
    }

    /// Answers one HTTP request.
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<ResponseBody> {
        if let Err(status) = check_head(&request) {
            return refused(status, request.headers());
        }
        let (head, body) = request.into_parts();
        if head.method == Method::DELETE {
            return empty(legacy::end_session(&head.headers, &self.sessions));
        }
        let body = match collect(body).await {
            Ok(body) => body,
            Err(status) => return empty(status),
        };
        let (id, message) = message::read(head.headers, &body);
        let reply = message.and_then(|message| {
            if legacy::is_spoken(&message.headers, message.version_in_meta()) {
                legacy::answer(message, &self.server, &self.sessions)
            } else {
                modern::answer(message, &self.server)
            }
        });
        match reply {
            Ok(reply) => replied(id.as_ref(), reply),
            Err(error) => json(error.status, &rpc::error_message(id.as_ref(), &error)),
        }
    }
}

fn replied(id: Option<&Value>, reply: RpcReply) -> Response<ResponseBody> {
    let result_of = |result| rpc::result_message(id, &result);
    match reply {
        RpcReply::Accepted => empty(StatusCode::ACCEPTED),
        RpcReply::Result(result) => json(StatusCode::OK, &result_of(result)),
        RpcReply::Opened { session, result } => {
            let mut response = json(StatusCode::OK, &result_of(result));
            let id = HeaderValue::try_from(session).ok();
            response.headers_mut().extend(id.map(|id| (HeaderName::from_static(legacy::SESSION_ID), id)));
            response
        }
        RpcReply::Steps { pause, notifications, result } => {
            let messages = notifications.into_iter().chain([result_of(result)]);
            events(stream::iter(messages).then(move |message| async move {
                tokio::time::sleep(pause).await;
                event(&message)
            }))
        }
        RpcReply::Question { message, outcome } => {
            let id = id.cloned();
            let answered = outcome.map(move |outcome| match outcome {
                Ok(result) => event(&rpc::result_message(id.as_ref(), &result)),
                Err(error) => event(&rpc::error_message(id.as_ref(), &error)),
            });
            let asked = event(&message);
            events(stream::once(async move { asked }).chain(stream::once(answered)))
        }
        RpcReply::Subscription(subscription) => events(subscription.into_events()),
    }
}

/// One message as a server-sent event.
pub(super) fn event(message: &Value) -> Bytes {
    Bytes::from(format!("data: {message}\n\n"))
}

fn check_head<B>(request: &Request<B>) -> Result<(), StatusCode> {
    let headers = request.headers();
    if request.uri().path() != PATH {
        return Err(StatusCode::NOT_FOUND);
    }
    let ends_session = request.method() == Method::DELETE && legacy::is_spoken(headers, None);
    if request.method() != Method::POST && !ends_session {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    if !has_local_host(headers) || !has_local_origin(headers) {
        return Err(StatusCode::FORBIDDEN);
    }
    if ends_session {
        return Ok(());
    }
    if !media_types(headers, header::CONTENT_TYPE).any(|media_type| media_type == "application/json") {
        return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    let acceptable = ["application/json", "text/event-stream", "application/*", "text/*", "*/*"];
    let mut accepted = media_types(headers, header::ACCEPT).peekable();
    if accepted.peek().is_some() && !accepted.any(|media_type| acceptable.contains(&media_type.as_str())) {
        return Err(StatusCode::NOT_ACCEPTABLE);
    }
    Ok(())
}

/// Against DNS rebinding: a page that made its own name resolve to this machine still sends that name as `Host`.
pub(super) fn has_local_host(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().is_ok_and(is_local),
        _ => false,
    }
}

/// Programs send no `Origin`; of web pages only local ones may call.
pub(super) fn has_local_origin(headers: &HeaderMap) -> bool {
    headers.get_all(header::ORIGIN).iter().all(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        origin
            .split_once("://")
            .is_some_and(|(scheme, host)| matches!(scheme, "http" | "https") && is_local(host))
    })
}

fn is_local(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Uri>() else { return false };
    matches!(authority.host(), Some("127.0.0.1" | "localhost" | "[::1]"))
}

/// The media types a header lists, in lower case and without their parameters.
pub(super) fn media_types(headers: &HeaderMap, name: header::HeaderName) -> impl Iterator<Item = String> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    let entries = values.flat_map(|value| value.split(','));
    entries.map(|entry| entry.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

pub(super) async fn collect(body: Incoming) -> Result<Bytes, StatusCode> {
    let collecting = Limited::new(body, BODY_BYTES_MAX).collect();
    match tokio::time::timeout(BODY_TIMEOUT, collecting).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(StatusCode::PAYLOAD_TOO_LARGE),
        Ok(Err(_)) => Err(StatusCode::BAD_REQUEST),
        Err(_) => Err(StatusCode::REQUEST_TIMEOUT),
    }
}

fn json(status: StatusCode, message: &Value) -> Response<ResponseBody> {
    let mut response = Response::new(Full::new(Bytes::from(message.to_string())).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn events(events: impl Stream<Item = Bytes> + Send + 'static) -> Response<ResponseBody> {
    let frames = events.map(|event| Ok(Frame::data(event)));
    let mut response = Response::new(UnsyncBoxBody::new(StreamBody::new(frames)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A refusal that is not about a JSON-RPC message.
fn refused(status: StatusCode, headers: &HeaderMap) -> Response<ResponseBody> {
    let mut response = empty(status);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        let allowed = if legacy::is_spoken(headers, None) { "POST, DELETE" } else { "POST" };
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    }
    response
}

pub(super) fn empty(status: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(Empty::new().boxed_unsync());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_names_are_served() {
        let cases = [
            ("127.0.0.1", true),
            ("127.0.0.1:8080", true),
            ("localhost:1", true),
            ("[::1]:80", true),
            ("127.0.0.1.example.com", false),
            ("localhost.example.com:80", false),
            ("user@example.com", false),
            ("", false),
            (" ", false),
        ];
        for (authority, expected) in cases {
            assert_eq!(is_local(authority), expected, "{authority:?}");
        }
    }
}
