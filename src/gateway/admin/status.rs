//! The state of the gateway as one JSON object: what a person or a page wants to see at a glance.
//!
//! Its members are documented in the book's chapter on the admin API. Nothing in it is a secret, a URL's query or a
//! message. Made on the blocking pool from counters and what is shared anyway; it takes no lock that a call waits for.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use status::problems::problems;
use status::{
    Cache, CallerStatus, CallersStatus, Certificate, ConfigStatus, ConnectionsStatus, FailedCalls,
    LimitStatus, ListenerStatus, LogStatus, ReloadStatus, SessionsStatus, SharedStatus, StateFileFaultStatus,
    Status, TracesStatus,
};

use super::answers::json_line;
use super::list_cuts::list_cuts;
use super::sampler::StatusSampler;
use super::samples::Subject;
use super::servers::{self, StatusSources};
use super::{StartRecord, sign_in, tools};
use crate::access::limit::rate::Limiter;
use crate::access::tls::Expiry;
use crate::clock;
use crate::context::reloads::ReloadOutcome;
use crate::context::state::{ListenPlace, State};
use crate::state_files::StateFileFault;
use crate::telemetry::callers::CallerCounts;
use crate::telemetry::logs::{self, LogPlace};
use crate::telemetry::recent_errors::RecentError;

/// Counts that are read back from their metric, by the value of its label.
const CONNECTION_BOUNDS: [&str; 2] = ["connections_max", "connections_per_address_max"];

/// Principals in each of the two lists of them.
const CALLERS_MAX: usize = 20;

/// The state of the gateway as text.
pub(super) fn text(state: &State, process: &StartRecord, sampler: &StatusSampler) -> Bytes {
    json_line(&of(state, process, sampler))
}

fn of(state: &State, process: &StartRecord, sampler: &StatusSampler) -> Status {
    let snapshot = state.snapshot.load();
    let known = servers::tools(state);
    let cuts = list_cuts(state);
    // Before the lock: it may take long.
    let figures = sampler.figures();
    let history = sampler.history();
    let before = sampler.before(&history);
    let seen = StatusSources {
        tools: &known,
        cuts: &cuts,
        figures: figures.as_deref(),
        history: &history,
        before: before.as_ref(),
    };
    let upstreams = servers::upstreams(state, &snapshot, &seen);
    let mut status = Status {
        version: process.version.to_owned(),
        started_s: unix_s(process.started),
        uptime_s: clock::since(process.since).as_secs(),
        workers: count(process.workers),
        drain: state.drain.phase().to_owned(),
        panics: state.metrics.gateway.panics.get(),
        service: process.service.clone(),
        log: log(),
        config: config(state, process, &snapshot.digest),
        listeners: listeners(state),
        connections: connections(state),
        sample: history.sample(),
        calls: figures
            .as_ref()
            .map(|figures| servers::figures(&figures.all, history.recent(Subject::All)))
            .unwrap_or_default(),
        endpoints: servers::endpoints(state, &snapshot, &seen, &upstreams),
        upstreams,
        problems: None,
        tools: figures
            .as_ref()
            .map(|figures| tools::rankings(&snapshot, &known, figures, &history))
            .unwrap_or_default(),
        recent_errors: state.recent_errors.all().into_iter().map(failed_calls).collect(),
        callers: callers(state),
        limits: snapshot.rates.all().map(limit).collect(),
        cache: cache(state),
        sessions: sessions(state),
        state_directory_fault: state.catalog.files.fault().map(write_fault),
        certificates: certificates(state),
        shared: shared(state),
        sign_in: sign_in::of(state),
        traces: traces(state),
    };
    status.problems = Some(problems(&status, before.as_ref(), clock::now_s()));
    status
}

fn failed_calls(error: RecentError) -> FailedCalls {
    FailedCalls {
        at_s: error.at_s,
        first_s: error.first_s,
        calls: error.calls,
        outcome: error.outcome().to_owned(),
        endpoint: error.endpoint.map(String::from),
        upstream: error.upstream.map(String::from),
        method: error.method.to_owned(),
        name: error.name.map(String::from),
        reason: error.reason.label().to_owned(),
        message: error.message.map(String::from),
        principal: error.principal.map(String::from),
        request_id: error.request_id.into(),
    }
}

fn callers(state: &State) -> CallersStatus {
    let all = state.callers.all();
    let mut all: Vec<_> = all.iter().map(|caller| told(caller)).filter(|caller| caller.calls > 0).collect();
    let first = |all: &[CallerStatus], of: fn(&CallerStatus) -> u64| {
        all.iter().take_while(|caller| of(caller) > 0).take(CALLERS_MAX).cloned().collect()
    };
    let by_name = |a: &CallerStatus, b: &CallerStatus| a.principal.cmp(&b.principal);
    all.sort_unstable_by(|a, b| b.calls.cmp(&a.calls).then_with(|| by_name(a, b)));
    let busiest = first(&all, |caller| caller.calls);
    all.sort_unstable_by(|a, b| b.refused.cmp(&a.refused).then_with(|| by_name(a, b)));
    CallersStatus {
        known: count(all.len()),
        unidentified: state.callers.unidentified(),
        busiest,
        most_refused: first(&all, |caller| caller.refused),
    }
}

