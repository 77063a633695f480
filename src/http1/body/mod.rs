//! Where the data of a body lie among the bytes that arrive.
//!
//! Nothing is copied and nothing is kept but counts: the same body may come whole or a byte at a time. Extensions of
//! chunks and trailers are bounded and dropped.

use std::borrow::Cow;

use crate::framing::BodyEnd;
use crate::{CHUNK_LINE_BYTES_MAX, HttpFault, TRAILER_BYTES_MAX};

/// More digits of a chunk's size could be more than 63 bits.
const SIZE_DIGITS_MAX: usize = 15;

/// Reads one body.
#[derive(Clone, Copy, Debug)]
pub struct Decoder(BodyPosition);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyPosition {
    /// So many bytes of data are left.
    Body(u64),
    /// All that follows is data.
    ToEnd,
    /// In the line that tells the size of a chunk.
    Size(SizeLine),
    /// So many bytes of a chunk are left, at least one.
    Chunk(u64),
    /// Behind a chunk's data; what is expected next.
    ChunkEnd(u8),
    /// So many bytes of trailers were dropped, and this stands before the next.
    Trailers(usize, TrailerAt),
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SizeLine {
    size: u64,
    digits: usize,
    bytes: usize,
    part: SizePart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SizePart {
    Digits,
    /// Blanks before an extension or the end.
    Blanks,
    Extension,
    /// The carriage return was there.
    LineFeed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrailerAt {
    LineStart,
    Name,
    Value,
    /// The line that ends here is the empty one.
    LastLineFeed,
    LineFeed,
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyStep {
    /// After `skip` bytes of framing, `len` bytes of data, at least one.
    Data {
        /// Bytes of framing before the data.
        skip: usize,
        /// Bytes of data.
        len: usize,
    },
    /// All of these bytes were framing; more must come.
    More,
    /// The body ended with this many bytes of framing.
    End {
        /// Bytes of framing before the end.
        skip: usize,
    },
}

impl Decoder {
    /// Of a body that ends like this.
    pub fn new(framing: BodyEnd) -> Self {
        Self(match framing {
            BodyEnd::Length(0) => BodyPosition::Over,
            BodyEnd::Length(length) => BodyPosition::Body(length),
            BodyEnd::Chunked => BodyPosition::Size(SizeLine::START),
            BodyEnd::ToEnd => BodyPosition::ToEnd,
        })
    }

    /// Whether the body has ended.
    pub fn is_over(&self) -> bool {
        self.0 == BodyPosition::Over
    }

    /// Whether the end of the connection may be the end of the body.
    pub fn may_end_here(&self) -> bool {
        matches!(self.0, BodyPosition::Over | BodyPosition::ToEnd)
    }

    /// How many bytes of data are left, where that is known.
    pub fn left(&self) -> Option<u64> {
        match self.0 {
            BodyPosition::Over => Some(0),
            BodyPosition::Body(left) => Some(left),
            _ => None,
        }
    }

    /// Looks at the bytes that come next. The caller takes what a [`BodyStep`] names off their front before it asks again.
    ///
    /// # Errors
    /// If the chunks are not well formed.
    pub fn step(&mut self, bytes: &[u8]) -> Result<BodyStep, HttpFault> {
        let mut skip = 0;
        loop {
            let rest = bytes.get(skip..).unwrap_or_default();
            let (left, within, then): (u64, fn(u64) -> BodyPosition, BodyPosition) = match self.0 {
                BodyPosition::Over => return Ok(BodyStep::End { skip }),
                BodyPosition::Body(left) => (left, BodyPosition::Body, BodyPosition::Over),
                BodyPosition::Chunk(left) => (left, BodyPosition::Chunk, BodyPosition::ChunkEnd(b'\r')),
                BodyPosition::ToEnd => (u64::MAX, |_| BodyPosition::ToEnd, BodyPosition::ToEnd),
                _ => {
                    if let Some((size, length)) = self.0.usual_framing(rest) {
                        self.0 = BodyPosition::Chunk(size);
                        skip += length;
                        continue;
                    }
                    let Some(byte) = rest.first() else { return Ok(BodyStep::More) };
                    self.0 = self.framing_byte(*byte)?;
                    skip += 1;
                    continue;
                }
            };
            if rest.is_empty() {
                return Ok(BodyStep::More);
            }
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
            let left = left - len as u64;
            self.0 = if left == 0 { then } else { within(left) };
            return Ok(BodyStep::Data { skip, len });
        }
    }

    /// All data in these bytes, and how many of the bytes belong to the body: all of them as long as it has not ended. Data
    /// that lie in one piece are not copied.
    ///
    /// # Errors
    /// If the chunks are not well formed.
    #[inline]
    pub fn data<'b>(&mut self, bytes: &'b [u8]) -> Result<(Cow<'b, [u8]>, usize), HttpFault> {
        let (mut rest, mut data) = (bytes, Cow::Borrowed(&[][..]));
        loop {
            match self.step(rest)? {
                BodyStep::Data { skip, len } => {
                    let (piece, more) = rest.get(skip..).unwrap_or_default().split_at(len);
                    if data.is_empty() {
                        data = Cow::Borrowed(piece);
                    } else {
                        // What is left holds no more data than bytes.
                        join(&mut data, piece, more.len());
                    }
                    rest = more;
                    if rest.is_empty() {
                        return Ok((data, bytes.len()));
                    }
                }
                BodyStep::More => return Ok((data, bytes.len())),
                BodyStep::End { skip } => return Ok((data, bytes.len() - rest.len() + skip)),
            }
        }
    }

    /// What follows a byte that is no data.
    fn framing_byte(self, byte: u8) -> Result<BodyPosition, HttpFault> {
        match (self.0, byte) {
            (BodyPosition::Size(line), _) => line.next(byte),
            (BodyPosition::ChunkEnd(b'\r'), b'\r') => Ok(BodyPosition::ChunkEnd(b'\n')),
            (BodyPosition::ChunkEnd(b'\n'), b'\n') => Ok(BodyPosition::Size(SizeLine::START)),
            (BodyPosition::Trailers(bytes, _), _) if bytes == TRAILER_BYTES_MAX => Err(HttpFault::Chunk),
            (BodyPosition::Trailers(bytes, at), _) => at.next(byte, bytes + 1),
            _ => Err(HttpFault::Chunk),
        }
    }
}

impl BodyPosition {
    /// The size of the next chunk and the length of the framing before it, as nearly all servers write it: what ended the
    /// chunk before, digits, and the end of the line. Whatever else it is, is for [`Decoder::framing_byte`].
    fn usual_framing(self, bytes: &[u8]) -> Option<(u64, usize)> {
        let line = match self {
            Self::ChunkEnd(b'\r') => bytes.strip_prefix(b"\r\n")?,
            Self::Size(line) if line == SizeLine::START => bytes,
            _ => return None,
        };
        let mut size = 0;
        let mut digits = 0;
        while digits < SIZE_DIGITS_MAX {
            let Some(digit) = char::from(*line.get(digits)?).to_digit(16) else { break };
            size = size << 4 | u64::from(digit);
            digits += 1;
        }
        let is_whole = size > 0 && line.get(digits..)?.starts_with(b"\r\n");
        is_whole.then(|| (size, bytes.len() - line.len() + digits + 2))
    }
}

impl SizeLine {
    const START: Self = Self { size: 0, digits: 0, bytes: 0, part: SizePart::Digits };

    fn next(mut self, byte: u8) -> Result<BodyPosition, HttpFault> {
        self.bytes += 1;
        if self.bytes > CHUNK_LINE_BYTES_MAX {
            return Err(HttpFault::Chunk);
        }
        self.part = match (self.part, byte) {
            (SizePart::LineFeed, b'\n') if self.size == 0 => {
                return Ok(BodyPosition::Trailers(0, TrailerAt::LineStart));
            }
            (SizePart::LineFeed, b'\n') => return Ok(BodyPosition::Chunk(self.size)),
            (SizePart::LineFeed, _) => return Err(HttpFault::Chunk),
            (_, b'\n') => return Err(HttpFault::LineEnd),
            (SizePart::Digits, _) if byte.is_ascii_hexdigit() => {
                self.digits += 1;
                if self.digits > SIZE_DIGITS_MAX {
                    return Err(HttpFault::Chunk);
                }
                self.size = self.size << 4 | u64::from(char::from(byte).to_digit(16).unwrap_or(0));
                SizePart::Digits
            }
            _ if self.digits == 0 => return Err(HttpFault::Chunk),
            (_, b'\r') => SizePart::LineFeed,
            (SizePart::Digits | SizePart::Blanks, b' ' | b'\t') => SizePart::Blanks,
            (SizePart::Digits | SizePart::Blanks, b';')
            | (SizePart::Extension, b'\t' | b' '..=b'~' | 0x80..) => SizePart::Extension,
            _ => return Err(HttpFault::Chunk),
        };
        Ok(BodyPosition::Size(self))
    }
}

impl TrailerAt {
    fn next(self, byte: u8, bytes: usize) -> Result<BodyPosition, HttpFault> {
        let at = match (self, byte) {
            (Self::LastLineFeed, b'\n') => return Ok(BodyPosition::Over),
            (Self::LineFeed, b'\n') => Self::LineStart,
            (Self::LineStart | Self::Name | Self::Value, b'\n') => return Err(HttpFault::LineEnd),
            (Self::LineStart, b'\r') => Self::LastLineFeed,
            (Self::Value, b'\r') => Self::LineFeed,
            (Self::LineStart | Self::Name, _) if is_of_token(byte) => Self::Name,
            (Self::Name, b':') | (Self::Value, b'\t' | b' '..=b'~' | 0x80..) => Self::Value,
            _ => return Err(HttpFault::Chunk),
        };
        Ok(BodyPosition::Trailers(bytes, at))
    }
}

/// Puts a piece behind other data, which may be followed by so many bytes more.
fn join(data: &mut Cow<'_, [u8]>, piece: &[u8], more: usize) {
    if let Cow::Borrowed(first) = *data {
        let mut joined = Vec::with_capacity(first.len() + piece.len() + more);
        joined.extend_from_slice(first);
        *data = Cow::Owned(joined);
    }
    data.to_mut().extend_from_slice(piece);
}

/// Whether a field's name may hold it.
fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
