//! What an upstream is shown to let the gateway in: headers that are always the same, tokens that are fetched
//! ([`oauth`]), and the certificate of TLS.
//!
//! All of it is read when a snapshot is built, so that a missing secret is an error at start and at reload, and never
//! one of a call. It goes to this upstream alone, with every request there is: calls of clients and the gateway's own.
//! What a client shows the gateway is no part of it.

pub(crate) mod oauth;

use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use self::oauth::AccessTokens;
use super::Upstream;
use super::attempt::RequestClock;
use super::exchange::{Reply, SendOptions, UpstreamClient};
use super::headers::fingerprint;
use super::masking::masked;
use super::request::UpstreamRequest;
use super::throttle::Throttle;
use crate::clock;
use config::{self, Authorization, HeaderSource, QuerySource, SecretSource};
use net::secret::{CREDENTIALS_AGE, Secret, SecretError};
use net::tls::{Connector, Connectors, PemFile, TlsFault, TlsSettings, TlsSettingsError};
use protocol::error::UpstreamError;

/// Somebody without trust is told of no more often, as every call finds out again.
const REMARK_INTERVAL: Duration = Duration::from_secs(10);

/// What was read for an upstream. Equal settings with other material make another upstream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Material {
    /// Variables of a child process.
    pub env: Vec<(String, Secret)>,
    tls: Option<TlsSettings>,
    headers: HeaderMap,
    /// What is added to the query of its URL.
    query: Option<Secret>,
    /// Secrets that are a part of a header or of the query, as they were read and as they stand there.
    parts: Vec<Secret>,
    client_secret: Option<Secret>,
    token_tls: Option<TlsSettings>,
}

/// How an upstream is reached and what it is shown.
#[derive(Debug)]
pub(crate) struct UpstreamAccess {
    pub material: Material,
    /// How its `https` URLs are reached.
    pub tls: Option<Arc<Connector>>,
    /// Headers of a client's requests that are handed on.
    pub forward: Vec<HeaderName>,
    tokens: Option<Arc<AccessTokens>>,
    remarks: Throttle,
}

/// Why an upstream cannot be reached as configured. Shows nothing of a secret.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Tls(#[from] TlsSettingsError),
    /// A credential may be older than its file.
    #[error("{0} ({CREDENTIALS_AGE})")]
    KeyCredential(TlsSettingsError),
    #[error("the secret for `{0}` cannot stand in a header: it has to be one line of visible characters")]
    Header(HeaderName),
    #[error("the token URL cannot be called")]
    TokenUrl,
}

impl Material {
    /// Reads what `upstream` needs. Blocks.
    pub(crate) fn read(upstream: &config::UpstreamConfig) -> Result<Self, AccessError> {
        let mut material = Self::default();
        for (name, source) in upstream.command.iter().flat_map(|command| &command.secret_env) {
            material.env.push((name.clone(), Secret::read(source)?));
        }
        if upstream.urls.iter().any(|url| url.is_tls) {
            material.tls = Some(read_tls(&upstream.tls)?);
        }
        for (name, source) in &upstream.credentials.headers {
            let value = match source {
                HeaderSource::Text(value) => value.clone(),
                HeaderSource::Secret(source) => sensitive(name, Secret::read(source)?.expose())?,
            };
            material.headers.insert(name.clone(), value);
        }
        material.query = read_query(&upstream.credentials.query, &mut material.parts)?;
        match &upstream.credentials.authorization {
            None => {}
            Some(Authorization::Bearer(source)) => {
                let value = bearer(Secret::read(source)?.expose())?;
                material.headers.insert(AUTHORIZATION, value);
            }
            Some(Authorization::Basic { user, password }) => {
                let password = Secret::read(password)?;
                material.headers.insert(AUTHORIZATION, basic(user.as_bytes(), password.expose())?);
                material.parts.push(password);
            }
            Some(Authorization::OAuth(oauth)) => {
                material.client_secret = Some(Secret::read(&oauth.client_secret)?);
                if oauth.token_url.to_ascii_lowercase().starts_with("https:") {
                    let ca = oauth.ca.as_deref().map(PemFile::read).transpose()?;
                    material.token_tls = Some(TlsSettings { ca, ..TlsSettings::default() });
                }
            }
        }
        Ok(material)
    }
}

