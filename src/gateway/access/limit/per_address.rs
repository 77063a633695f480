//! How many of something each client network has.
//!
//! Invariant: a [`AddressShare`] counts as long as it lives. IPv6 clients are counted by /64, the least that one client
//! is given.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};

/// Locks are spread over this many shards, so that accepting workers seldom meet.
const SHARDS: usize = 16;

#[derive(Debug)]
pub(crate) struct PerAddress {
    max: AtomicUsize,
    shards: [Mutex<HashMap<IpAddr, usize>>; SHARDS],
}

impl PerAddress {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max: AtomicUsize::new(max), shards: std::array::from_fn(|_| Mutex::default()) })
    }

    /// Changes the bound; what is counted stays.
    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Counts one more of `address`, unless it has as many as it may.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<AddressShare> {
        let network = client_network(address);
        let mut shard = self.shard(network);
        let count = shard.entry(network).or_insert(0);
        if *count >= self.max.load(Ordering::Relaxed) {
            if *count == 0 {
                shard.remove(&network);
            }
            return None;
        }
        *count += 1;
        Some(AddressShare { of: Arc::clone(self), network })
    }

    fn shard(&self, network: IpAddr) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        let sum: usize = match network {
            IpAddr::V4(address) => address.octets().iter().map(|byte| usize::from(*byte)).sum(),
            IpAddr::V6(address) => address.octets().iter().map(|byte| usize::from(*byte)).sum(),
        };
        // A count is right after every statement, so a panic elsewhere leaves nothing half done.
        self.shards[sum % SHARDS].lock()
    }
}

#[derive(Debug)]
pub(crate) struct AddressShare {
    of: Arc<PerAddress>,
    network: IpAddr,
}

impl Drop for AddressShare {
    fn drop(&mut self) {
        let mut shard = self.of.shard(self.network);
        if let Some(count) = shard.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                shard.remove(&self.network);
            }
        }
    }
}

/// What counts as one client: an address, or of IPv6 a network of one.
pub(crate) fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_network_is_one_client() {
        let counted = PerAddress::new(1);
        let admit = |address: &str| counted.admit(address.parse().expect("address"));
        let first = admit("2001:db8::1");
        assert!(first.is_some());
        for (address, passes) in [("2001:db8::2", false), ("2001:db8:0:1::1", true), ("::1", true)] {
            assert_eq!(admit(address).is_some(), passes, "{address}");
        }
        let _mapped = admit("::ffff:192.0.2.1").expect("mapped");
        assert!(admit("192.0.2.1").is_none());
        drop(first);
        assert!(admit("2001:db8::2").is_some());
    }
}
