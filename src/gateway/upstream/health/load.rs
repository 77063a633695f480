//! How many requests are on their way at a replica, and how many it has answered.
//!
//! Both are one number, so that the end of a request is one write.

use std::sync::atomic::{AtomicU64, Ordering};

/// One answered request, above the requests on their way.
const ANSWERED: u64 = 1 << 32;

#[derive(Debug, Default)]
pub(crate) struct Load(AtomicU64);

impl Load {
    pub(crate) fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self, is_answered: bool) {
        let change = if is_answered { ANSWERED - 1 } else { u64::MAX };
        // Wraps: minus one is the largest number.
        self.0.fetch_add(change, Ordering::Relaxed);
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.0.load(Ordering::Relaxed) % ANSWERED
    }

    /// Requests that were answered; begins anew after four thousand million.
    pub(crate) fn answered(&self) -> u64 {
        self.0.load(Ordering::Relaxed) / ANSWERED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_both() {
        let load = Load(AtomicU64::new(u64::MAX - (ANSWERED - 1)));
        assert_eq!((load.in_flight(), load.answered()), (0, ANSWERED - 1));
        load.begin();
        load.begin();
        load.end(false);
        assert_eq!((load.in_flight(), load.answered()), (1, ANSWERED - 1));
        load.end(true);
        assert_eq!((load.in_flight(), load.answered()), (0, 0), "begins anew");
    }
}
