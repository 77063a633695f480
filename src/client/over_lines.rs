//! Messages that all travel on one stream: each answer finds its request by the id.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::dialogue::Request;
use super::failure::{Failure, RpcError};
use super::fault::Fault;
use super::heard::{self, Heard};
use super::hearing::Hearing;
use super::person::Travelling;
use net::tasks::Tasks;

/// Messages that wait to be written.
const OUTGOING_MAX: usize = 64;
/// Answers on their way to the server.
const ANSWERS_MAX: usize = 32;
/// How long the end may take.
const FAREWELL: Duration = Duration::from_secs(6);

type Outcome = Result<Result<Value, RpcError>, Failure>;

/// The way to a server on one stream.
pub(super) struct OverLines {
    outgoing: RefCell<Option<mpsc::Sender<Bytes>>>,
    pending: RefCell<HashMap<u64, oneshot::Sender<Outcome>>>,
    ended: RefCell<Option<Failure>>,
    hearing: Rc<Hearing>,
    last_heard: Cell<Instant>,
    answers: Cell<usize>,
    pub(super) tasks: Tasks,
    /// Cancelled when the other side is gone.
    pub(super) gone: CancellationToken,
}

impl OverLines {
    /// The way, and what is to be written to the server.
    pub(super) fn new(hearing: Rc<Hearing>) -> (Rc<Self>, mpsc::Receiver<Bytes>) {
        let (outgoing, waiting) = mpsc::channel(OUTGOING_MAX);
        let lines = Rc::new(Self {
            outgoing: RefCell::new(Some(outgoing)),
            pending: RefCell::default(),
            ended: RefCell::default(),
            hearing,
            last_heard: Cell::new(Instant::now()),
            answers: Cell::new(0),
            tasks: Tasks::default(),
            gone: CancellationToken::new(),
        });
        (lines, waiting)
    }

    /// Sends a request and returns its result.
    pub(super) async fn exchange(
        self: &Rc<Self>,
        request: &Request<'_>,
        patience: Duration,
    ) -> Result<Value, Failure> {
        let (sender, mut answer) = oneshot::channel();
        self.pending.borrow_mut().insert(request.id, sender);
        let is_cancellable = request.method != "initialize";
        let _withdrawal = Withdrawal { lines: Rc::clone(self), id: request.id, is_cancellable };
        self.last_heard.set(Instant::now());
        timeout(patience, self.send(Bytes::from(request.text()))).await.map_err(|_| Fault::TimedOut)??;
        loop {
            let deadline = self.last_heard.get() + patience;
            tokio::select! {
                answer = &mut answer => {
                    return Ok(answer.unwrap_or_else(|_| Err(self.why_ended()))??);
                }
                () = sleep_until(deadline.into()) => {
                    if self.hearing.is_asking() {
                        self.last_heard.set(Instant::now());
                    } else if Instant::now() >= self.last_heard.get() + patience {
                        return Err(Fault::TimedOut.into());
                    }
                }
            }
        }
    }

    /// Sends a message that has no answer.
    pub(super) async fn tell(&self, message: &Value) -> Result<(), Failure> {
        self.send(Bytes::from(message.to_string())).await
    }

    /// Takes what the server wrote. What is no message is not an answer to anything.
    pub(super) fn take(self: &Rc<Self>, text: &[u8]) {
        self.hearing.person.saw(&Travelling { is_sent: false, head: String::new(), body: text });
        if let Err(flood) = self.hearing.count() {
            return self.end(&flood);
        }
        for message in heard::read(text).unwrap_or_default() {
            self.last_heard.set(Instant::now());
            match message {
                Heard::Answer { id, outcome } => {
                    let waiting = id.and_then(|id| self.pending.borrow_mut().remove(&id));
                    if let Some(waiting) = waiting {
                        let _ = waiting.send(Ok(outcome)); // nobody waits for what was given up
                    }
                }
                Heard::News { method, params } => self.hearing.tell(&method, &params),
                Heard::Question { .. } if self.answers.get() >= ANSWERS_MAX => {}
                Heard::Question { id, method, params } => {
                    let lines = Rc::clone(self);
                    self.answers.set(self.answers.get() + 1);
                    self.tasks.spawn(async move {
                        if let Some(answer) = lines.hearing.answer(&id, &method, &params).await {
                            let _ = lines.tell(&answer).await;
                        }
                        lines.answers.set(lines.answers.get() - 1);
                    });
                }
            }
        }
    }

    /// The stream is over: whoever waits for an answer gets none, for this reason.
    pub(super) fn end(&self, why: &Failure) {
        self.ended.borrow_mut().get_or_insert_with(|| why.clone());
        for (_, waiting) in self.pending.borrow_mut().drain() {
            let _ = waiting.send(Err(self.why_ended()));
        }
        self.hearing.withdraw_all();
        self.gone.cancel();
    }

    /// Ends the conversation, and waits until the other side has gone.
    pub(super) async fn close(&self) {
        self.hearing.withdraw_all();
        // What waits is written before the stream ends.
        self.outgoing.borrow_mut().take();
        let _ = timeout(FAREWELL, self.tasks.wait()).await;
    }

    async fn send(&self, message: Bytes) -> Result<(), Failure> {
        self.hearing.person.saw(&Travelling { is_sent: true, head: String::new(), body: &message });
        let outgoing = self.outgoing.borrow().clone();
        let Some(outgoing) = outgoing else { return Err(self.why_ended()) };
        if self.gone.is_cancelled() {
            return Err(self.why_ended());
        }
        tokio::select! {
            sent = outgoing.send(message) => sent.map_err(|_| self.why_ended()),
            () = self.gone.cancelled() => Err(self.why_ended()),
        }
    }

    fn why_ended(&self) -> Failure {
        self.ended.borrow().clone().unwrap_or(Failure::Fault(Fault::Reset))
    }
}

/// A request that waits; dropped before its answer, it is cancelled.
struct Withdrawal {
    lines: Rc<OverLines>,
    id: u64,
    is_cancellable: bool,
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        let is_waiting = self.lines.pending.borrow_mut().remove(&self.id).is_some();
        if !is_waiting || !self.is_cancellable {
            return;
        }
        let params = json!({"requestId": self.id, "reason": "no longer wanted"});
        let message = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        let body = Bytes::from(message.to_string());
        self.lines.hearing.person.saw(&Travelling { is_sent: true, head: String::new(), body: &body });
        if let Some(outgoing) = &*self.lines.outgoing.borrow() {
            let _ = outgoing.try_send(body); // a server that reads nothing is not told either
        }
    }
}
