//! The shape of a configuration file: every key that exists, the range of its value, and what it is for.
//!
//! The descriptions are written for the operator: they become the descriptions of the JSON Schema. The `default`s
//! here are those of the schema only; `resolve.rs`, `endpoint.rs` and `upstream.rs` apply them, and a test holds the
//! two together. Nothing that spans several keys is checked here.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::admin::{WrittenAdmin, WrittenReload};
use super::bridge::BridgeKeys;
use super::credentials::{WrittenBasic, WrittenHeaders, WrittenOAuth, WrittenTls};
use super::identity::{ClientCertificateFile, JwtFile};
use super::log::WrittenLog;
use super::metrics::WrittenMetrics;
use super::policy::RuleFile;
use super::rate::WrittenLimit;
use super::replicas::{BreakerKeys, HealthKeys, RetryKeys};
use super::secret::{TextOrSecret, WrittenSecret};
use super::shared::WrittenShared;
use super::tls::WrittenListenerTls;
use super::trace::WrittenTrace;
use super::value::{At, Count, DAY_MS, GIB, HOUR_MS, KIB, Key, MIB, MINUTE_MS, Period, SECOND_MS, Size, TIB};
use super::{AuthMethod, Isolation, LegacyErrors, Names, PinMode, SessionLoss, Transport};
use protocol::version::Era;

/// Configuration of Trunkline.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Trunkline", extend("required" = ["listener", "endpoint", "upstream"]))]
pub(super) struct File {
    /// Worker threads. Default: the number of cores.
    pub(super) workers: Key<Count<1, 256>>,
    /// Where state is kept between two runs: the session key, the sessions of legacy clients, and what is known of
    /// the upstreams. An absolute path. Default: the environment's `STATE_DIRECTORY`, as systemd sets it; else nowhere.
    #[schemars(example = "/var/lib/trunkline")]
    pub(super) state_directory: Key<String>,
    /// Where clients connect: one `[listener]`, or several `[[listener]]`.
    #[schemars(schema_with = "one_or_many::<Listener>")]
    pub(super) listener: Vec<At<Listener>>,
    /// Networks of the proxies whose `Forwarded`, `X-Forwarded-For` and PROXY headers are believed. Default: none.
    #[schemars(example = ["10.0.0.0/8"])]
    pub(super) trusted_proxies: Key<Vec<At<String>>>,
    /// Where `/metrics`, `/livez`, `/readyz` and `/status` are served. Default: nowhere.
    pub(super) admin: Key<WrittenAdmin>,
    /// What is measured.
    pub(super) metrics: WrittenMetrics,
    /// Where traces go. Default: nowhere, unless the environment's `OTEL_*` variables say so.
    pub(super) trace: Key<WrittenTrace>,
    /// When the configuration is read again.
    pub(super) reload: WrittenReload,
    /// Bounds of the process.
    pub(super) limits: Limits,
    /// How the process stops.
    pub(super) drain: Drain,
    /// What is logged, and how.
    pub(super) log: WrittenLog,
    /// Sessions of legacy clients.
    pub(super) session: Session,
    /// What several gateways that serve the same clients share. Default: nothing. Takes effect at the next start.
    pub(super) shared: Key<WrittenShared>,
    /// The keys clients may present.
    pub(super) api_key: Vec<At<ApiKey>>,
    /// How many calls who may make.
    pub(super) limit: Vec<At<WrittenLimit>>,
    /// The issuers whose tokens (JWT) clients may present.
    pub(super) jwt: Vec<At<JwtFile>>,
    /// Whom the certificates of clients name, where a listener checks them.
    pub(super) client_certificate: Key<ClientCertificateFile>,
    /// Who may call what.
    pub(super) rule: Vec<At<RuleFile>>,
    /// The paths clients see.
    #[schemars(extend("minItems" = 1))]
    pub(super) endpoint: Vec<At<Endpoint>>,
    /// The MCP servers, by name. A name is a lower-case letter, then up to 31 of a-z, 0-9 and -.
    #[schemars(with = "BTreeMap<String, Upstream>")]
    #[schemars(extend("minProperties" = 1, "propertyNames" = { "pattern": "^[a-z][a-z0-9-]{0,31}$" }))]
    pub(super) upstream: BTreeMap<At<String>, At<Upstream>>,
}

