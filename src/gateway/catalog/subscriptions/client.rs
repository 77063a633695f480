//! A client's subscription: the body of the response to its `subscriptions/listen`.
//!
//! Nothing runs for it. The connection polls it, and any thread that has news wakes the connection. It keeps what it
//! needs to write messages (the id, the names as the client spells them) and nothing of the request.

use std::borrow::Cow;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::{Sleep, sleep_until};

use super::subscriber::{FeedMembership, Subscriber, WatchedName};
use crate::access::caller::Caller;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Share;
use crate::clock;
use crate::context::state::State;
use crate::snapshot::{Endpoint, Snapshot};
use crate::tables::subscriptions::feed::OfferState;
use crate::tables::subscriptions::inbox::{Inbox, SubscriptionContext, UpdateTarget, Updates};
use crate::upstream::body::no_memory;
use protocol::error::Error;
use protocol::json::quote;
use protocol::route::{Kind, Style};
use protocol::splice::Segments;
use protocol::sse::data_event;
use protocol::subscription::{self, Filter, Lists, Notice};
use protocol::version::Era;

/// How long the acknowledgement waits for upstreams.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a quiet stream gets a comment, so that nobody between takes it for dead, and a client that is gone or
/// reads nothing is noticed.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// A server-sent comment and the end of its event.
const KEEP_ALIVE: Bytes = Bytes::from_static(b":\n\n");
/// Names up to here take nothing from the process's budget for messages.
const UNCOUNTED_BYTES: usize = 1024;

pub(crate) struct ClientSubscription {
    subscriber: Subscriber,
    id: Box<str>,
    stage: SubscriptionStage,
    /// A name for which an answer was owed at the last survey: of which feed, and its index.
    owed: Option<(usize, u32)>,
    /// First the end of the client's patience, then of silence.
    clock: Pin<Box<Sleep>>,
    /// Among all subscriptions.
    _place: Share,
    _held: Option<Share>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SubscriptionStage {
    Opening,
    Open,
    Over,
}

/// Opens a subscription to what `filter` asks of `endpoint`, which belongs to `snapshot`, for `caller`, who may use
/// all that the filter names.
pub(crate) fn open(
    state: &Arc<State>,
    snapshot: &Snapshot,
    (endpoint, caller, payer): (&Arc<Endpoint>, &Caller, Payer),
    id: &str,
    filter: Filter,
) -> Result<Box<ClientSubscription>, Error> {
    let mut held = None;
    if filter.names_bytes() > UNCOUNTED_BYTES {
        let share = held.insert(state.buffered.open(payer));
        share.grow(filter.names_bytes()).map_err(no_memory)?;
    }
    let inbox = Inbox::new(endpoint, caller, payer, None);
    let (key, place) = state.hub.admit(&inbox, payer, &snapshot.limits)?;
    let lists = filter.lists;
    let mut subscriber = Subscriber::new(state, inbox, key, lists, routed(endpoint, filter));
    subscriber.join(snapshot, endpoint, &caller.class);
    Ok(Box::new(ClientSubscription {
        subscriber,
        id: id.into(),
        stage: SubscriptionStage::Opening,
        owed: None,
        clock: Box::pin(sleep_until((clock::now() + PATIENCE).into())),
        _place: place,
        _held: held,
    }))
}

fn routed(endpoint: &Endpoint, filter: Filter) -> Box<[WatchedName]> {
    let directory = endpoint.names.directory();
    let uris = filter.uris.into_iter().map(|uri| (Kind::Resource, uri));
    let task_ids = filter.task_ids.into_iter().map(|task| (Kind::Task, task));
    let routed = uris.chain(task_ids).filter_map(|(kind, name)| {
        let route = endpoint.naming.route(kind, &name.value, &directory).ok()?;
        let is_as_written = name.literal.get(1..name.literal.len() - 1) == Some(&*route.inner);
        Some(WatchedName {
            inner: (!is_as_written).then(|| (*route.inner).into()),
            literal: name.literal,
            member: u32::try_from(route.member).unwrap_or(u32::MAX),
            is_task: kind == Kind::Task,
            is_honoured: false,
        })
    });
    routed.collect()
}

impl ClientSubscription {
    /// The next piece: whole events.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.subscriber.inbox.register(cx.waker());
        match self.stage {
            SubscriptionStage::Opening => {
                let is_settled = !self.is_owed_answer() && self.survey();
                if !is_settled {
                    if !self.subscriber.inbox.has_ended() {
                        ready!(self.clock.as_mut().poll(cx));
                    }
                    self.survey();
                }
                self.stage = SubscriptionStage::Open;
                self.subscriber.inbox.set_acknowledged();
                self.rest();
                Poll::Ready(Some(data_event(Bytes::from(self.acknowledgement()))))
            }
            SubscriptionStage::Open if self.subscriber.inbox.has_ended() => {
                self.stage = SubscriptionStage::Over;
                Poll::Ready(Some(data_event(Bytes::from(subscription::completion(&self.id)))))
            }
            SubscriptionStage::Open => {
                let (lists, updates) = self.subscriber.take();
                let told = self.tell(lists, &updates);
                if !told.is_empty() {
                    self.rest();
                    return Poll::Ready(Some(told));
                }
                ready!(self.clock.as_mut().poll(cx));
                self.rest();
                Poll::Ready(Some(KEEP_ALIVE))
            }
            SubscriptionStage::Over => Poll::Ready(None),
        }
    }

