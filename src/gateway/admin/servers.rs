//! Endpoints and upstreams as `/status` and `/readyz` tell them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus::{IntCounter, IntGauge};
use status::{
    BridgeStatus, CallSlots, ChildrenStatus, EndpointStatus, PinStatus, Recent, ReplicaStatus, UpstreamStatus,
};

use super::samples::{Samples, Subject};
use super::status::{count, unix_s};
use crate::clock;
use crate::context::state::State;
use crate::snapshot::{Endpoint, Snapshot};
use crate::tables::lists::cache::Scope;
use crate::tables::lists::part::ListPart;
use crate::tables::lists::{CatalogQuery, List};
use crate::telemetry::metrics::declare::LabelValues as _;
use crate::telemetry::metrics::families::BridgeSeries;
use crate::telemetry::totals::{Counts, Total, Totals};
use crate::upstream::{Replica, Transport, Upstream, UpstreamId};
use config::{AuthMethod, Names};
use protocol::version::Eras;

/// Tools whose definitions wait for approval that are named.
const WAITING_MAX: usize = 20;

/// What was found out beforehand.
pub(super) struct StatusSources<'s> {
    /// Lists of tools.
    pub(super) tools: &'s Tools,
    /// What was counted; `None`: nothing is measured.
    pub(super) figures: Option<&'s Counts>,
    /// What went on lately.
    pub(super) history: &'s Samples,
}

impl StatusSources<'_> {
    /// What was counted of one subject; nothing where nothing is measured.
    fn figures(
        &self,
        totals: impl Fn(&Counts) -> &Totals,
        name: &str,
        subject: Subject<'_>,
    ) -> status::Figures {
        let Some(all) = self.figures else { return status::Figures::default() };
        let none = Total::default();
        figures(totals(all).get(name).unwrap_or(&none), self.history.recent(subject))
    }
}

/// Endpoints without a healthy upstream, a line each.
pub(super) fn unhealthy(state: &State) -> impl Iterator<Item = String> {
    let snapshot = state.snapshot.load_full();
    let paths = snapshot.endpoints.iter().filter(|endpoint| !is_healthy(&snapshot, endpoint));
    let lines: Vec<_> =
        paths.map(|endpoint| format!("{}: no healthy upstream", endpoint.config.name)).collect();
    lines.into_iter()
}

/// All endpoints, in configured order.
pub(super) fn endpoints(state: &State, snapshot: &Snapshot, seen: &StatusSources<'_>) -> Vec<EndpointStatus> {
    let mut lists: HashMap<u64, usize> = HashMap::new();
    for (key, merged) in &state.catalog.merged {
        if key.kind == CatalogQuery::List(List::Tools) {
            let longest = lists.entry(key.endpoint).or_default();
            *longest = merged.bytes().max(*longest);
        }
    }
    let one = |endpoint: &Arc<Endpoint>| {
        let members = endpoint.members.iter().filter_map(|at| snapshot.upstreams.get(*at));
        let known: Vec<_> = members.filter_map(|upstream| seen.tools.get(&upstream.id)).collect();
        // What crosses untouched is kept as its upstream's.
        let untouched = || known.iter().map(|known| known.bytes).sum::<usize>();
        let path = &endpoint.config.name;
        let names = match endpoint.config.names {
            Names::Transparent => "transparent",
            Names::Prefixed => "prefixed",
            Names::Bare => "bare",
        };
        EndpointStatus {
            path: path.clone(),
            eras: eras(Some(endpoint.eras())),
            upstreams: endpoint.config.upstreams.clone(),
            names: Some(names.to_owned()),
            auth: Some(endpoint.config.auth.iter().copied().map(auth_method).collect()),
            healthy: Some(is_healthy(snapshot, endpoint)),
            down_since_s: endpoint_down_since_s(snapshot, endpoint),
            tools: Some(count(known.iter().map(|known| known.count).sum::<usize>())),
            list_bytes: Some(count(lists.get(&endpoint.id).copied().unwrap_or_else(untouched))),
            figures: seen.figures(|figures| &figures.endpoints, path, Subject::Endpoint(path)),
        }
    };
    snapshot.endpoints.iter().map(one).collect()
}

/// All upstreams, in configured order.
pub(super) fn upstreams(state: &State, snapshot: &Snapshot, seen: &StatusSources<'_>) -> Vec<UpstreamStatus> {
    let one = |upstream: &Arc<Upstream>| {
        let (name, series) = (&upstream.config.name, &upstream.series);
        let known = seen.tools.get(&upstream.id);
        let (transport, children) = match &upstream.transport {
            Transport::Http(_) => ("http", None),
            Transport::Stdio(children) => ("stdio", Some(children.series())),
        };
        UpstreamStatus {
            name: name.clone(),
            transport: transport.to_owned(),
            eras: eras(upstream.eras()),
            healthy: Some(is_upstream_healthy(upstream)),
            down_since_s: down_since_s(upstream),
            trouble: upstream.facts.trouble(),
            tools: known.map(|known| count(known.count)),
            list_bytes: known.map(|known| count(known.bytes)),
            connections: count(series.connections.get()),
            connects_failed: series.connects.error.get(),
            retries: series.retries.get(),
            breaker_openings: series.breaker_openings.get(),
            sessions_opened: series.sessions_opened.get(),
            sessions_lost: series.sessions_lost.get(),
            subscription_streams: count(series.subscription_streams.get()),
            replicas: upstream.replicas.load().iter().map(|one| replica(one)).collect(),
            children: children.map(|children| ChildrenStatus {
                running: count(children.running.get()),
                starts: children.starts.ok.get(),
                crashes: children.crashes.get(),
                crash_loop: children.crash_loop.get() == 1,
            }),
            concurrency: call_slots(upstream),
            bridge: upstream.is_bridged().then(|| bridge(&state.metrics.bridge.of(name))),
            pins: upstream.pins.as_ref().map(|pins| {
                let series = state.metrics.pins.of(name).states;
                PinStatus {
                    pinned: count(series.pinned.get()),
                    changed: count(series.changed.get()),
                    new: count(series.new.get()),
                    unreadable: series.unreadable.get() == 1,
                    unwritable: series.unwritable.get() == 1,
                    waiting: pins.waiting(WAITING_MAX),
                }
            }),
            figures: seen.figures(|figures| &figures.upstreams, name, Subject::Upstream(name)),
        }
    };
    snapshot.upstreams.iter().map(one).collect()
}

