//! Metrics whose series differ in the values of labels.
//!
//! The library's own vectors know a series by one hash over its values strung together, so that `("/mcp", "2x")` and
//! `("/mcp2", "x")` are one, and whoever chooses names can make any two of them one. Values come from configurations
//! and from upstreams: here a series is known by the values themselves.
//!
//! A look-up takes a lock and memory; whoever counts often keeps the handle. Deliberately absent: a bound on the number
//! of series, which is the business of whoever chooses the values.

use std::collections::HashMap;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;
use prometheus::core::Desc;
use prometheus::proto::MetricType;
use prometheus::{Counter, Error, Gauge, IntCounter, IntGauge, Opts, Result};

use super::declare::Declaration;
use super::exposition::{self, SeriesLines};
use super::registry::{Exposed, Family};
use super::sharded::{ShardedCounter, ShardedHistogram};

pub(crate) type IntCounterVec = MetricVec<IntCounter>;
pub(crate) type IntGaugeVec = MetricVec<IntGauge>;
pub(crate) type ShardedCounterVec = MetricVec<ShardedCounter>;

/// Series that are copied while the lock is held.
pub(crate) const COPIED_MAX: usize = 64;

/// A metric that can be one series of several.
pub(crate) trait Series: Clone + std::fmt::Debug + Send + Sync {
    /// What it is called in an exposition.
    const KIND: MetricType;

    /// One of the metric that is declared like this.
    fn of(declaration: &Declaration) -> Result<Self>;

    fn write(&self, lines: &mut SeriesLines<'_>);
}

/// The series of one metric. A clone is the same metric.
#[derive(Clone, Debug)]
pub(crate) struct MetricVec<S>(Arc<MetricSeries<S>>);

#[derive(Debug)]
struct MetricSeries<S> {
    declaration: Declaration,
    /// The places of the labels, in the order of their names.
    order: Box<[usize]>,
    /// What stands before its series in an exposition.
    head: String,
    /// The bounds of its buckets, as they are written.
    bounds: Box<[Box<str>]>,
    /// In the order of the values of their labels.
    series: RwLock<BTreeMap<SeriesKey, Arc<Labelled<S>>>>,
    /// Counts for nobody.
    spare: S,
}

/// The values of a series, in the order of the names of their labels: keys are in the same order as they are.
type SeriesKey = Box<[u8]>;

#[derive(Debug)]
struct Labelled<S> {
    labels: String,
    series: S,
}

impl<S: Series> MetricVec<S> {
    /// There is no series yet. Fails only for names that no metric can have.
    pub(crate) fn new(declaration: Declaration) -> Result<Self> {
        let Declaration { name, help, labels, bounds } = &declaration;
        Desc::new(name.clone(), help.clone(), labels.clone(), HashMap::new())?;
        let mut order: Box<[usize]> = (0..labels.len()).collect();
        order.sort_by_key(|at| &labels[*at]);
        Ok(Self(Arc::new(MetricSeries {
            order,
            head: exposition::head(name, &help.replace('`', ""), S::KIND),
            bounds: bounds.iter().map(|bound| bound.to_string().into()).collect(),
            series: RwLock::default(),
            spare: S::of(&declaration)?,
            declaration,
        })))
    }

    /// The series with these values, one for each label.
    pub(crate) fn with_label_values<V: AsRef<str>>(&self, values: &[V]) -> S {
        self.find_or_add(values).0
    }

    /// The series with these values, and whether nobody had asked for it before.
    pub(crate) fn find_or_add<V: AsRef<str>>(&self, values: &[V]) -> (S, bool) {
        let spare = || (self.0.spare.clone(), false);
        let Some(key) = self.key(values) else { return spare() };
        if let Some(known) = self.0.series.read().get(&key) {
            return (known.series.clone(), false);
        }
        let Some(new) = self.labelled(values) else { return spare() };
        match self.0.series.write().entry(key) {
            Entry::Occupied(known) => (known.get().series.clone(), false),
            Entry::Vacant(place) => (place.insert(new).series.clone(), true),
        }
    }

    /// Forgets a series. Fails if there is none.
    pub(crate) fn remove_label_values<V: AsRef<str>>(&self, values: &[V]) -> Result<()> {
        let removed = self.key(values).and_then(|key| self.0.series.write().remove(&key));
        removed.map(drop).ok_or_else(|| Error::Msg("there is no such series".into()))
    }

    pub(crate) fn reset(&self) {
        self.0.series.write().clear();
    }

