//! TLS towards servers: which certificates are believed, what is shown, and what was wrong with a handshake.
//!
//! There is deliberately no way to leave a certificate unchecked: an operator whose server has one of its own names
//! the file to believe. Checking needs the roots, which are read once per configuration and shared by all connections;
//! sessions are resumed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::regular_file;
use crate::secret::Secret;

/// More than the roots of any system.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// What a server must prove and what it is shown. Equal ones make equal handshakes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// The certificates that are believed, in PEM; `None`: those that the system believes.
    pub ca: Option<PemFile>,
    /// The certificate that is shown with what it is signed by, in PEM, and its key.
    pub identity: Option<(PemFile, Secret)>,
    /// The name that is asked for and checked, where it is not the host's.
    pub server_name: Option<String>,
}

/// A file and what it held.
#[derive(Clone, PartialEq, Eq)]
pub struct PemFile {
    path: PathBuf,
    text: Arc<[u8]>,
}

/// The way to talk to servers in TLS, as [`TlsSettings`] say.
#[derive(Clone, Debug)]
pub struct Connector {
    settings: TlsSettings,
    handshake: Handshake,
    server_name: Option<ServerName<'static>>,
}

/// Why there cannot be a [`Connector`]. Shows nothing of a key.
#[derive(Debug, thiserror::Error)]
pub enum TlsSettingsError {
    /// A file cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// A file holds something else.
    #[error("{} holds no certificate in PEM form", .0.display())]
    NoCertificate(PathBuf),
    /// A certificate that cannot be believed.
    #[error("{}: a certificate in it cannot be used: {reason}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: rustls::Error,
    },
    /// The key is none, or not that of the certificate.
    #[error("the key that goes with {} is not a private key in PEM form, or not that of the certificate", .0.display())]
    Key(PathBuf),
    /// It is no name of a server.
    #[error("`{0}` is not the name of a server")]
    ServerName(String),
    /// The system has no roots.
    #[error("the system has no certificates to believe: {0}; install them, or name a `ca`")]
    Roots(rustls::Error),
}

/// What was wrong with a handshake. Holds nothing that the other side could have chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsFault {
    /// Nobody who is believed has signed its certificate.
    #[error("no trusted authority has signed its certificate")]
    UnknownIssuer,
    /// The certificate is for somebody else.
    #[error("its certificate is for another name")]
    OtherName,
    /// The certificate has no alternative name.
    #[error(
        "its certificate has no subject alternative name, and a common name (CN) does not count: make one with `subjectAltName`"
    )]
    NoName,
    /// The certificate is one to sign others with.
    #[error(
        "its certificate is that of an authority (CA:TRUE), not of a server: make one with `basicConstraints=CA:FALSE`, or one \
         that the authority has signed"
    )]
    Authority,
    /// The certificate is for other ends.
    #[error("its certificate is not for servers: its extended key usage lacks `serverAuth`")]
    OtherPurpose,
    /// The certificate is not written or signed as this program reads it.
    #[error("its certificate has a form, or is signed in a way, that is not supported")]
    Unsupported,
    /// The certificate is too old.
    #[error("its certificate has expired")]
    Expired,
    /// The certificate is too new.
    #[error("its certificate is not valid yet")]
    NotYetValid,
    /// The certificate is no good in some other way.
    #[error("its certificate cannot be accepted")]
    Certificate,
    /// The other side wants a certificate of us, or a better one.
    #[error("it does not accept the certificate it was shown, or wants one")]
    OurCertificate,
    /// The other side ended the handshake.
    #[error("it refused the TLS handshake")]
    Refused,
    /// The other side speaks something else.
    #[error("it does not speak TLS")]
    NotTls,
    /// The connection ended, or something unforeseen.
    #[error("the TLS handshake broke off")]
    BrokenOff,
}

impl TlsFault {
    /// True if the connection reached somebody whose proof, or who of us, is not accepted: an operator has to act.
    pub fn is_about_trust(self) -> bool {
        !matches!(self, Self::BrokenOff)
    }

    /// What `error` says, should it come from TLS.
    pub fn of(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(error) = error.downcast_ref::<rustls::Error>() {
                return Some(Self::of_tls(error));
            }
            // Its source is that of the error inside, which it does not show itself.
            next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
                Some(inner) => Some(inner),
                None => error.source(),
            };
        }
        None
    }

    fn of_tls(error: &rustls::Error) -> Self {
        use rustls::AlertDescription as Alert;
        match error {
            rustls::Error::InvalidCertificate(error) => Self::of_certificate(error),
            rustls::Error::AlertReceived(
                Alert::CertificateRequired
                | Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied,
            ) => Self::OurCertificate,
            rustls::Error::AlertReceived(_) | rustls::Error::PeerIncompatible(_) => Self::Refused,
            rustls::Error::InvalidMessage(_) => Self::NotTls,
            _ => Self::BrokenOff,
        }
    }

    fn of_certificate(error: &CertificateError) -> Self {
        match error {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::UnknownIssuer,
            CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
                Self::NoName
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Self::OtherName
            }
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                Self::OtherPurpose
            }
            CertificateError::BadEncoding
            | CertificateError::UnhandledCriticalExtension
            | CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => Self::Unsupported,
            CertificateError::Other(other) => match other.0.downcast_ref() {
                Some(webpki::Error::CaUsedAsEndEntity) => Self::Authority,
                Some(
                    webpki::Error::UnsupportedCertVersion
                    | webpki::Error::MalformedExtensions
                    | webpki::Error::ExtensionValueInvalid
                    | webpki::Error::UnsupportedCriticalExtension,
                ) => Self::Unsupported,
                _ => Self::Certificate,
            },
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYetValid,
            _ => Self::Certificate,
        }
    }
}

