//! Notifications of servers, for clients of the other era.

use bytes::Bytes;

use super::members::Edits;
use crate::json::{Document, JsonError, Scratch, Value, quote};
use crate::splice::Segments;

const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// What a notification of progress is about: the literal of its token. `None`: it is no such thing.
pub fn progress_token(notification: Value<'_>) -> Option<&str> {
    notification.get("method").filter(|method| method.is("notifications/progress"))?;
    Some(notification.get("params")?.get("progressToken")?.source())
}

/// A notification of progress under the client's own token, a literal.
pub fn with_progress_token(
    notification: &Bytes,
    token: &str,
    (scratch, depth_max): (&mut Scratch, usize),
) -> Result<Segments, JsonError> {
    let root = scratch.index(notification, depth_max).map(Document::root)?;
    let mut edits = Edits::default();
    edits.rename(root.get("params").and_then(|params| params.get("progressToken")), Some(token));
    Ok(edits.apply(notification))
}

/// A notification as part of the subscription with this `id`, a literal.
pub fn in_subscription(
    notification: &Bytes,
    id: &str,
    (scratch, depth_max): (&mut Scratch, usize),
) -> Result<Segments, JsonError> {
    let root = scratch.index(notification, depth_max).map(Document::root)?;
    let member = format!("{}:{id}", quote(SUBSCRIPTION_ID));
    let mut edits = Edits::default();
    edits.params(root, (|_| false, ""), (|key| key == SUBSCRIPTION_ID, &member));
    Ok(edits.apply(notification))
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
