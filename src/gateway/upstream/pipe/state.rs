//! What a connection carries and who waits for what: where each message that comes in belongs.
//!
//! All of it is behind the pipe's lock; nothing here waits.

use std::collections::HashMap;
use std::time::Instant;

use bytes::Bytes;

use super::book::Book;
use super::heard::Heard;
use super::listener::Listener;
use super::queue::{NotSent, Piece};
use super::{ONLY_SESSION, outgoing, queue};
use protocol::level::Level;
use protocol::splice::Segments;
use protocol::sse::data_event;
use protocol::translation::question::unasked_answer;
use protocol::version::Era;

/// What the lock protects.
#[derive(Debug)]
pub(super) struct State {
    pub(super) book: Book<Handle>,
    pub(super) listeners: HashMap<u64, Listener>,
    pub(super) next_session: u64,
    pub(super) kind: Kind,
    pub(super) used: Instant,
    pub(super) has_answered: bool,
    /// The connection is to end: nothing new goes into it.
    pub(super) is_closing: bool,
    pub(super) is_gone: bool,
}

/// What a connection carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Requests that stand for themselves, as long as nothing else is known.
    Modern,
    /// One session.
    Session,
    /// Several sessions over one that the gateway opened: nobody to ask.
    Shared,
}

/// Who waits for a call.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) sender: queue::Sender,
    pub(super) era: Era,
    /// Whether the reply has become a stream.
    pub(super) has_parts: bool,
}

impl Handle {
    /// Hands over the answer, which is the last.
    fn finish(self, answer: Segments) {
        let data = if self.has_parts { data_event(answer) } else { answer.to_bytes() };
        if self.sender.send(Piece { data, is_answer: true }) == Err(NotSent::Full) {
            self.sender.break_off();
        }
    }
}

