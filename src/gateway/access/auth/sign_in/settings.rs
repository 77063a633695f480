//! `[sign_in]`, resolved: keys, rules and the provider, as a snapshot has them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use config::{Config, ProviderProof};
use identity::browser_cookies::CookieRules;
use identity::client::{Client, ClientSource, DeniedClients};
use identity::client_document::{self, DocumentFault};
use identity::presented::Presented;
use identity::provider::require::Require;
use identity::redirect_uri::{AllowedRedirects, RedirectFault};
use identity::scope::ScopeRules;
use identity::sealed::client_id::AuthMethod;
use identity::sealed::{Nonce, Seals};
use jsonwebtoken::EncodingKey;
use net::secret::{Secret, SecretError};
use net::tls::{Connector, TlsSettingsError};
use tokens::sealing::KeysError;

use super::memory::SignInMemory;
use super::named::NamedFacts;
use crate::access::auth::jwt::issuer::{Issuer, Issuers};
use crate::grants::news::GrantNews;
use crate::key_file::{self, KeyFileError};

/// Of the keys of sign-in, in the state directory.
pub(crate) const KEY_FILE: &str = "sign_in.key";

/// Sign-in as it is configured.
#[derive(Debug)]
pub(crate) struct SignIn {
    pub config: config::SignIn,
    pub seals: Arc<Seals>,
    pub redirects: AllowedRedirects,
    pub denied: DeniedClients,
    pub scopes: ScopeRules,
    pub require: Require,
    pub cookies: CookieRules,
    /// The provider; the principals are those of its own tokens.
    pub issuer: Arc<Issuer>,
    pub proof: ClientProof,
    /// The way to the provider, where that is asked by TLS.
    pub tls: Option<Arc<Connector>>,
    /// The way to documents of clients, where they are fetched.
    pub public_tls: Option<Arc<Connector>>,
    pub memory: Arc<SignInMemory>,
    /// Lines a second about requests that are refused.
    pub refusal_lines_max: usize,
    /// The public URLs of the endpoints that take sign-ins.
    pub endpoints: Vec<String>,
    /// The facts of a person that a token says.
    pub named: NamedFacts,
    /// Clients of the configuration, and those whose documents are files.
    pub clients: Vec<KnownClient>,
}

/// Sign-in as a snapshot has it.
#[derive(Clone, Debug)]
pub(crate) struct SignIns {
    /// `None`: there is none.
    pub settings: Option<Arc<SignIn>>,
    /// News of grants; the same for all snapshots of a process.
    pub news: Arc<GrantNews>,
}

/// A client that is known without a registration or a fetch.
#[derive(Debug)]
pub(crate) struct KnownClient {
    pub client: Client,
    /// The operator has consented for all.
    pub is_consent_given: bool,
}

/// The proof at the provider that the gateway is itself.
pub(crate) enum ClientProof {
    Basic(Secret),
    Post(Secret),
    Assertion { key: EncodingKey, algorithm: jsonwebtoken::Algorithm, key_id: Option<String> },
}

impl std::fmt::Debug for ClientProof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Basic(_) => "Basic",
            Self::Post(_) => "Post",
            Self::Assertion { .. } => "Assertion",
        })
    }
}

