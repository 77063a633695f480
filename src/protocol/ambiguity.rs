//! Whether all readers see the same in a JSON object: what a server lists is approved, named and judged by one reading,
//! and used by a client whose reading may be another.
//!
//! Readers disagree about a key that stands twice: most take the last value, some the first. Some fold case when they
//! compare keys, or drop NULs, and what they make of a key that is not Unicode differs. [`repeats`] looks for that in
//! what an upstream lists, [`is_ambiguous`] in the objects around it.
//!
//! Keys that are the same are refused at any depth: no server has a reason for them, and every member of a definition
//! is something that a model may read. Keys that are the same only to a reader that folds are refused where their names
//! are the protocol's. Deeper down they are the server's own: a tool may well have the parameters `c` and `C`.
//!
//! Invariant: a text is read once, from front to back; recursion is as deep as the text is nested, which its reader
//! limits.

use std::borrow::Cow;

use super::json::{Cursor, JsonKind, Literal, Value};

/// The entry itself, and the objects that are its members: `annotations`, `inputSchema`, `execution` and so on.
const FOLDED_LEVELS: usize = 2;
/// Its members are objects whose members are the protocol's again.
const META: &str = "_meta";

/// The members of a response.
pub const RESPONSE: &[&str] = &["jsonrpc", "id", "result", "error"];

/// The members of the results of `server/discover` and `initialize`.
const INTRODUCTION: &[&str] = &[
    "resultType",
    "ttlMs",
    "cacheScope",
    "protocolVersion",
    "supportedVersions",
    "capabilities",
    "serverInfo",
    "instructions",
    "_meta",
];
const CAPABILITIES: &[&str] =
    &["tools", "prompts", "resources", "completions", "logging", "tasks", "extensions", "experimental"];

/// Whether a key stands twice somewhere in an entry of a list, or is not Unicode.
pub fn repeats(entry: Value<'_>) -> bool {
    DuplicateSearch { text: entry.text(), keys: Vec::new() }.value(&mut entry.cursor(), FOLDED_LEVELS)
}

/// Whether a member of this object stands twice, or is one of `known` only to some readers.
pub fn is_ambiguous(object: Value<'_>, known: &[&str]) -> bool {
    let mut keys = Vec::new();
    for (key, _) in object.entries() {
        let Some(key) = key.decode(object.text()) else { return true };
        let folded = folded(&key);
        if known.contains(&&*key) || !known.iter().any(|known| self::folded(known) == folded) {
            keys.push(folded.into_owned());
        } else {
            return true;
        }
    }
    has_twins(&mut keys)
}

/// Whether a member of this name is there exactly once, for every reader.
pub fn is_there_once(object: Value<'_>, name: &str) -> bool {
    let is_named = |key: Literal| key.decode(object.text()).is_none_or(|key| folded(&key) == name);
    object.entries().filter(|(key, _)| is_named(key.clone())).count() == 1
}

/// Whether a member of how a server introduces itself, in either era, or of its capabilities, stands twice or is a
/// known one only to some readers.
pub fn is_ambiguous_introduction(result: Value<'_>) -> bool {
    let capabilities = result.get("capabilities");
    is_ambiguous(result, INTRODUCTION)
        || capabilities.is_some_and(|object| is_ambiguous(object, CAPABILITIES))
}

/// The key as readers see it that fold case and drop NULs.
pub fn folded(key: &str) -> Cow<'_, str> {
    let is_own =
        |char: char| char != '\0' && char != '\u{17f}' && char != '\u{212a}' && !char.is_ascii_uppercase();
    if key.chars().all(is_own) {
        return Cow::Borrowed(key);
    }
    // Of all characters that are not ASCII, only the long s and the Kelvin sign fold to one that is.
    let fold = |char| match char {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        char => char.to_ascii_lowercase(),
    };
    key.chars().filter(|&char| char != '\0').map(fold).collect()
}

struct DuplicateSearch<'a> {
    text: &'a [u8],
    /// The keys of all objects that are open.
    keys: Vec<Cow<'a, str>>,
}

impl<'a> DuplicateSearch<'a> {
    /// Reads the value at the cursor. Keys are folded in it, and so many levels deep.
    fn value(&mut self, cursor: &mut Cursor<'a>, folded_levels: usize) -> bool {
        match cursor.kind() {
            JsonKind::Object => self.object(cursor, folded_levels),
            JsonKind::Array => {
                while cursor.next_item() {
                    if self.value(cursor, 0) {
                        return true;
                    }
                }
                false
            }
            _ => {
                cursor.skip();
                false
            }
        }
    }

