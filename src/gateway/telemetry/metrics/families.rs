//! Every metric of the gateway but those of the process, each declared once: its name, its labels, and its help as its
//! documentation.
//!
//! `mcp_*` are OpenTelemetry's names for MCP, `trunkline_*` are the gateway's own. The reference of the book is made
//! from this file.

use prometheus::{IntCounter, IntGauge};

use super::declare::{Handle, label_values, metrics};
use super::sharded::ShardedHistogram;
use super::vec::{IntCounterVec, IntGaugeVec, MetricVec, ShardedCounterVec};
use crate::identity::refusal::CredentialFault;
use crate::telemetry::book::{Counters, Durations};

/// Upper bounds of the buckets of calls, in seconds.
const CALL_BUCKETS_S: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 25.0, 75.0];
/// Upper bounds of the buckets of waiting for a turn, in seconds.
const WAIT_BUCKETS_S: [f64; 10] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0];
/// Upper bounds of the buckets of operations in Redis, in seconds.
const REDIS_BUCKETS_S: [f64; 10] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0];

label_values! {
    /// What succeeded and what did not.
    pub struct ByResult["result"] {
        /// It succeeded.
        ok,
        /// It failed.
        error,
    }
}

metrics! {
    /// Calls, all in all; the handles of an endpoint and of an upstream are made from these at first use.
    pub struct CallMetrics {
        /// Time from a client's request to the end of its reply; `error_type` is empty for calls that were answered.
        server_duration: Durations["endpoint", "mcp_method_name", "gen_ai_tool_name", "mcp_protocol_version", "error_type"] = "mcp_server_operation_duration_seconds" in CALL_BUCKETS_S;
        /// Time from sending a request to an upstream to the head of its reply; `mcp_method_name` is empty for requests of the
        /// gateway's own.
        client_duration: Durations["upstream", "mcp_method_name", "gen_ai_tool_name", "error_type"] = "mcp_client_operation_duration_seconds" in CALL_BUCKETS_S;
        /// Requests of clients, by outcome: `answered`; `refused` because of the request itself, its caller or a limit;
        /// `failed`, at the upstream or here; `cancelled` by the client. `reason` is the `error_type`.
        requests: ShardedCounterVec["endpoint", "mcp_protocol_version", "outcome", "reason"] = "trunkline_requests_total";
        /// Tool calls that were not answered, after it was known which tool was called.
        tool_failures: Counters["endpoint", "gen_ai_tool_name"] = "trunkline_tool_failures_total";
        /// Malformed, late or truncated replies of upstreams, and replies with a status of failure, by `error_type`.
        replies_broken: Counters["upstream", "error_type"] = "trunkline_upstream_replies_broken_total";
        /// Calls within sessions that went on without their client, by result: `kept`; of these, `ended`; `dropped` because
        /// there were too many.
        exchanges_detached: IntCounterVec["result"] = "trunkline_exchanges_detached_total";
        /// Calls that were still in flight when the drain was over.
        drain_aborted: IntCounter = "trunkline_drain_aborted_calls_total";
    }
}

metrics! {
    /// Connections of clients, and the bytes of their messages.
    pub struct ConnectionMetrics {
        /// Client connections accepted.
        accepted: IntCounter = "trunkline_connections_accepted_total";
        // Gauges without labels are set when they are scraped.
        /// Open client connections.
        open: IntGauge = "trunkline_connections_open";
        /// Maximum number of client connections.
        max: IntGauge = "trunkline_connections_max";
        /// Client connections closed at once, by the limit that was reached: `connections_max`,
        /// `connections_per_address_max`.
        refused: IntCounterVec["limit"] = "trunkline_connections_refused_total";
        /// Client connections closed because the client was too slow or idle, by the setting that bounds it:
        /// `header_timeout`, `idle_timeout`, `reply_rate_min`.
        timed_out: IntCounterVec["timeout"] = "trunkline_connections_timed_out_total";
        /// TLS handshakes of clients, by result: `full`, `resumed`; `failed`, `timeout`, `refused` because of
        /// `handshakes_per_address_max`, `evicted` to make room for others.
        handshakes: IntCounterVec["result"] = "trunkline_handshakes_total";
        /// Connections closed because they did not begin with a PROXY header of a trusted proxy, by reason: `untrusted`,
        /// `invalid`, `timeout`, `closed`.
        proxied_refused: IntCounterVec["reason"] = "trunkline_proxied_connections_refused_total";
        /// Earliest expiry of the certificates in a file, in seconds since 1970.
        certificate_expiry: IntGaugeVec["file"] = "trunkline_certificate_expiry_timestamp_seconds";
        /// Bytes of messages held in memory.
        buffered_bytes: IntGauge = "trunkline_buffered_bytes";
        /// Maximum number of bytes of messages held in memory.
        buffered_bytes_max: IntGauge = "trunkline_buffered_bytes_max";
    }
}

