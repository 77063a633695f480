//! How far a stream of a legacy server was read, and when it is asked for again.
//!
//! A server may end a stream whenever it likes, and is asked for what follows (2025-11-25 Transports, "Resumability and
//! Redelivery"). Whatever it says on one shows that it is well, and so does a stream that lives for a while; before one
//! that fails again and again, the pauses grow. They grow as well, only later, where streams bring events without end and
//! never a message.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::session_client::SessionClient;
use crate::clock;
use crate::upstream::exchange::Reply;
use crate::upstream::get_stream;
use protocol::sse::Event;

/// When a stream is opened again, unless the server says.
const RETRY: Duration = Duration::from_secs(1);
/// The longest pause before one that fails, unless the server wants a longer one.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A stream that lived this long shows that the server is well.
const STEADY_AFTER: Duration = Duration::from_secs(30);
/// How often in a row the rest of a reply is asked for while no message comes of it.
const QUIET_MAX: u32 = 100;
/// So often a server that wants to be asked again and again is asked as soon as it wants.
const QUIET_AT_ONCE: u32 = 30;

/// Where a stream stands.
#[derive(Clone, Debug)]
pub(crate) struct StreamProgress {
    /// The id of the last event, if it can be asked for what came after it.
    after: Option<Bytes>,
    retry: Duration,
    /// How often in a row not even an event came of it.
    fruitless: u32,
    /// How often in a row no message came of it.
    quiet: u32,
    since: Option<Instant>,
    was_open: bool,
}

/// What came of asking for a stream.
#[derive(Debug)]
pub(crate) enum ResumeResult {
    /// The stream is open.
    Stream(Box<Reply>),
    /// The server knows the session, but not the event to go on after.
    UnknownEvent,
    /// There is none to be had.
    Refused,
    /// There is none now.
    Failed,
}

impl Default for StreamProgress {
    fn default() -> Self {
        Self { after: None, retry: RETRY, fruitless: 0, quiet: 0, since: None, was_open: false }
    }
}

impl StreamProgress {
    /// Asks for the stream of a session from here on.
    pub(crate) async fn open(&self, server: &SessionClient) -> ResumeResult {
        let (upstream, session) = (server.upstream(), server.session.named());
        match get_stream::open(&server.client, &upstream, session, self.after.as_ref()).await {
            get_stream::GetResult::Stream(reply) => ResumeResult::Stream(reply),
            get_stream::GetResult::Refused => ResumeResult::Refused,
            get_stream::GetResult::Failed(error) => {
                tracing::debug!(upstream = upstream.config.name, ?error, "a stream cannot be opened");
                ResumeResult::Failed
            }
            get_stream::GetResult::Doubtful => match server.is_known().await {
                // If the session is gone, the next call finds out.
                Some(false) => ResumeResult::Refused,
                Some(true) if self.after.is_some() => ResumeResult::UnknownEvent,
                Some(true) if !self.was_open => ResumeResult::Refused,
                // Nothing says that there is one.
                None if !self.was_open && self.after.is_none() => ResumeResult::Refused,
                _ => ResumeResult::Failed,
            },
        }
    }

    /// A stream stands.
    pub(crate) fn stand(&mut self) {
        self.since = Some(clock::now());
        self.was_open = true;
    }

    /// Goes on by an event. Returns its message, if there is one.
    pub(crate) fn take(&mut self, event: Event) -> Option<Bytes> {
        self.fruitless = 0;
        self.retry = get_stream::retry(&event).unwrap_or(self.retry);
        // An empty id takes the one before back.
        if let Some(id) = get_stream::id(&event) {
            self.after = Some(id).filter(|id| !id.is_empty());
        }
        let message = get_stream::nonempty_message(event);
        if message.is_some() {
            self.quiet = 0;
        }
        message
    }

    /// What came after the last event cannot be had, but what comes from now on can.
    pub(crate) fn forget(&mut self) {
        self.after = None;
    }

