//! The form of a question: its fields, and what a typed line is to each. Pure.

use serde_json::Value;

use crate::terminal::paint::{FAINT, painted};
use client::tool::fit as fits;
use client::tool::flags::{self, ArgKind, Flag};
use client::tool::words::{self, Mistake, said};
use protocol::text::{fit, shown};

/// The most fields that are asked for.
const FIELDS_MAX: usize = 50;
/// How much of what is said about a field is shown.
const TEXT_COLUMNS_MAX: usize = 500;

#[derive(Debug)]
pub(super) struct ElicitationForm {
    pub(super) fields: Vec<FormField>,
}

#[derive(Debug)]
pub(super) struct FormField {
    pub(super) name: String,
    flag: Flag,
    title: Option<String>,
    /// The values to choose from, with their titles.
    choices: Vec<(Value, String)>,
    schema: Value,
}

impl ElicitationForm {
    /// Reads a `requestedSchema`.
    pub(super) fn read(schema: &Value) -> Result<Self, String> {
        let properties = schema.get("properties").and_then(Value::as_object);
        let properties = properties.ok_or("its requestedSchema has no properties")?;
        if properties.len() > FIELDS_MAX {
            return Err(format!("it asks for more than {FIELDS_MAX} fields"));
        }
        let required = schema.get("required").and_then(Value::as_array);
        let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|other| other == name));
        let fields = properties.iter().map(|(name, schema)| FormField::read(name, schema, is_required(name)));
        Ok(Self { fields: fields.collect() })
    }
}

impl FormField {
    fn read(name: &str, schema: &Value, is_required: bool) -> Self {
        let flag = flags::field(name, schema, is_required);
        let listed = schema.get("items").unwrap_or(schema);
        let titled = ["oneOf", "anyOf"].iter().find_map(|key| listed.get(*key)?.as_array());
        let names = schema.get("enumNames").and_then(Value::as_array);
        let choices = flag.choices.iter().enumerate().map(|(index, value)| {
            let titled = titled.and_then(|all| all.iter().find(|one| one.get("const") == Some(value)));
            let title = titled.and_then(|one| one.get("title"));
            let title = title.or_else(|| names.and_then(|names| names.get(index)));
            (value.clone(), title.map_or_else(|| said(value), said))
        });
        Self {
            name: name.to_owned(),
            title: schema.get("title").and_then(Value::as_str).map(str::to_owned),
            choices: choices.collect(),
            schema: schema.clone(),
            flag,
        }
    }

    pub(super) fn is_required(&self) -> bool {
        self.flag.is_required
    }

    pub(super) fn default(&self) -> Option<&Value> {
        self.flag.default.as_ref()
    }

