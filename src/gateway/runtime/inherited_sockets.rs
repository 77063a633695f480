//! Sockets that were open before the process: systemd's socket activation.
//!
//! A socket named `listener` is that of the first `[[listener]]`, `listener-2` that of the second, and `admin` that of
//! `[admin]`; any other goes by its address. One that nobody takes is an error: its clients would wait for ever.
//! Such a socket is only ever closed here, never shut down: connections that nobody accepted wait for the next process.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use listenfd::ListenFd;
use socket2::SockRef;

/// More than anybody configures.
const SOCKETS_MAX: usize = 64;
const ADMIN: &str = "admin";

/// Sockets that the process was started with, as far as nobody has taken them.
#[derive(Debug, Default)]
pub(super) struct InheritedSockets(Vec<InheritedSocket>);

#[derive(Debug)]
struct InheritedSocket {
    label: Label,
    kind: ListenerKind,
}

#[derive(Debug)]
enum ListenerKind {
    Tcp(TcpListener, SocketAddr),
    Unix(UnixListener, PathBuf),
}

/// Where a Unix socket is that was passed, and what it is called.
struct InheritedSocketPlace {
    label: Label,
    path: PathBuf,
}

/// What a socket is called in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    number: usize,
    name: String,
}

/// Why sockets that were passed cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InheritError {
    /// The variable is not what systemd would write.
    #[error("LISTEN_FDS = {0:?}: a number up to {SOCKETS_MAX} is expected")]
    Count(String),
    /// A descriptor that is no socket, or of a family that nobody can connect to.
    #[error(
        "{label} is neither a TCP nor a Unix stream socket ({reason}): write ListenStream= in the socket unit"
    )]
    Kind {
        /// What the socket is called.
        label: Label,
        /// What the system says.
        reason: io::Error,
    },
    /// It is a connection.
    #[error("{0} does not listen: write Accept=no in the socket unit")]
    Connection(Label),
    /// Everybody on this machine would be let in.
    #[error("{label}, {}, can be opened by every user: write SocketMode=0600 in the socket unit", path.display())]
    OpenToAll {
        /// What the socket is called.
        label: Label,
        /// Its path.
        path: PathBuf,
    },
    /// More would be let in than is configured.
    #[error(
        "{label}, {}, has mode {mode:04o}, and socket_mode = \"{wanted:04o}\" is configured: write SocketMode={wanted:04o} in the \
         socket unit, or let socket_mode say what it may be",
        path.display()
    )]
    OpenToMore {
        /// What the socket is called.
        label: Label,
        /// Its path.
        path: PathBuf,
        /// The mode of its file.
        mode: u32,
        /// What the configuration has.
        wanted: u32,
    },
    /// Clients would wait in it for ever.
    #[error(
        "nothing in the configuration listens at {at}, which is {label}: add it, or remove its ListenStream="
    )]
    Unclaimed {
        /// What the socket is called.
        label: Label,
        /// Its address.
        at: String,
    },
    /// The name says one thing and the address another.
    #[error("{label} is {at}, but {wanted} is configured under that name: {advice}")]
    Unlike {
        /// What the socket is called.
        label: Label,
        /// Its address.
        at: String,
        /// What the configuration has.
        wanted: String,
        /// What to do.
        advice: &'static str,
    },
}

