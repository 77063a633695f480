//! The state of a gateway: `/status`. Pure.

use serde_json::Value;

use super::json::{count, counts, each, flag, known_count, known_text, member, number, object, text, texts};
use super::tools::Tool;

/// The state of a gateway.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Its version.
    pub version: String,
    /// When it started, in seconds since 1970.
    pub started_s: u64,
    /// For how long it has run.
    pub uptime_s: u64,
    /// Its worker threads.
    pub workers: u64,
    /// `none` unless it is about to stop.
    pub drain: Option<String>,
    /// Bugs that ended a connection.
    pub panics: u64,
    /// The configuration.
    pub config: Config,
    /// Addresses it listens at, and whether with TLS.
    pub listeners: Vec<(String, bool)>,
    /// Connections of clients.
    pub connections: Connections,
    /// All calls.
    pub calls: Figures,
    /// Which sample of the counts was the latest.
    pub sample: Option<u64>,
    /// Seconds between samples.
    pub interval_s: Option<f64>,
    /// In configured order.
    pub endpoints: Vec<Endpoint>,
    /// In configured order.
    pub upstreams: Vec<Upstream>,
    /// In configured order.
    pub limits: Vec<Limit>,
    /// The cache of lists.
    pub cache: Cache,
    /// Sessions and streams.
    pub sessions: Sessions,
    /// File and end, in seconds since 1970.
    pub certificates: Vec<(String, Option<u64>)>,
    /// What replicas share; `None`: nothing.
    pub shared: Option<Shared>,
    /// Spans that could not be delivered, if any are.
    pub spans_lost: u64,
    /// Tools that stand out.
    pub tools: Notable,
}

/// The configuration in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Where it was read from.
    pub file: Option<String>,
    /// The digest of its text.
    pub sha256: String,
    /// The last time it was to be read again.
    pub last_reload: Option<Reload>,
}

/// What came of a reload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reload {
    /// When, in seconds since 1970.
    pub at_s: u64,
    /// Why it was refused.
    pub error: Option<String>,
    /// Whether it took effect.
    pub ok: bool,
    /// What takes effect at the next start only.
    pub needs_restart: Vec<String>,
}

/// Connections of clients.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Connections {
    /// Now.
    pub open: u64,
    /// At most.
    pub max: Option<u64>,
    /// Refused since the start.
    pub refused: u64,
    /// Bytes of messages that are held.
    pub buffered_bytes: u64,
}

/// How many calls, how they ended, and how long they took.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Since the start.
    pub calls: u64,
    /// Since the start.
    pub errors: u64,
    /// Since the start.
    pub p50_s: Option<f64>,
    /// Since the start.
    pub p99_s: Option<f64>,
    /// In the latest interval.
    pub recent: Recent,
    /// Kinds of errors and how many there were of each.
    pub reasons: Vec<(String, u64)>,
}

/// The latest interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recent {
    /// Calls per second.
    pub calls_per_s: Option<f64>,
    /// Errors per second.
    pub errors_per_s: Option<f64>,
    /// Median latency.
    pub p50_s: Option<f64>,
    /// Latency that one in a hundred calls exceeds.
    pub p99_s: Option<f64>,
}

/// Where clients call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Endpoint {
    /// Its path.
    pub path: String,
    /// Which eras it speaks.
    pub eras: Vec<String>,
    /// Names of its upstreams.
    pub upstreams: Vec<String>,
    /// Whether one of them is fit.
    pub fit: Option<bool>,
    /// Tools of all of them.
    pub tools: Option<u64>,
    /// The longest list of tools that is kept.
    pub list_bytes: Option<u64>,
    /// Live sessions.
    pub sessions: Option<u64>,
    /// How names are made.
    pub names: Option<String>,
    /// How callers show who they are; none: they need not.
    pub auth: Option<Vec<String>>,
    /// Its calls.
    pub figures: Figures,
}

