//! Questions to the clients of sessions, on the streams of their calls. An answer comes in a request of its own.
//!
//! Invariant: at most so many wait as the table is made for; the oldest gives way, and its call fails.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;

const WAITING_MAX: usize = 64;

/// The questions that wait for an answer.
#[derive(Default)]
pub(super) struct Questions {
    waiting: Mutex<VecDeque<Question>>,
    asked: AtomicU64,
}

struct Question {
    session: String,
    id: String,
    answer: oneshot::Sender<Option<Value>>,
}

impl Questions {
    /// Asks the client of a session: the message for it, and what will be its answer. `None`: it could not answer.
    pub(super) fn ask(&self, session: &str, request: &Value) -> (Value, oneshot::Receiver<Option<Value>>) {
        let id = format!("question-{}", self.asked.fetch_add(1, Ordering::Relaxed));
        let message =
            json!({ "jsonrpc": "2.0", "id": id, "method": request["method"], "params": request["params"] });
        let (answer, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        waiting.retain(|question| !question.answer.is_closed());
        if waiting.len() >= WAITING_MAX {
            waiting.pop_front();
        }
        waiting.push_back(Question { session: session.to_owned(), id, answer });
        (message, receiver)
    }

    /// Takes the answer of a session's client. Answers to no question are dropped.
    pub(super) fn answer(&self, session: &str, id: &Value, result: Option<Value>) {
        let mut waiting = self.waiting.lock();
        let is_meant = |question: &Question| question.session == session && *id == question.id;
        let question = waiting.iter().position(is_meant).and_then(|at| waiting.remove(at));
        if let Some(question) = question {
            // Its call may be gone.
            let _ = question.answer.send(result);
        }
    }
}
