//! A client that waits for its call while a session's keeper makes it, and what reaches it: from the thread of the session
//! to the thread of the client.
//!
//! The client's reply is JSON where the end comes first, and a stream where something else does, or where the server has
//! begun a stream and says nothing on it for a while.
//!
//! Invariant: whoever holds an [`CallReplySink`] ends it once; dropped, the client is told that the server went away.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::unfold;
use http::StatusCode;
use tokio::time::timeout_at;

use super::answers::CallAnswer;
use super::call::ModernCall;
use super::open_questions::no_memory;
use crate::clock;
use crate::upstream::broken_reply::BrokenReply;
use crate::upstream::exchange::{Reply, UpstreamClient};
use crate::upstream::messages::{MessageStream, ReplyPart};
use crate::upstream::mux::queue::{self, MuxPiece, NotSent};
use protocol::error::UpstreamError;

/// How long the end of a call is waited for once the server has begun a stream, before its client gets a stream, too.
const STREAM_PATIENCE: Duration = Duration::from_secs(1);

/// A client's answers, by the keys of their questions.
pub(crate) type ClientAnswers = Vec<(Box<str>, Bytes)>;

/// The way to a client.
#[derive(Debug)]
pub(crate) struct CallReplySink {
    pub call: Arc<ModernCall>,
    sender: queue::PieceSender,
    end: Arc<ReplyEnd>,
}

/// The receiving end, which is the body of the client's reply.
#[derive(Debug)]
pub(crate) struct CallReply {
    receiver: queue::PieceReceiver,
    end: Arc<ReplyEnd>,
}

/// How the call ended: for the status, and for the log.
#[derive(Debug, Default)]
struct ReplyEnd {
    status: OnceLock<StatusCode>,
    error: OnceLock<UpstreamError>,
    /// The session is being opened: nothing of the call was sent.
    is_opening: AtomicBool,
}

impl ReplyEnd {
    /// What the client is told that waits no longer.
    fn told(&self, error: UpstreamError) -> UpstreamError {
        if self.is_opening.load(Ordering::Relaxed) { error.before_call() } else { error }
    }
}

/// How long a client waits for the head of its reply.
#[derive(Debug)]
pub(crate) struct HeadPatience {
    until: Instant,
    /// The server has begun a stream: then the client gets one, too.
    has_begun: bool,
}

impl HeadPatience {
    pub(crate) fn new(deadline: Instant) -> Self {
        Self { until: deadline, has_begun: false }
    }

    /// The server has begun a stream.
    pub(crate) fn begin(&mut self) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.until = self.until.min(clock::now() + STREAM_PATIENCE);
        }
    }

    /// What comes of `next`; `None`: it takes so long that the client gets a stream meanwhile.
    pub(crate) async fn wait<F: Future>(&self, next: F) -> Result<Option<F::Output>, UpstreamError> {
        match timeout_at(self.until.into(), next).await {
            Ok(next) => Ok(Some(next)),
            Err(_) if self.has_begun => Ok(None),
            Err(_) => Err(UpstreamError::TimedOut),
        }
    }
}

impl CallReplySink {
    /// A way to the client that makes this call, and its other end.
    pub(crate) fn new(client: &UpstreamClient, call: Arc<ModernCall>) -> (Self, CallReply) {
        let bounds = client.host.shared.limits().bounds(call.caller.payer);
        let (sender, receiver) = queue::queue(bounds.waiting_bytes_max, bounds.memory());
        let end = Arc::<ReplyEnd>::default();
        (Self { call, sender, end: Arc::clone(&end) }, CallReply { receiver, end })
    }

    /// The server is there: it has begun a stream, or said on it that it is.
    pub(crate) fn keep_alive(&self) {
        // Whoever has left sees nothing of it, and whoever has more to read does not need it.
        let _ = self.sender.send(MuxPiece { data: Bytes::new(), is_answer: false });
    }

    pub(crate) fn tell(&self, message: Bytes) -> Result<(), NotSent> {
        self.sender.send(MuxPiece { data: message, is_answer: false })
    }

    /// Ends the call. False: the client has left, or does not read.
    pub(crate) fn finish(self, answer: CallAnswer) -> bool {
        let _ = self.end.status.set(answer.status);
        match self.sender.send(MuxPiece { data: answer.message, is_answer: true }) {
            Ok(()) => true,
            Err(NotSent::Full) => {
                self.fail(UpstreamError::SlowClient);
                false
            }
            Err(NotSent::NoMemory(none)) => {
                self.fail(no_memory(none));
                false
            }
            Err(NotSent::Gone) => false,
        }
    }

    /// Ends the call otherwise.
    pub(crate) fn fail(self, error: UpstreamError) {
        let _ = self.end.error.set(error);
        self.sender.break_off();
    }

    /// What comes of opening a session for the call.
    pub(crate) async fn opens<T>(&self, opening: impl Future<Output = T>) -> T {
        self.end.is_opening.store(true, Ordering::Relaxed);
        let opened = opening.await;
        self.end.is_opening.store(false, Ordering::Relaxed);
        opened
    }

    pub(crate) async fn closed(&self) {
        self.sender.closed().await;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

impl CallReply {
    /// The client's reply, whose head is there in time.
    pub(crate) async fn reply(mut self, mut patience: HeadPatience) -> Result<Reply, UpstreamError> {
        loop {
            let waited = patience.wait(self.receiver.next()).await;
            let Some(piece) = waited.map_err(|error| self.end.told(error))? else {
                return Ok(self.stream(None));
            };
            match piece {
                Some(Ok(MuxPiece { data, is_answer: true })) => {
                    let status = self.end.status.get().copied().unwrap_or_default();
                    return Ok(CallAnswer { status, message: data }.into_reply());
                }
                Some(Ok(MuxPiece { data, .. })) if data.is_empty() => patience.begin(),
                Some(Ok(MuxPiece { data, .. })) => return Ok(self.stream(Some(data))),
                Some(Err(BrokenReply)) | None => return Err(self.error()),
            }
        }
    }

    fn stream(self, first: Option<Bytes>) -> Reply {
        let parts = unfold((first, self, false), |(first, mut waiting, is_over)| async move {
            if is_over {
                return None;
            }
            if let Some(first) = first {
                return Some((Ok(ReplyPart::Message(first)), (None, waiting, false)));
            }
            let (part, is_last) = match waiting.receiver.next().await {
                Some(Ok(piece)) if piece.data.is_empty() => (Ok(ReplyPart::KeepAlive), false),
                Some(Ok(piece)) => (Ok(ReplyPart::Message(piece.data)), piece.is_answer),
                Some(Err(BrokenReply)) | None => (Err(waiting.error()), true),
            };
            Some((part, (None, waiting, is_last)))
        });
        MessageStream::reply(parts)
    }

    fn error(&self) -> UpstreamError {
        self.end.error.get().cloned().unwrap_or(UpstreamError::Reset)
    }
}
