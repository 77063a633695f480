//! What others carry for the gateway and hand back, and what they show of themselves: bytes in, values out.
//!
//! Session ids, ids of tasks and states of calls that wait are records under a key of the gateway's own ([`sealing`]); a
//! JSON web token is read as its issuer wrote it.
//!
//! Nothing here knows of sockets, clocks, files or the configuration. Whether a session was ended, a call still waits, a
//! signature fits or a token is over is asked in the gateway.
//!
//! Invariants: strangers write whatever is opened or read here, so every text has a bound, and nothing panics.

#![forbid(unsafe_code)]

pub mod fields;
pub mod grant;
pub mod jwt;
pub mod request_state;
pub mod sealing;
pub mod session_token;
pub mod task_id;
