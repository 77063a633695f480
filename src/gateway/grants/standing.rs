//! The standing of sign-in as operators see it: how much is kept, why the store or the provider does not do its part, and copies
//! of the store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use store::{Sizes, StoreError};

use super::records::Records;
use super::{Grants, STORE_FILE};
use crate::clock::now_s;
use crate::state_files::StateFileFault;

/// A file of sign-ins, and its bounds.
#[derive(Debug)]
pub(crate) struct StoreFigures {
    pub sizes: Sizes,
    pub records_max: u64,
    pub file_bytes_max: u64,
}

/// The reason that there is no back-up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackUpError {
    #[error("sign-ins are kept in Redis: back that up")]
    InRedis,
    #[error("not a name for a back-up: 1 to 64 letters, digits and `.`, `_`, `-`, with `.redb` at the end")]
    Name,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the back-up was not made to its end")]
    Unfinished,
}

impl Grants {
    /// The reason that sign-ins can be neither kept nor changed, and since when.
    pub(crate) fn store_fault(&self) -> Option<StateFileFault> {
        if let Records::File(file) = &self.records
            && let Some(failure) = file.failure()
        {
            self.health.store.note_behind(failure.to_string(), now_s());
        }
        self.health.store.fault()
    }

    /// The reason that no more sign-ins can be kept, and since when.
    pub(crate) fn room_fault(&self) -> Option<StateFileFault> {
        self.health.room.fault()
    }

    /// The reason that the provider could not be asked last, and since when.
    pub(crate) fn provider_fault(&self) -> Option<StateFileFault> {
        self.health.provider.fault()
    }

    /// The provider could not be asked.
    pub(crate) fn note_provider_fault(&self, reason: String) {
        self.health.provider.note_behind(reason, now_s());
    }

    /// The provider has answered.
    pub(crate) fn note_provider_answer(&self) {
        self.health.provider.note_written();
    }

    /// The size of the file. `None`: sign-ins are kept in Redis.
    pub(crate) fn figures(&self) -> Option<StoreFigures> {
        let Records::File(file) = &self.records else { return None };
        let limits = file.limits();
        Some(StoreFigures {
            sizes: file.sizes(),
            records_max: limits.records_max,
            file_bytes_max: limits.file_bytes_max,
        })
    }

    /// Copies the store of this moment to a new file beside it. Its path and its bytes.
    pub(crate) async fn back_up(self: &Arc<Self>, name: &str) -> Result<BackUp, BackUpError> {
        let (Records::File(_), Some(folder)) = (&self.records, &self.folder) else {
            return Err(BackUpError::InRedis);
        };
        let path = back_up_path(folder, name).ok_or(BackUpError::Name)?;
        let (grants, to) = (Arc::clone(self), path.clone());
        let copied = tokio::task::spawn_blocking(move || match &grants.records {
            Records::File(file) => Ok(file.copy_to(&to)?),
            Records::Redis(_) => Err(BackUpError::InRedis),
        });
        let bytes = copied.await.map_err(|_| BackUpError::Unfinished)??;
        Ok(BackUp { path, bytes })
    }
}

/// A copy of the store.
#[derive(Debug)]
pub(crate) struct BackUp {
    pub path: PathBuf,
    pub bytes: u64,
}

/// The place of a back-up of this name. The store's own name leads nowhere.
fn back_up_path(folder: &Path, name: &str) -> Option<PathBuf> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_name = name.len() <= 64 && !name.starts_with('.') && name.bytes().all(is_plain);
    (is_name && name.strip_suffix(".redb").is_some() && name != STORE_FILE).then(|| folder.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_back_up_stands_beside_the_store_and_replaces_nothing_of_the_gateway() {
        let folder = Path::new("/state");
        let expected = Some(PathBuf::from("/state/sign-ins-2026-11-29.redb"));
        assert_eq!(back_up_path(folder, "sign-ins-2026-11-29.redb"), expected);
        for name in ["", "copy", STORE_FILE, "../a.redb", "a/b.redb", ".redb", "a b.redb", "session.key"] {
            assert_eq!(back_up_path(folder, name), None, "{name}");
        }
        assert_eq!(back_up_path(folder, &format!("{}.redb", "a".repeat(60))), None);
    }
}