/// An address clients connect to.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["address"]))]
pub(super) struct Listener {
    /// IP address and port; port 0 lets the system choose one.
    #[schemars(example = "127.0.0.1:8080")]
    pub(super) address: Key<String>,
    /// Whether every connection begins with a PROXY header of version 2, which `trusted_proxies` send.
    #[schemars(extend("default" = false))]
    pub(super) proxy_protocol: Key<bool>,
    /// TLS. Default: none.
    pub(super) tls: Key<WrittenListenerTls>,
}

/// Bounds of the process.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Limits {
    /// Client connections. Default: as many as the limit of open files allows, at most 16384. Connections to upstreams
    /// have a bound of the same size of their own.
    pub(super) connections_max: Key<Count<1, 1_048_576>>,
    /// Client connections from one IP address; at most `connections_max`, and that where it is less than the default.
    #[schemars(extend("default" = 1024))]
    pub(super) connections_per_address_max: Key<Count<1, 1_048_576>>,
    /// TLS handshakes under way, per worker. More wait for their turn within `handshake_timeout`.
    #[schemars(extend("default" = 32))]
    pub(super) handshakes_max: Key<Count<1, 65_536>>,
    /// TLS handshakes under way from one address (IPv6: one /64), waiting ones among them.
    #[schemars(extend("default" = 16))]
    pub(super) handshakes_per_address_max: Key<Count<1, 65_536>>,
    /// Time from the start of a connection to the end of its TLS handshake, with its PROXY header; up to 10m.
    #[schemars(extend("default" = "5s"))]
    pub(super) handshake_timeout: Key<Period<1, { 10 * MINUTE_MS }>>,
    /// Size of the head of a request; 8KiB to 1MiB.
    #[schemars(extend("default" = "32KiB"))]
    pub(super) header_bytes_max: Key<Size<{ 8 * KIB }, MIB>>,
    /// Header fields of a request.
    #[schemars(extend("default" = 100))]
    pub(super) headers_max: Key<Count<16, 1024>>,
    /// Size of the body of a request; 1KiB to 1GiB, at most `buffered_bytes_max`.
    #[schemars(extend("default" = "4MiB"))]
    pub(super) body_bytes_max: Key<Size<KIB, GIB>>,
    /// Size of all bodies held in memory at once; 1MiB to 1TiB.
    #[schemars(extend("default" = "256MiB"))]
    pub(super) buffered_bytes_max: Key<Size<MIB, TIB>>,
    /// Size of a reply that must be collected (where names are mapped, or up to its id where that is compared), and of one
    /// SSE event; 1KiB to 1GiB, at most `buffered_bytes_max`.
    #[schemars(extend("default" = "16MiB"))]
    pub(super) reply_bytes_max: Key<Size<KIB, GIB>>,
    /// Size of all pages of one list of one upstream; 1KiB to 1GiB.
    #[schemars(extend("default" = "16MiB"))]
    pub(super) list_bytes_max: Key<Size<KIB, GIB>>,
    /// Pages of one list of one upstream.
    #[schemars(extend("default" = 100))]
    pub(super) list_pages_max: Key<Count<1, 100_000>>,
    /// Size of all lists kept in memory; 0 to 1TiB. Takes effect at the next start.
    #[schemars(extend("default" = "64MiB"))]
    pub(super) cache_bytes_max: Key<Size<0, TIB>>,
    /// Size of all pinned definitions of one upstream; 1KiB to 1GiB.
    #[schemars(extend("default" = "16MiB"))]
    pub(super) pins_bytes_max: Key<Size<KIB, GIB>>,
    /// Child processes of all upstreams.
    #[schemars(extend("default" = 256))]
    pub(super) children_max: Key<Count<1, 65_536>>,
    /// Size of a token (JWT) that a client presents; 1KiB to 64KiB.
    #[schemars(extend("default" = "8KiB"))]
    pub(super) token_bytes_max: Key<Size<KIB, { 64 * KIB }>>,
    /// Nesting of a JSON message.
    #[schemars(extend("default" = 128))]
    pub(super) json_depth_max: Key<Count<16, 1024>>,
    /// Concurrent streams of one HTTP/2 connection.
    #[schemars(extend("default" = 128))]
    pub(super) streams_per_connection_max: Key<Count<1, 65_535>>,
    /// Open subscriptions (`subscriptions/listen`) of all clients.
    #[schemars(extend("default" = 10000))]
    pub(super) subscriptions_max: Key<Count<1, 1_048_576>>,
    /// Of these, subscriptions of one principal; those of endpoints without authentication count in all only. Default: a
    /// quarter of `subscriptions_max`.
    #[schemars(extend("default" = 2500))]
    pub(super) subscriptions_per_principal_max: Key<Count<1, 1_048_576>>,
    /// Callers, addresses and the like that each `[[limit]]` tells apart; those beyond are counted together. A key takes
    /// up to 120 bytes.
    #[schemars(extend("default" = 100_000))]
    pub(super) limiter_keys_max: Key<Count<1, 100_000_000>>,
    /// URIs and task ids of one subscription.
    #[schemars(extend("default" = 1000))]
    pub(super) subscription_uris_max: Key<Count<0, 100_000>>,
    /// Notifications and responses of one client's session that wait for one upstream.
    #[schemars(extend("default" = 256))]
    pub(super) session_messages_max: Key<Count<1, 100_000>>,
    /// Time from the first byte of a request to the end of its head; up to 1h.
    #[schemars(extend("default" = "10s"))]
    pub(super) header_timeout: Key<Period<1, HOUR_MS>>,
    /// Time for the body of a request; up to 1h.
    #[schemars(extend("default" = "30s"))]
    pub(super) body_timeout: Key<Period<1, HOUR_MS>>,
    /// Time between two requests of a connection; up to 24h.
    #[schemars(extend("default" = "75s"))]
    pub(super) idle_timeout: Key<Period<1, DAY_MS>>,
    /// Age at which an HTTP/2 connection is asked to go, ±10 %; 1s to 24h.
    #[schemars(extend("default" = "10m"))]
    pub(super) connection_age_max: Key<Period<SECOND_MS, DAY_MS>>,
}

