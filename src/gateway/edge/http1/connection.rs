//! The bytes of a client's connection: what has come of a request, and what of a reply has still to go.
//!
//! Invariant: a request's body is read only while somebody asks for it, so that what nobody reads takes no memory but the
//! socket's.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http::StatusCode;
use http1::head::EndSearch;
use http1::{BodyEnd, Decoder};
use net::stream::MaybeTls;
use tokio::io::AsyncWrite as _;

use super::request::{self, ParsedHead, RequestForm};
use super::response::ResponseWriter;
use crate::access::limit::least_rate::RateBound;
use crate::access::limit::payer::Payer;
use crate::buffers::{Buffers, poll_read};
use crate::clock::{self, RecurringDeadline};
use crate::edge::AcceptedConnection;
use crate::edge::REPLY_CLOCK;
use crate::line::client_body::{BrokenRequest, ClientBody, RequestBytes};
use crate::line::relay::Silence;
use crate::line::request_header::RequestHeader;
use net::drain::DrainPhase;

/// How much a client may send ahead of an answer until nobody reads on.
const AHEAD_BYTES_MAX: usize = 64 * 1024;
/// How many empty lines may stand before a request: some clients end a body with one that does not belong to it.
const BLANK_LINES_MAX: usize = 4;
/// How much is read, and forgotten, of what a client still sends when it was answered already.
const LINGER_BYTES_MAX: usize = 1024 * 1024;
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

pub(super) struct ClientConnection {
    state: RefCell<ClientState>,
    /// When the head began that has not ended.
    head_since: Cell<Option<Instant>>,
    deadline: RefCell<RecurringDeadline>,
    /// The silence of the client of the last call.
    silence: RefCell<Arc<Silence>>,
    /// Dropped last: it counts the connection.
    pub(super) accepted: AcceptedConnection,
}

struct ClientState {
    stream: MaybeTls,
    /// What came, and was not taken yet.
    pending: Vec<u8>,
    search: EndSearch,
    /// Empty lines since the last request.
    blank_lines: usize,
    /// Of the request that is being answered.
    body: Decoder,
    must_ask_for_body: bool,
    /// The client was told that nothing more comes.
    is_shut: bool,
    lingered_bytes: usize,
}

/// The head of a request, with what has come behind it.
pub(super) struct ReceivedHead {
    message: Bytes,
    head: ParsedHead,
}

/// A request, of which the body may still be on its way.
pub(super) struct ReceivedRequest {
    pub(super) header: RequestHeader,
    pub(super) form: RequestForm,
    pub(super) body: ClientBody,
}

/// What a client that may send a request does.
pub(super) enum HeadEvent {
    /// It sends one, of which this is there.
    Request(ReceivedHead),
    /// It has left.
    End,
    /// This clock has run out.
    TooLate(&'static str),
    /// What it sends is no request.
    Refused(StatusCode),
}

impl ClientConnection {
    pub(super) fn new(accepted: AcceptedConnection, stream: MaybeTls, start: Vec<u8>) -> Rc<Self> {
        let state = ClientState {
            stream,
            pending: start,
            search: EndSearch::default(),
            blank_lines: 0,
            body: Decoder::new(BodyEnd::Length(0)),
            must_ask_for_body: false,
            is_shut: false,
            lingered_bytes: 0,
        };
        Rc::new(Self {
            state: RefCell::new(state),
            head_since: Cell::new(Some(clock::now())),
            deadline: RefCell::default(),
            silence: RefCell::default(),
            accepted,
        })
    }

    /// What it reads and writes with.
    pub(super) fn buffers(&self) -> &Buffers {
        &self.accepted.listener.worker.client.buffers
    }

    /// What the client does that may send a request, unless it is too late or no more are taken.
    pub(super) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<HeadEvent> {
        let event = self.poll_head(cx);
        if event.is_ready() {
            return event;
        }
        if self.accepted.listener.drain.has_reached(DrainPhase::Closing) {
            return Poll::Ready(HeadEvent::End);
        }
        self.poll_clocks(cx).map(HeadEvent::TooLate)
    }

