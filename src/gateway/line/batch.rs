//! The answer to a batch: one stream on which each of its calls is answered as soon as it is.
//!
//! Every call is a task that writes whole events into one bounded queue, so that events of different calls do not
//! mix and a client that does not read holds up all of them. Ids of events are left out: a stream that is put
//! together of several cannot be resumed.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt as _;
use tokio::sync::mpsc;

use crate::access::limit::byte_budget::{ByteBudget, Reservation};
use crate::context::call::Call;
use crate::line::relay::ReplyBody;
use net::chunks::Chunks;
use protocol::error::{Error, GatewayError, UpstreamError};
use protocol::json::Span;
use protocol::json::{Kind, Value};
use protocol::media::Media;
use protocol::media::media_of;
use protocol::sse::{Event, Events, data_event};
use protocol::version::Era;

pub(crate) const MESSAGES_MAX: usize = 50;
/// Events that wait for the client.
pub(crate) const EVENTS_MAX: usize = 16;

/// Shorter ones take nothing from the process's budget.
const UNCOUNTED_BYTES: usize = 8 * 1024;

#[derive(Debug)]
pub(crate) struct BufferedEvents {
    events: Bytes,
    _held: Option<Reservation>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchBounds<'a> {
    /// A JSON reply, or one event.
    pub bytes_max: usize,
    pub budget: &'a Arc<ByteBudget>,
}

#[derive(Debug)]
pub(crate) struct Batch {
    events: mpsc::Receiver<BufferedEvents>,
    call: Option<Call>,
}

impl Batch {
    /// It ends when all senders are gone, whose receiver is `events`.
    pub(crate) fn new(events: mpsc::Receiver<BufferedEvents>) -> Self {
        Self { events, call: None }
    }

    pub(crate) fn carry(&mut self, call: Call) {
        self.call = Some(call);
    }

    pub(crate) fn call(&mut self) -> Option<&mut Call> {
        self.call.as_mut()
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let event = self.events.poll_recv(cx);
        if let Poll::Ready(None) = event
            && let Some(mut call) = self.call.take()
        {
            call.finish();
        }
        event.map(|waiting| waiting.map(|waiting| waiting.events))
    }
}

pub(crate) fn is_batch(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'[')
}

/// Where the messages of a batch stand, or why it is none. `initialize` cannot be part of one (2025-03-26,
/// "Lifecycle").
pub(crate) fn messages(root: Value<'_>) -> Result<Vec<Span>, &'static str> {
    let text = root.text();
    let is_initialize = |message: Value<'_>| {
        let method = message.entries().filter(|(key, _)| key.equals(text, "method"));
        let mut named = method.filter_map(|(_, method)| method.as_literal());
        message.kind() == Kind::Object && named.any(|method| method.equals(text, "initialize"))
    };
    let mut spans = Vec::new();
    for message in root.items() {
        if spans.len() == MESSAGES_MAX {
            return Err("a batch holds at most 50 messages");
        }
        if is_initialize(message) {
            return Err("initialize must not be part of a batch");
        }
        spans.push(message.span());
    }
    if spans.is_empty() { Err("a batch must not be empty") } else { Ok(spans) }
}

/// Writes the reply to the call with this id as events, until it ends or nobody is there to read it.
pub(crate) async fn write(
    response: Response<ReplyBody>,
    id: Option<&str>,
    bounds: BatchBounds<'_>,
    to: &mpsc::Sender<BufferedEvents>,
) {
    let media = media_of(response.headers());
    let body = response.into_body();
    let written = match media {
        Media::Sse => write_events(body, bounds, to).await,
        _ => write_whole(body, bounds, to).await,
    };
    if let Err(error) = written {
        put(data_event(Bytes::from(error.body(id, Era::Legacy))), None, to).await;
    }
}

