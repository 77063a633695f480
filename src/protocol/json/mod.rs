//! JSON: whether a text is JSON, and where its values stand in it.
//!
//! [`Scratch::index`] checks a whole text and gives a [`Document`] to walk over the *original* bytes:
//! values are byte ranges, so what is forwarded or spliced is exactly what was received, with its key
//! order, escapes and number spellings. simd-json does the checking. It rewrites escaped strings in
//! place, so it works on a copy, and of its work only the *marks* are used: the offsets of every
//! structural character and of the first byte of every string, number and word.
//!
//! simd-json refuses some legal JSON: numbers that fit no machine type, and escapes of half a surrogate
//! pair. A slow reader, `serde_json`, then decides, and a plain scan produces the same marks, so that there
//! is one walker. Large texts go there at once: simd-json is up to twice as fast, but it reserves 24 bytes
//! for every mark, so that a text of `1,1,1` takes 24 times its size. A text is JSON here exactly if
//! `serde_json`'s `RawValue` takes it and it nests no deeper than the caller allows.
//!
//! Deliberately absent: trees. No value is built but the numbers that are asked for, and nothing here recurses.
//!
//! Invariant: the marks of a [`Document`] come from a text that was accepted as a whole, so the walker
//! relies on their order. It never panics all the same: what is out of range reads as empty.

mod cursor;
mod decimal;
mod document;
mod error;
mod fault;
mod literal;
mod slow;

use simd_json::{Buffers, ErrorType, Node, Tape};

pub use cursor::Cursor;
pub use decimal::Decimal;
pub use document::{Document, JsonKind, Value};
pub use error::JsonError;
pub use fault::fault;
pub use literal::{Literal, is_integer, quote};

/// A range of bytes of the original text.
pub type Span = std::ops::Range<usize>;

/// The longest text that simd-json is given, in bytes.
const FAST_BYTES_MAX: usize = 256 << 10;

/// Memory kept between two texts, in bytes; beyond it everything is given back.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// The memory that checking a text needs, for one thread to use again and again.
///
/// What a large text needed is dropped by the next call of [`Scratch::index`], or by [`Scratch::release`].
pub struct Scratch {
    copy: Vec<u8>,
    tape: Tape<'static>,
    buffers: Buffers,
    depth_max: usize,
    slow_marks: Vec<u32>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            copy: Vec::new(),
            tape: Tape(Vec::new()),
            buffers: Buffers::with_max_depth(0, 0),
            depth_max: 0,
            slow_marks: Vec::new(),
        }
    }
}

impl Scratch {
    /// Checks `text` and finds its marks. `depth_max` is the number of objects and arrays that may be
    /// open at once: 1 takes `[1]` and refuses `[[1]]`.
    pub fn index<'a>(&'a mut self, text: &'a [u8], depth_max: usize) -> Result<Document<'a>, JsonError> {
        self.release();
        if self.depth_max != depth_max {
            self.buffers = Buffers::with_max_depth(0, depth_max);
            self.depth_max = depth_max;
        }
        let marks = if text.len() <= FAST_BYTES_MAX && self.check_fast(text)? {
            self.buffers.structural_indexes()
        } else {
            slow::check(text)?;
            slow::mark(text, depth_max, &mut self.slow_marks)?;
            &self.slow_marks
        };
        Ok(Document { text, marks })
    }

    /// The same for a text of any depth, which is looked at without going down its levels.
    pub fn index_however_deep<'a>(&'a mut self, text: &'a [u8]) -> Result<Document<'a>, JsonError> {
        self.release();
        slow::check(text)?;
        slow::mark(text, usize::MAX, &mut self.slow_marks)?;
        Ok(Document { text, marks: &self.slow_marks })
    }

    /// Gives the memory back if the last text needed more than 1 MiB.
    pub fn release(&mut self) {
        if self.kept_bytes() > KEPT_BYTES_MAX {
            *self = Self::default();
        }
    }

    fn kept_bytes(&self) -> usize {
        self.copy.capacity() * 2 // simd-json's own string buffer is as large
            + self.tape.0.capacity() * size_of::<Node<'_>>()
            + (self.buffers.structural_indexes().len() + self.slow_marks.capacity()) * size_of::<u32>()
    }

    /// Whether simd-json takes the text; if not, the slow reader decides.
    fn check_fast(&mut self, text: &[u8]) -> Result<bool, JsonError> {
        self.copy.clear();
        self.copy.reserve(text.len() + simd_json::INPUT_PADDING);
        self.copy.extend_from_slice(text);
        self.copy.extend_from_slice(&[0; simd_json::INPUT_PADDING]);

        let mut tape = std::mem::replace(&mut self.tape, Tape(Vec::new())).reset();
        let checked = simd_json::fill_tape_padded(&mut self.copy, text.len(), &mut self.buffers, &mut tape);
        self.tape = tape.reset();
        match checked.as_ref().map_err(simd_json::Error::error) {
            Ok(()) => Ok(true),
            Err(ErrorType::InvalidNumber | ErrorType::InvalidUnicodeCodepoint) => Ok(false),
            Err(ErrorType::DepthLimitExceeded) => Err(JsonError::TooDeep),
            Err(_) => Err(JsonError::NotJson),
        }
    }
}

#[cfg(test)]
mod tests;
