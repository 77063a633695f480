//! Where metrics are registered, and what they are called: the list that the documentation is checked against.
//!
//! Invariant: a metric is in the list from the start of the process, though its series appear with their first use.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::core::Collector;
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{IntCounter, IntGauge, Opts, Result};

use super::vec::{IntCounterVec, IntGaugeVec};

/// The metrics of the process.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    inner: prometheus::Registry,
    families: Arc<Mutex<Vec<Family>>>,
}

/// One metric, with all its series.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Family {
    /// Its name.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Its labels, in the order of the code.
    pub labels: Vec<String>,
    /// What it means.
    pub help: String,
}

impl Registry {
    /// Nothing is registered.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a metric. Fails only if there is one of the same name.
    pub fn register(&self, collector: Box<dyn Collector>) -> Result<()> {
        let mut families: Vec<Family> = Vec::new();
        for (family, desc) in collector.collect().iter().zip(collector.desc()) {
            families.push(Family {
                name: desc.fq_name.clone(),
                kind: kind_of(family),
                labels: desc.variable_labels.clone(),
                help: desc.help.clone(),
            });
        }
        self.inner.register(collector)?;
        self.families.lock().extend(families);
        Ok(())
    }

    /// Counters that differ in these labels.
    pub fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec> {
        let vec = IntCounterVec::new(Opts::new(name, help), labels)?;
        self.register(Box::new(vec.clone())).map(|()| vec)
    }

    /// A counter.
    pub fn counter(&self, name: &str, help: &str) -> Result<IntCounter> {
        let counter = IntCounter::new(name, help)?;
        self.register(Box::new(counter.clone())).map(|()| counter)
    }

    /// Gauges that differ in these labels.
    pub fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec> {
        let vec = IntGaugeVec::new(Opts::new(name, help), labels)?;
        self.register(Box::new(vec.clone())).map(|()| vec)
    }

    /// A gauge.
    pub fn gauge(&self, name: &str, help: &str) -> Result<IntGauge> {
        let gauge = IntGauge::new(name, help)?;
        self.register(Box::new(gauge.clone())).map(|()| gauge)
    }

    /// Every metric that is registered, by name.
    pub fn families(&self) -> Vec<Family> {
        let mut families = self.families.lock().clone();
        families.sort();
        families
    }

    /// The series of all of them that have any.
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.inner.gather()
    }
}

fn kind_of(family: &MetricFamily) -> &'static str {
    match family.get_field_type() {
        MetricType::COUNTER => "counter",
        MetricType::GAUGE => "gauge",
        MetricType::HISTOGRAM => "histogram",
        MetricType::SUMMARY => "summary",
        MetricType::UNTYPED => "untyped",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::book::Durations;

    #[test]
    fn a_metric_is_listed_before_it_has_series() {
        let registry = Registry::new();
        registry.counters("a_total", "A.", &["x", "y"]).unwrap();
        registry.register(Box::new(Durations::new("b_seconds", "B.", &[], &[1.0]).unwrap())).unwrap();
        registry.gauge("c", "C.").unwrap();
        let families = registry.families();
        let listed: Vec<_> = families.iter().map(|family| (&*family.name, family.kind)).collect();
        assert_eq!(listed, [("a_total", "counter"), ("b_seconds", "histogram"), ("c", "gauge")]);
        assert_eq!(families[0].labels, ["x", "y"]);
        assert!(registry.gauge("c", "C.").is_err());
        assert_eq!(registry.families().len(), 3);
    }
}
