//! Server-sent events, read for relaying: an event's bytes and its data, nothing held back.
//!
//! [`Events`] cuts a stream into events as it arrives. All the bytes of an event are kept, comments,
//! unknown fields and line ends included, so that what need not be changed is passed on as it came; an
//! event that arrives in one chunk is not copied. [`Boundary`] only follows a stream that is passed on
//! unread, to tell where an event of our own may be put in.
//!
//! Lines end with LF, CR or CRLF, in any mixture. A blank line that ends with CR may be followed by the
//! other half of a CRLF. It is waited for if the line before ended with CRLF; else the event ends at
//! once, and an LF that still follows opens the bytes of the next event, where it means nothing. So it
//! depends on the bytes alone, not on their chunks, where one event ends and the next begins.
//!
//! Deliberately absent: reconnection, and joining what `event`, `id` and `retry` say over several events.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::json::Span;
use super::splice::Segments;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// Why a stream cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// An event is longer than the limit.
    #[error("an event of the stream is too large")]
    TooLarge,
}

/// Cuts a stream into events.
pub struct Events {
    event_bytes_max: usize,
    scanner: Scanner,
    /// The beginning of the unfinished event.
    begun: BytesMut,
    /// Chunks not yet looked at.
    incoming: VecDeque<Bytes>,
    first: bool,
    failed: bool,
    /// The part of an event that is not kept which was looked at already, and whether it ends there.
    not_kept: Option<(Bytes, bool)>,
}

impl Events {
    /// `event_bytes_max` limits one event with its line ends and comments, in bytes.
    pub fn new(event_bytes_max: usize) -> Self {
        Self {
            event_bytes_max,
            scanner: Scanner::default(),
            begun: BytesMut::new(),
            incoming: VecDeque::new(),
            first: true,
            failed: false,
            not_kept: None,
        }
    }

    /// Adds the next bytes of the stream.
    pub fn push(&mut self, chunk: Bytes) {
        self.incoming.push_back(chunk);
    }

    /// The next event that is complete. After an error there is nothing more, unless the event is let go by
    /// [`pass`](Self::pass).
    #[expect(clippy::should_implement_trait, reason = "more may come after None")]
    pub fn next(&mut self) -> Option<Result<Event, SseError>> {
        while !self.failed {
            let mut chunk = self.incoming.pop_front()?;
            let end = self.scanner.scan(&chunk);
            if self.begun.len() + end.unwrap_or(chunk.len()) > self.event_bytes_max {
                let rest = end.map(|end| chunk.split_off(end));
                self.let_go(&chunk, rest.is_some());
                self.put_back(rest);
                return Some(Err(SseError::TooLarge));
            }
            let Some(end) = end else {
                self.begun.extend_from_slice(&chunk);
                continue;
            };
            let head = chunk.split_to(end);
            if !chunk.is_empty() {
                self.incoming.push_front(chunk);
            }
            if self.begun.is_empty() {
                return Some(Ok(self.event(head)));
            }
            self.begun.extend_from_slice(&head);
            let raw = self.begun.split().freeze();
            return Some(Ok(self.event(raw)));
        }
        None
    }

    /// The next piece of the event that was too large, and whether that is the last: then the next event may come. `None`:
    /// more of it has to arrive first.
    pub fn pass(&mut self) -> Option<(Bytes, bool)> {
        let (piece, is_end) = if let Some(begun) = self.not_kept.take() {
            begun
        } else {
            let mut chunk = self.incoming.pop_front()?;
            let end = self.scanner.scan(&chunk);
            let rest = end.map(|end| chunk.split_off(end));
            self.put_back(rest);
            (chunk, end.is_some())
        };
        self.failed = !is_end;
        Some((piece, is_end))
    }

    /// The unfinished event is not kept, as one that is too large.
    pub fn give_up(&mut self) {
        self.let_go(&[], false);
    }

