//! What every thread of the process shares: the snapshot, the process-wide limits and counters, the drain.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use crate::catalog::Catalog;
use crate::config::Config;
use crate::drain::Drain;
use crate::limit::buffered::Buffered;
use crate::limit::connections::Connections;
use crate::limit::open_files;
use crate::limit::per_address::PerAddress;
use crate::listen::Hub;
use crate::session::Sessions;
use crate::session::key_file::KeyFileError;
use crate::session::store::StoreError;
use crate::shared::{Shared, SharedError};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::sse_endpoint::Lines;
use crate::telemetry::metrics::Metrics;
use crate::tls::expiry;
use crate::tls::server::{Servers, TlsError};
use crate::upstream::health::breaker::State as BreakerState;
use crate::upstream::pipe;

/// Shared by all threads.
#[derive(Debug)]
pub struct State {
    /// The current configuration, resolved.
    pub snapshot: ArcSwap<Snapshot>,
    /// All metrics.
    pub metrics: Metrics,
    /// Open client connections.
    pub connections: Arc<Connections>,
    /// TLS handshakes under way, by address.
    pub handshakes: Arc<PerAddress>,
    /// What the listeners speak.
    pub tls: Servers,
    /// Bytes of messages held.
    pub buffered: Arc<Buffered>,
    /// Lists of upstreams and endpoints.
    pub catalog: Catalog,
    /// Change notices.
    pub hub: Hub,
    /// Sessions of legacy clients.
    pub sessions: Arc<Sessions>,
    /// What replicas share, if anything.
    pub shared: Option<Arc<Shared>>,
    /// Streams of clients that speak HTTP+SSE.
    pub lines: Lines,
    /// Upstream connections that many calls share.
    pub pipes: Arc<pipe::host::Shared>,
    /// The definitions of some upstream's tools have to be looked at.
    pub pins_due: Notify,
    /// How far the end has come.
    pub drain: Drain,
}

/// Why a configuration cannot take effect.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It cannot be resolved.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// It promises more connections than the system allows.
    #[error(transparent)]
    OpenFiles(#[from] open_files::TooFew),
    /// A listener cannot speak TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Sessions cannot be kept.
    #[error(transparent)]
    Sessions(#[from] StoreError),
    /// Nothing can be shared.
    #[error(transparent)]
    Shared(#[from] SharedError),
    /// There are no keys for session ids.
    #[error(transparent)]
    SessionKey(#[from] KeyFileError),
}

impl State {
    /// The state at start.
    pub fn new(config: &Config, metrics: Metrics) -> Result<Arc<Self>, StateError> {
        let connections_max = open_files::connections_max(config.limits.connections_max)?;
        let tls = Servers::load(config)?;
        let snapshot = Snapshot::build(config, &metrics, None)?;
        snapshot.take_up();
        let shared =
            config.shared.as_ref().map(|shared| Shared::new(shared, metrics.shared.clone())).transpose()?;
        let sessions = Sessions::open_store(
            config,
            metrics.journal_records_lost.clone(),
            metrics.streams.series.clone(),
            shared.clone(),
        )?;
        expiry::show(&tls, &metrics);
        let limits = &config.limits;
        let buffered = Buffered::new(limits.buffered_bytes_max);
        Ok(Arc::new(Self {
            snapshot: ArcSwap::from_pointee(snapshot),
            connections: Connections::new(connections_max, limits.connections_per_address_max),
            handshakes: PerAddress::new(limits.handshakes_per_address_max),
            tls,
            catalog: Catalog::new(limits.cache_bytes_max),
            hub: Hub::default(),
            sessions,
            shared,
            lines: Lines::default(),
            pipes: pipe::host::Shared::new(config, &buffered),
            buffered,
            pins_due: Notify::new(),
            drain: Drain::default(),
            metrics,
        }))
    }

    /// Replaces the snapshot by that of a new configuration, completely or not at all.
    pub fn reload(&self, config: &Config) -> Result<(), StateError> {
        let connections_max = open_files::connections_max(config.limits.connections_max)?;
        let old = self.snapshot.load_full();
        let servers = self.tls.reread(config)?;
        let session_keys = self.sessions.read_keys(config)?;
        let new = Snapshot::build(config, &self.metrics, Some(&old))?;
        let limits = &config.limits;
        self.connections.set_max(connections_max, limits.connections_per_address_max);
        self.handshakes.set_max(limits.handshakes_per_address_max);
        self.tls.replace(servers);
        expiry::show(&self.tls, &self.metrics);
        self.buffered.set_max(limits.buffered_bytes_max);
        self.sessions.reconfigure(&config.session, session_keys);
        self.pipes.reconfigure(config);
        let new = Arc::new(new);
        new.take_up();
        self.snapshot.store(Arc::clone(&new));
        new.issuers.wanted.notify_one();
        for gone in &old.upstreams {
            if new.upstreams.iter().all(|upstream| !upstream.is_served_with(gone)) {
                gone.retire();
            }
        }
        self.hub.reloaded(&new);
        Ok(())
    }

    /// All metrics as text, gauges brought up to date.
    pub fn render_metrics(&self) -> Result<Vec<u8>, prometheus::Error> {
        let gauge = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        self.metrics.connections_open.set(gauge(self.connections.open()));
        self.metrics.subscriptions.set(gauge(self.hub.open()));
        self.metrics.sse_streams.set(gauge(self.lines.open()));
        self.metrics.lists.bytes.set(i64::try_from(self.catalog.bytes()).unwrap_or(i64::MAX));
        self.metrics.buffered_bytes.set(gauge(self.buffered.held_bytes()));
        let counts = self.sessions.counts();
        for (state, sessions) in [("live", counts.sessions), ("revoked", counts.revoked)] {
            self.metrics.sessions.with_label_values(&[state]).set(gauge(sessions));
        }
        self.metrics.upstream_sessions.set(gauge(counts.upstream_sessions));
        self.metrics.streams.open.set(gauge(self.sessions.open_streams()));
        self.metrics.upstream_streams.set(gauge(counts.upstream_streams));
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

    fn count_replicas(&self) {
        let Metrics { breakers, replica_in_flight, .. } = &self.metrics;
        // Without those that are gone.
        breakers.reset();
        replica_in_flight.reset();
        for upstream in &self.snapshot.load().upstreams {
            let name = upstream.config.name.as_str();
            for replica in upstream.replicas.load().iter() {
                let state = replica.breaker.0.state();
                for each in BreakerState::ALL {
                    let labels = [name, &*replica.label, each.label()];
                    breakers.with_label_values(&labels).set((each == state).into());
                }
                let in_flight = i64::try_from(replica.load.0.in_flight()).unwrap_or(i64::MAX);
                replica_in_flight.with_label_values(&[name, &*replica.label]).set(in_flight);
            }
        }
    }
}
