//! A client's file: where its entries stand in it.
//!
//! Forms as the clients' documentation had them in November 2026: `mcpServers` (Claude Desktop, Claude Code, Cursor,
//! Windsurf, Cline, Gemini CLI, LM Studio and most others), `servers` with `inputs` (VS Code), `mcp` (opencode, settings of
//! VS Code), `context_servers` (Zed), `mcp_servers` in TOML (Codex), and entries without anything around them.

use serde_json::{Map, Value};

use super::json;
use config::nearest;
use protocol::text::shown;

/// A client's file may hold its whole history besides.
pub(super) const BYTES_MAX: usize = 16 << 20;
/// TOML holds no history.
const TOML_BYTES_MAX: usize = 1 << 20;
const ENTRIES_MAX: usize = 1000;
/// Texts, names and values of one entry, and of all: what is longer was not written for a client.
const ENTRY_BYTES_MAX: usize = 128 << 10;
const ALL_ENTRIES_BYTES_MAX: usize = 1 << 20;
/// What a client asks its user for; of more, the rest has no description.
const INPUTS_MAX: usize = 1000;
/// Members of a file that are compared with those that hold entries.
const MEMBERS_COMPARED_MAX: usize = 1000;

/// The members that hold entries.
const SECTIONS: [&str; 6] =
    ["mcpServers", "servers", "context_servers", "mcp_servers", "mcp", "amp.mcpServers"];
/// What an entry has at least one of.
const MARKS: [&str; 6] = ["command", "url", "httpUrl", "serverUrl", "baseUrl", "uri"];

/// What a file says of servers.
#[derive(Debug, Default)]
pub(super) struct ClientDocument {
    /// Names and members of entries, in the order of the file.
    pub(super) entries: Vec<(String, Map<String, Value>)>,
    /// What the client asks its user for: ids, and what it says.
    pub(super) inputs: Vec<(String, String)>,
    /// What is not taken although it stands where an entry should, and why.
    pub(super) strays: Vec<(String, String)>,
    /// Bytes of the entries.
    bytes: usize,
}

