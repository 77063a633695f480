//! What a request sees: what all threads share, what its own thread has, its connection, and its record.

pub mod audit;
pub mod call;
pub mod in_session;
pub mod peer;
pub mod reloads;
pub mod state;
pub mod worker;
