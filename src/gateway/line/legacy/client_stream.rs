//! The stream that a client holds open within its session: the body of the response to its GET.
//!
//! Nothing runs for it. The connection polls it, and any thread that has a message for the session's desk wakes the
//! connection. It ends when a newer one takes over, when its client does not read, with its session, and when the
//! process or the endpoint goes; the client may open another.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio::time::{Sleep, sleep_until};

use crate::catalog::subscriptions::session::ListNews;
use crate::context::call::Call;
use crate::session::outbox::{ReaderGuard, SentEvent};
use protocol::sse;
use protocol::subscription::session_list_changed;
use protocol::version::LegacyVersion;

/// A server-sent comment and the end of its event.
const KEEP_ALIVE: Bytes = Bytes::from_static(b":\n\n");
/// Messages are handed to the connection together up to here, and then not before it has written them.
const PIECE_BYTES_MAX: usize = 64 * 1024;

pub(crate) struct ClientStream {
    ticket: ReaderGuard,
    news: ListNews,
    version: LegacyVersion,
    keep_alive_interval: Duration,
    /// The end of silence.
    clock: Pin<Box<Sleep>>,
    call: Option<Box<Call>>,
    is_over: bool,
}

impl ClientStream {
    pub(crate) fn new(
        ticket: ReaderGuard,
        news: ListNews,
        version: LegacyVersion,
        keep_alive_interval: Duration,
    ) -> Self {
        let clock = Box::pin(sleep_until((Instant::now() + keep_alive_interval).into()));
        Self { ticket, news, version, keep_alive_interval, clock, call: None, is_over: false }
    }

    pub(crate) fn call(&mut self) -> Option<&mut Call> {
        self.call.as_deref_mut()
    }

    /// Ties the call to the end of the stream. It is answered, whichever side ends it.
    pub(crate) fn carry(&mut self, mut call: Call) {
        call.finish();
        self.call = Some(Box::new(call));
    }

    /// The next piece: whole events.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        self.news.register(cx.waker());
        let mut events = BytesMut::new();
        for index in self.news.take().indexes() {
            events.extend_from_slice(&sse::data_event(Bytes::from(session_list_changed(index))));
        }
        self.is_over = self.news.has_ended();
        while !self.is_over && events.len() < PIECE_BYTES_MAX {
            match self.ticket.poll(cx) {
                Poll::Ready(Some(handed)) => self.write(&handed, &mut events),
                Poll::Ready(None) => self.is_over = true,
                Poll::Pending => break,
            }
        }
        if events.is_empty() && !self.is_over {
            ready!(self.clock.as_mut().poll(cx));
            events.extend_from_slice(&KEEP_ALIVE);
        }
        self.clock.as_mut().reset((Instant::now() + self.keep_alive_interval).into());
        Poll::Ready((!events.is_empty()).then(|| events.freeze()))
    }

    fn write(&self, handed: &SentEvent, events: &mut BytesMut) {
        // Clients before 2025-11-25 take the empty event that only carries an id for a broken message.
        let is_understood = !handed.data.is_empty() || self.version >= LegacyVersion::V2025_11_25;
        if is_understood {
            events.extend_from_slice(&sse::event(handed.id.as_deref(), handed.data.clone()));
        }
    }
}
