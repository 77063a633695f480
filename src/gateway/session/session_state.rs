//! What changes in one session: its upstream sessions, its log level, when it was last used.
//!
//! Lock order: a shard of the table before an entry, an entry before its outbox. What an entry's lock protects
//! is journalled under it, so that the journal has the order of events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use foldhash::HashMap;
use http::HeaderMap;
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use super::journal::ReplayedSession;
use super::outbox::SessionOutbox;
use super::stream_state::StreamState;
use super::streams::StreamBounds;
use super::subscribed_uris::SubscribedUris;
use crate::access::limit::shares::Share;
use crate::upstream::ReplicaKey;
use crate::upstream::ask::SessionHeaders;
use crate::upstream::changes::ChangedList;
use crate::upstream::headers::ShownHeaders;
use protocol::level::Level;
use protocol::version::LegacyVersion;

/// A session that the gateway has with an upstream.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamSession {
    /// What the upstream calls it, if it gave it a name at all.
    pub id: Option<http::HeaderValue>,
    pub version: LegacyVersion,
    /// The replica that knows it; `None`: every one does, or it was not written down.
    pub replica: Option<ReplicaKey>,
    /// Another one for each that this process has opened or read back, so that what is left of an earlier session
    /// with the same upstream is told apart.
    pub generation: u64,
    /// Cancelled once it is lost, replaced or closed: whatever is open for it ends.
    pub ended: CancellationToken,
    /// Whether its upstream is listened to.
    pub stream: Arc<StreamState>,
    /// The headers that are handed on, as its client has shown them.
    pub shown: Arc<ShownHeaders>,
    /// The lists that are its own.
    pub lists: Arc<OwnLists>,
}

/// The lists that a session has for itself: it was told that they have changed, and others may see others.
#[derive(Debug, Default)]
pub(crate) struct OwnLists {
    told: AtomicU8,
    is_lost: AtomicBool,
}

impl OwnLists {
    /// The session was told that lists of this kind have changed.
    pub(crate) fn note(&self, changed: ChangedList) {
        self.told.fetch_or(1 << changed as u8, Ordering::Relaxed);
    }

    pub(crate) fn has(&self, changed: ChangedList) -> bool {
        self.told.load(Ordering::Relaxed) & 1 << changed as u8 != 0
    }

    /// Its upstream did not know the session when it was asked for a list.
    pub(crate) fn note_lost(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }
}

impl UpstreamSession {
    /// A session that an upstream has just opened, or that was read back.
    pub(crate) fn new(id: Option<http::HeaderValue>, version: LegacyVersion) -> Self {
        static GENERATION: AtomicU64 = AtomicU64::new(1);
        let generation = GENERATION.fetch_add(1, Ordering::Relaxed);
        Self {
            id,
            version,
            replica: None,
            generation,
            ended: CancellationToken::new(),
            stream: Arc::default(),
            shown: Arc::default(),
            lists: Arc::default(),
        }
    }

    /// One that was opened with this of its client's headers.
    #[must_use]
    pub(crate) fn showing(self, shown: Option<&Arc<HeaderMap>>) -> Self {
        if let Some(shown) = shown {
            self.shown.set(shown);
        }
        self
    }

    /// As requests name it.
    pub(crate) fn named(&self) -> SessionHeaders<'_> {
        let (id, shown) = (self.id.as_ref(), self.shown.get());
        SessionHeaders { id, version: Some(self.version.as_str()), replica: self.replica, shown }
    }

    /// One that this replica knows, if it has an id that others might not know.
    #[must_use]
    pub(crate) fn at(self, replica: Option<ReplicaKey>) -> Self {
        Self { replica: replica.filter(|_| self.id.is_some()), ..self }
    }
}

impl PartialEq for UpstreamSession {
    fn eq(&self, other: &Self) -> bool {
        (&self.id, self.version) == (&other.id, other.version)
    }
}

impl Eq for UpstreamSession {}

/// An upstream session that is no longer used, with the name of its upstream.
pub(crate) type ClosedSession = (Box<str>, Arc<UpstreamSession>);

#[derive(Debug)]
pub(super) struct SessionState {
    pub(super) expires_s: u64,
    pub(super) outbox: Arc<SessionOutbox>,
    used_s: AtomicU64,
    /// When others were last told of its use.
    shared_s: AtomicU64,
    /// Until then others use it, as far as is known.
    pub(super) used_elsewhere_until_s: AtomicU64,
    changing: Mutex<MutableState>,
    /// Its place among all sessions.
    _place: Share,
}

