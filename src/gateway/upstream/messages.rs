//! A reply that consists of messages: what child processes, HTTP+SSE and the bridge give in place of the bytes of a body.
//!
//! Whoever hands it on frames it, once and as its client wants it. Deliberately not here: what the messages mean.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::{LocalBoxStream, StreamExt as _};

use super::broken_reply::BrokenReply;
use super::exchange::Reply;
use super::incoming::Incoming;
use super::mux::exchange::MuxMessages;
use protocol::error::UpstreamError;
use protocol::sse::Event;

/// What comes of such a reply at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReplyPart {
    /// One message, whole.
    Message(Bytes),
    /// The server is there, and says nothing.
    KeepAlive,
}

/// Messages that come one after the other.
pub(crate) struct MessageStream {
    source: MessageSource,
    fault: Option<UpstreamError>,
}

enum MessageSource {
    /// Of a connection that many calls share.
    Mux(MuxMessages),
    /// Of the bridge: they are made while they are read.
    Bridge(LocalBoxStream<'static, Result<ReplyPart, UpstreamError>>),
}

impl ReplyPart {
    /// How many bytes its message has.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Message(message) => message.len(),
            Self::KeepAlive => 0,
        }
    }

    /// The event that carries it.
    pub(crate) fn into_event(self) -> Event {
        match self {
            Self::Message(message) => Event::of(message),
            Self::KeepAlive => Event::comment(),
        }
    }
}

impl MessageStream {
    /// The reply that consists of these messages. An error is its end.
    pub(crate) fn reply(messages: impl Stream<Item = Result<ReplyPart, UpstreamError>> + 'static) -> Reply {
        Self::of(MessageSource::Bridge(messages.boxed_local()))
    }

    /// The reply that a connection gives which many calls share.
    pub(crate) fn reply_of_mux(messages: MuxMessages) -> Reply {
        Self::of(MessageSource::Mux(messages))
    }

    fn of(source: MessageSource) -> Reply {
        Reply::events(Incoming::Messages(Box::new(Self { source, fault: None })))
    }

    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<ReplyPart, BrokenReply>>> {
        let part = match &mut self.source {
            MessageSource::Mux(messages) => {
                let message = ready!(messages.poll_next(cx));
                if let Some(Err(BrokenReply)) = &message {
                    self.fault = Some(messages.fault());
                }
                return Poll::Ready(message.map(|message| message.map(ReplyPart::Message)));
            }
            MessageSource::Bridge(messages) => ready!(messages.as_mut().poll_next(cx)),
        };
        Poll::Ready(part.map(|part| {
            part.map_err(|error| {
                self.fault = Some(error);
                BrokenReply
            })
        }))
    }

    /// Why it broke off, once it has.
    pub(crate) fn fault(&self) -> Option<&UpstreamError> {
        self.fault.as_ref()
    }
}

impl std::fmt::Debug for MessageStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageStream").finish_non_exhaustive()
    }
}
