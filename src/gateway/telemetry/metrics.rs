//! Every metric of the process, by OpenTelemetry's MCP names where they exist and `trunkline_*` where not.
//!
//! Label values are bounded: endpoints and upstreams come from the configuration, methods and reasons from
//! enums. A series is created at its first use and its handle kept in a table that is read by index, so that
//! the request path never looks one up by label.

use std::sync::Arc;

use prometheus::{Encoder as _, IntCounter, IntGauge, TextEncoder};

use super::book::{Counters, Durations};
use super::bridge::Bridges;
use super::calls::{Asked, EndpointVecs, UpstreamDurations};
use super::gates::Gates;
use super::identity::Identity;
use super::lists::Lists;
use super::pins::PinMetrics;
use super::process::Process;
use super::rates::Rates;
use super::registry::{Family, Registry};
use super::reloads::Reloads;
use super::shared;
use super::streams::Streams;
use super::tools::{Tools, UpstreamTools};
use super::totals::Sums;
use super::trace;
use super::vec::{IntCounterVec, IntGaugeVec};
use config;
use protocol::error::Reason;
use protocol::version::Era;

pub use super::calls::EndpointSeries;

/// Upper bounds of the latency buckets, in seconds.
const BUCKETS_S: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 25.0, 75.0];

/// The metrics of the process.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    /// Whether both histograms of durations are fed.
    measures_durations: bool,
    server_duration: Durations,
    client_duration: Durations,
    replies_broken: Counters,
    requests: IntCounterVec,
    tool_failures: Counters,
    tools: Tools,
    upstream_connects: IntCounterVec,
    upstream_retries: IntCounterVec,
    upstream_retries_refused: IntCounterVec,
    upstream_breaker_openings: IntCounterVec,
    health_checks: IntCounterVec,
    /// The breakers of replicas: 1 for the state that each is in; set when scraped.
    pub breakers: IntGaugeVec,
    /// How many replicas are fit, and how many are not; set when scraped.
    pub upstream_replicas: IntGaugeVec,
    /// Requests on their way at each replica; set when scraped.
    pub replica_in_flight: IntGaugeVec,
    upstream_connections: IntGaugeVec,
    upstream_idle_connections: IntGaugeVec,
    upstream_sessions_opened: IntCounterVec,
    upstream_sessions_lost: IntCounterVec,
    children: IntGaugeVec,
    child_starts: IntCounterVec,
    children_ousted: IntCounterVec,
    child_crashes: IntCounterVec,
    child_crash_loop: IntGaugeVec,
    child_garbage: IntCounterVec,
    child_stderr_dropped: IntCounterVec,
    upstream_questions: IntCounterVec,
    upstream_messages_withheld: IntCounterVec,
    upstream_messages_dropped: IntCounterVec,
    upstream_replies_mismatched: IntCounterVec,
    upstream_streams_resumed: IntCounterVec,
    /// Exchanges that go on without their client.
    pub exchanges_detached: IntCounterVec,
    endpoint_upstreams: IntGaugeVec,
    upstream_listens: IntGaugeVec,
    upstream_listen_gaps: IntCounterVec,
    upstream_listen_names_refused: IntCounterVec,
    /// Clients that listen; set when scraped.
    pub subscriptions: IntGauge,
    /// Open streams of HTTP+SSE clients; set when scraped.
    pub sse_streams: IntGauge,
    /// Notices delivered to them.
    pub notices: Notices,
    /// Connections closed at once because a bound was met, by bound.
    pub connections_refused: IntCounterVec,
    /// Connections cut because a client was too slow or idle, by which clock ran out.
    pub connections_cut: IntCounterVec,
    /// Connections accepted.
    pub connections_accepted: IntCounter,
    /// TLS handshakes of clients, by how they ended.
    pub handshakes: IntCounterVec,
    /// Connections that should have come from a proxy and were closed, by why.
    pub proxied_refused: IntCounterVec,
    /// When certificates end, in seconds since 1970.
    pub certificate_expiry: IntGaugeVec,
    /// Open client connections; set when scraped.
    pub connections_open: IntGauge,
    /// How many connections there may be; set when scraped.
    pub connections_max: IntGauge,
    /// How many bytes may be held; set when scraped.
    pub buffered_bytes_max: IntGauge,
    /// Bytes of messages held; set when scraped.
    pub buffered_bytes: IntGauge,
    /// Session ids that did not open, by why.
    pub sessions_refused: IntCounterVec,
    /// Which eras each upstream speaks: 0 or 1.
    pub upstream_eras: IntGaugeVec,
    /// Questions to upstreams about their eras, by what was found.
    pub upstream_probes: IntCounterVec,
    /// Lists that had to be answered without one of their upstreams.
    pub lists_partial: IntCounterVec,
    /// The lists that are kept.
    pub lists: Lists,
    /// Pinned definitions of tools.
    pub pins: PinMetrics,
    /// Calls at once.
    pub gates: Gates,
    /// What is translated between the eras.
    pub bridge: Bridges,
    /// Limits of rate.
    pub rates: Rates,
    /// Credentials, and the keys that check them.
    pub identity: Identity,
    /// What replicas share.
    pub shared: shared::Series,
    /// Requests to the admin listener that were not answered, by why.
    pub admin_refused: IntCounterVec,
    /// Configuration loads, by result.
    pub reloads: Reloads,
    /// What the system says of the process; set when scraped.
    pub process: Process,
    /// Tasks that panicked; each ended one connection.
    pub panics: IntCounter,
    /// Calls that the drain cut off.
    pub drain_cut_calls: IntCounter,
    /// Legacy sessions: with state, and ended before they expired; set when scraped.
    pub sessions: IntGaugeVec,
    /// Sessions with upstreams; set when scraped.
    pub upstream_sessions: IntGauge,
    /// Streams of sessions.
    pub streams: Streams,
    /// Streams of upstreams for sessions; set when scraped.
    pub upstream_streams: IntGauge,
    /// Those that there was no room for.
    pub upstream_streams_refused: IntCounter,
    /// Tasks whose owner is known; set when scraped.
    pub tasks: IntGauge,
    /// Tasks that were forgotten for want of room; set when scraped.
    pub tasks_forgotten: IntCounter,
    /// Changes of sessions that the journal could not take.
    pub journal_records_lost: IntCounter,
    /// Spans of traced calls, by what became of them.
    pub trace_spans: trace::Series,
    /// Log lines about refused or failed calls that were left out.
    pub log_lines_dropped: IntCounter,
}

