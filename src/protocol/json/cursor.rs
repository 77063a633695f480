//! A place in a document that moves from front to back.

use super::{Document, JsonKind, Span};

/// A place in a document: a value, unless a function says otherwise.
///
/// Whoever moves it through the objects that are of interest, and over everything else with
/// [`Cursor::skip`], reads every mark once. `Value::entries` is easier to use, but reads whatever is
/// nested once for every level above it.
#[derive(Clone, Copy)]
pub struct Cursor<'a> {
    document: Document<'a>,
    /// The mark of the value; or of what follows the value that was read last, a comma or a bracket.
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(document: Document<'a>, at: usize) -> Self {
        Self { document, at }
    }

    /// What the value is.
    pub fn kind(&self) -> JsonKind {
        self.document.kind(self.at)
    }

    /// Goes behind the value, and returns where it stands.
    pub fn skip(&mut self) -> Span {
        let start = *self;
        if !matches!(self.document.byte(self.at), b'{' | b'[') {
            self.at += 1;
            return self.document.scalar_span(start.at);
        }
        self.at = self.document.closing(self.at) + 1;
        self.span_since(start)
    }

    /// Goes from an object to its first value, or from behind a value to the next one. Returns where its
    /// key stands, quotes included. If there is no other, the cursor goes behind the object.
    pub fn next_key(&mut self) -> Option<Span> {
        // Before a key stands an opening brace or a comma, and behind an object never a string.
        if self.document.byte(self.at + 1) != b'"' {
            self.at += if self.document.byte(self.at) == b'{' { 2 } else { 1 };
            return None;
        }
        let key = self.document.scalar_span(self.at + 1);
        self.at += 3; // also past the colon
        Some(key)
    }

    /// Goes from an array to its first item, or from behind an item to the next one. If there is no other,
    /// returns false, and the cursor goes behind the array.
    pub fn next_item(&mut self) -> bool {
        match self.document.byte(self.at) {
            b'[' if self.document.byte(self.at + 1) == b']' => {
                self.at += 2;
                false
            }
            before => {
                self.at += 1;
                matches!(before, b'[' | b',')
            }
        }
    }

    /// Where the object or array stands that began at `start` and ends just before this place.
    pub fn span_since(&self, start: Self) -> Span {
        let last = self.at.saturating_sub(1);
        self.document.mark(start.at)..self.document.mark(last).saturating_add(1)
    }
}
