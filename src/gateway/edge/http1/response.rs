//! A response as bytes.

use std::cell::RefCell;
use std::io::{self, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf as _, Bytes};
use http::header::{ALLOW, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{Method, StatusCode};
use http_body::Body as _;
use http1::BodyEnd;
use httpdate::HttpDate;
use net::stream::MaybeTls;
use tokio::io::AsyncWrite as _;

use super::request::RequestForm;
use crate::access::limit::least_rate::{RateBound, ReaderRate};
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Share;
use crate::buffers::Buffers;
use crate::clock;
use crate::line::relay::ReplyBody;
use crate::line::response::{ClientResponse, header_lines_of};
use protocol::fields::write_line;

/// A piece of a body that is no longer is copied behind what stands before it; a longer one is written from where it is, in
/// the same write.
const COPIED_BYTES_MAX: usize = 4 * 1024;
/// How much is taken of a body whose reader is late, so that its upstream is free for others.
const HELD_BYTES_MAX: usize = 64 * 1024;
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// What a request says of the form of its response.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseForm {
    is_head: bool,
    is_old: bool,
    is_persistent: bool,
}

impl ResponseForm {
    /// True if it may have no length.
    pub(super) fn takes_chunks(self) -> bool {
        !self.is_old && !self.is_head
    }

    pub(super) fn of(method: &Method, request: RequestForm) -> Self {
        let RequestForm { is_old, is_persistent, .. } = request;
        Self { is_head: *method == Method::HEAD, is_old, is_persistent }
    }
}

/// A response on its way into the socket.
pub(super) struct ResponseWriter {
    /// What is to be written next.
    out: Vec<u8>,
    out_written: usize,
    /// What follows it, of a longer body.
    piece: Bytes,
    /// What follows that.
    piece_end: &'static [u8],
    /// `None`: all of it was taken.
    body: Option<ReplyBody>,
    framing: BodyEnd,
    is_persistent: bool,
    /// The body broke off.
    is_broken: bool,
    /// How much the client has taken.
    written_bytes: usize,
    /// The client's socket is full.
    is_blocked: bool,
    /// What is held for it meanwhile.
    held: Option<Share>,
    /// How slowly it may read.
    reader: ReaderRate,
}

