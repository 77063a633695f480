//! The calls in flight on one connection: who made each, under which id and progress token.
//!
//! Every call gets an id of the connection's own, so that ids of different callers never meet; its progress token is
//! the same number. What stands in messages is replaced where it stands. Pure: what a call is answered through, and what time
//! it is, are the holder's.
//!
//! Invariants: ids are given out once and grow; so the last call is the newest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::access::limit::concurrency::place::CallPlace;
use protocol::method::Method;

/// A question of the gateway's own that nobody waits for is given up after so long.
const OWN_TIME_MAX: Duration = Duration::from_secs(10);
/// Given-up calls whose answers are still expected; of more, the oldest are forgotten.
const ABANDONED_MAX: usize = 1024;

/// The calls in flight. `H` leads to who waits.
#[derive(Debug)]
pub(crate) struct PendingCalls<H> {
    next: u64,
    calls: BTreeMap<u64, PendingCall<H>>,
    /// The times of the gateway's own questions: they are no part of what each call moves.
    asked: BTreeMap<u64, Instant>,
    abandoned: usize,
}

/// A call that was sent and has no answer yet.
#[derive(Debug)]
pub(crate) struct PendingCall<H> {
    /// The literal of its id as the caller wrote it.
    pub id: Bytes,
    /// The literal of its progress token, if it has one.
    pub token: Option<Bytes>,
    pub session: u64,
    /// What it is to the messages that name no call.
    pub role: CallRole,
    /// The method, where the gateway itself asks.
    pub asks: Option<Method>,
    /// A message came for it that is not its answer: a subscription was taken.
    pub is_heard: bool,
    /// Who waits; `None` once nobody does.
    pub handle: Option<H>,
    /// Its place among the calls that the upstream may have at once, until it is answered.
    pub place: Option<Arc<CallPlace>>,
}

/// What a call is to the messages that name no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallRole {
    /// They may be for its client.
    Call,
    /// The gateway asks: nobody is there whom they could reach.
    Own,
    /// It stays open to be told of changes that name it.
    Subscription,
    /// The same, of changes of lists alone, for the gateway: no client needs it.
    Watch,
}

impl CallRole {
    pub(crate) fn is_subscription(self) -> bool {
        matches!(self, Self::Subscription | Self::Watch)
    }
}

impl<H> Default for PendingCalls<H> {
    fn default() -> Self {
        Self { next: 1, calls: BTreeMap::new(), asked: BTreeMap::new(), abandoned: 0 }
    }
}

impl<H> PendingCalls<H> {
    /// No calls yet. The first one gets this id.
    pub(crate) fn beginning_with(first: u64) -> Self {
        Self { next: first, ..Self::default() }
    }

    /// Enters a call and gives it its id.
    pub(crate) fn enter(&mut self, call: PendingCall<H>) -> u64 {
        let own = self.next;
        self.next += 1;
        self.calls.insert(own, call);
        own
    }

    /// The same for a question of the gateway's own, which is asked now.
    pub(crate) fn enter_own(&mut self, call: PendingCall<H>, now: Instant) -> u64 {
        let own = self.enter(call);
        self.asked.insert(own, now);
        own
    }

    pub(crate) fn get_mut(&mut self, own: u64) -> Option<&mut PendingCall<H>> {
        self.calls.get_mut(&own)
    }

    /// Takes a call out: it is answered, or of no interest any more.
    pub(crate) fn leave(&mut self, own: u64) -> Option<PendingCall<H>> {
        let call = self.calls.remove(&own)?;
        if call.asks.is_some() {
            self.asked.remove(&own);
        }
        if let (None, Some(place)) = (&call.handle, &call.place) {
            place.end(false);
        }
        if call.handle.is_none() {
            self.abandoned -= 1;
        }
        Some(call)
    }

    /// Nobody waits for the call any more, but it runs on: its answer is expected and will be dropped. Returns what led
    /// to who waited.
    pub(crate) fn abandon(&mut self, own: u64) -> Option<H> {
        let call = self.calls.get_mut(&own)?;
        let handle = call.handle.take()?;
        if let Some(place) = &call.place {
            place.keep();
        }
        self.abandoned += 1;
        if self.abandoned > ABANDONED_MAX {
            let oldest = self.calls.iter().find(|(_, call)| call.handle.is_none());
            if let Some(oldest) = oldest.map(|(own, _)| *own) {
                self.leave(oldest);
            }
        }
        Some(handle)
    }

