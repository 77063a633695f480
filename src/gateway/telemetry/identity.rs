//! What is counted about credentials and the keys that check them.

use prometheus::IntCounter;

use super::vec::{IntCounterVec, IntGaugeVec};
use crate::identity::refusal::CredentialFault;

/// Metrics of credentials.
#[derive(Clone, Debug)]
pub struct Identity {
    refusals: Vec<IntCounter>,
    fetches: IntCounterVec,
    keys: IntGaugeVec,
}

impl Identity {
    /// From vectors with the labels `reason`; `issuer` and `result`; `issuer`.
    pub fn new(refusals: &IntCounterVec, fetches: IntCounterVec, keys: IntGaugeVec) -> Self {
        let refusals = CredentialFault::ALL
            .iter()
            .map(|refusal| refusals.with_label_values(&[refusal.label()]))
            .collect();
        Self { refusals, fetches, keys }
    }

    /// Counts refused credentials.
    pub fn refused(&self, refusal: CredentialFault) {
        if let Some(counter) = self.refusals.get(refusal as usize) {
            counter.inc();
        }
    }

    /// Counts an attempt to read the keys of `issuer`.
    pub fn key_fetches(&self, issuer: &str, is_read: bool) {
        self.fetches.with_label_values(&[issuer, if is_read { "ok" } else { "error" }]).inc();
    }

    /// How many keys `issuer` has.
    pub fn keys(&self, issuer: &str, count: usize) {
        self.keys.with_label_values(&[issuer]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
