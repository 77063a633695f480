//! Arguments of tools that headers mirror, as far as the tools were listed.

use std::collections::HashMap;

use http::{HeaderMap, HeaderName, HeaderValue};

use protocol::json::Value;
use protocol::param_headers::{self, Annotation};

/// Tools whose mirrored parameters are remembered.
const TOOLS_MAX: usize = 10_000;

/// The mirrored parameters of the tools that were listed.
#[derive(Debug, Default)]
pub struct ParamHeaders(HashMap<String, Vec<Annotation>>);

impl ParamHeaders {
    /// Reads the result of `tools/list`.
    pub fn learn(&mut self, result: Value<'_>) {
        for tool in result.get("tools").into_iter().flat_map(Value::items) {
            let name = tool.get("name").and_then(|name| name.as_literal()?.decode(tool.text()));
            let Some(name) = name else { continue };
            match param_headers::annotations(tool) {
                Ok(found) if !found.is_empty() && self.0.len() < TOOLS_MAX => {
                    self.0.insert(name.into_owned(), found);
                }
                _ => drop(self.0.remove(&*name)),
            }
        }
    }

    /// Adds the headers that mirror the arguments of a call, as far as the tool is known.
    pub fn mirror(&self, tool: &str, arguments: Option<Value<'_>>, headers: &mut HeaderMap) {
        let Some(annotations) = self.0.get(tool) else { return };
        for (name, value) in param_headers::mirror(annotations, arguments) {
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(&value)) {
                headers.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use protocol::json::Scratch;

    #[test]
    fn listed_tools_are_mirrored() {
        let mut param_headers = ParamHeaders::default();
        let mut learn = |tools: serde_json::Value| {
            let (mut scratch, text) = (Scratch::default(), json!({ "tools": tools }).to_string());
            param_headers.learn(scratch.index(text.as_bytes(), 128).unwrap().root());
            let text = br#"{"city": "Oslo"}"#;
            ["forecast", "other"].map(|tool| {
                let mut headers = HeaderMap::new();
                param_headers.mirror(tool, Some(scratch.index(text, 128).unwrap().root()), &mut headers);
                headers.get("mcp-param-city").map(|value| value.to_str().unwrap().to_owned())
            })
        };
        let city = json!({"type": "string", "x-mcp-header": "City"});
        let schema = json!({"type": "object", "properties": {"city": city}});
        let listed = learn(json!([{"name": "forecast", "inputSchema": schema}, {"name": "other"}]));
        assert_eq!(listed, [Some("Oslo".to_owned()), None]);
        assert_eq!(learn(json!([{"name": "forecast"}, 7])), [None, None]);
    }
}
