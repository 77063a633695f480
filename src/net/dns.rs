//! Looking up the names of hosts, by the means of the system.
//!
//! They block, and where no server of names answers, for long: each lookup has a thread of its own, so that none holds
//! up other work of the runtime's threads. Of those there are only a few at once in the process; a caller who
//! has given up leaves its thread behind until the system gives up, too.
//!
//! Invariant: names that strangers choose take none of these places, since each may hold one for as long as a server of names
//! that is theirs says nothing. Whoever looks them up has places of its own ([`resolve_in`]).

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, LazyLock};

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};

/// Lookups at once.
const LOOKUPS_MAX: usize = 16;

static ROOM: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(LOOKUPS_MAX)));

/// The addresses of `host`, which may be one.
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Some(address) = written(host, port) {
        return Ok(vec![address]);
    }
    let place = Arc::clone(&ROOM).acquire_owned().await.map_err(io::Error::other)?;
    resolve_in(place, host, port).await
}

/// As [`resolve`], in a place of the caller's own. It is taken until the system has found the addresses or given up, whoever
/// still waits.
pub async fn resolve_in(place: impl Send + 'static, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Some(address) = written(host, port) {
        return Ok(vec![address]);
    }
    let (sender, found) = oneshot::channel();
    let host = host.to_owned();
    std::thread::Builder::new().name("lookup".into()).spawn(move || {
        let addresses = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
        drop(place);
        // Nobody may wait any more.
        let _ = sender.send(addresses);
    })?;
    found.await.map_err(io::Error::other)?
}

/// The address that a host is written as.
fn written(host: &str, port: u16) -> Option<SocketAddr> {
    Some(SocketAddr::new(host.parse::<IpAddr>().ok()?, port))
}

/// A connection to `host`, at the first of its addresses that takes one.
pub async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    TcpStream::connect(&*resolve(host, port).await?).await
}

#[cfg(test)]
pub(crate) mod tests {
    use tokio::sync::OwnedSemaphorePermit;

    use super::*;

    /// All places of the process, as if a lookup that hangs held each.
    pub(crate) async fn all_places() -> OwnedSemaphorePermit {
        let count = LOOKUPS_MAX.try_into().expect("a small number");
        Arc::clone(&ROOM).acquire_many_owned(count).await.expect("places")
    }

    #[tokio::test]
    async fn a_place_of_the_callers_own_is_taken_until_the_lookup_is_over() {
        let _all = all_places().await;
        let place = Arc::new(());
        assert!(!resolve_in(Arc::clone(&place), "localhost", 81).await.expect("localhost").is_empty());
        assert_eq!(Arc::strong_count(&place), 1);
    }

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
