//! The legacy era, 2024-11-05 to 2025-11-25: what differs from revision 2026-07-28.
//!
//! `initialize` opens a session, every other message names it in `Mcp-Session-Id`, DELETE ends it. No header
//! mirrors the body. The methods are the same; their results lose what the era does not know, and every
//! outcome of a request travels with HTTP 200: clients take other statuses for the end of the session. What asks the
//! user asks on the stream of its call, where the client declared that it can be asked.
//!
//! What is deliberately absent: streams opened with GET, so nothing is sent without being asked and the
//! server does not claim that lists change or resources can be subscribed to; resumption; batches.

use std::sync::Arc;

use futures_util::{FutureExt as _, TryFutureExt as _};
use hyper::{HeaderMap, StatusCode};
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::headers;
use super::keyed_table::KeyedTable;
use super::message::{RpcKind, RpcMessage};
use super::methods::{McpServer, RpcReply, ToolOutcome};
use super::questions::Questions;
use super::request::{META_CAPABILITIES, RpcRequest};
use super::rpc::RpcFault;

/// The open sessions of one server, by their ids, and what was asked in them.
pub(super) struct LegacySessions {
    open: KeyedTable<LegacySession>,
    questions: Questions,
}

impl Default for LegacySessions {
    fn default() -> Self {
        Self { open: KeyedTable::new(SESSIONS_MAX), questions: Questions::default() }
    }
}

#[derive(Clone, Copy)]
pub(super) struct LegacySession {
    revision: &'static str,
    /// Its client shows forms to its user.
    can_be_asked: bool,
}

/// The client of a session that gave way is told that it is gone.
const SESSIONS_MAX: usize = 256;
/// The header that names the session.
pub(super) const SESSION_ID: &str = "mcp-session-id";

/// The revisions, newest first.
const REVISIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const NEWEST: &str = REVISIONS[0];
/// The first one with links to resources in the content of tools.
const FIRST_WITH_LINKS: &str = "2025-06-18";
/// The first one in which the user can be asked.
const FIRST_WITH_QUESTIONS: &str = "2025-06-18";
/// The first one in which there is more than one way to ask.
const FIRST_WITH_MODES: &str = "2025-11-25";

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
        Ok(Some(id)) if sessions.open.remove(id).is_some() => StatusCode::NO_CONTENT,
        Ok(Some(_)) => StatusCode::NOT_FOUND,
        Ok(None) | Err(_) => StatusCode::BAD_REQUEST,
    }
}

pub(super) fn answer(
    message: RpcMessage,
    server: &Arc<McpServer>,
    sessions: &LegacySessions,
) -> Result<RpcReply, RpcFault> {
    if message.version_in_meta().is_some() {
        let mismatch = "MCP-Protocol-Version is of another era than the version in params._meta";
        return Err(RpcFault::header_mismatch(mismatch));
    }
    if let RpcKind::Request { id, method } = &message.kind
        && method == "initialize"
    {
        let request =
            RpcRequest { id: id.clone(), method: method.clone(), params: message.params, headers: None };
        return initialize(&request, server, sessions).map_err(in_session);
    }
    let (session_id, session) = session(&message.headers, sessions)?;
    let (id, method) = match message.kind {
        RpcKind::Request { id, method } => (id, method),
        RpcKind::Notification => return Ok(RpcReply::Accepted),
        RpcKind::Response { id, result } => {
            sessions.questions.answer(session_id, &id, result);
            return Ok(RpcReply::Accepted);
        }
    };
    let mut params = message.params;
    if let Some(Value::Object(meta)) = params.get_mut("_meta") {
        // Of the modern era, and nobody's promise in this one.
        meta.remove(META_CAPABILITIES);
    }
    if session.can_be_asked {
        let meta = params.entry("_meta").or_insert_with(|| json!({}));
        if let Some(meta) = meta.as_object_mut() {
            meta.insert(META_CAPABILITIES.to_owned(), json!({ "elicitation": {} }));
        }
    }
    let request = RpcRequest { id, method, params, headers: None };
    let reply = match request.method.as_str() {
        "ping" => Ok(RpcReply::Result(json!({}))),
        method if SHARED_METHODS.contains(&method) => server.answer(&request),
        method => Err(RpcFault::unknown_method(method)),
    };
    match reply.or_else(|error| excuse(&request.method, error))? {
        RpcReply::Result(asks) if asks["resultType"] == "input_required" => {
            let (message, answer) = sessions.questions.ask(session_id, &question(&asks, session.revision));
            let outcome = resume(Arc::clone(server), request, asks, answer);
            let outcome = outcome.map_ok(move |result| plain(result, session.revision)).boxed();
            Ok(RpcReply::Question { message, outcome })
        }
        reply => Ok(plain_reply(reply, session.revision)),
    }
}

