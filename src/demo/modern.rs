//! Reads one message of revision 2026-07-28: the body and the headers that mirror it.
//!
//! [`read`] is the only place that knows the era. A message of another era ends in −32022 there; serving it
//! would branch off there too and make the same [`Request`].
//!
//! Order of checks: JSON, JSON-RPC, version, required `_meta`, mirrored headers. What a method asks of its
//! parameters is checked by the method.

use hyper::HeaderMap;
use serde_json::{Map, Value};

use super::headers;
use super::request::{META_CAPABILITIES, Request, is_string_or_integer};
use super::rpc::{PROTOCOL_VERSION, RpcError};

const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// What a client that sends no version is taken to speak (Streamable HTTP, "Protocol Version Header").
const VERSION_WITHOUT_HEADER: &str = "2025-03-26";

/// What a POST may carry.
pub(super) enum Message {
    Request(Request),
    Notification,
}

/// Why a message was refused, with its id where that could be read.
pub(super) struct Refusal {
    pub(super) id: Option<Value>,
    pub(super) error: RpcError,
}

/// Reads the message in `body`.
pub(super) fn read(headers: HeaderMap, body: &[u8]) -> Result<Message, Refusal> {
    let message: Value = serde_json::from_slice(body).map_err(|error| Refusal {
        id: None,
        error: RpcError::parse(format!("The body is not valid JSON: {error}")),
    })?;
    let Value::Object(mut message) = message else {
        return Err(Refusal {
            id: None,
            error: RpcError::invalid_request("The body must be one JSON object"),
        });
    };
    let id = message.remove("id");
    let known = id.clone().filter(is_string_or_integer);
    envelope(headers, id, message).map_err(|error| Refusal { id: known, error })
}

fn envelope(
    headers: HeaderMap,
    id: Option<Value>,
    mut message: Map<String, Value>,
) -> Result<Message, RpcError> {
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(RpcError::invalid_request("jsonrpc must be \"2.0\""));
    }
    let Some(Value::String(method)) = message.remove("method") else {
        return Err(RpcError::invalid_request(
            "Only requests and notifications may be sent: method must be a string",
        ));
    };
    let Some(id) = id else { return Ok(Message::Notification) };
    if !is_string_or_integer(&id) {
        return Err(RpcError::invalid_request("id must be a string or an integer"));
    }
    let params = match message.remove("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => return Err(RpcError::invalid_request("params must be an object")),
    };
    let request = Request { id, method, params, headers };
    check_version(&request)?;
    check_names(&request)?;
    Ok(Message::Request(request))
}

fn check_version(request: &Request) -> Result<(), RpcError> {
    let header = headers::single(&request.headers, "MCP-Protocol-Version")?;
    let meta = request.params.get("_meta");
    let body = meta.and_then(|meta| meta.get(META_VERSION)).and_then(Value::as_str);
    match (header, body) {
        (None, None) => {
            let asked = request.params.get("protocolVersion").and_then(Value::as_str);
            return Err(RpcError::unsupported_version(asked.unwrap_or(VERSION_WITHOUT_HEADER)));
        }
        (Some(header), None) if header != PROTOCOL_VERSION => {
            return Err(RpcError::unsupported_version(header));
        }
        (Some(header), Some(body)) if header == body && header != PROTOCOL_VERSION => {
            return Err(RpcError::unsupported_version(header));
        }
        _ => {}
    }
    if body.is_none() {
        return Err(RpcError::missing_meta(format!("params._meta must have a string {META_VERSION}")));
    }
    if !meta.and_then(|meta| meta.get(META_CAPABILITIES)).is_some_and(Value::is_object) {
        return Err(RpcError::missing_meta(format!("params._meta must have an object {META_CAPABILITIES}")));
    }
    headers::compare("MCP-Protocol-Version", header, body)
}

fn check_names(request: &Request) -> Result<(), RpcError> {
    let method = headers::single(&request.headers, "Mcp-Method")?;
    headers::compare("Mcp-Method", method, Some(&request.method))?;
    let field = match request.method.as_str() {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ => return Ok(()),
    };
    let name = headers::single(&request.headers, "Mcp-Name")?;
    let name = name.map(|name| headers::decode("Mcp-Name", name)).transpose()?;
    headers::compare("Mcp-Name", name.as_deref(), request.params.get(field).and_then(Value::as_str))
}
