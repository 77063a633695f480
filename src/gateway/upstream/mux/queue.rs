//! Messages on their way from a shared connection to one reader, bounded in bytes.
//!
//! Putting a message in never waits. Where others share the connection, whoever reads too slowly loses its messages, and
//! nobody else is held up. Whoever has the connection to itself is waited for: see [`QueueRoom`].

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

use crate::access::limit::payer::Payer;
use crate::access::limit::shares::{NoShare, Share, Shares};
use crate::upstream::broken_reply::BrokenReply;
use protocol::error::UpstreamError;

/// What a message takes beside its bytes.
const OVERHEAD_BYTES: usize = 64;

#[derive(Debug)]
pub(crate) struct MuxPiece {
    pub data: Bytes,
    /// True if it is the answer to the call, and so the last.
    pub is_answer: bool,
}

/// Where messages go in.
#[derive(Debug)]
pub(crate) struct PieceSender {
    pieces: mpsc::UnboundedSender<(MuxPiece, Share)>,
    shared: Arc<QueueState>,
}

/// Where they come out.
#[derive(Debug)]
pub(crate) struct PieceReceiver {
    pieces: mpsc::UnboundedReceiver<(MuxPiece, Share)>,
    shared: Arc<QueueState>,
}

#[derive(Debug)]
struct QueueState {
    bytes_max: usize,
    budget: Arc<Shares>,
    payer: Payer,
    waiting_bytes: AtomicUsize,
    is_broken: AtomicBool,
    /// Why, where it is not that the connection is gone.
    fault: OnceLock<UpstreamError>,
    /// One of the two ends is gone.
    is_over: AtomicBool,
    /// The reader has taken something, or one of the ends is gone.
    taken: Notify,
}

/// Room that a message needs in a queue which is full.
#[derive(Debug)]
pub(crate) struct QueueRoom {
    shared: Arc<QueueState>,
    /// How much may wait so that it fits.
    waiting_max: usize,
}

/// Why a message did not go in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSent {
    /// The reader has not read what came before.
    Full,
    /// There is no memory for it.
    NoMemory(NoShare),
    /// There is no reader any more.
    Gone,
}

/// A queue for `bytes_max` bytes, or one message of any length. What waits in it is counted against `budget`, and
/// `payer` is charged for it.
pub(crate) fn queue(
    bytes_max: usize,
    (budget, payer): (&Arc<Shares>, Payer),
) -> (PieceSender, PieceReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let shared = Arc::new(QueueState {
        bytes_max,
        budget: Arc::clone(budget),
        payer,
        waiting_bytes: AtomicUsize::new(0),
        is_broken: AtomicBool::new(false),
        fault: OnceLock::new(),
        is_over: AtomicBool::new(false),
        taken: Notify::new(),
    });
    (PieceSender { pieces: sender, shared: Arc::clone(&shared) }, PieceReceiver { pieces: receiver, shared })
}

impl PieceSender {
    /// Puts a message in. Dropped afterwards, the reader comes to a clean end.
    pub(crate) fn send(&self, piece: MuxPiece) -> Result<(), NotSent> {
        let bytes = piece.data.len() + OVERHEAD_BYTES;
        let before = self.shared.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut counted = self.shared.budget.open(self.shared.payer);
        let is_full = self.shared.is_full(before, bytes);
        let counted_in =
            if is_full { Err(NotSent::Full) } else { counted.grow(bytes).map_err(NotSent::NoMemory) };
        if let Err(not_sent) = counted_in {
            self.shared.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(not_sent);
        }
        self.pieces.send((piece, counted)).map_err(|_| NotSent::Gone)
    }

    /// As [`send`](Self::send), for what is short and comes last: it finds room where the process has some.
    pub(crate) fn send_last(&self, piece: MuxPiece) -> Result<(), NotSent> {
        let bytes = piece.data.len() + OVERHEAD_BYTES;
        let mut counted = self.shared.budget.open(self.shared.payer);
        counted.grow(bytes).map_err(NotSent::NoMemory)?;
        self.shared.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.pieces.send((piece, counted)).map_err(|_| NotSent::Gone)
    }

    pub(crate) fn payer(&self) -> Payer {
        self.shared.payer
    }

    /// What a message of this length has to wait for. `None`: it fits, or nobody reads.
    pub(crate) fn room_for(&self, length: usize) -> Option<QueueRoom> {
        let (bytes, bytes_max) = (length + OVERHEAD_BYTES, self.shared.bytes_max);
        let is_full = self.shared.is_full(self.shared.waiting_bytes.load(Ordering::Relaxed), bytes);
        (is_full && !self.is_closed()).then(|| QueueRoom {
            shared: Arc::clone(&self.shared),
            // Some more than it needs, so that not every message waits by itself.
            waiting_max: (bytes_max / 2).min(bytes_max.saturating_sub(bytes)),
        })
    }

    /// The reader gets an error after what it has not read yet.
    pub(crate) fn break_off(self) {
        self.shared.is_broken.store(true, Ordering::Release);
    }

