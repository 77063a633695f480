//! The configuration: TOML text ↔ structs, nothing else.
//!
//! [`parse`] turns text into a [`Config`] in which every default is filled in and everything that can be checked
//! without the outside world has been checked, or into [`ConfigErrors`] that hold *all* errors with their places in
//! the text. [`json_schema`] describes the same text to editors.
//!
//! Deliberately not here: reading files, resolving host names, opening sockets, reading secrets, and anything that
//! depends on the machine (such as the number of cores).
//!
//! | file | what it is |
//! |---|---|
//! | `file.rs` | the shape of the text: every key, its range and its description |
//! | `value.rs` | what the keys are made of: counts, sizes, durations, places in the text |
//! | `document.rs` | text → the shape, with an error for each key that does not fit |
//! | `resolve.rs`, `endpoint.rs`, `upstream.rs` | the shape → [`Config`]: defaults and what must hold between keys |
//! | `error.rs` | errors with file, line, column and caret |
//! | `files.rs` | the files that are read with it |
//! | `schema.rs` | the JSON Schema |
//!
//! Invariants of a `Config`: at least one listener, endpoint and upstream; every name an endpoint uses exists and its
//! prefixes differ; no endpoint is open to a network unless the operator says so; every number lies in its range.

mod admin;
mod bridge;
mod credentials;
mod document;
mod endpoint;
mod error;
mod file;
mod files;
mod identity;
mod log;
mod metrics;
mod pins;
mod policy;
mod rate;
mod replicas;
mod resolve;
mod schema;
mod secret;
mod shared;
#[cfg(test)]
mod tests;
mod tls;
mod trace;
mod upstream;
mod value;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use protocol::version::Eras;

pub use self::admin::{Admin, AdminPlace, Reload};
pub use self::bridge::Bridge;
pub use self::credentials::{
    Authorization, ClientAuth, ClientTls, Credentials, HeaderSource, OAuth, is_reserved, looks_secret,
};
pub use self::error::{ConfigError, ConfigErrors, Warning, nearest};
pub use self::files::Named;
pub use self::identity::{Algorithm, CertificateNames, Jwt, KeySource, SubjectName};
pub use self::log::{Access, AccessField, Audit, Log, LogFormat, LogLevel};
pub use self::metrics::Metrics;
pub use self::pins::{PinMode, Pins};
pub use self::policy::{Effect, Rule};
pub use self::rate::{Concurrency, CountedBy, Fallback, RateLimit};
pub use self::replicas::{Breaker, Health, Replicas, Retry};
pub use self::resolve::is_key_name;
pub use self::schema::json_schema;
pub use self::secret::API_KEY_PREFIX;
pub use self::secret::SecretSource;
pub use self::shared::{RedisAddress, Shared};
pub use self::tls::{CertificateDemand, CertificateFiles, ListenerTls, Networks, TlsVersion};
pub use self::trace::{Trace, endpoint as trace_endpoint};
pub use self::upstream::server_url;
pub use self::value::Ratio;

/// The bytes of a configuration file at most; more than any needs.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// Reads and checks a whole configuration.
///
/// # Errors
/// All that is wrong with the text at once. A text that is not TOML is reported as such and not checked further.
pub fn parse(text: &str) -> Result<Config, ConfigErrors> {
    let document = document::read(text).map_err(ConfigErrors::new)?;
    let mut config = resolve::resolve(document).map_err(ConfigErrors::new)?;
    config.warnings.extend(secret::clear_keys(text));
    let digest = Sha256::digest(text).iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    Ok(Config { digest, ..config })
}

/// A checked configuration with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Worker threads, 1 to 256; `None` is as many as cores.
    pub workers: Option<NonZeroUsize>,
    /// Where state is kept between two runs, an absolute path; `None`: nowhere, unless the environment says so.
    pub state_directory: Option<PathBuf>,
    /// Where clients connect; at least one.
    pub listeners: Vec<Listener>,
    /// Those whose word on a client's address is believed.
    pub trusted_proxies: Networks,
    /// Where metrics and health are served, if at all.
    pub admin: Option<Admin>,
    /// Limits of the process.
    pub limits: Limits,
    /// How the process stops.
    pub drain: Drain,
    /// What is measured.
    pub metrics: Metrics,
    /// Where traces go; `None`: nowhere, unless the environment says so.
    pub trace: Option<Trace>,
    /// When the configuration is read again.
    pub reload: Reload,
    /// What is logged, and how.
    pub log: Log,
    /// Sessions of legacy clients.
    pub session: Session,
    /// What replicas share, if anything.
    pub shared: Option<Shared>,
    /// Digests of the keys clients may present, with distinct names and digests.
    pub api_keys: Vec<ApiKey>,
    /// How many calls who may make, in the order of the text.
    pub rate_limits: Vec<RateLimit>,
    /// Issuers of tokens, with distinct names and issuers.
    pub jwt: Vec<Jwt>,
    /// Whom the certificates of clients name.
    pub client_certificates: CertificateNames,
    /// Who may call what, with distinct names, in the order of the text.
    pub rules: Vec<Rule>,
    /// The paths clients see, with distinct paths; at least one.
    pub endpoints: Vec<Endpoint>,
    /// The servers behind them, in the order of the text, with distinct names; at least one.
    pub upstreams: Vec<Upstream>,
    /// What is allowed but probably not meant.
    pub warnings: Vec<Warning>,
    /// SHA-256 of the text, in hexadecimal digits.
    pub digest: String,
}

