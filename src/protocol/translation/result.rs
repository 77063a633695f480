//! Answers of servers, for clients of the other era.

use bytes::Bytes;

use super::members;
use crate::json::{Document, JsonError, Kind, Literal, Scratch, Value, quote};
use crate::method::Method;
use crate::splice::{Edit, Segments, splice};

/// The key of `_meta` under which a modern server names itself.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
const MISSING_CAPABILITY: i64 = -32021;
/// The task that a result is of, which a modern client did not ask for.
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// What a modern result says of itself. A legacy one that has such members means something else by them.
pub const OF_RESULT: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];

/// A legacy server's answer as a modern client takes it, with the client's `id` (a literal): a result says that it is
/// complete, how long it holds where that must be said, and whose it is (`server_info`, a JSON object).
pub fn to_modern(
    answer: &Bytes,
    method: Method,
    id: &str,
    server_info: Option<&str>,
    (scratch, depth_max): (&mut Scratch, usize),
) -> Result<Segments, JsonError> {
    let root = scratch.index(answer, depth_max).map(Document::root)?;
    let mut edits = Vec::new();
    if let Some(own) = root.get("id") {
        edits.push(Edit { span: own.span(), with: Bytes::copy_from_slice(id.as_bytes()) });
    }
    if let Some(result) = root.get("result").filter(|result| result.kind() == Kind::Object) {
        let mut added = String::from(r#""resultType":"complete""#);
        // Nothing is known of how long it holds (2026-07-28 Caching).
        if method == Method::ResourcesRead {
            added.push_str(r#","ttlMs":0,"cacheScope":"private""#);
        }
        let meta = result.get("_meta").filter(|meta| meta.kind() == Kind::Object);
        let member = server_info.map(|info| format!("{}:{info}", quote(SERVER_INFO)));
        match (meta, member) {
            (Some(meta), member) => {
                let is_out = |key: &Literal| {
                    key.equals(answer, RELATED_TASK) || (member.is_some() && key.equals(answer, SERVER_INFO))
                };
                edits.extend(members::edits(meta, is_out, member.as_deref().unwrap_or_default()));
            }
            (None, Some(member)) => {
                added.push_str(r#","_meta":{"#);
                added.push_str(&member);
                added.push('}');
            }
            (None, None) => {}
        }
        let is_out = |key: &Literal| {
            OF_RESULT.iter().any(|name| key.equals(answer, name))
                || (meta.is_none() && server_info.is_some() && key.equals(answer, "_meta"))
        };
        edits.extend(members::edits(result, is_out, &added));
    }
    let error = root.get("error").filter(|error| !lacks_capability(*error));
    if let Some(code) = error.and_then(|error| error.get("code"))
        && let Some(modern) = code.as_integer().and_then(modern_code)
    {
        edits.push(Edit { span: code.span(), with: modern.to_string().into() });
    }
    edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
    Ok(splice(answer, &edits))
}

/// Whether a legacy server's error says what the modern era has a code for: that the client declared too little, and what
/// is missing. Beside those words, the code can mean nothing else.
pub fn lacks_capability(error: Value<'_>) -> bool {
    let required = error.get("data").and_then(|data| data.get("requiredCapabilities"));
    error.get("code").and_then(Value::as_integer) == Some(MISSING_CAPABILITY)
        && required.is_some_and(|required| required.kind() == Kind::Object)
}

/// What a legacy server's error code is in the modern era, where it is another.
fn modern_code(code: i64) -> Option<i64> {
    match code {
        // No such resource (2026-07-28 Resources, "Error Handling").
        -32002 => Some(-32602),
        // Codes that a legacy server was free to use, and that mean something else to modern clients.
        -32022..=-32020 => Some(-32603),
        _ => None,
    }
}

/// A modern server's answer as a legacy client takes it, with the client's `id` (a literal): a result says nothing of how
/// complete it is or how long it holds, and structured content that is not an object is left out, as clients refuse
/// the whole result for it. Where nothing else would be left of what a tool said, it is said as text.
pub fn to_legacy(
    answer: &Bytes,
    id: &str,
    (scratch, depth_max): (&mut Scratch, usize),
) -> Result<Segments, JsonError> {
    let root = scratch.index(answer, depth_max).map(Document::root)?;
    Ok(root_to_legacy(root, answer, id))
}

/// As [`to_legacy`], of an answer that was read already.
pub fn root_to_legacy(root: Value<'_>, answer: &Bytes, id: &str) -> Segments {
    let mut edits = Vec::new();
    if let Some(own) = root.get("id") {
        edits.push(Edit { span: own.span(), with: Bytes::copy_from_slice(id.as_bytes()) });
    }
    if let Some(result) = root.get("result").filter(|result| result.kind() == Kind::Object) {
        let structured = result.get("structuredContent").filter(|content| content.kind() != Kind::Object);
        let is_out = |key: &Literal| {
            OF_RESULT.iter().any(|name| key.equals(answer, name))
                || structured.is_some() && key.equals(answer, "structuredContent")
        };
        edits.extend(members::edits(result, is_out, ""));
        let content = result.get("content").filter(|content| content.items().next().is_none());
        if let (Some(structured), Some(content)) = (structured, content) {
            let text = quote(&String::from_utf8_lossy(structured.raw()));
            let with = format!(r#"[{{"type":"text","text":{text}}}]"#).into();
            edits.push(Edit { span: content.span(), with });
        }
        if let Some(meta) = result.get("_meta") {
            edits.extend(members::edits(meta, |key| key.equals(answer, SERVER_INFO), ""));
        }
    }
    edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
    splice(answer, &edits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_legacy_result_says_what_a_modern_one_must() {
        let info = Some(r#"{"name":"s"}"#);
        for (answer, method, info, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":"n","result":{"content":[]}}"#,
                Method::ToolsCall,
                None,
                r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","content":[]}}"#,
            ),
            (
                r#"{"result":{},"id":"n"}"#,
                Method::ResourcesRead,
                info,
                r#"{"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}},"id":7}"#,
            ),
            (
                r#"{"result":{"ttlMs":5,"_meta":{"x":1},"a":1},"id":"n"}"#,
                Method::PromptsGet,
                info,
                r#"{"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"},"x":1},"a":1},"id":7}"#,
            ),
            (
                r#"{"result":{"_meta":{"x":1,"io.modelcontextprotocol/related-task":{"taskId":"t"}}},"id":"n"}"#,
                Method::ToolsCall,
                None,
                r#"{"result":{"resultType":"complete","_meta":{"x":1}},"id":7}"#,
            ),
            (
                r#"{"error":{"code":-32602,"message":"m"},"id":"n"}"#,
                Method::ToolsCall,
                info,
                r#"{"error":{"code":-32602,"message":"m"},"id":7}"#,
            ),
            (
                r#"{"error":{"code":-32002,"message":"m"},"id":"n"}"#,
                Method::ResourcesRead,
                info,
                r#"{"error":{"code":-32602,"message":"m"},"id":7}"#,
            ),
            (
                r#"{"error":{"code":-32021,"data":{"requiredCapabilities":{"sampling":{}}}},"id":"n"}"#,
                Method::ToolsCall,
                info,
                r#"{"error":{"code":-32021,"data":{"requiredCapabilities":{"sampling":{}}}},"id":7}"#,
            ),
            (
                r#"{"error":{"code":-32021,"message":"m"},"id":"n"}"#,
                Method::ToolsCall,
                info,
                r#"{"error":{"code":-32603,"message":"m"},"id":7}"#,
            ),
            (
                r#"{"error":{"message":"m","code":-32022},"id":"n"}"#,
                Method::ToolsCall,
                None,
                r#"{"error":{"message":"m","code":-32603},"id":7}"#,
            ),
        ] {
            let found = to_modern(&Bytes::from(answer), method, "7", info, (&mut Scratch::default(), 16));
            assert_eq!(String::from_utf8_lossy(&found.expect("JSON").to_bytes()), expected);
        }
    }

    #[test]
    fn a_modern_result_loses_what_only_its_era_says() {
        for (answer, expected) in [
            (
                r#"{"id":"n","result":{"resultType":"complete","content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{},"x":1}}}"#,
                r#"{"id":7,"result":{"content":[],"_meta":{"x":1}}}"#,
            ),
            (
                r#"{"id":"n","result":{"contents":[],"ttlMs":5,"cacheScope":"public","resultType":"complete"}}"#,
                r#"{"id":7,"result":{"contents":[]}}"#,
            ),
            (r#"{"id":"n","error":{"code":1}}"#, r#"{"id":7,"error":{"code":1}}"#),
            (
                r#"{"id":"n","result":{"structuredContent":{"a":[]},"content":[]}}"#,
                r#"{"id":7,"result":{"structuredContent":{"a":[]},"content":[]}}"#,
            ),
            (
                r#"{"id":"n","result":{"structuredContent":[1],"content":[{"type":"text","text":"1"}],"isError":false}}"#,
                r#"{"id":7,"result":{"content":[{"type":"text","text":"1"}],"isError":false}}"#,
            ),
            (
                r#"{"id":"n","result":{"content":[],"structuredContent":["é"]}}"#,
                r#"{"id":7,"result":{"content":[{"type":"text","text":"[\"é\"]"}]}}"#,
            ),
        ] {
            let found = to_legacy(&Bytes::from(answer), "7", (&mut Scratch::default(), 16));
            assert_eq!(String::from_utf8_lossy(&found.expect("JSON").to_bytes()), expected);
        }
    }
}
