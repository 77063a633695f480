//! A client's request as the line takes it, whichever HTTP carried it.

use http::request::Parts;
use http::{Method, Uri};
use protocol::fields::Fields;

/// The head of a client's request.
#[derive(Debug)]
pub(crate) struct RequestHeader {
    pub method: Method,
    pub target: RequestTarget,
    pub fields: Fields,
}

/// What a request is for.
#[derive(Debug)]
pub(crate) enum RequestTarget {
    /// A plain path, which ends here among the bytes of the fields.
    Path { start: usize, end: usize },
    /// Anything else.
    Uri(Box<Uri>),
}

impl RequestHeader {
    /// The path of its target.
    pub(crate) fn path(&self) -> &[u8] {
        match &self.target {
            RequestTarget::Path { start, end } => self.fields.bytes().get(*start..*end).unwrap_or_default(),
            RequestTarget::Uri(uri) => uri.path().as_bytes(),
        }
    }

    /// What stands behind the path.
    pub(crate) fn query(&self) -> Option<&str> {
        match &self.target {
            RequestTarget::Path { .. } => None,
            RequestTarget::Uri(uri) => uri.query(),
        }
    }

    /// The host and port that the target names, if it does.
    pub(crate) fn authority(&self) -> Option<&str> {
        match &self.target {
            RequestTarget::Path { .. } => None,
            RequestTarget::Uri(uri) => uri.authority().map(http::uri::Authority::as_str),
        }
    }
}

/// What HTTP/2 brings.
impl From<Parts> for RequestHeader {
    fn from(Parts { method, uri, headers, .. }: Parts) -> Self {
        Self { method, target: RequestTarget::Uri(Box::new(uri)), fields: Fields::from(&headers) }
    }
}
