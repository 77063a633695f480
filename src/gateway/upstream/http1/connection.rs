//! One connection: a request goes out, and the head and the body of its reply come in.
//!
//! Whoever waits drives it. The request is written on while its reply arrives, because a server may answer before it has
//! read all. What arrives is read into memory of the worker, and copied out as far as it is data.
//!
//! Invariant: a connection takes the next request only after the last one was written, its reply was read to the end, and
//! not a byte more has come.

use std::borrow::Cow;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use bytes::Bytes;
use http1::head::EndSearch;
use http1::{Decoder, HEAD_BYTES_MAX, HttpFault};
use net::stream::MaybeTls;
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::task::unconstrained;

use super::reply::{HttpBody, ParsedReply};
use super::request::{OutgoingRequest, RequestAddress};
use crate::buffers::{Buffers, poll_read};
use crate::clock::RecurringDeadline;
use crate::telemetry::metrics::GaugeGuard;
use crate::upstream::incoming::Incoming;
use crate::upstream::pool::{ConnectionSlot, PoolMembership};
use crate::upstream::request::UpstreamRequest;

/// A server that announces more than this before it answers is out of its senses.
const INFORMATIONAL_HEADS_MAX: usize = 16;

/// A connection to a replica.
#[derive(Debug)]
pub(crate) struct PooledConnection {
    state: RefCell<ConnectionState>,
    buffers: Rc<Buffers>,
    pub(crate) membership: PoolMembership,
    _open: (ConnectionSlot, GaugeGuard),
}

#[derive(Debug)]
struct ConnectionState {
    stream: MaybeTls,
    phase: Phase,
    /// What is still to be written.
    request: Option<OutgoingRequest>,
    /// The beginning of a head.
    head: Vec<u8>,
    search: EndSearch,
    /// The task that waits for a reply is woken by what comes, and nothing had.
    is_watched: bool,
    informational_heads: usize,
    /// Why nothing more can be written.
    write_error: Option<io::Error>,
    /// Something came since the request was given.
    has_received: bool,
    /// Whether another request may follow.
    is_persistent: bool,
    deadline: RecurringDeadline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Takes a request.
    Idle,
    /// Waits for the head of a reply.
    Head,
    /// A reply is being read.
    Body,
    /// Is of no more use.
    Over,
}

/// Why there is no reply, or no more of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the server closed the connection")]
    Closed,
    #[error("nothing came in time")]
    TimedOut,
    #[error(transparent)]
    Malformed(#[from] HttpFault),
}

impl PooledConnection {
    pub(crate) fn new(
        stream: MaybeTls,
        buffers: &Rc<Buffers>,
        membership: PoolMembership,
        open: (ConnectionSlot, GaugeGuard),
    ) -> Rc<Self> {
        let state = ConnectionState {
            stream,
            phase: Phase::Idle,
            request: None,
            head: Vec::new(),
            search: EndSearch::default(),
            is_watched: false,
            informational_heads: 0,
            write_error: None,
            has_received: false,
            is_persistent: false,
            deadline: RecurringDeadline::default(),
        };
        Rc::new(Self { state: RefCell::new(state), buffers: Rc::clone(buffers), membership, _open: open })
    }

    /// Whether its last reply has ended and another request may follow, as far as was looked.
    pub(crate) fn is_free(&self) -> bool {
        self.state.borrow().phase == Phase::Idle
    }

    /// Whether it takes a request. Costs no system call as long as nothing has come.
    pub(crate) fn is_idle(&self) -> bool {
        let mut state = self.state.borrow_mut();
        state.phase == Phase::Idle && state.is_silent(&mut Context::from_waker(Waker::noop()))
    }

    /// [`is_idle`](Self::is_idle), for the task that gives it a request at once: it is woken by what comes.
    pub(crate) fn is_idle_for(&self, cx: &mut Context<'_>) -> bool {
        let mut state = self.state.borrow_mut();
        state.is_watched = state.phase == Phase::Idle && state.is_silent(cx);
        state.is_watched
    }

    /// Begins to send a request.
    pub(crate) fn send(&self, request: &mut UpstreamRequest, to: &RequestAddress) {
        let mut state = self.state.borrow_mut();
        state.request = Some(OutgoingRequest::new(request, to, self.buffers.take_spare()));
        state.phase = Phase::Head;
        state.has_received = false;
        state.informational_heads = 0;
    }

    /// The head of the reply, until `deadline`, with as much of its body as has come.
    pub(crate) fn poll_reply(
        self: &Rc<Self>,
        cx: &mut Context<'_>,
        deadline: Instant,
    ) -> Poll<Result<(ParsedReply, Incoming), ConnectionError>> {
        let mut state = self.state.borrow_mut();
        let result = self.buffers.reading(|memory| state.poll_reply(cx, memory, &self.buffers));
        if result.is_pending() && state.deadline.poll(cx, deadline).is_ready() {
            return Poll::Ready(Err(ConnectionError::TimedOut));
        }
        drop(state);
        result.map(|result| {
            result.map(|(start, decoder, first)| {
                let body = if decoder.is_over() {
                    Incoming::Whole(Some(first).filter(|first| !first.is_empty()))
                } else {
                    Incoming::Http(Box::new(HttpBody::new(Rc::clone(self), decoder, first)))
                };
                (start, body)
            })
        })
    }

    /// The next data of a reply that is not over; `None` at its end.
    pub(super) fn poll_data(
        &self,
        cx: &mut Context<'_>,
        decoder: &mut Decoder,
    ) -> Poll<Option<Result<Bytes, ConnectionError>>> {
        let mut state = self.state.borrow_mut();
        self.buffers.reading(|memory| state.poll_data(cx, memory, decoder, &self.buffers))
    }