/// What the lock of an entry protects.
#[derive(Debug, Default)]
pub(super) struct MutableState {
    /// The session is gone: whoever still holds the entry must keep nothing in it.
    pub(super) is_closed: bool,
    pub(super) level: Option<Level>,
    /// Its client mirrors parameters of calls in headers.
    pub(super) is_mirroring: bool,
    pub(super) subscribed: SubscribedUris,
    /// By the session keys of upstreams, which the configuration names.
    slots: HashMap<Box<str>, Arc<UpstreamSlot>>,
}

/// The session with one upstream, or the place where it is opened.
#[derive(Debug, Default)]
pub(super) struct UpstreamSlot {
    held: ArcSwapOption<TrackedSession>,
    /// What the upstream called the one that it forgot last.
    lost: ArcSwapOption<http::HeaderValue>,
    /// Whoever holds it opens the upstream session.
    pub(super) turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
pub(super) struct TrackedSession {
    pub(super) session: Arc<UpstreamSession>,
    /// Its place among all sessions with upstreams.
    pub(super) place: Share,
}

impl TrackedSession {
    /// Whether a call, or whoever else, works with it.
    pub(super) fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.session) > 1
    }
}

impl SessionState {
    pub(super) fn new(expires_s: u64, used_s: u64, place: Share, streams: &Arc<StreamBounds>) -> Self {
        Self {
            expires_s,
            outbox: Arc::new(SessionOutbox::new(Arc::clone(streams), place.payer())),
            used_s: AtomicU64::new(used_s),
            shared_s: AtomicU64::new(0),
            used_elsewhere_until_s: AtomicU64::new(0),
            changing: Mutex::default(),
            _place: place,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, MutableState> {
        self.changing.lock()
    }

    /// All that the journal says of it, but for what its client was given.
    pub(super) fn replayed(&self) -> ReplayedSession {
        let changing = self.lock();
        let opened = changing.all_opened().into_iter();
        ReplayedSession {
            expires_s: self.expires_s,
            level: changing.level,
            upstreams: opened.map(|(upstream, opened)| (upstream, (*opened).clone())).collect(),
            subscribed: changing.subscribed.clone(),
            given: None,
        }
    }

    pub(super) fn touch(&self, now_s: u64) {
        if self.used_s.load(Ordering::Relaxed) < now_s {
            self.used_s.store(now_s, Ordering::Relaxed);
        }
    }

    /// It counts as last used now, whatever was known before.
    pub(super) fn use_from(&self, now_s: u64) {
        self.used_s.store(now_s, Ordering::Relaxed);
        self.shared_s.store(0, Ordering::Relaxed);
    }

    /// Whether it was used, or is held, since others were last told, which was `interval_s` ago or longer. Returns for
    /// how long it has not been used.
    pub(super) fn use_to_tell(&self, now_s: u64, interval_s: u64) -> Option<u64> {
        let told_s = self.shared_s.load(Ordering::Relaxed);
        if told_s.saturating_add(interval_s) > now_s {
            return None;
        }
        if self.is_held() {
            self.touch(now_s);
        }
        let used_s = self.used_s.load(Ordering::Relaxed);
        (used_s > told_s || told_s == 0).then(|| now_s.saturating_sub(used_s))
    }

    pub(super) fn note_untold(&self) {
        self.shared_s.store(0, Ordering::Relaxed);
    }

    /// Others are told. False: another thread does it.
    pub(super) fn note_told(&self, now_s: u64, interval_s: u64) -> bool {
        let told_s = self.shared_s.load(Ordering::Relaxed);
        let is_due = told_s.saturating_add(interval_s) <= now_s;
        is_due && self.shared_s.compare_exchange(told_s, now_s, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether nothing was asked of it for `idle_s`, its client holds no stream, and no call holds one of its upstream
    /// sessions.
    pub(super) fn is_idle(&self, now_s: u64, idle_s: u64) -> bool {
        if now_s.saturating_sub(self.used_s.load(Ordering::Relaxed)) < idle_s {
            return false;
        }
        let is_held = self.is_held();
        if is_held {
            self.touch(now_s);
        }
        !is_held
    }

    /// Whether it was kept for those who might use it elsewhere, since it was idle here; for as long again, if nothing is
    /// known of that.
    pub(super) fn was_kept_for_others(&self, now_s: u64, idle_s: u64) -> bool {
        let until_s = self.used_elsewhere_until_s.load(Ordering::Relaxed);
        let idle_from_s = self.used_s.load(Ordering::Relaxed).saturating_add(idle_s);
        let was_kept = until_s >= idle_from_s;
        if !was_kept {
            self.used_elsewhere_until_s.store(now_s.saturating_add(idle_s), Ordering::Relaxed);
        }
        was_kept
    }

    /// Whether its client holds a stream, or a call one of its upstream sessions: both are use to their end.
    fn is_held(&self) -> bool {
        self.outbox.has_client() || self.lock().slots.values().any(|slot| slot.is_in_use())
    }

    /// Ends it and gives its upstream sessions away.
    pub(super) fn close(&self) -> Vec<ClosedSession> {
        let mut changing = self.lock();
        changing.is_closed = true;
        self.outbox.close();
        changing.take_all()
    }
}

impl MutableState {
    pub(super) fn opened(&self, upstream: &str) -> Option<Arc<UpstreamSession>> {
        self.slots.get(upstream)?.session()
    }

    /// Those that are open, with the names of their upstreams.
    pub(super) fn all_opened(&self) -> Vec<ClosedSession> {
        self.slots.iter().filter_map(|(name, slot)| Some((name.clone(), slot.session()?))).collect()
    }

    /// Shows all that are open, with the names of their upstreams.
    pub(super) fn look_at_opened(&self, mut look: impl FnMut(&str, &TrackedSession)) {
        for (upstream, slot) in &self.slots {
            if let Some(held) = &*slot.held.load() {
                look(upstream, held);
            }
        }
    }

    /// Gives one away that nobody works with.
    pub(super) fn take_unused(&self, upstream: &str) -> Option<Arc<UpstreamSession>> {
        let slot = self.slots.get(upstream)?;
        if slot.is_in_use() { None } else { slot.take() }
    }

    pub(super) fn take_all(&mut self) -> Vec<ClosedSession> {
        let session_of = |(upstream, slot): (Box<str>, Arc<UpstreamSlot>)| Some((upstream, slot.take()?));
        self.slots.drain().filter_map(session_of).collect()
    }

    pub(super) fn has_opened(&self, is_meant: impl Fn(&str) -> bool) -> bool {
        self.slots.iter().any(|(upstream, slot)| slot.session().is_some() && is_meant(upstream))
    }

    /// Whether the client asked for something that upstreams are to be told again.
    pub(super) fn has_wishes(&self) -> bool {
        self.level.is_some() || !self.subscribed.is_empty()
    }

    pub(super) fn slot(&mut self, upstream: &str) -> Arc<UpstreamSlot> {
        if let Some(slot) = self.slots.get(upstream) {
            return Arc::clone(slot);
        }
        Arc::clone(self.slots.entry(upstream.into()).or_default())
    }
}

impl UpstreamSlot {
    pub(super) fn session(&self) -> Option<Arc<UpstreamSession>> {
        self.held.load().as_ref().map(|held| Arc::clone(&held.session))
    }

    pub(super) fn keep(&self, session: Arc<UpstreamSession>, place: Share) {
        self.held.store(Some(Arc::new(TrackedSession { session, place })));
    }

    pub(super) fn take(&self) -> Option<Arc<UpstreamSession>> {
        let session = self.held.swap(None).map(|held| Arc::clone(&held.session))?;
        session.ended.cancel();
        Some(session)
    }

    /// Forgets `session` if it is still that one. False if it is not. Called under the entry's lock.
    pub(super) fn forget(&self, session: &Arc<UpstreamSession>) -> bool {
        let is_that_one = self.held.load().as_ref().is_some_and(|held| Arc::ptr_eq(&held.session, session));
        if is_that_one {
            session.ended.cancel();
            self.held.store(None);
            self.lost.store(session.id.clone().map(Arc::new));
        }
        is_that_one
    }

    /// Whether its upstream has forgotten it.
    pub(super) fn has_lost(&self, session: &UpstreamSession) -> bool {
        self.lost.load().as_deref().is_some_and(|lost| session.id.as_ref() == Some(lost))
    }

    fn is_in_use(&self) -> bool {
        self.held.load().as_ref().is_some_and(|held| held.is_in_use())
    }
}
