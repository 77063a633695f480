//! Small records, kept durably by one gateway: grants, accounts and connections of sign-in.
//!
//! A record is a name, some bytes that mean nothing here, a second in which it ends, and a generation that no other state
//! of any record has. A commit changes one to eight records by compare-and-set, all or none, and its answer comes after the
//! disk has confirmed it. The file is one of `redb`.
//!
//! # Two threads
//!
//! One writes: it takes all commits that wait into one transaction, which the disk confirms once. One reads. Neither is a
//! thread of a runtime, and callers wait for an [`Answer`] as for any future.
//!
//! # Failures
//!
//! [`StoreError`] says which failures change nothing. After one of the disk, the file is closed, and read again from the disk
//! as at the first time: the store trusts nothing that it has not read again. It goes on by itself when the disk does.
//! A file that is damaged, of another version or in use is refused at the start, and never replaced.
//!
//! # Room
//!
//! The file doubles as it grows, and reserves what it takes, so that a full disk shows before something is written. It
//! shrinks by itself when its end is free, and by [`Store::compact`] where what is left lies apart; that is worth while
//! after a great part of the records has ended.
//!
//! # Back-up
//!
//! [`Store::copy_to`] makes a copy of one moment while all goes on. The file itself is copied while no gateway has it open, or
//! by a snapshot of its file system, which is to it as a loss of power. A back-up that is put in its place brings back
//! what has ended since; generations go on by the clock, and none of them comes again.
//!
//! # What it does not do
//!
//! It seals nothing, looks at no clock, writes no log, and knows of no other gateway. The caller sweeps.
//!
//! Invariants: everything that waits has a bound; memory for pages is 4 MiB; no input and no state of a file makes it panic.

#![forbid(unsafe_code)]

mod answer;
mod batch;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::expect_used, clippy::panic)] // it is a test
pub mod cases;
mod change;
mod error;
mod fault;
mod file;
mod ledger;
mod limits;
mod name;
mod open;
mod reader;
mod record;
mod room;
mod shared;
mod store;
mod table;
mod writer;

#[cfg(test)]
mod tests;

pub use answer::Answer;
pub use batch::Swept;
pub use change::{CHANGES_MAX, Change, Changes, ChangesError, Expected, Outcome};
pub use error::StoreError;
pub use limits::{KindSize, Limits, Sizes};
pub use name::{KIND_BYTES_MAX, NAME_BYTES_MAX, Name, NameError};
pub use reader::{PAGE_RECORDS_MAX, Page};
pub use record::{NEVER_S, NewRecord, Record, VALUE_BYTES_MAX, ValueTooLong};
pub use store::Store;
