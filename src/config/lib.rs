//! The configuration: TOML text ↔ structs, nothing else.
//!
//! [`parse`] turns text into a [`Config`] in which every default is filled in and everything that can be checked
//! without the outside world has been checked, or into [`ConfigErrors`] that hold *all* errors with their places in
//! the text. [`json_schema`] describes the same text to editors, and [`reference()`] is a file with every key.
//!
//! A key is declared in one place: in the `section!` of its table, with its name, its type and bounds, its default, an
//! example and what it is for. The struct, the reader with its errors, the schema, the manual page and the reference
//! file come from there. Whoever adds a key writes it there, and then `trunkline schema > config/trunkline.schema.json`
//! and `trunkline schema --reference > config/trunkline.toml`.
//!
//! Deliberately not here: reading files, resolving host names, opening sockets, reading secrets, and anything that
//! depends on the machine (such as the number of cores).
//!
//! | file | what it is |
//! |---|---|
//! | `lib.rs`, `process.rs`, `listener.rs`, `endpoint.rs`, `upstream.rs`, … | the tables: keys, and what must hold between them |
//! | `section.rs` | how a table is declared and read |
//! | `value.rs`, `text.rs`, `secret.rs`, `array.rs` | what can stand behind a key: numbers, sizes, durations, words, strings with a grammar, arrays of them |
//! | `table.rs`, `findings.rs` | places in the text, and what is found there |
//! | `source.rs`, `variables.rs`, `defaults.rs` | before it is read: its files, what the environment has, `[upstream_defaults]` |
//! | `error.rs`, `unknown_key.rs` | errors with file, line, column and caret, and what may have been meant |
//! | `outline.rs`, `broken_line.rs` | what of the text may be shown to people |
//! | `launcher.rs` | programs that fetch the server they start |
//! | `memory.rs` | bounds of memory that the file does not say |
//! | `files.rs`, `places.rs` | the files that are read with it, and where the text names them |
//! | `schema.rs`, `reference.rs` | the JSON Schema, and the reference file that is made of it |
//!
//! Invariants of a `Config`: at least one listener and endpoint; every name an endpoint uses exists and its
//! prefixes differ; no endpoint is open to a network unless the operator says so; every number lies in its range.

mod admin;
mod arguments;
mod array;
mod bridge;
mod broken_line;
mod command;
mod credentials;
mod defaults;
mod endpoint;
mod error;
mod files;
mod findings;
mod host;
mod identity;
mod launcher;
mod listener;
mod log;
mod memory;
mod moment;
mod outbound;
mod outline;
mod pins;
mod places;
mod policy;
mod process;
mod rate;
mod reference;
mod replicas;
mod schema;
mod secret;
mod section;
mod shared;
mod sign_in;
mod source;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod trace;
mod unknown_key;
mod upstream;
mod url;
mod value;
mod variables;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::PathBuf;

use protocol::canonical::Hash;
use toml::de::DeTable;

use self::array::{Array, OneOrMany, Tables};
use self::defaults::UpstreamDefaults;
use self::findings::Findings;
use self::listener::Network;
use self::section::section;
use self::table::Table;
use self::text::{AbsolutePath, Any};
use self::upstream::Upstreams;
use self::value::Count;

pub use self::admin::{Admin, ReadyWhen};
pub use self::arguments::{ArgumentCondition, ArgumentFit, MissingArgument};
pub use self::bridge::BridgeConfig;
pub use self::command::{CommandConfig, INHERITED, Isolation};
pub use self::credentials::{
    Authorization, Basic, ClientAuth, ClientTls, Credentials, HeaderSource, OAuth, QuerySource, is_reserved,
    looks_secret,
};
pub use self::endpoint::{Alias, EndpointConfig, ForbiddenErrors, LegacyErrors, Names, ParamHeaders};
pub use self::error::{ConfigErrors, Diagnostic, nearest};
pub use self::files::Named;
pub use self::identity::{Algorithm, ApiKey, AuthMethod, CertificateNames, Jwt, KeySource, SubjectName};
pub use self::launcher::{Unpinned, staying, unpinned};
pub use self::listener::{
    CertificateDemand, CertificateFiles, ListenAddress, Listener, ListenerTls, Networks, TlsVersion,
    UNIX_CLIENT,
};
pub use self::log::{Access, AccessField, Audit, Log, LogFormat, LogLevel};
pub use self::outbound::{DirectHosts, NoProxy, Outbound};
pub use self::pins::{PinMode, PinsConfig};
pub use self::places::NamedPlaces;
pub use self::policy::{Effect, RuleConfig};
pub use self::process::{DrainConfig, LimitsConfig, MetricsConfig, Reload, SessionConfig};
pub use self::rate::{CallRate, Concurrency, CountedBy, Fallback, RateLimit};
pub use self::reference::reference;
pub use self::replicas::{BreakerConfig, Health, ReplicasConfig, Retry};
pub use self::schema::json_schema;
pub use self::secret::{API_KEY_PREFIX, SecretSource};
pub use self::shared::{RedisAddress, RedisPlace, Shared};
pub use self::sign_in::{
    ClientDocuments, Consent, ProviderAuthentication, ProviderClient, ProviderProof, SignIn, SignInClient,
    is_changeable_claim,
};
pub use self::source::ConfigSource;
pub use self::text::is_key_name;
pub use self::trace::{Trace, endpoint as trace_endpoint};
pub use self::upstream::{SessionLoss, TransportConfig, UpstreamConfig};
pub use self::url::{Url, server_url};
pub use self::value::Ratio;
pub use self::variables::EnvironmentLookup;

