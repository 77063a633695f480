//! A worker's open connections to upstreams. Each belongs to one thread and is never shared.
//!
//! A connection is leased for one exchange. The last one returned is the first one leased, and one is opened only where none
//! is idle. So those that are open are as many as were in use at once within `idle_timeout`: more were not used for that
//! long, and are closed. We close idle connections before the server would: a request written to a connection that the
//! server is closing is lost. Invariant: a connection goes back only after its reply ended cleanly.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Context;
use std::time::{Duration, Instant};

use super::balance::Dice;
use super::connection_use::{ConnectionUse, ConnectionUses};
use super::health::breaker::{Pass, RequestFault};
use super::http1::connection::PooledConnection;
use super::idle::{ACCEPTED_REST, Idle, IdleConnections, IdleGauge};
use super::replica::{Replica, ReplicaKey};
use super::{Upstream, UpstreamId};
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::{NoShare, Shares};
use protocol::error::UpstreamError;

/// One request that may be sent again costs this much of the budget.
const RETRY_COST: u32 = 100;
/// The most that is saved, and what is there at first: ten.
const BUDGET_MAX: u32 = 10 * RETRY_COST;
/// Replies that nobody wants any more are waited for so many at a time, of all upstreams.
const LATE_MAX: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct ConnectionPools {
    slots: RefCell<Vec<ConnectionPool>>,
    dice: Dice,
    pub late: LateReplies,
}

/// The places of replies that are waited for when nobody wants them any more.
#[derive(Debug)]
pub(crate) struct LateReplies(pub Arc<Shares>);

impl Default for LateReplies {
    fn default() -> Self {
        Self(Shares::new(LATE_MAX))
    }
}

#[derive(Debug)]
struct ConnectionPool {
    generation: u64,
    idle: IdleConnections,
    /// Open connections, idle ones included.
    open: Rc<Cell<usize>>,
    /// Who uses them; `None` as long as nobody did.
    uses: Option<Rc<ConnectionUses>>,
    /// What may be sent again: grows with every request, and by one retry a second.
    budget: u32,
    shown: IdleGauge,
}

/// One of the connections that an upstream, or a thread, may have.
#[derive(Debug)]
pub(crate) struct ConnectionSlot(Rc<Cell<usize>>);