    fn object(&mut self, cursor: &mut Cursor<'a>, folded_levels: usize) -> bool {
        let first = self.keys.len();
        while let Some(key) = cursor.next_key() {
            let Some(key) = Literal::at(key, self.text).decode(self.text) else { return true };
            let below = if folded_levels > 0 && key == META {
                FOLDED_LEVELS
            } else {
                folded_levels.saturating_sub(1)
            };
            let key = match &key {
                Cow::Owned(own) if folded_levels > 0 => Cow::Owned(folded(own).into_owned()),
                Cow::Borrowed(key) if folded_levels > 0 => folded(key),
                _ => key,
            };
            self.keys.push(key);
            if self.value(cursor, below) {
                return true;
            }
        }
        let is_repeated = has_twins(self.keys.get_mut(first..).unwrap_or_default());
        self.keys.truncate(first);
        is_repeated
    }
}

fn has_twins<K: Ord>(keys: &mut [K]) -> bool {
    keys.sort_unstable();
    keys.windows(2).any(|pair| matches!(pair, [one, other] if one == other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Scratch;

    fn with<T>(text: &str, look: impl Fn(Value<'_>) -> T) -> T {
        look(Scratch::default().index(text.as_bytes(), 64).expect("JSON").root())
    }

    #[test]
    fn a_key_that_stands_twice_is_found_at_any_depth() {
        for text in [
            r#"{"name":"a","name":"b"}"#,
            r#"{"name":"a","x":1,"n\u0061me":"b"}"#,
            r#"{"name":"a","Name":"b"}"#,
            r#"{"NAME":"a","name":"b"}"#,
            r#"{"description":"a","de\u017fcription":"b"}"#,
            "{\"description\":\"a\",\"de\u{17f}cription\":\"b\"}",
            "{\"k\":1,\"\u{212a}\":2}",
            r#"{"name":"a","na\u0000me":"b"}"#,
            r#"{"name":"a","na\ud800me":"b"}"#,
            r#"{"x":{"y":[{"\udfff":1}]}}"#,
            r#"{"annotations":{"readOnlyHint":true,"readonlyhint":false}}"#,
            r#"{"inputSchema":{"type":"object","Type":"string"}}"#,
            r#"{"inputSchema":{"properties":{"a":{},"b":1,"a":{}}}}"#,
            r#"{"inputSchema":{"properties":{"a":{"anyOf":[1,{"type":1,"t\u0079pe":2}]}}}}"#,
            r#"{"_meta":{"ui":{"resourceUri":"a","resourceuri":"b"}}}"#,
            r#"{"arguments":[{"name":"a"},{"name":"b","name":"c"}]}"#,
            r#"{"x":[[[{"a":{},"a":{}}]]]}"#,
            r#"{"":1,"":2}"#,
        ] {
            assert!(with(text, repeats), "{text}");
        }
    }

    #[test]
    fn what_every_reader_sees_alike_is_none() {
        for text in [
            "{}",
            "7",
            r#"{"name":"a","title":"name","inputSchema":{"name":1,"properties":{"name":{"name":1}}}}"#,
            r#"{"inputSchema":{"properties":{"c":{},"C":{},"k":{},"\u212a":{}}}}"#,
            r#"{"_meta":{"x":{"y":{"a":1,"A":2}}}}"#,
            r#"{"arguments":[{"name":"a","Name":"b"},{"name":"a"}]}"#,
            r#"{"a":[{"b":1},{"b":2}],"b":1}"#,
            r#"{"a":{"b":{"c":1}},"b":{"b":{"c":1}},"c":{"a":{"c":1}}}"#,
        ] {
            assert!(!with(text, repeats), "{text}");
        }
    }

    #[test]
    fn known_members_are_written_one_way() {
        for (text, expected) in [
            ("{}", false),
            (r#"{"tools":[],"nextCursor":"a","x":{"y":1,"y":2}}"#, false),
            (r#"{"to\u006fls":[]}"#, false),
            (r#"{"tools":[],"tools":[]}"#, true),
            (r#"{"Tools":[]}"#, true),
            (r#"{"next\u0000Cursor":1}"#, true),
            (r#"{"x":1,"X":2}"#, true),
            (r#"{"x":1,"\ud800":2}"#, true),
        ] {
            assert_eq!(
                with(text, |object| is_ambiguous(object, &["tools", "nextCursor"])),
                expected,
                "{text}"
            );
        }
    }
}
