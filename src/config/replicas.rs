//! What becomes of an upstream's replicas that fail.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::file;
use super::resolve::Findings;
use super::value::{At, Count, DAY_MS, HOUR_MS, Key, Period};

/// Where calls go among the replicas of an upstream, and what becomes of replicas that fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replicas {
    /// How often the names of hosts are looked up again; zero: never.
    pub resolve_interval: Duration,
    /// Time in which a replica that is new or has come back gets more and more calls; zero: it gets its share at once.
    pub slow_start: Duration,
    /// Connections to all replicas, per worker.
    pub connections_max: usize,
    /// When calls keep away from a replica.
    pub breaker: Breaker,
    /// How replicas are asked whether they are fit.
    pub health: Health,
    /// What is sent again.
    pub retry: Retry,
}

/// When calls keep away from a replica, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breaker {
    /// Failures in a row after which it opens; 0: never.
    pub failures_max: usize,
    /// How long it is open the first time; each time after that, twice as long.
    pub open_time: Duration,
    /// How long it is open at most.
    pub open_time_max: Duration,
}

/// How replicas are asked whether they are fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// How often a fit one is asked; zero: no replica is ever asked.
    pub interval: Duration,
    /// Time for an answer.
    pub timeout: Duration,
    /// Questions in a row without an answer after which a replica is unfit.
    pub unhealthy_after: usize,
    /// Answers in a row after which it is fit again.
    pub healthy_after: usize,
}

/// What is sent again when the connection it was written to turns out to be dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// How many of a hundred requests may be sent again.
    pub budget_percent: usize,
    /// Tools, by the upstream's names, that may be called again.
    pub tools: Vec<String>,
    /// Whether tools may be called again that the server says are read-only or idempotent.
    pub annotated_tools: bool,
}

/// `[upstream.NAME.breaker]`: when calls keep away from a replica that fails.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Breaker")]
pub(super) struct BreakerKeys {
    /// Failures in a row after which calls keep away from a replica; 0: they never do.
    #[schemars(extend("default" = 5))]
    pub(super) failures_max: Key<Count<0, 10_000>>,
    /// Time for which they do, the first time; each time after that, twice as long; up to 1h.
    #[schemars(extend("default" = "1s"))]
    pub(super) open_time: Key<Period<1, HOUR_MS>>,
    /// Time for which they do, at most; up to 24h, at least `open_time`.
    #[schemars(extend("default" = "30s"))]
    pub(super) open_time_max: Key<Period<1, DAY_MS>>,
}

/// `[upstream.NAME.health]`: how replicas are asked whether they are fit.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Health")]
pub(super) struct HealthKeys {
    /// How often a replica is asked that is fit; 0s to 24h. 0s: none is ever asked.
    #[schemars(extend("default" = "10s"))]
    pub(super) interval: Key<Period<0, DAY_MS>>,
    /// Time for an answer; up to 1h.
    #[schemars(extend("default" = "2s"))]
    pub(super) timeout: Key<Period<1, HOUR_MS>>,
    /// Questions in a row without an answer after which a replica is unfit.
    #[schemars(extend("default" = 3))]
    pub(super) unhealthy_after: Key<Count<1, 1000>>,
    /// Answers in a row after which it is fit again.
    #[schemars(extend("default" = 1))]
    pub(super) healthy_after: Key<Count<1, 1000>>,
}

/// `[upstream.NAME.retry]`: what is sent again when a connection that was kept open turns out to be dead.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Retry")]
pub(super) struct RetryKeys {
    /// How many of a hundred requests may be sent again; 0: none.
    #[schemars(extend("default" = 20))]
    pub(super) budget_percent: Key<Count<0, 100>>,
    /// Tools, by the server's own names, that may be called again. Default: none.
    pub(super) tools: Key<Vec<At<String>>>,
    /// Whether to believe the server which of its tools may be called again: those that it says are read-only or
    /// idempotent.
    #[schemars(extend("default" = false))]
    pub(super) annotated_tools: Key<bool>,
}

/// The defaults, and what must hold between the keys.
pub(super) fn resolve(written: &file::Upstream, findings: &mut Findings) -> Replicas {
    let (breaker, health, retry) = (BreakerKeys::default(), HealthKeys::default(), RetryKeys::default());
    let breaker = written.breaker.value().unwrap_or(&breaker);
    let health = written.health.value().unwrap_or(&health);
    let retry = written.retry.value().unwrap_or(&retry);
    let open_time = breaker.open_time.or(Duration::from_secs(1));
    let open_time_max = match &breaker.open_time_max.0 {
        Some(at) => {
            let open_time_max = breaker.open_time_max.or(open_time);
            if open_time_max < open_time {
                findings.error(at.span.clone(), "`open_time_max` is less than `open_time`");
            }
            open_time_max
        }
        None => open_time.max(Duration::from_secs(30)),
    };
    Replicas {
        resolve_interval: written.resolve_interval.or(Duration::from_secs(30)),
        slow_start: written.slow_start.or(Duration::from_secs(10)),
        connections_max: written.connections_max.or(1024),
        breaker: Breaker { failures_max: breaker.failures_max.or(5), open_time, open_time_max },
        health: Health {
            interval: health.interval.or(Duration::from_secs(10)),
            timeout: health.timeout.or(Duration::from_secs(2)),
            unhealthy_after: health.unhealthy_after.or(3),
            healthy_after: health.healthy_after.or(1),
        },
        retry: Retry {
            budget_percent: retry.budget_percent.or(20),
            tools: retry.tools.value().into_iter().flatten().map(|tool| tool.value.clone()).collect(),
            annotated_tools: retry.annotated_tools.value().copied().unwrap_or(false),
        },
    }
}
