//! Keeping the connection, on the control thread.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use net::socket::UnixStream;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, RedisError, Value,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, sleep, timeout};

use super::bounded::BoundedReplies;
use super::peer_message::PeerMessage;
use super::peers::PeerFaults;
use super::{Redis, RedisAccess, RedisConnection, SharedError};
use crate::clock;
use config::RedisAddress;
use net::jitter::jittered;
use net::{dns, tls};

/// How long a connection may take until it can be used, if operations may not take longer.
const CONNECT_TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// Between two attempts to connect: at first, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Between two log lines of connections that fail for the same reason.
const LOG_PAUSE: Duration = Duration::from_mins(1);
/// How often it is found out whether the connection still works.
const BEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Commands of all threads that wait to be written.
const COMMANDS_MAX: usize = 1024;
/// Messages of other replicas that wait to be heard. Beyond, the connection is made anew.
const MESSAGES_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PeerEvent {
    /// From now on everything is heard. What was told before may have been missed.
    Joined,
    Message(PeerMessage),
}

/// Why there is no connection. Says nothing of passwords.
#[derive(Debug, thiserror::Error)]
enum ConnectError {
    #[error("the server did not answer in time")]
    TimedOut,
    #[error("cannot connect: {0}")]
    Connect(#[from] std::io::Error),
    #[error("no TLS: {0}")]
    Tls(#[from] tls::TlsFault),
    #[error("{0}")]
    Redis(#[from] RedisError),
    #[error("the connection was closed")]
    Closed,
    /// The password or whom to trust.
    #[error("{0}")]
    Access(#[from] SharedError),
}

/// Something that is read from a disk. One that hangs takes one thread, however often it was waited for in vain.
struct PendingRead<T>(Option<JoinHandle<T>>);

impl<T: Send + 'static> PendingRead<T> {
    /// The result of the read under way, or else of `read`, which begins now. `None`: it panicked.
    async fn finish(&mut self, read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let found = self.0.get_or_insert_with(|| spawn_blocking(read)).await;
        self.0 = None;
        found.ok()
    }
}

type AccessReading = PendingRead<Result<RedisAccess, SharedError>>;

trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Connects, and connects again, for as long as the process runs. `keys` says what the other replicas are told of this
/// one's keys.
pub(crate) async fn run(shared: Arc<Redis>, keys: impl Fn() -> String, hear: impl Fn(PeerEvent)) {
    tokio::join!(shared.say(), shared.lease(), shared.stay_connected(keys, hear));
}

impl Redis {
    async fn stay_connected(self: &Arc<Self>, keys: impl Fn() -> String, hear: impl Fn(PeerEvent)) {
        let mut pause = PAUSE_MIN;
        let mut logged: Option<(String, Instant)> = None;
        let mut faults = PeerFaults::default();
        let mut reading = PendingRead(None);
        loop {
            let started = Instant::now();
            let epoch = self.epoch();
            let result = self.serve(&keys, &hear, (&mut faults, &mut reading)).await;
            self.link.store(None);
            self.note_connected(false);
            if self.epoch() != epoch {
                logged = None;
                if started.elapsed() > PAUSE_MAX {
                    pause = PAUSE_MIN;
                }
            }
            if let Err(failure) = result {
                self.has_failed.store(true, Ordering::Relaxed);
                let reason = failure.to_string();
                let is_known =
                    |(before, at): &(String, Instant)| *before == reason && at.elapsed() < LOG_PAUSE;
                if !logged.as_ref().is_some_and(is_known) {
                    tracing::warn!(
                        reason,
                        "no connection to what replicas share: each goes by what it knows"
                    );
                    logged = Some((reason, Instant::now()));
                }
            }
            sleep(jittered(pause, 0.5..1.0)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn serve(
        self: &Arc<Self>,
        keys: &impl Fn() -> String,
        hear: &impl Fn(PeerEvent),
        (faults, reading): (&mut PeerFaults, &mut AccessReading),
    ) -> Result<(), ConnectError> {
        let (sender, mut messages) = mpsc::channel(MESSAGES_MAX);
        let patience = CONNECT_TIMEOUT_MIN.max(self.timeout() * 4);
        let redis = Arc::clone(self);
        // A password that was rotated is the one of the next connection.
        let read = move || RedisAccess::read(&redis.config, redis.system_roots.as_ref());
        let access = timeout(patience, reading.finish(read)).await.map_err(|_| ConnectError::TimedOut)?;
        let access = access.ok_or(ConnectError::Closed)??;
        let (login, settings) = (self.login(&access), self.settings(sender));
        let connect = async {
            let stream = BoundedReplies::new(self.stream(&access).await?);
            Ok::<_, ConnectError>(MultiplexedConnection::new_with_config(&login, stream, settings).await?)
        };
        let (mut connection, driver) =
            timeout(patience, connect).await.map_err(|_| ConnectError::TimedOut)??;
        let mut driver = pin!(driver);
        let prepare = async {
            connection.subscribe(self.channel()).await?;
            self.first_beat(&mut connection, &keys()).await
        };
        let peers = tokio::select! {
            () = &mut driver => return Err(ConnectError::Closed),
            prepared = timeout(patience, prepare) => prepared.map_err(|_| ConnectError::TimedOut)??,
        };
        // Of an earlier connection.
        let _ = timeout(Duration::ZERO, self.broken.notified()).await;
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.link.store(Some(Arc::new(RedisConnection { connection, failures: AtomicU32::new(0) })));
        self.note_connected(true);
        tracing::info!(replicas = peers.count + 1, "connected to what replicas share");
        self.meet(faults, peers, clock::now());
        hear(PeerEvent::Joined);
        self.joined.notify_waiters();
        let listen = async {
            while let Some(message) = messages.recv().await {
                if let Some(message) = self.read_message(&message) {
                    hear(PeerEvent::Message(message));
                }
            }
        };
        tokio::select! {
            () = driver => Err(ConnectError::Closed),
            () = self.broken.notified() => Ok(()),
            () = self.beat_on(keys, faults) => Ok(()),
            () = listen => Err(ConnectError::Closed),
        }
    }

    async fn beat_on(&self, keys: &impl Fn() -> String, faults: &mut PeerFaults) {
        let mut interval = tokio::time::interval(BEAT_INTERVAL);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.is_connected() {
            interval.tick().await;
            if let Some(peers) = self.beat(&keys()).await {
                self.meet(faults, peers, clock::now());
            }
        }
    }

    async fn stream(&self, access: &RedisAccess) -> Result<Box<dyn ByteStream>, ConnectError> {
        Ok(match &self.config.redis.address {
            RedisAddress::Tcp { host, port, .. } => {
                let stream = dns::connect(host, *port).await?;
                stream.set_nodelay(true)?;
                match &access.connector {
                    Some(connector) => Box::new(connector.connect(stream, host).await?),
                    None => Box::new(stream),
                }
            }
            RedisAddress::Unix(path) => Box::new(UnixStream::connect(path).await?),
        })
    }

    fn login(&self, access: &RedisAccess) -> RedisConnectionInfo {
        let mut login = RedisConnectionInfo::default()
            .set_protocol(ProtocolVersion::RESP3)
            .set_db(i64::from(self.config.redis.database))
            .set_skip_set_lib_name();
        if let Some(username) = &self.config.username {
            login = login.set_username(username);
        }
        if let Some(password) = &access.password {
            login = login.set_password(String::from_utf8_lossy(password.expose()));
        }
        login
    }

    fn settings(self: &Arc<Self>, messages: mpsc::Sender<Vec<u8>>) -> AsyncConnectionConfig {
        let shared = Arc::downgrade(self);
        let hear = move |pushed: PushInfo| {
            let Some(message) = message_of(pushed) else { return Ok(()) };
            messages.try_send(message).inspect_err(|_| {
                // What is missed is made up for after a new start.
                if let Some(shared) = shared.upgrade() {
                    shared.broken.notify_one();
                }
            })
        };
        AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(COMMANDS_MAX)
            .set_push_sender(hear)
    }

    /// Waits for the first connection; at most for as long as an operation may take.
    pub(crate) async fn first_connection(&self) {
        let _ = timeout(self.timeout(), self.connected_after(0)).await;
    }

    /// Waits for a connection after the one of `epoch`.
    pub(super) async fn connected_after(&self, epoch: u64) {
        loop {
            let joined = self.joined.notified();
            if self.epoch() != epoch && self.is_connected() {
                return;
            }
            joined.await;
        }
    }
}

fn message_of(pushed: PushInfo) -> Option<Vec<u8>> {
    match (pushed.kind, pushed.data.into_iter().nth(1)) {
        (PushKind::Message, Some(Value::BulkString(message))) => Some(message),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as sync;

    use super::*;

    #[tokio::test]
    async fn a_disk_that_hangs_takes_one_thread() {
        let mut reading = PendingRead(None);
        let (disk, hangs) = sync::channel::<u32>();
        let first = reading.finish(move || hangs.recv().unwrap_or_default());
        assert!(timeout(Duration::from_millis(10), first).await.is_err());
        for _ in 0..3 {
            let again = reading.finish(|| unreachable!("it is being read"));
            assert!(timeout(Duration::from_millis(10), again).await.is_err());
        }
        disk.send(7).expect("it waits");
        assert_eq!(reading.finish(|| unreachable!("it is being read")).await, Some(7));
        assert_eq!(reading.finish(|| 8).await, Some(8), "read anew");
    }
}
