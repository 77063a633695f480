//! The head of a message: where it ends, and what it says.

use std::mem::MaybeUninit;

use http::StatusCode;
use httparse::{Error, Header, ParserConfig, Request, Response, Status};
use memchr::memchr_iter;

use crate::framing::{BodyEnd, FramingFields};
use crate::{FIELDS_MAX, HttpFault};

/// Looks for the end of a head that arrives in pieces, each byte once.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndSearch {
    /// So many bytes were looked at.
    searched: usize,
}

impl EndSearch {
    /// Whether no byte was looked at.
    pub fn is_new(&self) -> bool {
        self.searched == 0
    }

    /// How long the head is that `bytes` begin with, once all of it is there; at most `bytes_max`. To be asked again with
    /// more bytes behind the same ones.
    ///
    /// # Errors
    /// If a line ends with a line feed alone, or the head is too long.
    pub fn find(&mut self, bytes: &[u8], bytes_max: usize) -> Result<Option<usize>, HttpFault> {
        for at in memchr_iter(b'\n', bytes.get(self.searched..).unwrap_or_default()) {
            let at = at + self.searched;
            let line_end = at.checked_sub(1).filter(|before| bytes[*before] == b'\r');
            let line_end = line_end.ok_or(HttpFault::LineEnd)?;
            let is_empty = line_end == 0 || bytes[line_end - 1] == b'\n';
            if is_empty {
                return if at < bytes_max { Ok(Some(at + 1)) } else { Err(HttpFault::HeadSize) };
            }
        }
        self.searched = bytes.len();
        if bytes.len() < bytes_max { Ok(None) } else { Err(HttpFault::HeadSize) }
    }
}

/// What the head of a reply says of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status; below 200, another head follows.
    pub status: StatusCode,
    /// Where the body ends.
    pub framing: BodyEnd,
    /// Whether another request may follow on the connection.
    pub is_persistent: bool,
}

/// Whether a head that ends here is whole, short enough, and without a line that ends with a line feed alone.
fn is_plain(bytes: &[u8], length: usize, bytes_max: usize) -> bool {
    let Some((head, _)) = bytes.split_at_checked(length).filter(|_| length <= bytes_max) else {
        return false;
    };
    // No branch for each byte: many are compared at once.
    let pairs = head.iter().zip(head.get(1..).unwrap_or_default());
    let bare =
        pairs.fold(0, |bare, (before, byte)| bare | (u8::from(*byte == b'\n') & u8::from(*before != b'\r')));
    bare == 0 && !head.starts_with(b"\n") && !head.starts_with(b"\r\n")
}

impl ResponseHead {
    /// The head that `bytes` begin with, and its length, if all of it is there and nothing is wrong with it. `None`:
    /// [`EndSearch`] and [`read`](Self::read) tell why.
    pub fn read_at_once<'b>(
        bytes: &'b [u8],
        bytes_max: usize,
        field: impl FnMut(&'b str, &'b [u8]),
    ) -> Option<(Self, usize)> {
        let mut room = [const { MaybeUninit::<Header<'_>>::uninit() }; FIELDS_MAX];
        let mut head = Response::new(&mut []);
        let parsed = ParserConfig::default().parse_response_with_uninit_headers(&mut head, bytes, &mut room);
        let Ok(Status::Complete(length)) = parsed else { return None };
        is_plain(bytes, length, bytes_max).then(|| Self::of(&head, field).ok()).flatten().zip(Some(length))
    }

    /// Reads the head of a reply to anything but HEAD and CONNECT; `bytes` are all of it, as [`EndSearch`] found it.
    /// Shows each field to `field`, its name as it is spelled.
    ///
    /// # Errors
    /// If it is not one plain head of HTTP/1.1 or 1.0.
    pub fn read<'b>(bytes: &'b [u8], field: impl FnMut(&'b str, &'b [u8])) -> Result<Self, HttpFault> {
        let mut room = [const { MaybeUninit::<Header<'_>>::uninit() }; FIELDS_MAX];
        let mut head = Response::new(&mut []);
        let parsed = ParserConfig::default().parse_response_with_uninit_headers(&mut head, bytes, &mut room);
        match parsed {
            Ok(Status::Complete(length)) if length == bytes.len() => {}
            Err(Error::TooManyHeaders) => return Err(HttpFault::HeadSize),
            _ => return Err(HttpFault::Head),
        }
        Self::of(&head, field)
    }

    fn of<'b>(head: &Response<'_, 'b>, mut field: impl FnMut(&'b str, &'b [u8])) -> Result<Self, HttpFault> {
        let minor = head.version.unwrap_or(0);
        let code = head.code.filter(|code| *code != StatusCode::SWITCHING_PROTOCOLS);
        let code = code.ok_or(HttpFault::Head)?;
        let (mut framing, mut connection) = (FramingFields::default(), ConnectionField::default());
        for Header { name, value } in &*head.headers {
            match name.len() {
                10 if name.eq_ignore_ascii_case("connection") => connection.note(value),
                14 if name.eq_ignore_ascii_case("content-length") => framing.note_length(value)?,
                17 if name.eq_ignore_ascii_case("transfer-encoding") => framing.note_coding(value, minor)?,
                _ => {}
            }
            field(name, value);
        }
        let framing = framing.of_reply(code);
        Ok(Self {
            status: StatusCode::from_u16(code).map_err(|_| HttpFault::Head)?,
            framing,
            is_persistent: framing != BodyEnd::ToEnd && connection.is_persistent(minor),
        })
    }
}

/// What the head of a request says of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHead<'b> {
    /// The method, as it is spelled.
    pub method: &'b str,
    /// The target: a path, or all of a URI.
    pub target: &'b str,
    /// 0 or 1: HTTP/1.0 or 1.1.
    pub minor: u8,
    /// Where the body ends.
    pub framing: BodyEnd,
    /// Whether the client may send another request on the connection.
    pub is_persistent: bool,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
}