label_values! {
    /// Requests of an upstream to clients.
    pub struct Questions["result"] {
        /// Sent to a client.
        forwarded,
        /// Refused by the gateway: the client cannot take them, or owes too many answers.
        refused,
        /// Answered by a client.
        answered,
        /// Cancelled by the upstream.
        cancelled,
        /// Not answered in time.
        expired,
    }
}

label_values! {
    /// Notifications and responses that an upstream did not take.
    pub struct MessagesDropped["reason"] {
        /// It did not accept them in time.
        timed_out,
        /// It answered with an error.
        refused,
        /// It could not be reached, or the connection broke.
        failed,
        /// Their session with it was over by then.
        ended,
        /// The gateway's own, for which there was no room.
        full,
    }
}

label_values! {
    /// Resources and tasks that are left out of an upstream's subscriptions.
    pub struct NamesRefused["reason"] {
        /// It refuses them, even alone.
        name,
        /// Those who want them brought many that it refuses.
        cut_off,
        /// It takes no more, or the gateway asks for no more.
        full,
    }
}

metrics! {
    /// One upstream.
    pub struct UpstreamSeries["upstream"] {
        /// Open connections to upstreams.
        connections: IntGauge = "trunkline_upstream_connections";
        /// Open connections to upstreams that are idle; updated once a second.
        idle_connections: IntGauge = "trunkline_upstream_idle_connections";
        /// Connections opened to upstreams, by result: `ok`, `error`.
        connects: ByResult = "trunkline_upstream_connects_total";
        /// Requests sent again because a pooled connection had died.
        retries: IntCounter = "trunkline_upstream_retries_total";
        /// Requests that were not sent again because `retry.budget_percent` was used up.
        retries_refused: IntCounter = "trunkline_upstream_retries_refused_total";
        /// Openings of circuit breakers of replicas.
        breaker_openings: IntCounter = "trunkline_breaker_openings_total";
        /// Health checks of replicas, by result: `ok`, `error`.
        health_checks: ByResult = "trunkline_health_checks_total";
        /// Legacy sessions opened with upstreams.
        sessions_opened: IntCounter = "trunkline_upstream_sessions_opened_total";
        /// Answers to `initialize` that came too late for whoever had asked, and are still waited for to close their sessions.
        late_answers: IntGauge = "trunkline_upstream_late_answers";
        /// Legacy sessions that upstreams opened too late for whoever had asked, and that were closed.
        late_sessions: IntCounter = "trunkline_upstream_late_sessions_total";
        /// Legacy sessions that an upstream no longer knew.
        sessions_lost: IntCounter = "trunkline_upstream_sessions_lost_total";
        /// Requests of upstreams to clients, by result: `forwarded`, `refused`, `answered`, `cancelled`, `expired`.
        questions: Questions = "trunkline_upstream_requests_to_clients_total";
        /// Messages of upstreams within sessions that could not be assigned to a client or a call.
        unroutable: IntCounter = "trunkline_upstream_messages_unroutable_total";
        /// Notifications and responses within sessions that an upstream did not accept, by reason: `timed_out`, `refused`,
        /// `failed`; `ended` with their session; `full`, the gateway's own for which there was no room.
        messages_dropped: MessagesDropped = "trunkline_upstream_messages_dropped_total";
        /// Replies of upstreams whose id is not that of the request.
        mismatched: IntCounter = "trunkline_upstream_replies_mismatched_total";
        /// Event streams that ended before the answer to their call and were resumed.
        resumed: IntCounter = "trunkline_upstream_streams_resumed_total";
        /// Acknowledged subscriptions of the gateway at upstreams, and streams in its own legacy sessions.
        subscription_streams: IntGauge = "trunkline_upstream_subscription_streams";
        /// Subscriptions and own streams at upstreams that were lost; their clients are told of all that may have changed.
        subscription_gaps: IntCounter = "trunkline_upstream_subscription_gaps_total";
        /// Resources and tasks that are left out of subscriptions, by reason: `name` (refused alone), `cut_off` (of clients
        /// of whose names many were refused), `full` (the upstream takes no more).
        subscription_names_refused: NamesRefused = "trunkline_upstream_subscription_names_refused_total";
        /// Lists fetched from upstreams, by result; all pages of a list count once.
        list_fetches: ByResult = "trunkline_list_fetches_total";
        /// Sessions that the gateway opened to fetch lists and closed to make room for another.
        list_sessions_closed: IntCounter = "trunkline_list_sessions_closed_total";
        /// Lists that needed a session of the gateway's own which could not be opened.
        list_sessions_refused: IntCounter = "trunkline_list_sessions_refused_total";
    }
}

