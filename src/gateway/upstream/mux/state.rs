//! What a connection carries and who waits for what: where each message that comes in belongs.
//!
//! All of it is behind the connection's lock; nothing here waits.

use std::collections::HashMap;
use std::time::Instant;

use bytes::Bytes;

use super::incoming_message::IncomingKind;
use super::listener::NotificationListener;
use super::pending_calls::PendingCalls;
use super::queue::{MuxPiece, NotSent};
use super::{ONLY_SESSION, outgoing, queue};
use crate::clock;
use protocol::level::Level;
use protocol::splice::Segments;
use protocol::translation::question::unasked_answer;
use protocol::version::Era;

/// What the lock protects.
#[derive(Debug)]
pub(super) struct MuxState {
    pub(super) pending: PendingCalls<ReplyHandle>,
    pub(super) listeners: HashMap<u64, NotificationListener>,
    pub(super) next_session: u64,
    pub(super) kind: MuxKind,
    pub(super) used: Instant,
    pub(super) has_answered: bool,
    /// The connection is to end: nothing new goes into it.
    pub(super) is_closing: bool,
    pub(super) is_gone: bool,
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
}

impl ReplyHandle {
    /// Hands over the answer, which is the last.
    fn finish(self, answer: &Segments) {
        let sent = self.sender.send(MuxPiece { data: answer.to_bytes(), is_answer: true });
        if matches!(sent, Err(NotSent::Full | NotSent::NoMemory(_))) {
            self.sender.break_off();
        }
    }
}

/// What became of a message for a call.
#[derive(Debug)]
pub(super) enum CallDelivery {
    Done,
    Nobody,
    /// The other side is to be told something.
    Reply(Segments),
}

impl MuxState {
    pub(super) fn new() -> Self {
        Self {
            pending: PendingCalls::default(),
            listeners: HashMap::new(),
            next_session: ONLY_SESSION + 1,
            kind: MuxKind::Modern,
            used: clock::now(),
            has_answered: false,
            is_closing: false,
            is_gone: false,
        }
    }

    /// The connection is gone: nobody waits any more.
    pub(super) fn end(&mut self) {
        self.is_gone = true;
        for handle in self.pending.drain().filter_map(|call| call.handle) {
            handle.sender.break_off();
        }
        for (_, listener) in self.listeners.drain() {
            listener.break_off();
        }
    }

    pub(super) fn deliver(&mut self, incoming: &IncomingKind, message: &Bytes) -> CallDelivery {
        let done = |is_done| if is_done { CallDelivery::Done } else { CallDelivery::Nobody };
        match incoming {
            IncomingKind::Response { id, repeated } => {
                let Some(own) = id.own else { return CallDelivery::Nobody };
                let Some(caller_id) = self.pending.get_mut(own).map(|call| call.id.clone()) else {
                    return CallDelivery::Nobody;
                };
                done(self.answer(own, &id.replaced(message, &caller_id, repeated.as_ref())))
            }
            IncomingKind::Doubtful { id } => {
                let call = id.own.and_then(|own| self.pending.leave(own));
                let handle = call.and_then(|call| call.handle);
                handle.map_or(CallDelivery::Nobody, |handle| {
                    handle.sender.break_off();
                    CallDelivery::Done
                })
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
                done(id.own.and_then(|own| self.pending.leave(own)).is_some())
            }
            IncomingKind::Request { .. } if self.kind == MuxKind::Modern => CallDelivery::Nobody,
            IncomingKind::Request { id, is_ping } if self.kind == MuxKind::Shared => CallDelivery::Reply(
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

    /// Hands a message to a call, if somebody waits for it.
    fn deliver_part(&mut self, own: u64, message: &Segments) -> CallDelivery {
        let waiting = self.pending.get_mut(own).and_then(|call| call.handle.as_mut());
        let Some(handle) = waiting else { return CallDelivery::Nobody };
        let piece = MuxPiece { data: message.to_bytes(), is_answer: false };
        match handle.sender.send(piece) {
            Ok(()) => CallDelivery::Done,
            Err(NotSent::Gone) => CallDelivery::Nobody,
            Err(NotSent::Full | NotSent::NoMemory(_)) => {
                let era = handle.era;
                self.break_off(own, era)
            }
        }
    }

    /// Gives up a call whose caller does not read.
    fn break_off(&mut self, own: u64, era: Era) -> CallDelivery {
        let handle = match era {
            Era::Modern => self.pending.leave(own).and_then(|call| call.handle),
            Era::Legacy => self.pending.abandon(own),
        };
        if let Some(handle) = handle {
            handle.sender.break_off();
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
        if let Some(handle) = call.handle {
            handle.finish(message);
        }
        true
    }

    /// A call's own client has cancelled it.
    pub(super) fn cancel(&mut self, own: u64) {
        let Some(id) = self.pending.get_mut(own).map(|call| call.id.clone()) else { return };
        let Some(handle) = self.pending.abandon(own) else { return };
        handle.finish(&cancelled_answer(&id));
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
        let listens = self.listeners.get(&ONLY_SESSION).is_some_and(NotificationListener::is_open);
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
