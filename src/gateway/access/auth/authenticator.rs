//! Who calls at one endpoint: which of its ways to authenticate a credential is for, and what comes of it.
//!
//! A credential is tried in one way alone, by its looks: what begins with `tl_` is a key, what begins with `tla_` is a token of
//! sign-in, what has three parts is a token of an issuer where those are taken, anything else is a key. What `Authorization` presents decides, and must be valid, whatever
//! the certificate of the connection: who sends both means the token. Where neither keys nor tokens are taken, the
//! header is none of the gateway's business.

use std::sync::Arc;
use std::time::Instant;

use super::api_key::{self, ApiKeys, KeyExpired};
use super::certificate::{CertificateRules, ClientCertificate};
use super::jwt::claims::identify;
use super::jwt::issuer::{Issuer, Issuers};
use super::sign_in::settings::{SignIn, SignIns};
use super::sign_in::token::{self, OpenedToken, looks_issued};
use crate::clock;
use crate::grants::news::{GrantInForce, GrantNews};
use crate::identity::principal::Principal;
use crate::identity::refusal::CredentialFault;
use config::{self, Algorithm, AuthMethod};
use identity::sealed::access_token::{AccessToken, KnownOfPrincipal};
use identity::sealed::news::News;
use protocol::head::HeaderField;
use tokens::jwt::{Token, is_token};

const SCHEME: &[u8] = b"bearer ";

#[derive(Clone, Debug)]
pub(crate) struct Authenticator {
    keys: Option<Arc<ApiKeys>>,
    issuers: Vec<Arc<Issuer>>,
    certificates: Option<Arc<CertificateRules>>,
    sign_in: Option<SignInHere>,
    /// What the audience of a token may be, whoever issued it.
    audiences: Vec<Box<str>>,
    token_bytes_max: usize,
    is_open: bool,
}

/// Sign-in at one endpoint.
#[derive(Clone, Debug)]
struct SignInHere {
    settings: Arc<SignIn>,
    news: Arc<GrantNews>,
    public_url: Box<str>,
}

#[derive(Debug)]
pub(crate) struct AcceptedCredentials {
    pub keys: Arc<ApiKeys>,
    pub issuers: Issuers,
    pub sign_ins: SignIns,
    pub certificates: Arc<CertificateRules>,
    /// Bytes of a token.
    pub token_bytes_max: usize,
}

#[derive(Debug)]
pub(crate) struct Authenticated {
    pub principal: Principal,
    /// The condition that has to hold as well.
    pub proviso: Option<Proviso>,
    /// When it ends, in seconds since 1970.
    pub ends_s: Option<u64>,
}

/// A condition that has to hold for as long as somebody is let in by a credential, beside its time.
#[derive(Clone, Debug)]
pub(crate) enum Proviso {
    /// The keys by which a token was checked are those of its issuer.
    Keys(Arc<Issuer>, u64),
    /// The sign-in was not ended.
    Grant(GrantInForce),
}

impl Proviso {
    pub(crate) fn holds(&self, now: Instant) -> bool {
        match self {
            Self::Keys(issuer, generation) => issuer.generation() == *generation,
            Self::Grant(grant) => grant.holds(now),
        }
    }
}

/// Why nobody is let in.
#[derive(Debug)]
pub(crate) enum AuthError {
    Missing,
    Wrong(CredentialFault),
    /// The issuer may have a key for this token that is not known yet.
    AskIssuer(Arc<Issuer>),
    /// The token of a sign-in says too little for the rules of now: see [`Authenticator::signed_in`].
    AskAccount(Box<AccessToken>),
}

impl From<CredentialFault> for AuthError {
    fn from(refusal: CredentialFault) -> Self {
        Self::Wrong(refusal)
    }
}

