//! A thread that serves connections: its own runtime, its own connections to upstreams, its own memory for
//! checking JSON. Workers share nothing on the request path but [`State`].

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::access::auth::caller_cache::Callers;
use crate::access::caller::Caller;
use crate::access::limit::handshakes::Handshakes;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Shares;
use crate::context::audit::AuditLog;
use crate::context::in_session::PendingAnswer;
use crate::context::state::State;
use crate::identity::Principal;
use crate::snapshot::{Endpoint, Snapshot};
use crate::telemetry::access::AccessLog;
use crate::telemetry::callers::CallerRegistry;
use crate::telemetry::logs::FailureLog;
use crate::telemetry::metrics::EndpointSeries;
use crate::telemetry::observers::Observers;
use crate::telemetry::pulse::Pulse;
use crate::telemetry::request_id::RequestIds;
use crate::telemetry::trace::Tracer;
use crate::upstream::ask::Asker;
use crate::upstream::exchange::UpstreamClient;
use crate::upstream::mux::host::Host;
use crate::upstream::{ReplicaSelection, Upstream};
use config::{self, LimitsConfig, Log};
use net::fetch::Fetcher;
use net::tasks::Tasks;
use protocol::json::Scratch;

/// How many exchanges of one worker may go on without their client.
const DETACHED_MAX: usize = 256;

/// What one thread owns.
pub(crate) struct Worker {
    pub state: Arc<State>,
    pub client: UpstreamClient,
    /// Turns for TLS handshakes.
    pub handshakes: Rc<Handshakes>,
    /// Memory for checking JSON.
    pub scratch: RefCell<Scratch>,
    /// What the clients on its streams have been asked.
    pub pending_answers: RefCell<Vec<PendingAnswer>>,
    pub callers: RefCell<Callers>,
    /// Exchanges that go on without their client.
    pub detached: Arc<Shares>,
    pub observers: Rc<Observers>,
    pub audit: AuditLog,
    view: RefCell<Rc<View>>,
}

/// The snapshot as one thread holds it: handles that are cloned without touching shared counters.
pub(crate) struct View {
    pub snapshot: Arc<Snapshot>,
    pub endpoints: Vec<Rc<Arc<Endpoint>>>,
    /// Who calls at each without credentials.
    pub anonymous: Vec<Rc<Caller>>,
    pub called: Vec<Rc<Arc<Upstream>>>,
    /// Counts requests that no endpoint took.
    pub unmatched: Rc<Arc<EndpointSeries>>,
}

impl View {
    fn new(snapshot: Arc<Snapshot>, callers: &CallerRegistry) -> Self {
        let anonymous = |endpoint: &Arc<Endpoint>| {
            let class = endpoint.policy.class_of(&Principal::Anonymous);
            Rc::new(Caller::new(Principal::Anonymous, class, None, callers.of(&Principal::Anonymous)))
        };
        Self {
            anonymous: snapshot.endpoints.iter().map(anonymous).collect(),
            endpoints: snapshot.endpoints.iter().map(|endpoint| Rc::new(Arc::clone(endpoint))).collect(),
            called: snapshot.upstreams.iter().map(|upstream| Rc::new(Arc::clone(upstream))).collect(),
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
    pub(crate) fn new(
        state: Arc<State>,
        pulse: Arc<Pulse>,
        log: &Log,
        upstream_connections_max: usize,
    ) -> Rc<Self> {
        let tasks = Tasks::new(state.metrics.gateway.panics.clone());
        let lines_max = log.refusals_per_second_max;
        let failures = FailureLog::new(lines_max, state.metrics.gateway.log_lines_dropped.clone());
        let access = AccessLog::new(log, state.metrics.gateway.log_lines_dropped.clone());
        let tracer = state.traces.as_deref().map(Tracer::new);
        let observers = Observers {
            failures,
            access,
            request_ids: RequestIds::default(),
            tracer,
            pulse,
            recent_errors: Arc::clone(&state.recent_errors),
            callers: Arc::clone(&state.callers),
        };
        let audit = AuditLog::new(log.audit, lines_max, state.metrics.gateway.log_lines_dropped.clone());
        let view = Rc::new(View::new(state.snapshot.load_full(), &state.callers));
        Rc::new(Self {
            client: UpstreamClient {
                pools: Rc::default(),
                fetcher: Fetcher {
                    tasks: tasks.clone(),
                    outbound: Arc::clone(&state.snapshot.load().outbound),
                },
                tasks,
                open: Rc::default(),
                open_max: upstream_connections_max,
                buffers: Rc::default(),
                host: Host::new(&state.host, state.metrics.gateway.panics.clone()),
            },
            handshakes: Rc::default(),
            scratch: RefCell::default(),
            pending_answers: RefCell::default(),
            callers: RefCell::default(),
            detached: Shares::new(DETACHED_MAX),
            observers: Rc::new(observers),
            audit,
            view: RefCell::new(view),
            state,
        })
    }

    /// The current snapshot. Connections of upstreams that are gone are closed when a new one is first seen.
    pub(crate) fn view(&self) -> Rc<View> {
        let current = self.state.snapshot.load();
        let mut view = self.view.borrow_mut();
        if !Arc::ptr_eq(&view.snapshot, &current) {
            *view = Rc::new(View::new(Arc::clone(&current), &self.state.callers));
            let living: Vec<_> = current.upstreams.iter().map(|upstream| upstream.id).collect();
            self.client.pools.retain(&living);
            self.callers.borrow_mut().clear();
            self.observers.refresh(&current.log);
            self.audit.refresh(&current.log);
        }
        Rc::clone(&view)
    }

    /// A way to ask upstreams for something that this payer is charged for.
    pub(crate) fn asker<'a>(&'a self, view: &'a View, payer: Payer) -> Asker<'a> {
        Asker {
            client: &self.client,
            scratch: &self.scratch,
            limits: &view.snapshot.limits,
            budget: &self.state.buffered,
            payer,
            aim: ReplicaSelection::Any,
        }
    }

    pub(crate) fn json_depth_max(&self) -> usize {
        self.view.borrow().snapshot.limits.json_depth_max
    }

    /// How many messages of one session may wait for one upstream.
    pub(crate) fn session_messages_max(&self) -> usize {
        self.view.borrow().snapshot.limits.session_messages_max
    }

    /// The limits in force when this thread last looked.
    pub(crate) fn limits(&self) -> Arc<LimitsConfig> {
        Arc::clone(&self.view.borrow().snapshot.limits)
    }
}