    fn labelled<V: AsRef<str>>(&self, values: &[V]) -> Option<Arc<Labelled<S>>> {
        let Declaration { labels, .. } = &self.0.declaration;
        let pairs = self.0.order.iter().map(|at| (&*labels[*at], values[*at].as_ref()));
        let series = S::of(&self.0.declaration).ok()?;
        Some(Arc::new(Labelled { labels: exposition::labels(pairs), series }))
    }

    /// `None`: there are more or fewer of them than labels.
    fn key<V: AsRef<str>>(&self, values: &[V]) -> Option<SeriesKey> {
        if values.len() != self.0.order.len() {
            return None;
        }
        let mut key = Vec::with_capacity(values.iter().map(|value| value.as_ref().len() + 1).sum());
        for at in &self.0.order {
            // A value ends with 0. One within it is followed by more than any letter is.
            for (number, part) in values[*at].as_ref().split('\0').enumerate() {
                key.extend_from_slice(if number == 0 { b"" } else { b"\0\xff" });
                key.extend_from_slice(part.as_bytes());
            }
            key.push(0);
        }
        Some(key.into())
    }

    /// Calls `visit` with every series in order, with no lock held meanwhile.
    fn each(&self, mut visit: impl FnMut(&Labelled<S>)) {
        let (mut copied, mut last): (Vec<Arc<Labelled<S>>>, Option<SeriesKey>) = (Vec::new(), None);
        loop {
            let after = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            {
                let series = self.0.series.read();
                let rest = series.range::<[u8], _>((after, Bound::Unbounded));
                copied.extend(rest.clone().take(COPIED_MAX).map(|(_, one)| Arc::clone(one)));
                last = rest.clone().nth(COPIED_MAX - 1).map(|(key, _)| key.clone());
            }
            copied.drain(..).for_each(|one| visit(&one));
            if last.is_none() {
                return;
            }
        }
    }
}

impl MetricVec<IntCounter> {
    /// The counts of a metric with one label, by the values of it, which are words of ours.
    pub(crate) fn by_word(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        self.each(|one| {
            let word = one.labels.split('"').nth(1).unwrap_or_default();
            counts.insert(word.to_owned(), one.series.get());
        });
        counts
    }
}

impl MetricVec<IntGauge> {
    /// These are all series there are now, and what each shows: others go.
    pub(crate) fn replace<'v, const N: usize>(&self, all: impl Iterator<Item = ([&'v str; N], i64)>) {
        let mut series = self.0.series.write();
        let mut old = std::mem::take(&mut *series);
        for (values, value) in all {
            let Some(key) = self.key(&values) else { continue };
            let Some(one) = old.remove(&key).or_else(|| self.labelled(&values)) else { continue };
            one.series.set(value);
            series.insert(key, one);
        }
    }
}

impl<S: Series> Exposed for MetricVec<S> {
    fn family(&self) -> Family {
        let Declaration { name, help, labels, .. } = self.0.declaration.clone();
        Family { name, kind: exposition::label_of(S::KIND), labels, help }
    }

    fn write(&self, text: &mut Vec<u8>) {
        let MetricSeries { declaration, head, bounds, .. } = &*self.0;
        let begin = text.len();
        text.extend_from_slice(head.as_bytes());
        let mut is_empty = true;
        self.each(|one| {
            is_empty = false;
            one.series.write(&mut SeriesLines { text, name: &declaration.name, bounds, labels: &one.labels });
        });
        if is_empty {
            text.truncate(begin);
        }
    }
}

impl Series for ShardedCounter {
    const KIND: MetricType = MetricType::COUNTER;

    fn of(_: &Declaration) -> Result<Self> {
        Ok(Self::default())
    }

    fn write(&self, lines: &mut SeriesLines<'_>) {
        lines.sample(self.get());
    }
}

impl Series for ShardedHistogram {
    const KIND: MetricType = MetricType::HISTOGRAM;

    fn of(declaration: &Declaration) -> Result<Self> {
        Ok(Self::new(&declaration.bounds))
    }

    fn write(&self, lines: &mut SeriesLines<'_>) {
        lines.histogram(&self.read());
    }
}

/// Series of one value that the library has.
macro_rules! of_the_library {
    ($($series:ty: $kind:ident,)+) => {
        $(impl Series for $series {
            const KIND: MetricType = MetricType::$kind;

            fn of(declaration: &Declaration) -> Result<Self> {
                Self::with_opts(Opts::new(&declaration.name, &declaration.help))
            }

            fn write(&self, lines: &mut SeriesLines<'_>) {
                lines.sample(self.get());
            }
        })+
    };
}

