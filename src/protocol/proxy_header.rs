//! The PROXY header of version 2 (HAProxy's `proxy-protocol.txt`): what a proxy says of a connection before its first
//! byte.
//!
//! Version 1 is text, and a client's bytes could be taken for it; it is not read. What a header says beside addresses
//! (its TLVs) is skipped.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of the part that every header has.
pub const PREFIX_BYTES: usize = 16;
/// Bytes of the rest of a header: many times what addresses and the usual TLVs take.
pub const REST_BYTES_MAX: usize = 4096;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// The first part of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    family: AddressFamily,
    /// How many bytes follow.
    pub rest_bytes: usize,
}

/// Whose connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressFamily {
    /// The proxy's own, or that of somebody without an address.
    Own,
    V4,
    V6,
}

/// What is wrong with a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyHeaderError {
    /// It is something else.
    #[error("the connection does not begin with a PROXY header of version 2")]
    NotOne,
    /// It is not as it must be.
    #[error("the PROXY header is malformed")]
    Malformed,
    /// It is too long.
    #[error("the PROXY header is longer than {REST_BYTES_MAX} bytes")]
    TooLong,
}

impl Prefix {
    /// Reads the first part.
    pub fn read(bytes: &[u8; PREFIX_BYTES]) -> Result<Self, ProxyHeaderError> {
        let [.., version_and_command, family, length_high, length_low] = *bytes;
        if !bytes.starts_with(SIGNATURE) || version_and_command >> 4 != 2 {
            return Err(ProxyHeaderError::NotOne);
        }
        let family = match (version_and_command & 0x0f, family) {
            // LOCAL, whatever the addresses say; or PROXY, for a stream that has none.
            (0, _) | (1, 0x00 | 0x31) => AddressFamily::Own,
            (1, 0x11) => AddressFamily::V4,
            (1, 0x21) => AddressFamily::V6,
            _ => return Err(ProxyHeaderError::Malformed),
        };
        let rest_bytes = usize::from(u16::from_be_bytes([length_high, length_low]));
        if rest_bytes > REST_BYTES_MAX {
            return Err(ProxyHeaderError::TooLong);
        }
        Ok(Self { family, rest_bytes })
    }

    /// The client's address in the rest of the header; `None` where the connection is the proxy's own.
    pub fn client(self, rest: &[u8]) -> Result<Option<SocketAddr>, ProxyHeaderError> {
        let malformed = ProxyHeaderError::Malformed;
        match self.family {
            AddressFamily::Own => Ok(None),
            AddressFamily::V4 => {
                let [a, b, c, d, _, _, _, _, high, low, _, _] = *rest.first_chunk::<12>().ok_or(malformed)?;
                let address = IpAddr::V4(Ipv4Addr::new(a, b, c, d));
                Ok(Some(SocketAddr::new(address, u16::from_be_bytes([high, low]))))
            }
            AddressFamily::V6 => {
                let addresses = rest.first_chunk::<36>().ok_or(malformed)?;
                let source = addresses.first_chunk::<16>().ok_or(malformed)?;
                let address = IpAddr::V6(Ipv6Addr::from(*source)).to_canonical();
                Ok(Some(SocketAddr::new(address, u16::from_be_bytes([addresses[32], addresses[33]]))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(command: u8, family: u8, rest: &[u8]) -> Result<Option<SocketAddr>, ProxyHeaderError> {
        let mut prefix = [0; PREFIX_BYTES];
        prefix[..12].copy_from_slice(SIGNATURE);
        prefix[12..14].copy_from_slice(&[command, family]);
        prefix[14..].copy_from_slice(&u16::try_from(rest.len()).expect("short").to_be_bytes());
        let prefix = Prefix::read(&prefix)?;
        assert_eq!(prefix.rest_bytes, rest.len());
        prefix.client(rest)
    }

    const V4: &[u8] = &[192, 0, 2, 7, 10, 0, 0, 1, 0x12, 0x67, 1, 187];

    fn v6() -> Vec<u8> {
        let source: Ipv6Addr = "2001:db8::7".parse().expect("an address");
        [&source.octets()[..], &[0; 16], &[0x12, 0x67, 1, 187]].concat()
    }

    #[test]
    fn addresses_are_read() {
        let client = |text: &str| Ok(Some(text.parse().expect("an address")));
        assert_eq!(read(0x21, 0x11, V4), client("192.0.2.7:4711"));
        assert_eq!(read(0x21, 0x21, &v6()), client("[2001:db8::7]:4711"));
        let with_tlvs = [V4, &[4, 0, 1, 0]].concat();
        assert_eq!(read(0x21, 0x11, &with_tlvs), client("192.0.2.7:4711"));
        for (command, family, rest) in
            [(0x20, 0x00, &[][..]), (0x20, 0x11, V4), (0x21, 0x00, &[1, 2, 3]), (0x21, 0x31, &[0; 216])]
        {
            assert_eq!(read(command, family, rest), Ok(None), "{command:x} {family:x}");
        }
    }

    #[test]
    fn what_is_malformed_is_refused() {
        use ProxyHeaderError as E;
        for (command, family, rest, expected) in [
            (0x11, 0x11, V4, E::NotOne),
            (0x31, 0x11, V4, E::NotOne),
            (0x22, 0x11, V4, E::Malformed),
            (0x21, 0x12, V4, E::Malformed),
            (0x21, 0x41, V4, E::Malformed),
            (0x21, 0x11, &V4[..11], E::Malformed),
            (0x21, 0x21, &v6()[..35], E::Malformed),
            (0x21, 0x11, &[0; REST_BYTES_MAX + 1], E::TooLong),
        ] {
            assert_eq!(read(command, family, rest), Err(expected), "{command:x} {family:x}");
        }
        assert_eq!(Prefix::read(b"PROXY TCP4 1.2.3"), Err(E::NotOne));
        assert_eq!(Prefix::read(b"POST /mcp HTTP/1"), Err(E::NotOne));
    }
}
