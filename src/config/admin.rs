//! `[admin]`: where operators look, and who may.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::findings::Findings;
use super::secret::SecretPlace;
use super::section::section;
use super::table::Table;
use super::text::{Fault, Grammar, texts};

section! {
    /// Where metrics, health and the state of the gateway are served: `/metrics`, `/livez`, `/readyz` and `/status`.
    /// Default: nowhere.
    pub struct Admin {
        /// IP address and port, where port 0 lets the system choose one; or `unix:` and the absolute path of a socket
        /// that only the gateway's own user and root can open.
        #[example("127.0.0.1:9090")]
        place as "address": Place,
        /// What `Authorization: Bearer` must hold. Needed where the address is not loopback.
        #[example({ file = "/etc/trunkline/admin-token" })]
        token: Option<SecretPlace>,
    }
    check check;
}

/// Where the admin listener is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminPlace {
    /// Address to listen on; port 0 lets the system choose. Not that of a listener.
    Address(SocketAddr),
    /// Absolute path of a Unix socket.
    Socket(PathBuf),
}

texts! {
    /// An address, or the path of a socket.
    pub Place -> AdminPlace, "", place;
}

fn place(text: &str) -> Result<AdminPlace, Fault> {
    match text.strip_prefix("unix:") {
        Some(path) if path.starts_with('/') => Ok(AdminPlace::Socket(path.into())),
        Some(_) => Err("not an absolute path: write for example \"unix:/run/trunkline/admin.sock\"".into()),
        None => super::listener::Address::parse(text).map(AdminPlace::Address),
    }
}

fn check(admin: Admin, table: Table<'_>, findings: &mut Findings) -> Admin {
    let is_open =
        matches!(admin.place, AdminPlace::Address(address) if !address.ip().to_canonical().is_loopback());
    if is_open && !table.has("token") {
        let message = "the admin listener is open to a network: add `token`, or listen at a loopback address or a Unix socket";
        findings.error_at(table, "address", message);
    }
    admin
}
