//! How many client connections are open, in all and per address.
//!
//! Before a client has shown who it is, its address pays. A trusted proxy is not one client: its connections are charged to
//! those for whom they turn out to be, or to nobody's share.
//!
//! Invariant: a [`ConnectionPermit`] counts as long as it lives.

use std::net::IpAddr;
use std::sync::Arc;

use super::payer::Payer;
use super::shares::{NoShare, Share, Shares};

#[derive(Debug)]
pub(crate) struct Connections {
    open: Arc<Shares>,
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

impl From<NoShare> for ConnectionLimit {
    fn from(none: NoShare) -> Self {
        match none {
            NoShare::NothingLeft => Self::InAll,
            NoShare::TooMuchOfPayer => Self::PerAddress,
        }
    }
}

impl Connections {
    pub(crate) fn new(open_max: usize, per_address_max: usize) -> Arc<Self> {
        let connections = Self { open: Shares::new(open_max), accepting: Arc::default() };
        connections.set_max(open_max, per_address_max);
        Arc::new(connections)
    }

    /// Changes the bounds; open connections stay open.
    pub(crate) fn set_max(&self, open_max: usize, per_address_max: usize) {
        self.open.set_max(open_max);
        self.open.set_of_payer_max(per_address_max);
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
        Ok(ConnectionPermit(self.open.take(Payer::network(address))?))
    }

    /// Counts a new connection of a proxy, which many clients may use: in all only.
    pub(crate) fn admit_proxy(&self) -> Result<ConnectionPermit, ConnectionLimit> {
        Ok(ConnectionPermit(self.open.take(Payer::PROXIES)?))
    }
}

#[derive(Debug)]
pub(crate) struct ConnectionPermit(Share);

impl ConnectionPermit {
    /// The connection turned out to be that of `address`.
    pub(crate) fn charge(&mut self, address: IpAddr) -> Result<(), ConnectionLimit> {
        Ok(self.0.pass_to(Payer::network(address))?)
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
    fn one_address_leaves_places_for_others() {
        let connections = Connections::new(16, 16);
        let one: IpAddr = "192.0.2.1".parse().expect("address");
        let held: Vec<_> = std::iter::from_fn(|| connections.admit(one).ok()).collect();
        assert_eq!(held.len(), 14);
        assert_eq!(connections.admit(one).err(), Some(ConnectionLimit::PerAddress));
        assert!(connections.admit("192.0.2.2".parse().expect("address")).is_ok());
        assert!(connections.admit_proxy().is_ok());
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