/// How the process stops.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Drain {
    /// Time in which connections are still accepted while clients are told to leave; 0s to 1h.
    #[schemars(extend("default" = "2s"))]
    pub(super) quiet: Key<Period<0, HOUR_MS>>,
    /// Time after which what is left is cut; up to 1h, at least `quiet`.
    #[schemars(extend("default" = "20s"))]
    pub(super) max: Key<Period<1, HOUR_MS>>,
}

/// Sessions of legacy clients.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Session {
    /// The keys that seal session ids; `trunkline session-key FILE` makes such a file. Default: `session.key` in the
    /// state directory.
    pub(super) key: Key<KeyFile>,
    /// Time from `initialize` to the end of a session, whatever happens; 1m to 720h.
    #[schemars(extend("default" = "24h"))]
    pub(super) expiry: Key<Period<MINUTE_MS, { 30 * DAY_MS }>>,
    /// Time after which an unused session's upstream sessions are closed, and its log level and subscriptions are
    /// forgotten; 1s to 24h. A session whose client holds a stream is used.
    #[schemars(extend("default" = "30m"))]
    pub(super) idle_timeout: Key<Period<SECOND_MS, DAY_MS>>,
    /// Sessions with upstream sessions, subscriptions or a log level.
    #[schemars(extend("default" = 100_000))]
    pub(super) sessions_max: Key<Count<1, 10_000_000>>,
    /// Of these, sessions of one principal; those of endpoints without authentication count in all only. Default: a quarter
    /// of `sessions_max`.
    #[schemars(extend("default" = 25_000))]
    pub(super) sessions_per_principal_max: Key<Count<1, 10_000_000>>,
    /// Sessions with upstreams.
    #[schemars(extend("default" = 100_000))]
    pub(super) upstream_sessions_max: Key<Count<1, 10_000_000>>,
    /// Streams that clients hold open within sessions.
    #[schemars(extend("default" = 16384))]
    pub(super) streams_max: Key<Count<1, 1_048_576>>,
    /// Of these, streams of one principal; those of endpoints without authentication count in all only.
    #[schemars(extend("default" = 8192))]
    pub(super) streams_per_principal_max: Key<Count<1, 1_048_576>>,
    /// Size of what waits for one client's stream; one message may be larger. 4KiB to 64MiB.
    #[schemars(extend("default" = "1MiB"))]
    pub(super) stream_queue_bytes_max: Key<Size<{ 4 * KIB }, { 64 * MIB }>>,
    /// Time after which a quiet stream gets a comment, so that nobody between takes it for dead; 1s to 5m.
    #[schemars(extend("default" = "25s"))]
    pub(super) keep_alive_interval: Key<Period<SECOND_MS, { 5 * MINUTE_MS }>>,
    /// Sessions with upstreams of one principal. Clients without credentials are bounded by `upstream_sessions_max`.
    #[schemars(extend("default" = 10_000))]
    pub(super) upstream_sessions_per_principal_max: Key<Count<1, 10_000_000>>,
    /// Streams that are held open to upstreams for sessions, one for each session with an upstream that needs one. Each
    /// takes a connection.
    #[schemars(extend("default" = 16_384))]
    pub(super) upstream_streams_max: Key<Count<0, 1_000_000>>,
    /// Sessions opened in a second by one principal, or from one address (IPv6: one /64) without credentials; a second's
    /// worth may come at once.
    #[schemars(extend("default" = 1000))]
    pub(super) initialize_rate_max: Key<Count<1, 1_000_000>>,
    /// Tasks whose owner is remembered. Beyond, the oldest of whoever has most is forgotten, and then nobody's.
    #[schemars(extend("default" = 100_000))]
    pub(super) tasks_max: Key<Count<1, 200_000>>,
    /// Of these, tasks of one principal. Beyond, his oldest is forgotten. Those of clients without credentials count in all
    /// only. Default: a quarter of `tasks_max`.
    #[schemars(extend("default" = 25_000))]
    pub(super) tasks_per_principal_max: Key<Count<1, 200_000>>,
    /// Time for which the owner of a task is remembered at most, and of one that does not say how long it lives; 1m to
    /// 720h.
    #[schemars(extend("default" = "168h"))]
    pub(super) task_expiry: Key<Period<MINUTE_MS, { 30 * DAY_MS }>>,
}

