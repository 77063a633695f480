//! What the gateway listens at: a socket for each worker and listener, and one for operators.
//!
//! Sockets of our own share their address by `SO_REUSEPORT`, one for each worker. Of one that was passed, and of a Unix socket,
//! each worker has a duplicate, and whoever is first accepts.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;

use super::inherited_sockets::{InheritError, InheritedSockets};
use super::socket_units::SocketUnits;
use crate::admin::socket::{self as admin, SocketFile};
use config::{Config, ListenAddress, Listener};
use net::socket::{self, ListenerSocket, ListeningSocket};

/// Where a listener is, with the port that the system chose for port 0.
#[derive(Clone, Debug)]
pub(super) struct OpenPlace {
    pub(super) address: ListenAddress,
    /// The file of a Unix socket of our own: it goes with the last who knows of it.
    #[expect(dead_code, reason = "removed when dropped")]
    pub(super) file: Option<Arc<SocketFile>>,
    /// The unit that was to open a socket of our own.
    pub(super) unused_socket_unit: Option<String>,
}

/// Open sockets.
pub(super) struct Sockets {
    /// Where clients connect.
    pub(super) places: Vec<OpenPlace>,
    /// Each worker's.
    pub(super) workers: Vec<Vec<(Listener, ListeningSocket)>>,
    /// That of the admin listener.
    pub(super) admin: Option<admin::Socket>,
    /// That of metrics alone.
    pub(super) metrics: Option<admin::Socket>,
    /// Whether every listener's was open before the process and stays open after it.
    pub(super) outlive_us: bool,
}

/// Why there are no sockets.
#[derive(Debug, thiserror::Error)]
pub enum SocketsError {
    /// What was passed does not fit the configuration.
    #[error(transparent)]
    Passed(#[from] InheritError),
    /// The system refuses an address.
    #[error("{0:#}")]
    Listen(anyhow::Error),
}

impl Sockets {
    /// Opens all, or none.
    pub(super) fn open(
        config: &Config,
        mut passed: InheritedSockets,
        worker_count: usize,
    ) -> Result<Self, SocketsError> {
        let mut workers: Vec<Vec<_>> = (0..worker_count).map(|_| Vec::new()).collect();
        let mut places = Vec::new();
        let mut outlive_us = true;
        let units = SocketUnits::of_process();
        for (number, listener) in config.listeners.iter().enumerate() {
            let (place, sockets) = if let Some((socket, address)) = inherited(&mut passed, number, listener)?
            {
                let sockets = copies(socket, worker_count, true).map_err(anyhow::Error::from);
                let place = OpenPlace { address, file: None, unused_socket_unit: None };
                (place, sockets.map_err(SocketsError::Listen)?)
            } else {
                outlive_us = false;
                let (place, sockets) = own(listener, worker_count).map_err(SocketsError::Listen)?;
                let unused_socket_unit = units.unit_for(number, &listener.address).map(str::to_owned);
                (OpenPlace { unused_socket_unit, ..place }, sockets)
            };
            for (worker, socket) in workers.iter_mut().zip(sockets) {
                worker.push((Listener { address: place.address.clone(), ..listener.clone() }, socket));
            }
            places.push(place);
        }
        let admin = config.admin.as_ref().map(|admin| open_admin(&admin.place, &mut passed)).transpose()?;
        passed.finish()?;
        let metrics = config.metrics.address.map(open_metrics).transpose().map_err(SocketsError::Listen)?;
        Ok(Self { places, workers, admin, metrics, outlive_us })
    }
}

fn open_admin(place: &ListenAddress, passed: &mut InheritedSockets) -> Result<admin::Socket, SocketsError> {
    let (opened, at) = match place {
        ListenAddress::Address(address) => match passed.admin(*address)? {
            Some((socket, _)) => return Ok(admin::Socket::Tcp(socket)),
            None => (socket::listen(*address, false).map(admin::Socket::Tcp), address.to_string()),
        },
        ListenAddress::Socket(path) => match passed.admin_at(path)? {
            Some(socket) => return Ok(admin::Socket::passed(socket, path)),
            None => (admin::Socket::at(path), format!("unix:{}", path.display())),
        },
    };
    opened.with_context(|| format!("cannot listen at {at}")).map_err(SocketsError::Listen)
}

/// A socket for metrics alone.
pub(super) fn open_metrics(address: SocketAddr) -> anyhow::Result<admin::Socket> {
    let socket = socket::listen(address, false).with_context(|| format!("cannot listen at {address}"))?;
    Ok(admin::Socket::Tcp(socket))
}

/// That of the listener of this number, if it was passed, and where it really is.
fn inherited(
    passed: &mut InheritedSockets,
    number: usize,
    listener: &Listener,
) -> Result<Option<(ListenerSocket, ListenAddress)>, InheritError> {
    Ok(match &listener.address {
        ListenAddress::Address(address) => {
            let socket = passed.listener(number, *address)?;
            socket.map(|(socket, at)| (ListenerSocket::Tcp(socket), ListenAddress::Address(at)))
        }
        ListenAddress::Socket(path) => {
            let socket = passed.listener_at(number, path, listener.socket_mode)?;
            socket.map(|socket| (ListenerSocket::Unix(socket), listener.address.clone()))
        }
    })
}

/// Sockets of our own, and where they are: port 0 lets the system choose.
pub(super) fn own(listener: &Listener, count: usize) -> anyhow::Result<(OpenPlace, Vec<ListeningSocket>)> {
    let opened = match &listener.address {
        ListenAddress::Address(address) => own_at(*address, count),
        ListenAddress::Socket(path) => {
            let bound = admin::bind(path, listener.socket_mode, listener.socket_group.as_deref());
            bound.and_then(|(socket, file)| {
                let sockets = copies(ListenerSocket::Unix(socket), count, false)?;
                let (address, file) = (listener.address.clone(), Some(Arc::new(file)));
                Ok((OpenPlace { address, file, unused_socket_unit: None }, sockets))
            })
        }
    };
    opened.with_context(|| format!("cannot listen at {}", listener.address))
}

fn own_at(mut address: SocketAddr, count: usize) -> io::Result<(OpenPlace, Vec<ListeningSocket>)> {
    refuse_taken(address)?;
    let mut sockets = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = socket::listen(address, count > 1)?;
        address = socket.local_addr()?;
        sockets.push(ListeningSocket { socket: ListenerSocket::Tcp(socket), outlives_us: false });
    }
    let address = ListenAddress::Address(address);
    Ok((OpenPlace { address, file: None, unused_socket_unit: None }, sockets))
}

fn copies(socket: ListenerSocket, count: usize, outlives_us: bool) -> io::Result<Vec<ListeningSocket>> {
    let further = (1..count).map(|_| socket.try_clone()).collect::<Result<Vec<_>, _>>()?;
    let all = std::iter::once(socket).chain(further);
    Ok(all.map(|socket| ListeningSocket { socket, outlives_us }).collect())
}

/// Sockets that share an address would quietly share it with another gateway's, too.
fn refuse_taken(address: SocketAddr) -> io::Result<()> {
    if address.port() != 0 {
        drop(socket::listen(address, false)?);
    }
    Ok(())
}