/// A server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Upstream {
    /// Its name.
    pub name: String,
    /// `http` or `stdio`.
    pub transport: String,
    /// Which eras it speaks.
    pub eras: Vec<String>,
    /// Whether it is called.
    pub fit: Option<bool>,
    /// How many tools it has.
    pub tools: Option<u64>,
    /// How long the list of them is.
    pub list_bytes: Option<u64>,
    /// Open connections to it.
    pub connections: u64,
    /// Failed attempts to connect.
    pub connects_failed: u64,
    /// Requests that were sent again.
    pub retries: u64,
    /// How often a breaker opened.
    pub breaker_openings: u64,
    /// Sessions opened with it.
    pub sessions_opened: u64,
    /// Sessions it forgot.
    pub sessions_lost: u64,
    /// Streams on which it is listened to.
    pub listens: u64,
    /// Its replicas.
    pub replicas: Vec<Replica>,
    /// Processes, where it is one.
    pub children: Option<Children>,
    /// Its bound on calls at once.
    pub calls_at_once: Option<AtOnce>,
    /// Calls of clients of the other era.
    pub bridge: Option<Bridge>,
    /// What is pinned of it.
    pub pins: Option<Pins>,
    /// Its calls.
    pub figures: Figures,
}

/// One of several equal servers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replica {
    /// Where it is.
    pub address: String,
    /// `closed`, `open` or `half_open`.
    pub breaker: String,
    /// Calls under way.
    pub in_flight: u64,
    /// Calls it has answered.
    pub answered: u64,
    /// Whether its name leads to an address.
    pub resolved: Option<bool>,
}

/// Processes of the gateway's own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Children {
    /// Now.
    pub running: u64,
    /// Since the start.
    pub starts: u64,
    /// Since the start.
    pub crashes: u64,
    /// Whether they end again and again.
    pub crash_loop: bool,
}

/// A bound on calls at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AtOnce {
    /// The bound.
    pub max: u64,
    /// Under way.
    pub in_use: u64,
    /// That wait.
    pub waiting: u64,
    /// Refused since the start.
    pub refused: u64,
}

/// Calls of clients of the other era.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bridge {
    /// Since the start.
    pub requests: u64,
    /// Questions that were carried across.
    pub rounds: u64,
    /// Sessions now.
    pub sessions: u64,
    /// Calls that wait for an answer to a question.
    pub parked: u64,
}

/// What is pinned of an upstream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pins {
    /// Tools with an approved definition.
    pub pinned: u64,
    /// Tools whose definition has changed.
    pub changed: u64,
    /// Tools that were never approved.
    pub new: u64,
    /// Whether what was kept cannot be read.
    pub unreadable: bool,
    /// Whether what is pinned cannot be written down.
    pub unwritten: bool,
    /// Names of some that wait for approval.
    pub names: Vec<String>,
}

/// A `[[limit]]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limit {
    /// Its name.
    pub name: String,
    /// How many calls.
    pub calls: u64,
    /// In how long.
    pub period_s: Option<f64>,
    /// Whether replicas share it.
    pub shared: bool,
    /// Refused since the start.
    pub refused: u64,
    /// Callers that found no room to be counted in.
    pub overflowed: u64,
    /// Callers that are counted.
    pub keys: u64,
}

/// The cache of lists.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cache {
    /// Its size.
    pub bytes: u64,
    /// Answered from it.
    pub hits: u64,
    /// Answered from it while it was asked for anew.
    pub stale: u64,
    /// Asked for.
    pub misses: u64,
    /// Asked for in vain.
    pub errors: u64,
}

impl Cache {
    /// The share that did not have to be asked for.
    pub fn hit_share(&self) -> Option<f64> {
        let (kept, asked) = (self.hits.saturating_add(self.stale), self.misses.saturating_add(self.errors));
        let all = kept.saturating_add(asked);
        #[expect(clippy::cast_precision_loss, reason = "a share for people")]
        (all > 0).then(|| kept as f64 / all as f64)
    }
}

/// Sessions and streams.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sessions {
    /// Of clients.
    pub live: u64,
    /// With upstreams.
    pub upstream_sessions: u64,
    /// To clients.
    pub streams: u64,
    /// From upstreams.
    pub upstream_streams: u64,
    /// Of clients.
    pub subscriptions: u64,
    /// Of clients of HTTP+SSE.
    pub sse_streams: u64,
}

