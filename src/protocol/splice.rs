//! Replacing byte ranges of a message without copying the rest, unless it is short.
//!
//! [`splice`] cuts the original at each edit and puts the new bytes in between. The pieces of a long one share the
//! original's memory and go out as they are, in order.
//!
//! Deliberately absent: any notion of JSON. Whoever edits a string replaces its whole literal.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

use super::json::Span;

/// Bytes to put in the place of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// What is replaced.
    pub span: Span,
    /// The new bytes; they may be longer, shorter or none at all.
    pub with: Bytes,
}

/// A sequence of bytes in several pieces, none of which is empty.
///
/// It is a [`Buf`], so it can be written as one body frame.
#[derive(Clone, Debug, Default)]
pub struct Segments {
    /// Empty only if everything is: most messages are one piece, and need no memory for more.
    first: Bytes,
    /// `None` as long as there was no more.
    #[expect(
        clippy::box_collection,
        reason = "most messages have none, and all are handed from frame to frame"
    )]
    rest: Option<Box<VecDeque<Bytes>>>,
    len: usize,
}

impl Segments {
    /// The number of bytes in all pieces.
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pieces in order.
    pub fn iter(&self) -> impl Iterator<Item = &Bytes> {
        let rest = self.rest.iter().flat_map(|rest| rest.iter());
        std::iter::once(&self.first).chain(rest).filter(|piece| !piece.is_empty())
    }

    /// Takes the first piece.
    pub fn pop_front(&mut self) -> Option<Bytes> {
        let next = self.rest.as_mut().and_then(|rest| rest.pop_front());
        let piece = std::mem::replace(&mut self.first, next.unwrap_or_default());
        self.len -= piece.len();
        Some(piece).filter(|piece| !piece.is_empty())
    }

    /// Takes the first piece, or as much of it as `bytes_max`.
    pub fn pop_at_most(&mut self, bytes_max: usize) -> Option<Bytes> {
        if self.first.len() <= bytes_max {
            return self.pop_front();
        }
        self.len -= bytes_max;
        Some(self.first.split_to(bytes_max))
    }

    /// Appends a piece.
    pub fn push_back(&mut self, piece: Bytes) {
        self.len += piece.len();
        if self.first.is_empty() {
            self.first = piece;
        } else if !piece.is_empty() {
            self.rest.get_or_insert_default().push_back(piece);
        }
    }

    /// All bytes in one piece; they are copied only if there are several.
    pub fn to_bytes(&self) -> Bytes {
        if self.len == self.first.len() {
            return self.first.clone();
        }
        let mut whole = BytesMut::with_capacity(self.len);
        self.iter().for_each(|piece| whole.extend_from_slice(piece));
        whole.freeze()
    }
}

impl From<Segments> for Bytes {
    /// All of them in one piece, as [`Segments::to_bytes`].
    fn from(segments: Segments) -> Self {
        if segments.rest.is_some() { segments.to_bytes() } else { segments.first }
    }
}

impl From<Bytes> for Segments {
    fn from(piece: Bytes) -> Self {
        Self { len: piece.len(), first: piece, rest: None }
    }
}

impl From<String> for Segments {
    fn from(whole: String) -> Self {
        Self::from(Bytes::from(whole))
    }
}

impl Buf for Segments {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        &self.first
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let pieces = self.iter().zip(slices);
        pieces.map(|(piece, slice)| *slice = IoSlice::new(piece)).count()
    }

    /// # Panics
    /// If fewer bytes remain, as [`Buf`] demands.
    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len, "advance past the end of the segments");
        while count >= self.first.len() && !self.first.is_empty() {
            count -= self.first.len();
            self.pop_front();
        }
        self.first.advance(count);
        self.len -= count;
    }
}

/// A shorter text is written anew: a copy costs less than pieces do.
const COPIED_BYTES_MAX: usize = 4096;

/// Applies `edits`, which must be in ascending order and must not overlap. Of an edit that breaks this,
/// or that reaches past the end, the part that fits is replaced.
pub fn splice(original: &Bytes, edits: &[Edit]) -> Segments {
    if edits.is_empty() {
        return Segments::from(original.clone());
    }
    if original.len() > COPIED_BYTES_MAX {
        return pieces(original, edits);
    }
    let removed: usize = edits.iter().map(|edit| edit.span.len()).sum();
    let added: usize = edits.iter().map(|edit| edit.with.len()).sum();
    // Of exactly its length, so that it need not be moved to be shared.
    let mut whole = Vec::with_capacity((original.len() + added).saturating_sub(removed));
    for (kept, edit) in kept(original.len(), edits) {
        whole.extend_from_slice(&original[kept]);
        whole.extend_from_slice(edit.map(|edit| &*edit.with).unwrap_or_default());
    }
    Segments::from(Bytes::from(whole))
}

