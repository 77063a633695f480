//! Requests to the provider: metadata, codes, refresh tokens, userinfo.
//!
//! Invariants: what is secret goes to the endpoints that the metadata of the configured issuer name, and nowhere else; no
//! redirect is followed; only what the provider says of a code or a refresh token ends anything.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::Full;
use identity::oauth_error::OAuthError;
use identity::parameters::{OF_ANSWERS, form_encoded, to_form};
use identity::presented::Presented;
use identity::provider::answer::{self, AnswerFault, ProviderTokens};
use identity::provider::metadata::{METADATA_BYTES_MAX, ProviderMetadata};
use net::http_client::HttpError;
use serde_json::json;
use tokens::jwt::TokenMembers;
use tokens::sealing::hex;
use zeroize::Zeroizing;

use super::desk::{SignInDesk, wipe};
use crate::access::auth::sign_in::faults::ProviderFault;
use crate::access::auth::sign_in::fetched::Kept;
use crate::access::auth::sign_in::settings::{ClientProof, random};
use crate::clock::{self, now_s};

/// Time for one request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The time for which the provider's metadata are good.
const METADATA_LIFE: Duration = Duration::from_hours(1);
/// The pause after it did not give them.
const METADATA_PAUSE: Duration = Duration::from_secs(10);
/// The life of an assertion of ours.
const ASSERTION_LIFE_S: u64 = 60;
/// The beginning of the header with a secret.
const BASIC: &str = "Basic ";
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

impl From<HttpError> for ProviderFault {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::TimedOut | HttpError::ConnectTimedOut(_) => Self::Slow { waited_s: TIMEOUT.as_secs() },
            error => Self::Down(error.to_string()),
        }
    }
}

impl From<AnswerFault> for ProviderFault {
    fn from(fault: AnswerFault) -> Self {
        match fault {
            AnswerFault::Ended(said) => Self::Ended(said),
            AnswerFault::Refused(said) => Self::Refused(said),
            AnswerFault::Unusable(status) => {
                Self::Down(format!("status {status}, and no answer of a token endpoint"))
            }
        }
    }
}

impl From<ProviderFault> for OAuthError {
    fn from(_: ProviderFault) -> Self {
        use identity::oauth_error::{ErrorCode, Fault};
        let why = "the login provider does not answer as it should: try again later, the sign-in goes on";
        Self::new(ErrorCode::TemporarilyUnavailable, why).by(Fault::Provider).retry_after(30)
    }
}

impl SignInDesk {
    /// The provider's metadata; older ones where it does not answer now. After a failure it is not asked for a while.
    pub(super) async fn metadata_of_provider(&self) -> Result<Arc<ProviderMetadata>, ProviderFault> {
        let (memory, issuer) = (&self.settings.memory.metadata, &self.settings.issuer.config.issuer);
        let fetch = async {
            let fetched = self.fetch_metadata().await;
            self.count("metadata", fetched.is_ok());
            match fetched {
                Ok(metadata) => Kept::new(Ok(Arc::new(metadata)), METADATA_LIFE),
                Err(fault) => {
                    let before = memory.last(issuer).and_then(|kept| kept.outcome.ok());
                    Kept::new(before.ok_or(fault), METADATA_PAUSE)
                }
            }
        };
        memory.get(issuer, None, fetch).await
    }

    async fn fetch_metadata(&self) -> Result<ProviderMetadata, ProviderFault> {
        let issuer = &self.settings.issuer.config.issuer;
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let request = Request::get(&url).header(ACCEPT, "application/json").body(Full::new(Bytes::new()));
        let request = request.map_err(|_| ProviderFault::Down("its issuer is no URL".to_owned()))?;
        let answer = self.fetch(request, METADATA_BYTES_MAX).await?;
        if answer.status() != StatusCode::OK {
            return Err(ProviderFault::Down(format!(
                "its metadata have status {}",
                answer.status().as_u16()
            )));
        }
        ProviderMetadata::read(issuer, answer.body())
            .map_err(|fault| ProviderFault::Untrusted(format!("its metadata: {fault}")))
    }

    /// Tokens for the code that a browser has brought.
    pub(super) async fn exchange(
        &self,
        metadata: &ProviderMetadata,
        code: &Presented,
        verifier: &Presented,
    ) -> Result<ProviderTokens, ProviderFault> {
        let callback = self.callback_url();
        let parameters = [
            ("grant_type", "authorization_code"),
            ("code", code.expose()),
            ("redirect_uri", &callback),
            ("code_verifier", verifier.expose()),
        ];
        let tokens = self.ask_for_tokens(metadata, &parameters).await;
        self.count("code", tokens.is_ok());
        tokens
    }

    /// Tokens for a refresh token.
    pub(super) async fn refresh(
        &self,
        metadata: &ProviderMetadata,
        token: &Presented,
    ) -> Result<ProviderTokens, ProviderFault> {
        let parameters = [("grant_type", "refresh_token"), ("refresh_token", token.expose())];
        let tokens = self.ask_for_tokens(metadata, &parameters).await;
        self.count("refresh", tokens.is_ok());
        tokens
    }

