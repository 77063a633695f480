//! The `notes` demo server: keeps notes in memory, private to its user, and tells subscribers what changed.
//!
//! Worth trying: `delete_note` asks the user first, in a multi round-trip request; `search_notes` has a UI
//! resource, a plain page without scripts; `resources/list` has several pages once there are more than 50
//! notes.

use std::fmt::Write as _;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::confirmation::{self, Confirmations};
use super::html::escaped;
use super::listen::ResourceSet;
use super::methods::{Caching, Profile, ServerContent, ToolOutcome};
use super::notebook::{NOTES_MAX, Note, Notebook};
use super::request::{RpcRequest, text};
use super::rpc::RpcFault;
use super::schema;

const BOARD_URI: &str = "ui://notes/board";
const NOTE_URI_PREFIX: &str = "note://";
const NOTE_URI_TEMPLATE: &str = "note://{number}";
/// Of notes that a search or a prompt shows.
const FOUND_MAX: usize = 20;

pub(super) struct Notes {
    notebook: Mutex<Notebook>,
    confirmations: Confirmations,
}

impl Notes {
    /// A notebook with two notes.
    pub(super) fn new() -> Self {
        let mut notebook = Notebook::default();
        notebook.add("Welcome", "These notes live in memory and are gone when the demo ends.");
        notebook.add("Try this", "Add a note, search for it, then delete it: you will be asked first.");
        Self { notebook: Mutex::new(notebook), confirmations: Confirmations::new() }
    }

    fn add(&self, arguments: &Map<String, Value>) -> ToolOutcome {
        let Some(note) = self.notebook.lock().add(text(arguments, "title"), text(arguments, "text")) else {
            return ToolOutcome::failed(format!(
                "The notebook is full ({NOTES_MAX} notes). Delete one first."
            ));
        };
        let outcome = ToolOutcome::structured(&format!("Added note {}.", note.number), &json!(note));
        ToolOutcome { change: Some(changed(note.number)), ..outcome.linked(note_resource(&note)) }
    }

    fn search(&self, arguments: &Map<String, Value>) -> ToolOutcome {
        let notebook = self.notebook.lock();
        let found: Vec<&Note> = notebook.search(text(arguments, "words")).collect();
        let shown: Vec<&Note> = found.iter().copied().take(FOUND_MAX).collect();
        let mut lines = format!("{} found.", found.len());
        for note in &shown {
            let _ = write!(lines, "\n{}: {}", note.number, note.title);
        }
        ToolOutcome::structured(&lines, &json!({ "total": found.len(), "notes": shown }))
    }

    fn delete(&self, arguments: &Map<String, Value>, request: &RpcRequest) -> Result<ToolOutcome, RpcFault> {
        confirmation::require_forms(request)?;
        let number = arguments.get("number").and_then(Value::as_u64).unwrap_or_default();
        let confirmed = self.confirmations.answer(request, number)?;
        let mut notebook = self.notebook.lock();
        let Some(note) = notebook.get(number) else {
            return Ok(ToolOutcome::failed(format!("There is no note {number}.")));
        };
        Ok(match confirmed {
            None => ToolOutcome { result: self.confirmations.ask(note)?, ..ToolOutcome::default() },
            Some(false) => {
                ToolOutcome::structured(&format!("Kept note {number}."), &json!({ "deleted": false }))
            }
            Some(true) => {
                notebook.delete(number);
                let outcome =
                    ToolOutcome::structured(&format!("Deleted note {number}."), &json!({ "deleted": true }));
                ToolOutcome { change: Some(changed(number)), ..outcome }
            }
        })
    }
}

impl ServerContent for Notes {
    fn profile(&self) -> Profile {
        Profile {
            name: "trunkline-demo-notes",
            title: "Demo notes",
            instructions: "A notebook in memory. Search before adding, and expect the user to be asked before a note is \
                           deleted.",
            capabilities: json!({
                "tools": {},
                "resources": { "listChanged": true, "subscribe": true },
                "prompts": {},
                "completions": {},
                "extensions": { "io.modelcontextprotocol/ui": {} },
            }),
            tools: vec![add_tool(), search_tool(), delete_tool()],
            resource_templates: vec![json!({
                "uriTemplate": NOTE_URI_TEMPLATE,
                "name": "note",
                "title": "Note",
                "description": "One note by its number",
                "mimeType": "text/plain",
            })],
            prompts: vec![json!({
                "name": "summarize",
                "title": "Summarize notes",
                "description": "Summarize the notes about a topic",
                "arguments": [{ "name": "topic", "description": "Words that are in the notes; all notes when left out" }],
            })],
            resource_caching: Caching { ttl_ms: 2_000, scope: "private" },
        }
    }

    fn resources(&self) -> Vec<Value> {
        let board = json!({
            "uri": BOARD_URI,
            "name": "board",
            "title": "Board",
            "description": "All notes on one page",
            "mimeType": "text/html;profile=mcp-app",
        });
        [board].into_iter().chain(self.notebook.lock().notes().map(note_resource)).collect()
    }

