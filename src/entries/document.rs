//! A client's file: where its entries stand in it.
//!
//! Forms as the clients' documentation had them in November 2026: `mcpServers` (Claude Desktop, Claude Code, Cursor,
//! Windsurf, Cline, Gemini CLI, LM Studio and most others), `servers` with `inputs` (VS Code), `mcp` (opencode, settings of
//! VS Code), `context_servers` (Zed), `mcp_servers` in TOML (Codex), and entries without anything around them.

use serde_json::{Map, Value};

use super::json;
use crate::config::nearest;
use crate::terminal::text::shown;

/// A client's file may hold its whole history besides.
const BYTES_MAX: usize = 16 << 20;
const ENTRIES_MAX: usize = 1000;

/// The members that hold entries.
const SECTIONS: [&str; 6] =
    ["mcpServers", "servers", "context_servers", "mcp_servers", "mcp", "amp.mcpServers"];
/// What an entry has at least one of.
const MARKS: [&str; 6] = ["command", "url", "httpUrl", "serverUrl", "baseUrl", "uri"];

/// What a file says of servers.
#[derive(Debug, Default)]
pub(super) struct Document {
    /// Names and members of entries, in the order of the file.
    pub(super) entries: Vec<(String, Map<String, Value>)>,
    /// What the client asks its user for: ids, and what it says.
    pub(super) inputs: Vec<(String, String)>,
    /// What is no entry although it stands where one should.
    pub(super) strays: Vec<String>,
}

/// Reads `text`. An error says what is wrong and where, and shows no value.
pub(super) fn read(text: &str) -> Result<Document, String> {
    if text.len() > BYTES_MAX {
        return Err(format!("more than {} MiB: this is no client's configuration", BYTES_MAX >> 20));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let Value::Object(root) = value(text)? else {
        return Err("expected an object with `mcpServers`".to_owned());
    };
    let mut document = Document { inputs: inputs(&root), ..Document::default() };
    let mut is_found = document.take_sections(&root);
    // Claude Code keeps entries of a project with the project.
    for project in root.get("projects").and_then(Value::as_object).into_iter().flat_map(Map::values) {
        is_found |= project.as_object().is_some_and(|project| document.take_sections(project));
    }
    if !is_found && !root.is_empty() && root.values().all(is_entry) {
        document.take(&root);
    } else if !is_found && MARKS.iter().any(|mark| root.get(*mark).is_some_and(Value::is_string)) {
        let name = root.get("name").and_then(Value::as_str).unwrap_or("server").to_owned();
        document.entries.push((name, root));
    } else if !is_found {
        return Err(nothing_found(&root));
    }
    if document.entries.len() > ENTRIES_MAX {
        return Err(format!("{} entries: at most {ENTRIES_MAX} are taken", document.entries.len()));
    }
    Ok(document)
}

fn value(text: &str) -> Result<Value, String> {
    let start = text.trim_start();
    if start.starts_with(['{', '[']) && !looks_like_toml(start) || start.starts_with('/') {
        return json::parse(text).map_err(|error| {
            format!("line {}, column {}: not JSON: {}", error.line, error.column, error.what)
        });
    }
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| text.floor_char_boundary(span.start));
        let line = text[..start].matches('\n').count() + 1;
        format!("line {line}: neither JSON nor TOML")
    })?;
    serde_json::to_value(table).map_err(|_| "neither JSON nor TOML".to_owned())
}

/// A table's header begins as an array does.
fn looks_like_toml(text: &str) -> bool {
    let line = text.lines().next().unwrap_or_default();
    let name = line.trim_start_matches('[');
    text.starts_with('[')
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && line.contains(']')
}

fn is_entry(value: &Value) -> bool {
    MARKS.iter().any(|mark| value.get(*mark).is_some())
}

impl Document {
    /// Takes the entries of all sections of `object`; false if it has none.
    fn take_sections(&mut self, object: &Map<String, Value>) -> bool {
        let mut is_found = false;
        for section in SECTIONS {
            let entries = match object.get(section) {
                Some(Value::Object(entries)) => entries,
                Some(Value::Array(entries)) => {
                    self.take_named(entries);
                    is_found = true;
                    continue;
                }
                _ => continue,
            };
            // Settings of VS Code have one more level.
            match entries.get("servers") {
                Some(Value::Object(inner))
                    if section == "mcp" && !is_entry(&Value::Object(inner.clone())) =>
                {
                    self.inputs.extend(inputs(entries));
                    self.take(inner);
                }
                _ => self.take(entries),
            }
            is_found = true;
        }
        is_found
    }