/// The one thing that a result asks for, as a session of this revision asks it.
fn question(asks: &Value, revision: &str) -> Value {
    let asked = asks["inputRequests"].as_object().and_then(|asked| asked.values().next());
    let mut asked = asked.cloned().unwrap_or_default();
    // Revisions are dates, so they are ordered as text.
    if revision < FIRST_WITH_MODES
        && let Some(params) = asked["params"].as_object_mut()
    {
        params.remove("mode");
    }
    asked
}

/// The result of a call once its question is answered.
async fn resume(
    server: Arc<McpServer>,
    mut request: RpcRequest,
    asks: Value,
    answer: oneshot::Receiver<Option<Value>>,
) -> Result<Value, RpcFault> {
    let Ok(Some(answer)) = answer.await else {
        return Ok(ToolOutcome::failed("The user could not be asked, so nothing was done.").result);
    };
    let asked = asks["inputRequests"].as_object().and_then(|asked| asked.keys().next());
    let responses: Map<String, Value> = asked.map(|key| (key.clone(), answer)).into_iter().collect();
    request.params.insert("inputResponses".to_owned(), Value::Object(responses));
    request.params.insert("requestState".to_owned(), asks["requestState"].clone());
    match server.answer(&request).or_else(|error| excuse(&request.method, error))? {
        RpcReply::Result(result) if result["resultType"] == "input_required" => {
            Ok(ToolOutcome::failed("The user did not answer, so nothing was done.").result)
        }
        RpcReply::Result(result) => Ok(result),
        _ => Err(RpcFault::internal("a call that asks has a plain result")),
    }
}

fn session<'h>(
    headers: &'h HeaderMap,
    sessions: &LegacySessions,
) -> Result<(&'h str, LegacySession), RpcFault> {
    let bad = |message: &str| RpcFault::invalid_request(message);
    let Ok(id) = headers::single(headers, SESSION_ID) else {
        return Err(bad("Mcp-Session-Id is sent twice or has invalid characters"));
    };
    let id = id.ok_or_else(|| bad("Mcp-Session-Id is required: open a session with initialize"))?;
    let gone =
        || RpcFault { status: StatusCode::NOT_FOUND, ..bad("There is no such session: open a new one") };
    Ok((id, sessions.open.get(id).ok_or_else(gone)?))
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
    let elicitation = request.params.get("capabilities").and_then(|all| all.get("elicitation"));
    let has_form = elicitation
        .and_then(Value::as_object)
        .is_some_and(|modes| modes.is_empty() || modes.contains_key("form"));
    let session = LegacySession { revision, can_be_asked: has_form && revision >= FIRST_WITH_QUESTIONS };
    Ok(RpcReply::Opened { session: sessions.open.insert(session)?, result })
}

/// What an error of the modern era is in this one.
fn excuse(method: &str, error: RpcFault) -> Result<RpcReply, RpcFault> {
    let is_unknown_resource = method == "resources/read" && error.data.is_some();
    match error.code {
        -32021 => {
            let why = "This tool asks the user, for which it needs a client of protocol revision 2025-06-18 or later that \
                       declares elicitation.";
            Ok(RpcReply::Result(ToolOutcome::failed(why).result))
        }
        -32602 if is_unknown_resource => Err(in_session(RpcFault { code: -32002, ..error })),
        _ => Err(in_session(error)),
    }
}

/// Clients take other statuses for the end of the session.
fn in_session(error: RpcFault) -> RpcFault {
    RpcFault { status: StatusCode::OK, ..error }
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