/// `[listener]` or `[[listener]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Address to listen on; port 0 lets the system choose.
    pub address: SocketAddr,
    /// Whether connections begin with a PROXY header.
    pub proxy_protocol: bool,
    /// TLS, if it is spoken.
    pub tls: Option<ListenerTls>,
}

/// `[limits]`: bounds of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Client connections; `None`: as many as the limit of open files allows, at most 16384.
    pub connections_max: Option<usize>,
    /// Client connections from one IP address, at most `connections_max`.
    pub connections_per_address_max: usize,
    /// TLS handshakes under way, per worker.
    pub handshakes_max: usize,
    /// TLS handshakes from one client network, waiting ones among them.
    pub handshakes_per_address_max: usize,
    /// Time from the start of a connection to the end of its TLS handshake.
    pub handshake_timeout: Duration,
    /// Bytes of the head of a request.
    pub header_bytes_max: usize,
    /// Header fields of a request.
    pub headers_max: usize,
    /// Bytes of the body of a request, at most `buffered_bytes_max`.
    pub body_bytes_max: usize,
    /// Bytes of all bodies held in memory at once.
    pub buffered_bytes_max: usize,
    /// Bytes of a reply that must be collected, and of one SSE event, at most `buffered_bytes_max`.
    pub reply_bytes_max: usize,
    /// Bytes of all pages of one list of one upstream.
    pub list_bytes_max: usize,
    /// Pages of one list of one upstream.
    pub list_pages_max: usize,
    /// Bytes of all lists kept in memory.
    pub cache_bytes_max: usize,
    /// Bytes of all pinned definitions of one upstream.
    pub pins_bytes_max: usize,
    /// Child processes of all upstreams.
    pub children_max: usize,
    /// Bytes of a token (JWT).
    pub token_bytes_max: usize,
    /// Nesting of a JSON message.
    pub json_depth_max: usize,
    /// Concurrent streams of one HTTP/2 connection.
    pub streams_per_connection_max: u32,
    /// Open subscriptions of all clients.
    pub subscriptions_max: usize,
    /// Of these, subscriptions of one principal; those without credentials are bounded together, by the key above.
    pub subscriptions_per_principal_max: usize,
    /// Keys that each limit of rate tells apart.
    pub limiter_keys_max: usize,
    /// URIs and task ids of one subscription.
    pub subscription_uris_max: usize,
    /// Notifications and responses of one client's session that wait for one upstream.
    pub session_messages_max: usize,
    /// Time from the first byte of a request to the end of its head.
    pub header_timeout: Duration,
    /// Time for the body of a request.
    pub body_timeout: Duration,
    /// Time between two requests of a connection.
    pub idle_timeout: Duration,
    /// Age at which an HTTP/2 connection is asked to go, ±10 %.
    pub connection_age_max: Duration,
}

/// `[drain]`: how the process stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drain {
    /// Time in which connections are still accepted while clients are told to leave.
    pub quiet: Duration,
    /// Time after which what is left is cut; at least `quiet`.
    pub max: Duration,
}

