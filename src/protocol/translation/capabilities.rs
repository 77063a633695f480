//! Capabilities, without what cannot be used across the eras: tasks, which are not the same thing in both, and changes
//! of roots, of which no modern server can be told.

use bytes::Bytes;

use super::members::Edits;
use crate::json::{Document, Scratch, Value};

const TASKS: &str = "tasks";
const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Capabilities of a client or a server as the other era may be shown them. `{}` for what is no object.
pub fn across(capabilities: &Bytes, (scratch, depth_max): (&mut Scratch, usize)) -> Bytes {
    let root = scratch.index(capabilities, depth_max).map(Document::root);
    let Some(root) = root.ok().and_then(Value::as_object) else { return Bytes::from_static(b"{}") };
    let mut edits = Edits::default();
    edits.members(root, |key| key == TASKS, "");
    for (of, name) in [("extensions", TASKS_EXTENSION), ("roots", "listChanged")] {
        root.object(of).into_iter().for_each(|object| edits.members(object, |key| key == name, ""));
    }
    edits.apply(capabilities).to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_both_eras_know_crosses() {
        for (capabilities, expected) in [
            ("{}", "{}"),
            ("[]", "{}"),
            ("{", "{}"),
            (
                r#"{"sampling":{"tools":{}},"tasks":{"list":{}},"elicitation":{"url":{}}}"#,
                r#"{"sampling":{"tools":{}},"elicitation":{"url":{}}}"#,
            ),
            (r#"{"roots":{"listChanged":true},"tasks":{}}"#, r#"{"roots":{}}"#),
            (
                r#"{"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{"a":1}}}"#,
                r#"{"extensions":{"io.modelcontextprotocol/ui":{"a":1}}}"#,
            ),
            (r#"{"experimental":{"tasks":{}}, "x":1}"#, r#"{"experimental":{"tasks":{}}, "x":1}"#),
        ] {
            let found = across(&Bytes::from(capabilities), (&mut Scratch::default(), 16));
            assert_eq!(String::from_utf8_lossy(&found), expected, "{capabilities}");
        }
    }
}
