//! What the process may hold at once: connections, handshakes, open files and buffered bytes; what each caller may ask of
//! it in a time; and how much each upstream gets at once.
//!
//! Process-wide, for any worker to touch, but for the turns of handshakes, which are a worker's. Only handshakes wait, and
//! calls for an upstream that has as many as it may.

pub mod byte_budget;
pub mod concurrency;
pub mod connections;
pub mod digest;
pub mod handshakes;
pub mod open_files;
pub mod per_address;
pub mod quota;
pub mod rate;
