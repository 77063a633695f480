//! Everything that clients want to hear from one upstream, and what it has agreed to tell.
//!
//! Shared by all threads: clients join and leave, the upstream's streams ask what they are to carry and hand over
//! what they hear. One lock per upstream, never held across a wait.
//!
//! Invariants: a name that somebody wants is pending until the upstream has answered for it; a name that nobody
//! wants any more stays, and counts as agreed, for as long as the open stream carries it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use self::refusals::Refusals;
pub(crate) use self::suspects::Suspect;
use super::inbox::{Inbox, UpdateTarget};
use crate::upstream::Upstream;
use protocol::subscription::{Acknowledged, Lists, Notice};

mod refusals;
mod suspects;

/// A list that changes more often is told of this often; the last change is never left out.
const LIST_INTERVAL: Duration = Duration::from_millis(100);
/// How long a refusal stands against new clients that want the same: a name may appear any time, a capability hardly.
const NAME_REFUSAL_KEPT: Duration = Duration::from_secs(5);
const LIST_REFUSAL_KEPT: Duration = Duration::from_mins(1);
/// What a URI is part of is looked up at this many of its slashes, the last ones.
const SLASHES_MAX: usize = 64;
/// Names that are asked of one upstream; further ones count as not offered.
const NAMES_MAX: usize = 100_000;
/// Those among them that one principal was first to want.
const NAMES_PER_SOURCE_MAX: usize = NAMES_MAX / 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Changes of lists.
    Lists,
    /// Changes of resources and tasks.
    Names,
}

/// What is heard from one upstream.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) upstream: Arc<Upstream>,
    wakes: [Notify; 2],
    pub(crate) lists_wanted: Notify,
    /// The last client has left.
    pub(crate) emptied: Notify,
    shared: Mutex<FeedState>,
}

#[derive(Debug, Default)]
struct FeedState {
    clients: Vec<Option<FeedClient>>,
    free: Vec<u32>,
    lists: [ListState; Lists::COUNT],
    uris: HashMap<Arc<str>, ResourceName>,
    task_ids: HashMap<Arc<str>, ResourceName>,
    /// Until when each lane is refused as a whole, or takes nothing more.
    refused_until: [Option<Instant>; 2],
    refusals: Refusals,
    /// How many names each source was first to want, of those who still do.
    names_of: HashMap<u64, usize>,
    /// The number of the stream for names that is to carry more; those before it stay as they are.
    stream: u64,
    /// How many clients have ever joined.
    joined: u64,
}

#[derive(Debug)]
struct FeedClient {
    inbox: Arc<Inbox>,
    /// The upstream's place in the client's endpoint.
    member: u32,
    lists: Lists,
    uris: usize,
    /// Whose names these are, as a digest.
    source: u64,
}

#[derive(Debug, Default)]
struct ListState {
    wanted: usize,
    offer: OfferState,
    /// When clients were last told of a change.
    told: Option<Instant>,
    /// Another change is waiting to be told.
    is_held: bool,
}

#[derive(Debug, Default)]
struct ResourceName {
    offer: OfferState,
    /// It is being tried, or waits to be.
    is_suspect: bool,
    /// The number of the stream that carries it, once the upstream has agreed.
    stream: u64,
    /// Clients by key, with the index in their filter.
    clients: Vec<(u32, u32)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OfferState {
    #[default]
    Pending,
    Honoured,
    /// It will not; asked again for a new client after this.
    Refused(Instant),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    pub(crate) lists: Lists,
    pub(crate) uris: Vec<Arc<str>>,
    pub(crate) task_ids: Vec<Arc<str>>,
}

/// How what a lane carries compares with what is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub(crate) struct Need {
    pub(crate) is_wanted: bool,
    /// Something was not asked for yet.
    pub(crate) has_pending: bool,
    /// Among that is something that is not being searched either.
    pub(crate) has_newcomers: bool,
    /// Something wanted is carried by the stream that may grow, or was before that was lost.
    pub(crate) has_carried: bool,
    /// Something is carried that nobody wants.
    pub(crate) has_unwanted: bool,
}

/// A name in a client's filter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedName<'n> {
    pub(crate) index: u32,
    pub(crate) is_task: bool,
    pub(crate) inner: &'n str,
}

