//! What a person typed behind a tool's name, as the arguments of a call.
//!
//! `--flag VALUE`, `--flag=VALUE`, `--switch`, `--no-switch`, lists by repetition, objects by `--outer.inner`; a JSON
//! object is the whole, to which flags add.

use serde_json::{Map, Number, Value};

use super::flags::{ArgKind, Flag, put};
use super::nearest;

/// How many values an error lists.
const CHOICES_SHOWN: usize = 20;

/// What is wrong with what was typed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    /// The tool has no such flag.
    #[error("the tool has no argument --{name}{}", advice(.nearest))]
    Unknown {
        /// What was typed.
        name: String,
        /// What it is like.
        nearest: Vec<String>,
    },
    /// A flag stands without its value.
    #[error("--{0} needs a value")]
    NoValue(String),
    /// A value is not what the flag takes.
    #[error("--{name}: {value:?} is not {expected}")]
    Value {
        /// The flag.
        name: String,
        /// What was typed.
        value: String,
        /// What it takes.
        expected: String,
    },
    /// A flag that takes one value has two.
    #[error("--{0} is given twice")]
    Twice(String),
    /// A word that belongs to nothing.
    #[error("{0:?} belongs to no argument: arguments are written --name value, or all together as JSON")]
    Stray(String),
    /// What is given as all arguments is no JSON object.
    #[error("{0} is not a JSON object{1}")]
    NotAnObject(String, String),
    /// It lacks what the tool requires.
    #[error("the tool needs {}", .0.join(", "))]
    Missing(Vec<String>),
}

fn advice(nearest: &[String]) -> String {
    match nearest {
        [] => String::new(),
        names => {
            let names: Vec<String> = names.iter().map(|name| format!("--{name}")).collect();
            format!("; did you mean {}?", names.join(" or "))
        }
    }
}

/// The arguments that words make, on top of `base`.
pub fn arguments(flags: &[Flag], words: &[String], base: Map<String, Value>) -> Result<Value, Mistake> {
    let mut arguments = base;
    let mut given: Vec<(&Flag, Vec<Value>)> = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(typed) = word.strip_prefix("--").filter(|typed| !typed.is_empty()) else {
            return Err(Mistake::Stray(word.clone()));
        };
        let (name, attached) = match typed.split_once('=') {
            // A property may have any name.
            Some(_) if flags.iter().any(|flag| flag.name() == typed) => (typed, None),
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (typed, None),
        };
        let (flag, is_negated) = find(flags, name)?;
        let value = match attached {
            _ if is_negated => "false".to_owned(),
            Some(value) => value,
            None if flag.kind == ArgKind::Boolean => {
                let next = words.as_slice().first().filter(|word| matches!(word.as_str(), "true" | "false"));
                if next.is_some() {
                    words.next();
                }
                next.map_or_else(|| "true".to_owned(), Clone::clone)
            }
            None => words.next().cloned().ok_or_else(|| Mistake::NoValue(flag.name()))?,
        };
        let values = values(flag, &value)?;
        match given.iter_mut().find(|(other, _)| other.path == flag.path) {
            Some((_, before)) if matches!(flag.kind, ArgKind::Many(_)) => before.extend(values),
            Some(_) => return Err(Mistake::Twice(flag.name())),
            None => given.push((flag, values)),
        }
    }
    for (flag, mut values) in given {
        let value = match flag.kind {
            ArgKind::Many(_) => Value::Array(values),
            _ => values.pop().unwrap_or(Value::Null),
        };
        put(&mut arguments, &flag.path, value);
    }
    missing(flags, &arguments)?;
    Ok(Value::Object(arguments))
}

/// The flag of this name, if the tool has one.
pub fn flag<'a>(flags: &'a [Flag], name: &str) -> Option<&'a Flag> {
    find(flags, name).ok().map(|(flag, _)| flag)
}

