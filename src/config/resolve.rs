//! The shape → [`Config`]: defaults, and what must hold between keys. The sections of the process are here, those of
//! endpoints and upstreams beside it.
//!
//! Everything is checked, whatever was found before: a wrong value is reported and left out, and what depends on it is
//! checked as far as it makes sense.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use super::document::{Damaged, Document};
use super::error::{ConfigError, Warning};
use super::value::{At, Key};
use super::{
    Admin, ApiKey, Config, Drain, Limits, Listener, Networks, Session, admin, endpoint, file, identity, log,
    metrics, policy, rate, shared, tls, trace, upstream,
};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// SHA-256 of nothing: a key that an empty credential would match.
const SHA256_OF_EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Fills in the defaults and checks what spans several keys.
pub(super) fn resolve(document: Document) -> Result<Config, Vec<ConfigError>> {
    let Document { file, errors, damaged } = document;
    let mut findings = Findings { errors, warnings: Vec::new(), damaged };

    let trusted_proxies = tls::trusted_proxies(&file.trusted_proxies, &mut findings);
    let (listeners, admin) = addresses(&file, &trusted_proxies, &mut findings);
    let limits = limits(&file.limits, &mut findings);
    let drain = drain(&file.drain, &mut findings);
    let state_directory = absolute(&file.state_directory, "/var/lib/trunkline", &mut findings);
    let log = log::resolve(&file.log, &mut findings);
    let trace = trace::resolve(&file, &mut findings);
    let session = session(&file.session, &mut findings);
    let shared = shared::resolve(&file, &mut findings);
    let api_keys = api_keys(&file.api_key, &mut findings);
    let jwt = identity::issuers(&file, &mut findings);
    let client_certificates = identity::client_certificates(&file, &mut findings).unwrap_or_default();
    let upstreams = upstream::resolve(&file, &mut findings);
    let endpoints = endpoint::resolve(&file, &listeners, &upstreams, &mut findings);
    let rules = policy::resolve(&file, &endpoints, &upstreams, &mut findings);
    let rate_limits = rate::resolve(&file, &endpoints, &upstreams, shared.is_some(), &mut findings);
    at_least_one_of_each(&file, &mut findings);

    if !findings.errors.is_empty() {
        return Err(findings.errors);
    }
    findings.warnings.sort_by_key(|warning| warning.span.start);
    Ok(Config {
        workers: NonZeroUsize::new(file.workers.or(0)),
        state_directory,
        listeners,
        trusted_proxies,
        admin,
        limits,
        drain,
        log,
        metrics: metrics::resolve(&file.metrics),
        trace,
        reload: admin::reload(&file.reload),
        session,
        shared,
        api_keys,
        rate_limits,
        jwt,
        client_certificates,
        rules,
        endpoints,
        upstreams,
        warnings: findings.warnings,
        digest: String::new(),
    })
}

/// Whether `name` may name an API key: 1 to 64 letters, digits and `.`, `_`, `@`, `-`.
pub fn is_key_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._@-".contains(&byte))
}

/// What was found while resolving.
pub(super) struct Findings {
    pub(super) errors: Vec<ConfigError>,
    pub(super) warnings: Vec<Warning>,
    pub(super) damaged: Damaged,
}

impl Findings {
    pub(super) fn error(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.errors.push(ConfigError::new(span, message));
    }

    /// The value of a key that the table at `table` must have.
    pub(super) fn required<'k, T>(
        &mut self,
        key: &'k Key<T>,
        table: &Range<usize>,
        message: &str,
    ) -> Option<&'k At<T>> {
        if key.0.is_none() && !self.damaged.table(table) {
            self.error(table.clone(), message);
        }
        key.0.as_ref()
    }
}

fn at_least_one_of_each(file: &file::File, findings: &mut Findings) {
    if findings.damaged.root() {
        return;
    }
    let missing = [
        (file.listener.is_empty(), "no listener: add [listener] with `address = \"127.0.0.1:8080\"`"),
        (
            file.endpoint.is_empty(),
            "no endpoint: add [[endpoint]] with `path = \"/mcp\"` and its `upstreams`",
        ),
        (file.upstream.is_empty(), "no upstream: add [upstream.NAME] with the `url` of an MCP server"),
    ];
    for (is_missing, message) in missing {
        if is_missing {
            findings.error(0..0, message);
        }
    }
}

