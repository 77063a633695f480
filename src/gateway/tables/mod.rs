//! What all threads share while they serve: lists that were fetched, who listens to what, and open HTTP+SSE sessions.
//!
//! Tables only: who fills them and who reads them stands above ([`catalog`](crate::catalog), [`line`](mod@crate::line)).

pub(crate) mod lists;
pub(crate) mod sse_sessions;
pub(crate) mod subscriptions;
