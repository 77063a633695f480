//! Calls that their clients cancelled at another gateway than the one that sent them: what gateways tell each other of
//! them, and those that wait here for a worker.
//!
//! Invariant: bounded. What there is no room for is dropped and counted, as nobody depends on a cancellation.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{SessionId, Sessions};
use crate::redis::Urgency;
use crate::redis::peer_message::PeerMessage;

/// A longer id cannot be one of a request that was taken.
pub(crate) const ID_BYTES_MAX: usize = 1024;
/// A longer reason is left out.
pub(crate) const REASON_BYTES_MAX: usize = 1024;
/// How many wait for a worker.
const WAITING_MAX: usize = 1024;
const CLEAR: &[u8] = b"trunkline call cancelled";
/// Before the reason. It stands in no JSON literal.
const SEPARATOR: char = '\n';

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cancellation {
    pub session: SessionId,
    /// The literal of its id, as its client wrote it.
    pub id: String,
    /// The literal of the reason; empty: none.
    pub reason: String,
}

#[derive(Debug, Default)]
pub(super) struct PeerCancellations {
    waiting: Mutex<VecDeque<Cancellation>>,
    more: Notify,
}

impl Sessions {
    /// Tells the other gateways of a call that is not in flight here.
    pub(crate) fn share_cancelled(&self, cancelled: &Cancellation) {
        let Some(shared) = &self.shared else { return };
        if let Some(sealed) = self.keys.load().seal_record(CLEAR, &cancelled.to_record()) {
            shared.announce(&PeerMessage::Cancelled(sealed), Urgency::Dropped);
        }
    }

    /// Another gateway told of a call, which may be in flight here.
    pub(crate) fn hear_cancelled(&self, sealed: &[u8]) {
        let record = self.keys.load().open_record(CLEAR, sealed);
        let Some(cancelled) = record.and_then(|record| Cancellation::of_record(&record)) else {
            tracing::debug!("another gateway told of a cancellation that cannot be read");
            return;
        };
        let outbox = self.outbox_if_any(cancelled.session);
        if outbox.is_none_or(|outbox| outbox.pending_call(&cancelled.id).is_none()) {
            return;
        }
        let mut waiting = self.cancelled.waiting.lock();
        if waiting.len() < WAITING_MAX {
            waiting.push_back(cancelled);
            self.cancelled.more.notify_one();
        } else if let Some(shared) = &self.shared {
            shared.series.lost.inc();
        }
    }

    /// The next of those that others told of, for whichever worker comes first.
    pub(crate) async fn next_cancelled(&self) -> Cancellation {
        loop {
            let next = self.cancelled.waiting.lock().pop_front();
            match next {
                Some(cancelled) => return cancelled,
                None => self.cancelled.more.notified().await,
            }
        }
    }
}

impl Cancellation {
    fn to_record(&self) -> Vec<u8> {
        let text = format!("{}{SEPARATOR}{}", self.id, self.reason);
        [&self.session.0.to_be_bytes()[..], text.as_bytes()].concat()
    }

    fn of_record(record: &[u8]) -> Option<Self> {
        let (session, text) = record.split_first_chunk()?;
        let (id, reason) = std::str::from_utf8(text).ok()?.split_once(SEPARATOR)?;
        let is_short = id.len() <= ID_BYTES_MAX && reason.len() <= REASON_BYTES_MAX;
        let session = SessionId(u128::from_be_bytes(*session));
        is_short.then(|| Self { session, id: id.to_owned(), reason: reason.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_heard() {
        for (id, reason) in [("7", ""), ("\"a\\n\"", "\"enough\""), ("-1", "\"\"")] {
            let cancelled =
                Cancellation { session: SessionId(9), id: id.to_owned(), reason: reason.to_owned() };
            assert_eq!(Cancellation::of_record(&cancelled.to_record()), Some(cancelled));
        }
        for nonsense in [&b""[..], b"0123456789abcdef", b"0123456789abcdef7", b"0123456789abcdef\xff\n"] {
            assert_eq!(Cancellation::of_record(nonsense), None, "{nonsense:?}");
        }
        let long = Cancellation { session: SessionId(9), id: "1".repeat(2000), reason: String::new() };
        assert_eq!(Cancellation::of_record(&long.to_record()), None);
    }
}
