//! A request as bytes, and how much of it the socket has taken.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::{HeaderValue, Uri};
use net::stream::MaybeTls;
use tokio::io::AsyncWrite as _;

use crate::upstream::request::{RequestKind, UpstreamRequest};
use crate::upstream::sending::Sending;
use protocol::splice::Segments;

/// A request that is no longer goes out with its head, in one write.
const COPIED_BYTES_MAX: u64 = 16 * 1024;
/// A larger body goes out in pieces of this size, so that no single write blocks others for long.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// Where a request goes, as its head says it behind the method, and what every request says.
#[derive(Clone)]
pub(crate) struct RequestAddress(Box<[u8]>);

impl std::fmt::Debug for RequestAddress {
    /// Its query may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RequestAddress")
    }
}

impl RequestAddress {
    pub(crate) fn new(target: &Uri, host: &HeaderValue) -> Self {
        let target = target.path_and_query().map_or("/", |target| target.as_str());
        let start = [b" ", target.as_bytes(), b" HTTP/1.1\r\nhost: "].concat();
        // Without a word, a server may compress, and messages are read as they come.
        Self([&start, host.as_bytes(), b"\r\naccept-encoding: identity\r\n"].concat().into())
    }
}

/// A request on its way into the socket.
#[derive(Debug)]
pub(super) struct OutgoingRequest {
    /// The head, and the body if it is short.
    start: Vec<u8>,
    /// So many bytes of it are written.
    start_written: usize,
    /// What follows.
    long: Option<Box<LongBody>>,
    /// Told when all of it is written.
    sending: Option<Arc<Sending>>,
}

/// A body that does not go out with its head.
#[derive(Debug)]
struct LongBody {
    /// What is written now.
    piece: Bytes,
    rest: Segments,
}

impl OutgoingRequest {
    /// Uses the memory of `start`.
    pub(super) fn new(request: &mut UpstreamRequest, to: &RequestAddress, mut start: Vec<u8>) -> Self {
        start.clear();
        request.yield_to_own();
        write_head(request, to, &mut start);
        let UpstreamRequest { message, sending, .. } = request;
        let mut long = None;
        if message.len() <= COPIED_BYTES_MAX {
            message.iter().for_each(|piece| start.extend_from_slice(piece));
        } else {
            long = Some(Box::new(LongBody { piece: Bytes::new(), rest: message.clone() }));
        }
        Self { start, start_written: 0, long, sending: sending.clone() }
    }

    /// Whether none of it is written, so that it may be sent elsewhere.
    pub(super) fn is_unwritten(&self) -> bool {
        self.start_written == 0
    }

    /// The memory that it came with.
    pub(super) fn into_memory(self) -> Vec<u8> {
        self.start
    }

    /// Hands it to the socket until all of it is there.
    pub(super) fn poll_write(&mut self, stream: &mut MaybeTls, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.start.get(self.start_written..).filter(|rest| !rest.is_empty()) {
            self.start_written += ready!(stream.poll_write_some(cx, rest))?;
        }
        if let Some(long) = &mut self.long {
            ready!(long.poll_write(stream, cx))?;
        }
        ready!(Pin::new(stream).poll_flush(cx))?;
        if let Some(sending) = self.sending.take() {
            sending.mark_written();
        }
        Poll::Ready(Ok(()))
    }
}

impl LongBody {
    fn poll_write(&mut self, stream: &mut MaybeTls, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while !self.piece.is_empty() {
                let count = ready!(stream.poll_write_some(cx, &self.piece))?;
                self.piece.advance(count);
            }
            match self.rest.pop_at_most(PIECE_BYTES_MAX) {
                Some(piece) => self.piece = piece,
                None => return Poll::Ready(Ok(())),
            }
        }
    }
}

fn write_head(request: &UpstreamRequest, to: &RequestAddress, head: &mut Vec<u8>) {
    let method: &[u8] = match request.kind {
        RequestKind::Post => b"POST",
        RequestKind::Listen => b"GET",
        RequestKind::EndSession => b"DELETE",
    };
    head.extend_from_slice(method);
    head.extend_from_slice(&to.0);
    if let Some(forwarded) = &request.forwarded {
        forwarded.write_lines(head);
    }
    for (name, value) in &request.headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    let length = request.message.len();
    if length > 0 || request.kind == RequestKind::Post {
        head.extend_from_slice(b"content-length: ");
        head.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
        head.extend_from_slice(b"\r\n\r\n");
    } else {
        head.extend_from_slice(b"\r\n");
    }
}
