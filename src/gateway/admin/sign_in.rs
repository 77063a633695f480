//! Sign-in as `/status` tells it: how much is kept, how sign-ins have ended, and what fails.

use ::status::{SignInFaultStatus, SignInStatus, SignInStoreStatus};

use crate::context::state::State;
use crate::grants::fleet::RedisFault;
use crate::grants::standing::StoreFigures;
use crate::state_files::StateFileFault;
use crate::telemetry::metrics::families::SignInMetrics;

/// `None`: there is no `[sign_in]`.
pub(super) fn of(state: &State) -> Option<SignInStatus> {
    let grants = state.grants.load_full()?;
    state.snapshot.load().sign_ins.settings.as_ref()?;
    let (series, figures) = (&state.metrics.sign_in, grants.figures());
    Some(SignInStatus {
        place: if figures.is_some() { "file" } else { "redis" }.to_owned(),
        store: figures.as_ref().map(store),
        opened: series.sign_ins.get(),
        refused: series.refused.by_word(),
        ended: series.ended.by_word(),
        checks: series.checks.by_word(),
        store_failures: series.store_failures.get(),
        store_fault: grants.store_fault().map(fault),
        room_fault: grants.room_fault().map(fault),
        provider_fault: grants.provider_fault().map(fault),
        redis_faults: if figures.is_some() { Vec::new() } else { redis_faults(series) },
    })
}

fn redis_faults(series: &SignInMetrics) -> Vec<String> {
    let is_there = |fault: &RedisFault| series.redis_faults.with_label_values(&[fault.word()]).get() > 0;
    RedisFault::ALL.into_iter().filter(is_there).map(|fault| fault.advice().to_owned()).collect()
}

fn store(figures: &StoreFigures) -> SignInStoreStatus {
    let of_kind = |kind: &str| figures.sizes.kinds.get(kind).map_or(0, |size| size.records);
    SignInStoreStatus {
        accounts: of_kind("account"),
        grants: of_kind("grant"),
        records: figures.sizes.records(),
        records_max: figures.records_max,
        file_bytes: figures.sizes.file_bytes,
        file_bytes_max: figures.file_bytes_max,
        reopened: figures.sizes.reopened,
    }
}

fn fault(fault: StateFileFault) -> SignInFaultStatus {
    SignInFaultStatus { since_s: fault.since_s, reason: fault.reason }
}