    /// The next request, once its head is there.
    fn poll_head(&self, cx: &mut Context<'_>) -> Poll<HeadEvent> {
        let mut memory = self.buffers().take_read();
        let event = self.poll_head_of(&mut self.state.borrow_mut(), cx, &mut memory);
        self.buffers().give_read(memory);
        event
    }

    fn poll_head_of(
        &self,
        state: &mut ClientState,
        cx: &mut Context<'_>,
        memory: &mut Vec<u8>,
    ) -> Poll<HeadEvent> {
        let mut pending = std::mem::take(&mut state.pending);
        loop {
            let Ok(blank) = state.skip_blank_lines(&pending) else {
                return Poll::Ready(HeadEvent::Refused(state.refuse(StatusCode::BAD_REQUEST)));
            };
            pending.drain(..blank);
            if let Some(event) = self.begin(state, &pending) {
                return Poll::Ready(event);
            }
            let fresh = match poll_read(&mut state.stream, cx, memory) {
                Poll::Ready(Ok(fresh)) if !fresh.is_empty() => fresh,
                Poll::Ready(_) => return Poll::Ready(HeadEvent::End),
                Poll::Pending => {
                    // What is empty holds no memory.
                    state.pending = if pending.is_empty() { Vec::new() } else { pending };
                    return Poll::Pending;
                }
            };
            // What comes whole, as nearly every request, is read where it is.
            if pending.is_empty()
                && let Some(event) = self.begin(state, fresh)
            {
                return Poll::Ready(event);
            }
            pending.extend_from_slice(fresh);
        }
    }

    /// What these bytes begin with. `None`: that is not clear yet.
    fn begin(&self, state: &mut ClientState, bytes: &[u8]) -> Option<HeadEvent> {
        if bytes.is_empty() || bytes.starts_with(b"\r\n") {
            self.head_since.set(None);
            return None;
        }
        let limits = &self.accepted.limits;
        // What comes whole, as nearly every request, is read at one look.
        let at_once = || ParsedHead::parse_at_once(bytes, limits.header_bytes_max, limits.headers_max);
        let head = match state.search.is_new().then(at_once).flatten() {
            Some(head) => head,
            None => match self.head_in_pieces(state, bytes)? {
                Ok(head) => head,
                Err(status) => return Some(HeadEvent::Refused(state.refuse(status))),
            },
        };
        (state.search, state.blank_lines) = (EndSearch::default(), 0);
        self.head_since.set(None);
        if head.is_misdirected(matches!(state.stream, MaybeTls::Tls(_))) {
            return Some(HeadEvent::Refused(state.refuse(StatusCode::MISDIRECTED_REQUEST)));
        }
        // One piece of memory for the head and the body.
        Some(HeadEvent::Request(ReceivedHead { message: self.buffers().keep(bytes), head }))
    }

    /// The head that these bytes begin with, of which some may have been looked at; why it is none. `None`: that is not clear
    /// yet.
    fn head_in_pieces(
        &self,
        state: &mut ClientState,
        bytes: &[u8],
    ) -> Option<Result<ParsedHead, StatusCode>> {
        let limits = &self.accepted.limits;
        match state.search.find(bytes, limits.header_bytes_max) {
            Ok(Some(length)) => {
                Some(ParsedHead::parse(bytes.get(..length).unwrap_or_default(), limits.headers_max))
            }
            Ok(None) => {
                if self.head_since.get().is_none() {
                    self.head_since.set(Some(clock::now()));
                }
                None
            }
            Err(fault) => Some(Err(request::status_of(fault))),
        }
    }

