//! What replicas of the gateway share through Redis or Valkey: state of sessions, their ends, changes of lists, and
//! leases of rate limits.
//!
//! Here is the way there, for all threads; what is said is decided by those who share it. [`run`](run::run) keeps one
//! connection on the control thread: commands of any thread go over it, and what other replicas tell comes in on it.
//!
//! # Nobody waits for long
//!
//! Each operation is bounded by `timeout`. After a few failures in a row, or one that says that nothing else can be
//! expected, the connection is given up, and from then on every operation fails at once, until a new one has proven
//! that it can read, write and listen. What cannot be said meanwhile is told by who asked; see [`Redis::tell`] for what
//! is said later.
//!
//! Deliberately not here: Redis Cluster (one server, or one address that leads to the primary, is expected), and any
//! word on what a call does when there is no answer.
//!
//! Invariants: at most one connection is in use; nothing is sent over it before the replica has subscribed, so that
//! between what was read and what is told nothing is missed; no secret, name of a principal or address is sent in clear.

mod bounded;
pub(crate) mod lease;
mod outbox;
pub(crate) mod peer_message;
pub(crate) mod peers;
pub(crate) mod run;

use std::fmt::Write as _;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, Pipeline, RedisError, RedisResult, Script, ServerErrorKind};
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;

use crate::clock;
use crate::telemetry::metrics::families::{SharedFailures, SharedMetrics};
use net::secret::{Secret, SecretError};
use net::tls::{Connector, TlsSettingsError};

use self::outbox::Outbox;
pub(crate) use self::outbox::Urgency;

/// After so many failures in a row the connection is given up.
const FAILURES_MAX: u32 = 3;
/// Keeps digests apart from those of other programs and purposes.
const DIGEST_DOMAIN: &[u8] = b"trunkline shared\0";

#[derive(Debug)]
pub(crate) struct Redis {
    config: config::Shared,
    link: ArcSwapOption<RedisConnection>,
    broken: Notify,
    joined: Notify,
    /// How often a link was made. What was learned over an earlier one may be out of date.
    epoch: AtomicU64,
    /// Tells this process from the other replicas.
    replica: u64,
    /// It has taken itself off the list of replicas.
    has_left: AtomicBool,
    outbox: Outbox,
    pub(crate) leases: lease::LeaseServer,
    /// The system's certificates, for TLS without a `ca`: they do not change while the process runs.
    system_roots: Option<Arc<Connector>>,
    /// An attempt to connect has failed, now or before.
    has_failed: AtomicBool,
    /// Since when there is no connection, in seconds since 1970; 0: there is one.
    disconnected_s: AtomicU64,
    pub(crate) series: SharedMetrics,
}

/// The secrets that a connection is made with, as the files have them.
#[derive(Debug)]
struct RedisAccess {
    password: Option<Secret>,
    connector: Option<Arc<Connector>>,
}

#[derive(Debug)]
struct RedisConnection {
    connection: MultiplexedConnection,
    /// In a row.
    failures: AtomicU32,
}

/// Why nothing can be shared.
#[derive(Debug, thiserror::Error)]
pub enum SharedError {
    #[error("[shared] password: {0}")]
    Password(#[from] SecretError),
    #[error("[shared] password: it is not text in UTF-8")]
    PasswordNotText,
    /// It is not known whom to trust.
    #[error("[shared] {0}")]
    Trust(#[from] TlsSettingsError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unavailable {
    #[error("there is no connection")]
    Away,
    #[error("the server did not answer in time")]
    TimedOut,
    /// The server refused, or answered something else.
    #[error("the server refused")]
    Refused,
}

impl Redis {
    /// Reads the password and whom to trust, which each connection reads anew; connects nowhere yet.
    pub(crate) fn new(config: &config::Shared, series: SharedMetrics) -> Result<Arc<Self>, SharedError> {
        let access = RedisAccess::read(config, None)?;
        Ok(Arc::new(Self {
            config: config.clone(),
            link: ArcSwapOption::empty(),
            broken: Notify::new(),
            joined: Notify::new(),
            epoch: AtomicU64::new(0),
            // Two replicas with the same number would not hear each other; randomness fails at start or never.
            replica: getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id())),
            has_left: AtomicBool::new(false),
            outbox: Outbox::new(),
            leases: lease::LeaseServer::new(),
            system_roots: access.connector.filter(|_| config.ca.is_none()),
            has_failed: AtomicBool::new(false),
            disconnected_s: AtomicU64::new(clock::now_s()),
            series,
        }))
    }

    /// Fails if the next connection could not be made of what the files have now. Nothing is looked at where `config` is
    /// not in force: it counts from the next start on.
    pub(crate) fn check_access(&self, config: Option<&config::Shared>) -> Result<(), SharedError> {
        if config == Some(&self.config) {
            RedisAccess::read(&self.config, self.system_roots.as_ref())?;
        }
        Ok(())
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.link.load().is_some()
    }

    /// True until the first attempt to connect has come to an end, which each has within some `timeout`s.
    pub(crate) fn is_connecting_first(&self) -> bool {
        self.epoch() == 0 && !self.has_failed.load(Ordering::Relaxed)
    }

    /// Since when there is no connection, in seconds since 1970.
    pub(crate) fn disconnected_since_s(&self) -> Option<u64> {
        Some(self.disconnected_s.load(Ordering::Relaxed)).filter(|since_s| *since_s > 0)
    }

