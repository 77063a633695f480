//! Whether replicas are fit for requests: what a replica counts of itself ([`load`]), and when requests keep away from
//! it ([`breaker`]).
//!
//! All of it is atomics that any thread reads and writes; nothing here knows of connections. Questions that the gateway
//! asks to find out are not asked here (see `probe`).

pub(crate) mod breaker;
pub(crate) mod load;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::clock;

/// Milliseconds of this process; never 0, so that 0 can stand for never.
pub(crate) fn clock_ms(now: Instant) -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(clock::now);
    millis(now.saturating_duration_since(*START)).saturating_add(1)
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A value that shares its cache lines with no other, so that writing to it slows down nobody who reads others.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Padded<T>(pub T);
