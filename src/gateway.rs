//! The process: sockets, worker threads, the control thread, signals, reload and drain.
//!
//! Only this file handles signals and starts threads. The control thread serves the admin listener, learns the eras
//! and names of upstreams, listens to them, reloads on SIGHUP and drains on SIGTERM or SIGINT; it is never on the path
//! of a call.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use crate::auth::jwt::refresh;
use crate::config::{self, Config, Listener};
use crate::limit::open_files;
use crate::pins::watch::Watcher;
use crate::probe::Prober;
use crate::state::State;
use crate::tasks::Tasks;
use crate::telemetry::metrics::Metrics;
use crate::upstream::exchange::Client;
use crate::upstream::pipe::host::Host;
use crate::worker::Worker;
use crate::{admin, catalog, listen, sharing, socket, tls};

/// Connections for learning names, as many for finding out eras, and as many for looking at definitions.
const UPSTREAM_CONNECTIONS_OF_CONTROL: usize = 64;
/// Threads of each worker's pool for long computations and name lookups.
const BLOCKING_THREADS_MAX: usize = 2;

/// A gateway that listens.
#[derive(Debug)]
pub struct Gateway {
    state: Arc<State>,
    config: Config,
    source: Option<PathBuf>,
    addresses: Vec<SocketAddr>,
    sockets: Vec<Vec<(Listener, std::net::TcpListener)>>,
    admin: Option<std::net::TcpListener>,
}

/// Reads and checks a configuration file. The error is ready to be shown, with lines and carets.
pub fn load(path: &Path) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut config = config::parse(&text)
        .map_err(|errors| anyhow::anyhow!(errors.render(&path.display().to_string(), &text)))?;
    config.state_directory = config.state_directory.or_else(state_directory_of_environment);
    Ok(config)
}

/// The first directory that systemd's `StateDirectory=` names.
fn state_directory_of_environment() -> Option<PathBuf> {
    let directories = std::env::var_os("STATE_DIRECTORY")?;
    std::env::split_paths(&directories).next().filter(|first| first.is_absolute())
}

impl Gateway {
    /// Resolves the configuration and opens every socket. `source` is read again on SIGHUP.
    pub fn open(config: Config, source: Option<PathBuf>) -> anyhow::Result<Self> {
        open_files::raise_limit()?;
        let metrics = Metrics::new().context("cannot register metrics")?;
        let state = State::new(&config, metrics)?;
        let workers = worker_count(&config);
        let mut sockets: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
        let mut addresses = Vec::new();
        for listener in &config.listeners {
            let mut address = listener.address;
            refuse_taken(address)?;
            for worker_sockets in &mut sockets {
                let socket = socket::listen(address, workers > 1)
                    .with_context(|| format!("cannot listen at {address}"))?;
                // Port 0: the first socket chooses, the others join it.
                address = socket.local_addr()?;
                worker_sockets.push((Listener { address, ..listener.clone() }, socket));
            }
            addresses.push(address);
        }
        let admin = config
            .admin
            .as_ref()
            .map(|admin| {
                socket::listen(admin.address, false)
                    .with_context(|| format!("cannot listen at {}", admin.address))
            })
            .transpose()?;
        Ok(Self { state, config, source, addresses, sockets, admin })
    }

