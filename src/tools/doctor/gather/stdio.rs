//! Exchanges with a program on its standard input and output, and what it does besides answering.
//!
//! Two tasks read what it writes and end with it. Of what is read only the answer that is waited for, and the
//! beginning of everything else, is kept. The program gets a process group of its own, which is gone when the
//! pipe is.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout, timeout_at};

use super::search::{Next, Search};
use crate::doctor::answer::reply_to;
use crate::doctor::facts::{Answer, Exchange, Process, Tally, clip};
use crate::doctor::request::ProbeRequest;
use client::MESSAGE_BYTES_MAX;
use client::server::StdioServer;
use net::guardian::Guarded;
use net::lines::{LineBuffer, TooLong};
use net::tasks::Tasks;

/// How long a program may go on when its input has ended.
pub(super) const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long after a request to stop it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// Messages that wait to be looked at; the program waits with the next.
const MESSAGES_MAX: usize = 16;
/// How long a program may take to exit that has closed its output.
const LAST_MOMENT: Duration = Duration::from_millis(500);
/// How long what it writes to standard error may come behind its answer.
const REMARKS_DELAY: Duration = Duration::from_millis(50);
const SHOWN_MAX: usize = 3;
const SHOWN_CHARS_MAX: usize = 120;
/// The beginning of standard error that is kept.
const STDERR_KEPT_BYTES: usize = 4096;

/// A program that runs.
#[derive(Debug)]
pub(in crate::doctor) struct StdioTransport {
    child: RefCell<Option<Guarded>>,
    input: RefCell<Option<ChildStdin>>,
    lines: RefCell<mpsc::Receiver<OutputLine>>,
    output: Rc<ProgramOutput>,
    is_modern: Cell<bool>,
}

/// What was heard besides answers.
#[derive(Debug, Default)]
struct ProgramOutput {
    noise: RefCell<Tally>,
    requests: RefCell<Tally>,
    stderr: RefCell<Vec<u8>>,
    stderr_bytes: Cell<usize>,
    /// Of these, what came before anything that was wrong on purpose.
    quiet_bytes: Cell<Option<usize>>,
    stderr_ended: Notify,
}

impl ProgramOutput {
    /// The beginning of standard error.
    fn keep(&self, bytes: &[u8]) {
        let mut kept = self.stderr.borrow_mut();
        let room = STDERR_KEPT_BYTES.saturating_sub(kept.len());
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

#[derive(Debug)]
enum OutputLine {
    Message(Value, usize),
    TooLong,
}

impl StdioTransport {
    /// Starts the program. Of `is_modern` depends which of its messages are allowed.
    pub(super) fn start(program: &StdioServer, is_modern: bool, tasks: &Tasks) -> std::io::Result<Self> {
        let (child, stdin, stdout, stderr) = Guarded::start(&program.name, &program.arguments)?;
        let output = Rc::new(ProgramOutput::default());
        let (sender, lines) = mpsc::channel(MESSAGES_MAX);
        tasks.spawn(read_lines(stdout, sender, Rc::clone(&output)));
        tasks.spawn(read_remarks(stderr, Rc::clone(&output)));
        Ok(Self {
            child: RefCell::new(Some(child)),
            input: RefCell::new(Some(stdin)),
            lines: RefCell::new(lines),
            output,
            is_modern: Cell::new(is_modern),
        })
    }

    /// From now on it is spoken to in this era.
    pub(super) fn set_modern(&self, is_modern: bool) {
        self.is_modern.set(is_modern);
    }

    /// Sends a request and takes what comes. A message without id is only sent.
    pub(super) async fn ask(&self, ask: &ProbeRequest, deadline: Instant) -> Exchange {
        let started = Instant::now();
        let asked = timeout_at(deadline.into(), self.exchange(ask));
        let mut exchange = asked.await.unwrap_or_else(|_| Exchange::failed(Answer::Silence, Duration::ZERO));
        exchange.took = started.elapsed();
        exchange
    }

    async fn exchange(&self, ask: &ProbeRequest) -> Exchange {
        let mut exchange = Exchange::failed(Answer::Nothing, Duration::ZERO);
        if let Err(why) = self.write(&ask.bytes()).await {
            exchange.answer = Answer::Failed(why);
            return exchange;
        }
        if ask.id().is_none() {
            return exchange;
        }
        let mut search = Search::new(ask, &mut exchange);
        loop {
            let Some(line) = self.next_line().await else {
                search.fail("the program closed its standard output");
                return exchange;
            };
            let OutputLine::Message(message, bytes) = line else {
                search.fail(format!("a line has more than {} MiB", MESSAGE_BYTES_MAX >> 20));
                return exchange;
            };
            let Next::More(message) = search.take(message, bytes) else { return exchange };
            self.take_request(&message).await;
        }
    }

    /// A program of the legacy era may ask for something.
    async fn take_request(&self, message: &Value) {
        let Some(answer) = reply_to(message) else { return };
        if self.is_modern.get() {
            let method = message.get("method").and_then(Value::as_str).unwrap_or_default();
            self.output.requests.borrow_mut().add(|| clip(method, SHOWN_CHARS_MAX), SHOWN_MAX);
            return;
        }
        // If it cannot be written, the next request cannot either, and says so.
        let _ = self.write(answer.to_string().as_bytes()).await;
    }

    #[expect(
        clippy::await_holding_refcell_ref,
        reason = "exchanges follow one another; nothing else borrows it"
    )]
    async fn write(&self, message: &[u8]) -> Result<(), String> {
        let mut input = self.input.borrow_mut();
        let Some(input) = input.as_mut() else { return Err("its standard input is closed".to_owned()) };
        let mut line = message.to_vec();
        line.push(b'\n');
        let written = input.write_all(&line).await;
        written.map_err(|_| "the program does not read its standard input any more".to_owned())
    }

