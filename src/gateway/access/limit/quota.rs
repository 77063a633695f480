//! Bounded counts: whoever keeps something holds a [`QuotaPermit`] for as long.
//!
//! Invariant: what a [`QuotaPermit`] took is given back when it is dropped.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug)]
pub(crate) struct Quota {
    taken: AtomicUsize,
    max: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct QuotaPermit(Arc<Quota>);

impl Quota {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { taken: AtomicUsize::new(0), max: AtomicUsize::new(max) })
    }

    /// Changes the bound; what is taken stays taken.
    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    pub(crate) fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// One more, while there is room.
    pub(crate) fn take(self: &Arc<Self>) -> Option<QuotaPermit> {
        if self.taken.fetch_add(1, Ordering::Relaxed) < self.max() {
            return Some(QuotaPermit(Arc::clone(self)));
        }
        self.taken.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for QuotaPermit {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A map with room for no more than this many keeps it.
const ROOM_KEPT: usize = 64;

/// Gives room back that a map does not use, and leaves enough for it not to grow again at once.
pub(crate) fn shrink<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if map.capacity() > ROOM_KEPT.max(4 * map.len()) {
        map.shrink_to(2 * map.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_what_is_dropped() {
        let room = Quota::new(2);
        let (first, second) = (room.take(), room.take());
        assert!(first.is_some() && second.is_some() && room.take().is_none());
        drop(first);
        assert_eq!(room.taken(), 1);
        room.set_max(1);
        assert!(room.take().is_none());
        drop(second);
        assert!(room.take().is_some());
    }
}
