//! Everything that clients want to hear from one upstream, and what it has agreed to tell.
//!
//! Shared by all threads: clients join and leave, the upstream's streams ask what they are to carry and hand over
//! what they hear. One lock per upstream, never held across a wait.
//!
//! Invariants: a name that somebody wants is pending until the upstream has answered for it; a name that nobody
//! wants any more stays, and counts as agreed, for as long as the open stream carries it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use prometheus::IntCounter;
use tokio::sync::Notify;

use self::names::FeedNames;
use self::refusals::Refusals;
pub(crate) use self::suspects::Suspect;
use super::inbox::Inbox;
use crate::access::limit::digest::IdentityHash;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares;
use crate::clock;
use crate::upstream::Upstream;
use protocol::subscription::Lists;

mod answers;
mod names;
mod notices;
mod refusals;
mod suspects;

/// Names that are asked of one upstream; further ones count as not offered.
const NAMES_MAX: usize = 100_000;
/// Those among them that one payer was first to want; the last eighth of all is a reserve for those who want few.
const NAMES_OF_PAYER_MAX: usize = NAMES_MAX / 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Changes of lists.
    Lists,
    /// Changes of resources and tasks.
    Names,
}

#[derive(Debug)]
pub(crate) struct Feed {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) scope: Option<FeedScope>,
    wakes: [Notify; 2],
    pub(crate) lists_wanted: Notify,
    /// The last client has left.
    pub(crate) emptied: Notify,
    shared: Mutex<FeedState>,
}

/// The principal whose own process of an upstream is listened to.
#[derive(Clone, Debug)]
pub(crate) struct FeedScope {
    /// Its identity.
    pub(crate) principal: Arc<str>,
    /// Who is charged for that process.
    pub(crate) payer: Payer,
}

