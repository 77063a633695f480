//! The messages in a reply: one JSON body, or the events of a stream.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt as _;
use tokio::time::{sleep, timeout_at};

use super::MESSAGE_BYTES_MAX;
use super::exchange_error::ExchangeError;
use net::http_client::{HttpReply, collect};
use net::jitter::jittered;
use protocol::sse::{Event, Events};

/// A server that asks to be left alone for longer is asked again all the same, and one that asks for no pause gets one.
const RETRY_MAX: Duration = Duration::from_mins(1);
const RETRY_MIN: Duration = Duration::from_millis(50);
/// The pause before a stream is opened again: at first, doubled with every failure, and at most.
const DELAY_MIN: Duration = Duration::from_millis(500);
const DELAY_MAX: Duration = Duration::from_secs(30);
/// A longer id is forgotten: it has to fit into a header.
const EVENT_ID_BYTES_MAX: usize = 4096;

/// The messages of one reply, which may be a stream that goes on in another.
#[derive(Debug)]
pub struct ResponseReader {
    /// The reply they are read from.
    pub reply: HttpReply,
    /// How far they were read.
    pub position: StreamPosition,
    format: Format,
}

enum Format {
    Json,
    Events(Box<Events>),
    Read,
}

impl std::fmt::Debug for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Json => "Json",
            Self::Events(_) => "Events",
            Self::Read => "Read",
        })
    }
}

/// How far a stream was read.
#[derive(Clone, Debug, Default)]
pub struct StreamPosition {
    /// What resumes it.
    pub last_event_id: Option<HeaderValue>,
    /// How long the server wants to be left alone before that.
    pub retry: Option<Duration>,
}

impl ResponseReader {
    /// The messages of a reply that is neither JSON nor a stream are none.
    pub fn of(reply: HttpReply) -> Self {
        Self::behind(StreamPosition::default(), reply)
    }

    /// The messages of a reply that goes on behind `position`.
    pub fn behind(position: StreamPosition, reply: HttpReply) -> Self {
        let format = match media(&reply.head.headers).as_str() {
            "application/json" => Format::Json,
            "text/event-stream" => Format::Events(Box::new(Events::new(MESSAGE_BYTES_MAX))),
            _ => Format::Read,
        };
        Self { reply, position, format }
    }

    /// Whether it is a stream.
    pub fn is_stream(&self) -> bool {
        matches!(self.format, Format::Events(_))
    }

    /// The next message; `None` at the end of the reply. Nothing for `silence_max` is an error, and so is a message that
    /// takes longer than that to arrive. Comments of a stream are signs of life.
    pub async fn next(&mut self, silence_max: Option<Duration>) -> Result<Option<Bytes>, ExchangeError> {
        if matches!(self.format, Format::Json) {
            self.format = Format::Read;
            let deadline = Instant::now() + silence_max.unwrap_or(RETRY_MAX);
            return Ok(Some(collect(&mut self.reply.body, MESSAGE_BYTES_MAX, deadline).await?));
        }
        while let Some(event) = self.next_event(silence_max).await? {
            if let Some(data) = message(event) {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// The next event of a stream, whatever its type; `None` at the end of the reply, or if it is no stream.
    pub(super) async fn next_event(
        &mut self,
        silence_max: Option<Duration>,
    ) -> Result<Option<Event>, ExchangeError> {
        let Format::Events(events) = &mut self.format else { return Ok(None) };
        let mut began = None;
        loop {
            if let Some(event) = events.next() {
                let event = event.map_err(|_| ExchangeError::TooLarge)?;
                self.position.note(&event);
                return Ok(Some(event));
            }
            let now = Instant::now();
            if events.has_begun() {
                began.get_or_insert(now);
            }
            let frame = self.reply.body.frame();
            let frame = match silence_max {
                Some(silence_max) => {
                    let deadline = began.unwrap_or(now) + silence_max;
                    timeout_at(deadline.into(), frame).await.map_err(|_| ExchangeError::TimedOut)?
                }
                None => frame.await,
            };
            match frame {
                Some(Ok(frame)) => events.push(frame.into_data().unwrap_or_default()),
                Some(Err(_)) => return Err(ExchangeError::Reset),
                None => {
                    let last = events.finish();
                    self.format = Format::Read;
                    return Ok(last.inspect(|event| self.position.note(event)));
                }
            }
        }
    }
}

impl StreamPosition {
    /// How long to wait before a stream is opened again that has failed so often in a row: as the server asks, or
    /// longer with every failure.
    pub fn delay(&self, failures: u32) -> Duration {
        let grown = DELAY_MIN.saturating_mul(1 << failures.min(6)).min(DELAY_MAX);
        let delay = match self.retry {
            Some(retry) if failures == 0 => retry,
            Some(retry) => grown.max(retry),
            None => grown,
        };
        jittered(delay, 1.0..1.25)
    }

    /// Opens a stream again that broke off; `None`: the server refuses, or fails so often.
    pub async fn resume(
        &self,
        attempts: u32,
        open: impl AsyncFn(&Self) -> Result<HttpReply, ExchangeError>,
    ) -> Option<HttpReply> {
        for attempt in 0..attempts {
            sleep(self.delay(attempt)).await;
            match open(self).await {
                Ok(reply) if reply.head.status.is_success() => return Some(reply),
                Ok(reply) if reply.head.status.is_client_error() => return None,
                Ok(_) | Err(_) => {}
            }
        }
        None
    }

    fn note(&mut self, event: &Event) {
        if let Some(id) = &event.id {
            let id = Some(id).filter(|id| !id.is_empty() && id.len() <= EVENT_ID_BYTES_MAX);
            self.last_event_id = id.and_then(|id| HeaderValue::from_maybe_shared(id.clone()).ok());
        }
        let retry = event.retry_ms.map(Duration::from_millis);
        self.retry = retry.map(|retry| retry.clamp(RETRY_MIN, RETRY_MAX)).or(self.retry);
    }
}

/// The message of an event; none if it is empty or of another type.
fn message(event: Event) -> Option<Bytes> {
    let is_message = event.event.as_ref().is_none_or(|event| event.is_empty() || event == "message");
    event.data.filter(|data| is_message && !data.trim_ascii().is_empty())
}

fn media(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_say_where_to_go_on() {
        let mut events = Events::new(1024);
        events.push(Bytes::from_static(
            b"id: a\nretry: 250\ndata:\n\nid: b\nretry: soon\nevent: ping\ndata: 1\n\ndata: {\ndata: }\n\nid:\nretry: 900000000\n\nretry: 0\ndata: 2\n\n",
        ));
        let mut position = StreamPosition::default();
        for (id, retry_ms, data) in [
            (Some("a"), 250, None),
            (Some("b"), 250, None),
            (Some("b"), 250, Some("{\n}")),
            (None, 60_000, None),
            (None, 50, Some("2")),
        ] {
            let event = events.next().unwrap().unwrap();
            position.note(&event);
            let last_event_id = position.last_event_id.as_ref().map(|id| id.to_str().unwrap());
            assert_eq!((last_event_id, position.retry), (id, Some(Duration::from_millis(retry_ms))));
            assert_eq!(message(event).as_deref(), data.map(str::as_bytes));
        }
    }
}
