//! Which of a client's header fields reach an upstream: those named here, those the operator names, and no others.
//!
//! Credentials, cookies, origins and hop-by-hop fields never cross. `Mcp-Name` is written anew where the upstream has its own
//! spelling of the name, because it compares both; so is what tells a session, which is the upstream's own.

use std::sync::{Arc, OnceLock};

use http::header::{ACCEPT, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use protocol::fields::{FieldLine, FieldName, Fields, visible, write_line};
use protocol::version::Era;
use sha2::{Digest as _, Sha256};

use super::ask::{PROTOCOL_VERSION, SESSION_ID, SessionHeaders};

pub(crate) const MCP_NAME: HeaderName = HeaderName::from_static("mcp-name");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const JSON_OR_SSE: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// What crosses of a client's fields, and what is written instead of the rest. `Host` and `Content-Length` are written by
/// whoever knows the replica and the body.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForwardedFields {
    fields: Fields,
    /// What must not cross was taken out of them.
    is_sorted_out: bool,
    inner_name: Option<HeaderValue>,
    session: Option<(Option<&'static str>, Option<HeaderValue>)>,
}

/// The headers that the operator hands on, as a client has shown them, for messages that the gateway sends in the client's
/// session beside its calls. The next ones that the client shows replace them. They are held in memory alone.
#[derive(Debug, Default)]
pub(crate) struct ShownHeaders(OnceLock<Mutex<Arc<HeaderMap>>>);

impl ShownHeaders {
    pub(crate) fn get(&self) -> Option<Arc<HeaderMap>> {
        self.0.get().map(|shown| Arc::clone(&shown.lock()))
    }

    pub(crate) fn set(&self, shown: &Arc<HeaderMap>) {
        *self.0.get_or_init(|| Mutex::new(Arc::clone(shown))).lock() = Arc::clone(shown);
    }
}

/// Those of a client's fields that the operator names; `None` where it names none.
pub(crate) fn shown(fields: &Fields, named: &[HeaderName]) -> Option<Arc<HeaderMap>> {
    if named.is_empty() {
        return None;
    }
    let mut shown = HeaderMap::new();
    for name in named {
        for value in fields.named(name.as_str()) {
            if let Ok(mut value) = HeaderValue::from_bytes(value) {
                value.set_sensitive(true);
                shown.append(name.clone(), value);
            }
        }
    }
    Some(Arc::new(shown))
}

/// Tells clients apart by what they have shown. Of a secret it says nothing.
pub(crate) fn fingerprint(shown: &HeaderMap) -> [u8; 16] {
    let mut digest = Sha256::new();
    for (name, value) in shown {
        for part in [name.as_str().as_bytes(), value.as_bytes()] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
    }
    let whole: [u8; 32] = digest.finalize().into();
    let mut half = [0; 16];
    half.copy_from_slice(&whole[..16]);
    half
}

impl ForwardedFields {
    /// Those of them that the operator names; `None` where it names none.
    pub(crate) fn shown(&self, named: &[HeaderName]) -> Option<Arc<HeaderMap>> {
        shown(&self.fields, named)
    }

    /// Of these, and those in `more`, which the operator names. `inner_name` replaces `Mcp-Name`.
    pub(crate) fn new(mut fields: Fields, inner_name: Option<HeaderValue>, more: &[HeaderName]) -> Self {
        // As long as the operator names none, it shows by what is known of each when they are written.
        if !more.is_empty() {
            fields.retain(|field| may_cross(field, more));
        }
        Self { fields, is_sorted_out: !more.is_empty(), inner_name, session: None }
    }

    /// Those that say nothing of the era they are written in, nor of the message: what a server of the other era is sent.
    #[must_use]
    pub(crate) fn for_other_era(mut self) -> Self {
        let is_sorted_out = self.is_sorted_out;
        let crosses = |known| is_sorted_out || crosses(known);
        let is_written_anew = |known| known == FieldName::ContentType || is_of_era(known);
        self.fields.retain(|field| crosses(field.known) && !is_written_anew(field.known));
        Self { fields: self.fields, is_sorted_out: true, ..Self::default() }
    }

    /// Within this session with the upstream.
    #[must_use]
    pub(crate) fn in_session(self, session: &SessionHeaders<'_>) -> Self {
        Self { session: Some((session.version, session.id.cloned())), ..self }
    }

    /// Leaves to these what both hold.
    pub(crate) fn yield_to(&mut self, headers: &HeaderMap) {
        let is_own =
            |name: &[u8]| headers.keys().any(|own| name.eq_ignore_ascii_case(own.as_str().as_bytes()));
        self.fields.retain(|field| !is_own(field.name));
    }

    /// The era that they are written in.
    pub(crate) fn era(&self) -> Era {
        let version = || self.fields.first(FieldName::McpProtocolVersion).and_then(visible);
        let is_modern = self.session.is_none()
            && version().is_some_and(|version| Era::of_version(version) != Some(Era::Legacy));
        if is_modern { Era::Modern } else { Era::Legacy }
    }

    /// The session with the upstream.
    pub(crate) fn session_id(&self) -> Option<&HeaderValue> {
        self.session.as_ref()?.1.as_ref()
    }

    /// `traceparent`, `tracestate` and `baggage`.
    pub(crate) fn trace(&self) -> [Option<&str>; 3] {
        [FieldName::TraceParent, FieldName::TraceState, FieldName::Baggage]
            .map(|name| self.fields.first(name).and_then(visible))
    }

    /// Writes them as lines of HTTP/1.1.
    pub(crate) fn write_lines(&self, out: &mut Vec<u8>) {
        let is_accept_literal = self.is_accept_literal();
        self.fields.write_lines(out, |known| self.keeps(known, is_accept_literal));
        out.extend_from_slice(b"content-type: application/json\r\n");
        let mut line = |name: &HeaderName, value: &[u8]| write_line(out, name.as_str().as_bytes(), value);
        if !is_accept_literal {
            line(&ACCEPT, JSON_OR_SSE.as_bytes());
        }
        if let Some(name) = &self.inner_name {
            line(&MCP_NAME, name.as_bytes());
        }
        if let Some((version, id)) = &self.session {
            if let Some(version) = version {
                line(&PROTOCOL_VERSION, version.as_bytes());
            }
            if let Some(id) = id {
                line(&SESSION_ID, id.as_bytes());
            }
        }
    }

    /// Adds them to a map, for whoever does not send them over HTTP/1.1.
    pub(crate) fn add_to(self, headers: &mut HeaderMap) {
        let is_accept_literal = self.is_accept_literal();
        self.fields.append_to(headers, |known| self.keeps(known, is_accept_literal));
        headers.insert(CONTENT_TYPE, JSON);
        if !is_accept_literal {
            headers.insert(ACCEPT, JSON_OR_SSE);
        }
        if let Some(name) = self.inner_name {
            headers.insert(MCP_NAME, name);
        }
        if let Some((version, id)) = self.session {
            if let Some(version) = version {
                headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(version));
            }
            if let Some(id) = id {
                headers.insert(SESSION_ID, id);
            }
        }
    }

    /// Servers compare `Accept` with both media types literally, so wildcards are spelled out.
    fn is_accept_literal(&self) -> bool {
        let accept = self.fields.first(FieldName::Accept);
        accept.is_some_and(|value| value == JSON_OR_SSE.as_bytes() || !value.contains(&b'*'))
    }

    /// Whether it goes as it came.
    fn keeps(&self, known: FieldName, is_accept_literal: bool) -> bool {
        match known {
            FieldName::ContentType => false,
            FieldName::Accept if !is_accept_literal => false,
            FieldName::McpName if self.inner_name.is_some() => false,
            FieldName::McpProtocolVersion if self.session.is_some() => false,
            FieldName::McpSessionId if self.session.as_ref().is_some_and(|(_, id)| id.is_some()) => false,
            known => self.is_sorted_out || crosses(known),
        }
    }
}

