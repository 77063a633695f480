//! The body of a reply while it arrives from an upstream, whatever carries it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::bridge::EventBody;
use super::fresh_id::RestoringBody;
use super::http1::reply::HttpBody;
use super::mux::exchange::MuxBody;
use protocol::error::UpstreamError;

#[derive(Debug)]
pub(crate) enum Incoming {
    /// From a connection of its own, as it comes.
    Http(Box<HttpBody>),
    /// A reply that was complete when it began.
    Whole(Option<Bytes>),
    /// From a process or another connection that many calls share, piece by piece.
    Pieces(Box<MuxBody>),
    /// The reply to a request that was sent again.
    Restored(Box<RestoringBody>),
    /// Server-sent events of the other era, translated as they come.
    Translated(EventBody),
}

impl Default for Incoming {
    fn default() -> Self {
        Self::Whole(None)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reply broke off")]
pub struct BrokenReply;

impl From<BrokenReply> for UpstreamError {
    fn from(_: BrokenReply) -> Self {
        Self::Reset
    }
}

impl Incoming {
    /// What a reply that broke off means.
    pub(crate) fn fault(&self) -> UpstreamError {
        let told = match self {
            Self::Translated(translated) => translated.fault().cloned(),
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
            Self::Pieces(pieces) => {
                pieces.poll_next(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
            Self::Restored(restored) => restored.poll_frame(cx),
            Self::Translated(translated) => translated.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http(body) => body.is_over(),
            Self::Whole(whole) => whole.is_none(),
            Self::Restored(restored) => restored.is_end(),
            Self::Pieces(_) | Self::Translated(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http(body) => body.size_hint(),
            Self::Whole(whole) => SizeHint::with_exact(whole.as_ref().map_or(0, Bytes::len) as u64),
            Self::Pieces(_) | Self::Restored(_) | Self::Translated(_) => SizeHint::default(),
        }
    }
}