metrics! {
    /// Upstreams where other labels are not known beforehand.
    pub struct ReplicaMetrics {
        /// Upstreams of each endpoint.
        endpoint_upstreams: IntGaugeVec["endpoint"] = "trunkline_endpoint_upstreams";
        // These are set when they are scraped.
        /// 1 for the state of each replica's circuit breaker: `closed`, `open`, `half_open`.
        breakers: IntGaugeVec["upstream", "replica", "state"] = "trunkline_replica_breaker";
        /// Requests in flight at each replica of an upstream.
        in_flight: IntGaugeVec["upstream", "replica"] = "trunkline_replica_in_flight";
        /// Replicas of upstreams: `healthy` ones take calls, `unhealthy` ones do not, as their circuit breaker is open.
        replicas: IntGaugeVec["upstream", "state"] = "trunkline_upstream_replicas";
        /// 1 where calls get through to the upstream, at least some, by how it is (`up`, `starting`, `failing`,
        /// `refuses our credentials`, `wants the caller's own credentials`, `is no MCP server`, `cannot be listed`, `down`) and why.
        usable: IntGaugeVec["upstream", "state", "cause"] = "trunkline_upstream_usable";
        /// 1 where the upstream speaks protocol revisions of the era: `modern`, `legacy`.
        eras: IntGaugeVec["upstream", "era"] = "trunkline_upstream_eras";
        /// Probes of upstreams for the eras that they speak, by result: `modern`, `not_modern`, `legacy`, `not_legacy`,
        /// `unknown`.
        probes: IntCounterVec["upstream", "result"] = "trunkline_upstream_probes_total";
    }
}

metrics! {
    /// The child processes of one upstream.
    pub struct ChildSeries["upstream"] {
        /// Child processes that are running.
        running: IntGauge = "trunkline_children";
        /// Starts of child processes, by result.
        starts: ByResult = "trunkline_child_starts_total";
        /// Child processes that wait for their turn to start, or for room.
        starts_waiting: IntGauge = "trunkline_child_starts_waiting";
        /// Child processes at rest that were ended to make room for another.
        evicted: IntCounter = "trunkline_child_evictions_total";
        /// Child processes that ended on their own, or had to be killed.
        crashes: IntCounter = "trunkline_child_crashes_total";
        /// 1 while child processes end before they are of use, or at a question of the gateway's own, and are restarted with pauses.
        crash_loop: IntGauge = "trunkline_child_crash_loop";
        /// Lines of child processes that are not messages, or answer no request.
        invalid_lines: IntCounter = "trunkline_child_invalid_lines_total";
        /// Lines that child processes wrote to standard error and that were left out of the log.
        stderr_dropped: IntCounter = "trunkline_child_stderr_lines_dropped_total";
    }
}

metrics! {
    /// The bound on concurrent calls of one upstream.
    pub struct GateSeries["upstream"] {
        /// Calls in flight at upstreams with `calls_max`.
        in_use: IntGauge = "trunkline_upstream_calls";
        /// Of them, places that are kept after calls that were left or cancelled, as their server may still be at work.
        kept: IntGauge = "trunkline_upstream_calls_kept";
        /// Calls that wait for another one to end.
        waiting: IntGauge = "trunkline_upstream_calls_waiting";
        /// Calls refused because the upstream's `calls_max` was reached and the queue was full, or the wait too long.
        refused: IntCounter = "trunkline_upstream_calls_refused_total";
        /// Time that calls waited for another one to end, of those that had to wait.
        waited: ShardedHistogram = "trunkline_upstream_calls_waited_seconds" in WAIT_BUCKETS_S;
    }
}

