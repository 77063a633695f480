//! The state of a gateway, read from its admin listener as anybody could: over TCP or a Unix socket, with the token if
//! there is one.
//!
//! | file | what it is |
//! |---|---|
//! | `address.rs` | where the listener is |
//! | `client.rs` | asking it |
//! | `figures.rs` | numbers for people |
//! | `report.rs` | all of it as a text: `trunkline status` |
//!
//! What it answers is declared in the crate `status`, which also says what of it is wrong. Invariants: answers are bounded in bytes and time; texts in them are
//! made fit for a terminal where they are shown.

pub mod address;
pub mod client;
pub mod figures;
pub mod report;