    /// Where clients connect.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Serves until SIGTERM or SIGINT, then drains.
    pub fn run(self) -> anyhow::Result<()> {
        let Self { state, config, source, addresses, sockets, admin } = self;
        let runtime = local_runtime()?;
        runtime.block_on(async {
            // Signals are caught before anybody is told that we are ready.
            let signals = Signals::new()?;
            let tasks = Tasks::new(state.metrics.panics.clone());
            let pipes = Host::new(&state.pipes, state.metrics.panics.clone());
            let client = |open_max| Client {
                pools: Rc::default(),
                tasks: tasks.clone(),
                open: Rc::default(),
                open_max,
                pipes: Rc::clone(&pipes),
            };
            let probing = client(UPSTREAM_CONNECTIONS_OF_CONTROL);
            // What is remembered counts before the first call.
            let mut prober = Prober::new(Arc::clone(&state), probing, config.state_directory.clone());
            prober.resolve().await;
            let workers = sockets
                .into_iter()
                .enumerate()
                .map(|(number, sockets)| spawn_worker(number, &state, &config, sockets))
                .collect::<Result<Vec<_>, _>>()?;
            let journal = spawn_journal(&state)?;
            if let Some(admin) = admin {
                tracing::info!(address = %admin.local_addr()?, "admin listening");
                tasks.spawn(admin::serve(Arc::clone(&state), tasks.clone(), admin));
            }
            tasks.spawn(tls::expiry::watch(Arc::clone(&state)));
            tasks.spawn(prober.run());
            if let Some(shared) = &state.shared {
                tasks.spawn(sharing::run(Arc::clone(&state), Arc::clone(shared)));
            }
            let learning = client(UPSTREAM_CONNECTIONS_OF_CONTROL);
            tasks.spawn(catalog::learn::run(Arc::clone(&state), learning));
            tasks.spawn(refresh::run(Arc::clone(&state), tasks.clone()));
            let listening = client(open_files::listening_connections_max());
            let looking = client(UPSTREAM_CONNECTIONS_OF_CONTROL);
            let watcher = Watcher::new(Arc::clone(&state), looking, config.state_directory.as_deref());
            tasks.spawn(watcher.run());
            tasks.spawn(listen::upstream::run(Arc::clone(&state), listening));
            for address in addresses {
                tracing::info!(%address, "listening");
            }
            tracing::info!(version = env!("CARGO_PKG_VERSION"), workers = workers.len(), "ready");
            control(&state, &config, source.as_deref(), signals, &workers).await;
            for worker in workers {
                if worker.join().is_err() {
                    tracing::error!("a worker thread ended with a panic; this is a bug");
                }
            }
            pipes.finish(&state.drain).await;
            if state.sessions.stop_writer()
                && let Some(journal) = journal
                && journal.join().is_err()
            {
                tracing::error!("the journal's thread ended with a panic; this is a bug");
            }
            tracing::info!("stopped");
            Ok(())
        })
    }
}

struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }
}

/// Reloads until told to stop, then drains by the three clocks. A second signal ends the waiting.
async fn control(
    state: &Arc<State>,
    started_with: &Config,
    source: Option<&Path>,
    mut signals: Signals,
    workers: &[JoinHandle<()>],
) {
    let mut drain = started_with.drain.clone();
    loop {
        tokio::select! {
            _ = signals.hangup.recv() => {
                if let Some(reloaded) = reload(state, started_with, source) {
                    drain = reloaded.drain;
                }
            }
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
        }
    }
    let started = Instant::now();
    tracing::info!(connections = state.connections.open(), "draining");
    state.drain.start_quiet();
    state.hub.end_all();
    let phases = async {
        sleep_until(started + drain.quiet).await;
        state.drain.start_closing();
        sleep_until(started + drain.max).await;
        state.drain.start_cut();
        std::future::pending::<()>().await;
    };
    let finished = async {
        let mut interval = tokio::time::interval(Duration::from_millis(10));
        while workers.iter().any(|worker| !worker.is_finished()) {
            interval.tick().await;
        }
    };
    tokio::select! {
        () = finished => {}
        () = phases => {}
        _ = signals.terminate.recv() => {}
        _ = signals.interrupt.recv() => {}
    }
    let left = state.connections.open();
    if left > 0 {
        tracing::warn!(connections = left, "cutting what is left");
    }
    state.drain.start_closing();
    state.drain.start_cut();
}

