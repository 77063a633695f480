//! Where a session lies while no call has it: a call that is made on its thread takes it from here and puts it back.
//!
//! The task that looks after the session meanwhile, its keeper ([`super::exclusive_session`]), takes no part in such a
//! call. Whoever reads the session's stream does so for the keeper, which is the one to be woken: so nothing is to be
//! registered anew for each call. While the session is out, the keeper wakes the call that has it.
//!
//! Invariants: a session is either here, or one call or its keeper has it; who does not bring it back hands over the call
//! that has it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::call_driver::{CallDriver, DriverEvent};
use super::call_reply::CallReplySink;
use super::exclusive_pool::IdleGuard;
use super::exclusive_session::{ExclusiveSession, SessionCommand};
use super::session_stream::SessionStream;
use crate::bridge::next_number;
use crate::clock::{self, RecurringDeadline};
use crate::upstream::mux::host::Host;

thread_local! {
    /// Those of this thread, by number.
    static SLOTS: RefCell<HashMap<u64, Weak<SessionSlot>>> = RefCell::default();
}

/// The place of one session.
pub(crate) struct SessionSlot {
    /// What its thread knows it by.
    number: u64,
    host: Rc<Host>,
    wakers: Rc<SessionWakers>,
    content: RefCell<SlotContent>,
    idle_timeout: Cell<Duration>,
    /// The session is not to be used any more.
    is_ending: Cell<bool>,
}

enum SlotContent {
    /// The session is out.
    Nothing,
    /// It rests since then. Without the guard, no call may take it.
    Session(Box<ExclusiveSession>, Option<IdleGuard>, Instant),
    /// The call has it, and its caller makes it no longer.
    Call(Box<CallDriver>, DriverEvent),
}

/// Who is woken for what the server says to a session.
#[derive(Debug)]
pub(crate) struct SessionWakers {
    keeper: Waker,
    call: RefCell<Waker>,
}

/// What the keeper of a session has to do.
pub(crate) enum KeeperWork {
    /// Make this call.
    Call(Box<ExclusiveSession>, Box<CallReplySink>),
    /// Go on with a call, to which this has happened.
    Continue(Box<CallDriver>, DriverEvent),
    Close(Box<ExclusiveSession>),
}

impl SessionWakers {
    /// Of a session whose keeper this task is.
    pub(crate) async fn of_this_task() -> Rc<Self> {
        let keeper = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        Rc::new(Self { keeper, call: RefCell::new(Waker::noop().clone()) })
    }

    /// What the server says next to the session of this stream. May be dropped and called again.
    pub(crate) async fn hear(&self, stream: &mut SessionStream) -> Bytes {
        let mut message = pin!(stream.message());
        poll_fn(|cx| {
            self.call.borrow_mut().clone_from(cx.waker());
            message.as_mut().poll(&mut Context::from_waker(&self.keeper))
        })
        .await
    }
}

impl SessionSlot {
    /// The place of the session with these wakers, which is out.
    pub(crate) fn new(host: &Rc<Host>, wakers: &Rc<SessionWakers>) -> Rc<Self> {
        let slot = Rc::new(Self {
            number: next_number(),
            host: Rc::clone(host),
            wakers: Rc::clone(wakers),
            content: RefCell::new(SlotContent::Nothing),
            idle_timeout: Cell::default(),
            is_ending: Cell::default(),
        });
        SLOTS.with_borrow_mut(|slots| slots.insert(slot.number, Rc::downgrade(&slot)));
        slot
    }

    /// Takes the session with this number that rests on this thread.
    pub(crate) fn take(number: u64) -> Option<(Rc<Self>, Box<ExclusiveSession>)> {
        let slot = SLOTS.with_borrow(|slots| slots.get(&number).and_then(Weak::upgrade))?;
        let content = slot.content.replace(SlotContent::Nothing);
        if let SlotContent::Session(session, ..) = content {
            return Some((slot, session));
        }
        slot.content.replace(content);
        None
    }

    /// Puts the session back, where it may rest for so long.
    pub(crate) fn put_back(&self, session: Box<ExclusiveSession>, idle_timeout: Duration) {
        self.wakers.call.borrow_mut().clone_from(Waker::noop());
        let is_shorter = self.idle_timeout.replace(idle_timeout) > idle_timeout;
        if idle_timeout.is_zero() {
            self.is_ending.set(true);
        }
        let resting = (!self.is_ending.get()).then(|| session.rest(self.number));
        if resting.is_none() || is_shorter {
            self.wakers.keeper.wake_by_ref();
        }
        self.content.replace(SlotContent::Session(session, resting, clock::now()));
    }

    /// Leaves a call to the keeper, which looks after this event first.
    pub(crate) fn hand_over(&self, driver: Box<CallDriver>, event: DriverEvent) {
        self.content.replace(SlotContent::Call(driver, event));
        self.wakers.keeper.wake_by_ref();
    }

    /// Lets the session rest until its keeper has something to do. `None`: the process ends now.
    pub(crate) async fn keep(&self, session: Box<ExclusiveSession>) -> Option<KeeperWork> {
        let retired = session.retired.clone();
        self.is_ending.set(retired.is_cancelled());
        let idle_timeout = session.server.upstream().config.bridge.session_idle_timeout;
        self.put_back(session, idle_timeout);
        let mut idle = RecurringDeadline::default();
        loop {
            let may_rest = !self.is_ending.get();
            tokio::select! {
                biased;
                () = self.host.cut() => return None,
                work = poll_fn(|cx| self.poll_work(cx)) => return Some(work),
                () = poll_fn(|cx| idle.poll(cx, self.rests_until())), if may_rest => {}
                () = self.host.closing(), if may_rest => {}
                () = retired.cancelled(), if may_rest => {}
            }
            self.is_ending.set(true);
        }
    }

    fn rests_until(&self) -> Instant {
        let since = match &*self.content.borrow() {
            SlotContent::Session(_, _, since) => *since,
            SlotContent::Nothing | SlotContent::Call(..) => clock::now(),
        };
        since + self.idle_timeout.get()
    }

    fn poll_work(&self, cx: &mut Context<'_>) -> Poll<KeeperWork> {
        let mut content = self.content.borrow_mut();
        match std::mem::replace(&mut *content, SlotContent::Nothing) {
            SlotContent::Nothing => {
                self.wakers.call.borrow().wake_by_ref();
                Poll::Pending
            }
            SlotContent::Call(driver, event) => Poll::Ready(KeeperWork::Continue(driver, event)),
            SlotContent::Session(mut session, resting, since) => match session.poll_command(cx) {
                Poll::Ready(Some(SessionCommand::Call(reply))) => {
                    Poll::Ready(KeeperWork::Call(session, reply))
                }
                Poll::Ready(command) => {
                    session.is_ousted = matches!(command, Some(SessionCommand::Close));
                    Poll::Ready(KeeperWork::Close(session))
                }
                // One that was taken at this very moment is needed once more.
                Poll::Pending if self.is_ending.get() && resting.as_ref().is_none_or(IdleGuard::end) => {
                    Poll::Ready(KeeperWork::Close(session))
                }
                Poll::Pending => {
                    *content = SlotContent::Session(session, resting, since);
                    Poll::Pending
                }
            },
        }
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        // At the end of the thread they may be gone already.
        let _ = SLOTS.try_with(|slots| slots.borrow_mut().remove(&self.number));
    }
}
