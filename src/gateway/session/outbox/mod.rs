//! What is on its way between the upstreams of one session and its client, beside the replies to calls.
//!
//! Messages that wait for the client's stream, requests of upstreams that the client has not answered yet, calls of
//! the client that an upstream is working on. In memory only: what is here when the process ends is lost, as calls in
//! flight are. Any thread may use it; only who has more for the client than may wait ever waits ([`SessionOutbox::room`]).
//!
//! # The client's stream
//!
//! A session has one at a time: a newer one takes over. What comes while there is none waits for one. Where there is
//! no room, requests stay and notifications go, oldest first, of the upstream that says more before others. A client
//! that holds a stream and lets it come to that does not read: its stream ends, and it may open another.
//!
//! Invariants: messages leave in the order in which they came; what one stream was handed, no other is handed, unless
//! the client asks its upstream to repeat it.

mod queue;

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

pub(crate) use self::queue::OutboundMessage;
use self::queue::OutboxQueue;
use super::NoState;
use super::message_queue::MessageQueue;
use super::session_state::UpstreamSession;
use super::streams::{StreamBounds, StreamPlace};
use crate::access::policy::Class;
use crate::upstream::sending::Sending;
use protocol::event_id;

/// How many requests of upstreams one client may owe answers to, and how many may wait for its stream.
const QUESTIONS_MAX: usize = 128;
/// How many of them one upstream may have asked.
const QUESTIONS_OF_ONE_MAX: usize = 64;
/// Ids of events that are remembered, to be told from those of replies.
const GIVEN_OUT_MAX: usize = 128;

#[derive(Debug)]
pub(crate) struct SessionOutbox {
    streams: Arc<StreamBounds>,
    inner: Mutex<OutboxState>,
    /// What the client may use, as it was when it last asked for something.
    class: Mutex<Option<Arc<Class>>>,
    /// Who its client is, as others are told from it.
    client: OnceLock<Box<str>>,
    /// The client's stream may have room again, or is gone.
    room: Notify,
}

#[derive(Debug, Default)]
struct OutboxState {
    questions: HashMap<Box<str>, UpstreamQuestion>,
    calls: HashMap<Box<str>, UpstreamCall>,
    /// What waits for each upstream, by its session key.
    messages: HashMap<Arc<str>, Arc<MessageQueue>>,
    queue: OutboxQueue,
    /// What the client was last handed of each upstream.
    positions: Vec<UpstreamPosition>,
    /// Digests of the ids that a client with one upstream was handed, oldest first.
    given_out: VecDeque<u64>,
    reader: Option<OutboxReader>,
    readers: u64,
    is_closed: bool,
}

/// How far the client has come with an upstream.
#[derive(Debug)]
struct UpstreamPosition {
    upstream: Arc<str>,
    id: Bytes,
    /// Something that came later was dropped.
    has_gap: bool,
}

#[derive(Debug)]
struct OutboxReader {
    number: u64,
    has_several_upstreams: bool,
    waker: Option<Waker>,
    _place: StreamPlace,
}

/// An upstream's session, as it is told something.
#[derive(Clone, Debug)]
pub(crate) struct Addressee {
    /// The upstream's session key.
    pub upstream: Arc<str>,
    pub session: Arc<UpstreamSession>,
}

/// A call of the client that an upstream works on.
#[derive(Clone, Debug)]
pub(crate) struct InFlightCall {
    pub addressee: Addressee,
    /// The literal of the id that it has there.
    pub sent_id: Box<str>,
}

impl InFlightCall {
    pub(crate) fn new(addressee: Addressee, sent_id: &[u8]) -> Self {
        Self { addressee, sent_id: String::from_utf8_lossy(sent_id).into() }
    }
}

/// A request of an upstream that the client is to answer.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamQuestion {
    pub from: Addressee,
    /// The literal of the upstream's own id.
    pub inner_id: Box<str>,
}

