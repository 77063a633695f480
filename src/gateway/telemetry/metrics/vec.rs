//! Metrics whose series differ in the values of labels.
//!
//! The library's own vectors know a series by one hash over its values strung together, so that `("/mcp", "2x")` and
//! `("/mcp2", "x")` are one, and whoever chooses names can make any two of them one. Values come from configurations
//! and from upstreams: here a series is known by the values themselves.
//!
//! A look-up takes a lock and memory; whoever counts often keeps the handle. Deliberately absent: a bound on the number
//! of series, which is the business of whoever chooses the values.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard};
use prometheus::core::{Collector, Desc, Metric};
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{Counter, Error, Gauge, Histogram, HistogramOpts, IntCounter, IntGauge, Result};

pub(crate) type IntCounterVec = MetricVec<IntCounter>;
pub(crate) type IntGaugeVec = MetricVec<IntGauge>;

/// A metric that can be one series of several.
pub(crate) trait Series: Metric + Clone {
    /// What it is called in an exposition.
    const KIND: MetricType;

    /// One with these options; counters and gauges have no buckets.
    fn with_options(options: HistogramOpts) -> Result<Self>;
}

/// The series of one metric. A clone is the same metric.
#[derive(Clone, Debug)]
pub(crate) struct MetricVec<S>(Arc<MetricSeries<S>>);

#[derive(Debug)]
struct MetricSeries<S> {
    options: HistogramOpts,
    desc: Desc,
    series: RwLock<HashMap<Box<[Box<str>]>, S>>,
    /// Counts for nobody.
    spare: S,
}

impl<S: Series> MetricVec<S> {
    /// There is no series yet. Fails only for names that no metric can have.
    pub(crate) fn new(options: impl Into<HistogramOpts>, labels: &[&str]) -> Result<Self> {
        let options: HistogramOpts = options.into();
        let labels: Vec<String> = labels.iter().map(ToString::to_string).collect();
        let name = options.common_opts.fq_name();
        let desc = Desc::new(name, options.common_opts.help.clone(), labels, HashMap::new())?;
        let spare = S::with_options(options.clone())?;
        Ok(Self(Arc::new(MetricSeries { options, desc, series: RwLock::default(), spare })))
    }

    /// The series with these values, one for each label.
    pub(crate) fn with_label_values<V: AsRef<str>>(&self, values: &[V]) -> S {
        let key: Box<[Box<str>]> = values.iter().map(|value| value.as_ref().into()).collect();
        if let Some(series) = self.series().get(&key) {
            return series.clone();
        }
        let Ok(new) = self.build(&key) else { return self.0.spare.clone() };
        let mut all = self.0.series.write();
        all.entry(key).or_insert(new).clone()
    }

    /// Forgets a series. Fails if there is none.
    pub(crate) fn remove_label_values<V: AsRef<str>>(&self, values: &[V]) -> Result<()> {
        let key: Box<[Box<str>]> = values.iter().map(|value| value.as_ref().into()).collect();
        let mut all = self.0.series.write();
        all.remove(&key).map(drop).ok_or_else(|| Error::Msg("there is no such series".into()))
    }

    pub(crate) fn reset(&self) {
        self.0.series.write().clear();
    }

    fn build(&self, values: &[Box<str>]) -> Result<S> {
        let labels = &self.0.desc.variable_labels;
        if labels.len() != values.len() {
            return Err(Error::InconsistentCardinality { expect: labels.len(), got: values.len() });
        }
        let mut options = self.0.options.clone();
        let pairs = labels.iter().zip(values).map(|(label, value)| (label.clone(), value.to_string()));
        options.common_opts.const_labels.extend(pairs);
        S::with_options(options)
    }

    fn series(&self) -> RwLockReadGuard<'_, HashMap<Box<[Box<str>]>, S>> {
        self.0.series.read()
    }
}

impl<S: Series> Collector for MetricVec<S> {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.0.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut family = MetricFamily::default();
        family.set_name(self.0.desc.fq_name.clone());
        family.set_help(self.0.desc.help.clone());
        family.set_field_type(S::KIND);
        let handles: Vec<S> = self.series().values().cloned().collect();
        family.set_metric(handles.iter().map(Metric::metric).collect());
        vec![family]
    }
}

