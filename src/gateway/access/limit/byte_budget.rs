//! The bytes of messages that the whole process holds, so that many large bodies at once cannot exhaust
//! its memory.
//!
//! Invariant: what a [`Reservation`] took is given back when it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug)]
pub(crate) struct ByteBudget {
    held_bytes: AtomicUsize,
    bytes_max: AtomicUsize,
}

impl ByteBudget {
    /// A budget of `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { held_bytes: AtomicUsize::new(0), bytes_max: AtomicUsize::new(bytes_max) })
    }

    /// Changes the budget; what is held stays held.
    pub(crate) fn set_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// The budget in bytes.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn reservation(self: &Arc<Self>) -> Reservation {
        Reservation { budget: Arc::clone(self), bytes: 0 }
    }
}

#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<ByteBudget>,
    bytes: usize,
}

impl Reservation {
    /// Takes as many more as make `bytes` in all. False, and nothing taken, if the budget is used up.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> bool {
        bytes <= self.bytes || self.grow(bytes - self.bytes)
    }

    /// Takes `bytes` more. False, and nothing taken, if the budget is used up.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let bytes_max = self.budget.bytes_max.load(Ordering::Relaxed);
        let held = self.budget.held_bytes.fetch_add(bytes, Ordering::Relaxed);
        if held.saturating_add(bytes) > bytes_max {
            self.budget.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        self.bytes += bytes;
        true
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.held_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_what_it_took() {
        let budget = ByteBudget::new(10);
        let mut one = budget.reservation();
        assert!(one.grow(4) && one.grow(4) && !one.grow(4));
        assert_eq!(budget.held_bytes(), 8);
        let mut two = budget.reservation();
        assert!(two.grow(2) && !two.grow(1));
        assert!(one.grow_to(8) && !one.grow_to(9));
        drop(one);
        assert!(two.grow(8));
        drop(two);
        assert_eq!(budget.held_bytes(), 0);
    }
}
