//! The stream that a client holds open within its session: the body of the response to its GET.
//!
//! It ends when a newer one takes over, when its client does not read, with its session, and when the process or the
//! endpoint goes; the client may open another.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::catalog::subscriptions::subscriber::Subscriber;
use crate::line::session_events::SessionEvents;
use crate::session::outbox::{ReaderGuard, SentEvent};
use protocol::sse;
use protocol::version::LegacyVersion;

pub(crate) struct ClientStream {
    session: SessionEvents,
    version: LegacyVersion,
    is_over: bool,
}

impl ClientStream {
    pub(crate) fn new(
        reader: ReaderGuard,
        news: Subscriber,
        version: LegacyVersion,
        keep_alive_interval: Duration,
    ) -> Self {
        let session = SessionEvents::new(Some(reader), news, keep_alive_interval);
        Self { session, version, is_over: false }
    }

    /// The next piece: whole events.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let version = self.version;
        // Clients before 2025-11-25 take the empty event that only carries an id for a broken message.
        let is_understood =
            |event: &SentEvent| !event.data.is_empty() || version >= LegacyVersion::V2025_11_25;
        let write = |event: SentEvent| {
            if is_understood(&event) { sse::event(event.id.as_deref(), event.data) } else { Bytes::new() }
        };
        let mut events = BytesMut::new();
        let has_ended = self.session.register(cx);
        self.is_over = self.session.write(cx, has_ended, &mut events, write);
        if self.is_over {
            return Poll::Ready((!events.is_empty()).then(|| events.freeze()));
        }
        self.session.piece(cx, events)
    }
}