impl Material {
    /// All that is secret of it, in each form in which it is given away.
    fn secrets(&self) -> impl Iterator<Item = &[u8]> {
        let shown = self.headers.values().filter(|value| value.is_sensitive());
        // Behind the name of a scheme the credentials stand by themselves.
        let shown = shown.flat_map(|value| value.as_bytes().split(|byte| *byte == b' '));
        let query = self.query.iter().flat_map(|query| query.expose().split(|byte| *byte == b'&'));
        let env = self.env.iter().map(|(_, secret)| secret);
        let read = env.chain(&self.parts).chain(&self.client_secret);
        shown.chain(query).chain(read.map(Secret::expose))
    }

    /// Tells other material apart. It is made of secrets, and so is not to be shown or written down.
    pub(crate) fn fingerprint(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        let mut add = |part: &[u8]| {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        };
        for (name, secret) in &self.env {
            add(name.as_bytes());
            add(secret.expose());
        }
        add(&fingerprint(&self.headers));
        for secret in [&self.query, &self.client_secret] {
            add(&[u8::from(secret.is_some())]);
            add(secret.as_ref().map(Secret::expose).unwrap_or_default());
        }
        for tls in [&self.tls, &self.token_tls].into_iter().flatten() {
            add(tls.server_name.as_deref().unwrap_or_default().as_bytes());
            add(tls.identity.as_ref().map(|(_, key)| key.expose()).unwrap_or_default());
        }
        digest.finalize().into()
    }
}

/// Parameters as they stand in a query, of which secrets are added to `parts`. `None`: there are none.
fn read_query(
    parameters: &[(String, QuerySource)],
    parts: &mut Vec<Secret>,
) -> Result<Option<Secret>, AccessError> {
    let mut query = Zeroizing::new(Vec::new());
    for (name, source) in parameters {
        if !query.is_empty() {
            query.push(b'&');
        }
        encode(name.as_bytes(), &mut query);
        query.push(b'=');
        match source {
            QuerySource::Text(value) => encode(value.as_bytes(), &mut query),
            QuerySource::Secret(source) => {
                let secret = Secret::read(source)?;
                let mut encoded = Zeroizing::new(Vec::new());
                encode(secret.expose(), &mut encoded);
                query.extend_from_slice(&encoded);
                parts.extend([secret, Secret::from_bytes(std::mem::take(&mut *encoded))]);
            }
        }
    }
    Ok((!query.is_empty()).then(|| Secret::from_bytes(std::mem::take(&mut *query))))
}