    /// The request that begins with this head, with as much of its body as has come.
    pub(super) fn read(self: &Rc<Self>, received: ReceivedHead) -> ReceivedRequest {
        let ReceivedHead { message, head } = received;
        let state = &mut *self.state.borrow_mut();
        let form = head.form;
        let rest = message.get(head.length..).unwrap_or_default();
        state.body = Decoder::new(form.framing);
        state.must_ask_for_body = form.expects_continue && rest.is_empty();
        let length = state.body.left().and_then(|left| usize::try_from(left).ok());
        let body = if let Some((body, next)) = length.and_then(|length| rest.split_at_checked(length)) {
            state.body = Decoder::new(BodyEnd::Length(0));
            state.pending = next.to_vec();
            ClientBody::Whole(message.slice_ref(body))
        } else {
            state.pending = rest.to_vec();
            let source: Rc<dyn RequestBytes> = Rc::<Self>::clone(self);
            ClientBody::Http1(source)
        };
        ReceivedRequest { header: head.into_header(message), form, body }
    }

    /// The silence of the next call. Another one, if somebody may still note something of the last call.
    pub(super) fn silence(&self) -> Arc<Silence> {
        let mut silence = self.silence.borrow_mut();
        if Arc::strong_count(&silence) > 1 {
            *silence = Arc::default();
        }
        Arc::clone(&silence)
    }

    /// The silence of the call.
    pub(super) fn last_silence(&self) -> Arc<Silence> {
        Arc::clone(&self.silence.borrow())
    }

    /// True if the client of the call is to be given something.
    pub(super) fn is_too_quiet(&self) -> bool {
        self.silence.borrow().is_due()
    }

    /// The clock that runs out while a request is awaited.
    pub(super) fn poll_clocks(&self, cx: &mut Context<'_>) -> Poll<&'static str> {
        let AcceptedConnection { peer, limits, .. } = &self.accepted;
        // What was answered aside may still be under way.
        let is_busy = peer.is_busy();
        let idle_since = if is_busy { clock::now() } else { peer.idle_since() };
        let idle = (idle_since + limits.idle_timeout, "idle_timeout");
        let head = self.head_since.get().filter(|_| !is_busy);
        let head = head.map(|since| (since + limits.header_timeout, "header_timeout"));
        let (deadline, clock) = head.map_or(idle, |head| head.min(idle));
        self.deadline.borrow_mut().poll(cx, deadline).map(|()| clock)
    }

    /// Ready when the client has read too slowly what waits for it.
    pub(super) fn poll_reader(
        &self,
        cx: &mut Context<'_>,
        writer: &mut ResponseWriter,
    ) -> Poll<&'static str> {
        let bound = RateBound::of_replies(&self.accepted.limits);
        match writer.reader_deadline(bound, clock::now()) {
            Some(deadline) => self.deadline.borrow_mut().poll(cx, deadline).map(|()| REPLY_CLOCK),
            None => Poll::Pending,
        }
    }

    /// Ready when the client has left. What it sends meanwhile is kept, up to a bound.
    pub(super) fn poll_departure(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.borrow_mut();
        self.buffers().reading(|memory| {
            loop {
                if state.pending.len() >= AHEAD_BYTES_MAX {
                    break Poll::Pending;
                }
                match poll_read(&mut state.stream, cx, memory) {
                    Poll::Pending => break Poll::Pending,
                    Poll::Ready(Ok([]) | Err(_)) => break Poll::Ready(()),
                    Poll::Ready(Ok(fresh)) => state.pending.extend_from_slice(fresh),
                }
            }
        })
    }

    /// Whether all of the request was read.
    pub(super) fn is_request_over(&self) -> bool {
        self.state.borrow().body.is_over()
    }

    /// Makes the connection ready for the next request; false where the last one was not read to its end.
    pub(super) fn finish_request(&self) -> bool {
        let mut state = self.state.borrow_mut();
        state.must_ask_for_body = false;
        state.body.is_over()
    }

