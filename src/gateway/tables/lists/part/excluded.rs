//! Entries that no client may see, and why: one verdict for every list, each time it is fetched.

use super::super::kind::List;
use protocol::ambiguity;
use protocol::json::{Literal, Value};
use protocol::list_entry::{self, EntryFault, EntryKind};
use protocol::param_headers::{self, Annotation, InvalidAnnotation};

/// Of an entry that says its name several times, so many count.
pub(super) const NAMES_MAX: usize = 8;

/// Entries of one list of which is kept why they were left out. Of more, only their number is: a reply has room for
/// millions, and each takes many times the bytes that it is written in.
pub(crate) const EXCLUDED_MAX: usize = 10_000;

/// The entries of a list that no client may see, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ExcludedEntries {
    first: Vec<Excluded>,
    /// How many there are beside the first.
    others: u64,
}

/// An entry that no client may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Excluded {
    /// Its name, if it has one; all of them where readers differ in which it is.
    pub names: Vec<String>,
    pub why: ExcludeReason,
    /// How it is defined: its entry as it stands.
    pub definition: Box<[u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExcludeReason {
    /// A member stands twice: whatever is said of the entry here, a client may read it otherwise.
    #[error("a member stands twice, or its key is not Unicode")]
    Ambiguous,
    /// Clients refuse the whole list for it.
    #[error(transparent)]
    Malformed(#[from] EntryFault),
    #[error("it is nested more deeply than json_depth_max allows")]
    TooDeep,
    /// A tool says in an invalid way which of its parameters are mirrored.
    #[error(transparent)]
    Annotations(#[from] InvalidAnnotation),
}

impl ExcludedEntries {
    pub(crate) fn push(&mut self, excluded: Excluded) {
        if self.first.len() < EXCLUDED_MAX {
            self.first.push(excluded);
        } else {
            self.others += 1;
        }
    }

    /// Adds those of the next page.
    pub(crate) fn append(&mut self, more: Self) {
        more.first.into_iter().for_each(|excluded| self.push(excluded));
        self.others += more.others;
    }

    /// The first of them, each with the reason.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Excluded> {
        self.first.iter()
    }

    pub(crate) fn others(&self) -> u64 {
        self.others
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        let of = |entry: &Excluded| {
            size_of::<Excluded>()
                + entry.names.iter().map(String::len).sum::<usize>()
                + entry.definition.len()
        };
        self.iter().map(of).sum()
    }
}

/// The mirrored parameters of an entry that clients may see, where they count. `depth_max`: how deep it may nest, where
/// that is in question.
pub(super) fn judge(
    entry: Value<'_>,
    list: List,
    counts_annotations: bool,
    depth_max: Option<usize>,
) -> Result<Vec<Annotation>, Excluded> {
    let excluded =
        |why| Excluded { names: names(entry, list.own_field()), why, definition: entry.raw().into() };
    // What follows goes as deep as the entry.
    if depth_max.is_some_and(|depth_max| entry.is_deeper_than(depth_max)) {
        return Err(excluded(ExcludeReason::TooDeep));
    }
    if ambiguity::repeats(entry) {
        return Err(excluded(ExcludeReason::Ambiguous));
    }
    let kind = match list {
        List::Tools => EntryKind::Tool,
        List::Prompts => EntryKind::Prompt,
        List::Resources => EntryKind::Resource,
        List::Templates => EntryKind::Template,
    };
    if let Some(fault) = list_entry::fault(entry, kind) {
        return Err(excluded(fault.into()));
    }
    if list != List::Tools || !counts_annotations {
        return Ok(Vec::new());
    }
    param_headers::annotations(entry).map_err(|error| excluded(error.into()))
}

/// All that a reader may take for the name of an entry.
fn names(entry: Value<'_>, field: &str) -> Vec<String> {
    let text = entry.text();
    let is_name = |key: &Literal| {
        key.decode(text).is_none_or(|key| ambiguity::folded(&key) == ambiguity::folded(field))
    };
    let values = entry.entries().filter(|(key, _)| is_name(key));
    let mut names: Vec<String> =
        values.filter_map(|(_, value)| Some(value.as_literal()?.decode(text)?.into_owned())).collect();
    names.sort_unstable();
    names.dedup();
    names.truncate(NAMES_MAX);
    names
}
