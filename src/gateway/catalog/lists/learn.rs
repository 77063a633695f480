//! Learning which upstream offers which names, for endpoints that route by them.
//!
//! Runs on the control thread: every upstream of such an endpoint is listed at start, again at intervals and as soon as
//! it says that its lists changed, and after a failure with growing pauses. Capabilities are claimed in full, so that
//! no upstream hides a name from us; nothing is ever called. What was listed is kept with all other lists.
//!
//! So is any program whose lists clients go without, or have as they were before the start: it is listed once it is up.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use super::fetch::FetchContext;
use super::gather::CachedPart;
use super::starting::{is_at_rest, is_on_its_way};
use super::upstream_dialect::UpstreamDialect;
use super::wanted;
use crate::access::policy::NameScope;
use crate::clock;
use crate::context::state::State;
use crate::snapshot::Snapshot;
use crate::tables::lists::part::ListPart;
use crate::tables::lists::{CatalogQuery, List};
use crate::upstream::changes::ChangedList;
use crate::upstream::exchange::UpstreamClient;
use crate::upstream::start_state::StartState;
use crate::upstream::{Upstream, UpstreamId};
use net::drain::DrainPhase;
use net::jitter::doubled;
use protocol::error::UpstreamError;
use protocol::route::directory::{Directory, MemberNames};
use protocol::version::Eras;

/// All capabilities a client can have: no upstream hides anything from one that has them. Spelled as they are declared to
/// servers with sessions.
pub(super) const CAPABILITIES: &str =
    r#"{"elicitation":{"form":{},"url":{}},"roots":{},"sampling":{"context":{},"tools":{}}}"#;

/// How often names are learned anew.
const REFRESH_INTERVAL: Duration = Duration::from_mins(1);
const RETRY_INTERVAL_MIN: Duration = Duration::from_millis(500);
const RETRY_INTERVAL_MAX: Duration = Duration::from_secs(30);
/// Upstreams listed at once. Servers that never answer keep their places for seconds: they leave some to others.
const CONCURRENT_MAX: usize = 256;
/// How often it is looked whether something is due.
const TICK: Duration = Duration::from_millis(250);

/// Learns until the process ends.
pub(crate) async fn run(state: Arc<State>, client: UpstreamClient) {
    let mut known: HashMap<UpstreamId, LearnState> = HashMap::new();
    let mut asked: FuturesUnordered<LocalBoxFuture<'static, LearnResult>> = FuturesUnordered::new();
    let mut interval = tokio::time::interval(TICK);
    let mut published: Option<Arc<Snapshot>> = None;
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            () = state.catalog.renewed.notified() => {}
            // Each result counts as soon as it is there: a slow upstream holds up nobody. The end of the gateway ends programs that
            // start, which says nothing of them.
            Some((upstream, names)) = asked.next() => {
                if names.1.is_none() || !state.drain.has_reached(DrainPhase::Closing) {
                    note(&mut known, &upstream, names);
                }
            }
        }
        let now = clock::now();
        client.pools.sweep(now);
        state.hub.tell_returned(now);
        let snapshot = state.snapshot.load_full();
        let needed = needed(&snapshot);
        let living: HashSet<_> = needed.iter().map(|upstream| upstream.id).collect();
        known.retain(|id, _| living.contains(id));
        for upstream in needed {
            let entry = known.entry(upstream.id).or_insert_with(|| LearnState::new(now));
            if asked.len() < CONCURRENT_MAX && entry.is_due(upstream, now) {
                let known = entry.names.clone().filter(|_| entry.is_only_looked_at(upstream));
                entry.is_asked = true;
                entry.changes = changes(upstream);
                entry.start = start_of(upstream);
                entry.eras = upstream.eras();
                let is_after_use = upstream.is_to_be_listed_after_use();
                let (state, client) = (Arc::clone(&state), client.clone());
                let thread = FetchContext { state, client, snapshot: Arc::clone(&snapshot) };
                let upstream = Arc::clone(upstream);
                let learn = async move {
                    let names = match known {
                        Some(known) => (Some(kept_names(&thread, &upstream).unwrap_or(known)), None),
                        None => names_of(&thread, &upstream).await,
                    };
                    if is_after_use && has_started(&upstream).await {
                        upstream.listing.note_listed_after_use();
                    }
                    (upstream, names)
                };
                asked.push(learn.boxed_local());
            }
        }
        let is_new = published.as_ref().is_none_or(|published| !Arc::ptr_eq(published, &snapshot));
        if is_new || known.values().any(|known| known.is_changed) {
            for known in known.values_mut() {
                known.is_changed = false;
            }
            publish(&snapshot, &known);
            published = Some(Arc::clone(&snapshot));
        }
        for endpoint in &snapshot.endpoints {
            let directory = endpoint.names.directory().clone();
            if endpoint.policy.learn(NameScope { naming: &endpoint.naming, directory: &directory }) {
                interval.reset_immediately();
            }
        }
    }
}

