//! The body of a reply while it arrives from an upstream, whatever carries it.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::broken_reply::BrokenReply;
use super::fresh_id::RestoringBody;
use super::http1::reply::HttpBody;
use super::messages::{MessageStream, ReplyPart};
use protocol::error::UpstreamError;

#[derive(Debug)]
pub(crate) enum Incoming {
    /// From a connection of its own, as it comes.
    Http(Box<HttpBody>),
    /// A reply that was complete when it began.
    Whole(Option<Bytes>),
    /// The reply to a request that was sent again.
    Restored(Box<RestoringBody>),
    /// No bytes, but messages.
    Messages(Box<MessageStream>),
}

impl Default for Incoming {
    fn default() -> Self {
        Self::Whole(None)
    }
}

/// What comes of a body at once.
pub(crate) enum IncomingPiece {
    /// Bytes of it, of whatever length.
    Bytes(Bytes),
    Part(ReplyPart),
}

impl Incoming {
    /// The next piece; `None` at the end. Whoever can take messages as they are reads by this.
    pub(crate) fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<IncomingPiece, BrokenReply>>> {
        if let Self::Messages(messages) = self {
            return messages.poll_next(cx).map(|part| part.map(|part| part.map(IncomingPiece::Part)));
        }
        let frame = ready!(Pin::new(self).poll_frame(cx));
        Poll::Ready(
            frame.map(|frame| frame.map(|frame| IncomingPiece::Bytes(frame.into_data().unwrap_or_default()))),
        )
    }

    /// As [`poll_piece`](Self::poll_piece).
    pub(crate) async fn piece(&mut self) -> Option<Result<IncomingPiece, BrokenReply>> {
        poll_fn(|cx| self.poll_piece(cx)).await
    }

    /// What a reply that broke off means.
    pub(crate) fn fault(&self) -> UpstreamError {
        let told = match self {
            Self::Messages(messages) => messages.fault().cloned(),
            _ => None,
        };
        told.unwrap_or(UpstreamError::Reset)
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = BrokenReply;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenReply>>> {
        match &mut *self {
            Self::Http(body) => {
                body.poll_data(cx).map(|data| data.map(|data| data.map(Frame::data).map_err(|_| BrokenReply)))
            }
            Self::Whole(whole) => Poll::Ready(whole.take().map(|whole| Ok(Frame::data(whole)))),
            Self::Restored(restored) => restored.poll_frame(cx),
            Self::Messages(messages) => messages
                .poll_next(cx)
                .map(|part| part.map(|part| part.map(|part| Frame::data(part.into_event().bytes())))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http(body) => body.is_over(),
            Self::Whole(whole) => whole.is_none(),
            Self::Restored(restored) => restored.is_end(),
            Self::Messages(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http(body) => body.size_hint(),
            Self::Whole(whole) => SizeHint::with_exact(whole.as_ref().map_or(0, Bytes::len) as u64),
            Self::Messages(_) | Self::Restored(_) => SizeHint::default(),
        }
    }
}
