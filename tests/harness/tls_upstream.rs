//! Servers over TLS: what takes TLS off before a scripted upstream, and files that name whom to believe.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::{Authority, Folder, Identity};

impl Authority {
    /// Writes its certificate.
    pub(crate) fn file(&self, folder: &Folder, name: &str) -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, &self.pem).expect("a file can be written");
        path
    }

    /// A certificate that is valid from the beginning of one year to that of another.
    pub(crate) fn issue_for_years(&self, names: &[&str], first: i32, last: i32) -> Identity {
        self.issue_with(names, |params| {
            params.not_before = date_time_ymd(first, 1, 1);
            params.not_after = date_time_ymd(last, 1, 1);
        })
    }
}

impl Identity {
    pub(crate) fn self_signed(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        Self { chain: params.self_signed(&key).expect("a certificate").pem(), key: key.serialize_pem() }
    }

    /// Writes both; the key for the owner alone.
    pub(crate) fn files(&self, folder: &Folder) -> (PathBuf, PathBuf) {
        let (chain, key) = (folder.path().join("client.pem"), folder.path().join("client.key"));
        std::fs::write(&chain, &self.chain).expect("a file can be written");
        write_secret(&key, &self.key);
        (chain, key)
    }
}

/// Writes a file that its owner alone can read.
pub(crate) fn write_secret(path: &std::path::Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text).expect("a file can be written");
    let owner_only = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, owner_only).expect("its mode can be set");
}

/// What stands before an upstream and takes TLS off. Stopped when dropped.
pub(crate) struct TlsEar {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// A handshake that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The name that was asked for.
    pub(crate) name: Option<String>,
    /// The protocol that was agreed on.
    pub(crate) protocol: Option<String>,
    /// Whether a certificate was shown.
    pub(crate) has_certificate: bool,
    /// Whether an earlier session was resumed.
    pub(crate) is_resumed: bool,
}

impl TlsEar {
    /// Listens before `upstream`; with `client_ca`, certificates of clients are required.
    pub(crate) fn before(upstream: SocketAddr, identity: &Identity, client_ca: Option<&Authority>) -> Self {
        let acceptor = TlsAcceptor::from(Arc::new(server_config(identity, client_ca)));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket that does not block");
        let address = listener.local_addr().expect("an address");
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let noted = Arc::clone(&seen);
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("a listener");
                let serve = async {
                    while let Ok((stream, _)) = listener.accept().await {
                        tokio::spawn(pass(stream, acceptor.clone(), upstream, Arc::clone(&noted)));
                    }
                };
                tokio::select! {
                    () = serve => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, seen, stop: Some(stop), thread: Some(thread) }
    }

    /// The handshakes that succeeded.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for TlsEar {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

async fn pass(stream: TcpStream, acceptor: TlsAcceptor, upstream: SocketAddr, seen: Arc<Mutex<Vec<Seen>>>) {
    let Ok(mut stream) = acceptor.accept(stream).await else { return };
    let (_, session) = stream.get_ref();
    seen.lock().unwrap().push(Seen {
        name: session.server_name().map(str::to_owned),
        protocol: session.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned()),
        has_certificate: session.peer_certificates().is_some(),
        is_resumed: session.handshake_kind() == Some(rustls::HandshakeKind::Resumed),
    });
    let Ok(mut upstream) = TcpStream::connect(upstream).await else { return };
    let _ = tokio::io::copy_bidirectional(&mut stream, &mut upstream).await;
}

fn server_config(identity: &Identity, client_ca: Option<&Authority>) -> ServerConfig {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("versions");
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            let root = CertificateDer::from_pem_slice(ca.pem.as_bytes()).expect("a certificate");
            roots.add(root).expect("a root");
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
            builder.with_client_cert_verifier(verifier.expect("a verifier"))
        }
    };
    let chain = CertificateDer::pem_slice_iter(identity.chain.as_bytes()).collect::<Result<Vec<_>, _>>();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key");
    let mut config = builder.with_single_cert(chain.expect("a chain"), key).expect("an identity");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}