/// What has been built for one configuration: roots are read once, however many servers there are.
#[derive(Debug, Default)]
pub struct Connectors(Vec<Arc<Connector>>);

impl Connectors {
    /// The connector of `settings`, built if it is new.
    pub fn get(&mut self, settings: &TlsSettings) -> Result<Arc<Connector>, TlsSettingsError> {
        if let Some(same) = self.0.iter().find(|built| built.settings == *settings) {
            return Ok(Arc::clone(same));
        }
        let is_alike = |built: &&Arc<Connector>| {
            built.settings.ca == settings.ca && built.settings.identity == settings.identity
        };
        let config = match self.0.iter().find(is_alike) {
            Some(alike) => Arc::clone(alike.handshake.0.config()),
            None => config(settings)?,
        };
        let server_name = settings.server_name.as_ref().map(|name| server_name(name)).transpose()?;
        let handshake = Handshake(TlsConnector::from(config));
        let built = Arc::new(Connector { settings: settings.clone(), handshake, server_name });
        self.0.push(Arc::clone(&built));
        Ok(built)
    }
}

impl Connector {
    /// Believes what the system believes.
    pub fn platform() -> Result<Arc<Self>, TlsSettingsError> {
        Connectors::default().get(&TlsSettings::default())
    }

    /// Believes the certificates in the file `ca` alone, or what the system believes.
    pub fn trusting(ca: Option<&Path>) -> Result<Arc<Self>, TlsSettingsError> {
        let ca = ca.map(PemFile::read).transpose()?;
        Connectors::default().get(&TlsSettings { ca, ..TlsSettings::default() })
    }

    /// What it was built of.
    pub fn settings(&self) -> &TlsSettings {
        &self.settings
    }

    /// Shakes hands with the server at `host` over `stream`.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        host: &str,
    ) -> Result<TlsStream<S>, TlsFault> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host).map_err(|_| TlsFault::OtherName)?.to_owned(),
        };
        let shaken = self.handshake.0.connect(name, stream).await;
        shaken.map_err(|error| TlsFault::of(&error).unwrap_or(TlsFault::BrokenOff))
    }
}

impl PemFile {
    /// Reads `path`, which must hold at least one certificate.
    pub fn read(path: &Path) -> Result<Self, TlsSettingsError> {
        let failed = |reason| TlsSettingsError::Read { path: path.to_owned(), reason };
        let mut text = Vec::new();
        let file = regular_file::open(path).map_err(failed)?;
        io::Read::read_to_end(&mut io::Read::take(file, FILE_BYTES_MAX), &mut text).map_err(failed)?;
        let file = Self { path: path.to_owned(), text: text.into() };
        file.certificates().map(|_| file)
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsSettingsError> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.text).collect();
        let certificates = certificates.ok().filter(|certificates| !certificates.is_empty());
        certificates.ok_or_else(|| TlsSettingsError::NoCertificate(self.path.clone()))
    }
}

impl fmt::Debug for PemFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

/// The host names and addresses that a certificate can be for.
pub fn server_name(name: &str) -> Result<ServerName<'static>, TlsSettingsError> {
    let parsed = ServerName::try_from(name.to_owned());
    parsed.map_err(|_| TlsSettingsError::ServerName(name.to_owned()))
}

fn config(settings: &TlsSettings) -> Result<Arc<ClientConfig>, TlsSettingsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = verifier(settings.ca.as_ref(), &provider)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsSettingsError::Roots)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match &settings.identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let wrong = || TlsSettingsError::Key(chain.path.clone());
            let key = PrivateKeyDer::from_pem_slice(key.expose()).map_err(|_| wrong())?;
            builder.with_client_auth_cert(chain.certificates()?, key).map_err(|_| wrong())?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn verifier(
    ca: Option<&PemFile>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsSettingsError> {
    let Some(ca) = ca else {
        let platform = rustls_platform_verifier::Verifier::new(Arc::clone(provider));
        return Ok(Arc::new(platform.map_err(TlsSettingsError::Roots)?));
    };
    let mut roots = RootCertStore::empty();
    let unusable = |reason| TlsSettingsError::Certificate { path: ca.path.clone(), reason };
    for certificate in ca.certificates()? {
        roots.add(certificate).map_err(unusable)?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), Arc::clone(provider)).build();
    let verifier = verifier.map_err(|error| unusable(rustls::Error::General(error.to_string())))?;
    Ok(verifier)
}

/// Shown as nothing: what it holds is long.
#[derive(Clone)]
struct Handshake(TlsConnector);

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsConnector")
    }
}

#[cfg(test)]
pub(crate) mod tests;