/// A JSON object that stands for all arguments; `what` names where it comes from.
pub fn object(what: &str, text: &str) -> Result<Map<String, Value>, Mistake> {
    let not_an_object = |why: String| Mistake::NotAnObject(what.to_owned(), why);
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(not_an_object(String::new())),
        Err(error) => Err(not_an_object(format!(": {error}"))),
    }
}

/// The value that a text is to a flag that takes one; of a list, one of its items.
pub fn value(flag: &Flag, kind: &ArgKind, text: &str) -> Result<Value, Mistake> {
    let wrong = |expected: &str| Mistake::Value {
        name: flag.name(),
        value: text.to_owned(),
        expected: expected.to_owned(),
    };
    let value = match kind {
        ArgKind::Text => Value::String(text.to_owned()),
        ArgKind::Integer => integer(text).ok_or_else(|| wrong("an integer"))?,
        ArgKind::Number => number(text).ok_or_else(|| wrong("a number"))?,
        ArgKind::Boolean => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "y" | "on" | "1" => Value::Bool(true),
            "false" | "no" | "n" | "off" | "0" => Value::Bool(false),
            _ => return Err(wrong("true or false")),
        },
        ArgKind::Json | ArgKind::Many(_) => serde_json::from_str(text).map_err(|_| wrong("JSON"))?,
        ArgKind::Any => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
    };
    if flag.choices.is_empty() || flag.choices.contains(&value) {
        return Ok(value);
    }
    // A choice may be a number that looks like text, or the other way round.
    let alike = flag.choices.iter().find(|choice| said(choice) == text);
    alike.cloned().ok_or_else(|| {
        let mut choices: Vec<String> = flag.choices.iter().map(said).take(CHOICES_SHOWN).collect();
        if flag.choices.len() > CHOICES_SHOWN {
            choices.push(format!("or {} more", flag.choices.len() - CHOICES_SHOWN));
        }
        wrong(&format!("one of {}", choices.join(", ")))
    })
}

/// A value as a person types it.
pub fn said(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn values(flag: &Flag, text: &str) -> Result<Vec<Value>, Mistake> {
    let ArgKind::Many(item) = &flag.kind else { return Ok(vec![value(flag, &flag.kind, text)?]) };
    if text.trim_start().starts_with('[')
        && let Ok(Value::Array(items)) = serde_json::from_str(text)
    {
        return Ok(items);
    }
    Ok(vec![value(flag, item, text)?])
}

/// The flag of this name, and whether it is negated.
fn find<'a>(flags: &'a [Flag], name: &str) -> Result<(&'a Flag, bool), Mistake> {
    let plain = |name: &str| name.to_lowercase().replace(['-', '_'], "");
    let by_name = |name: &str| {
        let exact = flags.iter().find(|flag| flag.name() == name);
        let mut alike = flags.iter().filter(|flag| plain(&flag.name()) == plain(name));
        exact.or_else(|| alike.next().filter(|_| alike.next().is_none()))
    };
    if let Some(flag) = by_name(name) {
        return Ok((flag, false));
    }
    let negated = name.strip_prefix("no-").and_then(by_name).filter(|flag| flag.kind == ArgKind::Boolean);
    if let Some(flag) = negated {
        return Ok((flag, true));
    }
    let names: Vec<String> = flags.iter().map(Flag::name).collect();
    let nearest = nearest(name, names.iter().map(String::as_str)).into_iter().map(str::to_owned).collect();
    Err(Mistake::Unknown { name: name.to_owned(), nearest })
}

fn missing(flags: &[Flag], arguments: &Map<String, Value>) -> Result<(), Mistake> {
    let is_there = |flag: &&Flag| {
        let (first, rest) = flag.path.split_first()?;
        rest.iter().try_fold(arguments.get(first)?, |value, key| value.get(key))
    };
    let required = flags.iter().filter(|flag| flag.is_required);
    let missing: Vec<String> = required
        .filter(|flag| is_there(flag).is_none())
        .map(|flag| {
            let value = flag.placeholder().unwrap_or("true|false");
            format!("--{} {value}", flag.name())
        })
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(Mistake::Missing(missing)) }
}

