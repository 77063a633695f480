//! `${NAME}` and `${NAME:-default}` in the strings of a configuration stand for what the environment has; a default may
//! have variables of its own; `$${` stands for `${`. Keys are taken as they are written, and so is what stands where a
//! secret does not belong: a secret is named, as in `{ env = "NAME" }`, and never part of the text. The
//! environment is asked by whoever reads the file.

use std::borrow::Cow;

use toml::de::{DeTable, DeValue};

use super::error::Diagnostic;
use super::findings::Node;

/// What the environment has under a name.
pub type EnvironmentLookup<'e> = &'e dyn Fn(&str) -> Option<String>;

/// Keys whose value is a secret: what is written there is refused, and never looked up.
const SECRETS: [&str; 9] =
    ["basic", "bearer", "client_key", "client_secret", "key", "password", "secret", "sha256", "token"];

/// A default has variables with defaults, and so on, at most so often.
const NESTED_MAX: usize = 8;

/// Variables that systemd sets for `StateDirectory=` and its like.
const DIRECTORIES: [&str; 5] =
    ["CACHE_DIRECTORY", "CONFIGURATION_DIRECTORY", "LOGS_DIRECTORY", "RUNTIME_DIRECTORY", "STATE_DIRECTORY"];

/// Tables whose keys are names that somebody chose.
const FREE_NAMES: [&str; 2] = ["env", "headers"];

/// Replaces all variables below `table`.
pub(super) fn expand(
    table: &mut DeTable<'_>,
    environment: EnvironmentLookup<'_>,
    errors: &mut Vec<Diagnostic>,
) {
    for (key, node) in table.iter_mut() {
        let key = &**key.get_ref();
        match node.get_ref() {
            DeValue::String(_) if SECRETS.contains(&key) => {}
            // With a secret in the place of its name, an error would show it.
            DeValue::Table(source) if !FREE_NAMES.contains(&key) && names_a_secret(source) => {}
            _ => expand_node(node, environment, errors),
        }
    }
}

fn names_a_secret(table: &DeTable<'_>) -> bool {
    table.len() == 1 && (table.contains_key("env") || table.contains_key("credential"))
}

fn expand_node(node: &mut Node<'_>, environment: EnvironmentLookup<'_>, errors: &mut Vec<Diagnostic>) {
    let span = node.span();
    match node.get_mut() {
        DeValue::String(text) if text.contains("${") => match expanded(text, environment, NESTED_MAX) {
            Ok(with_values) => *text = Cow::Owned(with_values),
            Err(fault) => errors.push(Diagnostic::error(span, fault).secret()),
        },
        DeValue::Array(nodes) => {
            for node in nodes.iter_mut() {
                expand_node(node, environment, errors);
            }
        }
        DeValue::Table(table) => expand(table, environment, errors),
        _ => {}
    }
}

/// The text with what its variables stand for, or what is wrong with it.
fn expanded(text: &str, environment: EnvironmentLookup<'_>, nested_max: usize) -> Result<String, String> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        if let Some(plain) = before.strip_suffix('$') {
            out.push_str(plain);
            out.push_str("${");
            rest = &from[2..];
            continue;
        }
        out.push_str(before);
        let end = end_of(&from[2..]).ok_or("`${` without `}`: write `${NAME}`, or `$${` for `${`")?;
        let (inside, after) = (&from[2..2 + end], &from[2 + end + 1..]);
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        if !is_name(name) {
            return Err("`${…}` names no variable: write `${NAME}` or `${NAME:-default}`, or `$${` for `${`"
                .to_owned());
        }
        // As a shell has it, an empty one does not count where there is a default.
        let value = environment(name).map(|value| of_several(name, value));
        let value = value.filter(|value| !(value.is_empty() && default.is_some()));
        let value = match (value, default) {
            (Some(value), _) => value,
            (None, Some(default)) => {
                let nested_max =
                    nested_max.checked_sub(1).ok_or("defaults of variables are nested too deep")?;
                expanded(default, environment, nested_max)?
            }
            (None, None) => {
                return Err(format!(
                    "the environment has no `{name}`: set it, or write `${{{name}:-default}}`"
                ));
            }
        };
        out.push_str(&value);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Of several directories, which systemd separates by colons, the first one.
fn of_several(name: &str, mut value: String) -> String {
    if DIRECTORIES.contains(&name) {
        value.truncate(value.find(':').unwrap_or(value.len()));
    }
    value
}

