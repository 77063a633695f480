//! Connections read by this crate. What both sides of the gateway add to it is here in short.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use super::{Message, Rest};
use crate::head::EndSearch;
use crate::{BodyEnd, Decoder, HEAD_BYTES_MAX, HttpFault, RequestHead, ResponseHead};

/// As `edge` has it.
pub(super) const BLANK_LINES_MAX: usize = 4;

/// A reply, and where it ends.
#[derive(Debug, PartialEq)]
pub(super) struct Reply {
    pub(super) message: Message,
    pub(super) framing: BodyEnd,
    pub(super) taken: usize,
}

/// All requests of a connection that ends behind these pieces.
pub(super) fn requests(pieces: &[&[u8]]) -> (Vec<Message>, Rest) {
    let mut reader = Reader::default();
    let mut messages = Vec::new();
    for piece in pieces {
        reader.pending.extend_from_slice(piece);
        loop {
            match reader.request() {
                Ok(Some((message, is_persistent))) => {
                    messages.push(message);
                    if !is_persistent {
                        return (messages, Rest::Closed);
                    }
                }
                Ok(None) => break,
                Err(fault) => return (messages, Rest::Refused(fault, reader.start)),
            }
        }
    }
    let rest = match reader.body {
        Some(_) => Rest::Body,
        None if reader.pending.is_empty() => Rest::Over,
        None => Rest::Head,
    };
    (messages, rest)
}

/// The reply that a connection begins with, which ends behind these pieces. `None`: it is not whole.
pub(super) fn reply(pieces: &[&[u8]]) -> Result<Option<Reply>, (HttpFault, usize)> {
    let mut reader = Reader::default();
    let mut found = None;
    for piece in pieces {
        reader.pending.extend_from_slice(piece);
        if found.is_none() {
            found = reader.reply_head().map_err(|fault| (fault, reader.start))?;
        }
        let Some((message, _, decoder)) = &mut found else { continue };
        let (data, taken) = decoder.data(&reader.pending).map_err(|fault| (fault, reader.start))?;
        message.body.extend_from_slice(&data);
        reader.take(taken);
        if decoder.is_over() {
            break;
        }
    }
    let whole = found.filter(|(_, _, decoder)| decoder.may_end_here());
    Ok(whole.map(|(message, framing, _)| Reply { message, framing, taken: reader.taken }))
}

#[derive(Default)]
struct Reader {
    pending: Vec<u8>,
    /// So many bytes before those pending are read.
    taken: usize,
    /// Where the message begins, with the empty lines before it.
    start: usize,
    search: EndSearch,
    blank_lines: usize,
    /// A request whose body is not over.
    body: Option<(Message, bool, Decoder)>,
}

impl Reader {
    fn take(&mut self, count: usize) {
        self.pending.drain(..count);
        self.taken += count;
    }

    /// The next head. What is there at once is read at one look first, which `at_once` does.
    fn head(&mut self, at_once: fn(&[u8]) -> Option<usize>) -> Result<Option<Bytes>, HttpFault> {
        let at_once = self.search.is_new().then(|| at_once(&self.pending)).flatten();
        let length = match at_once {
            Some(length) => length,
            None => match self.search.find(&self.pending, HEAD_BYTES_MAX)? {
                Some(length) => length,
                None => return Ok(None),
            },
        };
        let head = Bytes::copy_from_slice(&self.pending[..length]);
        (self.search, self.blank_lines) = (EndSearch::default(), 0);
        self.take(length);
        Ok(Some(head))
    }

    /// The next request, and whether another may follow.
    fn request(&mut self) -> Result<Option<(Message, bool)>, HttpFault> {
        if self.body.is_none() {
            while self.pending.starts_with(b"\r\n") {
                self.take(2);
                self.search = EndSearch::default();
                self.blank_lines += 1;
                if self.blank_lines > BLANK_LINES_MAX {
                    return Err(HttpFault::Head);
                }
            }
            let at_once = |bytes: &[u8]| Some(RequestHead::read_at_once(bytes, HEAD_BYTES_MAX, |_, _| {})?.1);
            let Some(head) = self.head(at_once)? else { return Ok(None) };
            self.body = Some(request(&head)?);
        }
        let Some((mut message, is_persistent, mut decoder)) = self.body.take() else { return Ok(None) };
        let (data, taken) = decoder.data(&self.pending)?;
        message.body.extend_from_slice(&data);
        self.take(taken);
        if decoder.is_over() {
            self.start = self.taken;
            return Ok(Some((message, is_persistent)));
        }
        self.body = Some((message, is_persistent, decoder));
        Ok(None)
    }

    fn reply_head(&mut self) -> Result<Option<(Message, BodyEnd, Decoder)>, HttpFault> {
        loop {
            let at_once =
                |bytes: &[u8]| Some(ResponseHead::read_at_once(bytes, HEAD_BYTES_MAX, |_, _| {})?.1);
            let Some(bytes) = self.head(at_once)? else { return Ok(None) };
            let mut fields = Ok(HeaderMap::new());
            let head = ResponseHead::read(&bytes, |name, value| note(&mut fields, name, value))?;
            if head.status.is_informational() {
                self.start = self.taken;
                continue;
            }
            let decoder = Decoder::new(head.framing);
            let start = head.status.as_str().to_owned();
            let message = Message { start, fields: fields?, length: decoder.left(), body: Vec::new() };
            return Ok(Some((message, head.framing, decoder)));
        }
    }
}

fn request(bytes: &Bytes) -> Result<(Message, bool, Decoder), HttpFault> {
    let mut fields = Ok(HeaderMap::new());
    let head = RequestHead::read(bytes, |name, value| note(&mut fields, name, value))?;
    let method = Method::from_bytes(head.method.as_bytes()).map_err(|_| HttpFault::Head)?;
    let target: Uri = head.target.parse().map_err(|_| HttpFault::Head)?;
    let decoder = Decoder::new(head.framing);
    let start = format!("{method} {target} 1.{}", head.minor);
    let message = Message { start, fields: fields?, length: decoder.left(), body: Vec::new() };
    Ok((message, head.is_persistent, decoder))
}

fn note(fields: &mut Result<HeaderMap, HttpFault>, name: &str, value: &[u8]) {
    let field = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_bytes(value).ok());
    match (fields.as_mut(), field) {
        (Ok(fields), Some((name, value))) => drop(fields.append(name, value)),
        _ => *fields = Err(HttpFault::Head),
    }
}
