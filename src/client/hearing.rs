//! What becomes of a server's messages that answer nothing: the person is told, or asked.
//!
//! Questions are asked one after another, and few may wait. Whatever else is on its way goes on meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::failure::Failure;
use super::person::{Person, Refusal};

/// Questions that wait at once.
const QUESTIONS_MAX: usize = 16;
/// Messages before one answer.
const MESSAGES_MAX: u64 = 1_000_000;

/// The ear of a client.
pub(super) struct Hearing {
    pub(super) person: Rc<dyn Person>,
    /// Held while the person is asked something.
    asking: Mutex<()>,
    /// The questions that wait, by their ids, each with what takes it back.
    questions: RefCell<HashMap<String, CancellationToken>>,
    /// Requests under way: who may report progress.
    under_way: RefCell<Vec<u64>>,
    /// Messages since an answer.
    messages: Cell<u64>,
}

impl Hearing {
    pub(super) fn new(person: Rc<dyn Person>) -> Self {
        Self {
            person,
            asking: Mutex::default(),
            questions: RefCell::default(),
            under_way: RefCell::default(),
            messages: Cell::new(0),
        }
    }

    /// Whether the server waits for the person.
    pub(super) fn is_asking(&self) -> bool {
        !self.questions.borrow().is_empty()
    }

    /// Counts one more message; an error if there are more than anybody reads.
    pub(super) fn count(&self) -> Result<(), Failure> {
        self.messages.set(self.messages.get() + 1);
        if self.messages.get() > MESSAGES_MAX { Err(Failure::Flood(MESSAGES_MAX)) } else { Ok(()) }
    }

    /// How many there were since the last request began.
    pub(super) fn counted(&self) -> u64 {
        self.messages.get()
    }

    /// A request begins, whose id is its progress token.
    pub(super) fn begin(&self, id: u64) {
        self.messages.set(0);
        self.under_way.borrow_mut().push(id);
    }

    /// A request is over.
    pub(super) fn end(&self, id: u64) {
        self.under_way.borrow_mut().retain(|other| *other != id);
    }

    /// A notification.
    pub(super) fn tell(&self, method: &str, params: &Value) {
        match method {
            "notifications/cancelled" => {
                if self.withdraw(params.get("requestId").unwrap_or(&Value::Null)) {
                    self.person.told(method, params);
                }
            }
            "notifications/progress" => {
                let token = params.get("progressToken").and_then(Value::as_u64);
                if token.is_some_and(|token| self.under_way.borrow().contains(&token)) {
                    self.person.told(method, params);
                }
            }
            _ => self.person.told(method, params),
        }
    }

    /// A question of a server of the legacy era. `None`: it was taken back.
    pub(super) async fn answer(&self, id: &Value, method: &str, params: &Value) -> Option<Value> {
        let outcome = match method {
            "ping" => Ok(json!({})),
            _ if self.questions.borrow().len() >= QUESTIONS_MAX => {
                Err(Refusal::because("too many questions wait for an answer"))
            }
            _ => {
                let asked = self.note(id);
                tokio::select! {
                    outcome = self.ask(method, params) => outcome,
                    () = asked.taken_back.cancelled() => return None,
                }
            }
        };
        Some(match outcome {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(refusal) => json!({"jsonrpc": "2.0", "id": id, "error": refusal.error()}),
        })
    }

    /// Asks the person.
    pub(super) async fn ask(&self, method: &str, params: &Value) -> Result<Value, Refusal> {
        let _alone = self.asking.lock().await;
        self.person.asked(method, params).await
    }

    /// Takes every question back.
    pub(super) fn withdraw_all(&self) {
        self.questions.borrow().values().for_each(CancellationToken::cancel);
    }

    /// Takes a question back; false: it does not wait.
    fn withdraw(&self, id: &Value) -> bool {
        self.questions.borrow().get(&id.to_string()).inspect(|question| question.cancel()).is_some()
    }

    fn note(&self, id: &Value) -> Asked<'_> {
        let taken_back = CancellationToken::new();
        let key = id.to_string();
        self.questions.borrow_mut().insert(key.clone(), taken_back.clone());
        Asked { hearing: self, key, taken_back }
    }
}

/// A question that waits, until it is dropped.
struct Asked<'a> {
    hearing: &'a Hearing,
    key: String,
    taken_back: CancellationToken,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.hearing.questions.borrow_mut().remove(&self.key);
    }
}
