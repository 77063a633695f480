//! The addresses that documents of strangers may be fetched from: public ones alone.
//!
//! A host is resolved once, its addresses are judged here, and the very address that was judged is connected to.
//!
//! Invariant: an address that holds another one – mapped, translated, tunnelled – is refused with whatever it holds, since a
//! machine on the way may unpack it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The only port.
pub const PORT: u16 = 443;
/// Addresses of one host that are looked at.
pub const ADDRESSES_MAX: usize = 16;

/// Blocks of IPv4 that are not public (IANA's registry of special-purpose addresses), with the bits of their prefix.
const V4_REFUSED: [([u8; 4], u32); 18] = [
    ([0, 0, 0, 0], 8),        // this network
    ([10, 0, 0, 0], 8),       // private
    ([100, 64, 0, 0], 10),    // shared, of carriers
    ([127, 0, 0, 0], 8),      // loopback
    ([168, 63, 129, 16], 32), // the host of a machine in Azure
    ([169, 254, 0, 0], 16),   // link-local, where clouds keep credentials
    ([172, 16, 0, 0], 12),    // private
    ([192, 0, 0, 0], 24),     // protocol assignments
    ([192, 0, 2, 0], 24),     // documentation
    ([192, 31, 196, 0], 24),  // AS112
    ([192, 52, 193, 0], 24),  // AMT
    ([192, 88, 99, 0], 24),   // relays of 6to4
    ([192, 168, 0, 0], 16),   // private
    ([192, 175, 48, 0], 24),  // AS112
    ([198, 18, 0, 0], 15),    // benchmarks
    ([198, 51, 100, 0], 24),  // documentation
    ([203, 0, 113, 0], 24),   // documentation
    ([224, 0, 0, 0], 3),      // multicast, reserved, broadcast
];
/// Blocks within `2000::/3` that are not public, as their first two or three groups.
const V6_REFUSED: [([u16; 3], u32); 6] = [
    ([0x2001, 0, 0], 23),           // protocol assignments, with Teredo, ORCHID and benchmarks
    ([0x2001, 0x0db8, 0], 32),      // documentation
    ([0x2002, 0, 0], 16),           // 6to4
    ([0x2620, 0x004f, 0x8000], 48), // AS112
    ([0x3ffe, 0, 0], 16),           // the 6bone
    ([0x3fff, 0, 0], 20),           // documentation
];

/// True for an address that anybody on the Internet can reach.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// The address to connect to: the first, if all are public. A name that also has another one is a trap, or a mistake.
pub fn chosen(addresses: &[IpAddr]) -> Option<IpAddr> {
    let is_good = addresses.len() <= ADDRESSES_MAX && addresses.iter().all(|address| is_public(*address));
    addresses.first().copied().filter(|_| is_good)
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let bits = address.to_bits();
    let is_in = |(block, prefix): &([u8; 4], u32)| (bits ^ u32::from_be_bytes(*block)) >> (32 - prefix) == 0;
    !V4_REFUSED.iter().any(is_in)
}

/// Only `2000::/3` is global unicast; beside it are loopback, link-local, unique local, multicast, mapped and NAT64.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, third, _, fifth, sixth, ..] = address.segments();
    let joined = |[first, second, third]: [u16; 3]| {
        u64::from(first) << 32 | u64::from(second) << 16 | u64::from(third)
    };
    let bits = joined([first, second, third]);
    let is_in = |(block, prefix): &([u16; 3], u32)| (bits ^ joined(*block)) >> (48 - prefix) == 0;
    // ISATAP (RFC 5214) has the same form under every prefix, and holds an IPv4 address.
    let is_isatap = fifth & !0x0200 == 0 && sixth == 0x5efe;
    first >> 13 == 1 && !is_isatap && !V6_REFUSED.iter().any(is_in)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn must_14_only_public_addresses_are_fetched_from() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450:4001:800::200e",
            "2001:4860:4860::8888",
            "2001:200::1",
            "2620:4f:8001::1",
        ] {
            assert!(is_public(address(text)), "{text}");
        }
    }

    #[test]
    fn must_14_no_other_address_is() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::ffff:0:8.8.8.8",
            "64:ff9b::808:808",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "100:0:0:1::1",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "2002:808:808::1",
            "2620:4f:8000::1",
            "3ffe::1",
            "3fff::1",
            "3fff:fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "ff0e::1",
            "2a00::5efe:10.0.0.1",
            "2606:4700::200:5efe:7f00:1",
            "168.63.129.16",
        ] {
            assert!(!is_public(address(text)), "{text}");
        }
    }

    #[test]
    fn a_name_with_one_private_address_is_refused_whole() {
        let (public, private) = (address("1.1.1.1"), address("10.0.0.1"));
        assert_eq!(chosen(&[public]), Some(public));
        for refused in
            [&[][..], &[private], &[public, private], &[private, public], &[public; ADDRESSES_MAX + 1]]
        {
            assert_eq!(chosen(refused), None);
        }
    }

    proptest! {
        /// The standard library knows some of the blocks: none of those is public here.
        #[test]
        fn nothing_that_is_known_to_be_special_is_public(bits: u32, wide: u128) {
            let v4 = Ipv4Addr::from_bits(bits);
            if v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast()
                || v4.is_broadcast() || v4.is_documentation() || v4.is_unspecified()
            {
                prop_assert!(!is_public(v4.into()), "{v4}");
            }
            prop_assert!(!is_public(v4.to_ipv6_mapped().into()));
            prop_assert!(!is_public(v4.to_ipv6_compatible().into()));
            let v6 = Ipv6Addr::from_bits(wide);
            if v6.is_loopback() || v6.is_multicast() || v6.is_unicast_link_local() || v6.is_unique_local() {
                prop_assert!(!is_public(v6.into()), "{v6}");
            }
        }
    }
}
