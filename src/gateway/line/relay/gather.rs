//! Puts together what an event stream brings in quick succession, so that it goes out in one write: system calls cost more
//! than everything else that is done with an event.
//!
//! What wakes a stream is read only after the thread has asked the system once more what has come, which gives the upstream
//! time to send on, and other streams their turn. Nothing waits for a clock, and what was read goes out at once.
//!
//! Invariant: between two pieces of the upstream it wakes its task once at most, however often it is asked: whoever asks again
//! without having been woken must not keep the thread busy.

use std::pin::pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use tokio::task::yield_now;

use super::stream::BytesPoll;

/// As much as is put together; longer pieces are not copied.
const GATHERED_BYTES_MAX: usize = 16 * 1024;
/// Room for the first pieces that are put together.
const GATHERED_BYTES_MIN: usize = 2 * 1024;

#[derive(Default)]
pub(super) struct Gather {
    last_look: LastLook,
    /// What comes after what was handed on: an error or the end.
    end: Option<BytesPoll>,
}

/// What came of the last look at the upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LastLook {
    /// Something was there, or there was none yet.
    #[default]
    Something,
    /// Nothing was there: whatever wakes the task now is read a turn later.
    Nothing,
    /// It was put off: that turn passes.
    PutOff,
    /// Nothing was there after that turn either: it was not the upstream that woke the task.
    InVain,
}

impl Gather {
    /// The next pieces together, of those that `next` gives.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut next: impl FnMut(&mut Context<'_>) -> BytesPoll,
    ) -> BytesPoll {
        if self.last_look == LastLook::Nothing {
            self.last_look = LastLook::PutOff;
            // It wakes the task once the thread has asked.
            return pin!(yield_now()).poll(cx).map(|()| None);
        }
        let mut held = HeldPieces::default();
        while self.end.is_none() && held.len() < GATHERED_BYTES_MAX {
            match next(cx) {
                Poll::Ready(Some(Ok(piece))) => held.push(piece),
                Poll::Pending if held.len() == 0 => {
                    self.last_look = match self.last_look {
                        LastLook::Something => LastLook::Nothing,
                        _ => LastLook::InVain,
                    };
                    return Poll::Pending;
                }
                Poll::Pending => break,
                end @ Poll::Ready(_) => self.end = Some(end),
            }
        }
        self.last_look = LastLook::Something;
        if held.len() > 0 {
            return Poll::Ready(Some(Ok(held.into_bytes())));
        }
        self.end.replace(Poll::Ready(None)).unwrap_or(Poll::Ready(None))
    }
}

/// One piece as it came, or several together.
#[derive(Default)]
struct HeldPieces {
    first: Bytes,
    joined: BytesMut,
}

impl HeldPieces {
    fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    fn push(&mut self, piece: Bytes) {
        if self.len() == 0 {
            self.first = piece;
            return;
        }
        if self.joined.is_empty() {
            self.joined.reserve(GATHERED_BYTES_MIN.max(self.first.len() + piece.len()));
            self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.joined.extend_from_slice(&piece);
    }

    fn into_bytes(self) -> Bytes {
        if self.joined.is_empty() { self.first } else { self.joined.freeze() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use bytes::Bytes;

    use super::*;
    use protocol::error::UpstreamError;

    fn piece(text: &'static str) -> BytesPoll {
        Poll::Ready(Some(Ok(Bytes::from_static(text.as_bytes()))))
    }

    #[derive(Default)]
    struct CountingWaker(AtomicUsize);

    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What comes of these polls, in as many polls, and how often the task was woken.
    fn gathered(script: Vec<BytesPoll>) -> (Vec<BytesPoll>, usize) {
        let mut script = VecDeque::from(script);
        let mut gather = Gather::default();
        let counter = Arc::new(CountingWaker::default());
        let waker = Waker::from(Arc::clone(&counter));
        let mut cx = Context::from_waker(&waker);
        let mut out = Vec::new();
        while !script.is_empty() || !matches!(out.last(), Some(Poll::Ready(None))) {
            out.push(gather.poll(&mut cx, |_| script.pop_front().unwrap_or(Poll::Ready(None))));
        }
        (out, counter.0.load(Ordering::Relaxed))
    }

    #[test]
    fn what_comes_at_once_goes_at_once() {
        use Poll::Pending;
        let broken = || Poll::Ready(Some(Err(UpstreamError::Reset)));
        for (script, expected, wakes) in [
            (vec![piece("a"), piece("b")], vec![piece("ab"), Poll::Ready(None)], 0),
            // After a look in vain, one turn passes without a look.
            (
                vec![Pending, piece("a"), piece("b"), Pending, Pending, piece("c"), Pending],
                vec![Pending, Pending, piece("ab"), Pending, Pending, piece("c"), Poll::Ready(None)],
                2,
            ),
            // Whoever asks without having been woken wakes it once at most.
            (
                vec![Pending, Pending, Pending, Pending, piece("a"), Pending, Pending],
                vec![
                    Pending,
                    Pending,
                    Pending,
                    Pending,
                    Pending,
                    piece("a"),
                    Pending,
                    Pending,
                    Poll::Ready(None),
                ],
                2,
            ),
            (vec![piece("a"), broken()], vec![piece("a"), broken(), Poll::Ready(None)], 0),
            (vec![broken()], vec![broken(), Poll::Ready(None)], 0),
        ] {
            let (out, woken) = gathered(script);
            assert_eq!(format!("{out:?}"), format!("{expected:?}"));
            assert_eq!(woken, wakes, "{expected:?}");
        }
    }

    #[test]
    fn what_is_long_is_handed_on_as_it_is() {
        let long = Bytes::from(vec![b'x'; GATHERED_BYTES_MAX]);
        let script =
            vec![Poll::Ready(Some(Ok(long.clone()))), piece("a"), Poll::Ready(Some(Ok(long.clone())))];
        let (out, _) = gathered(script);
        let lengths: Vec<usize> = out
            .iter()
            .filter_map(|polled| match polled {
                Poll::Ready(Some(Ok(piece))) => Some(piece.len()),
                _ => None,
            })
            .collect();
        assert_eq!(lengths, [long.len(), long.len() + 1]);
    }
}
