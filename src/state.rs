//! What every thread of the process shares: the snapshot, the process-wide limits and counters, the drain.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::config::Config;
use crate::drain::Drain;
use crate::limit::buffered::Buffered;
use crate::limit::connections::Connections;
use crate::limit::open_files;
use crate::snapshot::{Snapshot, SnapshotError};
use crate::telemetry::metrics::Metrics;

/// Shared by all threads.
#[derive(Debug)]
pub struct State {
    /// The current configuration, resolved.
    pub snapshot: ArcSwap<Snapshot>,
    /// All metrics.
    pub metrics: Metrics,
    /// Open client connections.
    pub connections: Arc<Connections>,
    /// Bytes of messages held.
    pub buffered: Arc<Buffered>,
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
}

impl State {
    /// The state at start.
    pub fn new(config: &Config, metrics: Metrics) -> Result<Arc<Self>, StateError> {
        let connections_max = open_files::connections_max(config.limits.connections_max)?;
        let snapshot = Snapshot::build(config, &metrics, None)?;
        let limits = &config.limits;
        Ok(Arc::new(Self {
            snapshot: ArcSwap::from_pointee(snapshot),
            connections: Connections::new(connections_max, limits.connections_per_address_max),
            buffered: Buffered::new(limits.buffered_bytes_max),
            drain: Drain::default(),
            metrics,
        }))
    }

    /// Replaces the snapshot by that of a new configuration, completely or not at all.
    pub fn reload(&self, config: &Config) -> Result<(), StateError> {
        let connections_max = open_files::connections_max(config.limits.connections_max)?;
        let old = self.snapshot.load_full();
        let new = Snapshot::build(config, &self.metrics, Some(&old))?;
        let limits = &config.limits;
        self.connections.set_max(connections_max, limits.connections_per_address_max);
        self.buffered.set_max(limits.buffered_bytes_max);
        self.snapshot.store(Arc::new(new));
        Ok(())
    }

    /// All metrics as text, gauges brought up to date.
    pub fn render_metrics(&self) -> Result<Vec<u8>, prometheus::Error> {
        let gauge = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        self.metrics.connections_open.set(gauge(self.connections.open()));
        self.metrics.buffered_bytes.set(gauge(self.buffered.held_bytes()));
        self.metrics.render()
    }
}