/// Everything but what stands for itself in a query (RFC 3986 §2.3).
fn encode(bytes: &[u8], into: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            into.push(*byte);
        } else {
            into.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

fn read_tls(tls: &config::ClientTls) -> Result<TlsSettings, AccessError> {
    let identity = match &tls.identity {
        Some((chain, key)) => Some((PemFile::read(chain)?, Secret::read(key)?)),
        None => None,
    };
    let ca = tls.ca.as_deref().map(PemFile::read).transpose()?;
    Ok(TlsSettings { ca, identity, server_name: tls.server_name.clone() })
}

fn sensitive(name: &HeaderName, bytes: &[u8]) -> Result<HeaderValue, AccessError> {
    let mut value = HeaderValue::from_bytes(bytes).map_err(|_| AccessError::Header(name.clone()))?;
    value.set_sensitive(true);
    Ok(value)
}

fn bearer(token: &[u8]) -> Result<HeaderValue, AccessError> {
    sensitive(&AUTHORIZATION, &Zeroizing::new([b"Bearer ", token].concat()))
}

fn basic(user: &[u8], password: &[u8]) -> Result<HeaderValue, AccessError> {
    net::secret::basic(user, password).map_err(|_| AccessError::Header(AUTHORIZATION))
}

impl UpstreamAccess {
    /// What `upstream` needs, of what was read for it.
    pub(crate) fn new(
        upstream: &config::UpstreamConfig,
        material: Material,
        connectors: &mut Connectors,
    ) -> Result<Self, AccessError> {
        let is_credential = matches!(upstream.tls.identity, Some((_, SecretSource::Credential(_))));
        let tls = material.tls.as_ref().map(|settings| connectors.get(settings)).transpose();
        let tls = tls.map_err(|error| match error {
            TlsSettingsError::Key(_) if is_credential => AccessError::KeyCredential(error),
            error => error.into(),
        })?;
        let mut tokens = None;
        if let (Some(Authorization::OAuth(oauth)), Some(secret)) =
            (&upstream.credentials.authorization, &material.client_secret)
        {
            let tls = material.token_tls.as_ref().map(|settings| connectors.get(settings)).transpose()?;
            tokens = Some(Arc::new(AccessTokens::new(&upstream.name, oauth, secret, tls)?));
        }
        let forward = upstream.credentials.forward.clone();
        Ok(Self { material, tls, forward, tokens, remarks: Throttle::new(REMARK_INTERVAL) })
    }

    /// Goes on with the tokens of `same`, should they be the same.
    pub(crate) fn adopt(&mut self, same: &Self) {
        if let (Some(tokens), Some(old)) = (&self.tokens, &same.tokens)
            && tokens.are_fetched_like(old)
            && self.material.client_secret == same.material.client_secret
            && self.material.token_tls == same.material.token_tls
        {
            self.tokens = Some(Arc::clone(old));
        }
    }

    /// `text` without the secrets that this upstream, its program or its authorization server is given.
    pub(crate) fn masked(&self, text: &str) -> String {
        let token = self.tokens.as_ref().and_then(|tokens| tokens.shown());
        // Behind the name of its scheme.
        let token =
            token.iter().flat_map(|token| token.header.as_bytes().split(|byte| *byte == b' ').skip(1));
        let secrets = self.material.secrets().chain(token);
        String::from_utf8_lossy(&masked(text.as_bytes(), secrets)).into_owned()
    }

    /// What is added to the query of its URL, if anything is.
    pub(crate) fn query(&self) -> Option<&Secret> {
        self.material.query.as_ref()
    }

    /// The meaning of a 401 or 403 of it: some of what it is shown may be the client's own.
    pub(crate) fn refusal(&self) -> UpstreamError {
        if self.forward.is_empty() {
            return UpstreamError::Credentials;
        }
        let names: Vec<&str> = self.forward.iter().map(HeaderName::as_str).collect();
        UpstreamError::ClientCredentials { headers: names.join(", ").into() }
    }

    /// Whether it wants tokens.
    pub(crate) fn has_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// Adds the headers that every request carries.
    pub(crate) fn show(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.material.headers {
            headers.insert(name.clone(), value.clone());
        }
    }

    /// Whether an exchange failed because the other side did not accept our certificate, which it may tell only after
    /// the handshake; told to the operator.
    pub(crate) fn was_refused(&self, upstream: &str, error: &(dyn std::error::Error + 'static)) -> bool {
        let fault = self.tls.as_ref().and_then(|_| TlsFault::of(error));
        let refused = fault.filter(|fault| *fault == TlsFault::OurCertificate);
        refused.inspect(|fault| self.remark(upstream, *fault)).is_some()
    }

    /// Tells the operator what was wrong with TLS, now and then.
    pub(crate) fn remark(&self, upstream: &str, fault: TlsFault) {
        if !fault.is_about_trust() {
            tracing::debug!(upstream, %fault, "no TLS");
            return;
        }
        if self.remarks.admits(clock::now()) {
            tracing::warn!(upstream, "cannot connect to an upstream over TLS: {fault}");
        }
    }
}

impl UpstreamClient {
    /// Sends `request` with a token, where the upstream wants one, and once more with a new one if it does not take it:
    /// then it did not look at the request.
    pub(super) async fn attempt_with_token(
        &self,
        upstream: &Upstream,
        delivery: (SendOptions, Option<&Uri>),
        request: &mut UpstreamRequest,
        clock: RequestClock,
    ) -> Result<Reply, UpstreamError> {
        let Some(tokens) = &upstream.access.tokens else {
            return self.attempt(upstream, delivery, request, clock).await;
        };
        let token = tokens.get(&self.fetcher, clock.deadline).await?;
        let is_safe_to_repeat = delivery.0.is_safe_to_repeat;
        // Sent twice, it may have had another id the second time.
        let message = request.message.clone();
        request.headers.insert(AUTHORIZATION, token.header.clone());
        let reply = self.attempt(upstream, delivery, request, clock.starting_now()).await?;
        if reply.head.status != StatusCode::UNAUTHORIZED || !tokens.reject(&token) {
            return Ok(reply);
        }
        // A call that was let in may have been executed, and answered so for what is behind its server: only with a
        // challenge is it the door that answers. The next one has another token in any case.
        if !is_safe_to_repeat && !reply.head.fields.is_challenge() {
            return Ok(reply);
        }
        drop(reply);
        if let Some(trail) = &request.attributes.trail {
            trail.goes_again();
        }
        request.message = message;
        let token = tokens.get(&self.fetcher, clock.deadline).await?;
        request.headers.insert(AUTHORIZATION, token.header.clone());
        let reply = self.attempt(upstream, delivery, request, clock.starting_now()).await?;
        if let Some(lease) = reply.lease.as_ref().filter(|_| reply.head.status.is_success()) {
            // It was the token alone.
            lease.in_flight.replica().faults.is_good();
        }
        Ok(reply)
    }
}
