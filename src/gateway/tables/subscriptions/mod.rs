//! Who listens to what: clients with their inboxes, and what is wanted of each upstream (`feed`).
//!
//! Deliberately not here: the streams themselves, towards clients and towards upstreams, which are
//! [`catalog::subscriptions`](crate::catalog::subscriptions).

pub(crate) mod feed;
pub(crate) mod inbox;
mod returns;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use self::feed::{Feed, FeedScope, WantedName};
use self::inbox::Inbox;
use self::returns::Returns;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::{NoShare, Share, Shares};
use crate::clock;
use crate::snapshot::Snapshot;
use crate::upstream::changes::{ChangedList, ToldSession};
use crate::upstream::{Upstream, UpstreamId};
use config::LimitsConfig;
use protocol::error::{Error, GatewayError, PolicyError};
use protocol::subscription::Lists;

/// Where notices come in and go out; shared by all threads.
#[derive(Debug)]
pub(crate) struct Hub {
    feeds: Mutex<Feeds>,
    clients: Mutex<Clients>,
    /// Of subscriptions.
    places: Arc<Shares>,
    /// A feed waits for its streams.
    pub(crate) opened: Notify,
    returns: Returns,
}

#[derive(Debug, Default)]
struct Feeds {
    by_upstream: HashMap<(UpstreamId, Option<Arc<str>>), Arc<Feed>>,
    /// Those that have no streams yet.
    new: Vec<Arc<Feed>>,
}

#[derive(Debug, Default)]
struct Clients {
    next: u64,
    inboxes: HashMap<u64, Arc<Inbox>>,
    /// Those of sessions' streams.
    sessions: HashMap<u64, Arc<Inbox>>,
}

impl Default for Hub {
    /// Nobody listens. How many may, they say who come.
    fn default() -> Self {
        let (feeds, clients) = (Mutex::default(), Mutex::default());
        let returns = Returns::default();
        Self { feeds, clients, places: Shares::new(0), opened: Notify::new(), returns }
    }
}

impl Hub {
    /// An upstream's list has changed. Its cached lists are invalid before anybody is told.
    pub(crate) fn list_changed(&self, upstream: &Upstream, changed: ChangedList) {
        upstream.changes.note_announced(changed);
        self.tell(upstream, changed);
    }

    /// Tells clients that an upstream's list has changed, where that is already known here.
    pub(crate) fn tell(&self, upstream: &Upstream, changed: ChangedList) {
        self.tell_others(upstream, changed, &[]);
    }

    /// The same, but for these, whom their upstream has told itself.
    pub(crate) fn tell_others(&self, upstream: &Upstream, changed: ChangedList, told: &[ToldSession]) {
        // Lists are the same for all.
        let Some(feed) = self.feeds().by_upstream.get(&(upstream.id, None)).cloned() else { return };
        let now = clock::now();
        if !upstream.is_child() || self.returns.admit(upstream, changed, told, now) {
            feed.list_changed(changed as usize, told, now);
        }
    }

    /// A list is there that clients went without, or had as it was before the start: they are told soon.
    pub(crate) fn list_returned(&self, upstream: &Upstream, changed: ChangedList) {
        self.returns.add(upstream, changed, &[]);
    }

    /// A list may have changed while its upstream was not heard. Programs come up one after the other.
    pub(crate) fn list_doubted(&self, upstream: &Upstream, changed: ChangedList) {
        upstream.changes.note(changed);
        if upstream.is_child() {
            self.list_returned(upstream, changed);
        } else {
            self.tell(upstream, changed);
        }
    }

    /// Tells each client once of all lists of programs that returned or changed, if that is due.
    pub(crate) fn tell_returned(&self, now: Instant) {
        for (index, upstreams) in self.returns.take(now) {
            let feeds: Vec<(Arc<Feed>, Vec<ToldSession>)> = {
                let feeds = self.feeds();
                let feed = |id| feeds.by_upstream.get(&(id, None)).cloned();
                upstreams.into_iter().filter_map(|(id, told)| Some((feed(id)?, told))).collect()
            };
            let mut told: HashSet<*const Inbox> = HashSet::new();
            for (feed, told_itself) in &feeds {
                for inbox in feed.told_of_list(index, now) {
                    if !inbox.is_among(told_itself) && told.insert(Arc::as_ptr(&inbox)) {
                        inbox.list_changed(index);
                    }
                }
            }
        }
    }

    pub(crate) fn open(&self) -> usize {
        self.clients().inboxes.len()
    }

    /// Ends every subscription with its result, and the streams of sessions.
    pub(crate) fn end_all(&self) {
        self.clients().all().for_each(|inbox| inbox.end());
    }

