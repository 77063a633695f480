//! Histograms summed up over all labels but one, for whoever wants one line where the metrics have many series.
//!
//! Summing walks every series: it belongs to the blocking pool, never to a call.

use std::collections::BTreeMap;

use prometheus::HistogramVec;
use prometheus::core::Collector as _;
use prometheus::proto::Metric;

/// Sums by the value of one label.
#[derive(Debug, Default)]
pub struct Totals(BTreeMap<String, Total>);

/// One sum.
#[derive(Debug, Default, PartialEq)]
pub struct Total {
    /// Calls.
    pub calls: u64,
    /// Those of them whose `error_type` is not empty.
    pub errors: u64,
    /// How long all of them took together, in seconds.
    pub seconds: f64,
    /// Upper bounds in seconds, and the calls that took no longer.
    buckets: Vec<(f64, u64)>,
}

impl Totals {
    /// The sums of `vec` by `label`.
    pub fn of(vec: &HistogramVec, label: &str) -> Self {
        let mut totals = Self::default();
        for family in vec.collect() {
            for metric in family.get_metric() {
                if let Some(value) = value_of(metric, label) {
                    totals.0.entry(value.to_owned()).or_default().add(metric);
                }
            }
        }
        totals
    }

    /// The sum for this value; `None` while there is no series of it.
    pub fn get(&self, value: &str) -> Option<&Total> {
        self.0.get(value)
    }
}

impl Total {
    fn add(&mut self, metric: &Metric) {
        let histogram = metric.get_histogram();
        let count = histogram.get_sample_count();
        self.calls += count;
        self.seconds += histogram.get_sample_sum();
        if value_of(metric, "error_type").is_some_and(|error| !error.is_empty()) {
            self.errors += count;
        }
        let buckets = histogram.get_bucket();
        if self.buckets.is_empty() {
            self.buckets = buckets.iter().map(|bucket| (bucket.upper_bound(), 0)).collect();
        }
        for (sum, bucket) in self.buckets.iter_mut().zip(buckets) {
            sum.1 += bucket.cumulative_count();
        }
    }

    /// The upper bound of the bucket in which this part of the calls ends, in seconds; `None` without calls, and where
    /// it lies beyond the last bound.
    pub fn quantile(&self, percent: u64) -> Option<f64> {
        let rank = (u128::from(self.calls) * u128::from(percent)).div_ceil(100);
        let reached = |(_, count): &&(f64, u64)| u128::from(*count) >= rank;
        self.buckets.iter().find(reached).filter(|_| self.calls > 0).map(|(bound, _)| *bound)
    }
}

fn value_of<'m>(metric: &'m Metric, label: &str) -> Option<&'m str> {
    metric.get_label().iter().find(|pair| pair.name() == label).map(prometheus::proto::LabelPair::value)
}

#[cfg(test)]
mod tests {
    use prometheus::HistogramOpts;

    use super::*;

    #[test]
    fn series_are_summed_up() {
        let opts = HistogramOpts::new("h", "H.").buckets(vec![0.1, 1.0, 10.0]);
        let vec = HistogramVec::new(opts, &["place", "error_type"]).expect("a metric");
        let observe = |place, error, seconds| vec.with_label_values(&[place, error]).observe(seconds);
        for _ in 0..98 {
            observe("a", "", 0.05);
        }
        observe("a", "timeout", 5.0);
        observe("a", "timeout", 50.0);
        observe("b", "", 0.5);
        let totals = Totals::of(&vec, "place");
        let a = totals.get("a").expect("a sum");
        assert_eq!((a.calls, a.errors), (100, 2));
        assert!((a.seconds - 59.9).abs() < 1e-9, "{a:?}");
        let quantiles = [50, 98, 99, 100].map(|percent| a.quantile(percent));
        assert_eq!(quantiles, [Some(0.1), Some(0.1), Some(10.0), None]);
        assert_eq!(totals.get("b").map(|b| (b.calls, b.errors)), Some((1, 0)));
        assert_eq!(totals.get("c"), None);
    }
}