impl Authenticator {
    /// What `endpoint` takes of all credentials.
    pub(crate) fn new(endpoint: &config::EndpointConfig, all: &AcceptedCredentials) -> Self {
        let takes = |method| endpoint.auth.contains(&method);
        Self {
            keys: takes(AuthMethod::ApiKey).then(|| Arc::clone(&all.keys)),
            issuers: if takes(AuthMethod::Jwt) { all.issuers.all.clone() } else { Vec::new() },
            certificates: takes(AuthMethod::ClientCertificate).then(|| Arc::clone(&all.certificates)),
            sign_in: SignInHere::new(endpoint, all),
            audiences: audiences(endpoint),
            token_bytes_max: all.token_bytes_max,
            is_open: endpoint.auth.is_empty(),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether the credentials of `principal` pass at `other`, too, and mean the same. Of keys those of others do not
    /// count; of issuers and certificates all do, as it is not told by which of them a principal was known.
    pub(crate) fn is_like_for(&self, other: &Self, principal: &Principal) -> bool {
        let same_keys = match (&self.keys, &other.keys) {
            (Some(keys), Some(others)) => keys.are_alike_for(others, principal.id()),
            (None, None) => true,
            _ => false,
        };
        let same_issuers = self.issuers.len() == other.issuers.len()
            && self.issuers.iter().zip(&other.issuers).all(|(a, b)| a.config == b.config);
        let same_certificates = match (&self.certificates, &other.certificates) {
            (Some(rules), Some(others)) => rules.is_like(others),
            (None, None) => true,
            _ => false,
        };
        let same_sign_in = match (&self.sign_in, &other.sign_in) {
            (Some(one), Some(another)) => one.settings.is_like(&another.settings),
            (None, None) => true,
            _ => false,
        };
        same_keys && same_issuers && same_certificates && same_sign_in && self.is_open == other.is_open
    }

    /// True if `authorization` decides, and not the certificate.
    pub(crate) fn goes_by(&self, authorization: HeaderField<'_>) -> bool {
        let takes_any = self.keys.is_some() || !self.issuers.is_empty() || self.sign_in.is_some();
        authorization.is_present() && takes_any
    }

    /// True if `authorization` has the form of a key of the gateway, where keys are taken.
    pub(crate) fn shows_key(&self, authorization: HeaderField<'_>) -> bool {
        let credential = authorization.as_str().and_then(bearer);
        self.keys.is_some() && credential.is_some_and(api_key::is_key)
    }

    /// Who presents these credentials at `now_s`.
    pub(crate) fn check(
        &self,
        authorization: HeaderField<'_>,
        certificate: Option<&ClientCertificate>,
        now_s: u64,
    ) -> Result<Authenticated, AuthError> {
        if self.goes_by(authorization) {
            let credential = authorization.as_str().and_then(bearer).ok_or(CredentialFault::Header)?;
            return self.check_bearer(credential, now_s);
        }
        match (&self.certificates, certificate) {
            (Some(rules), Some(certificate)) => {
                let principal = rules.identify(certificate, now_s)?;
                Ok(Authenticated { principal, proviso: None, ends_s: Some(certificate.expires_s) })
            }
            _ => Err(AuthError::Missing),
        }
    }

    /// Lets in who has this token of a sign-in, which says too little itself, with what its account's record says.
    pub(crate) fn signed_in(
        &self,
        token: &AccessToken,
        known: KnownOfPrincipal,
    ) -> Result<Authenticated, AuthError> {
        let here = self.sign_in.as_ref().ok_or(CredentialFault::Kind)?;
        let in_force = here.in_force(token);
        // It may have been told while the record was read.
        if in_force.seen() == Some(News::Ended) {
            return Err(CredentialFault::SignInEnded.into());
        }
        Ok(Authenticated {
            principal: token::principal_of(token, known, &here.settings),
            proviso: Some(Proviso::Grant(in_force)),
            ends_s: Some(token.expires_s),
        })
    }

    fn check_bearer(&self, credential: &str, now_s: u64) -> Result<Authenticated, AuthError> {
        if looks_issued(credential) {
            let here = self.sign_in.as_ref().ok_or(CredentialFault::Kind)?;
            return here.check(credential, now_s);
        }
        if !self.issuers.is_empty() && !api_key::is_key(credential) && is_token(credential) {
            return self.check_token(credential, now_s);
        }
        let keys = self.keys.as_ref().ok_or(CredentialFault::Kind)?;
        let found = keys.find(credential, now_s).ok_or(CredentialFault::ApiKey)?;
        let (principal, ends_s) = found.map_err(|KeyExpired| CredentialFault::Expired)?;
        Ok(Authenticated { principal: principal.clone(), proviso: None, ends_s })
    }

    fn check_token(&self, text: &str, now_s: u64) -> Result<Authenticated, AuthError> {
        if text.len() > self.token_bytes_max {
            return Err(CredentialFault::TokenSize.into());
        }
        let token = Token::read(text).ok_or(CredentialFault::TokenForm)?;
        let algorithm = Algorithm::of(&token.algorithm).ok_or(CredentialFault::Algorithm)?;
        let issuer = token.claims.get("iss").and_then(serde_json::Value::as_str);
        let issuer = self.issuers.iter().find(|known| Some(&*known.config.issuer) == issuer);
        let issuer = issuer.ok_or(CredentialFault::Issuer)?;
        let generation = match issuer.check(&token, algorithm) {
            Err(CredentialFault::UnknownKey) => return Err(AuthError::AskIssuer(Arc::clone(issuer))),
            checked => checked?,
        };
        let everywhere = issuer.config.audiences.iter().map(|audience| audience.as_str().into());
        let audiences: Vec<Box<str>> = self.audiences.iter().cloned().chain(everywhere).collect();
        let principal = identify(&token.claims, &issuer.config, &audiences, now_s)?;
        let expires_s = match &principal {
            Principal::Known(identity) => identity.expires_s,
            Principal::Anonymous => None,
        };
        let ends_s = expires_s.map(|expires_s| expires_s.saturating_add(issuer.config.leeway.as_secs()));
        let proviso = Some(Proviso::Keys(Arc::clone(issuer), generation));
        Ok(Authenticated { principal, proviso, ends_s })
    }
}

impl SignInHere {
    fn new(endpoint: &config::EndpointConfig, all: &AcceptedCredentials) -> Option<Self> {
        let takes = endpoint.auth.contains(&AuthMethod::SignIn);
        let settings = Arc::clone(all.sign_ins.settings.as_ref().filter(|_| takes)?);
        let public_url = endpoint.public_url.as_deref()?.into();
        Some(Self { settings, news: Arc::clone(&all.sign_ins.news), public_url })
    }

    fn check(&self, text: &str, now_s: u64) -> Result<Authenticated, AuthError> {
        let OpenedToken { token, is_enough } = token::open(text, &self.settings, &self.public_url, now_s)?;
        let in_force = self.in_force(&token);
        let is_of_now = match in_force.seen() {
            Some(News::Ended) => return Err(CredentialFault::SignInEnded.into()),
            Some(News::ChangedAt(at_s)) => token.issued_s > at_s,
            None => true,
        };
        let Some(known) = token.known.clone().filter(|_| is_enough && is_of_now) else {
            return Err(AuthError::AskAccount(Box::new(token)));
        };
        let principal = token::principal_of(&token, known, &self.settings);
        let proviso = Some(Proviso::Grant(in_force));
        Ok(Authenticated { principal, proviso, ends_s: Some(token.expires_s) })
    }

    fn in_force(&self, token: &AccessToken) -> GrantInForce {
        let again = token::again(&self.settings, clock::now());
        GrantInForce::new(token.grant, &self.news, again)
    }
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, credential) = value.split_at_checked(SCHEME.len())?;
    let credential = credential.trim_ascii();
    let is_one = !credential.is_empty() && credential.bytes().all(|byte| byte.is_ascii_graphic());
    (scheme.as_bytes().eq_ignore_ascii_case(SCHEME) && is_one).then_some(credential)
}

/// The audiences that a token of any issuer may have for this endpoint.
fn audiences(endpoint: &config::EndpointConfig) -> Vec<Box<str>> {
    let written = endpoint.audiences.iter().map(|audience| audience.as_str().into());
    written.chain(endpoint.public_url.iter().flat_map(|url| spellings(url))).collect()
}

/// The audiences that a token of this issuer may have for this endpoint.
pub(crate) fn audiences_of(endpoint: &config::EndpointConfig, jwt: &config::Jwt) -> Vec<Box<str>> {
    let everywhere = jwt.audiences.iter().map(|audience| audience.as_str().into());
    audiences(endpoint).into_iter().chain(everywhere).collect()
}

/// A URL without a path is the same as one with the path `/`.
fn spellings(url: &str) -> Vec<Box<str>> {
    let bare = url.strip_suffix('/').unwrap_or(url);
    let has_path = bare.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
    if has_path { vec![url.into()] } else { vec![bare.into(), format!("{bare}/").into()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bearer_credential() {
        for (value, expected) in [
            ("Bearer a", Some("a")),
            ("bearer  a ", Some("a")),
            ("BEARER a", Some("a")),
            ("Bearer", None),
            ("Bearer ", None),
            ("Bearer a b", None),
            ("Bearer a, Bearer b", None),
            ("Basic a", None),
            ("a", None),
            ("Bearera", None),
            ("", None),
        ] {
            assert_eq!(bearer(value), expected, "{value:?}");
        }
    }

    #[test]
    fn a_url_without_a_path_is_spelled_in_two_ways() {
        for (url, expected) in [
            ("https://a", &["https://a", "https://a/"][..]),
            ("https://a/", &["https://a", "https://a/"]),
            ("https://a/mcp", &["https://a/mcp"]),
        ] {
            let found: Vec<String> = spellings(url).into_iter().map(String::from).collect();
            assert_eq!(found, expected);
        }
    }
}
