//! Counts how often an upstream's lists were found to have changed.
//!
//! A list that was fetched at one count is invalid at any later one. The count is taken before the fetch begins, so a
//! change that happens meanwhile is not missed.
//!
//! Some servers tell of a change only in the session that caused it. What a session of a client or of the bridge is
//! told is *overheard*: whoever listens to the upstream for others tells them, too.
//!
//! Here is also which lists are *watched*: their upstream speaks the legacy era alone, said that it tells of their
//! changes, and the stream on which it would stands. Invariant: when that ends, first no list is watched any more, then
//! all lists are invalid.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock;
use protocol::subscription::Lists;

/// Clients are told no oftener that a list of programs has changed: several that come up say so one after the other, and
/// some that are up say so many times at once.
pub(crate) const PROGRAM_CHANGES_INTERVAL: Duration = Duration::from_secs(2);
/// A client that is wrong again and again must not have the lists fetched as often.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(10);

/// What a `list_changed` notification speaks of; resource templates change with the resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ChangedList {
    Tools,
    Prompts,
    Resources,
}

impl ChangedList {
    pub(crate) const ALL: [Self; 3] = [Self::Tools, Self::Prompts, Self::Resources];

    /// The key of the capability of a server that has such lists.
    pub(crate) fn capability(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Prompts => "prompts",
            Self::Resources => "resources",
        }
    }

    /// The list that a notification of this method speaks of.
    pub(crate) fn of_method(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|changed| changed.method() == method)
    }

    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources => "notifications/resources/list_changed",
        }
    }
}

/// A session that was told by its upstream itself. It stays unsaid which one that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ToldSession(pub usize);

/// Of more sessions that were told of one change, the last are told twice.
const TOLD_MAX: usize = 64;

/// One count for each kind of list.
#[derive(Debug)]
pub(crate) struct Changes {
    counts: [AtomicU64; 3],
    /// A bit for each kind that is watched.
    watched: AtomicU8,
    /// A bit for each kind that was said to have changed.
    announced: AtomicU8,
    /// A bit for each kind of which others are to be told.
    overheard: AtomicU8,
    is_overheard: Notify,
    /// A session of a client was told of a change.
    was_told_apart: AtomicBool,
    /// Those of them who need not be told again.
    told: Mutex<[Vec<ToldSession>; 3]>,
    made: Instant,
    /// When refusals count again, in milliseconds since `made`.
    refusals_from_ms: AtomicU64,
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            counts: Default::default(),
            watched: AtomicU8::new(0),
            announced: AtomicU8::new(0),
            overheard: AtomicU8::new(0),
            is_overheard: Notify::new(),
            was_told_apart: AtomicBool::new(false),
            told: Mutex::default(),
            made: clock::now(),
            refusals_from_ms: AtomicU64::new(0),
        }
    }
}

impl Changes {
    /// Makes every list of this kind invalid that was fetched so far.
    pub(crate) fn note(&self, changed: ChangedList) {
        self.counts[changed as usize].fetch_add(1, Ordering::AcqRel);
    }

    /// The upstream said that a list has changed.
    pub(crate) fn note_announced(&self, changed: ChangedList) {
        self.announced.fetch_or(Lists::one(changed as usize).bits(), Ordering::AcqRel);
        self.note(changed);
    }

    /// True if the upstream ever said that such a list has changed.
    pub(crate) fn was_announced(&self, changed: ChangedList) -> bool {
        Lists::from_bits(self.announced.load(Ordering::Acquire)).has(changed as usize)
    }

    /// A session was told that a list has changed, of which others may not have been told.
    pub(crate) fn overhear(&self, changed: ChangedList) {
        self.note_announced(changed);
        self.overheard.fetch_or(Lists::one(changed as usize).bits(), Ordering::AcqRel);
        self.is_overheard.notify_one();
    }

    /// True if sessions of clients may have lists of their own.
    pub(crate) fn were_told_apart(&self) -> bool {
        self.was_told_apart.load(Ordering::Relaxed)
    }

