//! What time it is: the only place that asks, so that a test can hold time still and let it pass.
//!
//! Timers are tokio's, whose clock a test can pause; [`now`] is read from the same clock.

use std::time::{Instant, SystemTime};

/// This moment, to measure durations from.
pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// The time of the calendar, for what people and other processes read.
#[expect(clippy::disallowed_methods, reason = "it is read here only")]
pub(crate) fn calendar() -> SystemTime {
    SystemTime::now()
}

/// Seconds since 1970, for what outlives the process.
pub(crate) fn now_s() -> u64 {
    calendar().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
