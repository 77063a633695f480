//! Answers of records, and the reasons that there is none.

use store::{Name, StoreError};

use crate::redis::Unavailable;

/// A failure of the store. What it says is for operators.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordsError {
    /// The file.
    #[error("{0}")]
    File(#[from] StoreError),
    /// Redis cannot be had.
    #[error("Redis: {0}")]
    Redis(#[from] Unavailable),
    /// Redis holds something else under a name of ours.
    #[error("Redis: the record {0} cannot be read")]
    Unreadable(String),
}

/// Names of one kind, in order. A page that is not the last can have few, or none.
#[derive(Debug, Default)]
pub(crate) struct NamesPage {
    pub names: Vec<Name>,
    /// The name behind which the next page begins; `None`: this was the last.
    pub next: Option<Name>,
}

/// Names of a log, in the order in which their records were written.
#[derive(Debug, Default)]
pub(crate) struct LogPage {
    pub names: Vec<Name>,
    /// The generation behind which the next page begins; `None`: there was nothing.
    pub position: Option<u64>,
    pub has_more: bool,
}