/// Where keys are kept.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["file"]))]
pub(super) struct KeyFile {
    /// An absolute path.
    pub(super) file: Key<String>,
}

/// A key clients may present. `trunkline key NAME` makes one, and this entry.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name", "sha256"]))]
pub(super) struct ApiKey {
    /// The principal: who calls with this key.
    #[schemars(extend("pattern" = "^[A-Za-z0-9._@-]{1,64}$"))]
    pub(super) name: Key<String>,
    /// SHA-256 of the key, in hexadecimal.
    #[schemars(extend("pattern" = "^[0-9A-Fa-f]{64}$"))]
    pub(super) sha256: Key<String>,
    /// The groups of the principal, for rules. Default: none.
    pub(super) groups: Key<Vec<At<String>>>,
    /// The scopes of the principal. Default: none.
    pub(super) scopes: Key<Vec<At<String>>>,
}

/// A path clients see, and what is behind it.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["path", "upstreams"]))]
pub(super) struct Endpoint {
    /// Path of the URL, such as `/mcp`.
    #[schemars(extend("pattern" = "^/([^?#]*[^/?#])?$"))]
    pub(super) path: Key<String>,
    /// Names of the upstreams; merged lists keep this order.
    #[schemars(extend("minItems" = 1))]
    pub(super) upstreams: Key<Vec<At<String>>>,
    /// How public names are made. Default: `transparent` with one upstream, `prefixed` with several.
    pub(super) names: Key<Names>,
    /// On prefixed endpoints: an unprefixed name that exactly one upstream offers is routed there.
    #[schemars(extend("default" = true))]
    pub(super) accept_bare: Key<bool>,
    /// Other public names: `alias = "upstream__inner"`, with the name (not the prefix) of the upstream.
    #[schemars(extend("default" = {}))]
    pub(super) aliases: Key<BTreeMap<At<String>, At<String>>>,
    /// Globs over public names and URIs of what is offered.
    #[schemars(extend("default" = ["*"]))]
    pub(super) allow: Key<Vec<At<String>>>,
    /// Globs over public names and URIs of what is not offered, whatever `allow` says.
    #[schemars(extend("default" = []))]
    pub(super) deny: Key<Vec<At<String>>>,
    /// How clients authenticate, by any of these; empty: anyone may call. A key or token that is presented decides,
    /// whatever the certificate. Default: what is configured of `[[api_key]]`, `[[jwt]]` and `[client_certificate]`.
    pub(super) auth: Key<Vec<At<AuthMethod>>>,
    /// Lets anyone call although a listener is not loopback.
    #[schemars(extend("default" = false))]
    pub(super) allow_unauthenticated: Key<bool>,
    /// Browser origins that may call. Default: loopback origins on a loopback listener, none elsewhere.
    pub(super) origins: Key<Vec<At<String>>>,
    /// `Host` values that are served. Default: localhost names on loopback listeners, the host of `public_url` where
    /// set, else any.
    pub(super) hosts: Key<Vec<At<String>>>,
    /// The URL by which clients reach the endpoint. Required with `jwt`: it is the audience of tokens, and named in
    /// what clients are told of how to get one.
    #[schemars(example = "https://mcp.example.com/mcp")]
    pub(super) public_url: Key<String>,
    /// What the audience of a token may be beside `public_url`, byte for byte.
    #[schemars(extend("default" = []))]
    pub(super) audiences: Key<Vec<At<String>>>,
    /// Scopes that every caller must have been granted.
    #[schemars(extend("default" = []))]
    pub(super) scopes: Key<Vec<At<String>>>,
    /// How the failure of a request is shown to clients with sessions: in an HTTP 200 (`jsonrpc`), which every client
    /// survives, or with its own status (`http`).
    #[schemars(extend("default" = "jsonrpc"))]
    pub(super) legacy_errors: Key<LegacyErrors>,
    /// Whether clients of HTTP+SSE (2024-11-05) are served as well: a GET that names no session opens their stream.
    #[schemars(extend("default" = false))]
    pub(super) sse: Key<bool>,
    /// Whether the text of what an upstream asks a user begins with the upstream's name, where there are several.
    #[schemars(extend("default" = false))]
    pub(super) label_requests: Key<bool>,
    /// Lists longer than this are given out in pages of about this size; 1KiB to 1GiB. Default: one page, however
    /// long, as many hosts read only the first.
    pub(super) list_page_bytes_max: Key<Size<KIB, GIB>>,
    /// Put before the instructions of the upstreams; up to 16KiB.
    pub(super) instructions: Key<String>,
}

