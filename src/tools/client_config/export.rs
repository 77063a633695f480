//! What a client needs to reach the gateway: by HTTP where it can, by `trunkline connect` where it can only start
//! programs, or has no place for a key but the entry itself.

use serde_json::{Map, Value, json};

use super::client::{DesktopClient, KeySupport};

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
pub struct ExportedEntry {
    /// The text: a whole file, or what is added to it.
    pub text: String,
    /// What else there is to know or to do.
    pub notes: Vec<String>,
}

/// Writes the entry.
pub fn export(asked: Export<'_>) -> ExportedEntry {
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
    let mut file = json!({ client.section(): { asked.name: members(asked, is_program) } });
    match asked.key {
        Some(key) if is_program => {
            notes.push(format!("Save the key in {}, where nobody else can read it (chmod 600)", key.file));
        }
        Some(_) if client.key == KeySupport::Input => {
            file["inputs"] = json!([{
                "type": "promptString",
                "id": input(asked.name),
                "description": "Key of the gateway",
                "password": true,
            }]);
            notes.push(format!("{} asks for the key at the first use, and keeps it", client.title));
        }
        Some(key) => notes.push(format!("Set {} to the key where {} is started", key.variable, client.title)),
        None => {}
    }
    // Maps of texts can always be written.
    let text = if client.format.is_toml {
        toml::to_string(&file).unwrap_or_default()
    } else {
        serde_json::to_string_pretty(&file).unwrap_or_default() + "\n"
    };
    ExportedEntry { text, notes }
}

fn members(asked: Export<'_>, is_program: bool) -> Map<String, Value> {
    let format = asked.client.format;
    let mut entry = Map::new();
    let mut set = |name: &str, value: Value| drop(entry.insert(name.to_owned(), value));
    match format.url.filter(|_| !is_program) {
        None => {
            let mut args = vec!["connect", asked.url];
            args.extend(asked.key.iter().flat_map(|key| ["--key-file", key.file]));
            format.command_type.into_iter().for_each(|kind| set("type", json!(kind)));
            if format.is_one_command {
                args.insert(0, asked.program);
                set("command", json!(args));
            } else {
                set("command", json!(asked.program));
                set("args", json!(args));
            }
        }
        Some(url) => {
            format.url_type.into_iter().for_each(|kind| set("type", json!(kind)));
            set(url, json!(asked.url));
            let Some(key) = asked.key else { return entry };
            let bearer = |from: String| ("headers", json!({ "Authorization": format!("Bearer {from}") }));
            let (member, value) = match asked.client.key {
                KeySupport::VariableName(member) => (member, json!(key.variable)),
                KeySupport::Variable(before, after) => bearer(format!("{before}{}{after}", key.variable)),
                KeySupport::Input | KeySupport::Nothing => {
                    bearer(format!("${{input:{}}}", input(asked.name)))
                }
            };
            set(member, value);
        }
    }
    entry
}

fn input(name: &str) -> String {
    format!("{name}-key")
}
