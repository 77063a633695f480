//! `[limits]`, `[drain]`, `[session]`: bounds of the process, how it stops, and sessions of legacy clients.

use std::path::PathBuf;
use std::time::Duration;

use super::findings::Findings;
use super::listener::IpPlace;
use super::secret::SecretPlace;
use super::section::section;
use super::table::Table;
use super::text::AbsolutePath;
use super::value::{Count, DAY_MS, GIB, HOUR_MS, KIB, MIB, MINUTE_MS, Period, SECOND_MS, Size, TIB};

section! {
    /// Bounds of the process.
    pub struct LimitsConfig {
        /// Client connections in all. Default: as many as the limit of open files allows (two each), at most 16384.
        /// Connections to upstreams have a bound of the same size of their own.
        #[example(16384)]
        connections_max: Option<Count<1, 1_048_576>>,
        /// Client connections from one IP address. Default: 1024, or `connections_max` where that is less.
        #[example(1024)]
        connections_per_address_max: Count<1, 1_048_576> => connections_max.unwrap_or(1024).min(1024),
        /// TLS handshakes under way, per worker. More wait for their turn within `handshake_timeout`.
        handshakes_max: Count<1, 65_536> = 32,
        /// TLS handshakes under way from one address (IPv6: one /64), waiting ones among them, beyond which connections
        /// are closed.
        handshakes_per_address_max: Count<1, 65_536> = 16,
        /// Time from the start of a connection to the end of its TLS handshake, with its PROXY header.
        handshake_timeout: Period<1, { 10 * MINUTE_MS }> = "5s",
        /// Size of the head of a request.
        header_bytes_max: Size<{ 8 * KIB }, MIB> = "32KiB",
        /// Header fields of a request.
        headers_max: Count<16, 128> = 100,
        /// Size of the body of a request, at most `buffered_bytes_max`.
        body_bytes_max: Size<KIB, GIB> = "4MiB",
        /// Size of all bodies held in memory at once, beyond which requests get 503. Who holds more than its share gets
        /// 429 before. Default: 256MiB, or a third of the limit of memory of the control group where that is less, but never
        /// less than the largest body and reply.
        #[example("256MiB")]
        buffered_bytes_max: Option<Size<MIB, TIB>>,
        /// Size of a reply that must be collected (where names are mapped, or up to its id where that is compared), and
        /// of one SSE event; at most `buffered_bytes_max`.
        reply_bytes_max: Size<KIB, GIB> = "16MiB",
        /// Size of all pages of one list of one upstream.
        list_bytes_max: Size<KIB, GIB> = "16MiB",
        /// Pages of one list of one upstream.
        list_pages_max: Count<1, 100_000> = 100,
        /// Entries of one list of one upstream, on all its pages.
        list_entries_max: Count<1, 100_000_000> = 100_000,
        /// Size of all lists kept in memory. Default: 64MiB, or a twelfth of the limit of memory of the control group where
        /// that is less. Takes effect at the next start.
        #[example("64MiB")]
        cache_bytes_max: Option<Size<0, TIB>>,
        /// Size of the last complete lists of all upstreams, which are kept in memory and in the state directory for
        /// restarts of programs and of the gateway. 0B keeps none. Default: 32MiB, or a 24th of the limit of memory of the
        /// control group where that is less. Takes effect at the next start.
        #[example("32MiB")]
        kept_lists_bytes_max: Option<Size<0, GIB>>,
        /// Size of all pinned definitions of tools of one upstream.
        pins_bytes_max: Size<KIB, GIB> = "16MiB",
        /// Child processes of all upstreams.
        children_max: Count<1, 65_536> = 256,
        /// Child processes that start at once; others wait for their turn. Default: twice the cores.
        #[example(4)]
        children_starting_max: Option<Count<1, 65_536>>,
        /// Size of a token (JWT) that a client presents.
        token_bytes_max: Size<KIB, { 64 * KIB }> = "16KiB",
        /// Nesting of a JSON message.
        json_depth_max: Count<16, 1024> = 128,
        /// Concurrent streams of one HTTP/2 connection.
        streams_per_connection_max: Count<1, 65_535, u32> = 128,
        /// Open subscriptions (`subscriptions/listen`) of all clients, beyond which they get 503.
        subscriptions_max: Count<1, 1_048_576> = 10_000,
        /// Of these, subscriptions of one principal, or of one address without authentication, beyond which it gets 429.
        /// Default: a quarter of `subscriptions_max`.
        #[example(2500)]
        subscriptions_per_principal_max: Count<1, 1_048_576> => a_quarter(subscriptions_max),
        /// Callers, addresses and the like that each `[[limit]]` tells apart; those beyond are counted together. A key
        /// takes up to 120 bytes.
        limiter_keys_max: Count<1, 100_000_000> = 100_000,
        /// URIs and task ids of one subscription.
        subscription_uris_max: Count<0, 100_000> = 1000,
        /// Notifications and responses of one client's session that wait for one upstream, beyond which they get 503.
        session_messages_max: Count<1, 100_000> = 256,
        /// Time from the first byte of a request to the end of its head.
        header_timeout: Period<1, HOUR_MS> = "10s",
        /// Time for the body of a request.
        body_timeout: Period<1, HOUR_MS> = "30s",
        /// Bytes a second that a client has to send of a body while it is awaited, beyond `rate_grace_period`; `0B`: any.
        body_rate_min: Size<0, GIB> = "1KiB",
        /// Bytes a second that a client has to read while a reply waits for it, beyond `rate_grace_period` and the time for
        /// what may be on its way to it, up to 4 MiB; `0B`: any.
        reply_rate_min: Size<0, GIB> = "16KiB",
        /// Time for which a client may be slower than these.
        rate_grace_period: Period<1, HOUR_MS> = "10s",
        /// Time between two requests of a connection.
        idle_timeout: Period<1, DAY_MS> = "75s",
        /// Age at which an HTTP/2 connection is asked to go, ±10 %, so that clients spread over the workers.
        connection_age_max: Period<SECOND_MS, DAY_MS> = "10m",
    }
    check check_limits;
}

