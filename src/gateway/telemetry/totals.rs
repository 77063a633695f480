//! Calls summed up over all labels but one or two, for whoever wants one line where the metrics have many series.
//!
//! Who sums up keeps what it read of each series in the [`book`](super::book) and reads again only those that were
//! counted in since: it costs little where little goes on. It belongs to the blocking pool all the same. Bounded by the
//! series there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::book::{Counters, Durations, Noted};
use super::metrics::sharded::{ShardedCounter, ShardedHistogram};

/// Sums by the value of one label.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals(BTreeMap<Arc<str>, Arc<Total>>);

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Total {
    pub(crate) calls: u64,
    /// Those of them whose `error_type` is not empty.
    pub(crate) errors: u64,
    /// How long all of them took together, in seconds.
    pub(crate) seconds: f64,
    /// The errors by their `error_type`.
    pub(crate) reasons: BTreeMap<String, u64>,
    /// Upper bounds of the buckets in seconds.
    bounds: Arc<[f64]>,
    /// How many calls took no longer than each of them.
    buckets: Box<[u64]>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Calls of clients at every endpoint together.
    pub(crate) all: Total,
    /// Calls of clients, by endpoint.
    pub(crate) endpoints: Totals,
    /// Calls that went to upstreams, by these: timed to the head of the reply; what broke after it is an error, too.
    pub(crate) upstreams: Totals,
    /// Calls of tools that were answered, by endpoint and what clients call the tool there.
    pub(crate) tools: BTreeMap<Arc<str>, Arc<Totals>>,
    /// Those that failed, likewise.
    pub(crate) failures: BTreeMap<Arc<str>, BTreeMap<Arc<str>, u64>>,
}

#[derive(Debug)]
pub(crate) struct Sums {
    server: Durations,
    client: Durations,
    broken: Counters,
    failures: Counters,
    server_read: Vec<Read>,
    client_read: Vec<Read>,
    broken_read: Vec<(Noted<ShardedCounter>, u64)>,
    failures_read: Vec<Noted<ShardedCounter>>,
    figures: Arc<Counts>,
}

/// A series of durations, and what was read of it last.
#[derive(Debug)]
struct Read {
    series: Noted<ShardedHistogram>,
    last: Total,
}

impl Sums {
    /// Of the durations of calls of clients, of those of requests to upstreams, of replies that broke, and of failed calls
    /// of tools.
    pub(crate) fn new(server: Durations, client: Durations, broken: Counters, failures: Counters) -> Self {
        let (server_read, client_read) = Default::default();
        let (broken_read, failures_read, figures) = Default::default();
        Self {
            server,
            client,
            broken,
            failures,
            server_read,
            client_read,
            broken_read,
            failures_read,
            figures,
        }
    }

    pub(crate) fn figures(&mut self) -> Arc<Counts> {
        // Copied if somebody still has the last ones: not the totals that stayed as they were.
        let figures = Arc::make_mut(&mut self.figures);
        read(&self.server, &mut self.server_read, |series, more| {
            // Requests that no endpoint took are nobody's calls.
            if !series.place.is_empty() {
                figures.endpoints.entry(&series.place).merge(more);
                figures.all.merge(more);
                if !series.tool.is_empty() {
                    let tools = figures.tools.entry(Arc::clone(&series.place)).or_default();
                    Arc::make_mut(tools).entry(&series.tool).merge(more);
                }
            }
        });
        read(&self.client, &mut self.client_read, |series, more| {
            // A request on the gateway's own behalf is no call.
            if !series.has_no_method {
                figures.upstreams.entry(&series.place).merge(more);
            }
        });
        self.broken.each_since(self.broken_read.len(), |series| self.broken_read.push((series, 0)));
        for (series, last) in &mut self.broken_read {
            let (now, upstream) = (series.handle.get(), figures.upstreams.entry(&series.place));
            // Each of them was counted when it began, if it was measured at all.
            upstream.errors += now - *last;
            *upstream.reasons.entry(series.error.to_string()).or_default() += now - *last;
            *last = now;
        }
        self.failures.each_since(self.failures_read.len(), |series| self.failures_read.push(series));
        for series in &self.failures_read {
            let tools = figures.failures.entry(Arc::clone(&series.place)).or_default();
            tools.insert(Arc::clone(&series.tool), series.handle.get());
        }
        Arc::clone(&self.figures)
    }
}

/// Visits what was counted since in each series that was counted in.
fn read(
    durations: &Durations,
    known: &mut Vec<Read>,
    mut visit: impl FnMut(&Noted<ShardedHistogram>, &Total),
) {
    durations.each_since(known.len(), |series| known.push(Read { series, last: Total::default() }));
    for Read { series, last } in known {
        if series.handle.count() != last.calls {
            let now = Total::of(series);
            visit(series, &now.since(last));
            *last = now;
        }
    }
}

