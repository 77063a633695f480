//! What all threads share while they serve: lists that were fetched, who listens to what, and open HTTP+SSE sessions.
//!
//! Tables only: who fills them and who reads them stands above ([`catalog`](crate::catalog), [`line`](mod@crate::line)).

pub mod lists;
pub mod sse_sessions;
pub mod subscriptions;
