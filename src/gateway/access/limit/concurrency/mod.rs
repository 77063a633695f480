//! How many calls an upstream gets at once, and who waits for one of them to end.
//!
//! One [`Gate`] for each upstream in the process. Who comes while there is room passes at once. Beyond, calls wait in
//! a queue for each principal, and what becomes free goes to the principals in turn; one that has half of all or more
//! is passed over while another one waits. Every other place goes to who has held places for less than half of the average
//! time lately. The last eighth is a reserve for those who have little. Nothing is taken away from who has it already. A full
//! waiting room has room for one that has fewer waiting than another, or used less: a call that waits is refused in its place.
//!
//! A call that was left keeps its place for a while, as its server may still be at work ([`place`]). Kept places count as their
//! caller's. While another one needs a place, at most half of all are kept for one; and the oldest of the one who has most is
//! given to others once somebody has waited for half of the time that a call may.
//!
//! Invariants: `in_use` is the number of permits out, and of those granted to waiters that have not looked yet; nobody
//! waits while there is room for it; a waiter that leaves is in no queue, and has given back what it was granted. The lock is
//! never held across a wait.

mod kept;
pub(crate) mod place;
mod queue;
mod use_time;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout_at;

use self::kept::KeptId;
use self::queue::{WaitQueue, WaiterId};
use crate::access::limit::payer::Payer;
use crate::clock;
use crate::telemetry::metrics::families::GateSeries;
use crate::telemetry::metrics::gauge;
use config::Concurrency;

#[derive(Debug)]
pub(crate) struct Gate {
    pub series: GateSeries,
    queue: Mutex<WaitQueue>,
    wait_max_ns: AtomicU64,
    /// A kept place is over sooner than those who wait know.
    sooner: Notify,
}

/// Why a call does not get through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GateCounts {
    pub in_use: usize,
    pub waiting: usize,
}

/// That a call is under way; what holds it is free when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    gate: Arc<Gate>,
    who: Payer,
    /// Whether its place is kept after it; changed under the gate's lock.
    state: AtomicU64,
}

/// Its place is free when it is dropped.
const HELD: u64 = 0;
/// Its place is kept when it is dropped, until its time is over, or was given back.
const LEFT: u64 = 1;
/// From here on: its place is kept until it is dropped, or its time is over, under the number above this.
const KEPT: u64 = 2;

/// Either a permit, or a place in the queue to wait for it.
#[derive(Debug)]
pub(crate) enum Admission {
    Passed(Permit),
    Waits(QueuedCall),
}

/// A place in the queue. Dropped, it is free.
#[derive(Debug)]
pub(crate) struct QueuedCall {
    /// `None` once there is nothing left to give back.
    gate: Option<Arc<Gate>>,
    who: Payer,
    place: WaiterId,
    granted: oneshot::Receiver<()>,
    /// When it takes a place that is kept for another.
    takes_at: Option<Instant>,
    deadline: Instant,
}

impl Gate {
    pub(crate) fn new(config: &Concurrency, series: GateSeries) -> Arc<Self> {
        let queue = Mutex::new(WaitQueue::new(config.calls_max, config.calls_waiting_max, clock::now()));
        let gate = Self { series, queue, wait_max_ns: AtomicU64::new(0), sooner: Notify::new() };
        gate.set_wait_max(config.calls_wait_max);
        Arc::new(gate)
    }

    /// Changes the bounds. Who is through or waits goes on.
    pub(crate) fn reconfigure(&self, config: &Concurrency) {
        self.set_wait_max(config.calls_wait_max);
        self.queue.lock().set_max(config.calls_max, config.calls_waiting_max, clock::now());
    }

    /// Whether a call for this payer would be refused now.
    pub(crate) fn would_refuse(&self, who: Payer, now: Instant) -> bool {
        self.queue.lock().would_refuse(who, now)
    }

