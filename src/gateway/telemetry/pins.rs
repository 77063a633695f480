//! Metrics of pinned definitions.

use prometheus::{IntCounter, IntGauge, Opts};

use super::registry::Registry;
use super::vec::{IntCounterVec, IntGaugeVec};

/// What is counted about pins.
#[derive(Clone, Debug)]
pub struct PinMetrics {
    tools: IntGaugeVec,
    changes: IntCounterVec,
}

/// What is counted about the pins of one upstream.
#[derive(Clone, Debug)]
pub struct PinSeries {
    /// Tools with an approved definition; with one that waits beside it; with one that waits alone.
    tools: [IntGauge; 3],
    /// 1 while what was kept cannot be read.
    pub unreadable: IntGauge,
    /// 1 while what is pinned cannot be written down.
    pub unwritten: IntGauge,
    /// Definitions that were found not to be approved; each counts once while it is remembered.
    pub changes: IntCounter,
}

impl PinMetrics {
    /// Registers them. Fails only if there is one of the same name.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let tools = Opts::new(
            "trunkline_pins",
            "Tools by their pins: pinned, with an approved definition; changed, with another that waits for approval; new, with only that; unreadable and unwritten, 1 while the file cannot be read or written.",
        );
        let tools = IntGaugeVec::new(tools, &["upstream", "state"])?;
        let changes = Opts::new(
            "trunkline_pin_changes_total",
            "Definitions of tools that were not approved when first seen.",
        );
        let changes = IntCounterVec::new(changes, &["upstream"])?;
        registry.register(Box::new(tools.clone()))?;
        registry.register(Box::new(changes.clone()))?;
        Ok(Self { tools, changes })
    }

    /// The series of one upstream.
    pub fn of(&self, upstream: &str) -> PinSeries {
        let gauge = |state| self.tools.with_label_values(&[upstream, state]);
        PinSeries {
            tools: ["pinned", "changed", "new"].map(gauge),
            unreadable: gauge("unreadable"),
            unwritten: gauge("unwritten"),
            changes: self.changes.with_label_values(&[upstream]),
        }
    }
}

impl PinMetrics {
    /// The upstream of this name is no more.
    pub fn forget(&self, upstream: &str) {
        for state in ["pinned", "changed", "new", "unreadable", "unwritten"] {
            // One that was never set is none.
            let _ = self.tools.remove_label_values(&[upstream, state]);
        }
    }
}

impl PinSeries {
    /// How many tools have an approved definition, a changed one that waits, only one that waits.
    pub fn counts(&self) -> [i64; 3] {
        self.tools.each_ref().map(IntGauge::get)
    }

    /// Sets how many tools have an approved definition, a changed one that waits, only one that waits.
    pub fn set(&self, counts: [usize; 3]) {
        for (gauge, count) in self.tools.iter().zip(counts) {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
