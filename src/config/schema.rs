//! The JSON Schema of the configuration file, for editors and for review. It comes from the declarations that read the
//! file, so it has every key; what must hold between keys it does not say.

use serde_json::{Map, Value as Json, json};

use super::Config;
use super::section::{Group, is_valid};
use super::value::{Choice, Setting};

/// The JSON Schema (draft 2020-12) of the configuration, indented, with a newline at its end.
pub fn json_schema() -> String {
    let mut definitions = Definitions::default();
    let mut root = definitions.object::<Config>();
    root.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
    root.insert("title".into(), "Trunkline".into());
    root.insert("description".into(), "Configuration of Trunkline.".into());
    root.insert("$defs".into(), definitions.0.into());
    // The alternate form of a JSON value is the indented one.
    format!("{:#}\n", Json::Object(root))
}

/// What is described once and referred to where it stands.
#[derive(Debug, Default)]
pub struct Definitions(Map<String, Json>);

/// A table that is being described.
#[derive(Debug)]
pub struct TableSchema<'d> {
    definitions: &'d mut Definitions,
    properties: Map<String, Json>,
    required: Vec<Json>,
    one_of: Vec<Json>,
}

impl Definitions {
    /// A reference to the description of the table that is read as `name`: a `BridgeConfig` is a `Bridge` there.
    pub(super) fn table<G: Group>(&mut self, name: &str, about: &str) -> Json {
        let name = name.trim_end_matches("Config");
        if !self.0.contains_key(name) {
            // What it refers to comes after it.
            self.0.insert(name.to_owned(), Json::Null);
            let mut object = self.object::<G>();
            object.insert("description".into(), about.trim().into());
            self.0.insert(name.to_owned(), object.into());
        }
        json!({ "$ref": format!("#/$defs/{name}") })
    }

    /// A reference to `schema`, which is called `name`.
    pub(super) fn named(&mut self, name: &str, schema: Json) -> Json {
        self.0.entry(name.to_owned()).or_insert(schema);
        json!({ "$ref": format!("#/$defs/{name}") })
    }

    /// A reference to the description of an enum.
    pub(super) fn choice<E>(&mut self, name: &str, choices: &[Choice<E>]) -> Json {
        let described = |(_, word, about): &Choice<E>| json!({ "type": "string", "const": word, "description": about.trim() });
        let described: Vec<Json> = choices.iter().map(described).collect();
        self.named(name.trim_end_matches("Config"), json!({ "oneOf": described }))
    }

    fn object<G: Group>(&mut self) -> Map<String, Json> {
        let mut object = TableSchema {
            definitions: self,
            properties: Map::new(),
            required: Vec::new(),
            one_of: Vec::new(),
        };
        G::describe(&mut object);
        let TableSchema { properties, required, one_of, .. } = object;
        let mut schema = Map::new();
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), properties.into());
        schema.insert("additionalProperties".into(), false.into());
        for (keyword, list) in [("required", required), ("oneOf", one_of)] {
            if !list.is_empty() {
                schema.insert(keyword.into(), list.into());
            }
        }
        schema
    }
}

impl TableSchema<'_> {
    /// Describes a key. `default` and `example` are TOML.
    pub(super) fn key<V: Setting>(
        &mut self,
        name: &str,
        about: &str,
        default: Option<&'static str>,
        example: Option<&'static str>,
        must_be_there: bool,
    ) {
        debug_assert!([default, example].into_iter().flatten().all(is_valid::<V>), "of `{name}`");
        let mut schema = V::schema(self.definitions);
        let mut about = about.trim().to_owned();
        if let Some(range) = V::range() {
            about = format!("{about} From {range}.");
        }
        schema["description"] = about.into();
        if let Some(default) = default.or(V::DEFAULT.filter(|_| must_be_there)).and_then(json_of) {
            schema["default"] = default;
        }
        if let Some(example) = example.and_then(json_of) {
            schema["examples"] = json!([example]);
        }
        if must_be_there && !V::IS_OPTIONAL {
            self.required.push(name.into());
        }
        self.properties.insert(name.to_owned(), schema);
    }

    /// Exactly one of these keys must be there.
    pub(super) fn one_of(&mut self, keys: &[&str]) {
        self.one_of = keys.iter().map(|key| json!({ "required": [key] })).collect();
    }
}

