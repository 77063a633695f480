//! Lines about calls that did not succeed, and about clients that are cut off, bounded per second.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use prometheus::IntCounter;

use crate::clock;
use crate::telemetry::request_id::RequestId;
use protocol::error::Error;

/// How much of an error's text is logged; it may quote the client.
const ERROR_CHARS_MAX: usize = 256;

/// What a line says about a call that did not succeed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure<'c> {
    pub request_id: &'c RequestId,
    /// The endpoint's path, or `-`.
    pub endpoint: &'c str,
    pub method: &'static str,
    /// The public name, shortened, or `-`.
    pub name: &'c str,
    /// The upstream, or `-`.
    pub upstream: &'c str,
    pub principal: &'c str,
    /// The client's address, with its port unless it was forwarded.
    pub client: &'c str,
    pub error: &'c Error,
    /// The HTTP status that the upstream answered with, where that is what is wrong.
    pub upstream_status: Option<u16>,
    /// The fault of the upstream.
    pub why: Option<&'c str>,
    /// Lines of this client about the same that were left out before.
    pub left_out: Option<u64>,
}

/// True if this method executes nothing: lists, and descriptions that servers give of themselves.
pub(crate) fn is_list(method: &str) -> bool {
    method.ends_with("/list") || method.ends_with("/discover")
}

/// Lets at most so many lines a second through.
#[derive(Debug)]
pub(crate) struct FailureLog(LineBudget);

/// Bounds the lines of one second.
#[derive(Debug)]
pub(crate) struct LineBudget {
    per_second_max: Cell<usize>,
    second: Cell<Instant>,
    written: Cell<usize>,
    dropped: Cell<u64>,
    dropped_total: IntCounter,
}

impl FailureLog {
    /// A log that writes at most `lines_per_second_max` lines.
    pub(crate) fn new(lines_per_second_max: usize, dropped_total: IntCounter) -> Self {
        Self(LineBudget::new(lines_per_second_max, dropped_total))
    }

    /// From now on at most so many.
    pub(crate) fn set_max(&self, lines_per_second_max: usize) {
        self.0.set_max(lines_per_second_max);
    }

    /// Writes one line, or counts it as dropped.
    pub(crate) fn write(&self, failure: &Failure<'_>, now: Instant) {
        if !self.admits(now) {
            return;
        }
        let outcome = failure.error.outcome();
        let Failure { request_id, endpoint, method, name, upstream, principal, client, error, .. } = *failure;
        let (upstream_status, why, left_out) = (failure.upstream_status, failure.why, failure.left_out);
        let said = if is_list(method) { error.without_outcome() } else { error.to_string() };
        let (is_refusal, error) = (error.is_refusal(), super::beginning(&said, ERROR_CHARS_MAX));
        let (reason, status, code) = (outcome.reason.label(), outcome.status.as_u16(), outcome.code);
        if is_refusal {
            tracing::info!(target: TARGET, reason, status, code, %request_id, endpoint, method, name, upstream, principal, %client, left_out, %error, "call refused");
        } else {
            tracing::warn!(target: TARGET, reason, status, code, %request_id, endpoint, method, name, upstream, principal, %client, upstream_status, why, %error, "call failed");
        }
    }

    /// Writes one line about a client that reads its reply too slowly, or counts it as dropped. `ended` is what ends for
    /// that.
    pub(crate) fn write_slow_reader(&self, client: SocketAddr, ended: &'static str, now: Instant) {
        if self.admits(now) {
            tracing::info!(target: TARGET, %client, ended, "a client reads its reply too slowly");
        }
    }

    /// Whether a line may be written; says before it how many were left out.
    fn admits(&self, now: Instant) -> bool {
        let Some(dropped) = self.0.admit(now) else { return false };
        if dropped > 0 {
            tracing::warn!(dropped, "lines about refused or failed calls were left out");
        }
        true
    }
}

/// What these lines are found by.
const TARGET: &str = "trunkline_gateway::telemetry::logs";

impl LineBudget {
    pub(crate) fn new(per_second_max: usize, dropped_total: IntCounter) -> Self {
        Self {
            per_second_max: Cell::new(per_second_max),
            second: Cell::new(clock::now()),
            written: Cell::new(0),
            dropped: Cell::new(0),
            dropped_total,
        }
    }

    pub(crate) fn set_max(&self, per_second_max: usize) {
        self.per_second_max.set(per_second_max);
    }

    /// How many lines were left out before this one. `None`: this one is.
    pub(crate) fn admit(&self, now: Instant) -> Option<u64> {
        if self.has_room(now) {
            return Some(self.dropped.take());
        }
        self.dropped.set(self.dropped.get() + 1);
        self.dropped_total.inc();
        None
    }

    fn has_room(&self, now: Instant) -> bool {
        if now.duration_since(self.second.get()) >= Duration::from_secs(1) {
            self.second.set(now);
            self.written.set(0);
        }
        let has_room = self.written.get() < self.per_second_max.get();
        self.written.set(self.written.get().saturating_add(1));
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_the_lines_of_a_second() {
        let dropped = IntCounter::new("dropped", "dropped").expect("counter");
        let log = LineBudget::new(2, dropped);
        let start = clock::now();
        let later = start + Duration::from_secs(2);
        assert_eq!([start, start, start, later].map(|now| log.has_room(now)), [true, true, false, true]);
        log.set_max(3);
        assert_eq!([later, later, later].map(|now| log.has_room(now)), [true, true, false]);
    }
}
