//! What a server's message is. Pure.

use serde_json::Value;

use super::error::RpcError;
use super::exchange_error::ExchangeError;

/// The most messages in one batch.
const BATCH_MAX: usize = 100;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum IncomingMessage {
    /// The answer to a request of ours. An error need not say to which.
    Response { id: Option<u64>, outcome: Result<Value, RpcError> },
    /// A request of the server.
    Request { id: Value, method: String, params: Value },
    /// A notification of the server.
    Notification { method: String, params: Value },
}

/// Reads a message, or the messages of a batch.
pub(super) fn read(text: &[u8]) -> Result<Vec<IncomingMessage>, ExchangeError> {
    let message: Value = serde_json::from_slice(text).map_err(|_| ExchangeError::Nonsense)?;
    match message {
        Value::Array(messages) if messages.len() <= BATCH_MAX => messages.into_iter().map(one).collect(),
        message => Ok(vec![one(message)?]),
    }
}

fn one(mut message: Value) -> Result<IncomingMessage, ExchangeError> {
    let members = message.as_object_mut().ok_or(ExchangeError::Nonsense)?;
    let id = members.remove("id").filter(|id| !id.is_null());
    let params = members.remove("params").unwrap_or(Value::Null);
    if let Some(method) = members.remove("method") {
        let Value::String(method) = method else { return Err(ExchangeError::Nonsense) };
        return Ok(match id {
            Some(id @ (Value::String(_) | Value::Number(_))) => {
                IncomingMessage::Request { id, method, params }
            }
            Some(_) => return Err(ExchangeError::Nonsense),
            None => IncomingMessage::Notification { method, params },
        });
    }
    let ours = id.as_ref().and_then(Value::as_u64);
    if let Some(error) = members.get("error").filter(|error| !error.is_null()) {
        let error = RpcError::read(error).ok_or(ExchangeError::Nonsense)?;
        return Ok(IncomingMessage::Response { id: ours, outcome: Err(error) });
    }
    match members.remove("result") {
        Some(result @ Value::Object(_)) if ours.is_some() => {
            Ok(IncomingMessage::Response { id: ours, outcome: Ok(result) })
        }
        _ => Err(ExchangeError::Nonsense),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let error = RpcError { code: 1, message: "no".into(), data: None, status: None };
        let answer = |id, outcome| IncomingMessage::Response { id, outcome };
        for (text, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, Some(answer(Some(1), Ok(json!({}))))),
            (r#"{"id":1,"error":{"code":1,"message":"no"}}"#, Some(answer(Some(1), Err(error.clone())))),
            (r#"{"id":null,"error":{"code":1,"message":"no"}}"#, Some(answer(None, Err(error)))),
            (
                r#"{"id":"a","method":"ping"}"#,
                Some(IncomingMessage::Request { id: json!("a"), method: "ping".into(), params: Value::Null }),
            ),
            (
                r#"{"method":"m","params":{"a":1}}"#,
                Some(IncomingMessage::Notification { method: "m".into(), params: json!({"a": 1}) }),
            ),
            (r#"{"id":1,"result":7}"#, None),
            (r#"{"id":1}"#, None),
            (r#"{"result":{}}"#, None),
            (r#"{"id":[],"method":"m"}"#, None),
            (r#"{"method":7}"#, None),
            ("7", None),
            ("garbage", None),
            ("", None),
        ] {
            let incoming_message = read(text.as_bytes());
            assert_eq!(
                incoming_message.ok(),
                expected.map(|incoming_message| vec![incoming_message]),
                "{text}"
            );
        }
        assert_eq!(
            read(br#"[{"id":1,"result":{}},{"method":"m"}]"#).map(|incoming_message| incoming_message.len()),
            Ok(2)
        );
        assert!(read("[".repeat(100_000).as_bytes()).is_err());
    }
}
