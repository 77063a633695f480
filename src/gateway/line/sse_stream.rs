//! A client's stream: the body of the response to its GET.
//!
//! Nothing runs for it. The connection polls it, and whoever has a message wakes the connection.

use std::cell::Cell;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio::time::{Sleep, sleep_until};

use crate::access::limit::byte_budget::Reservation;
use crate::catalog::subscriptions::session::ListNews;
use crate::context::call::Call;
use crate::context::state::State;
use crate::session::Session;
use crate::session::outbox::{NotAttached, ReaderGuard};
use crate::session::streams::StreamPlace;
use crate::tables::sse_sessions::public_path;
use crate::tables::sse_sessions::session::SseSession;
use protocol::splice::Segments;
use protocol::sse::data_event;
use protocol::subscription::session_list_changed;

/// A server-sent comment and the end of its event.
const KEEP_ALIVE: Bytes = Bytes::from_static(b":\n\n");
/// Messages are handed to the connection together up to here, and then not before it has written them.
const PIECE_BYTES_MAX: usize = 64 * 1024;
/// How often it is tried to attach the stream while the state of its session is dropped and made anew.
const ATTEMPTS_MAX: usize = 3;

/// A client's stream. Dropped, its line is over.
pub(crate) struct SseStream {
    state: Arc<State>,
    line: Arc<SseSession>,
    /// The first event, until it is written.
    first: Option<Bytes>,
    /// Counts the stream until its session does.
    place: Option<StreamPlace>,
    /// What upstreams say in the session, once it is open.
    ticket: Option<ReaderGuard>,
    news: ListNews,
    /// The end of our silence.
    clock: Pin<Box<Sleep>>,
    keep_alive_interval: Duration,
    /// The share of the memory for messages of what was handed to the connection last.
    handed: Vec<Reservation>,
    call: Option<Box<Call>>,
}

impl SseStream {
    pub(crate) fn new(
        state: Arc<State>,
        line: Arc<SseSession>,
        place: StreamPlace,
        news: ListNews,
        keep_alive_interval: Duration,
    ) -> Box<Self> {
        let address = line.id.address(public_path(&line.endpoint.config));
        Box::new(Self {
            state,
            first: Some(event("endpoint", Bytes::from(address))),
            line,
            place: Some(place),
            ticket: None,
            news,
            clock: Box::pin(sleep_until((Instant::now() + keep_alive_interval).into())),
            keep_alive_interval,
            handed: Vec::new(),
            call: None,
        })
    }

    /// The call it answers.
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
        self.news.register(cx.waker());
        self.handed.clear();
        let mut events = BytesMut::new();
        events.extend(self.first.take());
        if self.ticket.is_none()
            && let Some(session) = self.line.session()
        {
            // Before the client knows that it has a session.
            self.attach(&session);
        }
        let mut is_over = self.news.has_ended() || self.write_messages(cx, &mut events);
        if let Some(ticket) = &self.ticket {
            for index in self.news.take().indexes() {
                events.extend_from_slice(&message_event(Bytes::from(session_list_changed(index))));
            }
            while !is_over && events.len() < PIECE_BYTES_MAX {
                match ticket.poll(cx) {
                    // Nothing can be taken up again here, so that events that only carry an id say nothing.
                    Poll::Ready(Some(handed)) if handed.data.is_empty() => {}
                    Poll::Ready(Some(handed)) => events.extend_from_slice(&message_event(handed.data)),
                    Poll::Ready(None) => is_over = true,
                    Poll::Pending => break,
                }
            }
        }
        if is_over {
            self.line.close();
            return Poll::Ready((!events.is_empty()).then(|| events.freeze()));
        }
        if events.is_empty() {
            ready!(self.clock.as_mut().poll(cx));
            events.extend_from_slice(&KEEP_ALIVE);
        }
        self.clock.as_mut().reset((Instant::now() + self.keep_alive_interval).into());
        Poll::Ready(Some(events.freeze()))
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
        let grant = &session.grant;
        let has_several_upstreams = self.line.endpoint.members.len() > 1;
        let place = Cell::new(self.place.take());
        for _ in 0..ATTEMPTS_MAX {
            let Ok(desk) = self.state.sessions.desk(grant.owner()) else { break };
            match desk.attach(has_several_upstreams, |_| place.take()) {
                Ok(ticket) => {
                    self.ticket = Some(ticket);
                    return;
                }
                // Its state was dropped just now, and is made anew.
                Err(NotAttached::Closed) => {}
                Err(NotAttached::TooMany) => break,
            }
        }
        self.line.close();
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
