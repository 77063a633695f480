//! Looks every day for certificates that are about to end.

use std::sync::Arc;
use std::time::Duration;

use crate::access::tls::expiry::warn;
use crate::context::state::State;

/// How often certificates are looked at.
const INTERVAL: Duration = Duration::from_hours(24);

/// Looks again every day: a process may run for longer than a certificate.
pub(super) async fn watch(state: Arc<State>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        warn(&state.tls.expiries());
    }
}
