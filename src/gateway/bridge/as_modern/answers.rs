//! Final answers of a legacy server, for a modern client.
//!
//! | the server's answer | what the client gets |
//! |---|---|
//! | a result | the same, complete, with what a modern result says beside |
//! | −32601 | the same, with 404 |
//! | −32002, no such resource | −32602 |
//! | −32021 that names the capabilities it requires | the same, with 400 |
//! | −32020 to −32022 otherwise, which mean something else here | −32603 |
//! | −32042 | `input_required` with its URL elicitations; −32021 if the client takes none |
//! | any other error | the same |

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::StatusCode;

use super::call::ModernCall;
use crate::bridge::BridgedServer;
use crate::upstream::exchange::Reply;
use protocol::error::UpstreamError;
use protocol::json::{Document, Scratch, Value};
use protocol::server_request::ServerRequest;
use protocol::translation::elicitation;
use protocol::translation::result::{self, AnswerMembers};

const METHOD_NOT_FOUND: i64 = -32601;
/// What a server of the modern era says to a request of the other one: an unknown version, headers that are missing.
const NOT_OF_THIS_ERA: [i64; 2] = [-32022, -32020];
const URL_CAPABILITY: &str = r#"{"elicitation":{"url":{}}}"#;

/// How a call ends for its client.
#[derive(Debug)]
pub(crate) struct CallAnswer {
    /// The status, where no stream has begun.
    pub status: StatusCode,
    pub message: Bytes,
}

/// How the server introduced itself, read once.
#[derive(Debug, Default)]
pub(crate) struct IntroductionCache(ArcSwapOption<ServerIntroduction>);

#[derive(Debug)]
struct ServerIntroduction {
    /// The result of `initialize` that it was read from.
    introduction: Bytes,
    /// The member of `_meta` by which it is named.
    named: Option<String>,
    takes_tasks: bool,
}

impl CallAnswer {
    /// As the whole reply.
    pub(crate) fn into_reply(self) -> Reply {
        let mut reply = Reply::json(self.message);
        reply.head.status = self.status;
        reply
    }
}

impl IntroductionCache {
    /// Whether the server makes tasks of calls of tools.
    pub(crate) fn takes_tasks(&self, upstream: &BridgedServer, memory: (&mut Scratch, usize)) -> bool {
        self.of(upstream, memory).is_some_and(|server| server.takes_tasks)
    }

    /// Reads how the server introduced itself when a session was opened.
    pub(crate) fn learn(&self, introduction: &Bytes, memory: (&mut Scratch, usize)) {
        if self.0.load().as_ref().is_none_or(|read| read.introduction != introduction) {
            self.0.store(Some(Arc::new(ServerIntroduction::read(introduction.clone(), memory))));
        }
    }

    /// What is known of the server: as it was asked last, or as it introduced itself in a session.
    fn of(&self, upstream: &BridgedServer, memory: (&mut Scratch, usize)) -> Option<Arc<ServerIntroduction>> {
        let known = upstream.facts.known();
        let read = self.0.load_full();
        let Some(introduction) = known.legacy.introduction().map(|introduction| &introduction.result) else {
            return read;
        };
        // The same bytes at the same place need no second look.
        let is_same = |read: &Arc<ServerIntroduction>| {
            read.introduction.as_ptr() == introduction.as_ptr() || read.introduction == introduction
        };
        if let Some(read) = read.filter(is_same) {
            return Some(read);
        }
        let server = Arc::new(ServerIntroduction::read(introduction.clone(), memory));
        self.0.store(Some(Arc::clone(&server)));
        Some(server)
    }
}

impl ServerIntroduction {
    fn read(introduction: Bytes, (scratch, depth_max): (&mut Scratch, usize)) -> Self {
        let root = scratch.index(&introduction, depth_max).map(Document::root).ok();
        let info = root.and_then(|root| root.get("serverInfo"));
        let info = info.filter(|info| info.is_object());
        let named = info.map(|info| result::server_info(info.source()));
        let path = ["capabilities", "tasks", "requests", "tools", "call"];
        let takes_tasks = root.and_then(|root| path.into_iter().try_fold(root, Value::get)).is_some();
        Self { introduction, named, takes_tasks }
    }
}

