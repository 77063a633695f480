//! Takes the counts of all calls every few seconds, so that it can be said what goes on now and went on lately.
//!
//! It is done on the blocking pool, by one at a time, and the more it takes the less often it is done: each time is
//! followed by a hundred times as long without, though never by more than a minute. What it takes is the time it computes:
//! on a busy machine, where it comes last, it is done as often as on an idle one. Bounded by the series there are.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::sleep;

use super::samples::{INTERVAL_MIN, Moment, Samples, interval_after};
use super::status::{json_line, unix_s};
use crate::clock;
use crate::context::state::State;
use crate::snapshot::Snapshot;
use crate::telemetry::totals::{Counts, Sums};
use net::tasks::Tasks;

/// Takes counts.
#[derive(Debug)]
pub(super) struct StatusSampler {
    state: Arc<State>,
    history: Mutex<Samples>,
    /// `None`: nothing is measured.
    sums: Option<Mutex<Sums>>,
}

impl StatusSampler {
    /// Counts from now on.
    pub(super) fn new(state: Arc<State>) -> Self {
        let (endpoints, upstreams) = subjects(&state.snapshot.load());
        let history = Samples::new(unix_s(clock::calendar()), Arc::default(), &endpoints, &upstreams);
        let sums = state.metrics.sums().map(Mutex::new);
        Self { state, history: Mutex::new(history), sums }
    }

    /// Keeps the history; ends at once where nothing is measured.
    pub(super) async fn run(self: Arc<Self>, tasks: Tasks) {
        let (mut last, mut interval) = (clock::now(), INTERVAL_MIN);
        loop {
            sleep(interval).await;
            let this = Arc::clone(&self);
            let Some((begun, cost)) = tasks.compute(move || this.sample(last)).await else { return };
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

    /// When it was begun, and how long it computed.
    fn sample(&self, last: Instant) -> Option<(Instant, Duration)> {
        let (begun, work) = (clock::now(), clock::thread_work());
        let figures = self.figures()?;
        let (endpoints, upstreams) = subjects(&self.state.snapshot.load());
        let since = begun.saturating_duration_since(last);
        let moment = Moment { at_s: unix_s(clock::calendar()), since };
        self.history().add(moment, figures, &endpoints, &upstreams);
        Some((begun, clock::thread_work().saturating_sub(work)))
    }
}

/// Paths of endpoints, and names of upstreams.
fn subjects(snapshot: &Snapshot) -> (Vec<String>, Vec<String>) {
    let paths = snapshot.endpoints.iter().map(|endpoint| endpoint.config.name.clone());
    (paths.collect(), snapshot.upstreams.iter().map(|upstream| upstream.config.name.clone()).collect())
}
