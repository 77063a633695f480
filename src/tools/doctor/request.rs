//! Requests as they should be, and as they should not. Pure.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Map, Value, json};

use protocol::header::encode_value;
use protocol::version::MODERN;

/// A name that no server has.
pub(super) const NOBODY: &str = "trunkline-doctor-no-such-name";
/// A version that there never was.
pub(super) const NO_VERSION: &str = "1900-01-01";
/// A method that no server has.
pub(super) const NO_METHOD: &str = "trunkline-doctor/no-such-method";

const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

#[derive(Clone, Debug)]
pub(super) struct ProbeRequest {
    pub(super) http_method: Method,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
    pub(super) until: Until,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Message(Value),
    Raw(&'static str),
    None,
}

/// How far a reply is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// To the answer.
    Answer,
    /// To the first message, whatever it is.
    FirstMessage,
    /// Not at all: its head is enough.
    Head,
}

impl ProbeRequest {
    pub(super) fn modern(id: impl Into<Value>, method: &str, params: Value) -> Self {
        let mut params = into_object(params);
        let meta = json!({
            PROTOCOL_VERSION: MODERN[0],
            CLIENT_INFO: { "name": "trunkline-doctor", "version": env!("CARGO_PKG_VERSION") },
            CLIENT_CAPABILITIES: {},
        });
        params.insert("_meta".to_owned(), meta);
        let name = match method {
            "tools/call" | "prompts/get" => params.get("name"),
            "resources/read" => params.get("uri"),
            _ => None,
        };
        let name = name.and_then(Value::as_str).map(|name| encode_value(name).into_owned());
        let message = json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params });
        let ask = Self::of(Body::Message(message))
            .with("mcp-protocol-version", MODERN[0])
            .with("mcp-method", method);
        match name {
            Some(name) => ask.with("mcp-name", &name),
            None => ask,
        }
    }

    pub(super) fn legacy(id: impl Into<Value>, method: &str, params: Value) -> Self {
        let mut message = json!({ "jsonrpc": "2.0", "id": id.into(), "method": method });
        if params.as_object().is_none_or(|params| !params.is_empty()) {
            message["params"] = params;
        }
        Self::of(Body::Message(message))
    }

    /// `initialize`, for a version.
    pub(super) fn initialize(version: &str) -> Self {
        let params = json!({
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": { "name": "trunkline-doctor", "version": env!("CARGO_PKG_VERSION") },
        });
        Self::legacy(1, "initialize", params)
    }

    pub(super) fn notification(method: &str) -> Self {
        Self::of(Body::Message(json!({ "jsonrpc": "2.0", "method": method })))
    }

    pub(super) fn of(body: Body) -> Self {
        let ask = Self { http_method: Method::POST, headers: HeaderMap::new(), body, until: Until::Answer };
        ask.with("content-type", "application/json").with("accept", "application/json, text/event-stream")
    }

    pub(super) fn bare(http_method: Method) -> Self {
        let accept = if http_method == Method::GET { "text/event-stream" } else { "application/json" };
        let ask = Self { http_method, headers: HeaderMap::new(), body: Body::None, until: Until::Head };
        ask.with("accept", accept)
    }

    /// The same with this header. A value that cannot be one is left out.
    #[must_use]
    pub(super) fn with(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    #[must_use]
    pub(super) fn without(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    #[must_use]
    pub(super) fn in_session(self, version: &str, session_id: Option<&str>) -> Self {
        let ask = self.with("mcp-protocol-version", version);
        match session_id {
            Some(session_id) => ask.with("mcp-session-id", session_id),
            None => ask,
        }
    }

    #[must_use]
    pub(super) fn with_body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    /// The same message in an array.
    #[must_use]
    pub(super) fn in_a_batch(mut self) -> Self {
        if let Body::Message(message) = &mut self.body {
            *message = Value::Array(vec![message.take()]);
        }
        self
    }

    #[must_use]
    pub(super) fn until(mut self, until: Until) -> Self {
        self.until = until;
        self
    }

    /// The same with a change to its `_meta`.
    #[must_use]
    pub(super) fn with_meta(mut self, change: impl FnOnce(&mut Map<String, Value>)) -> Self {
        if let Body::Message(message) = &mut self.body
            && let Some(meta) = message.pointer_mut("/params/_meta").and_then(Value::as_object_mut)
        {
            change(meta);
        }
        self
    }

    #[must_use]
    pub(super) fn of_version(self, version: &str) -> Self {
        let ask = self.with("mcp-protocol-version", version);
        ask.with_meta(|meta| {
            meta.insert(PROTOCOL_VERSION.to_owned(), Value::from(version));
        })
    }

    /// The same without what the client can do.
    #[must_use]
    pub(super) fn without_capabilities(self) -> Self {
        self.with_meta(|meta| {
            meta.remove(CLIENT_CAPABILITIES);
        })
    }

    pub(super) fn id(&self) -> Option<&Value> {
        match &self.body {
            Body::Message(message) => message.get("id"),
            Body::Raw(_) | Body::None => None,
        }
    }

    pub(super) fn bytes(&self) -> Bytes {
        match &self.body {
            Body::Message(message) => Bytes::from(message.to_string()),
            Body::Raw(text) => Bytes::from_static(text.as_bytes()),
            Body::None => Bytes::new(),
        }
    }
}

/// The id of the subscription that a notification belongs to.
pub(super) fn subscription_id(notification: &Value) -> Option<&Value> {
    notification.get("params")?.get("_meta")?.get(SUBSCRIPTION_ID)
}

fn into_object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_as_the_revision_asks_until_they_are_changed() {
        let ask = ProbeRequest::modern(7, "tools/call", json!({ "name": "naïve", "arguments": {} }));
        assert_eq!(ask.headers["mcp-name"], "=?base64?bmHDr3Zl?=");
        assert_eq!(ask.headers["mcp-method"], "tools/call");
        assert_eq!(ask.headers["mcp-protocol-version"], MODERN[0]);
        assert_eq!(ask.id(), Some(&json!(7)));
        let sent: Value = serde_json::from_slice(&ask.bytes()).unwrap();
        assert_eq!(sent["params"]["_meta"][PROTOCOL_VERSION], MODERN[0]);

        let other = ask.clone().of_version(NO_VERSION).without("mcp-name").without_capabilities();
        let sent: Value = serde_json::from_slice(&other.bytes()).unwrap();
        assert_eq!(sent["params"]["_meta"][PROTOCOL_VERSION], NO_VERSION);
        assert!(sent["params"]["_meta"].get(CLIENT_CAPABILITIES).is_none());
        assert_eq!(other.headers["mcp-protocol-version"], NO_VERSION);
        assert!(!other.headers.contains_key("mcp-name"));

        let ping = ProbeRequest::legacy("a", "ping", json!({})).in_session("2025-11-25", Some("s"));
        assert_eq!(ping.bytes(), r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#.as_bytes());
        assert_eq!(ping.headers["mcp-session-id"], "s");
    }
}
