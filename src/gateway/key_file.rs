//! Key files: read, made where there is none, and given a new key.
//!
//! A file appears or changes at once or not at all, whatever stops the process, and only its owner can read
//! it: its text is written to a file beside it, forced to the disk, and then given the name. Root puts new keys into files
//! of the service's user, who could put a link there: see [`Dir`].

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::directory::Dir;
use net::regular_file;
use net::secret::exposure;
use tokens::sealing::{self, KEY_BYTES, KeysError, SealingKeys, hex};
use zeroize::Zeroizing;

/// More than any key file needs.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Permission bits of writers who are not the owner.
const MODE_OTHERS_WRITE: u32 = 0o022;
/// Old keys that a new one leaves in the file, unless more are wanted.
pub const OLD_KEYS_KEPT: usize = 3;
/// The most of them: with the new one, as many as a file may have.
pub const OLD_KEYS_KEPT_MAX: usize = sealing::KEYS_MAX - 1;

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file cannot be read.
    #[error("cannot read the key file {}: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// Others could put a key of theirs there, and make session ids.
    #[error("key file {}: others may write it (mode {mode:04o}), and with a key of theirs be anybody: chmod go-w", path.display())]
    Writable {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file cannot be made or changed.
    #[error("cannot write the key file {}: {reason}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// The file holds something else.
    #[error("key file {}: {reason}", path.display())]
    Keys {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: KeysError,
    },
    /// The system has no randomness.
    #[error("no randomness for a key")]
    Randomness(#[from] getrandom::Error),
}

/// What [`rotate`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// There was no file; now there is, with one key.
    Created,
    /// There is a new key before so many old ones.
    Added {
        /// Old keys that still open session ids.
        kept: usize,
        /// Old keys that are gone.
        dropped: usize,
    },
}

/// The keys of a file that must exist.
pub fn load(path: &Path) -> Result<SealingKeys, KeyFileError> {
    let text = load_text(path)?;
    SealingKeys::from_text(&text).map_err(|reason| KeyFileError::Keys { path: path.to_owned(), reason })
}

/// The text of a file that must exist, for keys of several purposes.
pub(crate) fn load_text(path: &Path) -> Result<Zeroizing<String>, KeyFileError> {
    let read_failed = |reason| KeyFileError::Read { path: path.to_owned(), reason };
    let file = regular_file::open(path).map_err(read_failed)?;
    let mode = file.metadata().map_err(read_failed)?.mode() & 0o7777;
    if mode & MODE_OTHERS_WRITE != 0 {
        return Err(KeyFileError::Writable { path: path.to_owned(), mode });
    }
    if let Some(warning) = exposure(path) {
        tracing::warn!("{warning}");
    }
    read(file).map(Zeroizing::new).map_err(read_failed)
}

/// The keys of a file, which is made if there is none.
pub fn load_or_create(path: &Path) -> Result<SealingKeys, KeyFileError> {
    create_if_missing(path)?;
    load(path)
}

/// Makes the file if there is none.
pub(crate) fn create_if_missing(path: &Path) -> Result<(), KeyFileError> {
    if !path.exists() {
        let (directory, name) = place(path)?;
        create(&directory, &name, path)?;
    }
    Ok(())
}

/// Puts a new key on top of a file, and keeps the newest of the old ones, at most `kept_max`; or makes the file.
pub fn rotate(path: &Path, kept_max: usize) -> Result<Rotation, KeyFileError> {
    // Of a symbolic link the file it leads to is replaced, not the link.
    let (directory, name) = place(path)?;
    let read_failed = |reason| KeyFileError::Read { path: path.to_owned(), reason };
    let file = match directory.file(&name).map_err(read_failed)? {
        Some(file) => file,
        None if create(&directory, &name, path)? => return Ok(Rotation::Created),
        None => return Err(read_failed(io::ErrorKind::NotFound.into())),
    };
    let text = file.text(FILE_BYTES_MAX).map_err(read_failed)?;
    let old = sealing::parse(&text).map_err(|reason| KeyFileError::Keys { path: path.to_owned(), reason })?;
    let kept = old.len().min(kept_max.min(OLD_KEYS_KEPT_MAX));
    let mut all = vec![sealing::random_key()?];
    all.extend_from_slice(&old[..kept]);
    // An operator who is root must not take the file away from the service's user.
    directory
        .replace(&name, text_of(&all).as_bytes(), Some(&file))
        .map_err(|reason| KeyFileError::Write { path: path.to_owned(), reason })?;
    Ok(Rotation::Added { kept, dropped: old.len() - kept })
}

fn place(path: &Path) -> Result<(Dir, std::ffi::OsString), KeyFileError> {
    Dir::of_file(path).map_err(|reason| KeyFileError::Write { path: path.to_owned(), reason })
}

/// Makes the file with one new key. False if another process made it meanwhile: then that one counts.
fn create(directory: &Dir, name: &OsStr, path: &Path) -> Result<bool, KeyFileError> {
    let text = text_of(&[sealing::random_key()?]);
    let created = directory.create(name, text.as_bytes());
    created.map_err(|reason| KeyFileError::Write { path: path.to_owned(), reason })
}

fn text_of(keys: &[[u8; KEY_BYTES]]) -> String {
    let mut text = "# Keys, newest first: the first seals, all open.\n".to_owned();
    for key in keys {
        text.push_str(&hex(key));
        text.push('\n');
    }
    text
}