type LearnResult = (Arc<Upstream>, LearnedNames);

/// The names that an upstream offers, as far as that is known; and why that is old, or not known.
type LearnedNames = (Option<MemberNames>, Option<UpstreamError>);

struct LearnState {
    names: Option<MemberNames>,
    due: Instant,
    failures: u32,
    /// The same, with lists that were not waited for.
    vain: u32,
    /// True until it has answered.
    is_asked: bool,
    changes: u64,
    was_tried: bool,
    is_changed: bool,
    /// The state of its program when it was asked.
    start: StartState,
    /// The eras that it spoke then, as far as they were known.
    eras: Option<Eras>,
}

impl LearnState {
    fn new(now: Instant) -> Self {
        Self {
            names: None,
            due: now,
            failures: 0,
            vain: 0,
            is_asked: false,
            changes: 0,
            was_tried: false,
            is_changed: true,
            start: StartState::default(),
            eras: None,
        }
    }

    fn is_due(&self, upstream: &Upstream, now: Instant) -> bool {
        let is_found = self.eras.is_none() && upstream.eras().is_some();
        let is_due =
            self.due <= now || is_found || self.changes != changes(upstream) || self.has_come_up(upstream);
        // A program that starts is asked once it is up; until then it offers what it did before.
        let is_old_enough = || self.names.is_none() && upstream.listing.is_kept();
        !self.is_asked && is_due && (!is_on_its_way(upstream) || is_old_enough()) && !self.may_rest(upstream)
    }

    /// True if its program is up, and was not, or was another process, when it was asked.
    fn has_come_up(&self, upstream: &Upstream) -> bool {
        let start = start_of(upstream);
        (start != StartState::default() && start != self.start) || upstream.is_to_be_listed_after_use()
    }

    /// True for a program whose names are known, and that has ended because nobody uses it.
    fn may_rest(&self, upstream: &Upstream) -> bool {
        // A list that it refuses it refuses again.
        let is_known = self.names.is_some() || (self.was_tried && upstream.is_lazy());
        is_known && is_at_rest(upstream)
    }

    /// True if it would be asked by the clock alone: asked so, a program would never be idle.
    fn is_only_looked_at(&self, upstream: &Upstream) -> bool {
        let has_news = self.changes != changes(upstream) || self.has_come_up(upstream);
        upstream.is_child() && self.names.is_some() && self.vain == 0 && !has_news
    }
}

fn needed(snapshot: &Snapshot) -> Vec<&Arc<Upstream>> {
    let directories = snapshot.endpoints.iter().filter(|endpoint| endpoint.needs_directory());
    let mut slots: Vec<usize> = directories.flat_map(|endpoint| endpoint.members.iter().copied()).collect();
    let upstreams = snapshot.upstreams.iter().enumerate();
    // One that is to rest is listed before.
    let is_wanted = |upstream: &Upstream| upstream.listing.is_wanted() || upstream.is_lazy();
    let wanted = upstreams.filter(|(_, upstream)| upstream.is_child() && is_wanted(upstream));
    slots.extend(wanted.map(|(slot, _)| slot));
    slots.extend(snapshot.unlisted_slots());
    slots.sort_unstable();
    slots.dedup();
    slots.into_iter().filter_map(|slot| snapshot.upstreams.get(slot)).collect()
}

/// Up, if its program has answered, or how it ended.
fn start_of(upstream: &Upstream) -> StartState {
    let state = upstream.starts().map(|starts| starts.state());
    state.filter(|state| matches!(state, StartState::Up { .. })).unwrap_or_default()
}

/// Waits for the start that is under way, if there is one. False: it has failed.
async fn has_started(upstream: &Upstream) -> bool {
    let Some(starts) = upstream.starts() else { return true };
    // A watch that is gone, with its upstream, does not start.
    let _ = starts.under_way().wait_for(|is_under_way| !is_under_way).await;
    !matches!(starts.state(), StartState::Failed(_))
}

fn changes(upstream: &Upstream) -> u64 {
    ChangedList::ALL.into_iter().map(|changed| upstream.changes.count(changed)).sum()
}