impl Feed {
    pub(crate) fn new(upstream: Arc<Upstream>) -> Arc<Self> {
        Arc::new(Self {
            upstream,
            wakes: Default::default(),
            lists_wanted: Notify::new(),
            emptied: Notify::new(),
            shared: Mutex::default(),
        })
    }

    /// Waits until something has changed for a lane.
    pub(crate) async fn changed(&self, lane: Lane) {
        self.wakes[lane as usize].notified().await;
    }

    /// Adds a client; returns its key.
    pub(crate) fn join(&self, inbox: Arc<Inbox>, member: u32, lists: Lists, names: &[WantedName<'_>]) -> u32 {
        let now = Instant::now();
        let refused = &self.upstream.series.subscription_names_refused;
        let mut shared = self.shared();
        let uris = names.iter().filter(|name| !name.is_task).count();
        shared.joined += 1;
        let source = shared.source(&inbox);
        let is_cut_off = shared.refusals.is_cut_off(source, now);
        let client = Some(FeedClient { inbox, member, lists, uris, source });
        let key = shared.free.pop().unwrap_or_else(|| {
            shared.clients.push(None);
            u32::try_from(shared.clients.len() - 1).unwrap_or(u32::MAX)
        });
        shared.clients[key as usize] = client;
        let [refused_lists, refused_names] = shared.refused_until;
        for index in lists.indexes() {
            let list = &mut shared.lists[index];
            list.wanted += 1;
            list.offer.ask_again(now, refused_lists);
        }
        for wanted in names {
            let known_until = shared.refusals.name_until(wanted.is_task, wanted.inner, now);
            let is_share_taken =
                shared.names_of.get(&source).is_some_and(|count| *count >= NAMES_PER_SOURCE_MAX);
            let names = shared.names(wanted.is_task);
            let is_full = is_share_taken || names.len() >= NAMES_MAX;
            let is_new = !names.contains_key(wanted.inner);
            let name = match names.get_mut(wanted.inner) {
                Some(name) if !(name.clients.is_empty() && is_share_taken) => name,
                None if !is_full => names.entry(wanted.inner.into()).or_default(),
                _ => {
                    refused.full.inc();
                    continue;
                }
            };
            let is_first = name.clients.is_empty();
            name.clients.push((key, wanted.index));
            let was_refused = is_new || matches!(name.offer, OfferState::Refused(_));
            match known_until {
                Some(until) if was_refused => name.offer = OfferState::Refused(until),
                // If somebody else comes to want it, it is asked for.
                None if was_refused && is_cut_off => {
                    refused.cut_off.inc();
                    name.offer = OfferState::Refused(now);
                }
                _ => name.offer.ask_again(now, refused_names),
            }
            if is_first {
                *shared.names_of.entry(source).or_default() += 1;
            }
        }
        drop(shared);
        if !lists.is_empty() {
            self.wakes[Lane::Lists as usize].notify_one();
            self.lists_wanted.notify_one();
        }
        if !names.is_empty() {
            self.wakes[Lane::Names as usize].notify_one();
        }
        key
    }

    pub(crate) fn leave<'n>(&self, key: u32, names: impl Iterator<Item = WantedName<'n>>) {
        let mut shared = self.shared();
        let Some(client) = shared.clients.get_mut(key as usize).and_then(Option::take) else { return };
        shared.free.push(key);
        for index in client.lists.indexes() {
            shared.lists[index].wanted -= 1;
        }
        for wanted in names {
            let names = shared.names(wanted.is_task);
            let Some(name) = names.get_mut(wanted.inner) else { continue };
            let was_first = name.clients.first().is_some_and(|(client, _)| *client == key);
            name.clients.retain(|(client, _)| *client != key);
            let next = name.clients.first().map(|(client, _)| *client);
            if next.is_none() && name.offer != OfferState::Honoured {
                names.remove(wanted.inner);
            }
            if was_first {
                shared.pass_name(client.source, next);
            }
        }
        let is_empty = shared.clients.len() == shared.free.len();
        drop(shared);
        self.wakes.iter().for_each(Notify::notify_one);
        self.lists_wanted.notify_one();
        if is_empty {
            self.emptied.notify_one();
        }
    }

    /// True if no client is left.
    pub(crate) fn is_empty(&self) -> bool {
        let shared = self.shared();
        shared.clients.len() == shared.free.len()
    }

