//! The state of a gateway, read from its admin listener as anybody could: over TCP or a Unix socket, with the token if
//! there is one.
//!
//! | file | what it is |
//! |---|---|
//! | `address.rs` | where the listener is |
//! | `client.rs` | asking it |
//! | `json.rs` | taking an answer apart, whatever it is |
//! | `status.rs`, `history.rs`, `tools.rs` | what it says |
//! | `problem.rs` | what of that is wrong |
//! | `figures.rs` | numbers for people |
//! | `report.rs` | all of it as a text: `trunkline status` |
//!
//! Invariants: answers are bounded in bytes and time. No member of an answer is relied on, so that older and newer gateways
//! can be watched; what is missing or of another type is unknown. Texts in answers are strangers': whoever shows them makes
//! them fit for a terminal.

pub mod address;
pub mod client;
pub mod figures;
pub mod history;
pub mod json;
pub mod problem;
pub mod report;
pub mod status;
pub mod tools;