impl Metrics {
    /// Registers every metric, and measures what `config` says. Fails only if two have the same name.
    pub fn of(config: &config::Metrics) -> Result<Self, prometheus::Error> {
        let mut metrics = Self::new(config.tools_max)?;
        metrics.measures_durations = config.durations;
        Ok(metrics)
    }

    /// Registers every metric. Fails only if two have the same name. At most `tools_max` tools are told apart.
    #[expect(clippy::too_many_lines, reason = "one entry for each metric")]
    pub fn new(tools_max: usize) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let counters = |name, help, labels: &[&str]| registry.counters(name, help, labels);
        let counter = |name, help| registry.counter(name, help);
        let gauges = |name, help, labels: &[&str]| registry.gauges(name, help, labels);
        let gauge = |name, help| registry.gauge(name, help);
        let durations = |name, help, labels: &[&str]| {
            let durations = Durations::new(name, help, labels, &BUCKETS_S)?;
            registry.register(Box::new(durations.clone())).map(|()| durations)
        };
        let failures = |name, help, labels: &[&str]| {
            let counters = Counters::new(name, help, labels)?;
            registry.register(Box::new(counters.clone())).map(|()| counters)
        };
        let build_info = gauges("trunkline_build_info", "Always 1; the version is a label.", &["version"])?;
        build_info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Ok(Self {
            measures_durations: true,
            server_duration: durations(
                "mcp_server_operation_duration_seconds",
                "Time from a client's request to the end of its reply; error_type is empty for calls that were answered.",
                &["endpoint", "mcp_method_name", "gen_ai_tool_name", "mcp_protocol_version", "error_type"],
            )?,
            requests: counters(
                "trunkline_requests_total",
                "Requests of clients: answered, refused because of what they are or of a limit, failed, or cancelled by the client; and why.",
                &["endpoint", "mcp_protocol_version", "outcome", "reason"],
            )?,
            tool_failures: failures(
                "trunkline_tool_failures_total",
                "Calls of a tool that were not answered, after it was known which.",
                &["endpoint", "gen_ai_tool_name"],
            )?,
            client_duration: durations(
                "mcp_client_operation_duration_seconds",
                "Time from sending a request to an upstream to the head of its reply; mcp_method_name is empty for requests of the gateway's own, and for those that failed.",
                &["upstream", "mcp_method_name", "gen_ai_tool_name", "error_type"],
            )?,
            replies_broken: failures(
                "trunkline_upstream_replies_broken_total",
                "Replies of upstreams that were no answers, though they began: statuses of failure, no MCP, too late, broken off; and how.",
                &["upstream", "error_type"],
            )?,
            tools: Tools::new(tools_max),
            upstream_connects: counters(
                "trunkline_upstream_connects_total",
                "Connections opened to upstreams, by result.",
                &["upstream", "result"],
            )?,
            upstream_retries: counters(
                "trunkline_upstream_retries_total",
                "Requests sent again because a pooled connection had died.",
                &["upstream"],
            )?,
            upstream_retries_refused: counters(
                "trunkline_upstream_retries_refused_total",
                "Requests not sent again because too many were.",
                &["upstream"],
            )?,
            upstream_breaker_openings: counters(
                "trunkline_breaker_openings_total",
                "Times that calls began to keep away from a replica.",
                &["upstream"],
            )?,
            health_checks: counters(
                "trunkline_health_checks_total",
                "Questions to replicas of upstreams whether they are fit, by result.",
                &["upstream", "result"],
            )?,
            breakers: gauges(
                "trunkline_replica_breaker",
                "1 for the state that the breaker of each replica is in: closed, open, half_open.",
                &["upstream", "replica", "state"],
            )?,
            replica_in_flight: gauges(
                "trunkline_replica_in_flight",
                "Requests on their way at each replica of an upstream.",
                &["upstream", "replica"],
            )?,
            upstream_connections: gauges(
                "trunkline_upstream_connections",
                "Open connections to upstreams.",
                &["upstream"],
            )?,
            upstream_idle_connections: gauges(
                "trunkline_upstream_idle_connections",
                "Those of the open connections to upstreams that wait for a request; counted once a second.",
                &["upstream"],
            )?,
            upstream_replicas: gauges(
                "trunkline_upstream_replicas",
                "Replicas of upstreams: fit ones take calls, the breaker of the others is open.",
                &["upstream", "state"],
            )?,
            connections_max: gauge("trunkline_connections_max", "How many client connections may be open.")?,
            buffered_bytes_max: gauge(
                "trunkline_buffered_bytes_max",
                "How many bytes of messages may be held in memory.",
            )?,
            upstream_sessions_opened: counters(
                "trunkline_upstream_sessions_opened_total",
                "Legacy sessions opened with upstreams.",
                &["upstream"],
            )?,
            upstream_sessions_lost: counters(
                "trunkline_upstream_sessions_lost_total",
                "Legacy sessions that an upstream no longer knew.",
                &["upstream"],
            )?,
            children: gauges("trunkline_children", "Child processes that run.", &["upstream"])?,
            child_starts: counters(
                "trunkline_child_starts_total",
                "Child processes started, by result.",
                &["upstream", "result"],
            )?,
            children_ousted: counters(
                "trunkline_children_ousted_total",
                "Child processes of idle sessions that were ended to make room for another.",
                &["upstream"],
            )?,
            child_crashes: counters(
                "trunkline_child_crashes_total",
                "Child processes that ended unasked, or had to be ended.",
                &["upstream"],
            )?,
            child_crash_loop: gauges(
                "trunkline_child_crash_loop",
                "1 while child processes end before they answer anything, and are started with pauses.",
                &["upstream"],
            )?,
            child_garbage: counters(
                "trunkline_child_garbage_lines_total",
                "Lines of child processes that are no messages, or answer nothing.",
                &["upstream"],
            )?,
            child_stderr_dropped: counters(
                "trunkline_child_stderr_lines_dropped_total",
                "Lines that child processes wrote to standard error and that were left out of the log.",
                &["upstream"],
            )?,
            upstream_questions: counters(
                "trunkline_upstream_questions_total",
                "Requests of upstreams to clients, by what became of them.",
                &["upstream", "result"],
            )?,
            upstream_messages_withheld: counters(
                "trunkline_upstream_messages_withheld_total",
                "Messages of upstreams within sessions that belong to nobody: answers nobody waits for, and the like.",
                &["upstream"],
            )?,
            upstream_messages_dropped: counters(
                "trunkline_upstream_messages_dropped_total",
                "Notifications and responses within sessions that an upstream did not take, by why.",
                &["upstream", "reason"],
            )?,
            upstream_replies_mismatched: counters(
                "trunkline_upstream_replies_mismatched_total",
                "Replies of upstreams that answer another request than the one they came for.",
                &["upstream"],
            )?,
            upstream_streams_resumed: counters(
                "trunkline_upstream_streams_resumed_total",
                "Event streams that ended before the answer to their call and were taken up again.",
                &["upstream"],
            )?,
            exchanges_detached: counters(
                "trunkline_exchanges_detached_total",
                "Calls within sessions whose client left before the end: kept, ended after that, or dropped as there were too many.",
                &["result"],
            )?,
            sessions_refused: counters(
                "trunkline_session_ids_refused_total",
                "Session ids of clients that did not open, by reason.",
                &["reason"],
            )?,
            endpoint_upstreams: gauges(
                "trunkline_endpoint_upstreams",
                "Upstreams behind each endpoint.",
                &["endpoint"],
            )?,
            upstream_listens: gauges(
                "trunkline_upstream_listens",
                "Acknowledged subscriptions of the gateway at upstreams, and streams in its own legacy sessions.",
                &["upstream"],
            )?,
            upstream_listen_gaps: counters(
                "trunkline_upstream_listen_gaps_total",
                "Subscriptions and own streams at upstreams that were lost; their clients are told of all that may have changed.",
                &["upstream"],
            )?,
            upstream_listen_names_refused: counters(
                "trunkline_upstream_listen_names_refused_total",
                "Resources and tasks that are left out of subscriptions, by reason: name (refused alone), cut_off (of clients of whose names many were refused), full (the upstream takes no more).",
                &["upstream", "reason"],
            )?,
            subscriptions: gauge("trunkline_subscriptions", "Open subscriptions of clients.")?,
            sse_streams: gauge("trunkline_sse_streams", "Open streams of HTTP+SSE clients.")?,
            notices: Notices::new(&counters(
                "trunkline_notices_total",
                "Change notices delivered to clients.",
                &["kind"],
            )?),
            connections_refused: counters(
                "trunkline_connections_refused_total",
                "Client connections closed at once because a bound was met.",
                &["limit"],
            )?,
            connections_cut: counters(
                "trunkline_connections_cut_total",
                "Client connections closed because a clock ran out.",
                &["clock"],
            )?,
            connections_accepted: counter(
                "trunkline_connections_accepted_total",
                "Client connections accepted.",
            )?,
            handshakes: counters(
                "trunkline_handshakes_total",
                "TLS handshakes of clients: full and resumed ones, and those that failed, timed out, were refused because of their address, or made room for others.",
                &["result"],
            )?,
            proxied_refused: counters(
                "trunkline_proxied_connections_refused_total",
                "Connections closed because they did not begin with a PROXY header of a trusted proxy, by reason.",
                &["reason"],
            )?,
            certificate_expiry: gauges(
                "trunkline_certificate_expiry_timestamp_seconds",
                "When the certificates of a file end: the first of them, in seconds since 1970.",
                &["file"],
            )?,
            connections_open: gauge("trunkline_connections_open", "Open client connections.")?,
            buffered_bytes: gauge("trunkline_buffered_bytes", "Bytes of messages held in memory.")?,
            upstream_eras: gauges(
                "trunkline_upstream_eras",
                "1 where the upstream is known to speak protocol revisions of the era.",
                &["upstream", "era"],
            )?,
            upstream_probes: counters(
                "trunkline_upstream_probes_total",
                "Questions to upstreams about the eras they speak, by what was found.",
                &["upstream", "result"],
            )?,
            lists_partial: counters(
                "trunkline_lists_partial_total",
                "Lists answered without this upstream, because it failed or was late.",
                &["upstream"],
            )?,
            trace_spans: trace::Series::new(&counters(
                "trunkline_trace_spans_total",
                "Spans of traced calls: exported, rejected by the receiver, failed to be sent, or dropped as too many waited.",
                &["result"],
            )?),
            lists: Lists::new(&registry)?,
            pins: PinMetrics::new(&registry)?,
            gates: Gates::new(&registry)?,
            bridge: Bridges::new(&registry)?,
            rates: Rates::new(&registry)?,
            streams: Streams::new(&registry)?,
            identity: Identity::new(
                &counters(
                    "trunkline_credentials_refused_total",
                    "Credentials of clients that are not valid, by what is wrong with them.",
                    &["reason"],
                )?,
                counters(
                    "trunkline_jwks_fetches_total",
                    "Attempts to read the public keys of an issuer of tokens, by result.",
                    &["issuer", "result"],
                )?,
                gauges("trunkline_jwks_keys", "Public keys held of an issuer of tokens.", &["issuer"])?,
            ),
            shared: shared::Series::new(&registry)?,
            reloads: Reloads::new(&registry)?,
            process: Process::new(&registry)?,
            admin_refused: counters(
                "trunkline_admin_requests_refused_total",
                "Requests to the admin listener that were refused, by reason: token, origin, host, form; crowded_out for connections that made room for others.",
                &["reason"],
            )?,
            panics: counter("trunkline_panics_total", "Connections ended by a bug.")?,
            drain_cut_calls: counter(
                "trunkline_drain_cut_calls_total",
                "Calls that were still under way when the drain was over.",
            )?,
            sessions: gauges(
                "trunkline_sessions",
                "Legacy sessions: live ones have state, revoked ones were ended before they expired.",
                &["state"],
            )?,
            upstream_sessions: gauge(
                "trunkline_upstream_sessions",
                "Sessions with upstreams, opened for legacy sessions.",
            )?,
            upstream_streams: gauge(
                "trunkline_upstream_streams",
                "Streams held open to upstreams for legacy sessions.",
            )?,
            upstream_streams_refused: counter(
                "trunkline_upstream_streams_refused_total",
                "Streams to upstreams that were not opened because of upstream_streams_max.",
            )?,
            tasks: gauge("trunkline_tasks", "Tasks whose owner is known.")?,
            tasks_forgotten: counter(
                "trunkline_tasks_forgotten_total",
                "Tasks whose owner was forgotten because of tasks_max or tasks_per_principal_max.",
            )?,
            journal_records_lost: counter(
                "trunkline_journal_records_lost_total",
                "Changes of sessions that a restart will not know of, as the journal could not take them.",
            )?,
            log_lines_dropped: counter(
                "trunkline_log_lines_dropped_total",
                "Lines left out of the logs: more than a second may have, or than their place takes.",
            )?,
            registry,
        })
    }

    /// The series of one endpoint.
    pub fn endpoint(&self, path: &str, upstreams: usize) -> Arc<EndpointSeries> {
        self.endpoint_upstreams.with_label_values(&[path]).set(i64::try_from(upstreams).unwrap_or(i64::MAX));
        let vecs = EndpointVecs {
            durations: self.measured(&self.server_duration),
            requests: self.requests.clone(),
            tool_failures: self.tool_failures.clone(),
        };
        Arc::new(EndpointSeries::new(path, vecs, self.tools.indexes()))
    }

    /// The series of one upstream.
    pub fn upstream(&self, name: &str) -> UpstreamSeries {
        let durations = self.measured(&self.client_duration);
        UpstreamSeries {
            durations: Arc::new(UpstreamDurations::new(
                name,
                durations,
                self.replies_broken.clone(),
                self.tools.indexes(),
            )),
            tools: self.tools.of(name),
            idle_connections: self.upstream_idle_connections.with_label_values(&[name]),
            connected: self.upstream_connects.with_label_values(&[name, "ok"]),
            connect_failed: self.upstream_connects.with_label_values(&[name, "error"]),
            retries: self.upstream_retries.with_label_values(&[name]),
            retries_refused: self.upstream_retries_refused.with_label_values(&[name]),
            breaker_openings: self.upstream_breaker_openings.with_label_values(&[name]),
            health_checks: ["ok", "error"]
                .map(|result| self.health_checks.with_label_values(&[name, result])),
            connections: self.upstream_connections.with_label_values(&[name]),
            sessions_opened: self.upstream_sessions_opened.with_label_values(&[name]),
            sessions_lost: self.upstream_sessions_lost.with_label_values(&[name]),
            questions: Questions::new(|result| self.upstream_questions.with_label_values(&[name, result])),
            withheld: self.upstream_messages_withheld.with_label_values(&[name]),
            messages_dropped: MessagesDropped::new(|reason| {
                self.upstream_messages_dropped.with_label_values(&[name, reason])
            }),
            mismatched: self.upstream_replies_mismatched.with_label_values(&[name]),
            resumed: self.upstream_streams_resumed.with_label_values(&[name]),
            listens: self.upstream_listens.with_label_values(&[name]),
            listen_gaps: self.upstream_listen_gaps.with_label_values(&[name]),
            listen_names_refused: NamesRefused::new(|reason| {
                self.upstream_listen_names_refused.with_label_values(&[name, reason])
            }),
            list_fetches: self.lists.fetches_of(name),
            list_sessions: self.lists.sessions_of(name),
        }
    }

    /// An upstream is no longer in the configuration: its gauges go, its counters stay.
    pub fn forget_upstream(&self, name: &str) {
        let gauges = [
            &self.children,
            &self.child_crash_loop,
            &self.upstream_connections,
            &self.upstream_idle_connections,
            &self.upstream_listens,
        ];
        for gauge in gauges {
            // One that was never set is none.
            let _ = gauge.remove_label_values(&[name]);
        }
        for era in Era::ALL {
            let _ = self.upstream_eras.remove_label_values(&[name, era.label()]);
        }
        self.pins.forget(name);
        self.gates.forget(name);
        self.bridge.forget(name);
    }

    /// An endpoint is no longer in the configuration.
    pub fn forget_endpoint(&self, path: &str) {
        let _ = self.endpoint_upstreams.remove_label_values(&[path]);
        self.lists.forget(path);
    }

    /// The series of one upstream's child processes.
    pub fn children(&self, upstream: &str) -> ChildSeries {
        ChildSeries {
            running: self.children.with_label_values(&[upstream]),
            started: self.child_starts.with_label_values(&[upstream, "ok"]),
            not_started: self.child_starts.with_label_values(&[upstream, "error"]),
            ousted: self.children_ousted.with_label_values(&[upstream]),
            crashes: self.child_crashes.with_label_values(&[upstream]),
            crash_loop: self.child_crash_loop.with_label_values(&[upstream]),
            garbage: self.child_garbage.with_label_values(&[upstream]),
            stderr_dropped: self.child_stderr_dropped.with_label_values(&[upstream]),
        }
    }

    /// Every metric, whether it has series or not.
    pub fn families(&self) -> Vec<Family> {
        self.registry.families()
    }

    /// Sums up calls and how long they take; `None`: not measured.
    pub fn sums(&self) -> Option<Sums> {
        let (server, client) = (self.server_duration.clone(), self.client_duration.clone());
        let (broken, failures) = (self.replies_broken.clone(), self.tool_failures.clone());
        self.measures_durations.then(|| Sums::new(server, client, broken, failures))
    }

    fn measured(&self, durations: &Durations) -> Option<Durations> {
        self.measures_durations.then(|| durations.clone())
    }

    /// Everything in Prometheus' text format.
    pub fn render(&self) -> Result<Vec<u8>, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