/// A TOML value as JSON.
fn json_of(toml: &str) -> Option<Json> {
    let table: toml::Table = format!("value = {toml}").parse().ok()?;
    serde_json::to_value(table.get("value")?).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use serde_json::Value;

    use super::*;
    use crate::{parse, reference as generated};

    fn folder() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config")
    }

    fn text_of(file: &str) -> String {
        fs::read_to_string(folder().join(file)).unwrap()
    }

    /// The reference with its defaults, or with its examples too, as if they were set.
    fn reference(with_examples: bool) -> String {
        let uncommented = |line: &str| match (line.strip_prefix("#e.g. "), line.strip_prefix('#')) {
            (Some(example), _) if with_examples => example.to_owned(),
            (None, Some(default)) if default.starts_with(|first: char| !first.is_whitespace()) => {
                default.to_owned()
            }
            _ => line.to_owned(),
        };
        generated().lines().map(uncommented).collect::<Vec<_>>().join("\n")
    }

    /// Every key of every section, as `section.key`, from a parsed TOML file.
    fn keys_of(text: &str) -> BTreeSet<String> {
        let root: toml::Table = text.parse().unwrap();
        let mut keys = BTreeSet::new();
        for (section, value) in &root {
            let tables: Vec<&toml::Table> = match value {
                toml::Value::Table(upstreams) if section == "upstream" => {
                    upstreams.values().filter_map(toml::Value::as_table).collect()
                }
                toml::Value::Table(table) if section != "upstream_defaults" => vec![table],
                toml::Value::Array(tables) if tables.iter().any(toml::Value::is_table) => {
                    tables.iter().filter_map(toml::Value::as_table).collect()
                }
                _ => {
                    keys.insert(section.clone());
                    continue;
                }
            };
            keys.extend(tables.iter().flat_map(|table| table.keys()).map(|key| format!("{section}.{key}")));
        }
        keys
    }

    /// Every key of the schema with its own schema, as `section.key`.
    fn schema_keys() -> Vec<(String, Value)> {
        let schema: Value = serde_json::from_str(&json_schema()).unwrap();
        let mut keys = Vec::new();
        for (section, property) in schema["properties"].as_object().unwrap() {
            let text = property.to_string();
            let Some((_, reference)) = text.split_once("\"#/$defs/") else {
                keys.push((section.clone(), property.clone()));
                continue;
            };
            let (definition, _) = reference.split_once('"').unwrap();
            for (key, property) in schema["$defs"][definition]["properties"].as_object().unwrap() {
                keys.push((format!("{section}.{key}"), property.clone()));
            }
        }
        keys
    }

    #[test]
    fn the_schema_in_the_repository_is_current() {
        assert!(
            json_schema() == text_of("trunkline.schema.json"),
            "out of date; refresh it: trunkline schema > config/trunkline.schema.json"
        );
    }

    #[test]
    fn the_reference_in_the_repository_is_current() {
        assert!(
            generated() == text_of("trunkline.toml"),
            "out of date; refresh it: trunkline schema --reference > config/trunkline.toml"
        );
    }

    #[test]
    fn every_example_parses_without_warnings() {
        let mut parsed = 0;
        let examples = fs::read_dir(folder().join("examples")).unwrap();
        for entry in fs::read_dir(folder()).unwrap().chain(examples) {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let text = fs::read_to_string(&path).unwrap();
                let name = path.display().to_string();
                let config = parse(&text).unwrap_or_else(|errors| panic!("{}", errors.render(&name, &text)));
                assert_eq!(config.warnings, [], "{name}");
                parsed += 1;
            }
        }
        assert!(parsed >= 10, "only {parsed} files");
    }

    #[test]
    fn the_reference_has_the_keys_of_the_schema() {
        let of_schema: BTreeSet<String> = schema_keys().into_iter().map(|(key, _)| key).collect();
        assert!(of_schema.len() > 40, "{of_schema:?}");
        assert_eq!(keys_of(&reference(true)), of_schema);
    }

    #[test]
    fn the_defaults_of_the_reference_are_the_defaults() {
        let text = reference(false);
        let mut written_out =
            parse(&text).unwrap_or_else(|errors| panic!("{}", errors.render("reference", &text)));
        let minimal = parse(&text_of("examples/minimal.toml")).unwrap();
        assert!(keys_of(&text).len() > 30, "the defaults are not written out");
        written_out.warnings.clear();
        written_out.places.clone_from(&minimal.places);
        written_out.digest.clone_from(&minimal.digest);
        assert_eq!(written_out, minimal);
    }

    #[test]
    fn the_examples_of_the_reference_are_valid() {
        let text = reference(true);
        let config = parse(&text).unwrap_or_else(|errors| panic!("{}", errors.render("reference", &text)));
        assert_eq!(config.endpoints[0].aliases.len(), 1);
        assert_eq!(config.upstreams[1].urls.len(), 2);
    }

    #[test]
    fn every_key_of_the_schema_is_described() {
        for (key, schema) in schema_keys() {
            assert!(schema["description"].is_string(), "{key}: {schema}");
        }
    }

    #[test]
    fn the_schema_has_no_null() {
        assert!(!json_schema().contains("\"null\""));
    }
}
