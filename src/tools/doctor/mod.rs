//! `trunkline doctor`: what is wrong with an MCP server, why, and what to do about it.
//!
//! Two halves of [`inspect`]: `gather` asks the server (`gather/`, within limits on requests, bytes and time) and
//! returns plain `facts`; `Report::of` judges them (`checks/`, pure) by `rules/`. What is shown of a
//! report is made in `text.rs` and `json.rs`.
//!
//! Deliberately absent: calls of tools that nobody asked for, load, tries to break in, and anything that
//! leaves the server's own origin. Requests that are wrong on purpose have no effect on a server that takes
//! them.
//!
//! Invariants: a rule's id never changes; a rule that could not be tried is not reported as kept; whatever a
//! server sends ends as a finding or is passed over, never as an error of this program.

mod answer;
mod challenge;
mod checks;
mod facts;
mod gather;
mod introduction;
mod json;
mod measured;
mod report;
mod request;
mod rule;
mod rules;
mod sheet;
mod text;
mod tokens;

pub use self::gather::{InspectSettings, inspect};
pub use self::report::Report;
pub use self::rule::{InspectionRule, Severity};
pub use self::rules::find as find_rule;
