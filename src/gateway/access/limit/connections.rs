//! How many client connections are open, in all and per address.
//!
//! Invariant: a [`ConnectionPermit`] counts as long as it lives.

use std::net::IpAddr;
use std::sync::Arc;

use super::per_address::{AddressShare, PerAddress};
use super::quota::{Quota, QuotaPermit};

pub(crate) use super::per_address::client_network;

#[derive(Debug)]
pub(crate) struct Connections {
    open: Arc<Quota>,
    per_address: Arc<PerAddress>,
    /// Held by each who accepts from a socket that outlives the process.
    accepting: Arc<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionLimit {
    InAll,
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
        let per_address = PerAddress::new(per_address_max);
        Arc::new(Self { open: Quota::new(open_max), per_address, accepting: Arc::default() })
    }

    /// Changes the bounds; open connections stay open.
    pub(crate) fn set_max(&self, open_max: usize, per_address_max: usize) {
        self.open.set_max(open_max);
        self.per_address.set_max(per_address_max);
    }

    pub(crate) fn max(&self) -> usize {
        self.open.max()
    }

    pub(crate) fn open(&self) -> usize {
        self.open.taken()
    }

    /// To be held by who accepts until it accepts no more.
    pub(crate) fn accepting(&self) -> Arc<()> {
        Arc::clone(&self.accepting)
    }

    /// Whether no client is connected, and none will be.
    pub(crate) fn are_over(&self) -> bool {
        Arc::strong_count(&self.accepting) == 1 && self.open() == 0
    }

    /// Counts a new connection from `address`, or says which bound it met.
    pub(crate) fn admit(&self, address: IpAddr) -> Result<ConnectionPermit, ConnectionLimit> {
        let mut permit = self.admit_proxy()?;
        permit.charge(address)?;
        Ok(permit)
    }

    /// Counts a new connection of a proxy, which many clients may use: in all only.
    pub(crate) fn admit_proxy(&self) -> Result<ConnectionPermit, ConnectionLimit> {
        let open = self.open.take().ok_or(ConnectionLimit::InAll)?;
        Ok(ConnectionPermit { _open: open, per_address: Arc::clone(&self.per_address), share: None })
    }
}

#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    _open: QuotaPermit,
    per_address: Arc<PerAddress>,
    share: Option<AddressShare>,
}

impl ConnectionPermit {
    /// The connection turned out to be that of `address`.
    pub(crate) fn charge(&mut self, address: IpAddr) -> Result<(), ConnectionLimit> {
        self.share = Some(self.per_address.admit(address).ok_or(ConnectionLimit::PerAddress)?);
        Ok(())
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
