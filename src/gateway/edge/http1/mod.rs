//! HTTP/1.1 towards a client: requests one after the other, each answered before the next is read.
//!
//! | file | what it is |
//! |---|---|
//! | `connection.rs` | the bytes: what has come of a request, what of a reply has still to go |
//! | `request.rs` | a request's head as the line takes it, and the refusal of what is none |
//! | `response.rs` | a response as bytes |
//!
//! Invariant: a connection that waits for its next request holds no buffer.

mod connection;
mod request;
mod response;

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use http::StatusCode;

use self::connection::{ClientConnection, HeadEvent, ReceivedRequest};
use self::response::{ResponseForm, ResponseWriter};
use super::connection::CloseReason;
use crate::clock;
use crate::context::peer::Peer;
use crate::context::worker::Worker;
use crate::line::proxy::Proxy;
use config::LimitsConfig;
use net::drain::{DrainPhase, PhaseWatch};
use net::stream::MaybeTls;

/// How long a client may go on sending what nobody reads, so that it sees the answer first.
const LINGER_MAX: Duration = Duration::from_secs(1);

/// Serves the requests of a connection that began with these bytes, to its end.
pub(super) async fn serve(
    worker: &Worker,
    proxy: &Proxy,
    stream: MaybeTls,
    start: Vec<u8>,
    peer: &Rc<Peer>,
    limits: &LimitsConfig,
) -> CloseReason {
    let connection = ClientConnection::new(stream, start, &worker.client.buffers, limits);
    let closing = pin!(proxy.drain().closing());
    let mut closing = PhaseWatch::new(proxy.drain(), DrainPhase::Closing, closing);
    loop {
        let mut request = None;
        let next = poll_fn(|cx| {
            if let Poll::Ready(event) = connection.poll_head(cx, &mut request) {
                return Poll::Ready(event);
            }
            if closing.poll(cx).is_ready() {
                return Poll::Ready(HeadEvent::End);
            }
            connection.poll_clocks(cx, peer, limits).map(HeadEvent::TooLate)
        });
        match next.await {
            HeadEvent::Request => {}
            HeadEvent::End => return CloseReason::ByPeer,
            HeadEvent::TooLate(clock) => return CloseReason::Clock(clock),
            HeadEvent::Refused(status) => {
                refuse(&connection, status).await;
                return CloseReason::ByPeer;
            }
        }
        let Some(ReceivedRequest { header, form, body }) = request else { return CloseReason::ByPeer };
        let form = ResponseForm::of(&header.method, form);
        let answered = {
            // In memory of its own for as long as the call: the connection is kept much longer, and mostly idle.
            // Written there at once: it is several kilobytes, which nobody needs to move.
            let call = Box::write(Box::new_uninit(), proxy.handle(peer.enter(), header, body));
            let mut call = Box::into_pin(call);
            poll_fn(|cx| match call.as_mut().poll(cx) {
                Poll::Ready(response) => Poll::Ready(Some(response)),
                Poll::Pending => connection.poll_departure(cx).map(|()| None),
            })
            .await
        };
        let Some(response) = answered else { return CloseReason::ByPeer };
        let mut writer =
            ResponseWriter::new(response, form, connection.is_request_over(), &worker.client.buffers);
        if let Err(reason) = write(&connection, &mut writer, peer, limits).await {
            return reason;
        }
        let goes_on = writer.is_persistent() && connection.finish_request();
        drop(writer);
        if !goes_on {
            linger(&connection).await;
            return CloseReason::ByPeer;
        }
    }
}

/// Writes a response, unless its client leaves or is too late.
async fn write(
    connection: &ClientConnection,
    writer: &mut ResponseWriter,
    peer: &Peer,
    limits: &LimitsConfig,
) -> Result<(), CloseReason> {
    let written = poll_fn(|cx| match connection.poll_write(cx, writer) {
        // The call is over, and only its client is late.
        Poll::Pending if !peer.is_busy() => connection.poll_clocks(cx, peer, limits).map(Err),
        written => written.map(Ok),
    });
    match written.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(CloseReason::ByPeer),
        Err(clock) => Err(CloseReason::Clock(clock)),
    }
}

/// Answers what is no request.
async fn refuse(connection: &ClientConnection, status: StatusCode) {
    let mut writer = ResponseWriter::refusal(status);
    if poll_fn(|cx| connection.poll_write(cx, &mut writer)).await.is_ok() {
        linger(connection).await;
    }
}

/// Lets the client see the answer before the connection is gone: one that is closed over unread bytes is reset.
async fn linger(connection: &ClientConnection) {
    clock::within(LINGER_MAX, poll_fn(|cx| connection.poll_linger(cx))).await;
}
