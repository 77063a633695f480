//! A thread that serves connections: its own runtime, its own connections to upstreams, its own memory for
//! checking JSON. Workers share nothing on the request path but [`State`].

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Receiver;
use tokio::time::{MissedTickBehavior, sleep};

use crate::access::auth::Principal;
use crate::access::auth::remembered::Callers;
use crate::access::limit::handshakes::Handshakes;
use crate::context::caller::Caller;
use crate::context::pulse::Pulse;
use crate::context::snapshot::{Endpoint, Snapshot};
use crate::context::state::State;
use crate::edge;
use crate::line::legacy;
use crate::session;
use crate::telemetry::access::AccessLog;
use crate::telemetry::audit::AuditLog;
use crate::telemetry::logs::FailureLog;
use crate::telemetry::metrics::EndpointSeries;
use crate::telemetry::observers::Observers;
use crate::telemetry::request_id::RequestIds;
use crate::telemetry::trace::Tracer;
use crate::upstream::Aim;
use crate::upstream::ask::Asker;
use crate::upstream::exchange::Client;
use crate::upstream::pipe::host::Host;
use config::{self, Limits, Listener, Log};
use net::drain::Drain;
use net::socket::Listening;
use net::tasks::Tasks;
use protocol::json::Scratch;

/// How often idle connections to upstreams are looked through.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// What a worker is to do about a listener, by its number.
#[derive(Debug)]
pub enum Change {
    /// Accept here, too.
    Open(usize, Listener, Listening),
    /// Accept there no longer, and end what is connected by these clocks.
    Close(usize, config::Drain),
}

/// What one thread owns.
pub struct Worker {
    /// What all threads share.
    pub state: Arc<State>,
    /// The way to upstreams.
    pub client: Client,
    /// Turns for TLS handshakes.
    pub handshakes: Rc<Handshakes>,
    /// Memory for checking JSON.
    pub scratch: RefCell<Scratch>,
    /// What the clients on its streams have been asked.
    pub owed: RefCell<Vec<legacy::owed::Owed>>,
    /// Whose credentials were checked.
    pub callers: RefCell<Callers>,
    /// Counts, by its holders, exchanges that go on without their client.
    pub detached: Rc<()>,
    /// Who looks at calls.
    pub observers: Rc<Observers>,
    /// Where decisions of rules are told.
    pub audit: AuditLog,
    view: RefCell<Rc<View>>,
}

/// The snapshot as one thread holds it: handles that are cloned without touching shared counters.
pub struct View {
    /// The snapshot.
    pub snapshot: Arc<Snapshot>,
    /// Its endpoints.
    pub endpoints: Vec<Rc<Arc<Endpoint>>>,
    /// Who calls at each without credentials.
    pub anonymous: Vec<Rc<Caller>>,
    /// The names of its upstreams.
    pub upstream_names: Vec<Rc<str>>,
    /// Counts requests that no endpoint took.
    pub unmatched: Rc<Arc<EndpointSeries>>,
}

