//! Endpoints and upstreams as `/status` and `/readyz` tell them.

use std::collections::HashMap;
use std::sync::Arc;

use prometheus::{IntCounter, IntGauge};
use serde_json::{Value, json};

use super::history::{History, Subject};
use crate::context::state::State;
use crate::snapshot::{Endpoint, Snapshot};
use crate::tables::lists::CatalogQuery;
use crate::tables::lists::List;
use crate::tables::lists::part::ListPart;
use crate::telemetry::metrics::families::BridgeSeries;
use crate::telemetry::totals::{Figures, Total};
use crate::upstream::{Replica, Transport, Upstream, UpstreamId};
use config::{AuthMethod, Names};
use protocol::version::Eras;

/// Tools whose definitions wait for approval that are named.
const WAITING_MAX: usize = 20;

/// What was found out beforehand.
pub(super) struct Seen<'s> {
    /// Lists of tools.
    pub(super) tools: &'s Tools,
    /// What was counted; `None`: nothing is measured.
    pub(super) figures: Option<&'s Figures>,
    /// What went on lately.
    pub(super) history: &'s History,
}

/// Endpoints of which no upstream is fit, a line each.
pub(super) fn unfit(state: &State) -> impl Iterator<Item = String> {
    let snapshot = state.snapshot.load_full();
    let paths = snapshot.endpoints.iter().filter(|endpoint| !is_fit(&snapshot, endpoint));
    let lines: Vec<_> =
        paths.map(|endpoint| format!("{}: no upstream is fit", endpoint.config.path)).collect();
    lines.into_iter()
}

/// All endpoints, in configured order.
pub(super) fn endpoints(state: &State, snapshot: &Snapshot, seen: &Seen<'_>) -> Vec<Value> {
    let none = Total::default();
    let mut lists: HashMap<u64, usize> = HashMap::new();
    for (key, merged) in &state.catalog.merged {
        if key.kind == CatalogQuery::List(List::Tools) {
            let longest = lists.entry(key.endpoint).or_default();
            *longest = merged.bytes().max(*longest);
        }
    }
    let one = |endpoint: &Arc<Endpoint>| {
        let members = endpoint.members.iter().filter_map(|at| snapshot.upstreams.get(*at));
        let known: Vec<_> = members.clone().filter_map(|upstream| seen.tools.get(&upstream.id)).collect();
        // What crosses untouched is kept as its upstream's.
        let untouched = || known.iter().map(|known| known.bytes).sum::<usize>();
        let mut told = json!({
            "path": endpoint.config.path,
            "eras": eras(Some(endpoint.eras())),
            "upstreams": endpoint.config.upstreams,
            "names": match endpoint.config.names {
                Names::Transparent => "transparent",
                Names::Prefixed => "prefixed",
                Names::Bare => "bare",
            },
            "auth": endpoint.config.auth.iter().copied().map(auth_method).collect::<Vec<_>>(),
            "fit": is_fit(snapshot, endpoint),
            "tools": known.iter().map(|known| known.count).sum::<usize>(),
            "list_bytes": lists.get(&endpoint.id).copied().unwrap_or_else(untouched),
        });
        let path = &endpoint.config.path;
        let total = seen.figures.map(|figures| figures.endpoints.get(path).unwrap_or(&none));
        add_totals(&mut told, total, seen.history.recent(Subject::Endpoint(path)));
        told
    };
    snapshot.endpoints.iter().map(one).collect()
}

