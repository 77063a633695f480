//! Keeps what is known of sign-ins up to date: the news that other gateways told, and room for more. Of several gateways it
//! tells which keys each has, and of the Redis that they share whether it keeps what it is given.
//!
//! One task of the control thread. At the start the news is read before the first call: a token whose sign-in was ended must
//! not be good again after a restart.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::clock::now_s;
use crate::context::state::State;
use crate::grants::Grants;
use crate::grants::fleet::{KEYS_INTERVAL_S, RedisFault};
use crate::telemetry::metrics::gauge;

/// News is read so often: what was told in vain is known within a second.
const INTERVAL: Duration = Duration::from_millis(500);
const TICKS_PER_S: u64 = 2;
/// Room is made, and Redis is asked how it is set, after so many seconds.
const SWEEP_AFTER_S: u64 = 30;

/// Things that the operator was told of several gateways.
#[derive(Default)]
struct FleetWatch {
    told_keys: String,
    /// The last attempt to tell them came through.
    are_told: bool,
    /// Looks in a row at which a key was lacking. One may come while a file is handed out.
    lacking: u32,
    faults: Vec<RedisFault>,
}

/// Reads what happened to sign-ins; at the start, and again and again where gateways share them.
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
    let mut watch = FleetWatch::default();
    for tick in 0_u64.. {
        interval.tick().await;
        let Some(grants) = state.grants.load_full() else { continue };
        if grants.has_news_to_read() {
            learn(&state).await;
        }
        watch.look(&state, &grants, tick).await;
        if tick.is_multiple_of(SWEEP_AFTER_S * TICKS_PER_S) {
            sweep(&state, &grants).await;
        }
    }
}

impl FleetWatch {
    async fn look(&mut self, state: &State, grants: &Grants, tick: u64) {
        if !grants.is_shared_now() {
            // The next connection may lead to another Redis.
            self.told_keys.clear();
            return;
        }
        let keys = grants.key_names();
        let is_new = keys != self.told_keys;
        if is_new || !self.are_told || tick.is_multiple_of(KEYS_INTERVAL_S * TICKS_PER_S) {
            let told = grants.tell_keys().await;
            self.are_told = told.is_ok();
            match told {
                Ok(is_lacking) => self.tell_of_keys(is_lacking),
                Err(error) => tracing::debug!(%error, "other gateways cannot be told of keys"),
            }
        }
        if is_new || tick.is_multiple_of(SWEEP_AFTER_S * TICKS_PER_S) {
            self.tell_of_faults(state, grants.redis_faults().await);
        }
        self.told_keys = keys;
    }

    fn tell_of_keys(&mut self, is_lacking: bool) {
        self.lacking = if is_lacking { self.lacking.saturating_add(1) } else { 0 };
        if self.lacking == 2 {
            tracing::warn!(
                "other gateways have a key of [sign_in] that this one lacks: what they seal with it has to wait here; give all the same file"
            );
        }
    }

    fn tell_of_faults(&mut self, state: &State, found: Option<Vec<RedisFault>>) {
        let Some(found) = found else {
            tracing::debug!("Redis does not tell how it is set: its user needs `+info`");
            return;
        };
        for fault in RedisFault::ALL {
            let is_there = found.contains(&fault);
            state.metrics.sign_in.redis_faults.with_label_values(&[fault.word()]).set(is_there.into());
            if is_there && !self.faults.contains(&fault) {
                tracing::warn!("sign-ins: {}", fault.advice());
            }
        }
        self.faults = found;
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
