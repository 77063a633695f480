//! The user at the terminal: sees progress and log lines, and answers what a server asks.
//!
//! All of it goes to standard error. However much a server says, nothing is kept, and log lines are shown to a limit.

use std::cell::{Cell, RefCell};
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::elicitation::Elicitation;
use super::typed_input::TypedInput;
use crate::terminal;
use crate::terminal::paint::{BAD, FAINT, STRONG, WARNING, painted};
use crate::terminal::progress::Progress;
use client::user_interaction::{AnswerFuture, WireMessage};
use client::{NoAnswer, UserInteraction};
use protocol::text::{fit, shown, shown_lines};

/// Log lines that are shown for one call, and the columns of each.
const LOG_LINES_MAX: u64 = 500;
const LOG_COLUMNS_MAX: usize = 2000;
const WORD_COLUMNS_MAX: usize = 60;
/// How often progress is drawn.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(60);
/// How much of a message that travels is shown.
const MESSAGE_BYTES_SHOWN: usize = 16 << 10;

/// Whether questions of the server are answered.
#[derive(Debug, Default)]
pub(super) struct Interactivity {
    /// Whether answers to questions are given beforehand.
    pub(super) has_answers: bool,
    /// Whether questions may be asked at all.
    pub(super) may_ask: bool,
}

pub(super) struct TerminalUser {
    interactivity: Interactivity,
    /// Whether every message is shown.
    is_verbose: bool,
    /// Answers to questions: a field and its value.
    answers: RefCell<Vec<(String, String)>>,
    /// Who asks, once it is known.
    server: RefCell<String>,
    progress: RefCell<Option<Progress>>,
    drawn: Cell<Option<Instant>>,
    logged: Cell<u64>,
    can_type: bool,
    input: TypedInput,
}

impl TerminalUser {
    pub(super) fn new(interactivity: Interactivity, is_verbose: bool) -> Self {
        let can_type =
            interactivity.may_ask && std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        Self {
            interactivity,
            is_verbose,
            answers: RefCell::default(),
            server: RefCell::default(),
            progress: RefCell::default(),
            drawn: Cell::new(None),
            logged: Cell::new(0),
            can_type,
            input: TypedInput::default(),
        }
    }

    /// Says on standard error what is waited for, if it takes longer.
    pub(super) fn wait_for(&self, what: &str) {
        let mut progress = self.progress.borrow_mut();
        match &*progress {
            Some(progress) => progress.say(what),
            None => *progress = Some(Progress::start(what)),
        }
    }

    pub(super) fn wait_no_more(&self) {
        self.progress.borrow_mut().take();
    }

    /// What questions are answered with.
    pub(super) fn answer_with(&self, answers: Vec<(String, String)>) {
        *self.answers.borrow_mut() = answers;
    }

    pub(super) fn meet(&self, server: &str) {
        server.clone_into(&mut self.server.borrow_mut());
    }

    /// Writes a line beside the progress.
    fn say(&self, line: &str) {
        match &*self.progress.borrow() {
            Some(progress) => progress.beside(|| terminal::say(format_args!("{line}"))),
            None => terminal::say(format_args!("{line}")),
        }
    }

    fn log(&self, params: &Value) {
        self.logged.set(self.logged.get() + 1);
        match self.logged.get() {
            ..=LOG_LINES_MAX => {}
            n if n == LOG_LINES_MAX + 1 => {
                return self.say(&painted(FAINT, "the server logs more than is shown"));
            }
            _ => return,
        }
        let text = |key: &str| params.get(key).and_then(Value::as_str);
        let level = text("level").unwrap_or("log");
        let style = match level {
            "warning" => WARNING,
            "error" | "critical" | "alert" | "emergency" => BAD,
            _ => FAINT,
        };
        let data = params.get("data").unwrap_or(&Value::Null);
        let data = data.as_str().map_or_else(|| data.to_string(), str::to_owned);
        let logger = text("logger")
            .map(|logger| format!(" {}:", shown(&fit(logger, WORD_COLUMNS_MAX))))
            .unwrap_or_default();
        let level = painted(style, format!("[{}]", shown(&fit(level, WORD_COLUMNS_MAX))));
        self.say(&format!("{level}{logger} {}", shown(&fit(&data, LOG_COLUMNS_MAX))));
    }

    fn draw(&self, params: &Value) {
        let now = Instant::now();
        if self.drawn.get().is_some_and(|drawn| now - drawn < PROGRESS_INTERVAL) {
            return;
        }
        self.drawn.set(Some(now));
        let number = |key: &str| params.get(key).and_then(Value::as_f64);
        let message = params.get("message").and_then(Value::as_str).unwrap_or("under way");
        let message = fit(message, 500);
        if let (Some(progress), Some(done)) = (&*self.progress.borrow(), number("progress")) {
            progress.at(done, number("total"), &message);
        }
    }

    async fn elicited(&self, params: &Value) -> Result<Value, NoAnswer> {
        let waited = self.progress.borrow_mut().take().is_some();
        let server = self.server.borrow().clone();
        let answers = self.answers.borrow().clone();
        let elicitation =
            Elicitation { server: &server, answers: &answers, input: self.can_type.then_some(&self.input) };
        let answer = elicitation.ask(params).await;
        if waited {
            self.wait_for("Waiting for the answer");
        }
        answer
    }
}

impl UserInteraction for TerminalUser {
    fn capabilities(&self) -> Value {
        if self.can_type {
            json!({"elicitation": {"form": {}, "url": {}}})
        } else if self.interactivity.may_ask && self.interactivity.has_answers {
            json!({"elicitation": {"form": {}}})
        } else {
            json!({})
        }
    }

    fn notified(&self, method: &str, params: &Value) {
        match method {
            "notifications/progress" => self.draw(params),
            "notifications/message" => self.log(params),
            "notifications/cancelled" => {
                terminal::say("");
                terminal::say(painted(FAINT, "The server took its question back."));
                self.wait_for("Waiting for the answer");
            }
            _ => {}
        }
    }

    fn ask<'a>(&'a self, method: &'a str, params: &'a Value) -> AnswerFuture<'a> {
        Box::pin(async move {
            match method {
                "elicitation/create" if self.interactivity.may_ask => self.elicited(params).await,
                "sampling/createMessage" => {
                    Err(NoAnswer { code: -1, message: "this client has no model to ask".to_owned() })
                }
                "roots/list" => Ok(json!({"roots": []})),
                _ => Err(NoAnswer::unknown(method)),
            }
        })
    }

    fn trace(&self, message: &WireMessage<'_>) {
        if !self.is_verbose {
            return;
        }
        let WireMessage { is_sent, head, body } = message;
        let arrow = if *is_sent { "-->" } else { "<--" };
        let mut lines = Vec::new();
        for line in head.lines() {
            lines.push(painted(FAINT, format!("{arrow} {}", shown(line))));
        }
        if !body.is_empty() {
            let seen = body.get(..body.len().min(MESSAGE_BYTES_SHOWN)).unwrap_or_default();
            let text = shown(&String::from_utf8_lossy(seen));
            let rest = body.len() - seen.len();
            let rest = if rest > 0 { format!(" … {rest} more bytes") } else { String::new() };
            lines.push(format!("{} {text}{}", painted(STRONG, arrow), painted(FAINT, rest)));
        }
        self.say(&lines.join("\n"));
    }

    fn stderr(&self, text: &str) {
        if self.is_verbose {
            self.say(&painted(FAINT, shown_lines(text.trim_end())));
        }
    }
}
