//! Puts together what an event stream brings in quick succession, so that it goes out in one write: a write costs more
//! than everything else that is done with an event.
//!
//! A piece waits for one more turn of the thread, in which the connection to the upstream may read on; what then brings
//! nothing new is handed on. Nothing waits for a clock. The connection to the client may look twice in one turn, so it
//! is the second look in vain that counts.

use std::task::{Context, Poll};

use bytes::BytesMut;

use super::stream::BytesPoll;

/// As much as is put together; longer pieces are not copied.
const GATHERED_BYTES_MAX: usize = 16 * 1024;

const LOOKS_MAX: u8 = 2;

#[derive(Default)]
pub(super) struct Gather {
    held: BytesMut,
    /// How often nothing new had come.
    looks_in_vain: u8,
    /// What comes after what is held: an error or the end.
    end: Option<BytesPoll>,
}

impl Gather {
    /// The next pieces together, of those that `next` gives.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut next: impl FnMut(&mut Context<'_>) -> BytesPoll,
    ) -> BytesPoll {
        while self.end.is_none() && self.held.len() < GATHERED_BYTES_MAX {
            match next(cx) {
                Poll::Ready(Some(Ok(piece))) => {
                    if self.held.is_empty() && piece.len() >= GATHERED_BYTES_MAX {
                        return Poll::Ready(Some(Ok(piece)));
                    }
                    self.held.extend_from_slice(&piece);
                    self.looks_in_vain = 0;
                }
                Poll::Pending if self.held.is_empty() => return Poll::Pending,
                Poll::Pending if self.looks_in_vain < LOOKS_MAX => {
                    self.looks_in_vain += 1;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Pending => break,
                end @ Poll::Ready(_) => self.end = Some(end),
            }
        }
        self.looks_in_vain = 0;
        if !self.held.is_empty() {
            return Poll::Ready(Some(Ok(self.held.split().freeze())));
        }
        self.end.replace(Poll::Ready(None)).unwrap_or(Poll::Ready(None))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::Waker;

    use bytes::Bytes;

    use super::*;
    use protocol::error::UpstreamError;

    fn piece(text: &'static str) -> BytesPoll {
        Poll::Ready(Some(Ok(Bytes::from_static(text.as_bytes()))))
    }

    /// What comes of these polls, in as many polls.
    fn gathered(script: Vec<BytesPoll>) -> Vec<BytesPoll> {
        let mut script = VecDeque::from(script);
        let mut gather = Gather::default();
        let mut cx = Context::from_waker(Waker::noop());
        let mut out = Vec::new();
        while !script.is_empty() || !matches!(out.last(), Some(Poll::Ready(None))) {
            out.push(gather.poll(&mut cx, |_| script.pop_front().unwrap_or(Poll::Ready(None))));
        }
        out
    }

    #[test]
    fn what_comes_at_once_goes_at_once() {
        use Poll::Pending;
        let broken = || Poll::Ready(Some(Err(UpstreamError::Reset)));
        for (script, expected) in [
            (vec![piece("a"), piece("b")], vec![piece("ab"), Poll::Ready(None)]),
            (
                vec![
                    Pending,
                    piece("a"),
                    Pending,
                    Pending,
                    piece("b"),
                    Pending,
                    Pending,
                    Pending,
                    piece("c"),
                ],
                vec![Pending, Pending, Pending, Pending, Pending, piece("ab"), piece("c"), Poll::Ready(None)],
            ),
            (vec![piece("a"), broken()], vec![piece("a"), broken(), Poll::Ready(None)]),
            (vec![broken()], vec![broken(), Poll::Ready(None)]),
        ] {
            let out = gathered(script);
            assert_eq!(format!("{out:?}"), format!("{expected:?}"));
        }
    }

    #[test]
    fn what_is_long_is_handed_on_as_it_is() {
        let long = Bytes::from(vec![b'x'; GATHERED_BYTES_MAX]);
        let script =
            vec![Poll::Ready(Some(Ok(long.clone()))), piece("a"), Poll::Ready(Some(Ok(long.clone())))];
        let out = gathered(script);
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
