//! Whether a message is a notification of progress as most servers write one, told without reading it: of streamed replies
//! these are nearly all events.
//!
//! What is written in another way, with `_meta` or with an escape, is for a reader; this only says that it cannot tell.

use memchr::memchr3;

/// How the official SDKs write one, before and after what stands in `params`.
const USUAL: [(&[u8], &[u8]); 2] = [
    (br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"#, b"}}"),
    (br#"{"method":"notifications/progress","params":{"#, br#"},"jsonrpc":"2.0"}"#),
];

/// True: every reader takes it for a notification of progress, with neither an id nor an object in its `params`, if it is
/// JSON at all.
pub fn is_usual(message: &[u8]) -> bool {
    let params = USUAL.iter().find_map(|(start, end)| message.strip_prefix(*start)?.strip_suffix(*end));
    // Without a bracket or an escape, all that is left stands in `params`.
    params.is_some_and(|params| memchr3(b'{', b'}', b'\\', params).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{Envelope, MessageKind};
    use crate::json::Scratch;
    use proptest::prelude::*;

    #[test]
    fn what_sdks_write_is_known() {
        for (message, expected) in [
            (
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":2}}"#,
                true,
            ),
            (
                r#"{"method":"notifications/progress","params":{"progressToken":"a","progress":0.5,"message":"id"},"jsonrpc":"2.0"}"#,
                true,
            ),
            (r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#, true),
            (r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"_meta":{}}}"#, false),
            (r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"message":"}"}}"#, false),
            (r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"message":"\""}}"#, false),
            (r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1},"id":1}"#, false),
            (r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{},"x":{"y":1}}"#, false),
            (r#"{"method":"notifications/progress","params":{},"id":1,"jsonrpc":"2.0"}"#, false),
            (r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}"#, false),
            (r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#, false),
            ("", false),
        ] {
            assert_eq!(is_usual(message.as_bytes()), expected, "{message}");
        }
    }

    proptest! {
        /// Whatever stands there: what is known by its look is what a reader takes it for.
        #[test]
        fn a_reader_agrees(params in r#"[a-z"{}\\:,0-9\[\] ]{0,40}"#, is_last in any::<bool>(), more in r#"(,"id":[0-9])?"#) {
            let message = if is_last {
                format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{{params}}}{more}}}"#)
            } else {
                format!(r#"{{"method":"notifications/progress","params":{{{params}}}{more},"jsonrpc":"2.0"}}"#)
            };
            let mut scratch = Scratch::default();
            if is_usual(message.as_bytes()) && let Ok(envelope) = Envelope::parse(&mut scratch, message.as_bytes(), 64) {
                let is_progress = envelope.method.is_some_and(|method| method.equals(message.as_bytes(), "notifications/progress"));
                prop_assert!(is_progress && envelope.kind == MessageKind::Notification, "{message}");
            }
        }
    }
}
