//! The values of a text that was checked, as ranges of its bytes.

use std::borrow::Cow;

use super::{Cursor, Literal, Span};

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the six kinds of RFC 8259")]
pub enum JsonKind {
    Object,
    Array,
    String,
    Number,
    True,
    False,
    Null,
}

/// A text that is JSON, and its marks.
#[derive(Clone, Copy)]
pub struct Document<'a> {
    pub(super) text: &'a [u8],
    pub(super) marks: &'a [u32],
}

impl<'a> Document<'a> {
    /// The outermost value.
    pub fn root(self) -> Value<'a> {
        Value { document: self, first: 0, last: self.marks.len().saturating_sub(1) }
    }

    /// The place of the outermost value.
    pub fn cursor(self) -> Cursor<'a> {
        Cursor::new(self, 0)
    }

    /// The original text.
    pub fn text(self) -> &'a [u8] {
        self.text
    }

    /// The offset of a mark; past the last one, the end of the text.
    pub(super) fn mark(self, index: usize) -> usize {
        self.marks.get(index).map_or(self.text.len(), |&mark| mark as usize)
    }

    pub(super) fn byte(self, index: usize) -> u8 {
        self.text.get(self.mark(index)).copied().unwrap_or_default()
    }

    pub(super) fn kind(self, index: usize) -> JsonKind {
        match self.byte(index) {
            b'{' => JsonKind::Object,
            b'[' => JsonKind::Array,
            b'"' => JsonKind::String,
            b't' => JsonKind::True,
            b'f' => JsonKind::False,
            b'n' => JsonKind::Null,
            _ => JsonKind::Number,
        }
    }

    pub(super) fn value(self, first: usize) -> Value<'a> {
        let last = if matches!(self.byte(first), b'{' | b'[') { self.closing(first) } else { first };
        Value { document: self, first, last }
    }

    /// The mark that closes the object or array that opens at `first`.
    pub(super) fn closing(self, first: usize) -> usize {
        let mut depth = 0_usize;
        let marks = self.marks.get(first..).unwrap_or_default();
        for (index, &mark) in (first..).zip(marks) {
            // Brackets differ from braces in this bit only, and nothing else at a mark becomes one by it.
            match self.text.get(mark as usize).map(|byte| byte | 0x20) {
                Some(b'{') => depth += 1,
                Some(b'}') if depth == 1 => return index,
                Some(b'}') => depth -= 1,
                _ => {}
            }
        }
        self.marks.len()
    }

    /// The range of the string, number or word that starts at a mark: only white space can stand
    /// between its end and the next mark.
    pub(super) fn scalar_span(self, index: usize) -> Span {
        let start = self.mark(index);
        let mut end = self.mark(index + 1);
        while end > start && self.text.get(end - 1).is_some_and(u8::is_ascii_whitespace) {
            end -= 1;
        }
        start..end
    }

    fn literal(self, index: usize) -> Literal {
        Literal::at(self.scalar_span(index), self.text)
    }
}

/// A value of a [`Document`].
#[derive(Clone, Copy)]
pub struct Value<'a> {
    pub(super) document: Document<'a>,
    pub(super) first: usize,
    /// The mark of the closing bracket; for anything else `first` again.
    pub(super) last: usize,
}

impl<'a> Value<'a> {
    /// What the value is.
    pub fn kind(self) -> JsonKind {
        self.document.kind(self.first)
    }

