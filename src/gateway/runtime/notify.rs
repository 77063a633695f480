//! What the service manager is told: systemd's notification protocol, which is lines in datagrams.
//!
//! Spoken here rather than by a library because systemd may name the socket in the abstract namespace, and because the
//! environment must not be changed once there are threads. A message that cannot be delivered is only logged: the
//! manager's own clocks say what follows.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::context::state::State;

/// The way to the service manager, if there is one.
#[derive(Debug, Default)]
pub(super) struct Notifier {
    socket: Option<UnixDatagram>,
    /// What it was last told of how we are.
    status: RefCell<String>,
    has_failed_reload: Cell<bool>,
}

impl Notifier {
    /// By `NOTIFY_SOCKET`.
    pub(super) fn from_environment() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return Self::default() };
        let socket = connect(&name)
            .inspect_err(|error| tracing::warn!(?name, %error, "cannot notify the service manager"));
        Self { socket: socket.ok(), ..Self::default() }
    }

    /// Whether anybody listens.
    pub(super) fn is_heard(&self) -> bool {
        self.socket.is_some()
    }

    pub(super) fn ready(&self, state: &State) {
        self.tell_with_status(&["READY=1".into()], &self.serving(state));
    }

    /// The configuration is read again; [`reloaded`](Self::reloaded) must follow.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let now = Duration::try_from(now).unwrap_or_default().as_micros();
        self.tell(&["RELOADING=1".into(), format!("MONOTONIC_USEC={now}")]);
    }

    /// The new configuration is in force, or the old one still is.
    pub(super) fn reloaded(&self, is_new: bool, state: &State) {
        self.has_failed_reload.set(!is_new);
        self.ready(state);
    }

    pub(super) fn stopping(&self, drain_max: Duration, state: &State) {
        let lines = ["STOPPING=1".into(), format!("EXTEND_TIMEOUT_USEC={}", drain_max.as_micros())];
        self.tell_with_status(&lines, &draining(state));
    }

    pub(super) fn alive(&self) {
        self.tell(&["WATCHDOG=1".into()]);
    }

    /// Tells how we are, if it is something else than before.
    pub(super) fn refresh(&self, state: &State) {
        let status = if state.drain.is_quiet() { draining(state) } else { self.serving(state) };
        if *self.status.borrow() != status {
            self.tell_with_status(&[], &status);
        }
    }

    fn serving(&self, state: &State) -> String {
        let snapshot = state.snapshot.load();
        let mut status = format!(
            "serving {} over {}; {}",
            counted(snapshot.endpoints.len(), "endpoint"),
            counted(snapshot.upstreams.len(), "upstream"),
            counted(state.connections.open(), "connection")
        );
        if self.has_failed_reload.get() {
            status += "; the last reload failed, the log says why";
        }
        status
    }

    fn tell_with_status(&self, lines: &[String], status: &str) {
        status.clone_into(&mut self.status.borrow_mut());
        let status = format!("STATUS={status}");
        self.tell(&[lines, &[status]].concat());
    }

    fn tell(&self, lines: &[String]) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send((lines.join("\n") + "\n").as_bytes())
        {
            tracing::debug!(%error, "the service manager does not take notice");
        }
    }
}

fn draining(state: &State) -> String {
    format!("draining: {} left", counted(state.pulses.calls(), "call"))
}

fn counted(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "neither a path nor an abstract name")),
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not hold up the control thread.
    socket.set_nonblocking(true)?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_said_in_words() {
        assert_eq!(counted(0, "call"), "0 calls");
        assert_eq!(counted(1, "call"), "1 call");
        assert_eq!(counted(12, "call"), "12 calls");
    }

    #[test]
    fn an_abstract_name_and_a_path_are_understood_and_nothing_else() {
        let name = format!("trunkline-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let _ear = UnixDatagram::bind_addr(&address).expect("it is free");
        assert!(connect(OsStr::new(&format!("@{name}"))).is_ok());
        for wrong in ["", "relative", "vsock:2:1", "/no/such/socket", "@no-such-name"] {
            assert!(connect(OsStr::new(wrong)).is_err(), "{wrong}");
        }
    }
}
