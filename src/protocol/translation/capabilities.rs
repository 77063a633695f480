//! Capabilities, without what cannot be used across the eras: tasks, which are not the same thing in both, and changes
//! of roots, of which no modern server can be told.

use bytes::Bytes;

use super::members;
use crate::json::{Document, Kind, Scratch};
use crate::splice::splice;

const TASKS: &str = "tasks";
const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Capabilities of a client or a server as the other era may be shown them. `{}` for what is no object.
pub fn across(capabilities: &Bytes, (scratch, depth_max): (&mut Scratch, usize)) -> Bytes {
    let root = scratch.index(capabilities, depth_max).map(Document::root);
    let Some(root) = root.ok().filter(|root| root.kind() == Kind::Object) else {
        return Bytes::from_static(b"{}");
    };
    let mut edits = members::edits(root, |key| key.equals(capabilities, TASKS), "");
    for (of, name) in [("extensions", TASKS_EXTENSION), ("roots", "listChanged")] {
        if let Some(object) = root.get(of).filter(|object| object.kind() == Kind::Object) {
            edits.extend(members::edits(object, |key| key.equals(capabilities, name), ""));
        }
    }
    edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
    splice(capabilities, &edits).to_bytes()
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