/// A message as it is put on the client's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SentEvent {
    /// The id of its event, as the client is to give it back.
    pub id: Option<Bytes>,
    /// The message. Empty: an event that only carries its id.
    pub data: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Undelivered {
    #[error("too much waits for the client")]
    Full,
    #[error("the session is over")]
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotAttached {
    #[error("too many streams are open")]
    TooMany,
    #[error(transparent)]
    NoState(#[from] NoState),
}

/// A call of the client that has no answer yet.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamCall {
    /// Who works on it. `None`: that is not known yet.
    pub in_flight: Option<InFlightCall>,
    pub sending: Arc<Sending>,
    /// Whether its cancellation waits for it.
    is_withdrawn: bool,
    /// How many [`CallInFlight`] there are of it.
    holders: usize,
}

/// A call that has no answer yet; forgotten when the last of these is dropped.
#[derive(Debug)]
pub(crate) struct CallInFlight {
    outbox: Arc<SessionOutbox>,
    id: Box<str>,
    pub sending: Arc<Sending>,
}

/// The client's stream, for whoever writes it; detached when this is dropped.
#[derive(Debug)]
pub(crate) struct ReaderGuard {
    outbox: Arc<SessionOutbox>,
    number: u64,
}

impl SessionOutbox {
    pub(crate) fn new(streams: Arc<StreamBounds>) -> Self {
        Self {
            streams,
            inner: Mutex::default(),
            class: Mutex::default(),
            client: OnceLock::new(),
            room: Notify::new(),
        }
    }

    /// Who the client is; the first that is said holds.
    pub(crate) fn set_client(&self, name: impl FnOnce() -> Box<str>) {
        self.client.get_or_init(name);
    }

    /// Who the client is. Empty: it asked for nothing yet.
    pub(crate) fn client(&self) -> &str {
        self.client.get().map(|name| &**name).unwrap_or_default()
    }

    pub(crate) fn set_class(&self, class: &Arc<Class>) {
        *self.class.lock() = Some(Arc::clone(class));
    }

    /// What the client may use. `None`: it asked for nothing yet.
    pub(crate) fn class(&self) -> Option<Arc<Class>> {
        self.class.lock().clone()
    }

    /// Puts a message on the client's stream, or keeps it until there is one. It must hold no more memory than itself.
    pub(crate) fn deliver(&self, parcel: OutboundMessage) -> Result<(), Undelivered> {
        // Ids that a client could not send back are none.
        let event_id = parcel.event_id.filter(|id| id.len() <= event_id::ID_BYTES_MAX);
        let parcel = OutboundMessage { event_id, ..parcel };
        let mut inner = self.inner.lock();
        if inner.is_closed {
            return Err(Undelivered::Closed);
        }
        let bytes_max = self.streams.queue_bytes_max();
        let mut ended = None;
        if !inner.queue.has_room_for(&parcel, bytes_max) {
            ended = inner.reader.take();
            let dropped = inner.make_room_for(&parcel, bytes_max);
            self.streams.series.messages_dropped.inc_by(dropped);
        }
        let result = inner.put(parcel, &self.streams);
        let waker = match &mut ended {
            Some(reader) => reader.waker.take(),
            None => inner.reader.as_mut().and_then(|reader| reader.waker.take()),
        };
        drop(inner);
        if result.is_err() {
            self.streams.series.messages_dropped.inc();
        }
        if ended.is_some() {
            self.room.notify_waiters();
            self.streams.series.ended.unread.inc();
            tracing::debug!("a client does not read its stream; it is ended");
        }
        if let Some(waker) = waker {
            waker.wake();
        }
        result
    }

    /// Whether the client holds a stream.
    pub(crate) fn has_client(&self) -> bool {
        self.inner.lock().reader.is_some()
    }

    /// Waits for as long as the client's stream would be ended by one more message.
    pub(crate) async fn room(&self) {
        loop {
            // Before the look, so that no change is missed.
            let changed = self.room.notified();
            if !self.is_reader_behind() {
                return;
            }
            changed.await;
        }
    }

    /// A stream of the client's: it takes over from the one there is, which ends. `admit` counts it.
    pub(crate) fn attach(
        self: &Arc<Self>,
        has_several_upstreams: bool,
        admit: impl Fn(&Arc<StreamBounds>) -> Option<StreamPlace>,
    ) -> Result<ReaderGuard, NotAttached> {
        let mut inner = self.inner.lock();
        if inner.is_closed {
            return Err(NoState::Ended.into());
        }
        // Its place may be the last.
        let old = inner.reader.take().map(|old| old.waker);
        let place = admit(&self.streams);
        let number = inner.readers + 1;
        if let Some(place) = place {
            inner.readers = number;
            inner.reader = Some(OutboxReader { number, has_several_upstreams, waker: None, _place: place });
        }
        let is_attached = inner.reader.is_some();
        drop(inner);
        if let Some(waker) = old {
            self.streams.series.ended.taken_over.inc();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        if !is_attached {
            self.room.notify_waiters();
            return Err(NotAttached::TooMany);
        }
        Ok(ReaderGuard { outbox: Arc::clone(self), number })
    }

    /// Whether this is the id of an event of the client's own stream, where ids are the one upstream's own.
    pub(crate) fn has_given_out(&self, id: &[u8]) -> bool {
        self.inner.lock().given_out.contains(&digest(id))
    }

    /// The client goes on after these events. Returns those of them whose upstreams have to repeat what came after;
    /// what waits of that is forgotten.
    pub(crate) fn resume(&self, mut last_ids: Vec<(Box<str>, Bytes)>) -> Vec<(Box<str>, Bytes)> {
        let mut inner = self.inner.lock();
        last_ids.retain(|(upstream, id)| inner.rewind(upstream, id));
        self.room.notify_waiters();
        last_ids
    }

    /// The session is over: its stream ends, and nothing is taken any more.
    pub(crate) fn close(&self) {
        let mut inner = self.inner.lock();
        let reader = inner.reader.take();
        inner.is_closed = true;
        inner.queue = OutboxQueue::default();
        inner.questions = HashMap::new();
        drop(inner);
        self.room.notify_waiters();
        if let Some(waker) = reader.and_then(|mut reader| reader.waker.take()) {
            waker.wake();
        }
    }

    /// Expects an answer with the public id. False: the client owes too many.
    pub(crate) fn put_question(&self, public_id: &str, question: UpstreamQuestion) -> bool {
        let mut inner = self.inner.lock();
        let is_of_same = |asked: &&UpstreamQuestion| asked.from.upstream == question.from.upstream;
        let has_room = inner.questions.len() < QUESTIONS_MAX
            && inner.questions.values().filter(is_of_same).count() < QUESTIONS_OF_ONE_MAX;
        if has_room {
            inner.questions.insert(public_id.into(), question);
        }
        has_room
    }

    pub(crate) fn asker_of(&self, public_id: &str) -> Option<Addressee> {
        Some(self.inner.lock().questions.get(public_id)?.from.clone())
    }

    pub(crate) fn has_question(&self, public_id: &str) -> bool {
        self.inner.lock().questions.contains_key(public_id)
    }

    /// Takes a question that was answered, withdrawn or not answered in time; if it still waits for the client, the
    /// client never hears of it. `None`: nobody asked, or it was taken.
    pub(crate) fn take_question(&self, public_id: &str) -> Option<UpstreamQuestion> {
        let mut inner = self.inner.lock();
        let question = inner.questions.remove(public_id);
        if question.is_some() {
            inner.queue.retain(|parcel| parcel.question.as_deref() != Some(public_id));
            self.room.notify_waiters();
        }
        question
    }

    /// Remembers that the call with this id literal is about to be sent, so that its cancellation waits for it.
    pub(crate) fn announce(self: &Arc<Self>, id: &str) -> CallInFlight {
        let mut inner = self.inner.lock();
        let call = inner.calls.entry(id.into()).or_insert_with(UpstreamCall::new);
        call.holders += 1;
        let sending = Arc::clone(&call.sending);
        drop(inner);
        CallInFlight { outbox: Arc::clone(self), id: id.into(), sending }
    }

    /// Remembers who works on the call with this id literal, which is sent now.
    pub(crate) fn begin(self: &Arc<Self>, id: &str, in_flight: InFlightCall) -> CallInFlight {
        let call = self.announce(id);
        call.sending.restart();
        if let Some(known) = self.inner.lock().calls.get_mut(id) {
            known.in_flight = Some(in_flight);
        }
        call
    }

    /// The call with this id literal, until it has its answer.
    pub(crate) fn pending_call(&self, id: &str) -> Option<UpstreamCall> {
        self.inner.lock().calls.get(id).cloned()
    }

    /// Remembers that the call with this id literal is to be cancelled once it was sent. False: that was known.
    pub(crate) fn withdraw(&self, id: &str) -> bool {
        let mut inner = self.inner.lock();
        inner.calls.get_mut(id).is_some_and(|call| !std::mem::replace(&mut call.is_withdrawn, true))
    }

    pub(crate) fn working_on(&self, id: &str) -> Option<InFlightCall> {
        self.inner.lock().calls.get(id)?.in_flight.clone()
    }

    pub(crate) fn messages_to(&self, upstream: &Arc<str>) -> Arc<MessageQueue> {
        Arc::clone(self.inner.lock().messages.entry(Arc::clone(upstream)).or_default())
    }

    /// What waits for an upstream. `None`: nothing does.
    pub(crate) fn messages_before(&self, upstream: &str) -> Option<Arc<MessageQueue>> {
        self.inner.lock().messages.get(upstream).filter(|queue| !queue.is_empty()).cloned()
    }

    fn is_reader_behind(&self) -> bool {
        let inner = self.inner.lock();
        inner.reader.is_some() && inner.queue.is_full(self.streams.queue_bytes_max())
    }
}

impl ReaderGuard {
    /// The next message. `None`: the stream is over.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<SentEvent>> {
        let mut inner = self.outbox.inner.lock();
        let Some(reader) = inner.reader.as_mut().filter(|reader| reader.number == self.number) else {
            return Poll::Ready(None);
        };
        let has_several = reader.has_several_upstreams;
        let was_full = inner.queue.is_full(self.outbox.streams.queue_bytes_max());
        let next = inner.queue.pop();
        if was_full {
            self.outbox.room.notify_waiters();
        }
        let Some(parcel) = next else {
            if let Some(reader) = &mut inner.reader {
                reader.waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        };
        let id = parcel.event_id.and_then(|id| inner.give_out(&parcel.upstream, id, has_several));
        Poll::Ready(Some(SentEvent { id, data: parcel.data }))
    }
}

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        let mut inner = self.outbox.inner.lock();
        if inner.reader.as_ref().is_some_and(|reader| reader.number == self.number) {
            inner.reader = None;
            self.outbox.room.notify_waiters();
        }
    }
}

