//! Where sessions are kept: the key file and the journal in the state directory, for one process at a time.
//!
//! Without a state directory sessions end with the process: the key is made at start and written nowhere.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use prometheus::IntCounter;

use super::given_ids::LINES_BYTES_MAX;
use super::journal::{Replay, given_line};
use super::journal_writer::{JournalSender, JournalWriter};
use super::list_lease::ListPools;
use super::rate::Rate;
use super::session_state::SessionState;
use super::streams::StreamBounds;
use super::table::SessionTable;
use super::{Sessions, place_for};
use crate::access::limit::payer::Payer;
use crate::access::limit::shares::Shares;
use crate::clock::now_s;
use crate::directory::open_own;
use crate::key_file::{self, KeyFileError};
use crate::redis::Redis;
use crate::state_files::StateFileFault;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::families::SessionStreamMetrics;
use config::{self, Config};
use tokens::sealing::SealingKeys;

/// Of the keys of sessions, in the state directory.
pub(crate) const KEY_FILE: &str = "session.key";
const JOURNAL_FILE: &str = "sessions.journal";
const LOCK_FILE: &str = "lock";

#[derive(Debug)]
pub(super) struct Store {
    folder: Option<PathBuf>,
    /// Locked for as long as it is open.
    _lock: Option<File>,
    writer: Mutex<Option<JournalWriter>>,
}

/// Why sessions cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No key.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// The directory cannot be used.
    #[error("cannot use the state directory {}: {reason}", path.display())]
    Folder {
        /// The directory or the file in it.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// Another process keeps its sessions there.
    #[error("the state directory {} is used by another process: give each its own by `state_directory`", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// The journal cannot be read or written.
    #[error("cannot keep the session journal {}: {reason}", path.display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
}

impl Sessions {
    /// The sessions of a process that shares nothing with others.
    pub fn unshared(config: &Config, metrics: &Metrics) -> Result<Arc<Self>, StoreError> {
        Self::open_store(config, metrics.sessions.journal_records_lost.clone(), metrics.streams.clone(), None)
    }

    /// The sessions as the last process left them. Counts in `lost` what the journal could not take, and
    /// in `series` what becomes of streams.
    pub(crate) fn open_store(
        config: &Config,
        lost: IntCounter,
        series: SessionStreamMetrics,
        shared: Option<Arc<Redis>>,
    ) -> Result<Arc<Self>, StoreError> {
        let Some(folder) = &config.state_directory else {
            let keys = match &config.session.key_file {
                Some(file) => key_file::load(file)?,
                None => SealingKeys::ephemeral().map_err(KeyFileError::Randomness)?,
            };
            let store = Store { folder: None, _lock: None, writer: Mutex::default() };
            let journal = JournalSender::none(lost);
            return Ok(Arc::new(Self::new(&config.session, keys, journal, (store, shared), series)));
        };
        let lock = lock(folder)?;
        let keys = match &config.session.key_file {
            Some(file) => key_file::load(file)?,
            None => key_file::load_or_create(&folder.join(KEY_FILE))?,
        };
        let path = folder.join(JOURNAL_FILE);
        let (journal, writer, replay) = JournalWriter::open(&path, now_s(), lost)
            .map_err(|reason| StoreError::Journal { path, reason })?;
        let store =
            Store { folder: Some(folder.clone()), _lock: Some(lock), writer: Mutex::new(Some(writer)) };
        let sessions = Self::new(&config.session, keys, journal, (store, shared), series);
        sessions.restore(replay);
        Ok(Arc::new(sessions))
    }

    /// The key file of a new configuration, to be taken over by [`Sessions::reconfigure`]. `None` where there
    /// is no file, and the key stays what it is.
    pub(crate) fn read_keys(&self, config: &Config) -> Result<Option<SealingKeys>, KeyFileError> {
        let in_folder = || self.store.folder.as_ref().map(|folder| folder.join(KEY_FILE));
        config.session.key_file.clone().or_else(in_folder).map(|file| key_file::load(&file)).transpose()
    }

    /// Takes a new configuration over; what it bounds more tightly than before shrinks by and by. Where sessions
    /// are kept does not change.
    pub(crate) fn reconfigure(&self, config: &config::SessionConfig, keys: Option<SealingKeys>) {
        if let Some(keys) = keys {
            self.keys.store(Arc::new(keys));
        }
        self.expiry_s.store(config.expiry.as_secs(), Ordering::Relaxed);
        self.idle_s.store(config.idle_timeout.as_secs(), Ordering::Relaxed);
        self.places.set_max(config.sessions_max);
        self.upstream_places.set_max(config.upstream_sessions_max);
        self.list_places.set_max(config.upstream_sessions_max);
        self.places.set_of_payer_max(config.sessions_per_principal_max);
        for places in [&self.upstream_places, &self.list_places] {
            places.set_of_payer_max(config.upstream_sessions_per_principal_max);
        }
        let per_principal_max = config.streams_per_principal_max;
        self.streams.set_max(config.streams_max, per_principal_max, config.stream_queue_bytes_max);
        self.stream_places.set_max(config.upstream_streams_max);
        self.initialize_rate.set_max(config.initialize_rate_max);
        self.tasks_max.store(config.tasks_max, Ordering::Relaxed);
        self.tasks_per_principal_max.store(config.tasks_per_principal_max, Ordering::Relaxed);
        self.task_expiry_s.store(config.task_expiry.as_secs(), Ordering::Relaxed);
    }

