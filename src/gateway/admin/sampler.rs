//! Takes the counts of all calls every few seconds, so that it can be said what goes on now and went on lately.
//!
//! It is done on the blocking pool, by one at a time, and the more it takes the less often it is done: each time is
//! followed by a hundred times as long without, though never by more than a minute. What it takes is the time it computes:
//! on a busy machine, where it comes last, it is done as often as on an idle one. Bounded by the series there are.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::sleep;

use super::answers::json_line;
use super::minute::LastMinute;
use super::samples::{INTERVAL_MIN, Moment, Samples, Subject, interval_after};
use super::status::{connections_refused, unix_s};
use crate::clock;
use crate::context::state::State;
use crate::snapshot::Snapshot;
use crate::telemetry::totals::{Counts, Sums, Total, Totals};
use net::tasks::Tasks;
use status::{Seen, SeenCalls};

/// Takes counts.
#[derive(Debug)]
pub(super) struct StatusSampler {
    state: Arc<State>,
    history: Mutex<Samples>,
    minute: Mutex<LastMinute>,
    /// `None`: nothing is measured.
    sums: Option<Mutex<Sums>>,
}

impl StatusSampler {
    /// Counts from now on.
    pub(super) fn new(state: Arc<State>) -> Self {
        let (endpoints, upstreams) = subjects(&state.snapshot.load());
        let history = Samples::new(unix_s(clock::calendar()), Arc::default(), &endpoints, &upstreams);
        let sums = state.metrics.sums().map(Mutex::new);
        let mut minute = LastMinute::default();
        minute.add(clock::now(), seen(&state, None));
        Self { state, history: Mutex::new(history), minute: Mutex::new(minute), sums }
    }

    /// Keeps the history until the process ends.
    pub(super) async fn run(self: Arc<Self>, tasks: Tasks) {
        let (mut last, mut interval) = (clock::now(), INTERVAL_MIN);
        loop {
            sleep(interval).await;
            let this = Arc::clone(&self);
            let (begun, cost) = tasks.compute(move || this.sample(last)).await;
            (last, interval) = (begun, interval_after(cost));
        }
    }

    /// The counts as they are; `None`: nothing is measured. May take long.
    pub(super) fn figures(&self) -> Option<Arc<Counts>> {
        let sums = self.sums.as_ref()?;
        Some(sums.lock().figures())
    }

    /// What went on lately, as text.
    pub(super) fn history_text(&self) -> Bytes {
        json_line(&self.history().lines())
    }

    /// What went on lately.
    pub(super) fn history(&self) -> MutexGuard<'_, Samples> {
        self.history.lock()
    }

    /// Counts of a minute ago, with what is known since of the subjects in `history`.
    pub(super) fn before(&self, history: &Samples) -> Option<Seen> {
        let before = self.minute.lock().before(clock::now())?;
        let mut before = Seen::clone(&before);
        for (path, calls) in &mut before.endpoints {
            calls.failing_since_s = history.failing_since_s(Subject::Endpoint(path));
        }
        for (name, calls) in &mut before.upstreams {
            calls.failing_since_s = history.failing_since_s(Subject::Upstream(name));
        }
        Some(before)
    }

    /// When it was begun, and how long it computed.
    fn sample(&self, last: Instant) -> (Instant, Duration) {
        let (begun, work) = (clock::now(), clock::thread_work());
        let figures = self.figures();
        self.minute.lock().add(begun, seen(&self.state, figures.as_deref()));
        if let Some(figures) = figures {
            self.add(last, begun, figures);
        }
        (begun, clock::thread_work().saturating_sub(work))
    }

    fn add(&self, last: Instant, begun: Instant, figures: Arc<Counts>) {
        let (endpoints, upstreams) = subjects(&self.state.snapshot.load());
        let since = begun.saturating_duration_since(last);
        let moment = Moment { at_s: unix_s(clock::calendar()), since };
        self.history().add(moment, figures, &endpoints, &upstreams);
    }
}

/// The counts as they are. `figures`: those of calls; `None`: none was counted yet, or nothing is measured.
fn seen(state: &State, figures: Option<&Counts>) -> Seen {
    let snapshot = state.snapshot.load();
    let (endpoints, upstreams) = subjects(&snapshot);
    let spans = &state.metrics.gateway.trace_spans;
    Seen {
        endpoints: calls(endpoints, figures.map(|figures| &figures.endpoints)),
        upstreams: calls(upstreams, figures.map(|figures| &figures.upstreams)),
        limits: snapshot
            .rates
            .all()
            .map(|limiter| (limiter.limit.name.clone(), limiter.series.refused.get()))
            .collect(),
        connections_refused: connections_refused(state),
        spans_dropped: spans.dropped.get(),
        spans_failed: spans.failed.get(),
    }
}

/// The calls of each of these.
fn calls(names: Vec<String>, totals: Option<&Totals>) -> HashMap<String, SeenCalls> {
    let of = |total: &Total| {
        let Total { calls, errors, reasons, .. } = total;
        SeenCalls { calls: *calls, errors: *errors, reasons: reasons.clone(), failing_since_s: None }
    };
    let one = |name: String| {
        let calls = totals.and_then(|totals| totals.get(&name)).map(of).unwrap_or_default();
        (name, calls)
    };
    names.into_iter().map(one).collect()
}

/// Paths of endpoints, and names of upstreams.
fn subjects(snapshot: &Snapshot) -> (Vec<String>, Vec<String>) {
    let paths = snapshot.endpoints.iter().map(|endpoint| endpoint.config.name.clone());
    (paths.collect(), snapshot.upstreams.iter().map(|upstream| upstream.config.name.clone()).collect())
}
