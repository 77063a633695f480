//! What a connection carries and who waits for what: where each message that comes in belongs.
//!
//! All of it is behind the connection's lock; nothing here waits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::incoming_message::IncomingKind;
use super::listener::NotificationListener;
use super::pending_calls::{CallRole, PendingCall, PendingCalls};
use super::queue::{MuxPiece, NotSent, QueueRoom};
use super::state_owner::StateOwner;
use super::{ONLY_SESSION, outgoing, queue};
use crate::clock;
use protocol::error::UpstreamError;
use protocol::level::Level;
use protocol::method::Method;
use protocol::splice::Segments;
use protocol::translation::question::unasked_answer;
use protocol::version::Era;

/// The id of the first request. Smaller ones are those that a program guesses which answers before it is asked.
pub(super) const FIRST_ID: u64 = 1001;

/// What the lock protects.
#[derive(Debug)]
pub(super) struct MuxState {
    pub(super) pending: PendingCalls<ReplyHandle>,
    pub(super) listeners: HashMap<u64, NotificationListener>,
    pub(super) next_session: u64,
    pub(super) kind: MuxKind,
    /// The era of the questions that begin it, where those are the gateway's own.
    pub(super) begun_in: Option<Era>,
    pub(super) callers: ModernCallers,
    pub(super) used: Instant,
    pub(super) has_answered: bool,
    pub(super) asked_by: AskedBy,
    /// The outcome of the requests of clients.
    pub(super) calls: CallsServed,
    /// The question of the gateway's own that it ended at, if it was no client's doing.
    pub(super) ended_at: Option<Method>,
    /// The questions of the gateway's own that were answered, or taken, and since when.
    pub(super) own_answered: Vec<(Method, Instant)>,
    /// What whoever hands in a message does where its reader has no room.
    pub(super) patience: Patience,
    /// The connection is to end: nothing new goes into it.
    pub(super) is_closing: bool,
    pub(super) is_gone: bool,
}

/// The one whose questions the other side may have ended of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AskedBy {
    Nobody,
    /// The gateway alone, which waited for an answer when it ended.
    GatewayAtEnd,
    /// A client, be it that it told it something.
    Client,
}

/// The outcome of the requests of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallsServed {
    /// There were none.
    None,
    /// None was answered.
    Unanswered,
    Answered,
}

/// Whether whoever hands in a message waits for its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    Never,
    /// As long as nobody else would have to wait as well.
    Alone,
}

/// A connection over which the gateway itself hears of changes of lists counts as used, or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GatewayUse {
    Counts,
    Ignored,
}

/// Whose the modern requests of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModernCallers {
    /// One principal's, or of those whom nobody tells apart.
    One,
    Several,
}

/// What a connection carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MuxKind {
    /// Requests that stand for themselves, as long as nothing else is known.
    Modern,
    /// One session.
    Session,
    /// Several sessions over one that the gateway opened: nobody to ask.
    Shared,
}

/// Who waits for a call.
#[derive(Debug)]
pub(super) struct ReplyHandle {
    pub(super) sender: queue::PieceSender,
    pub(super) era: Era,
    /// Whose its states are, where several principals share the connection.
    pub(super) owner: Option<Arc<StateOwner>>,
}

impl ReplyHandle {
    /// Hands over the answer, which is the last.
    fn finish(self, answer: &Segments) {
        let sent = self.sender.send(MuxPiece { data: answer.to_bytes(), is_answer: true });
        if let Err(not_sent) = sent {
            self.sender.break_off_by(not_sent);
        }
    }
}

/// What became of a message for a call.
#[derive(Debug)]
pub(super) enum CallDelivery {
    Done,
    Nobody,
    /// It answers a call, if any, in a way that cannot be handed on.
    Unreadable,
    /// The other side is to be told something.
    Reply(Segments),
    /// Nothing yet: it is to be handed in again once there is room.
    Full(QueueRoom),
}

