//! What becomes of a server's messages that answer nothing: the user is told, or asked.
//!
//! Questions are asked one after another, and few may wait. Whatever else is on its way goes on meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::error::RequestError;
use super::incoming_message::IncomingMessage;
use super::user_interaction::{NoAnswer, UserInteraction};
use net::tasks::Tasks;

/// Questions that wait at once.
const QUESTIONS_MAX: usize = 16;
/// Answers on their way to the server.
const ANSWERS_MAX: usize = 32;
/// Messages before one answer.
const MESSAGES_MAX: u64 = 1_000_000;

/// Takes the messages of a server that are no responses.
pub(super) struct IncomingHandler {
    pub(super) user: Rc<dyn UserInteraction>,
    /// Held while the user is asked something.
    asking: Mutex<()>,
    /// The questions that wait, by their ids, each with what takes it back.
    questions: RefCell<HashMap<String, CancellationToken>>,
    /// Requests under way: who may report progress.
    under_way: RefCell<Vec<u64>>,
    /// Answers under way.
    answers: Cell<usize>,
    /// Messages since an answer.
    messages: Cell<u64>,
}

impl IncomingHandler {
    pub(super) fn new(user: Rc<dyn UserInteraction>) -> Self {
        Self {
            user,
            asking: Mutex::default(),
            questions: RefCell::default(),
            under_way: RefCell::default(),
            answers: Cell::new(0),
            messages: Cell::new(0),
        }
    }

    /// Whether the server waits for the user.
    pub(super) fn is_waiting_for_user(&self) -> bool {
        !self.questions.borrow().is_empty()
    }

    /// Counts one more message; an error if there are more than anybody reads.
    pub(super) fn count(&self) -> Result<(), RequestError> {
        self.messages.set(self.messages.get() + 1);
        if self.messages.get() > MESSAGES_MAX { Err(RequestError::Flood(MESSAGES_MAX)) } else { Ok(()) }
    }

    /// How many there were since the last request began.
    pub(super) fn message_count(&self) -> u64 {
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

    /// Takes a message that answers nothing. What it asks is answered in one of `tasks`, by `send`.
    pub(super) fn take(
        self: &Rc<Self>,
        message: IncomingMessage,
        tasks: &Tasks,
        send: impl AsyncFnOnce(&Value) + 'static,
    ) {
        match message {
            IncomingMessage::Response { .. } => {}
            IncomingMessage::Notification { method, params } => self.notified(&method, &params),
            IncomingMessage::Request { .. } if self.answers.get() >= ANSWERS_MAX => {}
            IncomingMessage::Request { id, method, params } => {
                let handler = Rc::clone(self);
                self.answers.update(|answers| answers + 1);
                tasks.spawn(async move {
                    if let Some(answer) = handler.handle_request(&id, &method, &params).await {
                        send(&answer).await;
                    }
                    handler.answers.update(|answers| answers - 1);
                });
            }
        }
    }

    fn notified(&self, method: &str, params: &Value) {
        match method {
            "notifications/cancelled" => {
                if self.cancel(params.get("requestId").unwrap_or(&Value::Null)) {
                    self.user.notified(method, params);
                }
            }
            "notifications/progress" => {
                let token = params.get("progressToken").and_then(Value::as_u64);
                if token.is_some_and(|token| self.under_way.borrow().contains(&token)) {
                    self.user.notified(method, params);
                }
            }
            _ => self.user.notified(method, params),
        }
    }

    /// A question of a server of the legacy era. `None`: it was taken back.
    async fn handle_request(&self, id: &Value, method: &str, params: &Value) -> Option<Value> {
        let outcome = match method {
            "ping" => Ok(json!({})),
            _ if self.questions.borrow().len() >= QUESTIONS_MAX => {
                Err(NoAnswer::because("too many questions wait for an answer"))
            }
            _ => {
                let asked = self.register(id);
                tokio::select! {
                    outcome = self.ask_user(method, params) => outcome,
                    () = asked.taken_back.cancelled() => return None,
                }
            }
        };
        Some(match outcome {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(refusal) => json!({"jsonrpc": "2.0", "id": id, "error": refusal.error()}),
        })
    }

    pub(super) async fn ask_user(&self, method: &str, params: &Value) -> Result<Value, NoAnswer> {
        let _alone = self.asking.lock().await;
        self.user.ask(method, params).await
    }

    pub(super) fn cancel_all(&self) {
        self.questions.borrow().values().for_each(CancellationToken::cancel);
    }

    /// Takes a question back; false: it does not wait.
    fn cancel(&self, id: &Value) -> bool {
        self.questions.borrow().get(&id.to_string()).inspect(|question| question.cancel()).is_some()
    }

    fn register(&self, id: &Value) -> PendingRequest<'_> {
        let taken_back = CancellationToken::new();
        let key = id.to_string();
        self.questions.borrow_mut().insert(key.clone(), taken_back.clone());
        PendingRequest { handler: self, key, taken_back }
    }
}

/// A question that waits, until it is dropped.
struct PendingRequest<'a> {
    handler: &'a IncomingHandler,
    key: String,
    taken_back: CancellationToken,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.handler.questions.borrow_mut().remove(&self.key);
    }
}