/// What is counted about the child processes of one upstream.
#[derive(Clone, Debug)]
pub struct ChildSeries {
    /// Those that run.
    pub running: IntGauge,
    /// Those that were started.
    pub started: IntCounter,
    /// Those that could not be started.
    pub not_started: IntCounter,
    /// Those that made room for others.
    pub ousted: IntCounter,
    /// Those that ended unasked, or had to be ended.
    pub crashes: IntCounter,
    /// 1 while they end before they answer anything.
    pub crash_loop: IntGauge,
    /// Lines that are no messages, or answer nothing.
    pub garbage: IntCounter,
    /// Lines left out of the log.
    pub stderr_dropped: IntCounter,
}

/// What is counted about one upstream.
#[derive(Debug)]
pub struct UpstreamSeries {
    /// How long requests to it take.
    pub durations: Arc<UpstreamDurations>,
    /// Its tools.
    pub tools: Arc<UpstreamTools>,
    /// Open connections that wait for a request.
    pub idle_connections: IntGauge,
    /// Connections opened.
    pub connected: IntCounter,
    /// Connections that could not be opened.
    pub connect_failed: IntCounter,
    /// Requests sent again.
    pub retries: IntCounter,
    /// Requests that were not, as too many were.
    pub retries_refused: IntCounter,
    /// Questions whether a replica is fit that were answered, and those that were not.
    pub health_checks: [IntCounter; 2],
    /// Times that calls began to keep away from a replica.
    pub breaker_openings: IntCounter,
    /// Open connections.
    pub connections: IntGauge,
    /// Lists fetched, and lists that could not be.
    pub list_fetches: [IntCounter; 2],
    /// Sessions for lists that made room for others, and those that could not be had.
    pub list_sessions: [IntCounter; 2],
    /// Legacy sessions opened.
    pub sessions_opened: IntCounter,
    /// Legacy sessions that it forgot before we did.
    pub sessions_lost: IntCounter,
    /// Its requests to clients.
    pub questions: Questions,
    /// Its messages that belong to nobody.
    pub withheld: IntCounter,
    /// Messages that it did not take.
    pub messages_dropped: MessagesDropped,
    /// Its replies that answer another request.
    pub mismatched: IntCounter,
    /// Its event streams that were taken up again.
    pub resumed: IntCounter,
    /// Subscriptions it has acknowledged.
    pub listens: IntGauge,
    /// Subscriptions of those that were lost.
    pub listen_gaps: IntCounter,
    /// Names that are left out of them.
    pub listen_names_refused: NamesRefused,
}

