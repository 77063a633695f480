//! A tool as legacy clients take it, and what only legacy servers say of theirs.
//!
//! Clients of the legacy era check a list of tools as a whole, and give up all of it for one tool that is not as their
//! revision says (2025-11-25, `Tool`): the schema of what a tool returns is of type `object`, and what is said of a
//! property is an object, too.

use super::members::Edits;
use crate::json::Value;
use crate::splice::Edit;

/// Schemas that are no objects, and objects that say the same (JSON Schema 2020-12, 4.3.2).
const BOOLEANS: [(&str, &str); 2] = [("true", "{}"), ("false", r#"{"not":{}}"#)];

/// What is written otherwise in the entry of a tool. In order, and none overlaps another.
pub fn to_legacy(tool: Value<'_>) -> Vec<Edit> {
    let mut edits = Edits::default();
    if let Some(schema) = tool.get("inputSchema") {
        add_properties(schema, &mut edits);
    }
    match tool.get("outputSchema") {
        Some(schema) if !schema.get("type").is_some_and(|kind| kind.is("object")) => {
            edits.members(tool, |key| key == "outputSchema", "");
        }
        Some(schema) => add_properties(schema, &mut edits),
        None => {}
    }
    edits.sorted()
}

/// Whether a legacy server runs it as a task and not otherwise (2025-11-25 Tasks, "Tool-Level Negotiation").
pub fn is_task_only(tool: Value<'_>) -> bool {
    let support = tool.get("execution").and_then(|execution| execution.get("taskSupport"));
    support.is_some_and(|support| support.is("required"))
}

fn add_properties(schema: Value<'_>, edits: &mut Edits) {
    for (_, property) in schema.get("properties").into_iter().flat_map(Value::entries) {
        let object = BOOLEANS.into_iter().find(|(boolean, _)| property.source() == *boolean);
        edits.rename(Some(property), object.map(|(_, object)| object));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    use crate::json::Scratch;
    use crate::splice::splice;

    #[test]
    fn what_legacy_clients_refuse_is_said_otherwise() {
        for (tool, expected) in [
            (r#"{"name":"t"}"#, r#"{"name":"t"}"#),
            (
                r#"{"name":"t","outputSchema":{ "type":"object","properties":{"a":{}} },"x":1}"#,
                r#"{"name":"t","outputSchema":{ "type":"object","properties":{"a":{}} },"x":1}"#,
            ),
            (r#"{"name":"t","outputSchema":{"type":"array"},"x":1}"#, r#"{"name":"t","x":1}"#),
            (r#"{"outputSchema":{"type":["object","null"]} , "name":"t"}"#, r#"{"name":"t"}"#),
            (r#"{"name":"t","outputSchema":true}"#, r#"{"name":"t"}"#),
            (r#"{"name":"t","outputSchema":{"$ref":"x"},"outputSchema":7}"#, r#"{"name":"t"}"#),
            (
                r#"{"outputSchema":{"type":"object","properties":{"a":true,"b":{"properties":{"c":true}}}},"inputSchema":{"type":"object","properties":{"a":false,"b": true }}}"#,
                r#"{"outputSchema":{"type":"object","properties":{"a":{},"b":{"properties":{"c":true}}}},"inputSchema":{"type":"object","properties":{"a":{"not":{}},"b": {} }}}"#,
            ),
            (r#"{"outputSchema":{"properties":{"a":true}}}"#, "{}"),
        ] {
            let mut scratch = Scratch::default();
            let root = scratch.index(tool.as_bytes(), 16).expect("JSON").root();
            let found = splice(&Bytes::copy_from_slice(tool.as_bytes()), &to_legacy(root)).to_bytes();
            assert_eq!(String::from_utf8_lossy(&found), expected, "{tool}");
        }
    }
}
