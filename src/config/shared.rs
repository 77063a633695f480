//! `[shared]`: what replicas of the gateway share.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::ConfigError;
use super::error::Warning;
use super::file::File;
use super::resolve::Findings;
use super::secret::{SecretSource, WrittenSecret};
use super::value::{At, Count, Key, Period, SECOND_MS};

const PORT_DEFAULT: u16 = 6379;
const PREFIX_BYTES_MAX: usize = 64;

/// What several gateways that serve the same clients share through Redis or Valkey.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["redis"]))]
pub(super) struct WrittenShared {
    /// Where Redis (6.2 or later) or Valkey is: `redis://HOST:PORT/DATABASE`, `rediss://…` over TLS, or
    /// `unix:///PATH?db=DATABASE`. Without user and password.
    #[schemars(example = "redis://127.0.0.1:6379/0")]
    pub(super) redis: Key<String>,
    /// Who the gateway is to Redis. Default: its default user.
    pub(super) username: Key<String>,
    /// The password.
    pub(super) password: Key<WrittenSecret>,
    /// For `rediss://`: the certificates, in PEM, that Redis' own must come from; an absolute path. Default: those the
    /// system trusts.
    pub(super) ca: Key<String>,
    /// How many gateways share. Default: 2.
    pub(super) replicas: Key<Count<1, 1000>>,
    /// Time for one operation, after which the gateway goes on without; 5ms to 10s. Default: 250ms.
    pub(super) timeout: Key<Period<5, { 10 * SECOND_MS }>>,
    /// What the names of all keys and channels begin with, up to 64 bytes: gateways that share have the same. Default:
    /// `trunkline:`.
    pub(super) prefix: Key<String>,
}

/// `[shared]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shared {
    /// Where Redis is.
    pub address: RedisAddress,
    /// The number of the database.
    pub database: u32,
    /// Who the gateway is to Redis.
    pub username: Option<String>,
    /// The password.
    pub password: Option<SecretSource>,
    /// Whom to trust over TLS; `None`: whom the system does.
    pub ca: Option<PathBuf>,
    /// How many gateways share, 1 to 1000.
    pub replicas: usize,
    /// Time for one operation.
    pub timeout: Duration,
    /// What all names begin with.
    pub prefix: String,
}

/// Where a Redis is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisAddress {
    /// Over the network.
    Tcp {
        /// Name or address, the latter without brackets.
        host: String,
        /// Port.
        port: u16,
        /// Whether it speaks TLS.
        is_tls: bool,
    },
    /// A socket of this machine.
    Unix(PathBuf),
}

/// Checks `[shared]`.
pub(super) fn resolve(file: &File, findings: &mut Findings) -> Option<Shared> {
    let At { value: written, span } = file.shared.0.as_ref()?;
    let message = "[shared] has no `redis`: write `redis = \"redis://HOST:6379/0\"`";
    let address = findings.required(&written.redis, span, message).and_then(|redis| {
        let address = address(&redis.value);
        address
            .map_err(|message| {
                let error = ConfigError::new(redis.span.clone(), message);
                let may_hold_password = redis.value.contains('@');
                findings.errors.push(if may_hold_password { error.secret() } else { error });
            })
            .ok()
    });
    let password = written.password.0.as_ref().and_then(|secret| WrittenSecret::resolve(secret, findings));
    if let (Some(username), None) = (&written.username.0, &written.password.0) {
        findings
            .error(username.span.clone(), "`username` without `password`: Redis asks for both, or for none");
    }
    let prefix = written.prefix.value().map_or("trunkline:", String::as_str);
    if let Some(span) = written.prefix.span()
        && (prefix.len() > PREFIX_BYTES_MAX || !prefix.bytes().all(|byte| byte.is_ascii_graphic()))
    {
        findings.error(span, "not a prefix: use up to 64 visible ASCII characters");
    }
    let ca = written.ca.0.as_ref().map(|At { value: path, span }| {
        if !path.starts_with('/') {
            findings.error(span.clone(), "not an absolute path: write for example \"/etc/trunkline/ca.pem\"");
        }
        PathBuf::from(path)
    });
    if file.session.key.0.is_none() {
        findings.warnings.push(Warning::new(
            span.clone(),
            "[shared] without [session] key: each gateway makes a key of its own, and sessions do not go on at another; give all the same file",
        ));
    }
    let (address, database) = address?;
    if let (Some(at), RedisAddress::Tcp { is_tls: false, .. } | RedisAddress::Unix(_)) =
        (&written.ca.0, &address)
    {
        findings.error(at.span.clone(), "`ca` is of no use without TLS: write `rediss://` in `redis`");
    }
    Some(Shared {
        address,
        database,
        username: written.username.value().cloned(),
        password,
        ca,
        replicas: written.replicas.or(2),
        timeout: written.timeout.or(Duration::from_millis(250)),
        prefix: prefix.to_owned(),
    })
}

