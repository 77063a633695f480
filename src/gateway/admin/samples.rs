//! What went on lately: counts at moments in, rates and latencies between them out. No clock, no metrics, no I/O.
//!
//! A line is kept for all calls together, for each endpoint and for each upstream, and goes when the configuration no
//! longer has its subject; one that comes back begins anew. Bounded: [`SAMPLES_MAX`] samples of each line, and of its
//! counts the latest alone: about 4 KiB a line. Of tools, of which there are many, two moments are kept and no line.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use status::{HistoryLine, HistoryLines, Recent, Sample};

use crate::telemetry::totals::{Counts, Total, Totals};

/// Samples that are kept.
pub(super) const SAMPLES_MAX: usize = 60;
/// The shortest time between two samples.
pub(super) const INTERVAL_MIN: Duration = Duration::from_secs(5);
/// The longest.
const INTERVAL_MAX: Duration = Duration::from_mins(1);
/// A line without a failed call for as long fails no more.
const QUIET: Duration = Duration::from_mins(1);
/// For each second that a sample takes, this many pass before the next one.
const REST_FACTOR: u32 = 100;

/// A moment at which counts were taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Moment {
    /// By the clock, in seconds since 1970.
    pub(super) at_s: u64,
    /// Since the moment before.
    pub(super) since: Duration,
}

/// What went on lately.
#[derive(Debug)]
pub(super) struct Samples {
    number: u64,
    moments: VecDeque<Moment>,
    all: Intervals,
    endpoints: BTreeMap<String, Intervals>,
    upstreams: BTreeMap<String, Intervals>,
    latest: Arc<Counts>,
    before: Option<Arc<Counts>>,
    begun_s: u64,
}

/// One subject's intervals, the latest one last; `None`: not known.
#[derive(Debug, Default)]
struct Intervals {
    last: Option<Total>,
    intervals: VecDeque<Option<Recent>>,
}

