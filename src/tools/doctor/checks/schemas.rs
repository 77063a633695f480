//! Schemas of tools: whether they are schemas, and what model APIs can do with them. Pure.
//!
//! Nothing is fetched and nothing is followed: a reference is judged by its text.

use std::collections::HashSet;

use serde_json::Value;

use crate::doctor::facts::clip;
use client::tool::fit;

/// Deeper schemas are filled in badly; the strictest of the common model APIs stops at ten levels of objects,
/// which are two levels of schema each.
const DEPTH_MAX: usize = 20;
const BYTES_MAX: usize = 32 * 1024;
/// What is checked against the meta-schema: more than that is reported for its size.
const CHECKED_BYTES_MAX: usize = 1 << 20;

/// What is wrong with a schema, by rule.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Faults {
    pub(super) invalid: Option<String>,
    pub(super) reference: Option<String>,
    pub(super) size: Option<String>,
}

pub(super) fn faults(schema: &Value) -> Faults {
    let bytes = schema.to_string().len();
    let depth = depth(schema);
    let size = if bytes > BYTES_MAX {
        Some(format!("{} KiB", bytes >> 10))
    } else {
        (depth > DEPTH_MAX).then(|| format!("{depth} levels"))
    };
    let invalid = if bytes > CHECKED_BYTES_MAX { None } else { invalid(schema) };
    let mut targets = HashSet::new();
    collect_targets(schema, &mut targets);
    Faults { invalid, reference: reference(schema, schema, &targets), size }
}

fn invalid(schema: &Value) -> Option<String> {
    if !schema.is_object() {
        return Some(format!("it is {}, not an object", clip(&schema.to_string(), 40)));
    }
    let Some(dialect) = fit::dialect_of(schema) else {
        let dialect = clip(&schema["$schema"].to_string(), 80);
        return Some(format!("$schema is {dialect}, a dialect that few know"));
    };
    let fault = fit::fault_of_schema(schema, dialect)?;
    let place = if fault.place.is_empty() { "its root".to_owned() } else { clip(&fault.place, 80) };
    Some(format!("at {place}: {}", clip(&fault.why, 160)))
}

/// What an input schema must be besides a schema.
pub(super) fn not_of_object(schema: &Value) -> Option<String> {
    match schema.get("type") {
        Some(Value::String(kind)) if kind == "object" => None,
        Some(other) => Some(format!("its type is {}, not \"object\"", clip(&other.to_string(), 40))),
        None => Some("its root has no \"type\": \"object\"".to_owned()),
    }
}

/// What a reference may name besides a place: anchors, behind `#`, and parts with an `$id`.
fn collect_targets(schema: &Value, targets: &mut HashSet<String>) {
    match schema {
        Value::Object(members) => members.iter().for_each(|(key, value)| {
            match (key.as_str(), value.as_str()) {
                ("$anchor" | "$dynamicAnchor", Some(anchor)) => _ = targets.insert(format!("#{anchor}")),
                ("$id" | "id", Some(id)) => _ = targets.insert(id.to_owned()),
                _ => {}
            }
            collect_targets(value, targets);
        }),
        Value::Array(values) => values.iter().for_each(|value| collect_targets(value, targets)),
        _ => {}
    }
}

/// The first reference that leads outside, or nowhere.
fn reference(schema: &Value, root: &Value, targets: &HashSet<String>) -> Option<String> {
    match schema {
        Value::Object(members) => members.iter().find_map(|(key, value)| {
            let target =
                value.as_str().filter(|_| matches!(key.as_str(), "$ref" | "$dynamicRef" | "$recursiveRef"));
            match target.filter(|target| !leads_somewhere(target, root, targets)) {
                Some(target) => Some(format!("{key} {:?}", clip(target, 100))),
                // These hold values, not schemas.
                None if matches!(key.as_str(), "const" | "enum" | "default" | "examples") => None,
                None => reference(value, root, targets),
            }
        }),
        Value::Array(values) => values.iter().find_map(|value| reference(value, root, targets)),
        _ => None,
    }
}

fn leads_somewhere(target: &str, root: &Value, targets: &HashSet<String>) -> bool {
    if targets.contains(target) {
        return true;
    }
    let (document, fragment) = target.split_once('#').unwrap_or((target, ""));
    let has_document = document.is_empty() || targets.contains(document);
    let has_fragment = match fragment {
        "" => true,
        pointer if pointer.starts_with('/') => {
            // Below a part with an `$id` of its own, or in an encoded form, it is not looked for.
            !document.is_empty() || pointer.contains('%') || root.pointer(pointer).is_some()
        }
        anchor => targets.contains(&format!("#{anchor}")),
    };
    has_document && has_fragment
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Array(values) => 1 + values.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schemas_are_judged_without_asking_anybody() {
        let mut deep = json!({"type": "string"});
        for _ in 0..15 {
            deep = json!({"type": "object", "properties": {"a": deep}});
        }
        for (schema, invalid, reference, size) in [
            (json!({"type": "object", "properties": {"a": {"type": "string"}}}), false, false, false),
            (json!({"type": "object", "properties": {"a": {"type": "text"}}}), true, false, false),
            (json!({"type": "object", "required": "a"}), true, false, false),
            (
                json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}),
                false,
                false,
                false,
            ),
            (json!({"$schema": "https://example.com/mine", "type": "object"}), true, false, false),
            (json!(null), true, false, false),
            (json!(true), true, false, false),
            (json!({"$ref": "https://example.com/x.json"}), false, true, false),
            (json!({"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {}}}), false, false, false),
            (json!({"properties": {"a": {"$ref": "#/$defs/c"}}, "$defs": {"b": {}}}), false, true, false),
            (
                json!({"properties": {"a": {"$ref": "#n"}}, "$defs": {"b": {"$anchor": "n"}}}),
                false,
                false,
                false,
            ),
            (
                json!({"$id": "https://example.com/s", "properties": {"a": {"$ref": "https://example.com/s#/properties"}}}),
                false,
                false,
                false,
            ),
            (json!({"default": {"$ref": "https://example.com/x.json"}}), false, false, false),
            (
                json!({"$schema": "https://json-schema.org/draft-07/schema", "type": "object"}),
                false,
                false,
                false,
            ),
            (json!({"$schema": "https://example.com/draft-07/schema", "type": "object"}), true, false, false),
            (json!({"$schema": 7}), true, false, false),
            (json!({"description": "x".repeat(40_000)}), false, false, true),
            (deep, false, false, true),
        ] {
            let found = faults(&schema);
            let shown = clip(&schema.to_string(), 100);
            assert_eq!(found.invalid.is_some(), invalid, "{shown}: {found:?}");
            assert_eq!(found.reference.is_some(), reference, "{shown}: {found:?}");
            assert_eq!(found.size.is_some(), size, "{shown}: {found:?}");
        }
    }

    #[test]
    fn many_references_take_no_longer_than_few() {
        let references: Vec<_> = (0..50_000).map(|_| json!({"$ref": "#n"})).collect();
        let schema = json!({"$defs": {"n": {"$anchor": "n"}}, "anyOf": references});
        let started = std::time::Instant::now();
        assert!(faults(&schema).reference.is_none());
        assert!(started.elapsed() < std::time::Duration::from_secs(20));
    }

    #[test]
    fn input_is_an_object() {
        assert!(not_of_object(&json!({"type": "object"})).is_none());
        for schema in [json!({}), json!({"type": ["object"]}), json!({"type": "array"})] {
            assert!(not_of_object(&schema).is_some(), "{schema}");
        }
    }
}
