//! `trunkline.toml(5)` and the chapter of the same content: every section and key, from the JSON Schema that the types of
//! the configuration make. What a key means, its type, range and default are the schema's; only the introduction is
//! written here.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::document_writer::DocumentWriter;
use super::manual_page::ManualPage;
use super::markdown_page::MarkdownPage;

const MINIMAL: &str = include_str!("../../../config/examples/minimal.toml");
const TEAM: &str = include_str!("../../../config/examples/team.toml");

const DESCRIPTION: [&str; 3] = [
    "The configuration of `trunkline`(1) is one TOML file. Unknown keys and sections are errors, and so is whatever \
     cannot work; `trunkline check` shows all errors of a file at once, each with its line, and opens what it names.",
    "SIGHUP makes the gateway read it again, completely or not at all. Secrets never stand in it: they are named.",
    "A section that is written as `[[section]]` may be there several times. `NAME` is a name of your choice.",
];

const TYPES: [(&str, &str); 4] = [
    ("duration", "A number with its unit: `\"250ms\"`, `\"5s\"`, `\"10m\"`, `\"1h\"`, `\"30d\"`."),
    ("size", "A number of bytes, or a number with its unit: `\"64KiB\"`, `\"4MiB\"`, `\"1GiB\"`."),
    (
        "secret",
        "Where a secret is read from, at start and at every reload: `{ file = \"/PATH\" }`, `{ env = \"VARIABLE\" }`, or \
         `{ credential = \"NAME\" }` for a credential that systemd passes. One newline at its end does not count.",
    ),
    ("words", "One string, or an array of strings."),
];

/// The manual page.
pub(super) fn manual(schema: &Value) -> String {
    let mut page = ManualPage::new("TRUNKLINE.TOML", "5");
    page.name("trunkline.toml", "configuration of trunkline");
    page.section("SYNOPSIS");
    page.paragraph("`/etc/trunkline/trunkline.toml`");
    page.description(&DESCRIPTION);
    write(&mut page, schema);
    page.section("SEE ALSO");
    page.paragraph(
        "`trunkline`(1); `/usr/share/doc/trunkline/trunkline.toml`, with every key and its default.",
    );
    page.finish()
}

/// The chapter of the book.
pub(super) fn chapter(schema: &Value) -> String {
    let mut page = MarkdownPage::new("Configuration", &DESCRIPTION);
    write(&mut page, schema);
    page.finish()
}

fn write(page: &mut impl DocumentWriter, schema: &Value) {
    let reference = SchemaReference { definitions: &schema["$defs"] };
    page.table("TYPES", &TYPES);
    page.section("BEFORE ALL SECTIONS");
    reference.keys(page, schema);
    page.section("SECTIONS");
    for (heading, description, table) in reference.sections(schema, "") {
        page.subsection(&heading);
        page.paragraph(description);
        reference.keys(page, table);
    }
    page.section("EXAMPLES");
    for (what, example) in [("The least that works:", MINIMAL), ("A gateway for a team:", TEAM)] {
        page.paragraph(what);
        // Their first comment says the same.
        page.example("toml", example.split_once("\n\n").map_or(example, |(_, after)| after));
    }
}

struct SchemaReference<'a> {
    definitions: &'a Value,
}

impl<'a> SchemaReference<'a> {
    /// All tables below `table`, each before those in it, with their headings.
    fn sections(&self, table: &'a Value, path: &str) -> Vec<(String, &'a str, &'a Value)> {
        let mut found = Vec::new();
        for (key, schema) in properties(table) {
            if let Some((inner, form)) = self.table(schema) {
                let (path, heading) = form.name(path, key);
                found.push((heading, text(inner, "description"), inner));
                found.extend(self.sections(inner, &path));
            }
        }
        found
    }

    /// The keys of `table` that are no sections.
    fn keys(&self, page: &mut impl DocumentWriter, table: &Value) {
        for (key, schema) in properties(table).filter(|(_, schema)| self.table(schema).is_none()) {
            let is_required =
                table["required"].as_array().is_some_and(|keys| keys.iter().any(|one| one == key));
            let mut facts = type_of(schema);
            match schema.get("default") {
                Some(default) => drop(write!(facts, ", default `{default}`")),
                None if is_required => facts += ", required",
                None => {}
            }
            let mut meaning = text(schema, "description").to_owned();
            for value in self.values(schema) {
                meaning.push_str(&value);
            }
            if let Some(example) = schema["examples"].get(0) {
                let _ = write!(meaning, " Example: `{}`.", spaced(example));
            }
            page.entry(&format!("`{key}` ({facts})"), &meaning);
        }
    }

    /// The table that `schema` leads to, if it is one, or several.
    fn table(&self, schema: &'a Value) -> Option<(&'a Value, TableForm)> {
        let forms = [
            (&schema["$ref"], TableForm::One),
            (&schema["items"]["$ref"], TableForm::Several),
            (&schema["additionalProperties"]["$ref"], TableForm::Named),
            (&schema["anyOf"][0]["$ref"], TableForm::OneOrSeveral),
        ];
        let (reference, form) = forms.into_iter().find(|(reference, _)| reference.is_string())?;
        let table = self.definition(reference)?;
        table.get("properties").map(|_| (table, form))
    }

