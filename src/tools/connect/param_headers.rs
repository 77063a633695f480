//! Arguments of tools that headers mirror, as far as the client has listed the tools.

use ::http::{HeaderMap, HeaderName, HeaderValue};

use super::message::{DEPTH_MAX, Message};
use super::proxy::StdioProxy;
use protocol::json::Value;
use protocol::method::Method;
use protocol::param_headers;

/// Tools whose mirrored parameters are remembered.
const ANNOTATED_TOOLS_MAX: usize = 10_000;

impl StdioProxy {
    /// Remembers which parameters of the listed tools are mirrored.
    pub(super) fn learn(&self, request: &Message, answer: &[u8]) {
        if request.method != Method::ToolsList {
            return;
        }
        let mut scratch = self.scratch.borrow_mut();
        let Ok(document) = scratch.index(answer, DEPTH_MAX) else { return };
        let tools = document.root().get("result").and_then(|result| result.get("tools"));
        let mut annotated = self.annotated.borrow_mut();
        for tool in tools.into_iter().flat_map(Value::items) {
            let name = tool.get("name").and_then(|name| name.as_literal()?.decode(answer));
            let Some(name) = name else { continue };
            match param_headers::annotations(tool) {
                Ok(found) if !found.is_empty() && annotated.len() < ANNOTATED_TOOLS_MAX => {
                    annotated.insert(name.into_owned(), found);
                }
                _ => {
                    annotated.remove(&*name);
                }
            }
        }
    }

    /// Adds the headers that mirror arguments of a call, as far as the tool is known.
    pub(super) fn mirror_params(&self, message: &Message, headers: &mut HeaderMap) {
        let annotated = self.annotated.borrow();
        let found = message.envelope.name.as_ref().filter(|_| message.method == Method::ToolsCall);
        let found = found.and_then(|name| annotated.get(&*name.decode(&message.body)?));
        let Some(found) = found else { return };
        let mut scratch = self.scratch.borrow_mut();
        let Ok(document) = scratch.index(&message.body, DEPTH_MAX) else { return };
        let arguments = document.root().get("params").and_then(|params| params.get("arguments"));
        for (name, value) in param_headers::mirror(found, arguments) {
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(&value)) {
                headers.insert(name, value);
            }
        }
    }
}