fn addresses(
    file: &file::File,
    proxies: &Networks,
    findings: &mut Findings,
) -> (Vec<Listener>, Option<Admin>) {
    let mut taken = BTreeSet::new();
    let mut listeners = Vec::new();
    for At { value: listener, span } in &file.listener {
        let message = "the listener has no `address`: write `address = \"127.0.0.1:8080\"`";
        let written = findings.required(&listener.address, span, message);
        let proxy_protocol = listener.proxy_protocol.value().copied().unwrap_or(false);
        tls::check_proxy_protocol(proxy_protocol, listener.proxy_protocol.span(), proxies, findings);
        let tls = tls::listener_tls(&listener.tls, findings);
        if let Some(address) = written.and_then(|written| address(written, &mut taken, findings)) {
            listeners.push(Listener { address, proxy_protocol, tls });
        }
    }
    let admin = file
        .admin
        .0
        .as_ref()
        .and_then(|At { value, span }| admin::resolve(value, span, &mut taken, findings));
    (listeners, admin)
}

/// An address to listen at, which nobody else listens at.
pub(super) fn address(
    written: &At<String>,
    taken: &mut BTreeSet<SocketAddr>,
    findings: &mut Findings,
) -> Option<SocketAddr> {
    let Ok(address) = written.value.parse::<SocketAddr>() else {
        let message = "not an IP address and port: write for example \"127.0.0.1:8080\", \"0.0.0.0:8080\" or \"[::]:8080\"";
        findings.error(written.span.clone(), message);
        return None;
    };
    if address.port() != 0 && !taken.insert(address) {
        findings.error(written.span.clone(), format!("{address} is used twice: choose another port"));
    }
    Some(address)
}

fn limits(written: &file::Limits, findings: &mut Findings) -> Limits {
    let connections_max = written.connections_max.0.is_some().then(|| written.connections_max.or(0));
    let limits = Limits {
        connections_max,
        connections_per_address_max: written
            .connections_per_address_max
            .or(connections_max.unwrap_or(1024).min(1024)),
        handshakes_max: written.handshakes_max.or(32),
        handshakes_per_address_max: written.handshakes_per_address_max.or(16),
        handshake_timeout: written.handshake_timeout.or(Duration::from_secs(5)),
        header_bytes_max: written.header_bytes_max.or(32 * KIB),
        headers_max: written.headers_max.or(100),
        body_bytes_max: written.body_bytes_max.or(4 * MIB),
        buffered_bytes_max: written.buffered_bytes_max.or(256 * MIB),
        reply_bytes_max: written.reply_bytes_max.or(16 * MIB),
        list_bytes_max: written.list_bytes_max.or(16 * MIB),
        list_pages_max: written.list_pages_max.or(100),
        cache_bytes_max: written.cache_bytes_max.or(64 * MIB),
        pins_bytes_max: written.pins_bytes_max.or(16 * MIB),
        children_max: written.children_max.or(256),
        token_bytes_max: written.token_bytes_max.or(8 * KIB),
        json_depth_max: written.json_depth_max.or(128),
        streams_per_connection_max: u32::try_from(written.streams_per_connection_max.or(128))
            .unwrap_or(u32::MAX),
        subscriptions_max: written.subscriptions_max.or(10_000),
        subscriptions_per_principal_max: written
            .subscriptions_per_principal_max
            .or(a_quarter(written.subscriptions_max.or(10_000))),
        limiter_keys_max: written.limiter_keys_max.or(100_000),
        subscription_uris_max: written.subscription_uris_max.or(1000),
        session_messages_max: written.session_messages_max.or(256),
        header_timeout: written.header_timeout.or(Duration::from_secs(10)),
        body_timeout: written.body_timeout.or(Duration::from_secs(30)),
        idle_timeout: written.idle_timeout.or(Duration::from_secs(75)),
        connection_age_max: written.connection_age_max.or(Duration::from_mins(10)),
    };

    if let Some(connections_max) = connections_max
        && limits.connections_per_address_max > connections_max
    {
        let span = written.connections_per_address_max.span().unwrap_or_default();
        let message =
            format!("`connections_per_address_max` is more than `connections_max` ({connections_max})");
        findings.error(span, message);
    }
    let buffered = &written.buffered_bytes_max;
    for (name, bytes, span) in [
        ("body_bytes_max", limits.body_bytes_max, written.body_bytes_max.span()),
        ("reply_bytes_max", limits.reply_bytes_max, written.reply_bytes_max.span()),
    ] {
        if bytes > limits.buffered_bytes_max {
            let message = format!(
                "`{name}` ({bytes} bytes) is more than `buffered_bytes_max` ({} bytes), so the largest could never be held",
                limits.buffered_bytes_max
            );
            findings.error(span.or_else(|| buffered.span()).unwrap_or_default(), message);
        }
    }
    limits
}

