//! What the process may hold at once: connections, open files and buffered bytes.
//!
//! Process-wide counters that any worker may touch; none waits. Limits of rate are not here.

pub mod buffered;
pub mod connections;
pub mod open_files;
