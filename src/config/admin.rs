//! `[admin]`: where operators look, and who may.

use super::findings::Findings;
use super::listener::Address;
use super::secret::SecretPlace;
use super::section::section;
use super::table::Table;
use super::value::choice;

section! {
    /// Where metrics, health and the state of the gateway are served: `/metrics`, `/livez`, `/readyz` and `/status`.
    /// Default: nowhere.
    pub struct Admin {
        /// IP address and port, where port 0 lets the system choose one; or `unix:` and the absolute path of a socket
        /// that only the gateway's own user and root can open.
        #[example("127.0.0.1:9090")]
        place as "address": Address,
        /// What `Authorization: Bearer` must hold. Needed where the address is not loopback.
        #[example({ file = "/etc/trunkline/admin-token" })]
        token: Option<SecretPlace>,
        /// When `/readyz` answers 200: as soon as the gateway serves (`serving`), or once every upstream was listed, or has
        /// lists that were kept (`listed`).
        ready: ReadyWhen = "serving",
    }
    check check;
}

choice! {
    /// When a gateway is ready.
    pub enum ReadyWhen {
        /// As soon as it serves.
        Serving = "serving",
        /// Once every upstream was listed.
        Listed = "listed",
    }
}

fn check(admin: Admin, table: Table<'_>, findings: &mut Findings) -> Admin {
    let is_open = !admin.place.is_loopback();
    if is_open && !table.has("token") {
        let message = "the admin listener is open to a network: add `token`, or listen at a loopback address or a Unix socket";
        findings.error_at(table, "address", message);
    }
    admin
}