impl<'b> RequestHead<'b> {
    /// The head that `bytes` begin with, and its length, if all of it is there and nothing is wrong with it. `None`:
    /// [`EndSearch`] and [`read`](Self::read) tell why.
    pub fn read_at_once(
        bytes: &'b [u8],
        bytes_max: usize,
        field: impl FnMut(&'b str, &'b [u8]),
    ) -> Option<(Self, usize)> {
        let mut room = [const { MaybeUninit::<Header<'_>>::uninit() }; FIELDS_MAX];
        let mut head = Request::new(&mut []);
        let parsed = ParserConfig::default().parse_request_with_uninit_headers(&mut head, bytes, &mut room);
        let Ok(Status::Complete(length)) = parsed else { return None };
        is_plain(bytes, length, bytes_max).then(|| Self::of(&head, field).ok()).flatten().zip(Some(length))
    }

    /// Reads the head of a request; `bytes` are all of it, as [`EndSearch`] found it. Shows each field to `field`, its name
    /// as it is spelled.
    ///
    /// # Errors
    /// If it is not one plain head of HTTP/1.1 or 1.0.
    pub fn read(bytes: &'b [u8], field: impl FnMut(&'b str, &'b [u8])) -> Result<Self, HttpFault> {
        let mut room = [const { MaybeUninit::<Header<'_>>::uninit() }; FIELDS_MAX];
        let mut head = Request::new(&mut []);
        let parsed = ParserConfig::default().parse_request_with_uninit_headers(&mut head, bytes, &mut room);
        match parsed {
            Ok(Status::Complete(length)) if length == bytes.len() => {}
            Err(Error::TooManyHeaders) => return Err(HttpFault::HeadSize),
            _ => return Err(HttpFault::Head),
        }
        Self::of(&head, field)
    }

    fn of(head: &Request<'_, 'b>, mut field: impl FnMut(&'b str, &'b [u8])) -> Result<Self, HttpFault> {
        let (Some(method), Some(target)) = (head.method, head.path) else { return Err(HttpFault::Head) };
        let minor = head.version.unwrap_or(0);
        let (mut framing, mut connection) = (FramingFields::default(), ConnectionField::default());
        let mut expects_continue = false;
        for Header { name, value } in &*head.headers {
            match name.len() {
                6 if name.eq_ignore_ascii_case("expect") => {
                    expects_continue = minor == 1 && value.eq_ignore_ascii_case(b"100-continue");
                }
                10 if name.eq_ignore_ascii_case("connection") => connection.note(value),
                14 if name.eq_ignore_ascii_case("content-length") => framing.note_length(value)?,
                17 if name.eq_ignore_ascii_case("transfer-encoding") => framing.note_coding(value, minor)?,
                _ => {}
            }
            field(name, value);
        }
        let is_persistent = connection.is_persistent(minor);
        Ok(Self { method, target, minor, framing: framing.of_request(), is_persistent, expects_continue })
    }
}

/// What `Connection` says.
#[derive(Clone, Copy, Debug, Default)]
struct ConnectionField {
    close: bool,
    keep_alive: bool,
}

impl ConnectionField {
    fn note(&mut self, value: &[u8]) {
        // What others may not see in it is no reason to go on, but one to stop.
        let is_clear = value.is_ascii();
        for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= is_clear && option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn is_persistent(self, minor: u8) -> bool {
        !self.close && (minor == 1 || self.keep_alive)
    }
}

#[cfg(test)]
mod tests;