/// What replicas of the gateway share.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shared {
    /// Whether the store is there.
    pub connected: bool,
    /// How many gateways share it.
    pub replicas: u64,
    /// Gateways with another configuration or key.
    pub strangers: u64,
}

/// Tools that stand out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Notable {
    /// How many are known.
    pub known: Option<u64>,
    /// Most called first.
    pub most_called: Vec<Tool>,
    /// Slowest first.
    pub slowest: Vec<Tool>,
    /// Most errors first.
    pub failing: Vec<Tool>,
}

impl Status {
    /// What the answer says.
    pub fn read(of: &Value) -> Self {
        let sample = member(of, "sample");
        Self {
            version: text(of, "version"),
            started_s: count(of, "started_s"),
            uptime_s: count(of, "uptime_s"),
            workers: count(of, "workers"),
            drain: known_text(of, "drain").filter(|phase| phase != "none"),
            panics: count(of, "panics"),
            config: config(member(of, "config")),
            listeners: each(of, "listeners", |one| {
                (text(one, "address"), flag(one, "tls").unwrap_or_default())
            }),
            connections: connections(member(of, "connections")),
            calls: figures(member(of, "calls")),
            sample: known_count(sample, "number"),
            interval_s: number(sample, "interval_s"),
            endpoints: each(of, "endpoints", endpoint),
            upstreams: each(of, "upstreams", upstream),
            limits: each(of, "limits", limit),
            cache: cache(member(of, "cache")),
            sessions: sessions(member(of, "sessions")),
            certificates: each(of, "certificates", |one| (text(one, "file"), known_count(one, "expires_s"))),
            shared: object(of, "shared", shared),
            spans_lost: ["rejected", "failed", "dropped"]
                .into_iter()
                .fold(0, |sum: u64, name| sum.saturating_add(count(member(of, "traces"), name))),
            tools: notable(member(of, "tools")),
        }
    }

    /// The upstream of this name.
    pub fn upstream(&self, name: &str) -> Option<&Upstream> {
        self.upstreams.iter().find(|upstream| upstream.name == name)
    }
}

fn config(of: &Value) -> Config {
    Config {
        file: known_text(of, "file"),
        sha256: text(of, "sha256"),
        last_reload: object(of, "last_reload", |of| Reload {
            at_s: count(of, "at_s"),
            ok: flag(of, "ok").unwrap_or_default(),
            error: known_text(of, "error"),
            needs_restart: texts(of, "needs_restart"),
        }),
    }
}

fn connections(of: &Value) -> Connections {
    Connections {
        open: count(of, "open"),
        max: known_count(of, "max"),
        refused: count(of, "refused"),
        buffered_bytes: count(of, "buffered_bytes"),
    }
}

fn figures(of: &Value) -> Figures {
    let recent = member(of, "recent");
    Figures {
        calls: count(of, "calls"),
        errors: count(of, "errors"),
        p50_s: number(of, "p50_s"),
        p99_s: number(of, "p99_s"),
        reasons: counts(of, "reasons"),
        recent: Recent {
            calls_per_s: number(recent, "calls_per_s"),
            errors_per_s: number(recent, "errors_per_s"),
            p50_s: number(recent, "p50_s"),
            p99_s: number(recent, "p99_s"),
        },
    }
}

fn endpoint(of: &Value) -> Endpoint {
    Endpoint {
        path: text(of, "path"),
        eras: texts(of, "eras"),
        upstreams: texts(of, "upstreams"),
        fit: flag(of, "fit"),
        tools: known_count(of, "tools"),
        list_bytes: known_count(of, "list_bytes"),
        sessions: known_count(of, "sessions"),
        names: known_text(of, "names"),
        auth: member(of, "auth").is_array().then(|| texts(of, "auth")),
        figures: figures(of),
    }
}

