//! Bounds of a store, and its size.

use std::collections::BTreeMap;

/// Bounds of one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most records, those whose time is over and that no sweep has removed yet included.
    pub records_max: u64,
    /// The largest file, in bytes. It doubles as it grows, and a quarter of the last size is left free for changes and
    /// deletions; so a file of at most this size holds at least three eighths of it.
    pub file_bytes_max: u64,
    /// The most commits, and the most reads, that wait.
    pub queue_max: usize,
}

/// Records of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindSize {
    /// Their number, those whose time is over and that no sweep has removed yet included.
    pub records: u64,
    /// The bytes of their names and values.
    pub bytes: u64,
}

/// The size of a store, and what it has done since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// By kind: the part of a name before its first slash.
    pub kinds: BTreeMap<String, KindSize>,
    /// The file, in bytes.
    pub file_bytes: u64,
    /// Times that the disk was made to confirm what was written.
    pub fsyncs: u64,
    /// Commits that were done.
    pub commits: u64,
    /// Commits that were not done because a record was not as expected.
    pub conflicts: u64,
    /// Times that the file had to be opened again after a failure.
    pub reopened: u64,
}

impl Sizes {
    /// The bytes of all records.
    pub fn bytes(&self) -> u64 {
        self.kinds.values().map(|kind| kind.bytes).sum()
    }

    /// The number of all records.
    pub fn records(&self) -> u64 {
        self.kinds.values().map(|kind| kind.records).sum()
    }
}
