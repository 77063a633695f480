//! The process: sockets, worker threads, the control thread, signals, reload and drain.
//!
//! | file | what it is |
//! |---|---|
//! | `sockets.rs` | what the gateway listens at |
//! | `inherited_sockets.rs` | sockets that were open before the process |
//! | `socket_units.rs` | units of systemd that were to open ours |
//! | `control_tasks.rs` | what runs beside it on the control thread |
//! | `control.rs` | signals, and the three clocks of the end |
//! | `reload.rs`, `difference.rs` | a new configuration, completely or not at all |
//! | `listeners.rs` | what is listened at, as that changes |
//! | `config_files.rs` | the configuration's files, and the variables in them |
//! | `files.rs` | whether what a configuration names can be used |
//! | `watch.rs` | files that change |
//! | `memory_limit.rs` | how much memory the process may have |
//! | `notify.rs`, `watchdog.rs` | what the service manager is told |
//! | `supervisor.rs` | the end where the control thread hangs |
//!
//! Only this module handles signals and starts threads. The control thread serves the admin listener, learns the eras
//! and names of upstreams, listens to them, reloads on SIGHUP and drains on SIGTERM or SIGINT; it is never on the path
//! of a call.

mod certificate_expiry;
mod config_files;
mod control;
mod control_tasks;
mod difference;
mod file_contents;
mod files;
mod grants_upkeep;
mod inherited_sockets;
mod key_refresh;
mod listeners;
mod memory_limit;
mod notify;
mod reload;
mod replicas;
mod service_unit;
mod serving;
#[cfg(test)]
mod simulation;
mod socket_units;
mod sockets;
mod supervisor;
mod watch;
mod watchdog;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::mpsc::{self, Receiver};
use tokio::time::timeout;

use self::serving::ListenerChange;
use crate::access::limit::open_files::{self, OpenFilesError};
use crate::admin::metrics::MetricsText;
use crate::admin::show_states;
use crate::admin::socket::Socket;
use crate::catalog::lists::kept::KeptFiles;
use crate::catalog::probe::Prober;
use crate::context::child_room::ChildRoom;
use crate::context::state::{ListenPlace, State, StateError};
use crate::context::worker::Worker;
use crate::telemetry::logs;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::shards;
use crate::upstream::mux::host::Host;
use crate::{admin, clock};
use config::{self, Config, ListenAddress, Listener};
use net::socket::ListeningSocket;
use net::tasks::Tasks;

use self::control::{Control, Signals};
use self::control_tasks::{ControlTasks, UPSTREAM_CONNECTIONS_OF_CONTROL};
use self::inherited_sockets::InheritedSockets;
use self::listeners::{CHANGES_WAITING_MAX, Listeners};
use self::notify::Notifier;
use self::reload::Reloader;
use self::sockets::{OpenPlace, Sockets};
use self::supervisor::{JournalThread, LEAVE_MAX, Supervisor};

pub use self::config_files::ConfigFiles;
pub use self::control::ExitCause;
pub use self::files::FileFindings;
pub use self::inherited_sockets::InheritError;
pub use self::reload::warn_about;
pub use self::sockets::SocketsError;
pub use self::supervisor::EXIT_BUG;

/// Threads of each worker's pool for long computations and name lookups.
const BLOCKING_THREADS_MAX: usize = 2;
/// The last of Linux's nice values.
#[cfg(target_os = "linux")]
const LEAST_PRIORITY: i32 = 19;

/// A gateway that listens.
#[derive(Debug)]
pub struct Gateway {
    state: Arc<State>,
    config: Config,
    source: Option<PathBuf>,
    places: Vec<OpenPlace>,
    sockets: Vec<Vec<(Listener, ListeningSocket)>>,
    admin: Option<Socket>,
    metrics: Option<Socket>,
    sockets_outlive_us: bool,
    version: &'static str,
}

