//! What a legacy server asks in the middle of a call, as a modern client is asked it, and the answers.
//!
//! Deliberately absent: who is asked, and when.

use bytes::Bytes;

use super::members::Edits;
use crate::json::{Document, Scratch, Value, quote};
use crate::server_request::{NO_METHOD, NotAsked, ServerRequest};

/// Keys of `_meta` that have no meaning once the request is no request of JSON-RPC any more.
const NOT_CROSSING: [&str; 2] = ["progressToken", "io.modelcontextprotocol/related-task"];
/// A longer `elicitationId` is not recognised.
const ELICITATION_ID_BYTES_MAX: usize = 256;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// What it asks for.
    pub asked: ServerRequest,
    /// An object with `method` and `params`, as it stands in `inputRequests`.
    pub request: Bytes,
    /// The `elicitationId` of one that leads to a URL.
    pub elicitation_id: Option<Box<str>>,
}

/// Reads a server's request, a message that was found to be one. An error is what the server is to be told, as a client
/// with these `capabilities` (a JSON object) cannot be asked this.
pub fn read(
    message: &Bytes,
    capabilities: &[u8],
    (scratch, depth_max): (&mut Scratch, usize),
) -> Result<Question, NotAsked> {
    let root = scratch.index(message, depth_max).map(Document::root).map_err(|_| NO_METHOD)?;
    let method = root.text_of("method").ok_or(NO_METHOD)?;
    let params = root.object("params");
    let mut of_client = Scratch::default();
    let declared = of_client.index(capabilities, depth_max).map(Document::root);
    let declared = declared.map_err(|_| NO_METHOD)?;
    let asked = ServerRequest::of(&method).ok_or(NO_METHOD)?;
    asked.check(params, declared)?;
    if !matches!(asked, ServerRequest::Sampling | ServerRequest::Elicitation | ServerRequest::Roots) {
        return Err(NO_METHOD);
    }
    let elicitation_id = params.filter(|_| asked == ServerRequest::Elicitation).and_then(elicitation_id);
    let sees_context = declared.get("sampling").and_then(|sampling| sampling.get("context")).is_some();
    let params = params.map(|params| {
        let mut edits = Edits::default();
        edits.with_meta(params, (|key| is_out(asked, key), ""), (|key| NOT_CROSSING.contains(&key), ""));
        let context =
            params.get("includeContext").filter(|_| asked == ServerRequest::Sampling && !sees_context);
        edits.rename(context, Some("\"none\""));
        edits.part(message, params)
    });
    let mut request = format!(r#"{{"method":{}"#, quote(&method)).into_bytes();
    if let Some(params) = params {
        request.extend_from_slice(br#","params":"#);
        request.extend_from_slice(&params);
    }
    request.push(b'}');
    Ok(Question { asked, request: request.into(), elicitation_id })
}

/// The answer to a question with this `id`, a literal; `result` is JSON.
pub fn answer(id: &[u8], result: &[u8]) -> Bytes {
    [br#"{"jsonrpc":"2.0","id":"#, id, br#","result":"#, result, b"}"].concat().into()
}

/// What the server is told that gets no answer.
pub fn refusal(id: &[u8], NotAsked { code, message }: NotAsked) -> Bytes {
    let error = format!(r#","error":{{"code":{code},"message":{}}}}}"#, quote(message));
    [br#"{"jsonrpc":"2.0","id":"#, id, error.as_bytes()].concat().into()
}

/// What the server is told where there is nobody who could be asked.
pub fn unasked_answer(id: &[u8], is_ping: bool) -> Bytes {
    if is_ping { answer(id, b"{}") } else { refusal(id, NO_METHOD) }
}

/// The elicitation of a URL that `notifications/elicitation/complete` is about.
pub fn elicitation_id(params: Value<'_>) -> Option<Box<str>> {
    let id = params.text_of("elicitationId")?;
    (id.len() <= ELICITATION_ID_BYTES_MAX).then(|| id.into())
}

/// Tasks are those of the other era, and a modern elicitation has no id.
fn is_out(asked: ServerRequest, key: &str) -> bool {
    key == "task" || (asked == ServerRequest::Elicitation && key == "elicitationId")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(message: &'static str, capabilities: &str) -> Result<Question, NotAsked> {
        read(&Bytes::from_static(message.as_bytes()), capabilities.as_bytes(), (&mut Scratch::default(), 16))
    }

    #[test]
    fn a_question_stands_in_the_result_as_the_other_era_writes_it() {
        for (message, capabilities, expected) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#,
                r#"{"roots":{}}"#,
                r#"{"method":"roots/list"}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"x","_meta":{"progressToken":1},"requestedSchema":{"n":1e2}}}"#,
                r#"{"elicitation":{}}"#,
                r#"{"method":"elicitation/create","params":{"message":"x","requestedSchema":{"n":1e2}}}"#,
            ),
            (
                r#"{"params":{"task":{"ttl":1},"maxTokens":9,"includeContext":"allServers"},"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}"#,
                r#"{"sampling":{}}"#,
                r#"{"method":"sampling/createMessage","params":{"maxTokens":9,"includeContext":"none"}}"#,
            ),
            (
                r#"{"params":{"includeContext":"allServers"},"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}"#,
                r#"{"sampling":{"context":{}}}"#,
                r#"{"method":"sampling/createMessage","params":{"includeContext":"allServers"}}"#,
            ),
        ] {
            let question = found(message, capabilities).expect("a question");
            assert_eq!(String::from_utf8_lossy(&question.request), expected, "{message}");
            assert_eq!(question.elicitation_id, None);
        }
        let url = r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"mode":"url","elicitationId":"e-1","url":"https://x","message":"m"}}"#;
        let question = found(url, r#"{"elicitation":{"url":{}}}"#).expect("a question");
        assert_eq!(question.elicitation_id.as_deref(), Some("e-1"));
        assert!(!String::from_utf8_lossy(&question.request).contains("e-1"));
    }

    #[test]
    fn what_a_client_cannot_do_it_is_not_asked() {
        for (message, capabilities) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#, r#"{"sampling":{}}"#),
            (r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{}}"#, r#"{"tasks":{}}"#),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "{}"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#, "{}"),
        ] {
            assert_eq!(found(message, capabilities), Err(NO_METHOD), "{message}");
        }
    }

    #[test]
    fn answers_carry_the_servers_id() {
        assert_eq!(answer(b"\"a\"", b"{}"), &br#"{"jsonrpc":"2.0","id":"a","result":{}}"#[..]);
        let refused = refusal(b"7", NotAsked { code: -1, message: "\"no\"" });
        assert_eq!(refused, &br#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"\"no\""}}"#[..]);
        assert_eq!(unasked_answer(b"7", true), answer(b"7", b"{}"));
        assert_eq!(unasked_answer(b"7", false), refusal(b"7", NO_METHOD));
    }
}
