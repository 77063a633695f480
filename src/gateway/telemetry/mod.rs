//! What operators see: metrics for Prometheus and log lines.
//!
//! Nothing here decides anything about a call.

pub mod access;
pub mod book;
pub mod calls;
pub mod cells;
pub mod ended;
pub mod logs;
pub mod metrics;
pub mod observers;
pub mod pulse;
pub mod request_id;
pub mod tools;
pub mod totals;
pub mod trace;
