//! How many calls a caller may make in a time.
//!
//! A [`Limiter`] is one limit of the configuration with a cell for each who is told apart; [`RateLimits`] are all of them in
//! the order in which a request meets them. Nothing here waits, and no clock is read: callers say what time it is.
//!
//! What counts: a limit that needs the headers alone (by principal, address or endpoint, without weights and filters of
//! what is called) counts every message that is posted, right after its credentials were checked; of a batch, each. All
//! others count what goes to an upstream, once its route is known. A request that one of these refuses takes nothing from
//! the others; what it took as a message stays taken, as refusing costs something too.

pub(crate) mod cell;
pub(crate) mod gcra;
mod rates;
pub(crate) mod shared;
pub(crate) mod subject;
pub(crate) mod table;

use std::sync::Arc;
use std::time::{Duration, Instant};

use globset::{GlobMatcher, GlobSet};
use parking_lot::{Mutex, MutexGuard};

pub(crate) use self::cell::Cell;
pub(crate) use self::gcra::{Gcra, Remaining, RetryAfter};
pub(crate) use self::rates::RateLimits;
pub(crate) use self::subject::{LimitSubject, LimitTarget};
pub(crate) use self::table::CellKey;
use self::table::CellTable;
use crate::access::limit::digest::Digester;
use crate::clock;
use crate::identity::Principal;
use crate::telemetry::metrics::families::LimitSeries;
use config::{MissingArgument, RateLimit};
use protocol::arguments::{AmbiguousArgument, ArgumentPath};
use protocol::error::Limited;
use protocol::route::filter;

/// Keys that one client may bring in where it can choose them.
const KEYS_PER_CLIENT_MAX: usize = 1000;
/// A cell is kept for a period after it has recovered, at most for so long: who calls seldom must not be crowded out.
const LINGER_MAX: Duration = Duration::from_mins(1);

/// One limit, and a cell for each who is told apart.
#[derive(Debug)]
pub(crate) struct Limiter {
    pub limit: RateLimit,
    pub series: LimitSeries,
    name: Arc<str>,
    gcra: Gcra,
    tools: Option<GlobSet>,
    weights: Vec<(GlobMatcher, u32)>,
    digester: Digester,
    table: CellTable,
    /// Shared by those whom the table has no room for.
    overflow: Mutex<Cell>,
    started: Instant,
}

impl Limiter {
    /// A limiter of which nothing was taken, that tells `keys_max` apart.
    pub(crate) fn new(
        limit: RateLimit,
        keys_max: usize,
        series: LimitSeries,
    ) -> Result<Self, globset::Error> {
        let weight = |(glob, weight): &(String, u32)| {
            let glob = filter::glob(glob)?;
            Ok::<_, globset::Error>((glob.compile_matcher(), *weight))
        };
        let linger = limit.period.min(LINGER_MAX);
        Ok(Self {
            name: limit.name.as_str().into(),
            gcra: Gcra::new(limit.calls, limit.period, limit.burst),
            tools: (!limit.tools.is_empty()).then(|| filter::compile(&limit.tools)).transpose()?,
            weights: limit.weights.iter().map(weight).collect::<Result<_, _>>()?,
            digester: Digester::default(),
            table: CellTable::new(keys_max, KEYS_PER_CLIENT_MAX, to_ns(linger)),
            overflow: Mutex::default(),
            started: clock::now(),
            series,
            limit,
        })
    }

    pub(crate) fn is_about(&self, subject: &LimitSubject<'_>) -> bool {
        let limit = &self.limit;
        let is_among = |names: &[String], name: &str| names.is_empty() || names.iter().any(|it| it == name);
        if !is_among(&limit.endpoints, subject.endpoint) || !self.is_about_principal(subject.principal) {
            return false;
        }
        let Some(target) = subject.target else { return true };
        let is_about_tool = || match (&self.tools, target.tool) {
            (None, _) => true,
            (Some(tools), Some(tool)) => tools.is_match(tool),
            (Some(_), None) => false,
        };
        // Nothing but tools has arguments.
        let may_have_arguments = || target.tool.is_some() || limit.arguments().next().is_none();
        is_among(&limit.upstreams, target.upstream) && is_about_tool() && may_have_arguments()
    }

