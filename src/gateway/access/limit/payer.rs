//! Who is charged for what is held.
//!
//! A client by its principal, or by the network of its address as long as there is no better name for it; an upstream for
//! what it says unasked; the gateway for what it does by itself. Nothing is charged to nobody.

use std::hash::{BuildHasher as _, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::LazyLock;

use super::per_address::client_network;

/// Another one in every process, so that nobody outside can find two names that meet.
static NAMES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The digest of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Payer(u64);

impl Payer {
    /// Nobody asked.
    pub(crate) const GATEWAY: Self = Self(0);
    /// Trusted proxies, as long as nothing says for whom a connection is: no bound of one client holds for them.
    pub(crate) const PROXIES: Self = Self(4);
    /// All whom nothing has room to tell apart.
    pub(crate) const OTHERS: Self = Self(2);

    /// A client whose credentials were checked, by its principal's id.
    pub(crate) fn principal(id: &str) -> Self {
        Self::named(("principal", id))
    }

    /// A client of which nothing but its address is known; of IPv6 its /64 counts.
    pub(crate) fn network(address: IpAddr) -> Self {
        Self::named(("network", client_network(address)))
    }

    /// An upstream, by its name.
    pub(crate) fn upstream(name: &str) -> Self {
        Self::named(("upstream", name))
    }

    fn named(name: impl Hash) -> Self {
        // None of those above.
        Self(NAMES.hash_one(name) | 1)
    }

    /// A client by its principal's id, or without one by its address.
    pub(crate) fn client(principal: &str, address: IpAddr) -> Self {
        if principal.is_empty() { Self::network(address) } else { Self::principal(principal) }
    }

    /// What tells it apart; zero is the gateway.
    pub(crate) const fn number(self) -> u64 {
        self.0
    }

    /// As a part of a key.
    pub(crate) fn to_bytes(self) -> [u8; 8] {
        self.0.to_ne_bytes()
    }

    /// Which of `count` shards it belongs to. `count` is a power of two.
    pub(crate) fn shard(self, count: usize) -> usize {
        usize::try_from(self.0 >> 32).unwrap_or(0) & (count - 1)
    }
}

impl Hash for Payer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_one_payer() {
        let network = |address: &str| Payer::network(address.parse().expect("address"));
        assert_eq!(Payer::principal("key:ci"), Payer::principal("key:ci"));
        assert_eq!(network("2001:db8::1"), network("2001:db8::2"));
        let all = [
            Payer::GATEWAY,
            Payer::principal("key:ci"),
            Payer::principal("key:other"),
            Payer::upstream("key:ci"),
            network("192.0.2.1"),
            network("192.0.2.2"),
            network("2001:db8:0:1::1"),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| other != one), "{one:?}");
        }
    }
}
