//! A reply on its way to a client of HTTP/2. hyper takes of it what the client's windows allow, and a frame more; what it does
//! not take is read ahead here up to a bound, so that a client that reads slowly does not hold the connection of an upstream, and a least
//! rate holds for what waits.
//!
//! HTTP/1.1 does the same in `http1/response.rs`, where the socket says what the client takes.
//!
//! Invariant: a reply that ended too early ends with an error, never as if it were whole.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::REPLY_CLOCK;
use crate::access::limit::least_rate::{RateBound, ReaderRate};
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Share;
use crate::clock::{self, RecurringDeadline};
use crate::context::worker::Worker;
use crate::line::relay::ReplyBody;
use protocol::error::UpstreamError;

/// What HTTP/2 sends in one frame, if its client did not ask for larger ones.
const FRAME_BYTES_MAX: usize = 16 * 1024;
/// So much is read ahead.
const AHEAD_BYTES_MAX: usize = 64 * 1024;

/// A reply as hyper takes it.
pub(super) enum Http2Body {
    /// A complete reply, of which this is next. It holds nobody up, and has no clock but the connection's.
    Whole(ReplyBody, Bytes),
    Ahead(ReadAhead),
}

impl Http2Body {
    /// Memory for it is charged to whose call it answers, or else to `payer`, the one at the other end of the connection.
    pub(super) fn new(
        mut body: ReplyBody,
        worker: &Rc<Worker>,
        (payer, client): (Payer, SocketAddr),
    ) -> Self {
        if matches!(body, ReplyBody::Whole(..)) {
            return Self::Whole(body, Bytes::new());
        }
        let payer = body.payer().unwrap_or(payer);
        Self::Ahead(ReadAhead::spawn(body, worker, payer, client))
    }
}

/// What was read ahead.
pub(super) struct ReadAhead {
    queue: Rc<RefCell<Queue>>,
    /// As it was in the beginning.
    size: SizeHint,
}

#[derive(Default)]
struct Queue {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    /// How much the client has taken in all.
    taken_bytes: usize,
    /// It took everything since the source last looked.
    was_empty: bool,
    end: Option<Result<(), UpstreamError>>,
    reader: Option<Waker>,
    source: Option<Waker>,
    /// Nobody reads any more.
    is_abandoned: bool,
}

/// Who fills the queue.
struct Source {
    queue: Rc<RefCell<Queue>>,
    /// `None` once it has ended.
    body: Option<ReplyBody>,
    bound: RateBound,
    reader: ReaderRate,
    deadline: RecurringDeadline,
    /// What is held, beyond what would be held anyway.
    held: Share,
}