of_the_library! {
    IntCounter: COUNTER,
    Counter: COUNTER,
    IntGauge: GAUGE,
    Gauge: GAUGE,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::telemetry::metrics::Metrics;

    fn declared(name: &str, labels: &[&str]) -> Declaration {
        Declaration::new(name, "A.", labels)
    }

    fn texts<S: Series>(vec: &MetricVec<S>) -> Vec<String> {
        let mut text = Vec::new();
        vec.write(&mut text);
        let text = String::from_utf8(text).expect("UTF-8");
        text.lines().filter(|line| !line.starts_with('#')).map(ToOwned::to_owned).collect()
    }

    #[test]
    fn a_series_goes_and_comes_anew() {
        let vec = IntGaugeVec::new(declared("a", &["x", "y"])).expect("a metric");
        vec.with_label_values(&["/mcp", "2x"]).set(1);
        vec.with_label_values(&["/mcp2", "x"]).set(2);
        assert_eq!(vec.with_label_values(&["/mcp", "2x"]).get(), 1);
        vec.remove_label_values(&["/mcp", "2x"]).expect("it was there");
        assert!(vec.remove_label_values(&["/mcp", "2x"]).is_err());
        assert_eq!(vec.with_label_values(&["/mcp", "2x"]).get(), 0);
        assert_eq!(vec.clone().with_label_values(&["/mcp2", "x"]).get(), 2);
        // With too few values nothing is counted.
        vec.with_label_values(&["/mcp"]).set(7);
        assert_eq!(texts(&vec).len(), 2);
        assert!(IntGaugeVec::new(declared("a b", &["x"])).is_err());
    }

    #[test]
    fn counts_are_read_back_by_their_words() {
        let vec = IntCounterVec::new(declared("a", &["kind"])).expect("a metric");
        vec.with_label_values(&["store"]).inc_by(2);
        vec.with_label_values(&["client"]).inc();
        assert_eq!(vec.by_word(), BTreeMap::from([("client".to_owned(), 1), ("store".to_owned(), 2)]));
    }

    #[test]
    fn series_that_are_replaced_are_all_there_are() {
        let vec = IntGaugeVec::new(declared("a", &["x", "y"])).expect("a metric");
        let kept = vec.with_label_values(&["1", "a"]);
        vec.with_label_values(&["2", "a"]).set(2);
        vec.replace([(["1", "a"], 5), (["3", "a"], 7)].into_iter());
        assert_eq!(kept.get(), 5);
        assert_eq!(texts(&vec), [r#"a{x="1",y="a"} 5"#, r#"a{x="3",y="a"} 7"#]);
    }

    #[test]
    fn a_new_series_waits_for_nobody_who_reads_all() {
        let vec = IntCounterVec::new(declared("a_total", &["x"])).expect("a metric");
        for series in 0..=2 * COPIED_MAX {
            vec.with_label_values(&[format!("{series:04}")]).inc();
        }
        let mut seen = Vec::new();
        vec.each(|one| {
            // It would never come to an end if a lock were held meanwhile.
            vec.with_label_values(&["0000."]).inc();
            seen.push(one.labels.clone());
        });
        assert!(seen.is_sorted() && seen.len() > 2 * COPIED_MAX, "{seen:?}");
    }

    proptest! {
        #[test]
        fn different_values_are_different_series(
            rows in prop::collection::vec(prop::collection::vec("[/a1\0]{0,3}", 8), 1..40),
        ) {
            let sets = Metrics::new(10).expect("metrics").families();
            let mut sets: Vec<Vec<String>> = sets.into_iter().map(|family| family.labels).collect();
            sets.sort();
            sets.dedup();
            prop_assert!(sets.iter().any(|labels| labels.len() > 4));
            for labels in sets.iter().filter(|labels| !labels.is_empty()) {
                let names: Vec<&str> = labels.iter().map(String::as_str).collect();
                let vec = IntCounterVec::new(declared("a_total", &names)).expect("a metric");
                let mut order: Vec<usize> = (0..names.len()).collect();
                order.sort_by_key(|at| names[*at]);
                let mut expected: BTreeMap<Vec<&str>, u64> = BTreeMap::new();
                for row in &rows {
                    vec.with_label_values(&row[..names.len()]).inc();
                    *expected.entry(order.iter().map(|at| &*row[*at]).collect()).or_default() += 1;
                }
                let line = |(values, count): (Vec<&str>, u64)| {
                    let names = order.iter().map(|at| names[*at]);
                    format!("a_total{{{}}} {count}", exposition::labels(names.zip(values)))
                };
                prop_assert_eq!(texts(&vec), expected.into_iter().map(line).collect::<Vec<_>>());
            }
        }
    }
}
