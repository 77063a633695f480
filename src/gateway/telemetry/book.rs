//! Metrics that may have very many series, which are noted in a book in the order of their first use.
//!
//! A call that makes a series needs the lock of its metric for a moment. Whoever reads all of them, be it to show or to
//! sum them up, copies a few handles at a time and reads them with no lock held: no call waits for a scrape. Series are
//! never removed.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::Result;

use super::metrics::declare::{Declaration, Registered};
use super::metrics::registry::{Exposed, Family, Registry};
use super::metrics::sharded::{ShardedCounter, ShardedHistogram};
use super::metrics::vec::{COPIED_MAX, MetricVec, Series};

/// A metric whose series are noted. Its labels: the place first, the tool third or, of two, last, the error type last.
#[derive(Clone, Debug)]
pub(crate) struct NotedVec<S> {
    vec: MetricVec<S>,
    /// In the order in which they were first used; a reload asks for them anew.
    book: Arc<Mutex<Vec<Noted<S>>>>,
}

pub(crate) type Durations = NotedVec<ShardedHistogram>;
pub(crate) type Counters = NotedVec<ShardedCounter>;

/// A series, and what it is summed up by.
#[derive(Clone, Debug)]
pub(crate) struct Noted<H> {
    /// Where it is counted.
    pub handle: H,
    /// The first label.
    pub place: Arc<str>,
    /// True if the second label is empty, which is that of the method where there is one.
    pub has_no_method: bool,
    /// The label of the tool, if there is one.
    pub tool: Arc<str>,
    /// The last label.
    pub error: Arc<str>,
}

impl<S: Series> NotedVec<S> {
    pub(crate) fn new(declaration: Declaration) -> Result<Self> {
        Ok(Self { vec: MetricVec::new(declaration)?, book: Arc::default() })
    }

    pub(crate) fn series(&self, labels: &[&str]) -> S {
        let (handle, is_new) = self.vec.find_or_add(labels);
        if is_new {
            let text = |at: usize| Arc::from(labels.get(at).copied().unwrap_or_default());
            let last = labels.len().saturating_sub(1);
            let (place, tool, error) = (text(0), text(last.min(2)), text(last));
            let has_no_method = labels.get(1).is_none_or(|label| label.is_empty());
            self.book.lock().push(Noted { handle: handle.clone(), place, has_no_method, tool, error });
        }
        handle
    }

    /// Visits the series that were noted after the first `known` ones.
    pub(crate) fn each_since(&self, mut known: usize, mut visit: impl FnMut(Noted<S>)) {
        loop {
            let copied: Vec<Noted<S>> =
                self.book.lock().iter().skip(known).take(COPIED_MAX).cloned().collect();
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
        registry.add(Self::new(declaration)?)
    }
}

impl<S: Series> Exposed for NotedVec<S> {
    fn family(&self) -> Family {
        self.vec.family()
    }

    fn write(&self, text: &mut Vec<u8>) {
        self.vec.write(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_is_noted_once() {
        let declaration = Declaration::new("d_seconds", "D.", &["a", "b", "c"]).buckets(&[1.0]);
        let durations = Durations::new(declaration).expect("a metric");
        for series in (0..3 * COPIED_MAX).chain(0..3) {
            let number = series.to_string();
            // The last two are the same text, strung together.
            for labels in [["x", &number, ""], ["y", &number, "z"], ["y", "", &format!("{number}z")]] {
                durations.series(&labels).observe(0.5);
            }
        }
        let (mut noted, mut counted) = (0, 0);
        durations.each_since(0, |series| (noted, counted) = (noted + 1, counted + series.handle.count()));
        assert_eq!((noted, counted), (9 * COPIED_MAX, 9 * COPIED_MAX as u64 + 9));
        let mut text = Vec::new();
        durations.write(&mut text);
        let text = String::from_utf8(text).expect("UTF-8");
        assert_eq!(text.matches("d_seconds_count{").count(), noted);
    }

    #[test]
    fn a_new_series_waits_for_nobody_who_reads_all() {
        let failures = Counters::new(Declaration::new("f_total", "F.", &["a", "b"])).expect("a metric");
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
