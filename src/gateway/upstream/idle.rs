//! A connection that waits in its pool, and which one a request takes.
//!
//! A server that accepts a message may close the connection afterwards, when what it then does with the message fails: the
//! Python SDK does where the session ends at that moment, whoever has sent the next request meanwhile. So a connection rests
//! after such a reply, and only what may be sent again takes it before that.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::IntGauge;

use super::http1::connection::PooledConnection;
use super::replica::Replica;

/// How long a connection rests after a message that was accepted: servers that are busy need some of it.
pub(super) const ACCEPTED_REST: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Idle {
    pub connection: Rc<PooledConnection>,
    pub at: Rc<Arc<Replica>>,
    /// Until then it rests.
    pub rested: Instant,
    /// When we close it.
    pub expires: Instant,
}

/// The idle connections of a pool, the one that was used last at the end.
#[derive(Debug, Default)]
pub(super) struct IdleConnections {
    list: Vec<Idle>,
    /// Until then one of them may rest; `None`: none does.
    rest_ends: Option<Instant>,
}

impl IdleConnections {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn push(&mut self, idle: Idle, now: Instant) {
        if idle.rested > now {
            self.rest_ends = self.rest_ends.max(Some(idle.rested));
        }
        self.list.push(idle);
    }

    /// The one that a request to this replica takes. One that `may_break` takes one that rests first: the others are for
    /// those that may not. It costs as little with many as with few: the last one nearly always is it.
    pub(super) fn take(&mut self, replica: &Arc<Replica>, may_break: bool, now: Instant) -> Option<Idle> {
        if self.rest_ends.is_some_and(|ends| ends <= now) {
            self.rest_ends = None;
        }
        let position = if may_break && self.rest_ends.is_some() {
            self.last(replica, true, now).or_else(|| self.last(replica, false, now))
        } else {
            self.last(replica, false, now)
        };
        Some(self.list.remove(position?))
    }

    /// The last one to this replica that rests, or that does not.
    fn last(&self, replica: &Arc<Replica>, rests: bool, now: Instant) -> Option<usize> {
        // The fate of the request is noted where it passed: at this one, not at one that left and had its address.
        self.list.iter().rposition(|idle| Arc::ptr_eq(&idle.at, replica) && (idle.rested > now) == rests)
    }

    /// Closes the one that waits for longest. False if none does.
    pub(super) fn close_oldest(&mut self) -> bool {
        !self.list.is_empty() && {
            self.list.remove(0);
            true
        }
    }

    /// Closes what waits for too long, is of no more use, or leads to a replica that is gone.
    pub(super) fn sweep(&mut self, now: Instant) {
        self.list.retain(|idle| idle.expires > now && idle.connection.is_idle() && !idle.at.is_gone());
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
    }
}

/// How many idle connections of this pool are counted in the metrics.
#[derive(Debug, Default)]
pub(super) struct IdleGauge {
    pub gauge: Option<IntGauge>,
    idle: i64,
}

impl IdleGauge {
    pub(super) fn set(&mut self, idle: usize) {
        let idle = i64::try_from(idle).unwrap_or(i64::MAX);
        if let Some(gauge) = self.gauge.as_ref().filter(|_| idle != self.idle) {
            gauge.add(idle - self.idle);
            self.idle = idle;
        }
    }
}

impl Drop for IdleGauge {
    fn drop(&mut self) {
        self.set(0);
    }
}
