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
use super::transport::ProbeTransport;
use crate::doctor::answer::reply_to;
use crate::doctor::facts::{Answer, Exchange, Process, Tally, clip};
use crate::doctor::request::ProbeRequest;
use client::MESSAGE_BYTES_MAX;
use client::server::StdioServer;
use net::guardian::Guarded;
use net::lines::{LineBuffer, TooLong};
use net::tasks::Tasks;
use protocol::version::Era;

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

#[derive(Debug)]
pub(super) struct StdioTransport {
    child: Guarded,
    /// `None`: it was ended.
    input: Option<ChildStdin>,
    lines: mpsc::Receiver<OutputLine>,
    output: Rc<ProgramOutput>,
    /// The era it is spoken to in: of it depends which of its messages are allowed.
    pub(super) era: Era,
}

/// What was heard besides answers.
#[derive(Debug, Default)]
struct ProgramOutput {
    noise: RefCell<Tally>,
    stderr: RefCell<Vec<u8>>,
    stderr_bytes: Cell<usize>,
    /// Of these, what came before anything that was wrong on purpose.
    quiet_bytes: Cell<Option<usize>>,
    modern_requests: RefCell<Tally>,
    stderr_ended: Notify,
}

#[derive(Debug)]
enum OutputLine {
    Message(Value, usize),
    TooLong,
}

impl ProbeTransport for StdioTransport {
    async fn ask(&mut self, ask: &ProbeRequest, deadline: Instant) -> Exchange {
        let started = Instant::now();
        let asked = timeout_at(deadline.into(), self.exchange(ask));
        let mut exchange = asked.await.unwrap_or_else(|_| Exchange::failed(Answer::Silence, Duration::ZERO));
        exchange.took = started.elapsed();
        exchange
    }
}

impl StdioTransport {
    pub(super) fn start(program: &StdioServer, era: Era, tasks: &Tasks) -> std::io::Result<Self> {
        let (child, stdin, stdout, stderr) = Guarded::start(&program.name, &program.arguments)?;
        let output = Rc::new(ProgramOutput::default());
        let (sender, lines) = mpsc::channel(MESSAGES_MAX);
        tasks.spawn(read_lines(stdout, sender, Rc::clone(&output)));
        tasks.spawn(read_remarks(stderr, Rc::clone(&output)));
        Ok(Self { child, input: Some(stdin), lines, output, era })
    }

    async fn exchange(&mut self, ask: &ProbeRequest) -> Exchange {
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
            let Some(line) = self.lines.recv().await else {
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
    async fn take_request(&mut self, message: &Value) {
        let Some(answer) = reply_to(message) else { return };
        if self.era == Era::Modern {
            let method = message.get("method").and_then(Value::as_str).unwrap_or_default();
            self.output.modern_requests.borrow_mut().add(|| clip(method, SHOWN_CHARS_MAX), SHOWN_MAX);
            return;
        }
        // If it cannot be written, the next request cannot either, and says so.
        let _ = self.write(answer.to_string().as_bytes()).await;
    }

    async fn write(&mut self, message: &[u8]) -> Result<(), String> {
        let Some(input) = &mut self.input else { return Err("its standard input is closed".to_owned()) };
        let written = input.write_all(&[message, b"\n"].concat()).await;
        written.map_err(|_| "the program does not read its standard input any more".to_owned())
    }

    /// From here on, what it writes to standard error may be about requests that are wrong on purpose.
    pub(super) async fn count_remarks(&self) {
        sleep(REMARKS_DELAY).await;
        if self.output.quiet_bytes.get().is_none() {
            self.output.quiet_bytes.set(Some(self.output.stderr_bytes.get()));
        }
    }

    /// What it said last, and how it ended if it did so by itself: both may come a moment after it has closed its output.
    pub(super) async fn end(&mut self) -> (String, Option<String>) {
        let last_words = timeout(LAST_MOMENT, self.output.stderr_ended.notified());
        let (_, ended) = tokio::join!(last_words, ended_within(&mut self.child, LAST_MOMENT));
        let stderr = self.output.stderr.borrow();
        let text = String::from_utf8_lossy(&stderr);
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        (clip(last.unwrap_or_default().trim(), SHOWN_CHARS_MAX * 2), ended)
    }

    /// The first line on standard output that is no message.
    pub(super) fn noise(&self) -> Option<String> {
        self.output.noise.borrow().first.first().cloned()
    }

    /// Ends its input, sees whether it exits, makes it do so, and says what it did besides answering.
    /// It has so long to exit by itself.
    pub(super) async fn close(mut self, patience: Duration) -> Process {
        // It may be about to end although its input has not.
        let is_silent = self.lines.is_closed();
        let crash = ended_within(&mut self.child, if is_silent { LAST_MOMENT } else { Duration::ZERO }).await;
        drop(self.input);
        let started = Instant::now();
        // What it still writes must not keep it from exiting.
        let drain = async {
            while self.lines.recv().await.is_some() {}
            std::future::pending::<()>().await;
        };
        let exited = async {
            tokio::select! {
                status = self.child.wait() => status.is_ok(),
                () = drain => false,
            }
        };
        let exit = timeout(patience, exited).await.unwrap_or(false).then(|| started.elapsed());
        if exit.is_none() {
            self.child.terminate();
            let _ = timeout(STOP_TIMEOUT, self.child.wait()).await;
        }
        Process {
            noise: self.output.noise.borrow().clone(),
            remarks: self.output.remarks(),
            modern_requests: self.output.modern_requests.borrow().clone(),
            exit,
            crash,
        }
    }
}

impl ProgramOutput {
    /// The beginning of standard error.
    fn keep(&self, bytes: &[u8]) {
        let mut kept = self.stderr.borrow_mut();
        let room = STDERR_KEPT_BYTES.saturating_sub(kept.len());
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn remarks(&self) -> Tally {
        let stderr = self.stderr.borrow();
        let text = String::from_utf8_lossy(&stderr);
        let lines = text.lines().filter(|line| !line.trim().is_empty()).take(SHOWN_MAX);
        Tally {
            first: lines.map(|line| clip(line, SHOWN_CHARS_MAX)).collect(),
            total: self.quiet_bytes.get().unwrap_or_default(),
        }
    }
}

async fn ended_within(child: &mut Guarded, patience: Duration) -> Option<String> {
    Some(timeout(patience, child.wait()).await.ok()?.ok()?.to_string())
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