impl Series for IntCounter {
    const KIND: MetricType = MetricType::COUNTER;

    fn with_options(options: HistogramOpts) -> Result<Self> {
        Self::with_opts(options.common_opts)
    }
}

impl Series for IntGauge {
    const KIND: MetricType = MetricType::GAUGE;

    fn with_options(options: HistogramOpts) -> Result<Self> {
        Self::with_opts(options.common_opts)
    }
}

impl Series for Counter {
    const KIND: MetricType = MetricType::COUNTER;

    fn with_options(options: HistogramOpts) -> Result<Self> {
        Self::with_opts(options.common_opts)
    }
}

impl Series for Gauge {
    const KIND: MetricType = MetricType::GAUGE;

    fn with_options(options: HistogramOpts) -> Result<Self> {
        Self::with_opts(options.common_opts)
    }
}

impl Series for Histogram {
    const KIND: MetricType = MetricType::HISTOGRAM;

    fn with_options(options: HistogramOpts) -> Result<Self> {
        Self::with_opts(options)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use prometheus::Opts;
    use proptest::prelude::*;

    use super::*;
    use crate::telemetry::metrics::Metrics;

    /// What every series has counted, by the values of its labels in the order of the labels' names.
    fn counted(vec: &IntCounterVec) -> BTreeMap<Vec<String>, f64> {
        let [family] = vec.collect().try_into().expect("one family");
        let series = family.get_metric().iter().map(|metric| {
            let labels = metric.get_label().iter().map(|pair| pair.value().to_owned());
            (labels.collect(), metric.get_counter().get_value())
        });
        let series: Vec<_> = series.collect();
        let number = series.len();
        let counted: BTreeMap<_, _> = series.into_iter().collect();
        assert_eq!(counted.len(), number, "{counted:?}");
        counted
    }

    #[test]
    fn a_series_goes_and_comes_anew() {
        let vec = IntGaugeVec::new(Opts::new("a", "A."), &["x", "y"]).expect("a metric");
        vec.with_label_values(&["/mcp", "2x"]).set(1);
        vec.with_label_values(&["/mcp2", "x"]).set(2);
        assert_eq!(vec.with_label_values(&["/mcp", "2x"]).get(), 1);
        vec.remove_label_values(&["/mcp", "2x"]).expect("it was there");
        assert!(vec.remove_label_values(&["/mcp", "2x"]).is_err());
        assert_eq!(vec.with_label_values(&["/mcp", "2x"]).get(), 0);
        assert_eq!(vec.clone().with_label_values(&["/mcp2", "x"]).get(), 2);
        // With too few values nothing is counted.
        vec.with_label_values(&["/mcp"]).set(7);
        assert_eq!(vec.collect()[0].get_metric().len(), 2);
        assert!(IntGaugeVec::new(Opts::new("a b", "A."), &["x"]).is_err());
    }

    proptest! {
        #[test]
        fn different_values_are_different_series(
            rows in prop::collection::vec(prop::collection::vec("[/a1]{0,3}", 8), 1..40),
        ) {
            let sets = Metrics::new(10).expect("metrics").families();
            let mut sets: Vec<Vec<String>> = sets.into_iter().map(|family| family.labels).collect();
            sets.sort();
            sets.dedup();
            prop_assert!(sets.iter().any(|labels| labels.len() > 4));
            for labels in sets.iter().filter(|labels| !labels.is_empty()) {
                let names: Vec<&str> = labels.iter().map(String::as_str).collect();
                let vec = IntCounterVec::new(Opts::new("a_total", "A."), &names).expect("a metric");
                let mut order: Vec<usize> = (0..names.len()).collect();
                order.sort_by_key(|at| names[*at]);
                let mut expected: BTreeMap<Vec<String>, f64> = BTreeMap::new();
                for row in &rows {
                    vec.with_label_values(&row[..names.len()]).inc();
                    *expected.entry(order.iter().map(|at| row[*at].clone()).collect()).or_default() += 1.0;
                }
                prop_assert_eq!(counted(&vec), expected, "{:?}", labels);
            }
        }
    }
}
