//! A request as the methods see it, whatever era it came in.

use hyper::HeaderMap;
use serde_json::{Map, Value};

use super::rpc::RpcFault;

/// The member of `_meta` that declares what the client can do.
pub(super) const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// A request whose envelope and, where there are any, mirrored standard headers are in order.
pub(super) struct RpcRequest {
    /// A string or an integer.
    pub(super) id: Value,
    pub(super) method: String,
    pub(super) params: Map<String, Value>,
    /// For the parameters a tool mirrors; `None` in the era that mirrors none.
    pub(super) headers: Option<HeaderMap>,
}

impl RpcRequest {
    /// A string in `params`.
    pub(super) fn text(&self, name: &str) -> Result<&str, RpcFault> {
        let value = self.params.get(name).and_then(Value::as_str);
        value.ok_or_else(|| RpcFault::invalid_params(format!("params.{name} must be a string")))
    }

    /// `params.arguments`; empty when absent.
    pub(super) fn arguments(&self) -> Result<Map<String, Value>, RpcFault> {
        match self.params.get("arguments") {
            None => Ok(Map::new()),
            Some(Value::Object(arguments)) => Ok(arguments.clone()),
            Some(_) => Err(RpcFault::invalid_params("params.arguments must be an object")),
        }
    }

    /// What the client can do for a server, as declared with this request.
    pub(super) fn client_capability(&self, name: &str) -> Option<&Value> {
        self.params.get("_meta")?.get(META_CAPABILITIES)?.get(name)
    }

    /// The token with which the client asks for progress.
    pub(super) fn progress_token(&self) -> Result<Option<&Value>, RpcFault> {
        match self.params.get("_meta").and_then(|meta| meta.get("progressToken")) {
            None => Ok(None),
            Some(token) if is_string_or_integer(token) => Ok(Some(token)),
            Some(_) => Err(RpcFault::invalid_params("progressToken must be a string or an integer")),
        }
    }
}

/// The argument `name`; empty when absent.
pub(super) fn text<'a>(arguments: &'a Map<String, Value>, name: &str) -> &'a str {
    arguments.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// What JSON-RPC ids and progress tokens may be.
pub(super) fn is_string_or_integer(value: &Value) -> bool {
    value.is_string() || value.is_i64() || value.is_u64()
}
