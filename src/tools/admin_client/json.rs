//! Taking JSON apart that may be anything. Pure.
//!
//! What is missing, or of another type than it should be, is unknown; nothing is an error.

use serde_json::Value;

/// Entries of one list that are read.
const ENTRIES_MAX: usize = 10_000;
/// Characters of a text that are kept.
const TEXT_CHARS_MAX: usize = 2000;

static NULL: Value = Value::Null;

/// The member of this name; null if there is none.
pub fn member<'a>(of: &'a Value, name: &str) -> &'a Value {
    of.get(name).unwrap_or(&NULL)
}

/// A number.
pub fn number(of: &Value, name: &str) -> Option<f64> {
    member(of, name).as_f64().filter(|number| number.is_finite())
}

/// A count; 0 if it is unknown.
pub fn count(of: &Value, name: &str) -> u64 {
    known_count(of, name).unwrap_or_default()
}

/// A count.
pub fn known_count(of: &Value, name: &str) -> Option<u64> {
    member(of, name).as_u64()
}

/// True or false.
pub fn flag(of: &Value, name: &str) -> Option<bool> {
    member(of, name).as_bool()
}

/// A text, cut where it is too long; empty if it is unknown.
pub fn text(of: &Value, name: &str) -> String {
    known_text(of, name).unwrap_or_default()
}

/// A text, cut where it is too long.
pub fn known_text(of: &Value, name: &str) -> Option<String> {
    member(of, name).as_str().map(cut)
}

/// The texts of a list.
pub fn texts(of: &Value, name: &str) -> Vec<String> {
    entries(of, name).iter().filter_map(Value::as_str).map(cut).collect()
}

/// The entries of a list, each read by `read`.
pub fn each<T>(of: &Value, name: &str, read: impl Fn(&Value) -> T) -> Vec<T> {
    entries(of, name).iter().map(read).collect()
}

/// The counts of an object, by name; the largest first.
pub fn counts(of: &Value, name: &str) -> Vec<(String, u64)> {
    let all = member(of, name).as_object().into_iter().flatten().take(ENTRIES_MAX);
    let mut counts: Vec<_> = all.filter_map(|(name, count)| Some((cut(name), count.as_u64()?))).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

/// An object, read by `read`.
pub fn object<T>(of: &Value, name: &str, read: impl FnOnce(&Value) -> T) -> Option<T> {
    Some(member(of, name)).filter(|value| value.is_object()).map(read)
}

fn entries<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    let all = member(of, name).as_array().map_or(&[][..], Vec::as_slice);
    &all[..all.len().min(ENTRIES_MAX)]
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_of_another_type_is_unknown() {
        for value in [
            json!(null),
            json!(7),
            json!("x"),
            json!([1]),
            json!({}),
            json!({"a": null}),
            json!({"a": {"b": [{}]}}),
        ] {
            assert_eq!(number(&value, "a"), None, "{value}");
            assert_eq!(known_count(&value, "a"), None, "{value}");
            assert_eq!(flag(&value, "a"), None, "{value}");
            assert_eq!(known_text(&value, "a"), None, "{value}");
            assert!(texts(&value, "a").is_empty(), "{value}");
        }
        let counted = json!({"a": {"x": 1, "y": 2, "z": "3"}});
        assert_eq!(counts(&counted, "a"), [("y".to_owned(), 2), ("x".to_owned(), 1)]);
        assert_eq!(count(&json!({"a": -1}), "a"), 0);
        assert_eq!(count(&json!({"a": 1.5}), "a"), 0);
        assert_eq!(texts(&json!({"a": ["x", 1, null, "y"]}), "a"), ["x", "y"]);
        assert_eq!(text(&json!({"a": "é".repeat(5000)}), "a").chars().count(), TEXT_CHARS_MAX);
    }
}
