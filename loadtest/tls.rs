//! The generator's connections, in clear or over TLS.
//!
//! TLS is pinned to one version, one suite and one group, which all servers under test have, so that they do the same
//! work, and nothing is resumed. A connection in clear costs one comparison more than without this module.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::tally::Fault;

/// How the servers under test are reached over TLS.
pub(crate) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Tls {
    /// Believes only what the certificates in the file `ca` signed, for the name `host`.
    pub(crate) fn new(ca: &Path, host: &str) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(ca).context("the certificates cannot be read")? {
            roots.add(certificate?)?;
        }
        let provider = CryptoProvider {
            cipher_suites: vec![aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384],
            kx_groups: vec![aws_lc_rs::kx_group::X25519],
            ..aws_lc_rs::default_provider()
        };
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }
}

/// A connection to the server under test.
pub(crate) enum Stream {
    Clear(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub(crate) async fn connect(address: SocketAddr, tls: Option<&Tls>) -> Result<Self, Fault> {
        let stream = TcpStream::connect(address).await.map_err(|_| Fault::Connect)?;
        stream.set_nodelay(true).map_err(|_| Fault::Connect)?;
        let Some(Tls { connector, name }) = tls else { return Ok(Self::Clear(stream)) };
        let stream = connector.connect(name.clone(), stream).await.map_err(|_| Fault::Handshake)?;
        Ok(Self::Tls(Box::new(stream)))
    }

    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Clear(stream) => stream.write_all(bytes).await,
            Self::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }

    /// Appends what has come to `buffer`; 0 at the end.
    pub(crate) async fn read_buf(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Clear(stream) => stream.read_buf(buffer).await,
            Self::Tls(stream) => stream.read_buf(buffer).await,
        }
    }

    /// Says that nothing more comes and waits until the server has closed, so that it has seen all that was sent. The
    /// port is then free at this end.
    pub(crate) async fn close(mut self) -> io::Result<()> {
        if let Self::Tls(stream) = &mut self {
            stream.get_mut().1.send_close_notify();
            stream.flush().await?;
        }
        let mut rest = Vec::with_capacity(64);
        loop {
            match self.read_buf(&mut rest).await {
                Ok(0) => return Ok(()),
                Ok(_) => rest.clear(),
                // The end was announced from this side: not every server announces its own.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use rustls::ServerConfig;
    use rustls::pki_types::PrivateKeyDer;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn speaks_with_a_server_whose_certificate_is_believed_and_with_no_other() {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve = async {
            let acceptor = TlsAcceptor::from(Arc::new(server));
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut request = [0; 4];
            stream.read_exact(&mut request).await.unwrap();
            stream.write_all(&request).await.unwrap();
            assert_eq!(stream.read(&mut request).await.unwrap(), 0, "the client says that it closes");
            stream.shutdown().await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            assert!(acceptor.accept(stream).await.is_err(), "the other client does not believe it");
        };
        let folder = std::env::temp_dir().join(format!("generator-tls-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (ca, other) = (folder.join("ca.pem"), folder.join("other.pem"));
        let stranger = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(&ca, certificate.pem()).unwrap();
        std::fs::write(&other, stranger.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()).unwrap();
        let ask = async {
            let tls = Tls::new(&ca, "127.0.0.1").unwrap();
            let mut stream = Stream::connect(address, Some(&tls)).await.unwrap();
            stream.write_all(b"ping").await.unwrap();
            let mut reply = Vec::new();
            assert_eq!(stream.read_buf(&mut reply).await.unwrap(), 4);
            assert_eq!(reply, b"ping");
            stream.close().await.unwrap();
            let stranger = Tls::new(&other, "127.0.0.1").unwrap();
            assert!(matches!(Stream::connect(address, Some(&stranger)).await, Err(Fault::Handshake)));
        };
        tokio::join!(serve, ask);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
