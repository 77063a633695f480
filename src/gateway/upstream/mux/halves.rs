//! The ends of a connection: what whoever runs it is to write, and where what was read is handed in; and a caller's hold on its call.

use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::host::Host;
use super::incoming_message::IncomingKind;
use super::queue::QueueRoom;
use super::state::{CallDelivery, Patience};
use super::{MuxConnection, incoming_message, outgoing};
use crate::clock;
use protocol::json::Scratch;
use protocol::splice::Segments;
use protocol::version::Era;

/// The connection's side: takes what is to be written.
#[derive(Debug)]
pub(crate) struct WriteHalf {
    outgoing: mpsc::Receiver<Segments>,
}

/// Where the connection hands in what it reads. Dropped, the connection is gone.
#[derive(Debug)]
pub(crate) struct ReadHalf {
    connection: MuxConnection,
    scratch: ScratchBox,
    /// A message that waits for its reader, and so does all that comes after it.
    stalled: Option<StalledMessage>,
}

/// A message that waits for its reader: it was read, as far as it can be.
#[derive(Debug)]
struct StalledMessage {
    message: Bytes,
    incoming: IncomingKind,
    room: QueueRoom,
}

/// What became of a message that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    Delivered,
    /// It is a message, but it belongs to nobody.
    Unasked,
    /// It cannot be read, or is no message: see [`unreadable`](super::unreadable).
    Garbage,
}

/// A call that was sent. Dropped before its answer came, it is given up.
#[derive(Debug)]
pub(crate) struct MuxCall {
    pub(super) connection: MuxConnection,
    pub(super) own: u64,
    pub(super) era: Era,
    /// When it is too late for an answer; `None`: it is not cancelled at all.
    pub(super) deadline: Option<Instant>,
}

/// `Scratch` has nothing to show.
struct ScratchBox(Scratch);

impl std::fmt::Debug for ScratchBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scratch").finish_non_exhaustive()
    }
}

pub(super) fn ends(outgoing: mpsc::Receiver<Segments>, connection: &MuxConnection) -> (WriteHalf, ReadHalf) {
    let write_half = WriteHalf { outgoing };
    let scratch = ScratchBox(Scratch::default());
    (write_half, ReadHalf { connection: connection.clone(), scratch, stalled: None })
}

impl ReadHalf {
    /// Whoever does not read loses its call.
    pub(crate) fn receive(&mut self, message: &Bytes) -> Disposition {
        // It did not have to wait, which was not allowed.
        match self.read(message) {
            Some(incoming) => {
                self.hand_in(message, &incoming, Patience::Never).unwrap_or(Disposition::Delivered)
            }
            None => Disposition::Garbage,
        }
    }

    /// As [`receive`](Self::receive), unless the message is for a reader that is slow and holds up nobody else. `None`:
    /// then it is kept, and nothing else is to be handed in before [`settle`](Self::settle) is through.
    pub(crate) fn offer(&mut self, message: &Bytes) -> Option<Disposition> {
        let incoming = self.read(message);
        self.offer_read(message, incoming)
    }

    /// As [`offer`](Self::offer), of a message that is long: it is read apart from this thread.
    pub(crate) async fn offer_long(&mut self, host: &Host, message: &Bytes) -> Option<Disposition> {
        let (text, depth_max) = (message.clone(), self.connection.0.bounds.json_depth_max);
        let read = move || incoming_message::read(&mut Scratch::default(), &text, depth_max);
        let incoming = host.compute(read).await;
        self.offer_read(message, incoming)
    }

    fn offer_read(&mut self, message: &Bytes, incoming: Option<IncomingKind>) -> Option<Disposition> {
        let Some(incoming) = incoming else { return Some(Disposition::Garbage) };
        match self.hand_in(message, &incoming, Patience::Alone) {
            Ok(disposition) => Some(disposition),
            Err(room) => {
                self.connection.0.stalls.fetch_add(1, Ordering::Relaxed);
                self.stalled = Some(StalledMessage { message: message.clone(), incoming, room });
                None
            }
        }
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.is_some()
    }

    /// Waits until what is kept has been handed in. May be dropped and called again.
    pub(crate) async fn settle(&mut self) -> Disposition {
        while let Some(stalled) = &self.stalled {
            tokio::select! {
                () = stalled.room.wait() => {}
                // Then it may hold up somebody else.
                () = self.connection.0.entered.notified() => {}
            }
            let Some(StalledMessage { message, incoming, .. }) = self.stalled.take() else { break };
            match self.hand_in(&message, &incoming, Patience::Alone) {
                Ok(disposition) => {
                    self.connection.0.stalls.fetch_add(1, Ordering::Relaxed);
                    return disposition;
                }
                Err(room) => self.stalled = Some(StalledMessage { message, incoming, room }),
            }
        }
        Disposition::Delivered
    }

    fn read(&mut self, message: &Bytes) -> Option<IncomingKind> {
        incoming_message::read(&mut self.scratch.0, message, self.connection.0.bounds.json_depth_max)
    }

    fn hand_in(
        &self,
        message: &Bytes,
        incoming: &IncomingKind,
        patience: Patience,
    ) -> Result<Disposition, QueueRoom> {
        let delivery = {
            let mut state = self.connection.lock();
            state.patience = patience;
            state.deliver(incoming, message)
        };
        Ok(match delivery {
            CallDelivery::Full(room) => return Err(room),
            CallDelivery::Done => Disposition::Delivered,
            CallDelivery::Nobody => Disposition::Unasked,
            CallDelivery::Unreadable => Disposition::Garbage,
            CallDelivery::Reply(reply) => {
                self.connection.try_tell(reply);
                Disposition::Delivered
            }
        })
    }

    pub(crate) fn connection(&self) -> &MuxConnection {
        &self.connection
    }
}

impl Drop for ReadHalf {
    fn drop(&mut self) {
        let mut state = self.connection.lock();
        // Before anybody who waited comes back with the next call.
        self.connection.0.gone.cancel();
        state.end();
    }
}

impl WriteHalf {
    /// The next message to be written. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Option<Segments> {
        self.outgoing.recv().await
    }

    pub(crate) fn next_ready(&mut self) -> Option<Segments> {
        self.outgoing.try_recv().ok()
    }
}

impl Drop for MuxCall {
    fn drop(&mut self) {
        let mut state = self.connection.lock();
        let is_late = self.deadline.is_some_and(|deadline| clock::now() >= deadline);
        if self.era == Era::Legacy && !is_late {
            state.pending.abandon(self.own);
            return;
        }
        // A question of the gateway to one that has answered nothing yet is not begun with.
        let is_early = !state.has_answered && state.pending.is_own_call(self.own);
        // A late one has had its place for as long as any call may.
        let was_open = if is_late {
            state.pending.leave(self.own).is_some_and(|call| call.handle.is_some())
        } else {
            state.pending.end(self.own)
        };
        drop(state);
        if was_open && !is_early {
            let why = if is_late { "no answer in time" } else { "the client went away" };
            self.connection.try_tell(outgoing::cancel(self.own, why));
        }
    }
}
