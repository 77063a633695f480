//! TLS handshakes: bounded in time, in bytes, by address and in how many are under way.
//!
//! A client's first message is read before anything is spent on it; then the handshake waits for its turn. All of it
//! happens before one deadline.

use std::io::{self, Read};
use std::net::IpAddr;
use std::sync::Arc;

use net::socket::TcpStream;
use net::stream::{MaybeTls, Tls, TryWrite};
use rustls::HandshakeKind;
use rustls::server::{Accepted, Acceptor};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::server::{StartHandshake, TlsStream};

use super::connection::Protocol;
use crate::access::tls::{TlsServer, certificate};
use crate::clock::now_s;
use crate::context::peer::{ClientProof, ServedCertificate};
use crate::context::worker::Worker;
use config::LimitsConfig;

/// Bytes of a client's first message: several times what they are with tickets and keys of every kind.
const HELLO_BYTES_MAX: usize = 16 << 10;

/// A connection of which everything is known that comes before HTTP.
pub(super) struct SecuredStream {
    pub(super) stream: MaybeTls,
    pub(super) protocol: Option<Protocol>,
    pub(super) proof: Option<ClientProof>,
    pub(super) shown: Option<ServedCertificate>,
}

impl SecuredStream {
    pub(super) fn in_clear(stream: TcpStream) -> Self {
        Self { stream: MaybeTls::Clear(stream), protocol: None, proof: None, shown: None }
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    #[error("the address has as many handshakes under way as it may")]
    PerAddress,
    #[error("the handshake took too long")]
    TimedOut,
    #[error("the handshake made room for others that waited")]
    CrowdedOut,
    #[error("{0}")]
    Failed(#[from] io::Error),
}

impl HandshakeError {
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::PerAddress => "refused",
            Self::TimedOut => "timeout",
            Self::CrowdedOut => "evicted",
            Self::Failed(_) => "failed",
        }
    }
}

/// Does the handshake of one connection. A proxy's own address is that of many clients, and bounds none of them.
pub(super) async fn secure(
    worker: &Worker,
    stream: TcpStream,
    (address, is_proxy): (IpAddr, bool),
    (place, server): (usize, Arc<TlsServer>),
    limits: &LimitsConfig,
    deadline: Instant,
) -> Result<SecuredStream, HandshakeError> {
    let share = if is_proxy {
        None
    } else {
        Some(worker.state.handshakes.admit(address).ok_or(HandshakeError::PerAddress)?)
    };
    let secured = timeout_at(deadline, async {
        let accepted = read_hello(&stream).await?;
        let turn = worker.handshakes.turn(address, limits.handshakes_max).await;
        let turn = turn.ok_or(HandshakeError::CrowdedOut)?;
        let handshake = StartHandshake::from_parts(accepted, stream).into_stream(Arc::clone(&server.config));
        tokio::select! {
            biased;
            secured = handshake => Ok(secured?),
            () = turn.overstayed() => Err(HandshakeError::CrowdedOut),
        }
    });
    let stream = secured.await.map_err(|_| HandshakeError::TimedOut)??;
    drop(share);
    describe(stream, place, &server)
}

fn describe(
    stream: TlsStream<TcpStream>,
    place: usize,
    server: &Arc<TlsServer>,
) -> Result<SecuredStream, HandshakeError> {
    let (_, connection) = stream.get_ref();
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut proof = None;
    if let Some(chain @ [leaf, ..]) = connection.peer_certificates() {
        let certificate = certificate::read(leaf).ok_or_else(|| invalid("the certificate cannot be read"))?;
        // A session that is resumed shows its certificate no more, and nobody looks at its dates.
        if certificate.expires_s <= now_s() {
            return Err(invalid("the certificate has expired").into());
        }
        proof = Some(ClientProof::new(certificate, chain, place, server));
    }
    let protocol = connection.alpn_protocol().map(|protocol| match protocol {
        b"h2" => Protocol::Http2,
        _ => Protocol::Http1,
    });
    let shown = Some(ServedCertificate {
        name: connection.server_name().map(|name| name.to_ascii_lowercase().into()),
        names: Arc::clone(&server.names),
    });
    Ok(SecuredStream { protocol, proof, shown, stream: MaybeTls::Tls(Tls(Box::new(stream.into()))) })
}

/// Whether the handshake took up a session that the client had before.
pub(super) fn is_resumed(stream: &MaybeTls) -> bool {
    match stream {
        MaybeTls::Clear(_) => false,
        MaybeTls::Tls(tls) => tls.0.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed),
    }
}

/// The client's first message, whole. What is wrong with it is told to the client.
async fn read_hello(stream: &TcpStream) -> io::Result<Accepted> {
    let mut acceptor = Acceptor::default();
    let mut limited = LimitedPeek { stream, left: HELLO_BYTES_MAX };
    loop {
        stream.readable().await?;
        match acceptor.read_tls(&mut limited) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => return Ok(accepted),
            Ok(None) => {}
            Err((error, mut alert)) => {
                // As far as the socket takes it.
                let _ = alert.write_all(&mut TryWrite(stream));
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
    }
}

/// What has come, up to a number of bytes.
struct LimitedPeek<'s> {
    stream: &'s TcpStream,
    left: usize,
}

impl Read for LimitedPeek<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the first message is too long"));
        }
        let room = self.left.min(buf.len());
        let count = self.stream.try_read(&mut buf[..room])?;
        self.left -= count;
        Ok(count)
    }
}
