//! The lines of a stream that arrives in pieces, bounded in length.

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// How much is read at once.
const READ_BYTES: usize = 64 * 1024;

/// Reads what nobody wants, so that its writer is not held up. Never completes.
pub async fn discard(input: &mut (impl AsyncRead + Unpin)) {
    let mut buffer = vec![0; 4096];
    while matches!(input.read(&mut buffer).await, Ok(count) if count > 0) {}
    std::future::pending::<()>().await;
}

/// The line is longer than it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// What has arrived and was not taken yet.
#[derive(Debug, Default)]
pub struct LineBuffer {
    /// Where pieces are read into.
    pub buffer: BytesMut,
    /// How much of it was looked at.
    searched: usize,
}

impl LineBuffer {
    /// The next line of `input`, at its end what is left of it, and then `None`.
    pub async fn read(
        &mut self,
        input: &mut (impl AsyncRead + Unpin),
        bytes_max: usize,
    ) -> Result<Option<Bytes>, TooLong> {
        loop {
            if let Some(line) = self.next(bytes_max)? {
                return Ok(Some(line));
            }
            self.buffer.reserve(READ_BYTES);
            if !matches!(input.read_buf(&mut self.buffer).await, Ok(count) if count > 0) {
                let rest = self.rest();
                let trimmed = rest.trim_ascii();
                return Ok((!trimmed.is_empty()).then(|| rest.slice_ref(trimmed)));
            }
        }
    }

    /// The next complete line without its end and white space around it; empty ones are left out.
    pub fn next(&mut self, bytes_max: usize) -> Result<Option<Bytes>, TooLong> {
        loop {
            let found = memchr::memchr(b'\n', &self.buffer[self.searched..]);
            let Some(end) = found.map(|offset| self.searched + offset) else {
                self.searched = self.buffer.len();
                return if self.searched > bytes_max { Err(TooLong) } else { Ok(None) };
            };
            if end > bytes_max {
                return Err(TooLong);
            }
            let line = self.buffer.split_to(end).freeze();
            self.buffer.advance(1);
            self.searched = 0;
            let trimmed = line.trim_ascii();
            if !trimmed.is_empty() {
                return Ok(Some(line.slice_ref(trimmed)));
            }
        }
    }

    /// Takes what is there of a line that is not kept, its end included, and says whether that was all of it.
    pub fn pass(&mut self) -> (Bytes, bool) {
        self.searched = 0;
        match memchr::memchr(b'\n', &self.buffer) {
            Some(end) => (self.buffer.split_to(end + 1).freeze(), true),
            None => (self.buffer.split().freeze(), false),
        }
    }

    /// Moves what is left to memory of its own size.
    pub fn compact(&mut self) {
        self.buffer = BytesMut::from(&self.buffer[..]);
    }

    /// What is left when the stream has ended.
    pub fn rest(&mut self) -> Bytes {
        self.searched = 0;
        self.buffer.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(lines: &mut LineBuffer, bytes_max: usize) -> Result<Vec<Bytes>, TooLong> {
        let mut found = Vec::new();
        while let Some(line) = lines.next(bytes_max)? {
            found.push(line);
        }
        Ok(found)
    }

    #[test]
    fn lines_come_without_their_ends() {
        let mut lines = LineBuffer::default();
        lines.buffer.extend_from_slice(b"one\r\n\n \ntwo\nthr");
        assert_eq!(all(&mut lines, 10), Ok(vec!["one".into(), "two".into()]));
        lines.buffer.extend_from_slice(b"ee\n");
        assert_eq!(all(&mut lines, 10), Ok(vec!["three".into()]));
        lines.buffer.extend_from_slice(b"rest");
        assert_eq!((all(&mut lines, 10), lines.rest()), (Ok(vec![]), "rest".into()));
    }

    #[test]
    fn a_line_that_is_too_long_is_found_before_its_end() {
        for text in ["12345678901\n", "12345678901"] {
            let mut lines = LineBuffer::default();
            lines.buffer.extend_from_slice(text.as_bytes());
            assert_eq!(all(&mut lines, 10), Err(TooLong), "{text}");
            let mut lines = LineBuffer::default();
            lines.buffer.extend_from_slice(b"1234567890\n");
            assert_eq!(all(&mut lines, 10), Ok(vec!["1234567890".into()]));
        }
    }

    #[test]
    fn a_line_that_is_not_kept_passes_to_its_end() {
        let mut lines = LineBuffer::default();
        lines.buffer.extend_from_slice(b"12345678901");
        assert_eq!(lines.next(10), Err(TooLong));
        assert_eq!(lines.pass(), ("12345678901".into(), false));
        assert_eq!(lines.pass(), ("".into(), false));
        lines.buffer.extend_from_slice(b"2\nnext\n");
        assert_eq!((lines.pass(), lines.next(10)), (("2\n".into(), true), Ok(Some("next".into()))));
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(text in "[a-z \n]{0,60}", cuts in prop::collection::vec(0_usize..60, 0..5)) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.push(text.len());
            cuts.sort_unstable();
            let (mut lines, mut found, mut start) = (LineBuffer::default(), Vec::new(), 0);
            for cut in cuts {
                lines.buffer.extend_from_slice(&text.as_bytes()[start..cut]);
                found.extend(all(&mut lines, 100).expect("short enough"));
                start = cut;
            }
            let complete = text.rfind('\n').map_or("", |end| &text[..end]);
            let expected: Vec<&str> =
                complete.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
