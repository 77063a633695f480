//! The control thread's own loop: reloads until told to stop, then drains by the three clocks.

use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, interval, sleep, sleep_until};

use super::notify::Notifier;
use super::reload::Reloader;
use super::supervisor::LEAVE_MAX;
use crate::context::state::State;
use config::{self, Config};

/// How often it is looked at whether the drain has nothing left to wait for.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Why the gateway has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitCause {
    /// A signal said so.
    Told,
    /// A worker thread ended with a panic or hung, which is a bug. The others were drained.
    WorkerDied,
    /// The control thread ended with a panic, which is a bug. The workers were drained.
    ControlDied,
}

/// The signals that a gateway obeys.
pub(super) struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

pub(super) struct Control<'a> {
    pub(super) state: &'a Arc<State>,
    pub(super) started_with: &'a Config,
    pub(super) workers: &'a [JoinHandle<()>],
    pub(super) notifier: &'a Notifier,
    /// Whether connections that nobody accepts wait for the next process.
    pub(super) sockets_outlive_us: bool,
}

/// From here on SIGHUP does not end the process; to be called in a runtime. One that comes before [`Signals`] are there is answered then.
pub(super) fn catch_hangup() -> std::io::Result<()> {
    signal(SignalKind::hangup()).map(drop)
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

impl Control<'_> {
    /// Reloads until told to stop, drains, and waits for the workers. A second signal ends the drain, a third the waiting.
    pub(super) async fn run(&self, mut signals: Signals, reloader: &mut Reloader) -> ExitCause {
        let end = self.serve(&mut signals, reloader).await;
        self.state.reloads.stop();
        self.drain(reloader.current(), &mut signals).await;
        tokio::select! {
            () = self.finished() => return end,
            () = signals.stop() => {}
            // A worker that hangs never ends.
            () = sleep(2 * self.children_stop_max(reloader.current()) + LEAVE_MAX) => {}
        }
        tracing::error!("not every worker has ended; leaving all the same");
        end
    }

    async fn serve(&self, signals: &mut Signals, reloader: &mut Reloader) -> ExitCause {
        let Signals { hangup, terminate, interrupt } = signals;
        let mut ended = pin!(async {
            tokio::select! {
                _ = terminate.recv() => ExitCause::Told,
                _ = interrupt.recv() => ExitCause::Told,
                () = self.state.stop_wanted.notified() => ExitCause::Told,
                () = self.state.pulses.death() => {
                    tracing::error!("a worker thread ended, which is a bug; stopping");
                    ExitCause::WorkerDied
                }
            }
        });
        loop {
            tokio::select! {
                _ = hangup.recv() => {}
                () = self.state.reloads.wanted() => {}
                () = reloader.changed() => {}
                end = &mut ended => return end,
            }
            self.notifier.reloading();
            tokio::select! {
                is_new = reloader.reload() => self.notifier.reloaded(is_new, self.state),
                end = &mut ended => return end,
            }
        }
    }

    /// The three clocks. Afterwards nothing is served any more.
    async fn drain(&self, config: &Config, signals: &mut Signals) {
        let (state, drain) = (self.state, &config.drain);
        let started = Instant::now();
        // Who writes it has clients that are not connected between two calls.
        let is_alone = drain.quiet.is_none() && state.connections.open() == 0;
        let quiet = if is_alone { Duration::ZERO } else { drain.quiet_max() };
        tracing::info!(connections = state.connections.open(), calls = state.pulses.calls(), "draining");
        start_drain(state);
        let children = self.children_stop_max(config);
        // Workers and the journal have that time each.
        self.notifier.stopping(drain.max + 2 * children + 2 * LEAVE_MAX, state);
        let phases = async {
            tokio::select! {
                () = sleep_until(started + quiet) => {}
                () = self.idle(), if self.sockets_outlive_us => {}
            }
            state.drain.start_closing();
            sleep_until(started + drain.max).await;
        };
        tokio::select! {
            () = self.finished() => {}
            () = phases => {}
            () = signals.stop() => {}
        }
        cut(state);
    }

    /// Time that a child may take to end by itself, and again after it was told.
    fn children_stop_max(&self, current: &Config) -> Duration {
        let upstreams = self.started_with.upstreams.iter().chain(&current.upstreams);
        let stop_timeout =
            |upstream: &config::UpstreamConfig| upstream.command.as_ref().map(|command| command.stop_timeout);
        upstreams.filter_map(stop_timeout).max().unwrap_or_default()
    }

    /// No client is connected, and none will be.
    async fn idle(&self) {
        look_until(|| self.state.connections.are_over()).await;
    }

    async fn finished(&self) {
        look_until(|| self.workers.iter().all(JoinHandle::is_finished)).await;
    }
}

/// Clients are told to go elsewhere, and what waits for changes is ended.
pub(super) fn start_drain(state: &State) {
    state.drain.start_quiet();
    state.hub.end_all();
}

/// Ends what is left when the time of the drain is over.
pub(super) fn cut(state: &State) {
    let (connections, calls) = (state.connections.open(), state.pulses.calls());
    state.metrics.calls.drain_aborted.inc_by(calls as u64);
    if connections > 0 || calls > 0 {
        tracing::warn!(connections, calls, "cutting what is left");
    }
    state.drain.start_closing();
    state.drain.start_cut();
}

pub(super) async fn look_until(is_so: impl Fn() -> bool) {
    let mut interval = interval(LOOK_INTERVAL);
    while !is_so() {
        interval.tick().await;
    }
}