async fn write_whole(
    mut body: ReplyBody,
    bounds: BatchBounds<'_>,
    to: &mpsc::Sender<BufferedEvents>,
) -> Result<(), Error> {
    let mut pieces = Chunks::default();
    let mut held = None;
    while let Some(frame) = body.frame().await {
        let data = frame?.into_data().unwrap_or_default();
        let length = pieces.len() + data.len();
        if length > bounds.bytes_max {
            return Err(UpstreamError::TooLarge.into());
        }
        bounds.hold(&mut held, length)?;
        pieces.push(data, 0);
    }
    if !pieces.is_empty() {
        put(data_event(pieces.into_bytes()), held, to).await;
    }
    Ok(())
}

async fn write_events(
    mut body: ReplyBody,
    bounds: BatchBounds<'_>,
    to: &mpsc::Sender<BufferedEvents>,
) -> Result<(), Error> {
    let mut events = Events::new(bounds.bytes_max);
    while let Some(frame) = body.frame().await {
        events.push(frame?.into_data().unwrap_or_default());
        while let Some(event) = events.next() {
            let event = event.map_err(|_| UpstreamError::TooLarge)?;
            if let Some(event) = without_id(event) {
                let mut held = None;
                bounds.hold(&mut held, event.len())?;
                put(event, held, to).await;
            }
        }
    }
    if let Some(event) = events.finish().and_then(without_id) {
        put(event, None, to).await;
    }
    Ok(())
}

async fn put(events: Bytes, held: Option<Reservation>, to: &mpsc::Sender<BufferedEvents>) {
    // A client that has left needs no answer.
    let _ = to.send(BufferedEvents { events, _held: held }).await;
}

impl BatchBounds<'_> {
    fn hold(self, held: &mut Option<Reservation>, length: usize) -> Result<(), GatewayError> {
        let is_held = length <= UNCOUNTED_BYTES
            || held.get_or_insert_with(|| self.budget.reservation()).grow_to(length);
        if is_held { Ok(()) } else { Err(GatewayError::Buffers) }
    }
}

/// The event without id and `retry`. Of one without data only comments are worth keeping: they show that the
/// connection is alive.
fn without_id(event: Event) -> Option<Bytes> {
    match event.data {
        Some(data) if !data.is_empty() => Some(data_event(data)),
        None if event.raw.starts_with(b":") && event.id.is_none() => Some(event.raw),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::json::Scratch;

    #[test]
    fn a_batch_comes_apart() {
        let many = format!("[{}]", ["1"; 51].join(","));
        for (text, expected) in [
            (r#"[{"method":"a"}, 3 ,[]]"#, Ok(vec![r#"{"method":"a"}"#, "3", "[]"])),
            ("[ ]", Err("empty")),
            (&many, Err("50")),
            (r#"[1,{"id":1,"method":"initialize"}]"#, Err("initialize")),
            (r#"[{"method":"a","m\u0065thod":"init\u0069alize"}]"#, Err("initialize")),
        ] {
            let mut scratch = Scratch::default();
            let document = scratch.index(text.as_bytes(), 8).unwrap();
            match (messages(document.root()), expected) {
                (Ok(spans), Ok(expected)) => {
                    let found: Vec<&str> = spans.into_iter().map(|span| &text[span]).collect();
                    assert_eq!(found, expected);
                }
                (Err(why), Err(word)) => assert!(why.contains(word), "{why}"),
                (found, expected) => panic!("{text}: {found:?}, not {expected:?}"),
            }
        }
        assert!(is_batch(b" \n[1]") && !is_batch(b"{}") && !is_batch(b""));
    }

    #[test]
    fn events_lose_their_ids() {
        let mut events = Events::new(1024);
        events.push(Bytes::from_static(
            b"id: 1\nevent: message\ndata: {}\n\nid: 2\ndata:\n\n: alive\n\nretry: 5\n\ndata: a\ndata: b\n\n",
        ));
        let mut written = Vec::new();
        while let Some(event) = events.next() {
            written.extend(without_id(event.unwrap()));
        }
        assert_eq!(written, ["data: {}\n\n", ": alive\n\n", "data: a\ndata: b\n\n"]);
    }
}
