//! What a client is told within its session beside its calls, on whichever stream it holds: what upstreams say, that lists
//! have changed, and, in silence, that the connection is alive.
//!
//! Nothing runs for it. The connection polls it, and any thread that has a message for the client wakes the connection.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio::time::{Sleep, sleep_until};

use crate::catalog::subscriptions::subscriber::Subscriber;
use crate::clock;
use crate::session::outbox::{ReaderGuard, SentEvent};
use protocol::subscription::session_list_changed;

/// A server-sent comment and the end of its event.
const KEEP_ALIVE: Bytes = Bytes::from_static(b":\n\n");
/// Messages are handed to the connection together up to here, and then not before it has written them.
pub(super) const PIECE_BYTES_MAX: usize = 64 * 1024;

pub(super) struct SessionEvents {
    /// What upstreams say in the session, once it is open.
    pub(super) reader: Option<ReaderGuard>,
    news: Subscriber,
    keep_alive_interval: Duration,
    /// The end of silence.
    clock: Pin<Box<Sleep>>,
    /// When a change that is held back is due.
    later: Option<Pin<Box<Sleep>>>,
}

impl SessionEvents {
    pub(super) fn new(reader: Option<ReaderGuard>, news: Subscriber, keep_alive_interval: Duration) -> Self {
        let clock = Box::pin(sleep_until((clock::now() + keep_alive_interval).into()));
        Self { reader, news, keep_alive_interval, clock, later: None }
    }

    /// To be called before anything is looked for. True: the stream is to end.
    pub(super) fn register(&self, cx: &Context<'_>) -> bool {
        self.news.register(cx.waker());
        self.news.has_ended()
    }

    /// Takes what waits in the session; of a stream that is over, only which lists have changed. `write` gives the bytes
    /// of an event. True: the stream is over.
    pub(super) fn write(
        &mut self,
        cx: &mut Context<'_>,
        is_over: bool,
        events: &mut BytesMut,
        write: impl Fn(SentEvent) -> Bytes,
    ) -> bool {
        let Some(reader) = &self.reader else { return is_over };
        let mut has_ended = is_over;
        while !has_ended && events.len() < PIECE_BYTES_MAX {
            match reader.poll(cx) {
                Poll::Ready(Some(event)) => events.extend_from_slice(&write(event)),
                Poll::Ready(None) => has_ended = true,
                Poll::Pending => break,
            }
        }
        let (lists, next) = reader.take_lists(self.news.take_lists());
        for index in lists.indexes() {
            let data = Bytes::from(session_list_changed(index));
            events.extend_from_slice(&write(SentEvent { id: None, data }));
        }
        if next.is_some() || self.later.is_some() {
            self.wake_at(cx, next);
        }
        has_ended
    }

    /// Has the connection look again when the next change is due.
    #[cold]
    fn wake_at(&mut self, cx: &mut Context<'_>, next: Option<Instant>) {
        self.later = next.map(|next| Box::pin(sleep_until(next.into())));
        if let Some(later) = &mut self.later
            && later.as_mut().poll(cx).is_ready()
        {
            cx.waker().wake_by_ref();
        }
    }

    /// The next piece, of these events; a comment after a silence.
    pub(super) fn piece(&mut self, cx: &mut Context<'_>, events: BytesMut) -> Poll<Option<Bytes>> {
        let piece = if events.is_empty() {
            ready!(self.clock.as_mut().poll(cx));
            KEEP_ALIVE
        } else {
            events.freeze()
        };
        self.clock.as_mut().reset((clock::now() + self.keep_alive_interval).into());
        Poll::Ready(Some(piece))
    }
}
