//! Messages that all travel on one stream: each answer finds its request by the id.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::{Request, cancellation};
use super::error::{RequestError, RpcError};
use super::exchange_error::ExchangeError;
use super::incoming_handler::IncomingHandler;
use super::incoming_message::{self, IncomingMessage};
use super::user_interaction::WireMessage;
use net::tasks::Tasks;

/// Messages that wait to be written.
const OUTGOING_MAX: usize = 64;
/// How long the end may take.
const FAREWELL: Duration = Duration::from_secs(6);

type ResponseOutcome = Result<Result<Value, RpcError>, RequestError>;

/// The way to a server on one stream.
pub(super) struct DuplexTransport {
    outgoing: RefCell<Option<mpsc::Sender<Bytes>>>,
    pending: RefCell<HashMap<u64, oneshot::Sender<ResponseOutcome>>>,
    ended: RefCell<Option<RequestError>>,
    handler: Rc<IncomingHandler>,
    last_heard: Cell<Instant>,
    pub(super) tasks: Tasks,
    /// Cancelled when the other side is gone.
    pub(super) gone: CancellationToken,
}

impl DuplexTransport {
    /// The way, and what is to be written to the server.
    pub(super) fn new(handler: Rc<IncomingHandler>) -> (Rc<Self>, mpsc::Receiver<Bytes>) {
        let (outgoing, waiting) = mpsc::channel(OUTGOING_MAX);
        let lines = Rc::new(Self {
            outgoing: RefCell::new(Some(outgoing)),
            pending: RefCell::default(),
            ended: RefCell::default(),
            handler,
            last_heard: Cell::new(Instant::now()),
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
    ) -> Result<Value, RequestError> {
        let (sender, mut answer) = oneshot::channel();
        self.pending.borrow_mut().insert(request.id, sender);
        let is_cancellable = request.method != "initialize";
        let _pending = PendingResponse { lines: Rc::clone(self), id: request.id, is_cancellable };
        self.last_heard.set(Instant::now());
        timeout(patience, self.send(Bytes::from(request.text())))
            .await
            .map_err(|_| ExchangeError::TimedOut)??;
        loop {
            let deadline = self.last_heard.get() + patience;
            tokio::select! {
                answer = &mut answer => {
                    return Ok(answer.unwrap_or_else(|_| Err(self.why_ended()))??);
                }
                () = sleep_until(deadline.into()) => {
                    if self.handler.is_waiting_for_user() {
                        self.last_heard.set(Instant::now());
                    } else if Instant::now() >= self.last_heard.get() + patience {
                        return Err(ExchangeError::TimedOut.into());
                    }
                }
            }
        }
    }

    /// Sends a message that has no answer.
    pub(super) async fn tell(&self, message: &Value) -> Result<(), RequestError> {
        self.send(Bytes::from(message.to_string())).await
    }

    /// Takes what the server wrote. What is no message is not an answer to anything.
    pub(super) fn take(self: &Rc<Self>, text: &[u8]) {
        self.handler.user.trace(&WireMessage { is_sent: false, head: String::new(), body: text });
        if let Err(flood) = self.handler.count() {
            return self.end(&flood);
        }
        for message in incoming_message::read(text).unwrap_or_default() {
            self.last_heard.set(Instant::now());
            match message {
                IncomingMessage::Response { id, outcome } => {
                    let waiting = id.and_then(|id| self.pending.borrow_mut().remove(&id));
                    if let Some(waiting) = waiting {
                        let _ = waiting.send(Ok(outcome)); // nobody waits for what was given up
                    }
                }
                other => {
                    let lines = Rc::clone(self);
                    let send = async move |answer: &Value| drop(lines.tell(answer).await);
                    self.handler.take(other, &self.tasks, send);
                }
            }
        }
    }

    /// The stream is over: whoever waits for an answer gets none, for this reason.
    pub(super) fn end(&self, why: &RequestError) {
        self.ended.borrow_mut().get_or_insert_with(|| why.clone());
        for (_, waiting) in self.pending.borrow_mut().drain() {
            let _ = waiting.send(Err(self.why_ended()));
        }
        self.handler.cancel_all();
        self.gone.cancel();
    }

    /// Ends the conversation, and waits until the other side has gone.
    pub(super) async fn close(&self) {
        self.handler.cancel_all();
        // What waits is written before the stream ends.
        self.outgoing.borrow_mut().take();
        let _ = timeout(FAREWELL, self.tasks.wait()).await;
    }

    async fn send(&self, message: Bytes) -> Result<(), RequestError> {
        self.handler.user.trace(&WireMessage { is_sent: true, head: String::new(), body: &message });
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

    fn why_ended(&self) -> RequestError {
        self.ended.borrow().clone().unwrap_or(RequestError::Exchange(ExchangeError::Reset))
    }
}

/// A request that waits; dropped before its answer, it is cancelled.
struct PendingResponse {
    lines: Rc<DuplexTransport>,
    id: u64,
    is_cancellable: bool,
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        let is_waiting = self.lines.pending.borrow_mut().remove(&self.id).is_some();
        if !is_waiting || !self.is_cancellable {
            return;
        }
        let body = Bytes::from(cancellation(self.id).to_string());
        self.lines.handler.user.trace(&WireMessage { is_sent: true, head: String::new(), body: &body });
        if let Some(outgoing) = &*self.lines.outgoing.borrow() {
            let _ = outgoing.try_send(body); // a server that reads nothing is not told either
        }
    }
}