/// Why a gateway cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket cannot be opened.
    #[error(transparent)]
    Sockets(#[from] SocketsError),
    /// The configuration cannot take effect.
    #[error(transparent)]
    State(#[from] StateError),
    /// The system does not allow enough open files.
    #[error(transparent)]
    OpenFiles(#[from] OpenFilesError),
    /// The system refuses to hand out signals.
    #[error("cannot wait for signals: {0}")]
    Signals(std::io::Error),
    /// Two metrics have the same name.
    #[error("cannot register metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// Takes from the environment what the text leaves to it.
fn adopt_environment(config: &mut Config) {
    config.state_directory = config.state_directory.take().or_else(state_directory_of_environment);
    // A value that is written as it would be anyhow is no change.
    config.workers = config.workers.or_else(|| std::thread::available_parallelism().ok());
    config.limits.adopt_memory_limit(memory_limit::of_process().unwrap_or(u64::MAX));
}

/// The first directory that systemd's `StateDirectory=` names.
fn state_directory_of_environment() -> Option<PathBuf> {
    let directories = std::env::var_os("STATE_DIRECTORY")?;
    std::env::split_paths(&directories).next().filter(|first| first.is_absolute())
}

impl Gateway {
    /// Resolves the configuration and opens every socket. `source` is read again on SIGHUP; `version` is what operators are told.
    pub fn open(config: Config, source: Option<PathBuf>, version: &'static str) -> Result<Self, StartError> {
        let passed = InheritedSockets::take().map_err(SocketsError::from)?;
        local_runtime()
            .and_then(|runtime| runtime.block_on(async { control::catch_hangup() }))
            .map_err(StartError::Signals)?;
        open_files::raise_limit(worker_count(&config))?;
        let metrics = Metrics::of(&config.metrics)?;
        metrics.gateway.build_info.with_label_values(&[version]).set(1);
        logs::count_in(&metrics.gateway.log_lines_dropped);
        let state = State::new(&config, metrics)?;
        open_files::warn_of_few(config.limits.connections_max, state.connections.max());
        state.host.set_room(ChildRoom::new(&state));
        let Sockets { places, workers: sockets, admin, metrics, outlive_us: sockets_outlive_us } =
            Sockets::open(&config, passed, worker_count(&config))?;
        Ok(Self { state, config, source, places, sockets, admin, metrics, sockets_outlive_us, version })
    }

    /// Where clients connect.
    pub fn addresses(&self) -> impl Iterator<Item = &ListenAddress> {
        self.places.iter().map(|place| &place.address)
    }

    /// Where the admin listener is, if there is one.
    pub fn admin_address(&self) -> Option<String> {
        self.admin.as_ref().map(ToString::to_string)
    }

    /// Serves until SIGTERM or SIGINT, then drains. An error: the system refuses a thread or a signal. Where this thread
    /// hangs, the process ends from here.
    pub fn run(self) -> anyhow::Result<ExitCause> {
        let (journal, watchdog) = (JournalThread::default(), watchdog::of_environment());
        let supervisor = || {
            let (state, drain, journal) =
                (Arc::clone(&self.state), self.config.drain.clone(), Arc::clone(&journal));
            Supervisor { state, drain, journal, watchdog }
        };
        let (watching, in_our_place) = (supervisor(), supervisor());
        let (running, stop) = std::sync::mpsc::channel();
        let runtime = control_runtime()?;
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let supervise = move || watching.run(&stop);
            runtime.block_on(self.control(&journal, watchdog, supervise))
        }));
        drop(running);
        // A file that hangs must not hold up the end.
        runtime.shutdown_timeout(LEAVE_MAX);
        ended.unwrap_or_else(|_| {
            tracing::error!("the control thread ended with a panic, which is a bug; stopping without it");
            in_our_place.end_in_order();
            Ok(ExitCause::ControlDied)
        })
    }

    /// The control thread. `supervise` is for a thread that watches it.
    async fn control(
        self,
        journal: &JournalThread,
        watchdog: Option<Duration>,
        supervise: impl FnOnce() + Send + 'static,
    ) -> anyhow::Result<ExitCause> {
        let Self { state, config, source, places, sockets, admin, metrics, sockets_outlive_us, version } =
            self;
        let (started, since) = (clock::calendar(), clock::now());
        // Signals are caught before anybody is told that we are ready.
        let signals = Signals::new()?;
        let notifier = Rc::new(Notifier::from_environment());
        let watchdog = watchdog.filter(|_| notifier.is_heard());
        let tasks = Tasks::new(state.metrics.gateway.panics.clone());
        let (beating, interval) = (Arc::clone(&state), watchdog::beat_interval(watchdog));
        tasks.spawn(async move { beating.pulses.control.beat(interval).await });
        let host = Host::of_control(&state.host, state.metrics.gateway.panics.clone());
        let spawned = ControlTasks { state: &state, tasks, host: Rc::clone(&host) };
        spawned.leave_in_time();
        let probing = spawned.client(UPSTREAM_CONNECTIONS_OF_CONTROL);
        // What is remembered counts before the first call.
        let mut prober = Prober::new(Arc::clone(&state), probing, config.state_directory.clone());
        let mut pins = spawned.read_pins(config.state_directory.as_deref());
        let kept = KeptFiles::open(&state, config.state_directory.clone());
        prober.resolve().await;
        let channels = || mpsc::channel(CHANGES_WAITING_MAX);
        let (to_workers, of_workers): (Vec<_>, Vec<_>) = sockets.iter().map(|_| channels()).unzip();
        let first = sockets.first().map(Vec::as_slice).unwrap_or_default();
        let listeners = Listeners::new(&config, places, first, to_workers);
        state.listeners.store(Arc::new(listeners.places()));
        let text = Rc::new(MetricsText::new(Arc::clone(&state), spawned.tasks.clone(), show_states));
        let to_metrics = spawned.serve_metrics(metrics, Rc::clone(&text));
        let mut reloader = Reloader::new(&state, &config, source.clone(), (listeners, to_metrics));
        spawned.meet_replicas().await;
        grants_upkeep::learn(&state).await;
        pins.meet().await;
        let workers = sockets
            .into_iter()
            .zip(of_workers)
            .enumerate()
            .map(|(number, sockets)| spawn_worker(number, &state, &config, sockets, watchdog))
            .collect::<Result<Vec<_>, _>>()?;
        *journal.lock() = spawn_journal(&state)?;
        let supervisor = std::thread::Builder::new().name("supervisor".into());
        supervisor.spawn(supervise).context("the supervisor cannot start")?;
        if let Some(admin) = admin {
            let (service, workers) = (service_unit::of_process(), workers.len());
            let process = admin::StartRecord { version, started, since, source, service, workers };
            spawned.serve_admin(admin, process, text);
        }
        let last_writes = spawned.ask_upstreams(prober, pins, kept);
        spawned.look_after_process(version, &notifier, watchdog);
        say_where(&state);
        tracing::info!(version, workers = workers.len(), "ready");
        notifier.ready(&state);
        let control = Control {
            state: &state,
            started_with: &config,
            workers: &workers,
            notifier: &notifier,
            sockets_outlive_us,
        };
        let end = control.run(signals, &mut reloader).await;
        last_writes.finish().await;
        finish(&state, &host, journal).await;
        tracing::info!("stopped");
        Ok(end)
    }
}