    /// Readers would take alike what it counts by.
    pub(super) fn check_arguments(&self, subject: &LimitSubject<'_>) -> Result<(), AmbiguousArgument> {
        let arguments = subject.target.and_then(|target| target.arguments);
        match arguments {
            Some(arguments) if self.is_about(subject) => arguments.check(self.limit.arguments()),
            _ => Ok(()),
        }
    }

    /// The argument by which it would count a call that has none there.
    pub(super) fn missing_argument(&self, subject: &LimitSubject<'_>) -> Option<&ArgumentPath> {
        if self.limit.missing_arguments == MissingArgument::Allow || !self.is_about(subject) {
            return None;
        }
        self.limit.arguments().find(|path| subject.argument(path).is_none())
    }

    fn is_about_principal(&self, principal: &Principal) -> bool {
        let limit = &self.limit;
        if limit.principals.is_empty() && limit.groups.is_empty() {
            return true;
        }
        let Principal::Known(identity) = principal else { return false };
        limit.principals.iter().any(|name| **name == *identity.name)
            || limit.groups.iter().any(|name| identity.groups.iter().any(|group| **group == **name))
    }

    pub(crate) fn weight(&self, subject: &LimitSubject<'_>) -> u32 {
        let Some(tool) = subject.target.and_then(|target| target.tool) else { return 1 };
        let weight = self.weights.iter().find(|(glob, _)| glob.is_match(tool));
        weight.map_or(1, |(_, weight)| *weight)
    }

    pub(crate) fn key(&self, subject: &LimitSubject<'_>) -> CellKey {
        subject.key(&self.limit, &self.digester)
    }

    /// Takes `weight` calls of those that are counted here, if that many may be.
    fn check(&self, gcra: Gcra, key: &CellKey, weight: u32, now: Instant) -> Result<Remaining, RetryAfter> {
        let now_ns = self.ns(now);
        let take = |cell: &mut Cell| cell.take(gcra, weight, now_ns);
        let taken = self.table.with(*key, now_ns, take).or_else(|no_room| {
            self.series.overflowed.inc();
            let rest = key.rest().ok_or(no_room)?;
            self.table.with(rest, now_ns, take)
        });
        taken.unwrap_or_else(|_| take(&mut self.overflow()))
    }

    /// Looks where [`check`](Self::check) does, in the same order.
    fn give_back_here(&self, gcra: Gcra, key: &CellKey, weight: u32) {
        let give_back = |cell: &mut Cell| cell.give_back(gcra, weight);
        let owner = || key.owner.and_then(|owner| self.table.with_known(owner, give_back));
        if self.table.with_known(key.digest, give_back).or_else(owner).is_none() {
            give_back(&mut self.overflow());
        }
    }

    /// What a client is told that it is refused by.
    pub(crate) fn refusal(&self, after: RetryAfter) -> Limited {
        let RetryAfter(after) = after;
        // Rounded up: who comes back then comes in time.
        let whole_ms = after.as_nanos().div_ceil(1_000_000);
        let retry_after = Duration::from_millis(u64::try_from(whole_ms).unwrap_or(u64::MAX));
        Limited {
            limit: Arc::clone(&self.name),
            quota: self.limit.calls,
            period: self.limit.period,
            retry_after,
        }
    }

    pub(crate) fn keys(&self) -> usize {
        self.table.keys()
    }

    pub(crate) fn set_keys_max(&self, keys_max: usize) {
        self.table.set_max(keys_max);
    }

    /// Forgets who has recovered, in as many parts of the table as are named.
    pub(crate) fn sweep(&self, now: Instant, shards: usize) {
        self.table.sweep(self.ns(now), shards);
    }

    fn overflow(&self) -> MutexGuard<'_, Cell> {
        self.overflow.lock()
    }

    fn ns(&self, now: Instant) -> u64 {
        to_ns(now.saturating_duration_since(self.started))
    }
}

fn to_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