impl ResponseWriter {
    /// Of the response to a request of this form. With `is_request_over`, all of the request was read.
    pub(super) fn new(
        response: ClientResponse,
        form: ResponseForm,
        is_request_over: bool,
        buffers: &Buffers,
    ) -> Self {
        let (headers, body) = (response.headers(), &response.body);
        let has_body = !matches!(response.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let framing = match body.size_hint().exact() {
            Some(length) => BodyEnd::Length(length),
            None if form.is_old => BodyEnd::ToEnd,
            None => BodyEnd::Chunked,
        };
        let closes =
            headers.and_then(|headers| headers.get(CONNECTION)).is_some_and(|value| value == "close");
        let is_persistent = form.is_persistent && is_request_over && !closes && framing != BodyEnd::ToEnd;
        let mut out = buffers.take_spare();
        start(&mut out, response.status);
        let has_length = headers.is_some_and(|headers| headers.contains_key(CONTENT_LENGTH));
        for (name, value) in headers.into_iter().flatten() {
            // To HEAD, the length is what another method would get.
            if *name != CONNECTION && (*name != CONTENT_LENGTH || form.is_head) {
                write_line(&mut out, name.as_str().as_bytes(), value.as_bytes());
            }
        }
        out.extend_from_slice(header_lines_of(response.media).as_bytes());
        match framing {
            _ if !has_body || form.is_head && has_length => {}
            BodyEnd::Length(length) => {
                write_line(
                    &mut out,
                    CONTENT_LENGTH.as_str().as_bytes(),
                    itoa::Buffer::new().format(length).as_bytes(),
                );
            }
            BodyEnd::Chunked => write_line(&mut out, TRANSFER_ENCODING.as_str().as_bytes(), b"chunked"),
            BodyEnd::ToEnd => {}
        }
        if !is_persistent {
            write_line(&mut out, CONNECTION.as_str().as_bytes(), b"close");
        } else if form.is_old {
            write_line(&mut out, CONNECTION.as_str().as_bytes(), b"keep-alive");
        }
        end(&mut out);
        let is_empty = framing == BodyEnd::Length(0) || !has_body || form.is_head;
        Self { body: Some(response.body).filter(|_| !is_empty), ..Self::of(out, framing, is_persistent) }
    }

    /// The answer to what is no request, without a body.
    pub(super) fn refusal(status: StatusCode) -> Self {
        let mut out = Vec::new();
        start(&mut out, status);
        if status == StatusCode::METHOD_NOT_ALLOWED {
            write_line(&mut out, ALLOW.as_str().as_bytes(), b"GET, POST, DELETE");
        }
        write_line(&mut out, CONTENT_LENGTH.as_str().as_bytes(), b"0");
        write_line(&mut out, CONNECTION.as_str().as_bytes(), b"close");
        end(&mut out);
        Self::of(out, BodyEnd::Length(0), false)
    }

    fn of(out: Vec<u8>, framing: BodyEnd, is_persistent: bool) -> Self {
        Self {
            out,
            out_written: 0,
            piece: Bytes::new(),
            piece_end: b"",
            body: None,
            framing,
            is_persistent,
            is_broken: false,
            written_bytes: 0,
            is_blocked: false,
            held: None,
            reader: ReaderRate::default(),
        }
    }

    /// Whether another request may follow.
    pub(super) fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    /// When the client is too slow, while something waits for it; to be asked whenever that may have changed.
    pub(super) fn reader_deadline(&mut self, bound: RateBound, now: Instant) -> Option<Instant> {
        if !self.is_blocked {
            self.reader.rest();
            return None;
        }
        self.reader.deadline(bound, self.written_bytes, now)
    }

    /// Writes until the socket has all of it. Fails if the body breaks off, or the client has left.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut MaybeTls,
        buffers: &Buffers,
        memory: impl Fn(Option<Payer>) -> Share,
    ) -> Poll<io::Result<()>> {
        if self.out.capacity() == 0 {
            self.out = buffers.take_spare();
        }
        loop {
            let is_waiting = self.fill(cx, COPIED_BYTES_MAX).is_pending();
            self.is_blocked = self.poll_out(cx, stream)?.is_pending();
            if self.is_blocked {
                self.fill_ahead(cx, is_waiting, memory);
                return Poll::Pending;
            }
            self.held = None;
            if self.is_broken {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            if self.body.is_none() {
                buffers.give_spare(std::mem::take(&mut self.out));
                let flushed = Pin::new(stream).poll_flush(cx);
                self.is_blocked = flushed.is_pending();
                return flushed;
            }
            if is_waiting {
                let flushed = Pin::new(&mut *stream).poll_flush(cx);
                self.is_blocked = flushed.is_pending();
                ready!(flushed)?;
                // It may wait for long, and needs none until then.
                buffers.give_spare(std::mem::take(&mut self.out));
                return Poll::Pending;
            }
        }
    }

    /// Takes of the body what its upstream need not wait with, where there is memory for it. A body that `is_waiting` was
    /// asked just now, and is not asked twice.
    fn fill_ahead(
        &mut self,
        cx: &mut Context<'_>,
        is_waiting: bool,
        memory: impl Fn(Option<Payer>) -> Share,
    ) {
        // What is complete holds nobody up.
        let Some(body) = self.body.as_mut().filter(|body| !matches!(body, ReplyBody::Whole(..))) else {
            return;
        };
        let held = self.held.get_or_insert_with(|| memory(body.payer()));
        if held.grow_to(HELD_BYTES_MAX).is_err() {
            return;
        }
        self.out.drain(..std::mem::take(&mut self.out_written));
        while self.out.len() + self.piece.len() < HELD_BYTES_MAX {
            self.out.extend_from_slice(&std::mem::take(&mut self.piece));
            self.out.extend_from_slice(std::mem::take(&mut self.piece_end));
            if self.body.is_none() || is_waiting || self.fill(cx, HELD_BYTES_MAX).is_pending() {
                return;
            }
        }
    }

    /// Takes pieces of the body until so much is there to be written.
    fn fill(&mut self, cx: &mut Context<'_>, bytes_max: usize) -> Poll<()> {
        while self.piece.is_empty() && self.out.len() - self.out_written < bytes_max {
            let Some(body) = &mut self.body else { return Poll::Ready(()) };
            match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    let is_last = body.is_end_stream();
                    self.take(frame.into_data().unwrap_or_default(), is_last);
                }
                Some(Err(_)) => self.break_off(),
                None => self.end_body(),
            }
        }
        Poll::Ready(())
    }

    fn take(&mut self, data: Bytes, is_last: bool) {
        if data.is_empty() {
            return;
        }
        let mut is_over = is_last;
        self.piece_end = b"";
        match &mut self.framing {
            BodyEnd::Length(left) => match left.checked_sub(data.len() as u64) {
                Some(rest) => {
                    *left = rest;
                    is_over = rest == 0;
                }
                None => return self.break_off(),
            },
            BodyEnd::Chunked => {
                // Into memory that is there: it does not fail.
                let _ = write!(self.out, "{:x}\r\n", data.len());
                self.piece_end = b"\r\n";
            }
            BodyEnd::ToEnd => {}
        }
        if data.len() <= COPIED_BYTES_MAX {
            self.out.extend_from_slice(&data);
            self.out.extend_from_slice(std::mem::take(&mut self.piece_end));
        } else {
            self.piece = data;
        }
        if is_over && self.piece.is_empty() {
            self.end_body();
        }
    }

    fn end_body(&mut self) {
        match self.framing {
            BodyEnd::Length(1..) => return self.break_off(),
            BodyEnd::Chunked => self.out.extend_from_slice(LAST_CHUNK),
            BodyEnd::Length(0) | BodyEnd::ToEnd => {}
        }
        self.body = None;
    }

    /// What is there still goes out, then the connection ends: nobody may take that for the whole.
    fn break_off(&mut self) {
        (self.body, self.is_broken) = (None, true);
    }

    fn poll_out(&mut self, cx: &mut Context<'_>, stream: &mut MaybeTls) -> Poll<io::Result<()>> {
        loop {
            let rest = self.out.get(self.out_written..).unwrap_or_default();
            let count = match (rest.is_empty(), self.piece.is_empty()) {
                (true, true) => break,
                (false, true) => ready!(stream.poll_write_some(cx, rest))?,
                (true, false) => ready!(stream.poll_write_some(cx, &self.piece))?,
                (false, false) => ready!(stream.poll_write_both(cx, rest, &self.piece))?,
            };
            let of_out = count.min(rest.len());
            self.written_bytes += count;
            self.out_written += of_out;
            self.piece.advance(count - of_out);
        }
        self.out.clear();
        self.out.extend_from_slice(std::mem::take(&mut self.piece_end));
        self.out_written = 0;
        Poll::Ready(Ok(()))
    }
}

fn start(out: &mut Vec<u8>, status: StatusCode) {
    // Nearly every answer.
    if status == StatusCode::OK {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    let reason = status.canonical_reason().unwrap_or("Unknown");
    for part in ["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

fn end(out: &mut Vec<u8>) {
    DATE_NOW.with_borrow_mut(|date| out.extend_from_slice(date.line().as_bytes()));
}

thread_local! {
    static DATE_NOW: RefCell<CachedDate> = RefCell::default();
}

/// The date as the last line of a head, which is another once a second.
#[derive(Default)]
struct CachedDate {
    second: u64,
    line: String,
}

impl CachedDate {
    fn line(&mut self) -> &str {
        let second = clock::now_s();
        if second != self.second {
            let line = format!("date: {}\r\n\r\n", HttpDate::from(clock::calendar()));
            *self = Self { second, line };
        }
        &self.line
    }
}

#[cfg(test)]
mod tests;
