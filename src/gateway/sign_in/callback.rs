//! A browser comes back from the provider. Whoever it says this is gets a grant, and the client a code for it.
//!
//! Invariants: the cookie that `state` names has to be there, so a link that somebody sent does nothing; an answer that was only
//! remembered counts for the person who gave it; nothing is stored before the provider has said who this is.

use identity::authorize::{AnsweredRequest, Returned};
use identity::browser_cookies::BrowserCookie;
use identity::oauth_error::{Answer, ErrorCode, OAuthError};
use identity::pages::{PageTarget, SignedInPage, Trouble, signed_in};
use identity::presented::Presented;
use identity::provider::callback::{Callback, CallbackFault, CallbackOutcome, random_text};
use identity::provider::metadata::ProviderMetadata;
use identity::redirect_uri::RedirectKind;
use identity::sealed::account::AccountRecord;
use identity::sealed::authorization_code::{AuthorizationCode, CODE_LIFE_S};
use identity::sealed::cookies::SignInCookie;
use identity::sealed::fingerprint::{Fingerprint, GrantId};
use identity::sealed::grant::GrantRecord;
use zeroize::Zeroizing;

use super::clients::NoClient;
use super::consent::moved_back;
use super::desk::{SignInDesk, SignInRequest};
use super::person::{ExpectedPerson, PersonFault};
use super::reply::{page, page_of, redirect, with_cookies};
use super::troubles::parameters_page;
use crate::access::auth::sign_in::faults::ProviderFault;
use crate::access::auth::sign_in::settings::{SignIn, random};
use crate::clock::now_s;

impl SignInDesk {
    pub(super) async fn callback(&self, request: &SignInRequest) -> Answer {
        let callback = match Callback::read(&request.query) {
            Ok(callback) => callback,
            Err(fault) => return self.not_back(&fault, request),
        };
        // Before anything is fetched: without a cookie it is a stranger's request.
        let cookie = BrowserCookie::SignIn(callback.state);
        let sealed = self.settings.cookies.find(cookie, request.cookies.iter().map(Vec::as_slice));
        let opened =
            sealed.map(|text| self.settings.seals.open::<SignInCookie>(text, self.issuer(), now_s()));
        let Some(Ok(visit)) = opened else {
            self.refused(
                request,
                "callback",
                "the browser has no cookie of this sign-in, or its time is over",
            );
            return page_of(&Trouble::OtherBrowser, &request.id);
        };
        let answer = if visit.state == callback.state {
            let metadata = match self.metadata_of_provider().await {
                Ok(metadata) => metadata,
                // The code was not used: the person may try the same again.
                Err(fault) => return self.provider_page(&fault, request),
            };
            match callback.check_issuer(&metadata) {
                Ok(()) => self.returned(&metadata, callback.outcome, visit, request).await,
                Err(fault) => self.not_back(&fault, request),
            }
        } else {
            self.refused(request, "callback", "the cookie is of another sign-in");
            page_of(&Trouble::OtherBrowser, &request.id)
        };
        // A cookie is good at one callback alone: the browser is told to forget it, whatever comes of this.
        with_cookies(answer, [self.settings.cookies.end(cookie)])
    }

    /// The page for what is no answer of the provider.
    fn not_back(&self, fault: &CallbackFault, request: &SignInRequest) -> Answer {
        self.refused(request, "callback", &fault.to_string());
        match fault {
            CallbackFault::Parameters(fault) => parameters_page(fault, &request.id),
            CallbackFault::State => page_of(&Trouble::ParameterMissing { name: "state" }, &request.id),
            CallbackFault::Issuer | CallbackFault::Outcome => {
                page_of(&Trouble::ProviderUntrusted { provider: &self.provider_host() }, &request.id)
            }
        }
    }

