//! Notices that the configuration's file, or a file that it names, is another.
//!
//! Files are looked at, not watched by the kernel: that works on every file system, through symbolic links that are
//! swapped (as Kubernetes does) and files that are renamed over others (as editors do). What is noticed is told when
//! nothing has changed for a while, so that nothing half-written is read.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use config::{Config, SecretSource};

/// How often files are looked at.
const INTERVAL: Duration = Duration::from_secs(2);
/// How often while they change.
const UNSETTLED_INTERVAL: Duration = Duration::from_millis(500);

/// The files, and what they were when they were read.
#[derive(Clone, Debug)]
pub(super) struct FileWatch {
    paths: Arc<BTreeSet<PathBuf>>,
    read: Fingerprints,
    is_on: bool,
}

/// What the files were at some time, each by its place among them.
pub(super) type Fingerprints = Vec<Option<Fingerprint>>;

/// What tells one state of a file from another. Symbolic links are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    /// Of the inode: an old modification time that was put back does not hide a change.
    changed: (i64, i64),
}

impl FileWatch {
    /// Watches what `config` names, which was read from `source`, if it is to be watched.
    pub(super) fn new(config: &Config, source: Option<&Path>) -> Self {
        let is_on = config.reload.watch && source.is_some();
        let mut paths = BTreeSet::new();
        if is_on {
            let named = config.named();
            paths.extend(source.map(Path::to_owned));
            paths.extend(config.included.iter().cloned());
            paths.extend(named.files.iter().map(|path| (*path).to_owned()));
            paths.extend(named.secrets.iter().filter_map(|source| path_of(source)));
        }
        let read = look(&paths);
        Self { paths: Arc::new(paths), read, is_on }
    }

    /// As [`FileWatch::new`], for a new configuration. What is known of files that were watched before stays.
    pub(super) fn follow(&self, config: &Config, source: Option<&Path>) -> Self {
        let mut new = Self::new(config, source);
        let known: HashMap<&PathBuf, &Option<Fingerprint>> = self.paths.iter().zip(&self.read).collect();
        for (path, read) in new.paths.iter().zip(&mut new.read) {
            if let Some(known) = known.get(path) {
                *read = **known;
            }
        }
        new
    }

    pub(super) fn look(&self) -> Fingerprints {
        look(&self.paths)
    }

    /// This is what the files were when they were read, whatever came of it.
    pub(super) fn note(&mut self, prints: Fingerprints) {
        self.read = prints;
    }

    /// Waits until something is different from what was read, and has settled.
    pub(super) async fn changed(&self) {
        if !self.is_on {
            return std::future::pending().await;
        }
        let mut last = self.read.clone();
        let mut pause = INTERVAL;
        loop {
            tokio::time::sleep(pause).await;
            let paths = Arc::clone(&self.paths);
            // A file system that hangs must hold up nothing else.
            let Ok(now) = tokio::task::spawn_blocking(move || look(&paths)).await else { continue };
            let is_settled = now == last;
            if is_settled && now != self.read {
                return;
            }
            pause = if is_settled { INTERVAL } else { UNSETTLED_INTERVAL };
            last = now;
        }
    }
}

fn look(paths: &BTreeSet<PathBuf>) -> Fingerprints {
    paths.iter().map(|path| Fingerprint::of(path)).collect()
}

/// The file that a secret is in; `None`: it is in none.
pub(super) fn path_of(source: &SecretSource) -> Option<PathBuf> {
    match source {
        SecretSource::File(path) => Some(path.clone()),
        SecretSource::Env(_) => None,
        SecretSource::Credential(name) => {
            Some(PathBuf::from(std::env::var_os("CREDENTIALS_DIRECTORY")?).join(name))
        }
    }
}

impl Fingerprint {
    /// `None`: there is no file, or it cannot be reached.
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// What happens, and to what effect.
    type Step<'s> = (&'s str, Box<dyn Fn() + 's>);

    #[test]
    fn every_way_to_change_a_file_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| fs::write(path(name), text).expect("written");
        write("config", "one");
        fs::create_dir(path("v1")).expect("a folder");
        fs::create_dir(path("v2")).expect("a folder");
        write("v1/key", "one");
        write("v2/key", "two");
        symlink("v1", path("data")).expect("a link");
        let paths = BTreeSet::from([path("config"), path("data/key"), path("absent")]);
        let steps: [Step<'_>; 6] = [
            ("written", Box::new(|| write("config", "more"))),
            (
                "renamed over",
                Box::new(|| {
                    write("config.new", "less");
                    fs::rename(path("config.new"), path("config")).expect("renamed");
                }),
            ),
            (
                "a link swapped",
                Box::new(|| {
                    symlink("v2", path("data.new")).expect("a link");
                    fs::rename(path("data.new"), path("data")).expect("renamed");
                }),
            ),
            ("made", Box::new(|| write("absent", ""))),
            ("removed", Box::new(|| fs::remove_file(path("absent")).expect("removed"))),
            (
                "an old time put back",
                Box::new(|| {
                    let metadata = fs::metadata(path("config")).expect("a file");
                    write("config", "LESS");
                    let file = fs::File::options().write(true).open(path("config")).expect("a file");
                    file.set_modified(metadata.modified().expect("a time")).expect("set");
                }),
            ),
        ];
        let mut before = look(&paths);
        for (what, step) in steps {
            // Times of files are as fine as the kernel's tick.
            std::thread::sleep(Duration::from_millis(20));
            step();
            let now = look(&paths);
            assert_ne!(now, before, "{what}");
            assert_eq!(look(&paths), now, "{what}: nothing has changed since");
            before = now;
        }
    }
}
