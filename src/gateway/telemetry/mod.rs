//! What operators see: metrics for Prometheus and log lines.
//!
//! Nothing here decides anything about a call.

pub(crate) mod access;
pub(crate) mod book;
pub(crate) mod call_record;
pub(crate) mod callers;
pub(crate) mod calls;
pub(crate) mod cells;
pub(crate) mod logs;
pub(crate) mod metrics;
pub(crate) mod observers;
pub(crate) mod pulse;
pub(crate) mod recent_errors;
pub(crate) mod request_id;
pub(crate) mod strays;
pub(crate) mod tools;
pub(crate) mod totals;
pub(crate) mod trace;
