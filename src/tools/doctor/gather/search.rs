//! The search for the answer among the messages that a server sends.

use serde_json::Value;

use crate::doctor::answer::{answers, nonsense, read};
use crate::doctor::facts::{Answer, Exchange};
use crate::doctor::request::{ProbeRequest, Until};

/// How many messages beside the answer are kept.
const REMARKS_MAX: usize = 8;
/// How many messages beside the answer are read.
const MESSAGES_MAX: usize = 10_000;
/// How much of them.
const BYTES_MAX: usize = 32 << 20;

/// What comes after a message.
#[derive(Debug)]
pub(super) enum Next {
    /// Nothing: it was the answer.
    Answered,
    /// Nothing: no more is read.
    Enough,
    /// The next message. This one may be a request of the server.
    More(Value),
}

/// A search, which notes what it finds.
#[derive(Debug)]
pub(super) struct Search<'a> {
    ask: &'a ProbeRequest,
    exchange: &'a mut Exchange,
    messages: usize,
}

impl<'a> Search<'a> {
    pub(super) fn new(ask: &'a ProbeRequest, exchange: &'a mut Exchange) -> Self {
        Self { ask, exchange, messages: 0 }
    }

    /// Takes the text of a message, which may be a batch with the answer in it.
    pub(super) fn take_text(&mut self, text: &[u8]) -> Next {
        let Ok(message) = serde_json::from_slice::<Value>(text) else {
            self.exchange.bytes += text.len();
            self.exchange.answer = nonsense(text);
            return Next::Enough;
        };
        if message.is_array() {
            self.exchange.bytes += text.len();
            return self.answered(&message);
        }
        self.take(message, text.len())
    }

    /// Takes a message of so many bytes.
    pub(super) fn take(&mut self, message: Value, bytes: usize) -> Next {
        self.exchange.bytes += bytes;
        self.messages += 1;
        if answers(&message, self.ask.id()) {
            return self.answered(&message);
        }
        if self.exchange.remarks.len() < REMARKS_MAX {
            self.exchange.remarks.push(message.clone());
        }
        if self.ask.until == Until::FirstMessage {
            return Next::Enough;
        }
        if self.messages >= MESSAGES_MAX || self.exchange.bytes > BYTES_MAX {
            let (count, kib) = (self.messages, self.exchange.bytes >> 10);
            self.fail(format!("no answer among the first {count} messages, {kib} KiB in all"));
            return Next::Enough;
        }
        Next::More(message)
    }

    /// There is no answer, for this reason.
    pub(super) fn fail(&mut self, why: impl Into<String>) {
        self.exchange.answer = Answer::Failed(why.into());
    }

    fn answered(&mut self, message: &Value) -> Next {
        (self.exchange.answer, self.exchange.form_fault) = read(message, self.ask.id());
        Next::Answered
    }
}
