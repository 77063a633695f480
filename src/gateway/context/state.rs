//! What every thread of the process shares: the snapshot, the process-wide limits and counters, the drain.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::Notify;

use crate::access::auth::sign_in::settings::{SignInError, make_keys};
use crate::access::limit::connections::Connections;
use crate::access::limit::open_files;
use crate::access::limit::per_address::PerAddress;
use crate::access::limit::shares::Shares;
use crate::access::tls::{ListenerProtocols, TlsError, TlsServers, expiry};
use crate::clock;
use crate::context::reloads::ReloadRequests;
use crate::grants::{Grants, OpenError};
use crate::key_file::KeyFileError;
use crate::redis::{Redis, SharedError};
use crate::session::Sessions;
use crate::session::store::StoreError;
use crate::snapshot::{Snapshot, SnapshotError};
use crate::tables::lists::Catalog;
use crate::tables::sse_sessions::SseSessions;
use crate::tables::subscriptions::Hub;
use crate::telemetry::callers::CallerRegistry;
use crate::telemetry::metrics::families::ReplicaMetrics;
use crate::telemetry::metrics::{Metrics, gauge};
use crate::telemetry::pulse::Pulses;
use crate::telemetry::recent_errors::RecentErrors;
use crate::telemetry::trace::{self, Traces};
use crate::upstream::changes::ChangedList;
use crate::upstream::health::breaker::BreakerState;
use crate::upstream::health::clock_ms;
use crate::upstream::{Replica, RetiredBridges, mux};
use config::{Config, ListenAddress};
use net::drain::Drain;
use tokens::sealing::SealingKeys;

/// A place at which clients connect.
#[derive(Clone, Debug)]
pub(crate) struct ListenPlace {
    pub address: ListenAddress,
    pub has_tls: bool,
    /// The unit of systemd that was to open the socket, which is our own.
    pub unused_socket_unit: Option<String>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub snapshot: ArcSwap<Snapshot>,
    pub metrics: Metrics,
    pub connections: Arc<Connections>,
    /// TLS handshakes under way, by address.
    pub handshakes: Arc<PerAddress>,
    pub tls: TlsServers,
    pub buffered: Arc<Shares>,
    pub catalog: Catalog,
    pub hub: Hub,
    pub sessions: Arc<Sessions>,
    /// The store of sign-ins, once there is a `[sign_in]`.
    pub grants: ArcSwapOption<Grants>,
    /// What leads clients to their calls of upstreams that a reload has left out or changed.
    pub retired: RetiredBridges,
    /// What replicas share, if anything.
    pub shared: Option<Arc<Redis>>,
    /// Streams of clients that speak HTTP+SSE.
    pub lines: SseSessions,
    /// Upstream connections that many calls share.
    pub host: Arc<mux::host::SharedHost>,
    /// The definitions of some upstream's tools have to be looked at.
    pub pins_due: Notify,
    /// Where traces go, if anywhere.
    pub traces: Option<Arc<Traces>>,
    pub reloads: ReloadRequests,
    /// An operator wants the process to end.
    pub stop_wanted: Notify,
    /// The places at which clients connect, in configured order.
    pub listeners: ArcSwap<Vec<ListenPlace>>,
    pub drain: Drain,
    /// Whether the workers live, and what they have under way.
    pub pulses: Arc<Pulses>,
    /// The latest calls that did not succeed.
    pub recent_errors: Arc<RecentErrors>,
    /// Who called how often.
    pub callers: Arc<CallerRegistry>,
}

