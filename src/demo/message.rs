//! Reads one JSON-RPC message, as far as that is the same in every era.
//!
//! Order of checks: JSON, JSON-RPC. What `params` and headers must have, `modern` and `legacy` know.

use hyper::HeaderMap;
use serde_json::{Map, Value};

use super::methods::Reply;
use super::request::is_string_or_integer;
use super::rpc::RpcError;

/// The member of `_meta` that names the revision.
pub(super) const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// What a POST carries.
pub(super) struct Message {
    pub(super) headers: HeaderMap,
    pub(super) kind: Kind,
    /// Empty in requests without any.
    pub(super) params: Map<String, Value>,
}

pub(super) enum Kind {
    /// `id` is a string or an integer.
    Request {
        id: Value,
        method: String,
    },
    Notification,
    /// To a request of ours, which there never is.
    Response {
        id: Option<Value>,
    },
}

/// How a message is answered.
pub(super) enum Answer {
    /// There is nothing to say.
    Accepted,
    Reply {
        /// The id of the request.
        id: Value,
        reply: Box<Reply>,
        /// The id of the session that the request opened.
        session: Option<String>,
    },
}

/// Why a message was refused, with its id where that could be read.
pub(super) struct Refusal {
    pub(super) id: Option<Value>,
    pub(super) error: Box<RpcError>,
}

impl Refusal {
    /// Of the message with this id.
    pub(super) fn new(id: Option<Value>, error: RpcError) -> Self {
        Self { id, error: Box::new(error) }
    }
}

impl Message {
    /// Reads the message in `body`.
    pub(super) fn read(headers: HeaderMap, body: &[u8]) -> Result<Self, Refusal> {
        let message: Value = serde_json::from_slice(body).map_err(|error| {
            Refusal::new(None, RpcError::parse(format!("The body is not valid JSON: {error}")))
        })?;
        let Value::Object(mut message) = message else {
            let error = RpcError::invalid_request("The body must be one JSON object");
            return Err(Refusal::new(None, error));
        };
        let id = message.remove("id");
        let known = id.clone().filter(is_string_or_integer);
        envelope(headers, id, message).map_err(|error| Refusal::new(known, error))
    }

    /// The revision that `params._meta` names.
    pub(super) fn version_in_meta(&self) -> Option<&str> {
        self.params.get("_meta")?.get(META_VERSION)?.as_str()
    }
}

fn envelope(
    headers: HeaderMap,
    id: Option<Value>,
    mut message: Map<String, Value>,
) -> Result<Message, RpcError> {
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(RpcError::invalid_request("jsonrpc must be \"2.0\""));
    }
    let is_response = message.contains_key("result") || message.contains_key("error");
    let kind = match (message.remove("method"), id) {
        (None, id) if is_response => Kind::Response { id: id.filter(is_string_or_integer) },
        (Some(Value::String(_)), None) => Kind::Notification,
        (Some(Value::String(method)), Some(id)) if is_string_or_integer(&id) => Kind::Request { id, method },
        (Some(Value::String(_)), Some(_)) => {
            return Err(RpcError::invalid_request("id must be a string or an integer"));
        }
        _ => return Err(RpcError::invalid_request("method must be a string")),
    };
    let params = match message.remove("params") {
        None => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => return Err(RpcError::invalid_request("params must be an object")),
    };
    Ok(Message { headers, kind, params })
}