    pub(crate) fn list_offer(&self, index: usize) -> OfferState {
        self.shared().lists[index].offer
    }

    /// What the upstream says to each of these names.
    pub(crate) fn offers<'n>(
        &self,
        names: impl Iterator<Item = WantedName<'n>>,
        mut each: impl FnMut(u32, OfferState),
    ) {
        let mut shared = self.shared();
        for wanted in names {
            let offer = shared.names(wanted.is_task).get(wanted.inner).map(|name| name.offer);
            each(wanted.index, offer.unwrap_or(OfferState::Refused(Instant::now())));
        }
    }

    /// Tells clients that a list has changed, or has the lane tell them a little later.
    pub(crate) fn list_changed(&self, index: usize, now: Instant) {
        let mut shared = self.shared();
        let list = &mut shared.lists[index];
        if list.told.is_some_and(|told| now < told + LIST_INTERVAL) {
            list.is_held = true;
            drop(shared);
            self.wakes[Lane::Lists as usize].notify_one();
            return;
        }
        shared.tell(index, now);
    }

    /// Tells of the changes that were held back. Returns when the next one is due.
    pub(crate) fn release(&self, now: Instant) -> Option<Instant> {
        let mut shared = self.shared();
        let mut next = None;
        for index in 0..Lists::COUNT {
            let due = shared.lists[index].told.map(|told| told + LIST_INTERVAL);
            match due {
                _ if !shared.lists[index].is_held => {}
                Some(due) if due > now => next = Some(next.map_or(due, |next: Instant| next.min(due))),
                _ => shared.tell(index, now),
            }
        }
        next
    }

    /// Hands a notification about a task to whoever asked for it.
    pub(crate) fn task_changed(&self, notice: &Arc<Notice>) {
        let shared = self.shared();
        for (key, index) in shared.task_ids.get(&*notice.name).iter().flat_map(|name| &name.clients) {
            if let Some(client) = shared.client(*key) {
                client.inbox.notice(UpdateTarget::Task(*index), notice);
            }
        }
    }

    /// Hands a notification about a resource to whoever asked for it or for what it is part of; if that is nobody, to
    /// everybody who asked for any.
    pub(crate) fn resource_changed(&self, notice: &Arc<Notice>) {
        let shared = self.shared();
        let mut told = HashSet::new();
        for (key, index) in shared.uris.get(&*notice.name).iter().flat_map(|name| &name.clients) {
            if let Some(client) = shared.client(*key) {
                told.insert(*key);
                client.inbox.notice(UpdateTarget::Resource(*index), notice);
            }
        }
        for prefix in prefixes(&notice.name) {
            for (key, index) in shared.uris.get(prefix).iter().flat_map(|name| &name.clients) {
                if let Some(client) = shared.client(*key).filter(|_| told.insert(*key)) {
                    client.inbox.notice(UpdateTarget::Resource(*index), notice);
                }
            }
        }
        if told.is_empty() {
            for client in shared.clients.iter().flatten().filter(|client| client.uris > 0) {
                client.inbox.notice(UpdateTarget::Other(client.member), notice);
            }
        }
    }

    pub(crate) fn need(&self, lane: Lane) -> Need {
        let mut need = Need::default();
        let mut shared = self.shared();
        shared.each(lane, |is_wanted, offer| {
            need.is_wanted |= is_wanted;
            need.has_pending |= is_wanted && *offer == OfferState::Pending;
            need.has_carried |= is_wanted && *offer == OfferState::Honoured;
            need.has_unwanted |= !is_wanted && *offer == OfferState::Honoured;
        });
        if lane == Lane::Names {
            need.has_newcomers = shared.has_newcomers();
            // There may be streams that do not grow.
            (need.has_carried, need.has_unwanted) = shared.carries();
        }
        need
    }

    /// What a new stream of a lane is to carry: everything wanted that was not refused.
    pub(crate) fn ask(&self, lane: Lane) -> Filter {
        let mut shared = self.shared();
        shared.forget_unwanted(lane);
        let asked = |names: &HashMap<Arc<str>, ResourceName>| {
            let open = names.iter().filter(|(_, name)| !matches!(name.offer, OfferState::Refused(_)));
            open.map(|(inner, _)| Arc::clone(inner)).collect()
        };
        match lane {
            Lane::Lists => {
                let mut lists = Lists::default();
                for (index, list) in shared.lists.iter().enumerate() {
                    if list.wanted > 0 && !matches!(list.offer, OfferState::Refused(_)) {
                        lists.add(index);
                    }
                }
                Filter { lists, ..Filter::default() }
            }
            Lane::Names => {
                Filter { uris: asked(&shared.uris), task_ids: asked(&shared.task_ids), ..Filter::default() }
            }
        }
    }

    /// Everything wanted of a lane is to be asked for, whatever the upstream said before.
    pub(crate) fn ask_everything(&self, lane: Lane) {
        let mut shared = self.shared();
        shared.refused_until[lane as usize] = None;
        shared.each(lane, |_, offer| {
            if matches!(offer, OfferState::Refused(_)) {
                *offer = OfferState::Pending;
            }
        });
    }

    /// The upstream has answered. After a gap everybody is told of everything it had agreed to; those who rely on what
    /// it had not answered for yet are told of that. Returns the lists that may have changed meanwhile.
    pub(crate) fn settle(
        &self,
        ask: &Filter,
        acknowledged: &Acknowledged,
        has_gap: bool,
        now: Instant,
    ) -> Lists {
        let mut shared = self.shared();
        let mut changed = Lists::default();
        for index in ask.lists.indexes() {
            let is_relied_on = shared.is_list_relied_on(index);
            let is_honoured = acknowledged.lists.has(index);
            let offer = OfferState::of(is_honoured, now + LIST_REFUSAL_KEPT);
            let is_owed = match std::mem::replace(&mut shared.lists[index].offer, offer) {
                OfferState::Honoured => has_gap,
                _ => is_honoured && is_relied_on,
            };
            if is_owed {
                changed.add(index);
            }
        }
        for (is_task, asked, honoured) in
            [(false, &ask.uris, &acknowledged.uris), (true, &ask.task_ids, &acknowledged.task_ids)]
        {
            let stream = shared.stream;
            let honoured: HashSet<&str> = honoured.iter().map(|name| &**name).collect();
            for inner in asked {
                let Some(name) = shared.names(is_task).get_mut(inner) else { continue };
                let is_honoured = honoured.contains(&**inner);
                let offer = OfferState::of(is_honoured, now + NAME_REFUSAL_KEPT);
                (name.is_suspect, name.stream) = (false, stream);
                let was_honoured = std::mem::replace(&mut name.offer, offer) == OfferState::Honoured;
                let is_owed = if was_honoured { has_gap } else { is_honoured };
                // The state of a task cannot be made up.
                if is_owed && !is_task {
                    shared.resource_may_have_changed(inner, was_honoured);
                }
            }
        }
        if ask.lists.is_empty() {
            // There may be room again.
            shared.refused_until[Lane::Names as usize] = None;
        }
        shared.wake_waiting();
        changed
    }

    /// The upstream takes no such stream. What it had agreed to before stands, unless nothing else was asked.
    /// Returns false in that case.
    pub(crate) fn refuse(&self, lane: Lane, until: Instant) -> bool {
        let mut shared = self.shared();
        let mut was_growth = false;
        shared.each(lane, |_, offer| was_growth |= *offer == OfferState::Honoured);
        let mut has_pending = false;
        shared.each(lane, |_, offer| has_pending |= *offer == OfferState::Pending);
        let is_partial = was_growth && has_pending;
        if !is_partial {
            shared.refused_until[lane as usize] = Some(until);
        }
        shared.each(lane, |_, offer| {
            if !is_partial || *offer == OfferState::Pending {
                *offer = OfferState::Refused(until);
            }
        });
        shared.wake_waiting();
        is_partial
    }

    /// Nothing is carried any more.
    pub(crate) fn forget(&self, lane: Lane) {
        let mut shared = self.shared();
        shared.refused_until[lane as usize] = None;
        shared.each(lane, |_, offer| *offer = OfferState::Pending);
        shared.forget_unwanted(lane);
    }

    fn shared(&self) -> MutexGuard<'_, FeedState> {
        self.shared.lock()
    }
}

