//! Metrics of configurations that were loaded.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::{IntCounter, IntGauge};

use super::registry::Registry;

/// What is counted about loading configurations.
#[derive(Clone, Debug)]
pub struct Reloads {
    accepted: IntCounter,
    refused: IntCounter,
    is_current: IntGauge,
    accepted_at: IntGauge,
}

impl Reloads {
    /// Registers them. Fails only if there is one of the same name.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let loaded = registry.counters(
            "trunkline_reloads_total",
            "Configurations loaded while running: ok, in force; error, refused.",
            &["result"],
        )?;
        let reloads = Self {
            accepted: loaded.with_label_values(&["ok"]),
            refused: loaded.with_label_values(&["error"]),
            is_current: registry.gauge(
                "trunkline_config_last_load_successful",
                "Whether the configuration that was loaded last is in force.",
            )?,
            accepted_at: registry.gauge(
                "trunkline_config_last_success_timestamp_seconds",
                "When the configuration in force was loaded, in seconds since 1970.",
            )?,
        };
        reloads.in_force();
        Ok(reloads)
    }

    /// Counts a configuration that was loaded while running.
    pub fn count(&self, is_accepted: bool) {
        if is_accepted {
            self.accepted.inc();
            self.in_force();
        } else {
            self.refused.inc();
            self.is_current.set(0);
        }
    }

    fn in_force(&self) {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.is_current.set(1);
        self.accepted_at.set(i64::try_from(now_s).unwrap_or(i64::MAX));
    }
}
