//! What a modern server says in its reply, for a legacy client: the answer, a question before it, or a notification.

use bytes::Bytes;

use super::input::Input;
use super::members::Edits;
use super::request::MODERN_META;
use super::result::{AnswerMembers, to_legacy};
use crate::error::error_body;
use crate::json::{Document, JsonKind, Scratch, Value};
use crate::splice::Segments;

/// The error codes of the modern era that are about the gateway's own request, not the client's.
const HEADER_MISMATCH: i64 = -32020;
const UNSUPPORTED_VERSION: i64 = -32022;
/// What a legacy client is told instead of a code that its era does not know.
const MISSING_CAPABILITY: i64 = -32021;
const INVALID_REQUEST: &str = "-32600";

/// A message of a reply.
#[derive(Debug)]
pub enum Said {
    /// The answer as the client takes it.
    Answer(Segments),
    /// There is no answer before this.
    Input(Input),
    /// A notification as the client takes it.
    Notification(Segments),
    /// The headers do not say what the request does.
    Mismatch,
    /// The server does not speak the revision.
    Version,
    /// Nothing that belongs to this call: another's answer, or what no server of the era says here, such as a request.
    Other,
    /// What the specification does not allow.
    Invalid,
}

/// How a call is known to each side, by literals.
#[derive(Clone, Copy, Debug)]
pub struct Ids<'a> {
    /// To the server.
    pub own: &'a str,
    /// To the client.
    pub client: &'a str,
}

/// Reads one message. `may_ask`: whether the method is one during which the server may ask.
pub fn read(
    message: &Bytes,
    ids: Ids<'_>,
    may_ask: bool,
    (scratch, depth_max): (&mut Scratch, usize),
) -> Said {
    let root = scratch.index(message, depth_max).map(Document::root);
    let Some(root) = root.ok().and_then(Value::as_object) else { return Said::Invalid };
    let members = AnswerMembers::of(root);
    let id = members.id;
    if let Some(method) = members.method {
        // A question is an answer of this era, and cannot be taken back.
        let is_told =
            id.is_none() && method.kind() == JsonKind::String && !method.is("notifications/cancelled");
        return if is_told { Said::Notification(notification(root, message)) } else { Said::Other };
    }
    let is_ours = id.is_some_and(|id| id.raw() == ids.own.as_bytes());
    if let Some(error) = members.error {
        // One without an id can only be about the one request of this exchange.
        let is_ours = is_ours || id.is_none_or(|id| id.kind() == JsonKind::Null);
        return if is_ours { refusal(error, ids.client) } else { Said::Other };
    }
    let Some(result) = members.result else { return Said::Invalid };
    if !is_ours {
        return Said::Other;
    }
    let kind = result.get("resultType");
    let is = |name| kind.is_some_and(|kind| kind.is(name));
    match () {
        () if !result.is_object() => Said::Invalid,
        () if kind.is_none() || is("complete") => Said::Answer(to_legacy(members, message, ids.client)),
        () if may_ask && is("input_required") => {
            Input::read(result, message).map_or(Said::Invalid, Said::Input)
        }
        () => Said::Invalid,
    }
}

fn refusal(error: Value<'_>, client_id: &str) -> Said {
    let Some(code) = error.get("code").filter(|code| code.kind() == JsonKind::Number) else {
        return Said::Invalid;
    };
    match code.as_integer() {
        Some(HEADER_MISMATCH) => return Said::Mismatch,
        Some(UNSUPPORTED_VERSION) => return Said::Version,
        _ => {}
    }
    let (raw, at) = (error.source(), code.span().start.saturating_sub(error.span().start));
    let written = match (raw.get(..at), raw.get(at + code.span().len()..)) {
        (Some(before), Some(after)) if code.as_integer() == Some(MISSING_CAPABILITY) => {
            format!("{before}{INVALID_REQUEST}{after}")
        }
        _ => raw.to_owned(),
    };
    Said::Answer(error_body(Some(client_id), &written).into())
}

/// A notification without what only the modern era says in `_meta`.
fn notification(root: Value<'_>, message: &Bytes) -> Segments {
    let mut edits = Edits::default();
    if let Some(params) = root.object("params") {
        edits.with_meta(params, (|_| false, ""), (|key| key.starts_with(MODERN_META), ""));
    }
    edits.apply(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(message: &str, may_ask: bool) -> String {
        let ids = Ids { own: "\"own\"", client: "7" };
        let message = Bytes::copy_from_slice(message.as_bytes());
        match read(&message, ids, may_ask, (&mut Scratch::default(), 16)) {
            Said::Answer(text) | Said::Notification(text) => {
                String::from_utf8_lossy(&text.to_bytes()).into_owned()
            }
            Said::Input(input) => format!("{} questions", input.questions.len()),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn each_message_is_what_it_is_to_a_legacy_client() {
        for (message, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":"own","result":{"resultType":"complete","content":[]}}"#,
                r#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#,
            ),
            (r#"{"id":"own","result":{"a":1}}"#, r#"{"id":7,"result":{"a":1}}"#),
            (r#"{"id":"own","result":{"resultType":"task"}}"#, "Invalid"),
            (r#"{"id":"own","result":{"resultType":7}}"#, "Invalid"),
            (r#"{"id":"own","result":[]}"#, "Invalid"),
            (r#"{"id":"own"}"#, "Invalid"),
            ("[]", "Invalid"),
            (r#"{"id":7,"result":{}}"#, "Other"),
            (r#"{"id":"own","method":"ping"}"#, "Other"),
            (
                r#"{"id":"own","result":{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}}}}"#,
                "1 questions",
            ),
            (r#"{"id":"own","result":{"resultType":"input_required"}}"#, "Invalid"),
            (
                r#"{"id":"own","error":{"code":-32602,"message":"m"}}"#,
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"m"}}"#,
            ),
            (
                r#"{"error":{"message":"m", "code" : -32021,"data":{"requiredCapabilities":{}}}}"#,
                r#"{"jsonrpc":"2.0","id":7,"error":{"message":"m", "code" : -32600,"data":{"requiredCapabilities":{}}}}"#,
            ),
            (r#"{"id":null,"error":{"code":-32020,"message":"m"}}"#, "Mismatch"),
            (r#"{"id":"own","error":{"code":-32022,"message":"m"}}"#, "Version"),
            (r#"{"id":8,"error":{"code":-32022,"message":"m"}}"#, "Other"),
            (r#"{"id":"own","error":"m"}"#, "Invalid"),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1,"x":2},"progress":1}}"#,
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"_meta":{"x":2},"progress":1}}"#,
            ),
            (r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#, "Other"),
            (r#"{"method":"notifications/x"}"#, r#"{"method":"notifications/x"}"#),
        ] {
            assert_eq!(said(message, true), expected, "{message}");
        }
        let asks = r#"{"id":"own","result":{"resultType":"input_required","requestState":"s"}}"#;
        assert_eq!((said(asks, true), said(asks, false)), ("0 questions".into(), "Invalid".into()));
    }
}
