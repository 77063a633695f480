//! The streams that clients hold open: how many there may be, how much may wait for each, and what became of them.
//!
//! Invariant: a [`StreamPlace`] counts as long as it lives.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::grant::Grant;
use crate::access::limit::byte_budget::ByteBudget;
use crate::telemetry::metrics::families::SessionStreamMetrics;

/// As much may wait for all streams together as if so many queues were full.
const FULL_QUEUES_MAX: usize = 256;

#[derive(Debug)]
pub(crate) struct StreamBounds {
    open: AtomicUsize,
    open_max: AtomicUsize,
    per_principal_max: AtomicUsize,
    /// By a digest: what a principal is called may be long.
    by_principal: Mutex<HashMap<u64, usize>>,
    hasher: RandomState,
    queue_bytes_max: AtomicUsize,
    pub(super) queued: Arc<ByteBudget>,
    pub(super) series: SessionStreamMetrics,
}

#[derive(Debug)]
pub(crate) struct StreamPlace {
    streams: Arc<StreamBounds>,
    /// `None` for those whom nothing tells apart.
    principal: Option<u64>,
}

impl StreamBounds {
    /// No streams, and no room for any.
    pub(crate) fn new(series: SessionStreamMetrics) -> Arc<Self> {
        Arc::new(Self {
            open: AtomicUsize::new(0),
            open_max: AtomicUsize::new(0),
            per_principal_max: AtomicUsize::new(0),
            by_principal: Mutex::default(),
            hasher: RandomState::new(),
            queue_bytes_max: AtomicUsize::new(0),
            queued: ByteBudget::new(0),
            series,
        })
    }

    /// Changes the bounds; open streams stay open.
    pub(crate) fn set_max(&self, open_max: usize, per_principal_max: usize, queue_bytes_max: usize) {
        self.open_max.store(open_max, Ordering::Relaxed);
        self.per_principal_max.store(per_principal_max, Ordering::Relaxed);
        self.queue_bytes_max.store(queue_bytes_max, Ordering::Relaxed);
        self.queued.set_max(queue_bytes_max.saturating_mul(FULL_QUEUES_MAX));
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn queue_bytes_max(&self) -> usize {
        self.queue_bytes_max.load(Ordering::Relaxed)
    }

    /// Counts a stream of the session in. `None`: there are as many as there may be.
    pub(crate) fn admit(self: &Arc<Self>, grant: &Grant) -> Option<StreamPlace> {
        self.admit_for(&grant.endpoint, &grant.principal)
    }

    /// Counts a stream in whose session is yet to be opened.
    pub(crate) fn admit_for(self: &Arc<Self>, endpoint: &str, principal: &str) -> Option<StreamPlace> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.open_max.load(Ordering::Relaxed) {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let has_name = !principal.is_empty();
        let principal = has_name.then(|| self.hasher.hash_one((endpoint, principal)));
        if let Some(principal) = principal {
            let mut by_principal = self.by_principal.lock();
            let count = by_principal.entry(principal).or_insert(0);
            if *count >= self.per_principal_max.load(Ordering::Relaxed) {
                if *count == 0 {
                    by_principal.remove(&principal);
                }
                self.open.fetch_sub(1, Ordering::Relaxed);
                return None;
            }
            *count += 1;
        }
        Some(StreamPlace { streams: Arc::clone(self), principal })
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.streams.open.fetch_sub(1, Ordering::Relaxed);
        let Some(principal) = self.principal else { return };
        let mut by_principal = self.streams.by_principal.lock();
        if let Some(count) = by_principal.get_mut(&principal) {
            *count -= 1;
            if *count == 0 {
                by_principal.remove(&principal);
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::session::{ClientInfo, SessionId};
    use crate::telemetry::metrics::registry::Registry;
    use protocol::version::LegacyVersion;

    pub(in crate::session) fn series() -> SessionStreamMetrics {
        SessionStreamMetrics::register(&Registry::new()).expect("metrics")
    }

    pub(in crate::session) fn grant(principal: &str) -> Grant {
        Grant {
            id: SessionId(1 << 20),
            endpoint: "/mcp".into(),
            version: LegacyVersion::NEWEST,
            client: ClientInfo::default(),
            capabilities: "{}".into(),
            principal: principal.into(),
            issued_s: 0,
            expires_s: 1,
        }
    }

    #[test]
    fn counts_in_all_and_per_principal() {
        let streams = StreamBounds::new(series());
        assert!(streams.admit(&grant("")).is_none());
        streams.set_max(3, 1, 0);
        let a = streams.admit(&grant("key:a")).expect("the first");
        assert!(streams.admit(&grant("key:a")).is_none());
        let _b = streams.admit(&grant("key:b")).expect("another principal");
        assert_eq!(streams.open(), 2);
        drop(a);
        // Nothing tells these apart: they are counted in all.
        let _anonymous = [(); 2].map(|()| streams.admit(&grant("")).expect("anonymous"));
        assert!(streams.admit(&grant("key:a")).is_none());
        assert_eq!((streams.open(), streams.by_principal.lock().len()), (3, 1));
    }
}
