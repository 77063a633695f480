//! The requests of the client that wait for their answers, and what else must be finished before the end.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use protocol::version::Era;

/// The requests under way, by the spelling of their ids that [`super::message::key`] gives.
#[derive(Debug, Default)]
pub(super) struct InFlightRequests(RefCell<HashMap<String, InFlight>>);

/// A request under way.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    /// The era it is written in.
    pub(super) era: Era,
    /// Whether it stays open until one side ends it.
    pub(super) is_open_ended: bool,
    /// Cancelled when nobody wants its answer any more.
    pub(super) stop: CancellationToken,
    /// Whether the client told the server that it has lost interest: then there need not be an answer.
    pub(super) is_withdrawn: Rc<Cell<bool>>,
    /// Whether the server may have seen it.
    pub(super) is_sent: Rc<Cell<bool>>,
}

impl InFlightRequests {
    /// Adds one; `false` if there are `calls_max`, or one with its id.
    pub(super) fn add(&self, key: String, call: InFlight, calls_max: usize) -> bool {
        let mut calls = self.0.borrow_mut();
        if calls.len() >= calls_max || calls.contains_key(&key) {
            return false;
        }
        calls.insert(key, call);
        true
    }

    /// Removes one.
    pub(super) fn remove(&self, key: &str) {
        self.0.borrow_mut().remove(key);
    }

    /// The one with this id.
    pub(super) fn get(&self, key: &str) -> Option<InFlight> {
        self.0.borrow().get(key).cloned()
    }

    /// Stops all that are meant.
    pub(super) fn stop(&self, is_meant: impl Fn(&InFlight) -> bool) {
        self.0.borrow().values().filter(|call| is_meant(call)).for_each(|call| call.stop.cancel());
    }
}

/// Counts what is not finished. Clones count together.
#[derive(Clone, Debug)]
pub(super) struct PendingCount(Rc<watch::Sender<usize>>);

/// Counted while it lives.
#[derive(Debug)]
pub(super) struct PendingGuard(Rc<watch::Sender<usize>>);

impl Default for PendingCount {
    fn default() -> Self {
        Self(Rc::new(watch::Sender::new(0)))
    }
}

impl PendingCount {
    /// One more.
    pub(super) fn one(&self) -> PendingGuard {
        self.0.send_modify(|count| *count += 1);
        PendingGuard(Rc::clone(&self.0))
    }

    /// Returns when there is none.
    pub(super) async fn none(&self) {
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for PendingGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}
