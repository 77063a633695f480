//! The same connections read by hyper, over bytes in memory: nothing here waits.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::error::Error as _;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Body as _, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;

use super::{HyperRest, Message};
use crate::FIELDS_MAX;

/// How often something is asked at least, after the last byte.
const POLLS: usize = 64;

/// All requests of a connection that ends behind these pieces.
pub(super) fn requests(pieces: &[&[u8]]) -> (Vec<Message>, HyperRest) {
    let found = Rc::new(RefCell::new((Vec::new(), HyperRest::Open)));
    let service = service_fn(|request: Request<Incoming>| {
        let found = Rc::clone(&found);
        async move {
            let (head, body) = request.into_parts();
            let minor = u8::from(head.version == Version::HTTP_11);
            let start = format!("{} {} 1.{minor}", head.method, head.uri);
            let length = body.size_hint().exact();
            match body.collect().await {
                Ok(body) => {
                    let body = body.to_bytes().to_vec();
                    found.borrow_mut().0.push(Message { start, fields: head.headers, length, body });
                }
                Err(error) => found.borrow_mut().1 = rest_of(&error),
            }
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let mut server = hyper::server::conn::http1::Builder::new();
    server.half_close(true).max_headers(FIELDS_MAX);
    let mut serving = Box::pin(server.serve_connection(Wire::new(pieces, true, true), service));
    let cx = &mut Context::from_waker(Waker::noop());
    for _ in 0..POLLS + 2 * pieces.len() {
        if let Poll::Ready(end) = serving.as_mut().poll(cx) {
            if let Err(error) = end
                && found.borrow().1 == HyperRest::Open
            {
                found.borrow_mut().1 = rest_of(&error);
            }
            break;
        }
    }
    drop(serving);
    let found = found.borrow();
    found.clone()
}

/// The reply that a connection begins with; it ends behind these pieces, or nothing more comes. `None`: it is not whole.
pub(super) fn reply(pieces: &[&[u8]], ends: bool) -> Result<Option<Message>, ()> {
    let cx = &mut Context::from_waker(Waker::noop());
    let mut client = hyper::client::conn::http1::Builder::new();
    let mut handshake = Box::pin(client.max_headers(FIELDS_MAX).handshake(Wire::new(pieces, ends, false)));
    let Poll::Ready(Ok((mut sender, mut connection))) = handshake.as_mut().poll(cx) else { return Err(()) };
    let reply = sender.send_request(Request::new(Empty::<Bytes>::new()));
    let mut reading = Box::pin(async {
        let (head, body) = reply.await?.into_parts();
        let start = head.status.as_str().to_owned();
        let length = body.size_hint().exact();
        let body = body.collect().await?.to_bytes().to_vec();
        Ok::<_, hyper::Error>(Message { start, fields: head.headers, length, body })
    });
    for _ in 0..POLLS + 2 * pieces.len() {
        let _: Poll<_> = Pin::new(&mut connection).poll(cx);
        if let Poll::Ready(read) = reading.as_mut().poll(cx) {
            return match read {
                Ok(message) => Ok(Some(message)),
                Err(error) if rest_of(&error) == HyperRest::Open => Ok(None),
                Err(_) => Err(()),
            };
        }
    }
    Ok(None)
}

/// Whether an error is only the end of the connection.
fn rest_of(error: &hyper::Error) -> HyperRest {
    let cause = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    let is_end = cause.is_some_and(|cause| cause.kind() == io::ErrorKind::UnexpectedEof);
    let is_cut = error.is_incomplete_message() || error.is_canceled() || error.is_closed();
    if is_end || is_cut { HyperRest::Open } else { HyperRest::Refused }
}

/// A socket whose bytes are there already, a piece at a time.
struct Wire {
    pieces: Vec<Bytes>,
    ends: bool,
    /// Whether anything may be read yet: a reply follows its request.
    is_open: Cell<bool>,
}

impl Wire {
    fn new(pieces: &[&[u8]], ends: bool, is_open: bool) -> Self {
        let pieces = pieces.iter().rev().filter(|piece| !piece.is_empty());
        let pieces = pieces.map(|piece| Bytes::copy_from_slice(piece)).collect();
        Self { pieces, ends, is_open: Cell::new(is_open) }
    }
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.is_open.get() {
            return Poll::Pending;
        }
        match self.pieces.pop() {
            Some(mut piece) => {
                let count = piece.len().min(buf.remaining());
                buf.put_slice(&piece.split_to(count));
                if !piece.is_empty() {
                    self.pieces.push(piece);
                }
                Poll::Ready(Ok(()))
            }
            None if self.ends => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    }
}

impl Write for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.is_open.set(true);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
