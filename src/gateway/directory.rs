//! Directories that another user may change while we work in them.
//!
//! The state directory belongs to the user of the service, and root runs commands in it. Whoever owns a directory can put
//! a link in the place of whatever is in it, at any moment, and a path that was checked leads elsewhere when it is used.
//! So a [`Dir`] is a descriptor, everything in it is opened by name without following links, and what is checked
//! or given away is what was opened, never a path.
//!
//! Deliberately not here: files that only the gateway itself opens at a path of the operator's choice, such as
//! certificates, which are links in many deployments.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use rustix::process::geteuid;

/// As many as the system follows.
const LINKS_MAX: usize = 40;

/// An open directory.
#[derive(Debug)]
pub(crate) struct Dir(OwnedFd);

/// A file that was opened in a [`Dir`]: a regular file with one link.
#[derive(Debug)]
pub(crate) struct RegularFile {
    pub file: File,
    uid: u32,
    gid: u32,
}

impl Dir {
    /// Opens the directory at `path`. Where we may do everything, only links that root made, in directories of root's,
    /// are followed on the way.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let place = OFlags::PATH | OFlags::CLOEXEC;
        // Where the way begins at the root, we need not be allowed into the working directory.
        let start = if path.is_absolute() { "/" } else { "." };
        let mut directory = rustix::fs::openat(CWD, start, place, Mode::empty())?;
        let mut left = reversed(path);
        let mut links = 0;
        while let Some(name) = left.pop() {
            let next = rustix::fs::openat(&directory, name, place | OFlags::NOFOLLOW, Mode::empty())?;
            if kind(&rustix::fs::fstat(&next)?) == FileType::Symlink {
                links += 1;
                let target = follow(&directory, &next)?;
                if links > LINKS_MAX {
                    return Err(Errno::LOOP.into());
                }
                left.extend(reversed(&target));
            } else {
                directory = next;
            }
        }
        let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::openat(&directory, ".", readable, Mode::empty())?))
    }

    /// The directory that holds the file at `path`, and the file's name there; where `path` is a link, of the file that
    /// it leads to. Links are followed as [`open`](Self::open) does. There need not be such a file.
    pub(crate) fn of_file(path: &Path) -> io::Result<(Self, OsString)> {
        let mut path = path.to_owned();
        for _ in 0..LINKS_MAX {
            let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new(".")).to_owned();
            let directory = Self::open(&folder)?;
            let place = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::openat(&directory.0, &name, place, Mode::empty()) {
                Ok(found) if kind(&rustix::fs::fstat(&found)?) == FileType::Symlink => {
                    path = folder.join(follow(&directory.0, &found)?);
                }
                Ok(_) | Err(Errno::NOENT) => return Ok((directory, name)),
                Err(error) => return Err(error.into()),
            }
        }
        Err(Errno::LOOP.into())
    }

    pub(crate) fn subdirectory(&self, name: &str) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened =
            rustix::fs::openat(&self.0, name, flags, Mode::empty()).map_err(|error| refused(name, error))?;
        match kind(&rustix::fs::fstat(&opened)?) {
            FileType::Directory => Ok(Self(opened)),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    /// As [`subdirectory`](Self::subdirectory); makes one where there is none, which belongs to whom this one belongs to.
    pub(crate) fn make_subdirectory(&self, name: &str) -> io::Result<Self> {
        match rustix::fs::mkdirat(&self.0, name, Mode::RWXU) {
            Ok(()) => {}
            Err(Errno::EXIST) => return self.subdirectory(name),
            Err(error) => return Err(error.into()),
        }
        let made = self.subdirectory(name)?;
        // Another may have come into its place meanwhile, but what is empty is nobody's loss.
        if made.names()?.next().is_none() {
            self.give(&made.0)?;
        }
        Ok(made)
    }

    /// Opens a file to be read; `None`: there is none.
    pub(crate) fn file(&self, name: &OsStr) -> io::Result<Option<RegularFile>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let shown = name.to_string_lossy();
        let opened = match rustix::fs::openat(&self.0, name, flags, Mode::empty()) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(refused(&shown, error)),
        };
        let (found, own) = (rustix::fs::fstat(&opened)?, rustix::fs::fstat(&self.0)?);
        if kind(&found) != FileType::RegularFile {
            return Err(io::Error::other(format!("{shown} is no regular file")));
        }
        if found.st_nlink > 1 {
            return Err(io::Error::other(format!("{shown} has more than one link")));
        }
        // Whoever owns a directory puts into it what they like, such as what is not theirs.
        let is_ours = |uid| uid == geteuid().as_raw() || uid == 0;
        if !is_ours(own.st_uid) && found.st_uid != own.st_uid && !is_ours(found.st_uid) {
            return Err(io::Error::other(format!("{shown} does not belong to the owner of its directory")));
        }
        Ok(Some(RegularFile { file: opened.into(), uid: found.st_uid, gid: found.st_gid }))
    }

    /// The text of a file; `None`: there is none.
    pub(crate) fn text(&self, name: &OsStr, bytes_max: u64) -> io::Result<Option<String>> {
        self.file(name)?.map(|opened| opened.text(bytes_max)).transpose()
    }

    /// Puts a file in the place of the one there is, whole or not at all. It belongs to whom `like` belongs to, else to whom
    /// this directory belongs to.
    pub(crate) fn replace(&self, name: &OsStr, text: &[u8], like: Option<&RegularFile>) -> io::Result<()> {
        let aside = self.write_aside(name, text, like)?;
        let renamed = rustix::fs::renameat(&self.0, &aside, &self.0, name);
        if renamed.is_err() {
            self.discard(&aside);
        }
        renamed?;
        self.sync()
    }

    /// Puts a file where there is none; false if there is one by now.
    pub(crate) fn create(&self, name: &OsStr, text: &[u8]) -> io::Result<bool> {
        let aside = self.write_aside(name, text, None)?;
        let linked = rustix::fs::linkat(&self.0, &aside, &self.0, name, AtFlags::empty());
        self.discard(&aside);
        match linked {
            Ok(()) => self.sync().map(|()| true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    pub(crate) fn names(&self) -> io::Result<impl Iterator<Item = io::Result<OsString>>> {
        let entries = rustix::fs::Dir::read_from(&self.0)?
            .map(|entry| Ok(entry.map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned())?));
        Ok(entries.filter(|name| !name.as_ref().is_ok_and(|name| name == "." || name == "..")))
    }

    /// Writes a file under a name of its own, which is returned.
    fn write_aside(&self, name: &OsStr, text: &[u8], like: Option<&RegularFile>) -> io::Result<OsString> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let mut aside = name.to_owned();
        aside.push(format!(".{:016x}.new", u64::from_ne_bytes(random)));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(&self.0, &aside, flags, Mode::RUSR | Mode::WUSR)?);
        let written = file.write_all(text).and_then(|()| match like {
            Some(like) => give(&file, like.uid, like.gid),
            None => self.give(&file),
        });
        match written.and_then(|()| file.sync_all()) {
            Ok(()) => Ok(aside),
            Err(error) => {
                self.discard(&aside);
                Err(error)
            }
        }
    }

    /// Removes what would only lie about.
    fn discard(&self, aside: &OsStr) {
        let _ = self.remove(aside);
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.0)?)
    }

    /// Gives what we made to whom this directory belongs to.
    fn give(&self, made: impl std::os::fd::AsFd) -> io::Result<()> {
        let own = rustix::fs::fstat(&self.0)?;
        give(made, own.st_uid, own.st_gid)
    }
}

