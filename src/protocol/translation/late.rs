//! An error for a client that has the head of its reply already: what the status and `Retry-After` would have said stands
//! in the `data` of the error.

use bytes::Bytes;

use super::members::Edits;
use crate::error::WireError;
use crate::json::{Document, Scratch, Value};
use crate::splice::Segments;

/// `message`, an error of the gateway's own that has this outcome, as it is told without a status.
pub fn own_told_in(message: &Bytes, outcome: &WireError) -> Segments {
    let retry_after_ms =
        outcome.retry_after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
    tell_in(message, outcome.status.as_u16(), retry_after_ms, &mut Scratch::default(), message.len())
}

/// `message` with this status, and when to come again, in the `data` of its error. Unchanged, if it is none, or says
/// something else there.
pub fn tell_in(
    message: &Bytes,
    status: u16,
    retry_after_ms: Option<u64>,
    scratch: &mut Scratch,
    depth_max: usize,
) -> Segments {
    let root = scratch.index(message, depth_max).map(Document::root).ok();
    let edits = root.and_then(|root| told(root.object("error")?, status, retry_after_ms));
    edits.map_or_else(|| Segments::from(message.clone()), |edits| edits.apply(message))
}

fn told(error: Value<'_>, status: u16, retry_after_ms: Option<u64>) -> Option<Edits> {
    let data = error.get("data").filter(|data| data.raw() != b"null");
    let has = |key: &str| data.is_some_and(|data| data.get(key).is_some());
    let mut added = Vec::new();
    if !has("httpStatus") {
        added.push(format!(r#""httpStatus":{status}"#));
    }
    if let Some(retry_after_ms) = retry_after_ms.filter(|_| !has("retryAfterMs")) {
        added.push(format!(r#""retryAfterMs":{retry_after_ms}"#));
    }
    let added = added.join(",");
    let mut edits = Edits::default();
    match data {
        Some(data) => edits.members(data.as_object()?, |_| false, &added),
        None => edits.members(error, |key| key == "data", &format!(r#""data":{{{added}}}"#)),
    }
    Some(edits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, UpstreamError};
    use crate::version::Era;

    #[test]
    fn status_and_pause_stand_in_the_data() {
        for (message, retry_after_ms, expected) in [
            (r#"{"error":{"code":1}}"#, None, r#"{"error":{"data":{"httpStatus":503},"code":1}}"#),
            (
                r#"{"error":{"code":1,"data":{"a":[]}}}"#,
                Some(2000),
                r#"{"error":{"code":1,"data":{"httpStatus":503,"retryAfterMs":2000,"a":[]}}}"#,
            ),
            (
                r#"{"error":{"data":{"retryAfterMs":7}}}"#,
                Some(2000),
                r#"{"error":{"data":{"httpStatus":503,"retryAfterMs":7}}}"#,
            ),
            (
                r#"{"error":{"code":1,"data":null}}"#,
                None,
                r#"{"error":{"data":{"httpStatus":503},"code":1}}"#,
            ),
            (r#"{"error":{"data":"text"}}"#, Some(1), r#"{"error":{"data":"text"}}"#),
            (r#"{"result":{}}"#, Some(1), r#"{"result":{}}"#),
            ("{", None, "{"),
        ] {
            let message = Bytes::from_static(message.as_bytes());
            let told = tell_in(&message, 503, retry_after_ms, &mut Scratch::default(), 8).to_bytes();
            assert_eq!(String::from_utf8_lossy(&told), expected);
        }
    }

    #[test]
    fn an_own_error_says_its_outcome() {
        let error = Error::from(UpstreamError::TimedOut);
        let body = Bytes::from(error.body(Some("7"), Era::Modern));
        let told = own_told_in(&body, &error.outcome()).to_bytes();
        let told: serde_json::Value = serde_json::from_slice(&told).expect("JSON");
        assert_eq!((&told["id"], &told["error"]["data"]["httpStatus"]), (&7.into(), &504.into()));
    }
}
