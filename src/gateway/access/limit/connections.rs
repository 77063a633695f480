//! How many client connections are open, in all and per address.
//!
//! Invariant: a [`ConnectionPermit`] counts as long as it lives.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::per_address::{AddressShare, PerAddress};

pub(crate) use super::per_address::client_network;

#[derive(Debug)]
pub(crate) struct Connections {
    open: AtomicUsize,
    open_max: AtomicUsize,
    per_address: Arc<PerAddress>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionLimit {
    /// `connections_max`
    InAll,
    /// `connections_per_address_max`
    PerAddress,
}

impl ConnectionLimit {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::InAll => "connections_max",
            Self::PerAddress => "connections_per_address_max",
        }
    }
}

impl Connections {
    pub(crate) fn new(open_max: usize, per_address_max: usize) -> Arc<Self> {
        Arc::new(Self {
            open: AtomicUsize::new(0),
            open_max: AtomicUsize::new(open_max),
            per_address: PerAddress::new(per_address_max),
        })
    }

    /// Changes the bounds; open connections stay open.
    pub(crate) fn set_max(&self, open_max: usize, per_address_max: usize) {
        self.open_max.store(open_max, Ordering::Relaxed);
        self.per_address.set_max(per_address_max);
    }

    /// How many may be open.
    pub(crate) fn max(&self) -> usize {
        self.open_max.load(Ordering::Relaxed)
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts a new connection from `address`, or says which bound it met.
    pub(crate) fn admit(self: &Arc<Self>, address: IpAddr) -> Result<ConnectionPermit, ConnectionLimit> {
        let mut slot = self.admit_proxy()?;
        slot.charge(address)?;
        Ok(slot)
    }

    /// Counts a new connection of a proxy, which many clients may use: in all only.
    pub(crate) fn admit_proxy(self: &Arc<Self>) -> Result<ConnectionPermit, ConnectionLimit> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.open_max.load(Ordering::Relaxed) {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(ConnectionLimit::InAll);
        }
        Ok(ConnectionPermit { connections: Arc::clone(self), share: None })
    }
}

#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    connections: Arc<Connections>,
    share: Option<AddressShare>,
}

impl ConnectionPermit {
    /// The connection turned out to be that of `address`.
    pub(crate) fn charge(&mut self, address: IpAddr) -> Result<(), ConnectionLimit> {
        self.share = Some(self.connections.per_address.admit(address).ok_or(ConnectionLimit::PerAddress)?);
        Ok(())
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
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
        assert_eq!(connections.admit(one).err(), Some(ConnectionLimit::PerAddress));
        let _c = connections.admit("2001:db8::1".parse().expect("address")).expect("another address");
        assert_eq!(
            connections.admit("192.0.2.9".parse().expect("address")).err(),
            Some(ConnectionLimit::InAll)
        );
        drop(a);
        assert!(connections.admit(one).is_ok());
        assert_eq!(connections.open(), 2);
    }

    #[test]
    fn a_proxys_connection_counts_for_its_client() {
        let connections = Connections::new(4, 1);
        let client: IpAddr = "192.0.2.1".parse().expect("address");
        let mut slots: Vec<ConnectionPermit> =
            (0..3).map(|_| connections.admit_proxy().expect("a proxy is not bounded by itself")).collect();
        assert!(slots[0].charge(client).is_ok());
        assert_eq!(slots[1].charge(client), Err(ConnectionLimit::PerAddress));
        slots.clear();
        assert!(connections.admit(client).is_ok());
        assert_eq!(connections.open(), 0);
    }
}
