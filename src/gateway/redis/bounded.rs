//! The bytes of the server, of which one reply is bounded: whoever answers in its place must not fill the memory.
//!
//! Only how long a reply is, is read here (RESP2 and RESP3); what it says, its reader finds out.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The longest that a reply may be: more than all that replicas share of one session.
const REPLY_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// So much is read at once: while more comes, one read could take as much as there is room for.
const READ_BYTES_MAX: usize = 64 * 1024;
/// The deepest nesting of replies.
const DEPTH_MAX: usize = 16;

/// A connection to the server.
pub(super) struct BoundedReplies<S> {
    stream: S,
    scan: ReplyScan,
}

impl<S> BoundedReplies<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, scan: ReplyScan::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedReplies<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let at_most = buffer.remaining().min(READ_BYTES_MAX);
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(at_most));
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        let pushed = self.scan.push(part.filled());
        let count = part.filled().len();
        buffer.advance(count);
        Poll::Ready(pushed.map_err(|TooLong| io::Error::from(io::ErrorKind::InvalidData)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedReplies<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TooLong;

/// The state of the replies that have come so far.
#[derive(Debug, Default)]
struct ReplyScan {
    /// The bytes that have come of this one.
    bytes: u64,
    /// The elements that are missing of each array that it is in.
    open: Vec<u64>,
    /// The line that has begun: what it is, and the number in it.
    line: Line,
    /// The bytes that are missing of a text, with its line end.
    text: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    kind: u8,
    number: u64,
    is_negative: bool,
}

impl ReplyScan {
    fn push(&mut self, mut bytes: &[u8]) -> Result<(), TooLong> {
        while let Some((first, rest)) = bytes.split_first() {
            if self.text > 0 {
                let taken = usize::try_from(self.text).unwrap_or(usize::MAX).min(bytes.len());
                bytes = bytes.get(taken..).unwrap_or_default();
                self.text -= taken as u64;
                self.count(taken as u64)?;
                if self.text == 0 {
                    self.complete();
                }
                continue;
            }
            bytes = rest;
            self.count(1)?;
            match first {
                b'\n' => self.end_line()?,
                _ if self.line.kind == 0 => self.line.kind = *first,
                b'-' => self.line.is_negative = true,
                b'0'..=b'9' => {
                    let number = self.line.number.saturating_mul(10);
                    self.line.number = number.saturating_add(u64::from(first - b'0'));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn count(&mut self, bytes: u64) -> Result<(), TooLong> {
        self.bytes += bytes;
        if self.bytes > REPLY_BYTES_MAX { Err(TooLong) } else { Ok(()) }
    }

    fn end_line(&mut self) -> Result<(), TooLong> {
        let Line { kind, number, is_negative } = std::mem::take(&mut self.line);
        let announced = if is_negative { 0 } else { number };
        if matches!(kind, b'$' | b'!' | b'=' | b'*' | b'~' | b'>' | b'%' | b'|')
            && announced > REPLY_BYTES_MAX
        {
            return Err(TooLong);
        }
        match kind {
            b'$' | b'!' | b'=' if !is_negative => self.text = announced + 2,
            b'*' | b'~' | b'>' if announced > 0 => self.open.push(announced),
            b'%' if announced > 0 => self.open.push(2 * announced),
            // Attributes of a reply come before it.
            b'|' => self.open.push(2 * announced + 1),
            _ => self.complete(),
        }
        if self.open.len() > DEPTH_MAX { Err(TooLong) } else { Ok(()) }
    }

    /// One more is there of what it is in; the reply is over where it is in nothing.
    fn complete(&mut self) {
        while let Some(missing) = self.open.last_mut() {
            *missing -= 1;
            if *missing > 0 {
                return;
            }
            self.open.pop();
        }
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_all_kinds_end_where_they_end() {
        for reply in [
            "+OK\r\n",
            "-ERR 17 no\r\n",
            ":-5\r\n",
            "$-1\r\n",
            "$0\r\n\r\n",
            "$5\r\na\r\nb\n\r\n",
            "*0\r\n",
            "*-1\r\n",
            "*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
            "%1\r\n+a\r\n~2\r\n:1\r\n:2\r\n",
            ">3\r\n+message\r\n+channel\r\n$2\r\nhi\r\n",
            "|1\r\n+ttl\r\n:1\r\n*1\r\n_\r\n",
            "=7\r\ntxt:abc\r\n",
            "#t\r\n",
            ",1.5\r\n",
        ] {
            for size in [1, 2, 3, reply.len()] {
                let mut scan = ReplyScan::default();
                for piece in reply.as_bytes().chunks(size) {
                    assert!(scan.bytes > 0 || piece.as_ptr() == reply.as_ptr(), "{reply:?} ends early");
                    assert_eq!(scan.push(piece), Ok(()));
                }
                assert_eq!((scan.bytes, scan.open.len(), scan.text), (0, 0, 0), "{reply:?} by {size}");
            }
        }
    }

    #[test]
    fn a_reply_that_is_too_long_is_refused_when_that_shows() {
        for reply in ["$16777217\r\n", "*99999999999999999999999\r\n", "%16777217\r\n"] {
            assert_eq!(ReplyScan::default().push(reply.as_bytes()), Err(TooLong), "{reply:?}");
        }
        assert_eq!(ReplyScan::default().push("*1\r\n".repeat(DEPTH_MAX + 1).as_bytes()), Err(TooLong));
        let mut scan = ReplyScan::default();
        scan.push(b"*1000000\r\n").expect("short so far");
        let many = b"$1023\r\n".iter().chain(&[b'x'; 1023]).chain(b"\r\n").copied().collect::<Vec<u8>>();
        let refused = (0..20_000).find(|_| scan.push(&many).is_err());
        assert!(refused.is_some_and(|count| count > 16_000), "{refused:?}");
        // Many short ones, one after the other, are as long as they like.
        let mut scan = ReplyScan::default();
        for _ in 0..20_000 {
            scan.push(&many).expect("short");
        }
    }
}
