//! The flags that a tool's `inputSchema` makes.
//!
//! A property is a flag; the properties of an object are `--outer.inner`. What cannot be typed as a word is JSON.

use serde_json::{Map, Value};

/// How deep objects become flags, and how many flags there are.
const DEPTH_MAX: usize = 3;
const FLAGS_MAX: usize = 200;
/// How many references are followed one after another.
const REFERENCES_MAX: usize = 8;
/// How many values a flag lists. Of more it lists none: whether one fits is the schema's to say.
const CHOICES_MAX: usize = 1000;

/// An argument that a tool takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Flag {
    /// The keys that lead to it.
    pub path: Vec<String>,
    /// What it takes.
    pub kind: ArgKind,
    /// Whether a call without it is refused.
    pub is_required: bool,
    /// What stands for it if it is left out.
    pub default: Option<Value>,
    /// The values it may have; empty: any.
    pub choices: Vec<Value>,
    /// What it means.
    pub description: Option<String>,
    /// What its values must be like: the schema's own words, such as `minimum 1`.
    pub bounds: Vec<String>,
}

/// What a flag takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// Any text.
    Text,
    /// A number.
    Number,
    /// A whole number.
    Integer,
    /// Nothing, or `true` or `false`.
    Boolean,
    /// One of these each time it is given.
    Many(Box<Self>),
    /// JSON.
    Json,
    /// JSON where it is some, else text: the schema allows several types.
    Any,
}

impl Flag {
    /// The flag as it is typed, without its dashes.
    pub fn name(&self) -> String {
        self.path.join(".")
    }

    /// What stands for a value of it in help; `None` if it takes none.
    pub fn placeholder(&self) -> Option<&'static str> {
        word_for(&self.kind)
    }
}

fn word_for(kind: &ArgKind) -> Option<&'static str> {
    match kind {
        ArgKind::Text => Some("TEXT"),
        ArgKind::Number => Some("NUMBER"),
        ArgKind::Integer => Some("INTEGER"),
        ArgKind::Boolean => None,
        ArgKind::Many(item) => word_for(item).or(Some("BOOLEAN")),
        ArgKind::Json => Some("JSON"),
        ArgKind::Any => Some("VALUE"),
    }
}

/// The flags of an `inputSchema`, those that are required first.
pub fn of(schema: &Value) -> Vec<Flag> {
    let mut flags = Vec::new();
    add(&mut flags, schema, resolved(schema, schema), &[], true);
    flags.sort_by_key(|flag| !flag.is_required);
    flags
}

/// The flag of one property, as the form of a question has it.
pub fn field(name: &str, schema: &Value, is_required: bool) -> Flag {
    one(schema, vec![name.to_owned()], resolved(schema, schema), is_required)
}

fn add(flags: &mut Vec<Flag>, root: &Value, schema: &Value, path: &[String], is_required: bool) {
    let required: Vec<&str> = strings(schema.get("required")).collect();
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        if flags.len() >= FLAGS_MAX {
            return;
        }
        let property = resolved(root, property);
        let is_required = is_required && required.contains(&name.as_str());
        let path = [path, std::slice::from_ref(name)].concat();
        if has_flags_of_its_own(property) && path.len() < DEPTH_MAX {
            add(flags, root, property, &path, is_required);
        } else {
            flags.push(one(root, path, property, is_required));
        }
    }
}

fn has_flags_of_its_own(schema: &Value) -> bool {
    let has_properties =
        schema.get("properties").and_then(Value::as_object).is_some_and(|properties| !properties.is_empty());
    has_properties && types(schema).all(|name| name == "object")
}

fn one(root: &Value, path: Vec<String>, schema: &Value, is_required: bool) -> Flag {
    let kind = kind(root, schema, true);
    let items = schema.get("items").map(|items| resolved(root, items));
    let of_items = items.filter(|_| matches!(kind, ArgKind::Many(_)));
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    Flag {
        choices: choices(of_items.unwrap_or(schema)),
        default: schema.get("default").cloned(),
        description: text("description").or_else(|| text("title")).map(str::to_owned),
        bounds: bounds(schema),
        path,
        kind,
        is_required,
    }
}

/// The schema that a reference within the document leads to, or the one that is not `null` of two.
fn resolved<'a>(root: &'a Value, mut schema: &'a Value) -> &'a Value {
    for _ in 0..REFERENCES_MAX {
        if let Some(pointer) = schema.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix('#'))
        {
            let Some(target) = root.pointer(pointer) else { return schema };
            schema = target;
            continue;
        }
        let is_null = |schema: &&Value| schema.get("type").is_some_and(|name| name == "null");
        let union = ["anyOf", "oneOf", "allOf"].iter().find_map(|key| schema.get(*key)?.as_array());
        let mut rest = union.into_iter().flatten().filter(|schema| !is_null(schema));
        match (rest.next(), rest.next()) {
            (Some(only), None) if schema.get("type").is_none() && only.is_object() => schema = only,
            _ => return schema,
        }
    }
    schema
}

