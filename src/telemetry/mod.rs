//! What operators see: metrics for Prometheus and log lines.
//!
//! Nothing here decides anything about a call.

pub mod audit;
pub mod gates;
pub mod identity;
pub mod lists;
pub mod logs;
pub mod metrics;
pub mod pins;
pub mod rates;
pub mod shared;
pub mod streams;
