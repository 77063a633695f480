//! What runs on the control thread beside its own loop: the listeners of operators, and those who ask upstreams.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::listeners::CHANGES_WAITING_MAX;
use super::notify::Notifier;
use super::{certificate_expiry, grants_upkeep, key_refresh, replicas, watchdog};
use crate::access::limit::open_files;
use crate::admin;
use crate::admin::metrics::MetricsText;
use crate::admin::socket::Socket;
use crate::catalog::lists::kept::KeptFiles;
use crate::catalog::pin_watch::PinWatcher;
use crate::catalog::probe::Prober;
use crate::catalog::{lists, subscriptions};
use crate::context::state::State;
use crate::upstream::exchange::UpstreamClient;
use crate::upstream::mux::host::Host;
use net::fetch::Fetcher;
use net::tasks::Tasks;

/// Connections for learning names, as many for finding out eras, and as many for looking at definitions.
pub(super) const UPSTREAM_CONNECTIONS_OF_CONTROL: usize = 64;
/// The last writes may take so long.
const LAST_WRITES_MAX: Duration = Duration::from_secs(1);

/// What runs on the control thread beside its own loop, for as long as the process does.
pub(super) struct ControlTasks<'s> {
    pub(super) state: &'s Arc<State>,
    pub(super) tasks: Tasks,
    pub(super) host: Rc<Host>,
}

/// The tasks that keep in files what is known of upstreams.
pub(super) struct LastWrites {
    stop: CancellationToken,
    tasks: Tasks,
}

impl LastWrites {
    /// Has them write what they have not written yet. A disk that hangs does not hold up the end.
    pub(super) async fn finish(self) {
        self.stop.cancel();
        if timeout(LAST_WRITES_MAX, self.tasks.wait()).await.is_err() {
            tracing::warn!("what is known of the upstreams cannot be written in time");
        }
    }
}

impl ControlTasks<'_> {
    pub(super) fn client(&self, open_max: usize) -> UpstreamClient {
        let (tasks, host) = (self.tasks.clone(), Rc::clone(&self.host));
        UpstreamClient {
            pools: Rc::default(),
            fetcher: self.fetcher(),
            tasks,
            open: Rc::default(),
            open_max,
            buffers: Rc::default(),
            host,
        }
    }

    fn fetcher(&self) -> Fetcher {
        Fetcher { tasks: self.tasks.clone(), outbound: Arc::clone(&self.state.snapshot.load().outbound) }
    }

    /// Workers that have ended take no job: from the drain's closing on, nothing is started on this thread in their place.
    pub(super) fn leave_in_time(&self) {
        let (state, host) = (Arc::clone(self.state), Rc::clone(&self.host));
        self.tasks.spawn(async move {
            state.drain.closing().await;
            host.leave();
        });
    }

    pub(super) async fn meet_replicas(&self) {
        if let Some(shared) = &self.state.shared {
            self.tasks.spawn(replicas::run(Arc::clone(self.state), Arc::clone(shared)));
            // The first call may be of a session that another replica carries on.
            shared.first_connection().await;
        }
    }

    /// Serves metrics at this socket, and then at those that are sent.
    pub(super) fn serve_metrics(
        &self,
        first: Option<Socket>,
        text: Rc<MetricsText>,
    ) -> mpsc::Sender<Option<Socket>> {
        let (sender, sockets) = mpsc::channel(CHANGES_WAITING_MAX);
        // There is room for the first.
        let _ = sender.try_send(first);
        let serving = admin::metrics::serve(Arc::clone(self.state), self.tasks.clone(), text, sockets);
        let pulses = Arc::clone(&self.state.pulses);
        self.tasks.spawn_vital(serving, move || pulses.give_up());
        sender
    }

    pub(super) fn serve_admin(&self, admin: Socket, process: admin::StartRecord, text: Rc<MetricsText>) {
        tracing::info!(address = %admin, "admin listening");
        let serving = admin::serve(Arc::clone(self.state), self.tasks.clone(), admin, process, text);
        let pulses = Arc::clone(&self.state.pulses);
        self.tasks.spawn_vital(serving, move || pulses.give_up());
    }

    pub(super) fn read_pins(&self, state_directory: Option<&Path>) -> PinWatcher {
        let looking = self.client(UPSTREAM_CONNECTIONS_OF_CONTROL);
        PinWatcher::new(Arc::clone(self.state), looking, state_directory)
    }

    pub(super) fn ask_upstreams(
        &self,
        prober: Prober,
        pins: PinWatcher,
        kept: Option<KeptFiles>,
    ) -> LastWrites {
        let state = || Arc::clone(self.state);
        let tasks = Tasks::new(self.state.metrics.gateway.panics.clone());
        let last_writes = LastWrites { stop: CancellationToken::new(), tasks };
        let LastWrites { stop, tasks } = &last_writes;
        if let Some(kept) = kept {
            tasks.spawn(kept.run(self.tasks.clone(), stop.clone()));
        }
        tasks.spawn(prober.run(stop.clone()));
        tasks.spawn(pins.run(stop.clone()));
        let learning = self.client(UPSTREAM_CONNECTIONS_OF_CONTROL);
        self.tasks.spawn(lists::learn::run(state(), learning));
        let asking_again = self.client(UPSTREAM_CONNECTIONS_OF_CONTROL);
        self.tasks.spawn(lists::ask_again::run(state(), asking_again));
        let listening = self.client(open_files::listening_connections_max());
        self.tasks.spawn(subscriptions::upstream::run(state(), listening));
        last_writes
    }

    pub(super) fn look_after_process(
        &self,
        version: &'static str,
        notifier: &Rc<Notifier>,
        watchdog: Option<Duration>,
    ) {
        let state = || Arc::clone(self.state);
        if let Some(traces) = &self.state.traces {
            self.tasks.spawn(Arc::clone(traces).run(version, self.fetcher()));
        }
        self.tasks.spawn(certificate_expiry::watch(state()));
        self.tasks.spawn(key_refresh::run(state(), self.fetcher()));
        self.tasks.spawn(grants_upkeep::run(state()));
        if notifier.is_heard() {
            self.tasks.spawn(watchdog::report(state(), Rc::clone(notifier)));
        }
        if let Some(watchdog) = watchdog {
            self.tasks.spawn(watchdog::watch(state(), Rc::clone(notifier), watchdog));
        }
    }
}