impl ConnectionSlot {
    /// One more of those that are `open`, until it is dropped.
    pub(crate) fn new(open: Rc<Cell<usize>>) -> Self {
        open.set(open.get() + 1);
        Self(open)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// Room for a connection, and who uses it; `None` where that is not counted.
pub(crate) type PoolPlace = (ConnectionSlot, Option<ConnectionUse>);

/// A request on its way at a replica. Dropped, it is over; unless it was settled before, that says nothing of the
/// replica.
#[derive(Debug)]
pub(crate) struct ReplicaRequest {
    replica: Rc<Arc<Replica>>,
    pass: Pass,
    /// Long streams are not counted, they say nothing of how busy it is.
    is_counted: bool,
    is_settled: bool,
    is_answered: bool,
}

impl ReplicaRequest {
    /// Counts a request to this replica until it is settled or dropped.
    pub(crate) fn begin(replica: Rc<Arc<Replica>>, pass: Pass, is_counted: bool) -> Self {
        if is_counted {
            replica.load.begin();
        }
        Self { replica, pass, is_counted, is_settled: false, is_answered: false }
    }

    pub(crate) fn key(&self) -> ReplicaKey {
        self.replica.key
    }

    pub(crate) fn replica(&self) -> &Replica {
        &self.replica
    }

    /// The replica did its part.
    pub(crate) fn succeed(&mut self) {
        if !std::mem::replace(&mut self.is_settled, true) {
            self.is_answered = true;
            self.replica.note_success(self.pass);
        }
    }

    /// The replica did not.
    pub(crate) fn fail(&mut self, failure: RequestFault) {
        // What broke after a good beginning is a failure, too, but no longer that of a trial.
        let pass = if self.is_settled && self.pass == Pass::Trial { Pass::Free } else { self.pass };
        self.is_settled = true;
        self.is_answered = false;
        self.replica.note_failure(pass, failure);
    }

    /// Nothing is to be said yet, and giving the connection back does not say it.
    pub(crate) fn postpone(&mut self) {
        if self.pass != Pass::Trial {
            self.is_settled = true;
        }
    }

    /// What was postponed.
    pub(crate) fn decide(&mut self, is_success: bool) {
        self.is_settled &= self.is_answered;
        if is_success {
            self.succeed();
        } else {
            self.fail(RequestFault::Broken);
        }
    }
}

impl Drop for ReplicaRequest {
    fn drop(&mut self) {
        if !self.is_settled {
            self.replica.breaker.0.give_up(self.pass);
        }
        if self.is_counted {
            self.replica.load.end(self.is_answered);
        }
    }
}

/// A connection in use. Dropped without [`give_back`], it is closed.
#[derive(Debug)]
pub(crate) struct ConnectionLease {
    pub connection: Rc<PooledConnection>,
    /// What the replica is judged by.
    pub in_flight: ReplicaRequest,
    pools: Rc<ConnectionPools>,
}

/// To which pool a connection belongs, and for how long it may wait there.
#[derive(Debug)]
pub(crate) struct PoolMembership {
    id: UpstreamId,
    _slot: ConnectionSlot,
    /// Who uses it; `None` for those that are not counted.
    used: Option<ConnectionUse>,
    /// As its upstream had it when the connection was last leased, or less, as the server promised since.
    idle_timeout: Cell<Duration>,
    /// So many may wait with it.
    idle_max: Cell<usize>,
}

impl PoolMembership {
    /// Of one of the connections that the upstream may have.
    pub(crate) fn new(upstream: &Upstream, (slot, used): PoolPlace) -> Self {
        let (idle_timeout, idle_max) = (Cell::default(), Cell::default());
        Self { id: upstream.id, _slot: slot, used, idle_timeout, idle_max }
    }

    fn begin_use(&self, payer: Payer) {
        if let Some(used) = &self.used {
            used.begin(payer);
        }
    }

    fn end_use(&self) {
        if let Some(used) = &self.used {
            used.end();
        }
    }
}

impl Default for ConnectionPool {
    fn default() -> Self {
        Self {
            generation: 0,
            idle: IdleConnections::default(),
            open: Rc::default(),
            uses: None,
            budget: BUDGET_MAX,
            shown: IdleGauge::default(),
        }
    }
}

impl ConnectionPool {
    /// Whether this payer may use one more connection.
    fn check(&self, upstream: &Upstream, payer: Payer) -> Result<(), UpstreamError> {
        let Some(uses) = &self.uses else { return Ok(()) };
        uses.check(payer, upstream.config.replicas.connections_max).map_err(|none| match none {
            NoShare::NothingLeft => UpstreamError::TooManyConnections,
            NoShare::TooMuchOfPayer => UpstreamError::ConnectionsOfPrincipal,
        })
    }
}

impl ConnectionPools {
    /// An idle connection to one replica, if there is a live one, for a request that passed its breaker like this, and that
    /// the task of `cx` sends at once. `may_break`: one that rests will do.
    pub(crate) fn take(
        self: &Rc<Self>,
        (upstream, payer): (&Upstream, Payer),
        (replica, may_break): (&Arc<Replica>, bool),
        pass: Pass,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Result<Option<ConnectionLease>, UpstreamError> {
        let mut slots = self.slots.borrow_mut();
        let Some(pool) = pool_of(&mut slots, upstream.id) else { return Ok(None) };
        pool.check(upstream, payer)?;
        let Idle { connection, at, .. } = loop {
            let Some(candidate) = pool.idle.take(replica, may_break, now) else { return Ok(None) };
            if candidate.expires > now && candidate.connection.is_idle_for(cx) {
                break candidate;
            }
        };
        connection.membership.begin_use(payer);
        Ok(Some(self.lease(upstream, connection, ReplicaRequest::begin(at, pass, true))))
    }

    /// Room for a new connection that this payer uses.
    pub(crate) fn place(
        &self,
        upstream: &Upstream,
        payer: Payer,
        is_bounded: bool,
    ) -> Result<PoolPlace, UpstreamError> {
        let mut slots = self.slots.borrow_mut();
        let Some(pool) = pool_of(&mut slots, upstream.id).filter(|_| is_bounded) else {
            return Ok((ConnectionSlot::new(Rc::default()), None));
        };
        pool.check(upstream, payer)?;
        if pool.open.get() >= upstream.config.replicas.connections_max {
            // One that waits, at another replica, must not keep a call from this one.
            if !pool.idle.close_oldest() {
                return Err(UpstreamError::TooManyConnections);
            }
        }
        let uses = pool.uses.get_or_insert_with(|| ConnectionUses::new(&upstream.connection_payers));
        Ok((ConnectionSlot::new(Rc::clone(&pool.open)), Some(ConnectionUse::new(uses, payer))))
    }

    /// Wraps a connection for a request.
    pub(crate) fn lease(
        self: &Rc<Self>,
        upstream: &Upstream,
        connection: Rc<PooledConnection>,
        in_flight: ReplicaRequest,
    ) -> ConnectionLease {
        // A reload changes them under connections that go on.
        connection.membership.idle_timeout.set(upstream.config.idle_timeout);
        connection.membership.idle_max.set(upstream.config.idle_connections_max.unwrap_or(usize::MAX));
        ConnectionLease { connection, in_flight, pools: Rc::clone(self) }
    }

    /// A number that spreads calls.
    pub(crate) fn random(&self) -> u32 {
        self.dice.roll()
    }

    /// A request is sent for the first time: so much more may be sent again.
    pub(crate) fn earn(&self, upstream: &Upstream) {
        let percent = u32::try_from(upstream.config.replicas.retry.budget_percent).unwrap_or(0);
        if let Some(pool) = pool_of(&mut self.slots.borrow_mut(), upstream.id) {
            pool.budget = (pool.budget + percent).min(BUDGET_MAX);
            pool.shown.gauge.get_or_insert_with(|| upstream.series.idle_connections.clone());
        }
    }

    /// Whether a request may be sent again. If so, it counts.
    pub(crate) fn spend(&self, upstream: &Upstream) -> bool {
        if upstream.config.replicas.retry.budget_percent == 0 {
            return false;
        }
        let mut slots = self.slots.borrow_mut();
        let Some(pool) = pool_of(&mut slots, upstream.id) else { return false };
        let left = pool.budget.checked_sub(RETRY_COST);
        pool.budget = left.unwrap_or(pool.budget);
        left.is_some()
    }

    /// Closes what was idle too long, or leads to a replica that is gone. To be called once a second.
    pub(crate) fn sweep(&self, now: Instant) {
        for pool in self.slots.borrow_mut().iter_mut() {
            pool.budget = (pool.budget + RETRY_COST).min(BUDGET_MAX);
            pool.idle.sweep(now);
            pool.shown.set(pool.idle.len());
        }
    }

    /// Closes the idle connections of upstreams that are not among `living`.
    pub(crate) fn retain(&self, living: &[UpstreamId]) {
        for (slot, pool) in self.slots.borrow_mut().iter_mut().enumerate() {
            let id = UpstreamId { slot, generation: pool.generation };
            if !living.contains(&id) {
                pool.idle.clear();
            }
        }
    }

    /// Closes the connection that waits at the upstream where most do, so that there is room for another. False if
    /// none waits.
    pub(crate) fn make_room(&self) -> bool {
        let mut slots = self.slots.borrow_mut();
        let fullest = slots.iter_mut().max_by_key(|pool| pool.idle.len());
        fullest.is_some_and(|pool| pool.idle.close_oldest())
    }

    pub(crate) fn clear(&self) {
        for pool in self.slots.borrow_mut().iter_mut() {
            pool.idle.clear();
        }
    }
}

/// The pool of `id`, made if new; `None` if the slot already belongs to a later upstream.
fn pool_of(slots: &mut Vec<ConnectionPool>, id: UpstreamId) -> Option<&mut ConnectionPool> {
    if slots.len() <= id.slot {
        slots.resize_with(id.slot + 1, ConnectionPool::default);
    }
    let pool = &mut slots[id.slot];
    if pool.generation < id.generation {
        *pool = ConnectionPool { generation: id.generation, ..ConnectionPool::default() };
    }
    (pool.generation == id.generation).then_some(pool)
}

impl ConnectionLease {
    /// Shortens the idle time to what the server promised in `Keep-Alive: timeout=…`, less a second.
    pub(crate) fn respect_keep_alive(&self, promised: Option<Duration>) {
        if let Some(promised) = promised {
            let idle_timeout = &self.connection.membership.idle_timeout;
            idle_timeout.set(idle_timeout.get().min(promised.saturating_sub(Duration::from_secs(1))));
        }
    }

    /// Returns the connection to its pool, where there is room. The reply has ended as it should. For so long it rests.
    fn give_back(self, now: Instant, rest: Duration) {
        let Self { connection, mut in_flight, pools } = self;
        connection.membership.end_use();
        in_flight.succeed();
        let PoolMembership { id, idle_timeout, idle_max, .. } = &connection.membership;
        let (idle_timeout, idle_max) = (idle_timeout.get(), idle_max.get());
        // Questions do not use connections again.
        let is_of_use = in_flight.pass != Pass::Aside && !in_flight.replica.is_gone();
        if !is_of_use || !connection.is_free() || idle_timeout.is_zero() {
            return;
        }
        let mut slots = pools.slots.borrow_mut();
        let Some(pool) = pool_of(&mut slots, *id) else { return };
        if pool.idle.len() < idle_max {
            let at = Rc::clone(&in_flight.replica);
            pool.idle.push(Idle { connection, at, rested: now + rest, expires: now + idle_timeout }, now);
        }
    }
}

/// What is to be said of the replica after an error in the middle of its reply.
pub(crate) fn note_error(lease: Option<&mut ConnectionLease>, error: &UpstreamError) {
    let failure = match error {
        UpstreamError::Reset | UpstreamError::Nonsense => RequestFault::Broken,
        UpstreamError::TimedOut => RequestFault::TimedOut,
        _ => return,
    };
    if let Some(lease) = lease {
        lease.in_flight.fail(failure);
    }
}

/// Returns what a reply came with to its pool.
pub(crate) fn give_back(lease: Option<ConnectionLease>, now: Instant) {
    if let Some(lease) = lease {
        lease.give_back(now, Duration::ZERO);
    }
}

/// As [`give_back`], after what is not asked for an answer: the server may not be done with it ([`ACCEPTED_REST`]).
pub(crate) fn let_rest(lease: Option<ConnectionLease>, now: Instant) {
    if let Some(lease) = lease {
        lease.give_back(now, ACCEPTED_REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_belongs_to_its_latest_upstream() {
        let mut slots = Vec::new();
        let id = |generation| UpstreamId { slot: 2, generation };
        assert!(pool_of(&mut slots, id(1)).is_some());
        assert!(pool_of(&mut slots, id(2)).is_some());
        assert!(pool_of(&mut slots, id(1)).is_none());
    }
}
