//! Which replica of an upstream gets a request: the less busy of two that are chosen at random among those fit for it.
//!
//! The replicas of an upstream are its URLs, and where the host of one is a name, the addresses that this resolves to.
//! They change while the process runs; those that stay keep what is known of them. An upstream of which no replica is
//! fit is not called at all: calls whose outcome nobody will know are worse than calls that are refused.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;

use super::health::breaker::{Breaker, Pass, WEIGHT_MAX};
use super::health::clock_ms;
use super::replica::{self, Replica, ReplicaCommon, ReplicaKey};
use config::Url;

/// More addresses of one name are left aside.
const ADDRESSES_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Replicas {
    urls: Vec<Url>,
    common: ReplicaCommon,
    /// Whoever still has the upstream as it was before a reload has the same.
    shared: Arc<SharedReplicas>,
    /// Those before the reload differ in what all have in common, and were not renewed yet.
    are_outdated: AtomicBool,
}

#[derive(Debug)]
struct SharedReplicas {
    set: ArcSwap<Vec<Arc<Replica>>>,
    /// What those of the set have in common; locked by whoever changes the set.
    common: Mutex<ReplicaCommon>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotChosen {
    /// Those that were not tried already are not fit. When one is tried next, in milliseconds.
    Unfit {
        /// Counted from now.
        retry_after_ms: u64,
    },
    AllTried,
    /// The one that holds the session is gone, or has been unfit for long.
    Gone,
}

impl Replicas {
    pub(super) fn new(urls: &[Url], common: ReplicaCommon) -> Result<Self, http::Error> {
        let set = urls.iter().enumerate().map(|url| first(url, &common)).collect::<Result<_, _>>()?;
        let shared = SharedReplicas { set: ArcSwap::from_pointee(set), common: Mutex::new(common.clone()) };
        Ok(Self {
            urls: urls.to_vec(),
            common,
            shared: Arc::new(shared),
            are_outdated: AtomicBool::new(false),
        })
    }

    /// Goes on with the replicas of `same`, which has the same URLs. Nothing changes before they are
    /// [taken up](Self::take_up).
    pub(super) fn adopt(&mut self, same: &Self) {
        self.shared = Arc::clone(&same.shared);
        *self.are_outdated.get_mut() = !self.common.is_alike(&same.shared.common.lock());
    }

    /// From now on they are as this upstream has them. What was known of them is forgotten, once.
    pub(super) fn take_up(&self) {
        if !self.are_outdated.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut common = self.shared.common.lock();
        common.clone_from(&self.common);
        let renewed = |known: &Arc<Replica>| {
            let url = self.urls.get(known.url)?;
            Replica::new((known.url, url), known.address, Breaker::default(), &self.common).ok().map(Arc::new)
        };
        let before = self.shared.set.load_full();
        let after = before.iter().map(|known| {
            let new = renewed(known)?;
            known.leave();
            Some(new)
        });
        let after = after.zip(before.iter()).map(|(new, known)| new.unwrap_or_else(|| Arc::clone(known)));
        self.shared.set.store(Arc::new(after.collect()));
    }

    pub(crate) fn load(&self) -> Guard<Arc<Vec<Arc<Replica>>>> {
        self.shared.set.load()
    }

    pub(crate) fn get(&self, key: ReplicaKey) -> Option<Arc<Replica>> {
        self.shared.set.load().iter().find(|replica| replica.key == key).cloned()
    }

    /// The hosts whose names are to be resolved, with their ports, by the index of their URL.
    pub(crate) fn names(&self) -> Vec<(usize, &str, u16)> {
        let named = |url: &Url| url.host.parse::<IpAddr>().is_err();
        let urls = self.urls.iter().enumerate();
        urls.filter(|(_, url)| named(url)).map(|(index, url)| (index, url.host.as_str(), url.port)).collect()
    }