label_values! {
    /// The era of the client whose calls are bridged.
    pub struct ByClientEra["client_era"] {
        /// Its server is modern.
        legacy,
        /// Its server is legacy.
        modern,
    }
}

label_values! {
    /// Suspended calls, by what became of them.
    pub struct Suspensions["result"] {
        /// The client answered.
        resumed,
        /// It did not in time.
        expired,
        /// The server ended the call, or its session.
        lost,
        /// There were too many already.
        refused,
        /// A retry that fits no call that waits.
        rejected,
    }
}

metrics! {
    /// The bridge to one upstream.
    pub struct BridgeSeries["upstream"] {
        /// Requests of clients that speak the other era than the upstream, by the era of the client.
        requests: ByClientEra = "trunkline_bridge_requests_total";
        /// Requests for input by upstreams during bridged calls, by the era of the client.
        input_requests: ByClientEra = "trunkline_bridge_input_requests_total";
        /// Sessions kept for bridged calls, by the era of the client.
        sessions: ByClientEra<IntGauge> = "trunkline_bridge_sessions";
        /// Calls of modern clients that are suspended until the client answers a legacy upstream's request.
        suspended: IntGauge = "trunkline_bridge_suspended_calls";
        /// Suspended calls, by result: `resumed`, `expired`, `lost`, `refused`; `rejected` counts retries that belong to
        /// none.
        suspensions: Suspensions = "trunkline_bridge_suspensions_total";
    }
}

label_values! {
    /// Sessions of legacy clients.
    pub struct SessionStates["state"] {
        /// With state.
        live,
        /// Ended before they expired.
        revoked,
    }
}

label_values! {
    /// Streams of sessions that the gateway ended.
    pub struct StreamsEnded["reason"] {
        /// Their client opened another.
        taken_over,
        /// Their client did not read.
        unread,
    }
}

metrics! {
    /// Sessions of legacy clients, and what belongs to them.
    pub struct SessionMetrics {
        // Gauges are set when they are scraped.
        /// Legacy sessions: `live` ones have state, `revoked` ones were ended before they expired.
        states: SessionStates<IntGauge> = "trunkline_sessions";
        /// Session ids of clients that were not valid, by reason: `unknown`, `expired`, `revoked`, `foreign`.
        ids_refused: IntCounterVec["reason"] = "trunkline_session_ids_refused_total";
        /// Sessions with upstreams, opened for legacy sessions.
        upstream_sessions: IntGauge = "trunkline_upstream_sessions";
        /// Streams held open to upstreams for legacy sessions.
        upstream_streams: IntGauge = "trunkline_upstream_streams";
        /// Streams to upstreams that were not opened because of `upstream_streams_max`.
        upstream_streams_refused: IntCounter = "trunkline_upstream_streams_refused_total";
        /// Tasks whose owner is known.
        tasks: IntGauge = "trunkline_tasks";
        /// Tasks whose owner was forgotten because of `tasks_max` or `tasks_per_principal_max`.
        tasks_forgotten: IntCounter = "trunkline_tasks_forgotten_total";
        /// 1: the journal lacks changes of sessions, which a restart would forget; it is written anew as soon as it can be.
        journal_behind: IntGauge = "trunkline_journal_behind";
        /// Session changes that could not be written to the journal at once.
        journal_records_lost: IntCounter = "trunkline_journal_records_lost_total";
    }
}

metrics! {
    /// Streams that clients hold open in sessions.
    pub struct SessionStreamMetrics {
        /// Open streams of clients in sessions.
        open: IntGauge = "trunkline_session_streams";
        /// Streams of sessions refused because of `streams_max` or `streams_per_principal_max`.
        refused: IntCounter = "trunkline_session_streams_refused_total";
        /// Streams of sessions ended before their client or session ended them, by reason: `taken_over` by a newer one,
        /// `unread`.
        ended: StreamsEnded = "trunkline_session_streams_ended_total";
        /// Messages for streams of sessions dropped because the queue was full.
        messages_dropped: IntCounter = "trunkline_session_messages_dropped_total";
    }
}