impl MuxState {
    pub(super) fn new() -> Self {
        Self {
            pending: PendingCalls::beginning_with(FIRST_ID),
            listeners: HashMap::new(),
            next_session: ONLY_SESSION + 1,
            kind: MuxKind::Modern,
            begun_in: Some(Era::Modern),
            callers: ModernCallers::One,
            used: clock::now(),
            has_answered: false,
            asked_by: AskedBy::Nobody,
            calls: CallsServed::None,
            ended_at: None,
            own_answered: Vec::new(),
            patience: Patience::Never,
            is_closing: false,
            is_gone: false,
        }
    }

    /// The connection is gone: nobody waits any more.
    pub(super) fn end(&mut self) {
        self.is_gone = true;
        self.ended_at = self.pending.own_question(clock::now());
        for call in self.pending.drain() {
            if call.role == CallRole::Own && self.asked_by == AskedBy::Nobody {
                self.asked_by = AskedBy::GatewayAtEnd;
            }
            if let Some(handle) = call.handle {
                handle.sender.break_off();
            }
        }
        for (_, listener) in self.listeners.drain() {
            listener.break_off();
        }
    }

    /// True if no session of a client is carried, and nobody waits for anything.
    pub(super) fn is_unused(&self, by_gateway: GatewayUse) -> bool {
        let is_ignored = by_gateway == GatewayUse::Ignored;
        let is_left =
            |listener: &NotificationListener| listener.is_own && (is_ignored || !listener.is_open());
        let is_idle = if is_ignored { self.pending.is_only_watched() } else { self.pending.is_idle() };
        is_idle && self.listeners.values().all(is_left)
    }

    /// Whether nothing is under way, but for what was given up so long ago.
    pub(super) fn is_quiet(&self, patience: Duration) -> bool {
        self.pending.is_empty() || (self.pending.is_idle() && clock::since(self.used) >= patience)
    }

    pub(super) fn deliver(&mut self, incoming: &IncomingKind, message: &Bytes) -> CallDelivery {
        let done = |is_done| if is_done { CallDelivery::Done } else { CallDelivery::Nobody };
        match incoming {
            IncomingKind::Response { id, repeated } => {
                let Some(own) = id.own else { return CallDelivery::Nobody };
                let Some(call) = self.pending.get_mut(own) else { return CallDelivery::Nobody };
                let owner = call.handle.as_ref().and_then(|handle| handle.owner.clone());
                let mut answer = id.replaced(message, &call.id.clone(), repeated.as_ref());
                if let Some(owner) = owner {
                    let Some(sealed) = owner.sealed(answer) else {
                        self.fail(own, UpstreamError::Nonsense);
                        return CallDelivery::Unreadable;
                    };
                    answer = sealed;
                }
                match self.room_for(own, &answer) {
                    Some(room) => CallDelivery::Full(room),
                    None => done(self.answer(own, &answer)),
                }
            }
            IncomingKind::Doubtful { id } => {
                id.own.map(|own| self.fail(own, UpstreamError::Nonsense));
                CallDelivery::Unreadable
            }
            IncomingKind::Progress { token: named } => {
                let Some(own) = named.own else { return CallDelivery::Nobody };
                let token = self.pending.get_mut(own).and_then(|call| call.token.clone());
                let Some(token) = token else { return CallDelivery::Nobody };
                self.deliver_part(own, &named.replaced(message, &token, None))
            }
            IncomingKind::OfSubscription { id } => {
                let Some(own) = id.own else { return CallDelivery::Nobody };
                let Some(caller_id) = self.pending.get_mut(own).map(|call| call.id.clone()) else {
                    return CallDelivery::Nobody;
                };
                self.deliver_part(own, &id.replaced(message, &caller_id, None))
            }
            IncomingKind::Cancelled { id } if self.kind == MuxKind::Modern => {
                done(id.own.is_some_and(|own| self.end_by_server(own)))
            }
            IncomingKind::Request { id, is_ping } if self.answers_itself(*is_ping) => CallDelivery::Reply(
                unasked_answer(message.get(id.clone()).unwrap_or_default(), *is_ping).into(),
            ),
            IncomingKind::Cancelled { .. } if self.kind == MuxKind::Shared => CallDelivery::Done,
            incoming if self.kind == MuxKind::Shared => self.deliver_to_sessions(incoming, message),
            IncomingKind::Request { .. } | IncomingKind::Cancelled { .. } | IncomingKind::Log { .. } => {
                self.deliver_unattached(message, true)
            }
            IncomingKind::Updated { .. } | IncomingKind::Notification => {
                self.deliver_unattached(message, false)
            }
        }
    }