fn kind(root: &Value, schema: &Value, may_be_many: bool) -> ArgKind {
    let mut names = types(schema);
    match (names.next(), names.next()) {
        (Some("string"), None) => ArgKind::Text,
        (Some("number"), None) => ArgKind::Number,
        (Some("integer"), None) => ArgKind::Integer,
        (Some("boolean"), None) => ArgKind::Boolean,
        (Some("array"), None) if may_be_many => {
            let items = schema.get("items").filter(|items| items.is_object());
            let item = items.map_or(ArgKind::Any, |items| kind(root, resolved(root, items), false));
            ArgKind::Many(Box::new(item))
        }
        (Some("array" | "object"), None) => ArgKind::Json,
        (None, _) => {
            let mut values = values(schema).peekable();
            if values.peek().is_some() && values.all(Value::is_string) { ArgKind::Text } else { ArgKind::Any }
        }
        _ => ArgKind::Any,
    }
}

/// The types of a schema but `null`.
fn types(schema: &Value) -> impl Iterator<Item = &str> {
    let named = schema.get("type");
    let one = named.and_then(Value::as_str);
    one.into_iter().chain(strings(named)).filter(|name| *name != "null")
}

/// The values that a schema lists, unless they are too many.
fn choices(schema: &Value) -> Vec<Value> {
    let choices: Vec<Value> = values(schema).take(CHOICES_MAX + 1).cloned().collect();
    if choices.len() > CHOICES_MAX { Vec::new() } else { choices }
}

fn values(schema: &Value) -> impl Iterator<Item = &Value> {
    let listed = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
    let titled = ["oneOf", "anyOf"].iter().filter_map(|key| schema.get(*key)?.as_array()).flatten();
    let constants = titled.chain([schema]).filter_map(|schema| schema.get("const"));
    listed.chain(constants)
}

fn bounds(schema: &Value) -> Vec<String> {
    const SAID: &[(&str, &str)] = &[
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("exclusiveMinimum", "more than"),
        ("exclusiveMaximum", "less than"),
        ("minLength", "characters at least"),
        ("maxLength", "characters at most"),
        ("minItems", "times at least"),
        ("maxItems", "times at most"),
        ("format", "format"),
        ("pattern", "pattern"),
    ];
    let said = |(key, words): &(&str, &str)| match schema.get(*key)? {
        Value::String(text) => Some(format!("{words} {text}")),
        Value::Number(number) => Some(format!("{words} {number}")),
        _ => None,
    };
    SAID.iter().filter_map(said).collect()
}

fn strings(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Puts a value where a path leads.
pub(super) fn put(arguments: &mut Map<String, Value>, path: &[String], value: Value) {
    let Some((first, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        arguments.insert(first.clone(), value);
        return;
    }
    let inner = arguments.entry(first.clone()).or_insert_with(|| Value::Object(Map::new()));
    if !inner.is_object() {
        *inner = Value::Object(Map::new());
    }
    if let Value::Object(inner) = inner {
        put(inner, rest, value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn properties_become_flags() {
        let schema = json!({
            "type": "object",
            "properties": {
                "days": {"type": ["integer", "null"], "default": 3, "minimum": 1},
                "city": {"type": "string", "description": "Where"},
                "units": {"enum": ["metric", "imperial"]},
                "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
                "at": {"type": "object", "required": ["x"], "properties": {
                    "x": {"type": "number"}, "name": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
                "shape": {"$ref": "#/$defs/shape"},
                "free": {"type": "object"},
                "grid": {"type": "array", "items": {"type": "array"}},
                "either": {"type": ["string", "integer"]},
                "on": {"type": "boolean"},
            },
            "required": ["city", "at"],
            "$defs": {"shape": {"oneOf": [{"const": "round"}, {"const": "square"}]}},
        });
        let flags = of(&schema);
        let words: Vec<String> = flags
            .iter()
            .map(|flag| format!("{} {:?} {}", flag.name(), flag.kind, flag.is_required))
            .collect();
        let expected = [
            "city Text true",
            "at.x Number true",
            "days Integer false",
            "units Text false",
            "tags Many(Text) false",
            "at.name Text false",
            "shape Text false",
            "free Json false",
            "grid Many(Json) false",
            "either Any false",
            "on Boolean false",
        ];
        assert_eq!(words, expected);
        assert_eq!(flags[2].bounds, ["at least 1"]);
        assert_eq!(flags[4].choices, [json!("a"), json!("b")]);
        assert_eq!(flags[6].choices, [json!("round"), json!("square")]);
    }

    #[test]
    fn hostile_schemas_end() {
        let looping = json!({"properties": {"a": {"$ref": "#/properties/a"}, "b": {"$ref": "#"}}});
        assert!(of(&looping).len() <= FLAGS_MAX);
        let wide: Map<String, Value> = (0..5000).map(|n| (n.to_string(), json!({}))).collect();
        assert_eq!(of(&json!({"properties": wide})).len(), FLAGS_MAX);
        for schema in
            [json!(7), json!({"properties": 7}), json!({"properties": {"a": 7}}), json!({"type": []})]
        {
            let _ = of(&schema);
        }
    }
}
