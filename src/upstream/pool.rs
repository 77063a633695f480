//! A worker's open connections to upstreams. Each belongs to one thread and is never shared.
//!
//! A connection is leased for one exchange. The last one returned is the first one leased, so that a quiet
//! pool shrinks. We close idle connections before the server would: a request written to a connection that
//! the server is closing is lost. Invariant: a connection goes back only after its reply ended cleanly.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use hyper::client::conn::http1::SendRequest;

use super::exchange::RequestBody;
use super::{Upstream, UpstreamId};

/// All pools of one worker.
#[derive(Debug, Default)]
pub struct Pools {
    slots: RefCell<Vec<Pool>>,
}

#[derive(Debug, Default)]
struct Pool {
    generation: u64,
    idle: Vec<Idle>,
}

#[derive(Debug)]
struct Idle {
    replica: usize,
    connection: Connection,
    /// When we close it.
    expires: Instant,
}

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    /// Sends on it.
    pub sender: SendRequest<RequestBody>,
    /// How many bytes have come from the upstream.
    pub received_bytes: Rc<Cell<u64>>,
}

/// A connection in use. Dropped without [`Lease::give_back`], it is closed.
#[derive(Debug)]
pub struct Lease {
    /// The connection.
    pub connection: Connection,
    pools: Rc<Pools>,
    id: UpstreamId,
    replica: usize,
    idle_timeout: Duration,
    idle_max: usize,
}

impl Pools {
    /// An idle connection to one replica, if there is a live one.
    pub fn take(self: &Rc<Self>, upstream: &Upstream, replica: usize, now: Instant) -> Option<Lease> {
        let mut slots = self.slots.borrow_mut();
        let idle = &mut pool_of(&mut slots, upstream.id)?.idle;
        idle.retain(|idle| idle.expires > now && !idle.connection.sender.is_closed());
        // One that is not ready is still writing a request whose reply came early.
        let is_fit = |idle: &Idle| idle.replica == replica && idle.connection.sender.is_ready();
        let position = idle.iter().rposition(is_fit)?;
        Some(self.lease(upstream, replica, idle.remove(position).connection))
    }

    /// Wraps a new connection.
    pub fn lease(self: &Rc<Self>, upstream: &Upstream, replica: usize, connection: Connection) -> Lease {
        Lease {
            connection,
            pools: Rc::clone(self),
            id: upstream.id,
            replica,
            idle_timeout: upstream.config.idle_timeout,
            idle_max: upstream.config.idle_connections_max,
        }
    }

    /// Closes what was idle too long.
    pub fn sweep(&self, now: Instant) {
        for pool in self.slots.borrow_mut().iter_mut() {
            pool.idle.retain(|idle| idle.expires > now && !idle.connection.sender.is_closed());
        }
    }

    /// Closes the idle connections of upstreams that are not among `living`.
    pub fn retain(&self, living: &[UpstreamId]) {
        for (slot, pool) in self.slots.borrow_mut().iter_mut().enumerate() {
            let id = UpstreamId { slot, generation: pool.generation };
            if !living.contains(&id) {
                pool.idle.clear();
            }
        }
    }

    /// Closes every idle connection.
    pub fn clear(&self) {
        self.slots.borrow_mut().clear();
    }
}

/// The pool of `id`, made if new; `None` if the slot already belongs to a later upstream.
fn pool_of(slots: &mut Vec<Pool>, id: UpstreamId) -> Option<&mut Pool> {
    if slots.len() <= id.slot {
        slots.resize_with(id.slot + 1, Pool::default);
    }
    let pool = &mut slots[id.slot];
    if pool.generation < id.generation {
        *pool = Pool { generation: id.generation, idle: Vec::new() };
    }
    (pool.generation == id.generation).then_some(pool)
}

impl Lease {
    /// Shortens the idle time to what the server promised in `Keep-Alive: timeout=…`, less a second.
    pub fn respect_keep_alive(&mut self, headers: &http::HeaderMap) {
        let promised = headers.get("keep-alive").and_then(|value| keep_alive_timeout(value.as_bytes()));
        if let Some(promised) = promised {
            self.idle_timeout = self.idle_timeout.min(promised.saturating_sub(Duration::from_secs(1)));
        }
    }

    /// Returns the connection to its pool, where there is room.
    pub fn give_back(self, now: Instant) {
        let Self { connection, pools, id, replica, idle_timeout, idle_max } = self;
        if connection.sender.is_closed() || idle_timeout.is_zero() {
            return;
        }
        let mut slots = pools.slots.borrow_mut();
        let Some(pool) = pool_of(&mut slots, id) else { return };
        if pool.idle.len() < idle_max {
            pool.idle.push(Idle { replica, connection, expires: now + idle_timeout });
        }
    }
}

/// [`Lease::give_back`] of what a reply came with.
pub fn give_back(lease: Option<Lease>, now: Instant) {
    if let Some(lease) = lease {
        lease.give_back(now);
    }
}

fn keep_alive_timeout(value: &[u8]) -> Option<Duration> {
    let value = std::str::from_utf8(value).ok()?;
    let seconds = value.split(',').find_map(|part| part.trim().strip_prefix("timeout="))?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_keep_alive() {
        for (value, seconds) in
            [("timeout=5", Some(5)), ("max=100, timeout=7", Some(7)), ("timeout=x", None), ("max=1", None)]
        {
            assert_eq!(keep_alive_timeout(value.as_bytes()), seconds.map(Duration::from_secs), "{value}");
        }
    }

    #[test]
    fn a_slot_belongs_to_its_latest_upstream() {
        let mut slots = Vec::new();
        let id = |generation| UpstreamId { slot: 2, generation };
        assert!(pool_of(&mut slots, id(1)).is_some());
        assert!(pool_of(&mut slots, id(2)).is_some());
        assert!(pool_of(&mut slots, id(1)).is_none());
    }
}