    /// Is of no more use after an error. True: nothing was written of the last request.
    pub(crate) fn give_up(&self) -> bool {
        let mut state = self.state.borrow_mut();
        state.phase = Phase::Over;
        state.request.take().is_some_and(|request| request.is_unwritten())
    }

    /// Whether nothing came since the last request was given.
    pub(crate) fn is_unanswered(&self) -> bool {
        !self.state.borrow().has_received
    }
}

impl ConnectionState {
    /// Whether nothing has come, not even the end. Looks, however much its task has done already.
    fn is_silent(&mut self, cx: &mut Context<'_>) -> bool {
        let mut byte = [0];
        let read = poll_fn(|cx| Pin::new(&mut self.stream).poll_read(cx, &mut ReadBuf::new(&mut byte)));
        pin!(unconstrained(read)).poll(cx).is_pending()
    }

    fn poll_reply(
        &mut self,
        cx: &mut Context<'_>,
        memory: &mut Vec<u8>,
        buffers: &Buffers,
    ) -> Poll<Result<(ParsedReply, Decoder, Bytes), ConnectionError>> {
        self.write(cx, buffers);
        // Nothing had come when it was given the request, in this turn of its task.
        if std::mem::take(&mut self.is_watched) && self.write_error.is_none() {
            return Poll::Pending;
        }
        loop {
            let fresh = ready!(poll_read(&mut self.stream, cx, memory))?;
            if fresh.is_empty() {
                return Poll::Ready(Err(self.write_error.take().map_or(ConnectionError::Closed, Into::into)));
            }
            self.has_received = true;
            let mut skipped = 0;
            if self.head.is_empty() {
                if let Some(begun) = self.begin(fresh, &mut skipped, buffers)? {
                    return Poll::Ready(Ok(begun));
                }
                self.head.extend_from_slice(fresh.get(skipped..).unwrap_or_default());
            } else {
                let mut head = std::mem::take(&mut self.head);
                head.extend_from_slice(fresh);
                if let Some(begun) = self.begin(&head, &mut skipped, buffers)? {
                    return Poll::Ready(Ok(begun));
                }
                head.drain(..skipped);
                self.head = head;
            }
        }
    }

    /// What was read of a reply, once its head is there. Until then only `skipped` bytes of these were of use.
    fn begin(
        &mut self,
        mut bytes: &[u8],
        skipped: &mut usize,
        buffers: &Buffers,
    ) -> Result<Option<(ParsedReply, Decoder, Bytes)>, HttpFault> {
        loop {
            // What comes whole, as nearly every head, is read at one look.
            let whole = self.search.is_new().then(|| ParsedReply::read_at_once(bytes)).flatten();
            let (start, length) = if let Some(whole) = whole {
                whole
            } else {
                let Some(length) = self.search.find(bytes, HEAD_BYTES_MAX)? else { return Ok(None) };
                (ParsedReply::read(bytes.get(..length).unwrap_or_default())?, length)
            };
            let rest = bytes.get(length..).unwrap_or_default();
            *skipped += length;
            self.search = EndSearch::default();
            if start.head.status.is_informational() {
                self.informational_heads += 1;
                if self.informational_heads > INFORMATIONAL_HEADS_MAX {
                    return Err(HttpFault::Head);
                }
                bytes = rest;
                continue;
            }
            let mut decoder = Decoder::new(start.framing);
            (self.phase, self.is_persistent) = (Phase::Body, start.is_persistent);
            let data = self.decode(rest, &mut decoder)?;
            let data = match data {
                Cow::Borrowed(data) if decoder.is_over() => buffers.keep(data),
                data => data.into_owned().into(),
            };
            return Ok(Some((start, decoder, data)));
        }
    }

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
        memory: &mut Vec<u8>,
        decoder: &mut Decoder,
        buffers: &Buffers,
    ) -> Poll<Option<Result<Bytes, ConnectionError>>> {
        self.write(cx, buffers);
        while !decoder.is_over() {
            let data = match ready!(poll_read(&mut self.stream, cx, memory)) {
                Ok([]) if decoder.may_end_here() => break,
                Ok([]) => Err(ConnectionError::Closed),
                Ok(fresh) => self.decode(fresh, decoder).map_err(Into::into),
                Err(error) => Err(error.into()),
            };
            match data {
                Ok(data) if data.is_empty() => {}
                data => return Poll::Ready(Some(data.map(|data| data.into_owned().into()))),
            }
        }
        Poll::Ready(None)
    }

    /// The data in these bytes, in one piece.
    fn decode<'b>(&mut self, bytes: &'b [u8], decoder: &mut Decoder) -> Result<Cow<'b, [u8]>, HttpFault> {
        let (data, taken) = decoder.data(bytes)?;
        if decoder.is_over() {
            let is_exact = taken == bytes.len();
            let is_of_use = is_exact && self.is_persistent && self.request.is_none();
            self.phase = if is_of_use { Phase::Idle } else { Phase::Over };
        }
        Ok(data)
    }

    /// Writes what can be written. A server that takes no more may have answered all the same.
    fn write(&mut self, cx: &mut Context<'_>, buffers: &Buffers) {
        let Some(request) = &mut self.request else { return };
        if self.write_error.is_some() {
            return;
        }
        match request.poll_write(&mut self.stream, cx) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => {
                let memory = self.request.take().map(OutgoingRequest::into_memory);
                buffers.give_spare(memory.unwrap_or_default());
            }
            Poll::Ready(Err(error)) => self.write_error = Some(error),
        }
    }
}
