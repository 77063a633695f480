//! What operators see: metrics for Prometheus and log lines.
//!
//! Nothing here decides anything about a call.

pub mod access;
pub mod book;
pub mod bridge;
pub mod calls;
pub mod cells;
pub mod ended;
pub mod gates;
pub mod identity;
pub mod lists;
pub mod logs;
pub mod metrics;
pub mod observers;
pub mod pins;
pub mod process;
pub mod pulse;
pub mod rates;
pub mod registry;
pub mod reloads;
pub mod request_id;
pub mod shared;
pub mod streams;
pub mod tools;
pub mod totals;
pub mod trace;
pub mod vec;
