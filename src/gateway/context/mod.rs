//! What a request sees: what all threads share, what its own thread has, its connection, and its record.

pub(crate) mod audit;
pub(crate) mod call;
pub(crate) mod child_room;
pub(crate) mod in_session;
pub(crate) mod peer;
pub(crate) mod reloads;
pub(crate) mod state;
pub(crate) mod worker;