    fn call_tool(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
        request: &RpcRequest,
    ) -> Result<ToolOutcome, RpcFault> {
        match name {
            "add_note" => Ok(self.add(arguments)),
            "search_notes" => Ok(self.search(arguments)),
            _ => self.delete(arguments, request),
        }
    }

    fn read_resource(&self, uri: &str) -> Option<Value> {
        let notebook = self.notebook.lock();
        if uri == BOARD_URI {
            return Some(
                json!({ "uri": uri, "mimeType": "text/html;profile=mcp-app", "text": board(&notebook) }),
            );
        }
        notebook.get(note_number(uri)?).map(note_contents)
    }

    fn prompt_messages(&self, _: &str, arguments: &Map<String, Value>) -> Vec<Value> {
        let notebook = self.notebook.lock();
        let notes = notebook.search(text(arguments, "topic")).take(FOUND_MAX).map(note_contents);
        let request = json!({ "type": "text", "text": "Summarize these notes in a few sentences." });
        let notes = notes.map(|contents| json!({ "type": "resource", "resource": contents }));
        [request].into_iter().chain(notes).collect()
    }

    fn completions(&self, reference: &str, argument: &str) -> Vec<String> {
        let notebook = self.notebook.lock();
        match (reference, argument) {
            (NOTE_URI_TEMPLATE, "number") => notebook.notes().map(|note| note.number.to_string()).collect(),
            ("summarize", "topic") => notebook.notes().map(|note| note.title.clone()).collect(),
            _ => Vec::new(),
        }
    }

    fn can_change(&self, uri: &str) -> bool {
        uri == BOARD_URI || note_number(uri).is_some()
    }
}

fn add_tool() -> Value {
    json!({
        "name": "add_note",
        "title": "Add a note",
        "description": "Writes a note; it is kept until the demo ends",
        "inputSchema": schema::arguments(&json!({
            "title": {
                "type": "string",
                "description": "What the note is about, in a few words",
                "minLength": 1,
                "maxLength": 120,
            },
            "text": { "type": "string", "description": "The note itself, in plain text", "maxLength": 4000 },
        })),
        "outputSchema": note_schema(),
        "annotations": { "readOnlyHint": false, "destructiveHint": false, "openWorldHint": false },
    })
}

fn search_tool() -> Value {
    json!({
        "name": "search_notes",
        "title": "Search notes",
        "description": "The notes that have the words in their title or text",
        "inputSchema": schema::arguments(&json!({
            "words": { "type": "string", "description": "Empty for all notes", "maxLength": 120 },
        })),
        "outputSchema": schema::object(&json!({
            "total": { "type": "integer" },
            "notes": { "type": "array", "items": note_schema() },
        })),
        "annotations": { "readOnlyHint": true, "openWorldHint": false },
        "_meta": { "ui": { "resourceUri": BOARD_URI } },
    })
}

fn delete_tool() -> Value {
    json!({
        "name": "delete_note",
        "title": "Delete a note",
        "description": "Deletes a note for good, after asking the user",
        "inputSchema": schema::arguments(&json!({
            "number": {
                "type": "integer",
                "description": "The note's number, as search_notes has it",
                "minimum": 1,
            },
        })),
        "outputSchema": schema::object(&json!({ "deleted": { "type": "boolean" } })),
        "annotations": { "readOnlyHint": false, "destructiveHint": true, "openWorldHint": false },
    })
}

fn note_schema() -> Value {
    schema::object(&json!({
        "number": { "type": "integer" },
        "title": { "type": "string" },
        "text": { "type": "string" },
    }))
}

fn changed(number: u64) -> ResourceSet {
    ResourceSet {
        resource_list: true,
        uris: vec![format!("{NOTE_URI_PREFIX}{number}"), BOARD_URI.to_owned()],
    }
}

fn note_number(uri: &str) -> Option<u64> {
    let number = uri.strip_prefix(NOTE_URI_PREFIX)?;
    number.parse().ok().filter(|parsed: &u64| parsed.to_string() == number)
}

fn note_resource(note: &Note) -> Value {
    json!({
        "uri": format!("{NOTE_URI_PREFIX}{}", note.number),
        "name": format!("note-{}", note.number),
        "title": note.title,
        "mimeType": "text/plain",
    })
}

fn note_contents(note: &Note) -> Value {
    json!({ "uri": format!("{NOTE_URI_PREFIX}{}", note.number), "mimeType": "text/plain", "text": note.text })
}

fn board(notebook: &Notebook) -> String {
    let mut page = String::from(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>Notes</title>\n<h1>Notes</h1>\n<dl>\n",
    );
    for note in notebook.notes() {
        let _ = writeln!(page, "<dt>{}. {}</dt>", note.number, escaped(&note.title));
        let _ = writeln!(page, "<dd>{}</dd>", escaped(&note.text));
    }
    page.push_str("</dl>\n");
    page
}