/// Resources and tasks that are left out of an upstream's subscriptions.
#[derive(Clone, Debug)]
pub struct NamesRefused {
    /// It refuses them, even alone.
    pub name: IntCounter,
    /// Those who want them brought many that it refuses.
    pub cut_off: IntCounter,
    /// It takes no more, or the gateway asks for no more.
    pub full: IntCounter,
}

impl NamesRefused {
    fn new(with: impl Fn(&str) -> IntCounter) -> Self {
        Self { name: with("name"), cut_off: with("cut_off"), full: with("full") }
    }
}

/// Notifications and responses that an upstream did not take, by why.
#[derive(Clone, Debug)]
pub struct MessagesDropped {
    /// It did not accept them in time.
    pub timed_out: IntCounter,
    /// It answered with an error.
    pub refused: IntCounter,
    /// It could not be reached, or the connection broke.
    pub failed: IntCounter,
    /// Their session with it was over by then.
    pub ended: IntCounter,
    /// The gateway's own, for which there was no room.
    pub full: IntCounter,
}

impl MessagesDropped {
    fn new(counter: impl Fn(&str) -> IntCounter) -> Self {
        Self {
            timed_out: counter("timed_out"),
            refused: counter("refused"),
            failed: counter("failed"),
            ended: counter("ended"),
            full: counter("full"),
        }
    }
}

