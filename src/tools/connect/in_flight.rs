//! The requests of the client that wait for their answers.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use tokio_util::sync::CancellationToken;

/// The requests under way, by the spelling of their ids that [`super::message::key`] gives.
#[derive(Debug, Default)]
pub(super) struct InFlightRequests(RefCell<HashMap<String, Rc<InFlight>>>);

#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// The version it names in `_meta`; `None` in the legacy era.
    pub(super) modern_version: Option<String>,
    /// Whether it stays open until one side ends it.
    pub(super) is_open_ended: bool,
    /// Cancelled when nobody wants its answer any more.
    pub(super) stop: CancellationToken,
    /// Whether the client told the server that it has lost interest: then there need not be an answer.
    pub(super) is_withdrawn: Cell<bool>,
    /// Whether the server may have seen it.
    pub(super) is_sent: Cell<bool>,
}

impl InFlightRequests {
    /// Adds one; `false` if there are `calls_max`.
    pub(super) fn add(&self, key: String, call: Rc<InFlight>, calls_max: usize) -> bool {
        let mut calls = self.0.borrow_mut();
        let has_room = calls.len() < calls_max;
        if has_room {
            calls.insert(key, call);
        }
        has_room
    }

    pub(super) fn remove(&self, key: &str) {
        self.0.borrow_mut().remove(key);
    }

    pub(super) fn get(&self, key: &str) -> Option<Rc<InFlight>> {
        self.0.borrow().get(key).cloned()
    }

    pub(super) fn stop(&self, is_meant: impl Fn(&InFlight) -> bool) {
        self.0.borrow().values().filter(|call| is_meant(call)).for_each(|call| call.stop.cancel());
    }
}