    /// The rest was not looked at, and comes next.
    fn put_back(&mut self, rest: Option<Bytes>) {
        if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
            self.incoming.push_front(rest);
        }
    }

    fn let_go(&mut self, last: &[u8], is_end: bool) {
        let mut begun = std::mem::take(&mut self.begun);
        begun.extend_from_slice(last);
        (self.failed, self.first) = (true, false);
        self.not_kept = Some((begun.freeze(), is_end));
    }

    /// The next events, as many as came together, that are nothing but one line of such data, as most servers write them: what
    /// is passed on as it came need not be cut into events.
    pub fn next_run(&mut self, is_such: impl Fn(&[u8]) -> bool) -> Option<Bytes> {
        let is_between = !self.failed && self.begun.is_empty() && self.scanner == Scanner::default();
        let chunk = self.incoming.front_mut().filter(|_| is_between)?;
        let mut run = 0;
        while let Some(length) = plain_event(&chunk[run..], self.event_bytes_max, &is_such) {
            run += length;
        }
        if run == 0 {
            return None;
        }
        self.first = false;
        let events = chunk.split_to(run);
        if chunk.is_empty() {
            self.incoming.pop_front();
        }
        Some(events)
    }

    /// The last event, once the stream has ended and [`Events::next`] has nothing more: one whose final
    /// CR could still have become a CRLF.
    pub fn finish(&mut self) -> Option<Event> {
        if self.failed || !self.scanner.finish() {
            return None;
        }
        let raw = self.begun.split().freeze();
        Some(self.event(raw))
    }

    /// Whether a message is on its way: of the unfinished event, more has arrived than comments.
    pub fn has_begun(&self) -> bool {
        self.scanner.has_field
    }

    /// How much is held of the unfinished event, once [`Events::next`] has nothing more.
    pub fn begun_bytes(&self) -> usize {
        self.begun.len()
    }

    /// The bytes of the unfinished event.
    pub fn rest(&self) -> Bytes {
        let mut rest = Segments::from(Bytes::copy_from_slice(&self.begun));
        self.incoming.iter().for_each(|chunk| rest.push_back(chunk.clone()));
        rest.to_bytes()
    }

    fn event(&mut self, raw: Bytes) -> Event {
        let bom_length = if self.first && raw.starts_with(BOM) { BOM.len() } else { 0 };
        self.first = false;
        Event::read(raw, bom_length)
    }
}

/// How long the event is that these bytes begin with, if it is nothing but one line of such data, and is there as a whole.
fn plain_event(bytes: &[u8], bytes_max: usize, is_such: impl Fn(&[u8]) -> bool) -> Option<usize> {
    let line = bytes.strip_prefix(b"event: message\n").unwrap_or(bytes).strip_prefix(b"data: ")?;
    let end = memchr::memchr2(b'\n', b'\r', line)?;
    let length = bytes.len() - line.len() + end + 2;
    let is_whole = line[end..].starts_with(b"\n\n") && length <= bytes_max;
    (is_whole && is_such(&line[..end])).then_some(length)
}

/// Tells a client that its stream is alive.
pub const COMMENT: &[u8] = b":\n\n";

/// One event of a stream, or a blank line or comments that end like one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// All its bytes, with the blank line that ends it. Empty for one that was made of its data: see
    /// [`bytes`](Self::bytes).
    pub raw: Bytes,
    /// Its data, with LF between several lines. `None` if there is no data line, so that the event
    /// reaches nobody.
    pub data: Option<Bytes>,
    /// Its type, if it names one.
    pub event: Option<Bytes>,
    /// Its id, if it sets one.
    pub id: Option<Bytes>,
    /// How long the reader is to wait before it comes back, if it says so.
    pub retry_ms: Option<u64>,
    bom_length: usize,
}

impl Event {
    fn read(raw: Bytes, bom_length: usize) -> Self {
        let (mut data, mut event, mut id, mut retry_ms) = (None, None, None, None);
        let mut joined = BytesMut::new();
        for line in lines(&raw, bom_length) {
            let value = || raw.slice(line.value.clone());
            match &raw[line.name] {
                b"data" if data.is_none() => data = Some(value()),
                b"data" => {
                    if joined.is_empty() {
                        joined.extend_from_slice(data.as_deref().unwrap_or_default());
                    }
                    joined.extend_from_slice(b"\n");
                    joined.extend_from_slice(&raw[line.value]);
                }
                b"event" => event = Some(value()),
                b"id" if !raw[line.value.clone()].contains(&0) => id = Some(value()),
                b"retry" => retry_ms = digits(&raw[line.value]).or(retry_ms),
                _ => {}
            }
        }
        if !joined.is_empty() {
            data = Some(joined.freeze());
        }
        Self { raw, data, event, id, retry_ms, bom_length }
    }

    /// One that has nothing but data.
    pub fn of(data: Bytes) -> Self {
        let raw = Bytes::new();
        Self { raw, data: Some(data), event: None, id: None, retry_ms: None, bom_length: 0 }
    }

    /// One that says nothing but that its server is there.
    pub fn comment() -> Self {
        let raw = Bytes::from_static(COMMENT);
        Self { raw, data: None, event: None, id: None, retry_ms: None, bom_length: 0 }
    }

