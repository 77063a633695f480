//! The store as its callers see it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::answer::Answer;
use crate::batch::{Swept, Task};
use crate::change::{Changes, Outcome};
use crate::error::StoreError;
use crate::file::Place;
use crate::ledger::Ledger;
use crate::limits::{Limits, Sizes};
use crate::name::Name;
use crate::open::{copy, open_or_make};
use crate::reader::{Ask, Listed, Page, Reader};
use crate::record::Record;
use crate::room::Room;
use crate::shared::Shared;
use crate::writer::{TaskReply, Work, Writer};

/// The most bytes of commits that wait.
const QUEUED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// An open store. It is shared by an `Arc`.
///
/// Every time is a Unix second, and comes from the caller: a record whose `until_s` is before it does not exist.
pub struct Store {
    shared: Arc<Shared>,
    work: SyncSender<Work>,
    asks: SyncSender<Ask>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    limits: Limits,
    /// Held while a copy is made.
    copying: Mutex<()>,
}

impl Store {
    /// Opens the store at `path`, or makes an empty one where there is no file. Generations are given on from `now_s`, so that
    /// a file that was set back gives none again.
    ///
    /// Blocks, for as long as the file takes to be read once. An error is a reason not to start: its text says what to do.
    pub fn open(path: &Path, now_s: u64, limits: Limits) -> Result<Self, StoreError> {
        Self::open_at(Place::new(path, limits.file_bytes_max), now_s, limits)
    }

    pub(crate) fn open_at(place: Place, now_s: u64, limits: Limits) -> Result<Self, StoreError> {
        let (database, mut ledger) = open_or_make(&place).map_err(|error| error.at(&place.path))?;
        ledger.generation = ledger.generation.max(Ledger::generation_floor(now_s));
        let shared = Arc::new(Shared::new(database, Arc::clone(&place.figures), ledger.kinds.clone()));
        let queue_max = limits.queue_max.max(1);
        let (work, works) = sync_channel(queue_max);
        let (asks, asked) = sync_channel(queue_max);
        let writer = Writer {
            shared: Arc::clone(&shared),
            place,
            ledger,
            room: Room::new(limits),
            work: works,
            batch_max: queue_max,
            disk_full: None,
        };
        let reader = Reader { shared: Arc::clone(&shared), asks: asked, writer: work.clone() };
        let store = Self { shared, work, asks, threads: Mutex::default(), limits, copying: Mutex::default() };
        store.start("store-writer", move || writer.run())?;
        store.start("store-reader", move || reader.run())?;
        Ok(store)
    }

    fn start(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        self.threads.lock().push(thread.map_err(|error| StoreError::of_io(&error))?);
        Ok(())
    }

    /// The record of this name, if there is one at `now_s`.
    pub fn read(&self, name: Name, now_s: u64) -> Answer<Option<Record>> {
        let (reply, answer) = Answer::new();
        self.ask(Ask::Read { name, now_s, reply }, answer)
    }

    /// A page of the records whose names begin with `prefix`, after the name that the page before it ended with. At most
    /// `count_max` of them, and never more than [`PAGE_RECORDS_MAX`](crate::PAGE_RECORDS_MAX), are looked at.
    pub fn list(&self, prefix: &str, after: Option<Name>, count_max: usize, now_s: u64) -> Answer<Page> {
        let (reply, answer) = Answer::new();
        let from = Listed { prefix: prefix.to_owned(), after, count_max, now_s };
        self.ask(Ask::List { from, reply }, answer)
    }

    /// Does all changes if every record is as expected at `now_s`, and none otherwise. It lasts before the answer is there.
    pub fn commit(&self, changes: Changes, now_s: u64) -> Answer<Outcome> {
        let (reply, answer) = Answer::new();
        let bytes = changes.bytes();
        let before = self.shared.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > QUEUED_BYTES_MAX {
            self.shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Answer::refused(StoreError::Busy);
        }
        match self.work.try_send(Work::Task(Task::Commit { changes, now_s }, TaskReply::Commit(reply))) {
            Ok(()) => answer,
            Err(error) => {
                self.shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
                Answer::refused(refusal(&error))
            }
        }
    }

    /// Removes some of the records that are over at `now_s`: those that ended first, at most 256.
    pub fn sweep(&self, now_s: u64) -> Answer<Swept> {
        let (reply, answer) = Answer::new();
        self.tell(Work::Task(Task::Sweep { now_s }, TaskReply::Sweep(reply)), answer)
    }

    /// Moves what is in the file together, and gives the rest back to the file system. True if there was some. Reads and
    /// commits wait meanwhile.
    pub fn compact(&self) -> Answer<bool> {
        let (reply, answer) = Answer::new();
        self.tell(Work::Compact(reply), answer)
    }

    /// Makes a store at `path` of all that this one has at this moment, for a back-up. Its bytes.
    ///
    /// Blocks until the disk has confirmed the copy. Reads and commits go on; one copy is made at a time. A file at `path` is
    /// not replaced. The file of an open store itself must not be copied, except with a snapshot of its file system.
    pub fn copy_to(&self, path: &Path) -> Result<u64, StoreError> {
        let _one = self.copying.try_lock().ok_or(StoreError::Busy)?;
        let place = Place::new(path, self.limits.file_bytes_max);
        if path.symlink_metadata().is_ok() {
            return Err(
                StoreError::Io("there is a file already, which a copy does not replace".to_owned()).at(path)
            );
        }
        self.shared.with(|database| copy(database, &place).map_err(|error| error.at(path)))?;
        Ok(place.figures.bytes.load(Ordering::Relaxed))
    }

    /// The bounds of the store.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The size of the store, and what it has done.
    pub fn sizes(&self) -> Sizes {
        self.shared.sizes()
    }

    /// The reason that nothing can be read or written at present; `None`: all is well.
    pub fn failure(&self) -> Option<StoreError> {
        self.shared.failure()
    }

    /// Does what waits, and closes the file. Blocks until that is done.
    pub fn close(&self) {
        // One that has ended hears nothing.
        let _ = self.asks.send(Ask::Close);
        let _ = self.work.send(Work::Close);
        for thread in std::mem::take(&mut *self.threads.lock()) {
            let _ = thread.join();
        }
    }

    fn ask<T>(&self, ask: Ask, answer: Answer<T>) -> Answer<T> {
        self.asks.try_send(ask).map_or_else(|error| Answer::refused(refusal(&error)), |()| answer)
    }

    fn tell<T>(&self, work: Work, answer: Answer<T>) -> Answer<T> {
        self.work.try_send(work).map_or_else(|error| Answer::refused(refusal(&error)), |()| answer)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Store").field("sizes", &self.sizes()).finish_non_exhaustive()
    }
}

fn refusal<T>(error: &TrySendError<T>) -> StoreError {
    match error {
        TrySendError::Full(_) => StoreError::Busy,
        TrySendError::Disconnected(_) => StoreError::Closed,
    }
}
