//! `initialize`, which a modern server has not: answered from how it introduced itself by `server/discover`.

use std::sync::Arc;

use bytes::Bytes;

use super::session::LegacySession;
use crate::upstream::Upstream;
use protocol::initialize;
use protocol::json::{Document, JsonKind, Scratch, Value};
use protocol::translation::capabilities;
use protocol::translation::request::introduction;
use protocol::version::LegacyVersion;

const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// What a server of which nothing is known may have.
const ANY_CAPABILITIES: &[u8] = br#"{"tools":{},"prompts":{},"resources":{}}"#;

/// What a client says of itself.
pub(super) struct ClientOffer {
    version: LegacyVersion,
    capabilities: Bytes,
    client_info: Option<Bytes>,
    principal: Option<Arc<str>>,
}

impl ClientOffer {
    /// Reads an `initialize`. `None`: it has no parameters.
    pub(super) fn read(
        message: &Bytes,
        principal: Option<Arc<str>>,
        (scratch, depth_max): (&mut Scratch, usize),
    ) -> Option<Self> {
        let params = scratch.index(message, depth_max).map(Document::root).ok()?.get("params")?;
        let object = |key: &str| {
            let value = params.get(key).filter(|value| value.is_object());
            value.map(|value| Bytes::copy_from_slice(value.raw()))
        };
        let version = initialize::version(params);
        let (declared, client_info) = (object("capabilities").unwrap_or_default(), object("clientInfo"));
        Some(Self {
            version: version.unwrap_or(LegacyVersion::NEWEST),
            capabilities: capabilities::across(&declared, (scratch, depth_max)),
            client_info,
            principal,
        })
    }

    pub(super) fn session(&self) -> Arc<LegacySession> {
        let text = |object: &Bytes| String::from_utf8_lossy(object).into_owned();
        let info = self.client_info.as_ref().map(text);
        let introduction = introduction(&text(&self.capabilities), info.as_deref());
        LegacySession::new(introduction.into(), self.principal.clone())
    }

    /// The answer to the `initialize` with this id literal.
    pub(super) fn answer(
        &self,
        upstream: &Upstream,
        id: &[u8],
        (scratch, depth_max): (&mut Scratch, usize),
    ) -> Bytes {
        let known = upstream.facts.known();
        let introduced = known.modern.introduction().map(|introduction| introduction.result.clone());
        let introduced = introduced.unwrap_or_default();
        let mut declared = Bytes::from_static(ANY_CAPABILITIES);
        let (mut info, mut instructions) = (None, None);
        if let Ok(root) = scratch.index(&introduced, depth_max).map(Document::root) {
            let raw = |value: Value<'_>| introduced.slice(value.span());
            let object = |value: &Value<'_>| value.is_object();
            declared = root.get("capabilities").filter(object).map_or(declared, raw);
            info = root.get("_meta").and_then(|meta| meta.get(SERVER_INFO)).filter(object).map(raw);
            instructions = root.get("instructions").filter(|text| text.kind() == JsonKind::String).map(raw);
        }
        let declared = capabilities::across(&declared, (scratch, depth_max));
        let mut answer = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
        answer.extend_from_slice(id);
        answer.extend_from_slice(b",\"result\":{\"protocolVersion\":\"");
        answer.extend_from_slice(self.version.as_str().as_bytes());
        answer.extend_from_slice(b"\",\"capabilities\":");
        answer.extend_from_slice(&declared);
        answer.extend_from_slice(b",\"serverInfo\":");
        answer.extend_from_slice(info.as_deref().unwrap_or(br#"{"name":"","version":""}"#));
        if let Some(instructions) = instructions {
            answer.extend_from_slice(b",\"instructions\":");
            answer.extend_from_slice(&instructions);
        }
        answer.extend_from_slice(b"}}");
        answer.into()
    }
}
