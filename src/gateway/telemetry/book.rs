//! Metrics that may have very many series, which are noted in a book in the order of their first use.
//!
//! A call that makes a series needs the lock of its metric for a moment. Whoever reads all of them, be it to show or to
//! sum them up, copies a few handles at a time and reads them with no lock held: no call waits for a scrape. Series are
//! never removed.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc, Metric};
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{Histogram, HistogramOpts, IntCounter, Result};

use super::metrics::declare::{Declaration, Registered};
use super::metrics::registry::Registry;
use super::metrics::vec::{HistogramVec, IntCounterVec};

/// Handles copied while the lock is held.
const COPIED_MAX: usize = 64;

/// A metric of durations whose series are noted. Its labels: the place first, the tool third, the error type last.
#[derive(Clone, Debug)]
pub struct Durations {
    vec: HistogramVec,
    book: Arc<Mutex<Book<Histogram>>>,
}

/// A metric that counts what failed, whose series are noted. Its labels: the place, and the tool or the error type.
#[derive(Clone, Debug)]
pub struct Counters {
    vec: IntCounterVec,
    book: Arc<Mutex<Book<IntCounter>>>,
}

/// A series, and what it is summed up by.
#[derive(Clone, Debug)]
pub struct Noted<H> {
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

impl Durations {
    pub fn new(options: HistogramOpts, labels: &[&str]) -> Result<Self> {
        Ok(Self { vec: HistogramVec::new(options, labels)?, book: Arc::default() })
    }

    pub fn series(&self, labels: &[&str]) -> Histogram {
        let handle = self.vec.with_label_values(labels);
        note(&self.book, labels, [0, 2, labels.len() - 1], &handle);
        handle
    }

    /// Visits the series that were noted after the first `known` ones.
    pub fn each_since(&self, known: usize, visit: impl FnMut(Noted<Histogram>)) {
        each_since(&self.book, known, visit);
    }
}

impl Counters {
    pub fn new(options: impl Into<HistogramOpts>, labels: &[&str]) -> Result<Self> {
        Ok(Self { vec: IntCounterVec::new(options, labels)?, book: Arc::default() })
    }

    pub fn series(&self, labels: [&str; 2]) -> IntCounter {
        let handle = self.vec.with_label_values(&labels);
        note(&self.book, &labels, [0, 1, 1], &handle);
        handle
    }

    /// Visits the series that were noted after the first `known` ones.
    pub fn each_since(&self, known: usize, visit: impl FnMut(Noted<IntCounter>)) {
        each_since(&self.book, known, visit);
    }
}

impl Registered for Durations {
    fn register(registry: &Registry, declaration: Declaration) -> Result<Self> {
        registry.add(Self::new(declaration.options, &declaration.labels)?)
    }
}

impl Registered for Counters {
    fn register(registry: &Registry, declaration: Declaration) -> Result<Self> {
        registry.add(Self::new(declaration.options, &declaration.labels)?)
    }
}

impl Collector for Durations {
    fn desc(&self) -> Vec<&Desc> {
        self.vec.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        collect(self.vec.desc(), MetricType::HISTOGRAM, &self.book)
    }
}

impl Collector for Counters {
    fn desc(&self) -> Vec<&Desc> {
        self.vec.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        collect(self.vec.desc(), MetricType::COUNTER, &self.book)
    }
}

impl<H> Default for Book<H> {
    fn default() -> Self {
        Self { noted: Vec::new(), seen: HashSet::new(), hasher: RandomState::new() }
    }
}

fn note<H: Clone>(book: &Mutex<Book<H>>, labels: &[&str], [place, tool, error]: [usize; 3], handle: &H) {
    let text = |at: usize| Arc::from(labels.get(at).copied().unwrap_or_default());
    let mut book = book.lock();
    let digest = book.hasher.hash_one(labels);
    if book.seen.insert(digest) {
        let (place, tool, error) = (text(place), text(tool), text(error));
        book.noted.push(Noted { handle: handle.clone(), place, tool, error });
    }
}

fn each_since<H: Clone>(book: &Mutex<Book<H>>, mut known: usize, mut visit: impl FnMut(Noted<H>)) {
    loop {
        let copied: Vec<Noted<H>> = {
            let book = book.lock();
            book.noted.iter().skip(known).take(COPIED_MAX).cloned().collect()
        };
        if copied.is_empty() {
            return;
        }
        known += copied.len();
        copied.into_iter().for_each(&mut visit);
    }
}

fn collect<H: Metric>(descs: Vec<&Desc>, kind: MetricType, book: &Mutex<Book<H>>) -> Vec<MetricFamily> {
    let family = |desc: &Desc| {
        let mut family = MetricFamily::default();
        family.set_name(desc.fq_name.clone());
        family.set_help(desc.help.clone());
        family.set_field_type(kind);
        each_since(book, 0, |series| family.mut_metric().push(series.handle.metric()));
        family
    };
    descs.into_iter().map(family).collect()
}

#[cfg(test)]
mod tests {
    use prometheus::Opts;

    use super::*;

    #[test]
    fn what_is_shown_is_what_was_counted() {
        let options = HistogramOpts::new("d_seconds", "D.").buckets(vec![1.0]);
        let durations = Durations::new(options.clone(), &["a", "b", "c"]).expect("a metric");
        let plain = HistogramVec::new(options, &["a", "b", "c"]).expect("a metric");
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
            failures.series(["old", &series.to_string()]).inc();
        }
        let mut seen = 0;
        failures.each_since(0, |series| {
            // It would never come to an end if a lock were held meanwhile.
            if seen == 0 {
                failures.series(["new", "1"]).inc();
            }
            assert_eq!(series.handle.get(), 1);
            seen += 1;
        });
        assert_eq!(seen, COPIED_MAX + 2);
        failures.each_since(seen, |series| panic!("{series:?} is known"));
    }
}
