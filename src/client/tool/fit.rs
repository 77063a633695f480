//! Whether a value fits a JSON Schema. Nothing is fetched, and patterns take time that grows with the text alone.
//!
//! Both are a stranger's: schemas whose references multiply or do not end are refused, and what takes too long is given
//! up.

use std::collections::HashMap;
use std::sync::mpsc;
use std::time::Duration;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

/// How many faults are told.
const FAULTS_MAX: usize = 8;
/// How deep references may lead.
const REFERENCES_DEPTH_MAX: usize = 64;
/// How many schemas may apply to one value.
const SCHEMAS_MAX: u64 = 10_000;
/// How many references a schema may hold.
const REFERENCES_MAX: usize = 2000;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The stack for it: schemas may be nested.
const STACK_BYTES: usize = 256 << 20;

/// Why nothing can be said.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schema cannot be used: {0}")]
pub struct Unusable(pub String);

/// What does not fit, a line each; at most a few.
pub fn faults(schema: &Value, value: &Value) -> Result<Vec<String>, Unusable> {
    told(schema, value, false)
}

/// The same for what a person typed into a form, where a `format` is meant.
pub fn faults_of_field(schema: &Value, value: &Value) -> Result<Vec<String>, Unusable> {
    told(schema, value, true)
}

/// Why a schema is of no use, if it is not.
pub fn unusable(schema: &Value) -> Option<Unusable> {
    told(schema, &Value::Null, false).err()
}

fn told(schema: &Value, value: &Value, with_formats: bool) -> Result<Vec<String>, Unusable> {
    ends(schema)?;
    let (schema, value) = (schema.clone(), value.clone());
    let (sender, outcome) = mpsc::sync_channel(1);
    // Nothing ends a check from outside: one that takes too long is left behind, and ends with the process.
    std::thread::Builder::new()
        .name("schema".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || sender.send(checked(&schema, &value, with_formats)))
        .map_err(|error| Unusable(error.to_string()))?;
    match outcome.recv_timeout(PATIENCE) {
        Ok(faults) => faults,
        Err(_) => Err(Unusable("checking against it takes too long".to_owned())),
    }
}

fn checked(schema: &Value, value: &Value, with_formats: bool) -> Result<Vec<String>, Unusable> {
    let faults = validator(schema, with_formats)?
        .iter_errors(value)
        .take(FAULTS_MAX)
        .map(|error| {
            let place = error.instance_path().to_string();
            let place = place.trim_start_matches('/').replace('/', ".");
            if place.is_empty() { error.to_string() } else { format!("{place}: {error}") }
        })
        .collect();
    Ok(faults)
}

fn validator(schema: &Value, with_formats: bool) -> Result<Validator, Unusable> {
    jsonschema::options()
        .with_pattern_options(PatternOptions::regex())
        .should_validate_formats(with_formats)
        .build(schema)
        .map_err(|error| Unusable(error.to_string()))
}

/// Refuses schemas whose references lead back to themselves without a value in between, which have no end, and those
/// where this cannot be told.
fn ends(root: &Value) -> Result<(), Unusable> {
    let refused = |why: &str| Err(Unusable(why.to_owned()));
    let mut applied = Applied { root, counts: HashMap::new() };
    let mut references = 0;
    let mut has_inner_id = false;
    let mut waiting = vec![root];
    while let Some(schema) = waiting.pop() {
        match schema {
            Value::Object(members) => waiting.extend(members.values()),
            Value::Array(items) => waiting.extend(items),
            _ => continue,
        }
        let text = |key: &str| schema.get(key).and_then(Value::as_str);
        has_inner_id |= text("$id").is_some() && !std::ptr::eq(schema, root);
        if text("$dynamicRef").is_some() || schema.get("$recursiveRef").is_some() {
            return refused("it has references that depend on where they are used");
        }
        let Some(reference) = text("$ref") else { continue };
        references += 1;
        let is_pointer = reference == "#" || reference.starts_with("#/");
        if !is_pointer || reference.contains('%') {
            return refused("it has references other than to a place in itself, such as #/$defs/name");
        }
        if references > REFERENCES_MAX {
            return refused("it has too many references");
        }
        match applied.count(schema, 0) {
            None => return refused("references in it lead back to where they began, or on too far"),
            Some(count) if count > SCHEMAS_MAX => return refused("its references multiply"),
            Some(_) => {}
        }
    }
    if has_inner_id && references > 0 {
        return refused("it has references and is made of several documents");
    }
    Ok(())
}

/// How many schemas apply to the same value, for each schema that was asked about.
struct Applied<'a> {
    root: &'a Value,
    counts: HashMap<*const Value, u64>,
}

