//! Messages of revision 2026-07-28: the version in every request, and the headers that mirror it.
//!
//! Order of checks: version, required `_meta`, mirrored headers. What a method asks of its parameters is
//! checked by the method. A message of a revision that is unknown ends in −32022 here.

use serde_json::Value;

use super::headers;
use super::message::{META_VERSION, RpcKind, RpcMessage};
use super::methods::{McpServer, RpcReply};
use super::request::{META_CAPABILITIES, RpcRequest};
use super::rpc::{PROTOCOL_VERSION, RpcFault};

pub(super) fn answer(message: RpcMessage, server: &McpServer) -> Result<RpcReply, RpcFault> {
    let (id, method) = match &message.kind {
        RpcKind::Request { id, method } => (id.clone(), method.clone()),
        RpcKind::Notification => return Ok(RpcReply::Accepted),
        RpcKind::Response { .. } => {
            return Err(RpcFault::invalid_request("Only requests and notifications may be sent"));
        }
    };
    check_version(&message)?;
    check_names(&message, &method)?;
    server.answer(&RpcRequest { id, method, params: message.params, headers: Some(message.headers) })
}

fn check_version(message: &RpcMessage) -> Result<(), RpcFault> {
    let header = headers::single(&message.headers, "MCP-Protocol-Version")?;
    let body = message.version_in_meta();
    if let Some(header) = header
        && header != PROTOCOL_VERSION
        && body.is_none_or(|body| body == header)
    {
        return Err(RpcFault::unsupported_version(header));
    }
    let capabilities = message.params.get("_meta").and_then(|meta| meta.get(META_CAPABILITIES));
    if body.is_none() {
        return Err(RpcFault::missing_meta(format!("params._meta must have a string {META_VERSION}")));
    }
    if !capabilities.is_some_and(Value::is_object) {
        return Err(RpcFault::missing_meta(format!("params._meta must have an object {META_CAPABILITIES}")));
    }
    headers::compare("MCP-Protocol-Version", header, body)
}

fn check_names(message: &RpcMessage, method: &str) -> Result<(), RpcFault> {
    let header = headers::single(&message.headers, "Mcp-Method")?;
    headers::compare("Mcp-Method", header, Some(method))?;
    let field = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ => return Ok(()),
    };
    let name = headers::decoded(&message.headers, "Mcp-Name")?;
    headers::compare("Mcp-Name", name.as_deref(), message.params.get(field).and_then(Value::as_str))
}