    /// Likewise, with the reason.
    pub(crate) fn break_off_with(self, fault: UpstreamError) {
        let _ = self.shared.fault.set(fault);
        self.break_off();
    }

    /// Likewise, where a message did not go in for this reason.
    pub(crate) fn break_off_by(self, not_sent: NotSent) {
        let fault = match not_sent {
            NotSent::Full => UpstreamError::SlowClient,
            NotSent::NoMemory(NoShare::NothingLeft) => UpstreamError::NoBuffers,
            NotSent::NoMemory(NoShare::TooMuchOfPayer) => UpstreamError::BuffersOfPrincipal,
            NotSent::Gone => return,
        };
        self.break_off_with(fault);
    }

    /// Completes once nobody reads.
    pub(crate) async fn closed(&self) {
        self.pieces.closed().await;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.pieces.is_closed()
    }
}

impl Drop for PieceSender {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl QueueState {
    /// Whether so much does not fit beside what waits.
    fn is_full(&self, waiting: usize, bytes: usize) -> bool {
        waiting > 0 && waiting + bytes > self.bytes_max
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.taken.notify_one();
    }
}

impl QueueRoom {
    /// Completes once there is room, or no use for it.
    pub(crate) async fn wait(&self) {
        while self.shared.waiting_bytes.load(Ordering::Acquire) > self.waiting_max
            && !self.shared.is_over.load(Ordering::Acquire)
        {
            self.shared.taken.notified().await;
        }
    }
}

impl Drop for PieceReceiver {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl PieceReceiver {
    /// Why the queue broke off, once it has.
    pub(crate) fn fault(&self) -> UpstreamError {
        self.shared.fault.get().cloned().unwrap_or(UpstreamError::Reset)
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<MuxPiece, BrokenReply>>> {
        Poll::Ready(match ready!(self.pieces.poll_recv(cx)) {
            Some((piece, _)) => {
                let bytes = piece.data.len() + OVERHEAD_BYTES;
                self.shared.waiting_bytes.fetch_sub(bytes, Ordering::AcqRel);
                // One message at a time may wait for room, and what it is not told now it finds later.
                self.shared.taken.notify_one();
                Some(Ok(piece))
            }
            None => self.shared.is_broken.swap(false, Ordering::Acquire).then_some(Err(BrokenReply)),
        })
    }

    /// As [`PieceReceiver::poll_next`].
    pub(crate) async fn next(&mut self) -> Option<Result<MuxPiece, BrokenReply>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(data: &'static str) -> MuxPiece {
        MuxPiece { data: Bytes::from_static(data.as_bytes()), is_answer: false }
    }

    fn payer(number: usize) -> Payer {
        Payer::principal(&format!("key:{number}"))
    }

    #[test]
    fn a_slow_reader_loses_what_does_not_fit() {
        let budget = Shares::of_bytes(1024);
        let (sender, mut receiver) = queue(2 * (OVERHEAD_BYTES + 1), (&budget, Payer::GATEWAY));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        assert_eq!(sender.send(piece("a")), Ok(()));
        assert_eq!(sender.send(piece("b")), Ok(()));
        assert_eq!(sender.send(piece("c")), Err(NotSent::Full));
        let next = |receiver: &mut PieceReceiver| runtime.block_on(receiver.next());
        assert_eq!(next(&mut receiver).map(|piece| piece.map(|piece| piece.data)), Some(Ok("a".into())));
        assert_eq!(sender.send(piece("d")), Ok(()));
        for expected in ["b", "d"] {
            let found = next(&mut receiver).map(|piece| piece.map(|piece| piece.data));
            assert_eq!(found, Some(Ok(expected.into())));
        }
        assert_eq!(sender.send(piece("longer than everything that fits at once")), Ok(()));
        assert!(budget.taken() > 0);
        sender.break_off();
        assert!(matches!(next(&mut receiver), Some(Ok(_))));
        assert_eq!(budget.taken(), 0);
        assert!(matches!(next(&mut receiver), Some(Err(BrokenReply))));
        assert!(next(&mut receiver).is_none());
    }

    #[test]
    fn what_waits_is_counted() {
        let budget = Shares::of_bytes(2 * OVERHEAD_BYTES);
        let ((one, first), (two, _second)) =
            (queue(1024, (&budget, payer(1))), queue(1024, (&budget, payer(2))));
        assert_eq!(one.send(piece("a")), Ok(()));
        assert!(
            matches!(two.send(piece("b")), Err(NotSent::NoMemory(_))),
            "the process holds as much as it may"
        );
        drop((one, first));
        assert_eq!(budget.taken(), 0, "what was never read is given back");
        assert_eq!(two.send(piece("b")), Ok(()));
    }

    #[test]
    fn both_ends_see_the_other_go() {
        let (sender, receiver) = queue(10, (&Shares::of_bytes(1024), Payer::GATEWAY));
        assert!(!sender.is_closed());
        drop(receiver);
        assert!(sender.is_closed());
        assert_eq!(sender.send(piece("a")), Err(NotSent::Gone));
    }
}
