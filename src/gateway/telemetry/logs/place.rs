//! Files that lines are added to, and standard error.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Who may read a new file: its owner and group.
const MODE: u32 = 0o640;

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A file cannot be opened.
    #[error("cannot open the log file {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no standard error, or no thread to write.
    #[error("cannot start logging")]
    Start(#[source] io::Error),
}

/// Opens a file to add to, and makes it if there is none.
pub(super) fn open(path: &Path) -> Result<File, LogError> {
    add_to(path, true).map_err(|source| LogError::File { path: path.to_owned(), source })
}

fn add_to(path: &Path, may_make: bool) -> io::Result<File> {
    // To open one waits for its reader.
    if std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a named pipe"));
    }
    File::options().append(true).create(may_make).mode(MODE).open(path)
}

/// Whether [`open`] would succeed, as far as that can be told without making a file.
pub(super) fn look(path: &Path) -> Result<(), LogError> {
    let looked = match add_to(path, false).map(drop) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().unwrap_or(path);
            std::fs::metadata(folder).and_then(|found| {
                if found.is_dir() { Ok(()) } else { Err(io::ErrorKind::NotADirectory.into()) }
            })
        }
        looked => looked,
    };
    looked.map_err(|source| LogError::File { path: path.to_owned(), source })
}

/// Standard error, without the lock that others may hold while they wait for its reader.
pub(super) fn standard_error() -> Result<File, LogError> {
    io::stderr().as_fd().try_clone_to_owned().map(File::from).map_err(LogError::Start)
}

/// Whether this is the journal, by what systemd says of it in `JOURNAL_STREAM`: `DEVICE:INODE`.
pub(super) fn is_journal(file: &File, stream: Option<&str>) -> bool {
    let parts = stream.and_then(|stream| stream.split_once(':'));
    let named = parts.and_then(|(device, inode)| Some((device.parse().ok()?, inode.parse().ok()?)));
    let found = file.metadata().ok().map(|found| (found.dev(), found.ino()));
    named.is_some() && named == found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_journal_by_device_and_inode() {
        let file = File::open("/dev/null").expect("a device");
        let found = file.metadata().expect("its numbers");
        let (device, inode) = (found.dev(), found.ino());
        for (stream, expected) in [
            (Some(format!("{device}:{inode}")), true),
            (Some(format!("{device}:{}", inode + 1)), false),
            (Some(format!("{device}")), false),
            (Some("x:y".into()), false),
            (Some(String::new()), false),
            (None, false),
        ] {
            assert_eq!(is_journal(&file, stream.as_deref()), expected, "{stream:?}");
        }
    }

    #[test]
    fn opens_only_what_can_be_added_to_at_once() {
        let error = open(Path::new("/nowhere/trunkline.log")).expect_err("no directory");
        assert_eq!(error.to_string(), "cannot open the log file /nowhere/trunkline.log");
        assert!(open(Path::new("/proc")).is_err(), "a directory");
    }
}