fn told(caller: &CallerCounts) -> CallerStatus {
    let (calls, errors, refused) = caller.counts();
    CallerStatus { principal: caller.principal.as_deref().map(str::to_owned), calls, errors, refused }
}

fn config(state: &State, process: &StartRecord, digest: &str) -> ConfigStatus {
    let last_reload = state.reloads.last().map(|(at, outcome)| {
        let told = ReloadStatus { at_s: unix_s(at), ok: outcome.is_ok(), ..ReloadStatus::default() };
        match outcome {
            ReloadOutcome::Reloaded { changes, needs_restart } => ReloadStatus {
                changes: changes.to_vec(),
                needs_restart: needs_restart.iter().map(ToString::to_string).collect(),
                ..told
            },
            ReloadOutcome::Refused(why) => ReloadStatus { error: Some(why.to_string()), ..told },
            ReloadOutcome::Stopping => {
                ReloadStatus { error: Some("the gateway is about to stop".to_owned()), ..told }
            }
        }
    });
    let file = process.source.as_ref().map(|path| path.display().to_string());
    ConfigStatus { file, sha256: digest.to_owned(), last_reload }
}

fn log() -> LogStatus {
    let (place, file) = match logs::place() {
        LogPlace::Journal => ("journal", None),
        LogPlace::File(file) => ("file", Some(file.display().to_string())),
        LogPlace::Terminal => ("terminal", None),
        LogPlace::Other => ("other", None),
    };
    LogStatus { place: place.to_owned(), file }
}

fn listeners(state: &State) -> Vec<ListenerStatus> {
    let one = |place: &ListenPlace| ListenerStatus {
        address: place.address.to_string(),
        tls: place.has_tls,
        unused_socket_unit: place.unused_socket_unit.clone(),
    };
    state.listeners.load().iter().map(one).collect()
}

fn limit(limiter: &Arc<Limiter>) -> LimitStatus {
    LimitStatus {
        name: limiter.limit.name.clone(),
        calls: limiter.limit.calls.into(),
        period_s: Some(limiter.limit.period.as_secs_f64()),
        shared: limiter.limit.shared,
        refused: limiter.series.refused.get(),
        overflowed: limiter.series.overflowed.get(),
        keys: count(limiter.keys()),
    }
}

fn certificates(state: &State) -> Vec<Certificate> {
    let one = |expiry: &Expiry| Certificate {
        file: expiry.path.display().to_string(),
        expires_s: Some(count(expiry.ends_s)),
        authority: expiry.is_authority,
    };
    state.tls.expiries().iter().map(one).collect()
}

pub(super) fn connections_refused(state: &State) -> u64 {
    let refused = |bound| state.metrics.connections.refused.with_label_values(&[bound]).get();
    CONNECTION_BOUNDS.into_iter().map(refused).sum()
}

fn connections(state: &State) -> ConnectionsStatus {
    ConnectionsStatus {
        open: count(state.connections.open()),
        max: Some(count(state.connections.max())),
        accepted: state.metrics.connections.accepted.get(),
        refused: connections_refused(state),
        buffered_bytes: count(state.buffered.taken()),
    }
}

fn cache(state: &State) -> Cache {
    let lists = &state.metrics.lists.cache;
    Cache {
        bytes: state.catalog.bytes(),
        hits: lists.hit.get(),
        stale: lists.stale.get(),
        misses: lists.miss.get(),
        errors: lists.error.get(),
    }
}

fn sessions(state: &State) -> SessionsStatus {
    let counts = state.sessions.counts();
    SessionsStatus {
        live: count(counts.sessions),
        revoked: count(counts.revoked),
        upstream_sessions: count(counts.upstream_sessions),
        streams: count(state.sessions.open_streams()),
        upstream_streams: count(counts.upstream_streams),
        subscriptions: count(state.hub.open()),
        sse_streams: count(state.lines.open()),
        journal_fault: state.sessions.journal_fault().map(write_fault),
    }
}

fn write_fault(fault: StateFileFault) -> StateFileFaultStatus {
    StateFileFaultStatus { since_s: fault.since_s, reason: fault.reason }
}

fn shared(state: &State) -> Option<SharedStatus> {
    let series = &state.metrics.shared;
    let since_s = state.shared.as_ref().map(|redis| redis.disconnected_since_s());
    since_s.map(|disconnected_since_s| SharedStatus {
        connected: disconnected_since_s.is_none(),
        disconnected_since_s,
        replicas: count(series.replicas.get()),
        mismatched: count(series.mismatched.get()),
    })
}

fn traces(state: &State) -> Option<TracesStatus> {
    let spans = &state.metrics.gateway.trace_spans;
    state.traces.as_ref().map(|_| TracesStatus {
        exported: spans.exported.get(),
        rejected: spans.rejected.get(),
        failed: spans.failed.get(),
        dropped: spans.dropped.get(),
    })
}

/// A count of whatever type, none of which is ever below zero.
pub(super) fn count(number: impl TryInto<u64>) -> u64 {
    number.try_into().unwrap_or_default()
}

pub(super) fn unix_s(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}
