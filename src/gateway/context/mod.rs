//! What a request sees.

pub mod call;
pub mod caller;
pub mod eras;
pub mod pulse;
pub mod reloads;
pub mod snapshot;
pub mod state;
pub mod worker;
