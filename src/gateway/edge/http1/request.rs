//! A request's head as the line takes it, and the status for what is none.

use bytes::Bytes;
use http::{Method, StatusCode, Uri};
use http1::{HttpFault, RequestHead};

use crate::line::request_header::{RequestHeader, RequestTarget};
use protocol::fields::{FieldPlaces, Fields};

/// What is said of a request beside its parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestForm {
    pub(super) framing: http1::BodyEnd,
    /// It is of HTTP/1.0.
    pub(super) is_old: bool,
    pub(super) is_persistent: bool,
    pub(super) expects_continue: bool,
}

/// Reads the head of a request, which `message` begins with and which has so many bytes. It may have so many fields.
pub(super) fn read(
    message: Bytes,
    length: usize,
    headers_max: usize,
) -> Result<(RequestHeader, RequestForm), StatusCode> {
    let bytes = message.get(..length).unwrap_or_default();
    let (mut places, mut count) = (FieldPlaces::default(), 0);
    let head = RequestHead::read(bytes, |name, value| {
        count += 1;
        places.push(bytes, name.as_bytes(), value);
    });
    let head = head.map_err(status_of)?;
    if count > headers_max {
        return Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    let method = Method::from_bytes(head.method.as_bytes()).map_err(|_| StatusCode::BAD_REQUEST)?;
    if method == Method::CONNECT || method == Method::TRACE {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    let target = if is_plain_path(head.target) {
        let start = head.method.len() + 1;
        RequestTarget::Path { start, end: start + head.target.len() }
    } else {
        RequestTarget::Uri(Uri::try_from(head.target).map_err(|_| StatusCode::BAD_REQUEST)?)
    };
    let RequestHead { framing, is_persistent, expects_continue, minor, .. } = head;
    let form = RequestForm { framing, is_old: minor == 0, is_persistent, expects_continue };
    Ok((RequestHeader { method, target, fields: Fields::new(message, places) }, form))
}

/// Whether a target is a path in which nothing has a meaning of its own.
fn is_plain_path(target: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_' | b'.');
    target.starts_with('/') && target.bytes().all(is_plain)
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
