//! JSON-RPC messages as the demo servers write them, and the errors they answer with.
//!
//! What is deliberately absent: reading messages (that depends on the era) and HTTP.

use hyper::StatusCode;
use serde_json::{Value, json};

/// The one revision spoken.
pub(super) const PROTOCOL_VERSION: &str = "2026-07-28";

/// A JSON-RPC error together with the HTTP status it travels with.
#[derive(Debug)]
pub(super) struct RpcFault {
    pub(super) status: StatusCode,
    pub(super) code: i32,
    pub(super) message: String,
    pub(super) data: Option<Value>,
}

impl From<getrandom::Error> for RpcFault {
    fn from(_: getrandom::Error) -> Self {
        Self::internal("The system has no randomness to give")
    }
}

impl RpcFault {
    /// −32700: the body is no JSON.
    pub(super) fn parse(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, -32700, message)
    }

    /// −32600: JSON, but no request or notification.
    pub(super) fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, -32600, message)
    }

    /// −32601, with 404 as the transport asks.
    pub(super) fn unknown_method(method: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, -32601, format!("Method not found: {method}"))
    }

    /// −32602 for a request that was understood: unknown names, bad arguments, bad cursors.
    pub(super) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(StatusCode::OK, -32602, message)
    }

    /// −32603: nothing the client could have done better.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, -32603, message)
    }

    /// −32602 for a request without its required `_meta`, with 400 as the specification asks.
    pub(super) fn missing_meta(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, -32602, message)
    }

    /// −32020: header and body disagree, or a header is missing or malformed.
    pub(super) fn header_mismatch(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, -32020, format!("Header mismatch: {}", message.into()))
    }

    /// −32021: the client must declare `required` for this request.
    pub(super) fn missing_capability(message: impl Into<String>, required: &Value) -> Self {
        let error = Self::new(StatusCode::BAD_REQUEST, -32021, message);
        Self { data: Some(json!({ "requiredCapabilities": required })), ..error }
    }

    /// −32022: the client asked for another revision than ours.
    pub(super) fn unsupported_version(requested: &str) -> Self {
        let message =
            format!("Unsupported protocol version {requested}; this server speaks {PROTOCOL_VERSION}");
        let error = Self::new(StatusCode::BAD_REQUEST, -32022, message);
        Self { data: Some(json!({ "supported": [PROTOCOL_VERSION], "requested": requested })), ..error }
    }

    fn new(status: StatusCode, code: i32, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), data: None }
    }
}

/// The response that carries `result`.
pub(super) fn result_message(id: Option<&Value>, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// The response that carries `error`; without an `id` where none could be read.
pub(super) fn error_message(id: Option<&Value>, error: &RpcFault) -> Value {
    let mut message = json!({ "jsonrpc": "2.0", "error": { "code": error.code, "message": error.message } });
    if let Some(id) = id {
        message["id"] = id.clone();
    }
    if let Some(data) = &error.data {
        message["error"]["data"] = data.clone();
    }
    message
}

pub(super) fn notification(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}
