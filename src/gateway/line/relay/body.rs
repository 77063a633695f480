//! The body of a response to a client: complete, or still arriving.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use tokio::time::{Sleep, sleep_until};

use super::client_attachment::ClientAttachment;
use crate::access::limit::byte_budget::Reservation;
use crate::catalog::subscriptions::client::ClientSubscription;
use crate::context::call::Call;
use crate::line::batch::Batch;
use crate::line::legacy::client_stream::ClientStream;
use crate::line::sse_stream;
use protocol::error::UpstreamError;
use protocol::splice::Segments;

/// Large bodies are handed to the connection in pieces, so that it notices when the client does not read.
pub(super) const FRAME_BYTES_MAX: usize = 64 * 1024;

/// What lives as long as a complete body is not yet with its client.
#[derive(Debug, Default)]
pub(crate) struct BodyGuard {
    /// Its share of the memory for messages: held, not read.
    _reservation: Option<Reservation>,
    call: Option<Box<Call>>,
}

pub(crate) enum ReplyBody {
    /// Complete, with what is counted of it while it waits for the client.
    Whole(Segments, BodyGuard),
    Stream(ClientAttachment),
    /// Open until one side ends it.
    Subscription(Box<ClientSubscription>),
    Line(Box<sse_stream::SseStream>),
    Batch(Box<Batch>),
    Session(Box<ClientStream>),
    /// One of these streams, which ends with the credentials of its client at the latest.
    Ending(Box<(Self, Pin<Box<Sleep>>)>),
}

impl ReplyBody {
    pub(crate) fn empty() -> Self {
        Self::Whole(Segments::from(Bytes::new()), BodyGuard::default())
    }

    /// Ties the call to the end of its reply.
    pub(crate) fn carry(&mut self, mut call: Call) {
        match self {
            Self::Whole(segments, held) => {
                call.finish();
                call.reply_bytes = segments.len();
                // What fits the socket's buffer is as good as sent.
                if segments.len() > FRAME_BYTES_MAX as u64 {
                    held.call = Some(Box::new(call));
                }
            }
            Self::Stream(stream) => stream.carry(call),
            Self::Subscription(subscription) => subscription.carry(call),
            Self::Line(stream) => stream.carry(call),
            Self::Batch(batch) => batch.carry(call),
            Self::Session(stream) => stream.carry(call),
            Self::Ending(stream) => stream.0.carry(call),
        }
    }

    /// The call whose reply this is, as long as it is not over.
    fn call(&mut self) -> Option<&mut Call> {
        match self {
            // It knows how long it is.
            Self::Whole(..) => None,
            Self::Stream(stream) => stream.call(),
            Self::Subscription(subscription) => subscription.call(),
            Self::Line(stream) => stream.call(),
            Self::Batch(batch) => batch.call(),
            Self::Session(stream) => stream.call(),
            Self::Ending(stream) => stream.0.call(),
        }
    }

    /// Ends what would stay open after `ends`. Answers to calls are not cut: they end by themselves.
    pub(crate) fn end_with(&mut self, ends: Option<Instant>) {
        let Some(ends) = ends else { return };
        if matches!(self, Self::Subscription(_) | Self::Line(_) | Self::Session(_)) {
            let stream = std::mem::replace(self, Self::empty());
            *self = Self::Ending(Box::new((stream, Box::pin(sleep_until(ends.into())))));
        }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        match self {
            Self::Whole(segments, _) => {
                Poll::Ready(segments.pop_at_most(FRAME_BYTES_MAX).map(|piece| Ok(Frame::data(piece))))
            }
            Self::Stream(stream) => stream.poll(cx).map(|data| data.map(|data| data.map(Frame::data))),
            Self::Subscription(subscription) => {
                subscription.poll(cx).map(|events| events.map(|events| Ok(Frame::data(events))))
            }
            Self::Line(stream) => stream.poll(cx).map(|events| events.map(|events| Ok(Frame::data(events)))),
            Self::Batch(batch) => batch.poll(cx).map(|event| event.map(|event| Ok(Frame::data(event)))),
            Self::Session(stream) => {
                stream.poll(cx).map(|events| events.map(|events| Ok(Frame::data(events))))
            }
            Self::Ending(ending) => {
                if ending.1.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(None);
                }
                ending.0.poll_piece(cx)
            }
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = UpstreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        let polled = self.poll_piece(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let (Some(data), Some(call)) = (frame.data_ref(), self.call())
        {
            call.reply_bytes += data.len() as u64;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(segments, _) => segments.is_empty(),
            Self::Stream(_)
            | Self::Subscription(_)
            | Self::Session(_)
            | Self::Line(_)
            | Self::Batch(_)
            | Self::Ending(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(segments, _) => SizeHint::with_exact(segments.len()),
            Self::Stream(stream) => stream.size_hint(),
            Self::Subscription(_) | Self::Session(_) | Self::Line(_) | Self::Batch(_) | Self::Ending(_) => {
                SizeHint::default()
            }
        }
    }
}

impl BodyGuard {
    pub(crate) fn new(reservation: Reservation) -> Self {
        Self { _reservation: Some(reservation), call: None }
    }
}
