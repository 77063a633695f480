//! What the process may hold at once: connections, handshakes, open files and buffered bytes; what each caller may ask of
//! it in a time; and how much each upstream gets at once.
//!
//! Process-wide, for any worker to touch, but for the turns of handshakes, which are a worker's. Only handshakes wait, and
//! calls for an upstream that has as many as it may.

pub(crate) mod concurrency;
pub(crate) mod connections;
pub(crate) mod digest;
pub(crate) mod fair;
pub(crate) mod handshakes;
pub(crate) mod least_rate;
pub(crate) mod open_files;
pub(crate) mod payer;
pub(crate) mod per_address;
pub(crate) mod rate;
pub(crate) mod shares;
