//! A visit of a browser to the provider: what it carries there, and the cookie that it comes back with.

use identity::browser_cookies::BrowserCookie;
use identity::pkce::{CodeChallenge, verifier};
use identity::presented::Presented;
use identity::provider::callback::random_text;
use identity::provider::metadata::{ProviderMetadata, Visit};
use identity::sealed::cookies::{SIGN_IN_LIFE_S, SignInCookie, VisitPurpose};
use identity::sealed::fingerprint::Fingerprint;
use zeroize::Zeroizing;

use super::desk::{SignInDesk, SignInRequest};
use crate::access::auth::sign_in::settings::{SignIn, random};
use crate::clock::now_s;

/// The path that the provider sends browsers back to.
pub(super) const CALLBACK_PATH: &str = "/sign-in/callback";

/// A visit that can begin.
pub(super) struct BegunVisit {
    /// The page of the provider.
    pub url: String,
    /// The cookies that are set for it.
    pub cookies: Vec<String>,
}

impl SignInDesk {
    /// The callback as it is registered at the provider.
    pub(super) fn callback_url(&self) -> String {
        format!("{}{CALLBACK_PATH}", self.issuer())
    }

    /// Begins a visit. `None`: no randomness, or the request does not fit into a cookie.
    pub(super) fn begin_visit(
        &self,
        metadata: &ProviderMetadata,
        purpose: VisitPurpose,
        remembered_for: Option<Fingerprint>,
        request: &SignInRequest,
    ) -> Option<BegunVisit> {
        let (state, nonce, secret) = (random::<16>()?, random::<16>()?, Zeroizing::new(random::<32>()?));
        let verifier = verifier(&secret);
        let config = &self.settings.config;
        let (state_text, nonce_text) = (random_text(&state), random_text(&nonce));
        let url = metadata.visit(&Visit {
            client_id: &config.provider_client.id,
            redirect_uri: &self.callback_url(),
            state: &state_text,
            nonce: &nonce_text,
            challenge: CodeChallenge::of(&verifier),
            scopes: &config.provider_scopes,
            parameters: &config.parameters,
        });
        let cookie = SignInCookie {
            purpose,
            state,
            nonce,
            verifier: Presented::new(&verifier),
            remembered_for,
            expires_s: now_s().saturating_add(SIGN_IN_LIFE_S),
        };
        let sealed = self.settings.seals.seal(SignIn::nonce()?, self.issuer(), &cookie)?;
        let rules = self.settings.cookies;
        let mut cookies = rules.too_many(request.cookies.iter().map(Vec::as_slice));
        cookies.push(rules.set(BrowserCookie::SignIn(state), &sealed, SIGN_IN_LIFE_S));
        Some(BegunVisit { url, cookies })
    }
}