/// What is kept shares the original's memory.
fn pieces(original: &Bytes, edits: &[Edit]) -> Segments {
    let rest = Some(Box::new(VecDeque::with_capacity(edits.len() * 2)));
    let mut segments = Segments { rest, ..Segments::default() };
    for (kept, edit) in kept(original.len(), edits) {
        segments.push_back(original.slice(kept));
        segments.push_back(edit.map(|edit| edit.with.clone()).unwrap_or_default());
    }
    segments
}

/// What is kept before each edit, and after the last.
fn kept(length: usize, edits: &[Edit]) -> impl Iterator<Item = (Span, Option<&Edit>)> {
    let mut position = 0;
    edits.iter().map(Some).chain([None]).map(move |edit| {
        let span = edit.map_or(length..length, |edit| edit.span.clone());
        let start = span.start.clamp(position, length);
        let kept = position..start;
        position = span.end.clamp(start, length);
        (kept, edit)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn edit(span: Span, with: &'static str) -> Edit {
        Edit { span, with: Bytes::from_static(with.as_bytes()) }
    }

    #[test]
    fn edits_replace_their_ranges_only() {
        let original = Bytes::from_static(b"0123456789");
        for (edits, pieces) in [
            (vec![], vec!["0123456789"]),
            (vec![edit(3..5, "x")], vec!["012", "x", "56789"]),
            (vec![edit(0..1, "abc")], vec!["abc", "123456789"]),
            (vec![edit(9..10, "")], vec!["012345678"]),
            (vec![edit(0..10, "")], vec![]),
            (vec![edit(4..4, "-")], vec!["0123", "-", "456789"]),
            (vec![edit(1..2, "a"), edit(2..3, "b"), edit(8..10, "c")], vec!["0", "a", "b", "34567", "c"]),
            // Edits that break the rules do no harm.
            (vec![edit(8..20, "x")], vec!["01234567", "x"]),
            (vec![edit(20..30, "x")], vec!["0123456789", "x"]),
            (vec![edit(5..7, "x"), edit(2..6, "y")], vec!["01234", "x", "y", "789"]),
        ] {
            assert_eq!(splice(&original, &edits).to_bytes(), pieces.concat());
            let segments = super::pieces(&original, &edits);
            let found: Vec<&[u8]> = segments.iter().map(AsRef::as_ref).collect();
            let expected: Vec<&[u8]> = pieces.iter().map(|piece| piece.as_bytes()).collect();
            assert_eq!(found, expected);
            assert_eq!(segments.len(), pieces.concat().len() as u64);
            assert_eq!(segments.is_empty(), pieces.is_empty());
            assert_eq!(segments.to_bytes(), pieces.concat());
        }
    }

    #[test]
    fn what_is_not_edited_is_not_copied() {
        let original = Bytes::from(vec![b'x'; COPIED_BYTES_MAX + 1]);
        let mut segments = splice(&original, &[edit(50..60, "y")]);
        assert_eq!(segments.pop_front().unwrap().as_ptr(), original.as_ptr());
        assert_eq!(segments.pop_front().unwrap(), "y");
        assert_eq!(segments.pop_front().unwrap().as_ptr(), original[60..].as_ptr());
        assert_eq!((segments.pop_front(), segments.len()), (None, 0));
        assert_eq!(splice(&original, &[]).to_bytes().as_ptr(), original.as_ptr());
    }

    proptest! {
        #[test]
        fn splicing_equals_copying(
            original in prop::collection::vec(any::<u8>(), 0..100),
            cuts in prop::collection::vec((0_usize..20, 0_usize..20, "[a-z]{0,5}"), 0..6),
            steps in prop::collection::vec(1_usize..30, 0..20),
        ) {
            let (mut edits, mut expected, mut position) = (Vec::new(), Vec::new(), 0);
            for (gap, length, with) in cuts {
                let start = (position + gap).min(original.len());
                let end = (start + length).min(original.len());
                expected.extend_from_slice(&original[position..start]);
                expected.extend_from_slice(with.as_bytes());
                edits.push(Edit { span: start..end, with: with.into() });
                position = end;
            }
            expected.extend_from_slice(&original[position..]);

            let original = Bytes::from(original);
            prop_assert_eq!(splice(&original, &edits).to_bytes(), &expected);
            let mut segments = pieces(&original, &edits);
            prop_assert_eq!(segments.to_bytes(), &expected);
            prop_assert!(segments.iter().all(|piece| !piece.is_empty()));

            // Read as a `Buf` in steps, it gives the same bytes.
            let mut read = Vec::new();
            for step in steps {
                let step = step.min(segments.remaining());
                let mut slices = [IoSlice::new(&[]); 3];
                let count = segments.chunks_vectored(&mut slices);
                let ahead: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
                prop_assert!(expected[read.len()..].starts_with(&ahead) && (count > 0) == segments.has_remaining());
                read.extend_from_slice(&segments.copy_to_bytes(step));
                prop_assert_eq!(segments.len(), (expected.len() - read.len()) as u64);
            }
            read.extend_from_slice(&segments.to_bytes());
            prop_assert_eq!(read, expected);
        }
    }
}