/// Reads `text`. An error says what is wrong and where, and shows no value.
pub(super) fn read(text: &str) -> Result<ClientDocument, String> {
    if text.len() > BYTES_MAX {
        return Err(format!("more than {} MiB: this is no client's configuration", BYTES_MAX >> 20));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let Value::Object(root) = value(text)? else {
        return Err("expected an object with `mcpServers`".to_owned());
    };
    let mut document = ClientDocument { inputs: inputs(&root), ..ClientDocument::default() };
    let mut is_found = document.take_sections(&root);
    // Claude Code keeps entries of a project with the project.
    for project in root.get("projects").and_then(Value::as_object).into_iter().flat_map(Map::values) {
        is_found |= project.as_object().is_some_and(|project| document.take_sections(project));
    }
    if !is_found && !root.is_empty() && root.values().all(is_entry) {
        document.take_all(&root);
    } else if !is_found && MARKS.iter().any(|mark| root.get(*mark).is_some_and(Value::is_string)) {
        let name = root.get("name").and_then(Value::as_str).unwrap_or("server").to_owned();
        document.push(&name, &root);
    } else if !is_found {
        return Err(nothing_found(&root));
    }
    if document.entries.len() > ENTRIES_MAX {
        return Err(format!("more than {ENTRIES_MAX} entries: at most that many are taken"));
    }
    if document.bytes > ALL_ENTRIES_BYTES_MAX {
        return Err(format!(
            "entries of more than {} KiB in all: at most that is taken",
            ALL_ENTRIES_BYTES_MAX >> 10
        ));
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
    if text.len() > TOML_BYTES_MAX {
        return Err(format!(
            "more than {} KiB of TOML: this is no client's configuration",
            TOML_BYTES_MAX >> 10
        ));
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

impl ClientDocument {
    /// Takes the entries of all sections of `object`; false if it has none.
    fn take_sections(&mut self, object: &Map<String, Value>) -> bool {
        let mut is_found = false;
        for section in SECTIONS {
            match object.get(section) {
                // Some keep a list of entries, each with its name.
                Some(Value::Array(entries)) => {
                    for entry in entries {
                        self.take(entry.get("name").and_then(Value::as_str).unwrap_or("server"), entry);
                    }
                }
                Some(Value::Object(entries)) => match entries.get("servers") {
                    // Settings of VS Code have one more level.
                    Some(servers @ Value::Object(inner)) if section == "mcp" && !is_entry(servers) => {
                        self.inputs.extend(inputs(entries));
                        self.take_all(inner);
                    }
                    _ => self.take_all(entries),
                },
                _ => continue,
            }
            is_found = true;
        }
        is_found
    }

    fn take_all(&mut self, entries: &Map<String, Value>) {
        for (name, entry) in entries {
            self.take(name, entry);
        }
    }

    fn take(&mut self, name: &str, entry: &Value) {
        match entry {
            Value::Object(entry) => self.push(name, entry),
            _ => self.strays.push((name.to_owned(), "it is no object".to_owned())),
        }
    }

    /// Takes an entry, unless it is none by its size: what is made of it takes longer than reading it.
    fn push(&mut self, name: &str, entry: &Map<String, Value>) {
        let bytes = name.len() + bytes_of(entry);
        if bytes > ENTRY_BYTES_MAX {
            let why = format!("it has more than {} KiB", ENTRY_BYTES_MAX >> 10);
            self.strays.push((name.to_owned(), why));
            return;
        }
        self.bytes += bytes;
        // Beyond either limit nothing of the file is taken.
        if self.entries.len() <= ENTRIES_MAX && self.bytes <= ALL_ENTRIES_BYTES_MAX {
            self.entries.push((name.to_owned(), entry.clone()));
        }
    }
}

/// Bytes of the names and texts of an entry; everything else counts as one.
fn bytes_of(members: &Map<String, Value>) -> usize {
    fn bytes(value: &Value) -> usize {
        1 + match value {
            Value::String(text) => text.len(),
            Value::Array(elements) => elements.iter().map(bytes).sum(),
            Value::Object(members) => bytes_of(members),
            _ => 0,
        }
    }
    members.iter().map(|(name, value)| name.len() + bytes(value)).sum()
}

fn inputs(object: &Map<String, Value>) -> Vec<(String, String)> {
    let inputs = object.get("inputs").and_then(Value::as_array).into_iter().flatten().take(INPUTS_MAX);
    inputs
        .filter_map(|input| {
            let said = input.get("description").and_then(Value::as_str).unwrap_or_default();
            Some((input.get("id")?.as_str()?.to_owned(), said.to_owned()))
        })
        .collect()
}

fn nothing_found(root: &Map<String, Value>) -> String {
    let what = "no servers in it: they are looked for in `mcpServers`, `servers`, `context_servers`, `mcp_servers` and `mcp`";
    let near = root
        .keys()
        .take(MEMBERS_COMPARED_MAX)
        .filter(|key| key.len() <= 64)
        .find_map(|key| Some((key, nearest(key, SECTIONS)?)));
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
    fn what_no_client_would_write_is_not_taken() {
        let members =
            |count: usize| (0..count).map(|at| format!("\"m{at}\": 1,")).collect::<Vec<_>>().concat();
        let large = members(30_000);
        let document =
            read(&format!(r#"{{"mcpServers": {{"a": {{{large}"command": "x"}}, "b": {{"url": "y"}}}}}}"#))
                .unwrap();
        assert_eq!(document.entries.len(), 1);
        assert_eq!(document.strays, [("a".to_owned(), "it has more than 128 KiB".to_owned())]);

        let many = |count: usize, text: &str| {
            (0..count).map(|at| format!(r#""s{at}": {{"command": "{text}"}},"#)).collect::<Vec<_>>().concat()
        };
        for (entries, expected) in [
            (many(1001, "x"), "more than 1000 entries: at most that many are taken"),
            (many(20, &"x".repeat(60_000)), "entries of more than 1024 KiB in all: at most that is taken"),
        ] {
            assert_eq!(read(&format!(r#"{{"mcpServers": {{{entries}}}}}"#)).unwrap_err(), expected);
        }
        let toml = format!("[mcp_servers.a]\ncommand = \"x\"\n# {}", "x".repeat(TOML_BYTES_MAX));
        assert!(read(&toml).unwrap_err().contains("1024 KiB of TOML"));
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