impl Counts {
    /// How often this tool was called here, whatever came of it.
    pub(crate) fn calls_of(&self, endpoint: &str, tool: &str) -> u64 {
        let answered = self.tools.get(endpoint).and_then(|tools| tools.get(tool));
        let failed = self.failures.get(endpoint).and_then(|tools| tools.get(tool));
        answered.map_or(0, |total| total.calls) + failed.copied().unwrap_or_default()
    }
}

impl Totals {
    /// The sum for this value; `None` while there is no series of it.
    pub(crate) fn get(&self, value: &str) -> Option<&Total> {
        self.0.get(value).map(|total| &**total)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Total)> {
        self.0.iter().map(|(value, total)| (&**value, &**total))
    }

    fn entry(&mut self, value: &Arc<str>) -> &mut Total {
        Arc::make_mut(self.0.entry(Arc::clone(value)).or_default())
    }
}

impl Total {
    /// What a series has counted.
    fn of(series: &Noted<ShardedHistogram>) -> Self {
        let (counted, error) = (series.handle.read(), &series.error);
        let calls = counted.count;
        let errors = if error.is_empty() { 0 } else { calls };
        Self {
            calls,
            errors,
            seconds: counted.sum,
            reasons: (errors > 0).then(|| (error.to_string(), errors)).into_iter().collect(),
            bounds: Arc::clone(series.handle.bounds()),
            buckets: counted.cumulative,
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.seconds += other.seconds;
        for (reason, count) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += count;
        }
        if self.buckets.is_empty() {
            self.bounds = Arc::clone(&other.bounds);
            self.buckets = other.bounds.iter().map(|_| 0).collect();
        }
        for (sum, bucket) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += bucket;
        }
    }

    #[must_use]
    pub(crate) fn since(&self, before: &Self) -> Self {
        let then = before.buckets.iter().copied().chain(std::iter::repeat(0));
        let reason = |(reason, now): (&String, &u64)| {
            let more = now.saturating_sub(before.reasons.get(reason).copied().unwrap_or_default());
            (more > 0).then(|| (reason.clone(), more))
        };
        Self {
            calls: self.calls.saturating_sub(before.calls),
            errors: self.errors.saturating_sub(before.errors),
            seconds: (self.seconds - before.seconds).max(0.0),
            reasons: self.reasons.iter().filter_map(reason).collect(),
            bounds: Arc::clone(&self.bounds),
            buckets: self.buckets.iter().zip(then).map(|(now, then)| now.saturating_sub(then)).collect(),
        }
    }

    /// How long this part of the calls took at most, in seconds, as Prometheus' `histogram_quantile` has it: calls of a
    /// bucket are taken to be spread evenly in it, and what is beyond the last bound is that. `None` without calls.
    pub(crate) fn quantile(&self, percent: u8) -> Option<f64> {
        if self.calls == 0 {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "it is an estimate")]
        let number = |count: u64| count as f64;
        let rank = number(self.calls) * f64::from(percent) / 100.0;
        let (mut lower, mut before) = (0.0, 0);
        for (&upper, &count) in self.bounds.iter().zip(&self.buckets) {
            if count > before && number(count) >= rank {
                let part = (rank - number(before)) / number(count - before);
                return Some(lower + (upper - lower) * part);
            }
            (lower, before) = (upper, count);
        }
        self.bounds.last().copied()
    }

    /// Calls that took this long, and errors, with these upper bounds of buckets.
    #[cfg(test)]
    pub(crate) fn of_calls(bounds: &[f64], seconds: &[f64], errors: u64) -> Self {
        let count = |bound: &f64| seconds.iter().filter(|taken| *taken <= bound).count() as u64;
        Self {
            calls: seconds.len() as u64,
            errors,
            seconds: seconds.iter().sum(),
            reasons: BTreeMap::new(),
            bounds: bounds.into(),
            buckets: bounds.iter().map(count).collect(),
        }
    }
}

