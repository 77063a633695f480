//! `[listener]` with `[listener.tls]`, and who stands between clients and listeners: `trusted_proxies`.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;

use super::Config;
use super::array::Array;
use super::findings::Findings;
use super::secret::SecretPlace;
use super::section::section;
use super::table::Table;
use super::text::{AbsolutePath, Any, Fault, texts};
use super::value::choice;

section! {
    /// An address clients connect to.
    pub struct Listener {
        /// IP address and port, where port 0 lets the system choose one; or `unix:` and the absolute path of a socket.
        #[example("127.0.0.1:8080")]
        address: Address,
        /// Who may connect to a Unix socket, as the mode of its file.
        socket_mode: SocketMode = "0600",
        /// The group of the file of a Unix socket: a name in `/etc/group`, or a number. Default: the gateway's own.
        #[example("www-data")]
        socket_group: Option<Any>,
        /// Whether every connection begins with a PROXY header of version 2, which only `trusted_proxies` may send.
        /// Connections from others, or without it, are closed.
        proxy_protocol: bool = false,
        /// TLS. Default: none.
        tls: Option<ListenerTls>,
    }
}

section! {
    /// TLS towards clients. Files are read again with every reload (SIGHUP); open connections go on.
    pub struct ListenerTls {
        /// Certificates with their keys. A client gets the first that has the name it asks for (SNI; exact, or with `*`
        /// for the first label), or else the first of all.
        #[example([{ chain = "/etc/trunkline/cert.pem", key = { file = "/etc/trunkline/key.pem" } }])]
        certificates: Array<CertificateFiles, 1>,
        /// Whether clients show certificates: "none" does not ask, "optional" takes valid ones, "required" insists.
        #[example("required")]
        client_certificates: CertificateDemand = "none",
        /// PEM file of the authorities that sign clients' certificates. An absolute path. Needed where clients show any.
        #[example("/etc/trunkline/client-ca.pem")]
        client_ca: Option<AbsolutePath>,
        /// The oldest version of TLS that is spoken, "1.2" or "1.3".
        version_min: TlsVersion = "1.2",
    }
    check check_tls;
}

section! {
    /// A certificate with its key.
    pub struct CertificateFiles {
        /// PEM file of the certificate, followed by those between it and its authority. An absolute path.
        #[example("/etc/trunkline/cert.pem")]
        chain: AbsolutePath,
        /// Its private key in PEM form.
        #[example({ file = "/etc/trunkline/key.pem" })]
        key: SecretPlace,
    }
}

choice! {
    /// Whether clients of a listener show certificates.
    pub enum CertificateDemand {
        /// They are not asked.
        None = "none",
        /// They may; one that is shown must be valid.
        Optional = "optional",
        /// They must.
        Required = "required",
    }
}

choice! {
    /// A version of TLS.
    pub enum TlsVersion {
        /// RFC 5246, with forward secrecy and authenticated encryption only.
        V1_2 = "1.2",
        /// RFC 8446.
        V1_3 = "1.3",
    }
}

texts! {
    /// An address to listen at, or the path of a socket.
    pub Address -> ListenAddress, "", |text: &str| match text.strip_prefix("unix:") {
        Some(path) if path.starts_with('/') && !path.contains('\0') => Ok(ListenAddress::Socket(path.into())),
        Some(_) => Err("not an absolute path: write for example \"unix:/run/trunkline/mcp.sock\"".into()),
        None => IpPlace::parse(text).map(ListenAddress::Address),
    }, place: true;
    /// An IP address and port to listen at.
    pub IpPlace -> SocketAddr, "", |text: &str| text.parse().map_err(|_| address_fault(text)), place: true;
    /// The mode of a file, in octal digits.
    pub SocketMode -> u32, "^0?[0-7]{3}$", |text: &str| match u32::from_str_radix(text, 8) {
        Ok(mode) if matches!(text.len(), 3 | 4) && mode <= 0o777 => Ok(mode),
        _ => Err("not the mode of a file: write for example \"0660\", for the owner and the group".into()),
    };
    /// An address, or all addresses with the same beginning.
    pub Network -> IpNet, "", |text: &str| network(text).ok_or_else(|| {
        "not a network: write for example \"10.0.0.0/8\", \"2001:db8::/32\" or \"192.0.2.7\", or \"unix\"".into()
    });
}

/// Where a listener is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListenAddress {
    /// Address and port; port 0 lets the system choose.
    Address(SocketAddr),
    /// Absolute path of a Unix socket.
    Socket(PathBuf),
}

impl ListenAddress {
    /// Whether only this machine can reach it.
    pub fn is_loopback(&self) -> bool {
        self.ip_address().is_none_or(|address| address.ip().to_canonical().is_loopback())
    }