    async fn returned(
        &self,
        metadata: &ProviderMetadata,
        outcome: CallbackOutcome,
        visit: SignInCookie,
        request: &SignInRequest,
    ) -> Answer {
        let code = match outcome {
            CallbackOutcome::Code(code) => code,
            CallbackOutcome::Error { code, description } => {
                return self.provider_said_no(&code, &description, visit, request);
            }
        };
        let account = match self.signed_in_as(metadata, &code, &visit).await {
            Ok(account) => account,
            Err(fault) => return self.nobody(&fault, request),
        };
        self.grants.note_provider_answer();
        match visit.returned(Some(&account.principal)) {
            Returned::SignIns => self.open_page(&account, request),
            Returned::Answered(answered) => self.grant(&answered, &account, request).await,
            Returned::Unanswered(judged) => {
                let found = match self.find_client(Some(&judged.client_id), request.client).await {
                    Ok(found) => found,
                    Err(NoClient::Store(fault)) => return self.store_page(&fault, request),
                    Err(NoClient::Refused(_) | NoClient::Document(_)) => {
                        return page_of(
                            &Trouble::ClientUnknown { client_id: &judged.client_id },
                            &request.id,
                        );
                    }
                };
                let uri =
                    self.settings.redirects.choose(&found.client.redirect_uris, Some(&judged.redirect_uri));
                match uri {
                    Ok(uri) => self.consent_page(&found.client, &judged, &uri, Some(&account.name), request),
                    Err(_) => page_of(
                        &Trouble::RedirectUnregistered {
                            client: &judged.client_name,
                            redirect: &judged.redirect_uri,
                        },
                        &request.id,
                    ),
                }
            }
        }
    }

    async fn signed_in_as(
        &self,
        metadata: &ProviderMetadata,
        code: &Presented,
        visit: &SignInCookie,
    ) -> Result<AccountRecord, PersonFault> {
        let tokens = self.exchange(metadata, code, &visit.verifier).await?;
        let nonce = random_text(&visit.nonce);
        let expected = ExpectedPerson { nonce: Some(&nonce), before: None };
        self.person_of(metadata, &tokens, expected).await
    }

    /// The provider has an error instead of a code. A client whose page was answered is told; others see a page.
    fn provider_said_no(
        &self,
        code: &str,
        description: &str,
        visit: SignInCookie,
        request: &SignInRequest,
    ) -> Answer {
        self.refused(request, "provider", &format!("the provider says {code}: {description}"));
        let provider = &*self.provider_host();
        let trouble =
            || page_of(&Trouble::ProviderRefused { provider, error: code, description }, &request.id);
        let Returned::Answered(answered) = visit.returned(None) else { return trouble() };
        if code != "access_denied" {
            return trouble();
        }
        let error = OAuthError::new(ErrorCode::AccessDenied, "the login provider did not sign the user in");
        let back = answered.with_error(&error, &self.settings.redirects, self.issuer());
        self.back(back, &answered, None, request)
    }

    fn nobody(&self, fault: &PersonFault, request: &SignInRequest) -> Answer {
        match fault {
            PersonFault::Provider(fault) => self.provider_page(fault, request),
            PersonFault::Requirement { claim, name } => {
                // The names of groups that open something are for operators: the page goes to whoever the provider lets in.
                let values = self.settings.config.require.iter().find(|(required, _)| required == claim);
                let values = values.map(|(_, values)| values.join(" or ")).unwrap_or_default();
                self.refused(request, "require", &format!("{name} lacks the required {claim}: {values}"));
                let provider = &*self.provider_host();
                page_of(&Trouble::RequirementFailed { provider, person: name, claim }, &request.id)
            }
        }
    }