/// The bytes of a configuration file at most; more than any needs.
pub const FILE_BYTES_MAX: u64 = 16 << 20;
/// Syntax errors that are reported.
const SYNTAX_ERRORS_MAX: usize = 3;

section! {
    /// Configuration of Trunkline: a checked one, with every default filled in.
    pub struct Config {
        /// Files that are read as if they stood at the end of this one, each beginning with a section: paths, where the last
        /// part may hold `*`, from the directory of this file on.
        #[example(["conf.d/*.toml"])]
        include: Array<Any> = [],
        /// Worker threads. Default: the number of cores.
        #[example(2)]
        workers: Option<Count<1, 256, NonZeroUsize>>,
        /// Where state is kept between two runs: the session key, the sessions of legacy clients, and what is known of
        /// the upstreams. An absolute path. Default: the environment's `STATE_DIRECTORY`, as systemd sets it; else nowhere,
        /// and sessions end with the process.
        #[example("/var/lib/trunkline")]
        state_directory: Option<AbsolutePath>,
        /// Networks of the proxies whose `Forwarded`, `X-Forwarded-For` and PROXY headers are believed; from others such
        /// headers are ignored; `unix` stands for whoever connects to a Unix socket. Default: none.
        #[example(["10.0.0.0/8", "2001:db8::7", "unix"])]
        trusted_proxies: Array<Network, 0, Networks> => Networks::default(),
        /// Where clients connect: one `[listener]`, or several `[[listener]]`.
        listeners as "listener": OneOrMany<Listener>,
        /// Where `/metrics`, `/livez`, `/readyz` and `/status` are served. Default: nowhere.
        admin: Option<Admin>,
        /// What is measured.
        metrics: MetricsConfig,
        /// Where traces go. Default: nowhere, unless the environment's `OTEL_*` variables say so.
        trace: Option<Trace>,
        /// The way of the gateway's own requests: straight to each server, or through a proxy.
        outbound: Outbound,
        /// When the configuration is read again, beside SIGHUP.
        reload: Reload,
        /// Bounds of the process.
        limits: LimitsConfig,
        /// How the process stops.
        drain: DrainConfig,
        /// Sessions of legacy clients.
        session: SessionConfig,
        /// What several gateways that serve the same clients share. Default: nothing. Takes effect at the next start.
        shared: Option<Shared>,
        /// What is logged, and how.
        log: Log,
        /// The keys clients may present.
        api_keys as "api_key": Tables<ApiKey>,
        /// The issuers whose tokens (JWT) clients may present.
        jwt: Tables<Jwt>,
        /// Sign-in with the accounts of a provider. Default: nothing.
        sign_in: Option<SignIn>,
        /// Whom the certificates of clients name, where a listener checks them.
        client_certificates as "client_certificate": CertificateNames => CertificateNames::NONE,
        /// Who may call what.
        rules as "rule": Tables<RuleConfig>,
        /// How many calls who may make.
        rate_limits as "limit": Tables<RateLimit>,
        /// The paths clients see.
        endpoints as "endpoint": Tables<EndpointConfig, 1>,
        /// Keys of `[upstream.NAME]` for all upstreams that do not have them, but for `url`, `urls`, `command`, `args`,
        /// `prefix` and credentials. What does not fit an upstream is left out there, such as `tls` without a URL of `https`.
        #[example({ response_timeout = "2m" })]
        upstream_defaults: UpstreamDefaults,
        /// The MCP servers, by name, in the order of the text. A name is a lower-case letter, then up to 31 of a-z, 0-9
        /// and -.
        upstreams as "upstream": Upstreams,
    }
    computed {
        /// What is allowed but probably not meant.
        warnings: Vec<Diagnostic>,
        /// Where it names files and secrets.
        places: NamedPlaces,
        /// SHA-256 of the text, in hexadecimal digits.
        digest: String,
        /// The files and directories that it was read from, beside the one that was named. Whoever reads files fills it.
        included: Vec<PathBuf>,
        /// The upstreams that have `enabled = false`.
        off: Vec<String>
    }
}

