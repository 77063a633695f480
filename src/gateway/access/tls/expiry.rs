//! Certificates that are about to end: shown as a metric, and told in the log.

use super::{Expiry, TlsServers};
use crate::clock::now_s;
use crate::telemetry::metrics::Metrics;

/// The log speaks of certificates that end sooner.
const WARN_BEFORE_S: u64 = 14 * DAY_S;
const DAY_S: u64 = 24 * 60 * 60;

pub(crate) fn show(servers: &TlsServers, metrics: &Metrics) {
    let expiries = servers.expiries();
    metrics.connections.certificate_expiry.reset();
    for Expiry { path, ends_s } in &expiries {
        let gauge = metrics.connections.certificate_expiry.with_label_values(&[&path.display().to_string()]);
        gauge.set(i64::try_from(*ends_s).unwrap_or(i64::MAX));
    }
    warn(&expiries);
}

pub(crate) fn warn(expiries: &[Expiry]) {
    let now_s = now_s();
    for Expiry { path, ends_s } in expiries {
        let path = path.display();
        match ends_s.checked_sub(now_s) {
            None | Some(0) => tracing::error!(%path, "the certificate has expired"),
            Some(left_s) if left_s < WARN_BEFORE_S => {
                tracing::warn!(%path, days = left_s / DAY_S, "the certificate expires soon");
            }
            Some(_) => {}
        }
    }
}
