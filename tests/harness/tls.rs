//! TLS from a client's side, and certificates made for a test.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType, date_time_ymd};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};

use super::{Connection, DEADLINE, Folder};

/// One who signs certificates.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM form.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// One whose own certificate ended long ago.
    pub(crate) fn expired() -> Self {
        Self::with(end_long_ago)
    }

    fn with(change: impl Fn(&mut CertificateParams)) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// A certificate for these names.
    pub(crate) fn issue(&self, names: &[&str]) -> Identity {
        self.issue_with(names, |_| {})
    }

    /// A certificate that ended long ago.
    pub(crate) fn issue_expired(&self, names: &[&str]) -> Identity {
        self.issue_with(names, end_long_ago)
    }

    /// A certificate for this URI.
    pub(crate) fn issue_uri(&self, uri: &str) -> Identity {
        self.issue_with(&[], |params| {
            params.subject_alt_names = vec![SanType::URI(uri.try_into().expect("ASCII"))];
        })
    }

    pub(crate) fn issue_with(&self, names: &[&str], change: impl Fn(&mut CertificateParams)) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Identity { chain: certificate.pem(), key: key.serialize_pem() }
    }
}

fn end_long_ago(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2021, 1, 1);
}

/// Certificates as files, which a test may replace.
pub(crate) struct Certificates(Folder);

impl Certificates {
    pub(crate) fn new() -> Self {
        Self(Folder::new())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, pem: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, pem).expect("a file can be written");
        path
    }

    /// Writes `NAME.pem` and `NAME.key`, and returns their entry in `certificates`.
    pub(crate) fn add(&self, name: &str, identity: &Identity) -> String {
        let chain = self.write(&format!("{name}.pem"), &identity.chain);
        let key = self.write(&format!("{name}.key"), &identity.key);
        format!("{{ chain = \"{}\", key = {{ file = \"{}\" }} }}", chain.display(), key.display())
    }
}

/// How a client speaks TLS. What it remembers of sessions is shared by its connections.
#[derive(Clone)]
pub(crate) struct TlsClient {
    config: Arc<ClientConfig>,
}

impl TlsClient {
    /// A client that believes `authority`, shows nothing and leaves the protocol to its bytes.
    pub(crate) fn new(authority: &Authority) -> Self {
        Self::with(authority, None, rustls::ALL_VERSIONS)
    }

    /// A client that shows a certificate.
    pub(crate) fn showing(authority: &Authority, identity: &Identity) -> Self {
        Self::with(authority, Some(identity), rustls::ALL_VERSIONS)
    }

    /// A client of these versions alone.
    pub(crate) fn with(
        authority: &Authority,
        identity: Option<&Identity>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).expect("PEM")).expect("a root");
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let chain = CertificateDer::pem_slice_iter(identity.chain.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key");
                builder.with_client_auth_cert(chain.map(Result::unwrap).collect(), key).expect("an identity")
            }
        };
        config.resumption = Resumption::in_memory_sessions(16);
        Self { config: Arc::new(config) }
    }

    /// Offers these protocols.
    pub(crate) fn offering(mut self, protocols: &[&str]) -> Self {
        Arc::make_mut(&mut self.config).alpn_protocols =
            protocols.iter().map(|one| one.as_bytes().to_vec()).collect();
        self
    }

    /// Asks for no name.
    pub(crate) fn nameless(mut self) -> Self {
        Arc::make_mut(&mut self.config).enable_sni = false;
        self
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// Sends early data where it may.
    pub(crate) fn hasty(mut self) -> Self {
        Arc::make_mut(&mut self.config).enable_early_data = true;
        self
    }

    /// The first message of a handshake.
    pub(crate) fn hello(&self, name: &str) -> Vec<u8> {
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let mut connection = ClientConnection::new(self.config(), name).expect("a client");
        let mut hello = Vec::new();
        connection.write_tls(&mut hello).expect("a buffer takes it");
        hello
    }

    /// A connection after its handshake.
    #[track_caller]
    pub(crate) fn connect(&self, address: SocketAddr, name: &str) -> Connection {
        self.try_connect(address, name).unwrap_or_else(|error| panic!("no handshake: {error}"))
    }

    /// A connection after its handshake, or why there is none. In TLS 1.3 the server may still refuse the client's
    /// certificate after that.
    pub(crate) fn try_connect(&self, address: SocketAddr, name: &str) -> io::Result<Connection> {
        let socket = TcpStream::connect_timeout(&address, DEADLINE).expect("the gateway accepts");
        self.try_over(socket, name)
    }

    /// As [`try_connect`](Self::try_connect), over a connection that is open already.
    pub(crate) fn try_over(&self, mut socket: TcpStream, name: &str) -> io::Result<Connection> {
        socket.set_read_timeout(Some(DEADLINE)).expect("a timeout can be set");
        socket.set_write_timeout(Some(DEADLINE)).expect("a timeout can be set");
        socket.set_nodelay(true).expect("nodelay can be set");
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let mut connection = ClientConnection::new(self.config(), name).expect("a client");
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(Connection::of(Wire::Tls(Box::new(StreamOwned::new(connection, socket)))))
    }
}

/// What a connection runs over.
pub(crate) enum Wire {
    Clear(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Clear(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }

    pub(crate) fn finish(&mut self) {
        if let Self::Tls(stream) = self {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
        let _ = self.socket().shutdown(Shutdown::Write);
    }

    /// The state of TLS, which must be there.
    pub(crate) fn tls(&self) -> &ClientConnection {
        match self {
            Self::Tls(stream) => &stream.conn,
            Self::Clear(_) => panic!("this connection is in clear"),
        }
    }
}

impl Read for Wire {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Clear(socket) => socket.read(buf),
            Self::Tls(stream) => stream.read(buf),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Clear(socket) => socket.write(buf),
            Self::Tls(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Clear(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
