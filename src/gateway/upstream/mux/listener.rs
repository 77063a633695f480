//! What belongs to no call of one session: the stream that takes it, and what waits until there is one.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;

use super::MuxBounds;
use super::queue::{self, MuxPiece, NotSent, PieceSender};
use protocol::level::Level;
use protocol::subscription::is_within;

/// Messages that wait for a stream; of more, the oldest are dropped.
const WAITING_MAX: usize = 256;
const WAITING_BYTES_MAX: usize = 256 * 1024;

/// What takes the messages of one session that belong to no call.
#[derive(Debug, Default)]
pub(super) struct NotificationListener {
    stream: Option<PieceSender>,
    waiting: VecDeque<Bytes>,
    waiting_bytes: usize,
    /// The log level it set.
    pub(super) level: Option<Level>,
    uris: BTreeSet<Box<str>>,
    /// Its session is the gateway's.
    pub(super) is_own: bool,
}

impl NotificationListener {
    pub(super) fn new(is_own: bool) -> Self {
        Self { is_own, ..Self::default() }
    }

    pub(super) fn is_open(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| !stream.is_closed())
    }

    /// A new stream, which begins with what has waited. An earlier one ends.
    pub(super) fn open(&mut self, bounds: &MuxBounds) -> queue::PieceReceiver {
        let bytes_max = bounds.waiting_bytes_max.max(WAITING_BYTES_MAX * 2);
        let (sender, receiver) = queue::queue(bytes_max, bounds.memory());
        for data in self.waiting.drain(..) {
            // There is a reader, and room unless the whole process has none.
            let _ = sender.send(MuxPiece { data, is_answer: false });
        }
        self.waiting_bytes = 0;
        self.stream = Some(sender);
        receiver
    }

    pub(super) fn receive(&mut self, message: Bytes) {
        if let Some(stream) = self.stream.take() {
            match stream.send(MuxPiece { data: message.clone(), is_answer: false }) {
                Ok(()) => {
                    self.stream = Some(stream);
                    return;
                }
                Err(NotSent::Gone) => {}
                Err(NotSent::Full | NotSent::NoMemory(_)) => stream.break_off(),
            }
        }
        self.waiting_bytes += message.len();
        self.waiting.push_back(message);
        while self.waiting.len() > WAITING_MAX || self.waiting_bytes > WAITING_BYTES_MAX {
            let Some(oldest) = self.waiting.pop_front() else { return };
            self.waiting_bytes -= oldest.len();
        }
    }

    /// Whether a log line of this level is for it. Who has set none gets what is no detail.
    pub(super) fn wants(&self, level: Option<Level>) -> bool {
        level.is_none_or(|level| level >= self.level.unwrap_or(Level::Info))
    }

    pub(super) fn is_subscribed(&self, uri: &str) -> bool {
        self.uris.contains(uri)
    }

    /// Whether it subscribed to this resource or one that contains it.
    pub(super) fn is_subscribed_at(&self, uri: &str) -> bool {
        is_within(uri, &self.uris)
    }

    pub(super) fn subscribe(&mut self, uri: &str) {
        self.uris.insert(uri.into());
    }

    pub(super) fn unsubscribe(&mut self, uri: &str) {
        self.uris.remove(uri);
    }

    pub(super) fn uris(self) -> Vec<Box<str>> {
        self.uris.into_iter().collect()
    }

    /// The connection is gone.
    pub(super) fn break_off(self) {
        if let Some(stream) = self.stream {
            stream.break_off();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::limit::payer::Payer;
    use crate::access::limit::shares::Shares;

    async fn read(receiver: &mut queue::PieceReceiver, count: usize) -> Vec<Bytes> {
        let mut found = Vec::new();
        while found.len() < count {
            found.push(receiver.next().await.expect("a piece").expect("unbroken").data);
        }
        found
    }

    #[tokio::test]
    async fn what_waits_is_bounded_and_comes_first() {
        let budget = Shares::of_bytes(4 * 1024 * 1024);
        let bounds = MuxBounds { waiting_bytes_max: 1024, json_depth_max: 16, budget, payer: Payer::GATEWAY };
        let mut listener = NotificationListener::default();
        let event = |number: usize| Bytes::from(number.to_string());
        for number in 0..WAITING_MAX + 3 {
            listener.receive(event(number));
        }
        let mut stream = listener.open(&bounds);
        listener.receive(event(9999));
        let found = read(&mut stream, WAITING_MAX + 1).await;
        assert_eq!((&found[0], &found[WAITING_MAX]), (&event(3), &event(9999)));

        let mut newer = listener.open(&bounds);
        assert!(stream.next().await.is_none(), "the earlier stream ends");
        listener.receive(event(1));
        assert_eq!(read(&mut newer, 1).await, [event(1)]);
        drop(newer);
        assert!(!listener.is_open());
        listener.receive(event(2));
        listener.receive(Bytes::from(vec![b'x'; WAITING_BYTES_MAX]));
        let mut last = listener.open(&bounds);
        assert_eq!(read(&mut last, 1).await[0].len(), WAITING_BYTES_MAX);
        listener.break_off();
        assert!(last.next().await.expect("an end").is_err());
    }
}
