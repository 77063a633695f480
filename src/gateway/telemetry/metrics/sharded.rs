//! Counters and histograms of what every call counts: each worker counts in [shards](super::shards) of its own.
//!
//! Deliberately absent: what is counted seldom. That is an `IntCounter` or an `IntGauge`, which all threads share.

use std::sync::Arc;

use super::shards::Shards;

/// A counter.
#[derive(Clone, Debug)]
pub(crate) struct ShardedCounter(Arc<Shards>);

/// A histogram.
#[derive(Clone, Debug)]
pub(crate) struct ShardedHistogram(Arc<Buckets>);

#[derive(Debug)]
struct Buckets {
    bounds: Arc<[f64]>,
    shards: Shards,
}

/// What a histogram has counted.
#[derive(Debug)]
pub(crate) struct Distribution {
    /// How many observations were at most each bound.
    pub cumulative: Box<[u64]>,
    /// How many there were.
    pub count: u64,
    /// All of them together.
    pub sum: f64,
}

/// The cells of a histogram. They are changed in this order, and read in the other: no bucket has more than were counted.
const SUM: usize = 0;
const COUNT: usize = 1;
const BUCKETS: usize = 2;

impl Default for ShardedCounter {
    fn default() -> Self {
        Self(Arc::new(Shards::new(1)))
    }
}

impl ShardedCounter {
    pub(crate) fn inc(&self) {
        self.0.own().change(0, |count| count.wrapping_add(1));
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.sum(0)
    }
}

impl ShardedHistogram {
    /// One with these upper bounds of buckets, in order.
    pub(crate) fn new(bounds: &Arc<[f64]>) -> Self {
        let shards = Shards::new(BUCKETS + bounds.len());
        Self(Arc::new(Buckets { bounds: Arc::clone(bounds), shards }))
    }

    pub(crate) fn observe(&self, value: f64) {
        let Buckets { bounds, shards } = &*self.0;
        let own = shards.own();
        own.change(SUM, |sum| (f64::from_bits(sum) + value).to_bits());
        own.change(COUNT, |count| count.wrapping_add(1));
        if let Some(bucket) = bounds.iter().position(|bound| value <= *bound) {
            own.change(BUCKETS + bucket, |count| count.wrapping_add(1));
        }
    }

    /// How many observations there were.
    pub(crate) fn count(&self) -> u64 {
        self.0.shards.sum(COUNT)
    }

    pub(crate) fn read(&self) -> Distribution {
        let Buckets { bounds, shards } = &*self.0;
        let (mut sum, mut count, mut cumulative) = (0.0, 0, vec![0; bounds.len()]);
        shards.each(|shard| {
            let mut below = 0;
            for (bucket, total) in cumulative.iter_mut().enumerate() {
                below += shard.get(BUCKETS + bucket);
                *total += below;
            }
            count += shard.get(COUNT);
            sum += f64::from_bits(shard.get(SUM));
        });
        Distribution { cumulative: cumulative.into(), count, sum }
    }

    /// A bound that so many percent of the observations are not above; `None` without any.
    pub(crate) fn quantile(&self, percent: u8) -> Option<f64> {
        let Distribution { cumulative, count, .. } = self.read();
        let is_enough = |below: &u64| below.saturating_mul(100) >= count.saturating_mul(percent.into());
        let bucket = cumulative.iter().position(is_enough);
        let bounds = &self.0.bounds;
        (count > 0).then(|| {
            bucket.map_or(f64::INFINITY, |bucket| bounds.get(bucket).copied().unwrap_or(f64::INFINITY))
        })
    }

    pub(crate) fn bounds(&self) -> &Arc<[f64]> {
        &self.0.bounds
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use prometheus::core::Metric as _;

    use super::super::shards::count_as_worker;
    use super::*;

    #[test]
    fn a_histogram_counts_as_that_of_the_library() {
        let bounds = [0.1, 1.0, 10.0];
        let (ours, theirs) = (
            ShardedHistogram::new(&bounds.into()),
            prometheus::Histogram::with_opts(
                prometheus::HistogramOpts::new("h", "H.").buckets(bounds.into()),
            ),
        );
        let theirs = theirs.expect("a histogram");
        for value in [0.0, 0.1, 0.100_001, 1.0, 5.0, 10.0, 10.1, f64::INFINITY, f64::NAN] {
            ours.observe(value);
            theirs.observe(value);
            let (read, metric) = (ours.read(), theirs.metric());
            let expected = metric.get_histogram();
            let buckets = expected.get_bucket().iter().map(prometheus::proto::Bucket::cumulative_count);
            assert_eq!(*read.cumulative, buckets.collect::<Vec<u64>>(), "{value}");
            assert_eq!(read.sum.to_string(), expected.get_sample_sum().to_string(), "{value}");
            assert_eq!([ours.count(), read.count], [expected.get_sample_count(); 2], "{value}");
        }
    }

    #[test]
    fn a_quantile_is_the_bound_of_its_bucket() {
        let histogram = ShardedHistogram::new(&[0.1, 1.0, 10.0].into());
        assert_eq!(histogram.quantile(90), None);
        (0..90).for_each(|_| histogram.observe(0.5));
        (0..9).for_each(|_| histogram.observe(5.0));
        histogram.observe(50.0);
        let quantiles = [0, 50, 90, 91, 99, 100].map(|percent| histogram.quantile(percent));
        assert_eq!(quantiles, [0.1, 1.0, 1.0, 10.0, 10.0, f64::INFINITY].map(Some));
    }

    #[test]
    fn all_threads_are_added_up() {
        let (counter, histogram) = (ShardedCounter::default(), ShardedHistogram::new(&[1.0].into()));
        thread::scope(|scope| {
            for worker in 0..8 {
                let (counter, histogram) = (&counter, &histogram);
                scope.spawn(move || {
                    // Half of them are no workers.
                    if worker % 2 == 0 {
                        count_as_worker(worker);
                    }
                    for _ in 0..1000 {
                        counter.inc();
                        histogram.observe(0.5);
                        histogram.observe(1.5);
                    }
                });
            }
            for _ in 0..1000 {
                let read = histogram.read();
                assert!(read.cumulative[0] <= read.count, "{read:?}");
            }
        });
        let read = histogram.read();
        assert_eq!((counter.get(), &*read.cumulative, read.count), (8000, &[8000][..], 16000));
        assert!((read.sum - 16_000.0).abs() < 1e-9, "{read:?}");
    }
}
