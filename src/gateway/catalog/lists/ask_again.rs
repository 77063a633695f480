//! Asking for lists again that could not be had, so that a fault is over soon after its server has mended, whether or not a
//! client asks.
//!
//! Runs on the control thread. A refused question is asked again, in the same words, every `health.interval` of its upstream,
//! and of a program, which would never be idle, with growing pauses and while the gateway has a process of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::sleep;

use super::fetch::FetchContext;
use super::gather::PartRequest;
use super::wanted;
use crate::clock;
use crate::context::state::State;
use crate::snapshot::Snapshot;
use crate::tables::lists::cache::PartKey;
use crate::upstream::Upstream;
use crate::upstream::exchange::UpstreamClient;
use crate::upstream::fault::Fault;
use net::jitter::{doubled, jittered};

/// Questions asked again at once.
const CONCURRENT_MAX: usize = 16;
/// Between two looks for what is due.
const TICK: Duration = Duration::from_millis(250);
/// The longest pause of a program: it has ended before, unless somebody uses it.
const PROGRAM_PAUSE_MAX: Duration = Duration::from_hours(1);

/// Asks until the process ends.
pub(crate) async fn run(state: Arc<State>, client: UpstreamClient) {
    let mut known: HashMap<PartKey, AgainState> = HashMap::new();
    let mut asked: FuturesUnordered<LocalBoxFuture<'static, PartKey>> = FuturesUnordered::new();
    loop {
        if asked.is_empty() {
            state.catalog.failing.any().await;
        }
        tokio::select! {
            () = sleep(TICK) => {}
            Some(key) = asked.next() => note(&mut known, &state, &key),
        }
        let (snapshot, now) = (state.snapshot.load_full(), clock::now());
        client.pools.sweep(now);
        let due = due(&mut known, &state, &snapshot, now);
        for request in due.into_iter().take(CONCURRENT_MAX.saturating_sub(asked.len())) {
            if let Some(entry) = known.get_mut(&request.key) {
                entry.is_under_way = true;
            }
            let (state, client) = (Arc::clone(&state), client.clone());
            let thread = FetchContext { state, client, snapshot: Arc::clone(&snapshot) };
            let ask = async move {
                // Its outcome is noted where that of every list is.
                let _ = request.renew(&thread, true).await;
                request.key
            };
            asked.push(ask.boxed_local());
        }
    }
}

#[derive(Debug)]
struct AgainState {
    due: Instant,
    /// Since it was noted.
    failures: u32,
    is_under_way: bool,
}

/// The questions that are to be asked now. Those that are over, or that nobody can ask any more, are forgotten.
fn due(
    known: &mut HashMap<PartKey, AgainState>,
    state: &State,
    snapshot: &Snapshot,
    now: Instant,
) -> Vec<PartRequest> {
    let failing = state.catalog.failing.all();
    let mut due = Vec::new();
    for (key, dialect) in failing {
        let upstream = snapshot.upstreams.iter().find(|upstream| upstream.id == key.upstream);
        let Some((upstream, fault)) = upstream.and_then(|upstream| Some((upstream, still(upstream, &key)?)))
        else {
            state.catalog.failing.forget(&key);
            known.remove(&key);
            continue;
        };
        let entry = known.entry(key).or_insert_with(|| AgainState {
            due: now + pause(upstream, 0),
            failures: 0,
            is_under_way: false,
        });
        if entry.due <= now && !entry.is_under_way && may_be_asked(upstream, &fault) {
            due.push(PartRequest { is_again: true, ..wanted(upstream, key.kind, (dialect, key.dialect)) });
        }
    }
    due
}

/// The fault that this question met, unless it is over. A question in an era that the server does not speak is asked no more.
fn still(upstream: &Upstream, key: &PartKey) -> Option<Fault> {
    let fault = upstream.listing.fault_of(key.question())?;
    if upstream.lacks(key.dialect.era()) {
        upstream.listing.note_listed(key.kind.index(), key.question());
        return None;
    }
    Some(fault.fault.clone())
}

/// False for a program that would have to be started for it, as processes of clients alone run, or that has ended at this
/// question.
fn may_be_asked(upstream: &Upstream, fault: &Fault) -> bool {
    let is_asked = !upstream.config.replicas.health.interval.is_zero();
    let may_ask = upstream.starts().is_none_or(|starts| starts.has_own() && *fault != Fault::Closed);
    is_asked && may_ask
}

fn pause(upstream: &Upstream, failures: u32) -> Duration {
    let interval = upstream.config.replicas.health.interval;
    if upstream.is_child() {
        doubled(interval, failures, PROGRAM_PAUSE_MAX.max(interval))
    } else {
        jittered(interval, 0.9..1.1)
    }
}

fn note(known: &mut HashMap<PartKey, AgainState>, state: &State, key: &PartKey) {
    let snapshot = state.snapshot.load();
    let upstream = snapshot.upstreams.iter().find(|upstream| upstream.id == key.upstream);
    let (Some(entry), Some(upstream)) = (known.get_mut(key), upstream) else { return };
    entry.is_under_way = false;
    entry.failures = entry.failures.saturating_add(1);
    entry.due = clock::now() + pause(upstream, entry.failures);
}