fn drain(written: &file::Drain, findings: &mut Findings) -> Drain {
    let drain = Drain {
        quiet: written.quiet.or(Duration::from_secs(2)),
        max: written.max.or(Duration::from_secs(20)),
    };
    if drain.max < drain.quiet {
        let span = written.max.span().or_else(|| written.quiet.span()).unwrap_or_default();
        let message = format!(
            "`max` ({:?}) ends before `quiet` ({:?}): make it at least as long",
            drain.max, drain.quiet
        );
        findings.error(span, message);
    }
    drain
}

fn session(written: &file::Session, findings: &mut Findings) -> Session {
    let key_file = written.key.0.as_ref().and_then(|At { value, span }| {
        let message = "`key` has no `file`: write `key = { file = \"/etc/trunkline/session.key\" }`";
        findings.required(&value.file, span, message);
        absolute(&value.file, "/etc/trunkline/session.key", findings)
    });
    Session {
        key_file,
        expiry: written.expiry.or(Duration::from_hours(24)),
        idle_timeout: written.idle_timeout.or(Duration::from_mins(30)),
        sessions_max: written.sessions_max.or(100_000),
        sessions_per_principal_max: written
            .sessions_per_principal_max
            .or(a_quarter(written.sessions_max.or(100_000))),
        upstream_sessions_max: written.upstream_sessions_max.or(100_000),
        streams_max: written.streams_max.or(16_384),
        streams_per_principal_max: written.streams_per_principal_max.or(8192),
        stream_queue_bytes_max: written.stream_queue_bytes_max.or(MIB),
        keep_alive_interval: written.keep_alive_interval.or(Duration::from_secs(25)),
        upstream_sessions_per_principal_max: written.upstream_sessions_per_principal_max.or(10_000),
        upstream_streams_max: written.upstream_streams_max.or(16_384),
        initialize_rate_max: written.initialize_rate_max.or(1000),
        tasks_max: written.tasks_max.or(100_000),
        tasks_per_principal_max: written.tasks_per_principal_max.or(a_quarter(written.tasks_max.or(100_000))),
        task_expiry: written.task_expiry.or(Duration::from_hours(7 * 24)),
    }
}

/// A path that means the same wherever the process was started.
pub(super) fn absolute(written: &Key<String>, example: &str, findings: &mut Findings) -> Option<PathBuf> {
    let At { value: path, span } = written.0.as_ref()?;
    if !path.starts_with('/') {
        findings.error(span.clone(), format!("not an absolute path: write for example \"{example}\""));
    }
    Some(path.into())
}

fn api_keys(written: &[At<file::ApiKey>], findings: &mut Findings) -> Vec<ApiKey> {
    let mut names = BTreeSet::new();
    let mut digests = BTreeMap::new();
    let mut keys = Vec::new();
    for At { value: key, span } in written {
        let name = findings.required(&key.name, span, "the key has no `name`: name who calls with it");
        if let Some(At { value: name, span }) = name {
            if !is_key_name(name) {
                let message = "not a key name: use 1 to 64 letters, digits and `.`, `_`, `@`, `-`";
                findings.error(span.clone(), message);
            } else if !names.insert(name) {
                findings.error(span.clone(), format!("two keys are named `{name}`: choose another name"));
            }
        }
        let message = "the key has no `sha256`: `trunkline key NAME` makes a key and its entry";
        let digest = findings.required(&key.sha256, span, message);
        let digest = digest.and_then(|digest| sha256(digest, findings).map(|bytes| (bytes, digest)));
        if let (Some(At { value: name, .. }), Some((sha256, At { span, .. }))) = (name, digest) {
            if let Some(other) = digests.insert(sha256, name) {
                let message =
                    format!("the same key as `{other}`: give each its own, made by `trunkline key NAME`");
                findings.error(span.clone(), message);
            }
            let groups = identity::scopes(&key.groups, findings);
            let scopes = identity::scopes(&key.scopes, findings);
            keys.push(ApiKey { name: name.clone(), sha256, groups, scopes });
        }
    }
    keys
}

/// What is not a digest may be the key itself, which must not be shown.
fn sha256(written: &At<String>, findings: &mut Findings) -> Option<[u8; 32]> {
    let error = |message: &str| ConfigError::new(written.span.clone(), message).secret();
    if written.value.eq_ignore_ascii_case(SHA256_OF_EMPTY) {
        findings.errors.push(error("the digest of nothing: `trunkline key NAME` makes a key and its entry"));
        return None;
    }
    let digest = decode_hex(&written.value);
    if digest.is_none() {
        let message =
            "not a SHA-256 in 64 hexadecimal digits: `trunkline key NAME` makes a key and its entry";
        findings.errors.push(error(message));
    }
    digest
}

fn decode_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    Some(bytes)
}

/// What one principal may have of so many, where nothing is said of it: it leaves room for others.
fn a_quarter(max: usize) -> usize {
    (max / 4).max(1)
}
