//! Notifications of servers, for clients of the other era.

use bytes::Bytes;

use super::members;
use crate::json::{Document, JsonError, Kind, Scratch, Value, quote};
use crate::splice::{Edit, Segments, splice};

const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// What a notification of progress is about: the literal of its token. `None`: it is no such thing.
pub fn progress_token(notification: Value<'_>) -> Option<&str> {
    let method = notification.get("method")?.as_literal()?;
    if !method.equals(notification.text(), "notifications/progress") {
        return None;
    }
    std::str::from_utf8(notification.get("params")?.get("progressToken")?.raw()).ok()
}

/// A notification of progress under the client's own token, a literal.
pub fn with_progress_token(
    notification: &Bytes,
    token: &str,
    (scratch, depth_max): (&mut Scratch, usize),
) -> Result<Segments, JsonError> {
    let root = scratch.index(notification, depth_max).map(Document::root)?;
    let own = root.get("params").and_then(|params| params.get("progressToken"));
    let edit = own.map(|own| Edit { span: own.span(), with: Bytes::copy_from_slice(token.as_bytes()) });
    Ok(splice(notification, edit.as_slice()))
}

/// A notification as part of the subscription with this `id`, a literal.
pub fn in_subscription(
    notification: &Bytes,
    id: &str,
    (scratch, depth_max): (&mut Scratch, usize),
) -> Result<Segments, JsonError> {
    let root = scratch.index(notification, depth_max).map(Document::root)?;
    let member = format!("{}:{id}", quote(SUBSCRIPTION_ID));
    let object = |value: &Value<'_>| value.kind() == Kind::Object;
    let params = root.get("params").filter(object);
    let edits = match (params, params.and_then(|params| params.get("_meta")).filter(object)) {
        (Some(_), Some(meta)) => {
            members::edits(meta, |key| key.equals(notification, SUBSCRIPTION_ID), &member)
        }
        (Some(params), None) => {
            let meta = format!(r#""_meta":{{{member}}}"#);
            members::edits(params, |key| key.equals(notification, "_meta"), &meta)
        }
        (None, _) => {
            let params = format!(r#""params":{{"_meta":{{{member}}}}}"#);
            members::edits(root, |key| key.equals(notification, "params"), &params)
        }
    };
    Ok(splice(notification, &edits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(segments: Result<Segments, JsonError>) -> String {
        String::from_utf8_lossy(&segments.expect("JSON").to_bytes()).into_owned()
    }

    #[test]
    fn progress_is_told_under_the_clients_token() {
        for (notification, found, renamed) in [
            (
                r#"{"method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#,
                Some("7"),
                r#"{"method":"notifications/progress","params":{"progressToken":"t","progress":1}}"#,
            ),
            (
                r#"{"method":"notifications/message","params":{"progressToken":7}}"#,
                None,
                r#"{"method":"notifications/message","params":{"progressToken":"t"}}"#,
            ),
            (r#"{"method":"notifications/progress"}"#, None, r#"{"method":"notifications/progress"}"#),
        ] {
            let mut scratch = Scratch::default();
            let root = scratch.index(notification.as_bytes(), 8).map(Document::root).expect("JSON");
            assert_eq!(progress_token(root), found);
            let notification = Bytes::from(notification);
            let memory = (&mut scratch, 8);
            assert_eq!(text(with_progress_token(&notification, "\"t\"", memory)), renamed);
        }
    }

    #[test]
    fn what_belongs_to_a_subscription_says_so() {
        let id = r#""io.modelcontextprotocol/subscriptionId":5"#;
        for (notification, expected) in [
            (r#"{"params":{"uri":"a"}}"#, r#"{"params":{"_meta":{ID},"uri":"a"}}"#),
            (r#"{"params":{"_meta":{"x":1}}}"#, r#"{"params":{"_meta":{ID,"x":1}}}"#),
            (r#"{"method":"m"}"#, r#"{"params":{"_meta":{ID}},"method":"m"}"#),
        ] {
            let found = in_subscription(&Bytes::from(notification), "5", (&mut Scratch::default(), 8));
            assert_eq!(text(found), expected.replace("ID", id));
        }
    }
}
