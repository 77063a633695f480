//! The body of a client's request while it arrives, whichever HTTP carries it.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as _, SizeHint};

/// What HTTP/1.1 reads a body from.
pub(crate) trait RequestBytes {
    /// The next data; `None` at the end.
    fn poll_data(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenRequest>>>;
    /// How many bytes of data will still come, where that is known.
    fn left(&self) -> Option<u64>;
    fn is_over(&self) -> bool;
}

/// The client has left, or what it sends is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BrokenRequest;

pub(crate) enum ClientBody {
    /// All of it is there.
    Whole(Bytes),
    Http1(Rc<dyn RequestBytes>),
    Http2(hyper::body::Incoming),
}

impl std::fmt::Debug for ClientBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientBody").finish_non_exhaustive()
    }
}

impl ClientBody {
    /// The next piece of data; `None` at the end.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenRequest>>> {
        match self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(std::mem::take(bytes)))),
            Self::Http1(source) => source.poll_data(cx),
            Self::Http2(incoming) => Pin::new(incoming).poll_frame(cx).map(|frame| {
                frame.map(|frame| match frame {
                    // Trailers are dropped.
                    Ok(frame) => Ok(frame.into_data().unwrap_or_default()),
                    Err(_) => Err(BrokenRequest),
                })
            }),
        }
    }

    /// At least so many bytes will come.
    pub(crate) fn announced(&self) -> u64 {
        match self {
            Self::Whole(bytes) => bytes.len() as u64,
            Self::Http1(source) => source.left().unwrap_or(0),
            Self::Http2(incoming) => SizeHint::lower(&incoming.size_hint()),
        }
    }

    /// Whether nothing more will come.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Http1(source) => source.is_over(),
            Self::Http2(incoming) => incoming.is_end_stream(),
        }
    }
}
