//! What a message is that came back. Pure.

use serde_json::{Value, json};

use super::facts::{Answer, clip};
use client::RpcError;

/// How much of what is no message is kept.
const NONSENSE_CHARS_MAX: usize = 120;

/// Whether `message` is the answer to the request with this id, in a form that may be wrong.
pub(super) fn answers(message: &Value, id: Option<&Value>) -> bool {
    let is_response = message.get("method").is_none()
        && (message.get("result").is_some() || message.get("error").is_some());
    is_response
        && match (message.get("id"), id) {
            (None | Some(Value::Null), _) | (_, None) => true,
            (Some(given), Some(wanted)) => given == wanted || text_of(given) == text_of(wanted),
        }
}

/// The answer that a message is, and what is wrong with its form.
pub(super) fn read(message: &Value, id: Option<&Value>) -> (Answer, Option<String>) {
    if message.is_array() {
        let fault = id.map(|_| "an array came for a single request".to_owned());
        return (Answer::Result(message.clone()), fault);
    }
    let mut fault = None;
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        fault = Some("jsonrpc is not \"2.0\"".to_owned());
    }
    match (message.get("id"), id) {
        (Some(given), Some(wanted)) if !given.is_null() && given != wanted => {
            fault =
                Some(format!("the id is {} where the request has {wanted}", clip(&given.to_string(), 40)));
        }
        (None | Some(Value::Null), Some(_)) if message.get("result").is_some() => {
            fault = Some("a result has no id".to_owned());
        }
        _ => {}
    }
    let answer = match (message.get("result"), message.get("error")) {
        (Some(_), Some(_)) => {
            fault = Some("there are both a result and an error".to_owned());
            Answer::Nonsense("both a result and an error".to_owned())
        }
        (Some(result), None) => Answer::Result(result.clone()),
        (None, Some(error)) => {
            if let Some(code) = error.get("code").and_then(Value::as_i64) {
                let message = error.get("message").and_then(Value::as_str);
                if message.is_none() {
                    fault = Some("an error has no message".to_owned());
                }
                let message = clip(message.unwrap_or_default(), 1000);
                Answer::Error(RpcError { code, message, data: error.get("data").cloned(), status: None })
            } else {
                fault = Some("the code of an error is not an integer".to_owned());
                Answer::Nonsense(clip(&message.to_string(), NONSENSE_CHARS_MAX))
            }
        }
        (None, None) => Answer::Nonsense(clip(&message.to_string(), NONSENSE_CHARS_MAX)),
    };
    (answer, fault)
}

/// What a request of a server of the legacy era is answered with: the only thing it is given is a sign of life.
pub(super) fn reply_to(message: &Value) -> Option<Value> {
    let (method, id) = (message.get("method")?.as_str()?, message.get("id")?);
    Some(if method == "ping" {
        json!({ "jsonrpc": "2.0", "id": id, "result": {} })
    } else {
        json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "not supported" } })
    })
}

/// What is no message, for people.
pub(super) fn nonsense(bytes: &[u8]) -> Answer {
    let beginning = &bytes[..bytes.len().min(NONSENSE_CHARS_MAX * 4)];
    let text = String::from_utf8_lossy(beginning);
    if text.trim().is_empty() {
        return Answer::Nothing;
    }
    Answer::Nonsense(clip(text.trim(), NONSENSE_CHARS_MAX))
}

fn text_of(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_from_other_messages_and_judged_by_their_form() {
        let seven = json!(7);
        for (message, is_answer, fault) in [
            (json!({"jsonrpc": "2.0", "id": 7, "result": {}}), true, None),
            (json!({"jsonrpc": "2.0", "id": "7", "result": {}}), true, Some("the id is \"7\"")),
            (json!({"jsonrpc": "2.0", "id": 8, "result": {}}), false, Some("the id is 8")),
            (json!({"jsonrpc": "2.0", "result": {}}), true, Some("a result has no id")),
            (json!({"jsonrpc": "2.0", "error": {"code": 1, "message": ""}}), true, None),
            (json!({"jsonrpc": "2.0", "id": 7, "error": {"code": 1}}), true, Some("an error has no message")),
            (json!({"jsonrpc": "2.0", "id": 7, "error": {"code": "1"}}), true, Some("the code")),
            (json!({"id": 7, "result": {}}), true, Some("jsonrpc")),
            (json!({"jsonrpc": "2.0", "id": 7, "result": {}, "error": {}}), true, Some("there are both")),
            (json!({"jsonrpc": "2.0", "id": 7, "method": "ping"}), false, None),
            (json!([]), false, Some("an array")),
        ] {
            assert_eq!(answers(&message, Some(&seven)), is_answer, "{message}");
            let (_, found) = read(&message, Some(&seven));
            assert_eq!(found.is_some(), fault.is_some(), "{message}: {found:?}");
            assert!(found.unwrap_or_default().starts_with(fault.unwrap_or_default()), "{message}");
        }
    }

    #[test]
    fn what_is_no_message_is_cut_short() {
        assert_eq!(nonsense(b" \n"), Answer::Nothing);
        assert_eq!(nonsense(b"<html>"), Answer::Nonsense("<html>".into()));
        let Answer::Nonsense(text) = nonsense(&vec![0xff; 100_000]) else { panic!("not nonsense") };
        assert_eq!(text.chars().count(), NONSENSE_CHARS_MAX + 1);
    }
}
