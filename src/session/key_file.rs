//! Key files: read, made where there is none, and given a new key.
//!
//! A file appears or changes at once or not at all, whatever stops the process, and only its owner can read
//! it: its text is written to a file beside it, forced to the disk, and then given the name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::hex;
use super::keys::{self, KEY_BYTES, Keys, KeysError};

/// More than any key file needs.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Old keys that a new one leaves in the file.
const OLD_KEYS_KEPT: usize = 3;

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file cannot be read.
    #[error("cannot read the session key {}: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// The file cannot be made or changed.
    #[error("cannot write the session key {}: {reason}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// The file holds something else.
    #[error("session key {}: {reason}", path.display())]
    Keys {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: KeysError,
    },
    /// The system has no randomness.
    #[error("no randomness for a session key")]
    Randomness(#[from] getrandom::Error),
}

/// What [`rotate`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotated {
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
pub fn load(path: &Path) -> Result<Keys, KeyFileError> {
    let text = read(path).map_err(|reason| KeyFileError::Read { path: path.to_owned(), reason })?;
    Keys::from_text(&text).map_err(|reason| KeyFileError::Keys { path: path.to_owned(), reason })
}

/// The keys of a file, which is made if there is none.
pub fn load_or_create(path: &Path) -> Result<Keys, KeyFileError> {
    if !path.exists() {
        create(path)?;
    }
    load(path)
}

/// Puts a new key on top of a file, and keeps the newest of the old ones; or makes the file.
pub fn rotate(path: &Path) -> Result<Rotated, KeyFileError> {
    // Of a symbolic link the file it leads to is replaced, not the link.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let text = match read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound && create(path)? => {
            return Ok(Rotated::Created);
        }
        Err(reason) => return Err(KeyFileError::Read { path: path.clone(), reason }),
    };
    let old = keys::parse(&text).map_err(|reason| KeyFileError::Keys { path: path.clone(), reason })?;
    let kept = old.len().min(OLD_KEYS_KEPT);
    let mut all = vec![keys::random_key()?];
    all.extend_from_slice(&old[..kept]);
    write_aside(path, &all)
        .and_then(|temporary| {
            keep_owner(path, &temporary.0)?;
            fs::rename(&temporary.0, path)?;
            sync_folder(path)
        })
        .map_err(|reason| KeyFileError::Write { path: path.clone(), reason })?;
    Ok(Rotated::Added { kept, dropped: old.len() - kept })
}

/// Makes the file with one new key. False if another process made it meanwhile: then that one counts.
fn create(path: &Path) -> Result<bool, KeyFileError> {
    let key = keys::random_key()?;
    let link = |temporary: Temporary| match fs::hard_link(&temporary.0, path) {
        Ok(()) => sync_folder(path).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    };
    write_aside(path, &[key])
        .and_then(link)
        .map_err(|reason| KeyFileError::Write { path: path.to_owned(), reason })
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "too large for a key file"));
    }
    Ok(text)
}

/// A file that is removed unless it got another name.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // After a rename there is nothing to remove, and a leftover harms nobody.
        let _ = fs::remove_file(&self.0);
    }
}

fn write_aside(path: &Path, keys: &[[u8; KEY_BYTES]]) -> io::Result<Temporary> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", hex(&random)));
    let temporary = Temporary(name.into());
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary.0)?;
    let mut text = "# Keys of session ids, newest first: the first seals, all open.\n".to_owned();
    for key in keys {
        text.push_str(&hex(key));
        text.push('\n');
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    Ok(temporary)
}

/// An operator who is root must not take the file away from the service's user.
fn keep_owner(from: &Path, to: &Path) -> io::Result<()> {
    let (old, new) = (fs::metadata(from)?, fs::metadata(to)?);
    if (old.uid(), old.gid()) == (new.uid(), new.gid()) {
        return Ok(());
    }
    std::os::unix::fs::chown(to, Some(old.uid()), Some(old.gid()))
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::session::test_folder::Folder;

    fn opens(opener: &Keys, sealer: &Keys) -> bool {
        let mut text = *b"sealed";
        let tag = sealer.seal([0; 12], b"", &mut text).expect("sealed");
        opener.open(sealer.sealing_id(), [0; 12], b"", &mut text, tag)
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("file").permissions().mode() & 0o777
    }

    #[test]
    fn a_file_is_made_once_and_read_again() {
        let folder = Folder::new();
        let path = folder.path().join("session.key");
        assert!(load(&path).expect_err("no file").to_string().contains("session.key"));
        let made = load_or_create(&path).expect("made");
        let again = load_or_create(&path).expect("read");
        assert!(opens(&again, &made));
        assert_eq!(mode(&path), 0o600);
        assert!(!create(&path).expect("there already"), "another process' file was replaced");
        assert!(opens(&load(&path).expect("read"), &made));
        assert_eq!(fs::read_dir(folder.path()).expect("folder").count(), 1, "something was left behind");
    }

    #[test]
    fn many_at_once_agree_on_one_key() {
        let folder = Folder::new();
        let path = folder.path().join("session.key");
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let path = path.clone();
                std::thread::spawn(move || load_or_create(&path).expect("keys"))
            })
            .collect();
        let keys: Vec<Keys> = threads.into_iter().map(|thread| thread.join().expect("thread")).collect();
        assert!(keys.iter().all(|other| opens(other, &keys[0])));
    }

    #[test]
    fn rotation_keeps_the_three_newest() {
        let folder = Folder::new();
        let path = folder.path().join("keys");
        assert_eq!(rotate(&path).expect("made"), Rotated::Created);
        let mut generations = vec![load(&path).expect("keys")];
        for (kept, dropped) in [(1, 0), (2, 0), (3, 0), (3, 1), (3, 1)] {
            assert_eq!(rotate(&path).expect("rotated"), Rotated::Added { kept, dropped });
            generations.push(load(&path).expect("keys"));
            assert_eq!(mode(&path), 0o600);
        }
        let newest = generations.last().expect("one");
        let opened: Vec<bool> = generations.iter().map(|old| opens(newest, old)).collect();
        assert_eq!(opened, [false, false, true, true, true, true]);
        assert_eq!(fs::read_dir(folder.path()).expect("folder").count(), 1, "something was left behind");
    }

    #[test]
    fn a_link_stays_one() {
        let folder = Folder::new();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        rotate(&target).expect("made");
        std::os::unix::fs::symlink(&target, &link).expect("link");
        assert_eq!(rotate(&link).expect("rotated"), Rotated::Added { kept: 1, dropped: 0 });
        assert!(fs::symlink_metadata(&link).expect("link").is_symlink());
    }

    #[test]
    fn what_is_no_key_file_is_left_alone() {
        let folder = Folder::new();
        let path = folder.path().join("keys");
        for text in [&b"not a key\n"[..], b"\xff\xfe", &vec![b'#'; 65 << 10]] {
            fs::write(&path, text).expect("written");
            assert!(load_or_create(&path).is_err());
            assert!(rotate(&path).expect_err("refused").to_string().contains("keys"));
            assert_eq!(fs::read(&path).expect("file"), text);
        }
    }
}
