//! What the stream of a session hears beside its own messages: that lists have changed, and that it is to end.
//!
//! The lists are the catalog's, and so are the same for all sessions: their streams join what
//! `subscriptions/listen` is told, and ask for no more of the upstreams.

use std::sync::Arc;
use std::task::Waker;

use crate::access::caller::Caller;
use crate::context::state::State;
use crate::session::outbox::SessionOutbox;
use crate::snapshot::{Endpoint, Snapshot};
use crate::tables::subscriptions::feed::Feed;
use crate::tables::subscriptions::inbox::Inbox;
use protocol::subscription::Lists;

pub(crate) struct ListNews {
    state: Arc<State>,
    inbox: Arc<Inbox>,
    feeds: Vec<(Arc<Feed>, u32)>,
    /// Upstreams of the endpoint that were looked at when feeds were joined.
    joined: usize,
    key: u64,
}

/// Begins to listen for a session of `endpoint`, which belongs to `snapshot`: to what `caller` may use anything of.
/// `outbox` is the session's; what the caller may use is kept up to date there.
pub(crate) fn join(
    state: &Arc<State>,
    snapshot: &Snapshot,
    (endpoint, caller): (&Arc<Endpoint>, &Caller),
    outbox: Option<Arc<SessionOutbox>>,
) -> ListNews {
    let class = &caller.class;
    let inbox = Inbox::new(endpoint, caller, outbox);
    let key = state.hub.admit_session(&inbox);
    let members = (0_u32..).zip(&endpoint.members).filter(|(member, _)| class.reaches(*member as usize));
    let upstreams = members.filter_map(|(member, slot)| Some((member, snapshot.upstreams.get(*slot)?)));
    let feeds = upstreams.map(|(member, upstream)| state.hub.join(upstream, &inbox, member, Lists::ALL, &[]));
    let feeds = feeds.collect();
    let joined = endpoint.member_ids().len();
    let news = ListNews { state: Arc::clone(state), feeds, joined, inbox, key };
    // What ended all others may have come just before this one was counted.
    if state.drain.is_quiet() || !news.inbox.go_on(&state.snapshot.load()) {
        news.inbox.end();
    }
    news
}

impl ListNews {
    /// Whom to wake. To be called before looking.
    pub(crate) fn register(&self, waker: &Waker) {
        self.inbox.register(waker);
    }

    /// The stream is to end: the process is, or the endpoint is not what it was.
    pub(crate) fn has_ended(&self) -> bool {
        self.inbox.has_ended()
    }

    /// Takes the lists that have changed, and counts them as told.
    pub(crate) fn take(&mut self) -> Lists {
        if self.inbox.standing().endpoint.member_ids().len() > self.joined {
            let snapshot = self.state.snapshot.load();
            let more = self.state.hub.join_more(&snapshot, &self.inbox, &mut self.joined, Lists::ALL);
            self.feeds.extend(more.into_iter().map(|(feed, key, _)| (feed, key)));
        }
        let (lists, _) = self.inbox.take();
        for index in lists.indexes() {
            self.state.metrics.subscriptions.notifications.lists()[index].inc();
        }
        lists
    }
}

impl Drop for ListNews {
    fn drop(&mut self) {
        for (feed, key) in &self.feeds {
            feed.leave(*key, std::iter::empty());
        }
        self.state.hub.dismiss(self.key);
    }
}
