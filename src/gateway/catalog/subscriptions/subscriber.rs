//! One that listens to upstreams: its inbox, and the feeds it has joined, which it leaves when it is dropped.
//!
//! The stream of a session listens to lists alone, beside its own messages. They are the catalog's, and so are the same
//! for all sessions: their streams join what `subscriptions/listen` is told.

use std::sync::Arc;
use std::task::Waker;

use crate::access::caller::Caller;
use crate::access::limit::payer::Payer;
use crate::access::policy::Class;
use crate::context::state::State;
use crate::session::outbox::SessionOutbox;
use crate::snapshot::{Endpoint, Snapshot};
use crate::tables::subscriptions::feed::{Feed, FeedScope, WantedName};
use crate::tables::subscriptions::inbox::{Inbox, Updates};
use crate::upstream::Upstream;
use crate::upstream::request::RequestAttributes;
use protocol::json::Literal;
use protocol::subscription::Lists;

pub(crate) struct Subscriber {
    pub(super) state: Arc<State>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) lists: Lists,
    pub(super) names: Box<[WatchedName]>,
    pub(super) feeds: Vec<FeedMembership>,
    /// Upstreams of the endpoint that were looked at when feeds were joined.
    joined: usize,
    key: u64,
}

/// A URI or task id.
pub(super) struct WatchedName {
    /// As the client wrote it.
    pub(super) literal: Box<str>,
    /// As its upstream spells it; `None` where that is what the client wrote.
    pub(super) inner: Option<Box<str>>,
    /// The upstream's index in the endpoint.
    pub(super) member: u32,
    pub(super) is_task: bool,
    pub(super) is_honoured: bool,
}

pub(super) struct FeedMembership {
    pub(super) feed: Arc<Feed>,
    key: u32,
    pub(super) member: u32,
    /// Whether lists are heard of there, or only names.
    pub(super) hears_lists: bool,
    /// Whether names are heard of there, or only lists.
    pub(super) hears_names: bool,
}

/// Begins to listen for a session of `endpoint`, which belongs to `snapshot`: to what `caller` may use anything of.
/// `outbox` is the session's; what the caller may use is kept up to date there. A client that has its session from before
/// the reload that made the lists what they are, and was not told of that, is told first; `issued_s`: since when it has it.
pub(crate) fn join(
    state: &Arc<State>,
    snapshot: &Snapshot,
    (endpoint, caller): (&Arc<Endpoint>, &Caller),
    outbox: Option<Arc<SessionOutbox>>,
    issued_s: u64,
) -> Subscriber {
    // It wants lists, for which nobody is charged.
    let inbox = Inbox::new(endpoint, caller, caller.payer.unwrap_or(Payer::OTHERS), outbox);
    let key = state.hub.admit_session(&inbox);
    let mut subscriber = Subscriber::new(state, inbox, key, Lists::ALL, Box::default());
    subscriber.join(snapshot, endpoint, &caller.class);
    if endpoint.lists_since_ms / 1000 >= issued_s {
        subscriber.inbox.lists_replaced(endpoint.lists_since_ms);
    }
    subscriber
}

impl Subscriber {
    /// Hears of nothing before it [`join`](Self::join)s. `key` is that of `inbox` in the hub.
    pub(super) fn new(
        state: &Arc<State>,
        inbox: Arc<Inbox>,
        key: u64,
        lists: Lists,
        names: Box<[WatchedName]>,
    ) -> Self {
        Self { state: Arc::clone(state), inbox, lists, names, feeds: Vec::new(), joined: 0, key }
    }

    pub(super) fn join(&mut self, snapshot: &Snapshot, endpoint: &Endpoint, class: &Class) {
        let mut feeds = Vec::new();
        for (member, slot) in (0_u32..).zip(&endpoint.members) {
            let names: Vec<WantedName<'_>> = self.names_of(member).collect();
            let Some(upstream) = snapshot.upstreams.get(*slot) else { continue };
            if !class.reaches(member as usize) {
                continue;
            }
            let scope = self.scope(upstream).filter(|_| !names.is_empty());
            let (hears_lists, is_scoped) = (!self.lists.is_empty(), scope.is_some());
            let (hub, inbox) = (&self.state.hub, &self.inbox);
            // What concerns a principal's own process is heard there, and lists where all hear of them.
            if is_scoped {
                let (feed, key) = hub.join(upstream, scope, inbox, member, Lists::default(), &names);
                feeds.push(FeedMembership { feed, key, member, hears_lists: false, hears_names: true });
            }
            let names: &[WantedName<'_>] = if is_scoped { &[] } else { &names };
            if hears_lists || !names.is_empty() {
                let (feed, key) = hub.join(upstream, None, inbox, member, self.lists, names);
                feeds.push(FeedMembership { feed, key, member, hears_lists, hears_names: !is_scoped });
            }
        }
        (self.feeds, self.joined) = (feeds, endpoint.member_ids().len());
        // What ended all others may have come just before this one was counted.
        if self.state.drain.is_quiet() || !self.inbox.go_on(&self.state.snapshot.load()) {
            self.inbox.end();
        }
    }

    /// Where calls of its principal go to a process of its own.
    fn scope(&self, upstream: &Upstream) -> Option<FeedScope> {
        let principal = RequestAttributes::principal(self.inbox.principal().id())?;
        let is_own = upstream.children().is_some_and(|children| !children.is_for_all());
        is_own.then(|| FeedScope { principal, payer: self.inbox.payer() })
    }

    /// Whom to wake. To be called before looking.
    pub(crate) fn register(&self, waker: &Waker) {
        self.inbox.register(waker);
    }

    /// The stream is to end: the process is, or the endpoint is not what it was.
    pub(crate) fn has_ended(&self) -> bool {
        self.inbox.has_ended()
    }

    /// Takes the lists that have changed, and counts them as told.
    pub(crate) fn take_lists(&mut self) -> Lists {
        let (lists, _) = self.take();
        for index in lists.indexes() {
            self.state.metrics.subscriptions.notifications.lists()[index].inc();
        }
        lists
    }

    pub(super) fn take(&mut self) -> (Lists, Updates) {
        // A reload may have added upstreams.
        if self.inbox.standing().endpoint.member_ids().len() > self.joined {
            let snapshot = self.state.snapshot.load();
            let more = self.state.hub.join_more(&snapshot, &self.inbox, &mut self.joined, self.lists);
            self.feeds.extend(more.into_iter().map(|(feed, key, member)| FeedMembership {
                feed,
                key,
                member,
                hears_lists: true,
                hears_names: false,
            }));
        }
        self.inbox.take()
    }

    pub(super) fn names_of(&self, member: u32) -> impl Iterator<Item = WantedName<'_>> {
        let names = (0..).zip(&self.names).filter(move |(_, name)| name.member == member);
        names.map(|(index, name)| name.wanted(index))
    }
}

impl WatchedName {
    /// `index`: its place in the filter.
    pub(super) fn wanted(&self, index: u32) -> WantedName<'_> {
        WantedName { index, is_task: self.is_task, inner: self.inner() }
    }

    pub(super) fn inner(&self) -> &str {
        let as_written = || self.literal.get(1..self.literal.len() - 1).unwrap_or_default();
        self.inner.as_deref().unwrap_or_else(as_written)
    }

    pub(super) fn value(&self) -> Option<String> {
        let text = self.literal.as_bytes();
        Literal::at(0..text.len(), text).decode(text).map(String::from)
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        for joined in &self.feeds {
            joined.feed.leave(joined.key, self.names_of(joined.member).filter(|_| joined.hears_names));
        }
        self.state.hub.dismiss(self.key);
    }
}
