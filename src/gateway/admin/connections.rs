//! Connections of operators, from a socket to its requests: how many there are, how large a head may be, and their clocks.
//!
//! The admin listener and that of metrics have a limiter each, so that neither keeps clients of the other out.

use std::convert::Infallible;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::sleep;

use super::answers::HttpAnswer;
use super::connection_limiter::{ConnectionLimiter, ServedConnection};
use super::socket::{Acceptor, Stream};
use net::framing::Framed;
use net::tasks::Tasks;

const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECTION_AGE_MAX: Duration = Duration::from_mins(1);
/// For what is being answered when a connection is that old.
const LAST_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest head of a request.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Time to the next attempt where none can be accepted.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Who answers requests.
pub(super) trait Answering: 'static {
    async fn answer(&self, request: Request<Incoming>) -> HttpAnswer;
}

/// Accepts and serves, for ever.
pub(super) async fn serve<A: Answering>(
    acceptor: &Acceptor,
    limiter: &ConnectionLimiter,
    tasks: &Tasks,
    answering: &Rc<A>,
) {
    loop {
        let place = limiter.place().await;
        match acceptor.accept().await {
            Ok(stream) => {
                tasks.spawn(serve_one(stream, place.taken(), Rc::clone(answering)));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection of operators");
                sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
}

async fn serve_one<A: Answering>(stream: Stream, place: ServedConnection, answering: Rc<A>) {
    let service = service_fn(|request| {
        let answering = Rc::clone(&answering);
        async move { Ok::<_, Infallible>(answering.answer(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Framed::new(stream)), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = sleep(CONNECTION_AGE_MAX) => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                // A reader that stops reading must not keep its place.
                () = sleep(LAST_ANSWER_TIMEOUT) => Ok(()),
                () = place.wanted() => Ok(()),
            }
        }
        () = place.wanted() => Ok(()),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection of operators ended");
    }
}
