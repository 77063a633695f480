//! TCP connections off the data path, and why there is none, in words for an operator.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;

use crate::dns;
use crate::socket;

/// A connection to `host`, at the first of its addresses that takes one.
pub(crate) async fn dial(host: &str, port: u16) -> Result<TcpStream, String> {
    let addresses = look_up(host, port).await?;
    dial_address(&addresses).await.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => format!("nothing listens on port {port} of {host}"),
        _ => error.to_string(),
    })
}

/// A connection to the first of these that takes one.
pub(crate) async fn dial_address(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(addresses).await?;
    socket::tune(&stream)?;
    Ok(stream)
}

/// The addresses of `host`.
async fn look_up(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    dns::resolve(host, port).await.map_err(|error| unknown(host, &error))
}

/// The addresses of `host`, looked up in a place of the caller's own.
pub(crate) async fn look_up_in(
    place: impl Send + 'static,
    host: &str,
    port: u16,
) -> Result<Vec<SocketAddr>, String> {
    dns::resolve_in(place, host, port).await.map_err(|error| unknown(host, &error))
}

fn unknown(host: &str, error: &io::Error) -> String {
    let why = error.to_string();
    let why = why.strip_prefix("failed to lookup address information: ").unwrap_or(&why);
    format!("the name {host:?} cannot be looked up: {why}")
}