section! {
    /// How the process stops: for `quiet` it still accepts connections while it tells clients to leave; after `max` it
    /// cuts what is left.
    pub struct DrainConfig {
        /// Time in which connections are still accepted while clients are told to leave. Default: 2s, or none where nobody
        /// is connected.
        #[example("2s")]
        quiet: Option<Period<0, HOUR_MS>>,
        /// Time after which what is left is cut; at least `quiet`.
        max: Period<1, HOUR_MS> = "20s",
    }
    check check_drain;
}

/// The quiet phase where none is written.
const QUIET: Duration = Duration::from_secs(2);

impl DrainConfig {
    /// The length of the quiet phase where somebody is connected.
    pub fn quiet_max(&self) -> Duration {
        self.quiet.unwrap_or(QUIET)
    }
}

section! {
    /// Sessions of legacy clients: those of revisions up to 2025-11-25.
    pub struct SessionConfig {
        /// The keys that seal session ids; `trunkline session-key FILE` makes such a file, and puts a new key into it.
        /// Default: `session.key` in the state directory, made at the first start.
        #[example({ file = "/etc/trunkline/session.key" })]
        key_file as "key": Option<KeyFile>,
        /// Time from `initialize` to the end of a session, whatever happens.
        expiry: Period<MINUTE_MS, { 30 * DAY_MS }> = "24h",
        /// Time after which an unused session's upstream sessions are closed, and its log level and subscriptions are
        /// forgotten. The session itself goes on. A session whose client holds a stream is used.
        idle_timeout: Period<SECOND_MS, DAY_MS> = "30m",
        /// Sessions with upstream sessions, subscriptions or a log level. Beyond, calls that need one fail.
        sessions_max: Count<1, 10_000_000> = 100_000,
        /// Of these, sessions of one principal, or of one address without authentication, beyond which it gets 429.
        /// Default: a quarter of `sessions_max`.
        #[example(25_000)]
        sessions_per_principal_max: Count<1, 10_000_000> => a_quarter(sessions_max),
        /// Sessions with upstreams. Beyond, calls that need one fail.
        upstream_sessions_max: Count<1, 10_000_000> = 100_000,
        /// Streams that clients hold open (GET) within sessions. Beyond, 503.
        streams_max: Count<1, 1_048_576> = 16_384,
        /// Of these, streams of one principal, or of one address without authentication.
        streams_per_principal_max: Count<1, 1_048_576> = 8192,
        /// Size of what waits for one client's stream, and for all 256 times as much; one message may be larger. A
        /// client that does not read its stream is cut off there.
        stream_queue_bytes_max: Size<{ 4 * KIB }, { 64 * MIB }> = "1MiB",
        /// Time after which a quiet stream gets a comment, and a quiet reply a comment or a blank, so that nobody between
        /// takes it for dead; 100ms at least. `"0s"`: replies get none, streams one in 25s.
        keep_alive_interval: Period<0, { 5 * MINUTE_MS }> = "25s",
        /// Sessions with upstreams of one principal, or of one address without authentication.
        upstream_sessions_per_principal_max: Count<1, 10_000_000> = 10_000,
        /// Streams that are held open to upstreams, one for each upstream session that needs one: its client holds a
        /// stream, takes requests of servers, or subscribed to resources. Each takes a connection. Beyond, sessions go
        /// without.
        upstream_streams_max: Count<0, 1_000_000> = 16_384,
        /// Sessions opened in a second by one principal, or from one address (IPv6: one /64) without credentials; a
        /// second's worth may come at once.
        initialize_rate_max: Count<1, 1_000_000> = 1000,
        /// Tasks whose owner is remembered. Beyond, the oldest of whoever has most is forgotten, and then nobody's.
        tasks_max: Count<1, 200_000> = 100_000,
        /// Of these, tasks of one principal. Beyond, his oldest is forgotten. Those of clients without credentials count
        /// in all only. Default: a quarter of `tasks_max`.
        #[example(25_000)]
        tasks_per_principal_max: Count<1, 200_000> => a_quarter(tasks_max),
        /// Time for which the owner of a task is remembered at most, and of one that does not say how long it lives.
        task_expiry: Period<MINUTE_MS, { 30 * DAY_MS }> = "168h",
    }
}