impl Drop for CallInFlight {
    fn drop(&mut self) {
        let mut inner = self.outbox.inner.lock();
        if let Some(call) = inner.calls.get_mut(&self.id) {
            call.holders -= 1;
            if call.holders == 0 {
                inner.calls.remove(&self.id);
                drop(inner);
                self.sending.mark_over();
            }
        }
    }
}

impl UpstreamCall {
    fn new() -> Self {
        Self { in_flight: None, sending: Arc::default(), is_withdrawn: false, holders: 0 }
    }
}

impl OutboxState {
    fn put(&mut self, parcel: OutboundMessage, streams: &StreamBounds) -> Result<(), Undelivered> {
        let Some(parcel) = self.queue.merge(parcel) else { return Ok(()) };
        // A client that only waits for it must not suffer from those who do not read.
        let is_awaited =
            self.queue.is_empty() && self.reader.as_ref().is_some_and(|reader| reader.waker.is_some());
        let mut held = (!is_awaited).then(|| streams.queued.reservation());
        let is_held = held.as_mut().is_none_or(|held| held.grow(parcel.bytes()));
        if !is_held || !self.queue.has_room_for(&parcel, streams.queue_bytes_max()) {
            self.mark_gap(&parcel);
            return Err(Undelivered::Full);
        }
        self.queue.push(parcel, held);
        Ok(())
    }

