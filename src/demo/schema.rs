//! The schemas of tools: how they are written, and the check of arguments, so that the schema a client reads is the one
//! that is enforced.
//!
//! What is deliberately absent: the rest of JSON Schema. It knows the keywords the demo tools use: `type`,
//! `properties`, `required`, `additionalProperties: false`, `items`, `minItems`, `maxItems`, `minimum`,
//! `maximum`, `minLength`, `maxLength` (in characters). An integer is written without a fraction: `3`, not
//! `3.0`.

use serde_json::{Value, json};

/// The schema of an object that has all `properties` but those with a default.
pub(super) fn object(properties: &Value) -> Value {
    let needed = properties.as_object().into_iter().flatten();
    let needed = needed.filter(|(_, schema)| schema.get("default").is_none()).map(|(name, _)| name.as_str());
    let required: Vec<&str> = needed.collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

/// The schema of a tool's arguments: the same, and nothing else is taken.
pub(super) fn arguments(properties: &Value) -> Value {
    let mut schema = object(properties);
    schema["additionalProperties"] = Value::Bool(false);
    schema
}

/// `Err` says what is wrong and where, for instance `days must be at most 7`.
pub(super) fn check(schema: &Value, value: &Value) -> Result<(), String> {
    check_at("arguments", schema, value)
}

fn check_at(place: &str, schema: &Value, value: &Value) -> Result<(), String> {
    check_type(place, schema, value)?;
    check_bounds(place, schema, value)?;
    if let Value::Object(object) = value {
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !object.contains_key(name) {
                return Err(format!("Missing required property '{name}'"));
            }
        }
        for (name, inner) in object {
            match schema["properties"].get(name) {
                Some(schema) => check_at(name, schema, inner)?,
                None if schema["additionalProperties"] == false => {
                    return Err(format!("Unknown property '{name}'"));
                }
                None => {}
            }
        }
    }
    if let (Value::Array(items), Some(schema)) = (value, schema.get("items")) {
        for item in items {
            check_at(place, schema, item)?;
        }
    }
    Ok(())
}

fn check_type(place: &str, schema: &Value, value: &Value) -> Result<(), String> {
    let Some(expected) = schema["type"].as_str() else { return Ok(()) };
    let fits = match expected {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        _ => false,
    };
    if fits { Ok(()) } else { Err(format!("{place} must be of type {expected}")) }
}

fn check_bounds(place: &str, schema: &Value, value: &Value) -> Result<(), String> {
    let (size, least, most, unit) = match value {
        Value::Number(number) => (number.as_f64(), "minimum", "maximum", ""),
        Value::String(text) => (count(text.chars().count()), "minLength", "maxLength", " characters"),
        Value::Array(items) => (count(items.len()), "minItems", "maxItems", " items"),
        _ => return Ok(()),
    };
    let Some(size) = size else { return Ok(()) };
    match (schema[least].as_f64(), schema[most].as_f64()) {
        (Some(least), _) if size < least => Err(format!("{place} must be at least {least}{unit}")),
        (_, Some(most)) if size > most => Err(format!("{place} must be at most {most}{unit}")),
        _ => Ok(()),
    }
}

fn count(number: usize) -> Option<f64> {
    u32::try_from(number).ok().map(f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked_and_the_first_fault_is_named() {
        let schema = json!({
            "type": "object",
            "properties": {
                "city": { "type": "string", "minLength": 1, "maxLength": 3 },
                "days": { "type": "integer", "minimum": 1, "maximum": 7 },
                "tags": { "type": "array", "items": { "type": "string" }, "maxItems": 2 },
                "share": { "type": "number" },
                "ok": { "type": "boolean" }
            },
            "required": ["city"],
            "additionalProperties": false
        });
        let cases = [
            (json!({ "city": "öö", "days": 7, "tags": ["a", "b"], "share": 0.5, "ok": true }), None),
            (json!([]), Some("arguments must be of type object")),
            (json!({}), Some("Missing required property 'city'")),
            (json!({ "city": "a", "town": 1 }), Some("Unknown property 'town'")),
            (json!({ "city": 1 }), Some("city must be of type string")),
            (json!({ "city": null }), Some("city must be of type string")),
            (json!({ "city": "" }), Some("city must be at least 1 characters")),
            (json!({ "city": "öööö" }), Some("city must be at most 3 characters")),
            (json!({ "city": "a", "days": 0 }), Some("days must be at least 1")),
            (json!({ "city": "a", "days": 8 }), Some("days must be at most 7")),
            (json!({ "city": "a", "days": 2.5 }), Some("days must be of type integer")),
            (json!({ "city": "a", "tags": ["a", 1] }), Some("tags must be of type string")),
            (json!({ "city": "a", "tags": ["a", "b", "c"] }), Some("tags must be at most 2 items")),
            (json!({ "city": "a", "share": "1" }), Some("share must be of type number")),
            (json!({ "city": "a", "ok": 1 }), Some("ok must be of type boolean")),
        ];
        for (arguments, expected) in cases {
            assert_eq!(check(&schema, &arguments).err().as_deref(), expected, "{arguments}");
        }
    }
}
