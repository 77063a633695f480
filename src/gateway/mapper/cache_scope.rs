//! Who may keep what was read: where credentials or rules decide what a caller gets, nobody but he.

use bytes::Bytes;

use protocol::ambiguity::folded;
use protocol::json::{Literal, Value};
use protocol::splice::Edit;

const FIELD: &str = "cachescope";
const PRIVATE: &[u8] = br#""private""#;

/// Edits that make the result of a reply private, wherever it says otherwise. One that says nothing is no result of this
/// revision, and nobody may take it for public.
pub(super) fn make_private(reply: Value<'_>) -> Vec<Edit> {
    let text = reply.text();
    let is = |key: &Literal, name| key.decode(text).is_none_or(|key| folded(&key) == name);
    let results = reply.entries().filter(|(key, _)| is(key, "result"));
    let scopes = results.flat_map(|(_, result)| result.entries()).filter(|(key, _)| is(key, FIELD));
    let others = scopes
        .filter(|(_, scope)| !scope.as_literal().is_some_and(|literal| literal.equals(text, "private")));
    others.map(|(_, scope)| Edit { span: scope.span(), with: Bytes::from_static(PRIVATE) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::json::Scratch;
    use protocol::splice::splice;

    #[test]
    fn whatever_says_otherwise_is_private() {
        for (reply, expected) in [
            (
                r#"{"result":{"cacheScope" : "public","x":1e400}}"#,
                r#"{"result":{"cacheScope" : "private","x":1e400}}"#,
            ),
            (r#"{"result":{"cacheScope":"private"}}"#, r#"{"result":{"cacheScope":"private"}}"#),
            (
                r#"{"result":{"contents":[{"cacheScope":"public"}]}}"#,
                r#"{"result":{"contents":[{"cacheScope":"public"}]}}"#,
            ),
            (r#"{"result":{"cacheScope":"p\u0075blic"}}"#, r#"{"result":{"cacheScope":"private"}}"#),
            (r#"{"result":{"c\u0061cheScope":{"a":[]}}}"#, r#"{"result":{"c\u0061cheScope":"private"}}"#),
            (
                r#"{"result":{"cacheScope":"private","CacheScope":"public","cacheScope":"public"}}"#,
                r#"{"result":{"cacheScope":"private","CacheScope":"private","cacheScope":"private"}}"#,
            ),
            (r#"{"error":{"cacheScope":"public"}}"#, r#"{"error":{"cacheScope":"public"}}"#),
        ] {
            let mut scratch = Scratch::default();
            let root = scratch.index(reply.as_bytes(), 16).expect("JSON").root();
            let spliced = splice(&Bytes::copy_from_slice(reply.as_bytes()), &make_private(root)).to_bytes();
            assert_eq!(String::from_utf8_lossy(&spliced), expected, "{reply}");
        }
    }
}