impl Filter {
    pub(crate) fn is_empty(&self) -> bool {
        self.lists.is_empty() && self.names() == 0
    }

    pub(crate) fn names(&self) -> usize {
        self.uris.len() + self.task_ids.len()
    }
}

impl ResourceName {
    fn refuse(&mut self, until: Instant) {
        self.is_suspect = false;
        if self.offer == OfferState::Pending {
            self.offer = OfferState::Refused(until);
        }
    }
}

impl OfferState {
    fn of(is_honoured: bool, refused_until: Instant) -> Self {
        if is_honoured { Self::Honoured } else { Self::Refused(refused_until) }
    }

    /// Somebody new wants it, from an upstream that may refuse everything.
    fn ask_again(&mut self, now: Instant, refused_until: Option<Instant>) {
        if matches!(self, Self::Refused(until) if *until <= now) {
            *self = Self::Pending;
        }
        if let (Self::Pending, Some(until)) = (&*self, refused_until.filter(|until| *until > now)) {
            *self = Self::Refused(until);
        }
    }
}

impl FeedState {
    fn names(&mut self, is_task: bool) -> &mut HashMap<Arc<str>, ResourceName> {
        if is_task { &mut self.task_ids } else { &mut self.uris }
    }

    /// Who the client that joins is, where names are refused.
    fn source(&self, inbox: &Inbox) -> u64 {
        let standing = inbox.standing();
        self.refusals.source(&standing.endpoint.config.path, inbox.principal().id(), self.joined)
    }

