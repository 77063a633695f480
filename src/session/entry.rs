//! What changes in one session: its upstream sessions, its log level, when it was last used.
//!
//! Lock order: a shard of the table before an entry, an entry before nothing. What an entry's lock protects
//! is journalled under it, so that the journal has the order of events.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;

use super::level::Level;
use super::room::Place;
use crate::protocol::version::LegacyVersion;

/// A session that the gateway has with an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamSession {
    /// What the upstream calls it, if it gave it a name at all.
    pub id: Option<http::HeaderValue>,
    /// The version they agreed on.
    pub version: LegacyVersion,
}

/// An upstream session that is no longer used, with the name of its upstream.
pub type Closed = (Box<str>, Arc<UpstreamSession>);

/// The state of one session.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) expires_s: u64,
    used_s: AtomicU64,
    changing: Mutex<Changing>,
    _place: Place,
}

/// What the lock of an entry protects.
#[derive(Debug, Default)]
pub(super) struct Changing {
    /// The session is gone: whoever still holds the entry must keep nothing in it.
    pub(super) is_closed: bool,
    pub(super) level: Option<Level>,
    slots: HashMap<Box<str>, Arc<Slot>>,
}

/// The session with one upstream, or the place where it is opened.
#[derive(Debug, Default)]
pub(super) struct Slot {
    held: ArcSwapOption<Held>,
    /// Whoever holds it opens the upstream session.
    pub(super) turn: tokio::sync::Mutex<()>,
}

/// An upstream session and its place among all.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) session: Arc<UpstreamSession>,
    _place: Place,
}

impl Entry {
    pub(super) fn new(expires_s: u64, used_s: u64, place: Place) -> Self {
        Self { expires_s, used_s: AtomicU64::new(used_s), changing: Mutex::default(), _place: place }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Changing> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn touch(&self, now_s: u64) {
        if self.used_s.load(Ordering::Relaxed) < now_s {
            self.used_s.store(now_s, Ordering::Relaxed);
        }
    }

    /// Whether nothing was asked of it for `idle_s`, and no call holds one of its upstream sessions.
    pub(super) fn is_idle(&self, now_s: u64, idle_s: u64) -> bool {
        if now_s.saturating_sub(self.used_s.load(Ordering::Relaxed)) < idle_s {
            return false;
        }
        let is_in_use = self.lock().slots.values().any(|slot| slot.is_in_use());
        if is_in_use {
            // A long call is use to its end.
            self.touch(now_s);
        }
        !is_in_use
    }

    /// Ends it and gives its upstream sessions away.
    pub(super) fn close(&self) -> Vec<Closed> {
        let mut changing = self.lock();
        changing.is_closed = true;
        let session_of = |(upstream, slot): (Box<str>, Arc<Slot>)| Some((upstream, slot.take()?));
        changing.slots.drain().filter_map(session_of).collect()
    }
}

impl Changing {
    /// The session with an upstream, if it is open.
    pub(super) fn opened(&self, upstream: &str) -> Option<Arc<UpstreamSession>> {
        self.slots.get(upstream)?.session()
    }

    /// Those that are open, with the names of their upstreams.
    pub(super) fn all_opened(&self) -> Vec<Closed> {
        self.slots.iter().filter_map(|(name, slot)| Some((name.clone(), slot.session()?))).collect()
    }

    /// The slot of `upstream`, made where there is none.
    pub(super) fn slot(&mut self, upstream: &str) -> Arc<Slot> {
        if let Some(slot) = self.slots.get(upstream) {
            return Arc::clone(slot);
        }
        Arc::clone(self.slots.entry(upstream.into()).or_default())
    }
}

impl Slot {
    pub(super) fn session(&self) -> Option<Arc<UpstreamSession>> {
        self.held.load().as_ref().map(|held| Arc::clone(&held.session))
    }

    pub(super) fn keep(&self, session: Arc<UpstreamSession>, place: Place) {
        self.held.store(Some(Arc::new(Held { session, _place: place })));
    }

    pub(super) fn take(&self) -> Option<Arc<UpstreamSession>> {
        self.held.swap(None).map(|held| Arc::clone(&held.session))
    }

    /// Forgets `session` if it is still that one. False if it is not. Called under the entry's lock.
    pub(super) fn forget(&self, session: &Arc<UpstreamSession>) -> bool {
        let is_that_one = self.held.load().as_ref().is_some_and(|held| Arc::ptr_eq(&held.session, session));
        if is_that_one {
            self.held.store(None);
        }
        is_that_one
    }

    fn is_in_use(&self) -> bool {
        self.held.load().as_ref().is_some_and(|held| Arc::strong_count(&held.session) > 1)
    }
}
