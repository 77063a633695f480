//! `[shared]`: what replicas of the gateway share.

use std::path::PathBuf;

use super::findings::Findings;
use super::secret::SecretPlace;
use super::section::section;
use super::table::Table;
use super::text::{AbsolutePath, Any, checked, texts};
use super::url::host_and_port;
use super::value::{Count, Period, SECOND_MS};

const PORT_DEFAULT: u16 = 6379;
const PREFIX_BYTES_MAX: usize = 64;

section! {
    /// What several gateways that serve the same clients share through Redis or Valkey: sessions, changes of lists, and
    /// limits with `shared = true`. All need the same `[session]` key. Takes effect at the next start.
    /// Default: nothing.
    pub struct Shared {
        /// Where Redis (6.2 or later) or Valkey is: `redis://HOST:PORT/DATABASE`, `rediss://…` over TLS, or
        /// `unix:///PATH?db=DATABASE`. Without user and password. One server, no cluster.
        #[example("rediss://redis.example.com:6380/0")]
        redis: RedisUrl,
        /// Who the gateway is to Redis. Default: its default user.
        #[example("trunkline")]
        username: Option<Any>,
        /// The password.
        #[example({ file = "/etc/trunkline/redis.password" })]
        password: Option<SecretPlace>,
        /// For `rediss://`: the certificates, in PEM, that Redis' own must come from; an absolute path. Default: those
        /// the system trusts.
        #[example("/etc/trunkline/redis-ca.pem")]
        ca: Option<AbsolutePath>,
        /// How many gateways share. A lease of a shared limit is at most limit / (20 × replicas).
        replicas: Count<1, 1000> = 2,
        /// Time for one operation, after which the gateway goes on without.
        timeout: Period<5, { 10 * SECOND_MS }> = "250ms",
        /// What the names of all keys and channels begin with, up to 64 bytes: gateways that share have the same.
        prefix: Prefix = "trunkline:",
    }
    check check;
}

/// Where a Redis is, and which of its databases is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisPlace {
    /// Where it is.
    pub address: RedisAddress,
    /// The number of the database.
    pub database: u32,
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

texts! {
    /// The URL of a Redis.
    pub RedisUrl -> RedisPlace, "^(rediss?|unix)://[^@]*$", |text: &str| redis(text).map_err(Into::into);
    /// What all names begin with.
    pub Prefix -> String, "", |text: &str| checked(
        text,
        text.len() <= PREFIX_BYTES_MAX && text.bytes().all(|byte| byte.is_ascii_graphic()),
        "not a prefix: use up to 64 visible ASCII characters",
    );
}

fn check(shared: Shared, table: Table<'_>, findings: &mut Findings) -> Shared {
    if !table.has("password") {
        findings.error_at(
            table,
            "username",
            "`username` without `password`: Redis asks for both, or for none",
        );
    }
    let is_tls = matches!(shared.redis.address, RedisAddress::Tcp { is_tls: true, .. });
    if findings.span(table, "redis").is_some() && !is_tls {
        findings.error_at(table, "ca", "`ca` is of no use without TLS: write `rediss://` in `redis`");
    }
    shared
}

fn redis(text: &str) -> Result<RedisPlace, &'static str> {
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
        return Ok(RedisPlace { address: RedisAddress::Unix(path.into()), database: database(written)? });
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
    let (host, port) = host_and_port(authority, PORT_DEFAULT).map_err(|_| "not a host and port")?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte)) {
        return Err("not a host");
    }
    Ok(RedisPlace {
        address: RedisAddress::Tcp { host: host.to_owned(), port, is_tls },
        database: database(path)?,
    })
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
            let (address, database) = expected;
            assert_eq!(redis(text), Ok(RedisPlace { address, database }), "{text}");
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
            let refused = redis(text).expect_err(text);
            assert!(!refused.contains("hunter2"), "{text}");
        }
    }
}
