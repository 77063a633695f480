//! TLS of the listeners: certificates by name, client certificates, resumption.
//!
//! What a listener speaks is built from its files at start and at every reload, completely or not at all, and then
//! never changed: open connections keep what they began with, but for the certificate of a client, which must be
//! one that would still be believed. Sessions are resumed from tickets that clients keep,
//! so that they take no memory here; the keys of tickets are renewed every few hours, and with every file that
//! changes, so that nobody resumes what new files would not let begin. There is no early data: a call must not be
//! played back.
//!
//! A client that asks for a name that no certificate has is shown the first one: it will say itself that this is not
//! whom it wanted, and more clearly than an alert could.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use sha2::{Digest as _, Sha256};

use super::certificate;
use super::names::Names;
use crate::config::{self, CertificateDemand, Config, ListenerTls, SecretSource, TlsVersion};
use crate::secret::{Secret, SecretError};

/// More than any chain with its roots needs.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Preferred first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// What one listener speaks.
pub struct Server {
    /// For new connections.
    pub config: Arc<ServerConfig>,
    /// Whose certificates these are.
    pub names: Arc<Names>,
    /// When they end.
    pub expiries: Vec<Expiry>,
    /// Who checks certificates of clients, if they are asked for.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// Of the settings and of all files.
    digest: [u8; 32],
}

/// When what is in a file ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The file.
    pub path: PathBuf,
    /// In seconds since 1970; of several certificates the first to end.
    pub ends_s: u64,
}

/// Why a listener cannot speak TLS. Shows nothing of a key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{path}: {what}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A key cannot be read.
    #[error(transparent)]
    Key(#[from] SecretError),
    /// A key is not what it should be.
    #[error("{source_name} {what}")]
    KeyContent {
        /// Where it was read from.
        source_name: SecretSource,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The settings do not go together.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("expiries", &self.expiries).finish_non_exhaustive()
    }
}

impl Server {
    /// Reads all files of `settings`. Where nothing has changed since `old`, it is kept.
    pub fn load(settings: &ListenerTls, old: Option<&Arc<Self>>) -> Result<Arc<Self>, TlsError> {
        let files = Files::read(settings)?;
        let digest = files.digest(settings);
        if let Some(old) = old.filter(|old| old.digest == digest) {
            return Ok(Arc::clone(old));
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut names = Names::default();
        let mut expiries = Vec::new();
        let mut certificates = Vec::new();
        for ((path, chain), (source, key)) in files.chains.iter().zip(&files.keys) {
            let chain = read_chain(path, chain)?;
            let leaf = certificate::read(&chain[0]).ok_or_else(|| not_a_certificate(path))?;
            names.add(leaf.dns_names.iter().map(|name| &**name));
            expiries.push(Expiry { path: path.clone(), ends_s: first_end(path, &chain)? });
            certificates.push(Arc::new(certified(chain, source, key, &provider)?));
        }
        let verifier = match &files.client_ca {
            Some((path, ca)) => {
                let roots = read_chain(path, ca)?;
                expiries.push(Expiry { path: path.clone(), ends_s: first_end(path, &roots)? });
                let is_optional = settings.client_certificates == CertificateDemand::Optional;
                Some(client_verifier(path, roots, is_optional, &provider)?)
            }
            None => None,
        };
        let names = Arc::new(names);
        let chooser = Chooser { certificates, names: Arc::clone(&names) };
        let config = server_config(provider, settings.version_min, verifier.clone(), chooser)?;
        Ok(Arc::new(Self { config: Arc::new(config), names, expiries, verifier, digest }))
    }

    /// Whether a client that shows this chain, its own certificate first, would be believed.
    pub fn trusts(&self, chain: &[CertificateDer<'_>]) -> bool {
        match (&self.verifier, chain) {
            (Some(verifier), [leaf, others @ ..]) => {
                verifier.verify_client_cert(leaf, others, UnixTime::now()).is_ok()
            }
            _ => false,
        }
    }
}

/// The TLS of all listeners, in the order in which the process started with them.
#[derive(Debug)]
pub struct Servers {
    listeners: Vec<config::Listener>,
    current: ArcSwap<Vec<Option<Arc<Server>>>>,
}

impl Servers {
    /// Reads the files of every listener.
    pub fn load(config: &Config) -> Result<Self, TlsError> {
        let loaded = config
            .listeners
            .iter()
            .map(|listener| listener.tls.as_ref().map(|settings| Server::load(settings, None)).transpose());
        let current = loaded.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { listeners: config.listeners.clone(), current: ArcSwap::from_pointee(current) })
    }

    /// Reads the files again, by the settings of the listeners of `config` that have the same address, or else the
    /// same place. Nothing is replaced yet. What is no longer configured goes on as it is until the next start.
    pub fn reread(&self, config: &Config) -> Result<Vec<Option<Arc<Server>>>, TlsError> {
        let current = self.current.load();
        let each = self.listeners.iter().zip(current.iter()).enumerate();
        each.map(|(place, (started, old))| {
            let mut listeners = config.listeners.iter();
            let same = listeners.find(|now| started.address.port() != 0 && now.address == started.address);
            let settings = same.or(config.listeners.get(place)).and_then(|listener| listener.tls.as_ref());
            match (old, settings) {
                (Some(old), Some(settings)) => Server::load(settings, Some(old)).map(Some),
                (old, _) => Ok(old.clone()),
            }
        })
        .collect()
    }

    /// What new connections get from now on.
    pub fn replace(&self, servers: Vec<Option<Arc<Server>>>) {
        self.current.store(Arc::new(servers));
    }

    /// The TLS of the listener at this place; `None` where it speaks none.
    pub fn get(&self, place: usize) -> Option<Arc<Server>> {
        self.current.load().get(place).cloned().flatten()
    }

    /// When the certificates end.
    pub fn expiries(&self) -> Vec<Expiry> {
        let mut all: Vec<Expiry> = Vec::new();
        for expiry in self.current.load().iter().flatten().flat_map(|server| &server.expiries) {
            if !all.contains(expiry) {
                all.push(expiry.clone());
            }
        }
        all
    }
}

type FileBytes = (PathBuf, Vec<u8>);

struct Files {
    chains: Vec<FileBytes>,
    keys: Vec<(SecretSource, Secret)>,
    client_ca: Option<FileBytes>,
}

impl Files {
    fn read(settings: &ListenerTls) -> Result<Self, TlsError> {
        let read = |path: &PathBuf| -> Result<FileBytes, TlsError> { Ok((path.clone(), read_file(path)?)) };
        Ok(Self {
            chains: settings.certificates.iter().map(|files| read(&files.chain)).collect::<Result<_, _>>()?,
            keys: settings
                .certificates
                .iter()
                .map(|files| Ok((files.key.clone(), Secret::read(&files.key)?)))
                .collect::<Result<_, TlsError>>()?,
            client_ca: settings.client_ca.as_ref().map(read).transpose()?,
        })
    }