/// Why a configuration cannot take effect.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It cannot be resolved.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// It promises more connections than the system allows.
    #[error(transparent)]
    OpenFiles(#[from] open_files::TooFewFiles),
    /// A listener cannot speak TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Sessions cannot be kept.
    #[error(transparent)]
    Sessions(#[from] StoreError),
    /// Nothing can be shared.
    #[error(transparent)]
    Shared(#[from] SharedError),
    /// Traces cannot go where they should.
    #[error(transparent)]
    Traces(#[from] trace::TraceSettingsError),
    /// There are no keys for session ids.
    #[error(transparent)]
    SessionKey(#[from] KeyFileError),
    /// Sign-ins cannot be kept.
    #[error("[sign_in] {0}")]
    Grants(#[from] OpenError),
    /// Sign-in cannot work.
    #[error(transparent)]
    SignIn(#[from] SignInError),
}

#[derive(Debug)]
pub(crate) struct NextState {
    connections_max: usize,
    servers: BTreeMap<usize, ListenerProtocols>,
    session_keys: Option<SealingKeys>,
    /// `None`: they are open, or not needed.
    grants: Option<Arc<Grants>>,
    old: Arc<Snapshot>,
    snapshot: Snapshot,
}

impl NextState {
    pub(crate) fn snapshots(&self) -> (&Snapshot, &Snapshot) {
        (&self.old, &self.snapshot)
    }
}

impl State {
    pub(crate) fn new(config: &Config, metrics: Metrics) -> Result<Arc<Self>, StateError> {
        let connections_max = open_files::connections_max(config.limits.connections_max)?;
        let tls = TlsServers::load(config)?;
        make_keys(config)?;
        let snapshot = Snapshot::build(config, &metrics, None)?;
        snapshot.take_up();
        let shared =
            config.shared.as_ref().map(|shared| Redis::new(shared, metrics.shared.clone())).transpose()?;
        // This one, whether it can be reached or not.
        metrics.shared.replicas.set(shared.is_some().into());
        let sessions = Sessions::open_store(
            config,
            metrics.sessions.journal_records_lost.clone(),
            metrics.streams.clone(),
            shared.clone(),
        )?;
        let grants = Grants::open(config, shared.as_ref(), &snapshot.sign_ins.news)?;
        if let Some(grants) = &grants {
            grants.take_up(snapshot.sign_ins.settings.as_ref().map(|sign_in| Arc::clone(&sign_in.seals)));
        }
        expiry::show(&tls, &metrics);
        let limits = &config.limits;
        let buffered = Shares::of_bytes(limits.buffered_bytes_max());
        Ok(Arc::new(Self {
            snapshot: ArcSwap::from_pointee(snapshot),
            connections: Connections::new(connections_max, limits.connections_per_address_max),
            handshakes: PerAddress::new(limits.handshakes_per_address_max),
            tls,
            catalog: Catalog::new(limits.cache_bytes_max(), limits.kept_lists_bytes_max()),
            hub: Hub::default(),
            sessions,
            grants: ArcSwapOption::new(grants),
            retired: RetiredBridges::default(),
            shared,
            lines: SseSessions::default(),
            host: mux::host::SharedHost::new(config, &buffered),
            buffered,
            pins_due: Notify::new(),
            traces: Traces::open(config.trace.as_ref(), &metrics.gateway.trace_spans)?,
            reloads: ReloadRequests::default(),
            stop_wanted: Notify::new(),
            listeners: ArcSwap::default(),
            drain: Drain::default(),
            pulses: Arc::default(),
            recent_errors: Arc::default(),
            callers: Arc::default(),
            metrics,
        }))
    }

    /// All of a reload that can fail: `listeners` are the numbers of the listeners of `config`. Nothing is replaced yet.
    pub(crate) fn prepare(&self, config: &Config, listeners: &[usize]) -> Result<NextState, StateError> {
        let old = self.snapshot.load_full();
        self.shared.as_ref().map(|shared| shared.check_access(config.shared.as_ref())).transpose()?;
        make_keys(config)?;
        let grants = match &*self.grants.load() {
            None => Grants::open(config, self.shared.as_ref(), &old.sign_ins.news)?,
            Some(_) => None,
        };
        Ok(NextState {
            connections_max: open_files::connections_max(config.limits.connections_max)?,
            servers: self.tls.reread(config, listeners)?,
            session_keys: self.sessions.read_keys(config)?,
            grants,
            snapshot: Snapshot::build(config, &self.metrics, Some(&old))?,
            old,
        })
    }

    /// Replaces the configuration by `config`, for which everything is prepared.
    pub(crate) fn take_up(&self, config: &Config, prepared: NextState) {
        let NextState { connections_max, servers, session_keys, grants, old, snapshot: new } = prepared;
        let limits = &config.limits;
        self.connections.set_max(connections_max, limits.connections_per_address_max);
        self.handshakes.set_max(limits.handshakes_per_address_max);
        self.tls.replace(servers);
        expiry::show(&self.tls, &self.metrics);
        self.buffered.set_max(limits.buffered_bytes_max());
        self.sessions.reconfigure(&config.session, session_keys);
        if grants.is_some() {
            self.grants.store(grants);
        }
        if let Some(grants) = &*self.grants.load() {
            grants.take_up(new.sign_ins.settings.as_ref().map(|sign_in| Arc::clone(&sign_in.seals)));
        }
        self.host.reconfigure(config);
        let new = Arc::new(new);
        new.take_up();
        self.snapshot.store(Arc::clone(&new));
        new.issuers.wanted.notify_one();
        self.catalog.kept.changed.notify_one();
        for gone in &old.upstreams {
            if new.upstreams.iter().all(|upstream| !upstream.is_served_with(gone)) {
                gone.retire();
                self.retired.add(&gone.other_era);
            }
            let same = new.upstreams.iter().find(|upstream| upstream.id == gone.id);
            if same.is_none() {
                gone.facts.end();
            }
            if same.is_some_and(|same| same.keeps_lists_unlike(gone)) {
                for changed in ChangedList::ALL {
                    gone.changes.note(changed);
                }
            }
        }
        let is_gone = |gone: &&str| new.upstreams.iter().all(|upstream| upstream.config.name != **gone);
        let before = old.upstreams.iter().map(|upstream| upstream.config.name.as_str());
        before.filter(is_gone).for_each(|gone| self.metrics.forget_upstream(gone));
        let is_gone = |gone: &&str| new.endpoint_named(gone).is_none();
        let before = old.endpoints.iter().map(|endpoint| endpoint.config.name.as_str());
        before.filter(is_gone).for_each(|gone| self.metrics.forget_endpoint(gone));
        self.hub.reloaded(&new);
    }

    /// All metrics as text, gauges brought up to date. To be called by one at a time.
    pub(crate) fn render_metrics(&self) -> Vec<u8> {
        self.metrics.process.read();
        self.metrics.connections.open.set(gauge(self.connections.open()));
        self.metrics.connections.max.set(gauge(self.connections.max()));
        self.metrics.connections.buffered_bytes_max.set(gauge(self.buffered.max()));
        self.metrics.subscriptions.open.set(gauge(self.hub.open()));
        self.metrics.subscriptions.sse_streams.set(gauge(self.lines.open()));
        self.metrics.lists.cache_bytes.set(gauge(self.catalog.bytes()));
        self.metrics.lists.kept_bytes.set(gauge(self.catalog.kept.bytes()));
        self.metrics.connections.buffered_bytes.set(gauge(self.buffered.taken()));
        let counts = self.sessions.counts();
        self.metrics.sessions.states.live.set(gauge(counts.sessions));
        self.metrics.sessions.states.revoked.set(gauge(counts.revoked));
        self.metrics.sessions.upstream_sessions.set(gauge(counts.upstream_sessions));
        self.metrics.streams.open.set(gauge(self.sessions.open_streams()));
        self.metrics.sessions.upstream_streams.set(gauge(counts.upstream_streams));
        self.metrics.sessions.journal_behind.set(self.sessions.journal_fault().is_some().into());
        self.metrics.gateway.state_directory_behind.set(self.catalog.files.fault().is_some().into());
        self.measure_sign_in();
        let tasks = self.sessions.task_counts();
        self.metrics.sessions.tasks.set(gauge(tasks.known));
        let forgotten = &self.metrics.sessions.tasks_forgotten;
        forgotten.inc_by(tasks.forgotten.saturating_sub(forgotten.get()));
        let snapshot = self.snapshot.load();
        snapshot.rates.observe();
        snapshot
            .upstreams
            .iter()
            .filter_map(|upstream| upstream.gate.as_ref())
            .for_each(|gate| gate.observe());
        self.count_replicas();
        self.metrics.render()
    }

    fn measure_sign_in(&self) {
        let (series, grants) = (&self.metrics.sign_in, self.grants.load());
        let Some(grants) = &*grants else { return };
        series.store_failing.set(grants.store_fault().is_some().into());
        series.store_full.set(grants.room_fault().is_some().into());
        series.provider_failing.set(grants.provider_fault().is_some().into());
        if let Some(figures) = grants.figures() {
            let number = |number: u64| gauge(usize::try_from(number).unwrap_or(usize::MAX));
            series.records_max.set(number(figures.records_max));
            series.store_bytes_max.set(number(figures.file_bytes_max));
        }
    }

    fn count_replicas(&self) {
        let ReplicaMetrics { breakers, in_flight, replicas: all, .. } = &self.metrics.replicas;
        let (snapshot, now_ms) = (self.snapshot.load(), clock_ms(clock::now()));
        let upstreams = snapshot.upstreams.iter();
        let upstreams: Vec<_> =
            upstreams.map(|upstream| (upstream.config.name.as_str(), upstream.replicas.load())).collect();
        let each = || {
            let replicas =
                upstreams.iter().map(|(name, replicas)| replicas.iter().map(move |one| (*name, one)));
            replicas.flatten()
        };
        breakers.replace(each().flat_map(|(name, replica)| {
            let now = replica.breaker.0.state();
            BreakerState::ALL.map(|state| ([name, &*replica.label, state.label()], (state == now).into()))
        }));
        in_flight.replace(
            each().map(|(name, replica)| ([name, &*replica.label], gauge(replica.load.in_flight()))),
        );
        all.replace(upstreams.iter().filter(|(_, replicas)| !replicas.is_empty()).flat_map(
            |(name, replicas)| {
                let is_fit = |replica: &&Arc<Replica>| replica.breaker.0.is_fit(&replica.rules, now_ms);
                let healthy = replicas.iter().filter(is_fit).count();
                [("healthy", healthy), ("unhealthy", replicas.len() - healthy)]
                    .map(|(state, count)| ([*name, state], gauge(count)))
            },
        ));
    }
}
