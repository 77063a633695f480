//! Asking the user before a note is deleted: a multi round-trip request with one form.
//!
//! The question goes out with a `requestState` that nobody can guess; the retry brings it back with the
//! answer. The state is a key into memory, so there is nothing in it to forge.
//!
//! Invariant: a state is good once and for the note it was handed out for.

use serde_json::{Value, json};

use super::keyed_table::KeyedTable;
use super::notebook::Note;
use super::request::RpcRequest;
use super::rpc::RpcFault;

const WAITING_MAX: usize = 64;
/// The key of the one question.
const QUESTION: &str = "confirmation";

/// Refuses a client that cannot show a form to its user. Form mode is what elicitation without modes means.
pub(super) fn require_forms(request: &RpcRequest) -> Result<(), RpcFault> {
    match request.client_capability("elicitation") {
        Some(Value::Object(modes)) if modes.is_empty() || modes.contains_key("form") => Ok(()),
        _ => {
            let message = "delete_note asks the user, so the client must declare elicitation";
            Err(RpcFault::missing_capability(message, &json!({ "elicitation": { "form": {} } })))
        }
    }
}

/// The questions that wait for an answer: by their states, the numbers of their notes.
pub(super) struct Confirmations(KeyedTable<u64>);

impl Confirmations {
    pub(super) fn new() -> Self {
        Self(KeyedTable::new(WAITING_MAX))
    }

    /// The result that asks whether to delete `note`.
    pub(super) fn ask(&self, note: &Note) -> Result<Value, RpcFault> {
        let state = self.0.insert(note.number)?;
        Ok(json!({
            "resultType": "input_required",
            "inputRequests": { QUESTION: {
                "method": "elicitation/create",
                "params": {
                    "mode": "form",
                    "message": format!("Delete note {} “{}” for good?", note.number, note.title),
                    "requestedSchema": {
                        "type": "object",
                        "properties": { "ok": { "type": "boolean", "title": "Delete it", "default": false } },
                        "required": ["ok"],
                    },
                },
            } },
            "requestState": state,
        }))
    }

    /// What the user said about deleting note `number`; `None` when there is no answer yet, so that it is asked for.
    pub(super) fn answer(&self, request: &RpcRequest, number: u64) -> Result<Option<bool>, RpcFault> {
        let Some(state) = request.params.get("requestState") else { return Ok(None) };
        if !state.as_str().is_some_and(|state| self.take(state, number)) {
            return Err(RpcFault::invalid_params(
                "requestState is unknown, was used or belongs to another note",
            ));
        }
        let answers = request.params.get("inputResponses");
        let Some(answer) = answers.and_then(|answers| answers.get(QUESTION)) else { return Ok(None) };
        match answer["action"].as_str() {
            Some("accept") => Ok(answer["content"]["ok"].as_bool()),
            Some("decline" | "cancel") => Ok(Some(false)),
            _ => {
                let message = format!("inputResponses.{QUESTION} is not the result of an elicitation");
                Err(RpcFault::invalid_params(message))
            }
        }
    }

    fn take(&self, state: &str, number: u64) -> bool {
        self.0.get(state) == Some(number) && self.0.remove(state).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(result: &Value) -> String {
        result["requestState"].as_str().unwrap().to_owned()
    }

    #[test]
    fn a_state_is_good_once_and_for_its_note_only() {
        let note = Note { number: 1, title: String::new(), text: String::new() };
        let confirmations = Confirmations::new();
        let first = state(&confirmations.ask(&note).unwrap());
        assert!(!confirmations.take(&first, 2));
        assert!(!confirmations.take(&format!("{first}0"), 1));
        assert!(confirmations.take(&first, 1));
        assert!(!confirmations.take(&first, 1));
    }

    #[test]
    fn the_oldest_question_gives_way() {
        let note = Note { number: 1, title: String::new(), text: String::new() };
        let confirmations = Confirmations::new();
        let states: Vec<String> =
            (0..=WAITING_MAX).map(|_| state(&confirmations.ask(&note).unwrap())).collect();
        assert!(!confirmations.take(&states[0], 1));
        assert!(states[1..].iter().all(|state| confirmations.take(state, 1)));
    }
}