fn say_where(state: &State) {
    for ListenPlace { address, unused_socket_unit, .. } in state.listeners.load().iter() {
        tracing::info!(%address, "listening");
        if let Some(unit) = unused_socket_unit {
            tracing::warn!(
                %address,
                unit,
                "a restart refuses connections: the socket is the gateway's own, though a socket unit is enabled"
            );
        }
    }
}

fn spawn_worker(
    number: usize,
    state: &Arc<State>,
    config: &Config,
    (sockets, changes): (Vec<(Listener, ListeningSocket)>, Receiver<ListenerChange>),
    watchdog: Option<Duration>,
) -> anyhow::Result<JoinHandle<()>> {
    let state = Arc::clone(state);
    let (pulse, life) = state.pulses.add();
    let jobs = state.host.add_worker();
    let beat_interval = watchdog::beat_interval(watchdog);
    let log = config.log.clone();
    // As many as client connections, so that both together stay within the limit of open files.
    let upstream_connections_max = state.connections.max().div_ceil(worker_count(config));
    let runtime_failed = "a worker cannot start";
    let (runtime_made, is_made) = std::sync::mpsc::sync_channel(1);
    let thread = std::thread::Builder::new()
        .name(format!("worker-{number}"))
        .spawn(move || match local_runtime() {
            Ok(runtime) => {
                // The thread that started this one waits for it.
                let _ = runtime_made.send(Ok(()));
                shards::count_as_worker(number);
                // Dropped before the runtime, which may wait for a name lookup that hangs, by a panic.
                let life = life;
                runtime.block_on(async {
                    let worker = Worker::new(state, Arc::clone(&pulse), &log, upstream_connections_max);
                    tokio::select! {
                        () = serving::run(&worker, sockets, changes, jobs) => {}
                        () = pulse.beat(beat_interval) => {}
                    }
                });
                // A name lookup that hangs must not hold up the end.
                runtime.shutdown_background();
                life.end();
            }
            Err(error) => drop(runtime_made.send(Err(error))),
        })
        .context(runtime_failed)?;
    // A thread that ended without a word has panicked, and is found to have died.
    is_made.recv().unwrap_or(Ok(())).context(runtime_failed)?;
    Ok(thread)
}