fn call_slots(upstream: &Upstream) -> Option<CallSlots> {
    let (gate, bounds) = (upstream.gate.as_ref()?, upstream.config.concurrency.as_ref()?);
    let counts = gate.counts();
    Some(CallSlots {
        max: count(bounds.calls_max),
        in_use: count(counts.in_use),
        waiting: count(counts.waiting),
        refused: gate.series.refused.get(),
    })
}

fn bridge(series: &BridgeSeries) -> BridgeStatus {
    BridgeStatus {
        requests: series.requests.each().map(IntCounter::get).sum(),
        input_requests: series.input_requests.each().map(IntCounter::get).sum(),
        sessions: count(series.sessions.each().map(IntGauge::get).sum::<i64>()),
        suspended: count(series.suspended.get()),
    }
}

fn replica(replica: &Replica) -> ReplicaStatus {
    ReplicaStatus {
        address: replica.label.to_string(),
        url: replica.url(),
        breaker: replica.breaker.0.state().label().to_owned(),
        down_since_s: replica.down_for(clock::now()).and_then(ago_s),
        in_flight: replica.load.in_flight(),
        answered: replica.load.answered(),
        resolved: Some(replica.address.is_some()),
    }
}

/// What an upstream's list of tools has come to.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) count: usize,
    pub(super) bytes: usize,
    pub(super) part: Arc<ListPart>,
}

/// Lists of tools by upstream.
pub(super) type Tools = HashMap<UpstreamId, Known>;

/// The longest lists of tools that are kept, by upstream. Those that one client alone is shown are for it alone.
pub(super) fn tools(state: &State) -> Tools {
    let mut known = Tools::new();
    for (key, part) in &state.catalog.parts {
        if key.kind == CatalogQuery::List(List::Tools) && key.scope == Scope::Gateway {
            let pages = &part.content.pages;
            let found = Known {
                count: pages.iter().map(|page| page.items.len()).sum(),
                bytes: pages.iter().map(|page| page.body.len()).sum(),
                part: Arc::clone(&part),
            };
            let longest = known.entry(key.upstream).or_insert_with(|| found.clone());
            if found.bytes > longest.bytes {
                *longest = found;
            }
        }
    }
    known
}

fn is_healthy(snapshot: &Snapshot, endpoint: &Endpoint) -> bool {
    let mut members = endpoint.members.iter().filter_map(|at| snapshot.upstreams.get(*at));
    members.any(|upstream| is_upstream_healthy(upstream))
}

fn is_upstream_healthy(upstream: &Upstream) -> bool {
    let is_crashing = match &upstream.transport {
        Transport::Stdio(children) => children.series().crash_loop.get() == 1,
        Transport::Http(_) => false,
    };
    !(upstream.is_out_of_order() || is_crashing)
}

/// Since when an upstream is not healthy, in seconds since 1970.
fn down_since_s(upstream: &Upstream) -> Option<u64> {
    let crashing = match &upstream.transport {
        Transport::Stdio(children) => children.crash_loop_since_s(),
        Transport::Http(_) => None,
    };
    let replicas = upstream.replicas.load();
    let (now, is_out) = (clock::now(), upstream.is_out_of_order());
    // Since the last of them went.
    let last = is_out.then(|| replicas.iter().filter_map(|replica| replica.down_for(now)).min()).flatten();
    crashing.into_iter().chain(last.and_then(ago_s)).min()
}

/// Since when none of its upstreams is healthy.
fn endpoint_down_since_s(snapshot: &Snapshot, endpoint: &Endpoint) -> Option<u64> {
    let members = endpoint.members.iter().filter_map(|at| snapshot.upstreams.get(*at));
    let since: Option<Vec<u64>> = members.map(|upstream| down_since_s(upstream)).collect();
    since?.into_iter().max()
}

/// So long ago, in seconds since 1970.
fn ago_s(span: Duration) -> Option<u64> {
    clock::calendar().checked_sub(span).map(unix_s)
}

fn eras(eras: Option<Eras>) -> Vec<String> {
    let named = |eras: Eras| [(eras.modern, "modern"), (eras.legacy, "legacy")];
    let spoken = eras.map(named).into_iter().flatten().filter(|(is_spoken, _)| *is_spoken);
    spoken.map(|(_, era)| era.to_owned()).collect()
}

fn auth_method(method: AuthMethod) -> String {
    let word = match method {
        AuthMethod::ApiKey => "api_key",
        AuthMethod::Jwt => "jwt",
        AuthMethod::ClientCertificate => "client_certificate",
    };
    word.to_owned()
}

/// What was counted; `recent` is what went on lately.
pub(super) fn figures(total: &Total, recent: Recent) -> status::Figures {
    status::Figures {
        calls: Some(total.calls),
        errors: Some(total.errors),
        seconds: total.seconds,
        p50_s: total.quantile(50),
        p90_s: total.quantile(90),
        p99_s: total.quantile(99),
        reasons: total.reasons.clone(),
        recent,
    }
}