fn address(text: &str) -> Result<(RedisAddress, u32), &'static str> {
    const SCHEME: &str =
        "not an address of Redis: write `redis://HOST:PORT/DATABASE`, `rediss://…` or `unix:///PATH`";
    const DATABASE: &str = "the database is not a number";
    let (scheme, rest) = text.split_once("://").ok_or(SCHEME)?;
    let database =
        |written: &str| if written.is_empty() { Ok(0) } else { written.parse().map_err(|_| DATABASE) };
    if scheme == "unix" {
        let (path, query) = rest.split_once('?').unwrap_or((rest, "db="));
        if !path.starts_with('/') {
            return Err("the socket is not an absolute path: write `unix:///PATH`");
        }
        let written = query.strip_prefix("db=").ok_or("only `?db=DATABASE` may follow the path")?;
        return Ok((RedisAddress::Unix(path.into()), database(written)?));
    }
    let is_tls = match scheme {
        "redis" => false,
        "rediss" => true,
        _ => return Err(SCHEME),
    };
    if rest.contains('@') {
        return Err("user and password do not belong into the address: write `username` and `password`");
    }
    if rest.contains(['?', '#']) {
        return Err("nothing may follow the database");
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host_end = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    let (host, port) = match authority[host_end..].find(':') {
        Some(colon) => {
            let (host, port) = authority.split_at(host_end + colon);
            (host, port[1..].parse().ok().filter(|port| *port != 0).ok_or("not a port")?)
        }
        None => (authority, PORT_DEFAULT),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() || !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte)) {
        return Err("not a host");
    }
    Ok((RedisAddress::Tcp { host: host.to_owned(), port, is_tls }, database(path)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let tcp = |host: &str, port, is_tls| RedisAddress::Tcp { host: host.to_owned(), port, is_tls };
        for (text, expected) in [
            ("redis://localhost", (tcp("localhost", 6379, false), 0)),
            ("redis://localhost/", (tcp("localhost", 6379, false), 0)),
            ("rediss://redis.example:6380/3", (tcp("redis.example", 6380, true), 3)),
            ("redis://[::1]:7/0", (tcp("::1", 7, false), 0)),
            ("redis://[::1]", (tcp("::1", 6379, false), 0)),
            ("unix:///run/redis.sock", (RedisAddress::Unix("/run/redis.sock".into()), 0)),
            ("unix:///run/redis.sock?db=2", (RedisAddress::Unix("/run/redis.sock".into()), 2)),
        ] {
            assert_eq!(address(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "",
            "localhost:6379",
            "http://localhost",
            "REDIS://localhost",
            "redis://",
            "redis://:6379",
            "redis://localhost:0",
            "redis://localhost:x",
            "redis://localhost:65536",
            "redis://localhost/a",
            "redis://localhost/-1",
            "redis://localhost/0?x=1",
            "redis://user:hunter2@localhost",
            "redis://a b",
            "unix://run/redis.sock",
            "unix:///run/redis.sock?x=1",
            "unix:///run/redis.sock?db=x",
        ] {
            let refused = address(text).expect_err(text);
            assert!(!refused.contains("hunter2"), "{text}");
        }
    }
}
