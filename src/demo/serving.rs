//! Accepts connections and serves HTTP/1.1 on them, until it is told to stop.
//!
//! Not here: what a request is answered.
//!
//! Invariants: connections and heads are bounded, and no connection outlives [`serve`].

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::http::ResponseBody;

const CONNECTIONS_MAX: usize = 512;
const HEADER_BYTES_MAX: usize = 64 * 1024;
/// For a request's head, which includes the idle time before it.
const HEADER_TIMEOUT: Duration = Duration::from_secs(75);
/// Before accepting again after an error, which is nearly always a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Open exchanges may take so long to end after the stop.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// Has `answer` answer every request until `stop`; then open exchanges have a second to finish.
pub(super) async fn serve<A, F>(listener: TcpListener, stop: CancellationToken, answer: A)
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<ResponseBody>> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((socket, _)) => {
                    connections.spawn(serve_connection(socket, answer.clone(), stop.clone()));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    // The rest is aborted when `connections` drops.
    let _ = tokio::time::timeout(DRAIN_MAX, ended).await;
}

async fn serve_connection<A, F>(socket: TcpStream, answer: A, stop: CancellationToken)
where
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<ResponseBody>>,
{
    // Without it, small replies wait for the client's delayed acknowledgements.
    let _ = socket.set_nodelay(true);
    let service = service_fn(|request| {
        let answered = answer(request);
        async { Ok::<_, Infallible>(answered.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(socket), service);
    let mut connection = pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    // A connection that breaks has no peer left to tell.
    let _ = connection.await;
}