    /// Opens a grant, and sends the browser back to the client with a code for it.
    async fn grant(
        &self,
        answered: &AnsweredRequest,
        account: &AccountRecord,
        request: &SignInRequest,
    ) -> Answer {
        let (asked, now_s, config) = (answered.request(), now_s(), &self.settings.config);
        let Some(id) = random::<16>().map(GrantId) else { return page_of(&Trouble::StoreAway, &request.id) };
        let scopes = self.settings.scopes.grant(&asked.scopes, &account.groups);
        let life = match account.refresh_token {
            Some(_) => config.grant_lifetime,
            None => config.grant_lifetime_without_refresh,
        };
        let grant = GrantRecord {
            id,
            account: account.fingerprint(),
            principal: account.principal.clone(),
            client_id: asked.client_id.clone(),
            client_name: asked.client_name.clone(),
            endpoint: asked.endpoint.clone(),
            scopes: scopes.granted,
            opened_s: now_s,
            used_s: now_s,
            ends_s: now_s.saturating_add(life.as_secs()),
            // Of no use longer than its code, until that is used.
            idle_max_s: CODE_LIFE_S,
            generation: 0,
            rotated_s: now_s,
        };
        let code = AuthorizationCode {
            grant: id,
            client: Fingerprint::of(&[&asked.client_id]),
            redirect_uri: Fingerprint::of(&[&asked.redirect_uri]),
            endpoint: Fingerprint::of(&[&asked.endpoint]),
            challenge: asked.challenge,
            expires_s: now_s.saturating_add(CODE_LIFE_S),
        };
        let sealed = SignIn::nonce().and_then(|nonce| self.settings.seals.seal(nonce, self.issuer(), &code));
        let Some(sealed) = sealed.map(Zeroizing::new) else {
            return page_of(&Trouble::StoreAway, &request.id);
        };
        let opened = self.grants.open_grant(account, &grant, config.grants_per_principal_max).await;
        let told = match opened {
            // The tokens of other clients say what was true before.
            Ok(Some(before)) if self.names_of(&before) != self.names_of(account) => {
                let now = AccountRecord { grants: before.grants, ..account.clone() };
                self.grants.note_change(&now).await
            }
            Ok(_) => Ok(()),
            Err(fault) => Err(fault),
        };
        if let Err(fault) = told {
            return self.store_page(&fault, request);
        }
        self.series.sign_ins.inc();
        tracing::info!(
            target: "audit", client = %request.client, principal = account.principal, client_id = asked.client_id,
            client_name = asked.client_name, endpoint = asked.endpoint, scopes = grant.scopes.join(" "),
            dropped = scopes.dropped.join(" "), "signed in"
        );
        let back = answered.with_code(&sealed, &self.settings.redirects, self.issuer());
        self.back(back, answered, Some(account), request)
    }

    /// Sends the browser back to the client. To an app of this computer a page brings it, which stays open.
    fn back(
        &self,
        url: Result<String, identity::redirect_uri::RedirectFault>,
        answered: &AnsweredRequest,
        signed_in_now: Option<&AccountRecord>,
        request: &SignInRequest,
    ) -> Answer {
        let asked = answered.request();
        let kind = self.settings.redirects.judge(&asked.redirect_uri);
        let (Ok(url), Ok(kind)) = (url, kind) else {
            return page_of(
                &Trouble::RedirectRefused {
                    client: &asked.client_name,
                    redirect: &asked.redirect_uri,
                    entry: None,
                },
                &request.id,
            );
        };
        match (kind, signed_in_now) {
            (RedirectKind::PrivateScheme, Some(account)) => {
                let target = PageTarget::new(&url);
                page(&signed_in(&SignedInPage {
                    client: &asked.client_name,
                    person: &account.name,
                    endpoint: &asked.endpoint,
                    back: target.as_ref(),
                }))
            }
            (RedirectKind::PrivateScheme, None) => moved_back(Ok(url), answered, request),
            (RedirectKind::Https, Some(account)) => {
                with_cookies(redirect(url), self.remember_consent(&account.principal, answered, request))
            }
            _ => redirect(url),
        }
    }

    /// The cookie that remembers the answer of this person.
    fn remember_consent(
        &self,
        principal: &str,
        answered: &AnsweredRequest,
        request: &SignInRequest,
    ) -> Option<String> {
        let life_s = self.settings.config.consent_remembered.as_secs();
        if life_s == 0 {
            return None;
        }
        let mut cookie = self.consent_cookie(request);
        let now_s = now_s();
        cookie.remember(principal, answered.request(), now_s, now_s.saturating_add(life_s));
        let sealed = self.settings.seals.seal(SignIn::nonce()?, self.issuer(), &cookie)?;
        Some(self.settings.cookies.set(BrowserCookie::Consent, &sealed, life_s))
    }
}

impl From<PersonFault> for OAuthError {
    fn from(fault: PersonFault) -> Self {
        match fault {
            PersonFault::Provider(ProviderFault::Ended(_)) | PersonFault::Requirement { .. } => Self::new(
                ErrorCode::InvalidGrant,
                "the sign-in has ended: the login provider no longer lets this person in",
            ),
            PersonFault::Provider(fault) => fault.into(),
        }
    }
}