    /// As [`abandon`](Self::abandon) for a call that is told to end: where its place is counted, its answer is awaited all the
    /// same, as there is no other sign that it has ended. Else it is of no interest any more. True if somebody waited.
    pub(crate) fn end(&mut self, own: u64) -> bool {
        match self.calls.get(&own) {
            Some(call) if call.place.is_some() => self.abandon(own).is_some(),
            _ => self.leave(own).is_some_and(|call| call.handle.is_some()),
        }
    }

    /// The id under which a call of `session` runs that its client calls `id`; the newest, where it used one twice.
    /// What the gateway asks has ids that clients may use as well.
    pub(crate) fn find(&self, session: u64, id: &[u8]) -> Option<u64> {
        let is_it =
            |call: &PendingCall<H>| call.session == session && call.id == id && call.role != CallRole::Own;
        self.calls.iter().rev().find(|(_, call)| is_it(call)).map(|(own, _)| *own)
    }

    /// True if somebody waits for a call that is no subscription.
    pub(crate) fn has_calls(&self) -> bool {
        self.calls.values().any(|call| call.handle.is_some() && !call.role.is_subscription())
    }

    /// True if all who wait are the gateway itself.
    pub(crate) fn is_own(&self) -> bool {
        self.calls.values().all(|call| call.handle.is_none() || call.role == CallRole::Own)
    }

    /// True if the gateway itself asks this.
    pub(crate) fn is_own_call(&self, own: u64) -> bool {
        self.calls.get(&own).is_some_and(|call| call.role == CallRole::Own)
    }

    pub(crate) fn abandon_own(&mut self) {
        let is_own = |call: &PendingCall<H>| call.role == CallRole::Own && call.handle.is_some();
        let own: Vec<u64> = self.calls.iter().filter(|(_, call)| is_own(call)).map(|(own, _)| *own).collect();
        for own in own {
            self.abandon(own);
        }
    }

    /// The only call of a client that waits; `None` if there are several, or none.
    pub(crate) fn only(&self) -> Option<u64> {
        let mut awaited = self.awaited();
        let only = awaited.next()?;
        awaited.next().is_none().then_some(only)
    }

    /// Whether this is so of all that somebody waits for, by their ids.
    pub(crate) fn all_awaited(&self, is_so: impl Fn(u64, CallRole, &H) -> bool) -> bool {
        self.calls
            .iter()
            .all(|(own, call)| call.handle.as_ref().is_none_or(|handle| is_so(*own, call.role, handle)))
    }

    pub(crate) fn newest(&self) -> Option<u64> {
        self.awaited().next()
    }