/// The `}` of a variable whose `${` stands before the text.
fn end_of(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, found) in text.match_indices(['{', '}']) {
        match found {
            "}" if depth == 0 => return Some(at),
            "}" => depth -= 1,
            _ if text[..at].ends_with('$') && !text[..at].ends_with("$$") => depth += 1,
            _ => {}
        }
    }
    None
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        match name {
            "HOST" => Some("10.0.0.1".to_owned()),
            "EMPTY" => Some(String::new()),
            "STATE_DIRECTORY" | "SEVERAL" => Some("/var/lib/a:/var/lib/b".to_owned()),
            "LOGS_DIRECTORY" => Some("/var/log/a".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn variables_stand_for_what_the_environment_has() {
        let deep = format!("{}{}", "${NONE:-".repeat(100_000), "}".repeat(100_000));
        for (text, expected) in [
            ("http://${HOST}:${PORT:-9101}/mcp", Ok("http://10.0.0.1:9101/mcp")),
            ("${EMPTY}a${EMPTY:-b}${PORT:-}", Ok("ab")),
            ("${NONE:-${HOST}/a}/b", Ok("10.0.0.1/a/b")),
            ("${HOST:-${NONE}/a}/b", Ok("10.0.0.1/b")),
            ("${NONE:-$${HOST} {a", Ok("${HOST {a")),
            ("${NONE:-${EMPTY:-${HOST}}}}", Ok("10.0.0.1}")),
            ("${NONE:-${NONE}/a}", Err("the environment has no `NONE`: set it, or write `${NONE:-default}`")),
            ("${NONE:-${HOST}", Err("`${` without `}`: write `${NAME}`, or `$${` for `${`")),
            ("${STATE_DIRECTORY:-${HOST}}/x", Ok("/var/lib/a/x")),
            ("${LOGS_DIRECTORY}/x", Ok("/var/log/a/x")),
            ("${SEVERAL}/x", Ok("/var/lib/a:/var/lib/b/x")),
            (&*deep, Err("defaults of variables are nested too deep")),
            ("$${HOST} $HOST $$ }", Ok("${HOST} $HOST $$ }")),
            ("${PORT}", Err("the environment has no `PORT`: set it, or write `${PORT:-default}`")),
            ("${HOST", Err("`${` without `}`: write `${NAME}`, or `$${` for `${`")),
            (
                "${}",
                Err("`${…}` names no variable: write `${NAME}` or `${NAME:-default}`, or `$${` for `${`"),
            ),
        ] {
            assert_eq!(
                expanded(text, &environment, NESTED_MAX).as_deref().map_err(String::as_str),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn secrets_are_left_alone_and_all_else_is_not() {
        let text = "a = [\"${HOST}\"]\nbearer = \"${HOST}\"\ntoken = { file = \"/${HOST}\" }\n[b.c]\nd = \"${NONE}\"\n";
        let (mut root, _) = DeTable::parse_recoverable(text);
        let mut errors = Vec::new();
        expand(root.get_mut(), &environment, &mut errors);
        let table = root.get_ref();
        assert_eq!(table["a"].get_ref().as_array().unwrap()[0].get_ref().as_str(), Some("10.0.0.1"));
        assert_eq!(table["bearer"].get_ref().as_str(), Some("${HOST}"));
        assert_eq!(
            table["token"].get_ref().as_table().unwrap()["file"].get_ref().as_str(),
            Some("/10.0.0.1")
        );
        assert_eq!(errors.len(), 1);
        assert_eq!(&text[errors[0].span.clone()], "\"${NONE}\"");
    }

    #[test]
    fn the_name_of_a_secret_is_no_variable() {
        for (text, expected) in [
            ("a = { env = \"${HOST}\" }", "${HOST}"),
            ("a = { credential = \"${HOST}\" }", "${HOST}"),
            ("headers = { env = \"${HOST}\" }", "10.0.0.1"),
            ("[env]\nenv = \"${HOST}\"", "10.0.0.1"),
        ] {
            let (mut root, _) = DeTable::parse_recoverable(text);
            expand(root.get_mut(), &environment, &mut Vec::new());
            let (_, table) = root.get_ref().iter().next().unwrap();
            let (_, value) = table.get_ref().as_table().unwrap().iter().next().unwrap();
            assert_eq!(value.get_ref().as_str(), Some(expected), "{text}");
        }
    }
}
