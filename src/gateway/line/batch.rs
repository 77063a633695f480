//! Batches: which bodies are one, and where their messages stand.

use protocol::json::{Span, Value};

/// The most messages in one batch.
pub(crate) const MESSAGES_MAX: usize = 50;

/// Whether a body can only be a batch.
pub(crate) fn is_batch(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'[')
}

/// Where the messages of a batch stand, or why it is none. `initialize` cannot be part of one (2025-03-26,
/// "Lifecycle").
pub(crate) fn messages(root: Value<'_>) -> Result<Vec<Span>, &'static str> {
    let text = root.text();
    let is_initialize = |message: Value<'_>| {
        let method = message.entries().filter(|(key, _)| key.equals(text, "method"));
        let mut named = method.filter_map(|(_, method)| method.as_literal());
        message.is_object() && named.any(|method| method.equals(text, "initialize"))
    };
    let mut spans = Vec::new();
    for message in root.items() {
        if spans.len() == MESSAGES_MAX {
            return Err("a batch holds at most 50 messages");
        }
        if is_initialize(message) {
            return Err("initialize must not be part of a batch");
        }
        spans.push(message.span());
    }
    if spans.is_empty() { Err("a batch must not be empty") } else { Ok(spans) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::json::Scratch;

    #[test]
    fn a_batch_comes_apart() {
        let many = format!("[{}]", ["1"; 51].join(","));
        for (text, expected) in [
            (r#"[{"method":"a"}, 3 ,[]]"#, Ok(vec![r#"{"method":"a"}"#, "3", "[]"])),
            ("[ ]", Err("empty")),
            (&many, Err("50")),
            (r#"[1,{"id":1,"method":"initialize"}]"#, Err("initialize")),
            (r#"[{"method":"a","m\u0065thod":"init\u0069alize"}]"#, Err("initialize")),
        ] {
            let mut scratch = Scratch::default();
            let document = scratch.index(text.as_bytes(), 8).unwrap();
            match (messages(document.root()), expected) {
                (Ok(spans), Ok(expected)) => {
                    let found: Vec<&str> = spans.into_iter().map(|span| &text[span]).collect();
                    assert_eq!(found, expected);
                }
                (Err(why), Err(word)) => assert!(why.contains(word), "{why}"),
                (found, expected) => panic!("{text}: {found:?}, not {expected:?}"),
            }
        }
        assert!(is_batch(b" \n[1]") && !is_batch(b"{}") && !is_batch(b""));
    }
}
