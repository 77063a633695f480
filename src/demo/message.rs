//! Reads one JSON-RPC message, as far as that is the same in every era.
//!
//! Order of checks: JSON, JSON-RPC. What `params` and headers must have, `modern` and `legacy` know.

use hyper::HeaderMap;
use serde_json::{Map, Value};

use super::request::is_string_or_integer;
use super::rpc::RpcFault;

/// The member of `_meta` that names the revision.
pub(super) const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

pub(super) struct RpcMessage {
    pub(super) headers: HeaderMap,
    pub(super) kind: RpcKind,
    /// Empty in requests without any.
    pub(super) params: Map<String, Value>,
}

pub(super) enum RpcKind {
    /// `id` is a string or an integer.
    Request {
        id: Value,
        method: String,
    },
    Notification,
    /// To a request of ours. `result`: none where it failed.
    Response {
        id: Value,
        result: Option<Value>,
    },
}

/// Reads the message in `body`. Its id comes apart from it: a message that is refused may have one, too.
pub(super) fn read(headers: HeaderMap, body: &[u8]) -> (Option<Value>, Result<RpcMessage, RpcFault>) {
    let mut message = match serde_json::from_slice(body) {
        Ok(Value::Object(message)) => message,
        Ok(_) => return (None, Err(RpcFault::invalid_request("The body must be one JSON object"))),
        Err(error) => return (None, Err(RpcFault::parse(format!("The body is not valid JSON: {error}")))),
    };
    let id = message.remove("id");
    (id.clone().filter(is_string_or_integer), envelope(headers, id, message))
}

impl RpcMessage {
    /// The revision that `params._meta` names.
    pub(super) fn version_in_meta(&self) -> Option<&str> {
        self.params.get("_meta")?.get(META_VERSION)?.as_str()
    }
}

fn envelope(
    headers: HeaderMap,
    id: Option<Value>,
    mut message: Map<String, Value>,
) -> Result<RpcMessage, RpcFault> {
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(RpcFault::invalid_request("jsonrpc must be \"2.0\""));
    }
    let is_response = message.contains_key("result") || message.contains_key("error");
    let kind = match (message.remove("method"), id) {
        (None, id) if is_response => {
            RpcKind::Response { id: id.unwrap_or_default(), result: message.remove("result") }
        }
        (Some(Value::String(_)), None) => RpcKind::Notification,
        (Some(Value::String(method)), Some(id)) if is_string_or_integer(&id) => {
            RpcKind::Request { id, method }
        }
        (Some(Value::String(_)), Some(_)) => {
            return Err(RpcFault::invalid_request("id must be a string or an integer"));
        }
        _ => return Err(RpcFault::invalid_request("method must be a string")),
    };
    let params = match message.remove("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => return Err(RpcFault::invalid_request("params must be an object")),
    };
    Ok(RpcMessage { headers, kind, params })
}
