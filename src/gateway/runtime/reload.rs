//! A new configuration in place of the old one, completely or not at all.
//!
//! Everything that can fail comes first, on the blocking pool: reading files, resolving, opening sockets. Then the new
//! configuration takes effect at once, on the control thread, so that nothing does once a drain has begun. Reloads never overlap, and those that are asked for while one runs, or shortly
//! after, are one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, sleep_until};

use super::config_files::ConfigFiles;
use super::difference::{difference, renewed};
use super::file_contents::FileContents;
use super::listeners::{ListenPlan, Listeners};
use super::memory_limit;
use super::sockets::open_metrics;
use super::watch::FileWatch;
use crate::admin::socket::Socket;
use crate::catalog::lists::kept::KeptLists;
use crate::context::audit;
use crate::context::reloads::ReloadOutcome;
use crate::context::state::{NextState, State};
use crate::telemetry::logs;
use crate::upstream::stdio::{launchers, program};
use config::Config;

/// Between two reloads, however many are asked for.
const INTERVAL_MIN: Duration = Duration::from_millis(200);
/// Differences that are told one by one.
const DIFFERENCES_TOLD_MAX: usize = 100;

pub(super) struct Reloader {
    state: Arc<State>,
    source: Option<PathBuf>,
    started_with: Arc<Config>,
    current: Arc<Config>,
    contents: Arc<FileContents>,
    /// Of what a reload does not take up.
    contents_of_start: FileContents,
    listeners: Listeners,
    /// Leads to the listener of metrics.
    to_metrics: Sender<Option<Socket>>,
    watch: FileWatch,
    not_before: Instant,
}

struct Ready {
    config: Config,
    plan: ListenPlan,
    logs: logs::Opened,
    prepared: NextState,
    /// The lists that were kept of new upstreams.
    lists: Option<KeptLists>,
    metrics: MetricsPlace,
    contents: FileContents,
    changes: Vec<String>,
    needs_restart: Vec<&'static str>,
}

/// The state that a new configuration is told apart from.
struct InForce {
    started_with: Arc<Config>,
    current: Arc<Config>,
    contents: Arc<FileContents>,
    contents_of_start: FileContents,
    listeners: Listeners,
}

/// Where metrics are served from now on.
enum MetricsPlace {
    AsBefore,
    /// At this socket; `None`: at no address of their own.
    Moved(Option<Socket>),
}

impl Ready {
    /// With the lists that were kept in `state_directory` of upstreams that are new.
    fn with_kept(self, state: &State, state_directory: Option<PathBuf>) -> Self {
        let (old, new) = self.prepared.snapshots();
        let lists = state_directory.map(|directory| KeptLists::read(directory, state, new, &old.upstreams));
        Self { lists, ..self }
    }
}

impl Reloader {
    /// The process has started with `config`, which was read from `source`, if from a file.
    pub(super) fn new(
        state: &Arc<State>,
        config: &Config,
        source: Option<PathBuf>,
        (listeners, to_metrics): (Listeners, Sender<Option<Socket>>),
    ) -> Self {
        let config = Arc::new(config.clone());
        Self {
            state: Arc::clone(state),
            watch: FileWatch::new(&config, source.as_deref()),
            source,
            contents: Arc::new(FileContents::read(&config, &config)),
            contents_of_start: FileContents::read_of_start(&config),
            started_with: Arc::clone(&config),
            current: config,
            listeners,
            to_metrics,
            not_before: Instant::now(),
        }
    }

    pub(super) fn current(&self) -> &Config {
        &self.current
    }

    /// Waits until a file has changed that is to be watched.
    pub(super) async fn changed(&self) {
        self.watch.changed().await;
    }