    /// A name counts no longer for one source, but for that of the next client that wants it.
    fn pass_name(&mut self, source: u64, next: Option<u32>) {
        if let Entry::Occupied(mut count) = self.names_of.entry(source) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        let next = next.and_then(|key| self.client(key)).map(|client| client.source);
        if let Some(source) = next {
            *self.names_of.entry(source).or_default() += 1;
        }
    }

    fn client(&self, key: u32) -> Option<&FeedClient> {
        self.clients.get(key as usize)?.as_ref()
    }

    /// Whether each thing of a lane is wanted, and what the upstream says to it.
    fn each(&mut self, lane: Lane, mut visit: impl FnMut(bool, &mut OfferState)) {
        match lane {
            Lane::Lists => self.lists.iter_mut().for_each(|list| visit(list.wanted > 0, &mut list.offer)),
            Lane::Names => {
                let names = self.uris.values_mut().chain(self.task_ids.values_mut());
                names.for_each(|name| visit(!name.clients.is_empty(), &mut name.offer));
            }
        }
    }

    fn forget_unwanted(&mut self, lane: Lane) {
        match lane {
            Lane::Lists => {
                for list in self.lists.iter_mut().filter(|list| list.wanted == 0) {
                    list.offer = OfferState::Pending;
                }
            }
            Lane::Names => {
                self.uris.retain(|_, name| !name.clients.is_empty());
                self.task_ids.retain(|_, name| !name.clients.is_empty());
            }
        }
    }

    fn tell(&mut self, index: usize, now: Instant) {
        let list = &mut self.lists[index];
        list.told = Some(now);
        list.is_held = false;
        for client in self.clients.iter().flatten().filter(|client| client.lists.has(index)) {
            client.inbox.list_changed(index);
        }
    }

    fn is_list_relied_on(&self, index: usize) -> bool {
        let mut clients = self.clients.iter().flatten().filter(|client| client.lists.has(index));
        clients.any(|client| client.inbox.is_acknowledged())
    }

    /// `for_all`: also for those who were promised nothing yet.
    fn resource_may_have_changed(&self, inner: &str, for_all: bool) {
        for (key, index) in self.uris.get(inner).iter().flat_map(|name| &name.clients) {
            if let Some(client) = self.client(*key)
                && (for_all || client.inbox.is_acknowledged())
            {
                client.inbox.resource_changed(*index);
            }
        }
    }

    /// Those who wait to be acknowledged look again.
    fn wake_waiting(&self) {
        for client in self.clients.iter().flatten().filter(|client| !client.inbox.is_acknowledged()) {
            client.inbox.wake();
        }
    }
}

/// What a URI is part of: all that stands before a slash, with the slash and without, longest first.
fn prefixes(uri: &str) -> impl Iterator<Item = &str> {
    let slashes = uri.rmatch_indices('/').map(|(at, _)| at).take(SLASHES_MAX);
    slashes.flat_map(|at| [&uri[..=at], &uri[..at]]).filter(move |prefix| *prefix != uri)
}

#[cfg(test)]
mod tests;
