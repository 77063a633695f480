//! Replicas: breakers, health, retries, and the deadlines of replies.

use std::time::Duration;

use super::{Case, base_with, parsed};
use crate::{BreakerConfig, Health, ReplicasConfig, Retry};

#[rustfmt::skip]
pub(super) const CASES: &[Case] = &[
    Case {
        name: "head later than reply",
        replace: "[upstream.a]",
        by: r#"[upstream.a]
response_timeout = "1s"
first_byte_timeout = "2s""#,
        rendered: r#"
f.toml:8:22: error: `first_byte_timeout` is more than `response_timeout`
  |
8 | first_byte_timeout = "2s"
  |                      ^^^^
"#,
    },
    Case {
        name: "breaker longest shorter than first",
        replace: "[upstream.a]",
        by: r#"[upstream.a]
breaker = { open_time = "5s", open_time_max = "1s" }"#,
        rendered: r#"
f.toml:7:47: error: `open_time_max` is less than `open_time`
  |
7 | breaker = { open_time = "5s", open_time_max = "1s" }
  |                                               ^^^^
"#,
    },
];

pub(super) fn defaults() -> ReplicasConfig {
    ReplicasConfig {
        resolve_interval: Duration::from_secs(30),
        slow_start: Duration::from_secs(10),
        connections_max: 1024,
        breaker: BreakerConfig {
            failures_max: 5,
            open_time: Duration::from_secs(1),
            open_time_max: Duration::from_secs(30),
        },
        health: Health {
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(2),
            unhealthy_after: 3,
            healthy_after: 1,
        },
        retry: Retry { budget_percent: 20, tools: Vec::new(), annotated_tools: false },
    }
}

#[test]
fn tables_of_an_upstream() {
    let text = base_with(
        "url = \"http://127.0.0.1:9102/\"",
        r#"url = "http://127.0.0.1:9102/"
resolve_interval = "0s"
slow_start = "0s"
connections_max = 7
stream_duration_max = "1h"
first_byte_timeout = "30s"
[upstream.b.breaker]
failures_max = 0
open_time = "1m"
[upstream.b.health]
interval = "0s"
timeout = "1s"
unhealthy_after = 1
healthy_after = 2
[upstream.b.retry]
budget_percent = 0
tools = ["forecast"]
annotated_tools = true"#,
    );
    let upstream = parsed(&text).upstreams.remove(1);
    assert_eq!(upstream.stream_duration_max, Duration::from_hours(1));
    assert_eq!(upstream.first_byte_timeout, Duration::from_secs(30));
    let expected = ReplicasConfig {
        resolve_interval: Duration::ZERO,
        slow_start: Duration::ZERO,
        connections_max: 7,
        breaker: BreakerConfig {
            failures_max: 0,
            open_time: Duration::from_mins(1),
            open_time_max: Duration::from_mins(1),
        },
        health: Health {
            interval: Duration::ZERO,
            timeout: Duration::from_secs(1),
            unhealthy_after: 1,
            healthy_after: 2,
        },
        retry: Retry { budget_percent: 0, tools: vec!["forecast".to_owned()], annotated_tools: true },
    };
    assert_eq!(upstream.replicas, expected);
}