/// Requests of an upstream to clients, by what became of them.
#[derive(Clone, Debug)]
pub struct Questions {
    /// Put to a client.
    pub asked: IntCounter,
    /// Refused by the gateway: the client cannot take them, or owes too many answers.
    pub refused: IntCounter,
    /// Answered by a client.
    pub answered: IntCounter,
    /// Withdrawn by the upstream.
    pub withdrawn: IntCounter,
    /// Not answered in time.
    pub expired: IntCounter,
}

impl Questions {
    fn new(with: impl Fn(&str) -> IntCounter) -> Self {
        Self {
            asked: with("asked"),
            refused: with("refused"),
            answered: with("answered"),
            withdrawn: with("withdrawn"),
            expired: with("expired"),
        }
    }
}

/// Change notices, by what has changed.
#[derive(Clone, Debug)]
pub struct Notices {
    /// Lists of tools, prompts and resources, in this order.
    pub lists: [IntCounter; 3],
    /// Resources.
    pub resources: IntCounter,
    /// Tasks.
    pub tasks: IntCounter,
}

impl Notices {
    fn new(vec: &IntCounterVec) -> Self {
        let of_kind = |kind| vec.with_label_values(&[kind]);
        Self {
            lists: [of_kind("tools_list"), of_kind("prompts_list"), of_kind("resources_list")],
            resources: of_kind("resource"),
            tasks: of_kind("task"),
        }
    }
}

