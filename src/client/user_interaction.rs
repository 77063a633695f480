//! Whoever sits behind a client: told what happens, and asked what servers want to know.

use std::future::Future;
use std::pin::Pin;

use serde_json::{Map, Value, json};

/// A user at a terminal, or what stands for one.
pub trait UserInteraction {
    /// What a server may ask: `ClientCapabilities`.
    fn capabilities(&self) -> Value {
        json!({})
    }

    /// A notification: progress, a log line, a changed list. Called as often as the server likes: must be quick, and
    /// keep nothing that grows.
    fn notified(&self, _method: &str, _params: &Value) {}

    /// A question: `elicitation/create`, `sampling/createMessage` or `roots/list`. One at a time; dropped if the server
    /// takes it back or the call is over.
    fn ask<'a>(&'a self, method: &'a str, _params: &'a Value) -> AnswerFuture<'a> {
        Box::pin(std::future::ready(Err(NoAnswer::unknown(method))))
    }

    /// A message that travels.
    fn trace(&self, _message: &WireMessage<'_>) {}

    /// A piece of what a program says on standard error.
    fn stderr(&self, _text: &str) {}
}

/// An answer to a question, once there is one.
pub type AnswerFuture<'a> = Pin<Box<dyn Future<Output = Result<Value, NoAnswer>> + 'a>>;

/// Nobody: is told nothing, and answers nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoUser;

impl UserInteraction for NoUser {}

/// Why a question has no answer: the error that the server gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAnswer {
    /// The code of the error.
    pub code: i64,
    /// What is said.
    pub message: String,
}

impl NoAnswer {
    /// A question of a kind that is not answered.
    pub fn unknown(method: &str) -> Self {
        Self { code: -32601, message: format!("this client does not answer {method}") }
    }

    /// A question that is refused for this reason.
    pub fn because(message: impl Into<String>) -> Self {
        Self { code: -32603, message: message.into() }
    }

    /// The error, as JSON-RPC has it.
    pub(super) fn error(&self) -> Value {
        json!({"code": self.code, "message": self.message})
    }
}

/// A message on its way.
#[derive(Clone, Debug)]
pub struct WireMessage<'a> {
    /// Whether it goes to the server.
    pub is_sent: bool,
    /// What stands before it: the line and headers of MCP, or nothing.
    pub head: String,
    /// The message, as it is written.
    pub body: &'a [u8],
}

/// An object without members, for requests without parameters.
pub fn no_params() -> Value {
    Value::Object(Map::new())
}