    /// All its bytes, with the blank line that ends it.
    pub fn bytes(&self) -> Bytes {
        match &self.data {
            Some(data) if self.raw.is_empty() => data_event(data.clone()),
            _ => self.raw.clone(),
        }
    }

    /// [`bytes`](Self::bytes), of an event that is of no more use.
    pub fn into_bytes(self) -> Bytes {
        if self.raw.is_empty() { self.bytes() } else { self.raw }
    }

    /// The bytes of an event with other data and all else as it was. The new data stands where the first
    /// data line stood; an event without data stays as it is. All lines end as the first of those that are replaced
    /// did: with mixed line ends, a CR and an LF that a dropped line kept apart would become one line end.
    pub fn with_data(&self, data: impl Into<Segments>) -> Bytes {
        self.with(Some(data.into()), None)
    }

    /// The bytes of an event with other data, or another id, or both, in the same way.
    pub fn with(&self, mut data: Option<Segments>, mut id: Option<&[u8]>) -> Bytes {
        if self.raw.is_empty() {
            return data.map_or_else(|| self.bytes(), data_event);
        }
        let (has_data, has_id) = (data.is_some(), id.is_some());
        let is_data = |line: &EventLine| has_data && &self.raw[line.name.clone()] == b"data";
        let is_id = |line: &EventLine| has_id && &self.raw[line.name.clone()] == b"id";
        let mut replaced = lines(&self.raw, self.bom_length).filter(|line| is_data(line) || is_id(line));
        let Some(first) = replaced.next() else { return self.raw.clone() };
        let line_end = &self.raw[first.value.end..first.whole.end];

        let mut out = BytesMut::with_capacity(self.raw.len());
        out.extend_from_slice(&self.raw[..self.bom_length]);
        for line in lines(&self.raw, self.bom_length) {
            if is_data(&line) {
                if let Some(data) = data.take() {
                    write_data(&mut out, &data, line_end);
                }
            } else if is_id(&line) {
                if let Some(id) = id.take() {
                    out.extend_from_slice(b"id: ");
                    out.extend_from_slice(id);
                    out.extend_from_slice(line_end);
                }
            } else {
                out.extend_from_slice(&self.raw[line.whole.start..line.value.end]);
                out.extend_from_slice(line_end);
            }
        }
        out.freeze()
    }
}

/// A whole number that is written in digits alone.
fn digits(text: &[u8]) -> Option<u64> {
    let is_number = text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| is_number)?.parse().ok()
}

/// The bytes of an event that has nothing but data.
pub fn data_event(data: impl Into<Segments>) -> Bytes {
    event(None, data)
}

/// The bytes of an event with data and perhaps an id, which holds no line end.
pub fn event(id: Option<&[u8]>, data: impl Into<Segments>) -> Bytes {
    let data = data.into();
    let mut out = BytesMut::new();
    if let Some(id) = id {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(id);
        out.extend_from_slice(b"\n");
    }
    write_data(&mut out, &data, b"\n");
    out.extend_from_slice(b"\n");
    out.freeze()
}

/// Writes one data line, or several if the data has line ends of its own.
fn write_data(out: &mut BytesMut, data: &Segments, line_end: &[u8]) {
    if data.iter().all(|piece| memchr::memchr2(b'\n', b'\r', piece).is_none()) {
        out.extend_from_slice(b"data: ");
        data.iter().for_each(|piece| out.extend_from_slice(piece));
        out.extend_from_slice(line_end);
        return;
    }
    let data = data.to_bytes();
    let mut position = 0;
    loop {
        let (end, next) = line_end_at(&data, position);
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(&data[position..end]);
        out.extend_from_slice(line_end);
        if end == next {
            return;
        }
        position = next;
    }
}

/// A line of an event. Blank lines and comments have an empty name.
struct EventLine {
    whole: Span,
    name: Span,
    value: Span,
}

fn lines(raw: &[u8], start: usize) -> impl Iterator<Item = EventLine> {
    let mut position = start;
    std::iter::from_fn(move || {
        let (end, next) = line_end_at(raw, position);
        if position == next {
            return None;
        }
        let content = &raw[position..end];
        let colon = memchr::memchr(b':', content).map_or(end, |colon| position + colon);
        let space = usize::from(raw[..end].get(colon + 1) == Some(&b' '));
        let (name, value) = (position..colon, (colon + 1 + space).min(end)..end);
        let line = EventLine { whole: position..next, name, value };
        position = next;
        Some(line)
    })
}

