//! A message over a shared connection that is not kept, on its way past: it is too long, or there is no room for it. The call
//! that it answers fails, and no other.

use std::time::{Duration, Instant};

use super::MuxConnection;
use crate::clock;
use protocol::answer_number::AnswerNumber;
use protocol::error::UpstreamError;

/// Why a message is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotKept {
    /// It is longer than a message may be.
    TooLong,
    /// The process may hold no more now.
    NoRoom,
}

#[derive(Debug)]
pub(crate) struct PassedMessage {
    why: NotKept,
    since: Instant,
    bytes: u64,
    answer: AnswerNumber,
}

impl PassedMessage {
    pub(crate) fn new(why: NotKept) -> Self {
        Self { why, since: clock::now(), bytes: 0, answer: AnswerNumber::default() }
    }

    /// The next bytes of it.
    pub(crate) fn push(&mut self, text: &[u8]) {
        self.answer.push(text);
        self.bytes += u64::try_from(text.len()).unwrap_or_default();
    }

    /// Why it is not kept.
    pub(crate) fn why(&self) -> NotKept {
        self.why
    }

    /// The bytes of it that have passed.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if it goes on for longer than this: a server that never ends it is of no use.
    pub(crate) fn is_endless(&self, patience: Duration) -> bool {
        clock::since(self.since) > patience
    }

    /// It has passed: the call that it answers fails. `bytes_max`: how long it might be. False: nobody waited for it.
    pub(crate) fn fail(&self, connection: &MuxConnection, bytes_max: usize) -> bool {
        let fault = match self.why {
            NotKept::TooLong => UpstreamError::LineTooLarge { bytes: self.bytes, bytes_max },
            NotKept::NoRoom => UpstreamError::NoBuffers,
        };
        self.answer.number().is_some_and(|own| connection.fail(own, fault))
    }
}