impl UpstreamSeries {
    /// Counts one exchange; `asked` is what it is about, `None` where it is the gateway's own.
    pub fn observe(&self, asked: Option<Asked>, reason: Option<Reason>, seconds: f64) {
        self.durations.observe(asked, reason, seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::super::calls::{Outcome, Spoken};
    use super::super::tools::Tool;
    use super::*;
    use protocol::method::Method;
    use protocol::version::LegacyVersion;

    fn text(metrics: &Metrics) -> String {
        String::from_utf8(metrics.render().expect("text")).expect("utf-8")
    }

    #[test]
    fn series_appear_with_their_first_call() {
        let metrics = Metrics::new(10).expect("metrics");
        let upstream = metrics.upstream("weather");
        upstream.tools.publish(["forecast".into(), "today".into()].into_iter());
        let series = metrics.endpoint("/mcp", 2);
        assert!(!text(&metrics).contains("mcp_server_operation_duration_seconds_count"));
        let forecast = upstream.tools.find("forecast");
        series.note_tool(forecast, || "weather__forecast".to_owned());
        let legacy = Spoken::Legacy(LegacyVersion::V2025_06_18);
        for (method, spoken, tool, reason) in [
            (Method::ToolsCall, Spoken::Modern, Some(forecast), None),
            (Method::ToolsCall, legacy, Some(forecast), None),
            (Method::ToolsCall, Spoken::Modern, Some(upstream.tools.find("made up")), None),
            (Method::ToolsCall, legacy, Some(forecast), Some(Reason::UpstreamTimeout)),
            (Method::ToolsList, legacy, None, None),
            (Method::Other, Spoken::Unknown, None, Some(Reason::NoEndpoint)),
        ] {
            series.observe(&Outcome { method, spoken, tool, reason, seconds: 0.002 });
        }
        for line in [
            r#"mcp_server_operation_duration_seconds_count{endpoint="/mcp",error_type="",gen_ai_tool_name="weather__forecast",mcp_method_name="tools/call",mcp_protocol_version=""} 2"#,
            r#"mcp_server_operation_duration_seconds_count{endpoint="/mcp",error_type="",gen_ai_tool_name="_other",mcp_method_name="tools/call",mcp_protocol_version=""} 1"#,
            r#"mcp_server_operation_duration_seconds_count{endpoint="/mcp",error_type="",gen_ai_tool_name="",mcp_method_name="tools/list",mcp_protocol_version="2025-06-18"} 1"#,
            r#"mcp_server_operation_duration_seconds_count{endpoint="/mcp",error_type="upstream_timeout",gen_ai_tool_name="",mcp_method_name="tools/call",mcp_protocol_version=""} 1"#,
            r#"mcp_server_operation_duration_seconds_count{endpoint="/mcp",error_type="no_endpoint",gen_ai_tool_name="",mcp_method_name="_other",mcp_protocol_version=""} 1"#,
            r#"trunkline_requests_total{endpoint="/mcp",mcp_protocol_version="2026-07-28",outcome="answered",reason=""} 2"#,
            r#"trunkline_requests_total{endpoint="/mcp",mcp_protocol_version="2025-06-18",outcome="failed",reason="upstream_timeout"} 1"#,
            r#"trunkline_requests_total{endpoint="/mcp",mcp_protocol_version="",outcome="refused",reason="no_endpoint"} 1"#,
            r#"trunkline_tool_failures_total{endpoint="/mcp",gen_ai_tool_name="weather__forecast"} 1"#,
            r#"trunkline_endpoint_upstreams{endpoint="/mcp"} 2"#,
        ] {
            assert!(text(&metrics).contains(line), "{line}\n{}", text(&metrics));
        }
        let text = text(&metrics);
        assert!(!text.contains("made up") && !text.contains("today"), "{text}");
    }

    #[test]
    fn requests_to_upstreams_are_told_by_method_and_tool() {
        let metrics = Metrics::new(1).expect("metrics");
        let upstream = metrics.upstream("weather");
        upstream.tools.publish(["forecast".into(), "today".into()].into_iter());
        let tools = ["forecast", "today"].map(|name| (name, upstream.tools.find(name)));
        for (name, tool) in tools {
            upstream.durations.note_tool(tool, name);
            upstream.observe(Some(Asked { method: Method::ToolsCall, tool: Some(tool) }), None, 0.1);
        }
        assert_eq!(tools[1].1, Tool::OTHER);
        upstream.observe(Some(Asked { method: Method::ResourcesRead, tool: None }), None, 0.1);
        upstream.observe(None, None, 0.1);
        upstream.observe(None, Some(Reason::UpstreamReset), 0.1);
        for (method, tool, error_type) in [
            ("tools/call", "forecast", ""),
            ("tools/call", "_other", ""),
            ("resources/read", "", ""),
            ("", "", ""),
            ("", "", "upstream_reset"),
        ] {
            let line = format!(
                r#"mcp_client_operation_duration_seconds_count{{error_type="{error_type}",gen_ai_tool_name="{tool}",mcp_method_name="{method}",upstream="weather"}} 1"#
            );
            assert!(text(&metrics).contains(&line), "{line}\n{}", text(&metrics));
        }
    }

    #[test]
    fn a_name_stays_within_its_label() {
        let metrics = Metrics::new(1).expect("metrics");
        let upstream = metrics.upstream("weather");
        let name = "x\"} 1\nforged 7\n\\";
        upstream.tools.publish([name.into()].into_iter());
        let tool = upstream.tools.find(name);
        upstream.durations.note_tool(tool, name);
        upstream.observe(Some(Asked { method: Method::ToolsCall, tool: Some(tool) }), None, 0.1);
        let text = text(&metrics);
        assert!(text.contains(r#"gen_ai_tool_name="x\"} 1\nforged 7\n\\","#), "{text}");
        assert!(text.lines().all(|line| !line.starts_with("forged")), "{text}");
    }

    #[test]
    fn series_of_tools_outlive_a_reload() {
        let metrics = Metrics::new(10).expect("metrics");
        for _ in 0..2 {
            let (series, upstream) = (metrics.endpoint("/mcp", 1), metrics.upstream("u"));
            upstream.tools.publish(["t".into()].into_iter());
            let tool = upstream.tools.find("t");
            series.note_tool(tool, || "t".to_owned());
            let (method, tool) = (Method::ToolsCall, Some(tool));
            let outcome = Outcome { method, spoken: Spoken::Modern, tool, reason: None, seconds: 0.1 };
            series.observe(&outcome);
        }
        let line = r#"mcp_server_operation_duration_seconds_count{endpoint="/mcp",error_type="",gen_ai_tool_name="t",mcp_method_name="tools/call",mcp_protocol_version=""} 2"#;
        assert!(text(&metrics).contains(line), "{}", text(&metrics));
    }

    #[test]
    fn a_scrape_at_the_cap_is_quick() {
        let metrics = Metrics::new(1000).expect("metrics");
        let endpoint = metrics.endpoint("/mcp", 500);
        for upstream in 0..500 {
            let name = format!("upstream-{upstream}");
            let series = metrics.upstream(&name);
            let names = (0..4).map(|tool| format!("tool_with_a_name_{tool}"));
            series.tools.publish(names.clone().map(Into::into));
            for name in names {
                let tool = series.tools.find(&name);
                endpoint.note_tool(tool, || format!("upstream-{upstream}__{name}"));
                series.durations.note_tool(tool, &name);
                let (method, tool) = (Method::ToolsCall, Some(tool));
                endpoint.observe(&Outcome {
                    method,
                    spoken: Spoken::Modern,
                    tool,
                    reason: None,
                    seconds: 0.1,
                });
                series.observe(Some(Asked { method, tool }), None, 0.1);
            }
            series.observe(None, None, 0.1);
        }
        let started = std::time::Instant::now();
        let text = text(&metrics);
        let took = started.elapsed();
        let tools = text.matches("mcp_server_operation_duration_seconds_count{").count();
        assert_eq!(tools, 1001, "a thousand, and the rest as one");
        // A hundred times what a build with optimisation may take: this one has none, and the machine may be busy.
        assert!(took < std::time::Duration::from_secs(10), "{took:?} for {} bytes", text.len());
    }
}
