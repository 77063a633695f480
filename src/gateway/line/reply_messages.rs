//! The messages of a reply on their way to another stream than its own: that of a batch, where calls are answered as soon
//! as they are, or that of a client that speaks HTTP+SSE.
//!
//! They go one by one and whole, so that those of different calls do not mix, and a client that does not read holds up all
//! of them. Ids of events are left out: a stream that is put together of several cannot be resumed.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt as _;

use crate::access::limit::payer::Payer;
use crate::access::limit::shares::{Share, Shares};
use crate::line::response::ClientResponse;
use crate::upstream::body::no_memory;
use net::chunks::Chunks;
use protocol::error::{Error, UpstreamError};
use protocol::media::Media;
use protocol::sse::{Event, Events};

/// Shorter messages take nothing from the process's budget.
const UNCOUNTED_BYTES: usize = 8 * 1024;

/// How the messages of a reply are put on another stream.
#[derive(Clone, Copy)]
pub(crate) struct ReplyMessages<'a> {
    /// A JSON reply, or one event.
    pub bytes_max: usize,
    /// What waits is counted against.
    pub budget: &'a Arc<Shares>,
    /// Who is charged for it.
    pub payer: Payer,
    /// The event of a message.
    pub event: fn(Bytes) -> Bytes,
    /// Comments show that the connection is alive, where the stream has none of its own.
    pub keeps_comments: bool,
}

impl ReplyMessages<'_> {
    /// Gives each message to `put`, with its share of the memory.
    pub(crate) async fn forward(
        self,
        response: ClientResponse,
        put: impl AsyncFn(Bytes, Option<Share>),
    ) -> Result<(), Error> {
        let media = response.media;
        let mut body = response.body;
        if media == Media::Sse {
            let mut events = Events::new(self.bytes_max);
            while let Some(frame) = body.frame().await {
                events.push(frame?.into_data().unwrap_or_default());
                while let Some(event) = events.next() {
                    self.put_event(event.map_err(|_| UpstreamError::TooLarge)?, &put).await?;
                }
            }
            if let Some(event) = events.finish() {
                self.put_event(event, &put).await?;
            }
            return Ok(());
        }
        let (mut pieces, mut held) = (Chunks::default(), None);
        while let Some(frame) = body.frame().await {
            let data = frame?.into_data().unwrap_or_default();
            let length = pieces.len() + data.len();
            if length > self.bytes_max {
                return Err(UpstreamError::TooLarge.into());
            }
            self.hold(&mut held, length)?;
            pieces.push(data, 0);
        }
        // A 202 has no message.
        if !pieces.is_empty() {
            put((self.event)(pieces.into_bytes()), held).await;
        }
        Ok(())
    }

    async fn put_event(self, event: Event, put: &impl AsyncFn(Bytes, Option<Share>)) -> Result<(), Error> {
        if let Some(event) = self.without_id(event) {
            let mut held = None;
            self.hold(&mut held, event.len())?;
            put(event, held).await;
        }
        Ok(())
    }

    /// The event without id and `retry`. One that only carries those says nothing.
    fn without_id(self, event: Event) -> Option<Bytes> {
        match event.data {
            Some(data) if !data.is_empty() => Some((self.event)(data)),
            None if self.keeps_comments && event.raw.starts_with(b":") && event.id.is_none() => {
                Some(event.raw)
            }
            _ => None,
        }
    }

    fn hold(self, held: &mut Option<Share>, length: usize) -> Result<(), Error> {
        if length <= UNCOUNTED_BYTES {
            return Ok(());
        }
        held.get_or_insert_with(|| self.budget.open(self.payer)).grow_to(length).map_err(no_memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::sse::data_event;

    #[test]
    fn events_lose_their_ids() {
        let mut events = Events::new(1024);
        events.push(Bytes::from_static(
            b"id: 1\nevent: message\ndata: {}\n\nid: 2\ndata:\n\n: alive\n\nretry: 5\n\ndata: a\ndata: b\n\n",
        ));
        let budget = &Shares::of_bytes(0);
        let payer = Payer::GATEWAY;
        let messages =
            ReplyMessages { bytes_max: 1024, budget, payer, event: data_event, keeps_comments: true };
        let mut written = Vec::new();
        while let Some(event) = events.next() {
            written.extend(messages.without_id(event.unwrap()));
        }
        assert_eq!(written, ["data: {}\n\n", ": alive\n\n", "data: a\ndata: b\n\n"]);
    }
}
