//! Bounded counts: whoever keeps something holds a [`Place`] for as long.
//!
//! Invariant: what a [`Place`] took is given back when it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many may be kept at once.
#[derive(Debug)]
pub(super) struct Room {
    taken: AtomicUsize,
    max: AtomicUsize,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Place(Arc<Room>);

impl Room {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { taken: AtomicUsize::new(0), max: AtomicUsize::new(max) })
    }

    /// Changes the bound; what is taken stays taken.
    pub(super) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    pub(super) fn take(self: &Arc<Self>) -> Option<Place> {
        let max = self.max.load(Ordering::Relaxed);
        if self.taken.fetch_add(1, Ordering::Relaxed) < max {
            return Some(Place(Arc::clone(self)));
        }
        self.taken.fetch_sub(1, Ordering::Relaxed);
        None
    }

    /// For what must not wait for others to go. Whoever asks bounds it.
    pub(super) fn take_beyond(self: &Arc<Self>) -> Place {
        self.taken.fetch_add(1, Ordering::Relaxed);
        Place(Arc::clone(self))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_what_is_dropped() {
        let room = Room::new(2);
        let (first, second) = (room.take(), room.take());
        assert!(first.is_some() && second.is_some() && room.take().is_none());
        drop(first);
        assert_eq!(room.taken(), 1);
        room.set_max(1);
        assert!(room.take().is_none());
        let beyond = room.take_beyond();
        assert_eq!(room.taken(), 2);
        drop((second, beyond));
        assert!(room.take().is_some());
    }
}
