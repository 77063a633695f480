//! The admin listener: metrics for Prometheus, health for whoever watches the process, the state of the gateway as JSON,
//! and what operators do to it.
//!
//! | file | what it is |
//! |---|---|
//! | `socket.rs` | where it listens |
//! | `connections.rs` | its connections, with their clocks |
//! | `connection_limiter.rs` | how many connections it serves at once |
//! | `door.rs` | who is let in |
//! | `routes.rs`, `answers.rs` | what is answered |
//! | `metrics.rs` | the text of metrics, and a listener for nothing else |
//! | `latest.rs` | one answer for all who wait for it |
//! | `status.rs`, `servers.rs` | the state of the gateway |
//! | `tools.rs` | its tools, as they are asked for |
//! | `sampler.rs`, `samples.rs`, `minute.rs` | what went on lately |
//! | `page.rs`, `page/` | the page that shows it |
//!
//! Served by the control thread, so that a busy data path does not delay it and it never delays a call; what takes long is
//! made on the control thread's blocking pool, which gives way to workers, once for all who wait for it. Nothing here is on
//! the way of a call.

mod answers;
mod connection_limiter;
mod connections;
mod door;
mod grants;
mod latest;
mod list_cuts;
pub(crate) mod metrics;
mod minute;
mod page;
mod routes;
mod sampler;
mod samples;
mod servers;
mod sign_in;
pub(crate) mod socket;
mod status;
mod tools;

pub(crate) use self::servers::show_states;

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use self::answers::RefusedOperators;
use self::connection_limiter::ConnectionLimiter;
use self::metrics::MetricsText;
use self::routes::Routes;
use self::sampler::StatusSampler;
use self::socket::Socket;
use crate::context::state::State;
use net::tasks::Tasks;

/// What does not change while the process runs.
#[derive(Debug)]
pub(crate) struct StartRecord {
    /// With the commit, where the program knows it.
    pub version: &'static str,
    /// When it started, by the clock of the system.
    pub started: SystemTime,
    /// The same by a clock that does not jump.
    pub since: Instant,
    /// The configuration file.
    pub source: Option<PathBuf>,
    /// The unit of systemd that started it.
    pub service: Option<String>,
    /// Worker threads.
    pub workers: usize,
}

/// Serves until the process ends.
pub(crate) async fn serve(
    state: Arc<State>,
    tasks: Tasks,
    socket: Socket,
    process: StartRecord,
    metrics: Rc<MetricsText>,
) {
    let limiter = ConnectionLimiter::new(state.metrics.gateway.admin_refused.with_label_values(&["evicted"]));
    let is_named_freely = socket.is_unix() || !socket.is_loopback();
    let sampler = Arc::new(StatusSampler::new(Arc::clone(&state)));
    tasks.spawn(Arc::clone(&sampler).run(tasks.clone()));
    let refusals = RefusedOperators::new(&state, "admin", socket.to_string());
    let routes =
        Rc::new(Routes::new(state, tasks.clone(), process, refusals, is_named_freely, sampler, metrics));
    let acceptor = match socket.acceptor() {
        Ok(acceptor) => acceptor,
        Err(error) => return tracing::error!(%error, "cannot serve the admin listener"),
    };
    connections::serve(&acceptor, &limiter, &tasks, &routes).await;
}
