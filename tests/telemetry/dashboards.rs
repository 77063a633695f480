//! Alert rules and the dashboard speak of metrics that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use gateway::Metrics;
use serde_json::Value;

use crate::harness::{Config, Daemon, Prometheus, Upstream, call, list, promtool};

const RULES: [&str; 2] = ["trunkline-recording.yml", "trunkline-alerts.yml"];
/// What every scraped series has.
const TARGET_LABELS: [&str; 2] = ["job", "instance"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config/prometheus")
}

/// Every series name that a query may use, with its labels.
fn known() -> BTreeMap<String, BTreeSet<String>> {
    let target = TARGET_LABELS.map(String::from);
    let mut known = BTreeMap::from([("up".to_owned(), BTreeSet::from(target.clone()))]);
    for family in Metrics::new(1).unwrap().families() {
        let labels: BTreeSet<String> = family.labels.iter().cloned().chain(target.clone()).collect();
        if family.kind == "histogram" {
            let mut with_bound = labels.clone();
            with_bound.insert("le".to_owned());
            known.insert(format!("{}_bucket", family.name), with_bound);
            known.insert(format!("{}_sum", family.name), labels.clone());
            known.insert(format!("{}_count", family.name), labels);
        } else {
            known.insert(family.name, labels);
        }
    }
    known
}

/// The rules of a file, each as what it is called and what it asks.
fn rules(file: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(folder().join(file)).unwrap();
    let mut rules = Vec::new();
    let mut name = None;
    for line in text.lines().map(str::trim) {
        if let Some((_, called)) = line.split_once("- record: ").or_else(|| line.split_once("- alert: ")) {
            name = Some(called.to_owned());
        } else if let Some(query) = line.strip_prefix("expr: ") {
            rules.push((name.take().expect("a rule has a name first"), query.to_owned()));
        }
    }
    assert!(rules.len() > 5);
    rules
}

fn queries_of_dashboard() -> Vec<(String, String)> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/grafana/trunkline.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let title = panel["title"].as_str().unwrap().to_owned();
            queries.push((title, target["expr"].as_str().unwrap().to_owned()));
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let name = variable["name"].as_str().unwrap().to_owned();
        if let Some(query) = variable["definition"].as_str() {
            let series = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')')).unwrap();
            let (series, label) = series.rsplit_once(", ").unwrap();
            queries.push((name, format!("sum by ({label}) ({series})")));
        }
    }
    assert!(queries.len() > 50);
    queries
}

/// A query as words, strings without their content, and punctuation.
fn words(query: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut is_quoted = false;
    let mut is_joined = false;
    for c in query.chars() {
        let is_word = c.is_ascii_alphanumeric() || "_:$.".contains(c);
        match c {
            '"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            _ if is_word && is_joined => words.last_mut().unwrap().push(c),
            ' ' => {}
            c => words.push(c.to_string()),
        }
        is_joined = is_word && !is_quoted;
    }
    words
}

/// What a query asks for: series, each with the labels it is chosen by, and the labels it is put together by.
fn asked(query: &str) -> (Vec<(String, Vec<String>)>, BTreeSet<String>) {
    const OPERATORS: [&str; 10] =
        ["and", "or", "unless", "on", "by", "without", "ignoring", "bool", "offset", "group_left"];
    let words = words(query);
    let (mut series, mut grouped) = (Vec::<(String, Vec<String>)>::new(), BTreeSet::new());
    let mut place = "";
    for (at, word) in words.iter().enumerate() {
        let next = words.get(at + 1).map_or("", String::as_str);
        let before = at.checked_sub(1).and_then(|at| words.get(at)).map_or("", String::as_str);
        let is_name = word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        match &**word {
            "{" => place = "selector",
            "[" => place = "range",
            "(" if ["by", "on", "without", "ignoring"].contains(&before) => place = "labels",
            "}" | "]" | ")" => place = "",
            _ if !is_name => {}
            label if place == "labels" => drop(grouped.insert(label.to_owned())),
            label if place == "selector" => series.last_mut().unwrap().1.push(label.to_owned()),
            _ if place == "range" || next == "(" || OPERATORS.contains(&&**word) || next == "by" => {}
            name => series.push((name.to_owned(), Vec::new())),
        }
    }
    (series, grouped)
}