impl ReadAhead {
    /// Reads a reply in a task of its own.
    fn spawn(body: ReplyBody, worker: &Rc<Worker>, payer: Payer, client: SocketAddr) -> Self {
        let (queue, size) = (Rc::<RefCell<Queue>>::default(), body.size_hint());
        let mut source = Source {
            queue: Rc::clone(&queue),
            body: Some(body),
            bound: RateBound::of_replies(&worker.limits()),
            reader: ReaderRate::default(),
            deadline: RecurringDeadline::default(),
            held: worker.state.buffered.open(payer),
        };
        let (timed_out, observers) =
            (worker.state.metrics.connections.timed_out.clone(), Rc::clone(&worker.observers));
        worker.client.tasks.spawn_unboxed(async move {
            if poll_fn(|cx| source.poll(cx)).await == SourceEnd::TooSlow {
                timed_out.with_label_values(&[REPLY_CLOCK]).inc();
                observers.failures.write_slow_reader(client, "reply", clock::now());
            }
        });
        Self { queue, size }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceEnd {
    /// The client has all of it, or has left.
    Over,
    TooSlow,
}

impl Source {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<SourceEnd> {
        if self.queue.borrow().is_abandoned {
            self.body = None;
            return Poll::Ready(SourceEnd::Over);
        }
        self.fill(cx);
        if self.poll_rate(cx).is_ready() {
            self.body = None;
            let mut queue = self.queue.borrow_mut();
            queue.pieces.clear();
            queue.finish(Err(UpstreamError::Reset));
            return Poll::Ready(SourceEnd::TooSlow);
        }
        let mut queue = self.queue.borrow_mut();
        if self.body.is_none() && queue.pieces.is_empty() {
            return Poll::Ready(SourceEnd::Over);
        }
        queue.source = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Reads until the socket is empty, or enough waits.
    fn fill(&mut self, cx: &mut Context<'_>) {
        while let Some(body) = &mut self.body {
            let bytes = self.queue.borrow().bytes;
            // A piece goes on its way in any case.
            if bytes >= AHEAD_BYTES_MAX || bytes > 0 && self.held.grow_to(AHEAD_BYTES_MAX).is_err() {
                return;
            }
            let Poll::Ready(frame) = pin!(body).poll_frame(cx) else { return };
            let mut queue = self.queue.borrow_mut();
            match frame {
                Some(Ok(frame)) => queue.push(frame.into_data().unwrap_or_default()),
                Some(Err(error)) => queue.finish(Err(error)),
                None => queue.finish(Ok(())),
            }
            if queue.end.is_some() {
                self.body = None;
            }
        }
    }

    /// Ready when the client has been too slow.
    fn poll_rate(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut queue = self.queue.borrow_mut();
        if queue.pieces.is_empty() || std::mem::take(&mut queue.was_empty) {
            self.reader.rest();
        }
        if queue.pieces.is_empty() {
            self.held.clear();
            return Poll::Pending;
        }
        match self.reader.deadline(self.bound, queue.taken_bytes, clock::now()) {
            Some(deadline) => self.deadline.poll(cx, deadline),
            None => Poll::Pending,
        }
    }
}

impl Queue {
    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.bytes += piece.len();
            self.pieces.push_back(piece);
            self.wake_reader();
        }
    }

    fn finish(&mut self, end: Result<(), UpstreamError>) {
        self.end = Some(end);
        self.wake_reader();
    }

    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn wake_source(&mut self) {
        if let Some(source) = self.source.take() {
            source.wake();
        }
    }

    /// As much as hyper is given at once: it takes all of that, whatever the client's windows allow.
    fn next_piece(&mut self) -> Option<Bytes> {
        let first = self.pieces.front_mut()?;
        if first.len() > FRAME_BYTES_MAX {
            return Some(first.split_to(FRAME_BYTES_MAX));
        }
        self.pieces.pop_front()
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        if let Some(piece) = self.next_piece() {
            let was_full = self.bytes >= AHEAD_BYTES_MAX;
            self.bytes -= piece.len();
            self.taken_bytes += piece.len();
            self.was_empty |= self.pieces.is_empty();
            if was_full || self.pieces.is_empty() {
                self.wake_source();
            }
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match &self.end {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(error)) => Poll::Ready(Some(Err(error.clone()))),
            None => {
                self.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// A complete reply frame by frame, so that what is counted of it is counted until hyper has the last.
fn poll_whole(
    body: &mut ReplyBody,
    next: &mut Bytes,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
    if next.is_empty() {
        match ready!(Pin::new(body).poll_frame(cx)) {
            Some(Ok(frame)) => *next = frame.into_data().unwrap_or_default(),
            other => return Poll::Ready(other),
        }
    }
    let frame = next.split_to(next.len().min(FRAME_BYTES_MAX));
    Poll::Ready(Some(Ok(Frame::data(frame))))
}

/// However it ends: what is not whole is not taken for it.
impl Drop for Source {
    fn drop(&mut self) {
        let mut queue = self.queue.borrow_mut();
        if queue.end.is_none() {
            queue.finish(Err(UpstreamError::Reset));
        }
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        let mut queue = self.queue.borrow_mut();
        queue.is_abandoned = true;
        queue.wake_source();
    }
}

impl Body for Http2Body {
    type Data = Bytes;
    type Error = UpstreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        match &mut *self {
            Self::Whole(body, next) => poll_whole(body, next, cx),
            Self::Ahead(ahead) => ahead.queue.borrow_mut().poll_piece(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body, next) => next.is_empty() && body.is_end_stream(),
            Self::Ahead(ahead) => {
                let queue = ahead.queue.borrow();
                queue.pieces.is_empty() && queue.end == Some(Ok(()))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            // Asked before the first piece.
            Self::Whole(body, _) => body.size_hint(),
            Self::Ahead(ahead) => ahead.size,
        }
    }
}