impl<'a> Applied<'a> {
    /// The schemas that apply to what `schema` applies to; `None`: there is no end.
    fn count(&mut self, schema: &'a Value, depth: usize) -> Option<u64> {
        if depth > REFERENCES_DEPTH_MAX {
            return None;
        }
        let key = std::ptr::from_ref(schema);
        if let Some(count) = self.counts.get(&key) {
            return Some(*count);
        }
        let reference = schema.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix('#'));
        let target = reference.and_then(|pointer| self.root.pointer(pointer));
        let lists = ["allOf", "anyOf", "oneOf"].iter().filter_map(|key| schema.get(*key)?.as_array());
        let single = ["not", "if", "then", "else"].iter().filter_map(|key| schema.get(*key));
        let named =
            ["dependentSchemas", "dependencies"].iter().filter_map(|key| schema.get(*key)?.as_object());
        let inner =
            target.into_iter().chain(lists.flatten()).chain(single).chain(named.flat_map(|all| all.values()));
        let mut count: u64 = 1;
        for schema in inner {
            count = count.saturating_add(self.count(schema, depth + 1)?);
        }
        self.counts.insert(key, count);
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn faults_name_the_place() {
        let schema = json!({
            "type": "object",
            "properties": {"days": {"type": "integer", "maximum": 7}, "at": {"properties": {"x": {"type": "number"}}}},
            "additionalProperties": false,
        });
        assert_eq!(faults(&schema, &json!({"days": 2})), Ok(vec![]));
        let faults = faults(&schema, &json!({"days": 9, "at": {"x": "1"}, "b": 1})).unwrap();
        assert!(faults.iter().any(|fault| fault.starts_with("days: 9 is greater than")), "{faults:?}");
        assert!(faults.iter().any(|fault| fault.starts_with("at.x: ")), "{faults:?}");
        assert_eq!(faults.len(), 3);
    }

    #[test]
    fn hostile_schemas_are_refused_or_end() {
        let refused = |schema: Value| assert!(faults(&schema, &json!({})).is_err(), "{schema}");
        refused(json!({"$ref": "http://127.0.0.1:1/schema"}));
        refused(json!({"$ref": "#"}));
        refused(json!({"$ref": "#a", "$anchor": "a"}));
        refused(json!({"$dynamicRef": "#a", "$dynamicAnchor": "a"}));
        refused(json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": "#"}));
        refused(json!({"$ref": "#/%24defs/a", "$defs": {"a": {"$ref": "#/%24defs/a"}}}));
        refused(json!({"properties": {"a": {"$id": "x:a", "$ref": "#"}}}));
        refused(json!({"dependentSchemas": {"a": {"$ref": "#"}}}));
        let (a, b) = (json!({"$ref": "#/$defs/b"}), json!({"allOf": [{"$ref": "#/$defs/a"}]}));
        refused(json!({"$defs": {"a": a, "b": b}, "$ref": "#/$defs/a"}));
        refused(json!({"type": 7}));
        let tree = json!({"properties": {"child": {"$ref": "#"}}, "type": "object"});
        assert_eq!(faults(&tree, &json!({"child": {"child": {}}})), Ok(vec![]));
        let slow = json!({"pattern": "^(a+)+$"});
        assert!(!faults(&slow, &json!("a".repeat(50_000) + "b")).unwrap().is_empty());
    }

    fn chained(length: usize, link: impl Fn(Value) -> Value) -> Value {
        let definition = |n: usize| (n.to_string(), link(json!({"$ref": format!("#/$defs/{}", n + 1)})));
        let mut definitions: serde_json::Map<_, _> = (0..length).map(definition).collect();
        definitions.insert(length.to_string(), json!({"type": "string"}));
        json!({"$defs": definitions, "$ref": "#/$defs/0"})
    }

    #[test]
    fn references_that_multiply_are_given_up() {
        let started = std::time::Instant::now();
        let twice = chained(20, |next| json!({"allOf": [next, next]}));
        assert_eq!(faults(&twice, &json!({})), Err(Unusable("its references multiply".to_owned())));
        let long = chained(1900, |next| json!({"properties": {"a": next}}));
        assert_eq!(faults(&long, &json!({"a": {}})), Ok(vec![]));
        let wide = chained(30, |next| json!({"properties": {"a": next, "b": next}}));
        assert_eq!(faults(&wide, &json!({"a": {}})), Ok(vec![]));
        let endless = chained(100_000, |next| json!({"properties": {"a": next}}));
        assert_eq!(faults(&endless, &json!({})), Err(Unusable("it has too many references".to_owned())));
        let again =
            json!({"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]});
        let deep = (0..60).fold(json!({}), |inner, _| json!({"a": inner}));
        // However it ends, it does.
        let _ = faults(&again, &deep);
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    }
}