/// The thread that keeps the session journal, where there is one.
fn spawn_journal(state: &State) -> anyhow::Result<Option<JoinHandle<()>>> {
    let thread = std::thread::Builder::new().name("journal".into());
    let writer = state.sessions.take_writer();
    writer.map(|writer| thread.spawn(writer)).transpose().context("the session journal cannot start")
}

/// Waits for children to end, the last traces to be sent, the others to know that this one is gone, and the journal's
/// thread to write what it has.
async fn finish(state: &State, host: &Host, journal: &JournalThread) {
    host.finish(&state.drain).await;
    if let Some(traces) = &state.traces {
        traces.finish().await;
    }
    if let Some(shared) = &state.shared {
        shared.leave().await;
    }
    let is_written = state.sessions.stop_writer();
    let thread = journal.lock().take();
    if let Some(thread) = thread.filter(|_| is_written) {
        end_journal(thread).await;
    }
}

/// Waits for the journal's thread, but not for a disk that hangs: signs of life go on, and the process ends in time.
async fn end_journal(thread: JoinHandle<()>) {
    if timeout(LEAVE_MAX, control::look_until(|| thread.is_finished())).await.is_err() {
        tracing::warn!(
            "the session journal is not written in time; leaving all the same, without its latest changes"
        );
    } else if thread.join().is_err() {
        tracing::error!("the journal's thread ended with a panic; this is a bug");
    }
}

fn local_runtime() -> std::io::Result<LocalRuntime> {
    runtime_builder().build_local(LocalOptions::default())
}

/// That of the control thread: what is computed for it, a scrape above all, gives way to whoever has a call to answer.
fn control_runtime() -> std::io::Result<LocalRuntime> {
    runtime_builder().on_thread_start(give_way).build_local(LocalOptions::default())
}

fn runtime_builder() -> Builder {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(BLOCKING_THREADS_MAX);
    builder
}

/// Gives this thread the least share of a core that others want. Elsewhere priorities are those of whole processes.
fn give_way() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, LEAST_PRIORITY) {
        tracing::debug!(%error, "a thread keeps its priority");
    }
}