/// Where the line at `start` ends, without and with its line end.
fn line_end_at(bytes: &[u8], start: usize) -> (usize, usize) {
    let rest = &bytes[start..];
    match memchr::memchr2(b'\n', b'\r', rest) {
        None => (bytes.len(), bytes.len()),
        Some(at) if rest[at..].starts_with(b"\r\n") => (start + at, start + at + 2),
        Some(at) => (start + at, start + at + 1),
    }
}

/// Tells whether a stream that is passed on unread stands between two events.
#[derive(Clone, Copy, Debug, Default)]
pub struct Boundary {
    scanner: Scanner,
}

impl Boundary {
    /// Follows the next bytes of the stream.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while let Some(end) = self.scanner.scan(bytes) {
            bytes = &bytes[end..];
        }
    }

    /// Whether nothing of an unfinished event has passed, so that another event may follow here.
    pub fn at_boundary(&self) -> bool {
        !self.scanner.inside || matches!(self.scanner.state, ScannerState::BlankCr)
    }
}

/// Finds the ends of events, over any chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Scanner {
    state: ScannerState,
    /// Whether bytes of an unfinished event have passed.
    inside: bool,
    /// Whether a line of it that is no comment has begun.
    has_field: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScannerState {
    /// At the start of a line; the one before ended with LF, if there was one.
    #[default]
    AfterLf,
    /// At the start of a line, unless an LF follows, which belongs to the CR of the line before.
    AfterCr,
    /// At the start of a line; the one before ended with CRLF.
    AfterCrLf,
    /// In a line that is not blank.
    InLine,
    /// After the CR of a blank line, whose LF is due.
    BlankCr,
}

impl Scanner {
    /// Looks at the next bytes. If an event ends in them, gives the number of them that belong to it;
    /// the rest is to be given again.
    fn scan(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let line_end = if byte == b'\r' { ScannerState::AfterCr } else { ScannerState::AfterLf };
            match (self.state, byte) {
                (ScannerState::BlankCr, b'\n') => return Some(self.end(at + 1, ScannerState::AfterCrLf)),
                (ScannerState::BlankCr, _) => return Some(self.end(at, ScannerState::AfterCr)),
                (ScannerState::AfterCr, b'\n') => self.state = ScannerState::AfterCrLf,
                (ScannerState::AfterCrLf, b'\r') => {
                    self.inside = true;
                    self.state = ScannerState::BlankCr;
                }
                (ScannerState::InLine, b'\r' | b'\n') => self.state = line_end,
                (_, b'\r' | b'\n') => return Some(self.end(at + 1, line_end)),
                _ => {
                    self.inside = true;
                    self.has_field |= byte != b':' && !matches!(self.state, ScannerState::InLine);
                    self.state = ScannerState::InLine;
                    at += memchr::memchr2(b'\n', b'\r', &bytes[at..]).unwrap_or(bytes.len() - at);
                    continue;
                }
            }
            at += 1;
        }
        None
    }

    /// Ends the event that waits for its last LF, if there is one.
    fn finish(&mut self) -> bool {
        let waits = matches!(self.state, ScannerState::BlankCr);
        if waits {
            self.end(0, ScannerState::AfterCr);
        }
        waits
    }

    fn end(&mut self, at: usize, state: ScannerState) -> usize {
        *self = Self { state, inside: false, has_field: false };
        at
    }
}

/// Follows the bytes of one event, for what stands in its data.
#[derive(Clone, Copy, Debug)]
pub enum DataScan {
    /// So much of `data:` stands at the beginning of the line.
    Name(usize),
    /// In the value of a data line.
    Value,
    /// In another line.
    Other,
}

impl Default for DataScan {
    fn default() -> Self {
        Self::Name(0)
    }
}

impl DataScan {
    /// The next bytes. `take` is given what stands in data lines, without their ends.
    pub fn push(&mut self, mut bytes: &[u8], mut take: impl FnMut(&[u8])) {
        const NAME: &[u8] = b"data:";
        while let Some((&first, rest)) = bytes.split_first() {
            let is_end = matches!(first, b'\n' | b'\r');
            *self = match *self {
                _ if is_end => Self::Name(0),
                Self::Name(at) if NAME.get(at) == Some(&first) && at + 1 == NAME.len() => Self::Value,
                Self::Name(at) if NAME.get(at) == Some(&first) => Self::Name(at + 1),
                Self::Name(_) => Self::Other,
                inside => {
                    let (line, rest) =
                        bytes.split_at(memchr::memchr2(b'\n', b'\r', bytes).unwrap_or(bytes.len()));
                    if matches!(inside, Self::Value) {
                        take(line);
                    }
                    bytes = rest;
                    continue;
                }
            };
            bytes = rest;
        }
    }
}

#[cfg(test)]
mod tests;