/// The era that a request with these headers is written in.
pub(super) fn era_of(headers: &HeaderMap) -> Era {
    let version = headers.get(PROTOCOL_VERSION).and_then(|version| version.to_str().ok());
    let is_modern = version.is_some_and(|version| Era::of_version(version) != Some(Era::Legacy));
    if is_modern { Era::Modern } else { Era::Legacy }
}

fn may_cross(field: FieldLine<'_>, more: &[HeaderName]) -> bool {
    let is_named = || more.iter().any(|name| field.name.eq_ignore_ascii_case(name.as_str().as_bytes()));
    crosses(field.known) || is_named()
}

fn crosses(known: FieldName) -> bool {
    let is_of_trace = matches!(known, FieldName::TraceParent | FieldName::TraceState | FieldName::Baggage);
    is_of_era(known) || is_of_trace
}

/// What a request says that was sorted out before.
impl From<&HeaderMap> for ForwardedFields {
    fn from(headers: &HeaderMap) -> Self {
        Self { fields: Fields::from(headers), is_sorted_out: true, ..Self::default() }
    }
}

/// Those that are written anew for a server of the other era, or that it does not know.
fn is_of_era(known: FieldName) -> bool {
    matches!(
        known,
        FieldName::Accept
            | FieldName::McpProtocolVersion
            | FieldName::McpMethod
            | FieldName::McpName
            | FieldName::McpParam
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::header::encode_value;

    fn client() -> Fields {
        let mut client = HeaderMap::new();
        for (name, value) in [
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "up__a"),
            ("mcp-param-city", "=?base64?w7Y=?="),
            ("traceparent", "00-1-2-01"),
            ("authorization", "Bearer secret"),
            ("cookie", "a=b"),
            ("origin", "http://localhost"),
            ("host", "gateway"),
            ("connection", "keep-alive"),
            ("transfer-encoding", "chunked"),
            ("mcp-session-id", "s"),
            ("content-type", "application/json; charset=utf-8"),
            ("accept", "*/*"),
            ("accept-encoding", "gzip"),
            ("expect", "100-continue"),
            ("x-other", "1"),
        ] {
            client.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        Fields::from(&client)
    }

    /// The lines that are sent, sorted, which say the same as the map.
    fn sent(forwarded: &ForwardedFields) -> Vec<String> {
        let mut lines = Vec::new();
        forwarded.write_lines(&mut lines);
        let text = String::from_utf8(lines).expect("text");
        let mut lines: Vec<String> = text.split_terminator("\r\n").map(str::to_owned).collect();
        lines.sort();
        let mut map = HeaderMap::new();
        forwarded.clone().add_to(&mut map);
        let text =
            |(name, value): (&HeaderName, &HeaderValue)| format!("{name}: {}", value.to_str().expect("text"));
        let mut same: Vec<String> = map.iter().map(text).collect();
        same.sort();
        assert_eq!(lines, same);
        lines
    }

    #[test]
    fn only_named_fields_cross() {
        let sent = |inner: Option<&str>, more: &[HeaderName]| {
            let inner = inner.map(|name| HeaderValue::from_str(&encode_value(name)).expect("name"));
            sent(&ForwardedFields::new(client(), inner, more))
        };
        let common = [
            "accept: application/json, text/event-stream",
            "content-type: application/json",
            "mcp-method: tools/call",
        ];
        let rest =
            ["mcp-param-city: =?base64?w7Y=?=", "mcp-protocol-version: 2026-07-28", "traceparent: 00-1-2-01"];
        assert_eq!(sent(None, &[]), [&common[..], &["mcp-name: up__a"], &rest].concat());
        assert_eq!(sent(Some("a"), &[]), [&common[..], &["mcp-name: a"], &rest].concat());
        assert_eq!(sent(Some("ä"), &[]), [&common[..], &["mcp-name: =?base64?w6Q=?="], &rest].concat());
        let more = [HeaderName::from_static("x-other"), HeaderName::from_static("x-absent")];
        assert_eq!(sent(None, &more), [&common[..], &["mcp-name: up__a"], &rest, &["x-other: 1"]].concat());
    }

    #[test]
    fn what_an_upstream_is_shown_replaces_what_a_client_says() {
        let other = HeaderName::from_static("x-other");
        let mut forwarded = ForwardedFields::new(client(), None, std::slice::from_ref(&other));
        let mut own = HeaderMap::new();
        own.insert(other, HeaderValue::from_static("2"));
        forwarded.yield_to(&own);
        assert!(!sent(&forwarded).iter().any(|line| line.starts_with("x-other")));
    }

    #[test]
    fn a_session_is_the_upstreams_own() {
        let forwarded = ForwardedFields::new(client(), None, &[HeaderName::from_static("mcp-session-id")]);
        assert_eq!(forwarded.era(), Era::Modern);
        let id = HeaderValue::from_static("inner");
        let version = Some("2025-11-25");
        let session = SessionHeaders { id: Some(&id), version, replica: None, shown: None };
        let forwarded = forwarded.in_session(&session);
        assert_eq!(forwarded.era(), Era::Legacy);
        let sent = sent(&forwarded);
        let session: Vec<_> = sent.iter().filter(|line| line.contains("session")).collect();
        assert_eq!(session, ["mcp-session-id: inner"]);
        assert!(sent.contains(&"mcp-protocol-version: 2025-11-25".to_owned()));
    }
}