    /// The place of the value.
    pub fn cursor(self) -> Cursor<'a> {
        Cursor::new(self.document, self.first)
    }

    /// Where the value stands, without white space around it.
    pub fn span(self) -> Span {
        match self.kind() {
            JsonKind::Object | JsonKind::Array => {
                self.document.mark(self.first)..self.document.mark(self.last).saturating_add(1)
            }
            _ => self.document.scalar_span(self.first),
        }
    }

    /// The bytes of the value.
    pub fn raw(self) -> &'a [u8] {
        self.document.text.get(self.span()).unwrap_or_default()
    }

    /// The value as it is written.
    pub fn source(self) -> &'a str {
        // A text that was checked is UTF-8.
        std::str::from_utf8(self.raw()).unwrap_or_default()
    }

    /// The whole text that the value is part of, which spans and [`Literal`]s refer to.
    pub fn text(self) -> &'a [u8] {
        self.document.text
    }

    /// The keys and values of an object, in order, duplicates included; nothing for other kinds.
    pub fn entries(self) -> impl Iterator<Item = (Literal, Self)> {
        let (document, mut next) = (self.document, self.first + 1);
        let last = if self.kind() == JsonKind::Object { self.last } else { 0 };
        std::iter::from_fn(move || {
            let at = (next < last).then_some(next)?;
            let value = document.value(at + 2); // past the colon
            next = value.last + 2; // past the comma or the closing brace
            Some((document.literal(at), value))
        })
    }

    /// The first member of an object with this key.
    pub fn get(self, key: &str) -> Option<Self> {
        self.all(key).next()
    }

    /// The keys and values of an object as [`Self::entries`] gives them, without the keys that are not Unicode.
    pub fn members(self) -> impl Iterator<Item = (Cow<'a, str>, Self)> {
        self.entries().filter_map(move |(key, value)| Some((key.decode(self.document.text)?, value)))
    }

    /// All members of an object with this key, in order: whatever a reader may take for the one.
    pub fn all(self, key: &str) -> impl Iterator<Item = Self> {
        let is_meant = move |name: &Literal| name.equals(self.document.text, key);
        self.entries().filter_map(move |(name, value)| is_meant(&name).then_some(value))
    }

    /// The member of an object with this key, unless it stands there twice.
    pub fn only(self, key: &str) -> Option<Self> {
        let mut all = self.all(key);
        all.next().filter(|_| all.next().is_none())
    }

    /// The first member with each of these keys, found at one look.
    pub fn first_of<const N: usize>(self, keys: [&str; N]) -> [Option<Self>; N] {
        let mut found = [None; N];
        for (name, value) in self.entries() {
            let at = keys.iter().position(|key| name.equals(self.document.text, key));
            if let Some(found) = at.map(|at| &mut found[at]) {
                found.get_or_insert(value);
            }
        }
        found
    }

    /// The first member of an object with this key, if it is an object, too.
    pub fn object(self, key: &str) -> Option<Self> {
        self.get(key)?.as_object()
    }

    /// The string that is the first member of an object with this key.
    pub fn text_of(self, key: &str) -> Option<Cow<'a, str>> {
        self.get(key)?.as_str()
    }

    /// The values of an array, in order; nothing for other kinds.
    pub fn items(self) -> impl Iterator<Item = Self> {
        let (document, mut next) = (self.document, self.first + 1);
        let last = if self.kind() == JsonKind::Array { self.last } else { 0 };
        std::iter::from_fn(move || {
            let value = document.value((next < last).then_some(next)?);
            next = value.last + 2; // past the comma or the closing bracket
            Some(value)
        })
    }

    /// The value as a string.
    pub fn as_literal(self) -> Option<Literal> {
        (self.kind() == JsonKind::String).then(|| self.document.literal(self.first))
    }

    /// The string that the value is, if it is one and Unicode.
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        self.as_literal()?.decode(self.document.text)
    }

    /// Whether the value is this string.
    pub fn is(self, text: &str) -> bool {
        self.as_literal().is_some_and(|literal| literal.equals(self.document.text, text))
    }

    /// Whether the value is an object.
    pub fn is_object(self) -> bool {
        self.kind() == JsonKind::Object
    }

    /// The value, if it is an object.
    pub fn as_object(self) -> Option<Self> {
        Some(self).filter(|value| value.is_object())
    }

    /// True if more objects and arrays than so many are open at once in it, itself included.
    pub fn is_deeper_than(self, levels: usize) -> bool {
        let marks = self.document.marks.get(self.first..=self.last).unwrap_or_default();
        let mut depth = 0_usize;
        marks.iter().any(|&mark| {
            match self.document.text.get(mark as usize) {
                Some(b'{' | b'[') => depth += 1,
                Some(b'}' | b']') => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth > levels
        })
    }

    /// The value as an integer; `None` also for `1.0`, `1e3` and what does not fit.
    pub fn as_integer(self) -> Option<i64> {
        if self.kind() != JsonKind::Number {
            return None;
        }
        self.source().parse().ok()
    }
}
