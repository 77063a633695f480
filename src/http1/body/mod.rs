//! Where the data of a body lie among the bytes that arrive.
//!
//! Nothing is copied and nothing is kept but counts: the same body may come whole or a byte at a time. Extensions of
//! chunks and trailers are bounded and dropped.

use crate::framing::Framing;
use crate::{CHUNK_LINE_BYTES_MAX, Refusal, TRAILER_BYTES_MAX};

/// More digits of a chunk's size could be more than 63 bits.
const SIZE_DIGITS_MAX: usize = 15;

/// Reads one body.
#[derive(Clone, Copy, Debug)]
pub struct Decoder(At);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
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
    Line,
    /// The line that ends here is the empty one.
    LastLineFeed,
    LineFeed,
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
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
    pub fn new(framing: Framing) -> Self {
        Self(match framing {
            Framing::Length(0) => At::Over,
            Framing::Length(length) => At::Body(length),
            Framing::Chunked => At::Size(SizeLine::START),
            Framing::ToEnd => At::ToEnd,
        })
    }

    /// Whether the body has ended.
    pub fn is_over(&self) -> bool {
        self.0 == At::Over
    }

    /// Whether the end of the connection may be the end of the body.
    pub fn may_end_here(&self) -> bool {
        matches!(self.0, At::Over | At::ToEnd)
    }

    /// How many bytes of data are left, where that is known.
    pub fn left(&self) -> Option<u64> {
        match self.0 {
            At::Over => Some(0),
            At::Body(left) => Some(left),
            _ => None,
        }
    }

    /// Looks at the bytes that come next. The caller takes what a [`Step`] names off their front before it asks again.
    ///
    /// # Errors
    /// If the chunks are not well formed.
    pub fn step(&mut self, bytes: &[u8]) -> Result<Step, Refusal> {
        let mut skip = 0;
        loop {
            let rest = bytes.get(skip..).unwrap_or_default();
            let (left, within, then): (u64, fn(u64) -> At, At) = match self.0 {
                At::Over => return Ok(Step::End { skip }),
                At::Body(left) => (left, At::Body, At::Over),
                At::Chunk(left) => (left, At::Chunk, At::ChunkEnd(b'\r')),
                At::ToEnd => (u64::MAX, |_| At::ToEnd, At::ToEnd),
                _ => {
                    let Some(byte) = rest.first() else { return Ok(Step::More) };
                    self.0 = self.framing_byte(*byte)?;
                    skip += 1;
                    continue;
                }
            };
            if rest.is_empty() {
                return Ok(Step::More);
            }
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
            let left = left - len as u64;
            self.0 = if left == 0 { then } else { within(left) };
            return Ok(Step::Data { skip, len });
        }
    }

    /// What follows a byte that is no data.
    fn framing_byte(self, byte: u8) -> Result<At, Refusal> {
        match (self.0, byte) {
            (At::Size(line), _) => line.next(byte),
            (At::ChunkEnd(b'\r'), b'\r') => Ok(At::ChunkEnd(b'\n')),
            (At::ChunkEnd(b'\n'), b'\n') => Ok(At::Size(SizeLine::START)),
            (At::Trailers(bytes, _), _) if bytes == TRAILER_BYTES_MAX => Err(Refusal::Chunk),
            (At::Trailers(bytes, at), _) => at.next(byte, bytes + 1),
            _ => Err(Refusal::Chunk),
        }
    }
}

impl SizeLine {
    const START: Self = Self { size: 0, digits: 0, bytes: 0, part: SizePart::Digits };

    fn next(mut self, byte: u8) -> Result<At, Refusal> {
        self.bytes += 1;
        if self.bytes > CHUNK_LINE_BYTES_MAX {
            return Err(Refusal::Chunk);
        }
        self.part = match (self.part, byte) {
            (SizePart::LineFeed, b'\n') if self.size == 0 => {
                return Ok(At::Trailers(0, TrailerAt::LineStart));
            }
            (SizePart::LineFeed, b'\n') => return Ok(At::Chunk(self.size)),
            (SizePart::LineFeed, _) => return Err(Refusal::Chunk),
            (_, b'\n') => return Err(Refusal::LineEnd),
            (SizePart::Digits, _) if byte.is_ascii_hexdigit() => {
                self.digits += 1;
                if self.digits > SIZE_DIGITS_MAX {
                    return Err(Refusal::Chunk);
                }
                self.size = self.size << 4 | u64::from(char::from(byte).to_digit(16).unwrap_or(0));
                SizePart::Digits
            }
            _ if self.digits == 0 => return Err(Refusal::Chunk),
            (_, b'\r') => SizePart::LineFeed,
            (SizePart::Digits | SizePart::Blanks, b' ' | b'\t') => SizePart::Blanks,
            (SizePart::Digits | SizePart::Blanks, b';')
            | (SizePart::Extension, b'\t' | b' '..=b'~' | 0x80..) => SizePart::Extension,
            _ => return Err(Refusal::Chunk),
        };
        Ok(At::Size(self))
    }
}

impl TrailerAt {
    fn next(self, byte: u8, bytes: usize) -> Result<At, Refusal> {
        let at = match (self, byte) {
            (Self::LastLineFeed, b'\n') => return Ok(At::Over),
            (Self::LineFeed, b'\n') => Self::LineStart,
            (Self::LineStart | Self::Line, b'\n') => return Err(Refusal::LineEnd),
            (Self::LineStart, b'\r') => Self::LastLineFeed,
            (Self::Line, b'\r') => Self::LineFeed,
            (Self::LineStart, b' ' | b'\t' | b':') => return Err(Refusal::Chunk),
            (Self::LineStart | Self::Line, b'\t' | b' '..=b'~' | 0x80..) => Self::Line,
            _ => return Err(Refusal::Chunk),
        };
        Ok(At::Trailers(bytes, at))
    }
}

#[cfg(test)]
mod tests;