impl InheritedSockets {
    /// Takes what the environment says was passed to this very process. To be called once, before threads start.
    pub(super) fn take() -> Result<Self, InheritError> {
        let of_environment = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        // They may have been meant for a process further up.
        let is_ours = |pid: String| pid.parse() == Ok(std::process::id());
        if !of_environment("LISTEN_PID").is_some_and(is_ours) {
            return Ok(Self::default());
        }
        let count = of_environment("LISTEN_FDS").unwrap_or_default();
        if !count.parse().is_ok_and(|count: usize| count <= SOCKETS_MAX) {
            return Err(InheritError::Count(count));
        }
        let names = of_environment("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':').map(str::to_owned);
        let mut open = ListenFd::from_env();
        let label = |number| Label { number: number + 3, name: names.next().unwrap_or_default() };
        let labels: Vec<_> = (0..open.len()).map(label).collect();
        let sockets = labels
            .into_iter()
            .enumerate()
            .map(|(place, label)| InheritedSocket::take(&mut open, place, label));
        sockets.collect::<Result<_, _>>().map(Self)
    }

    /// That of the listener at `place` in the configuration, and the address it really has.
    pub(super) fn listener(
        &mut self,
        place: usize,
        address: SocketAddr,
    ) -> Result<Option<(TcpListener, SocketAddr)>, InheritError> {
        self.tcp(&name_of(place), address)
    }

    /// That of `[admin]` with an address.
    pub(super) fn admin(
        &mut self,
        address: SocketAddr,
    ) -> Result<Option<(TcpListener, SocketAddr)>, InheritError> {
        self.tcp(ADMIN, address)
    }

    /// That of the listener at `place` in the configuration, with a path. The service manager says who may open it, but
    /// those of `wanted` at most: what is not said there is open to everybody.
    pub(super) fn listener_at(
        &mut self,
        place: usize,
        path: &Path,
        wanted: u32,
    ) -> Result<Option<UnixListener>, InheritError> {
        let Some((socket, InheritedSocketPlace { label, path })) = self.unix(&name_of(place), path)? else {
            return Ok(None);
        };
        let mode = mode_of(&path);
        if mode & !wanted != 0 {
            return Err(InheritError::OpenToMore { label, path, mode, wanted });
        }
        Ok(Some(socket))
    }

    /// That of `[admin]` with a path.
    pub(super) fn admin_at(&mut self, path: &Path) -> Result<Option<UnixListener>, InheritError> {
        match self.unix(ADMIN, path)? {
            Some((_, InheritedSocketPlace { label, path })) if may_be_opened_by_all(&path) => {
                Err(InheritError::OpenToAll { label, path })
            }
            taken => Ok(taken.map(|(socket, _)| socket)),
        }
    }

    fn unix(
        &mut self,
        name: &str,
        path: &Path,
    ) -> Result<Option<(UnixListener, InheritedSocketPlace)>, InheritError> {
        let is_it = |socket: &InheritedSocket| match &socket.kind {
            ListenerKind::Unix(_, at) => at == path,
            ListenerKind::Tcp(..) => false,
        };
        let Some(InheritedSocket { label, kind }) = self.find(name, is_it) else { return Ok(None) };
        match kind {
            ListenerKind::Unix(socket, path) => Ok(Some((socket, InheritedSocketPlace { label, path }))),
            ListenerKind::Tcp(..) => {
                Err(InheritError::unlike(label, &kind, path.display(), "write its path in ListenStream="))
            }
        }
    }

    /// All of them must have been taken.
    pub(super) fn finish(self) -> Result<(), InheritError> {
        match self.0.into_iter().next() {
            None => Ok(()),
            Some(InheritedSocket { label, kind }) => {
                Err(InheritError::Unclaimed { label, at: kind.to_string() })
            }
        }
    }

    fn tcp(
        &mut self,
        name: &str,
        address: SocketAddr,
    ) -> Result<Option<(TcpListener, SocketAddr)>, InheritError> {
        let is_it =
            |socket: &InheritedSocket| matches!(socket.kind, ListenerKind::Tcp(_, at) if at == address);
        let Some(InheritedSocket { label, kind }) = self.find(name, is_it) else { return Ok(None) };
        let is_local = |address: &SocketAddr| address.ip().to_canonical().is_loopback();
        match kind {
            // What is safe without credentials was judged by the address that is configured.
            ListenerKind::Tcp(_, at) if is_local(&address) && !is_local(&at) => {
                let advice = "it would be open to a network; make both the same";
                Err(InheritError::unlike(label, &kind, address, advice))
            }
            ListenerKind::Tcp(socket, at) => Ok(Some((socket, at))),
            ListenerKind::Unix(..) => Err(InheritError::unlike(
                label,
                &kind,
                address,
                "write an address and a port in ListenStream=",
            )),
        }
    }

    /// By name, or by address where the name says nothing.
    fn find(&mut self, name: &str, is_it: impl Fn(&InheritedSocket) -> bool) -> Option<InheritedSocket> {
        let fits = |socket: &InheritedSocket| {
            socket.label.name == name || (!is_role(&socket.label.name) && is_it(socket))
        };
        let place = self.0.iter().position(fits)?;
        Some(self.0.remove(place))
    }
}

impl InheritedSocket {
    fn take(open: &mut ListenFd, place: usize, label: Label) -> Result<Self, InheritError> {
        let kind = match open.take_tcp_listener(place) {
            Ok(Some(socket)) => socket.local_addr().map(|address| ListenerKind::Tcp(socket, address)),
            _ => open.take_unix_listener(place).and_then(|socket| {
                let socket = socket.ok_or(io::ErrorKind::NotFound)?;
                let path = socket.local_addr()?.as_pathname().map(Path::to_owned);
                Ok(ListenerKind::Unix(socket, path.unwrap_or_default()))
            }),
        };
        let kind = kind.and_then(ListenerKind::prepare);
        match kind {
            Ok((kind, true)) => Ok(Self { label, kind }),
            Ok((_, false)) => Err(InheritError::Connection(label)),
            Err(reason) => Err(InheritError::Kind { label, reason }),
        }
    }
}

impl ListenerKind {
    /// Also says whether it listens.
    fn prepare(self) -> io::Result<(Self, bool)> {
        let listens = match &self {
            Self::Tcp(socket, _) => {
                socket.set_nonblocking(true)?;
                SockRef::from(socket).is_listener()?
            }
            Self::Unix(socket, _) => {
                socket.set_nonblocking(true)?;
                SockRef::from(socket).is_listener()?
            }
        };
        Ok((self, listens))
    }
}

impl InheritError {
    fn unlike(label: Label, kind: &ListenerKind, wanted: impl fmt::Display, advice: &'static str) -> Self {
        Self::Unlike { label, at: kind.to_string(), wanted: wanted.to_string(), advice }
    }
}

impl fmt::Display for ListenerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(_, address) => address.fmt(f),
            Self::Unix(_, path) => path.display().fmt(f),
        }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "descriptor {} ({:?}) passed by the service manager", self.number, self.name)
    }
}