/// A fault by which nobody can sign in as configured. Shows nothing of a secret.
#[derive(Debug, thiserror::Error)]
pub enum SignInError {
    /// The file of its keys.
    #[error("[sign_in] {0}")]
    KeyFile(#[from] KeyFileError),
    /// The text of it.
    #[error("[sign_in] key file {}: {reason}", path.display())]
    Keys {
        /// The file.
        path: PathBuf,
        /// The fault of it.
        reason: KeysError,
    },
    /// A secret cannot be read.
    #[error("[sign_in] {0}")]
    Secret(#[from] SecretError),
    /// A secret is no text.
    #[error("[sign_in] the secret of client {0} is not text in UTF-8")]
    SecretNotText(String),
    /// The key for assertions is none.
    #[error("[sign_in] client_key is no private key in PEM of P-256 or RSA")]
    ClientKey,
    /// It is not known which provider to trust.
    #[error("[sign_in] provider: {0}")]
    Tls(#[from] TlsSettingsError),
    /// An entry of `redirects`.
    #[error("[sign_in] redirects: {entry}: {fault}")]
    Redirect {
        /// The entry.
        entry: String,
        /// The fault of it.
        fault: RedirectFault,
    },
    /// No `[[jwt]]` of that name.
    #[error("[sign_in] there is no [[jwt]] with the name {0}")]
    NoProvider(String),
    /// Neither a file for its keys nor a state directory.
    #[error("[sign_in] has no place for its keys: write `key`, or `state_directory`")]
    NoKeys,
    /// A document of a client that is a file.
    #[error("[sign_in] client_documents: {}: {reason}", path.display())]
    Document {
        /// The file.
        path: PathBuf,
        /// The fault of it.
        reason: DocumentFileFault,
    },
}

/// The reason that a file is no document of a client.
#[derive(Debug, thiserror::Error)]
pub enum DocumentFileFault {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// It says no `client_id`.
    #[error("it names no client_id")]
    NoId,
    /// It is refused.
    #[error(transparent)]
    Document(#[from] DocumentFault),
}

impl SignIns {
    /// Reads what `[sign_in]` needs, and goes on with what is in `old`. Blocks.
    pub(crate) fn read(config: &Config, issuers: &Issuers, old: Option<&Self>) -> Result<Self, SignInError> {
        Ok(Self {
            settings: SignIn::read(config, issuers, old.and_then(|old| old.settings.as_ref()))?,
            news: old.map_or_else(Arc::default, |old| Arc::clone(&old.news)),
        })
    }
}

impl SignIn {
    /// `None`: there is none. Of `old` the memory is kept, if the provider is the same.
    fn read(
        config: &Config,
        issuers: &Issuers,
        old: Option<&Arc<Self>>,
    ) -> Result<Option<Arc<Self>>, SignInError> {
        let Some(sign_in) = &config.sign_in else { return Ok(None) };
        let issuer = issuers.all.iter().find(|issuer| issuer.config.name == sign_in.provider);
        let issuer = issuer.ok_or_else(|| SignInError::NoProvider(sign_in.provider.clone()))?;
        let redirects = AllowedRedirects::new(&sign_in.redirects)
            .map_err(|(entry, fault)| SignInError::Redirect { entry, fault })?;
        let takes = |endpoint: &&config::EndpointConfig| endpoint.auth.contains(&config::AuthMethod::SignIn);
        let endpoints =
            config.endpoints.iter().filter(takes).filter_map(|endpoint| endpoint.public_url.clone());
        Ok(Some(Arc::new(Self {
            seals: Arc::new(read_seals(config, sign_in)?),
            redirects,
            denied: DeniedClients::new(sign_in.clients_denied.iter().cloned()),
            scopes: ScopeRules::new(sign_in.scopes.iter().cloned()),
            require: Require::new(sign_in.require.iter().cloned()),
            cookies: CookieRules::of(&sign_in.url),
            issuer: Arc::clone(issuer),
            proof: ClientProof::read(&sign_in.provider_client.proof)?,
            tls: connector(&issuer.config)?,
            public_tls: match sign_in.client_documents {
                config::ClientDocuments::Fetch => Some(Connector::trusting(None)?),
                _ => None,
            },
            memory: old
                .filter(|old| old.issuer.config == issuer.config)
                .map_or_else(Arc::default, |old| Arc::clone(&old.memory)),
            refusal_lines_max: config.log.refusals_per_second_max,
            endpoints: endpoints.collect(),
            named: NamedFacts::of(config),
            clients: read_clients(sign_in)?,
            config: sign_in.clone(),
        })))
    }

    /// True where tokens mean the same under both.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.config == other.config
            && self.issuer.config == other.issuer.config
            && self.named.fingerprint() == other.named.fingerprint()
    }

    /// Random bytes for one seal. `None`: the system has none.
    pub(crate) fn nonce() -> Option<Nonce> {
        random()
    }

    /// The client of the configuration, or of a file, with this id.
    pub(crate) fn known_client(&self, id: &str) -> Option<&KnownClient> {
        self.clients.iter().find(|known| known.client.id == id)
    }
}

/// Random bytes. `None`: the system has none.
pub(crate) fn random<const BYTES: usize>() -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).ok().map(|()| bytes)
}

/// Makes the file of keys in the state directory, where none is configured and there is none.
pub(crate) fn make_keys(config: &Config) -> Result<(), SignInError> {
    let has_named = config.sign_in.as_ref().is_none_or(|sign_in| sign_in.key_file.is_some());
    match own_keys(config) {
        Some(path) if !has_named => Ok(key_file::create_if_missing(&path)?),
        _ => Ok(()),
    }
}

/// The file of keys in the state directory.
pub(crate) fn own_keys(config: &Config) -> Option<PathBuf> {
    config.state_directory.as_ref().map(|folder| folder.join(KEY_FILE))
}

fn read_seals(config: &Config, sign_in: &config::SignIn) -> Result<Seals, SignInError> {
    let path = sign_in.key_file.clone().or_else(|| own_keys(config)).ok_or(SignInError::NoKeys)?;
    let text = match key_file::load_text(&path) {
        // The start makes it; until then it is only looked at whether all the rest is right.
        Err(KeyFileError::Read { reason, .. })
            if sign_in.key_file.is_none() && reason.kind() == std::io::ErrorKind::NotFound =>
        {
            let random = random().ok_or(SignInError::NoKeys)?;
            return Seals::ephemeral(&random).map_err(|reason| SignInError::Keys { path, reason });
        }
        text => text?,
    };
    Seals::from_text(&text).map_err(|reason| SignInError::Keys { path, reason })
}

fn connector(jwt: &config::Jwt) -> Result<Option<Arc<Connector>>, SignInError> {
    if !jwt.issuer.starts_with("https:") {
        return Ok(None);
    }
    Ok(Some(Connector::trusting(jwt.ca.as_deref())?))
}

fn read_clients(sign_in: &config::SignIn) -> Result<Vec<KnownClient>, SignInError> {
    let mut clients = Vec::new();
    for client in &sign_in.clients {
        let secret = client.secret.as_ref().map(Secret::read).transpose()?;
        let secret = secret.map(|secret| match std::str::from_utf8(secret.expose()) {
            Ok(text) => Ok(Presented::new(text)),
            Err(_) => Err(SignInError::SecretNotText(client.id.clone())),
        });
        let secret = secret.transpose()?;
        let auth_method = if secret.is_some() { AuthMethod::Basic } else { AuthMethod::None };
        clients.push(KnownClient {
            client: Client {
                id: client.id.clone(),
                name: client.name.clone(),
                source: ClientSource::Configured { secret },
                redirect_uris: client.redirects.clone(),
                auth_method,
            },
            is_consent_given: client.consent == config::Consent::None,
        });
    }
    if let config::ClientDocuments::Files(paths) = &sign_in.client_documents {
        for path in paths {
            let client =
                read_document(path).map_err(|reason| SignInError::Document { path: path.clone(), reason })?;
            clients.push(KnownClient { client, is_consent_given: false });
        }
    }
    Ok(clients)
}

fn read_document(path: &Path) -> Result<Client, DocumentFileFault> {
    use std::io::Read as _;
    let mut body = Vec::new();
    let file = net::regular_file::open(path)?;
    file.take(client_document::DOCUMENT_BYTES_MAX as u64 + 1).read_to_end(&mut body)?;
    let id = serde_json::from_slice::<serde_json::Value>(&body).ok();
    let id = id.as_ref().and_then(|document| document.get("client_id")?.as_str());
    let id = id.ok_or(DocumentFileFault::NoId)?;
    Ok(client_document::read(id, Some(b"application/json"), &body)?)
}

impl ClientProof {
    fn read(proof: &ProviderProof) -> Result<Self, SignInError> {
        let secret = Secret::read(proof.source())?;
        Ok(match proof {
            ProviderProof::Basic(_) => Self::Basic(secret),
            ProviderProof::Post(_) => Self::Post(secret),
            ProviderProof::PrivateKeyJwt { key_id, .. } => {
                let elliptic = EncodingKey::from_ec_pem(secret.expose());
                let (key, algorithm) = if let Ok(key) = elliptic {
                    (key, jsonwebtoken::Algorithm::ES256)
                } else {
                    let key = EncodingKey::from_rsa_pem(secret.expose());
                    (key.map_err(|_| SignInError::ClientKey)?, jsonwebtoken::Algorithm::RS256)
                };
                Self::Assertion { key, algorithm, key_id: key_id.clone() }
            }
        })
    }
}