/// What became of a message for a call.
#[derive(Debug)]
pub(super) enum Delivery {
    Done,
    Nobody,
    /// The other side is to be told something.
    Reply(Segments),
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            book: Book::default(),
            listeners: HashMap::new(),
            next_session: ONLY_SESSION + 1,
            kind: Kind::Modern,
            used: Instant::now(),
            has_answered: false,
            is_closing: false,
            is_gone: false,
        }
    }

    /// The connection is gone: nobody waits any more.
    pub(super) fn end(&mut self) {
        self.is_gone = true;
        for handle in self.book.drain().filter_map(|call| call.handle) {
            handle.sender.break_off();
        }
        for (_, listener) in self.listeners.drain() {
            listener.break_off();
        }
    }

    /// Hands a message to whom it belongs to.
    pub(super) fn deliver(&mut self, heard: &Heard, message: &Bytes) -> Delivery {
        let done = |is_done| if is_done { Delivery::Done } else { Delivery::Nobody };
        match heard {
            Heard::Response { id, repeated } => {
                let Some(own) = id.own else { return Delivery::Nobody };
                let Some(caller_id) = self.book.get_mut(own).map(|call| call.id.clone()) else {
                    return Delivery::Nobody;
                };
                done(self.answer(own, id.replaced(message, &caller_id, repeated.as_ref())))
            }
            Heard::Doubtful { id } => {
                let call = id.own.and_then(|own| self.book.leave(own));
                let handle = call.and_then(|call| call.handle);
                handle.map_or(Delivery::Nobody, |handle| {
                    handle.sender.break_off();
                    Delivery::Done
                })
            }
            Heard::Progress { token: named } => {
                let Some(own) = named.own else { return Delivery::Nobody };
                let token = self.book.get_mut(own).and_then(|call| call.token.clone());
                let Some(token) = token else { return Delivery::Nobody };
                self.deliver_part(own, named.replaced(message, &token, None))
            }
            Heard::OfSubscription { id } => {
                let Some(own) = id.own else { return Delivery::Nobody };
                let Some(caller_id) = self.book.get_mut(own).map(|call| call.id.clone()) else {
                    return Delivery::Nobody;
                };
                self.deliver_part(own, id.replaced(message, &caller_id, None))
            }
            Heard::Cancelled { id } if self.kind == Kind::Modern => {
                done(id.own.and_then(|own| self.book.leave(own)).is_some())
            }
            Heard::Request { .. } if self.kind == Kind::Modern => Delivery::Nobody,
            Heard::Request { id, is_ping } if self.kind == Kind::Shared => {
                Delivery::Reply(unasked_answer(message.get(id.clone()).unwrap_or_default(), *is_ping).into())
            }
            Heard::Cancelled { .. } if self.kind == Kind::Shared => Delivery::Done,
            heard if self.kind == Kind::Shared => self.deliver_to_sessions(heard, message),
            Heard::Request { .. } | Heard::Cancelled { .. } | Heard::Log { .. } => {
                self.deliver_unattached(message, true)
            }
            Heard::Updated { .. } | Heard::Notification => self.deliver_unattached(message, false),
        }
    }

    /// Hands a message to a call, if somebody waits for it.
    fn deliver_part(&mut self, own: u64, message: Segments) -> Delivery {
        let waiting = self.book.get_mut(own).and_then(|call| call.handle.as_mut());
        let Some(handle) = waiting else { return Delivery::Nobody };
        let piece = Piece { data: data_event(message), is_answer: false };
        handle.has_parts = true;
        match handle.sender.send(piece) {
            Ok(()) => Delivery::Done,
            Err(NotSent::Gone) => Delivery::Nobody,
            Err(NotSent::Full) => {
                let era = handle.era;
                self.break_off(own, era)
            }
        }
    }

    /// Gives up a call whose caller does not read.
    fn break_off(&mut self, own: u64, era: Era) -> Delivery {
        let handle = match era {
            Era::Modern => self.book.leave(own).and_then(|call| call.handle),
            Era::Legacy => self.book.abandon(own),
        };
        if let Some(handle) = handle {
            handle.sender.break_off();
        }
        match era {
            Era::Modern => Delivery::Reply(outgoing::cancel(own, "the client does not read")),
            Era::Legacy => Delivery::Nobody,
        }
    }

    fn answer(&mut self, own: u64, message: Segments) -> bool {
        self.has_answered = true;
        self.used = Instant::now();
        // An answer that nobody waits for any more is expected all the same.
        let Some(call) = self.book.leave(own) else { return false };
        if let Some(handle) = call.handle {
            handle.finish(message);
        }
        true
    }

    /// A call's own client has cancelled it.
    pub(super) fn cancel(&mut self, own: u64) {
        let Some(id) = self.book.get_mut(own).map(|call| call.id.clone()) else { return };
        let Some(handle) = self.book.abandon(own) else { return };
        handle.finish(cancelled_answer(&id));
    }

    /// The most verbose level that a session has set.
    pub(super) fn most_verbose(&self) -> Option<Level> {
        self.listeners.values().filter_map(|listener| listener.level).min()
    }

    /// A message that belongs to no call, where several sessions share the connection.
    fn deliver_to_sessions(&mut self, heard: &Heard, message: &Bytes) -> Delivery {
        if let (Heard::Log { level }, Some(only)) = (heard, self.book.only()) {
            let session = self.book.get_mut(only).map(|call| call.session);
            let listener = session.and_then(|session| self.listeners.get(&session));
            if listener.is_some_and(|listener| !listener.wants(*level)) {
                return Delivery::Done;
            }
            return self.deliver_part(only, message.clone().into());
        }
        let event = data_event(message.clone());
        for listener in self.listeners.values_mut() {
            let is_wanted = match heard {
                Heard::Log { level } => listener.wants(*level),
                Heard::Updated { uri } => listener.is_subscribed_at(uri),
                _ => true,
            };
            if is_wanted {
                listener.hear(event.clone());
            }
        }
        Delivery::Done
    }

    /// A message of the one session that belongs to no call. Most clients look for what concerns a call on its stream.
    fn deliver_unattached(&mut self, message: &Bytes, is_of_call: bool) -> Delivery {
        let listens = self.listeners.get(&ONLY_SESSION).is_some_and(Listener::is_open);
        let call = match self.book.only() {
            _ if !is_of_call => None,
            Some(only) => Some(only),
            // Of callers that have nothing to do with each other none is as good as another.
            None if listens || self.kind == Kind::Modern => None,
            None => self.book.newest(),
        };
        if let Some(own) = call {
            let delivery = self.deliver_part(own, message.clone().into());
            if !matches!(delivery, Delivery::Nobody) {
                return delivery;
            }
        }
        match self.listeners.get_mut(&ONLY_SESSION) {
            Some(listener) => {
                listener.hear(data_event(message.clone()));
                Delivery::Done
            }
            None => Delivery::Nobody,
        }
    }
}

/// What ends a call that its client has cancelled, for whoever waits on.
fn cancelled_answer(id: &[u8]) -> Segments {
    let id = String::from_utf8_lossy(id);
    Segments::from(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32800,"message":"the call was cancelled"}}}}"#
    ))
}
