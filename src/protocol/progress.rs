//! Whether a message is a notification of progress as most servers write one, told without reading it: of streamed replies
//! these are nearly all events.
//!
//! What is written in another way, with `_meta`, an escape or a space, is for a reader; this only says that it cannot tell.

/// How the official SDKs write one, before and after what stands in `params`.
const USUAL: [(&[u8], &[u8]); 2] = [
    (br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"#, b"}}"),
    (br#"{"method":"notifications/progress","params":{"#, br#"},"jsonrpc":"2.0"}"#),
];
/// What may stand there, each once.
const KEYS: [&str; 4] = ["progressToken", "progress", "total", "message"];

/// True: it is JSON, and every reader takes it for a notification of progress with nothing but texts and numbers in it.
pub fn is_usual(message: &[u8]) -> bool {
    let params = USUAL.iter().find_map(|(start, end)| message.strip_prefix(*start)?.strip_suffix(*end));
    let params = params.and_then(|params| std::str::from_utf8(params).ok());
    params.is_some_and(|params| are_plain(params).is_some())
}

/// Whether these are members of [`KEYS`] with plain values, without a space between them.
fn are_plain(mut members: &str) -> Option<()> {
    let mut found = [false; KEYS.len()];
    loop {
        let (key, rest) = members.strip_prefix('"')?.split_once('"')?;
        let place = KEYS.iter().position(|known| *known == key)?;
        if std::mem::replace(&mut found[place], true) {
            return None;
        }
        let rest = after_value(rest.strip_prefix(':')?)?;
        if rest.is_empty() {
            return Some(());
        }
        members = rest.strip_prefix(',')?;
    }
}

/// What follows a text without escapes, or a number without an exponent.
fn after_value(bytes: &str) -> Option<&str> {
    if let Some(text) = bytes.strip_prefix('"') {
        let end = text.bytes().position(|byte| matches!(byte, b'"' | b'\\' | ..b' '))?;
        return text.get(end..)?.strip_prefix('"');
    }
    let number = bytes.strip_prefix('-').unwrap_or(bytes);
    let (whole, rest) = digits(number)?;
    if whole.len() > 1 && whole.starts_with('0') {
        return None;
    }
    match rest.strip_prefix('.') {
        Some(fraction) => Some(digits(fraction)?.1),
        None => Some(rest),
    }
}

/// The digits that a text begins with, at least one, and what follows.
fn digits(text: &str) -> Option<(&str, &str)> {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{Envelope, MessageKind};
    use crate::json::Scratch;
    use proptest::prelude::*;
    use proptest::sample::select;

    #[test]
    fn what_sdks_write_is_known() {
        for (params, expected) in [
            (r#""progressToken":1,"progress":2"#, true),
            (r#""progressToken":"a","progress":0.5,"total":-10,"message":"id é""#, true),
            ("", false),
            (r#""_meta":{}"#, false),
            (r#""progress":1,"progress":2"#, false),
            (r#""progress":1,"Progress":2"#, false),
            (r#""name":"a""#, false),
            (r#""progress":NaN"#, false),
            (r#""progress":01"#, false),
            (r#""progress":1."#, false),
            (r#""progress":[[[]]]"#, false),
            (r#""progress":1,"#, false),
            (r#""progress": 1"#, false),
            (r#""message":"\"""#, false),
            ("\"message\":\"\n\"", false),
            (r#""message":"},"jsonrpc":"2.0""#, false),
        ] {
            let (first, last) = (
                format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{{params}}}}}"#),
                format!(r#"{{"method":"notifications/progress","params":{{{params}}},"jsonrpc":"2.0"}}"#),
            );
            assert_eq!(
                (is_usual(first.as_bytes()), is_usual(last.as_bytes())),
                (expected, expected),
                "{params}"
            );
        }
        for message in [
            "",
            r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"message":"a"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1},"id":1}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1},"x":{"message":"a"}}"#,
            r#"{"method":"notifications/progress","params":{"progress":1},"id":1,"jsonrpc":"2.0"}"#,
        ] {
            assert!(!is_usual(message.as_bytes()), "{message}");
        }
        assert!(!is_usual(
            b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"message\":\"\xff\"}}"
        ));
    }

    proptest! {
        /// Whatever stands there: what is known by its look is what a reader takes it for.
        #[test]
        fn a_reader_agrees(
            members in prop::collection::vec((select(&KEYS[..]), select(&[
                "1", "-0.5", "0", "00", "1e5", "NaN", "null", "[]", "{}", r#""a""#, r#""é\u0061""#, r#""},\"id\":1""#, "\"\t\"", " 1",
                r#""a","id":7"#, r#""a"},"id":7,"x":{"y":"a""#,
            ][..])), 0..4),
            is_last in any::<bool>(),
            more in select(&["", r#","id":1"#, " "][..]),
        ) {
            let members: Vec<String> = members.iter().map(|(key, value)| format!(r#""{key}":{value}"#)).collect();
            let params = members.join(",");
            let message = if is_last {
                format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{{params}}}{more}}}"#)
            } else {
                format!(r#"{{"method":"notifications/progress","params":{{{params}}}{more},"jsonrpc":"2.0"}}"#)
            };
            if is_usual(message.as_bytes()) {
                let envelope = Envelope::parse(&mut Scratch::default(), message.as_bytes(), 2).expect("a message");
                let method = envelope.method.expect("a method");
                prop_assert!(method.equals(message.as_bytes(), "notifications/progress"), "{message}");
                prop_assert_eq!(envelope.kind, MessageKind::Notification);
            }
        }
    }
}
