//! What a client needs to reach the gateway: by HTTP where it can, by `trunkline connect` where it can only start
//! programs, or has no place for a key but the entry itself.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::client::{ConfigFormat, DesktopClient, KeySupport};
use super::toml_text;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Export<'e> {
    /// Who it is for.
    pub client: &'static DesktopClient,
    /// What the client is to call the gateway.
    pub name: &'e str,
    /// Where the gateway is.
    pub url: &'e str,
    /// The key that it wants, if it does.
    pub key: Option<ExportKey<'e>>,
    /// Where this program is, for a client that starts it.
    pub program: &'e str,
    /// Whether the client is to start it although it could do without.
    pub as_program: bool,
}

/// Where a client has its key from.
#[derive(Debug, Clone, Copy)]
pub struct ExportKey<'e> {
    /// The environment variable.
    pub variable: &'e str,
    /// The file, for `trunkline connect`.
    pub file: &'e str,
}

/// What a client's file needs.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// The text: a whole file, or what is added to it.
    pub text: String,
    /// What else there is to know or to do.
    pub notes: Vec<String>,
}

/// The entry.
pub fn export(asked: Export<'_>) -> Entry {
    let client = asked.client;
    let needs_program =
        client.is_for_programs_alone() || asked.key.is_some() && client.key == KeySupport::Nothing;
    let mut notes = Vec::new();
    if needs_program && !client.is_for_programs_alone() && !asked.as_program {
        notes.push(format!(
            "{} keeps keys of servers in the entry itself: a program reads it from a file",
            client.title
        ));
    }
    let is_program = asked.as_program || needs_program;
    let text =
        if client.form == ConfigFormat::Toml { toml(asked, is_program) } else { json(asked, is_program) };
    match asked.key {
        Some(key) if is_program => {
            notes.push(format!("Save the key in {}, where nobody else can read it (chmod 600)", key.file));
        }
        Some(_) if client.key == KeySupport::Input => {
            notes.push(format!("{} asks for the key at the first use, and keeps it", client.title));
        }
        Some(key) => notes.push(format!("Set {} to the key where {} is started", key.variable, client.title)),
        None => {}
    }
    Entry { text, notes }
}

fn words(asked: Export<'_>) -> (String, Vec<String>) {
    let mut args = vec!["connect".to_owned(), asked.url.to_owned()];
    if let Some(key) = asked.key {
        args.extend(["--key-file".to_owned(), key.file.to_owned()]);
    }
    (asked.program.to_owned(), args)
}

fn json(asked: Export<'_>, is_program: bool) -> String {
    let mut entry = Map::new();
    if is_program {
        let (program, args) = words(asked);
        match asked.client.form {
            ConfigFormat::Mcp => {
                let command: Vec<String> = [program].into_iter().chain(args).collect();
                entry.extend([("type".to_owned(), json!("local")), ("command".to_owned(), json!(command))]);
            }
            form => {
                if form == ConfigFormat::Servers {
                    entry.insert("type".to_owned(), json!("stdio"));
                }
                entry.extend([("command".to_owned(), json!(program)), ("args".to_owned(), json!(args))]);
            }
        }
    } else {
        let (url, kind) = match asked.client.form {
            ConfigFormat::McpServers { url, kind } => (url, kind),
            ConfigFormat::Servers => ("url", Some("http")),
            ConfigFormat::Mcp => ("url", Some("remote")),
            _ => ("url", None),
        };
        entry.extend(kind.map(|kind| ("type".to_owned(), json!(kind))));
        entry.insert(url.to_owned(), json!(asked.url));
        if let Some(key) = asked.key {
            entry.insert(
                "headers".to_owned(),
                json!({ "Authorization": format!("Bearer {}", placeholder(asked, key)) }),
            );
        }
    }
    let mut root = Map::new();
    root.insert(asked.client.section().to_owned(), json!({ asked.name: entry }));
    if !is_program && asked.key.is_some() && asked.client.key == KeySupport::Input {
        let input = json!({
            "type": "promptString", "id": input(asked.name), "description": "Key of the gateway", "password": true
        });
        root.insert("inputs".to_owned(), json!([input]));
    }
    // A map of texts can always be written.
    serde_json::to_string_pretty(&Value::Object(root)).unwrap_or_default() + "\n"
}

fn placeholder(asked: Export<'_>, key: ExportKey<'_>) -> String {
    match asked.client.key {
        KeySupport::Variable(before, after) => format!("{before}{}{after}", key.variable),
        KeySupport::Input | KeySupport::Nothing => format!("${{input:{}}}", input(asked.name)),
    }
}

fn input(name: &str) -> String {
    format!("{name}-key")
}

fn toml(asked: Export<'_>, is_program: bool) -> String {
    let mut text = format!("[mcp_servers.{}]\n", toml_text::key(asked.name));
    // Writing to a string cannot fail.
    if is_program {
        let (program, args) = words(asked);
        let _ = writeln!(text, "command = {}", toml_text::string(&program));
        let _ = writeln!(text, "args = {}", toml_text::array(args.iter().map(String::as_str)));
    } else {
        let _ = writeln!(text, "url = {}", toml_text::string(asked.url));
        if let Some(key) = asked.key {
            let _ = writeln!(text, "bearer_token_env_var = {}", toml_text::string(key.variable));
        }
    }
    text
}