    fn note_connected(&self, is_connected: bool) {
        self.series.connected.set(is_connected.into());
        if is_connected {
            self.disconnected_s.store(0, Ordering::Relaxed);
        } else {
            // Where it was gone already, nothing changes.
            let (was_connected, now_s) = (0, clock::now_s());
            let _ = self.disconnected_s.compare_exchange(
                was_connected,
                now_s,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    /// Changes whenever something may have been missed.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// How many replicas are expected to share.
    pub(crate) fn replicas(&self) -> usize {
        self.config.replicas
    }

    /// The longest that an operation takes.
    pub(crate) fn timeout(&self) -> Duration {
        self.config.timeout
    }

    /// The key of `kind` for what `pieces` name. What they say cannot be read off it.
    pub(crate) fn key(&self, kind: &str, pieces: &[&[u8]]) -> String {
        format!("{}{kind}:{}", self.config.prefix, digest(pieces))
    }

    /// The name of something there is one of.
    fn name(&self, what: &str) -> String {
        format!("{}{what}", self.config.prefix)
    }

    pub(crate) async fn command<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Unavailable> {
        self.bounded(async |mut connection| command.query_async(&mut connection).await).await
    }

    pub(crate) async fn pipeline<T: FromRedisValue>(&self, pipeline: &Pipeline) -> Result<T, Unavailable> {
        self.bounded(async |mut connection| pipeline.query_async(&mut connection).await).await
    }

    /// Runs a script, which happens at once or not at all.
    pub(crate) async fn script<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
    ) -> Result<T, Unavailable> {
        let mut call = script.prepare_invoke();
        for key in keys {
            call.key(key);
        }
        for argument in arguments {
            call.arg(argument);
        }
        self.bounded(async |mut connection| call.invoke_async(&mut connection).await).await
    }

    async fn bounded<T, F: Future<Output = RedisResult<T>>>(
        &self,
        ask: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T, Unavailable> {
        let Some(link) = self.link.load_full() else {
            self.failed(Unavailable::Away);
            return Err(Unavailable::Away);
        };
        let started = clock::now();
        let answer = tokio::time::timeout(self.config.timeout, ask(link.connection.clone())).await;
        let failure = match answer {
            Ok(Ok(answer)) => {
                self.series.duration.observe(clock::since(started).as_secs_f64());
                link.failures.store(0, Ordering::Relaxed);
                return Ok(answer);
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "an operation on what replicas share failed");
                if is_final(&error) {
                    self.give_up(&link, &error.to_string());
                }
                Unavailable::Refused
            }
            Err(_) => Unavailable::TimedOut,
        };
        self.failed(failure);
        if link.failures.fetch_add(1, Ordering::Relaxed) + 1 >= FAILURES_MAX {
            self.give_up(&link, &failure.to_string());
        }
        Err(failure)
    }

    fn failed(&self, why: Unavailable) {
        let SharedFailures { disconnected, timeout, refused } = &self.series.failures;
        match why {
            Unavailable::Away => disconnected.inc(),
            Unavailable::TimedOut => timeout.inc(),
            Unavailable::Refused => refused.inc(),
        }
    }

    /// From now on operations fail at once.
    fn give_up(&self, link: &Arc<RedisConnection>, why: &str) {
        let before = self.link.compare_and_swap(link, None);
        if before.as_ref().is_some_and(|before| Arc::ptr_eq(before, link)) {
            tracing::warn!(why, "the connection to what replicas share is given up");
            self.note_connected(false);
            self.broken.notify_one();
        }
    }
}

impl RedisAccess {
    /// Reads the files; blocks.
    fn read(config: &config::Shared, system_roots: Option<&Arc<Connector>>) -> Result<Self, SharedError> {
        let password = config.password.as_ref().map(Secret::read).transpose()?;
        if password.as_ref().is_some_and(|password| std::str::from_utf8(password.expose()).is_err()) {
            return Err(SharedError::PasswordNotText);
        }
        let connector = match (&config.redis.address, system_roots) {
            (config::RedisAddress::Tcp { is_tls: true, .. }, None) => {
                Some(Connector::trusting(config.ca.as_deref())?)
            }
            (_, roots) => roots.cloned(),
        };
        Ok(Self { password, connector })
    }
}

/// Whether the connection is of no more use: it is gone, or leads to a server that cannot serve.
fn is_final(error: &RedisError) -> bool {
    use redis::ErrorKind::Server;
    let has_moved = matches!(
        error.kind(),
        Server(
            ServerErrorKind::ReadOnly
                | ServerErrorKind::BusyLoading
                | ServerErrorKind::MasterDown
                | ServerErrorKind::Moved
        )
    );
    has_moved
        || error.code() == Some("NOAUTH")
        || error.is_unrecoverable_error()
        || error.is_connection_dropped()
}

/// Half of a SHA-256 in hexadecimal digits, of pieces that are kept apart.
pub(crate) fn digest(pieces: &[&[u8]]) -> String {
    let mut sha256 = Sha256::new_with_prefix(DIGEST_DOMAIN);
    for piece in pieces {
        sha256.update((piece.len() as u64).to_le_bytes());
        sha256.update(piece);
    }
    let whole = sha256.finalize();
    whole.iter().take(16).fold(String::with_capacity(32), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
