//! The parts of a store that its two threads and its callers share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock};
use redb::Database;

use crate::error::StoreError;
use crate::file::FileFigures;
use crate::limits::{KindSize, Sizes};

/// The database, or the reason that there is none.
pub(crate) enum State {
    Open(Database),
    Failed(StoreError),
}

/// The shared parts of a store. Who uses the database holds the lock for reading, so that it can be replaced.
pub(crate) struct Shared {
    pub(crate) state: RwLock<State>,
    /// A read has failed: nothing goes on until the file was opened again.
    pub(crate) is_faulty: AtomicBool,
    pub(crate) figures: Arc<FileFigures>,
    pub(crate) kinds: Mutex<BTreeMap<String, KindSize>>,
    /// The bytes of the commits that wait.
    pub(crate) queued_bytes: AtomicUsize,
    pub(crate) commits: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    pub(crate) reopened: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        database: Database,
        figures: Arc<FileFigures>,
        kinds: BTreeMap<String, KindSize>,
    ) -> Self {
        Self {
            state: RwLock::new(State::Open(database)),
            is_faulty: AtomicBool::new(false),
            figures,
            kinds: Mutex::new(kinds),
            queued_bytes: AtomicUsize::new(0),
            commits: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
            reopened: AtomicU64::new(0),
        }
    }

    /// Does `work` with the database, if there is one.
    pub(crate) fn with<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, E>,
    ) -> Result<T, E> {
        match &*self.state.read() {
            State::Open(database) => work(database),
            State::Failed(error) => Err(error.clone().into()),
        }
    }

    /// The failure, while there is one.
    pub(crate) fn failure(&self) -> Option<StoreError> {
        match &*self.state.read() {
            State::Open(_) => None,
            State::Failed(error) => Some(error.clone()),
        }
    }

    pub(crate) fn sizes(&self) -> Sizes {
        let of = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        Sizes {
            kinds: self.kinds.lock().clone(),
            file_bytes: of(&self.figures.bytes),
            fsyncs: of(&self.figures.fsyncs),
            commits: of(&self.commits),
            conflicts: of(&self.conflicts),
            reopened: of(&self.reopened),
        }
    }
}
