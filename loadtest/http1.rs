//! HTTP/1.1 framing for the two ends of a load test: finds one message at the start of a buffer.
//!
//! Both ends speak only to each other and to proxies under test, so this is deliberately not a server's parser: it
//! trusts header names and values, takes no trailers and no body that ends with the connection.
//! Invariant: what is returned borrows from the buffer, and nothing is consumed; the caller drops `length` bytes.

use std::borrow::Cow;

use memchr::{memchr, memmem};

/// A message at the start of a buffer.
pub(crate) struct Message<'a> {
    /// The request line or status line and the headers, without the blank line.
    head: &'a [u8],
    /// The body, with chunked framing removed.
    pub(crate) body: Cow<'a, [u8]>,
    /// How many bytes of the buffer the message takes.
    pub(crate) length: usize,
}

/// The bytes are not an HTTP/1.1 message.
#[derive(Debug)]
pub(crate) struct Malformed;

/// The first message of `buffer`; `None` while it is incomplete.
pub(crate) fn parse(buffer: &[u8]) -> Result<Option<Message<'_>>, Malformed> {
    let Some(mut message) = parse_head(buffer) else { return Ok(None) };
    let rest = &buffer[message.length..];
    let (body, body_length) = match body_framing(message.head)? {
        Framing::Length(length) if rest.len() < length => return Ok(None),
        Framing::Length(length) => (Cow::Borrowed(&rest[..length]), length),
        Framing::Chunked => match unchunk(rest)? {
            Some((body, length)) => (Cow::Owned(body), length),
            None => return Ok(None),
        },
    };
    message.body = body;
    message.length += body_length;
    Ok(Some(message))
}

/// The first message of `buffer` without its body, for one that may never end; `None` while the head is incomplete.
pub(crate) fn parse_head(buffer: &[u8]) -> Option<Message<'_>> {
    let head_end = memmem::find(buffer, b"\r\n\r\n")?;
    Some(Message { head: &buffer[..head_end], body: Cow::Borrowed(&[]), length: head_end + 4 })
}

/// The data of the chunk at the start of `framed`, empty in the last one, and the length of its framed form; `None`
/// while it is incomplete.
pub(crate) fn next_chunk(framed: &[u8]) -> Result<Option<(&[u8], usize)>, Malformed> {
    let Some(line_end) = memmem::find(framed, b"\r\n") else { return Ok(None) };
    let (data_at, size) = (line_end + 2, hexadecimal(&framed[..line_end])?);
    let data = framed.get(data_at..data_at + size + 2);
    Ok(data.map(|data| (&data[..size], data_at + size + 2)))
}

impl<'a> Message<'a> {
    /// The request line or status line.
    pub(crate) fn start_line(&self) -> &'a [u8] {
        &self.head[..memchr(b'\r', self.head).unwrap_or(self.head.len())]
    }

    /// The value of the first header called `name`.
    pub(crate) fn header(&self, name: &str) -> Option<&'a [u8]> {
        headers(self.head).find(|(key, _)| key.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }
}

enum Framing {
    Length(usize),
    Chunked,
}

fn body_framing(head: &[u8]) -> Result<Framing, Malformed> {
    for (name, value) in headers(head) {
        if name.eq_ignore_ascii_case(b"content-length") {
            return decimal(value).map(Framing::Length).ok_or(Malformed);
        }
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            return Ok(Framing::Chunked);
        }
    }
    Ok(Framing::Length(0))
}

fn headers(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = head;
    let lines = std::iter::from_fn(move || {
        let line_end = memchr(b'\n', rest).unwrap_or(rest.len());
        let line;
        (line, rest) = (&rest[..line_end], rest.get(line_end + 1..).unwrap_or_default());
        (!line.is_empty()).then_some(line)
    });
    lines.skip(1).filter_map(|line| {
        let colon = memchr(b':', line)?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

/// The joined chunks and the length of their framed form; `None` while the last chunk is missing.
fn unchunk(framed: &[u8]) -> Result<Option<(Vec<u8>, usize)>, Malformed> {
    let mut body = Vec::with_capacity(framed.len());
    let mut at = 0;
    loop {
        let Some((data, length)) = next_chunk(&framed[at..])? else { return Ok(None) };
        at += length;
        if data.is_empty() {
            return Ok(Some((body, at)));
        }
        body.extend_from_slice(data);
    }
}

fn decimal(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn hexadecimal(line: &[u8]) -> Result<usize, Malformed> {
    let digits = line.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    let digits = std::str::from_utf8(digits).map_err(|_| Malformed)?;
    u32::from_str_radix(digits, 16).map(|size| size as usize).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_first_message_and_its_length() {
        let cases = [
            ("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab", "ab"),
            ("HTTP/1.1 202 Accepted\r\nX: y\r\n\r\n", ""),
            ("HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n", ""),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\nA;x\r\n0123456789\r\n0\r\n\r\n",
                "ab0123456789",
            ),
        ];
        for (text, body) in cases {
            let followed = format!("{text}NEXT");
            let message = parse(followed.as_bytes()).unwrap().unwrap();
            assert_eq!((&*message.body, message.length), (body.as_bytes(), text.len()), "{text:?}");
            for end in 0..text.len() {
                assert!(matches!(parse(&text.as_bytes()[..end]), Ok(None)), "{:?}", &text[..end]);
            }
        }
    }

    #[test]
    fn reads_start_line_and_headers() {
        let message = parse(b"HTTP/1.1 200 OK\r\nMcp-Session-Id:  s1 \r\nA: b\r\n\r\n").unwrap().unwrap();
        assert_eq!(message.start_line(), b"HTTP/1.1 200 OK");
        assert_eq!(message.header("mcp-session-id"), Some(b"s1".as_slice()));
        assert_eq!(message.header("mcp-name"), None);
    }

    #[test]
    fn refuses_sizes_that_are_no_numbers() {
        for text in ["A\r\ncontent-length: x\r\n\r\n", "A\r\ntransfer-encoding: chunked\r\n\r\nxy\r\n"] {
            assert!(parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
