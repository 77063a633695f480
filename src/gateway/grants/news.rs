//! News of grants: ended, or of a person of whom the provider says something else, while tokens of theirs may still be good.
//!
//! A token is known without a store, so what happened to its grant since has to be known instead: here, for as long as a token
//! of it may last. A caller that was let in asks for the [`epoch`](GrantNews::epoch) alone, and looks again once it is another.
//!
//! Invariants: what ended stays ended; bounded by the store, which holds a record for each of them, or for its grant.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use identity::sealed::fingerprint::GrantId;
use identity::sealed::news::News;
use parking_lot::RwLock;
use tokio::sync::watch;

/// The news of all grants.
#[derive(Debug)]
pub(crate) struct GrantNews {
    /// Each with the second after which no token of before is left.
    grants: RwLock<HashMap<GrantId, (News, u64)>>,
    epoch: AtomicU64,
    changed: watch::Sender<u64>,
}

impl Default for GrantNews {
    fn default() -> Self {
        Self { grants: RwLock::default(), epoch: AtomicU64::new(0), changed: watch::Sender::new(0) }
    }
}

impl GrantNews {
    /// Another number after each piece of news.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The news of a grant.
    pub(crate) fn of(&self, grant: GrantId) -> Option<News> {
        self.grants.read().get(&grant).map(|(news, _)| *news)
    }

    /// Something happened to a grant, of which tokens of before last until `until_s` at most.
    pub(crate) fn note(&self, grant: GrantId, news: News, until_s: u64) {
        {
            let mut grants = self.grants.write();
            let known = grants.entry(grant).or_insert((news, until_s));
            *known = (known.0.or(news), known.1.max(until_s));
        }
        let epoch = self.epoch.fetch_add(1, Ordering::AcqRel) + 1;
        self.changed.send_replace(epoch);
    }

    /// Forgets those of which no token of before is left.
    pub(crate) fn sweep(&self, now_s: u64) {
        self.grants.write().retain(|_, (_, until_s)| *until_s >= now_s);
    }

    /// Tells of each piece of news, for streams that end with their grant.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

/// A grant by whose token somebody was let in, for as long as that holds.
#[derive(Debug)]
pub(crate) struct GrantInForce {
    grant: GrantId,
    all: Arc<GrantNews>,
    /// All news that there was when its own was last looked up.
    epoch: AtomicU64,
    /// The news of the grant.
    seen: Option<News>,
    /// The token is looked at again then, so that an account that is due is asked about.
    again: Instant,
}

impl GrantInForce {
    /// The grant as it is now.
    pub(crate) fn new(grant: GrantId, all: &Arc<GrantNews>, again: Instant) -> Self {
        // Before the look, so that news in between counts.
        let epoch = all.epoch();
        Self { grant, seen: all.of(grant), all: Arc::clone(all), epoch: epoch.into(), again }
    }

    pub(crate) fn grant(&self) -> GrantId {
        self.grant
    }

    /// The news of it when it was looked at.
    pub(crate) fn seen(&self) -> Option<News> {
        self.seen
    }

    /// True as long as there is no news of the grant, and it is not to be looked at again. Every call asks, so its news is
    /// looked up once for each news of any grant.
    pub(crate) fn holds(&self, now: Instant) -> bool {
        if now >= self.again {
            return false;
        }
        let epoch = self.all.epoch();
        if epoch == self.epoch.load(Ordering::Relaxed) {
            return true;
        }
        if self.all.of(self.grant) != self.seen {
            return false;
        }
        self.epoch.store(epoch, Ordering::Relaxed);
        true
    }

    /// Comes to an end when there is news of the grant.
    pub(crate) async fn end(self) {
        let mut told = self.all.subscribe();
        while self.all.of(self.grant) == self.seen {
            if told.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Clone for GrantInForce {
    fn clone(&self) -> Self {
        Self {
            grant: self.grant,
            all: Arc::clone(&self.all),
            epoch: self.epoch.load(Ordering::Relaxed).into(),
            seen: self.seen,
            again: self.again,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock;

    #[test]
    fn news_of_others_is_looked_at_once() {
        let all = Arc::<GrantNews>::default();
        let (one, another, now) = (GrantId([1; 16]), GrantId([2; 16]), clock::now());
        let in_force = GrantInForce::new(one, &all, now + Duration::from_mins(1));
        all.note(another, News::Ended, 100);
        assert!(in_force.holds(now));
        assert!(in_force.holds(now));
        assert_eq!(in_force.epoch.load(Ordering::Relaxed), all.epoch(), "the next call looks nothing up");
        assert!(!in_force.holds(now + Duration::from_mins(1)));
        all.note(one, News::ChangedAt(5), 100);
        assert!(!in_force.holds(now) && !in_force.holds(now) && !in_force.clone().holds(now));
    }

    #[test]
    fn news_is_known_until_no_token_is_left() {
        let all = GrantNews::default();
        let (one, another) = (GrantId([1; 16]), GrantId([2; 16]));
        let mut told = all.subscribe();
        let before = all.epoch();
        all.note(one, News::Ended, 100);
        assert!(all.epoch() != before && told.has_changed().expect("a sender"));
        told.mark_unchanged();
        assert_eq!((all.of(one), all.of(another)), (Some(News::Ended), None));
        all.sweep(100);
        assert_eq!(all.of(one), Some(News::Ended));
        all.sweep(101);
        assert_eq!(all.of(one), None);
        assert!(!told.has_changed().expect("a sender"), "a sweep is no news");
    }

    #[test]
    fn must_20_what_ended_stays_ended() {
        let all = GrantNews::default();
        let grant = GrantId([1; 16]);
        all.note(grant, News::ChangedAt(5), 100);
        all.note(grant, News::ChangedAt(3), 50);
        assert_eq!(all.of(grant), Some(News::ChangedAt(5)));
        all.note(grant, News::Ended, 50);
        all.note(grant, News::ChangedAt(9), 60);
        all.sweep(100);
        assert_eq!(all.of(grant), Some(News::Ended), "known for as long as was said at first");
    }
}
