//! Looking up the names of hosts, by the means of the system.
//!
//! They block, and where no server of names answers, for long: each lookup has a thread of its own, so that none holds
//! up other work of the runtime's threads. Of those there are only a few at once in the process; a caller who
//! has given up leaves its thread behind until the system gives up, too.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, LazyLock};

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};

/// Lookups at once.
const LOOKUPS_MAX: usize = 16;

/// The addresses of `host`, which may be one.
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    static ROOM: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(LOOKUPS_MAX)));
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let room = Arc::clone(&ROOM).acquire_owned().await.map_err(io::Error::other)?;
    let (sender, found) = oneshot::channel();
    let host = host.to_owned();
    std::thread::Builder::new().name("lookup".into()).spawn(move || {
        let addresses = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
        drop(room);
        // Nobody may wait any more.
        let _ = sender.send(addresses);
    })?;
    found.await.map_err(io::Error::other)?
}

/// A connection to `host`, at the first of its addresses that takes one.
pub async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    TcpStream::connect(&*resolve(host, port).await?).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_and_addresses_are_found() {
        for host in ["127.0.0.1", "::1"] {
            let ip: IpAddr = host.parse().expect("an address");
            assert_eq!(resolve(host, 81).await.expect(host), [SocketAddr::new(ip, 81)]);
        }
        let found = resolve("localhost", 81).await.expect("localhost");
        assert!(!found.is_empty() && found.iter().all(|address| address.ip().is_loopback()), "{found:?}");
        assert!(resolve("", 81).await.is_err());
    }
}
