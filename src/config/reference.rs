//! `config/trunkline.toml`: a file with every key, its default and what it is for, made of the JSON Schema.
//!
//! Written here are only the introduction, and the tables that the file has more than once because some keys exclude
//! each other.

use serde_json::{Map, Value as Json};

use super::schema::json_schema;

const COLUMNS: usize = 120;

const INTRODUCTION: &str = r#"# Configuration of Trunkline: every key there is.
#
#   key = value        is set here: the least that works
#   #key = value       is the default, written out
#   #e.g. key = value  is an example: the key has no default, or one that depends on others
#
# Durations are "250ms", "5s", "10m", "1h", "30d"; sizes are "64KiB", "4MiB", "1GiB" or a number of bytes.
# Unknown keys are errors. `trunkline check --config FILE` shows all errors of a file at once.
# Secrets never stand here: each is read at start and at every reload from a file, { file = "…" }; an environment
# variable of the gateway, { env = "…" }; or a credential that systemd passes, { credential = "…" }.
"#;

/// Another table of a kind: what is said of it, and its keys, with their values where the schema's example does not do.
struct Another {
    path: &'static str,
    about: &'static str,
    keys: &'static [(&'static str, Option<&'static str>)],
}

/// A second one of a kind, and the keys that only it shows.
const SECONDS: [(Another, &[&str]); 2] = [
    (
        Another {
            path: "jwt",
            about: "Another, whose keys are in a file.",
            keys: &[("name", Some("ci")), ("issuer", Some("https://ci.example.com")), ("jwks_file", None)],
        },
        &["jwks_file"],
    ),
    (
        Another {
            path: "limit",
            about: "Another, which has `calls` and `period` instead of `rate`.",
            keys: &[("name", Some("own")), ("by", None), ("calls", None), ("period", None)],
        },
        &["calls", "period"],
    ),
];

const MORE_UPSTREAMS: [Another; 3] = [
    Another {
        path: "upstream.files",
        about: "An MCP server with replicas has `urls` instead of `url`.",
        keys: &[("urls", None), ("tls", None), ("oauth", None)],
    },
    Another {
        path: "upstream.archive",
        about: "And one that wants a user and a password.",
        keys: &[("url", Some("https://archive.example.com/mcp")), ("basic", None)],
    },
    Another {
        path: "upstream.local",
        about: "An MCP server that is a child process has a `command` instead.",
        keys: &[
            ("command", None),
            ("args", None),
            ("env", None),
            ("env_pass", None),
            ("directory", None),
            ("isolation", None),
            ("children_max", None),
            ("start_timeout", None),
            ("stop_timeout", None),
            ("child_idle_timeout", None),
            ("lazy", None),
        ],
    },
];

/// The text of the reference file.
pub fn reference() -> String {
    let schema: Json = json_schema().parse().unwrap_or_default();
    let mut file = File { definitions: &schema["$defs"], text: INTRODUCTION.to_owned() };
    file.text.push('\n');
    file.keys(&schema, &|_| true, false);
    for (key, section) in properties(&schema) {
        match file.table(section) {
            Some((table, Notation::Named)) => {
                let excluded = |key: &str| {
                    key != "url"
                        && MORE_UPSTREAMS.iter().any(|more| more.keys.iter().any(|(name, _)| *name == key))
                };
                file.section(&format!("{key}.weather"), Notation::One, table, text(table), false, &|key| {
                    !excluded(key)
                });
                for more in &MORE_UPSTREAMS {
                    file.another(more, Notation::One, table);
                }
            }
            Some((table, form)) => {
                let is_example = section.get("default").is_none() && !is_required(&schema, key);
                let second = SECONDS.iter().find(|(another, _)| another.path == key);
                let of_this = |name: &str| second.is_none_or(|(_, own)| !own.contains(&name));
                file.section(key, form, table, text(table), is_example, &of_this);
                if let Some((another, _)) = second {
                    file.another(another, form, table);
                }
            }
            None => {}
        }
    }
    file.text
}

/// How a table is written.
#[derive(Clone, Copy)]
enum Notation {
    One,
    Several,
    Named,
}

struct File<'a> {
    definitions: &'a Json,
    text: String,
}

impl<'a> File<'a> {
    /// A table with its keys, and then the tables in it.
    fn section(
        &mut self,
        path: &str,
        form: Notation,
        table: &'a Json,
        about: &str,
        is_example: bool,
        has: &dyn Fn(&str) -> bool,
    ) {
        self.text.push('\n');
        self.comment(about);
        let heading = if let Notation::Several = form { format!("[[{path}]]") } else { format!("[{path}]") };
        self.line(if is_example { "#e.g. " } else { "" }, &heading);
        self.keys(table, has, is_example);
        for (key, inner) in properties(table).filter(|(key, _)| has(key)) {
            if let Some((table, form)) = self.table(inner) {
                let is_example = is_example || inner.get("default").is_none();
                self.section(&format!("{path}.{key}"), form, table, text(table), is_example, &|_| true);
            }
        }
    }

