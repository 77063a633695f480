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

pub(crate) mod certificate;
pub(crate) mod expiry;
pub(crate) mod names;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use sha2::{Digest as _, Sha256};

use self::names::CertificatesByHost;
use config::{CertificateDemand, Config, ListenerTls, SecretSource, TlsVersion};
use net::regular_file;
use net::secret::{CREDENTIALS_AGE, Secret, SecretError};

/// More than any chain with its roots needs.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Preferred first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

pub(crate) struct TlsServer {
    pub config: Arc<ServerConfig>,
    pub names: Arc<CertificatesByHost>,
    pub expiries: Vec<Expiry>,
    /// Who checks certificates of clients, if they are asked for.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// Of the settings and of all files.
    digest: [u8; 32],
}

/// When what is in a file ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expiry {
    pub path: PathBuf,
    /// In seconds since 1970; of several certificates the first to end.
    pub ends_s: u64,
    /// It is that of authorities, which are believed for as long as they are configured.
    pub is_authority: bool,
}

/// Why a listener cannot speak TLS. Shows nothing of a key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path}: {source}")]
    File { path: PathBuf, source: io::Error },
    /// A file is not what it should be.
    #[error("{path}: {what}")]
    Content { path: PathBuf, what: String },
    #[error(transparent)]
    Key(#[from] SecretError),
    /// A key is not what it should be.
    #[error("{source_name} {what}")]
    KeyContent { source_name: SecretSource, what: &'static str },
    /// A credential may be older than its file.
    #[error("{0} is not the key of the certificate ({CREDENTIALS_AGE})")]
    KeyCredential(SecretSource),
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("expiries", &self.expiries).finish_non_exhaustive()
    }
}

impl TlsServer {
    /// Reads all files of `settings`. Where nothing has changed since `old`, it is kept.
    pub(crate) fn load(settings: &ListenerTls, old: Option<&Arc<Self>>) -> Result<Arc<Self>, TlsError> {
        let files = Files::read(settings)?;
        let digest = files.digest(settings);
        if let Some(old) = old.filter(|old| old.digest == digest) {
            return Ok(Arc::clone(old));
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut names = CertificatesByHost::default();
        let mut expiries = Vec::new();
        let mut certificates = Vec::new();
        for ((path, chain), (source, key)) in files.chains.iter().zip(&files.keys) {
            let chain = read_chain(path, chain)?;
            let leaf = certificate::read(&chain[0]).ok_or_else(|| not_a_certificate(path))?;
            names.add(leaf.dns_names.iter().map(|name| &**name));
            expiries.push(Expiry {
                path: path.clone(),
                ends_s: first_end(path, &chain)?,
                is_authority: false,
            });
            certificates.push(Arc::new(certified(chain, source, key, &provider)?));
        }
        let verifier = match &files.client_ca {
            Some((path, ca)) => {
                let roots = read_chain(path, ca)?;
                expiries.push(Expiry {
                    path: path.clone(),
                    ends_s: first_end(path, &roots)?,
                    is_authority: true,
                });
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

    /// When its certificates end.
    pub(crate) fn expiries(&self) -> &[Expiry] {
        &self.expiries
    }

    /// True if clients are asked for a certificate.
    pub(crate) fn asks_for_certificates(&self) -> bool {
        self.verifier.is_some()
    }

    /// Whether a client that shows this chain, its own certificate first, would be believed.
    pub(crate) fn trusts(&self, chain: &[CertificateDer<'_>]) -> bool {
        match (&self.verifier, chain) {
            (Some(verifier), [leaf, others @ ..]) => {
                verifier.verify_client_cert(leaf, others, UnixTime::now()).is_ok()
            }
            _ => false,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ListenerProtocols {
    /// Whether connections begin with a PROXY header.
    pub proxy_protocol: bool,
    /// Its TLS; `None` where it speaks none.
    pub tls: Option<Arc<TlsServer>>,
}

/// What all listeners speak, by their numbers.
#[derive(Debug)]
pub(crate) struct TlsServers(ArcSwap<BTreeMap<usize, ListenerProtocols>>);

impl TlsServers {
    /// Reads the files of every listener; their numbers are their places.
    pub(crate) fn load(config: &Config) -> Result<Self, TlsError> {
        let numbers: Vec<usize> = (0..config.listeners.len()).collect();
        let servers = Self(ArcSwap::default());
        servers.replace(servers.reread(config, &numbers)?);
        Ok(servers)
    }

    /// Reads the files of the listeners of `config` with these numbers. Nothing is replaced yet.
    pub(crate) fn reread(
        &self,
        config: &Config,
        numbers: &[usize],
    ) -> Result<BTreeMap<usize, ListenerProtocols>, TlsError> {
        let current = self.0.load();
        let each = config.listeners.iter().zip(numbers);
        each.map(|(listener, number)| {
            let old = current.get(number).and_then(|old| old.tls.as_ref());
            let tls = listener.tls.as_ref().map(|settings| TlsServer::load(settings, old)).transpose()?;
            Ok((*number, ListenerProtocols { proxy_protocol: listener.proxy_protocol, tls }))
        })
        .collect()
    }

    /// What new connections get from now on.
    pub(crate) fn replace(&self, spoken: BTreeMap<usize, ListenerProtocols>) {
        self.0.store(Arc::new(spoken));
    }

    /// What the listener with this number speaks; `None` if there is none any more.
    pub(crate) fn get(&self, number: usize) -> Option<ListenerProtocols> {
        self.0.load().get(&number).cloned()
    }

    pub(crate) fn expiries(&self) -> Vec<Expiry> {
        let mut all: Vec<Expiry> = Vec::new();
        let spoken = self.0.load();
        for expiry in spoken.values().filter_map(|spoken| spoken.tls.as_ref()).flat_map(|tls| &tls.expiries) {
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
    let file = regular_file::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
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
        .map_err(|error| content(path, format!("not a PEM file: {}", pem_fault(&error))))?;
    if chain.is_empty() {
        return Err(content(path, "holds no certificate in PEM form"));
    }
    Ok(chain)
}

/// What is wrong with a PEM file; the error itself shows text as numbers.
fn pem_fault(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { .. } => "it ends before its END line".to_owned(),
        pem::Error::IllegalSectionStart { .. } => "a BEGIN line is malformed".to_owned(),
        error => error.to_string(),
    }
}

/// When the first certificate in the file at `path` ends.
pub(crate) fn expiry_of(path: &Path) -> Result<Expiry, TlsError> {
    let chain = read_chain(path, &read_file(path)?)?;
    Ok(Expiry { path: path.to_owned(), ends_s: first_end(path, &chain)?, is_authority: false })
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
        rustls::Error::InconsistentKeys(_) => match source {
            SecretSource::Credential(_) => TlsError::KeyCredential(source.clone()),
            _ => wrong("is not the key of the certificate"),
        },
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
    names: Arc<CertificatesByHost>,
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
