//! Answers of servers, for clients of the other era.

use bytes::Bytes;

use super::members::Edits;
use crate::json::{Value, quote};
use crate::method::Method;
use crate::splice::Segments;

/// The key of `_meta` under which a modern server names itself.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// The same as it stands before its value.
const SERVER_INFO_KEY: &str = r#""io.modelcontextprotocol/serverInfo":"#;
const MISSING_CAPABILITY: i64 = -32021;
/// The task that a result is of, which a modern client did not ask for.
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";
/// What a modern result says of itself. A legacy one that has such members means something else by them.
pub const OF_RESULT: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];

/// The member of `_meta` by which a modern server names itself with this JSON object.
pub fn server_info(info: &str) -> String {
    [SERVER_INFO_KEY, info].concat()
}

/// The members that tell what an answer is, found at one look.
#[derive(Clone, Copy)]
#[expect(missing_docs, reason = "each is the name of its member")]
pub struct AnswerMembers<'a> {
    pub id: Option<Value<'a>>,
    pub method: Option<Value<'a>>,
    pub result: Option<Value<'a>>,
    pub error: Option<Value<'a>>,
}

impl<'a> AnswerMembers<'a> {
    /// Of this message.
    pub fn of(root: Value<'a>) -> Self {
        let [id, method, result, error] = root.first_of(["id", "method", "result", "error"]);
        Self { id, method, result, error }
    }
}

/// A legacy server's answer as a modern client takes it, with the client's `id` (a literal): a result says that it is
/// complete, how long it holds where that must be said, and whose it is ([`server_info`]).
pub fn to_modern(
    AnswerMembers { id: own_id, result, error, .. }: AnswerMembers<'_>,
    answer: &Bytes,
    method: Method,
    id: &str,
    server_info: Option<&str>,
) -> Segments {
    let mut edits = Edits::default();
    edits.rename(own_id, Some(id));
    if let Some(result) = result.and_then(Value::as_object) {
        // Nothing is known of how long it holds (2026-07-28 Caching).
        let added = match method {
            Method::ResourcesRead => r#""resultType":"complete","ttlMs":0,"cacheScope":"private""#,
            _ => r#""resultType":"complete""#,
        };
        let is_out_of_meta = |key: &str| key == RELATED_TASK || (key == SERVER_INFO && server_info.is_some());
        edits.with_meta(
            result,
            (|key| OF_RESULT.contains(&key), added),
            (is_out_of_meta, server_info.unwrap_or_default()),
        );
    }
    let error = error.filter(|error| !lacks_capability(*error));
    if let Some(code) = error.and_then(|error| error.get("code"))
        && let Some(modern) = code.as_integer().and_then(modern_code)
    {
        edits.replace(code, modern.to_string());
    }
    edits.apply(answer)
}

/// Whether a legacy server's error says what the modern era has a code for: that the client declared too little, and what
/// is missing. Beside those words, the code can mean nothing else.
pub fn lacks_capability(error: Value<'_>) -> bool {
    let required = error.get("data").and_then(|data| data.object("requiredCapabilities"));
    error.get("code").and_then(Value::as_integer) == Some(MISSING_CAPABILITY) && required.is_some()
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
    AnswerMembers { id: own_id, result, .. }: AnswerMembers<'_>,
    answer: &Bytes,
    id: &str,
) -> Segments {
    let mut edits = Edits::default();
    edits.rename(own_id, Some(id));
    let Some(result) = result.and_then(Value::as_object) else { return edits.apply(answer) };
    let [structured, content] = result.first_of(["structuredContent", "content"]);
    let structured = structured.filter(|content| !content.is_object());
    let is_out = |key: &str| OF_RESULT.contains(&key) || (structured.is_some() && key == "structuredContent");
    edits.with_meta(result, (is_out, ""), (|key| key == SERVER_INFO, ""));
    let content = content.filter(|content| content.items().next().is_none());
    if let (Some(structured), Some(content)) = (structured, content) {
        let text = quote(structured.source());
        edits.replace(content, format!(r#"[{{"type":"text","text":{text}}}]"#));
    }
    edits.apply(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Scratch;

    #[test]
    fn a_legacy_result_says_what_a_modern_one_must() {
        let info = server_info(r#"{"name":"s"}"#);
        let info = Some(&*info);
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
            let mut scratch = Scratch::default();
            let root = scratch.index(answer.as_bytes(), 16).expect("JSON").root();
            let members = AnswerMembers::of(root);
            let found = to_modern(members, &Bytes::from(answer), method, "7", info).to_bytes();
            assert_eq!(String::from_utf8_lossy(&found), expected);
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
            let mut scratch = Scratch::default();
            let root = scratch.index(answer.as_bytes(), 16).expect("JSON").root();
            let found = to_legacy(AnswerMembers::of(root), &Bytes::from(answer), "7");
            assert_eq!(String::from_utf8_lossy(&found.to_bytes()), expected);
        }
    }
}
