//! A request's head as the line takes it, and the status for what is none.

use bytes::Bytes;
use http::uri::Scheme;
use http::{Method, StatusCode, Uri};
use http1::{HttpFault, RequestHead};

use crate::line::request_header::{RequestHeader, RequestTarget};
use protocol::fields::{FieldName, FieldPlaces, Fields};

/// What is said of a request beside its parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestForm {
    pub(super) framing: http1::BodyEnd,
    /// It is of HTTP/1.0.
    pub(super) is_old: bool,
    pub(super) is_persistent: bool,
    pub(super) expects_continue: bool,
}

/// The head of a request, without its bytes.
pub(super) struct ParsedHead {
    /// How many bytes it has.
    pub(super) length: usize,
    pub(super) form: RequestForm,
    method: Method,
    target: RequestTarget,
    places: FieldPlaces,
}

impl ParsedHead {
    /// The head that `bytes` begin with, if all of it is there and nothing is wrong with it. `None`: [`parse`](Self::parse)
    /// tells why.
    pub(super) fn parse_at_once(bytes: &[u8], bytes_max: usize, fields_max: usize) -> Option<Self> {
        let mut fields = RequestHeadFields { bytes, places: FieldPlaces::begin(), count: 0 };
        let (head, length) =
            RequestHead::read_at_once(bytes, bytes_max, |name, value| fields.add(name, value))?;
        fields.head(&head, length, fields_max).ok()
    }

    /// The head that these bytes are.
    pub(super) fn parse(bytes: &[u8], fields_max: usize) -> Result<Self, StatusCode> {
        let mut fields = RequestHeadFields { bytes, places: FieldPlaces::begin(), count: 0 };
        let head = RequestHead::read(bytes, |name, value| fields.add(name, value)).map_err(status_of)?;
        fields.head(&head, bytes.len(), fields_max)
    }

    /// True if its target names another scheme than that of its connection.
    pub(super) fn is_misdirected(&self, is_tls: bool) -> bool {
        let RequestTarget::Uri(uri) = &self.target else { return false };
        let scheme = if is_tls { &Scheme::HTTPS } else { &Scheme::HTTP };
        uri.scheme().is_some_and(|named| named != scheme)
    }

    /// With its bytes, which `message` begins with.
    pub(super) fn into_header(self, message: Bytes) -> RequestHeader {
        let Self { method, target, places, .. } = self;
        RequestHeader { method, target, fields: Fields::new(message, places) }
    }
}

/// The fields of a head that is being read.
struct RequestHeadFields<'b> {
    bytes: &'b [u8],
    places: FieldPlaces,
    count: usize,
}

impl RequestHeadFields<'_> {
    fn add(&mut self, name: &str, value: &[u8]) {
        self.count += 1;
        self.places.push(self.bytes, name.as_bytes(), value);
    }

    /// A target that is no plain path. One of a whole URL takes no `Host` away (RFC 9112 §3.2.2), and a fragment belongs to
    /// no request.
    #[cold]
    fn uri(&self, target: &str) -> Result<Uri, StatusCode> {
        let uri = Uri::try_from(target).map_err(|_| StatusCode::BAD_REQUEST)?;
        let lacks_host = uri.authority().is_some() && !self.places.has(FieldName::Host);
        if lacks_host || target.contains('#') { Err(StatusCode::BAD_REQUEST) } else { Ok(uri) }
    }

    /// The head that they belong to, of so many bytes.
    fn head(
        self,
        head: &RequestHead<'_>,
        length: usize,
        fields_max: usize,
    ) -> Result<ParsedHead, StatusCode> {
        if self.count > fields_max {
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
            RequestTarget::Uri(Box::new(self.uri(head.target)?))
        };
        let RequestHead { framing, is_persistent, expects_continue, minor, .. } = *head;
        let form = RequestForm { framing, is_old: minor == 0, is_persistent, expects_continue };
        Ok(ParsedHead { length, form, method, target, places: self.places })
    }
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