fn read(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "too large for a key file"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, lchown};

    use super::*;

    fn opens(opener: &SealingKeys, sealer: &SealingKeys) -> bool {
        let mut text = *b"sealed";
        let tag = sealer.seal([0; 12], b"", &mut text).expect("sealed");
        opener.open(sealer.sealing_id(), [0; 12], b"", &mut text, tag)
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("file").permissions().mode() & 0o777
    }

    #[test]
    fn a_file_is_made_once_and_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("session.key");
        assert!(load(&path).expect_err("no file").to_string().contains("session.key"));
        let made = load_or_create(&path).expect("made");
        let again = load_or_create(&path).expect("read");
        assert!(opens(&again, &made));
        assert_eq!(mode(&path), 0o600);
        let (directory, name) = place(&path).expect("a place");
        let is_created = create(&directory, &name, &path).expect("there already");
        assert!(!is_created, "another process' file was replaced");
        assert!(opens(&load(&path).expect("read"), &made));
        assert_eq!(fs::read_dir(folder.path()).expect("folder").count(), 1, "something was left behind");
    }

    #[test]
    fn many_at_once_agree_on_one_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("session.key");
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || load_or_create(&path).expect("keys"))
            })
            .collect();
        let keys: Vec<SealingKeys> =
            threads.into_iter().map(|thread| thread.join().expect("thread")).collect();
        assert!(keys.iter().all(|other| opens(other, &keys[0])));
    }

    #[test]
    fn rotation_keeps_the_three_newest() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keys");
        assert_eq!(rotate(&path, OLD_KEYS_KEPT).expect("made"), Rotation::Created);
        let mut generations = vec![load(&path).expect("keys")];
        for (kept, dropped) in [(1, 0), (2, 0), (3, 0), (3, 1), (3, 1)] {
            assert_eq!(rotate(&path, OLD_KEYS_KEPT).expect("rotated"), Rotation::Added { kept, dropped });
            generations.push(load(&path).expect("keys"));
            assert_eq!(mode(&path), 0o600);
        }
        let newest = generations.last().expect("one");
        let opened: Vec<bool> = generations.iter().map(|old| opens(newest, old)).collect();
        assert_eq!(opened, [false, false, true, true, true, true]);
        assert_eq!(fs::read_dir(folder.path()).expect("folder").count(), 1, "something was left behind");
    }

    #[test]
    fn as_many_old_keys_stay_as_are_wanted_and_a_file_may_have() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keys");
        for _ in 0..20 {
            rotate(&path, usize::MAX).expect("rotated");
        }
        let keys = || sealing::parse(&fs::read_to_string(&path).expect("text")).expect("keys").len();
        assert_eq!(keys(), OLD_KEYS_KEPT_MAX + 1);
        load(&path).expect("as many as are read");
        assert_eq!(rotate(&path, 5).expect("rotated"), Rotation::Added { kept: 5, dropped: 11 });
        assert_eq!(rotate(&path, 0).expect("rotated"), Rotation::Added { kept: 0, dropped: 6 });
    }

    #[test]
    fn a_link_stays_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        rotate(&target, OLD_KEYS_KEPT).expect("made");
        std::os::unix::fs::symlink(&target, &link).expect("link");
        assert_eq!(rotate(&link, OLD_KEYS_KEPT).expect("rotated"), Rotation::Added { kept: 1, dropped: 0 });
        assert!(fs::symlink_metadata(&link).expect("link").is_symlink());
    }

    /// The directory belongs to the service's user, and the command is run by root, where the tests may be both.
    #[test]
    fn a_link_of_the_service_does_not_lead_root_elsewhere() {
        const SERVICE: u32 = 54_321;
        let is_root = rustix::process::geteuid().is_root();
        let (state, elsewhere) =
            (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let (target, link) = (elsewhere.path().join("keys"), state.path().join("session.key"));
        rotate(&target, OLD_KEYS_KEPT).expect("made");
        std::os::unix::fs::symlink(&target, &link).expect("a link");
        let owner = if is_root { SERVICE } else { fs::metadata(state.path()).expect("a folder").uid() };
        for path in [&link, state.path()] {
            lchown(path, Some(owner), None).expect("given");
        }
        let before = fs::read(&target).expect("a file");
        let rotated = rotate(&link, OLD_KEYS_KEPT);
        assert_eq!(rotated.is_err(), is_root, "{rotated:?}");
        assert_eq!(fs::read(&target).expect("a file") == before, is_root);

        // Not by way of a directory either.
        let (inside, keys) = (state.path().join("inside"), state.path().join("inside/keys"));
        std::os::unix::fs::symlink(elsewhere.path(), &inside).expect("a link");
        lchown(&inside, Some(owner), None).expect("given");
        assert_eq!(rotate(&keys, OLD_KEYS_KEPT).is_err(), is_root);
        // What is there without a link is done as ever, and stays the service's.
        let own = state.path().join("own.key");
        for _ in 0..2 {
            rotate(&own, OLD_KEYS_KEPT).expect("rotated");
            assert_eq!(fs::metadata(&own).expect("a file").uid(), owner);
        }
    }

    #[test]
    fn what_is_no_key_file_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("keys");
        for text in [&b"not a key\n"[..], b"\xff\xfe", &vec![b'#'; 65 << 10]] {
            fs::write(&path, text).expect("written");
            assert!(load_or_create(&path).is_err());
            assert!(rotate(&path, OLD_KEYS_KEPT).expect_err("refused").to_string().contains("keys"));
            assert_eq!(fs::read(&path).expect("file"), text);
        }
    }
}
