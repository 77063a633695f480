//! Messages on their way from a shared connection to one reader, bounded in bytes.
//!
//! The sending side never waits: whoever reads too slowly loses its messages, not the connection that others share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::access::limit::payer::Payer;
use crate::access::limit::shares::{NoShare, Share, Shares};
use crate::upstream::incoming::BrokenReply;

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
    });
    (PieceSender { pieces: sender, shared: Arc::clone(&shared) }, PieceReceiver { pieces: receiver, shared })
}

impl PieceSender {
    /// Puts a message in. Dropped afterwards, the reader comes to a clean end.
    pub(crate) fn send(&self, piece: MuxPiece) -> Result<(), NotSent> {
        let bytes = piece.data.len() + OVERHEAD_BYTES;
        let before = self.shared.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut counted = self.shared.budget.open(self.shared.payer);
        let is_full = before > 0 && before + bytes > self.shared.bytes_max;
        let counted_in =
            if is_full { Err(NotSent::Full) } else { counted.grow(bytes).map_err(NotSent::NoMemory) };
        if let Err(not_sent) = counted_in {
            self.shared.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(not_sent);
        }
        self.pieces.send((piece, counted)).map_err(|_| NotSent::Gone)
    }

    /// The reader gets an error after what it has not read yet.
    pub(crate) fn break_off(self) {
        self.shared.is_broken.store(true, Ordering::Release);
    }

    /// Completes once nobody reads.
    pub(crate) async fn closed(&self) {
        self.pieces.closed().await;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.pieces.is_closed()
    }
}

impl PieceReceiver {
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<MuxPiece, BrokenReply>>> {
        Poll::Ready(match ready!(self.pieces.poll_recv(cx)) {
            Some((piece, _)) => {
                let bytes = piece.data.len() + OVERHEAD_BYTES;
                self.shared.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
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