    /// True if the gateway answers a request of the other side: no client could, as long as `initialize` is not answered, or none
    /// hears a ping now.
    fn answers_itself(&self, is_ping: bool) -> bool {
        match self.kind {
            MuxKind::Modern | MuxKind::Shared => true,
            // It may wait for this before it answers.
            MuxKind::Session if self.pending.awaits_own(Method::Initialize) => true,
            MuxKind::Session => is_ping && self.pending.newest().is_none() && !self.is_listened_to(),
        }
    }

    fn is_listened_to(&self) -> bool {
        self.listeners.get(&ONLY_SESSION).is_some_and(NotificationListener::is_open)
    }

    /// Hands a message to a call, if somebody waits for it.
    fn deliver_part(&mut self, own: u64, message: &Segments) -> CallDelivery {
        if let Some(room) = self.room_for(own, message) {
            return CallDelivery::Full(room);
        }
        let Some(call) = self.pending.get_mut(own) else { return CallDelivery::Nobody };
        let is_first = !std::mem::replace(&mut call.is_heard, true) && call.role == CallRole::Watch;
        if let Some(method) = call.asks.filter(|_| is_first) {
            note_first(&mut self.own_answered, method);
        }
        let Some(handle) = call.handle.as_mut() else { return CallDelivery::Nobody };
        let piece = MuxPiece { data: message.to_bytes(), is_answer: false };
        match handle.sender.send(piece) {
            Ok(()) => CallDelivery::Done,
            Err(NotSent::Gone) => CallDelivery::Nobody,
            Err(not_sent) => {
                let era = handle.era;
                self.break_off(own, era, not_sent)
            }
        }
    }

    /// What a message for this call has to wait for. `None`: it fits, or others would wait as well.
    fn room_for(&mut self, own: u64, message: &Segments) -> Option<QueueRoom> {
        if self.patience == Patience::Never {
            return None;
        }
        let handle = self.pending.get_mut(own)?.handle.as_ref()?;
        let (room, payer) =
            (handle.sender.room_for(usize::try_from(message.len()).ok()?)?, handle.sender.payer());
        let holds_up_nobody = match self.kind {
            // All of it is for one client.
            MuxKind::Session => self
                .pending
                .all_awaited(|_, role, handle| role == CallRole::Own || handle.sender.payer() == payer),
            MuxKind::Shared if self.listeners.len() > 1 => false,
            MuxKind::Modern | MuxKind::Shared => self.pending.all_awaited(|other, _, _| other == own),
        };
        holds_up_nobody.then_some(room)
    }

    /// Gives up a call whose caller does not read.
    fn break_off(&mut self, own: u64, era: Era, not_sent: NotSent) -> CallDelivery {
        let handle = match era {
            Era::Modern => self.pending.leave(own).and_then(|call| call.handle),
            Era::Legacy => self.pending.abandon(own),
        };
        if let Some(handle) = handle {
            handle.sender.break_off_by(not_sent);
        }
        match era {
            Era::Modern => CallDelivery::Reply(outgoing::cancel(own, "the client does not read")),
            Era::Legacy => CallDelivery::Nobody,
        }
    }

    fn answer(&mut self, own: u64, message: &Segments) -> bool {
        self.has_answered = true;
        self.used = clock::now();
        // An answer that nobody waits for any more is expected all the same.
        let Some(call) = self.pending.leave(own) else { return false };
        match call.asks {
            Some(method) => note_first(&mut self.own_answered, method),
            None => self.calls = CallsServed::Answered,
        }
        if let Some(handle) = call.handle {
            handle.finish(message);
        }
        true
    }

