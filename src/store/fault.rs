//! Failures inside: each error of the database becomes the [`StoreError`] of its remedy.

use crate::error::StoreError;

/// A [`StoreError`] that every error of the database turns into. It does not leave the crate.
#[derive(Debug)]
pub(crate) struct Fault(pub(crate) StoreError);

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self(error)
    }
}

impl From<Fault> for StoreError {
    fn from(Fault(error): Fault) -> Self {
        error
    }
}

macro_rules! from_database {
    ($($error:ident),*) => {$(
        impl From<redb::$error> for Fault {
            fn from(error: redb::$error) -> Self {
                Self(told(error.into()))
            }
        }
    )*};
}

from_database!(CommitError, CompactionError, DatabaseError, StorageError, TableError, TransactionError);

fn told(error: redb::Error) -> StoreError {
    use redb::Error;
    match error {
        Error::Io(error) => StoreError::of_io(&error),
        Error::DatabaseAlreadyOpen | Error::LockProtocolMismatch => {
            StoreError::InUse("its file is locked".to_owned())
        }
        Error::UpgradeRequired(version) => StoreError::OtherVersion(format!("its file has format {version}")),
        Error::Corrupted(what) => StoreError::Damaged(what),
        Error::DatabaseClosed => StoreError::Closed,
        Error::TableTypeMismatch { .. }
        | Error::TypeDefinitionChanged { .. }
        | Error::TableIsMultimap(_)
        | Error::TableIsNotMultimap(_)
        | Error::TableDoesNotExist(_) => StoreError::OtherVersion(error.to_string()),
        other => StoreError::Io(other.to_string()),
    }
}

/// The result of `work`, of which a panic is a failure of the database: its thread goes on.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        Err(Fault(StoreError::Io(format!("the database gave up: {text}"))))
    })
}