async fn names_of(thread: &FetchContext, upstream: &Arc<Upstream>) -> LearnedNames {
    let mut trouble = None;
    let mut names = MemberNames::default();
    let unknown = unknown(upstream).await;
    for list in List::ALL {
        let wanted = wanted(upstream, CatalogQuery::List(list), UpstreamDialect::own(upstream).keyed());
        let part = match &unknown {
            Some(error) => wanted.last_good(thread, error.clone()),
            None => wanted.get(thread).await,
        };
        let part = match part {
            CachedPart::Missing(error) => return (None, Some(error)),
            CachedPart::Stale(part, Some(error)) => {
                trouble = Some(error);
                part
            }
            CachedPart::Kept(part) | CachedPart::Fetched(part) | CachedPart::Stale(part, None) => part,
            CachedPart::Hidden => continue,
        };
        add(&mut names, list, &part);
    }
    (Some(names), trouble)
}

/// The reason for which an upstream is not asked, if its era is not known: to a question of another one it answers
/// anything.
async fn unknown(upstream: &Upstream) -> Option<UpstreamError> {
    // Until it can be asked, it offers what it did before.
    if upstream.eras().is_none() && !upstream.is_child() && !upstream.listing.is_kept() {
        upstream.facts.tried_within(upstream.config.list_timeout).await;
    }
    if upstream.eras().is_some() {
        return None;
    }
    upstream.facts.doubt();
    Some(upstream.unasked())
}

/// The names in the lists as they were fetched last, whoever did: nothing is asked. `None`: one of them is not kept.
fn kept_names(thread: &FetchContext, upstream: &Arc<Upstream>) -> Option<MemberNames> {
    let mut names = MemberNames::default();
    for list in List::ALL {
        let dialect = UpstreamDialect::own(upstream).keyed();
        let part = wanted(upstream, CatalogQuery::List(list), dialect).last(thread)?;
        add(&mut names, list, &part);
    }
    Some(names)
}

fn add(names: &mut MemberNames, list: List, part: &ListPart) {
    let into = match list {
        List::Tools => &mut names.tools,
        List::Prompts => &mut names.prompts,
        List::Resources => &mut names.resources,
        List::Templates => &mut names.templates,
    };
    *into = part.content.named(list).map(|(name, _)| name.into_owned()).collect();
    // A call of one that is withheld is told so.
    into.extend(part.content.withheld.iter().map(ToString::to_string));
}

fn note(known: &mut HashMap<UpstreamId, LearnState>, upstream: &Upstream, (names, trouble): LearnedNames) {
    let now = clock::now();
    // It may have been removed while it was asked.
    let Some(entry) = known.get_mut(&upstream.id).filter(|_| !upstream.facts.is_over()) else { return };
    entry.is_asked = false;
    entry.is_changed |= !entry.was_tried;
    entry.was_tried = true;
    // Old names are better than none.
    if let Some(names) = names.filter(|_| trouble.is_none() || entry.names.is_none()) {
        entry.is_changed |= entry.names.as_ref() != Some(&names);
        entry.names = Some(names);
    }
    let Some(error) = trouble else {
        (entry.failures, entry.vain) = (0, 0);
        entry.due = now + REFRESH_INTERVAL;
        return;
    };
    // One that starts is asked again once it is known what it speaks.
    let is_starting = matches!(error, UpstreamError::Starting { .. });
    if is_starting && upstream.eras().is_none() {
        entry.due = now + RETRY_INTERVAL_MIN;
        return;
    }
    // A fault of a list was told where it was met. A list that is still on its way is none.
    if !is_starting && entry.failures == 0 && upstream.listing.faults().is_empty() {
        tracing::warn!(
            upstream = upstream.config.name,
            error = upstream.fault_of(&error, upstream.config.list_timeout).to_string(),
            "cannot learn what this upstream offers"
        );
    }
    entry.failures += u32::from(!is_starting);
    entry.due = now + doubled(RETRY_INTERVAL_MIN, entry.vain, RETRY_INTERVAL_MAX);
    entry.vain += 1;
}

/// Gives every endpoint that routes by names what is known now.
fn publish(snapshot: &Snapshot, known: &HashMap<UpstreamId, LearnState>) {
    for endpoint in snapshot.endpoints.iter().filter(|endpoint| endpoint.needs_directory()) {
        let members: Vec<Option<MemberNames>> = endpoint
            .members
            .iter()
            .map(|member| known.get(&snapshot.upstreams.get(*member)?.id)?.names.clone())
            .collect();
        let mut upstreams = endpoint.members.iter().filter_map(|member| snapshot.upstreams.get(*member));
        let is_settled =
            upstreams.all(|upstream| known.get(&upstream.id).is_some_and(|known| known.was_tried));
        endpoint.names.publish(Directory::build(&members, is_settled));
    }
}