    async fn ask_for_tokens(
        &self,
        metadata: &ProviderMetadata,
        parameters: &[(&str, &str)],
    ) -> Result<ProviderTokens, ProviderFault> {
        let id = &self.settings.config.provider_client.id;
        let (mut parameters, mut authorization) = (parameters.to_vec(), None);
        let assertion;
        match &self.settings.proof {
            ClientProof::Basic(secret) => authorization = Some(basic(id, secret.expose())?),
            ClientProof::Post(secret) => {
                let secret = std::str::from_utf8(secret.expose()).unwrap_or_default();
                parameters.extend([("client_id", &**id), ("client_secret", secret)]);
            }
            ClientProof::Assertion { key, algorithm, key_id } => {
                assertion = self.assertion(metadata, key, *algorithm, key_id.as_deref())?;
                parameters.extend([
                    ("client_id", &**id),
                    ("client_assertion_type", ASSERTION_TYPE),
                    ("client_assertion", assertion.as_str()),
                ]);
            }
        }
        let form = Zeroizing::new(to_form(parameters.iter().copied()));
        let mut request = Request::post(&metadata.token_endpoint)
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let body = Full::new(Bytes::from_owner(form));
        let request =
            request.body(body).map_err(|_| ProviderFault::Untrusted("its token endpoint".to_owned()))?;
        let answer = self.fetch(request, OF_ANSWERS.bytes_max).await?;
        let tokens = answer::read(answer.status().as_u16(), answer.body());
        wipe(answer.into_body());
        Ok(tokens?)
    }

    /// A person's own information.
    pub(super) async fn userinfo(
        &self,
        url: &str,
        access_token: &Presented,
    ) -> Result<TokenMembers, ProviderFault> {
        let bearer = Zeroizing::new(format!("Bearer {}", access_token.expose()));
        let mut bearer = HeaderValue::from_str(&bearer)
            .map_err(|_| ProviderFault::Untrusted("its access token fits no header".to_owned()))?;
        bearer.set_sensitive(true);
        let request = Request::get(url)
            .header(ACCEPT, "application/json")
            .header(AUTHORIZATION, bearer)
            .body(Full::new(Bytes::new()))
            .map_err(|_| ProviderFault::Untrusted("its userinfo endpoint".to_owned()))?;
        let answer = self.fetch(request, OF_ANSWERS.bytes_max).await;
        self.count("userinfo", answer.as_ref().is_ok_and(|answer| answer.status() == StatusCode::OK));
        let answer = answer?;
        if answer.status() != StatusCode::OK {
            return Err(ProviderFault::Down(format!("userinfo has status {}", answer.status().as_u16())));
        }
        serde_json::from_slice(answer.body()).map_err(|_| {
            ProviderFault::Untrusted("userinfo is no JSON object whose members stand once".to_owned())
        })
    }

    fn assertion(
        &self,
        metadata: &ProviderMetadata,
        key: &jsonwebtoken::EncodingKey,
        algorithm: jsonwebtoken::Algorithm,
        key_id: Option<&str>,
    ) -> Result<Zeroizing<String>, ProviderFault> {
        let failed = |what: &str| ProviderFault::Refused(format!("an assertion cannot be made: {what}"));
        let mut header = jsonwebtoken::Header::new(algorithm);
        header.kid = key_id.map(str::to_owned);
        let (id, now_s) = (&self.settings.config.provider_client.id, now_s());
        let jti = random::<16>().map(|random| hex(&random)).ok_or_else(|| failed("no randomness"))?;
        let claims = json!({
            "iss": id, "sub": id, "aud": metadata.token_endpoint, "jti": jti,
            "iat": now_s, "exp": now_s.saturating_add(ASSERTION_LIFE_S),
        });
        let signed = jsonwebtoken::encode(&header, &claims, key);
        signed.map(Zeroizing::new).map_err(|_| failed("the key does not sign"))
    }

    async fn fetch(
        &self,
        request: Request<Full<Bytes>>,
        bytes_max: usize,
    ) -> Result<http::Response<Bytes>, ProviderFault> {
        let tls = self.settings.tls.as_ref();
        Ok(self.fetcher.fetch(request, tls, bytes_max, clock::now() + TIMEOUT).await?)
    }

    fn count(&self, what: &str, is_ok: bool) {
        let result = if is_ok { "ok" } else { "error" };
        self.series.provider_requests.with_label_values(&[what, result]).inc();
    }
}

/// RFC 6749 §2.3.1: both are encoded as in forms before they are put together.
fn basic(id: &str, secret: &[u8]) -> Result<HeaderValue, ProviderFault> {
    let secret = std::str::from_utf8(secret)
        .map_err(|_| ProviderFault::Refused("the client secret is not text in UTF-8".to_owned()))?;
    let (id, secret) = (form_encoded(id), Zeroizing::new(form_encoded(secret)));
    let mut pair = Zeroizing::new(String::with_capacity(id.len() + 1 + secret.len()));
    pair.extend([&*id, ":", &**secret]);
    let mut text = Zeroizing::new(String::with_capacity(BASIC.len() + pair.len().div_ceil(3) * 4));
    text.push_str(BASIC);
    STANDARD.encode_string(&*pair, &mut text);
    let mut value = HeaderValue::from_str(&text)
        .map_err(|_| ProviderFault::Refused("the client secret fits no header".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}