    /// The other side has answered a call, and the answer cannot be handed on. False: nobody waits for it. Where there is
    /// no such call, it has answered nothing.
    pub(super) fn fail(&mut self, own: u64, fault: UpstreamError) -> bool {
        let Some(call) = self.pending.leave(own) else { return false };
        self.has_answered = true;
        self.used = clock::now();
        call.handle.map(|handle| handle.sender.break_off_with(fault)).is_some()
    }

    /// The other side says that it has given up a request. It may end subscriptions so; a call that somebody waits for goes
    /// on, since its answer is owed. False: nothing ended.
    fn end_by_server(&mut self, own: u64) -> bool {
        let may_end = |call: &mut PendingCall<_>| call.role.is_subscription() || call.handle.is_none();
        self.pending.get_mut(own).is_some_and(may_end) && self.pending.leave(own).is_some()
    }

    /// A call's own client has cancelled it.
    pub(super) fn cancel(&mut self, own: u64) {
        let Some(id) = self.pending.get_mut(own).map(|call| call.id.clone()) else { return };
        let Some(handle) = self.pending.abandon(own) else { return };
        let data = cancelled_answer(&id).to_bytes();
        if let Err(not_sent) = handle.sender.send_last(MuxPiece { data, is_answer: true }) {
            handle.sender.break_off_by(not_sent);
        }
    }

    /// The most verbose level that a session has set.
    pub(super) fn most_verbose(&self) -> Option<Level> {
        self.listeners.values().filter_map(|listener| listener.level).min()
    }

    /// A message that belongs to no call, where several sessions share the connection.
    fn deliver_to_sessions(&mut self, incoming: &IncomingKind, message: &Bytes) -> CallDelivery {
        if let (IncomingKind::Log { level }, Some(only)) = (incoming, self.pending.only()) {
            let session = self.pending.get_mut(only).map(|call| call.session);
            let listener = session.and_then(|session| self.listeners.get(&session));
            if listener.is_some_and(|listener| !listener.wants(*level)) {
                return CallDelivery::Done;
            }
            return self.deliver_part(only, &copy(message).into());
        }
        let message = copy(message);
        for listener in self.listeners.values_mut() {
            let is_wanted = match incoming {
                IncomingKind::Log { level } => listener.wants(*level),
                IncomingKind::Updated { uri } => listener.is_subscribed_at(uri),
                _ => true,
            };
            if is_wanted {
                listener.receive(message.clone());
            }
        }
        CallDelivery::Done
    }

    /// A message of the one session that belongs to no call. Most clients look for what concerns a call on its stream.
    fn deliver_unattached(&mut self, message: &Bytes, is_of_call: bool) -> CallDelivery {
        // It may be about a call of another principal that is over.
        if self.callers == ModernCallers::Several && self.kind == MuxKind::Modern {
            return CallDelivery::Nobody;
        }
        let listens = self.is_listened_to();
        let call = match self.pending.only() {
            _ if !is_of_call => None,
            Some(only) => Some(only),
            // Of callers that have nothing to do with each other none is as good as another.
            None if listens || self.kind == MuxKind::Modern => None,
            None => self.pending.newest(),
        };
        if let Some(own) = call {
            let delivery = self.deliver_part(own, &copy(message).into());
            if !matches!(delivery, CallDelivery::Nobody) {
                return delivery;
            }
        }
        match self.listeners.get_mut(&ONLY_SESSION) {
            Some(listener) => {
                listener.receive(copy(message));
                CallDelivery::Done
            }
            None => CallDelivery::Nobody,
        }
    }
}

/// Notes when this question of the gateway's own was answered for the first time.
fn note_first(answered: &mut Vec<(Method, Instant)>, question: Method) {
    if answered.iter().all(|(known, _)| *known != question) {
        answered.push((question, clock::now()));
    }
}

/// A message that waits for its reader keeps nothing alive but itself: as it came, it would keep what was read with it.
fn copy(message: &Bytes) -> Bytes {
    Bytes::copy_from_slice(message)
}

/// What ends a call that its client has cancelled, for whoever waits on.
fn cancelled_answer(id: &[u8]) -> Segments {
    let id = String::from_utf8_lossy(id);
    Segments::from(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32800,"message":"the call was cancelled"}}}}"#
    ))
}
