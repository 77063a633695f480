//! Where metrics are registered, and what they are called: the list that the documentation is checked against.
//!
//! Invariant: a metric is in the list from the start of the process, though its series appear with their first use.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::Result;
use prometheus::core::Collector;
use prometheus::proto::{MetricFamily, MetricType};

#[derive(Clone, Debug, Default)]
pub(crate) struct Registry {
    inner: prometheus::Registry,
    families: Arc<Mutex<Vec<Family>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Family {
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    pub labels: Vec<String>,
    pub help: String,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Registers a metric, and gives it back. Fails only if there is one of the same name.
    pub(crate) fn add<C: Collector + Clone + 'static>(&self, collector: C) -> Result<C> {
        let mut families: Vec<Family> = Vec::new();
        for (family, desc) in collector.collect().iter().zip(collector.desc()) {
            families.push(Family {
                name: desc.fq_name.clone(),
                kind: kind_of(family),
                labels: desc.variable_labels.clone(),
                help: desc.help.clone(),
            });
        }
        self.inner.register(Box::new(collector.clone()))?;
        self.families.lock().extend(families);
        Ok(collector)
    }

    pub(crate) fn families(&self) -> Vec<Family> {
        let mut families = self.families.lock().clone();
        families.sort();
        families
    }

    /// The series of all of them that have any.
    pub(crate) fn gather(&self) -> Vec<MetricFamily> {
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
    use prometheus::{HistogramOpts, IntGauge, Opts};

    use super::super::vec::IntCounterVec;
    use super::*;
    use crate::telemetry::book::Durations;

    #[test]
    fn a_metric_is_listed_before_it_has_series() {
        let registry = Registry::new();
        registry.add(IntCounterVec::new(Opts::new("a_total", "A."), &["x", "y"]).unwrap()).unwrap();
        registry.add(Durations::new(HistogramOpts::new("b_seconds", "B."), &[]).unwrap()).unwrap();
        let c = || IntGauge::new("c", "C.").unwrap();
        registry.add(c()).unwrap();
        let families = registry.families();
        let listed: Vec<_> = families.iter().map(|family| (&*family.name, family.kind)).collect();
        assert_eq!(listed, [("a_total", "counter"), ("b_seconds", "histogram"), ("c", "gauge")]);
        assert_eq!(families[0].labels, ["x", "y"]);
        assert!(registry.add(c()).is_err());
        assert_eq!(registry.families().len(), 3);
    }
}
