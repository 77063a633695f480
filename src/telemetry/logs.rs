//! Log lines on standard error: text for people, or one JSON object a line.
//!
//! Calls that succeed write nothing here. Lines about refused and failed calls are bounded per second and
//! worker; what is left out is counted and told in one line when there is room again. No line holds a
//! body or a key; of the headers only the name of what was called, without a URI's query.

use std::cell::Cell;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use prometheus::IntCounter;
use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat, LogLevel};
use crate::protocol::error::Error;

/// Starts logging. Called once, before the first line; later calls change nothing.
pub fn start(log: &Log) {
    let filter = EnvFilter::new(format!("warn,audit=info,trunkline={}", level_name(log.level)));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A subscriber is already there only where a test started one.
    let _ = match log.format {
        LogFormat::Json => builder.json().try_init(),
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
}

/// False for what moves the cursor, ends a line or turns the direction of the text around.
pub fn may_be_logged(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// How much of a client's name is logged.
const NAME_CHARS_MAX: usize = 128;
/// How much of an error's text is logged; it may quote the client.
const ERROR_CHARS_MAX: usize = 256;

fn level_name(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    }
}

/// What a line says about a call that did not succeed.
#[derive(Clone, Copy, Debug)]
pub struct Failure<'c> {
    /// The endpoint's path, or `-`.
    pub endpoint: &'c str,
    /// The method as a label.
    pub method: &'static str,
    /// The public name, shortened, or `-`.
    pub name: &'c str,
    /// The upstream, or `-`.
    pub upstream: &'c str,
    /// Who called.
    pub principal: &'c str,
    /// The client's address, with its port unless it was forwarded.
    pub client: &'c str,
    /// Why.
    pub error: &'c Error,
}

/// Lets at most so many lines a second through.
#[derive(Debug)]
pub struct FailureLog(Lines);

/// Bounds the lines of one second.
#[derive(Debug)]
pub(super) struct Lines {
    per_second_max: usize,
    second: Cell<Instant>,
    written: Cell<usize>,
    dropped: Cell<u64>,
    dropped_total: IntCounter,
}

impl FailureLog {
    /// A log that writes at most `lines_per_second_max` lines.
    pub fn new(lines_per_second_max: usize, dropped_total: IntCounter) -> Self {
        Self(Lines::new(lines_per_second_max, dropped_total))
    }

    /// Writes one line, or counts it as dropped.
    pub fn write(&self, failure: &Failure<'_>, now: Instant) {
        let Some(dropped) = self.0.admit(now) else { return };
        if dropped > 0 {
            tracing::warn!(dropped, "lines about refused or failed calls were left out");
        }
        let outcome = failure.error.outcome();
        let Failure { endpoint, method, name, upstream, principal, client, error } = *failure;
        let (is_refusal, error) = (error.is_refusal(), clean(&error.to_string(), ERROR_CHARS_MAX));
        let (reason, status, code) = (outcome.reason.label(), outcome.status.as_u16(), outcome.code);
        if is_refusal {
            tracing::info!(reason, status, code, endpoint, method, name, upstream, principal, %client, %error, "call refused");
        } else {
            tracing::warn!(reason, status, code, endpoint, method, name, upstream, principal, %client, %error, "call failed");
        }
    }
}

impl Lines {
    pub(super) fn new(per_second_max: usize, dropped_total: IntCounter) -> Self {
        Self {
            per_second_max,
            second: Cell::new(Instant::now()),
            written: Cell::new(0),
            dropped: Cell::new(0),
            dropped_total,
        }
    }

    /// How many lines were left out before this one. `None`: this one is.
    pub(super) fn admit(&self, now: Instant) -> Option<u64> {
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
        let has_room = self.written.get() < self.per_second_max;
        self.written.set(self.written.get().saturating_add(1));
        has_room
    }
}

/// A client's text made fit for a log line: at most 128 characters, without control characters.
pub fn shorten(text: &str) -> String {
    clean(text.split('?').next().unwrap_or_default(), NAME_CHARS_MAX)
}

fn clean(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).map(|c| if may_be_logged(c) { c } else { '\u{fffd}' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_the_lines_of_a_second() {
        let dropped = IntCounter::new("dropped", "dropped").expect("counter");
        let log = Lines::new(2, dropped);
        let start = Instant::now();
        let later = start + Duration::from_secs(2);
        assert_eq!([start, start, start, later].map(|now| log.has_room(now)), [true, true, false, true]);
    }

    #[test]
    fn shortens_and_cleans() {
        assert_eq!(shorten("a\u{1b}[31m\nb"), "a\u{fffd}[31m\u{fffd}b");
        assert_eq!(shorten(&"ä".repeat(500)).chars().count(), 128);
    }
}