    fn digest(&self, settings: &ListenerTls) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(format!("{settings:?}"));
        let public = self.chains.iter().chain(&self.client_ca).map(|(_, bytes)| bytes.as_slice());
        for bytes in public.chain(self.keys.iter().map(|(_, key)| key.expose())) {
            digest.update(bytes.len().to_be_bytes());
            digest.update(bytes);
        }
        digest.finalize().into()
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::File { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)).map_err(failed)?;
    Ok(bytes)
}

fn content(path: &Path, what: impl Into<String>) -> TlsError {
    TlsError::Content { path: path.to_owned(), what: what.into() }
}

fn not_a_certificate(path: &Path) -> TlsError {
    content(path, "holds something that is not a certificate")
}

/// All certificates of a PEM file; at least one.
fn read_chain(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| content(path, format!("not a PEM file: {error}")))?;
    if chain.is_empty() {
        return Err(content(path, "holds no certificate in PEM form"));
    }
    Ok(chain)
}

fn first_end(path: &Path, chain: &[CertificateDer<'_>]) -> Result<u64, TlsError> {
    let ends = chain.iter().map(|one| certificate::read(one).map(|read| read.expires_s));
    let ends = ends.collect::<Option<Vec<_>>>().ok_or_else(|| not_a_certificate(path))?;
    ends.into_iter().min().ok_or_else(|| not_a_certificate(path))
}

fn certified(
    chain: Vec<CertificateDer<'static>>,
    source: &SecretSource,
    key: &Secret,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    let wrong = |what| TlsError::KeyContent { source_name: source.clone(), what };
    // What the parser says might quote the key.
    let key =
        PrivateKeyDer::from_pem_slice(key.expose()).map_err(|_| wrong("holds no private key in PEM form"))?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => wrong("is not the key of the certificate"),
        _ => wrong("holds a private key that is broken, or of a kind that is not supported"),
    })
}

fn client_verifier(
    path: &Path,
    authorities: Vec<CertificateDer<'static>>,
    is_optional: bool,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(|error| content(path, format!("not an authority: {error}")))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let builder = if is_optional { builder.allow_unauthenticated() } else { builder };
    builder.build().map_err(|error: VerifierBuilderError| content(path, error.to_string()))
}

fn server_config(
    provider: Arc<CryptoProvider>,
    version_min: TlsVersion,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    chooser: Chooser,
) -> Result<ServerConfig, TlsError> {
    let versions: &[&SupportedProtocolVersion] = match version_min {
        TlsVersion::V1_2 => &[&version::TLS13, &version::TLS12],
        TlsVersion::V1_3 => &[&version::TLS13],
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(verifier.unwrap_or_else(WebPkiClientVerifier::no_client_auth))
        .with_cert_resolver(Arc::new(chooser));
    config.alpn_protocols = PROTOCOLS.iter().map(|protocol| protocol.to_vec()).collect();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = aws_lc_rs::Ticketer::new()?;
    config.max_early_data_size = 0;
    Ok(config)
}

/// Chooses a certificate by name, and among several of one name by the kind of key that the client can verify.
#[derive(Debug)]
struct Chooser {
    certificates: Vec<Arc<CertifiedKey>>,
    names: Arc<Names>,
}

impl ResolvesServerCert for Chooser {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_ascii_lowercase);
        let places = self.names.shown(name.as_deref());
        let mut fitting = places.iter().filter_map(|place| self.certificates.get(*place));
        let first = fitting.clone().next();
        let usable =
            fitting.find(|certificate| certificate.key.choose_scheme(hello.signature_schemes()).is_some());
        usable.or(first).cloned()
    }
}
