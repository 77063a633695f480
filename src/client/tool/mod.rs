//! Tools as a person at a terminal meets them: arguments as flags, and what a call gave. Pure.
//!
//! | file | what it is |
//! |---|---|
//! | `flags.rs` | the flags that a tool's `inputSchema` makes |
//! | `words.rs` | what a person typed, as arguments |
//! | `fit.rs` | whether a value fits a schema |
//! | `result.rs` | what a result holds |
//!
//! Invariants: a server's schemas are followed to a fixed depth and number of flags; nothing is fetched.

pub mod fit;
pub mod flags;
pub mod result;
pub mod words;

use serde_json::Value;

use self::flags::Flag;

/// A tool of a list.
#[derive(Clone, Debug)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// Its name for people.
    pub title: Option<String>,
    /// What it does.
    pub description: Option<String>,
    /// What it takes, as flags.
    pub flags: Vec<Flag>,
    /// The whole definition.
    pub definition: Value,
}

impl Tool {
    /// Reads an entry of `tools/list`; `None` if it has no name.
    pub fn read(definition: &Value) -> Option<Self> {
        let text = |key: &str| definition.get(key).and_then(Value::as_str).map(str::to_owned);
        let annotated = definition.get("annotations").and_then(|hints| hints.get("title")?.as_str());
        Some(Self {
            name: text("name")?,
            title: text("title").or_else(|| annotated.map(str::to_owned)),
            description: text("description"),
            flags: flags::of(definition.get("inputSchema").unwrap_or(&Value::Null)),
            definition: definition.clone(),
        })
    }

    /// What it takes: a JSON Schema.
    pub fn input_schema(&self) -> Option<&Value> {
        self.definition.get("inputSchema")
    }

    /// What its structured content is: a JSON Schema.
    pub fn output_schema(&self) -> Option<&Value> {
        self.definition.get("outputSchema").filter(|schema| schema.is_object())
    }

    /// What it says about its effects, in words.
    pub fn effects(&self) -> Vec<&'static str> {
        let hints = self.definition.get("annotations");
        let hint = |key: &str| hints.and_then(|hints| hints.get(key)?.as_bool());
        let mut effects = Vec::new();
        match (hint("readOnlyHint"), hint("destructiveHint")) {
            (Some(true), _) => effects.push("reads only"),
            (_, Some(true)) => effects.push("may destroy"),
            (_, Some(false)) => effects.push("adds only"),
            _ => {}
        }
        if hint("readOnlyHint") != Some(true) && hint("idempotentHint") == Some(true) {
            effects.push("safe to repeat");
        }
        match hint("openWorldHint") {
            Some(true) => effects.push("reaches outside"),
            Some(false) => effects.push("stays inside"),
            None => {}
        }
        effects
    }
}

/// The names that are nearest to `written`, at most three.
pub fn nearest<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    const LENGTH_MAX: usize = 128;
    let plain = |name: &str| name.to_lowercase().replace(['-', '.', ' '], "_");
    let wanted = plain(written);
    let length = wanted.chars().count();
    if length > LENGTH_MAX {
        return Vec::new();
    }
    let distance = |name: &str| {
        let name = plain(name);
        // The name without what stands before it, as in `server__tool`, is what people remember.
        let last = name.rsplit("__").next().unwrap_or(&name);
        let whole = strsim::osa_distance(&wanted, &name);
        let part = strsim::osa_distance(&wanted, last);
        let is_in = length >= 3 && (name.contains(&wanted) || wanted.contains(last) && last.len() >= 3);
        whole.min(part).min(if is_in { 1 } else { usize::MAX })
    };
    let short = names.into_iter().filter(|name| name.len() <= LENGTH_MAX);
    let mut near: Vec<(usize, &str)> = short.map(|name| (distance(name), name)).collect();
    near.retain(|(distance, _)| *distance <= 1 + length / 3);
    let best = near.iter().map(|(distance, _)| *distance).min().unwrap_or_default();
    near.retain(|(distance, _)| *distance <= best.max(1));
    near.sort_by_key(|(distance, name)| (*distance, name.len()));
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn near_names_are_found() {
        let names = ["weather__forecast", "weather__compare", "notes__add_note", "notes__delete_note"];
        for (written, near) in [
            ("forecast", vec!["weather__forecast"]),
            ("weather_forecast", vec!["weather__forecast"]),
            ("weather__forcast", vec!["weather__forecast"]),
            ("add-note", vec!["notes__add_note"]),
            ("note", vec!["notes__add_note", "notes__delete_note"]),
            ("x", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(nearest(written, names), near, "{written}");
        }
        assert!(nearest(&"a".repeat(100_000), names).is_empty());
    }

    #[test]
    fn effects_are_said_in_words() {
        for (hints, words) in [
            (json!({}), vec![]),
            (json!({"readOnlyHint": true, "destructiveHint": true}), vec!["reads only"]),
            (json!({"destructiveHint": true, "openWorldHint": false}), vec!["may destroy", "stays inside"]),
            (json!({"destructiveHint": false, "idempotentHint": true}), vec!["adds only", "safe to repeat"]),
            (json!({"readOnlyHint": "yes"}), vec![]),
        ] {
            let tool = Tool::read(&json!({"name": "a", "annotations": hints})).unwrap();
            assert_eq!(tool.effects(), words);
        }
        assert!(Tool::read(&json!({"title": "no name"})).is_none());
    }
}
