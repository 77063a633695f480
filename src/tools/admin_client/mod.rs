//! The state of a gateway, read from its admin listener as anybody could: over TCP or a Unix socket, with the token if
//! there is one.
//!
//! | file | what it is |
//! |---|---|
//! | `place.rs` | where the listener is |
//! | `watcher.rs` | asking it |
//! | `reading.rs` | taking an answer apart, whatever it is |
//! | `status.rs`, `history.rs`, `tools.rs` | what it says |
//! | `trouble.rs` | what of that is wrong |
//! | `figures.rs` | numbers for people |
//! | `report.rs` | all of it as a text: `trunkline status` |
//!
//! Invariants: answers are bounded in bytes and time. No member of an answer is relied on, so that older and newer gateways
//! can be watched; what is missing or of another type is unknown. Texts in answers are strangers': whoever shows them makes
//! them fit for a terminal.

pub mod figures;
pub mod history;
pub mod place;
pub mod reading;
pub mod report;
pub mod status;
pub mod tools;
pub mod trouble;
pub mod watcher;