#[cfg(test)]
impl FromIterator<(String, Total)> for Totals {
    fn from_iter<I: IntoIterator<Item = (String, Total)>>(totals: I) -> Self {
        Self(totals.into_iter().map(|(value, total)| (value.into(), Arc::new(total))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::declare::Declaration;

    #[expect(clippy::cast_possible_truncation, reason = "they are small")]
    fn thousandths(seconds: Option<f64>) -> i64 {
        (seconds.expect("there are calls") * 1000.0).round() as i64
    }

    fn sums() -> Sums {
        let labels = ["place", "method", "gen_ai_tool_name", "error_type"];
        let declared = |name| Declaration::new(name, "D.", &labels).buckets(&[0.1, 1.0, 10.0]);
        let durations = |name| Durations::new(declared(name)).expect("a metric");
        let failures = Counters::new(Declaration::new("f", "F.", &["endpoint", "gen_ai_tool_name"]));
        let broken = Counters::new(Declaration::new("b", "B.", &["upstream", "error_type"]));
        let (failures, broken) = (failures.expect("a metric"), broken.expect("a metric"));
        Sums::new(durations("s"), durations("c"), broken, failures)
    }

    #[test]
    fn series_are_summed_up() {
        let mut sums = sums();
        let (server, client) = (sums.server.clone(), sums.client.clone());
        let observe =
            |place, tool, error, seconds| server.series(&[place, "m", tool, error]).observe(seconds);
        for call in 0..98 {
            observe("/a", ["x", "y"][call % 2], "", 0.05);
        }
        observe("/a", "", "timeout", 5.0);
        observe("/a", "", "reset", 50.0);
        observe("/b", "x", "", 0.5);
        observe("", "", "no_endpoint", 0.5);
        client.series(&["u", "m", "x", ""]).observe(0.5);
        client.series(&["u", "m", "", "timeout"]).observe(5.0);
        client.series(&["u", "", "", "timeout"]).observe(5.0);
        (0..3).for_each(|_| sums.failures.series(&["/a", "x"]).inc());
        sums.broken.series(&["u", "upstream_reset"]).inc();
        let figures = sums.figures();
        let a = figures.endpoints.get("/a").expect("a sum");
        assert_eq!((a.calls, a.errors), (100, 2));
        assert_eq!(a.reasons, [("reset".to_owned(), 1), ("timeout".to_owned(), 1)].into());
        assert!((a.seconds - 59.9).abs() < 1e-9, "{a:?}");
        let quantiles = [50, 98, 99, 100].map(|percent| a.quantile(percent));
        assert_eq!(
            quantiles.map(thousandths),
            [51, 100, 10_000, 10_000],
            "of 98 calls below 0.1, one below 10, one beyond"
        );
        assert_eq!(figures.endpoints.get("/b").map(|b| (b.calls, b.errors)), Some((1, 0)));
        assert_eq!(figures.endpoints.get("/c"), None);
        assert_eq!((figures.all.calls, figures.all.errors), (101, 2), "unknown paths are nobody's");
        assert_eq!(thousandths(figures.all.quantile(50)), 51 + 1);
        assert_eq!(figures.upstreams.get("u").map(|u| (u.calls, u.errors)), Some((2, 2)));
        let tools: Vec<_> = figures.tools["/a"].iter().map(|(name, tool)| (name, tool.calls)).collect();
        assert_eq!(tools, [("x", 49), ("y", 49)]);
        assert_eq!(figures.failures["/a"]["x"], 3);
        assert_eq!(figures.calls_of("/a", "x"), 52);
    }

    #[test]
    fn sums_go_on_from_where_they_were() {
        let mut sums = sums();
        let (server, client) = (sums.server.clone(), sums.client.clone());
        let mut kept = Vec::new();
        for (round, seconds) in [(1, 55.55), (2, 111.1), (3, 166.65)] {
            for (tool, error, seconds) in
                [("x", "", 0.05), ("x", "", 5.0), ("y", "", 0.5), ("", "reset", 50.0)]
            {
                // As after a reload: the same series by another handle.
                server.series(&["/a", "m", tool, error]).observe(seconds);
                client.series(&["u", "m", tool, error]).observe(seconds);
            }
            let figures = sums.figures();
            for total in [
                &figures.all,
                figures.endpoints.get("/a").expect("a sum"),
                figures.upstreams.get("u").expect("a sum"),
            ] {
                assert_eq!((total.calls, total.errors), (4 * round, round));
                assert_eq!(total.reasons, [("reset".to_owned(), round)].into());
                assert!((total.seconds - seconds).abs() < 1e-9, "{total:?}");
                assert_eq!(
                    [25, 50, 75, 100].map(|percent| thousandths(total.quantile(percent))),
                    [100, 1000, 10_000, 10_000]
                );
            }
            let tools: Vec<_> = figures.tools["/a"].iter().map(|(name, tool)| (name, tool.calls)).collect();
            assert_eq!(tools, [("x", 2 * round), ("y", round)]);
            kept.push(figures);
            assert_eq!(kept[0].all.calls, 4, "what was given out stays as it was");
        }
        assert_eq!(sums.figures().all, kept[2].all, "nothing came");
        assert_eq!((sums.server_read.len(), sums.client_read.len()), (3, 3), "each series is there once");
    }

    #[test]
    fn what_came_since_is_counted_alone() {
        let bounds = [0.1, 1.0];
        let before = Total::of_calls(&bounds, &[0.05, 0.05, 5.0], 1);
        let now = Total::of_calls(&bounds, &[0.05, 0.05, 5.0, 0.5, 0.5], 2);
        let since = now.since(&before);
        assert_eq!((since.calls, since.errors, thousandths(since.quantile(50))), (2, 1, 550));
        assert_eq!(now.since(&Total::default()).calls, 5, "there was nothing before");
        assert_eq!(before.since(&now).calls, 0, "counts do not go back");
    }
}