    /// The name in the URL with this index resolves to these addresses; if to none, it is as if it was not asked for.
    /// True if that changes anything.
    pub(crate) fn resolve(&self, index: usize, mut addresses: Vec<SocketAddr>, now: Instant) -> bool {
        addresses.sort_unstable();
        addresses.dedup();
        addresses.truncate(ADDRESSES_MAX);
        let Some(url) = self.urls.get(index).filter(|_| !addresses.is_empty()) else { return false };
        let common = self.shared.common.lock();
        let before = self.shared.set.load_full();
        let is_first = before.iter().any(|replica| replica.url == index && replica.address.is_none());
        let mut after: Vec<Arc<Replica>> =
            before.iter().filter(|replica| replica.url != index).map(Arc::clone).collect();
        for address in addresses {
            let key = replica::key(url, Some(address));
            let known = before.iter().find(|replica| replica.key == key);
            let replica = known.map_or_else(
                || {
                    let breaker = if is_first { Breaker::default() } else { Breaker::joining(clock_ms(now)) };
                    Replica::new((index, url), Some(address), breaker, &common).ok().map(Arc::new)
                },
                |known| Some(Arc::clone(known)),
            );
            after.extend(replica);
        }
        after.sort_by_key(|replica| replica.url);
        let is_in =
            |replica: &Arc<Replica>, set: &[Arc<Replica>]| set.iter().any(|other| other.key == replica.key);
        let gone: Vec<_> = before.iter().filter(|replica| !is_in(replica, &after)).collect();
        if gone.is_empty() && after.len() == before.len() {
            return false;
        }
        for replica in gone {
            replica.leave();
        }
        self.shared.set.store(Arc::new(after));
        true
    }
}

fn first(url: (usize, &Url), common: &ReplicaCommon) -> Result<Arc<Replica>, http::Error> {
    let address = url.1.host.parse().ok().map(|ip: IpAddr| SocketAddr::new(ip, url.1.port));
    Replica::new(url, address, Breaker::default(), common).map(Arc::new)
}

/// Chooses one of `set` that is not among those `tried`, by a number at random.
pub(crate) fn choose<'s>(
    set: &'s [Arc<Replica>],
    tried: &[ReplicaKey],
    random: u32,
    now: Instant,
) -> Result<(&'s Arc<Replica>, Pass), NotChosen> {
    let is_tried = |replica: &Arc<Replica>| !tried.is_empty() && tried.contains(&replica.key);
    // Where all is well nobody needs to know what time it is.
    if let [only] = set
        && !is_tried(only)
        && only.breaker.0.state() == super::health::breaker::BreakerState::Closed
    {
        return Ok((only, Pass::Free));
    }
    let now_ms = clock_ms(now);
    let is_fit = |at: &usize| {
        let replica = &set[*at];
        !is_tried(replica) && replica.breaker.0.is_fit(&replica.rules, now_ms)
    };
    let count = set.len();
    let from = |start: u32| {
        let start = usize::try_from(start).unwrap_or(0);
        (0..count).map(move |step| (start + step) % count)
    };
    let one = from(random & 0xffff).find(is_fit);
    let other = from(random >> 16).find(|at| Some(*at) != one && is_fit(at));
    let pair = match (one, other) {
        (Some(one), Some(other)) if score(&set[other], now_ms) < score(&set[one], now_ms) => {
            [Some(other), Some(one)]
        }
        pair => pair.into(),
    };
    for replica in pair.into_iter().flatten().map(|at| &set[at]) {
        // Another thread may have been faster.
        if let Some(pass) = replica.breaker.0.pass(&replica.rules, now_ms) {
            return Ok((replica, pass));
        }
    }
    let untried = set.iter().filter(|replica| !is_tried(replica));
    let soonest_ms = untried.map(|replica| replica.breaker.0.until_ms().saturating_sub(now_ms)).min();
    soonest_ms.map_or(Err(NotChosen::AllTried), |retry_after_ms| Err(NotChosen::Unfit { retry_after_ms }))
}

/// How busy a replica is for the share it is to have.
fn score(replica: &Replica, now_ms: u64) -> u64 {
    let weight = replica.breaker.0.weight(&replica.rules, now_ms);
    (replica.load.in_flight() + 1) * WEIGHT_MAX * WEIGHT_MAX / weight.max(1)
}

/// Numbers that are random enough to spread calls.
#[derive(Debug)]
pub(crate) struct Dice(std::cell::Cell<u64>);

impl Default for Dice {
    fn default() -> Self {
        // Any number but 0 will do.
        Self(std::cell::Cell::new(getrandom::u64().unwrap_or(0x9e37_79b9_7f4a_7c15) | 1))
    }
}

impl Dice {
    pub(crate) fn roll(&self) -> u32 {
        let mut bits = self.0.get();
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        self.0.set(bits);
        u32::try_from(bits >> 32).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
