//! `[metrics]`: what is measured.

use schemars::JsonSchema;
use serde::Deserialize;

use super::value::{Count, Key};

/// What is measured.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenMetrics {
    /// Tools that are told apart in metrics; the rest are counted together as `_other`.
    #[schemars(extend("default" = 1000))]
    pub(super) tools_max: Key<Count<0, 100_000>>,
    /// Whether the durations of calls are measured: both `mcp_*` histograms.
    #[schemars(extend("default" = true))]
    pub(super) durations: Key<bool>,
}

/// `[metrics]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metrics {
    /// Tools that are told apart.
    pub tools_max: usize,
    /// Whether the durations of calls are measured.
    pub durations: bool,
}

/// Fills in the defaults.
pub(super) fn resolve(written: &WrittenMetrics) -> Metrics {
    Metrics {
        tools_max: written.tools_max.or(1000),
        durations: written.durations.value().copied().unwrap_or(true),
    }
}
