//! What is on its way between the upstreams of one session and its client, beside the replies to calls.
//!
//! Messages that wait for the client's stream, requests of upstreams that the client has not answered yet, calls of
//! the client that an upstream is working on. In memory only: what is here when the process ends is lost, as calls in
//! flight are. Any thread may use it; only who has more for the client than may wait ever waits
//! ([`SessionOutbox::room`]).
//!
//! # The client's stream
//!
//! A session has one at a time: a newer one takes over. What comes while there is none waits for one. Where there is
//! no room, requests stay and notifications go, oldest first, of the upstream that says more before others. A client
//! that holds a stream and lets it come to that does not read: its stream ends, and it may open another.
//!
//! Invariants: messages leave in the order in which they came; what one stream was handed, no other is handed, unless
//! the client asks its upstream to repeat it.

mod calls;
mod list_pace;
mod positions;
mod queue;
mod reply_ids;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

pub(crate) use self::calls::{CallInFlight, InFlightCall, UpstreamCall};
use self::list_pace::ListPace;
use self::positions::Positions;
pub(crate) use self::queue::OutboundMessage;
use self::queue::OutboxQueue;
use self::reply_ids::IdsOfReplies;
pub(crate) use self::reply_ids::{GivenIds, ReplyIds};
use super::NoState;
use super::given_ids::GivenDigests;
use super::message_queue::MessageQueue;
use super::session_state::UpstreamSession;
use super::streams::StreamBounds;
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Share;
use crate::access::policy::Class;
use crate::clock;
use crate::upstream::changes::ToldSession;
use protocol::event_id;
use protocol::subscription::Lists;

/// How many requests of upstreams one client may owe answers to, and how many may wait for its stream.
const QUESTIONS_MAX: usize = 128;
/// How many of them one upstream may have asked.
const QUESTIONS_OF_ONE_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct SessionOutbox {
    streams: Arc<StreamBounds>,
    inner: Mutex<OutboxState>,
    /// What the client may use, as it was when it last asked for something.
    class: Mutex<Option<Arc<Class>>>,
    /// Who is charged for what waits.
    payer: Payer,
    /// Who its client is, as others are told from it.
    client: OnceLock<Payer>,
    /// The client's stream may have room again, or is gone.
    room: Notify,
    /// All ids that its client was given are remembered, as far as they ever are.
    knows_given: AtomicBool,
    /// Of which reload its client was told that it made other lists.
    lists_since_ms: AtomicU64,
    /// The pace at which its client is told that a list of a program has changed.
    list_pace: ListPace,
}

#[derive(Debug, Default)]
struct OutboxState {
    questions: HashMap<Box<str>, UpstreamQuestion>,
    /// Clients choose ids, and few are in flight: no hash is needed, and none can be made to meet.
    calls: BTreeMap<Box<str>, UpstreamCall>,
    /// What waits for each upstream, by its session key.
    messages: HashMap<Arc<str>, Arc<MessageQueue>>,
    queue: OutboxQueue,
    positions: Positions,
    replies: IdsOfReplies,
    reader: Option<OutboxReader>,
    readers: u64,
    is_closed: bool,
}

#[derive(Debug)]
struct OutboxReader {
    number: u64,
    has_several_upstreams: bool,
    waker: Option<Waker>,
    /// Among all streams.
    place: Share,
}

/// An upstream's session, as it is told something.
#[derive(Clone, Debug)]
pub(crate) struct Addressee {
    /// The upstream's session key.
    pub upstream: Arc<str>,
    pub session: Arc<UpstreamSession>,
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

/// The client's stream, for whoever writes it; detached when this is dropped.
#[derive(Debug)]
pub(crate) struct ReaderGuard {
    outbox: Arc<SessionOutbox>,
    number: u64,
}

impl SessionOutbox {
    pub(crate) fn new(streams: Arc<StreamBounds>, payer: Payer) -> Self {
        Self {
            streams,
            payer,
            inner: Mutex::default(),
            class: Mutex::default(),
            client: OnceLock::new(),
            room: Notify::new(),
            knows_given: AtomicBool::new(false),
            lists_since_ms: AtomicU64::new(0),
            list_pace: ListPace::default(),
        }
    }

    /// True if its client was not yet told of the reload that made other lists at this moment. It counts as told from
    /// now on.
    pub(crate) fn note_lists(&self, since_ms: u64) -> bool {
        self.lists_since_ms.swap(since_ms, Ordering::Relaxed) != since_ms
    }

    /// Its session, among those that an upstream has told of a change.
    pub(crate) fn as_told(&self) -> ToldSession {
        ToldSession(std::ptr::from_ref(self).addr())
    }

    /// Who the client is; the first that is said holds.
    pub(crate) fn set_client(&self, payer: impl FnOnce() -> Payer) {
        self.client.get_or_init(payer);
    }

    /// Who the client is; before it asked for something, who is charged for its session.
    pub(crate) fn client(&self) -> Payer {
        self.client.get().copied().unwrap_or(self.payer)
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
        let result = inner.put(parcel, &self.streams, self.payer);
        let waker = ended.as_mut().or(inner.reader.as_mut()).and_then(|reader| reader.waker.take());
        drop(inner);
        if result.is_err() {
            self.streams.series.messages_dropped.inc();
        }
        if ended.is_some() {
            self.room.notify_waiters();
            self.streams.series.ended.unread.inc();
            tracing::debug!("a client does not read its stream; it is ended");
        }
        waker.into_iter().for_each(Waker::wake);
        result
    }

    /// Whether the client holds a stream.
    pub(crate) fn has_client(&self) -> bool {
        self.inner.lock().reader.is_some()
    }

