//! The way to a server, and the limits on what is sent and taken there.

use std::time::{Duration, Instant};

use crate::doctor::facts::{Answer, Exchange};
use crate::doctor::request::ProbeRequest;

/// More requests than a server without surprises is asked.
const REQUESTS_MAX: u32 = 80;
/// What is taken in all.
const BYTES_MAX: usize = 128 << 20;
/// So many requests without an answer in a row, and no more are made.
const SILENCES_MAX: u32 = 3;
/// How often a server may take the whole time it is given.
const TIMEOUTS_IN_ALL: u32 = 12;

/// The way to a server. Exchanges follow one another.
pub(super) trait ProbeTransport {
    /// Sends a request and takes what comes. Where answers come apart from it, a message without id is only sent.
    async fn ask(&mut self, ask: &ProbeRequest, deadline: Instant) -> Exchange;
}

/// What may still be asked and taken.
#[derive(Debug)]
pub(super) struct Budget {
    /// How long each request may take.
    timeout: Duration,
    ends: Instant,
    pub(super) requests: u32,
    bytes: usize,
    silences: u32,
    /// Why no more are made.
    pub(super) spent: Option<String>,
}

impl Budget {
    pub(super) fn new(timeout: Duration) -> Self {
        let ends = Instant::now() + timeout * TIMEOUTS_IN_ALL;
        Self { timeout, ends, requests: 0, bytes: 0, silences: 0, spent: None }
    }

    /// When the answer to a request that is made now must have come; `None` if none may be made.
    pub(super) fn begin(&mut self) -> Option<Instant> {
        let why = if self.silences >= SILENCES_MAX {
            format!("{SILENCES_MAX} requests in a row were not answered in time")
        } else if self.requests >= REQUESTS_MAX {
            format!("{REQUESTS_MAX} requests were made")
        } else if self.bytes > BYTES_MAX {
            format!("{} MiB were read", BYTES_MAX >> 20)
        } else if Instant::now() >= self.ends {
            format!("{} seconds had passed", (self.timeout * TIMEOUTS_IN_ALL).as_secs())
        } else {
            self.requests += 1;
            return Some((Instant::now() + self.timeout).min(self.ends));
        };
        self.spent.get_or_insert(why);
        None
    }

    /// Counts what an exchange took.
    pub(super) fn count(&mut self, exchange: &Exchange) {
        self.bytes += exchange.bytes;
        self.silences = if exchange.answer == Answer::Silence { self.silences + 1 } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_asked_without_end() {
        let silent = Exchange::failed(Answer::Silence, Duration::ZERO);
        let large =
            Exchange { bytes: BYTES_MAX / 2 + 1, ..Exchange::failed(Answer::Nothing, Duration::ZERO) };
        let small = Exchange::failed(Answer::Nothing, Duration::ZERO);
        for (exchange, asked, why) in [
            (&silent, 3, "3 requests in a row"),
            (&large, 2, "128 MiB"),
            (&small, REQUESTS_MAX, "80 requests"),
        ] {
            let mut budget = Budget::new(Duration::from_secs(10));
            let mut count = 0;
            while budget.begin().is_some() {
                budget.count(exchange);
                count += 1;
            }
            assert_eq!((count, budget.requests), (asked, asked));
            assert!(budget.spent.unwrap().starts_with(why));
        }
    }

    #[test]
    fn an_answer_makes_up_for_silence() {
        let mut budget = Budget::new(Duration::from_secs(10));
        for answer in [Answer::Silence, Answer::Silence, Answer::Nothing, Answer::Silence, Answer::Silence] {
            assert!(budget.begin().is_some());
            budget.count(&Exchange::failed(answer, Duration::ZERO));
        }
        assert!(budget.begin().is_some());
    }
}