    /// Reads the configuration again. True: the new one is in force.
    pub(super) async fn reload(&mut self) -> bool {
        // Whoever moved the files away asks with the same signal, whatever has become of the configuration.
        logs::reopen();
        sleep_until(self.not_before).await;
        self.state.reloads.begin();
        let outcome = match self.attempt().await {
            Ok(ready) => self.take_up(ready).await,
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(error, "not reloaded; the old configuration stays in force");
                audit::act("reload", "refused");
                ReloadOutcome::Refused(error.into())
            }
        };
        let is_ok = outcome.is_ok();
        self.state.metrics.count_reload(is_ok);
        self.state.reloads.end(outcome);
        self.not_before = Instant::now() + INTERVAL_MIN;
        is_ok
    }

    async fn attempt(&mut self) -> anyhow::Result<Ready> {
        let source = self.source.clone().context("this gateway has no configuration file")?;
        let (state, watch) = (Arc::clone(&self.state), self.watch.clone());
        let in_force = InForce {
            started_with: Arc::clone(&self.started_with),
            current: Arc::clone(&self.current),
            contents: Arc::clone(&self.contents),
            contents_of_start: self.contents_of_start.clone(),
            listeners: self.listeners.clone(),
        };
        let work = move || {
            // As they are before they are read: what changes meanwhile is noticed.
            let prints = watch.look();
            let ready = prepare(&state, &source, &in_force);
            let state_directory = in_force.started_with.state_directory.clone();
            (prints, ready.map(|ready| ready.with_kept(&state, state_directory)))
        };
        let Some((prints, ready)) = aside(work).await else {
            self.state.metrics.gateway.panics.inc();
            anyhow::bail!("the reload ended with a panic, which is a bug");
        };
        // A file that is wrong is not read again before it changes.
        self.watch.note(prints);
        ready
    }

    async fn take_up(&mut self, ready: Ready) -> ReloadOutcome {
        let Ready { config, plan, logs, prepared, lists, metrics, contents, mut changes, mut needs_restart } =
            ready;
        let take_up = || {
            if let Some(lists) = lists {
                lists.take_up(&self.state, prepared.snapshots().1);
            }
            self.state.take_up(&config, prepared);
        };
        if catch_unwind(AssertUnwindSafe(take_up)).is_err() {
            self.state.metrics.gateway.panics.inc();
            // Half of it may be in force: nobody should go on with that for long.
            let why = "the reload ended with a panic half-way, which is a bug; stopping";
            tracing::error!("{why}");
            audit::act("reload", "refused");
            self.state.pulses.give_up();
            return ReloadOutcome::Refused(why.into());
        }
        logs.take_effect();
        self.listeners.follow(plan, &config.drain).await;
        if let MetricsPlace::Moved(socket) = metrics {
            // Whoever serves them is gone only with the process.
            let _ = self.to_metrics.send(socket).await;
        }
        self.state.listeners.store(Arc::new(self.listeners.places()));
        self.watch = self.watch.follow(&config, self.source.as_deref());
        warn_about(&config);
        for change in changes.iter().take(DIFFERENCES_TOLD_MAX) {
            tracing::info!("{change}");
        }
        if changes.len() > DIFFERENCES_TOLD_MAX {
            let left_out = changes.len() - DIFFERENCES_TOLD_MAX;
            changes.truncate(DIFFERENCES_TOLD_MAX);
            changes.push(format!("and {left_out} more"));
            tracing::info!("and {left_out} more");
        }
        needs_restart.extend(self.listeners.needs_restart(&config));
        if !needs_restart.is_empty() {
            tracing::warn!("from the next start on: {}", needs_restart.join(", "));
        }
        audit::act("reload", "done");
        tracing::info!(
            endpoints = config.endpoints.len(),
            upstreams = config.upstreams.len(),
            changes = changes.len(),
            "reloaded"
        );
        self.current = Arc::new(config);
        self.contents = Arc::new(contents);
        ReloadOutcome::Reloaded { changes: changes.into(), needs_restart: needs_restart.into() }
    }
}

fn prepare(state: &State, source: &Path, in_force: &InForce) -> anyhow::Result<Ready> {
    let metadata = std::fs::metadata(source).with_context(|| format!("cannot read {}", source.display()))?;
    // A pipe might have nothing to say for ever.
    anyhow::ensure!(metadata.is_file(), "cannot read {}: it is not a file", source.display());
    let files = ConfigFiles::read(source)?;
    let config = files.config().map_err(|errors| anyhow::anyhow!(errors.render_in(&files.source)))?;
    let places = config.places.clone();
    open(state, config, in_force)
        .map_err(|error| anyhow::anyhow!(places.located(&files.source, format!("{error:#}"))))
}

