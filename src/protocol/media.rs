//! What a reply is made of, by its `Content-Type`.

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