/// `[session]`: sessions of legacy clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// File of the keys that seal session ids, an absolute path; `None`: in the state directory.
    pub key_file: Option<PathBuf>,
    /// Time from `initialize` to the end of a session, whatever happens.
    pub expiry: Duration,
    /// Time after which the state of an unused session is dropped.
    pub idle_timeout: Duration,
    /// Sessions with state.
    pub sessions_max: usize,
    /// Of these, sessions of one principal; those without credentials are bounded together, by the key above.
    pub sessions_per_principal_max: usize,
    /// Upstream sessions.
    pub upstream_sessions_max: usize,
    /// Streams that clients hold open within sessions.
    pub streams_max: usize,
    /// Of these, streams of one principal.
    pub streams_per_principal_max: usize,
    /// Bytes of what waits for one client's stream.
    pub stream_queue_bytes_max: usize,
    /// Time after which a quiet stream gets a comment.
    pub keep_alive_interval: Duration,
    /// Upstream sessions of one principal; those without credentials are bounded together, by the key above.
    pub upstream_sessions_per_principal_max: usize,
    /// Streams on which upstreams speak to sessions unasked; each needs a connection.
    pub upstream_streams_max: usize,
    /// `initialize` requests a second of one principal, or of one address without credentials.
    pub initialize_rate_max: usize,
    /// Tasks whose owner is remembered.
    pub tasks_max: usize,
    /// Of these, tasks of one principal.
    pub tasks_per_principal_max: usize,
    /// Time for which the owner of a task is remembered at most.
    pub task_expiry: Duration,
}

/// `[[api_key]]`: one key a client may present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// The principal; satisfies [`is_key_name`].
    pub name: String,
    /// SHA-256 of the key.
    pub sha256: [u8; 32],
    /// The groups its holder is in.
    pub groups: Vec<String>,
    /// The scopes its holder has.
    pub scopes: Vec<String>,
}

/// `[[endpoint]]`: a path clients see, and what is behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of its own")]
pub struct Endpoint {
    /// Path of the URL: begins with `/`, and does not end with one unless it is `/`.
    pub path: String,
    /// Names of its upstreams, distinct, in the order of merged lists; at least one.
    pub upstreams: Vec<String>,
    /// How public names are made.
    pub names: Names,
    /// Whether an unprefixed name that exactly one upstream offers is routed there.
    pub accept_bare: bool,
    /// Other public names, sorted by them.
    pub aliases: Vec<Alias>,
    /// Globs over public names and URIs of what is offered; each is valid for `globset::Glob::new`.
    pub allow: Vec<String>,
    /// Globs over public names and URIs of what is not offered, whatever `allow` says; valid likewise.
    pub deny: Vec<String>,
    /// Ways to authenticate, one of which must succeed; empty: anyone may call.
    pub auth: Vec<AuthMethod>,
    /// Whether `auth` may be empty although a listener is not loopback.
    pub allow_unauthenticated: bool,
    /// Browser origins as browsers send them (lower case, no default port); `None`: not configured.
    pub origins: Option<Vec<String>>,
    /// `Host` values in lower case, with a port where only that port is meant; `None`: not configured.
    pub hosts: Option<Vec<String>>,
    /// The URL by which clients reach the endpoint: `http` or `https`.
    pub public_url: Option<String>,
    /// What else the audience of a token may be.
    pub audiences: Vec<String>,
    /// What every caller must have been granted.
    pub scopes: Vec<String>,
    /// How the failure of a request is shown to clients with sessions.
    pub legacy_errors: LegacyErrors,
    /// Whether clients of HTTP+SSE are served.
    pub sse: bool,
    /// Whether the text of what an upstream asks a user begins with the upstream's name, where there are several.
    pub label_requests: bool,
    /// Bytes of a page of a list; `None`: every list is one page.
    pub list_page_bytes_max: Option<usize>,
    /// Put before the instructions of the upstreams.
    pub instructions: Option<String>,
}

/// One more public name for something an upstream offers: `today = "weather__forecast"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    /// What clients call it.
    pub public: String,
    /// Name (not prefix) of the upstream, one of the endpoint's.
    pub upstream: String,
    /// What the upstream calls it.
    pub inner: String,
}

/// How an endpoint makes public names from those of its upstreams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Names {
    /// Names and bodies pass unchanged; for one upstream.
    Transparent,
    /// `prefix__name`.
    Prefixed,
    /// Names are unchanged and routed by what the upstreams list.
    Bare,
}

/// What becomes of a client's session when an upstream loses the session it had for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionLoss {
    /// It goes on: the upstream gets a new session, and is told the log level and the subscriptions again.
    #[default]
    Reopen,
    /// It ends: what the upstream kept for the client cannot be brought back.
    End,
}

/// How the failure of a request is shown to clients with sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LegacyErrors {
    /// As a JSON-RPC error in an HTTP 200: some clients give up their session at any other status.
    #[default]
    JsonRpc,
    /// With the HTTP status that clients without sessions get.
    Http,
}

