//! `/authorize`: a client sends its user's browser here. It gets the page that asks for consent or, where that was answered
//! before, goes on to the provider.
//!
//! Nothing is stored. What was asked for travels sealed in the form of the page.

use identity::authorize::{AuthorizeFault, AuthorizeRequest, AuthorizeRules};
use identity::browser_cookies::BrowserCookie;
use identity::client::Client;
use identity::oauth_error::Answer;
use identity::pages::{ConsentPage, ReturnsTo, Trouble, consent};
use identity::redirect_uri::{RedirectKind, RedirectUri};
use identity::sealed::cookies::{ConsentCookie, VisitPurpose};
use identity::sealed::fingerprint::Fingerprint;
use identity::sealed::form::{FORM_LIFE_S, Form, JudgedRequest, place};
use tokens::sealing::hex;

use super::clients::{FoundClient, NoClient, known_by};
use super::desk::{SignInDesk, SignInRequest};
use super::reply::{page, page_of, redirect, with_cookies};
use super::troubles::{AskedFor, authorize_page};
use crate::access::auth::sign_in::settings::{SignIn, random};
use crate::clock::now_s;
use crate::telemetry::logs::shorten;

impl SignInDesk {
    pub(super) async fn authorize(&self, request: &SignInRequest) -> Answer {
        let asked = match AuthorizeRequest::read(&request.query) {
            Ok(asked) => asked,
            Err(fault) => return self.authorize_refused(&fault, AskedFor::default(), request),
        };
        let client_id = asked.client_id().unwrap_or_default().to_owned();
        let found = match self.find_client(asked.client_id(), request.client).await {
            Ok(found) => found,
            Err(NoClient::Refused(fault)) => {
                let named = AskedFor { client_id: &client_id, ..AskedFor::default() };
                return self.authorize_refused(&fault.into(), named, request);
            }
            Err(NoClient::Store(fault)) => return self.store_page(&fault, request),
            Err(NoClient::Document(error)) => {
                self.refused(request, "client", &format!("the document {client_id}: {}", error.why));
                return page_of(
                    &Trouble::ClientDocument { client_id: &client_id, why: &error.why },
                    &request.id,
                );
            }
        };
        let endpoints: Vec<&str> = self.settings.endpoints.iter().map(String::as_str).collect();
        let rules = AuthorizeRules {
            redirects: &self.settings.redirects,
            endpoints: &endpoints,
            denied: &self.settings.denied,
        };
        match asked.judge(&found.client, rules) {
            Ok((judged, redirect_uri)) => self.ask_or_go_on(&found, judged, &redirect_uri, request).await,
            Err(fault) => {
                let parameter = |name: &str| asked.parameter(name).unwrap_or_default();
                let named = AskedFor {
                    client_id: &client_id,
                    client_name: &found.client.name,
                    redirect_uri: parameter("redirect_uri"),
                    resource: parameter("resource"),
                };
                self.authorize_refused(&fault, named, request)
            }
        }
    }

    /// Goes on to the provider where the operator or this browser has consented before; else asks.
    async fn ask_or_go_on(
        &self,
        found: &FoundClient,
        judged: JudgedRequest,
        redirect_uri: &RedirectUri,
        request: &SignInRequest,
    ) -> Answer {
        let is_https = redirect_uri.kind == RedirectKind::Https;
        let remembered = if is_https { self.remembered_for(&judged, request) } else { None };
        let is_answered = remembered.is_some() || (is_https && found.is_consent_given);
        if !is_answered {
            return self.consent_page(&found.client, &judged, redirect_uri, None, request);
        }
        match self.metadata_of_provider().await {
            Ok(metadata) => {
                let purpose = VisitPurpose::Client(judged);
                match self.begin_visit(&metadata, purpose, remembered, request) {
                    Some(visit) => with_cookies(redirect(visit.url), visit.cookies),
                    None => page_of(&Trouble::StoreAway, &request.id),
                }
            }
            Err(fault) => self.provider_page(&fault, request),
        }
    }

    /// The page that asks for consent. `person` has come back from the provider, and was not the one who had answered.
    pub(super) fn consent_page(
        &self,
        client: &Client,
        judged: &JudgedRequest,
        redirect_uri: &RedirectUri,
        person: Option<&str>,
        request: &SignInRequest,
    ) -> Answer {
        let rules = self.settings.cookies;
        let shown_before = rules.find(BrowserCookie::Form, request.cookies.iter().map(Vec::as_slice));
        let browser = match shown_before.filter(|value| is_browser(value)) {
            Some(value) => Some(value.to_owned()),
            None => random::<16>().map(|random| hex(&random)),
        };
        let form = Form { request: judged.clone(), expires_s: now_s().saturating_add(FORM_LIFE_S) };
        let sealed = browser.as_ref().zip(SignIn::nonce()).and_then(|(browser, nonce)| {
            self.settings.seals.seal(nonce, &place(self.issuer(), browser), &form)
        });
        let Some((browser, sealed)) = browser.zip(sealed) else {
            return page_of(&Trouble::StoreAway, &request.id);
        };
        let shown = redirect_uri.shown();
        let returns_to = match redirect_uri.kind {
            RedirectKind::Https => ReturnsTo::Host(&shown),
            RedirectKind::Loopback => ReturnsTo::Loopback(&shown),
            RedirectKind::PrivateScheme => ReturnsTo::Scheme(shown.trim_end_matches(':')),
        };
        // A scope that stands in no rule is given to nobody.
        let known = self.settings.config.scopes.iter().map(|(scope, _)| scope.as_str()).collect::<Vec<_>>();
        let (scopes, scopes_dropped): (Vec<&str>, Vec<&str>) =
            judged.scopes.iter().map(String::as_str).partition(|scope| known.contains(scope));
        let (provider, host) = (self.provider_host(), client.host());
        let asked = ConsentPage {
            client: &client.name,
            known_by: known_by(client, host.as_deref()),
            returns_to,
            endpoint: &judged.endpoint,
            scopes: &scopes,
            scopes_dropped: &scopes_dropped,
            provider: &provider,
            person,
            request: &sealed,
        };
        let cookie = rules.set(BrowserCookie::Form, &browser, FORM_LIFE_S);
        with_cookies(page(&consent(&asked)), [cookie])
    }

    /// The person whose answer to this very request this browser remembers.
    fn remembered_for(&self, judged: &JudgedRequest, request: &SignInRequest) -> Option<Fingerprint> {
        self.consent_cookie(request).principal_for(judged, now_s())
    }

    /// The answers that this browser remembers; none where its cookie is missing or does not open.
    pub(super) fn consent_cookie(&self, request: &SignInRequest) -> ConsentCookie {
        let text =
            self.settings.cookies.find(BrowserCookie::Consent, request.cookies.iter().map(Vec::as_slice));
        let opened = text
            .and_then(|text| self.settings.seals.open::<ConsentCookie>(text, self.issuer(), now_s()).ok());
        opened.unwrap_or_default()
    }

    fn authorize_refused(
        &self,
        fault: &AuthorizeFault,
        named: AskedFor<'_>,
        request: &SignInRequest,
    ) -> Answer {
        self.refused(request, "request", &format!("client {}: {fault}", shorten(named.client_id)));
        authorize_page(fault, named, &request.id)
    }
}

/// True for what this gateway sets as the cookie of forms.
fn is_browser(value: &str) -> bool {
    value.len() == 32 && value.bytes().all(|byte| byte.is_ascii_hexdigit())
}