impl RegularFile {
    /// All of it, if it is not longer.
    pub(crate) fn text(&self, bytes_max: u64) -> io::Result<String> {
        String::from_utf8(self.bytes(bytes_max)?)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8"))
    }

    /// The same, of a file that is no text.
    pub(crate) fn bytes(&self, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // It may grow while it is read.
        if self.file.metadata()?.len() > bytes_max
            || (&self.file).take(bytes_max + 1).read_to_end(&mut bytes)? as u64 > bytes_max
        {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the file is too large"));
        }
        Ok(bytes)
    }

    /// When it was written, in seconds since 1970, as far as that is known.
    pub(crate) fn written_s(&self) -> Option<u64> {
        let written = self.file.metadata().and_then(|metadata| metadata.modified()).ok()?;
        written.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs())
    }
}

/// Opens a file of the state directory that is written where it is, unless it is a link, or a FIFO, which would wait for
/// whoever is at its other end.
pub(crate) fn open_own(options: &OpenOptions, path: &Path) -> io::Result<File> {
    let mut options = options.clone();
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file =
        options.custom_flags(flags).open(path).map_err(|error| match Errno::from_io_error(&error) {
            Some(errno) => refused(&path.display().to_string(), errno),
            None => error,
        })?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    Ok(file)
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn give(made: impl std::os::fd::AsFd, uid: u32, gid: u32) -> io::Result<()> {
    if rustix::fs::fstat(&made)?.st_uid == uid {
        return Ok(());
    }
    Ok(rustix::fs::fchown(made, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?)
}

/// Where a link leads, if it may be followed: to root, those of others could show anything.
fn follow(directory: &OwnedFd, link: &OwnedFd) -> io::Result<PathBuf> {
    let owners = [rustix::fs::fstat(directory)?.st_uid, rustix::fs::fstat(link)?.st_uid];
    let target = OsString::from_vec(rustix::fs::readlinkat(link, "", Vec::new())?.into_bytes());
    if geteuid().is_root() && owners != [0, 0] {
        let target = target.to_string_lossy();
        return Err(io::Error::other(format!("a link to {target} that is not root's is not followed")));
    }
    Ok(target.into())
}

/// The error of opening what may be a link.
fn refused(name: &str, error: Errno) -> io::Error {
    match error {
        Errno::LOOP => io::Error::other(format!("{name} is a link, which is not followed here")),
        error => error.into(),
    }
}

/// The components of a path, the last one first.
fn reversed(path: &Path) -> Vec<OsString> {
    let components = path.components().filter(|component| *component != Component::CurDir);
    components.rev().map(|component| component.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, lchown, symlink};

    use super::*;

    /// Whoever may not be trusted by root; only root can be somebody else.
    const OTHER: u32 = 54_321;

    fn is_root() -> bool {
        geteuid().is_root()
    }

    #[test]
    fn a_link_on_the_way_is_followed_if_it_is_trusted() {
        let folder = tempfile::tempdir().expect("a folder");
        let real = folder.path().join("real");
        fs::create_dir(&real).expect("a directory");
        fs::write(real.join("file"), "text").expect("written");
        symlink("real", folder.path().join("own")).expect("a link");
        symlink(folder.path().join("own"), folder.path().join("twice")).expect("a link");
        symlink("real/file", folder.path().join("linked-file")).expect("a link");
        symlink("loop", folder.path().join("loop")).expect("a link");
        for name in ["real", "own", "twice", "own/../twice/."] {
            let directory = Dir::open(&folder.path().join(name)).expect(name);
            assert_eq!(directory.text("file".as_ref(), 10).expect("read").as_deref(), Some("text"));
        }
        let (directory, name) = Dir::of_file(&folder.path().join("linked-file")).expect("a file");
        assert_eq!(name, "file");
        assert!(directory.text(&name, 10).expect("read").is_some());
        assert!(Dir::open(&folder.path().join("loop")).is_err());
        assert!(Dir::of_file(&folder.path().join("loop")).is_err());
        assert!(Dir::open(&real.join("file")).is_err());
        if is_root() {
            for name in ["own", "linked-file"] {
                lchown(folder.path().join(name), Some(OTHER), Some(OTHER)).expect("given");
            }
        }
        let results = [
            Dir::open(&folder.path().join("twice")).map(drop),
            Dir::of_file(&folder.path().join("linked-file")).map(drop),
        ];
        for result in results {
            assert_eq!(result.is_err(), is_root(), "{result:?}");
        }
    }

    #[test]
    fn what_is_in_it_is_never_reached_by_a_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = Dir::open(folder.path()).expect("a directory");
        fs::create_dir(folder.path().join("d")).expect("a directory");
        fs::write(folder.path().join("f"), "text").expect("written");
        symlink("d", folder.path().join("to-d")).expect("a link");
        symlink("f", folder.path().join("to-f")).expect("a link");
        assert!(directory.subdirectory("d").is_ok());
        assert!(directory.subdirectory("f").is_err());
        for error in [
            directory.subdirectory("to-d").map(drop),
            directory.make_subdirectory("to-d").map(drop),
            directory.text("to-f".as_ref(), 10).map(drop),
        ] {
            let error = error.expect_err("refused").to_string();
            assert!(error.contains("is a link"), "{error}");
        }
        // In the place of a link comes a file; the one it led to stays.
        directory.replace("to-f".as_ref(), b"new", None).expect("replaced");
        assert_eq!(fs::read_to_string(folder.path().join("f")).expect("read"), "text");
        assert!(directory.create("g".as_ref(), b"g").expect("created"));
        assert!(!directory.create("g".as_ref(), b"h").expect("there already"));
        fs::hard_link(folder.path().join("f"), folder.path().join("hard")).expect("a link");
        assert!(directory.text("f".as_ref(), 10).is_err());
        assert!(directory.text("g".as_ref(), 0).is_err(), "it is too long");
        let mut names: Vec<OsString> = directory.names().expect("names").map(Result::unwrap).collect();
        names.sort();
        assert_eq!(names, ["d", "f", "g", "hard", "to-d", "to-f"]);
    }

    #[test]
    fn what_is_made_belongs_to_the_owner_of_the_directory() {
        let folder = tempfile::tempdir().expect("a folder");
        let owner = if is_root() { OTHER } else { geteuid().as_raw() };
        if is_root() {
            lchown(folder.path(), Some(OTHER), Some(OTHER)).expect("given");
        }
        let directory = Dir::open(folder.path()).expect("a directory");
        let made = directory.make_subdirectory("made").expect("made");
        made.replace("file".as_ref(), b"text", None).expect("written");
        directory.create("key".as_ref(), b"text").expect("written");
        for name in ["made", "made/file", "key"] {
            let found = fs::metadata(folder.path().join(name)).expect(name);
            assert_eq!((found.uid(), found.mode() & 0o077), (owner, 0), "{name}");
        }
        // A file of a third user's is none that the owner could have made.
        if is_root() {
            lchown(folder.path().join("key"), Some(OTHER + 1), None).expect("given");
        }
        assert_eq!(directory.text("key".as_ref(), 10).is_err(), is_root());
    }
}
