//! Where the requests of an HTTP/1.1 byte stream end, read beside hyper so that whatever two readers could see differently
//! is refused: `Content-Length` beside `Transfer-Encoding`, either of them twice, a length that is not all digits, a
//! coding other than `chunked`, and lines of a head that end with a bare line feed.
//!
//! hyper leaves one of two framings away without a word and takes bare line feeds. [`Framing`] follows the bytes from head
//! to body to next head, and says which byte is the first that must not be read; [`Framed`] makes that byte one that no
//! head and no chunk may hold, and ends the head and the stream after it. hyper then answers 400, and the connection ends.
//!
//! It checks no more of a head than that: hyper refuses the rest. Bodies are skipped by count. Nothing is allocated: of a
//! line that arrives in pieces the beginning is kept.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use memchr::memchr;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much of a line in pieces is kept: the longest that is to be understood, and some.
const KEPT_BYTES: usize = 64;
/// A line about the framing that is longer is refused, whether it arrives in pieces or not.
const LINE_BYTES_MAX: usize = KEPT_BYTES - 2;
/// Neither a head nor the size of a chunk may hold it.
const REFUSED: u8 = 0;
/// Comes after it: of a head in pieces hyper looks for the end alone before it parses again.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// Follows what a client sends, from the beginning of its connection.
#[derive(Debug, Default)]
pub struct Framing {
    at: At,
    line: PartialLine,
    head: BodyHeaders,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// Before the first line of a head: empty lines are passed over.
    #[default]
    Start,
    Head,
    Body(u64),
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailers,
}

/// What a head says about its body.
#[derive(Clone, Copy, Debug, Default)]
struct BodyHeaders {
    length: Option<u64>,
    is_chunked: bool,
}

/// Two readers might differ here.
#[derive(Debug, PartialEq, Eq)]
struct Ambiguous;

impl Framing {
    /// Takes in what comes next. An error is the place of the first byte that must not be read.
    pub fn follow(&mut self, bytes: &[u8]) -> Result<(), usize> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            at += match self.at {
                At::Body(left) => self.skip(left, rest, At::Start, At::Body),
                At::Chunk(left) => self.skip(left, rest, At::ChunkEnd, At::Chunk),
                _ => {
                    let Some(end) = memchr(b'\n', rest) else {
                        self.line.keep(rest);
                        return Ok(());
                    };
                    let (line, more) = rest.split_at(end);
                    self.take_line(line).map_err(|Ambiguous| at + line.len())?;
                    rest.len() - more.len() + 1
                }
            };
        }
        Ok(())
    }

    fn skip(&mut self, left: u64, rest: &[u8], then: At, within: impl Fn(u64) -> At) -> usize {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
        let left = left - count as u64;
        self.at = if left == 0 { then } else { within(left) };
        count
    }

    /// A line up to its line feed.
    fn take_line(&mut self, end: &[u8]) -> Result<(), Ambiguous> {
        let mut kept = [0; KEPT_BYTES];
        let line = self.line.complete(end, &mut kept)?;
        self.at = match self.at {
            At::Start | At::Trailers if line.is_empty() => At::Start,
            At::Start => {
                self.head = BodyHeaders::default();
                At::Head
            }
            At::Head if line.is_empty() => self.body(),
            At::Head => {
                self.head.note(line)?;
                At::Head
            }
            At::ChunkSize => match chunk_size(line)? {
                0 => At::Trailers,
                size => At::Chunk(size),
            },
            At::ChunkEnd if line.is_empty() => At::ChunkSize,
            At::ChunkEnd => return Err(Ambiguous),
            other => other,
        };
        Ok(())
    }

    /// Where the end of the head leads to.
    fn body(&self) -> At {
        match self.head {
            BodyHeaders { is_chunked: true, .. } => At::ChunkSize,
            BodyHeaders { length: Some(length @ 1..), .. } => At::Body(length),
            BodyHeaders { .. } => At::Start,
        }
    }
}