    #[expect(
        clippy::await_holding_refcell_ref,
        reason = "exchanges follow one another; nothing else borrows it"
    )]
    async fn next_line(&self) -> Option<OutputLine> {
        self.lines.borrow_mut().recv().await
    }

    /// How the program ended, if it did so by itself. One that closes its output is seen to end a moment later.
    pub(super) async fn ended(&self) -> Option<String> {
        self.ended_within(LAST_MOMENT).await
    }

    async fn ended_within(&self, patience: Duration) -> Option<String> {
        let mut child = self.child.borrow_mut().take()?;
        let status = timeout(patience, child.wait()).await;
        *self.child.borrow_mut() = Some(child);
        Some(status.ok()?.ok()?.to_string())
    }

    /// From here on, what it writes to standard error may be about requests that are wrong on purpose.
    pub(super) async fn count_remarks(&self) {
        sleep(REMARKS_DELAY).await;
        if self.output.quiet_bytes.get().is_none() {
            self.output.quiet_bytes.set(Some(self.output.stderr_bytes.get()));
        }
    }

    /// Waits a moment for what it says about its end.
    pub(super) async fn last_words(&self) -> String {
        let _ = timeout(LAST_MOMENT, self.output.stderr_ended.notified()).await;
        let stderr = self.output.stderr.borrow();
        let text = String::from_utf8_lossy(&stderr);
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        clip(last.unwrap_or_default().trim(), SHOWN_CHARS_MAX * 2)
    }

    /// The first line on standard output that is no message.
    pub(super) fn noise(&self) -> Option<String> {
        self.output.noise.borrow().first.first().cloned()
    }

    /// Ends its input, sees whether it exits, makes it do so, and says what it did besides answering.
    /// It has so long to exit by itself.
    pub(super) async fn close(&self, patience: Duration) -> Process {
        // It may be about to end although its input has not.
        let is_silent = self.lines.borrow().is_closed();
        let crash = self.ended_within(if is_silent { LAST_MOMENT } else { Duration::ZERO }).await;
        drop(self.input.borrow_mut().take());
        let started = Instant::now();
        let child = self.child.borrow_mut().take();
        let mut exit = None;
        if let Some(mut child) = child {
            // What it still writes must not keep it from exiting.
            let exited = async {
                let drain = async {
                    while self.next_line().await.is_some() {}
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    status = child.wait() => status.is_ok(),
                    () = drain => false,
                }
            };
            if timeout(patience, exited).await.unwrap_or(false) {
                exit = Some(started.elapsed());
            } else {
                child.terminate();
                let _ = timeout(STOP_TIMEOUT, child.wait()).await;
            }
        }
        Process {
            noise: self.output.noise.borrow().clone(),
            remarks: self.remarks(),
            modern_requests: self.output.requests.borrow().clone(),
            exit,
            crash,
        }
    }

    fn remarks(&self) -> Tally {
        let stderr = self.output.stderr.borrow();
        let text = String::from_utf8_lossy(&stderr);
        let lines = text.lines().filter(|line| !line.trim().is_empty()).take(SHOWN_MAX);
        Tally {
            first: lines.map(|line| clip(line, SHOWN_CHARS_MAX)).collect(),
            total: self.output.quiet_bytes.get().unwrap_or_default(),
        }
    }
}

async fn read_lines(mut stdout: ChildStdout, messages: mpsc::Sender<OutputLine>, output: Rc<ProgramOutput>) {
    let mut lines = LineBuffer::default();
    loop {
        let line = match lines.read(&mut stdout, MESSAGE_BYTES_MAX).await {
            Ok(Some(line)) => line,
            Ok(None) => return,
            Err(TooLong) => {
                let _ = messages.send(OutputLine::TooLong).await;
                return;
            }
        };
        match serde_json::from_slice::<Value>(&line) {
            Ok(message) if message.is_object() || message.is_array() => {
                if messages.send(OutputLine::Message(message, line.len())).await.is_err() {
                    return;
                }
            }
            _ => {
                let text = || clip(&String::from_utf8_lossy(&line), SHOWN_CHARS_MAX);
                output.noise.borrow_mut().add(text, SHOWN_MAX);
                // A flood of it must not keep the rest from running.
                tokio::task::yield_now().await;
            }
        }
    }
}

async fn read_remarks(mut stderr: impl AsyncRead + Unpin, output: Rc<ProgramOutput>) {
    let mut buffer = vec![0; 8192];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        output.stderr_bytes.set(output.stderr_bytes.get().saturating_add(count));
        output.keep(&buffer[..count]);
        tokio::task::yield_now().await;
    }
    output.stderr_ended.notify_one();
}