    /// A program says in the session that the list with this index has changed. False: the client's stream tells it,
    /// a little later.
    pub(crate) fn admit_list_change(&self, index: usize, now: Instant) -> bool {
        let is_told = self.list_pace.admit(index, now);
        if !is_told {
            let waker = self.inner.lock().reader.as_mut().and_then(|reader| reader.waker.take());
            waker.into_iter().for_each(Waker::wake);
        }
        is_told
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
        admit: impl Fn(&Arc<StreamBounds>) -> Option<Share>,
    ) -> Result<ReaderGuard, NotAttached> {
        let mut inner = self.inner.lock();
        if inner.is_closed {
            return Err(NoState::Ended.into());
        }
        // Its place may be the last: it is the new one's.
        let (old, place) = inner.reader.take().map(|old| (old.waker, old.place)).unzip();
        inner.readers += 1;
        let number = inner.readers;
        let reader = |place| OutboxReader { number, has_several_upstreams, waker: None, place };
        inner.reader = place.or_else(|| admit(&self.streams)).map(reader);
        let is_attached = inner.reader.is_some();
        drop(inner);
        if let Some(waker) = old {
            self.streams.series.ended.taken_over.inc();
            waker.into_iter().for_each(Waker::wake);
        }
        if !is_attached {
            self.room.notify_waiters();
            return Err(NotAttached::TooMany);
        }
        Ok(ReaderGuard { outbox: Arc::clone(self), number })
    }

    /// True if this is the id of an event of the client's own stream.
    pub(crate) fn has_given_out(&self, id: &[u8]) -> bool {
        self.inner.lock().positions.has_given_out(id)
    }

    /// True if this is the id of an event of a reply.
    pub(crate) fn has_given_in_reply(&self, id: &[u8]) -> bool {
        self.inner.lock().replies.has(id)
    }

    /// Nothing was given to its client before that is not remembered here.
    pub(super) fn begin_given(&self) {
        self.knows_given.store(true, Ordering::Relaxed);
    }

    /// True if its client was given no ids but those that are remembered, and those that are forgotten as too many.
    pub(crate) fn knows_given(&self) -> bool {
        self.knows_given.load(Ordering::Relaxed)
    }

    /// What its client was given, for another process. `None`: it is not known.
    pub(super) fn given(&self) -> Option<GivenDigests> {
        let inner = self.inner.lock();
        self.knows_given().then(|| GivenDigests {
            on_stream: inner.positions.digests(),
            in_replies: inner.replies.digests(),
        })
    }

    /// What its client was given by the process before.
    pub(super) fn restore_given(&self, given: GivenDigests) {
        let mut inner = self.inner.lock();
        inner.positions = Positions::restored(given.on_stream);
        inner.replies = IdsOfReplies::restored(given.in_replies);
        drop(inner);
        self.begin_given();
    }

    /// Room for the ids of a reply.
    pub(crate) fn begin_ids(&self) -> Arc<ReplyIds> {
        self.inner.lock().replies.begin()
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
        reader.and_then(|reader| reader.waker).into_iter().for_each(Waker::wake);
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

    /// A question that waits for the client's answer.
    pub(crate) fn question(&self, public_id: &str) -> Option<UpstreamQuestion> {
        self.inner.lock().questions.get(public_id).cloned()
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

    pub(crate) fn messages_to(&self, upstream: &Arc<str>) -> Arc<MessageQueue> {
        Arc::clone(self.inner.lock().messages.entry(Arc::clone(upstream)).or_default())
    }

    /// What waits for an upstream. `None`: nothing does.
    pub(crate) fn messages_before(&self, upstream: &str) -> Option<Arc<MessageQueue>> {
        self.inner.lock().messages.get(upstream).filter(|queue| !queue.is_empty()).cloned()
    }

    /// True if the client's stream would be ended by one more message.
    pub(crate) fn is_reader_behind(&self) -> bool {
        let inner = self.inner.lock();
        inner.reader.is_some() && inner.queue.is_full(self.streams.queue_bytes_max())
    }
}

impl ReaderGuard {
    /// Lists of which the client is told now, of these that `changed` and of those that were held back; and when the
    /// next one is due. To be called after [`Self::poll`], which registers whom to wake.
    pub(crate) fn take_lists(&self, changed: Lists) -> (Lists, Option<Instant>) {
        let pace = &self.outbox.list_pace;
        if changed.is_empty() && !pace.holds_any() {
            return (changed, None);
        }
        pace.take(changed, clock::now())
    }

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
        let id = parcel.event_id.and_then(|id| inner.positions.give_out(&parcel.upstream, id, has_several));
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

impl OutboxState {
    fn put(
        &mut self,
        parcel: OutboundMessage,
        streams: &StreamBounds,
        payer: Payer,
    ) -> Result<(), Undelivered> {
        let Some(parcel) = self.queue.merge(parcel) else { return Ok(()) };
        // A client that only waits for it must not suffer from those who do not read.
        let is_awaited =
            self.queue.is_empty() && self.reader.as_ref().is_some_and(|reader| reader.waker.is_some());
        let mut held = (!is_awaited).then(|| streams.queued.open(payer));
        let is_held = held.as_mut().is_none_or(|held| held.grow(parcel.bytes()).is_ok());
        if !is_held || !self.queue.has_room_for(&parcel, streams.queue_bytes_max()) {
            self.positions.mark_gap(&parcel);
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
            self.positions.mark_gap(&oldest);
            dropped += 1;
        }
        dropped
    }

    /// Goes back to the event with this id. False: nothing after it was lost.
    fn rewind(&mut self, upstream: &str, id: &Bytes) -> bool {
        let is_behind = self.positions.rewind(upstream, id);
        if is_behind {
            self.queue.retain(|parcel| &*parcel.upstream != upstream || parcel.event_id.is_none());
        }
        is_behind
    }
}

#[cfg(test)]
mod tests;
