//! The text of `/metrics`: well-formed, cumulative, and out of the reach of clients.

use std::collections::BTreeSet;

use crate::harness::{Config, Daemon, Upstream, api_key, call, eventually, list};

/// One sample of the text format.
#[derive(Debug)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Sample {
    fn has(&self, label: &str, value: &str) -> bool {
        self.labels.iter().any(|(name, present)| name == label && present == value)
    }
}

/// Reads the text format strictly: every sample must belong to a family that was declared before.
fn scrape(daemon: &Daemon) -> Vec<Sample> {
    let response = daemon.get_admin("/metrics");
    assert_eq!(response.status, 200);
    assert!(
        response.header("content-type").is_some_and(|value| value.starts_with("text/plain")),
        "{response:?}"
    );
    let text = response.text();
    assert!(text.ends_with('\n'));
    let mut families = BTreeSet::new();
    let mut samples = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.split(' ');
            match (words.next(), words.next(), words.next()) {
                (Some("TYPE"), Some(name), Some("counter" | "gauge" | "histogram")) => {
                    assert!(families.insert(name.to_owned()), "{name} is declared twice");
                }
                (Some("HELP"), Some(_), Some(_)) => {}
                _ => panic!("{line}"),
            }
            continue;
        }
        let sample = parse(line).unwrap_or_else(|| panic!("not a sample: {line}"));
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| sample.name.strip_suffix(suffix).filter(|family| families.contains(*family)))
            .unwrap_or(&sample.name);
        assert!(families.contains(family), "undeclared: {line}");
        samples.push(sample);
    }
    samples
}

fn parse(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}')?),
        None => (series, ""),
    };
    let well_named = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
    let pairs = labels.split("\",").filter(|pair| !pair.is_empty());
    let labels: Vec<(String, String)> = pairs
        .map(|pair| {
            let (label, value) = pair.split_once("=\"")?;
            well_named(label).then(|| (label.to_owned(), value.trim_end_matches('"').to_owned()))
        })
        .collect::<Option<_>>()?;
    let value = value.replace("+Inf", "inf").parse().ok()?;
    (well_named(name) && !name.is_empty()).then(|| Sample { name: name.to_owned(), labels, value })
}

const CALLS: &str = "mcp_server_operation_duration_seconds_count";

fn count(samples: &[Sample], fits: impl Fn(&Sample) -> bool) -> f64 {
    samples.iter().filter(|sample| sample.name == CALLS && fits(sample)).map(|sample| sample.value).sum()
}

#[test]
fn counters_move() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).admin());
    let of_calls = |sample: &Sample| sample.has("mcp_method_name", "tools/call");
    let before = count(&scrape(&daemon), of_calls);
    for _ in 0..5 {
        daemon.send(&call("7", "echo")).assert_ok();
    }
    // The count is kept when the call ends, which may be after its last byte.
    eventually("five calls are counted", || {
        let after = count(&scrape(&daemon), of_calls);
        assert!(after - before <= 5.0, "{after}");
        (after - before > 4.5).then_some(())
    });
    daemon.send(&call("7", "echo").with("Mcp-Name", "echo")).assert_error(400, -32020, Some("7"));
    eventually("a refusal is counted with its kind of error", || {
        let samples = scrape(&daemon);
        let failed = |sample: &Sample| {
            sample.labels.iter().any(|(label, value)| label == "error_type" && !value.is_empty())
        };
        (count(&samples, failed) >= 1.0).then_some(())
    });
}

#[test]
fn histograms_are_cumulative() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).admin());
    daemon.send(&call("7", "echo")).assert_ok();
    let buckets = eventually("the call is in the histogram", || {
        let samples = scrape(&daemon);
        let of_calls = |sample: &&Sample| {
            sample.name == "mcp_server_operation_duration_seconds_bucket"
                && sample.has("mcp_method_name", "tools/call")
        };
        let buckets: Vec<f64> = samples.iter().filter(of_calls).map(|sample| sample.value).collect();
        (!buckets.is_empty()).then_some(buckets)
    });
    assert!(buckets.is_sorted(), "{buckets:?}");
    assert!(buckets.last().is_some_and(|last| *last >= 1.0));
}

#[test]
fn clients_cannot_make_series() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(
        &Config::transparent(&upstream)
            .admin()
            .section(&api_key("ci", "0123456789abcdef0123456789"))
            .endpoint("auth = []"),
    );
    daemon.send(&call("0", "echo")).assert_ok();
    let series = |text: &str| {
        scrape(&daemon)
            .iter()
            .filter(|sample| sample.labels.iter().any(|(_, value)| value.contains(text)))
            .count()
    };
    for n in 0..50 {
        daemon.send(&call("7", &format!("invented-{n}")));
        daemon.send(&list("7", &format!("invented/{n}")));
        daemon.send(&call("7", "echo").set("MCP-Protocol-Version", format!("invented-{n}")));
    }
    assert_eq!(series("invented"), 0, "names that clients choose are no labels");
}
