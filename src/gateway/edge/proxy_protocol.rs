//! Connections that a proxy hands on: the PROXY header before their first byte.

use std::io;
use std::net::SocketAddr;

use net::socket::TcpStream;
use tokio::io::AsyncReadExt as _;

use protocol::proxy_header::{PREFIX_BYTES, Prefix, ProxyHeaderError};

#[derive(Debug, thiserror::Error)]
pub(super) enum ProxyProtocolError {
    #[error("only trusted proxies may connect here")]
    Untrusted,
    #[error(transparent)]
    Header(#[from] ProxyHeaderError),
    #[error("the PROXY header took too long")]
    TimedOut,
    #[error("{0}")]
    Broken(#[from] io::Error),
}

impl ProxyProtocolError {
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Untrusted => "untrusted",
            Self::Header(_) => "invalid",
            Self::TimedOut => "timeout",
            Self::Broken(_) => "closed",
        }
    }
}

/// Reads the header and nothing after it. The client's address; `None` where the connection is the proxy's own.
pub(super) async fn read(stream: &mut TcpStream) -> Result<Option<SocketAddr>, ProxyProtocolError> {
    let mut prefix = [0; PREFIX_BYTES];
    stream.read_exact(&mut prefix).await?;
    let prefix = Prefix::read(&prefix)?;
    let mut rest = vec![0; prefix.rest_bytes];
    stream.read_exact(&mut rest).await?;
    Ok(prefix.client(&rest)?)
}
