//! The admin listener: metrics for Prometheus, health for whoever watches the process, the state of the gateway as JSON,
//! and what operators do to it.
//!
//! | file | what it is |
//! |---|---|
//! | `socket.rs` | where it listens |
//! | `connection_limiter.rs` | how many connections it serves at once |
//! | `door.rs` | who is let in |
//! | `routes.rs` | what is answered |
//! | `latest.rs` | one answer for all who wait for it |
//! | `status.rs`, `servers.rs` | the state of the gateway |
//! | `tools.rs` | its tools, as they are asked for |
//! | `sampler.rs`, `samples.rs` | what went on lately |
//! | `page.rs`, `page/` | the page that shows it |
//!
//! Served by the control thread, so that a busy data path does not delay it and it never delays a call; what takes long is
//! made on the control thread's blocking pool, which gives way to workers, once for all who wait for it. Nothing here is on
//! the way of a call.

mod connection_limiter;
mod door;
mod latest;
mod page;
mod routes;
mod sampler;
mod samples;
mod servers;
pub(crate) mod socket;
mod status;
mod tools;

use std::convert::Infallible;
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::sleep;

use self::connection_limiter::ConnectionLimiter;
use self::routes::Routes;
use self::sampler::StatusSampler;
use self::socket::Socket;
use crate::context::state::State;
use net::framing::Framed;
use net::tasks::Tasks;

const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECTION_AGE_MAX: Duration = Duration::from_mins(1);
/// For what is being answered when a connection is that old.
const LAST_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest head of a request.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// What does not change while the process runs.
#[derive(Debug)]
pub(crate) struct StartRecord {
    /// When it started, by the clock of the system.
    pub started: SystemTime,
    /// The same by a clock that does not jump.
    pub since: Instant,
    /// The configuration file.
    pub source: Option<PathBuf>,
    /// Worker threads.
    pub workers: usize,
}

/// Serves until the process ends.
pub(crate) async fn serve(state: Arc<State>, tasks: Tasks, socket: Socket, process: StartRecord) {
    let limiter = ConnectionLimiter::new(state.metrics.gateway.admin_refused.with_label_values(&["evicted"]));
    let is_named_freely = socket.is_unix() || !socket.is_loopback();
    let sampler = Arc::new(StatusSampler::new(Arc::clone(&state)));
    tasks.spawn(Arc::clone(&sampler).run(tasks.clone()));
    let place = socket.to_string();
    let routes = Rc::new(Routes::new(state, tasks.clone(), process, place, is_named_freely, sampler));
    let acceptor = match socket.acceptor() {
        Ok(acceptor) => acceptor,
        Err(error) => return tracing::error!(%error, "cannot serve the admin listener"),
    };
    loop {
        let place = limiter.place().await;
        let stream = match acceptor.accept().await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept on the admin listener");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let place = place.taken();
        let routes = Rc::clone(&routes);
        tasks.spawn(async move {
            let service = service_fn(|request| {
                let routes = Rc::clone(&routes);
                async move { Ok::<_, Infallible>(routes.answer(request).await) }
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
                tracing::debug!(%error, "admin connection ended");
            }
        });
    }
}
