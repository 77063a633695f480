//! HTTP/1.1 towards a client: requests one after the other, each answered before the next is read.
//!
//! | file | what it is |
//! |---|---|
//! | `connection.rs` | the bytes: what has come of a request, what of a reply has still to go |
//! | `exchange.rs` | memory for requests that are being answered |
//! | `request.rs` | a request's head as the line takes it, and the refusal of what is none |
//! | `response.rs` | a response as bytes |
//!
//! Invariant: a connection that waits for its next request holds no buffer.

mod connection;
mod exchange;
mod request;
mod response;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use http::StatusCode;
use tokio::sync::oneshot;

pub(super) use self::exchange::ClientExchanges;

use self::connection::{ClientConnection, HeadEvent, ReceivedHead, ReceivedRequest};
use self::response::{ResponseForm, ResponseWriter};
use super::AcceptedConnection;
use super::connection::CloseReason;
use crate::clock;
use crate::line::relay::begin_late;
use crate::line::response::ClientResponse;
use net::drain::PhaseWatch;
use net::stream::MaybeTls;

/// How long a client may go on sending what nobody reads, so that it sees the answer first.
const LINGER_MAX: Duration = Duration::from_secs(1);

/// Serves the requests of a connection that began with these bytes, to its end, in a task of its own.
pub(super) fn spawn(accepted: AcceptedConnection, stream: MaybeTls, start: Vec<u8>) {
    let tasks = accepted.listener.worker.client.tasks.clone();
    let connection = ClientConnection::new(accepted, stream, start);
    tasks.spawn_unboxed(async move {
        let drain = &connection.accepted.listener.drain;
        let ended = pin!(drain.ended());
        let mut phases = PhaseWatch::new(drain, ended);
        let reason = phases.until_cut(pin!(serve(&connection))).await.unwrap_or(CloseReason::ByPeer);
        connection.accepted.note_end(&reason);
    });
}

/// Between two requests there is nothing but the wait for the next: what a request needs is elsewhere, for as long as it lasts.
async fn serve(connection: &Rc<ClientConnection>) -> CloseReason {
    let exchanges = &connection.accepted.listener.exchanges;
    loop {
        let next = poll_fn(|cx| {
            connection.poll_next(cx).map(|event| match event {
                HeadEvent::Request(head) => Ok(exchanges.begin(Rc::clone(connection), head, answer)),
                HeadEvent::End => Err(NoRequest::Closed(CloseReason::ByPeer)),
                HeadEvent::TooLate(clock) => Err(NoRequest::Closed(CloseReason::Clock(clock))),
                HeadEvent::Refused(status) => Err(NoRequest::Refused(status)),
            })
        });
        let mut exchange = match next.await {
            Ok(exchange) => exchange,
            Err(NoRequest::Closed(reason)) => return reason,
            Err(NoRequest::Refused(status)) => {
                Box::pin(refuse(connection, status)).await;
                return CloseReason::ByPeer;
            }
        };
        let answered = poll_fn(|cx| exchange.poll(cx)).await;
        exchanges.give_back(exchange);
        let goes_on = match answered {
            ExchangeEnd::Left => return CloseReason::ByPeer,
            ExchangeEnd::Written { is_persistent } => is_persistent,
            // A stream is open for long, and its call is over.
            ExchangeEnd::Writing(mut writer) => match write(connection, &mut writer).await {
                Ok(()) => writer.is_persistent(),
                Err(reason) => return reason,
            },
        };
        if !(goes_on && connection.finish_request()) {
            Box::pin(linger(connection)).await;
            return CloseReason::ByPeer;
        }
    }
}

/// Why no request follows.
enum NoRequest {
    Closed(CloseReason),
    /// What came is none.
    Refused(StatusCode),
}

/// What became of a request.
enum ExchangeEnd {
    /// Its client left before.
    Left,
    /// Its response is with the socket.
    Written { is_persistent: bool },
    /// Its response is on its way.
    Writing(Box<ResponseWriter>),
}

