//! The state of a gateway, read from its admin listener as anybody could: over TCP or a Unix socket, with the token if
//! there is one.
//!
//! | file | what it is |
//! |---|---|
//! | `address.rs` | where the listener is |
//! | `client.rs` | asking it |
//! | `problem.rs` | what of that is wrong |
//! | `figures.rs` | numbers for people |
//! | `report.rs` | all of it as a text: `trunkline status` |
//!
//! What it answers is declared in the crate `status`. Invariants: answers are bounded in bytes and time; texts in them are
//! made fit for a terminal where they are shown.

pub mod address;
pub mod client;
pub mod figures;
pub mod problem;
pub mod report;
