//! Keeps what is known of sign-ins up to date: the news that other gateways told, and room for more.
//!
//! One task of the control thread. At the start the news is read before the first call: a token whose sign-in was ended must
//! not be good again after a restart.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::clock::now_s;
use crate::context::state::State;
use crate::grants::Grants;
use crate::telemetry::metrics::gauge;

/// News that was missed is asked for so often, and room is made after so many times.
const INTERVAL: Duration = Duration::from_secs(1);
const SWEEP_AFTER: u32 = 30;

/// Reads what happened to sign-ins; at the start, and each time that something may have been missed.
pub(super) async fn learn(state: &State) {
    let Some(grants) = state.grants.load_full() else { return };
    if let Err(error) = grants.learn_news().await {
        state.metrics.sign_in.store_failures.inc();
        tracing::warn!(%error, "it cannot be read which sign-ins were ended");
    }
}

/// Runs until the process ends.
pub(super) async fn run(state: Arc<State>) {
    let mut interval = interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ticks = 0_u32;
    loop {
        interval.tick().await;
        if let Some(grants) = state.grants.load_full() {
            if grants.is_behind() {
                learn(&state).await;
            }
            if ticks.is_multiple_of(SWEEP_AFTER) {
                sweep(&state, &grants).await;
            }
        }
        ticks = ticks.wrapping_add(1);
    }
}

async fn sweep(state: &State, grants: &Grants) {
    grants.news.sweep(now_s());
    match grants.sweep().await {
        Ok(Some(sizes)) => {
            for (kind, size) in &sizes.kinds {
                let records = gauge(usize::try_from(size.records).unwrap_or(usize::MAX));
                state.metrics.sign_in.records.with_label_values(&[kind]).set(records);
            }
            let bytes = gauge(usize::try_from(sizes.file_bytes).unwrap_or(usize::MAX));
            state.metrics.sign_in.store_bytes.set(bytes);
        }
        Ok(None) => {}
        Err(error) => {
            state.metrics.sign_in.store_failures.inc();
            tracing::warn!(%error, "the store of sign-ins cannot be swept");
        }
    }
}