/// A way for a client to say who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthMethod {
    /// `Authorization: Bearer` with the key of an `[[api_key]]`.
    ApiKey,
    /// `Authorization: Bearer` with a token of a `[[jwt]]`.
    Jwt,
    /// The certificate of the connection.
    ClientCertificate,
}

/// `[upstream.NAME]`: an MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Its name: `^[a-z][a-z0-9-]{0,31}$`.
    pub name: String,
    /// What stands before its names in public names; the same grammar. Its name unless configured.
    pub prefix: String,
    /// Its replicas, distinct; at least one, unless it has a command.
    pub urls: Vec<Url>,
    /// Whom to believe there, and what to show.
    pub tls: ClientTls,
    /// How it knows the gateway.
    pub credentials: Credentials,
    /// How it is spoken to.
    pub transport: Transport,
    /// How it is started, if it is a child process.
    pub command: Option<Command>,
    /// The eras it speaks, at least one; `None`: it is asked.
    pub eras: Option<Eras>,
    /// Time to open a connection.
    pub connect_timeout: Duration,
    /// Time to the head of a reply, and to the end of a JSON reply.
    pub reply_timeout: Duration,
    /// Time to the head of a reply; at most `reply_timeout`.
    pub first_byte_timeout: Duration,
    /// Time to the end of an SSE reply; zero: no bound.
    pub answer_timeout: Duration,
    /// Time between two chunks of an SSE reply.
    pub stream_idle_timeout: Duration,
    /// Time for a client to answer a request of this server.
    pub request_timeout: Duration,
    /// Time for a whole list, all pages.
    pub list_timeout: Duration,
    /// Time for which a list is kept at least.
    pub list_ttl_min: Duration,
    /// Time after its freshness for which a list is given out while it is fetched anew; zero: never.
    pub stale_while_revalidate: Duration,
    /// Time after its freshness for which a list is given out while the server fails; zero: never.
    pub list_stale_max: Duration,
    /// Sessions in which it is asked for lists on behalf of clients that declare something.
    pub list_sessions_max: usize,
    /// Whether the server is believed that a list is the same for everybody.
    pub trust_public_cache: bool,
    /// Whether requests to it have ids of the gateway's own everywhere.
    pub unique_ids: bool,
    /// What becomes of a client's session when this upstream loses the session it had for it.
    pub session_loss: SessionLoss,
    /// How the definitions of its tools are watched.
    pub pins: Pins,
    /// Time a pooled connection may be idle.
    pub idle_timeout: Duration,
    /// How many calls it gets at once; `None`: as many as come.
    pub concurrency: Option<Concurrency>,
    /// Idle connections kept, per worker; 0 keeps none.
    pub idle_connections_max: usize,
    /// Which replica a call goes to, and what becomes of those that fail.
    pub replicas: Replicas,
    /// What is translated for clients of the era that it does not speak.
    pub bridge: Bridge,
}

/// How an upstream is spoken to over HTTP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Streamable HTTP, or HTTP+SSE where that is what it turns out to speak.
    #[default]
    Http,
    /// HTTP+SSE of 2024-11-05.
    Sse,
}

/// How an upstream is started that is a child process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The program, by name or path; not empty. No part of the command holds a NUL.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment as the operator wrote it, sorted by name.
    pub env: Vec<(String, String)>,
    /// Variables of its environment that are secrets, sorted by name.
    pub secret_env: Vec<(String, SecretSource)>,
    /// What it inherits beside [`INHERITED`].
    pub env_pass: Vec<String>,
    /// Its working directory, an absolute path; `None`: that of the gateway.
    pub directory: Option<PathBuf>,
    /// Who shares a child with sessions.
    pub isolation: Isolation,
    /// How many there may be.
    pub children_max: usize,
    /// Time to end after its input was closed, and again after SIGTERM.
    pub stop_timeout: Duration,
    /// Time after which one that no session needs is stopped when unused.
    pub idle_timeout: Duration,
}

/// The environment variables that every child process inherits.
pub const INHERITED: [&str; 10] =
    ["HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER"];

/// Who shares a child process with sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// Nobody: each session has one of its own.
    #[default]
    Session,
    /// The sessions of one principal.
    Principal,
    /// All sessions.
    Shared,
}

/// Where a replica is: an `http` or `https` URL in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// `host` or `host:port` as written: the value of the `Host` header.
    pub authority: String,
    /// Host name or IP address, without the brackets of IPv6.
    pub host: String,
    /// Port; 80 or 443 unless written.
    pub port: u16,
    /// Whether it is reached over TLS.
    pub is_tls: bool,
    /// Path and query; at least `/`.
    pub path_and_query: String,
}