fn integer(text: &str) -> Option<Value> {
    let text = text.trim();
    let signed = text.parse::<i64>().map(Number::from).ok();
    signed.or_else(|| text.parse::<u64>().map(Number::from).ok()).map(Value::Number)
}

fn number(text: &str) -> Option<Value> {
    let finite = text.trim().parse::<f64>().ok().and_then(Number::from_f64);
    integer(text).or(finite.map(Value::Number))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::flags::of;
    use super::*;

    fn schema() -> Value {
        json!({
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "max_results": {"type": "number"},
                "units": {"type": "string", "enum": ["metric", "imperial"]},
                "level": {"enum": [1, 2]},
                "tags": {"type": "array", "items": {"type": "string"}},
                "verbose": {"type": "boolean"},
                "at": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}},
                "free": {"type": "object"},
                "either": {"type": ["string", "integer"]},
            },
            "required": ["city"],
        })
    }

    fn typed(words: &str) -> Result<Value, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        arguments(&of(&schema()), &words, Map::new()).map_err(|mistake| mistake.to_string())
    }

    #[test]
    fn words_become_arguments() {
        for (words, expected) in [
            ("--city Oslo", json!({"city": "Oslo"})),
            ("--city=Oslo --days -2", json!({"city": "Oslo", "days": -2})),
            ("--city 7 --max-results 1.5", json!({"city": "7", "max_results": 1.5})),
            ("--city a --maxResults 2", json!({"city": "a", "max_results": 2})),
            ("--city --days", json!({"city": "--days"})),
            ("--city a --tags x --tags=y", json!({"city": "a", "tags": ["x", "y"]})),
            ("--city a --tags [\"x\",\"y\"]", json!({"city": "a", "tags": ["x", "y"]})),
            ("--city a --tags [x", json!({"city": "a", "tags": ["[x"]})),
            ("--verbose --city a", json!({"verbose": true, "city": "a"})),
            ("--verbose false --city a", json!({"verbose": false, "city": "a"})),
            ("--no-verbose --city a", json!({"verbose": false, "city": "a"})),
            ("--city a --at.x 1 --at.y 2", json!({"city": "a", "at": {"x": 1, "y": 2}})),
            ("--city a --free {\"b\":[1]}", json!({"city": "a", "free": {"b": [1]}})),
            ("--city a --either 1", json!({"city": "a", "either": 1})),
            ("--city a --either b", json!({"city": "a", "either": "b"})),
            ("--city a --level 2", json!({"city": "a", "level": 2})),
        ] {
            assert_eq!(typed(words), Ok(expected), "{words}");
        }
    }

    #[test]
    fn mistakes_say_what_to_type() {
        for (words, expected) in [
            ("", "the tool needs --city TEXT"),
            ("--cty Oslo", "the tool has no argument --cty; did you mean --city?"),
            ("--qqqq 1", "the tool has no argument --qqqq"),
            ("--city", "--city needs a value"),
            ("--city a --city b", "--city is given twice"),
            ("--city a --days two", "--days: \"two\" is not an integer"),
            ("--city a --days 1.5", "--days: \"1.5\" is not an integer"),
            ("--city a --max-results inf", "--max_results: \"inf\" is not a number"),
            ("--city a --units big", "--units: \"big\" is not one of metric, imperial"),
            ("--city a --free {", "--free: \"{\" is not JSON"),
            (
                "Oslo",
                "\"Oslo\" belongs to no argument: arguments are written --name value, or all together as JSON",
            ),
        ] {
            assert_eq!(typed(words), Err(expected.to_owned()), "{words}");
        }
    }

    #[test]
    fn flags_add_to_json() {
        let base = object("it", r#"{"city":"Oslo","at":{"x":1}}"#).unwrap();
        let words = ["--at.y".to_owned(), "2".to_owned()];
        let all = arguments(&of(&schema()), &words, base).unwrap();
        assert_eq!(all, json!({"city": "Oslo", "at": {"x": 1, "y": 2}}));
        assert_eq!(object("it", "[]").unwrap_err().to_string(), "it is not a JSON object");
    }
}