fn check(what: &str, query: &str, known: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let (series, grouped) = asked(query);
    assert!(!series.is_empty(), "{what}: {query}");
    let mut labels = BTreeSet::new();
    for (name, chosen_by) in &series {
        let has = known.get(name).unwrap_or_else(|| panic!("{what}: there is no {name}: {query}"));
        for label in chosen_by {
            assert!(has.contains(label), "{what}: {name} has no {label}: {query}");
        }
        labels.extend(has.clone());
    }
    for label in &grouped {
        assert!(labels.contains(label), "{what}: nothing has {label}: {query}");
    }
    grouped
}

#[test]
fn rules_and_dashboard_name_what_exists() {
    let mut known = known();
    for (name, query) in rules(RULES[0]) {
        let labels = check(&name, &query, &known);
        known.insert(name, labels.into_iter().filter(|label| label != "le").collect());
    }
    for (name, query) in rules(RULES[1]).into_iter().chain(queries_of_dashboard()) {
        check(&name, &query, &known);
    }
}

#[test]
fn a_query_is_taken_apart() {
    let (series, grouped) = asked(
        "sum by (job, le) (rate(a_bucket{x!=\"b(c\",y=~\"$z\"}[5m])) / on (job) a:b:c > 0.5 or vector(0)",
    );
    let expected: [(String, Vec<String>); 2] =
        [("a_bucket".into(), vec!["x".into(), "y".into()]), ("a:b:c".into(), Vec::new())];
    assert_eq!(series, expected);
    assert_eq!(grouped, ["job", "le"].map(String::from).into());
    for wrong in ["trunkline_no_such_total", "up{endpoint=\"/\"}", "sum by (upstream) (up)"] {
        let known = known();
        assert!(std::panic::catch_unwind(|| check("wrong", wrong, &known)).is_err(), "{wrong}");
    }
}

#[test]
fn the_dashboard_draws_each_place_once() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/grafana/trunkline.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let mut taken = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let side = |side: &str| panel["gridPos"][side].as_u64().unwrap();
        assert!(side("x") + side("w") <= 24, "{panel}");
        for (x, y) in (side("x")..side("x") + side("w"))
            .flat_map(|x| (side("y")..side("y") + side("h")).map(move |y| (x, y)))
        {
            assert!(taken.insert((x, y)), "{panel} lies over another");
        }
        assert!(ids.insert(panel["id"].as_u64().unwrap()));
    }
}

#[test]
fn promtool_accepts_the_rules_and_every_alert_fires() {
    let output =
        promtool(&folder(), &["check", "rules", "--lint=all", "--lint-fatal", RULES[0], RULES[1]], "");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = promtool(&folder(), &["test", "rules", "tests.yml"], "");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tests = std::fs::read_to_string(folder().join("tests.yml")).unwrap();
    for (alert, _) in rules(RULES[1]) {
        for outcome in ["fires", "is quiet"] {
            assert!(tests.contains(&format!("name: {alert} {outcome}\n")), "{alert} {outcome}");
        }
    }
}

#[test]
fn prometheus_evaluates_the_rules() {
    let upstream = Upstream::with_tools(&["echo"]);
    let daemon = Daemon::start(&Config::transparent(&upstream).admin());
    daemon.send(&list("1", "tools/list")).assert_ok();
    let prometheus = Prometheus::start(daemon.admin(), &RULES.map(|file| folder().join(file)));
    prometheus.wait_for("up", |up| up > 0.5);
    // A rate needs two scrapes, and something that grows between them.
    let recorded = "endpoint:trunkline_requests:rate5m{endpoint=\"/mcp\"}";
    prometheus.wait_for(recorded, |_| {
        daemon.send(&call("2", "echo")).assert_ok();
        true
    });
    let rules = prometheus.data("/api/v1/rules").expect("an answer");
    for group in rules["groups"].as_array().unwrap() {
        for rule in group["rules"].as_array().unwrap() {
            assert_ne!(rule["health"], "err", "{rule}");
            assert_ne!(rule["state"], "firing", "a gateway that is well alerts nobody: {rule}");
        }
    }
}