    /// True if there is no call, not even one that nobody waits for.
    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// True if nobody waits for any call.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls.len() == self.abandoned
    }

    /// True if nobody waits for any call, but the gateway for changes of lists.
    pub(crate) fn is_only_watched(&self) -> bool {
        self.calls.values().all(|call| call.handle.is_none() || call.role == CallRole::Watch)
    }

    /// The first question of the gateway's own that has no answer, where no client has asked anything that has none. One that was
    /// given up is none: the other side goes on without answering it.
    pub(crate) fn own_question(&mut self, now: Instant) -> Option<Method> {
        self.give_up_own(now);
        let open = || self.calls.values().filter(|call| !call.role.is_subscription() || !call.is_heard);
        let question = || open().find_map(|call| call.asks);
        open().all(|call| call.asks.is_some()).then(question)?
    }

    /// True while the gateway waits for the answer to this question.
    pub(crate) fn awaits_own(&self, question: Method) -> bool {
        let is_it = |call: &PendingCall<H>| call.asks == Some(question);
        self.calls.values().any(|call| call.handle.is_some() && is_it(call))
    }

    /// Questions of the gateway's own that nobody waits for are of no interest any more after a while.
    pub(crate) fn give_up_own(&mut self, now: Instant) {
        if self.abandoned == 0 {
            return;
        }
        let is_late = |asked: Instant| now.saturating_duration_since(asked) >= OWN_TIME_MAX;
        let is_left = |own: &u64| self.calls.get(own).is_some_and(|call| call.handle.is_none());
        let late: Vec<u64> = self
            .asked
            .iter()
            .filter(|(own, asked)| is_late(**asked) && is_left(own))
            .map(|(own, _)| *own)
            .collect();
        for own in late {
            self.leave(own);
        }
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = PendingCall<H>> {
        self.abandoned = 0;
        let calls = std::mem::take(&mut self.calls).into_values();
        calls.inspect(|call| call.place.iter().for_each(|place| place.end(false)))
    }

    fn awaited(&self) -> impl Iterator<Item = u64> {
        let is_awaited = |call: &PendingCall<H>| call.handle.is_some() && call.role == CallRole::Call;
        self.calls.iter().rev().filter(move |(_, call)| is_awaited(call)).map(|(own, _)| *own)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn call(session: u64, id: &str) -> PendingCall<&'static str> {
        let id = Bytes::copy_from_slice(id.as_bytes());
        let (role, handle) = (CallRole::Call, Some("waits"));
        PendingCall { id, token: None, session, role, asks: None, is_heard: false, handle, place: None }
    }

    #[test]
    fn the_same_id_of_two_sessions_is_two_calls() {
        let mut pending = PendingCalls::default();
        let (one, two) = (pending.enter(call(1, "7")), pending.enter(call(2, "7")));
        assert_ne!(one, two);
        assert_eq!(
            (pending.find(1, b"7"), pending.find(2, b"7"), pending.find(3, b"7")),
            (Some(one), Some(two), None)
        );
        assert_eq!(pending.find(1, b"\"7\""), None, "the type of an id counts");
        assert_eq!(pending.leave(one).map(|call| call.session), Some(1));
        assert!(pending.leave(one).is_none() && pending.find(1, b"7").is_none());
        let again = pending.enter(call(2, "7"));
        assert_eq!(pending.find(2, b"7"), Some(again));
    }

    #[test]
    fn what_nobody_waits_for_is_no_place_for_messages() {
        let mut pending = PendingCalls::default();
        assert!(
            pending.is_empty() && pending.is_idle() && pending.only().is_none() && pending.newest().is_none()
        );
        let one = pending.enter(call(1, "1"));
        assert_eq!((pending.only(), pending.newest()), (Some(one), Some(one)));
        let two = pending.enter(call(1, "2"));
        assert_eq!((pending.only(), pending.newest()), (None, Some(two)));
        pending.abandon(two);
        pending.abandon(two);
        assert_eq!((pending.only(), pending.newest()), (Some(one), Some(one)));
        assert!(!pending.is_idle());
        pending.leave(one);
        assert!(pending.is_idle() && !pending.is_empty());
        assert_eq!(pending.find(1, b"2"), Some(two));
        pending.leave(two);
        assert!(pending.is_empty());
    }

    #[test]
    fn only_calls_of_clients_are_a_place_for_messages() {
        for (role, is_call) in [(CallRole::Subscription, false), (CallRole::Own, true)] {
            let mut pending = PendingCalls::default();
            let other = pending.enter(PendingCall { role, ..call(1, "s") });
            assert_eq!(
                pending.find(1, b"s"),
                (!is_call).then_some(other),
                "nobody cancels what is not theirs"
            );
            assert!(!pending.is_idle() && pending.has_calls() == is_call);
            assert!(pending.only().is_none() && pending.newest().is_none());
            let one = pending.enter(call(1, "1"));
            assert_eq!((pending.has_calls(), pending.only(), pending.newest()), (true, Some(one), Some(one)));
            assert!(!pending.is_own());
            pending.leave(one);
            assert_eq!(pending.is_own(), is_call);
            pending.abandon_own();
            assert_eq!(pending.is_idle(), is_call, "only what the gateway asks is given up");
            pending.leave(other);
            assert!(pending.is_idle() && !pending.has_calls());
        }
    }

    #[test]
    fn a_question_of_the_gateways_own_is_open_until_it_is_answered_or_taken() {
        let mut pending = PendingCalls::default();
        let now = crate::clock::now();
        assert_eq!(pending.own_question(now), None);
        let own = |role, method| PendingCall { role, asks: Some(method), ..call(1, "") };
        let watch = pending.enter_own(own(CallRole::Watch, Method::Listen), now);
        let list = pending.enter_own(own(CallRole::Own, Method::ToolsList), now);
        assert_eq!(pending.own_question(now), Some(Method::Listen));
        pending.get_mut(watch).expect("it is there").is_heard = true;
        assert_eq!(pending.own_question(now), Some(Method::ToolsList));
        for role in [CallRole::Call, CallRole::Subscription] {
            let clients = pending.enter(PendingCall { role, ..call(1, "c") });
            assert_eq!(pending.own_question(now), None, "it may be the client's doing");
            pending.leave(clients);
        }
        pending.leave(list);
        assert_eq!(pending.own_question(now), None);
    }

    #[test]
    fn a_question_of_the_gateways_own_that_nobody_waits_for_is_given_up() {
        let mut pending = PendingCalls::default();
        let now = crate::clock::now();
        let own = || PendingCall { role: CallRole::Own, asks: Some(Method::Discover), ..call(1, "") };
        let (awaited, passing) = (pending.enter_own(own(), now), pending.enter_own(own(), now));
        let clients = pending.enter(call(1, "c"));
        pending.abandon(passing);
        pending.abandon(clients);
        assert!(pending.awaits_own(Method::Discover) && !pending.awaits_own(Method::Initialize));
        pending.give_up_own(now + OWN_TIME_MAX / 2);
        assert!(pending.get_mut(passing).is_some());
        pending.give_up_own(now + OWN_TIME_MAX);
        assert!(pending.get_mut(passing).is_none());
        assert!(pending.get_mut(awaited).is_some(), "somebody waits for it");
        assert!(pending.get_mut(clients).is_some(), "its answer is expected");
        pending.leave(clients);
        assert_eq!(pending.own_question(now), Some(Method::Discover));
        pending.abandon(awaited);
        assert!(!pending.awaits_own(Method::Discover));
        assert_eq!(pending.own_question(now + OWN_TIME_MAX / 2), Some(Method::Discover));
        assert_eq!(pending.own_question(now + OWN_TIME_MAX), None);
        assert!(pending.is_empty() && pending.asked.is_empty());
    }

    #[test]
    fn of_too_many_given_up_calls_the_oldest_are_forgotten() {
        let mut pending = PendingCalls::default();
        let kept = pending.enter(call(1, "kept"));
        for number in 0..ABANDONED_MAX + 5 {
            let own = pending.enter(call(1, &number.to_string()));
            pending.abandon(own);
        }
        assert_eq!(pending.abandoned, ABANDONED_MAX);
        assert_eq!(pending.calls.len(), ABANDONED_MAX + 1);
        assert!(pending.get_mut(kept).is_some() && pending.find(1, b"0").is_none());
    }

    proptest! {
        #[test]
        fn it_is_a_map_with_ids_of_its_own(steps in prop::collection::vec((0..4_u8, 0..12_u64), 0..80)) {
            let mut pending = PendingCalls::default();
            // Own id → whether somebody waits.
            let mut model: HashMap<u64, bool> = HashMap::new();
            for (step, number) in steps {
                match step {
                    0 | 1 => {
                        let own = pending.enter(call(number % 3, &number.to_string()));
                        prop_assert!(model.insert(own, true).is_none(), "an id was given out twice");
                    }
                    2 => {
                        pending.abandon(number);
                        model.entry(number).and_modify(|waits| *waits = false);
                    }
                    _ => prop_assert_eq!(pending.leave(number).is_some(), model.remove(&number).is_some()),
                }
                let mut awaited: Vec<u64> =
                    model.iter().filter(|(_, waits)| **waits).map(|(own, _)| *own).collect();
                awaited.sort_unstable();
                prop_assert_eq!(pending.newest(), awaited.last().copied());
                prop_assert_eq!(pending.only(), (awaited.len() == 1).then(|| awaited[0]));
                prop_assert_eq!(pending.is_idle(), awaited.is_empty());
                prop_assert_eq!(pending.is_empty(), model.is_empty());
            }
        }
    }
}