    fn another(&mut self, another: &Another, form: Notation, table: &'a Json) {
        let mut table = table.clone();
        let schemas = properties(&table).filter_map(|(key, schema)| {
            let (_, value) = another.keys.iter().find(|(name, _)| name == key)?;
            let mut schema = schema.clone();
            if let Some(value) = value {
                schema["examples"] = serde_json::json!([value]);
            }
            Some((key.clone(), schema))
        });
        let schemas: Map<String, Json> = schemas.collect();
        table["properties"] = schemas.into();
        let mut file = File { definitions: self.definitions, text: String::new() };
        file.section(another.path, form, &table, another.about, true, &|_| true);
        self.text.push_str(&file.text);
    }

    /// The keys of a table that are no tables themselves.
    fn keys(&mut self, table: &Json, has: &dyn Fn(&str) -> bool, is_example: bool) {
        let must_be_there = |key: &str| is_required(table, key) || key == "url";
        let (first, others): (Vec<_>, Vec<_>) = properties(table).partition(|(key, _)| must_be_there(key));
        for (key, schema) in first.into_iter().chain(others) {
            if !has(key) || self.table(schema).is_some() {
                continue;
            }
            let example = schema["examples"].get(0);
            let default = schema.get("default").filter(|default| example.is_none() || !is_empty(default));
            let Some(value) = (if is_example { example.or(default) } else { default.or(example) }) else {
                continue;
            };
            let mark = match default {
                _ if is_example => "#e.g. ",
                _ if must_be_there(key) => "",
                Some(_) => "#",
                None => "#e.g. ",
            };
            self.comment(&format!("{}{}", text(schema), self.choices(schema)));
            let value = toml::Value::try_from(value).map(|value| value.to_string()).unwrap_or_default();
            self.line(mark, &format!("{key} = {value}"));
        }
    }

    fn comment(&mut self, text: &str) {
        let mut line = String::from("#");
        for word in text.split_whitespace() {
            if line.chars().count() + 1 + word.chars().count() > COLUMNS {
                self.line("", &line);
                line = String::from("#");
            }
            line.push(' ');
            line.push_str(word);
        }
        self.line("", &line);
    }

    fn line(&mut self, mark: &str, line: &str) {
        self.text.push_str(mark);
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// The table that a property is, or is made of, unless an example of it fits a line.
    fn table(&self, schema: &Json) -> Option<(&'a Json, Notation)> {
        let forms = [
            (&schema["$ref"], Notation::One),
            (&schema["items"]["$ref"], Notation::Several),
            (&schema["anyOf"][0]["$ref"], Notation::One),
            (&schema["additionalProperties"]["$ref"], Notation::Named),
        ];
        let (reference, form) = forms.into_iter().find(|(reference, _)| reference.is_string())?;
        let table = self.definition(reference)?;
        (table.get("properties").is_some() && schema.get("examples").is_none()).then_some((table, form))
    }

    fn definition(&self, reference: &Json) -> Option<&'a Json> {
        self.definitions.get(reference.as_str()?.rsplit('/').next()?)
    }

    /// The values of a key that has only a few.
    fn choices(&self, schema: &Json) -> String {
        let reference = schema.get("$ref").unwrap_or(&schema["items"]["$ref"]);
        let Some(definition) = self.definition(reference) else { return String::new() };
        let listed = definition["enum"].as_array().into_iter().flatten();
        let described =
            definition["oneOf"].as_array().into_iter().flatten().filter_map(|one| one.get("const"));
        let values: Vec<String> = listed.chain(described).map(Json::to_string).collect();
        let about = text(schema);
        let is_said =
            values.iter().all(|value| about.contains(value) || about.contains(&value.replace('"', "`")));
        if is_said { String::new() } else { format!(" One of {}.", values.join(", ")) }
    }
}

fn properties(table: &Json) -> impl Iterator<Item = (&String, &Json)> {
    table["properties"].as_object().into_iter().flat_map(Map::iter)
}

fn is_required(table: &Json, key: &str) -> bool {
    table["required"].as_array().is_some_and(|keys| keys.iter().any(|one| one == key))
}

fn is_empty(value: &Json) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty)
}

fn text(schema: &Json) -> &str {
    schema["description"].as_str().unwrap_or_default()
}