label_values! {
    /// Change notifications, by what has changed.
    pub struct Notifications["kind"] {
        /// A list of tools.
        tools_list,
        /// A list of prompts.
        prompts_list,
        /// A list of resources.
        resources_list,
        /// A resource.
        resource,
        /// A task.
        task,
    }
}

impl Notifications {
    /// Lists by their index: tools, prompts, resources.
    pub(crate) fn lists(&self) -> [&IntCounter; 3] {
        [&self.tools_list, &self.prompts_list, &self.resources_list]
    }
}

metrics! {
    /// Clients that wait for changes.
    pub struct SubscriptionMetrics {
        // Gauges are set when they are scraped.
        /// Open subscriptions (`subscriptions/listen`) of clients.
        open: IntGauge = "trunkline_subscriptions";
        /// Open streams of HTTP+SSE clients.
        sse_streams: IntGauge = "trunkline_sse_streams";
        /// Change notifications delivered to clients, by kind: `tools_list`, `prompts_list`, `resources_list`, `resource`,
        /// `task`.
        notifications: Notifications = "trunkline_notifications_total";
    }
}

label_values! {
    /// How a list was answered.
    pub struct CacheResults["result"] {
        /// With what was at hand.
        hit,
        /// With something old.
        stale,
        /// After a fetch.
        miss,
        /// Not at all, or not by every upstream.
        error,
    }
}

metrics! {
    /// Lists of tools, prompts and resources.
    pub struct ListMetrics {
        /// Lists answered, by result: `hit`, cached and fresh; `stale`, cached and expired; `miss`, after a fetch; `error`,
        /// not at all or without an upstream.
        cache: CacheResults = "trunkline_list_cache_total";
        /// Bytes of lists in the cache.
        cache_bytes: IntGauge = "trunkline_list_cache_bytes";
        /// Bytes of the last complete lists of upstreams, which are kept for restarts.
        kept_bytes: IntGauge = "trunkline_lists_kept_bytes";
        /// Lists of an upstream that are not kept for restarts, as `kept_lists_bytes_max` is met.
        not_kept: IntCounterVec["upstream"] = "trunkline_lists_not_kept_total";
        /// Lists answered without this upstream, because it failed or was late.
        partial: IntCounterVec["upstream"] = "trunkline_lists_partial_total";
        /// Truncated lists of an upstream, by reason.
        truncated: IntCounterVec["upstream", "reason"] = "trunkline_lists_truncated_total";
        /// Tools left out because of invalid `x-mcp-header` annotations, counted when their list changes.
        tools_excluded: IntCounterVec["upstream"] = "trunkline_tools_excluded_total";
        /// Entries of lists left out because they have a duplicate member, counted when their list changes.
        entries_ambiguous: IntCounterVec["upstream", "mcp_method_name"] = "trunkline_list_entries_ambiguous_total";
        /// Entries of lists left out because clients would refuse the whole list for them, counted when their list changes.
        entries_malformed: IntCounterVec["upstream", "mcp_method_name"] = "trunkline_list_entries_malformed_total";
        /// Size of an endpoint's merged list, in bytes.
        merged_bytes: IntGaugeVec["endpoint", "mcp_method_name"] = "trunkline_list_bytes";
        /// Estimated size of an endpoint's merged list in tokens of a language model: a quarter of the bytes.
        merged_tokens: IntGaugeVec["endpoint", "mcp_method_name"] = "trunkline_list_tokens";
    }
}

label_values! {
    /// Tools by their pins, and the state of where these are kept.
    pub struct PinStates["state"] {
        /// With an approved definition.
        pinned,
        /// With another definition that waits beside it.
        changed,
        /// With one that waits alone.
        new,
        /// 1 while what was kept cannot be read.
        unreadable,
        /// 1 while what is pinned cannot be written down.
        unwritable,
        /// 1 while nothing is trusted, as what gateways share cannot be had.
        unasked,
        /// 1 while what gateways share is refused, or what is pinned is too long for it.
        unshared,
    }
}