    fn definition(&self, reference: &Value) -> Option<&'a Value> {
        self.definitions.get(reference.as_str()?.rsplit('/').next()?)
    }

    /// The values that a key of few values may have, with what they mean.
    fn values(&self, schema: &Value) -> Vec<String> {
        let reference = schema.get("$ref").unwrap_or(&schema["items"]["$ref"]);
        let Some(definition) = self.definition(reference) else { return Vec::new() };
        let listed = |key: &str| definition[key].as_array().into_iter().flatten();
        let plain = listed("enum").map(|value| format!(" `{value}`"));
        let described = listed("oneOf")
            .filter(|value| value.get("const").is_some())
            .map(|value| format!(" `{}`: {}", value["const"], text(value, "description")));
        plain.chain(described).collect()
    }
}

/// What kind of value it is, with its range.
fn type_of(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return match name {
            "Secret" => "secret".into(),
            "Words" => "words".into(),
            "TextOrSecret" => "string or secret".into(),
            _ => "string".into(),
        };
    }
    if schema.get("anyOf").is_some() {
        return "size".into();
    }
    match (text(schema, "type"), text(schema, "pattern")) {
        ("string", "") => "string".into(),
        ("string", "^[0-9]+(ms|s|m|h|d)$") => "duration".into(),
        ("string", pattern) => format!("string like `{pattern}`"),
        ("array", _) => format!("array: {}", type_of(&schema["items"])),
        ("object", _) => format!("table: {}", type_of(&schema["additionalProperties"])),
        (number, _) => match (schema.get("minimum"), schema.get("maximum")) {
            (Some(low), Some(high)) => format!("{number}, {low} to {high}"),
            (Some(low), None) => format!("{number}, at least {low}"),
            _ => number.to_owned(),
        },
    }
}

/// How a table is written.
#[derive(Clone, Copy)]
enum TableForm {
    One,
    Several,
    Named,
    OneOrSeveral,
}

impl TableForm {
    /// The path of the table `key` of the table at `path`, and its heading.
    fn name(self, path: &str, key: &str) -> (String, String) {
        let dot = if path.is_empty() { "" } else { "." };
        let path = format!("{path}{dot}{key}");
        match self {
            Self::One => (path.clone(), format!("[{path}]")),
            Self::Several => (path.clone(), format!("[[{path}]]")),
            Self::Named => (format!("{path}.NAME"), format!("[{path}.NAME]")),
            Self::OneOrSeveral => (path.clone(), format!("[{path}] or [[{path}]]")),
        }
    }
}

fn properties(table: &Value) -> impl Iterator<Item = (&String, &Value)> {
    table["properties"].as_object().into_iter().flat_map(Map::iter)
}

fn text<'a>(schema: &'a Value, key: &str) -> &'a str {
    schema[key].as_str().unwrap_or_default()
}

/// A value of several parts with blanks between them, where a line can be broken.
fn spaced(value: &Value) -> String {
    match value {
        Value::Array(all) => format!("[{}]", all.iter().map(spaced).collect::<Vec<_>>().join(", ")),
        Value::Object(all) => {
            let members =
                all.iter().map(|(name, value)| format!("{}: {}", Value::from(name.as_str()), spaced(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        plain => plain.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Value {
        serde_json::from_str(&config::json_schema()).unwrap()
    }

    #[test]
    fn every_key_of_every_table_has_its_entry() {
        let (schema, mut keys) = (schema(), 0);
        let page = manual(&schema);
        let tables = schema["$defs"].as_object().unwrap().values().chain([&schema]);
        for (key, _) in tables.flat_map(properties) {
            let is_section = page.contains(&format!("{key}]")) || page.contains(&format!("{key}.NAME]"));
            let is_key = page.contains(&format!("\\fB{}\\fR (", key.replace('-', "\\-")));
            assert!(is_section || is_key, "{key} is nowhere");
            keys += 1;
        }
        assert!(keys > 150, "only {keys}");
    }

    #[test]
    fn sections_are_called_as_they_are_written() {
        let page = manual(&schema());
        for heading in [
            "[limits]",
            "\"[listener] or [[listener]]\"",
            "[listener.tls]",
            "[[listener.tls.certificates]]",
            "[[endpoint]]",
            "[upstream.NAME]",
            "[upstream.NAME.breaker]",
        ] {
            assert!(page.contains(&format!("\n.SS {heading}\n")), "{heading}");
        }
    }

    #[test]
    fn an_entry_says_type_range_default_and_meaning() {
        let schema = serde_json::json!({ "$defs": { "Mode": { "oneOf": [
            { "const": "on", "description": "It is." }, { "const": "off", "description": "It is not." } ] } },
            "required": ["who"], "properties": {
            "a": { "type": "integer", "minimum": 1, "maximum": 9, "default": 5, "description": "How many." },
            "mode": { "$ref": "#/$defs/Mode", "description": "Whether." },
            "time": { "type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$", "description": "How long." },
            "who": { "type": "array", "items": { "type": "string" }, "description": "Them.", "examples": [["me"]] },
        } });
        let page = manual(&schema);
        for entry in [
            "\\fBa\\fR (integer, 1 to 9, default \\fB5\\fR)\nHow many.\n",
            "\\fBmode\\fR (string)\nWhether. \\fB\"on\"\\fR: It is. \\fB\"off\"\\fR: It is not.\n",
            "\\fBtime\\fR (duration)\nHow long.\n",
            "\\fBwho\\fR (array: string, required)\nThem. Example: \\fB[\"me\"]\\fR.\n",
        ] {
            assert!(page.contains(entry), "{entry} is not in {page}");
        }
    }
}