    /// Whether the upstream still owes an answer that it owed at the last survey. It is one look, where a survey is one for
    /// each name, and whenever an upstream answers, all look who wait for any.
    fn is_owed_answer(&self) -> bool {
        let owed = self.owed.and_then(|(feed, index)| {
            let name = self.subscriber.names.get(index as usize)?;
            Some((self.subscriber.feeds.get(feed)?, name.wanted(index)))
        });
        let mut is_owed = false;
        if let Some((joined, name)) = owed {
            joined.feed.offers([name].into_iter(), |_, offer| is_owed = offer == OfferState::Pending);
        }
        is_owed
    }

    /// Finds out what upstreams say. True if none of them owes an answer.
    fn survey(&mut self) -> bool {
        let mut is_settled = true;
        self.owed = None;
        let mut honoured = vec![false; self.subscriber.names.len()];
        for (feed, joined) in self.subscriber.feeds.iter().enumerate() {
            let names = self.subscriber.names_of(joined.member).filter(|_| joined.hears_names);
            joined.feed.offers(names, |index, offer| {
                if offer == OfferState::Pending {
                    is_settled = false;
                    self.owed = Some((feed, index));
                }
                honoured[index as usize] = !matches!(offer, OfferState::Refused(_));
            });
            for index in self.subscriber.lists.indexes().filter(|_| joined.hears_lists) {
                // A program that rests says so later.
                let is_pending = joined.feed.list_offer(index) == OfferState::Pending;
                is_settled &= !is_pending || joined.feed.upstream.rests();
            }
        }
        for (name, is_honoured) in self.subscriber.names.iter_mut().zip(honoured) {
            name.is_honoured = is_honoured;
        }
        is_settled
    }

    fn offered_lists(&self) -> Lists {
        // The lists of several upstreams are the gateway's own, and it is the gateway that watches those of the legacy
        // era.
        let is_merged = self.subscriber.inbox.standing().endpoint.naming.style() != Style::Transparent;
        let is_ours =
            is_merged || self.subscriber.feeds.iter().any(|joined| joined.feed.upstream.lacks(Era::Modern));
        let mut offered = Lists::default();
        for index in self.subscriber.lists.indexes() {
            let is_refused =
                |joined: &FeedMembership| matches!(joined.feed.list_offer(index), OfferState::Refused(_));
            let mut of_lists = self.subscriber.feeds.iter().filter(|joined| joined.hears_lists);
            if is_ours || !of_lists.all(is_refused) {
                offered.add(index);
            }
        }
        offered
    }

