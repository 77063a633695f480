//! The JSON Schema of the configuration file, for editors and for review. It comes from the very types that read the
//! file, so it has every key; what must hold between keys it does not say.

use schemars::generate::SchemaSettings;

use super::file::File;

/// The JSON Schema (draft 2020-12) of the configuration, indented, with a newline at its end.
pub fn json_schema() -> String {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<File>();
    // The alternate form of a JSON value is the indented one.
    format!("{:#}\n", schema.as_value())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use serde_json::Value;

    use super::*;
    use crate::parse;

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
        text_of("trunkline.toml").lines().map(uncommented).collect::<Vec<_>>().join("\n")
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
                toml::Value::Table(table) => vec![table],
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
    fn every_example_parses_without_warnings() {
        let mut parsed = 0;
        for entry in fs::read_dir(folder()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let text = fs::read_to_string(&path).unwrap();
                let name = path.display().to_string();
                let config = parse(&text).unwrap_or_else(|errors| panic!("{}", errors.render(&name, &text)));
                assert_eq!(config.warnings, [], "{name}");
                parsed += 1;
            }
        }
        assert!(parsed >= 3, "only {parsed} files");
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
        let minimal = parse(&text_of("minimal.toml")).unwrap();
        assert!(keys_of(&text).len() > 30, "the defaults are not written out");
        written_out.warnings.clear();
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
    fn the_defaults_of_the_schema_are_those_of_the_reference() {
        let root: toml::Table = reference(false).parse().unwrap();
        let root = serde_json::to_value(root).unwrap();
        let mut compared = 0;
        for (key, schema) in schema_keys() {
            let pointer = match key.split_once('.') {
                Some(("endpoint", key)) => format!("/endpoint/0/{key}"),
                Some(("upstream", key)) => format!("/upstream/weather/{key}"),
                _ => format!("/{}", key.replace('.', "/")),
            };
            let Some(default) = schema.get("default") else { continue };
            // An empty table has no line of its own in the reference.
            if key != "endpoint.aliases" {
                assert_eq!(root.pointer(&pointer), Some(default), "{key}");
                compared += 1;
            }
        }
        assert!(compared > 25, "only {compared} defaults");
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