fn upstream(of: &Value) -> Upstream {
    Upstream {
        name: text(of, "name"),
        transport: text(of, "transport"),
        eras: texts(of, "eras"),
        fit: flag(of, "fit"),
        tools: known_count(of, "tools"),
        list_bytes: known_count(of, "list_bytes"),
        connections: count(of, "connections"),
        connects_failed: count(of, "connects_failed"),
        retries: count(of, "retries"),
        breaker_openings: count(of, "breaker_openings"),
        sessions_opened: count(of, "sessions_opened"),
        sessions_lost: count(of, "sessions_lost"),
        listens: count(of, "listens"),
        replicas: each(of, "replicas", replica),
        children: object(of, "children", |of| Children {
            running: count(of, "running"),
            starts: count(of, "starts"),
            crashes: count(of, "crashes"),
            crash_loop: flag(of, "crash_loop").unwrap_or_default(),
        }),
        calls_at_once: object(of, "calls_at_once", |of| AtOnce {
            max: count(of, "max"),
            in_use: count(of, "in_use"),
            waiting: count(of, "waiting"),
            refused: count(of, "refused"),
        }),
        bridge: object(of, "bridge", |of| Bridge {
            requests: count(of, "requests"),
            rounds: count(of, "rounds"),
            sessions: count(of, "sessions"),
            parked: count(of, "parked"),
        }),
        pins: object(of, "pins", |of| Pins {
            pinned: count(of, "pinned"),
            changed: count(of, "changed"),
            new: count(of, "new"),
            unreadable: flag(of, "unreadable").unwrap_or_default(),
            unwritten: flag(of, "unwritten").unwrap_or_default(),
            names: texts(of, "waiting"),
        }),
        figures: figures(of),
    }
}

fn replica(of: &Value) -> Replica {
    Replica {
        address: text(of, "address"),
        breaker: text(of, "breaker"),
        in_flight: count(of, "in_flight"),
        answered: count(of, "answered"),
        resolved: flag(of, "resolved"),
    }
}

fn limit(of: &Value) -> Limit {
    Limit {
        name: text(of, "name"),
        calls: count(of, "calls"),
        period_s: number(of, "period_s"),
        shared: flag(of, "shared").unwrap_or_default(),
        refused: count(of, "refused"),
        overflowed: count(of, "overflowed"),
        keys: count(of, "keys"),
    }
}

fn cache(of: &Value) -> Cache {
    Cache {
        bytes: count(of, "bytes"),
        hits: count(of, "hits"),
        stale: count(of, "stale"),
        misses: count(of, "misses"),
        errors: count(of, "errors"),
    }
}

fn sessions(of: &Value) -> Sessions {
    Sessions {
        live: count(of, "live"),
        upstream_sessions: count(of, "upstream_sessions"),
        streams: count(of, "streams"),
        upstream_streams: count(of, "upstream_streams"),
        subscriptions: count(of, "subscriptions"),
        sse_streams: count(of, "sse_streams"),
    }
}

fn shared(of: &Value) -> Shared {
    Shared {
        connected: flag(of, "connected").unwrap_or_default(),
        replicas: count(of, "replicas"),
        strangers: count(of, "strangers"),
    }
}

fn notable(of: &Value) -> Notable {
    Notable {
        known: known_count(of, "known"),
        most_called: each(of, "most_called", Tool::read),
        slowest: each(of, "slowest", Tool::read),
        failing: each(of, "failing", Tool::read),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn any_object_is_a_status() {
        assert_eq!(Status::read(&json!({})), Status::default());
        assert_eq!(Status::read(&json!({"drain": "none", "shared": null})), Status::default());
        let odd = json!({"endpoints": [null, 7, {"fit": "yes"}], "upstreams": {"a": 1}, "connections": []});
        let status = Status::read(&odd);
        assert_eq!((status.endpoints.len(), status.upstreams.len()), (3, 0));
        assert_eq!(status.endpoints[2].fit, None);
    }

    #[test]
    fn shares_are_of_what_was_looked_for() {
        let cache = |hits, stale, misses, errors| Cache { hits, stale, misses, errors, bytes: 0 }.hit_share();
        assert_eq!(cache(0, 0, 0, 0), None);
        assert_eq!(cache(2, 1, 1, 0), Some(0.75));
        assert_eq!(cache(u64::MAX, u64::MAX, 1, 1).map(f64::round), Some(1.0));
    }
}
