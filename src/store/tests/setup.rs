//! A store in a folder of its own, and short words for what is done to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use crate::cases::NOW_S;
use crate::file::Faults;
use crate::file::Place;
use crate::{Change, Changes, Limits, NEVER_S, Name, NewRecord, Outcome, Record, Store, StoreError};

pub(super) const LIMITS: Limits =
    Limits { records_max: 10_000, file_bytes_max: 64 * 1024 * 1024, queue_max: 1024 };

/// A folder for one file, gone with it.
pub(super) struct Folder {
    folder: TempDir,
}

impl Folder {
    pub(super) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("store.redb")
    }

    pub(super) fn try_open(&self) -> Result<Store, StoreError> {
        Store::open(&self.path(), NOW_S, LIMITS)
    }

    pub(super) fn open(&self) -> Store {
        self.try_open().expect("a store")
    }

    /// Opens the file with `faults`, which may make that fail.
    pub(super) fn open_faulty(
        &self,
        faults: &Arc<impl Faults + 'static>,
        limits: Limits,
    ) -> Result<Store, StoreError> {
        let faults: Arc<dyn Faults> = Arc::clone(faults) as _;
        open_faulty(&self.path(), faults, limits)
    }
}

pub(super) fn open_faulty(path: &Path, faults: Arc<dyn Faults>, limits: Limits) -> Result<Store, StoreError> {
    let place = Place { faults: Some(faults), ..Place::new(path, limits.file_bytes_max) };
    Store::open_at(place, NOW_S, limits)
}

pub(super) fn name(name: &str) -> Name {
    Name::new(name).expect("a name")
}

pub(super) fn record(value: &[u8]) -> NewRecord {
    NewRecord::new(value.to_vec(), NEVER_S).expect("short enough")
}

pub(super) fn created(at: &str, value: &[u8]) -> Changes {
    Changes::one(Change::create(name(at), record(value)))
}

pub(super) fn commit(store: &Store, changes: Changes) -> Result<Outcome, StoreError> {
    store.commit(changes, NOW_S).wait()
}

/// Makes a record where there is none. Its generation.
pub(super) fn create(store: &Store, at: &str, value: &[u8]) -> Result<u64, StoreError> {
    match commit(store, created(at, value))? {
        Outcome::Committed(generations) => Ok(generations[0].expect("a generation")),
        Outcome::Conflict => panic!("{at} is there already"),
    }
}

pub(super) fn read(store: &Store, at: &str) -> Result<Option<Record>, StoreError> {
    store.read(name(at), NOW_S).wait()
}

/// The value of a record that may be there.
pub(super) fn value(store: &Store, at: &str) -> Option<Vec<u8>> {
    read(store, at).expect("read").map(|record| record.value)
}
