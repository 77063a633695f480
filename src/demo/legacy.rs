//! The legacy era, 2024-11-05 to 2025-11-25: what differs from revision 2026-07-28.
//!
//! `initialize` opens a session, every other message names it in `Mcp-Session-Id`, DELETE ends it. No header
//! mirrors the body. The methods are the same; their results lose what the era does not know, and every
//! outcome of a request travels with HTTP 200: clients take other statuses for the end of the session.
//!
//! What is deliberately absent: streams opened with GET, so nothing is sent without being asked and the
//! server does not claim that lists change or resources can be subscribed to; requests to the client, so what
//! has to ask the user fails; resumption; batches.

use hyper::{HeaderMap, StatusCode};
use serde_json::{Map, Value, json};

use super::headers;
use super::keyed_table::KeyedTable;
use super::message::{RpcKind, RpcMessage};
use super::methods::{McpServer, RpcReply, ToolOutcome};
use super::request::{META_CAPABILITIES, RpcRequest};
use super::rpc::RpcFault;

/// The open sessions of one server: by their ids, the revisions that they speak.
pub(super) type LegacySessions = KeyedTable<&'static str>;

/// The client of a session that gave way is told that it is gone.
pub(super) const SESSIONS_MAX: usize = 256;
/// The header that names the session.
pub(super) const SESSION_ID: &str = "mcp-session-id";

/// The revisions, newest first.
const REVISIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const NEWEST: &str = REVISIONS[0];
/// The first one with links to resources in the content of tools.
const FIRST_WITH_LINKS: &str = "2025-06-18";

/// The methods that are answered as in the modern era.
const SHARED_METHODS: [&str; 8] = [
    "tools/list",
    "tools/call",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "completion/complete",
];

/// Whether a message with these headers is one of this era: its header says so, or there is none and the body, if it has
/// one, names no version either.
pub(super) fn is_spoken(headers: &HeaderMap, version_in_body: Option<&str>) -> bool {
    match headers::single(headers, "MCP-Protocol-Version") {
        Ok(Some(version)) => REVISIONS.contains(&version),
        Ok(None) => version_in_body.is_none(),
        Err(_) => false,
    }
}

/// Ends the session that `headers` name.
pub(super) fn end_session(headers: &HeaderMap, sessions: &LegacySessions) -> StatusCode {
    match headers::single(headers, SESSION_ID) {
        Ok(Some(id)) if sessions.remove(id).is_some() => StatusCode::NO_CONTENT,
        Ok(Some(_)) => StatusCode::NOT_FOUND,
        Ok(None) | Err(_) => StatusCode::BAD_REQUEST,
    }
}

pub(super) fn answer(
    message: RpcMessage,
    server: &McpServer,
    sessions: &LegacySessions,
) -> Result<RpcReply, RpcFault> {
    if message.version_in_meta().is_some() {
        let mismatch = "MCP-Protocol-Version is of another era than the version in params._meta";
        return Err(RpcFault::header_mismatch(mismatch));
    }
    let revision = match &message.kind {
        RpcKind::Request { method, .. } if method == "initialize" => NEWEST,
        _ => session_revision(&message.headers, sessions)?,
    };
    let RpcKind::Request { id, method } = message.kind else { return Ok(RpcReply::Accepted) };

    let mut params = message.params;
    if let Some(Value::Object(meta)) = params.get_mut("_meta") {
        // Of the modern era, and nobody's promise in this one.
        meta.remove(META_CAPABILITIES);
    }
    let request = RpcRequest { id, method, params, headers: None };
    let reply = match request.method.as_str() {
        "initialize" => initialize(&request, server, sessions),
        "ping" => Ok(RpcReply::Result(json!({}))),
        method if SHARED_METHODS.contains(&method) => server.answer(&request),
        method => Err(RpcFault::unknown_method(method)),
    };
    Ok(plain_reply(reply.or_else(|error| excuse(&request.method, error))?, revision))
}

fn session_revision(headers: &HeaderMap, sessions: &LegacySessions) -> Result<&'static str, RpcFault> {
    let bad = |message: &str| RpcFault::invalid_request(message);
    let Ok(id) = headers::single(headers, SESSION_ID) else {
        return Err(bad("Mcp-Session-Id is sent twice or has invalid characters"));
    };
    let id = id.ok_or_else(|| bad("Mcp-Session-Id is required: open a session with initialize"))?;
    let gone =
        || RpcFault { status: StatusCode::NOT_FOUND, ..bad("There is no such session: open a new one") };
    sessions.get(id).ok_or_else(gone)
}

fn initialize(
    request: &RpcRequest,
    server: &McpServer,
    sessions: &LegacySessions,
) -> Result<RpcReply, RpcFault> {
    let asked = request.text("protocolVersion")?;
    for name in ["capabilities", "clientInfo"] {
        if !request.params.get(name).is_some_and(Value::is_object) {
            return Err(RpcFault::invalid_params(format!("params.{name} must be an object")));
        }
    }
    let revision = REVISIONS.into_iter().find(|known| *known == asked).unwrap_or(NEWEST);
    let method = "server/discover".to_owned();
    let discover = RpcRequest { id: request.id.clone(), method, params: Map::new(), headers: None };
    let RpcReply::Result(mut known) = server.answer(&discover)? else {
        return Err(RpcFault::internal("server/discover has no plain result"));
    };
    let mut capabilities = known["capabilities"].take();
    if let Some(capabilities) = capabilities.as_object_mut() {
        capabilities.remove("extensions");
        capabilities.entry("resources").and_modify(|resources| *resources = json!({}));
    }
    let result = json!({
        "protocolVersion": revision,
        "capabilities": capabilities,
        "serverInfo": known["_meta"]["io.modelcontextprotocol/serverInfo"].take(),
        "instructions": known["instructions"].take(),
    });
    Ok(RpcReply::Opened { session: sessions.insert(revision)?, result })
}

/// What an error of the modern era is in this one.
fn excuse(method: &str, error: RpcFault) -> Result<RpcReply, RpcFault> {
    let is_unknown_resource = method == "resources/read" && error.data.is_some();
    match error.code {
        -32021 => {
            let why = "This tool asks the user, for which it needs a client of protocol revision 2026-07-28.";
            Ok(RpcReply::Result(ToolOutcome::failed(why).result))
        }
        -32602 if is_unknown_resource => Err(RpcFault { code: -32002, status: StatusCode::OK, ..error }),
        _ => Err(RpcFault { status: StatusCode::OK, ..error }),
    }
}

fn plain_reply(reply: RpcReply, revision: &str) -> RpcReply {
    match reply {
        RpcReply::Result(result) => RpcReply::Result(plain(result, revision)),
        RpcReply::Steps { pause, notifications, result } => {
            RpcReply::Steps { pause, notifications, result: plain(result, revision) }
        }
        other => other,
    }
}

/// The result without what `revision` does not know.
fn plain(mut result: Value, revision: &str) -> Value {
    let Some(fields) = result.as_object_mut() else { return result };
    for name in ["resultType", "ttlMs", "cacheScope", "_meta"] {
        fields.remove(name);
    }
    // Revisions are dates, so they are ordered as text.
    if let Some(Value::Array(content)) = fields.get_mut("content")
        && revision < FIRST_WITH_LINKS
    {
        content.retain(|block| block["type"] != "resource_link");
    }
    result
}
