//! A request's head as the line takes it, and the status for what is none.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version};
use http1::{HttpFault, RequestHead};

/// How many fields most requests have no more than.
const USUAL_FIELDS: usize = 16;
/// The names of MCP, so that they need no memory.
const MCP_NAME: HeaderName = HeaderName::from_static("mcp-name");
const MCP_METHOD: HeaderName = HeaderName::from_static("mcp-method");
const MCP_SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const MCP_PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// What is said of a request beside its parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestForm {
    pub(super) framing: http1::BodyEnd,
    pub(super) is_persistent: bool,
    pub(super) expects_continue: bool,
}

/// Reads all of a request's head, which may have so many fields.
pub(super) fn read(bytes: &Bytes, headers_max: usize) -> Result<(Parts, RequestForm), StatusCode> {
    let mut headers = HeaderMap::with_capacity(USUAL_FIELDS);
    let (mut is_valid, mut fields) = (true, 0);
    let head = RequestHead::read(bytes, |name, value| {
        fields += 1;
        if is_of_this_connection(name) {
            return;
        }
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(value));
        match (name_of(name), value) {
            (Some(name), Ok(value)) => is_valid &= headers.try_append(name, value).is_ok(),
            _ => is_valid = false,
        }
    });
    let head = head.map_err(status_of)?;
    if fields > headers_max {
        return Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    let method = Method::from_bytes(head.method.as_bytes()).map_err(|_| StatusCode::BAD_REQUEST)?;
    if method == Method::CONNECT || method == Method::TRACE {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    let uri = Uri::from_maybe_shared(bytes.slice_ref(head.target.as_bytes()));
    let (Ok(uri), true) = (uri, is_valid) else { return Err(StatusCode::BAD_REQUEST) };
    let mut parts = Request::new(()).into_parts().0;
    parts.method = method;
    parts.uri = uri;
    parts.version = if head.minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
    parts.headers = headers;
    let RequestHead { framing, is_persistent, expects_continue, .. } = head;
    Ok((parts, RequestForm { framing, is_persistent, expects_continue }))
}

/// Fields that say only how the message is sent: [`RequestHead`] has what they say.
fn is_of_this_connection(name: &str) -> bool {
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    match name.len() {
        10 => is("connection") || is("keep-alive"),
        14 => is("content-length"),
        17 => is("transfer-encoding"),
        _ => false,
    }
}

fn name_of(name: &str) -> Option<HeaderName> {
    let is = |known: &str| name.eq_ignore_ascii_case(known);
    match name.len() {
        8 if is("mcp-name") => Some(MCP_NAME),
        10 if is("mcp-method") => Some(MCP_METHOD),
        14 if is("mcp-session-id") => Some(MCP_SESSION_ID),
        20 if is("mcp-protocol-version") => Some(MCP_PROTOCOL_VERSION),
        _ => HeaderName::from_bytes(name.as_bytes()).ok(),
    }
}

/// What is answered to bytes that are no request.
pub(super) fn status_of(refusal: HttpFault) -> StatusCode {
    match refusal {
        HttpFault::HeadSize => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        HttpFault::Coding => StatusCode::NOT_IMPLEMENTED,
        HttpFault::Head
        | HttpFault::LineEnd
        | HttpFault::Length
        | HttpFault::TwoFramings
        | HttpFault::Chunk => StatusCode::BAD_REQUEST,
    }
}