section! {
    /// Where keys are kept.
    pub struct KeyFile {
        /// An absolute path.
        #[example("/etc/trunkline/session.key")]
        file: AbsolutePath,
    }
    check path_of => PathBuf;
}

fn path_of(key: KeyFile, _: Table<'_>, _: &mut Findings) -> PathBuf {
    key.file
}

section! {
    /// What is measured.
    pub struct MetricsConfig {
        /// Tools that are told apart in metrics; the rest are counted together as `_other`.
        tools_max: Count<0, 100_000> = 1000,
        /// Whether the durations of calls are measured: both `mcp_*` histograms. Calls are counted all the same.
        durations: bool = true,
        /// IP address and port of a listener for `/metrics` alone, beside the admin listener's. Port 0 lets the system choose.
        /// Whoever reaches it may read them, unless `token` is set. Default: none.
        #[example("0.0.0.0:9100")]
        address: Option<IpPlace>,
        /// What `Authorization: Bearer` must hold at `address`. Default: nothing.
        #[example({ file = "/etc/trunkline/metrics-token" })]
        token: Option<SecretPlace>,
    }
    check check_metrics;
}

fn check_metrics(metrics: MetricsConfig, table: Table<'_>, findings: &mut Findings) -> MetricsConfig {
    if metrics.token.is_some() && !table.has("address") {
        let message =
            "`token` is for the listener of `address`, which is missing; [admin] has a `token` of its own";
        findings.error_at(table, "token", message);
    }
    metrics
}

section! {
    /// When the configuration is read again, beside SIGHUP.
    pub struct Reload {
        /// Whether the configuration is read again when its file, or a file it names, has changed.
        watch: bool = false,
    }
}

fn check_limits(limits: LimitsConfig, table: Table<'_>, findings: &mut Findings) -> LimitsConfig {
    if let Some(connections_max) = limits.connections_max
        && limits.connections_per_address_max > connections_max
    {
        let message =
            format!("`connections_per_address_max` is more than `connections_max` ({connections_max})");
        findings.error_at(table, "connections_per_address_max", message);
    }
    if let Some(span) = findings.span(table, "token_bytes_max")
        && limits.token_bytes_max >= limits.header_bytes_max
    {
        let message = "a token of `token_bytes_max` does not fit into a head of `header_bytes_max`: such requests get 431";
        findings.warning(span, message);
    }
    let buffered = findings.span(table, "buffered_bytes_max");
    for (name, bytes) in
        [("body_bytes_max", limits.body_bytes_max), ("reply_bytes_max", limits.reply_bytes_max)]
    {
        if let Some(span) = findings.span(table, name).or_else(|| buffered.clone())
            && bytes > limits.buffered_bytes_max()
        {
            let message = format!(
                "`{name}` ({bytes} bytes) is more than `buffered_bytes_max` ({} bytes), so the largest could never be held",
                limits.buffered_bytes_max()
            );
            findings.error(span, message);
        }
    }
    limits
}

fn check_drain(drain: DrainConfig, table: Table<'_>, findings: &mut Findings) -> DrainConfig {
    if let Some(span) = findings.span(table, "max").or_else(|| findings.span(table, "quiet"))
        && drain.max < drain.quiet_max()
    {
        let message = format!(
            "`max` ({:?}) ends before `quiet` ({:?}): make it at least as long",
            drain.max,
            drain.quiet_max()
        );
        findings.error(span, message);
    }
    drain
}

/// What one principal may have of so many, where nothing is said of it: it leaves room for others.
fn a_quarter(max: usize) -> usize {
    (max / 4).max(1)
}

/// The interval of comments on a stream of a session where replies get none.
const STREAM_KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(25);
/// Nothing is written more often than this.
const KEEP_ALIVE_INTERVAL_MIN: Duration = Duration::from_millis(100);

impl SessionConfig {
    /// Time after which a quiet stream gets a comment.
    pub fn stream_keep_alive_interval(&self) -> Duration {
        if self.keep_alive_interval.is_zero() {
            STREAM_KEEP_ALIVE_INTERVAL
        } else {
            self.keep_alive_interval.max(KEEP_ALIVE_INTERVAL_MIN)
        }
    }

    /// Time after which a quiet reply gets a comment or a blank; zero for never.
    pub fn reply_keep_alive_interval(&self) -> Duration {
        if self.keep_alive_interval.is_zero() { Duration::ZERO } else { self.stream_keep_alive_interval() }
    }
}