/// An MCP server: reached by `url`, or by `urls` where it has replicas, or started as a child process by `command`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = [{ "required": ["url"] }, { "required": ["urls"] }, { "required": ["command"] }]))]
pub(super) struct Upstream {
    /// Its URL: `https`, or `http` over a network you trust.
    #[schemars(extend("pattern" = "^[Hh][Tt][Tt][Pp][Ss]?://[^@#]+$"))]
    pub(super) url: Key<String>,
    /// The URLs of its replicas.
    #[schemars(extend("minItems" = 1))]
    pub(super) urls: Key<Vec<At<String>>>,
    /// TLS towards it; for `https` URLs.
    pub(super) tls: Key<WrittenTls>,
    /// Headers of every request to it: text, or where a secret is read from. What may be a secret by its name cannot be
    /// text.
    #[schemars(with = "BTreeMap<String, TextOrSecret>")]
    pub(super) headers: Key<WrittenHeaders>,
    /// The token that it is shown as `Authorization: Bearer`.
    pub(super) bearer: Key<WrittenSecret>,
    /// The user and the password that it is shown as `Authorization: Basic`.
    pub(super) basic: Key<WrittenBasic>,
    /// How the token is fetched that it is shown as `Authorization: Bearer`.
    pub(super) oauth: Key<WrittenOAuth>,
    /// Headers of a client's requests that are handed on to it. Lists, probes and whatever else the gateway asks for itself
    /// go without them.
    pub(super) forward_headers: Key<Vec<At<String>>>,
    /// The program of a server that speaks over its standard input and output, alone or with its arguments.
    #[schemars(example = ["mcp-server-filesystem", "/srv/files"])]
    pub(super) command: Key<Words>,
    /// Arguments of `command`, after those that stand there.
    pub(super) args: Key<Vec<At<String>>>,
    /// Environment variables of the child process: text, or where a secret is read from.
    #[schemars(with = "BTreeMap<String, TextOrSecret>")]
    pub(super) env: Key<BTreeMap<At<String>, At<TextOrSecret>>>,
    /// Environment variables that the child process inherits beside `HOME`, `LANG`, `LC_ALL`, `LC_CTYPE`, `LOGNAME`,
    /// `PATH`, `SHELL`, `TMPDIR`, `TZ` and `USER`. It inherits no others.
    pub(super) env_pass: Key<Vec<At<String>>>,
    /// Working directory of the child process, an absolute path. Default: that of the gateway.
    pub(super) directory: Key<String>,
    /// Who shares a child process of revisions with sessions: nobody but one `session`, the sessions of one
    /// `principal`, or all (`shared`). A shared one is told of no client capabilities and can ask clients nothing. Default:
    /// `session`.
    pub(super) isolation: Key<Isolation>,
    /// Child processes of this upstream. Default: 64.
    pub(super) children_max: Key<Count<1, 65_536>>,
    /// Time a child process is given to end after its input was closed, and again after SIGTERM; up to 1h. Default: 5s.
    pub(super) stop_timeout: Key<Period<1, HOUR_MS>>,
    /// Time after which a child process that no session needs is stopped when unused; up to 24h. Default: 10m.
    pub(super) child_idle_timeout: Key<Period<1, DAY_MS>>,
    /// What stands before its names in public names; the grammar of upstream names. Default: its name.
    #[schemars(extend("pattern" = "^[a-z][a-z0-9-]{0,31}$"))]
    pub(super) prefix: Key<String>,
    /// How it is spoken to: `http` is Streamable HTTP, or HTTP+SSE where that is what it turns out to speak; `sse` is
    /// HTTP+SSE (2024-11-05) without asking.
    #[schemars(extend("default" = "http"))]
    pub(super) transport: Key<Transport>,
    /// The kinds of protocol revisions it speaks: `modern` (2026-07-28), `legacy` (2024-11-05 to 2025-11-25).
    /// Default: it is asked.
    #[schemars(extend("minItems" = 1, "uniqueItems" = true))]
    pub(super) eras: Key<Vec<At<Era>>>,
    /// Time to open a connection; up to 1h.
    #[schemars(extend("default" = "5s"))]
    pub(super) connect_timeout: Key<Period<1, HOUR_MS>>,
    /// Time to the head of a reply, and to the end of a JSON reply; up to 24h.
    #[schemars(extend("default" = "60s"))]
    pub(super) reply_timeout: Key<Period<1, DAY_MS>>,
    /// Time to the head of a reply; up to 24h, at most `reply_timeout`. Default: `reply_timeout`.
    pub(super) first_byte_timeout: Key<Period<1, DAY_MS>>,
    /// Time to the end of an SSE reply, however busy; 0s to 24h. 0s: no bound.
    #[schemars(extend("default" = "0s"))]
    pub(super) answer_timeout: Key<Period<0, DAY_MS>>,
    /// Time between two chunks of an SSE reply; up to 24h.
    #[schemars(extend("default" = "5m"))]
    pub(super) stream_idle_timeout: Key<Period<1, DAY_MS>>,
    /// Time for a client to answer a request of this server; up to 24h.
    #[schemars(extend("default" = "5m"))]
    pub(super) request_timeout: Key<Period<1, DAY_MS>>,
    /// Time for a whole list, all pages; up to 1h.
    #[schemars(extend("default" = "5s"))]
    pub(super) list_timeout: Key<Period<1, HOUR_MS>>,
    /// Time for which a list is kept at least, even if the server says less; 0s to 24h. 0s obeys the server.
    #[schemars(extend("default" = "0s"))]
    pub(super) list_ttl_min: Key<Period<0, DAY_MS>>,
    /// Time after its freshness for which a list is given out while it is fetched anew; 0s to 24h. 0s: never.
    #[schemars(extend("default" = "0s"))]
    pub(super) stale_while_revalidate: Key<Period<0, DAY_MS>>,
    /// Time after its freshness for which a list is given out while the server fails; 0s to 24h. 0s: never.
    #[schemars(extend("default" = "1h"))]
    pub(super) list_stale_max: Key<Period<0, DAY_MS>>,
    /// Sessions in which the gateway asks a server with sessions for lists, one for each set of capabilities that clients
    /// declare; of a command with a process for each session, at most a quarter of its `children_max`.
    #[schemars(extend("default" = 8))]
    pub(super) list_sessions_max: Key<Count<1, 1024>>,
    /// Whether to believe the server that a list is the same for everybody (`cacheScope` of `public`).
    #[schemars(extend("default" = false))]
    pub(super) trust_public_cache: Key<bool>,
    /// Whether requests to it have ids of the gateway's own, with which replies are compared, on transparent endpoints and
    /// outside sessions, too.
    #[schemars(extend("default" = false))]
    pub(super) unique_ids: Key<bool>,
    /// What becomes of a client's session when the server loses the session it had for it: the client goes on with a new
    /// one (`reopen`), or is told to start anew (`end`).
    #[schemars(extend("default" = "reopen"))]
    pub(super) session_loss: Key<SessionLoss>,
    /// What happens when the definition of a tool changes: nothing (`off`), a metric and a log line (`warn`), the tool is
    /// withheld until it is approved (`quarantine`), or all tools are, and new ones need approval as well (`block`).
    #[schemars(extend("default" = "off"))]
    pub(super) pins: Key<PinMode>,
    /// Age of the list of tools beyond which it is fetched anew before a call, where `pins` withholds tools; 1s to 24h.
    #[schemars(extend("default" = "1m"))]
    pub(super) pins_age_max: Key<Period<SECOND_MS, DAY_MS>>,
    /// Time a pooled connection may be idle; up to 1h. Keep it below the upstream's own limit.
    #[schemars(extend("default" = "4s"))]
    pub(super) idle_timeout: Key<Period<1, HOUR_MS>>,
    /// Calls under way at once, of all clients. Default: as many as come.
    pub(super) calls_max: Key<Count<1, 1_048_576>>,
    /// Calls that may wait for one of these to end; the principals that wait take turns. Default: 1000.
    pub(super) calls_waiting_max: Key<Count<0, 1_048_576>>,
    /// Time for which a call may wait; up to 1h. Default: 10s.
    pub(super) calls_wait_max: Key<Period<1, HOUR_MS>>,
    /// Idle connections kept, per worker; 0 keeps none.
    #[schemars(extend("default" = 64))]
    pub(super) idle_connections_max: Key<Count<0, 65_536>>,
    /// Connections to all replicas, per worker, so that a server that hangs does not take those of others.
    #[schemars(extend("default" = 1024))]
    pub(super) connections_max: Key<Count<1, 65_536>>,
    /// How often the names of hosts in its URLs are looked up again; 0s to 24h. 0s: at start alone. Each address is a
    /// replica.
    #[schemars(extend("default" = "30s"))]
    pub(super) resolve_interval: Key<Period<0, DAY_MS>>,
    /// Time in which a replica that is new or has come back gets more and more calls; 0s to 1h. 0s: at once.
    #[schemars(extend("default" = "10s"))]
    pub(super) slow_start: Key<Period<0, HOUR_MS>>,
    /// When calls keep away from a replica that fails.
    pub(super) breaker: Key<BreakerKeys>,
    /// How replicas are asked whether they are fit.
    pub(super) health: Key<HealthKeys>,
    /// What is sent again when a connection that was kept open turns out to be dead.
    pub(super) retry: Key<RetryKeys>,
    /// What is translated for clients of the era that the server does not speak.
    pub(super) bridge: Key<BridgeKeys>,
}

/// A program, or an array of a program and its arguments.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a program, or an array of a program and its arguments")]
pub(super) enum Words {
    One(String),
    Many(#[schemars(extend("minItems" = 1))] Vec<String>),
}

fn one_or_many<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let one = generator.subschema_for::<T>();
    json_schema!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
}
