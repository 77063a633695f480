//! The file of a store: made whole or not at all, locked by one process, its room reserved before it is used.
//!
//! A new file is written under the name `NAME.new` and linked to its own name once it is a store, so that a start that was
//! ended leaves no file that the next one refuses. Room is reserved when the file grows: a full disk shows there, and not
//! in the middle of a deletion.
//!
//! Invariants: its mode is 0600; no link is followed to it; it never grows beyond the bound.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};
use rustix::fs::{Advice, FallocateFlags, OFlags};

use crate::error::StoreError;

/// The mode of the file: it belongs to the gateway's user alone.
const MODE: u32 = 0o600;

/// The figures of a file, for all who look.
#[derive(Debug, Default)]
pub(crate) struct FileFigures {
    pub(crate) fsyncs: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

/// The place of a file, from which it can be opened again.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) file_bytes_max: u64,
    pub(crate) figures: Arc<FileFigures>,
    #[cfg(test)]
    pub(crate) faults: Option<Arc<dyn Faults>>,
}

impl Place {
    /// The place of the file at `path`, which never has more than `file_bytes_max`.
    pub(crate) fn new(path: &Path, file_bytes_max: u64) -> Self {
        Self {
            path: path.to_owned(),
            file_bytes_max,
            figures: Arc::default(),
            #[cfg(test)]
            faults: None,
        }
    }

    /// Opens the file; `None`: there is none.
    pub(crate) fn open(&self) -> Result<Option<StoreFile>, StoreError> {
        match options().open(&self.path) {
            Ok(file) => {
                let file = self.take(file)?;
                // The database would take an empty file for a new one.
                match self.figures.bytes.load(Ordering::Relaxed) {
                    0 => Err(StoreError::Damaged("the file is empty".to_owned())),
                    _ => Ok(Some(file)),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StoreError::of_io(&error)),
        }
    }

    /// Opens an empty file beside that which there is to be. It becomes that by [`Self::settle`].
    pub(crate) fn open_new(&self) -> Result<StoreFile, StoreError> {
        let file = options().create(true).open(self.aside()).map_err(|error| StoreError::of_io(&error))?;
        // Another process may be about to make it.
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::InUse("it is just being made".to_owned()));
            }
            Err(TryLockError::Error(error)) => return Err(StoreError::of_io(&error)),
        }
        file.set_len(0).map_err(|error| StoreError::of_io(&error))?;
        self.take(file)
    }

    /// Gives the new file its name, which no other file has, durably.
    pub(crate) fn settle(&self) -> Result<(), StoreError> {
        let aside = self.aside();
        std::fs::hard_link(&aside, &self.path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => StoreError::InUse("another process has just made it".to_owned()),
            _ => StoreError::of_io(&error),
        })?;
        self.discard_new();
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let synced = File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
        synced.map_err(|error| StoreError::of_io(&error))
    }

    /// Removes what a start has left behind that was ended while it made the file.
    pub(crate) fn discard_new(&self) {
        // One that stays harms nothing: it is emptied before it is used.
        let _ = std::fs::remove_file(self.aside());
    }

    fn aside(&self) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(".new");
        name.into()
    }

    fn take(&self, file: File) -> Result<StoreFile, StoreError> {
        let taken = || -> io::Result<StoreFile> {
            let metadata = file.metadata()?;
            if !metadata.is_file() {
                return Err(io::Error::other("it is no regular file"));
            }
            if metadata.permissions().mode() & 0o7777 != MODE {
                file.set_permissions(Permissions::from_mode(MODE))?;
            }
            // Pages that a failure left in memory alone must not pass for what the disk has.
            let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
            self.figures.bytes.store(metadata.len(), Ordering::Relaxed);
            Ok(StoreFile {
                backend: FileBackend::new(file.try_clone()?).map_err(io::Error::other)?,
                file,
                place: self.clone(),
            })
        };
        taken().map_err(|error| StoreError::of_io(&error))
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    options.read(true).write(true).mode(MODE).custom_flags(flags);
    options
}

/// An open file. It is locked as soon as a database is made of it.
#[derive(Debug)]
pub(crate) struct StoreFile {
    backend: FileBackend,
    /// The same open file, to reserve room.
    file: File,
    place: Place,
}

impl StoreFile {
    fn reserve(&self, from: u64, to: u64) -> io::Result<()> {
        if to > self.place.file_bytes_max {
            let bound = self.place.file_bytes_max;
            let text = format!("the file would have {to} bytes, and its bound is {bound}");
            return Err(io::Error::new(io::ErrorKind::StorageFull, text));
        }
        let kept = rustix::fs::fallocate(&self.file, FallocateFlags::empty(), from, to - from);
        match kept {
            Ok(()) => Ok(()),
            // Not every file system can.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => self.backend.set_len(to),
            Err(error) => Err(error.into()),
        }
    }
}

impl StorageBackend for StoreFile {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        #[cfg(test)]
        self.fault(|faults| faults.before_read())?;
        self.backend.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        #[cfg(test)]
        self.fault(|faults| faults.before_resize(len))?;
        let before = self.backend.len()?;
        if len > before { self.reserve(before, len) } else { self.backend.set_len(len) }?;
        self.place.figures.bytes.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        #[cfg(test)]
        self.fault(|faults| faults.before_sync())?;
        self.backend.sync_data()?;
        self.place.figures.fsyncs.fetch_add(1, Ordering::Relaxed);
        #[cfg(test)]
        self.fault(|faults| faults.after_sync())?;
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        if let Some(faults) = &self.place.faults {
            return faults.write(offset, data, &|part| self.backend.write(offset, part));
        }
        self.backend.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.backend.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.backend.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.backend.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.backend.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.backend.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.backend.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.backend.query_lock_range(start, end)
    }
}

#[cfg(test)]
impl StoreFile {
    fn fault(&self, of: impl Fn(&dyn Faults) -> io::Result<()>) -> io::Result<()> {
        self.place.faults.as_deref().map_or(Ok(()), of)
    }
}

/// Faults of the disk, for tests. Each operation is looked at before it is done, and succeeds by default.
#[cfg(test)]
pub(crate) trait Faults: std::fmt::Debug + Send + Sync {
    fn before_read(&self) -> io::Result<()> {
        Ok(())
    }

    fn before_resize(&self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn before_sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn after_sync(&self) -> io::Result<()> {
        Ok(())
    }

    /// Writes `data`, or a part of it.
    fn write(&self, _offset: u64, data: &[u8], write: &dyn Fn(&[u8]) -> io::Result<()>) -> io::Result<()> {
        write(data)
    }
}
