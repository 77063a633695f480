//! What the headers of a client's request say, read in one pass before the body arrives.
//!
//! It finds and counts; it decides nothing but media types. Invariant: a field that occurs twice is
//! [`HeaderField::Many`], never its first value.

use std::borrow::Cow;

use super::fields::{FieldLine, FieldName, Fields};
use super::header;
use super::media::Media;
use super::version::Era;

const REPLY_TYPES: [&str; 5] = ["application/json", "text/event-stream", "*/*", "application/*", "text/*"];
const EVENT_TYPES: [&str; 3] = ["text/event-stream", "*/*", "text/*"];

/// A header that may occur once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeaderField<'h> {
    /// Not sent.
    #[default]
    Absent,
    /// Sent once, as visible ASCII, spaces and tabs.
    One(&'h str),
    /// Sent once, with other characters.
    Malformed,
    /// Sent more than once.
    Many,
}

impl<'h> HeaderField<'h> {
    /// One more, of this value, or of one that is none.
    fn add(&mut self, value: Option<&'h str>) {
        *self = match (&self, value) {
            (Self::Absent, Some(value)) => Self::One(value),
            (Self::Absent, None) => Self::Malformed,
            _ => Self::Many,
        };
    }

    /// The value, if there is exactly one and it is well formed.
    pub fn as_str(self) -> Option<&'h str> {
        match self {
            Self::One(value) => Some(value),
            Self::Absent | Self::Malformed | Self::Many => None,
        }
    }

    /// True if the header was sent at least once.
    pub fn is_present(self) -> bool {
        self != Self::Absent
    }
}

/// The headers that decide what happens to a request.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each answers a question of its own")]
pub struct Head<'h> {
    /// `MCP-Protocol-Version`
    pub version: HeaderField<'h>,
    /// `Mcp-Method`
    pub method: HeaderField<'h>,
    /// `Mcp-Session-Id`
    pub session: HeaderField<'h>,
    /// `Mcp-Name`, still encoded
    pub name: HeaderField<'h>,
    /// `Mcp-Name`, decoded; `None` where that cannot be done
    pub decoded_name: Option<Cow<'h, str>>,
    /// `Origin`
    pub origin: HeaderField<'h>,
    /// `Host`
    pub host: HeaderField<'h>,
    /// `Authorization`
    pub authorization: HeaderField<'h>,
    /// `Content-Type`
    pub content_type: HeaderField<'h>,
    /// The body is encoded, as `Content-Encoding` says.
    pub is_encoded: bool,
    /// True if `Accept` is absent or admits JSON or SSE.
    pub accepts_reply: bool,
    /// True if `Accept` is absent or admits SSE.
    pub accepts_events: bool,
    /// `Last-Event-ID`
    pub last_event: Option<&'h [u8]>,
    /// There is an `Mcp-Param-*` header.
    pub has_param: bool,
    /// An `Mcp-Param-*` header occurs twice
    /// or holds a character outside visible ASCII, space and tab.
    pub has_bad_param: bool,
}

impl<'h> Head<'h> {
    /// Reads the fields once, each of `Mcp-Param-*` beside the others: there must be no more than a bounded number.
    pub fn read(fields: &'h Fields) -> Self {
        let mut head = Self::default();
        let mut accept_seen = false;
        let mut accept_ok = false;
        let mut events_ok = false;
        for (FieldLine { known, name, value }, text) in fields.iter_with_text() {
            match known {
                FieldName::McpProtocolVersion => head.version.add(text),
                FieldName::McpMethod => head.method.add(text),
                FieldName::McpName => head.name.add(text),
                FieldName::McpSessionId => head.session.add(text),
                FieldName::Origin => head.origin.add(text),
                FieldName::Host => head.host.add(text),
                FieldName::Authorization => head.authorization.add(text),
                FieldName::ContentType => head.content_type.add(text),
                FieldName::Accept => {
                    accept_seen = true;
                    let is_usual = value == b"application/json, text/event-stream";
                    accept_ok |= is_usual || admits(value, &REPLY_TYPES);
                    events_ok |= is_usual || admits(value, &EVENT_TYPES);
                }
                FieldName::ContentEncoding => head.is_encoded |= !value.eq_ignore_ascii_case(b"identity"),
                FieldName::LastEventId => head.last_event = Some(value),
                FieldName::McpParam => {
                    head.has_param = true;
                    let are_two = || {
                        let alike = fields.iter().filter(|other| other.name.eq_ignore_ascii_case(name));
                        alike.take(2).count() > 1
                    };
                    head.has_bad_param = head.has_bad_param || text.is_none() || are_two();
                }
                _ => {}
            }
        }
        head.accepts_reply = accept_ok || !accept_seen;
        head.accepts_events = events_ok || !accept_seen;
        head.decoded_name = head.name.as_str().and_then(header::decode_visible);
        head
    }

