//! A client's stream: the body of the response to its GET.
//!
//! Nothing runs for it. The connection polls it, and whoever has a message wakes the connection.

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::access::limit::shares::Share;
use crate::catalog::subscriptions::subscriber::Subscriber;
use crate::context::state::State;
use crate::line::session_events::{PIECE_BYTES_MAX, SessionEvents};
use crate::session::Session;
use crate::session::outbox::SentEvent;
use crate::tables::sse_sessions::public_path;
use crate::tables::sse_sessions::session::SseSession;
use protocol::splice::Segments;
use protocol::sse::data_event;

/// A client's stream. Dropped, its line is over.
pub(crate) struct SseStream {
    state: Arc<State>,
    line: Arc<SseSession>,
    /// The first event, until it is written.
    first: Option<Bytes>,
    /// Counts the stream until its session does.
    place: Option<Share>,
    session: SessionEvents,
    /// The share of the memory for messages of what was handed to the connection last.
    handed: Vec<Share>,
}

impl SseStream {
    pub(crate) fn new(
        state: Arc<State>,
        line: Arc<SseSession>,
        place: Share,
        news: Subscriber,
        keep_alive_interval: Duration,
    ) -> Self {
        let address = line.id.address(public_path(&line.endpoint.config));
        Self {
            state,
            first: Some(event("endpoint", Bytes::from(address))),
            line,
            place: Some(place),
            session: SessionEvents::new(None, news, keep_alive_interval),
            handed: Vec::new(),
        }
    }

    /// The next piece: whole events.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let has_ended = self.session.register(cx);
        self.handed.clear();
        let mut events = BytesMut::new();
        events.extend(self.first.take());
        if self.session.reader.is_none()
            && let Some(session) = self.line.session()
        {
            // Before the client knows that it has a session.
            self.attach(&session);
        }
        // Nothing can be taken up again here, so that events that only carry an id say nothing.
        let write = |event: SentEvent| {
            if event.data.is_empty() { Bytes::new() } else { message_event(event.data) }
        };
        let is_over = has_ended || self.write_messages(cx, &mut events);
        if self.session.write(cx, is_over, &mut events, write) {
            self.line.close();
            return Poll::Ready((!events.is_empty()).then(|| events.freeze()));
        }
        self.session.piece(cx, events)
    }

    /// Takes what waits on the line. True: it is over.
    fn write_messages(&mut self, cx: &Context<'_>, events: &mut BytesMut) -> bool {
        while events.len() < PIECE_BYTES_MAX {
            match self.line.poll(cx) {
                Poll::Ready(Some(next)) => {
                    events.extend_from_slice(&next.events);
                    self.handed.extend(next.held);
                }
                Poll::Ready(None) => return true,
                Poll::Pending => return false,
            }
        }
        false
    }

    /// From now on what upstreams say in the session comes here.
    fn attach(&mut self, session: &Session) {
        let has_several_upstreams = self.line.endpoint.members.len() > 1;
        let place = Cell::new(self.place.take());
        let owner = session.owner();
        match self.state.sessions.attach(owner, has_several_upstreams, |_| place.take()) {
            Ok((_, reader)) => self.session.reader = Some(reader),
            Err(_) => self.line.close(),
        }
    }
}

impl Drop for SseStream {
    fn drop(&mut self) {
        self.line.close();
    }
}

/// The bytes of a message on the stream.
pub(crate) fn message_event(message: impl Into<Segments>) -> Bytes {
    event("message", message)
}

fn event(name: &str, data: impl Into<Segments>) -> Bytes {
    let data = data_event(data);
    let mut event = BytesMut::with_capacity("event: \n".len() + name.len() + data.len());
    event.extend_from_slice(b"event: ");
    event.extend_from_slice(name.as_bytes());
    event.extend_from_slice(b"\n");
    event.extend_from_slice(&data);
    event.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_messages() {
        assert_eq!(message_event(Bytes::from_static(b"{}")), "event: message\ndata: {}\n\n");
        assert_eq!(message_event(Bytes::from_static(b"{\n}")), "event: message\ndata: {\ndata: }\n\n");
    }
}