/// All upstreams, in configured order.
pub(super) fn upstreams(state: &State, snapshot: &Snapshot, seen: &Seen<'_>) -> Vec<Value> {
    let none = Total::default();
    let one = |upstream: &Arc<Upstream>| {
        let (name, series) = (&upstream.config.name, &upstream.series);
        let known = seen.tools.get(&upstream.id);
        let mut told = json!({
            "name": name,
            "transport": match &upstream.transport { Transport::Http(_) => "http", Transport::Stdio(_) => "stdio" },
            "eras": eras(upstream.eras()),
            "fit": is_upstream_fit(upstream),
            "tools": known.map(|known| known.count),
            "list_bytes": known.map(|known| known.bytes),
            "connections": series.connections.get(),
            "connects_failed": series.connects.error.get(),
            "retries": series.retries.get(),
            "breaker_openings": series.breaker_openings.get(),
            "sessions_opened": series.sessions_opened.get(),
            "sessions_lost": series.sessions_lost.get(),
            "listens": series.listens.get(),
            "replicas": upstream.replicas.load().iter().map(|one| replica(one)).collect::<Vec<_>>(),
        });
        let total = seen.figures.map(|figures| figures.upstreams.get(name).unwrap_or(&none));
        add_totals(&mut told, total, seen.history.recent(Subject::Upstream(name)));
        if let Transport::Stdio(children) = &upstream.transport {
            let children = children.series();
            told["children"] = json!({
                "running": children.running.get(),
                "starts": children.starts.ok.get(),
                "crashes": children.crashes.get(),
                "crash_loop": children.crash_loop.get() == 1,
            });
        }
        if let (Some(gate), Some(bounds)) = (&upstream.gate, &upstream.config.concurrency) {
            let counts = gate.counts();
            told["calls_at_once"] = json!({
                "max": bounds.calls_max,
                "in_use": counts.in_use,
                "waiting": counts.waiting,
                "refused": gate.series.refused.get(),
            });
        }
        if upstream.is_bridged() {
            told["bridge"] = bridge(&upstream.bridge.series);
        }
        if let Some(pins) = &upstream.pins {
            let series = state.metrics.pins.of(name).states;
            told["pins"] = json!({
                "pinned": series.pinned.get(),
                "changed": series.changed.get(),
                "new": series.new.get(),
                "unreadable": series.unreadable.get() == 1,
                "unwritten": series.unwritten.get() == 1,
                "waiting": pins.waiting(WAITING_MAX),
            });
        }
        told
    };
    snapshot.upstreams.iter().map(one).collect()
}

fn bridge(series: &BridgeSeries) -> Value {
    json!({
        "requests": series.requests.each().map(IntCounter::get).sum::<u64>(),
        "rounds": series.rounds.each().map(IntCounter::get).sum::<u64>(),
        "sessions": series.sessions.each().map(IntGauge::get).sum::<i64>(),
        "parked": series.suspended.get(),
    })
}

fn replica(replica: &Replica) -> Value {
    json!({
        "address": replica.label,
        "breaker": replica.breaker.0.state().label(),
        "in_flight": replica.load.0.in_flight(),
        "answered": replica.load.0.answered(),
        "resolved": replica.address.is_some(),
    })
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

/// The longest lists of tools that are kept, by upstream.
pub(super) fn tools(state: &State) -> Tools {
    let mut known = Tools::new();
    for (key, part) in &state.catalog.parts {
        if key.kind == CatalogQuery::List(List::Tools) {
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

fn is_fit(snapshot: &Snapshot, endpoint: &Endpoint) -> bool {
    let mut members = endpoint.members.iter().filter_map(|at| snapshot.upstreams.get(*at));
    members.any(|upstream| is_upstream_fit(upstream))
}

fn is_upstream_fit(upstream: &Upstream) -> bool {
    let is_crashing = match &upstream.transport {
        Transport::Stdio(children) => children.series().crash_loop.get() == 1,
        Transport::Http(_) => false,
    };
    !(upstream.is_out_of_order() || is_crashing)
}

fn eras(eras: Option<Eras>) -> Vec<&'static str> {
    let named = |eras: Eras| [(eras.modern, "modern"), (eras.legacy, "legacy")];
    eras.map(named).into_iter().flatten().filter(|(is_spoken, _)| *is_spoken).map(|(_, era)| era).collect()
}

fn auth_method(method: AuthMethod) -> &'static str {
    match method {
        AuthMethod::ApiKey => "api_key",
        AuthMethod::Jwt => "jwt",
        AuthMethod::ClientCertificate => "client_certificate",
    }
}

/// What was counted, as an object; `recent` is what went on lately.
pub(super) fn totals(total: &Total, recent: Value) -> Value {
    let mut told = json!({});
    add_totals(&mut told, Some(total), recent);
    told
}

/// Adds what was counted, if anything is measured.
fn add_totals(told: &mut Value, total: Option<&Total>, recent: Value) {
    let Some(total) = total else { return };
    told["calls"] = json!(total.calls);
    told["errors"] = json!(total.errors);
    told["seconds"] = json!(total.seconds);
    for (name, percent) in [("p50_s", 50), ("p90_s", 90), ("p99_s", 99)] {
        told[name] = json!(total.quantile(percent));
    }
    told["reasons"] = json!(total.reasons);
    told["recent"] = recent;
}
