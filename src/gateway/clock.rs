//! The time of the calendar, for what outlives the process. Durations are measured with [`std::time::Instant`].

use std::time::SystemTime;

/// Seconds since 1970.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