    /// What writes the journal, for the thread that will; `None` if there is no journal, or it was taken.
    pub(crate) fn take_writer(self: &Arc<Self>) -> Option<impl FnOnce() + Send + use<>> {
        let writer = self.store.writer.lock().take()?;
        let sessions = Arc::downgrade(self);
        Some(move || writer.run(|| sessions.upgrade().map(|sessions| sessions.remembered())))
    }

    /// The reason why the journal lacks some of what is remembered; `None`: it has everything.
    pub(crate) fn journal_fault(&self) -> Option<StateFileFault> {
        self.journal.fault()
    }

    /// Asks the journal's writer to end once it has written what was told before, and which ids of events clients were
    /// given. False if it cannot be asked.
    pub(crate) fn stop_writer(&self) -> bool {
        self.journal.catch_up();
        self.write_given();
        self.journal.stop()
    }

    /// All that a journal says, as it is in memory.
    fn remembered(&self) -> Replay {
        let mut replay = Replay { tasks: self.remembered_tasks(), ..Replay::default() };
        for shard in self.table.shards() {
            replay.revoked.extend(&shard.revoked);
            replay.sessions.extend(shard.live.iter().map(|(session, entry)| (*session, entry.replayed())));
        }
        replay
    }

    /// Writes down which ids of events clients were given. They are given no more of them here.
    fn write_given(&self) {
        let mut lines = String::new();
        for shard in self.table.shards() {
            let given = shard
                .live
                .iter()
                .filter_map(|(session, entry)| Some((*session, entry, entry.outbox.given()?)));
            for (session, entry, given) in given {
                let line = given_line(session, entry.expires_s, &given);
                if lines.len() + line.len() <= LINES_BYTES_MAX {
                    lines.push_str(&line);
                }
            }
        }
        if !lines.is_empty() {
            self.journal.write_line(lines);
        }
    }

    fn new(
        config: &config::SessionConfig,
        keys: SealingKeys,
        journal: JournalSender,
        (store, shared): (Store, Option<Arc<Redis>>),
        series: SessionStreamMetrics,
    ) -> Self {
        let sessions = Self {
            keys: ArcSwap::from_pointee(keys),
            table: SessionTable::default(),
            places: Shares::new(0),
            upstream_places: Shares::new(0),
            list_places: Shares::new(0),
            streams: StreamBounds::new(series),
            stream_places: Shares::new(0),
            initialize_rate: Rate::default(),
            list_pools: ListPools::default(),
            stranded: Mutex::default(),
            cancelled: super::cancellations::PeerCancellations::default(),
            unsure: Mutex::default(),
            expiry_s: AtomicU64::new(0),
            idle_s: AtomicU64::new(0),
            started_s: now_s(),
            now_s: AtomicU64::new(now_s()),
            swept_s: AtomicU64::new(0),
            joined_epoch: AtomicU64::new(0),
            joined_s: AtomicU64::new(0),
            clock: Mutex::default(),
            forgotten: AtomicU64::new(0),
            journal,
            shared,
            store,
            tasks: Mutex::default(),
            tasks_max: AtomicUsize::new(0),
            tasks_per_principal_max: AtomicUsize::new(0),
            task_expiry_s: AtomicU64::new(0),
        };
        sessions.reconfigure(config, None);
        sessions
    }

    fn restore(&self, replay: Replay) {
        let now_s = self.now_s.load(Ordering::Relaxed);
        let mut left_out = 0;
        self.restore_tasks(replay.tasks);
        for (session, expires_s) in replay.revoked {
            left_out += usize::from(self.table.shard(session).revoke(session, expires_s));
        }
        for (session, replayed) in replay.sessions {
            let Ok(place) = place_for(session, &self.places, Payer::GATEWAY) else {
                left_out += 1;
                continue;
            };
            let entry = SessionState::new(replayed.expires_s, now_s, place, &self.streams);
            let mut changing = entry.lock();
            changing.level = replayed.level;
            changing.subscribed = replayed.subscribed;
            let mut kept = Vec::new();
            for (upstream, opened) in replayed.upstreams {
                match place_for(session, &self.upstream_places, Payer::GATEWAY) {
                    Ok(place) => {
                        changing.slot(&upstream).keep(Arc::new(opened), place);
                        kept.push(upstream);
                    }
                    Err(_) => left_out += 1,
                }
            }
            drop(changing);
            if let Some(given) = replayed.given {
                entry.outbox.restore_given(given);
            }
            self.table.shard(session).live.insert(session, Arc::new(entry));
            for upstream in &kept {
                self.restore_for_list(session, upstream);
            }
        }
        let lines_skipped = replay.lines_skipped;
        if left_out > 0 || lines_skipped > 0 {
            tracing::warn!(lines_skipped, left_out, "the session journal was not read back completely");
        }
    }
}

/// Keeps other processes out, and finds out whether the directory can be written.
fn lock(folder: &Path) -> Result<File, StoreError> {
    let unusable = |path: &Path| {
        let path = path.to_owned();
        move |reason| StoreError::Folder { path, reason }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(unusable(folder))?;
    let path = folder.join(LOCK_FILE);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = open_own(&options, &path).map_err(unusable(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path: folder.to_owned() }),
        Err(TryLockError::Error(reason)) => Err(StoreError::Folder { path, reason }),
    }
}