    /// Ends the subscriptions and streams whose clients `snapshot` does not serve as before, so that they listen again. The
    /// others look whether the certificates of their connections are still believed.
    pub(crate) fn reloaded(&self, snapshot: &Snapshot) {
        for inbox in self.clients().all() {
            if inbox.go_on(snapshot) {
                inbox.wake();
            } else {
                inbox.end_replaced(snapshot);
            }
        }
    }

    /// Counts a subscription in, for which this payer is charged as long as it has the share.
    pub(crate) fn admit(
        &self,
        inbox: &Arc<Inbox>,
        payer: Payer,
        limits: &LimitsConfig,
    ) -> Result<(u64, Share), Error> {
        self.places.set_max(limits.subscriptions_max);
        self.places.set_of_payer_max(limits.subscriptions_per_principal_max);
        let place = self.places.take(payer).map_err(|none| match none {
            NoShare::NothingLeft => Error::from(GatewayError::Subscriptions),
            NoShare::TooMuchOfPayer => PolicyError::Subscriptions.into(),
        })?;
        let mut clients = self.clients();
        clients.next += 1;
        let key = clients.next;
        clients.inboxes.insert(key, Arc::clone(inbox));
        Ok((key, place))
    }

    /// Counts the stream of a session in; there are as many as sessions allow.
    pub(crate) fn admit_session(&self, inbox: &Arc<Inbox>) -> u64 {
        let mut clients = self.clients();
        clients.next += 1;
        let key = clients.next;
        clients.sessions.insert(key, Arc::clone(inbox));
        key
    }

    pub(crate) fn dismiss(&self, key: u64) {
        let mut clients = self.clients();
        let Clients { inboxes, sessions, .. } = &mut *clients;
        for all in [inboxes, sessions] {
            all.remove(&key);
            // Many may have come at once; they need not be remembered for ever.
            if all.capacity() > 1024 && all.len() < all.capacity() / 8 {
                all.shrink_to_fit();
            }
        }
    }

    /// Joins what is heard from `upstream`, for the endpoint's member with this index. `scope`: who is told apart there.
    pub(crate) fn join(
        &self,
        upstream: &Arc<Upstream>,
        scope: Option<FeedScope>,
        inbox: &Arc<Inbox>,
        member: u32,
        lists: Lists,
        names: &[WantedName<'_>],
    ) -> (Arc<Feed>, u32) {
        // Under the lock, so that a feed that is joined is not one that is being closed.
        let mut feeds = self.feeds();
        let key = (upstream.id, scope.as_ref().map(|scope| Arc::clone(&scope.principal)));
        let feed = feeds.by_upstream.get(&key).cloned();
        let feed = feed.unwrap_or_else(|| {
            let feed = Feed::new(Arc::clone(upstream), scope);
            feeds.by_upstream.insert(key, Arc::clone(&feed));
            feeds.new.push(Arc::clone(&feed));
            self.opened.notify_one();
            feed
        });
        let key = feed.join(Arc::clone(inbox), member, lists, names);
        drop(feeds);
        (feed, key)
    }

    /// Joins the lists of those upstreams that came to the endpoint of `inbox` after its first `joined`.
    pub(crate) fn join_more(
        &self,
        snapshot: &Snapshot,
        inbox: &Arc<Inbox>,
        joined: &mut usize,
        lists: Lists,
    ) -> Vec<(Arc<Feed>, u32, u32)> {
        let standing = inbox.standing();
        let ids = standing.endpoint.member_ids();
        let more = ids.iter().enumerate().skip(*joined);
        let more = more.filter(|(member, _)| !lists.is_empty() && standing.class.reaches(*member));
        let feeds = more.filter_map(|(member, id)| {
            // One that is gone again has ended the stream, or is about to.
            let upstream = snapshot.upstreams.iter().find(|upstream| upstream.id == *id)?;
            let member = u32::try_from(member).ok()?;
            let (feed, key) = self.join(upstream, None, inbox, member, lists, &[]);
            Some((feed, key, member))
        });
        let feeds = feeds.collect();
        *joined = ids.len();
        feeds
    }

    /// Forgets a feed, unless somebody has joined it. True if it is gone.
    pub(crate) fn close(&self, feed: &Feed) -> bool {
        let mut feeds = self.feeds();
        let is_unused = feed.is_empty();
        if is_unused {
            let scope = feed.scope.as_ref().map(|scope| Arc::clone(&scope.principal));
            feeds.by_upstream.remove(&(feed.upstream.id, scope));
        }
        is_unused
    }

    pub(crate) fn take_new(&self) -> Vec<Arc<Feed>> {
        std::mem::take(&mut self.feeds().new)
    }

    fn feeds(&self) -> MutexGuard<'_, Feeds> {
        self.feeds.lock()
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock()
    }
}

impl Clients {
    fn all(&self) -> impl Iterator<Item = &Arc<Inbox>> {
        self.inboxes.values().chain(self.sessions.values())
    }
}