impl View {
    fn new(snapshot: Arc<Snapshot>) -> Self {
        let anonymous = |endpoint: &Arc<Endpoint>| {
            let class = endpoint.policy.class_of(&Principal::Anonymous);
            Rc::new(Caller { principal: Principal::Anonymous, class, ends: None })
        };
        Self {
            anonymous: snapshot.endpoints.iter().map(anonymous).collect(),
            endpoints: snapshot.endpoints.iter().map(|endpoint| Rc::new(Arc::clone(endpoint))).collect(),
            upstream_names: snapshot
                .upstreams
                .iter()
                .map(|upstream| upstream.config.name.as_str().into())
                .collect(),
            unmatched: Rc::new(Arc::clone(&snapshot.unmatched)),
            snapshot,
        }
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

impl Worker {
    /// A worker on the current thread.
    pub fn new(state: Arc<State>, pulse: Arc<Pulse>, log: &Log, upstream_connections_max: usize) -> Rc<Self> {
        let tasks = Tasks::new(state.metrics.panics.clone());
        let lines_max = log.refusals_per_second_max;
        let failures = FailureLog::new(lines_max, state.metrics.log_lines_dropped.clone());
        let access = AccessLog::new(log, state.metrics.log_lines_dropped.clone());
        let tracer = state.traces.as_deref().map(Tracer::new);
        let observers = Observers { failures, access, request_ids: RequestIds::default(), tracer, pulse };
        let audit = AuditLog::new(log.audit, lines_max, state.metrics.log_lines_dropped.clone());
        let view = Rc::new(View::new(state.snapshot.load_full()));
        Rc::new(Self {
            client: Client {
                pools: Rc::default(),
                tasks,
                open: Rc::default(),
                open_max: upstream_connections_max,
                pipes: Host::new(&state.pipes, state.metrics.panics.clone()),
            },
            handshakes: Rc::default(),
            scratch: RefCell::default(),
            owed: RefCell::default(),
            callers: RefCell::default(),
            detached: Rc::default(),
            observers: Rc::new(observers),
            audit,
            view: RefCell::new(view),
            state,
        })
    }

    /// The current snapshot. Connections of upstreams that are gone are closed when a new one is first seen.
    pub fn view(&self) -> Rc<View> {
        let current = self.state.snapshot.load();
        let mut view = self.view.borrow_mut();
        if !Arc::ptr_eq(&view.snapshot, &current) {
            *view = Rc::new(View::new(Arc::clone(&current)));
            let living: Vec<_> = current.upstreams.iter().map(|upstream| upstream.id).collect();
            self.client.pools.retain(&living);
            self.callers.borrow_mut().clear();
            self.observers.refresh(&current.log);
            self.audit.refresh(&current.log);
        }
        Rc::clone(&view)
    }

    /// A way to ask upstreams on the gateway's own behalf.
    pub fn asker<'a>(&'a self, view: &'a View) -> Asker<'a> {
        Asker {
            client: &self.client,
            scratch: &self.scratch,
            limits: &view.snapshot.limits,
            budget: &self.state.buffered,
            aim: Aim::Any,
        }
    }

    /// How deep messages may be nested.
    pub fn json_depth_max(&self) -> usize {
        self.view.borrow().snapshot.limits.json_depth_max
    }

    /// How many messages of one session may wait for one upstream.
    pub fn session_messages_max(&self) -> usize {
        self.view.borrow().snapshot.limits.session_messages_max
    }

    /// The limits in force when this thread last looked.
    pub fn limits(&self) -> Limits {
        self.view.borrow().snapshot.limits.clone()
    }

    /// Serves the listening sockets, in configured order, until the process ends.
    pub async fn run(self: &Rc<Self>, sockets: Vec<(Listener, Listening)>, changes: Receiver<Change>) {
        let mut open = HashMap::new();
        for (place, (config, socket)) in sockets.into_iter().enumerate() {
            open.insert(place, self.listen(place, config, socket));
        }
        let drain = &self.state.drain;
        let finished = async {
            drain.closing().await;
            self.client.pipes.close();
            self.client.pools.clear();
            self.client.tasks.wait().await;
        };
        tokio::select! {
            () = finished => {}
            () = drain.cut() => {}
            () = self.sweep() => {}
            () = legacy::cancellation::run(self) => {}
            () = self.follow(changes, open) => {}
        }
        self.client.pipes.finish(drain).await;
    }

    fn listen(self: &Rc<Self>, place: usize, config: Listener, socket: Listening) -> Rc<Drain> {
        let worker = Rc::clone(self);
        let drain = Rc::new(self.state.drain.below());
        let of_listener = Rc::clone(&drain);
        let serving = async move { edge::serve(worker, place, &config, socket, of_listener).await };
        let pulses = Arc::clone(&self.state.pulses);
        self.client.tasks.spawn_vital(serving, move || pulses.give_up());
        drain
    }

    /// Opens and closes listeners as the configuration has it.
    async fn follow(self: &Rc<Self>, mut changes: Receiver<Change>, mut open: HashMap<usize, Rc<Drain>>) {
        while let Some(change) = changes.recv().await {
            match change {
                Change::Open(place, config, socket) => {
                    open.insert(place, self.listen(place, config, socket));
                }
                Change::Close(place, clocks) => {
                    let Some(drain) = open.remove(&place) else { continue };
                    let worker = Rc::clone(self);
                    let by_clocks = async move {
                        drain.leave();
                        sleep(clocks.quiet).await;
                        drain.start_closing();
                        sleep(clocks.max.saturating_sub(clocks.quiet)).await;
                        drain.start_cut();
                    };
                    self.client.tasks.spawn(async move {
                        tokio::select! {
                            () = by_clocks => {}
                            () = worker.state.drain.closing() => {}
                        }
                    });
                }
            }
        }
        // Whoever changes listeners is gone; the process ends by its own clocks.
        std::future::pending::<()>().await;
    }

    async fn sweep(self: &Rc<Self>) {
        let mut interval = tokio::time::interval(SWEEP_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let view = self.view();
            self.client.pools.sweep(Instant::now());
            legacy::owed::sweep(self);
            view.snapshot.rates.sweep(Instant::now());
            let (state, snapshot) = (Arc::clone(&self.state), Arc::clone(&view.snapshot));
            // There may be very many sessions.
            let sweep = move || {
                let is_irreplaceable = |key: &str| snapshot.is_irreplaceable(key);
                state.sessions.sweep_once(session::now_s(), is_irreplaceable)
            };
            let closed = self.client.tasks.compute(sweep).await;
            legacy::close(self, &view, closed);
            if self.state.drain.is_quiet() {
                self.client.pools.clear();
            }
        }
    }
}
