//! What operators see: metrics for Prometheus and log lines.
//!
//! Nothing here decides anything about a call.

pub mod lists;
pub mod logs;
pub mod metrics;
pub mod streams;
