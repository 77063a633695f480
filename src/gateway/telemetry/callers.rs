//! How often each principal called, and how often it was refused, for whoever looks at `/status`.
//!
//! A principal is looked up when its credentials are checked, which a connection and a worker remember; a call then adds to
//! a count of its worker's own. Bounded: the first [`PRINCIPALS_MAX`] principals are told apart, all later ones are counted
//! together.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::calls::outcome;
use super::logs::cut;
use super::metrics::sharded::ShardedCounter;
use crate::identity::Principal;
use protocol::error::Reason;

/// Principals that are told apart.
const PRINCIPALS_MAX: usize = 1000;
/// What those are called together that are not.
const OTHERS: &str = "_other";

/// Everybody who called since the start.
#[derive(Debug, Default)]
pub(crate) struct CallerRegistry {
    /// By what sessions and limits are bound to.
    known: Mutex<HashMap<Box<str>, Arc<CallerCounts>>>,
    unidentified: AtomicU64,
}

/// The calls of one principal.
#[derive(Debug)]
pub(crate) struct CallerCounts {
    /// Its name; `None`: nobody asked who it is.
    pub(crate) principal: Option<Box<str>>,
    calls: ShardedCounter,
    errors: AtomicU64,
    refused: AtomicU64,
}

impl CallerRegistry {
    /// Where the calls of `principal` are counted.
    pub(crate) fn of(&self, principal: &Principal) -> Arc<CallerCounts> {
        let mut known = self.known.lock();
        if let Some(counts) = known.get(principal.id()) {
            return Arc::clone(counts);
        }
        let is_full = known.len() >= PRINCIPALS_MAX;
        let (id, name) = match principal {
            _ if is_full => (OTHERS, Some(OTHERS.into())),
            Principal::Anonymous => ("", None),
            Principal::Known(identity) => (&*identity.id, Some(cut(&identity.name).into())),
        };
        Arc::clone(known.entry(id.into()).or_insert_with(|| Arc::new(CallerCounts::new(name))))
    }

    /// A request failed before it was known who calls.
    pub(crate) fn note_unidentified(&self) {
        self.unidentified.fetch_add(1, Ordering::Relaxed);
    }

    /// How many did.
    pub(crate) fn unidentified(&self) -> u64 {
        self.unidentified.load(Ordering::Relaxed)
    }

    /// All principals, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<CallerCounts>> {
        self.known.lock().values().cloned().collect()
    }
}

impl CallerCounts {
    fn new(principal: Option<Box<str>>) -> Self {
        let (calls, errors, refused) = Default::default();
        Self { principal, calls, errors, refused }
    }

    /// A call ended; `reason` is why it failed.
    #[inline]
    pub(crate) fn observe(&self, reason: Option<Reason>) {
        self.calls.inc();
        if let Some(reason) = reason {
            self.note_error(reason);
        }
    }

    #[cold]
    fn note_error(&self, reason: Reason) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        if outcome(Some(reason)) == "refused" {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Calls, how many of them failed, and how many of these were refused.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        // Read in the other order than counted: no more are refused than failed.
        let refused = self.refused.load(Ordering::Relaxed);
        let errors = self.errors.load(Ordering::Relaxed);
        (self.calls.get(), errors.max(refused), refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_principal_is_counted_by_itself_up_to_a_bound() {
        let registry = CallerRegistry::default();
        let ci = registry.of(&Principal::api_key("ci"));
        ci.observe(None);
        registry.of(&Principal::api_key("ci")).observe(Some(Reason::Rate));
        ci.observe(Some(Reason::UpstreamTimeout));
        registry.of(&Principal::Anonymous).observe(None);
        assert_eq!((ci.counts(), ci.principal.as_deref()), ((3, 2, 1), Some("ci")));
        for number in 0..3 * PRINCIPALS_MAX {
            registry.of(&Principal::api_key(&number.to_string())).observe(None);
        }
        let all = registry.all();
        assert_eq!(all.len(), PRINCIPALS_MAX + 1);
        let others = all.iter().find(|one| one.principal.as_deref() == Some(OTHERS)).map(|one| one.counts());
        assert_eq!(others, Some((2 * PRINCIPALS_MAX as u64 + 2, 0, 0)));
        let anonymous = all.iter().find(|one| one.principal.is_none()).map(|one| one.counts());
        assert_eq!(anonymous, Some((1, 0, 0)));
        registry.note_unidentified();
        assert_eq!(registry.unidentified(), 1);
    }
}