    /// Writes until all of the response is with the socket. An error is the end of the connection.
    pub(super) fn poll_write(
        &self,
        cx: &mut Context<'_>,
        writer: &mut ResponseWriter,
    ) -> Poll<io::Result<()>> {
        let written = {
            let state = &mut *self.state.borrow_mut();
            let AcceptedConnection { listener, peer, .. } = &self.accepted;
            let memory =
                |payer: Option<Payer>| listener.worker.state.buffered.open(payer.unwrap_or(peer.payer));
            writer.poll(cx, &mut state.stream, self.buffers(), memory)
        };
        if written.is_pending() && self.poll_departure(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        written
    }

    /// Reads and forgets what still comes, after the end of what is sent.
    pub(super) fn poll_linger(&self, cx: &mut Context<'_>) -> Poll<()> {
        let state = &mut *self.state.borrow_mut();
        if !state.is_shut {
            if ready!(Pin::new(&mut state.stream).poll_shutdown(cx)).is_err() {
                return Poll::Ready(());
            }
            state.is_shut = true;
        }
        if state.body.is_over() && state.pending.is_empty() {
            return Poll::Ready(());
        }
        self.buffers().reading(|memory| {
            loop {
                match poll_read(&mut state.stream, cx, memory) {
                    Poll::Pending => break Poll::Pending,
                    Poll::Ready(Ok([]) | Err(_)) => break Poll::Ready(()),
                    Poll::Ready(Ok(fresh)) => state.lingered_bytes += fresh.len(),
                }
                if state.lingered_bytes > LINGER_BYTES_MAX {
                    break Poll::Ready(());
                }
            }
        })
    }
}

impl RequestBytes for ClientConnection {
    fn poll_data(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenRequest>>> {
        let state = &mut *self.state.borrow_mut();
        if state.must_ask_for_body {
            // A few bytes to a socket that nothing waits for: they fit, or the client has left.
            match Pin::new(&mut state.stream).poll_write(cx, CONTINUE) {
                Poll::Ready(Ok(count)) if count == CONTINUE.len() => state.must_ask_for_body = false,
                Poll::Ready(_) => return Poll::Ready(Some(Err(BrokenRequest))),
                Poll::Pending => return Poll::Pending,
            }
            let _ = Pin::new(&mut state.stream).poll_flush(cx);
        }
        self.buffers().reading(|memory| state.poll_data(cx, memory))
    }

    fn left(&self) -> Option<u64> {
        self.state.borrow().body.left()
    }

    fn is_over(&self) -> bool {
        self.state.borrow().body.is_over()
    }
}

impl ClientState {
    /// How many of these bytes are empty lines before a request, which are passed over (RFC 9112 §2.2); an error if
    /// there were too many.
    fn skip_blank_lines(&mut self, bytes: &[u8]) -> Result<usize, ()> {
        let mut skipped = 0;
        while bytes.get(skipped..).is_some_and(|rest| rest.starts_with(b"\r\n")) {
            skipped += 2;
            self.search = EndSearch::default();
            self.blank_lines += 1;
            if self.blank_lines > BLANK_LINES_MAX {
                return Err(());
            }
        }
        Ok(skipped)
    }

    /// Nothing that still comes is of use, but it is read, so that the client sees why.
    fn refuse(&mut self, status: StatusCode) -> StatusCode {
        self.body = Decoder::new(BodyEnd::ToEnd);
        status
    }

    fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
        memory: &mut Vec<u8>,
    ) -> Poll<Option<Result<Bytes, BrokenRequest>>> {
        while !self.body.is_over() {
            let pending = std::mem::take(&mut self.pending);
            let data = if pending.is_empty() {
                match ready!(poll_read(&mut self.stream, cx, memory)) {
                    Ok([]) | Err(_) => Err(BrokenRequest),
                    Ok(fresh) => self.decode(fresh),
                }
            } else {
                self.decode(&pending)
            };
            match data {
                Ok(data) if data.is_empty() => {}
                data => return Poll::Ready(Some(data)),
            }
        }
        Poll::Ready(None)
    }

    /// The data in these bytes, in one piece; what follows the body is kept.
    fn decode(&mut self, bytes: &[u8]) -> Result<Bytes, BrokenRequest> {
        let (data, taken) = self.body.data(bytes).map_err(|_| BrokenRequest)?;
        self.pending = bytes.get(taken..).unwrap_or_default().to_vec();
        Ok(data.into_owned().into())
    }
}
