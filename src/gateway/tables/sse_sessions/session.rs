//! What a client's stream and the messages it sends have in common: whose they are, their session, and what waits to
//! be written on the stream.
//!
//! Any thread may use it. Invariants: nothing waits under the lock; what waits for the stream is bounded, however many
//! write; once the line is closed nothing is taken any more, and nobody waits for it.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::SseSessionId;
use crate::access::limit::shares::Share;
use crate::session::Session;
use crate::snapshot::Endpoint;

/// Bytes that may wait for the stream, unless they are one message.
const WAITING_BYTES_MAX: usize = 256 * 1024;
/// What a message costs beside its bytes.
const MESSAGE_COST: usize = 256;
/// How long a message waits for a client to read what came before.
const READING_PATIENCE: Duration = Duration::from_secs(30);

/// What a stream and the messages to it have in common.
#[derive(Debug)]
pub(crate) struct SseSession {
    pub id: SseSessionId,
    pub endpoint: Arc<Endpoint>,
    /// Who opened it: the only one who may use it.
    pub principal: Box<str>,
    /// Set when the line is over.
    closed: CancellationToken,
    inner: Mutex<SseSessionState>,
    /// Told when there is room for messages again.
    room: Notify,
    calls: AtomicUsize,
}

#[derive(Debug, Default)]
struct SseSessionState {
    stage: SsePhase,
    waiting: VecDeque<SseOutbound>,
    bytes: usize,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
enum SsePhase {
    /// It has not introduced itself.
    #[default]
    New,
    Opening,
    Open(Session),
}

#[derive(Debug)]
pub(crate) struct SseOutbound {
    /// Whole events.
    pub events: Bytes,
    pub held: Option<Share>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream is over")]
pub(crate) struct SseSessionClosed;

/// One message of the client's that is under way.
#[derive(Debug)]
pub(crate) struct SseCall(Arc<SseSession>);

/// The client's one chance to open a session; given back when dropped.
#[derive(Debug)]
pub(crate) struct OpeningTurn<'l>(&'l SseSession);

impl SseSession {
    /// A line for a stream of `principal` at `endpoint`.
    pub(crate) fn new(id: SseSessionId, endpoint: Arc<Endpoint>, principal: &str) -> Arc<Self> {
        Arc::new(Self {
            id,
            endpoint,
            principal: principal.into(),
            closed: CancellationToken::new(),
            inner: Mutex::default(),
            room: Notify::new(),
            calls: AtomicUsize::new(0),
        })
    }

    /// Counts a message that is under way. `None`: `under_way_max` are.
    pub(crate) fn begin(self: &Arc<Self>, under_way_max: usize) -> Option<SseCall> {
        let call = SseCall(Arc::clone(self));
        (self.calls.fetch_add(1, Ordering::Relaxed) < under_way_max).then_some(call)
    }

    pub(crate) fn session(&self) -> Option<Session> {
        match &self.inner.lock().stage {
            SsePhase::Open(session) => Some(session.clone()),
            SsePhase::New | SsePhase::Opening => None,
        }
    }

    /// The right to open the client's session. `None`: it has one, or is about to.
    pub(crate) fn start_opening(&self) -> Option<OpeningTurn<'_>> {
        let mut inner = self.inner.lock();
        matches!(inner.stage, SsePhase::New).then(|| {
            inner.stage = SsePhase::Opening;
            OpeningTurn(self)
        })
    }

    /// Puts a message on the stream, as soon as the client has read enough of what came before. One that does not
    /// read for long has its stream ended.
    pub(crate) async fn send(&self, message: SseOutbound) -> Result<(), SseSessionClosed> {
        let mut message = Some(message);
        let put = async {
            loop {
                let mut room = pin!(self.room.notified());
                room.as_mut().enable();
                if self.put(&mut message)? {
                    return Ok(());
                }
                tokio::select! {
                    () = room => {}
                    () = self.closed.cancelled() => return Err(SseSessionClosed),
                }
            }
        };
        timeout(READING_PATIENCE, put).await.unwrap_or_else(|_| {
            tracing::debug!(
                endpoint = self.endpoint.config.name,
                "a client does not read its stream; it is ended"
            );
            self.close();
            Err(SseSessionClosed)
        })
    }

    /// True if the message was taken.
    fn put(&self, message: &mut Option<SseOutbound>) -> Result<bool, SseSessionClosed> {
        let mut inner = self.inner.lock();
        if self.is_closed() {
            return Err(SseSessionClosed);
        }
        let bytes = inner.bytes + message.as_ref().map_or(0, SseOutbound::cost);
        if !inner.waiting.is_empty() && bytes > WAITING_BYTES_MAX {
            return Ok(false);
        }
        inner.waiting.extend(message.take());
        inner.bytes = bytes;
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(true)
    }

    /// The next message for the stream. `None`: the line is over.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Option<SseOutbound>> {
        let mut inner = self.inner.lock();
        if self.is_closed() {
            return Poll::Ready(None);
        }
        let Some(next) = inner.waiting.pop_front() else {
            inner.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        inner.bytes -= next.cost();
        drop(inner);
        self.room.notify_waiters();
        Poll::Ready(Some(next))
    }

    pub(crate) fn close(&self) {
        let mut inner = self.inner.lock();
        self.closed.cancel();
        inner.waiting = VecDeque::new();
        inner.bytes = 0;
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Waits until the line is over.
    pub(crate) async fn closed(&self) {
        self.closed.cancelled().await;
    }
}

impl OpeningTurn<'_> {
    /// The session is open. Where the line was closed meanwhile, whoever opened it has to end it.
    pub(crate) fn finish(self, session: Session) -> Result<(), SseSessionClosed> {
        let mut inner = self.0.inner.lock();
        if self.0.is_closed() {
            return Err(SseSessionClosed);
        }
        inner.stage = SsePhase::Open(session);
        Ok(())
    }
}

impl Drop for OpeningTurn<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.inner.lock();
        if matches!(inner.stage, SsePhase::Opening) {
            inner.stage = SsePhase::New;
        }
    }
}

impl SseOutbound {
    fn cost(&self) -> usize {
        self.events.len() + MESSAGE_COST
    }
}

impl Drop for SseCall {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}
