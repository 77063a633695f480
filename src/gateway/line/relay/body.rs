//! The body of a response to a client: complete, or still arriving.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::client_attachment::ClientAttachment;
use super::credential_watch::CredentialWatch;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Share;
use crate::context::call::Call;
use crate::context::state::State;
use protocol::error::UpstreamError;
use protocol::splice::Segments;

/// Large bodies are handed to the connection in pieces, so that it notices when the client does not read. A cached list of
/// hundreds of tools still is one piece: it goes out in one write.
pub(super) const PIECE_BYTES_MAX: usize = 256 * 1024;
/// A reply that is no longer is taken by the socket's buffer of a client that reads.
const SENT_AT_ONCE_BYTES_MAX: u64 = 64 * 1024;

/// What lives as long as a complete body is not yet with its client.
#[derive(Debug, Default)]
pub(crate) struct BodyGuard {
    /// Its share of the memory for messages: held, not read.
    _reservation: Option<Share>,
    call: Option<Box<Call>>,
}

pub(crate) enum ReplyBody {
    /// Complete, with what is counted of it while it waits for the client.
    Whole(Segments, BodyGuard),
    Stream(ClientAttachment),
    /// Events of the gateway's own making, as they come.
    Events(Box<OwnEvents>),
    /// The rest of a reply whose head the client was given before there was one.
    Late(Box<PollLate>),
}

/// What a stream of the gateway's own is to the call that opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventsKind {
    /// Its answer. Answers are not cut by the end of credentials: they end by themselves.
    Answer,
    /// Its answer, for as long as the client's credentials are valid at most.
    Subscription,
    /// What comes after its answer, whichever side ends it; likewise.
    Session,
}

/// The next whole events, as a stream has them.
type PollEvents = dyn FnMut(&mut Context<'_>) -> Poll<Option<Bytes>>;

/// The next bytes of a reply, and in silence a sign of life.
type PollLate = dyn FnMut(&mut Context<'_>) -> Poll<Option<Result<Bytes, UpstreamError>>>;

/// A stream that is open until one side ends it.
pub(crate) struct OwnEvents {
    kind: EventsKind,
    poll: Box<PollEvents>,
    call: Option<Call>,
    /// The credentials that it ends with.
    credentials: Option<Box<CredentialWatch>>,
}

impl OwnEvents {
    fn carry(&mut self, mut call: Call) {
        if self.kind == EventsKind::Session {
            call.finish();
        }
        self.call = Some(call);
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.credentials.as_mut().is_some_and(|credentials| credentials.have_ended(cx)) {
            return Poll::Ready(None);
        }
        let events = (self.poll)(cx);
        if let (Poll::Ready(None), Some(call)) = (&events, &mut self.call) {
            call.finish();
        }
        events
    }
}

impl ReplyBody {
    pub(super) fn events(
        kind: EventsKind,
        poll: impl FnMut(&mut Context<'_>) -> Poll<Option<Bytes>> + 'static,
    ) -> Self {
        Self::Events(Box::new(OwnEvents { kind, poll: Box::new(poll), call: None, credentials: None }))
    }

    pub(crate) fn empty() -> Self {
        Self::Whole(Segments::from(Bytes::new()), BodyGuard::default())
    }

    /// Tells the call of a reply that is as good as sent that it is over, because the socket's buffer takes it. False: the
    /// reply is longer, or not over.
    pub(crate) fn finish(&self, call: &mut Call) -> bool {
        let Self::Whole(segments, _) = self else { return false };
        call.finish();
        call.reply_bytes = segments.len();
        segments.len() <= SENT_AT_ONCE_BYTES_MAX
    }

    /// Ends what would stay open after the credentials of this call. Answers to calls are not cut: they end by themselves.
    pub(crate) fn end_with_credentials(&mut self, call: &Call, state: &Arc<State>) {
        if let Self::Events(events) = self
            && events.kind != EventsKind::Answer
        {
            events.credentials = CredentialWatch::start(call, state);
        }
    }

    /// Ties the call to the end of its reply.
    pub(crate) fn carry(&mut self, mut call: Call) {
        match self {
            Self::Whole(..) if self.finish(&mut call) => {}
            Self::Whole(_, held) => held.call = Some(Box::new(call)),
            Self::Stream(stream) => stream.carry(call),
            Self::Events(events) => events.carry(call),
            // The reply that follows has it.
            Self::Late(_) => {}
        }
    }

    /// The call whose reply this is, as long as it is not over.
    fn call(&mut self) -> Option<&mut Call> {
        match self {
            // It knows how long it is.
            // The reply that follows does, too.
            Self::Whole(..) | Self::Late(_) => None,
            Self::Stream(stream) => stream.call(),
            Self::Events(events) => events.call.as_mut(),
        }
    }

    /// Who is charged for what is held of it while it is still to come.
    pub(crate) fn payer(&mut self) -> Option<Payer> {
        self.call().map(|call| call.payer())
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        match self {
            Self::Whole(segments, _) => {
                Poll::Ready(segments.pop_at_most(PIECE_BYTES_MAX).map(|piece| Ok(Frame::data(piece))))
            }
            Self::Stream(stream) => stream.poll(cx).map(|data| data.map(|data| data.map(Frame::data))),
            Self::Events(events) => {
                events.poll(cx).map(|events| events.map(|events| Ok(Frame::data(events))))
            }
            Self::Late(poll) => poll(cx).map(|data| data.map(|data| data.map(Frame::data))),
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
            Self::Stream(_) | Self::Events(_) | Self::Late(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(segments, _) => SizeHint::with_exact(segments.len()),
            Self::Stream(stream) => stream.size_hint(),
            Self::Events(_) | Self::Late(_) => SizeHint::default(),
        }
    }
}

impl BodyGuard {
    pub(crate) fn new(reservation: Share) -> Self {
        Self { _reservation: Some(reservation), call: None }
    }
}
