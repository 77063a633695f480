//! The head of a reply as far as anybody looks at it, and its body while it arrives.

use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::SizeHint;
use http1::{BodyEnd, Decoder, HEAD_BYTES_MAX, HttpFault, ResponseHead};

use super::connection::{ConnectionError, PooledConnection};
use crate::upstream::exchange::{ReplyFields, ReplyHead};
use protocol::media::Media;

/// What the head of a reply says.
#[derive(Debug)]
pub(crate) struct ParsedReply {
    pub(crate) head: ReplyHead,
    /// How long the server keeps an idle connection.
    pub(crate) keep_alive: Option<Duration>,
    pub(super) framing: BodyEnd,
    pub(super) is_persistent: bool,
}

impl ParsedReply {
    /// The head that `bytes` begin with, and its length, if all of it is there and nothing is wrong with it. `None`:
    /// [`read`](Self::read) tells why.
    pub(super) fn read_at_once(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut fields = ReplyHeadFields::default();
        let head = ResponseHead::read_at_once(bytes, HEAD_BYTES_MAX, |name, value| fields.add(name, value));
        head.map(|(head, length)| (fields.with(head), length))
    }

    /// The head that these bytes are.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, HttpFault> {
        let mut fields = ReplyHeadFields::default();
        let head = ResponseHead::read(bytes, |name, value| fields.add(name, value))?;
        Ok(fields.with(head))
    }
}

/// What the fields of a head say that is being read.
#[derive(Default)]
struct ReplyHeadFields {
    media: Option<Media>,
    keep_alive: Option<Duration>,
    kept: ReplyFields,
    is_encoded: bool,
}

impl ReplyHeadFields {
    #[inline]
    fn add(&mut self, name: &str, value: &[u8]) {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        match name.len() {
            8 if is("location") => self.kept.note_location(value),
            10 if is("keep-alive") => self.keep_alive = self.keep_alive.or_else(|| keep_alive_timeout(value)),
            11 if is("retry-after") => self.kept.add_retry_after(value),
            12 if is("content-type") && self.media.is_none() => {
                let media = Media::of(value);
                if media == Media::Other {
                    self.kept.note_media(value);
                }
                self.media = Some(media);
            }
            14 if is("mcp-session-id") => self.kept.add_session_id(value),
            // Nobody asked for it, and it would be lost on the way.
            16 if is("content-encoding") && !value.eq_ignore_ascii_case(b"identity") => {
                self.is_encoded = true;
                self.kept.note_coding(value);
            }
            16 if is("www-authenticate") => self.kept.note_challenge(),
            _ => {}
        }
    }

    #[inline]
    fn with(self, head: ResponseHead) -> ParsedReply {
        let media = self.media.filter(|_| !self.is_encoded).unwrap_or(Media::Other);
        ParsedReply {
            head: ReplyHead { status: head.status, media, fields: self.kept },
            keep_alive: self.keep_alive,
            framing: head.framing,
            is_persistent: head.is_persistent,
        }
    }
}

fn keep_alive_timeout(value: &[u8]) -> Option<Duration> {
    let value = std::str::from_utf8(value).ok()?;
    let seconds = value.split(',').find_map(|part| part.trim().strip_prefix("timeout="))?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

/// The body of a reply. Dropped before its end, its connection is of no more use.
#[derive(Debug)]
pub(crate) struct HttpBody {
    /// What came with the head.
    first: Bytes,
    /// Where the rest comes from.
    connection: Option<Rc<PooledConnection>>,
    decoder: Decoder,
}

impl HttpBody {
    /// `connection` is where what follows `first` comes from.
    pub(super) fn new(connection: Rc<PooledConnection>, decoder: Decoder, first: Bytes) -> Self {
        Self { first, connection: Some(connection), decoder }
    }

    /// The next piece of data; `None` at the end.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ConnectionError>>> {
        if !self.first.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.first))));
        }
        let Some(connection) = &self.connection else { return Poll::Ready(None) };
        let data = ready!(connection.poll_data(cx, &mut self.decoder));
        if self.decoder.is_over() || !matches!(data, Some(Ok(_))) {
            self.connection = None;
        }
        Poll::Ready(data)
    }

    /// Whether nothing more will come.
    pub(crate) fn is_over(&self) -> bool {
        self.first.is_empty() && self.connection.is_none()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let first = self.first.len() as u64;
        let mut hint = SizeHint::default();
        hint.set_lower(first + self.decoder.left().unwrap_or(0));
        if self.decoder.left().is_some() {
            hint.set_upper(hint.lower());
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_keep_alive() {
        for (value, seconds) in
            [("timeout=5", Some(5)), ("max=100, timeout=7", Some(7)), ("timeout=x", None), ("max=1", None)]
        {
            assert_eq!(keep_alive_timeout(value.as_bytes()), seconds.map(Duration::from_secs), "{value}");
        }
    }

    #[test]
    fn what_is_encoded_is_no_message() {
        for (fields, media) in [
            ("content-type: application/json", Media::Json),
            ("Content-Type: text/event-stream; charset=utf-8", Media::Sse),
            ("content-type: application/json\r\ncontent-encoding: identity", Media::Json),
            ("content-encoding: gzip\r\ncontent-type: application/json", Media::Other),
            ("x: y", Media::Other),
        ] {
            let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
            let start = ParsedReply::read(head.as_bytes()).expect("a head");
            assert_eq!(start.head.media, media, "{fields}");
        }
    }
}