fn may_be_opened_by_all(path: &Path) -> bool {
    mode_of(path) & 0o002 != 0
}

/// Who may open this file: everybody, where nobody can say who may.
fn mode_of(path: &Path) -> u32 {
    std::fs::metadata(path).map_or(0o777, |file| file.permissions().mode() & 0o777)
}

/// True if the name of a socket tells its purpose.
pub(super) fn is_role(name: &str) -> bool {
    let number = name.strip_prefix("listener-").map(str::parse::<usize>);
    name == ADMIN || name == name_of(0) || matches!(number, Some(Ok(_)))
}

/// What the listener at `place` is called.
pub(super) fn name_of(place: usize) -> String {
    if place == 0 { "listener".to_owned() } else { format!("listener-{}", place + 1) }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    fn passed(names: &[&str]) -> (InheritedSockets, Vec<SocketAddr>) {
        let sockets: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(number, name)| {
                let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
                let address = socket.local_addr().expect("its address");
                let label = Label { number: number + 3, name: (*name).to_owned() };
                InheritedSocket { label, kind: ListenerKind::Tcp(socket, address) }
            })
            .collect();
        let address = |socket: &InheritedSocket| match socket.kind {
            ListenerKind::Tcp(_, address) => address,
            ListenerKind::Unix(..) => unreachable!("all are TCP"),
        };
        let addresses = sockets.iter().map(address).collect();
        (InheritedSockets(sockets), addresses)
    }

    fn other() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 1))
    }

    fn port(taken: Result<Option<(TcpListener, SocketAddr)>, InheritError>) -> Option<u16> {
        taken.expect("it may be used").map(|(_, address)| address.port())
    }

    #[test]
    fn a_name_that_says_nothing_leaves_it_to_the_address() {
        let (mut passed, addresses) = passed(&["trunkline.socket", "trunkline.socket", ""]);
        assert_eq!(port(passed.listener(0, other())), None);
        assert_eq!(port(passed.listener(0, addresses[1])), Some(addresses[1].port()));
        assert_eq!(port(passed.listener(1, addresses[1])), None, "taken");
        assert_eq!(port(passed.admin(addresses[2])), Some(addresses[2].port()));
        let error = passed.finish().expect_err("nobody took the first").to_string();
        assert!(error.contains(&addresses[0].to_string()) && error.contains("descriptor 3"), "{error}");
    }

    #[test]
    fn a_name_that_says_what_it_is_for_is_stronger_than_the_address() {
        let (mut passed, addresses) = passed(&["admin", "listener-2", "listener"]);
        assert_eq!(port(passed.listener(0, addresses[0])), Some(addresses[2].port()));
        assert_eq!(port(passed.listener(1, other())), Some(addresses[1].port()));
        assert_eq!(port(passed.listener(2, addresses[0])), None, "that is the admin's");
        assert_eq!(port(passed.admin(other())), Some(addresses[0].port()));
        passed.finish().expect("all are taken");
    }

    #[test]
    fn what_is_configured_for_this_machine_only_is_not_opened_to_a_network() {
        let public = SocketAddr::from(([0, 0, 0, 0], 8080));
        let take = |at: SocketAddr, configured| {
            let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let label = Label { number: 3, name: "listener".into() };
            InheritedSockets(vec![InheritedSocket { label, kind: ListenerKind::Tcp(socket, at) }])
                .listener(0, configured)
        };
        assert!(take(public, other()).is_err());
        assert_eq!(port(take(public, public)), Some(8080));
        assert_eq!(port(take(other(), public)), Some(1));
    }

    #[test]
    fn a_path_is_for_who_has_a_path() {
        let folder = std::env::temp_dir().join(format!("passed-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("admin.sock");
        let unix = |name: &str| {
            let _ = std::fs::remove_file(&path);
            let socket = UnixListener::bind(&path).expect("a socket");
            std::fs::set_permissions(&path, Permissions::from_mode(0o660)).expect("its mode");
            let label = Label { number: 3, name: name.to_owned() };
            InheritedSockets(vec![InheritedSocket { label, kind: ListenerKind::Unix(socket, path.clone()) }])
        };
        assert!(unix("").admin_at(&path).expect("it may be used").is_some());
        assert!(unix("admin").admin_at(Path::new("/elsewhere")).expect("it may be used").is_some());
        assert!(unix("").admin_at(Path::new("/elsewhere")).expect("it may be used").is_none());
        assert!(unix("listener").listener(0, other()).is_err());
        let elsewhere = Path::new("/elsewhere");
        assert!(unix("listener").listener_at(0, elsewhere, 0o660).expect("it may be used").is_some());
        assert!(unix("").listener_at(1, &path, 0o666).expect("it may be used").is_some());
        for (at, name) in [(&*path, ""), (elsewhere, "listener")] {
            let error = unix(name).listener_at(0, at, 0o600).expect_err("the group may").to_string();
            assert!(error.contains("has mode 0660") && error.contains("write SocketMode=0600"), "{error}");
        }
        assert!(unix("admin").admin(other()).is_err());
        let mut open_to_all = unix("admin");
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("its mode");
        assert!(open_to_all.admin_at(&path).is_err());
        let (mut tcp, _) = passed(&["admin"]);
        assert!(tcp.admin_at(&path).is_err());
        std::fs::remove_dir_all(&folder).expect("the folder goes");
    }
}
