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

/// Which of these a request to this replica takes. One that `may_break` takes one that rests first: the others are for
/// those that may not.
pub(super) fn position(
    idle: &[Idle],
    replica: &Arc<Replica>,
    may_break: bool,
    now: Instant,
) -> Option<usize> {
    // What becomes of the request is noted where it passed: at this one, not at one that left and had its address.
    let last = |rests: bool| {
        idle.iter().rposition(|idle| Arc::ptr_eq(&idle.at, replica) && (idle.rested > now) == rests)
    };
    if may_break { last(true).or_else(|| last(false)) } else { last(false) }
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