metrics! {
    /// The pinned definitions of one upstream.
    pub struct PinSeries["upstream"] {
        /// Tools by their pins: `pinned`, with an approved definition; `changed`, with a new definition that waits for
        /// approval; `new`, without an approved one; `unreadable` and `unwritable`, 1 while the file cannot be read or
        /// written; `unasked`, 1 while nothing is trusted because the pins of the other gateways are not known; `unshared`, 1
        /// while the record that gateways share is refused, or too long.
        states: PinStates<IntGauge> = "trunkline_pins";
        /// Definitions of tools that were not approved when first seen; each counts once while it is remembered.
        changes: IntCounter = "trunkline_pin_changes_total";
    }
}

metrics! {
    /// One rate limit.
    pub struct LimitSeries["limit"] {
        /// Requests refused by a rate limit.
        refused: IntCounter = "trunkline_rate_limited_total";
        /// Requests counted by a shared limiter because `limiter_keys_max` was reached.
        overflowed: IntCounter = "trunkline_limiter_overflow_total";
        /// Callers, addresses and the like that a rate limit tells apart.
        keys: IntGauge = "trunkline_limiter_keys";
    }
}

/// Refused credentials, by what is wrong with them.
#[derive(Clone, Debug)]
pub(crate) struct CredentialsRefused(Vec<IntCounter>);

impl CredentialsRefused {
    /// Counts refused credentials.
    pub(crate) fn count(&self, refusal: CredentialFault) {
        if let Some(counter) = self.0.get(refusal as usize) {
            counter.inc();
        }
    }
}

impl Handle for CredentialsRefused {
    type Series = IntCounter;
    const LABELS: &'static [&'static str] = &["reason"];

    fn resolve(metric: &MetricVec<IntCounter>, values: &[&str]) -> Self {
        let one =
            |refusal: &CredentialFault| metric.with_label_values(&[values, &[refusal.label()]].concat());
        Self(CredentialFault::ALL.iter().map(one).collect())
    }

    fn forget(_: &MetricVec<IntCounter>, _: &[&str]) {}
}

metrics! {
    /// Credentials, and the keys that check them.
    pub struct CredentialMetrics {
        /// Invalid credentials of clients, by reason: `api_key`, `expired`, `audience`, `signature`, `unknown_key` and so
        /// on. Clients are not told which.
        refused: CredentialsRefused = "trunkline_credentials_refused_total";
        /// Attempts to read the public keys of a token issuer, by result.
        key_fetches: IntCounterVec["issuer", "result"] = "trunkline_jwks_fetches_total";
        /// Public keys of a token issuer.
        keys: IntGaugeVec["issuer"] = "trunkline_jwks_keys";
    }
}

metrics! {
    /// Sign-in.
    pub struct SignInMetrics {
        /// Sign-ins that were opened.
        sign_ins: IntCounter = "trunkline_sign_ins_total";
        /// Requests of sign-in that were refused, by kind: `request`, `client`, `form`, `origin`, `denied`, `callback`,
        /// `provider`, `require`, `store`, `token`, `register`, `revoke`, `busy`. The audit log says why, but for those of
        /// networks of which too much is under way (`busy`).
        refused: IntCounterVec["kind"] = "trunkline_sign_in_refused_total";
        /// Tokens that were given out, by kind: `next`; `again`, the same once more.
        tokens: IntCounterVec["kind"] = "trunkline_sign_in_tokens_total";
        /// Requests for tokens that ended in an error, by the error of OAuth.
        token_errors: IntCounterVec["error"] = "trunkline_sign_in_token_errors_total";
        /// Clients that registered themselves.
        registrations: IntCounter = "trunkline_sign_in_registrations_total";
        /// Documents of clients that were fetched, by result.
        documents: IntCounterVec["result"] = "trunkline_sign_in_documents_total";
        /// Requests to the provider, by kind (`metadata`, `code`, `refresh`, `userinfo`) and result.
        provider_requests: IntCounterVec["kind", "result"] = "trunkline_sign_in_provider_requests_total";
        /// Accounts that the provider was asked about again, by result: `ok`, `error`, `ended`.
        checks: IntCounterVec["result"] = "trunkline_sign_in_checks_total";
        /// Sign-ins that were ended, by cause: `reuse` of a code or refresh token, `client`, `person`, `operator`.
        ended: IntCounterVec["cause"] = "trunkline_sign_ins_ended_total";
        /// Records in the file of sign-ins, by kind: `grant`, `account`, `news`, `once`, `turn`.
        records: IntGaugeVec["kind"] = "trunkline_sign_in_records";
        /// The most records that the file of sign-ins may have.
        records_max: IntGauge = "trunkline_sign_in_records_max";
        /// Bytes of the file of sign-ins.
        store_bytes: IntGauge = "trunkline_sign_in_store_bytes";
        /// The most bytes that the file of sign-ins may have.
        store_bytes_max: IntGauge = "trunkline_sign_in_store_bytes_max";
        /// Whether sign-ins can be neither kept nor changed: 0 or 1.
        store_failing: IntGauge = "trunkline_sign_in_store_failing";
        /// Whether there is no room for more sign-ins: 0 or 1.
        store_full: IntGauge = "trunkline_sign_in_store_full";
        /// Whether the provider could not be asked last: 0 or 1.
        provider_failing: IntGauge = "trunkline_sign_in_provider_failing";
        /// Failures of the store of sign-ins.
        store_failures: IntCounter = "trunkline_sign_in_store_failures_total";
        /// Settings of the shared Redis by which sign-ins get lost, 1 where it is set so: `not_persistent`, `evicts`.
        redis_faults: IntGaugeVec["fault"] = "trunkline_sign_in_redis_faults";
    }
}

