//! Metrics that may have very many series, which are noted in a book in the order of their first use.
//!
//! A call that makes a series needs the lock of its metric for a moment. Whoever reads all of them, be it to show or to
//! sum them up, copies a few handles at a time and reads them with no lock held: no call waits for a scrape. Series are
//! never removed.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Histogram, HistogramOpts, IntCounter, Result};

use super::metrics::declare::{Declaration, Registered};
use super::metrics::registry::Registry;
use super::metrics::vec::{MetricVec, Series};

/// Handles copied while the lock is held.
const COPIED_MAX: usize = 64;

/// A metric whose series are noted. Its labels: the place first, the tool third or, of two, last, the error type last.
#[derive(Clone, Debug)]
pub(crate) struct NotedVec<S> {
    vec: MetricVec<S>,
    book: Arc<Mutex<Book<S>>>,
}

pub(crate) type Durations = NotedVec<Histogram>;
pub(crate) type Counters = NotedVec<IntCounter>;

/// A series, and what it is summed up by.
#[derive(Clone, Debug)]
pub(crate) struct Noted<H> {
    /// Where it is counted.
    pub handle: H,
    /// The first label.
    pub place: Arc<str>,
    /// The label of the tool, if there is one.
    pub tool: Arc<str>,
    /// The last label.
    pub error: Arc<str>,
}

/// Series in the order in which they were first used.
#[derive(Debug)]
struct Book<H> {
    noted: Vec<Noted<H>>,
    /// Digests of the labels of all of them: a reload makes handles anew.
    seen: HashSet<u64>,
    hasher: RandomState,
}

impl<S: Series> NotedVec<S> {
    pub(crate) fn new(options: impl Into<HistogramOpts>, labels: &[&str]) -> Result<Self> {
        Ok(Self { vec: MetricVec::new(options, labels)?, book: Arc::default() })
    }

    pub(crate) fn series(&self, labels: &[&str]) -> S {
        let handle = self.vec.with_label_values(labels);
        let text = |at: usize| Arc::from(labels.get(at).copied().unwrap_or_default());
        let last = labels.len().saturating_sub(1);
        let mut book = self.book.lock();
        let digest = book.hasher.hash_one(labels);
        if book.seen.insert(digest) {
            let (place, tool, error) = (text(0), text(last.min(2)), text(last));
            book.noted.push(Noted { handle: handle.clone(), place, tool, error });
        }
        handle
    }

    /// Visits the series that were noted after the first `known` ones.
    pub(crate) fn each_since(&self, mut known: usize, mut visit: impl FnMut(Noted<S>)) {
        loop {
            let copied: Vec<Noted<S>> = {
                let book = self.book.lock();
                book.noted.iter().skip(known).take(COPIED_MAX).cloned().collect()
            };
            if copied.is_empty() {
                return;
            }
            known += copied.len();
            copied.into_iter().for_each(&mut visit);
        }
    }
}

impl<S: Series + 'static> Registered for NotedVec<S> {
    fn register(registry: &Registry, declaration: Declaration) -> Result<Self> {
        registry.add(Self::new(declaration.options, &declaration.labels)?)
    }
}

impl<S: Series> Collector for NotedVec<S> {
    fn desc(&self) -> Vec<&Desc> {
        self.vec.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let family = |desc: &Desc| {
            let mut family = MetricFamily::default();
            family.set_name(desc.fq_name.clone());
            family.set_help(desc.help.clone());
            family.set_field_type(S::KIND);
            self.each_since(0, |series| family.mut_metric().push(series.handle.metric()));
            family
        };
        self.desc().into_iter().map(family).collect()
    }
}

impl<H> Default for Book<H> {
    fn default() -> Self {
        Self { noted: Vec::new(), seen: HashSet::new(), hasher: RandomState::new() }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Opts;

    use super::*;

    #[test]
    fn what_is_shown_is_what_was_counted() {
        let options = HistogramOpts::new("d_seconds", "D.").buckets(vec![1.0]);
        let durations = Durations::new(options.clone(), &["a", "b", "c"]).expect("a metric");
        let plain = MetricVec::<Histogram>::new(options, &["a", "b", "c"]).expect("a metric");
        for series in 0..3 * COPIED_MAX {
            let number = series.to_string();
            // The last two are the same text, strung together.
            for labels in [["x", &number, ""], ["y", &number, "z"], ["y", "", &format!("{number}z")]] {
                durations.series(&labels).observe(0.5);
                plain.with_label_values(&labels).observe(0.5);
            }
        }
        let text = |collector: &dyn Collector| {
            let registry = prometheus::Registry::new();
            let family = collector.collect().remove(0);
            let fixed = Fixed { desc: collector.desc()[0].clone(), family };
            registry.register(Box::new(fixed)).expect("registered");
            prometheus::TextEncoder::new().encode_to_string(&registry.gather()).expect("text")
        };
        assert_eq!(text(&durations), text(&plain));
    }

    /// What was collected, to be put in order.
    struct Fixed {
        desc: Desc,
        family: MetricFamily,
    }

    impl Collector for Fixed {
        fn desc(&self) -> Vec<&Desc> {
            vec![&self.desc]
        }

        fn collect(&self) -> Vec<MetricFamily> {
            vec![self.family.clone()]
        }
    }

    #[test]
    fn a_new_series_waits_for_nobody_who_reads_all() {
        let failures = Counters::new(Opts::new("f_total", "F."), &["a", "b"]).expect("a metric");
        for series in 0..=COPIED_MAX {
            failures.series(&["old", &series.to_string()]).inc();
        }
        let mut seen = 0;
        failures.each_since(0, |series| {
            // It would never come to an end if a lock were held meanwhile.
            if seen == 0 {
                failures.series(&["new", "1"]).inc();
            }
            assert_eq!(series.handle.get(), 1);
            seen += 1;
        });
        assert_eq!(seen, COPIED_MAX + 2);
        failures.each_since(seen, |series| panic!("{series:?} is known"));
    }
}
