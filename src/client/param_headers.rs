//! Arguments of tools that headers mirror, as far as the tools were listed.

use std::collections::HashMap;

use serde_json::Value;

use protocol::json::Scratch;
use protocol::param_headers::{self, Annotation};

/// How deep a tool or its arguments may be nested.
const DEPTH_MAX: usize = 128;

/// The mirrored parameters of the tools that were listed.
#[derive(Debug, Default)]
pub(super) struct ParamHeaders(HashMap<String, Vec<Annotation>>);

impl ParamHeaders {
    /// Reads a page of `tools/list`.
    pub(super) fn learn(&mut self, page: &Value) {
        let mut scratch = Scratch::default();
        for tool in page.get("tools").and_then(Value::as_array).into_iter().flatten() {
            let Some(name) = tool.get("name").and_then(Value::as_str) else { continue };
            let text = tool.to_string();
            let document = scratch.index(text.as_bytes(), DEPTH_MAX).ok();
            let found = document.and_then(|document| param_headers::annotations(document.root()).ok());
            match found {
                Some(found) if !found.is_empty() => self.0.insert(name.to_owned(), found),
                _ => self.0.remove(name),
            };
        }
    }

    /// The headers for the parameters of a `tools/call`.
    pub(super) fn headers(&self, params: &Value) -> Vec<(String, String)> {
        let name = params.get("name").and_then(Value::as_str);
        let Some(found) = name.and_then(|name| self.0.get(name)) else { return Vec::new() };
        let arguments = params.get("arguments").map(Value::to_string).unwrap_or_default();
        let mut scratch = Scratch::default();
        let Ok(document) = scratch.index(arguments.as_bytes(), DEPTH_MAX) else { return Vec::new() };
        let headers = param_headers::mirror(found, Some(document.root()));
        headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn listed_tools_are_mirrored() {
        let city = json!({"type": "string", "x-mcp-header": "City"});
        let schema = json!({"type": "object", "properties": {"city": city}});
        let mut param_headers = ParamHeaders::default();
        param_headers
            .learn(&json!({"tools": [{"name": "forecast", "inputSchema": schema}, {"name": "other"}]}));
        let call = json!({"name": "forecast", "arguments": {"city": "Oslo"}});
        assert_eq!(param_headers.headers(&call), [("mcp-param-city".to_owned(), "Oslo".to_owned())]);
        assert!(param_headers.headers(&json!({"name": "other", "arguments": {"city": "Oslo"}})).is_empty());
        param_headers.learn(&json!({"tools": [{"name": "forecast"}, 7]}));
        assert!(param_headers.headers(&call).is_empty());
    }
}