impl BodyHeaders {
    fn note(&mut self, line: &[u8]) -> Result<(), Ambiguous> {
        let is_length = match line.first() {
            Some(b'c' | b'C') => true,
            Some(b't' | b'T') => false,
            _ => return Ok(()),
        };
        let name: &[u8] = if is_length { b"content-length:" } else { b"transfer-encoding:" };
        let Some((found, value)) = line.split_at_checked(name.len()) else { return Ok(()) };
        if !found.eq_ignore_ascii_case(name) {
            return Ok(());
        }
        // A head has one framing, said once.
        if line.len() > LINE_BYTES_MAX || self.length.is_some() || self.is_chunked {
            return Err(Ambiguous);
        }
        let value = value.trim_ascii();
        if is_length {
            self.length = Some(number(value, 10)?);
        } else if value.eq_ignore_ascii_case(b"chunked") {
            self.is_chunked = true;
        } else {
            return Err(Ambiguous);
        }
        Ok(())
    }
}

fn chunk_size(line: &[u8]) -> Result<u64, Ambiguous> {
    let end = line.iter().position(|byte| matches!(byte, b';' | b' ' | b'\t')).unwrap_or(line.len());
    // Of one in pieces so many digits are kept, and of no number more are needed.
    if end > 16 { Err(Ambiguous) } else { number(&line[..end], 16) }
}

/// Digits and nothing else.
fn number(digits: &[u8], radix: u32) -> Result<u64, Ambiguous> {
    if digits.is_empty() {
        return Err(Ambiguous);
    }
    digits.iter().try_fold(0_u64, |number, byte| {
        let digit = char::from(*byte).to_digit(radix).ok_or(Ambiguous)?;
        let shifted = number.checked_mul(radix.into()).ok_or(Ambiguous)?;
        shifted.checked_add(digit.into()).ok_or(Ambiguous)
    })
}

/// What has arrived of a line whose end has not.
#[derive(Debug)]
struct PartialLine {
    kept: [u8; KEPT_BYTES],
    kept_length: usize,
    /// Something is left out between what is kept and `last`.
    is_cut: bool,
    last: u8,
}

impl Default for PartialLine {
    fn default() -> Self {
        Self { kept: [0; KEPT_BYTES], kept_length: 0, is_cut: false, last: 0 }
    }
}

impl PartialLine {
    fn keep(&mut self, piece: &[u8]) {
        let room = &mut self.kept[self.kept_length..];
        let count = room.len().min(piece.len());
        room[..count].copy_from_slice(&piece[..count]);
        self.kept_length += count;
        self.is_cut |= count < piece.len();
        self.last = piece.last().copied().unwrap_or(self.last);
    }

    /// The line without its end, or as much of it as was kept, from what comes before its line feed.
    fn complete<'a>(&mut self, end: &'a [u8], kept: &'a mut [u8; KEPT_BYTES]) -> Result<&'a [u8], Ambiguous> {
        if self.kept_length == 0 {
            return end.strip_suffix(b"\r").ok_or(Ambiguous);
        }
        self.keep(end);
        let line = std::mem::take(self);
        if line.last != b'\r' {
            return Err(Ambiguous);
        }
        *kept = line.kept;
        let length = if line.is_cut { line.kept_length } else { line.kept_length - 1 };
        Ok(&kept[..length])
    }
}

/// A connection from which nothing ambiguous is read.
#[derive(Debug)]
pub struct Framed<S> {
    inner: S,
    framing: Framing,
    /// Something was refused: what is left to be read.
    left: Option<&'static [u8]>,
}

impl<S> Framed<S> {
    /// From its beginning on.
    pub fn new(inner: S) -> Self {
        Self { inner, framing: Framing::default(), left: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Framed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(left) = self.left {
            let (piece, left) = left.split_at(left.len().min(buf.remaining()));
            buf.put_slice(piece);
            self.left = Some(left);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(cx, buf);
        let fresh = &mut buf.filled_mut()[before..];
        if let Err(at) = self.framing.follow(fresh) {
            fresh[at] = REFUSED;
            buf.set_filled(before + at + 1);
            self.left = Some(HEAD_END);
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Framed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
