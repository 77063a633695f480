//! The tables of the text, for whoever checks what must hold between keys: where a key stands, and whether it is there.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::findings::Node;

/// A table of the text, or one that nobody wrote, which is empty.
#[derive(Debug, Clone, Copy)]
pub struct Table<'t> {
    entries: Option<&'t DeTable<'t>>,
    begin: usize,
    end: usize,
}

impl<'t> Table<'t> {
    /// The one that nobody wrote.
    pub(super) const ABSENT: Self = Self { entries: None, begin: 0, end: 0 };

    pub(super) fn new(entries: &'t DeTable<'t>, span: &Range<usize>) -> Self {
        Self { entries: Some(entries), begin: span.start, end: span.end }
    }

    /// The table that `node` is.
    pub(super) fn of(node: &'t Node<'t>) -> Option<Self> {
        node.get_ref().as_table().map(|entries| Self::new(entries, &node.span()))
    }

    /// What tells it apart.
    pub(super) fn bounds(self) -> (usize, usize) {
        (self.begin, self.end)
    }

    pub(super) fn span(self) -> Range<usize> {
        self.begin..self.end
    }

    pub(super) fn get(self, key: &str) -> Option<&'t Node<'t>> {
        self.entries?.get(key)
    }

    pub(super) fn has(self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// The keys and their values.
    pub(super) fn entries(
        self,
    ) -> impl Iterator<Item = (&'t Spanned<std::borrow::Cow<'t, str>>, &'t Node<'t>)> {
        self.entries.into_iter().flatten()
    }

    /// The table below a key.
    pub(super) fn table(self, key: &str) -> Self {
        self.get(key).and_then(Self::of).unwrap_or(Self::ABSENT)
    }

    /// The tables of the array below a key; of a table, it alone.
    pub(super) fn tables(self, key: &str) -> Vec<Self> {
        match self.get(key) {
            Some(node) if node.get_ref().is_table() => vec![self.table(key)],
            _ => self.elements(key).iter().filter_map(Self::of).collect(),
        }
    }

    /// The elements of the array below a key.
    pub(super) fn elements(self, key: &str) -> &'t [Node<'t>] {
        match self.get(key).map(Spanned::get_ref) {
            Some(DeValue::Array(elements)) => elements,
            _ => &[],
        }
    }

    /// The element of the array below a key, and its text.
    pub(super) fn texts(self, key: &str) -> impl Iterator<Item = (&'t str, Range<usize>)> {
        self.elements(key).iter().filter_map(|node| Some((node.get_ref().as_str()?, node.span())))
    }
}
