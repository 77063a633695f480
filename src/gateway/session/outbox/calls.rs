//! Calls of the client that have no answer yet, by the literal of their id: who works on each, and what waits for it.

use std::collections::btree_map::Entry;
use std::sync::{Arc, Weak};
use std::task::Waker;

use bytes::Bytes;

use super::{Addressee, SessionOutbox};
use crate::access::limit::concurrency::place::CallPlace;
use crate::upstream::sending::Sending;
use crate::upstream::withdrawal::WaitingTask;

/// A call of the client that an upstream works on.
#[derive(Clone, Debug)]
pub(crate) struct InFlightCall {
    pub addressee: Addressee,
    /// The literal of the id that it has there.
    pub sent_id: Bytes,
    /// Its place among the calls that the upstream may have at once, where these are counted.
    pub place: Weak<CallPlace>,
}

/// A call of the client that has no answer yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpstreamCall {
    /// Who works on it. `None`: that is not known yet.
    pub in_flight: Option<InFlightCall>,
    pub sending: Arc<Sending>,
    /// How many [`CallInFlight`] there are of it.
    holders: usize,
}

/// A call that has no answer yet; forgotten when the last of these is dropped.
#[derive(Debug)]
pub(crate) struct CallInFlight {
    outbox: Arc<SessionOutbox>,
    id: Box<str>,
    pub sending: Arc<Sending>,
    /// The end of a cancelled call wakes the task that reads its reply.
    reader: WaitingTask,
}

impl CallInFlight {
    /// True if the call was cancelled and is given up; else the task of this waker is woken when it is.
    pub(crate) fn is_given_up(&mut self, reader: &Waker) -> bool {
        self.reader.is_given_up(&self.sending.withdrawal, reader)
    }
}

impl SessionOutbox {
    /// Remembers that the call with this id literal is about to be sent, so that its cancellation waits for it.
    pub(crate) fn announce(self: &Arc<Self>, id: &str) -> CallInFlight {
        self.hold(id, |_| {})
    }

    /// Remembers who works on the call with this id literal, which is sent now.
    pub(crate) fn begin(self: &Arc<Self>, id: &str, in_flight: InFlightCall) -> CallInFlight {
        self.hold(id, |call| {
            call.sending.restart();
            call.in_flight = Some(in_flight);
        })
    }

    fn hold(self: &Arc<Self>, id: &str, change: impl FnOnce(&mut UpstreamCall)) -> CallInFlight {
        let mut inner = self.inner.lock();
        let call = match inner.calls.get_mut(id) {
            Some(call) => call,
            None => inner.calls.entry(id.into()).or_default(),
        };
        call.holders += 1;
        change(call);
        let sending = Arc::clone(&call.sending);
        drop(inner);
        CallInFlight { outbox: Arc::clone(self), id: id.into(), sending, reader: WaitingTask::default() }
    }

    /// The call with this id literal, until it has its answer.
    pub(crate) fn pending_call(&self, id: &str) -> Option<UpstreamCall> {
        self.inner.lock().calls.get(id).cloned()
    }

    pub(crate) fn working_on(&self, id: &str) -> Option<InFlightCall> {
        self.inner.lock().calls.get(id)?.in_flight.clone()
    }
}

impl Drop for CallInFlight {
    fn drop(&mut self) {
        let mut inner = self.outbox.inner.lock();
        let Entry::Occupied(mut call) = inner.calls.entry(std::mem::take(&mut self.id)) else { return };
        call.get_mut().holders -= 1;
        if call.get().holders == 0 {
            call.remove();
            drop(inner);
            self.sending.mark_over();
        }
    }
}