/// What `answer`, the server's response to `call`, is to the client. `Nonsense`: it is no response.
pub(crate) fn last(
    upstream: &BridgedServer,
    call: &ModernCall,
    answer: &Bytes,
    (scratch, depth_max): (&mut Scratch, usize),
) -> Result<CallAnswer, UpstreamError> {
    let server = upstream.bridge.as_modern.servers.of(upstream, (&mut *scratch, depth_max));
    let members = scratch.index(answer, depth_max).map(|document| AnswerMembers::of(document.root())).ok();
    let is_response = |members: &AnswerMembers<'_>| {
        members.method.is_none() && (members.result.is_some() || members.error.is_some())
    };
    let members = members.filter(is_response);
    let translated = members.map(|members| translate(upstream, call, (members, answer), server.as_deref()));
    let read = translated.map(|translated| {
        translated.unwrap_or_else(|input| input_required(call, &input, (&mut *scratch, depth_max)))
    });
    scratch.release();
    read.ok_or(UpstreamError::Nonsense)
}

/// An error: the server wants this input first, a result of JSON.
fn translate(
    upstream: &BridgedServer,
    call: &ModernCall,
    (members, answer): (AnswerMembers<'_>, &Bytes),
    server: Option<&ServerIntroduction>,
) -> Result<CallAnswer, String> {
    let mut status = StatusCode::OK;
    match members.error.and_then(|error| Some((error, error.get("code")?.as_integer()?))) {
        Some((_, METHOD_NOT_FOUND)) => status = StatusCode::NOT_FOUND,
        Some((error, _)) if result::lacks_capability(error) => status = StatusCode::BAD_REQUEST,
        // It may have learned that era.
        Some((_, code)) if NOT_OF_THIS_ERA.contains(&code) => upstream.facts.doubt(),
        Some((error, elicitation::REQUIRED)) => {
            if let Some(input) = elicitation::input_required(error) {
                return Err(input);
            }
        }
        _ => {}
    }
    let named = server.and_then(|server| server.named.as_deref());
    let message = result::to_modern(members, answer, call.method, &call.id, named).into();
    Ok(CallAnswer { status, message })
}

/// The answer to a call that fails in the gateway: an error of JSON-RPC.
pub(crate) fn refusal(call: &ModernCall, status: StatusCode, code: i32, why: &str) -> CallAnswer {
    error(call, status, &serde_json::json!({"code": code, "message": why}))
}

/// What a client gets that would not complete what the server wanted first. `None`: it is not so.
pub(crate) fn declined(call: &ModernCall, (scratch, depth_max): (&mut Scratch, usize)) -> Option<CallAnswer> {
    let responses = call.input_responses.as_ref()?;
    let root = scratch.index(responses, depth_max).map(Document::root).ok()?;
    let why = "the server behind this name wants what was declined; the call was not executed";
    elicitation::is_refused(root).then(|| refusal(call, StatusCode::OK, -32603, why))
}

fn input_required(call: &ModernCall, input: &str, (scratch, depth_max): (&mut Scratch, usize)) -> CallAnswer {
    let params = Bytes::from_static(br#"{"mode":"url"}"#);
    let mut own = Scratch::default();
    let takes_urls = match (
        own.index(&params, depth_max).map(Document::root),
        scratch.index(&call.capabilities, depth_max).map(Document::root),
    ) {
        (Ok(params), Ok(all)) => ServerRequest::Elicitation.check(Some(params), all).is_ok(),
        _ => false,
    };
    if !takes_urls {
        let why = "the server behind this name asks its clients to open a URL first";
        let required: serde_json::Value = serde_json::from_str(URL_CAPABILITY).unwrap_or_default();
        let data = serde_json::json!({"requiredCapabilities": required});
        let missing = serde_json::json!({"code": -32021, "message": why, "data": data});
        return error(call, StatusCode::BAD_REQUEST, &missing);
    }
    let message = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{input}}}"#, call.id);
    CallAnswer { status: StatusCode::OK, message: message.into() }
}

fn error(call: &ModernCall, status: StatusCode, error: &serde_json::Value) -> CallAnswer {
    let message = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, call.id);
    CallAnswer { status, message: message.into() }
}