    fn acknowledgement(&mut self) -> String {
        self.subscriber.lists = self.offered_lists();
        let names = |is_task| {
            let names =
                self.subscriber.names.iter().filter(move |name| name.is_honoured && name.is_task == is_task);
            names.map(|name| &*name.literal)
        };
        subscription::acknowledgement(&self.id, self.subscriber.lists, names(false), names(true))
    }

    /// Starts the clock of silence.
    fn rest(&mut self) {
        self.clock.as_mut().reset((clock::now() + KEEP_ALIVE_INTERVAL).into());
    }

    fn tell(&self, lists: Lists, updates: &Updates) -> Bytes {
        let mut events = BytesMut::new();
        let counted = &self.subscriber.state.metrics.subscriptions.notifications;
        for index in lists.and(self.subscriber.lists).indexes() {
            counted.lists()[index].inc();
            events.extend_from_slice(&data_event(Bytes::from(subscription::list_changed(&self.id, index))));
        }
        for (target, notice) in &updates.notices {
            if let Some(message) = self.cross(*target, notice) {
                let is_task = matches!(target, UpdateTarget::Task(_));
                if is_task {
                    counted.task.inc();
                } else {
                    counted.resource.inc();
                }
                events.extend_from_slice(&data_event(message));
            }
        }
        for (index, name) in self.subscriber.names.iter().enumerate() {
            let has_changed = updates.everything || updates.has_changed(index);
            if has_changed && name.is_honoured && !name.is_task {
                counted.resource.inc();
                let message = subscription::updated(&self.id, &name.literal);
                events.extend_from_slice(&data_event(Bytes::from(message)));
            }
        }
        events.freeze()
    }

    /// An upstream's notification as this client reads it. `None`: it is not for this client.
    fn cross(&self, target: UpdateTarget, notice: &Notice) -> Option<Segments> {
        let standing = self.subscriber.inbox.standing();
        let naming = &standing.endpoint.naming;
        let (member, spelled) = match target {
            UpdateTarget::Resource(index) | UpdateTarget::Task(index) => {
                let name = self.subscriber.names.get(index as usize).filter(|name| name.is_honoured)?;
                let member = name.member as usize;
                let below = notice.name.strip_prefix(name.inner())?;
                if below.is_empty() {
                    (member, name.literal.to_string())
                } else {
                    self.public(member, &notice.name)?;
                    (member, quote(&(name.value()? + below)))
                }
            }
            UpdateTarget::Other(member) => {
                let mut uris =
                    self.subscriber.names.iter().filter(|name| name.member == member && !name.is_task);
                if !uris.any(|name| name.is_honoured) {
                    return None;
                }
                let member = member as usize;
                let public = self.public(member, &notice.name)?;
                // What no client could ask for under this name, none is told of.
                let directory = standing.endpoint.names.directory();
                let to = (member, &*notice.name);
                if !naming.leads_back(Kind::Resource, &public, to, &directory) {
                    return None;
                }
                (member, quote(&public))
            }
        };
        let spell = |kind: Kind, inner: &str| {
            if kind == Kind::Task && *inner == *notice.name {
                return Some(spelled.clone());
            }
            let public = naming.spell(kind, member, inner);
            (public != inner).then(|| quote(&public))
        };
        Some(notice.write(&self.id, &spelled, spell))
    }

    /// What the client calls a resource. `None`: it may not use it.
    fn public<'i>(&self, member: usize, inner: &'i str) -> Option<Cow<'i, str>> {
        let standing = self.subscriber.inbox.standing();
        let SubscriptionContext { endpoint, class } = &**standing;
        let public = endpoint.naming.public(Kind::Resource, member, inner)?;
        endpoint.allows(class, Kind::Resource, member, inner).then_some(public)
    }
}