fn reload(state: &State, started_with: &Config, source: Option<&Path>) -> Option<Config> {
    let result = source.context("this gateway has no configuration file").and_then(|source| {
        let config = load(source)?;
        refuse_to_open(&config, started_with)?;
        state.reload(&config)?;
        Ok(config)
    });
    let label = if result.is_ok() { "ok" } else { "error" };
    state.metrics.reloads.with_label_values(&[label]).inc();
    match result {
        Ok(config) => {
            let needs_restart = !listeners_are_alike(&config, started_with)
                || config.admin != started_with.admin
                || config.limits.cache_bytes_max != started_with.limits.cache_bytes_max
                || config.workers != started_with.workers
                || config.state_directory != started_with.state_directory
                || config.shared != started_with.shared
                || config.log != started_with.log;
            warn_about(&config);
            if needs_restart {
                tracing::warn!(
                    "changes to listener, admin, workers, cache_bytes_max, state_directory, shared and log take effect at the next start"
                );
            }
            tracing::info!(
                endpoints = config.endpoints.len(),
                upstreams = config.upstreams.len(),
                "reloaded"
            );
            Some(config)
        }
        Err(error) => {
            tracing::error!(
                error = format!("{error:#}"),
                "not reloaded; the old configuration stays in force"
            );
            None
        }
    }
}

/// Whether all that differs between the listeners is what their TLS is made of, which needs no restart.
fn listeners_are_alike(config: &Config, started_with: &Config) -> bool {
    let shape = |config: &Config| -> Vec<_> {
        let shape = |one: &Listener| (one.address, one.proxy_protocol, one.tls.is_some());
        config.listeners.iter().map(shape).collect()
    };
    shape(config) == shape(started_with)
}

/// The new configuration was judged by its own listeners, but the old ones stay open until a restart.
fn refuse_to_open(config: &Config, started_with: &Config) -> anyhow::Result<()> {
    let is_public =
        started_with.listeners.iter().any(|listener| !listener.address.ip().to_canonical().is_loopback());
    let open =
        config.endpoints.iter().find(|endpoint| endpoint.auth.is_empty() && !endpoint.allow_unauthenticated);
    match open {
        Some(endpoint) if is_public => anyhow::bail!(
            "endpoint {} would be open to a network, as the listeners change only at a restart: set allow_unauthenticated = true to mean it",
            endpoint.path
        ),
        _ => Ok(()),
    }
}

/// Logs what is allowed but probably not meant.
pub fn warn_about(config: &Config) {
    for warning in &config.warnings {
        tracing::warn!("{}", warning.message);
    }
    if config.state_directory.is_none() {
        tracing::warn!("no state_directory: sessions of legacy clients end with this process");
    }
}

fn spawn_worker(
    number: usize,
    state: &Arc<State>,
    config: &Config,
    sockets: Vec<(Listener, std::net::TcpListener)>,
) -> anyhow::Result<JoinHandle<()>> {
    let state = Arc::clone(state);
    let log = config.log.clone();
    // As many as client connections, so that both together stay within the limit of open files.
    let upstream_connections_max = state.connections.max().div_ceil(worker_count(config));
    let runtime_failed = "a worker cannot start";
    std::thread::Builder::new()
        .name(format!("worker-{number}"))
        .spawn(move || match local_runtime() {
            Ok(runtime) => {
                runtime.block_on(async {
                    Worker::new(state, &log, upstream_connections_max).run(sockets).await;
                });
                // A name lookup that hangs must not hold up the end.
                runtime.shutdown_background();
            }
            Err(error) => tracing::error!(%error, "{runtime_failed}"),
        })
        .context(runtime_failed)
}

/// The thread that keeps the session journal, where there is one.
fn spawn_journal(state: &State) -> anyhow::Result<Option<JoinHandle<()>>> {
    let thread = std::thread::Builder::new().name("journal".into());
    let writer = state.sessions.take_writer();
    writer.map(|writer| thread.spawn(|| writer.run())).transpose().context("the session journal cannot start")
}

fn local_runtime() -> std::io::Result<LocalRuntime> {
    Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build_local(LocalOptions::default())
}

/// Sockets that share an address would quietly share it with another gateway's, too.
fn refuse_taken(address: SocketAddr) -> anyhow::Result<()> {
    if address.port() == 0 {
        return Ok(());
    }
    let socket = socket::listen(address, false).with_context(|| format!("cannot listen at {address}"))?;
    drop(socket);
    Ok(())
}

fn worker_count(config: &Config) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    config.workers.map_or_else(cores, std::num::NonZeroUsize::get)
}
