//! How many requests are on their way at a replica, and how many it has answered.
//!
//! Both are one number, so that the end of a request is one write; and each worker counts its own.

use crate::telemetry::metrics::shards::Shards;

/// One answered request, above the requests on their way.
const ANSWERED: u64 = 1 << 32;

#[derive(Debug)]
pub(crate) struct Load(Shards);

impl Default for Load {
    fn default() -> Self {
        Self(Shards::new(1))
    }
}

impl Load {
    pub(crate) fn begin(&self) {
        self.add(1);
    }

    pub(crate) fn end(&self, is_answered: bool) {
        // Wraps: minus one is the largest number.
        self.add(if is_answered { ANSWERED - 1 } else { u64::MAX });
    }

    pub(crate) fn in_flight(&self) -> u64 {
        self.0.sum(0) % ANSWERED
    }

    /// Requests that were answered; begins anew after four thousand million.
    pub(crate) fn answered(&self) -> u64 {
        self.0.sum(0) / ANSWERED
    }

    fn add(&self, change: u64) {
        self.0.own().change(0, |load| load.wrapping_add(change));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::shards::count_as_worker;

    #[test]
    fn counts_both() {
        let load = Load::default();
        load.add(u64::MAX - (ANSWERED - 1));
        assert_eq!((load.in_flight(), load.answered()), (0, ANSWERED - 1));
        load.begin();
        load.begin();
        load.end(false);
        assert_eq!((load.in_flight(), load.answered()), (1, ANSWERED - 1));
        load.end(true);
        assert_eq!((load.in_flight(), load.answered()), (0, 0), "begins anew");
    }

    #[test]
    fn a_request_may_end_on_another_thread() {
        let load = Load::default();
        load.begin();
        load.begin();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                count_as_worker(1);
                load.end(true);
            });
        });
        assert_eq!((load.in_flight(), load.answered()), (1, 1));
    }
}