fn worker_count(config: &Config) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    config.workers.map_or_else(cores, std::num::NonZeroUsize::get)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    const VERSION: &str = "1.2.3+20260203040506.0a1b2c3d";

    #[cfg(target_os = "linux")]
    #[test]
    fn only_what_is_computed_for_the_control_thread_gives_way() {
        let priority = || rustix::process::getpriority_process(None).expect("a priority");
        let before = priority();
        let computed = |runtime: std::io::Result<LocalRuntime>| {
            let runtime = runtime.expect("a runtime");
            runtime.block_on(async { tokio::task::spawn_blocking(priority).await.expect("it runs") })
        };
        assert_eq!(computed(control_runtime()), LEAST_PRIORITY);
        assert_eq!((computed(local_runtime()), priority()), (before, before));
    }

    #[test]
    fn operators_are_told_the_version_with_its_commit() {
        let text = "[listener]\naddress = \"127.0.0.1:0\"\n[drain]\nquiet = \"10ms\"\n\
                    [admin]\naddress = \"127.0.0.1:0\"\n\
                    [[endpoint]]\npath = \"/mcp\"\nupstreams = [\"up\"]\n\
                    [upstream.up]\nurl = \"http://127.0.0.1:1/\"\neras = [\"modern\"]";
        let config = config::parse(text).unwrap_or_else(|errors| panic!("{}", errors.render("test", text)));
        let gateway = Gateway::open(config, None, VERSION).expect("it listens");
        let (state, admin) = (Arc::clone(&gateway.state), gateway.admin_address().expect("an address"));
        let running = std::thread::spawn(|| gateway.run());
        for path in ["/status", "/metrics"] {
            let mut connection = std::net::TcpStream::connect(&admin).expect("it listens");
            write!(connection, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                .expect("sent");
            let mut answer = String::new();
            connection.read_to_string(&mut answer).expect("an answer");
            assert!(answer.contains(&format!("\"{VERSION}\"")), "{path}: {answer}");
        }
        state.stop_wanted.notify_one();
        let ended = running.join().expect("it ends in order");
        assert_eq!(ended.expect("it runs"), ExitCause::Told);
    }

    #[test]
    fn the_death_of_a_worker_is_the_end_of_a_drain() {
        let text = "[listener]\naddress = \"127.0.0.1:0\"\n[drain]\nquiet = \"10ms\"\n\
                    [[endpoint]]\npath = \"/mcp\"\nupstreams = [\"up\"]\n\
                    [upstream.up]\nurl = \"http://127.0.0.1:1/\"\neras = [\"modern\"]";
        let config = config::parse(text).unwrap_or_else(|errors| panic!("{}", errors.render("test", text)));
        let gateway = Gateway::open(config, None, VERSION).expect("it listens");
        let state = Arc::clone(&gateway.state);
        let (_, life) = state.pulses.add();
        let died = std::thread::spawn(move || {
            let _life = life;
            panic!("a bug");
        });
        assert!(died.join().is_err());
        assert_eq!(gateway.run().expect("it runs"), ExitCause::WorkerDied);
        assert_eq!(state.drain.phase(), "cut", "it was drained before");
    }

    #[test]
    fn the_workers_are_drained_without_the_control_thread() {
        let text = "workers = 2\n[listener]\naddress = \"127.0.0.1:0\"\n[drain]\nquiet = \"10ms\"\n\
                    [[endpoint]]\npath = \"/mcp\"\nupstreams = [\"up\"]\n\
                    [upstream.up]\nurl = \"http://127.0.0.1:1/\"\neras = [\"modern\"]";
        let config = config::parse(text).unwrap_or_else(|errors| panic!("{}", errors.render("test", text)));
        let gateway = Gateway::open(config.clone(), None, VERSION).expect("it listens");
        let state = Arc::clone(&gateway.state);
        let (sender, changes) = mpsc::channel(1);
        let sockets = gateway.sockets.into_iter().next().expect("those of a worker");
        let worker = spawn_worker(0, &state, &config, (sockets, changes), None).expect("it starts");
        let drain = config.drain.clone();
        Supervisor { state: Arc::clone(&state), drain, journal: JournalThread::default(), watchdog: None }
            .end_in_order();
        assert_eq!(state.drain.phase(), "cut");
        worker.join().expect("it has ended in order");
        drop(sender);
    }
}
