//! The right to use one of the gateway's own sessions for a list, and who is charged for it.
//!
//! The session in which the gateway itself listens, the newest version's without capabilities, is none of them: there is
//! one for each upstream, and it is nobody else's.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::list_pool::{ListPool, ListSlot};
use super::session_state::ClosedSession;
use super::{SessionId, Sessions};
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Share;
use crate::clock;

#[derive(Clone, Debug)]
pub(crate) struct ListClaim<'a> {
    /// `Upstream::session_key`.
    pub upstream: &'a Arc<str>,
    pub session: SessionId,
    /// Who is charged for it.
    pub payer: Payer,
    /// How many there may be.
    pub sessions_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoLease {
    /// `initialize_rate_max` of who asks.
    Rate,
    /// `upstream_sessions_per_principal_max`.
    TooManyOfPrincipal,
    /// There is no room for it before this time, or before another is released.
    NoRoom(Option<Instant>),
}

/// The right to use a session, while it is held.
#[derive(Debug)]
pub(crate) struct ListLease {
    sessions: Arc<Sessions>,
    upstream: Arc<str>,
    session: SessionId,
}

/// A place among those who wait for room.
#[derive(Debug)]
pub(crate) struct WaitingForList {
    sessions: Arc<Sessions>,
    upstream: Arc<str>,
    who: Payer,
    pub released: Arc<Notify>,
}

#[derive(Debug, Default)]
pub(super) struct ListPools(Mutex<HashMap<Arc<str>, ListPool>>);

impl Sessions {
    /// The right to use a session, whether it is open or not. Those that make room for it are the caller's to close, even
    /// if there is none in the end.
    pub(crate) fn lease_for_list(
        self: &Arc<Self>,
        claim: &ListClaim<'_>,
        now: Instant,
        ousted: &mut Vec<ClosedSession>,
    ) -> Result<ListLease, NoLease> {
        let ListClaim { upstream, session, payer, sessions_max } = *claim;
        let mut pools = self.list_pools.0.lock();
        let pool = pools.entry(Arc::clone(upstream)).or_default();
        pool.retain(|session| self.opened(session, upstream).is_some());
        let mut charge = None;
        loop {
            let found = pool.find(session, payer, sessions_max, now);
            if charge.is_none() && matches!(found, ListSlot::Room | ListSlot::Instead(_)) {
                // Before anything is closed for it.
                charge = Some(self.charge(payer, now)?);
            }
            match found {
                ListSlot::Itself => break,
                ListSlot::Room => {
                    pool.add(session, payer, charge.flatten(), now);
                    break;
                }
                ListSlot::Instead(session) => {
                    pool.remove(session);
                    ousted.extend(self.take_own(session, upstream));
                }
                ListSlot::Nothing(until) => return Err(NoLease::NoRoom(until)),
            }
        }
        Ok(ListLease { sessions: Arc::clone(self), upstream: Arc::clone(upstream), session })
    }

    pub(crate) fn wait_for_list(self: &Arc<Self>, claim: &ListClaim<'_>) -> WaitingForList {
        let mut pools = self.list_pools.0.lock();
        let pool = pools.entry(Arc::clone(claim.upstream)).or_default();
        pool.wait(claim.payer);
        let released = Arc::clone(&pool.released);
        WaitingForList {
            sessions: Arc::clone(self),
            upstream: Arc::clone(claim.upstream),
            who: claim.payer,
            released,
        }
    }

    /// Takes in what was open before this process was.
    pub(super) fn restore_for_list(&self, session: SessionId, upstream: &str) {
        if session.is_for_lists() {
            let mut pools = self.list_pools.0.lock();
            pools.entry(upstream.into()).or_default().add_unused(session, clock::now());
        }
    }

    /// Rights that are held, and requests that wait for one.
    #[cfg(test)]
    pub(crate) fn list_leases(&self) -> usize {
        self.list_pools.0.lock().values().map(ListPool::in_use).sum()
    }

    pub(super) fn sweep_lists(&self) {
        self.list_pools.0.lock().retain(|upstream, pool| {
            pool.retain(|session| self.opened(session, upstream).is_some());
            !pool.is_empty()
        });
    }

    fn charge(&self, payer: Payer, now: Instant) -> Result<Option<Share>, NoLease> {
        if payer == Payer::GATEWAY {
            return Ok(None);
        }
        let place = self.list_places.take(payer).map_err(|_| NoLease::TooManyOfPrincipal)?;
        if self.admit(payer, now) { Ok(Some(place)) } else { Err(NoLease::Rate) }
    }
}

impl Drop for ListLease {
    fn drop(&mut self) {
        let Self { sessions, upstream, session } = self;
        let mut pools = sessions.list_pools.0.lock();
        let Some(pool) = pools.get_mut(upstream) else { return };
        pool.release(*session);
        // What could not be opened costs nobody anything.
        pool.retain(|session| sessions.opened(session, upstream).is_some());
        if pool.is_empty() {
            pools.remove(upstream);
        }
    }
}

impl Drop for WaitingForList {
    fn drop(&mut self) {
        let mut pools = self.sessions.list_pools.0.lock();
        if let Some(pool) = pools.get_mut(&self.upstream) {
            pool.leave(self.who);
        }
    }
}