    /// A session of a client was told of a change, of which others may not have been told.
    pub(crate) fn overhear_in(&self, session: ToldSession, changed: ChangedList) {
        self.was_told_apart.store(true, Ordering::Relaxed);
        let mut told = self.told.lock();
        let told_of_this = &mut told[changed as usize];
        if told_of_this.len() < TOLD_MAX && !told_of_this.contains(&session) {
            told_of_this.push(session);
        }
        drop(told);
        self.overhear(changed);
    }

    /// The sessions that their upstream has told of such a change since this was last asked.
    pub(crate) fn take_told(&self, changed: ChangedList) -> Vec<ToldSession> {
        std::mem::take(&mut self.told.lock()[changed as usize])
    }

    /// What was overheard while nobody listened is of no use.
    pub(crate) fn forget_overheard(&self) {
        self.overheard.store(0, Ordering::Release);
        *self.told.lock() = Default::default();
    }

    /// Waits for lists of which others are to be told.
    pub(crate) async fn overheard(&self) -> Lists {
        loop {
            self.is_overheard.notified().await;
            let kinds = Lists::from_bits(self.overheard.swap(0, Ordering::AcqRel));
            if kinds != Lists::default() {
                return kinds;
            }
        }
    }

    /// From now on exactly these are watched.
    pub(crate) fn watch(&self, kinds: Lists) {
        let before = Lists::from_bits(self.watched.swap(kinds.bits(), Ordering::AcqRel));
        for changed in ChangedList::ALL {
            if before.has(changed as usize) && !kinds.has(changed as usize) {
                self.note(changed);
            }
        }
    }

    /// The upstream may change its lists without telling.
    pub(crate) fn unwatch(&self) {
        self.watched.store(0, Ordering::Release);
        for changed in ChangedList::ALL {
            self.note(changed);
        }
    }

    /// Whether the upstream would tell now of such a change.
    pub(crate) fn is_watched(&self, changed: ChangedList) -> bool {
        Lists::from_bits(self.watched.load(Ordering::Acquire)).has(changed as usize)
    }

    /// The upstream refused a call in a way that a client with an old list would be refused: every list becomes
    /// invalid, but not again for a while.
    pub(crate) fn note_refusal(&self, now: Instant) {
        let since_ms = |time: Instant| u64::try_from((time - self.made).as_millis()).unwrap_or(u64::MAX);
        let now_ms = since_ms(now.max(self.made));
        let from_ms = self.refusals_from_ms.load(Ordering::Relaxed);
        let next_ms = now_ms.saturating_add(u64::try_from(REFUSAL_INTERVAL.as_millis()).unwrap_or(u64::MAX));
        let counts = now_ms >= from_ms
            && self
                .refusals_from_ms
                .compare_exchange(from_ms, next_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if counts {
            for changed in ChangedList::ALL {
                self.note(changed);
            }
        }
    }

    pub(crate) fn count(&self, changed: ChangedList) -> u64 {
        self.counts[changed as usize].load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_count_once_in_a_while() {
        let changes = Changes::default();
        let start = changes.made;
        for (after, count) in [
            (Duration::ZERO, 1),
            (Duration::from_secs(1), 1),
            (REFUSAL_INTERVAL, 2),
            (REFUSAL_INTERVAL + Duration::from_secs(1), 2),
            (REFUSAL_INTERVAL * 3, 3),
        ] {
            changes.note_refusal(start + after);
            assert_eq!(changes.count(ChangedList::Tools), count, "{after:?}");
            assert_eq!(changes.count(ChangedList::Resources), count, "{after:?}");
        }
        changes.note(ChangedList::Prompts);
        assert_eq!((changes.count(ChangedList::Prompts), changes.count(ChangedList::Tools)), (4, 3));
    }

    #[test]
    fn what_is_no_longer_watched_is_invalid() {
        let changes = Changes::default();
        assert!(!changes.is_watched(ChangedList::Tools));
        changes.watch(Lists::ALL);
        changes.watch(Lists::one(ChangedList::Resources as usize));
        assert_eq!(ChangedList::ALL.map(|changed| changes.is_watched(changed)), [false, false, true]);
        assert_eq!(changes.count(ChangedList::Resources), 0);
        changes.unwatch();
        assert!(!changes.is_watched(ChangedList::Resources));
        assert_eq!(ChangedList::ALL.map(|changed| changes.count(changed)), [2, 2, 1]);
    }
}
