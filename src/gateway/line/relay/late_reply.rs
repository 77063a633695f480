//! A reply that begins before there is one: its client has heard nothing for long, and whoever is between would cut the
//! connection.
//!
//! A client is given the head of a JSON reply and then a blank at times, which JSON allows before a value, so that the
//! reply follows as it is. One that waits for events as well, where they come one by one, is given the head of a stream.
//! The status is 200 from then on, whatever comes: what it would have been stands in the error.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::RETRY_AFTER;
use http::{HeaderName, HeaderValue, StatusCode};
use http_body::{Body as _, Frame};
use tokio::time::{Sleep, sleep};

use super::ReplyBody;
use crate::context::worker::Worker;
use crate::line::cors;
use crate::line::response::ClientResponse;
use crate::upstream::silence::Silence;
use protocol::error::UpstreamError;
use protocol::media::Media;
use protocol::sse::COMMENT;
use protocol::translation::late::tell_in;

const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const BLANK: Bytes = Bytes::from_static(b" ");

/// The part of the reply that is still to come.
struct LateReply {
    media: Media,
    keep_alive_interval: Duration,
    clock: Pin<Box<Sleep>>,
    source: LateSource,
}

enum LateSource {
    /// There is none yet. `None`: there will be none.
    Awaited(Pin<Box<dyn Future<Output = Option<ClientResponse>>>>),
    /// The reply, and whether something of it was written.
    Begun(Box<ReplyBody>, bool),
    /// JSON, which becomes an event: its beginning was written, if that is so.
    Framed(Box<ReplyBody>, bool),
    Over,
}

/// The reply to a call whose client has heard nothing for long, before there is a response.
pub(crate) fn begin_late(
    silence: &Arc<Silence>,
    response: impl Future<Output = Option<ClientResponse>> + 'static,
) -> ClientResponse {
    let (media, keep_alive_interval) = (silence.begin(), silence.interval());
    let mut late = LateReply {
        media,
        keep_alive_interval,
        clock: Box::pin(sleep(keep_alive_interval)),
        source: LateSource::Awaited(Box::pin(response)),
    };
    let body = ReplyBody::Late(Box::new(move |cx| late.poll(cx)));
    let mut begun = ClientResponse::new(StatusCode::OK, media, body);
    if media == Media::Json {
        begun.headers_mut().insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    }
    if let Some(origin) = silence.take_origin() {
        cors::allow(&mut begun, origin);
    }
    begun
}

/// Writes what the status of a response would have said into its error: its client has had 200.
pub(crate) fn fold_late(worker: &Worker, response: &mut ClientResponse) {
    let status = std::mem::replace(&mut response.status, StatusCode::OK);
    let retry_after = response.headers_mut().remove(RETRY_AFTER);
    let retry_after_ms = retry_after.and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok());
    let retry_after_ms = retry_after_ms.map(|seconds| seconds.saturating_mul(1000));
    if (status != StatusCode::OK || retry_after_ms.is_some())
        && let ReplyBody::Whole(segments, _) = &mut response.body
    {
        let (mut scratch, depth_max) = (worker.scratch.borrow_mut(), worker.json_depth_max());
        *segments = tell_in(&segments.to_bytes(), status.as_u16(), retry_after_ms, &mut scratch, depth_max);
    }
}

impl LateReply {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        loop {
            match &mut self.source {
                LateSource::Awaited(response) => match response.as_mut().poll(cx) {
                    Poll::Ready(response) => {
                        if !response.is_some_and(|response| self.begin(response)) {
                            self.source = LateSource::Over;
                            return Poll::Ready(Some(Err(UpstreamError::Reset)));
                        }
                    }
                    Poll::Pending => return self.poll_silence(cx),
                },
                LateSource::Begun(body, has_begun) => match Pin::new(&mut **body).poll_frame(cx) {
                    // Events have comments of their own, and in the middle of a value there is no place for a blank.
                    Poll::Pending if *has_begun || self.media == Media::Sse => return Poll::Pending,
                    Poll::Pending => return self.poll_silence(cx),
                    Poll::Ready(frame) => {
                        *has_begun = true;
                        let data = |frame: Frame<Bytes>| frame.into_data().unwrap_or_default();
                        return Poll::Ready(frame.map(|frame| frame.map(data)));
                    }
                },
                LateSource::Framed(..) => return self.poll_framed(cx),
                LateSource::Over => return Poll::Ready(None),
            }
        }
    }

    /// Takes what the response holds. False: it is no reply that could follow.
    fn begin(&mut self, response: ClientResponse) -> bool {
        let body = Box::new(response.body);
        self.source = match (self.media, response.media) {
            (began, media) if began == media => LateSource::Begun(body, false),
            (Media::Sse, Media::Json) => LateSource::Framed(body, false),
            _ => return false,
        };
        true
    }

    /// A message in JSON as one event: a line end in it is a blank like any other.
    fn poll_framed(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        let LateSource::Framed(body, has_begun) = &mut self.source else { return Poll::Ready(None) };
        let piece = match ready!(Pin::new(&mut **body).poll_frame(cx)) {
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => {
                self.source = LateSource::Over;
                return Poll::Ready(Some(Ok(Bytes::from_static(b"\n\n"))));
            }
        };
        let mut event = BytesMut::with_capacity(piece.len() + "data: ".len());
        if !std::mem::replace(has_begun, true) {
            event.extend_from_slice(b"data: ");
        }
        event.extend(piece.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
        Poll::Ready(Some(Ok(event.freeze())))
    }

    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, UpstreamError>>> {
        ready!(self.clock.as_mut().poll(cx));
        self.clock.as_mut().set(sleep(self.keep_alive_interval));
        let sign = if self.media == Media::Json { BLANK } else { Bytes::from_static(COMMENT) };
        Poll::Ready(Some(Ok(sign)))
    }
}