label_values! {
    /// Why an operation on what replicas share failed.
    pub struct SharedFailures["reason"] {
        /// There is no connection.
        disconnected,
        /// The server did not answer in time.
        timeout,
        /// The server refused.
        refused,
    }
}

metrics! {
    /// What replicas of the gateway share.
    pub struct SharedMetrics {
        /// Whether there is a connection to the shared Redis: 0 or 1.
        connected: IntGauge = "trunkline_shared_connected";
        /// Replicas of the gateway that share the Redis, including this one.
        replicas: IntGauge = "trunkline_shared_replicas";
        /// Replicas of the gateway whose session key this one does not have.
        mismatched: IntGauge = "trunkline_shared_mismatched_replicas";
        /// Time of successful operations in the shared Redis.
        duration: ShardedHistogram = "trunkline_shared_operation_duration_seconds" in REDIS_BUCKETS_S;
        /// Changes that could not be sent to the other replicas.
        lost: IntCounter = "trunkline_shared_lost_total";
        /// Failed operations in the shared Redis, by reason: `disconnected`, `timeout`, `refused`.
        failures: SharedFailures = "trunkline_shared_failures_total";
    }
}

label_values! {
    /// Spans, by what became of them.
    pub struct SpanResults["result"] {
        /// The collector took them.
        exported,
        /// The queue was full.
        dropped,
        /// The collector could not be reached, did not answer in time, or answered with an error.
        failed,
        /// The collector took others of the same batch.
        rejected,
    }
}

metrics! {
    /// The running of the gateway itself.
    pub struct GatewayMetrics {
        /// Always 1; the version is a label, with the commit as `trunkline --version` has it.
        build_info: IntGaugeVec["version"] = "trunkline_build_info";
        /// Connections ended by a bug.
        panics: IntCounter = "trunkline_panics_total";
        /// Configurations loaded while running, by result: `ok`, in force; `error`, refused.
        reloads: ByResult = "trunkline_reloads_total";
        /// Whether the last configuration that was loaded is in force: 0 or 1.
        config_current: IntGauge = "trunkline_config_last_load_successful";
        /// When the configuration in force was loaded, in seconds since 1970.
        config_loaded_at: IntGauge = "trunkline_config_last_success_timestamp_seconds";
        /// Requests to the admin listener, or to that of metrics, that were refused, by reason: `token`, `origin`, `host`,
        /// `form`; `evicted` for connections that made room for others.
        admin_refused: IntCounterVec["reason"] = "trunkline_admin_requests_refused_total";
        /// Spans of traced calls, by result: `exported`; `rejected` by the collector; `failed` to be sent; `dropped`
        /// because the queue was full.
        trace_spans: SpanResults = "trunkline_trace_spans_total";
        /// 1: what is known of upstreams, or their lists, cannot be written to the state directory; it is tried again.
        state_directory_behind: IntGauge = "trunkline_state_directory_behind";
        /// Lines left out of the logs because there were too many per second, or the output was too slow.
        log_lines_dropped: IntCounter = "trunkline_log_lines_dropped_total";
    }
}