    /// Address and port, where it has these.
    pub fn ip_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Address(address) => Some(*address),
            Self::Socket(_) => None,
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Socket(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Where clients of Unix sockets are: what no client of a network can be.
pub const UNIX_CLIENT: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

/// Networks of addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks(Vec<IpNet>);

impl Networks {
    /// Whether `address` is in one of them; an IPv4 address is the same however it is written.
    pub fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Whether they are no more than whoever opens a Unix socket.
    fn are_of_sockets(&self) -> bool {
        self.0.iter().all(|network| *network == IpNet::from(UNIX_CLIENT.ip()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<IpNet> for Networks {
    fn from_iter<I: IntoIterator<Item = IpNet>>(networks: I) -> Self {
        Self(networks.into_iter().collect())
    }
}

/// What to write in place of a text that is no address. No name is looked up: which address it has is not for this text
/// to say.
fn address_fault(text: &str) -> Fault {
    if let Ok(address) = text.parse::<IpAddr>() {
        return format!("the port is missing: write for example \"{}\"", SocketAddr::new(address, 8080))
            .into();
    }
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if is_port(port) => (host, port),
        _ if is_port(text) => ("", text),
        _ => (text, ""),
    };
    let of_all = || {
        let message = "no IP address: write \"127.0.0.1:PORT\" for programs of this machine, or \"0.0.0.0:PORT\" for everybody";
        message.replace("PORT", port).into()
    };
    match (host, port) {
        ("" | "*", _) if !port.is_empty() => of_all(),
        ("localhost", _) if !port.is_empty() => format!("an IP address is needed, not a name: write \"127.0.0.1:{port}\"").into(),
        _ => "not an IP address and port: write for example \"127.0.0.1:8080\", \"0.0.0.0:8080\" or \"[::]:8080\"".into(),
    }
}

fn network(text: &str) -> Option<IpNet> {
    if text == "unix" {
        return Some(UNIX_CLIENT.ip().into());
    }
    ip_network(text)
}

/// An address, or all addresses with the same beginning.
pub(super) fn ip_network(text: &str) -> Option<IpNet> {
    let whole = text.parse::<IpAddr>().ok().map(|address| IpNet::from(address.to_canonical()));
    text.parse::<IpNet>().ok().or(whole).map(|network| network.trunc())
}

fn check_tls(tls: ListenerTls, table: Table<'_>, findings: &mut Findings) -> ListenerTls {
    match (tls.client_certificates, &tls.client_ca) {
        (CertificateDemand::None, Some(_)) => {
            let message = "`client_ca` says nothing while clients are not asked for certificates: write \
                 `client_certificates = \"required\"` or `\"optional\"`";
            findings.error_at(table, "client_ca", message);
        }
        (CertificateDemand::Optional | CertificateDemand::Required, None) if !table.has("client_ca") => {
            let message = "`client_ca` is missing: name the authorities that sign the certificates";
            findings.error_at(table, "client_certificates", message);
        }
        _ => {}
    }
    tls
}

/// No address is listened at twice, and no listener insists on what nobody may send.
pub(super) fn check(config: &Config, root: Table<'_>, findings: &mut Findings) {
    let mut taken = BTreeSet::new();
    for (listener, table) in config.listeners.iter().zip(root.tables("listener")) {
        check_address(&listener.address, table, &mut taken, findings);
        let is_socket = listener.address.ip_address().is_none();
        for key in ["socket_mode", "socket_group"] {
            if let Some(span) = findings.span(table, key).filter(|_| !is_socket) {
                findings.warning(span, format!("`{key}` is for Unix sockets: `address = \"unix:/PATH\"`"));
            }
        }
        if listener.proxy_protocol
            && let Some(message) = shut_to_proxies(is_socket, config, root)
        {
            findings.error_at(table, "proxy_protocol", message);
        }
    }
    if let Some(admin) = &config.admin {
        check_address(&admin.place, root.table("admin"), &mut taken, findings);
    }
    if let Some(address) = config.metrics.address {
        check_address(&ListenAddress::Address(address), root.table("metrics"), &mut taken, findings);
    }
    for (text, span) in root.texts("trusted_proxies") {
        if network(text).is_some_and(|network| network.prefix_len() == 0) {
            let message =
                "everybody is believed to be a proxy, and may claim any address: name your proxies' networks";
            findings.warning(span, message);
        }
    }
}

/// Why none of `trusted_proxies` could connect to a listener, if so.
fn shut_to_proxies(is_socket: bool, config: &Config, root: Table<'_>) -> Option<&'static str> {
    let proxies = &config.trusted_proxies;
    if proxies.is_empty() {
        let message =
            "nobody could connect: name those who send PROXY headers in the top-level `trusted_proxies`";
        // What could not be read may be right.
        return (!root.has("trusted_proxies")).then_some(message);
    }
    match is_socket {
        true if !proxies.contain(UNIX_CLIENT.ip()) => Some(
            "nobody could connect: `trusted_proxies` has no \"unix\", which stands for whoever opens the socket",
        ),
        false if proxies.are_of_sockets() => Some(
            "nobody could connect: `trusted_proxies` has no network, but only \"unix\", which is for Unix sockets",
        ),
        _ => None,
    }
}

fn check_address(
    address: &ListenAddress,
    table: Table<'_>,
    taken: &mut BTreeSet<ListenAddress>,
    findings: &mut Findings,
) {
    let what = match address {
        ListenAddress::Address(address) if address.port() == 0 => return,
        ListenAddress::Address(_) => "port",
        ListenAddress::Socket(_) => "path",
    };
    let message = format!("{address} is used twice: choose another {what}");
    findings.unique(table, "address", address.clone(), taken, message);
}

/// The first address that others than this machine can reach.
pub(super) fn open_address(config: &Config) -> Option<SocketAddr> {
    let mut addresses = config.listeners.iter().filter_map(|listener| listener.address.ip_address());
    addresses.find(|address| !address.ip().to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Grammar as _;

    #[test]
    fn an_address_that_is_none_leads_to_one() {
        for (text, expected) in [
            ("localhost:8080", "\"127.0.0.1:8080\""),
            (":8080", "\"0.0.0.0:8080\""),
            ("*:8080", "\"0.0.0.0:8080\""),
            ("8080", "\"127.0.0.1:8080\""),
            ("192.0.2.1", "\"192.0.2.1:8080\""),
            ("::1", "\"[::1]:8080\""),
            ("mcp.example.com:8080", "\"[::]:8080\""),
            ("", "\"127.0.0.1:8080\""),
            ("localhost:99999", "\"127.0.0.1:8080\""),
        ] {
            let fault = Address::parse(text).expect_err(text);
            assert!(fault.contains(expected), "{text}: {fault}");
        }
    }
}
