//! Where the admin listener listens: a TCP socket, or a Unix socket that only our own user can open. Unix sockets of clients
//! are made here, too.
//!
//! Invariant: at no moment can others connect to a Unix socket of ours; its file is removed at the end, unless another
//! process has put its own there.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Type};
use tokio_util::either::Either;

/// A socket that listens.
#[derive(Debug)]
pub(crate) enum Socket {
    /// At an address.
    Tcp(std::net::TcpListener),
    /// At a path.
    Unix(UnixSocket),
}

/// A Unix socket, and its file if that is ours.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    /// `None`: it was there before us.
    file: Option<SocketFile>,
}

/// The file of a socket, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

/// A connection of either kind.
pub(crate) type Stream = Either<net::socket::TcpStream, net::socket::UnixStream>;

/// Takes connections of either kind.
#[derive(Debug)]
pub(crate) struct Acceptor(SocketKind);

#[derive(Debug)]
enum SocketKind {
    Tcp(net::socket::TcpListener),
    Unix(net::socket::UnixListener, #[expect(dead_code, reason = "removed when dropped")] Option<SocketFile>),
}

impl Socket {
    /// Listens at `path`, in place of a socket that nobody answers at. Fails where somebody does, and where there is
    /// a file of another kind.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        let (listener, file) = bind(path, 0o600, None)?;
        Ok(Self::Unix(UnixSocket { listener, path: path.to_owned(), file: Some(file) }))
    }

    /// One that somebody else opened at `path`, and keeps.
    pub(crate) fn passed(listener: UnixListener, path: &Path) -> Self {
        Self::Unix(UnixSocket { listener, path: path.to_owned(), file: None })
    }

    /// Whether only this machine can reach it.
    pub(crate) fn is_loopback(&self) -> bool {
        match self {
            Self::Tcp(socket) => {
                socket.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback())
            }
            Self::Unix(_) => true,
        }
    }

    /// Whether it is a Unix socket, which no browser reaches.
    pub(crate) fn is_unix(&self) -> bool {
        matches!(self, Self::Unix(_))
    }

    /// Registers it with the runtime of this thread.
    pub(crate) fn acceptor(self) -> io::Result<Acceptor> {
        Ok(Acceptor(match self {
            Self::Tcp(socket) => SocketKind::Tcp(net::socket::TcpListener::from_std(socket)?),
            Self::Unix(UnixSocket { listener, file, .. }) => {
                SocketKind::Unix(net::socket::UnixListener::from_std(listener)?, file)
            }
        }))
    }
}

/// A Unix socket at `path`, in place of one that nobody answers at, with this mode and group of its file.
pub(crate) fn bind(path: &Path, mode: u32, group: Option<&str>) -> io::Result<(UnixListener, SocketFile)> {
    refuse_taken(path)?;
    // Made where nobody else can look, and moved when its mode is right.
    let hidden = Hidden::new(path)?;
    let socket = hidden.0.join("s");
    let listener = UnixListener::bind(&socket)?;
    listener.set_nonblocking(true)?;
    fs::set_permissions(&socket, fs::Permissions::from_mode(mode))?;
    if let Some(group) = group {
        chown(&socket, None, Some(group_id(group)?))?;
    }
    let metadata = fs::metadata(&socket)?;
    fs::rename(&socket, path)?;
    let file = SocketFile { path: path.to_owned(), identity: (metadata.dev(), metadata.ino()) };
    Ok((listener, file))
}

/// The number of a group of this machine.
fn group_id(group: &str) -> io::Result<u32> {
    if let Ok(id) = group.parse() {
        return Ok(id);
    }
    let groups = fs::read_to_string("/etc/group")?;
    let id_in = |line: &str| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(group);
        fields.nth(1).filter(|_| is_it)?.parse().ok()
    };
    let unknown = || io::Error::new(io::ErrorKind::NotFound, format!("/etc/group has no group {group}"));
    groups.lines().find_map(id_in).ok_or_else(unknown)
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(socket) => match socket.local_addr() {
                Ok(address) => address.fmt(f),
                Err(error) => error.fmt(f),
            },
            Self::Unix(socket) => write!(f, "unix:{}", socket.path.display()),
        }
    }
}

impl Acceptor {
    /// The next connection.
    pub(crate) async fn accept(&self) -> io::Result<Stream> {
        match &self.0 {
            SocketKind::Tcp(listener) => listener.accept().await.map(|(stream, _)| Either::Left(stream)),
            SocketKind::Unix(listener, _) => listener.accept().await.map(|(stream, _)| Either::Right(stream)),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = fs::metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity);
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

/// A directory for our own user only, removed when dropped.
struct Hidden(PathBuf);

impl Hidden {
    fn new(beside: &Path) -> io::Result<Self> {
        let directory = beside.with_file_name(format!(".{}", std::process::id()));
        // A process of this number may have died here.
        let _ = fs::remove_file(directory.join("s"));
        let _ = fs::remove_dir(&directory);
        fs::DirBuilder::new().mode(0o700).create(&directory)?;
        Ok(Self(directory))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0.join("s"));
        let _ = fs::remove_dir(&self.0);
    }
}

fn refuse_taken(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
    }
    let taken = || io::Error::new(io::ErrorKind::AddrInUse, "another process listens there");
    match connect_at_once(path) {
        Ok(()) => Err(taken()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        // Whoever is slow to accept is alive.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(taken()),
        // Whoever cannot be asked may be alive.
        Err(error) => Err(error),
    }
}

/// Fails with `WouldBlock` where others wait already for whoever listens there, instead of waiting, too.
fn connect_at_once(path: &Path) -> io::Result<()> {
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_slow_to_accept_is_in_use() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("admin.sock");
        let listener = socket2::Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        listener.bind(&SockAddr::unix(&path).expect("a path")).expect("bound");
        listener.listen(0).expect("it listens");
        let waiting: Vec<_> = std::iter::from_fn(|| {
            let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
            socket.set_nonblocking(true).expect("set");
            socket.connect(&SockAddr::unix(&path).expect("a path")).is_ok().then_some(socket)
        })
        .take(16)
        .collect();
        assert!((1..16).contains(&waiting.len()), "{}", waiting.len());
        let error = Socket::at(&path).expect_err("somebody listens there");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_socket_of_the_dead_is_replaced_and_one_of_the_living_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("admin.sock");
        drop(UnixListener::bind(&path).expect("bound"));
        let socket = Socket::at(&path).expect("nobody answers there");
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).expect("read").count(), 1, "nothing is left beside it");
        let error = Socket::at(&path).expect_err("the first one answers");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn groups_have_names_or_numbers() {
        assert_eq!(group_id("root").expect("every machine has it"), 0);
        assert_eq!(group_id("4711").expect("a number"), 4711);
        let error = group_id("no-such-group").expect_err("nobody has it");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn files_of_others_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("admin.sock");
        fs::write(&path, "precious").expect("written");
        assert_eq!(Socket::at(&path).expect_err("no socket").kind(), io::ErrorKind::AlreadyExists);
        fs::remove_file(&path).expect("removed");
        let socket = Socket::at(&path).expect("free");
        fs::remove_file(&path).expect("removed");
        let other = UnixListener::bind(&path).expect("bound");
        drop(socket);
        assert!(path.exists(), "it is another's by now");
        drop(other);
    }
}
