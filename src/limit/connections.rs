//! How many client connections are open, in all and per address.
//!
//! Invariant: a [`Slot`] counts as long as it lives. IPv6 clients are counted by /64, the least that one
//! client is given.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Locks are spread over this many shards, so that accepting workers seldom meet.
const SHARDS: usize = 16;

/// The counters and their bounds.
#[derive(Debug)]
pub struct Connections {
    open: AtomicUsize,
    open_max: AtomicUsize,
    per_address_max: AtomicUsize,
    by_address: [Mutex<HashMap<IpAddr, usize>>; SHARDS],
}

/// Which bound a new connection met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// `connections_max`
    InAll,
    /// `connections_per_address_max`
    PerAddress,
}

impl Refused {
    /// The metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::InAll => "connections_max",
            Self::PerAddress => "connections_per_address_max",
        }
    }
}

impl Connections {
    /// Counters with these bounds.
    pub fn new(open_max: usize, per_address_max: usize) -> Arc<Self> {
        Arc::new(Self {
            open: AtomicUsize::new(0),
            open_max: AtomicUsize::new(open_max),
            per_address_max: AtomicUsize::new(per_address_max),
            by_address: std::array::from_fn(|_| Mutex::default()),
        })
    }

    /// Changes the bounds; open connections stay open.
    pub fn set_max(&self, open_max: usize, per_address_max: usize) {
        self.open_max.store(open_max, Ordering::Relaxed);
        self.per_address_max.store(per_address_max, Ordering::Relaxed);
    }

    /// How many may be open.
    pub fn max(&self) -> usize {
        self.open_max.load(Ordering::Relaxed)
    }

    /// How many are open now.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a new connection from `address`, or says which bound it met.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Result<Slot, Refused> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.open_max.load(Ordering::Relaxed) {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(Refused::InAll);
        }
        let address = client_network(address);
        let mut shard = self.shard(address);
        let count = shard.entry(address).or_insert(0);
        if *count >= self.per_address_max.load(Ordering::Relaxed) {
            if *count == 0 {
                shard.remove(&address);
            }
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(Refused::PerAddress);
        }
        *count += 1;
        Ok(Slot { connections: Arc::clone(self), address })
    }

    fn shard(&self, address: IpAddr) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        let sum: usize = match address {
            IpAddr::V4(address) => address.octets().iter().map(|byte| usize::from(*byte)).sum(),
            IpAddr::V6(address) => address.octets().iter().map(|byte| usize::from(*byte)).sum(),
        };
        // A count is right after every statement, so a panic elsewhere leaves nothing half done.
        self.by_address[sum % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What counts as one client: an address, or of IPv6 a network of one.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64))
        }
        other => other,
    }
}

/// One open connection.
#[derive(Debug)]
pub struct Slot {
    connections: Arc<Connections>,
    address: IpAddr,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut shard = self.connections.shard(self.address);
        if let Some(count) = shard.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                shard.remove(&self.address);
            }
        }
        drop(shard);
        self.connections.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_in_all_and_per_address() {
        let connections = Connections::new(3, 2);
        let one: IpAddr = "192.0.2.1".parse().expect("address");
        let a = connections.admit(one).expect("first");
        let _b = connections.admit(one).expect("second");
        assert_eq!(connections.admit(one).err(), Some(Refused::PerAddress));
        let _c = connections.admit("2001:db8::1".parse().expect("address")).expect("another address");
        assert_eq!(connections.admit("192.0.2.9".parse().expect("address")).err(), Some(Refused::InAll));
        drop(a);
        assert!(connections.admit(one).is_ok());
        assert_eq!(connections.open(), 2);
    }

    #[test]
    fn one_client_network_is_one_client() {
        let connections = Connections::new(10, 1);
        let _a = connections.admit("2001:db8::1".parse().expect("address")).expect("first");
        for (address, passes) in [("2001:db8::2", false), ("2001:db8:0:1::1", true), ("::1", true)] {
            let address = address.parse().expect("address");
            assert_eq!(connections.admit(address).is_ok(), passes, "{address}");
        }
        let _mapped = connections.admit("::ffff:192.0.2.1".parse().expect("address")).expect("mapped");
        assert!(connections.admit("192.0.2.1".parse().expect("address")).is_err());
    }
}
