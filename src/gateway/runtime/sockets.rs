//! What the gateway listens at: a socket for each worker and listener, and one for operators.
//!
//! Sockets of our own share their address by `SO_REUSEPORT`, one for each worker. Of one that was passed each worker
//! has a duplicate, and whoever is first accepts.

use std::net::SocketAddr;

use anyhow::Context as _;

use super::inherited_sockets::{InheritError, InheritedSockets};
use crate::admin::socket as admin;
use config::{AdminPlace, Config, Listener};
use net::socket::{self, ListeningSocket};

/// Open sockets.
pub(super) struct Sockets {
    /// Where clients connect.
    pub(super) addresses: Vec<SocketAddr>,
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
        let mut addresses = Vec::new();
        let mut outlive_us = true;
        for (place, listener) in config.listeners.iter().enumerate() {
            let (address, sockets) =
                if let Some((socket, address)) = passed.listener(place, listener.address)? {
                    (address, duplicates(socket, worker_count))
                } else {
                    outlive_us = false;
                    let mut address = listener.address;
                    let sockets = own(&mut address, worker_count);
                    (address, sockets)
                };
            let sockets = sockets
                .with_context(|| format!("cannot listen at {}", listener.address))
                .map_err(SocketsError::Listen)?;
            for (worker, socket) in workers.iter_mut().zip(sockets) {
                worker.push((Listener { address, ..listener.clone() }, socket));
            }
            addresses.push(address);
        }
        let admin = config.admin.as_ref().map(|admin| open_admin(&admin.place, &mut passed)).transpose()?;
        passed.finish()?;
        let metrics = config.metrics.address.map(open_metrics).transpose().map_err(SocketsError::Listen)?;
        Ok(Self { addresses, workers, admin, metrics, outlive_us })
    }
}

fn open_admin(place: &AdminPlace, passed: &mut InheritedSockets) -> Result<admin::Socket, SocketsError> {
    let (opened, at) = match place {
        AdminPlace::Address(address) => match passed.admin(*address)? {
            Some((socket, _)) => return Ok(admin::Socket::Tcp(socket)),
            None => (socket::listen(*address, false).map(admin::Socket::Tcp), address.to_string()),
        },
        AdminPlace::Socket(path) => match passed.admin_at(path)? {
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

/// Sockets of our own. Port 0: the first one chooses, and `address` says what.
pub(super) fn own(address: &mut SocketAddr, count: usize) -> anyhow::Result<Vec<ListeningSocket>> {
    refuse_taken(*address)?;
    let mut sockets = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = socket::listen(*address, count > 1)?;
        *address = socket.local_addr()?;
        sockets.push(ListeningSocket { socket, outlives_us: false });
    }
    Ok(sockets)
}

fn duplicates(socket: std::net::TcpListener, count: usize) -> anyhow::Result<Vec<ListeningSocket>> {
    let further = (1..count).map(|_| socket.try_clone()).collect::<Result<Vec<_>, _>>()?;
    let all = std::iter::once(socket).chain(further);
    Ok(all.map(|socket| ListeningSocket { socket, outlives_us: true }).collect())
}

/// Sockets that share an address would quietly share it with another gateway's, too.
fn refuse_taken(address: SocketAddr) -> std::io::Result<()> {
    if address.port() != 0 {
        drop(socket::listen(address, false)?);
    }
    Ok(())
}
