//! Failures of a store, by what an operator can do about them. Each is a text for the log and for `check`.

use std::io;

/// A failure of a store.
///
/// After [`Full`](Self::Full), [`ReadOnly`](Self::ReadOnly) and [`Busy`](Self::Busy) nothing was changed. After any other
/// failure of a commit it is not known whether the commit was done: all of it or nothing, which a new read tells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no room for more, on the disk or by the limits. Reads, deletions and changes that need no more room go on.
    #[error("the store has no room for more: {0}")]
    Full(String),
    /// The file or its directory cannot be written.
    #[error(
        "the store cannot be written: {0}; the gateway's user needs to read and write the file and its directory"
    )]
    ReadOnly(String),
    /// The file is not as it was written.
    #[error(
        "the store is damaged: {0}; stop the gateway, keep the file for a look at it, and put a back-up in its place or \
         none, which makes an empty store: all people then have to sign in and connect again"
    )]
    Damaged(String),
    /// The file was written by another version.
    #[error(
        "the store is of another version: {0}; start the version that wrote it, or put a back-up of this one in its place"
    )]
    OtherVersion(String),
    /// Another process has the file open.
    #[error("the store is in use by another process: {0}; one gateway opens it, and several share Redis")]
    InUse(String),
    /// Too much waits for the disk.
    #[error("the store is busy: too many commits or reads wait for the disk")]
    Busy,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The disk failed.
    #[error("the store's disk failed: {0}")]
    Io(String),
}

impl StoreError {
    /// The failure of an operation on files.
    pub(crate) fn of_io(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        match error.kind() {
            Kind::StorageFull | Kind::QuotaExceeded | Kind::FileTooLarge => Self::Full(error.to_string()),
            Kind::ReadOnlyFilesystem | Kind::PermissionDenied => Self::ReadOnly(error.to_string()),
            Kind::InvalidData | Kind::UnexpectedEof => Self::Damaged(error.to_string()),
            _ => Self::Io(error.to_string()),
        }
    }

    /// The same failure, of the file at `path`.
    pub(crate) fn at(self, path: &std::path::Path) -> Self {
        let named = |what: String| format!("{}: {what}", path.display());
        match self {
            Self::Full(what) => Self::Full(named(what)),
            Self::ReadOnly(what) => Self::ReadOnly(named(what)),
            Self::Damaged(what) => Self::Damaged(named(what)),
            Self::OtherVersion(what) => Self::OtherVersion(named(what)),
            Self::InUse(what) => Self::InUse(named(what)),
            Self::Io(what) => Self::Io(named(what)),
            Self::Busy | Self::Closed => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_files_are_told_by_their_remedy() {
        let of = |code: i32| StoreError::of_io(&io::Error::from_raw_os_error(code));
        for full in [28, 122, 27] {
            assert!(matches!(of(full), StoreError::Full(_)), "{full}");
        }
        for read_only in [30, 13, 1] {
            assert!(matches!(of(read_only), StoreError::ReadOnly(_)), "{read_only}");
        }
        assert!(matches!(of(5), StoreError::Io(_)));
        let text = of(28).at(std::path::Path::new("/var/lib/x")).to_string();
        assert!(text.starts_with("the store has no room for more: /var/lib/x: No space left"), "{text}");
    }
}