    /// Drops notifications, oldest first, those of the same upstream before others. Returns how many.
    fn make_room_for(&mut self, parcel: &OutboundMessage, bytes_max: usize) -> u64 {
        let mut dropped = 0;
        while !self.queue.has_room_for(parcel, bytes_max) {
            let Some(oldest) = self.queue.take_oldest_notification(&parcel.upstream) else { break };
            self.mark_gap(&oldest);
            dropped += 1;
        }
        dropped
    }

    fn mark_gap(&mut self, dropped: &OutboundMessage) {
        if dropped.event_id.is_some()
            && let Some(position) =
                self.positions.iter_mut().find(|position| position.upstream == dropped.upstream)
        {
            position.has_gap = true;
        }
    }

    /// The id that the client is given for an event of an upstream.
    fn give_out(&mut self, upstream: &Arc<str>, id: Bytes, has_several: bool) -> Option<Bytes> {
        let position = UpstreamPosition { upstream: Arc::clone(upstream), id: id.clone(), has_gap: false };
        match self.positions.iter_mut().find(|position| position.upstream == *upstream) {
            Some(known) => *known = position,
            None => self.positions.push(position),
        }
        if has_several {
            return event_id::spell_get(
                self.positions.iter().map(|position| (&*position.upstream, &*position.id)),
            );
        }
        if self.given_out.len() >= GIVEN_OUT_MAX {
            self.given_out.pop_front();
        }
        self.given_out.push_back(digest(&id));
        Some(id)
    }

    /// Goes back to the event with this id. False: nothing after it was lost.
    fn rewind(&mut self, upstream: &str, id: &Bytes) -> bool {
        match self.positions.iter_mut().find(|position| &*position.upstream == upstream) {
            Some(position) if position.id == *id && !position.has_gap => return false,
            Some(position) => {
                position.id = id.clone();
                position.has_gap = false;
            }
            None => self.positions.push(UpstreamPosition {
                upstream: upstream.into(),
                id: id.clone(),
                has_gap: false,
            }),
        }
        self.queue.retain(|parcel| &*parcel.upstream != upstream || parcel.event_id.is_none());
        true
    }
}

fn digest(id: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
