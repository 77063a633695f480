//! `[admin]`: where operators look, and who may; `[reload]`: when the configuration is read again.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::resolve::{Findings, address};
use super::secret::{SecretSource, WrittenSecret};
use super::value::Key;

/// Where metrics, health and the state of the gateway are served.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["address"]))]
pub(super) struct WrittenAdmin {
    /// IP address and port, where port 0 lets the system choose one; or `unix:` and the absolute path of a socket
    /// that only the gateway's own user and root can open.
    #[schemars(example = "127.0.0.1:9090")]
    pub(super) address: Key<String>,
    /// What `Authorization: Bearer` must hold. Needed where the address is not loopback.
    pub(super) token: Key<WrittenSecret>,
}

/// When the configuration is read again, beside SIGHUP.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WrittenReload {
    /// Whether the configuration is read again when its file, or a file it names, has changed.
    #[schemars(extend("default" = false))]
    pub(super) watch: Key<bool>,
}

/// `[admin]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// Where it listens.
    pub place: AdminPlace,
    /// What a caller must show; always there where the place is an address that is not loopback.
    pub token: Option<SecretSource>,
}

/// Where the admin listener is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminPlace {
    /// Address to listen on; port 0 lets the system choose. Not that of a listener.
    Address(SocketAddr),
    /// Absolute path of a Unix socket.
    Socket(PathBuf),
}

/// `[reload]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reload {
    /// Whether files are watched.
    pub watch: bool,
}

/// Checks `[admin]`; `taken` are the addresses of the listeners.
pub(super) fn resolve(
    written: &WrittenAdmin,
    span: &Range<usize>,
    taken: &mut BTreeSet<SocketAddr>,
    findings: &mut Findings,
) -> Option<Admin> {
    let secret = written.token.0.as_ref().and_then(|at| WrittenSecret::resolve(at, findings));
    let message = "[admin] has no `address`: write `address = \"127.0.0.1:9090\"`";
    let at = findings.required(&written.address, span, message)?;
    let place = if let Some(path) = at.value.strip_prefix("unix:") {
        if !path.starts_with('/') {
            let message = "not an absolute path: write for example \"unix:/run/trunkline/admin.sock\"";
            findings.error(at.span.clone(), message);
        }
        AdminPlace::Socket(path.into())
    } else {
        let address = address(at, taken, findings)?;
        if !address.ip().to_canonical().is_loopback() && written.token.0.is_none() {
            let message = "the admin listener is open to a network: add `token`, or listen at a loopback address or a Unix socket";
            findings.error(at.span.clone(), message);
        }
        AdminPlace::Address(address)
    };
    Some(Admin { place, token: secret })
}

/// Fills in `[reload]`.
pub(super) fn reload(written: &WrittenReload) -> Reload {
    Reload { watch: written.watch.value().copied().unwrap_or(false) }
}