    /// Lets a call through, or gives it a place to wait.
    pub(crate) fn enter(self: &Arc<Self>, who: Payer, now: Instant) -> Result<Admission, QueueFull> {
        let mut queue = self.queue.lock();
        if queue.pass(who, now) {
            return Ok(Admission::Passed(Permit::new(Arc::clone(self), who)));
        }
        let (place, granted) = queue.wait(who, now).ok_or(QueueFull)?;
        drop(queue);
        let wait_max = Duration::from_nanos(self.wait_max_ns.load(Ordering::Relaxed));
        let (takes_at, deadline) = (Some(now + wait_max / 2), now + wait_max);
        let gate = Some(Arc::clone(self));
        Ok(Admission::Waits(QueuedCall { gate, who, place, granted, takes_at, deadline }))
    }

    pub(crate) fn counts(&self) -> GateCounts {
        self.queue.lock().counts()
    }

    pub(crate) fn observe(&self) {
        let GateCounts { in_use, waiting } = self.counts();
        self.series.in_use.set(gauge(in_use));
        self.series.waiting.set(gauge(waiting));
        self.series.kept.set(gauge(self.queue.lock().kept(clock::now())));
    }

    fn set_wait_max(&self, wait_max: Duration) {
        let ns = u64::try_from(wait_max.as_nanos()).unwrap_or(u64::MAX);
        self.wait_max_ns.store(ns, Ordering::Relaxed);
    }
}

impl QueuedCall {
    /// Waits until it is its turn, or for as long as a call may.
    pub(crate) async fn turn(mut self) -> Result<Permit, QueueFull> {
        let gate = self.gate.clone().ok_or(QueueFull)?;
        loop {
            let mut sooner = pin!(gate.sooner.notified());
            // Before the look, so that no change is missed.
            sooner.as_mut().enable();
            let wakes = [gate.queue.lock().next_end(), self.takes_at].into_iter().flatten();
            let wakes = wakes.min().map_or(self.deadline, |wakes| wakes.min(self.deadline));
            let granted = tokio::select! {
                granted = timeout_at(wakes.into(), &mut self.granted) => granted,
                () = sooner => continue,
            };
            match granted {
                Ok(Ok(())) => break,
                Ok(Err(_)) => return Err(QueueFull),
                Err(_) if clock::now() >= self.deadline => return Err(QueueFull),
                Err(_) => self.make_room(&gate, clock::now()),
            }
        }
        self.gate = None;
        Ok(Permit::new(gate, self.who))
    }

    fn make_room(&mut self, gate: &Gate, now: Instant) {
        let takes = self.takes_at.is_some_and(|takes_at| now >= takes_at);
        if takes {
            self.takes_at = None;
        }
        gate.queue.lock().make_room_for(self.who, takes, now);
    }
}

impl Permit {
    fn new(gate: Arc<Gate>, who: Payer) -> Self {
        Self { gate, who, state: AtomicU64::new(HELD) }
    }

    /// Gives the place back before this is dropped.
    fn give_back(&self) {
        let mut queue = self.gate.queue.lock();
        match self.state.swap(LEFT, Ordering::Relaxed) {
            HELD => queue.release(self.who, clock::now()),
            LEFT => {}
            kept => queue.give_back(KeptId(kept - KEPT), clock::now()),
        }
    }

    /// Keeps the place until then, or for as long as it was kept already, whatever becomes of this.
    fn leave(&self, until: Instant) {
        self.keep(until);
        self.state.store(LEFT, Ordering::Relaxed);
    }

    /// Keeps the place until this is dropped, and until then at most; unless it is kept already.
    fn keep(&self, until: Instant) {
        let mut queue = self.gate.queue.lock();
        if self.state.load(Ordering::Relaxed) != HELD {
            return;
        }
        let (KeptId(id), is_next) = queue.keep(self.who, until, clock::now());
        self.state.store(KEPT + id, Ordering::Relaxed);
        drop(queue);
        if is_next {
            self.gate.sooner.notify_waiters();
        }
    }
}

impl Drop for QueuedCall {
    fn drop(&mut self) {
        let Some(gate) = self.gate.take() else { return };
        let mut queue = gate.queue.lock();
        // Who is no longer in the queue was granted a permit, or refused, since it was last looked.
        if !queue.leave(self.who, self.place) && self.granted.try_recv().is_ok() {
            queue.release(self.who, clock::now());
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if *self.state.get_mut() != LEFT {
            self.give_back();
        }
    }
}

#[cfg(test)]
mod tests;