/// Whose line.
#[derive(Clone, Copy, Debug)]
pub(super) enum Subject<'s> {
    /// All calls of clients.
    All,
    /// The endpoint at this path.
    Endpoint(&'s str),
    /// The upstream of this name.
    Upstream(&'s str),
}

/// How long to wait for the next sample after one that took `cost`.
pub(super) fn interval_after(cost: Duration) -> Duration {
    (cost * REST_FACTOR).clamp(INTERVAL_MIN, INTERVAL_MAX)
}

impl Samples {
    /// Begins with counts as they are.
    pub(super) fn new(at_s: u64, figures: Arc<Counts>, endpoints: &[String], upstreams: &[String]) -> Self {
        let line = |total: Option<&Total>| Intervals { last: total.cloned(), ..Intervals::default() };
        let lines = |names: &[String], totals: &Totals| {
            names
                .iter()
                .map(|name| (name.clone(), line(Some(totals.get(name).unwrap_or(&Total::default())))))
                .collect()
        };
        Self {
            number: 0,
            moments: VecDeque::new(),
            all: line(Some(&figures.all)),
            endpoints: lines(endpoints, &figures.endpoints),
            upstreams: lines(upstreams, &figures.upstreams),
            latest: figures,
            before: None,
            begun_s: at_s,
        }
    }

    /// Takes in the counts of a moment, at which the configuration had these endpoints and upstreams.
    pub(super) fn add(
        &mut self,
        moment: Moment,
        figures: Arc<Counts>,
        endpoints: &[String],
        upstreams: &[String],
    ) {
        if self.moments.len() == SAMPLES_MAX {
            self.moments.pop_front();
        }
        self.moments.push_back(moment);
        self.number += 1;
        self.all.add(moment.since, figures.all.clone());
        add_to(&mut self.endpoints, moment.since, endpoints, &figures.endpoints);
        add_to(&mut self.upstreams, moment.since, upstreams, &figures.upstreams);
        self.before = Some(std::mem::replace(&mut self.latest, figures));
    }

    /// The latest sample.
    pub(super) fn sample(&self) -> Sample {
        Sample {
            number: Some(self.number),
            at_s: self.moments.back().map_or(self.begun_s, |last| last.at_s),
            interval_s: Some(self.interval().as_secs_f64()),
        }
    }

    /// The latest interval of a line.
    pub(super) fn recent(&self, subject: Subject<'_>) -> Recent {
        self.line(subject).and_then(|line| line.intervals.back().cloned().flatten()).unwrap_or_default()
    }

    /// Since when some calls of a line fail in every few samples, in seconds since 1970: since the first of these after a
    /// minute without.
    pub(super) fn failing_since_s(&self, subject: Subject<'_>) -> Option<u64> {
        let line = self.line(subject)?;
        let mut first = None;
        let mut quiet = Duration::ZERO;
        for (moment, interval) in self.moments.iter().rev().zip(line.intervals.iter().rev()) {
            if quiet >= QUIET {
                break;
            }
            let errors_per_s = interval.as_ref().and_then(|recent| recent.errors_per_s).unwrap_or_default();
            if errors_per_s > 0.0 {
                (first, quiet) = (Some(moment.at_s), Duration::ZERO);
            } else {
                quiet += moment.since;
            }
        }
        first
    }

    /// How often a tool was called in the latest interval, by these names at these endpoints.
    pub(super) fn tool_calls_per_s(&self, named: &[(&str, &str)]) -> Option<f64> {
        let calls = |figures: &Counts| -> u64 {
            named.iter().map(|(endpoint, name)| figures.calls_of(endpoint, name)).sum()
        };
        let before = self.before.as_ref()?;
        let more = calls(&self.latest).saturating_sub(calls(before));
        Some(per_second(more, self.interval()))
    }

    /// Every line, oldest interval first.
    pub(super) fn lines(&self) -> status::History {
        let lines = |lines: &BTreeMap<String, Intervals>| {
            lines.iter().map(|(name, line)| (name.clone(), self.written(line))).collect()
        };
        status::History {
            number: self.number,
            interval_s: Some(self.interval().as_secs_f64()),
            at_s: self.moments.iter().map(|moment| moment.at_s).collect(),
            all: self.written(&self.all),
            endpoints: lines(&self.endpoints),
            upstreams: lines(&self.upstreams),
        }
    }

    fn interval(&self) -> Duration {
        self.moments.back().map_or(INTERVAL_MIN, |last| last.since)
    }

    fn line(&self, subject: Subject<'_>) -> Option<&Intervals> {
        match subject {
            Subject::All => Some(&self.all),
            Subject::Endpoint(path) => self.endpoints.get(path),
            Subject::Upstream(name) => self.upstreams.get(name),
        }
    }

    /// Its intervals, as many as there are moments.
    fn written(&self, line: &Intervals) -> HistoryLines {
        let missing = self.moments.len().saturating_sub(line.intervals.len());
        let intervals = || std::iter::repeat_n(&None, missing).chain(&line.intervals);
        let each = |value: fn(&Recent) -> Option<f64>| {
            HistoryLine(intervals().map(|rates| rates.as_ref().and_then(value)).collect())
        };
        HistoryLines {
            calls_per_s: each(|rates| rates.calls_per_s),
            errors_per_s: each(|rates| rates.errors_per_s),
            p50_s: each(|rates| rates.p50_s),
            p99_s: each(|rates| rates.p99_s),
        }
    }
}

impl Intervals {
    fn add(&mut self, since: Duration, now: Total) {
        // What was counted while nobody looked belongs to no interval.
        let rates = self.last.as_ref().map(|before| rates(&now.since(before), since));
        if self.intervals.len() == SAMPLES_MAX {
            self.intervals.pop_front();
        }
        self.intervals.push_back(rates);
        self.last = Some(now);
    }
}

/// What went on in an interval of this length.
fn rates(counted: &Total, since: Duration) -> Recent {
    Recent {
        calls_per_s: Some(per_second(counted.calls, since)),
        errors_per_s: Some(per_second(counted.errors, since)),
        p50_s: counted.quantile(50),
        p99_s: counted.quantile(99),
    }
}

fn add_to(lines: &mut BTreeMap<String, Intervals>, since: Duration, names: &[String], totals: &Totals) {
    let mut old = std::mem::take(lines);
    for name in names {
        let mut line = old.remove(name).unwrap_or_default();
        line.add(since, totals.get(name).cloned().unwrap_or_default());
        lines.insert(name.clone(), line);
    }
}

/// To a thousandth: more is noise, and long to write.
fn per_second(count: u64, since: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
    let rate = count as f64 / since.as_secs_f64().max(0.001);
    (rate * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Serialize;
    use serde_json::{Value, json};

    use super::*;

    const BOUNDS: [f64; 3] = [0.1, 1.0, 10.0];

    fn json_of(told: &impl Serialize) -> Value {
        serde_json::to_value(told).expect("it can be written")
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// All calls were at the endpoint `/a` and went to the upstream `u`, to its tool `t`.
    fn figures(seconds: &[f64], errors: u64) -> Arc<Counts> {
        let total = || Total::of_calls(&BOUNDS, seconds, errors);
        let only = |name: &str| std::iter::once((name.to_owned(), total())).collect::<Totals>();
        Arc::new(Counts {
            all: total(),
            endpoints: only("/a"),
            upstreams: only("u"),
            tools: [("/a".into(), Arc::new(only("t")))].into(),
            failures: BTreeMap::new(),
        })
    }

    fn moment(at_s: u64) -> Moment {
        Moment { at_s, since: Duration::from_secs(5) }
    }

    fn begun() -> Samples {
        Samples::new(100, figures(&[], 0), &names(&["/a"]), &names(&["u"]))
    }

    #[test]
    fn an_interval_is_what_came_since_the_one_before() {
        let mut history = begun();
        let nothing = json!({"calls_per_s": null, "errors_per_s": null, "p50_s": null, "p99_s": null});
        assert_eq!(json_of(&history.recent(Subject::All)), nothing);
        assert_eq!(json_of(&history.sample()), json!({"number": 0, "at_s": 100, "interval_s": 5.0}));
        assert_eq!(history.tool_calls_per_s(&[("/a", "t")]), None);
        history.add(moment(105), figures(&[0.05; 10], 1), &names(&["/a"]), &names(&["u"]));
        history.add(
            moment(110),
            figures(&[&[0.05; 10][..], &[0.5; 5], &[50.0]].concat(), 3),
            &names(&["/a"]),
            &names(&["u"]),
        );
        // The slowest one is beyond the last bound.
        let expected = json!({"calls_per_s": 1.2, "errors_per_s": 0.4, "p50_s": 0.64, "p99_s": 10.0});
        for subject in [Subject::All, Subject::Endpoint("/a"), Subject::Upstream("u")] {
            assert_eq!(json_of(&history.recent(subject)), expected, "{subject:?}");
        }
        assert_eq!(history.tool_calls_per_s(&[("/a", "t")]), Some(1.2));
        assert_eq!(history.tool_calls_per_s(&[("/a", "unknown")]), Some(0.0));
        let line = json!({"calls_per_s": [2.0, 1.2], "errors_per_s": [0.2, 0.4], "p50_s": [0.05, 0.64], "p99_s": [0.099, 10.0]});
        let all = json!({"number": 2, "interval_s": 5.0, "at_s": [105, 110], "all": line,
            "endpoints": {"/a": line}, "upstreams": {"u": line}});
        assert_eq!(json_of(&history.lines()), all);
        assert_eq!(json_of(&history.sample()), json!({"number": 2, "at_s": 110, "interval_s": 5.0}));
        history.add(moment(115), figures(&[0.05; 16], 3), &names(&["/a"]), &names(&["u"]));
        assert_eq!(history.recent(Subject::All).p50_s, None, "nothing was called");
        assert_eq!(history.recent(Subject::All).calls_per_s, Some(0.0));
    }

    #[test]
    fn a_reload_keeps_what_stays() {
        let mut history = begun();
        history.add(moment(105), figures(&[0.05; 10], 0), &names(&["/a"]), &names(&["u"]));
        history.add(moment(110), figures(&[0.05; 20], 0), &names(&["/a", "/b"]), &names(&["new"]));
        assert_eq!(json_of(&history.lines())["endpoints"]["/a"]["calls_per_s"], json!([2.0, 2.0]));
        assert_eq!(json_of(&history.lines())["endpoints"]["/b"]["calls_per_s"], json!([null, null]));
        assert_eq!(json_of(&history.lines())["upstreams"]["u"], Value::Null, "it is gone");
        history.add(moment(115), figures(&[0.05; 30], 0), &names(&["/a", "/b"]), &names(&["u", "new"]));
        assert_eq!(json_of(&history.lines())["endpoints"]["/b"]["calls_per_s"], json!([null, null, 0.0]));
        let back = &json_of(&history.lines())["upstreams"]["u"]["calls_per_s"];
        assert_eq!(back, &json!([null, null, null]), "what was counted meanwhile is no rate");
    }

    #[test]
    fn a_line_fails_since_the_first_error_after_a_quiet_minute() {
        let mut history = begun();
        let mut add = |at: u64, errors: u64| {
            history.add(moment(100 + at * 5), figures(&[0.05; 10], errors), &names(&["/a"]), &names(&["u"]));
            history.failing_since_s(Subject::Upstream("u"))
        };
        assert_eq!([add(1, 0), add(2, 1), add(3, 1), add(4, 2)], [None, Some(110), Some(110), Some(110)]);
        let quiet: Vec<_> = (5..17).map(|at| add(at, 2)).collect();
        assert_eq!((quiet[10], quiet[11]), (Some(110), None));
        assert_eq!(add(17, 3), Some(185));
    }

    #[test]
    fn what_takes_long_is_done_seldom() {
        for (cost_ms, expected_s) in [(0, 5), (50, 5), (100, 10), (250, 25), (10_000, 60)] {
            assert_eq!(
                interval_after(Duration::from_millis(cost_ms)),
                Duration::from_secs(expected_s),
                "{cost_ms}"
            );
        }
    }

    proptest! {
        /// Whatever comes and goes: all lines are equally long, bounded, and hold nothing impossible; and what is counted
        /// in the intervals of a line that stayed is what was counted in all.
        #[test]
        fn lines_are_whole(steps in prop::collection::vec((0_usize..50, 1_u64..20_000, any::<bool>()), 1..80)) {
            let mut history = begun();
            let mut seconds: Vec<f64> = Vec::new();
            let mut counted = Vec::new();
            for (number, (calls, since_ms, has_upstream)) in steps.iter().enumerate() {
                seconds.extend((0..*calls).map(|call| [0.05, 0.5, 5.0, 50.0][call % 4]));
                let since = Duration::from_millis(*since_ms);
                counted.push((*calls, since));
                let upstreams = names(if *has_upstream { &["u"] } else { &[] });
                let moment = Moment { at_s: number as u64, since };
                history.add(moment, figures(&seconds, seconds.len() as u64 / 2), &names(&["/a"]), &upstreams);
            }
            let told = json_of(&history.lines());
            let length = steps.len().min(SAMPLES_MAX);
            prop_assert_eq!(told["at_s"].as_array().map(Vec::len), Some(length));
            prop_assert_eq!(told["upstreams"].as_object().map(serde_json::Map::len), Some(usize::from(steps[steps.len() - 1].2)));
            let lines = [&told["all"], &told["endpoints"]["/a"]].into_iter().chain(told["upstreams"].get("u"));
            for line in lines {
                for values in line.as_object().expect("a line").values() {
                    let values = values.as_array().expect("a list");
                    prop_assert_eq!(values.len(), length);
                    prop_assert!(values.iter().filter_map(Value::as_f64).all(|value| value >= 0.0));
                }
            }
            let rates = told["all"]["calls_per_s"].as_array().expect("rates").iter();
            for (rate, (calls, since)) in rates.zip(&counted[counted.len() - length..]) {
                let rate = rate.as_f64().expect("it was there all the time");
                let expected = f64::from(u32::try_from(*calls).expect("few")) / since.as_secs_f64();
                prop_assert!((rate - expected).abs() <= 0.001, "{} {}", rate, expected);
            }
        }
    }
}
