//! A folder for what lives no longer than the program: others may not enter it, and it goes with its value.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// More than one is taken only where somebody else made folders of these names.
const ATTEMPTS: u32 = 100;

/// A folder that is removed when this is dropped, with all that is in it.
#[derive(Debug)]
pub(super) struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// A new folder below `TMPDIR`, or `/tmp`. One that is there already is never taken.
    pub(super) fn new() -> std::io::Result<Self> {
        let below = std::path::absolute(std::env::temp_dir())?;
        let process = std::process::id();
        for attempt in 0..ATTEMPTS {
            let path = below.join(format!("trunkline-demo-{process}-{attempt}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Self(path)),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::error!(path = %self.0.display(), %error, "the folder of the demo is left behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn each_is_another_for_its_owner_alone_and_goes_with_what_is_in_it() {
        let (first, second) =
            (TemporaryFolder::new().expect("a folder"), TemporaryFolder::new().expect("another"));
        assert_ne!(first.path(), second.path());
        let path = first.path().to_owned();
        let mode = path.metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        std::fs::create_dir(path.join("within")).expect("a folder within");
        drop(first);
        assert!(!path.exists() && second.path().exists());
    }
}