/// Answers a request, and writes of the response what can be written at once.
async fn answer(connection: Rc<ClientConnection>, head: ReceivedHead) -> ExchangeEnd {
    let ReceivedRequest { mut header, form, body } = connection.read(head);
    let AcceptedConnection { listener, peer, .. } = &connection.accepted;
    let form = ResponseForm::of(&header.method, form);
    let takes_signs = form.takes_chunks();
    let silence = takes_signs.then(|| connection.silence());
    let mut call = pin!(listener.proxy.handle(peer.enter(), silence, &mut header, body));
    let answered = poll_fn(|cx| {
        let Poll::Ready(response) = call.as_mut().poll(cx) else {
            return match connection.poll_departure(cx) {
                Poll::Ready(()) => Poll::Ready(Some(ExchangeEnd::Left)),
                Poll::Pending if takes_signs && connection.is_too_quiet() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            };
        };
        let mut writer =
            ResponseWriter::new(response, form, connection.is_request_over(), connection.buffers());
        Poll::Ready(Some(match connection.poll_write(cx, &mut writer) {
            Poll::Ready(Ok(())) => ExchangeEnd::Written { is_persistent: writer.is_persistent() },
            Poll::Ready(Err(_)) => ExchangeEnd::Left,
            Poll::Pending => ExchangeEnd::Writing(Box::new(writer)),
        }))
    });
    match answered.await {
        Some(end) => end,
        None => Box::pin(answer_late(&connection, call, form)).await,
    }
}

/// Goes on with a call whose client has heard nothing for long: it is given the head of its reply at once.
async fn answer_late(
    connection: &Rc<ClientConnection>,
    mut call: Pin<&mut impl Future<Output = ClientResponse>>,
    form: ResponseForm,
) -> ExchangeEnd {
    let (sender, response) = oneshot::channel();
    let begun = begin_late(&connection.last_silence(), async { response.await.ok() });
    let is_request_over = connection.is_request_over();
    let mut writer = Box::new(ResponseWriter::new(begun, form, is_request_over, connection.buffers()));
    let mut sender = Some(sender);
    let written = poll_fn(|cx| {
        if sender.is_some()
            && let Poll::Ready(response) = call.as_mut().poll(cx)
            && let Some(sender) = sender.take()
        {
            // The writer holds the other end.
            let _ = sender.send(response);
        }
        match connection.poll_write(cx, &mut writer) {
            Poll::Pending if sender.is_none() => Poll::Ready(None),
            written => written.map(Some),
        }
    });
    match written.await {
        Some(Ok(())) => ExchangeEnd::Written { is_persistent: writer.is_persistent() },
        Some(Err(_)) => ExchangeEnd::Left,
        None => ExchangeEnd::Writing(writer),
    }
}

/// Goes on writing a response, unless its client leaves or is too late. In this turn of the task it was asked already.
async fn write(connection: &ClientConnection, writer: &mut ResponseWriter) -> Result<(), CloseReason> {
    let mut was_asked = true;
    let written = poll_fn(|cx| {
        if !std::mem::take(&mut was_asked)
            && let Poll::Ready(written) = connection.poll_write(cx, writer)
        {
            return Poll::Ready(Ok(written));
        }
        match connection.poll_reader(cx, writer) {
            // The call is over, and only its client is late.
            Poll::Pending if !connection.accepted.peer.is_busy() => connection.poll_clocks(cx).map(Err),
            read => read.map(Err),
        }
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
    // A few bytes: who does not take them has not read what came before, and will not.
    let written = clock::within(LINGER_MAX, poll_fn(|cx| connection.poll_write(cx, &mut writer)));
    if let Some(Ok(())) = written.await {
        linger(connection).await;
    }
}

/// Lets the client see the answer before the connection is gone: one that is closed over unread bytes is reset.
async fn linger(connection: &ClientConnection) {
    clock::within(LINGER_MAX, poll_fn(|cx| connection.poll_linger(cx))).await;
}
