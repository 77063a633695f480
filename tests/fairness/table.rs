//! Is there a row about each bound in the table of `docs/security/fairness.md`?

use std::collections::BTreeSet;

use serde_json::Value;

const MANUAL: &str = include_str!("../../docs/security/fairness.md");
const SCHEMA: &str = include_str!("../../config/trunkline.schema.json");
const METRICS: &str = include_str!("../../src/gateway/telemetry/metrics/families.rs");

/// Bounds of one message, one list, one attempt and the like: nobody can take from others with them what they bound.
const OF_ONE_THING: [&str; 24] = [
    "body_bytes_max",
    "buffer_bytes_max",
    "calls_wait_max",
    "connection_age_max",
    "failures_max",
    "header_bytes_max",
    "headers_max",
    "idle_connections_max",
    "initialize_rate_max",
    "input_requests_max",
    "json_depth_max",
    "jwks_stale_max",
    "list_bytes_max",
    "list_page_bytes_max",
    "list_pages_max",
    "open_time_max",
    "pins_age_max",
    "pins_bytes_max",
    "refusals_per_second_max",
    "reply_bytes_max",
    "state_bytes_max",
    "stream_duration_max",
    "token_bytes_max",
    "tools_max",
];

/// The keys of every section that end in `_max`.
fn bounds(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::Object(keys)) = members.get("properties") {
                found.extend(keys.keys().filter(|key| key.ends_with("_max")).cloned());
            }
            members.values().for_each(|member| bounds(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| bounds(item, found)),
        _ => {}
    }
}

#[test]
fn every_bound_has_a_row() {
    let rows: Vec<&str> = MANUAL.lines().filter(|line| line.starts_with("| ")).collect();
    let mut found = BTreeSet::new();
    bounds(&serde_json::from_str(SCHEMA).expect("a schema"), &mut found);
    let missing: Vec<&String> = found
        .iter()
        .filter(|key| !OF_ONE_THING.contains(&key.as_str()))
        .filter(|key| !rows.iter().any(|row| row.contains(&format!("`{key}`"))))
        .collect();
    assert!(
        missing.is_empty(),
        "no row names {missing:?}: say who is charged, and what the one over it gets"
    );
    for row in &rows {
        let metrics = row.split('`').filter(|word| word.starts_with("trunkline_"));
        for metric in metrics {
            let name = metric.split('{').next().expect("a name");
            assert!(METRICS.contains(&format!("\"{name}\"")), "there is no metric {name}");
        }
    }
    // Nor does the list above name what is no bound any more.
    let gone: Vec<_> = OF_ONE_THING.iter().filter(|key| !found.contains(**key)).collect();
    assert!(gone.is_empty(), "there are no such keys: {gone:?}");
}
