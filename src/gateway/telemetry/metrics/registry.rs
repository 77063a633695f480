//! Where metrics are registered, and what they are called: the list that the documentation is checked against.
//!
//! Invariant: a metric is in the list from the start of the process, though its series appear with their first use.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::{Error, Result};

/// All metrics. A clone is the same list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry(Arc<Mutex<MetricList>>);

#[derive(Debug, Default)]
struct MetricList {
    by_name: BTreeMap<String, Box<dyn Exposed>>,
    /// How long their text was when it was last made.
    bytes: usize,
}

/// All series of one metric.
pub(crate) trait Exposed: std::fmt::Debug + Send + Sync {
    fn family(&self) -> Family;

    /// Writes its series to `text`, if it has any, and before them what it is.
    fn write(&self, text: &mut Vec<u8>);
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
    pub(crate) fn add<E: Exposed + Clone + 'static>(&self, metric: E) -> Result<E> {
        match self.0.lock().by_name.entry(metric.family().name) {
            Entry::Occupied(_) => Err(Error::AlreadyReg),
            Entry::Vacant(place) => {
                place.insert(Box::new(metric.clone()));
                Ok(metric)
            }
        }
    }

    pub(crate) fn families(&self) -> Vec<Family> {
        self.0.lock().by_name.values().map(|metric| metric.family()).collect()
    }

    /// The series of all of them that have any, as text.
    pub(crate) fn render(&self) -> Vec<u8> {
        let MetricList { by_name, bytes } = &mut *self.0.lock();
        // It seldom grows by much: so it is never copied to where there is more room.
        let mut text = Vec::with_capacity(*bytes + *bytes / 16);
        for metric in by_name.values() {
            metric.write(&mut text);
        }
        *bytes = text.len();
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use prometheus::core::{Collector, Desc, Metric};
    use prometheus::proto::MetricFamily;
    use prometheus::{HistogramOpts, IntGauge, Opts, TextEncoder};
    use proptest::prelude::*;

    use super::super::declare::Declaration;
    use super::super::sharded::{ShardedCounter, ShardedHistogram};
    use super::super::vec::{IntCounterVec, MetricVec, Series};
    use super::*;
    use crate::telemetry::book::Durations;

    #[test]
    fn a_metric_is_listed_before_it_has_series() {
        let registry = Registry::new();
        registry.add(IntCounterVec::new(Declaration::new("a_total", "A.", &["x", "y"])).unwrap()).unwrap();
        registry.add(Durations::new(Declaration::new("b_seconds", "B.", &[])).unwrap()).unwrap();
        let c = || MetricVec::<IntGauge>::new(Declaration::new("c", "C.", &[])).unwrap();
        registry.add(c()).unwrap();
        let families = registry.families();
        let listed: Vec<_> = families.iter().map(|family| (&*family.name, family.kind)).collect();
        assert_eq!(listed, [("a_total", "counter"), ("b_seconds", "histogram"), ("c", "gauge")]);
        assert_eq!(families[0].labels, ["x", "y"]);
        assert!(registry.add(c()).is_err());
        assert_eq!(registry.families().len(), 3);
        assert!(registry.render().is_empty(), "none has a series");
    }

    const LABELS: [&str; 3] = ["zone", "a", "le_"];
    const BOUNDS: [f64; 4] = [0.0005, 0.25, 1.0, 75.0];
    const HELP: &str = "With \"quotes\", a \\ and\na line.";

    /// What the library has collected.
    struct Fixed(Desc, MetricFamily);

    impl Collector for Fixed {
        fn desc(&self) -> Vec<&Desc> {
            vec![&self.0]
        }

        fn collect(&self) -> Vec<MetricFamily> {
            vec![self.1.clone()]
        }
    }

    /// Both ways to an exposition, with the same series in both.
    #[derive(Default)]
    struct Both {
        ours: Registry,
        theirs: prometheus::Registry,
    }

    impl Both {
        /// A metric with these series; `labels` tells how many of their values are of labels.
        fn add<S: Series + 'static, M: Metric, V>(
            &self,
            (name, labels): (&str, usize),
            rows: &[([String; 3], V)],
            (ours, make, theirs): (impl Fn(&S, &V), impl Fn(Opts) -> M, impl Fn(&M, &V)),
        ) {
            let declaration = Declaration::new(name, HELP, &LABELS[..labels]).buckets(&BOUNDS);
            let vec = self.ours.add(MetricVec::<S>::new(declaration).unwrap()).unwrap();
            let mut known: BTreeMap<&[String], M> = BTreeMap::new();
            for (values, value) in rows {
                let values = &values[..labels];
                ours(&vec.with_label_values(values), value);
                let one = known.entry(values).or_insert_with(|| {
                    let pairs = LABELS.iter().zip(values);
                    let pairs = pairs.map(|(label, value)| ((*label).to_owned(), value.clone()));
                    make(Opts::new(name, HELP).const_labels(pairs.collect()))
                });
                theirs(one, value);
            }
            let mut family = MetricFamily::default();
            family.set_name(name.to_owned());
            family.set_help(HELP.to_owned());
            family.set_field_type(S::KIND);
            family.set_metric(known.values().map(Metric::metric).collect());
            let labels = LABELS[..labels].iter().map(ToString::to_string).collect();
            let desc = Desc::new(name.to_owned(), HELP.to_owned(), labels, HashMap::new()).unwrap();
            self.theirs.register(Box::new(Fixed(desc, family))).unwrap();
        }

        fn texts(&self) -> (String, String) {
            let theirs = TextEncoder::new().encode_to_string(&self.theirs.gather()).unwrap();
            (String::from_utf8(self.ours.render()).unwrap(), theirs)
        }
    }

    fn number() -> impl Strategy<Value = f64> {
        prop_oneof![
            prop::num::f64::ANY,
            any::<i32>().prop_map(f64::from),
            (0_u32..100_000).prop_map(|micros| f64::from(micros) / 1e6),
            Just(f64::NEG_INFINITY),
        ]
    }

    fn count() -> impl Strategy<Value = u64> {
        prop_oneof![0_u64..10, 0_u64..1 << 58, (1_u64 << 53) - 3..(1 << 53) + 3]
    }

    proptest! {
        /// To the byte what the library writes: values, escapes, and the order of metrics and of series.
        #[test]
        fn an_exposition_is_that_of_the_library(
            rows in prop::collection::vec(
                (prop::array::uniform3("[ab!\"\\\\\n\0é~]{0,3}"), (number(), count(), any::<i64>())),
                0..30,
            ),
        ) {
            let both = Both::default();
            let float = |row: &([String; 3], (f64, u64, i64))| (row.0.clone(), row.1.0);
            let (floats, counts, levels) = (
                rows.iter().map(float).collect::<Vec<_>>(),
                rows.iter().map(|row| (row.0.clone(), row.1.1)).collect::<Vec<_>>(),
                rows.iter().map(|row| (row.0.clone(), row.1.2)).collect::<Vec<_>>(),
            );
            for labels in 0..=LABELS.len() {
                let name = |kind: &str| format!("{}_{kind}", ["d", "b", "c", "a"][labels]);
                both.add(
                    (&name("seconds"), labels),
                    &floats,
                    (
                        |ours: &ShardedHistogram, value| ours.observe(*value),
                        |options| {
                            let options = HistogramOpts::from(options).buckets(BOUNDS.to_vec());
                            prometheus::Histogram::with_opts(options).unwrap()
                        },
                        |theirs, value| theirs.observe(*value),
                    ),
                );
                both.add(
                    (&name("calls"), labels),
                    &counts,
                    (
                        |ours: &ShardedCounter, _| ours.inc(),
                        |options| prometheus::IntCounter::with_opts(options).unwrap(),
                        |theirs, _| theirs.inc(),
                    ),
                );
                both.add(
                    (&name("total"), labels),
                    &counts,
                    (
                        |ours: &prometheus::IntCounter, count| ours.inc_by(*count),
                        |options| prometheus::IntCounter::with_opts(options).unwrap(),
                        |theirs, count| theirs.inc_by(*count),
                    ),
                );
                both.add(
                    (&name("level"), labels),
                    &levels,
                    (
                        |ours: &IntGauge, level| ours.set(*level),
                        |options| IntGauge::with_opts(options).unwrap(),
                        |theirs, level| theirs.set(*level),
                    ),
                );
                both.add(
                    (&name("float"), labels),
                    &floats,
                    (
                        |ours: &prometheus::Gauge, value| ours.set(*value),
                        |options| prometheus::Gauge::with_opts(options).unwrap(),
                        |theirs, value| theirs.set(*value),
                    ),
                );
            }
            let (ours, theirs) = both.texts();
            prop_assert_eq!(ours, theirs);
        }
    }
}
