//! Learning which upstream offers which names, for endpoints that route by them.
//!
//! Runs on the control thread: every upstream of such an endpoint is listed at start, again at intervals, and
//! after a failure with growing pauses. Capabilities are claimed in full, so that no upstream hides a name
//! from us; nothing is ever called.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use super::List;
use super::fetch::{Fetcher, Part};
use crate::limit::buffered::Buffered;
use crate::mapper::kind_of;
use crate::protocol::error::UpstreamError;
use crate::protocol::json::Scratch;
use crate::protocol::mapping::Field;
use crate::route::Kind;
use crate::route::directory::{Directory, MemberNames};
use crate::snapshot::Snapshot;
use crate::state::State;
use crate::upstream::exchange::Client;
use crate::upstream::{Upstream, UpstreamId};

/// What the gateway says about itself when it lists for its own use.
const META: &str = concat!(
    r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"trunkline","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{},"context":{}},"roots":{}}}"#
);

/// How often names are learned anew.
const REFRESH_INTERVAL: Duration = Duration::from_mins(1);
const RETRY_INTERVAL_MIN: Duration = Duration::from_millis(500);
const RETRY_INTERVAL_MAX: Duration = Duration::from_secs(30);
/// Upstreams listed at once.
const CONCURRENT_MAX: usize = 32;
/// How often it is looked whether something is due.
const TICK: Duration = Duration::from_millis(250);

/// Learns until the process ends.
pub async fn run(state: Arc<State>, client: Client) {
    let learner =
        Rc::new(Learner { budget: Arc::clone(&state.buffered), client, scratch: RefCell::default() });
    let mut known: HashMap<UpstreamId, Known> = HashMap::new();
    let mut asked: FuturesUnordered<LocalBoxFuture<'static, Learned>> = FuturesUnordered::new();
    let mut interval = tokio::time::interval(TICK);
    let mut published: Option<Arc<Snapshot>> = None;
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            // Each result counts as soon as it is there: a slow upstream holds up nobody.
            Some((upstream, names)) = asked.next() => note(&mut known, &upstream, names),
        }
        let now = Instant::now();
        learner.client.pools.sweep(now);
        let snapshot = state.snapshot.load_full();
        let needed = needed(&snapshot);
        known.retain(|id, _| needed.iter().any(|upstream| upstream.id == *id));
        for upstream in needed {
            if asked.len() < CONCURRENT_MAX && known.get(&upstream.id).is_none_or(|known| known.due <= now) {
                // Not due again before it has answered.
                let entry = known.entry(upstream.id).or_insert_with(|| Known::new(now));
                entry.due = now + REFRESH_INTERVAL;
                let upstream = Arc::clone(upstream);
                asked.push(Rc::clone(&learner).names_of(upstream, Arc::clone(&snapshot)).boxed_local());
            }
        }
        let is_new = published.as_ref().is_none_or(|published| !Arc::ptr_eq(published, &snapshot));
        if is_new || known.values().any(|known| known.is_changed) {
            for known in known.values_mut() {
                known.is_changed = false;
            }
            publish(&snapshot, &known);
            published = Some(snapshot);
        }
    }
}

struct Learner {
    client: Client,
    scratch: RefCell<Scratch>,
    budget: Arc<Buffered>,
}

impl Learner {
    async fn names_of(self: Rc<Self>, upstream: Arc<Upstream>, snapshot: Arc<Snapshot>) -> Learned {
        let fetcher = Fetcher {
            client: &self.client,
            scratch: &self.scratch,
            limits: &snapshot.limits,
            budget: &self.budget,
            meta: META,
        };
        let names = names_of(fetcher, &upstream).await;
        (upstream, names)
    }
}

type Learned = (Arc<Upstream>, Result<MemberNames, UpstreamError>);

struct Known {
    names: Option<MemberNames>,
    due: Instant,
    failures: u32,
    was_tried: bool,
    is_changed: bool,
}

impl Known {
    fn new(now: Instant) -> Self {
        Self { names: None, due: now, failures: 0, was_tried: false, is_changed: true }
    }
}

fn needed(snapshot: &Snapshot) -> Vec<&Arc<Upstream>> {
    let mut slots: Vec<usize> = snapshot
        .endpoints
        .iter()
        .filter(|endpoint| endpoint.naming.needs_directory())
        .flat_map(|endpoint| endpoint.members.iter().copied())
        .collect();
    slots.sort_unstable();
    slots.dedup();
    slots.into_iter().filter_map(|slot| snapshot.upstreams.get(slot)).collect()
}

async fn names_of(fetcher: Fetcher<'_>, upstream: &Upstream) -> Result<MemberNames, UpstreamError> {
    let mut names = MemberNames::default();
    for list in List::ALL {
        let part = fetcher.list(upstream, list).await?;
        let into = match list {
            List::Tools => &mut names.tools,
            List::Prompts => &mut names.prompts,
            List::Resources => &mut names.resources,
            List::Templates => &mut names.templates,
        };
        *into = own_names(&part, list);
    }
    Ok(names)
}

fn own_names(part: &Part, list: List) -> Vec<String> {
    let is_own = |field: Field| match kind_of(field) {
        Kind::Tool => list == List::Tools,
        Kind::Prompt => list == List::Prompts,
        Kind::Resource => matches!(list, List::Resources | List::Templates),
        Kind::Task => false,
    };
    let pages = part.pages.iter();
    pages
        .flat_map(|page| page.items.iter().map(move |item| (page, item)))
        .filter_map(|(page, item)| {
            let site = item.sites.iter().find(|site| is_own(site.field))?;
            site.literal.decode(&page.body).map(String::from)
        })
        .collect()
}

fn note(
    known: &mut HashMap<UpstreamId, Known>,
    upstream: &Upstream,
    names: Result<MemberNames, UpstreamError>,
) {
    let now = Instant::now();
    // It may have been removed while it was asked.
    let Some(entry) = known.get_mut(&upstream.id) else { return };
    entry.was_tried = true;
    entry.is_changed = true;
    match names {
        Ok(names) => {
            entry.failures = 0;
            entry.due = now + REFRESH_INTERVAL;
            entry.names = Some(names);
        }
        Err(error) => {
            if entry.failures == 0 {
                tracing::warn!(upstream = upstream.config.name, %error, "cannot learn what this upstream offers");
            }
            let pause = RETRY_INTERVAL_MIN.saturating_mul(1 << entry.failures.min(16));
            entry.failures += 1;
            entry.due = now + pause.min(RETRY_INTERVAL_MAX);
        }
    }
}

/// Gives every endpoint that routes by names what is known now.
fn publish(snapshot: &Snapshot, known: &HashMap<UpstreamId, Known>) {
    for endpoint in snapshot.endpoints.iter().filter(|endpoint| endpoint.naming.needs_directory()) {
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
