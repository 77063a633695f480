//! What becomes of an upstream's replicas that fail.

use std::time::Duration;

use super::array::Array;
use super::findings::Findings;
use super::section::section;
use super::table::Table;
use super::text::Any;
use super::value::{Count, DAY_MS, HOUR_MS, Period};

section! {
    /// Where calls go among the replicas of an upstream, and what becomes of replicas that fail.
    pub struct ReplicasConfig {
        /// How often the names of hosts in its URLs are looked up again. 0s: at start alone. Each address is a replica.
        resolve_interval: Period<0, DAY_MS> = "30s",
        /// Time in which a replica that is new or has come back gets more and more calls. 0s: at once.
        slow_start: Period<0, HOUR_MS> = "10s",
        /// Connections to all replicas, per worker, so that a server that hangs does not take those of others.
        connections_max: Count<1, 65_536> = 1024,
        /// The circuit breaker of each replica.
        breaker: BreakerConfig,
        /// Health checks of replicas.
        health: Health,
        /// What is sent again when a connection that was kept open turns out to be dead.
        retry: Retry,
    }
}

section! {
    /// The circuit breaker of each replica: while it is open, the replica gets no calls. While those of all are open, calls
    /// are answered with 503 at once.
    pub struct BreakerConfig {
        /// Failures in a row that open it; 0: none do.
        failures_max: Count<0, 10_000> = 5,
        /// Time for which it is open, the first time; each time after that, twice as long.
        open_time: Period<1, HOUR_MS> = "1s",
        /// Time for which it is open, at most; at least `open_time`. Default: 30s, or `open_time` where that is more.
        #[example("30s")]
        open_time_max: Period<1, DAY_MS> => open_time.max(Duration::from_secs(30)),
    }
    check check_breaker;
}

section! {
    /// Health checks of replicas: they are asked `server/discover`, or `ping` in a session of the gateway's own.
    pub struct Health {
        /// Time between two health checks of a healthy replica. 0s: none is ever asked.
        interval: Period<0, DAY_MS> = "10s",
        /// Time for an answer.
        timeout: Period<1, HOUR_MS> = "2s",
        /// Failed health checks in a row after which a replica is unhealthy.
        unhealthy_after: Count<1, 1000> = 3,
        /// Health checks in a row that succeed, after which it is healthy again.
        healthy_after: Count<1, 1000> = 1,
    }
}

section! {
    /// What is sent again when a connection that was kept open turns out to be dead: lists, gets and reads, and calls of
    /// the tools that are named here.
    pub struct Retry {
        /// How many of a hundred requests may be sent again; 0: none.
        budget_percent: Count<0, 100> = 20,
        /// Tools, by the server's own names, that may be called again.
        #[example(["forecast"])]
        tools: Array<Any> = [],
        /// Whether to believe the server which of its tools may be called again: those that it says are read-only or
        /// idempotent.
        annotated_tools: bool = false,
    }
}

fn check_breaker(breaker: BreakerConfig, table: Table<'_>, findings: &mut Findings) -> BreakerConfig {
    if breaker.open_time_max < breaker.open_time {
        findings.error_at(table, "open_time_max", "`open_time_max` is less than `open_time`");
    }
    breaker
}