/// Reads and checks a whole configuration that is in one file and has no variables.
///
/// # Errors
/// As those of [`parse_source`].
pub fn parse(text: &str) -> Result<Config, ConfigErrors> {
    parse_source(&ConfigSource::new("", text), &|_| None)
}

/// Reads and checks a whole configuration. Its variables stand for what `environment` has.
///
/// # Errors
/// All that is wrong with the text at once. A text that is not TOML is reported as such and not checked further.
pub fn parse_source(
    source: &ConfigSource,
    environment: EnvironmentLookup<'_>,
) -> Result<Config, ConfigErrors> {
    let text = source.text();
    let mut errors = syntax_errors(source);
    if !errors.is_empty() {
        return Err(ConfigErrors::new(errors));
    }
    let (mut root, doubled) = DeTable::parse_recoverable(text);
    if !doubled.is_empty() {
        return Err(ConfigErrors::new(first_syntax_errors(text, &doubled)));
    }
    variables::expand(root.get_mut(), environment, &mut errors);
    let unresolved = errors.clone();
    defaults::apply(root.get_mut());
    let root = Table::new(root.get_ref(), &root.span());
    let mut findings = Findings::default();
    findings.errors = errors;
    let config = section::read_table::<Config>(root, &mut findings).map(|mut config| {
        let has_state = environment("STATE_DIRECTORY").is_some();
        check(&mut config, root, has_state, &mut findings);
        if findings.errors.is_empty() {
            leave_out_disabled(&mut config, &mut findings);
        }
        config
    });
    if config.is_none() && findings.errors.is_empty() {
        findings.error(0..0, "a default of this program contradicts itself: please report it");
    }
    let Findings { mut errors, mut warnings, named: places, .. } = findings;
    // What stands where a variable does is not what was meant.
    errors.retain(|error| unresolved.iter().all(|other| other.span != error.span || other == error));
    let Some(config) = config.filter(|_| errors.is_empty()) else { return Err(ConfigErrors::new(errors)) };
    warnings.sort_by_key(|warning| warning.span.start);
    warnings.extend(secret::clear_keys(text));
    Ok(Config { warnings, places, digest: Hash::of(text).to_string(), ..config })
}

/// The admin listener of a configuration that may be wrong in everything else. `None`: nothing says where it is.
pub fn admin_of(source: &ConfigSource, environment: EnvironmentLookup<'_>) -> Option<Admin> {
    let (mut root, _) = DeTable::parse_recoverable(source.text());
    variables::expand(root.get_mut(), environment, &mut Vec::new());
    let root = Table::new(root.get_ref(), &root.span());
    let mut findings = Findings::default();
    let admin = section::read_table::<Admin>(Table::of(root.get("admin")?)?, &mut findings);
    admin.filter(|_| findings.errors.is_empty())
}

/// What is no TOML, in each file by itself: what one leaves open does not end in the next.
fn syntax_errors(source: &ConfigSource) -> Vec<Diagnostic> {
    let mut errors = source.misplaced();
    let misplaced: Vec<usize> = errors.iter().map(|error| error.span.start).collect();
    for range in source.ranges().filter(|range| !misplaced.iter().any(|at| range.contains(at))) {
        let (begin, text) = (range.start, &source.text()[range]);
        let (_, found) = DeTable::parse_recoverable(text);
        let mut found = first_syntax_errors(text, &found);
        if let (Some(first), Some(language)) = (found.first_mut(), other_language(text)) {
            first.suggestion = Some(language.to_owned());
            // All others say the same.
            found.truncate(1);
        }
        errors.extend(found.into_iter().map(|error| error.moved(begin)));
    }
    errors
}

