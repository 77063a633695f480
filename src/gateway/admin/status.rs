//! The state of the gateway as one JSON object: what a person or a page wants to see at a glance.
//!
//! Its members are documented in the README and only ever added to. Nothing in it is a secret, a URL's query or a name of
//! a caller. Made on the blocking pool from counters and what is shared anyway; it takes no lock that a call waits for.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::{Value, json};

use super::history::Subject;
use super::sampler::Sampler;
use super::servers::{self, Seen};
use super::{Process, tools};
use crate::context::reloads::ReloadOutcome;
use crate::context::state::State;

/// Counts that are read back from their metric, by the value of its label.
const CONNECTION_BOUNDS: [&str; 2] = ["connections_max", "connections_per_address_max"];

/// The state of the gateway as text.
pub(super) fn text(state: &State, process: &Process, sampler: &Sampler) -> Bytes {
    // Nothing in it can fail to be written.
    let mut text = serde_json::to_vec(&of(state, process, sampler)).unwrap_or_default();
    text.push(b'\n');
    text.into()
}

fn of(state: &State, process: &Process, sampler: &Sampler) -> Value {
    let snapshot = state.snapshot.load();
    let known = servers::tools(state);
    // Before the lock: it may take long.
    let figures = sampler.figures();
    let history = sampler.history();
    let seen = Seen { tools: &known, figures: figures.as_deref(), history: &history };
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "started_s": unix_s(process.started),
        "uptime_s": process.since.elapsed().as_secs(),
        "workers": process.workers,
        "drain": state.drain.phase(),
        "panics": state.metrics.gateway.panics.get(),
        "config": config(state, process, &snapshot.digest),
        "listeners": state.listeners.load().iter().map(|(address, is_tls)| {
            json!({ "address": address.to_string(), "tls": is_tls })
        }).collect::<Vec<_>>(),
        "connections": connections(state),
        "sample": history.sample(),
        "calls": figures.as_ref().map(|figures| servers::totals(&figures.all, history.recent(Subject::All))),
        "endpoints": servers::endpoints(state, &snapshot, &seen),
        "upstreams": servers::upstreams(state, &snapshot, &seen),
        "tools": figures.as_ref().map(|figures| tools::rankings(&snapshot, &known, figures, &history)),
        "limits": snapshot.rates.all().map(|limiter| json!({
            "name": limiter.limit.name,
            "calls": limiter.limit.calls,
            "period_s": limiter.limit.period.as_secs_f64(),
            "shared": limiter.limit.shared,
            "refused": limiter.series.refused.get(),
            "overflowed": limiter.series.overflowed.get(),
            "keys": limiter.keys(),
        })).collect::<Vec<_>>(),
        "cache": cache(state),
        "sessions": sessions(state),
        "certificates": state.tls.expiries().iter().map(|expiry| {
            json!({ "file": expiry.path.display().to_string(), "expires_s": expiry.ends_s })
        }).collect::<Vec<_>>(),
        "shared": shared(state),
        "traces": traces(state),
    })
}

fn config(state: &State, process: &Process, digest: &str) -> Value {
    let last = state.reloads.last().map(|(at, outcome)| {
        let mut told = json!({ "at_s": unix_s(at), "ok": outcome.is_ok() });
        match outcome {
            ReloadOutcome::Reloaded { changes, needs_restart } => {
                told["changes"] = json!(&changes[..]);
                told["needs_restart"] = json!(&needs_restart[..]);
            }
            ReloadOutcome::Refused(why) => told["error"] = json!(&*why),
            ReloadOutcome::Stopping => told["error"] = json!("the gateway is about to stop"),
        }
        told
    });
    json!({
        "file": process.source.as_ref().map(|path| path.display().to_string()),
        "sha256": digest,
        "last_reload": last,
    })
}

fn connections(state: &State) -> Value {
    let refused = |bound| state.metrics.connections.refused.with_label_values(&[bound]).get();
    json!({
        "open": state.connections.open(),
        "max": state.connections.max(),
        "accepted": state.metrics.connections.accepted.get(),
        "refused": CONNECTION_BOUNDS.into_iter().map(refused).sum::<u64>(),
        "buffered_bytes": state.buffered.held_bytes(),
    })
}

fn cache(state: &State) -> Value {
    let lists = &state.metrics.lists.cache;
    json!({
        "bytes": state.catalog.bytes(),
        "hits": lists.hit.get(),
        "stale": lists.stale.get(),
        "misses": lists.miss.get(),
        "errors": lists.error.get(),
    })
}

fn sessions(state: &State) -> Value {
    let counts = state.sessions.counts();
    json!({
        "live": counts.sessions,
        "revoked": counts.revoked,
        "upstream_sessions": counts.upstream_sessions,
        "streams": state.sessions.open_streams(),
        "upstream_streams": counts.upstream_streams,
        "subscriptions": state.hub.open(),
        "sse_streams": state.lines.open(),
    })
}

fn shared(state: &State) -> Value {
    let series = &state.metrics.shared;
    let told = state.shared.as_ref().map(|_| {
        json!({
            "connected": series.connected.get() == 1,
            "replicas": series.replicas.get(),
            "strangers": series.strangers.get(),
        })
    });
    told.unwrap_or_default()
}

fn traces(state: &State) -> Value {
    let spans = &state.metrics.gateway.trace_spans;
    let told = state.traces.as_ref().map(|_| {
        json!({
            "exported": spans.exported.get(),
            "rejected": spans.rejected.get(),
            "failed": spans.failed.get(),
            "dropped": spans.dropped.get(),
        })
    });
    told.unwrap_or_default()
}

pub(super) fn unix_s(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}