    /// The stream ended, or there was none. How long to wait before the next.
    pub(crate) fn pause(&mut self) -> Duration {
        self.end();
        let quiet =
            self.quiet.checked_sub(QUIET_AT_ONCE).map_or(self.retry, |quiet| self.grown(RETRY, quiet));
        let pause = self.grown(self.retry, self.fruitless).max(quiet);
        self.fruitless = self.fruitless.saturating_add(1);
        self.quiet = self.quiet.saturating_add(1);
        pause
    }

    /// As [`pause`](Self::pause), where only the rest of a reply is of use. `None`: it is not to be had.
    pub(crate) fn pause_before_rest(&mut self) -> Option<Duration> {
        self.end();
        if self.after.is_none() || self.quiet >= QUIET_MAX {
            return None;
        }
        self.quiet += 1;
        Some(if self.quiet > QUIET_AT_ONCE { self.retry.max(RETRY) } else { self.retry })
    }

    /// `first`, doubled so many times, and never less than the server wants.
    fn grown(&self, first: Duration, times: u32) -> Duration {
        first.saturating_mul(1 << times.min(16)).min(PAUSE_MAX).max(self.retry)
    }

    fn end(&mut self) {
        if self.since.take().is_some_and(|since| clock::since(since) >= STEADY_AFTER) {
            (self.fruitless, self.quiet) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::sse::Events;

    fn read(position: &mut StreamProgress, text: &'static str) {
        let mut events = Events::new(1024);
        events.push(Bytes::from_static(text.as_bytes()));
        while let Some(event) = events.next() {
            position.take(event.expect("a short event"));
        }
    }

    #[test]
    fn pauses_grow_until_the_server_says_something() {
        let mut position = StreamProgress::default();
        let pauses = |position: &mut StreamProgress| [(); 7].map(|()| position.pause().as_secs());
        assert_eq!(pauses(&mut position), [1, 2, 4, 8, 16, 30, 30]);
        read(&mut position, ":\n\n");
        assert_eq!(position.pause(), RETRY);
        read(&mut position, "retry: 60000\n\n");
        assert_eq!(pauses(&mut position), [60; 7], "no sooner than the server wants");
        read(&mut position, "retry: 1000\n\n");
        for (since, seconds) in [(clock::now().checked_sub(STEADY_AFTER), 1), (Some(clock::now()), 2)] {
            position.since = since;
            assert_eq!(position.pause().as_secs(), seconds);
        }
    }

    #[test]
    fn pauses_grow_as_well_where_events_bring_nothing() {
        let mut position = StreamProgress::default();
        let pauses = |position: &mut StreamProgress, times: u32| {
            let pause = |_| {
                read(position, "retry: 10\n: here\n\n");
                position.pause().as_millis()
            };
            (0..times).map(pause).collect::<Vec<_>>()
        };
        assert_eq!(pauses(&mut position, QUIET_AT_ONCE), [10; QUIET_AT_ONCE as usize]);
        assert_eq!(pauses(&mut position, 6), [1000, 2000, 4000, 8000, 16_000, 30_000]);
        read(&mut position, "data: {}\n\n");
        assert_eq!(pauses(&mut position, 1), [10]);
        // One that wanted to be asked soon, and fails.
        assert_eq!((0..16).map(|_| position.pause()).max(), Some(PAUSE_MAX));
    }

    #[test]
    fn the_rest_of_a_reply_is_asked_for_while_there_is_hope() {
        let mut position = StreamProgress::default();
        assert_eq!(position.pause_before_rest(), None, "nobody can say where it stopped");
        read(&mut position, "id: e1\nretry: 20\ndata:\n\n");
        for number in 0..QUIET_MAX {
            let pause = if number < QUIET_AT_ONCE { Duration::from_millis(20) } else { RETRY };
            assert_eq!(position.pause_before_rest(), Some(pause));
            read(&mut position, "id: e2\ndata:\n\n");
        }
        assert_eq!(position.pause_before_rest(), None);
        read(&mut position, "data: {}\n\n");
        assert_eq!(position.pause_before_rest(), Some(Duration::from_millis(20)));
        read(&mut position, "id:\n\n");
        assert_eq!(position.pause_before_rest(), None, "the id was taken back");
    }
}
