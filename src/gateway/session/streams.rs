//! The streams that clients hold open: how many there may be, how much may wait for each, and what became of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::access::limit::payer::Payer;
use crate::access::limit::shares::{Share, Shares};
use crate::telemetry::metrics::families::SessionStreamMetrics;

/// As much may wait for all streams together as if so many queues were full.
const FULL_QUEUES_MAX: usize = 256;

#[derive(Debug)]
pub(crate) struct StreamBounds {
    open: Arc<Shares>,
    queue_bytes_max: AtomicUsize,
    pub(super) queued: Arc<Shares>,
    pub(super) series: SessionStreamMetrics,
}

impl StreamBounds {
    /// No streams, and no room for any.
    pub(crate) fn new(series: SessionStreamMetrics) -> Arc<Self> {
        Arc::new(Self {
            open: Shares::new(0),
            queue_bytes_max: AtomicUsize::new(0),
            queued: Shares::of_bytes(0),
            series,
        })
    }

    /// Changes the bounds; open streams stay open.
    pub(crate) fn set_max(&self, open_max: usize, per_principal_max: usize, queue_bytes_max: usize) {
        self.open.set_max(open_max);
        self.open.set_of_payer_max(per_principal_max);
        self.queue_bytes_max.store(queue_bytes_max, Ordering::Relaxed);
        self.queued.set_max(queue_bytes_max.saturating_mul(FULL_QUEUES_MAX));
    }

    pub(crate) fn open(&self) -> usize {
        self.open.taken()
    }

    pub(super) fn queue_bytes_max(&self) -> usize {
        self.queue_bytes_max.load(Ordering::Relaxed)
    }

    /// Counts a stream in. `None`: there are as many as there may be, or as this payer may have.
    pub(crate) fn admit(&self, payer: Payer) -> Option<Share> {
        self.open.take(payer).ok()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::telemetry::metrics::registry::Registry;

    pub(in crate::session) fn series() -> SessionStreamMetrics {
        SessionStreamMetrics::register(&Registry::new()).expect("metrics")
    }

    #[test]
    fn counts_in_all_and_per_payer() {
        let streams = StreamBounds::new(series());
        let admit = |who| streams.admit(Payer::principal(who));
        assert!(admit("key:a").is_none());
        streams.set_max(2, 1, 0);
        let a = admit("key:a").expect("the first");
        assert!(admit("key:a").is_none());
        let _b = admit("key:b").expect("another");
        assert_eq!(streams.open(), 2);
        assert!(admit("key:c").is_none());
        drop(a);
        assert!(admit("key:c").is_some());
    }
}
