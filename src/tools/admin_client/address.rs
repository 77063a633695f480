//! Where an admin listener is, as a person writes it. Pure.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use http::uri::Authority;

use config::ListenAddress;

/// Where an admin listener is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// A host, which may be a name, and a port.
    Address {
        /// Without brackets.
        host: String,
        /// Never 0.
        port: u16,
    },
    /// A Unix socket.
    Socket(PathBuf),
}

/// Why a text names no admin listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminAddressError {
    /// It is no address.
    #[error("write it as 127.0.0.1:9090 or unix:/run/trunkline/admin.sock")]
    Unreadable,
    /// There is no port.
    #[error("it has no port: write for example 127.0.0.1:9090")]
    NoPort,
    /// The port says nothing.
    #[error(
        "port 0 lets the system choose one: give the one that the gateway has logged as `admin listening`"
    )]
    AnyPort,
    /// TLS is not spoken.
    #[error(
        "the admin listener speaks no TLS: give the address behind the proxy that does, or a tunnel to it"
    )]
    Tls,
}

impl FromStr for AdminAddress {
    type Err = AdminAddressError;

    fn from_str(text: &str) -> Result<Self, AdminAddressError> {
        if let Some(path) = text.strip_prefix("unix:") {
            let is_path = !path.is_empty() && !path.contains('\0');
            return if is_path { Ok(Self::Socket(path.into())) } else { Err(AdminAddressError::Unreadable) };
        }
        if text.starts_with("https:") {
            return Err(AdminAddressError::Tls);
        }
        let bare = text.strip_prefix("http://").unwrap_or(text);
        let bare = bare.strip_suffix("/status").unwrap_or(bare).trim_end_matches('/');
        let authority: Authority = bare.parse().map_err(|_| AdminAddressError::Unreadable)?;
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(AdminAddressError::Unreadable);
        }
        let host = authority.host();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match authority.port_u16() {
            None => Err(AdminAddressError::NoPort),
            Some(0) => Err(AdminAddressError::AnyPort),
            Some(port) => Ok(Self::Address { host: host.to_owned(), port }),
        }
    }
}

impl TryFrom<&ListenAddress> for AdminAddress {
    type Error = AdminAddressError;

    fn try_from(place: &ListenAddress) -> Result<Self, AdminAddressError> {
        match place {
            ListenAddress::Socket(path) => Ok(Self::Socket(path.clone())),
            ListenAddress::Address(address) if address.port() == 0 => Err(AdminAddressError::AnyPort),
            ListenAddress::Address(address) => {
                Ok(Self::Address { host: reachable(*address).to_string(), port: address.port() })
            }
        }
    }
}

/// Where a listener at `address` is reached from its own machine.
fn reachable(address: SocketAddr) -> IpAddr {
    match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Address { host, port } => write!(f, "{host}:{port}"),
            Self::Socket(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_people_write_them() {
        for (text, expected) in [
            ("127.0.0.1:9090", "127.0.0.1:9090"),
            ("localhost:9090", "localhost:9090"),
            ("[::1]:9090", "[::1]:9090"),
            ("http://localhost:9090/", "localhost:9090"),
            ("http://127.0.0.1:9090/status", "127.0.0.1:9090"),
            ("unix:/run/a.sock", "unix:/run/a.sock"),
        ] {
            assert_eq!(
                text.parse::<AdminAddress>().map(|place| place.to_string()),
                Ok(expected.to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_place_says_how_to_write_one() {
        for (text, expected) in [
            ("", AdminAddressError::Unreadable),
            ("unix:", AdminAddressError::Unreadable),
            ("a b:1", AdminAddressError::Unreadable),
            ("user@host:1", AdminAddressError::Unreadable),
            ("http://host:1/path/x", AdminAddressError::Unreadable),
            ("localhost", AdminAddressError::NoPort),
            ("localhost:99999", AdminAddressError::NoPort),
            ("127.0.0.1:0", AdminAddressError::AnyPort),
            ("https://gateway.example:9090", AdminAddressError::Tls),
        ] {
            assert_eq!(text.parse::<AdminAddress>(), Err(expected), "{text}");
        }
    }

    #[test]
    fn a_listener_at_all_addresses_is_reached_at_loopback() {
        for (address, expected) in [
            ("0.0.0.0:9", Ok("127.0.0.1:9")),
            ("[::]:9", Ok("[::1]:9")),
            ("10.0.0.7:9", Ok("10.0.0.7:9")),
            ("127.0.0.1:0", Err(AdminAddressError::AnyPort)),
        ] {
            let place = ListenAddress::Address(address.parse().unwrap());
            let place = AdminAddress::try_from(&place).map(|place| place.to_string());
            assert_eq!(place.as_deref().map_err(|error| *error), expected, "{address}");
        }
    }
}
