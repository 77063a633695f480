//! What is counted of spans.

use prometheus::IntCounter;

use crate::telemetry::vec::IntCounterVec;

/// Spans, by what became of them.
#[derive(Clone, Debug)]
pub struct Series {
    /// The receiver took them.
    pub exported: IntCounter,
    /// The queue was full.
    pub dropped: IntCounter,
    /// The receiver could not be reached, did not answer in time, or answered with an error.
    pub failed: IntCounter,
    /// The receiver took others of the same batch.
    pub rejected: IntCounter,
}

impl Series {
    /// Resolves the handles of `trunkline_trace_spans_total`.
    pub fn new(spans: &IntCounterVec) -> Self {
        let of = |result| spans.with_label_values(&[result]);
        Self {
            exported: of("exported"),
            dropped: of("dropped"),
            failed: of("failed"),
            rejected: of("rejected"),
        }
    }
}
