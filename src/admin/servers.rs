//! Endpoints and upstreams as `/status` and `/readyz` tell them.

use std::collections::HashMap;

use prometheus::{IntCounter, IntGauge};
use serde_json::{Value, json};

use crate::catalog::{Kind, List};
use crate::protocol::version::Eras;
use crate::snapshot::{Endpoint, Snapshot};
use crate::state::State;
use crate::telemetry::bridge::BridgeSeries;
use crate::telemetry::totals::{Total, Totals};
use crate::upstream::{Replica, Transport, Upstream, UpstreamId};

/// Endpoints of which no upstream is fit, a line each.
pub(super) fn unfit(state: &State) -> impl Iterator<Item = String> {
    let snapshot = state.snapshot.load_full();
    let paths = snapshot.endpoints.iter().filter(|endpoint| !is_fit(state, &snapshot, endpoint));
    let lines: Vec<_> =
        paths.map(|endpoint| format!("{}: no upstream is fit", endpoint.config.path)).collect();
    lines.into_iter()
}

/// All endpoints, in configured order.
pub(super) fn endpoints(state: &State, snapshot: &Snapshot, tools: &Tools) -> Vec<Value> {
    let totals = state.metrics.endpoint_totals();
    let mut lists: HashMap<u64, usize> = HashMap::new();
    for (key, merged) in &state.catalog.merged {
        if key.kind == Kind::List(List::Tools) {
            let longest = lists.entry(key.endpoint).or_default();
            *longest = merged.bytes().max(*longest);
        }
    }
    let one = |endpoint: &std::sync::Arc<Endpoint>| {
        let members = endpoint.members.iter().filter_map(|at| snapshot.upstreams.get(*at));
        let known: Vec<_> = members.clone().filter_map(|upstream| tools.get(&upstream.id)).collect();
        // What crosses untouched is kept as its upstream's.
        let untouched = || known.iter().map(|known| known.bytes).sum::<usize>();
        let mut told = json!({
            "path": endpoint.config.path,
            "eras": eras(Some(endpoint.eras())),
            "upstreams": endpoint.config.upstreams,
            "fit": is_fit(state, snapshot, endpoint),
            "tools": known.iter().map(|known| known.count).sum::<usize>(),
            "list_bytes": lists.get(&endpoint.id).copied().unwrap_or_else(untouched),
        });
        add_totals(&mut told, totals.as_ref(), &endpoint.config.path);
        told
    };
    snapshot.endpoints.iter().map(one).collect()
}

/// All upstreams, in configured order.
pub(super) fn upstreams(state: &State, snapshot: &Snapshot, tools: &Tools) -> Vec<Value> {
    let totals = state.metrics.upstream_totals();
    let one = |upstream: &std::sync::Arc<Upstream>| {
        let (name, series) = (&upstream.config.name, &upstream.series);
        let known = tools.get(&upstream.id);
        let mut told = json!({
            "name": name,
            "transport": match &upstream.transport { Transport::Http(_) => "http", Transport::Stdio(_) => "stdio" },
            "eras": eras(upstream.eras()),
            "fit": is_upstream_fit(state, upstream),
            "tools": known.map(|known| known.count),
            "list_bytes": known.map(|known| known.bytes),
            "connections": series.connections.get(),
            "connects_failed": series.connect_failed.get(),
            "retries": series.retries.get(),
            "breaker_openings": series.breaker_openings.get(),
            "sessions_opened": series.sessions_opened.get(),
            "sessions_lost": series.sessions_lost.get(),
            "listens": series.listens.get(),
            "replicas": upstream.replicas.load().iter().map(|one| replica(one)).collect::<Vec<_>>(),
        });
        add_totals(&mut told, totals.as_ref(), name);
        if upstream.is_child() {
            let children = state.metrics.children(name);
            told["children"] = json!({
                "running": children.running.get(),
                "starts": children.started.get(),
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
        if upstream.pins.is_some() {
            let series = state.metrics.pins.of(name);
            let [pinned, changed, new] = series.counts();
            told["pins"] = json!({
                "pinned": pinned,
                "changed": changed,
                "new": new,
                "unreadable": series.unreadable.get() == 1,
            });
        }
        told
    };
    snapshot.upstreams.iter().map(one).collect()
}

fn bridge(series: &BridgeSeries) -> Value {
    json!({
        "requests": series.calls.iter().map(IntCounter::get).sum::<u64>(),
        "rounds": series.rounds.iter().map(IntCounter::get).sum::<u64>(),
        "sessions": series.sessions.iter().map(IntGauge::get).sum::<i64>(),
        "parked": series.parked.get(),
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
#[derive(Clone, Copy, Default)]
pub(super) struct Known {
    count: usize,
    bytes: usize,
}

/// Lists of tools by upstream.
pub(super) type Tools = HashMap<UpstreamId, Known>;

/// The longest lists of tools that are kept, by upstream.
pub(super) fn tools(state: &State) -> Tools {
    let mut known = Tools::new();
    for (key, part) in &state.catalog.parts {
        if key.kind == Kind::List(List::Tools) {
            let pages = &part.content.pages;
            let found = Known {
                count: pages.iter().map(|page| page.items.len()).sum(),
                bytes: pages.iter().map(|page| page.body.len()).sum(),
            };
            let longest = known.entry(key.upstream).or_default();
            if found.bytes > longest.bytes {
                *longest = found;
            }
        }
    }
    known
}

fn is_fit(state: &State, snapshot: &Snapshot, endpoint: &Endpoint) -> bool {
    let mut members = endpoint.members.iter().filter_map(|at| snapshot.upstreams.get(*at));
    members.any(|upstream| is_upstream_fit(state, upstream))
}

fn is_upstream_fit(state: &State, upstream: &Upstream) -> bool {
    let is_crashing = || state.metrics.children(&upstream.config.name).crash_loop.get() == 1;
    !(upstream.is_out_of_order() || upstream.is_child() && is_crashing())
}

fn eras(eras: Option<Eras>) -> Vec<&'static str> {
    let named = |eras: Eras| [(eras.modern, "modern"), (eras.legacy, "legacy")];
    eras.map(named).into_iter().flatten().filter(|(is_spoken, _)| *is_spoken).map(|(_, era)| era).collect()
}

fn add_totals(told: &mut Value, totals: Option<&Totals>, value: &str) {
    let Some(totals) = totals else { return };
    let none = Total::default();
    let total = totals.get(value).unwrap_or(&none);
    told["calls"] = json!(total.calls);
    told["errors"] = json!(total.errors);
    told["seconds"] = json!(total.seconds);
    for (name, percent) in [("p50_s", 50), ("p90_s", 90), ("p99_s", 99)] {
        told[name] = json!(total.quantile(percent));
    }
}