#[derive(Debug, Default)]
struct FeedState {
    clients: Vec<Option<FeedClient>>,
    free: Vec<u32>,
    lists: [ListState; Lists::COUNT],
    names: FeedNames,
    /// Until when each lane is refused as a whole, or takes nothing more.
    refused_until: [Option<Instant>; 2],
    refusals: Refusals,
    /// How many names each payer was first to want, of those who still do.
    names_of: HashMap<Payer, usize, IdentityHash>,
    /// The number of the stream for names that is to carry more; those before it stay as they are.
    stream: u64,
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
    /// While it is pending, the number of a stream that told of it before and is still read.
    told_by: Option<u64>,
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
pub(crate) struct FeedFilter {
    pub(crate) lists: Lists,
    pub(crate) uris: Vec<Arc<str>>,
    pub(crate) task_ids: Vec<Arc<str>>,
}

/// How what a lane carries compares with what is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub(crate) struct Need {
    pub(crate) is_wanted: bool,
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
    pub(crate) fn new(upstream: Arc<Upstream>, scope: Option<FeedScope>) -> Arc<Self> {
        Arc::new(Self {
            upstream,
            scope,
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

    pub(crate) fn join(&self, inbox: Arc<Inbox>, member: u32, lists: Lists, names: &[WantedName<'_>]) -> u32 {
        let now = clock::now();
        let mut shared = self.shared();
        let uris = names.iter().filter(|name| !name.is_task).count();
        shared.joined += 1;
        let source = shared.source(&inbox);
        let client = Some(FeedClient { inbox, member, lists, uris, source });
        let key = shared.free.pop().unwrap_or_else(|| {
            shared.clients.push(None);
            u32::try_from(shared.clients.len() - 1).unwrap_or(u32::MAX)
        });
        shared.clients[key as usize] = client;
        let [refused_lists, _] = shared.refused_until;
        for index in lists.indexes() {
            let list = &mut shared.lists[index];
            list.wanted += 1;
            list.offer.ask_again(now, refused_lists);
        }
        let refused = &self.upstream.series.subscription_names_refused;
        for wanted in names {
            shared.join_name(key, wanted, now, (&refused.full, &refused.cut_off));
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
            let left = shared.names.change(wanted.is_task, wanted.inner, |name| {
                let was_first = name.clients.first().is_some_and(|(client, _)| *client == key);
                name.clients.retain(|(client, _)| *client != key);
                (was_first, name.clients.first().map(|(client, _)| *client), name.offer)
            });
            let Some((was_first, next, offer)) = left else { continue };
            if next.is_none() && offer != OfferState::Honoured {
                shared.names.remove(wanted.is_task, wanted.inner);
            }
            if was_first {
                shared.pass_name(client.inbox.payer(), next);
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
        let shared = self.shared();
        for wanted in names {
            let offer = shared.names.get(wanted.is_task, wanted.inner).map(|name| name.offer);
            each(wanted.index, offer.unwrap_or(OfferState::Refused(clock::now())));
        }
    }

    pub(crate) fn need(&self, lane: Lane) -> Need {
        let shared = self.shared();
        if lane == Lane::Names {
            let counts = shared.names.counts();
            // There may be streams that do not grow.
            let carried = counts.carried_by(shared.stream);
            return Need {
                is_wanted: counts.wanted > 0,
                has_pending: counts.pending > 0,
                has_newcomers: counts.newcomers > 0,
                has_carried: carried.wanted > 0,
                has_unwanted: carried.unwanted > 0,
            };
        }
        let mut need = Need::default();
        for list in &shared.lists {
            let is_wanted = list.wanted > 0;
            need.is_wanted |= is_wanted;
            need.has_pending |= is_wanted && list.offer == OfferState::Pending;
            need.has_carried |= is_wanted && list.offer == OfferState::Honoured;
            need.has_unwanted |= !is_wanted && list.offer == OfferState::Honoured;
        }
        need
    }

    /// What a new stream of a lane is to carry: everything wanted that was not refused.
    pub(crate) fn ask(&self, lane: Lane) -> FeedFilter {
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
                FeedFilter { lists, ..FeedFilter::default() }
            }
            Lane::Names => {
                let [uris, task_ids] = [false, true].map(|is_task| asked(shared.names.of_kind(is_task)));
                FeedFilter { uris, task_ids, ..FeedFilter::default() }
            }
        }
    }

    fn shared(&self) -> MutexGuard<'_, FeedState> {
        self.shared.lock()
    }
}

impl FeedFilter {
    pub(crate) fn is_empty(&self) -> bool {
        self.lists.is_empty() && self.names() == 0
    }

    pub(crate) fn names(&self) -> usize {
        self.uris.len() + self.task_ids.len()
    }
}

impl ResourceName {
    fn is_wanted(&self) -> bool {
        !self.clients.is_empty()
    }

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
    /// Who the client that joins is, where names are refused.
    fn source(&self, inbox: &Inbox) -> u64 {
        let standing = inbox.standing();
        self.refusals.source(&standing.endpoint.config.name, inbox.principal().id(), self.joined)
    }

    /// Whether one more name is too much for this payer.
    fn has_too_many(&self, payer: Payer) -> bool {
        let held = self.names_of.get(&payer).copied().unwrap_or_default();
        held >= NAMES_OF_PAYER_MAX
            || shares::refusal((NAMES_MAX, 1), self.names.counts().wanted, 1, held + 1).is_some()
    }

    /// A client wants a name, unless there is no room for more.
    fn join_name(
        &mut self,
        key: u32,
        wanted: &WantedName<'_>,
        now: Instant,
        (full, cut_off): (&IntCounter, &IntCounter),
    ) {
        let Some(client) = self.client(key) else { return };
        let (source, payer) = (client.source, client.inbox.payer());
        let known_until = self.refusals.name_until(wanted.is_task, wanted.inner, now);
        let is_cut_off = self.refusals.is_cut_off(source, now);
        let ([_, refused_names], has_too_many) = (self.refused_until, self.has_too_many(payer));
        let known = self.names.get(wanted.is_task, wanted.inner);
        let (is_new, is_first) = (known.is_none(), known.is_none_or(|name| !name.is_wanted()));
        // What somebody else wants already costs nothing.
        if is_first && has_too_many {
            return full.inc();
        }
        self.names.put(wanted.is_task, wanted.inner, |name| {
            name.clients.push((key, wanted.index));
            let was_refused = is_new || matches!(name.offer, OfferState::Refused(_));
            match known_until {
                Some(until) if was_refused => name.offer = OfferState::Refused(until),
                // If somebody else comes to want it, it is asked for.
                None if was_refused && is_cut_off => {
                    cut_off.inc();
                    name.offer = OfferState::Refused(now);
                }
                _ => name.offer.ask_again(now, refused_names),
            }
        });
        if is_first {
            *self.names_of.entry(payer).or_default() += 1;
        }
    }

    /// A name counts no longer for one payer, but for that of the next client that wants it.
    fn pass_name(&mut self, payer: Payer, next: Option<u32>) {
        if let Entry::Occupied(mut count) = self.names_of.entry(payer) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        let next = next.and_then(|key| self.client(key)).map(|client| client.inbox.payer());
        if let Some(payer) = next {
            *self.names_of.entry(payer).or_default() += 1;
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
                self.names.change_all(|_, _, name| visit(name.is_wanted(), &mut name.offer));
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
                // What a stream carries that does not grow is told by its upstream all the same.
                let stream = self.stream;
                self.names.forget_unwanted(stream);
            }
        }
    }

    fn is_list_relied_on(&self, index: usize) -> bool {
        let mut clients = self.clients.iter().flatten().filter(|client| client.lists.has(index));
        clients.any(|client| client.inbox.is_acknowledged())
    }
}

#[cfg(test)]
mod tests;