/// Opens everything that `config` names.
fn open(state: &State, config: Config, in_force: &InForce) -> anyhow::Result<Ready> {
    let plan = in_force.listeners.plan(&config)?;
    refuse_to_open(&config, &plan)?;
    let logs = logs::open(&config.log)?;
    let address = config.metrics.address;
    let metrics = if address == in_force.current.metrics.address {
        MetricsPlace::AsBefore
    } else {
        MetricsPlace::Moved(address.map(open_metrics).transpose()?)
    };
    // Before they are taken up: what changes meanwhile is told by the next reload.
    let contents = FileContents::read(&config, &in_force.started_with);
    // Its words have its reasons in them.
    let prepared = state.prepare(&config, &plan.numbers).map_err(|error| anyhow::anyhow!("{error}"))?;
    let mut changes = difference(&in_force.current, &config);
    let (old, new) = prepared.snapshots();
    changes.extend(renewed(old, new));
    changes.extend(contents.changes(&in_force.contents));
    let needs_restart = needs_restart(&config, in_force);
    Ok(Ready { config, plan, logs, prepared, lists: None, metrics, contents, changes, needs_restart })
}

/// The new configuration was judged by its own listeners, but what is connected to one that is left goes on a while.
fn refuse_to_open(config: &Config, plan: &ListenPlan) -> anyhow::Result<()> {
    let open =
        config.endpoints.iter().find(|endpoint| endpoint.auth.is_empty() && !endpoint.allow_unauthenticated);
    match open {
        Some(endpoint) if plan.leaves_to_network() => anyhow::bail!(
            "endpoint {} would be open to a network until a listener that is left has drained: remove the listener \
             first, and open the endpoint by another reload",
            endpoint.name
        ),
        _ => Ok(()),
    }
}

fn needs_restart(config: &Config, in_force: &InForce) -> Vec<&'static str> {
    let started_with = &*in_force.started_with;
    let admin_place = |config: &Config| config.admin.as_ref().map(|admin| admin.place.clone());
    let is_trace_renewed = || FileContents::read_of_start(started_with).differs(&in_force.contents_of_start);
    let differs = [
        ("admin", admin_place(config) != admin_place(started_with)),
        ("limits.cache_bytes_max", config.limits.cache_bytes_max != started_with.limits.cache_bytes_max),
        (
            "limits.kept_lists_bytes_max",
            config.limits.kept_lists_bytes_max != started_with.limits.kept_lists_bytes_max,
        ),
        ("metrics.durations", config.metrics.durations != started_with.metrics.durations),
        ("metrics.tools_max", config.metrics.tools_max != started_with.metrics.tools_max),
        ("shared", config.shared != started_with.shared),
        ("state_directory", config.state_directory != started_with.state_directory),
        ("trace", config.trace != started_with.trace || is_trace_renewed()),
        ("workers", config.workers != started_with.workers),
    ];
    differs.into_iter().filter(|(_, differs)| *differs).map(|(what, _)| what).collect()
}

/// Logs what is allowed but probably not meant.
pub fn warn_about(config: &Config) {
    for warning in &config.warnings {
        tracing::warn!("{}", warning.message);
    }
    if config.state_directory.is_none() {
        tracing::warn!("no state_directory: sessions of legacy clients end with this process");
    }
    if let Some(warning) = program::started_as_root(config) {
        tracing::warn!("{warning}");
    }
    for (_, advice) in launchers::advice(config) {
        tracing::warn!("{advice}");
    }
    let held_bytes_max = config.limits.held_bytes_max();
    if let Some(limit_bytes) =
        memory_limit::of_process().filter(|limit_bytes| *limit_bytes < held_bytes_max as u64)
    {
        tracing::warn!(
            held_bytes_max,
            limit_bytes,
            "buffered_bytes_max, cache_bytes_max and kept_lists_bytes_max are more than the limit of memory: beyond that the kernel ends the process"
        );
    }
}

/// Does this in a thread of its own: what is computed for the control thread otherwise gives way to the workers, and a key
/// that is revoked must not wait for that. `None`: it panicked, or there is no thread to be had.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, result) = tokio::sync::oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    let thread = std::thread::Builder::new().name("reload".into()).spawn(move || {
        let _context = runtime.enter();
        let _ = done.send(work());
    });
    thread.ok()?;
    result.await.ok()
}
