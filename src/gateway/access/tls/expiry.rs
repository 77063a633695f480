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
    for Expiry { path, ends_s, .. } in &expiries {
        let gauge = metrics.connections.certificate_expiry.with_label_values(&[&path.display().to_string()]);
        gauge.set(i64::try_from(*ends_s).unwrap_or(i64::MAX));
    }
    warn(&expiries);
}

pub(crate) fn warn(expiries: &[Expiry]) {
    let now_s = now_s();
    for expiry in expiries {
        let path = expiry.path.display();
        match left(expiry, now_s) {
            Left::None if expiry.is_authority => {
                tracing::warn!(%path, "the authority of clients has expired, and goes on to count");
            }
            Left::None => tracing::error!(%path, "the certificate has expired"),
            Left::Days(days) => tracing::warn!(%path, days, "the certificate expires soon"),
            Left::Enough => {}
        }
    }
}

/// The warnings of `check` for certificates that have ended, or soon do.
pub(crate) fn told(expiries: &[Expiry]) -> Vec<String> {
    let now_s = now_s();
    let told = |expiry: &Expiry| {
        let path = expiry.path.display();
        match left(expiry, now_s) {
            Left::None if expiry.is_authority => Some(format!(
                "{path}: the authority has expired, and goes on to count for clients: replace it"
            )),
            Left::None => {
                Some(format!("{path}: the certificate has expired, and whoever checks it refuses it"))
            }
            Left::Days(days) => Some(format!("{path}: the certificate expires soon, in {days} days")),
            Left::Enough => None,
        }
    };
    expiries.iter().filter_map(told).collect()
}

/// The time that a certificate has left.
enum Left {
    None,
    Days(u64),
    Enough,
}

fn left(expiry: &Expiry, now_s: u64) -> Left {
    match expiry.ends_s.checked_sub(now_s) {
        None | Some(0) => Left::None,
        Some(left_s) if left_s < WARN_BEFORE_S => Left::Days(left_s / DAY_S),
        Some(_) => Left::Enough,
    }
}
