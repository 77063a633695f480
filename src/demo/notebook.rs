//! The notes themselves: pure data, without protocol.
//!
//! Invariants: at most [`NOTES_MAX`] notes; numbers start at 1, grow and are never used twice.

use std::collections::BTreeMap;

use serde::Serialize;

/// Over this many, notes are refused.
pub(super) const NOTES_MAX: usize = 200;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Note {
    pub(super) number: u64,
    pub(super) title: String,
    pub(super) text: String,
}

/// All notes, by number.
#[derive(Default)]
pub(super) struct Notebook {
    notes: BTreeMap<u64, Note>,
    last_number: u64,
}

impl Notebook {
    /// The notes in the order they were written.
    pub(super) fn notes(&self) -> impl Iterator<Item = &Note> {
        self.notes.values()
    }

    pub(super) fn get(&self, number: u64) -> Option<&Note> {
        self.notes.get(&number)
    }

    /// The notes whose title or text has `words` in it, in any case. Empty `words` are in all.
    pub(super) fn search(&self, words: &str) -> impl Iterator<Item = &Note> {
        let words = words.to_lowercase();
        self.notes().filter(move |note| {
            note.title.to_lowercase().contains(&words) || note.text.to_lowercase().contains(&words)
        })
    }

    /// The new note, or `None` when the notebook is full.
    pub(super) fn add(&mut self, title: &str, text: &str) -> Option<Note> {
        if self.notes.len() >= NOTES_MAX {
            return None;
        }
        self.last_number += 1;
        let note = Note { number: self.last_number, title: title.to_owned(), text: text.to_owned() };
        self.notes.insert(note.number, note.clone());
        Some(note)
    }

    /// The note that is no more.
    pub(super) fn delete(&mut self, number: u64) -> Option<Note> {
        self.notes.remove(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notebook_is_bounded_and_numbers_are_not_reused() {
        let mut notebook = Notebook::default();
        for number in 1..=NOTES_MAX as u64 {
            assert_eq!(notebook.add("t", "x").map(|note| note.number), Some(number));
        }
        assert_eq!(notebook.add("t", "x"), None);
        assert!(notebook.delete(NOTES_MAX as u64).is_some());
        assert!(notebook.delete(NOTES_MAX as u64).is_none());
        assert_eq!(notebook.add("t", "x").map(|note| note.number), Some(NOTES_MAX as u64 + 1));
    }

    #[test]
    fn notes_are_found_by_title_and_text_in_any_case() {
        let mut notebook = Notebook::default();
        notebook.add("Shopping", "milk and Brötchen");
        notebook.add("Ideas", "a SHOP for bicycles");
        for (words, expected) in
            [("shop", vec![1, 2]), ("BRÖT", vec![1]), ("", vec![1, 2]), ("cheese", vec![])]
        {
            let found: Vec<u64> = notebook.search(words).map(|note| note.number).collect();
            assert_eq!(found, expected, "{words}");
        }
    }
}
