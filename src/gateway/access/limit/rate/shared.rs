//! Limits that are counted for all replicas together.
//!
//! What this replica may give out is a [`RateLease`], kept in the cell where a limit of its own would count. Nothing waits
//! here either: where an answer is needed, nothing is taken, and the caller asks again once it is there.

use std::sync::Arc;
use std::time::Instant;

use super::{Cell, CellKey, Gcra, LimitSubject, Limiter, RetryAfter};
use crate::redis::Redis;
use crate::redis::lease::{LeaseTerms, LeaseVerdict, RateLease};
use config::Fallback;
use protocol::error::PolicyError;

/// Where shared limits stand, for one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedLimits<'a> {
    pub shared: &'a Redis,
    /// The request has waited as long as it may.
    pub is_late: bool,
}

/// Why a request does not go on. It took nothing.
#[derive(Debug)]
pub(crate) enum RateError {
    Refused(PolicyError),
    /// It cannot be known whether one is, and so it counts as met.
    Unknown,
    /// It is not known yet: to be asked again after [`RateLease::answered`].
    Wait(Arc<RateLease>),
}

/// Of what a request that passes a limit took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitUse {
    Here,
    Lease,
    Nothing,
}

impl Limiter {
    /// What this replica allows by itself while the shared count cannot be had.
    pub(super) fn part_of(&self, replicas: usize) -> Gcra {
        let replicas = u32::try_from(replicas).unwrap_or(u32::MAX).max(1);
        let heaviest = self.weights.iter().map(|(_, weight)| *weight).max().unwrap_or(1);
        let limit = &self.limit;
        let burst = (limit.burst / replicas).max(heaviest);
        Gcra::new((limit.calls / replicas).max(1), limit.period, burst)
    }

    /// Takes `weight` calls, if that many may be: of those that are counted here, or, where `common` counts, of all
    /// replicas' together.
    pub(super) fn take(
        &self,
        subject: &LimitSubject<'_>,
        (key, weight): (&CellKey, u32),
        now: Instant,
        common: Option<SharedLimits<'_>>,
    ) -> Result<LimitUse, RateError> {
        let gcra = match common.filter(|_| self.limit.shared) {
            None => self.gcra,
            Some(SharedLimits { shared, is_late }) => {
                if shared.is_connected() {
                    let lease = self.lease(subject, key, now, shared);
                    let (verdict, must_ask) = lease.take(weight, self.ns(now));
                    if must_ask {
                        shared.leases.ask(&lease, self.started);
                    }
                    match verdict {
                        LeaseVerdict::Pass => return Ok(LimitUse::Lease),
                        LeaseVerdict::Refused(after) => return Err(self.refused(RetryAfter(after))),
                        LeaseVerdict::Wait if !is_late => return Err(RateError::Wait(lease)),
                        LeaseVerdict::Wait | LeaseVerdict::Away => {}
                    }
                }
                match self.limit.fallback {
                    Fallback::Allow => return Ok(LimitUse::Nothing),
                    Fallback::Deny => {
                        self.series.refused.inc();
                        return Err(RateError::Unknown);
                    }
                    Fallback::Local => self.part_of(shared.replicas()),
                }
            }
        };
        let here = self.check(gcra, key, weight, now);
        here.map(|_| LimitUse::Here).map_err(|after| self.refused(after))
    }

    /// Undoes a [`take`](Self::take) that passed just now.
    pub(super) fn give_back(
        &self,
        subject: &LimitSubject<'_>,
        (key, weight): (&CellKey, u32),
        now: Instant,
        (common, taken): (Option<SharedLimits<'_>>, LimitUse),
    ) {
        let shared = common.filter(|_| self.limit.shared).map(|common| common.shared);
        match (taken, shared) {
            (LimitUse::Lease, Some(shared)) => self.lease(subject, key, now, shared).give_back(weight),
            (LimitUse::Here, shared) => {
                let gcra = shared.map_or(self.gcra, |shared| self.part_of(shared.replicas()));
                self.give_back_here(gcra, key, weight);
            }
            (LimitUse::Lease | LimitUse::Nothing, _) => {}
        }
    }

    fn refused(&self, after: RetryAfter) -> RateError {
        self.series.refused.inc();
        RateError::Refused(PolicyError::Rate(Box::new(self.refusal(after))))
    }

    /// The lease of a key; those for whom there is no room share one.
    fn lease(
        &self,
        subject: &LimitSubject<'_>,
        key: &CellKey,
        now: Instant,
        shared: &Redis,
    ) -> Arc<RateLease> {
        let now_ns = self.ns(now);
        let lease_of = |parts: Vec<Option<Vec<u8>>>| {
            let parts: Vec<Vec<u8>> = parts
                .into_iter()
                .map(|part| [vec![u8::from(part.is_some())], part.unwrap_or_default()].concat())
                .collect();
            let pieces = std::iter::once(self.limit.name.as_bytes()).chain(parts.iter().map(Vec::as_slice));
            let key = shared.key("limit", &pieces.collect::<Vec<_>>());
            let limit = &self.limit;
            let terms = LeaseTerms { calls: limit.calls, period: limit.period, burst: limit.burst };
            if limit.exact {
                RateLease::exact(key, terms)
            } else {
                RateLease::new(key, terms, shared.replicas())
            }
        };
        let own = |cell: &mut Cell| {
            cell.lease(|| {
                let mut parts = Vec::new();
                subject.each_part(&self.limit, |part| parts.push(part.map(<[u8]>::to_vec)));
                lease_of(parts)
            })
        };
        let rest = |cell: &mut Cell| {
            cell.lease(|| {
                let mut parts = vec![None, Some(b"rest".to_vec())];
                subject.principal(&mut |part: Option<&[u8]>| parts.push(part.map(<[u8]>::to_vec)));
                lease_of(parts)
            })
        };
        let leased = self.table.with(*key, now_ns, own).or_else(|no_room| {
            self.series.overflowed.inc();
            self.table.with(key.rest().ok_or(no_room)?, now_ns, rest)
        });
        leased.unwrap_or_else(|_| self.overflow().lease(|| lease_of(vec![None, Some(b"overflow".to_vec())])))
    }
}
