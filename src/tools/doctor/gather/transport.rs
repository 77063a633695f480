//! The way to the server, and the limits on what is sent and taken there.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use super::http::HttpTransport;
use super::sse::SseTransport;
use super::stdio::StdioTransport;
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

/// What may still be asked and taken.
#[derive(Debug)]
pub(super) struct Budget {
    timeout: Duration,
    ends: Instant,
    requests: Cell<u32>,
    bytes: Cell<usize>,
    silences: Cell<u32>,
    spent: RefCell<Option<String>>,
}

/// The way to the server.
#[derive(Debug)]
pub(super) enum ProbeTransport<'a> {
    Http(&'a HttpTransport),
    Sse(&'a SseTransport),
    Stdio(&'a StdioTransport),
}

impl Budget {
    /// One for requests that may each take so long.
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            ends: Instant::now() + timeout * TIMEOUTS_IN_ALL,
            requests: Cell::new(0),
            bytes: Cell::new(0),
            silences: Cell::new(0),
            spent: RefCell::default(),
        }
    }

    /// How many requests were made.
    pub(super) fn requests(&self) -> u32 {
        self.requests.get()
    }

    /// Why no more requests are made.
    pub(super) fn spent(&self) -> Option<String> {
        self.spent.borrow().clone()
    }

    /// When the answer to a request that is made now must have come; `None` if none may be made.
    pub(super) fn begin(&self) -> Option<Instant> {
        let why = if self.silences.get() >= SILENCES_MAX {
            format!("{SILENCES_MAX} requests in a row were not answered in time")
        } else if self.requests.get() >= REQUESTS_MAX {
            format!("{REQUESTS_MAX} requests were made")
        } else if self.bytes.get() > BYTES_MAX {
            format!("{} MiB were read", BYTES_MAX >> 20)
        } else if Instant::now() >= self.ends {
            format!("{} seconds had passed", (self.timeout * TIMEOUTS_IN_ALL).as_secs())
        } else {
            self.requests.set(self.requests.get() + 1);
            return Some((Instant::now() + self.timeout).min(self.ends));
        };
        self.spent.borrow_mut().get_or_insert(why);
        None
    }

    /// Counts what an exchange took.
    pub(super) fn count(&self, exchange: &Exchange) {
        self.bytes.set(self.bytes.get() + exchange.bytes);
        let silences = if exchange.answer == Answer::Silence { self.silences.get() + 1 } else { 0 };
        self.silences.set(silences);
    }
}

impl ProbeTransport<'_> {
    /// Sends a request and takes what comes; `None` if no more may be sent.
    pub(super) async fn ask(&self, budget: &Budget, ask: &ProbeRequest) -> Option<Exchange> {
        let deadline = budget.begin()?;
        let exchange = match self {
            Self::Http(http) => http.ask(ask, deadline).await,
            Self::Sse(sse) => sse.ask(ask, deadline).await,
            Self::Stdio(stdio) => stdio.ask(ask, deadline).await,
        };
        budget.count(&exchange);
        Some(exchange)
    }

    /// Whether it is Streamable HTTP.
    pub(super) fn is_http(&self) -> bool {
        matches!(self, Self::Http(_))
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
            let budget = Budget::new(Duration::from_secs(10));
            let mut count = 0;
            while budget.begin().is_some() {
                budget.count(exchange);
                count += 1;
            }
            assert_eq!((count, budget.requests()), (asked, asked));
            assert!(budget.spent().unwrap().starts_with(why));
        }
    }

    #[test]
    fn an_answer_makes_up_for_silence() {
        let budget = Budget::new(Duration::from_secs(10));
        for answer in [Answer::Silence, Answer::Silence, Answer::Nothing, Answer::Silence, Answer::Silence] {
            assert!(budget.begin().is_some());
            budget.count(&Exchange::failed(answer, Duration::ZERO));
        }
        assert!(budget.begin().is_some());
    }
}