    /// Some keep a list of entries, each with its name.
    fn take_named(&mut self, entries: &[Value]) {
        for entry in entries {
            let name = entry.get("name").and_then(Value::as_str).unwrap_or("server").to_owned();
            match entry {
                Value::Object(entry) => self.entries.push((name, entry.clone())),
                _ => self.strays.push(name),
            }
        }
    }

    fn take(&mut self, entries: &Map<String, Value>) {
        for (name, entry) in entries {
            match entry {
                Value::Object(entry) => self.entries.push((name.clone(), entry.clone())),
                _ => self.strays.push(name.clone()),
            }
        }
    }
}

fn inputs(object: &Map<String, Value>) -> Vec<(String, String)> {
    let inputs = object.get("inputs").and_then(Value::as_array).into_iter().flatten();
    inputs
        .filter_map(|input| {
            let said = input.get("description").and_then(Value::as_str).unwrap_or_default();
            Some((input.get("id")?.as_str()?.to_owned(), said.to_owned()))
        })
        .collect()
}

fn nothing_found(root: &Map<String, Value>) -> String {
    let what = "no servers in it: they are looked for in `mcpServers`, `servers`, `context_servers`, `mcp_servers` and `mcp`";
    let near = root.keys().find_map(|key| Some((key, nearest(key, SECTIONS)?)));
    match near {
        Some((key, suggestion)) => format!("{what}; `{}`: {suggestion}", shown(key)),
        None => what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        read(text).expect(text).entries.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn entries_are_found_where_each_client_keeps_them() {
        for (text, expected) in [
            (
                r#"{"mcpServers": {"b": {"command": "x"}, "a": {"url": "y"}}, "theme": "dark"}"#,
                &["b", "a"][..],
            ),
            (r#"{"servers": {"a": {"type": "http", "url": "y"}}, "inputs": []}"#, &["a"]),
            (r#"{"context_servers": {"a": {"command": {"path": "x"}}}}"#, &["a"]),
            (r#"{"mcp": {"a": {"type": "local", "command": ["x"]}}}"#, &["a"]),
            (r#"{"mcp": {"servers": {"a": {"command": "x"}}}}"#, &["a"]),
            (r#"{"mcp": {"servers": {"command": "x"}}}"#, &["servers"]),
            (r#"{"projects": {"/p": {"mcpServers": {"a": {"command": "x"}}}}, "mcpServers": {}}"#, &["a"]),
            (r#"{"a": {"command": "x"}, "b": {"url": "y"}}"#, &["a", "b"]),
            (r#"{"mcpServers": [{"name": "a", "command": "x"}, {"url": "y"}]}"#, &["a", "server"]),
            (r#"{"mcpServers": []}"#, &[]),
            (r#"{"amp.mcpServers": {"a": {"command": "x"}}}"#, &["a"]),
            (r#"{"command": "x"}"#, &["server"]),
            ("model = \"m\"\n[mcp_servers.a]\ncommand = \"x\"\n[mcp_servers.b]\nurl = \"y\"", &["a", "b"]),
            ("[mcp_servers.a]\ncommand = \"x\"", &["a"]),
            ("\u{feff}// mine\n{\"mcpServers\": {}}", &[]),
        ] {
            assert_eq!(names(text), expected, "{text}");
        }
    }

    #[test]
    fn what_holds_no_servers_is_said_so() {
        for (text, expected) in [
            ("", "no servers"),
            ("{}", "no servers"),
            ("[]", "expected an object"),
            (r#"{"mcpserver": {}}"#, "did you mean `mcpServers`?"),
            ("{\"mcpServers\": {\n\"a\": hunter2}}", "line 2, column 6: not JSON"),
            ("a: hunter2\nb: [", "line 1: neither JSON nor TOML"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(expected) && !error.contains("hunter2"), "{text}: {error}");
        }
    }
}