    /// What stands before the cursor.
    pub(super) fn prompt(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.name)
    }

    /// What is said before it is asked for.
    pub(super) fn introduction(&self) -> Vec<String> {
        let mut hints: Vec<String> = Vec::new();
        let description = self.schema.get("description").and_then(Value::as_str);
        hints.extend(description.map(|text| shown(&fit(text, TEXT_COLUMNS_MAX))));
        hints.push(match (&self.flag.kind, self.choices.is_empty()) {
            (ArgKind::Boolean, _) => "yes or no".to_owned(),
            (ArgKind::Many(_), false) => "several numbers, with commas between them".to_owned(),
            (ArgKind::Many(_), true) => "several, with commas between them".to_owned(),
            (_, false) => "a number of the list".to_owned(),
            (ArgKind::Integer, true) => "a whole number".to_owned(),
            (ArgKind::Number, true) => "a number".to_owned(),
            _ => String::new(),
        });
        hints.extend(self.flag.bounds.iter().map(|bound| shown(&fit(bound, TEXT_COLUMNS_MAX))));
        if !self.is_required() {
            hints.push("may stay empty".to_owned());
        }
        hints.retain(|hint| !hint.is_empty());
        let mut lines = vec![painted(FAINT, hints.join("; "))];
        lines.retain(|_| !hints.is_empty());
        let choices = self.choices.iter().enumerate();
        lines.extend(choices.map(|(index, (_, title))| {
            format!("{:>4}  {}", index + 1, shown(&fit(title, TEXT_COLUMNS_MAX)))
        }));
        lines
    }

    /// The value that a line is: nothing typed is what it was before, else the default, else nothing.
    pub(super) fn value(&self, text: &str, before: Option<&Value>) -> Result<Option<Value>, String> {
        let text = text.trim();
        if text.is_empty() {
            return match before.or(self.default()) {
                Some(value) => Ok(Some(value.clone())),
                None if self.is_required() => Err("this one is needed".to_owned()),
                None => Ok(None),
            };
        }
        let value = match &self.flag.kind {
            ArgKind::Many(item) if !text.starts_with('[') => {
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                Value::Array(items.map(|text| self.one(item, text)).collect::<Result<_, _>>()?)
            }
            kind => self.one(kind, text)?,
        };
        // A schema that is none cannot be kept to; the server says what it thinks of the value.
        match fits::faults_of_field(&self.schema, &value).unwrap_or_default().into_iter().next() {
            Some(fault) => Err(fault),
            None => Ok(Some(value)),
        }
    }

    fn one(&self, kind: &ArgKind, text: &str) -> Result<Value, String> {
        if !self.choices.is_empty() {
            let by_value = self.choices.iter().find(|(value, title)| said(value) == text || title == text);
            let number = text.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
            let chosen = by_value.or_else(|| self.choices.get(number?));
            let (value, _) = chosen.ok_or_else(|| format!("choose from 1 to {}", self.choices.len()))?;
            return Ok(value.clone());
        }
        words::value(&self.flag, kind, text).map_err(|mistake| match mistake {
            Mistake::Value { expected, .. } => format!("this is not {expected}"),
            other => other.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn form() -> ElicitationForm {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 2, "title": "Your name"},
                "age": {"type": "integer", "minimum": 18},
                "sure": {"type": "boolean", "default": false},
                "colour": {"type": "string", "oneOf": [
                    {"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]},
                "size": {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
                "email": {"type": "string", "format": "email"},
                "tags": {"type": "array", "maxItems": 2, "items": {"type": "string", "enum": ["a", "b", "c"]}},
            },
            "required": ["name"],
        });
        ElicitationForm::read(&schema).unwrap()
    }

    #[test]
    fn lines_become_values() {
        let form = form();
        for (name, text, expected) in [
            ("name", "Ada", Ok(Some(json!("Ada")))),
            ("name", "", Err("this one is needed")),
            ("name", "A", Err("length must be >=2, but got 1")),
            ("age", "", Ok(None)),
            ("age", "40", Ok(Some(json!(40)))),
            ("age", "4", Err("must be >=18, but got 4")),
            ("age", "old", Err("this is not an integer")),
            ("sure", "", Ok(Some(json!(false)))),
            ("sure", "yes", Ok(Some(json!(true)))),
            ("sure", "perhaps", Err("this is not true or false")),
            ("colour", "2", Ok(Some(json!("#0f0")))),
            ("colour", "Red", Ok(Some(json!("#f00")))),
            ("colour", "3", Err("choose from 1 to 2")),
            ("colour", "0", Err("choose from 1 to 2")),
            ("size", "Medium", Ok(Some(json!("m")))),
            ("email", "a@b.example", Ok(Some(json!("a@b.example")))),
            ("email", "soon", Err("'soon' is not valid email: missing @")),
            ("tags", "1, c", Ok(Some(json!(["a", "c"])))),
            ("tags", "1,2,3", Err("maximum 2 items required, but got 3 items")),
        ] {
            let field = form.fields.iter().find(|field| field.name == name).unwrap();
            assert_eq!(field.value(text, None), expected.map_err(str::to_owned), "{name}: {text}");
        }
    }

    #[test]
    fn hostile_forms_are_refused() {
        let many: serde_json::Map<_, _> = (0..100).map(|n| (n.to_string(), json!({}))).collect();
        for schema in [json!(7), json!({}), json!({"properties": many})] {
            assert!(ElicitationForm::read(&schema).is_err());
        }
        let odd =
            ElicitationForm::read(&json!({"properties": {"a\u{1b}[2J": {"type": "nonsense", "title": 7}}}))
                .unwrap();
        assert_eq!(odd.fields[0].value("x", None), Ok(Some(json!("x"))));
    }
}
