//! What a reply is made of, by its `Content-Type`.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};

/// What a reply is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// One JSON message.
    Json,
    /// Server-sent events.
    Sse,
    /// Nothing MCP knows.
    Other,
}

impl Media {
    /// What a `Content-Type` says, with any parameters.
    pub fn of(value: &[u8]) -> Self {
        // As nearly everybody writes it.
        if value == b"application/json" {
            return Self::Json;
        }
        let essence = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        match () {
            () if essence.eq_ignore_ascii_case(b"application/json") => Self::Json,
            () if essence.eq_ignore_ascii_case(b"text/event-stream") => Self::Sse,
            () => Self::Other,
        }
    }
}

/// The media type of a reply.
pub fn media_of(headers: &HeaderMap) -> Media {
    // Nobody asked for a compressed reply, and its encoding would be lost on the way.
    let is_plain = headers.get(CONTENT_ENCODING).is_none_or(|encoding| encoding == "identity");
    if !is_plain {
        return Media::Other;
    }
    let value = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    Media::of(value)
}