    /// The era the headers alone show, if they do: a version nobody knows is treated by the modern rules.
    pub fn era(&self) -> Option<Era> {
        match self.version {
            HeaderField::Absent => None,
            HeaderField::One(version) if Era::of_version(version) == Some(Era::Legacy) => Some(Era::Legacy),
            _ => Some(Era::Modern),
        }
    }

    /// True if `Content-Type` is `application/json`, with any parameters.
    pub fn is_json(&self) -> bool {
        self.content_type.as_str().is_some_and(|value| Media::of(value.as_bytes()) == Media::Json)
    }
}

fn admits(accept: &[u8], types: &[&str]) -> bool {
    accept.split(|byte| *byte == b',').any(|range| {
        let mut parts = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let media = parts.next().unwrap_or_default();
        let is_refused = parts.any(|parameter| {
            let parameter = parameter.to_ascii_lowercase();
            parameter.strip_prefix(b"q=").is_some_and(|q| q.iter().all(|byte| matches!(byte, b'0' | b'.')))
        });
        types.iter().any(|known| media.eq_ignore_ascii_case(known.as_bytes())) && !is_refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderName, HeaderValue};

    fn headers(pairs: &[(&'static str, &[u8])]) -> Fields {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).expect("value"));
        }
        Fields::from(&map)
    }

    #[test]
    fn counts_what_must_be_single() {
        let map = headers(&[("mcp-name", b"a"), ("mcp-name", b"a"), ("mcp-method", b"tools/call")]);
        let head = Head::read(&map);
        assert_eq!(head.name, HeaderField::Many);
        assert_eq!(head.method.as_str(), Some("tools/call"));
        assert_eq!(head.version, HeaderField::Absent);
        let map = headers(&[("mcp-name", b"=?base64?w6Q=?="), ("mcp-method", b"a\xe4")]);
        let head = Head::read(&map);
        assert_eq!(head.decoded_name.as_deref(), Some("ä"));
        assert_eq!(head.method, HeaderField::Malformed);
    }

    #[test]
    fn finds_bad_params() {
        for (pairs, bad) in [
            (&[("mcp-param-a", &b"1"[..]), ("mcp-param-b", b"2")][..], false),
            (&[("mcp-param-a", b"1"), ("mcp-param-a", b"1")], true),
            (&[("mcp-param-a", b"1"), ("accept", b"*/*"), ("mcp-param-a", b"1")], true),
            (&[("mcp-param-a", b"\xc3\xa4")], true),
            (&[("mcp-param-a", b"a\tb c")], false),
            (&[("mcp-param-a", b"=?base64?w6Q=?=")], false),
            // Without the tool's schema it is not ours to read.
            (&[("mcp-param-a", b"=?base64?!!?=")], false),
        ] {
            assert_eq!(Head::read(&headers(pairs)).has_bad_param, bad, "{pairs:?}");
        }
    }

    #[test]
    fn judges_media_types() {
        for (value, json) in [
            (&b"application/json"[..], true),
            (b"Application/JSON; charset=utf-8", true),
            (b"application/json-patch+json", false),
            (b"text/plain", false),
        ] {
            assert_eq!(Head::read(&headers(&[("content-type", value)])).is_json(), json, "{value:?}");
        }
        for (accept, reply, events) in [
            (&b"application/json, text/event-stream"[..], true, true),
            (b"text/*;q=0.5", true, true),
            (b"*/*", true, true),
            (b"application/json", true, false),
            (b"application/json, text/event-stream;q=0", true, false),
            (b"text/html", false, false),
            (b"application/json;q=0", false, false),
            (b"application/json;q=0.000, text/event-stream", true, true),
            (b"", false, false),
        ] {
            let map = headers(&[("accept", accept)]);
            let head = Head::read(&map);
            assert_eq!((head.accepts_reply, head.accepts_events), (reply, events), "{accept:?}");
        }
        let none = headers(&[]);
        assert!(Head::read(&none).accepts_reply && Head::read(&none).accepts_events);
    }
}