/// The first error of each line. What follows is mostly its echo, and so is all that follows an unclosed bracket.
fn first_syntax_errors(text: &str, errors: &[toml::de::Error]) -> Vec<Diagnostic> {
    let line_of =
        |error: &Diagnostic| text.get(..error.span.start).map(|before| before.matches('\n').count());
    let mut lines = BTreeSet::new();
    let errors = errors.iter().map(|error| {
        let message = format!("not TOML: {}", error.message());
        let span = error.span().unwrap_or_default();
        let suggestion = second_heading(text, &span).filter(|_| error.message() == "duplicate key");
        Diagnostic::error(span, message).suggest(suggestion)
    });
    errors.filter(|error| lines.insert(line_of(error))).take(SYNTAX_ERRORS_MAX).collect()
}

/// The advice for a heading that is there already, in another form.
fn second_heading(text: &str, span: &Range<usize>) -> Option<String> {
    let line = text.get(..span.start)?.rfind('\n').map_or(0, |newline| newline + 1);
    let heading = text[line..].lines().next()?.trim();
    let name = heading.trim_matches(['[', ']']);
    match (name, heading.starts_with("[[")) {
        ("upstream", true) => {
            Some("an upstream has its name in the heading: write [upstream.NAME]".to_owned())
        }
        ("api_key" | "endpoint" | "jwt" | "limit" | "listener" | "rule" | "sign_in.client", _) => {
            Some(format!("where there are several, each begins with [[{name}]]"))
        }
        _ => None,
    }
}

/// What to do with a text in a language that other programs are configured in.
fn other_language(text: &str) -> Option<&'static str> {
    let mut lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', '/']));
    let first = lines.next()?;
    if first.starts_with('{') {
        Some("this looks like JSON: `trunkline import FILE` reads what clients have as `mcpServers`")
    } else if first == "---"
        || first.ends_with(':')
        || first.split_once(": ").is_some_and(|(key, _)| !key.contains('='))
    {
        Some("this looks like YAML: the configuration is TOML, as in `key = \"value\"`")
    } else {
        None
    }
}

/// Leaves out what is there but not to be.
fn leave_out_disabled(config: &mut Config, findings: &mut Findings) {
    let is_enabled =
        |name: &str| config.upstreams.iter().any(|upstream| upstream.name == name && upstream.enabled);
    for endpoint in &mut config.endpoints {
        endpoint.off = endpoint.upstreams.extract_if(.., |name| !is_enabled(name)).collect();
        endpoint.aliases.retain(|alias| is_enabled(&alias.upstream));
        if endpoint.upstreams.is_empty() {
            // Nothing passes through it, changed or not.
            endpoint.names = Names::Prefixed;
        }
    }
    config.rules.retain(|rule| rule.enabled);
    // Before any is left out: the name of one that is must not become a glob over others.
    policy::take_names_literally(&mut config.rules, &config.endpoints);
    config.endpoints.retain(|endpoint| endpoint.enabled);
    rate::name_endpoints(&mut config.rate_limits, &config.endpoints);
    let off = config.upstreams.extract_if(.., |upstream| !upstream.enabled);
    config.off = off.map(|upstream| upstream.name).collect();
    if config.endpoints.is_empty() {
        findings.error(0..0, "all endpoints have `enabled = false`");
    }
}

/// Checks each rule between tables, whatever was found before. `has_state`: the environment names a state directory.
fn check(config: &mut Config, root: Table<'_>, has_state: bool, findings: &mut Findings) {
    listener::check(config, root, findings);
    identity::check(config, root, findings);
    upstream::check(config, root, findings);
    endpoint::check(config, root, findings);
    sign_in::check(config, root, has_state, findings);
    policy::check(config, root, findings);
    rate::check(config, root, findings);
    if config.shared.is_some() && config.session.key_file.is_none() {
        let has_pins = config.upstreams.iter().any(|upstream| upstream.pins.is_on());
        let pins = if has_pins { ", and `pins` of one are refused at another" } else { "" };
        let message = format!(
            "[shared] without [session] key: each gateway makes a key of its own, and sessions do not go on at another{pins}; \
             give all the same file"
        );
        findings.warning(root.table("shared").span(), message);
    }
    if findings.is_damaged(root) {
        return;
    }
    let missing = [
        (config.listeners.is_empty(), "no listener: add [listener] with `address = \"127.0.0.1:8080\"`"),
        (
            config.endpoints.is_empty(),
            "no endpoint: add [[endpoint]] with `path = \"/mcp\"` and its `upstreams`",
        ),
    ];
    for (is_missing, message) in missing {
        if is_missing {
            findings.error(0..0, message);
        }
    }
}
