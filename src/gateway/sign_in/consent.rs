//! The answer to the page that asks for consent. Allowed, the browser goes on to the provider; denied, back to the client.
//!
//! Both by a page that moves on by itself: browsers hold a redirect that follows a form against the form's policy.

use identity::authorize::AnsweredRequest;
use identity::browser_cookies::BrowserCookie;
use identity::oauth_error::{Answer, ErrorCode, OAuthError};
use identity::pages::{ALLOW, ANSWER_FIELD, DENY, FORM_FIELD, PageTarget, Trouble, moving_on};
use identity::parameters::Parameters;
use identity::sealed::OpenFault;
use identity::sealed::cookies::VisitPurpose;
use identity::sealed::form::{FORM_LIFE_S, Form, place};

use super::desk::{SignInDesk, SignInRequest};
use super::reply::{page, page_of, with_cookies};
use super::troubles::parameters_page;
use crate::clock::now_s;

impl SignInDesk {
    pub(super) async fn consent(&self, request: &SignInRequest) -> Answer {
        let parameters = match self.form_of(request) {
            Ok(parameters) => parameters,
            Err(answer) => return answer,
        };
        let sealed = parameters.get(FORM_FIELD).unwrap_or_default();
        let browser =
            self.settings.cookies.find(BrowserCookie::Form, request.cookies.iter().map(Vec::as_slice));
        let Some(browser) = browser else {
            self.refused(request, "form", "the browser sends no cookie");
            return page_of(&Trouble::OtherBrowser, &request.id);
        };
        let opened: Result<Form, OpenFault> =
            self.settings.seals.open(sealed, &place(self.issuer(), browser), now_s());
        let form = match opened {
            Ok(form) => form,
            Err(OpenFault::Expired) => {
                self.refused(request, "form", "the page stood open for too long");
                return page_of(&Trouble::FormExpired { minutes: FORM_LIFE_S / 60 }, &request.id);
            }
            Err(OpenFault::Unknown) => {
                self.refused(request, "form", "the form is of another browser, or none of ours");
                return page_of(&Trouble::OtherBrowser, &request.id);
            }
        };
        let (client, endpoint) = (form.request.client_id.clone(), form.request.endpoint.clone());
        match parameters.get(ANSWER_FIELD) {
            Some(ALLOW) => {
                tracing::info!(target: "audit", client = %request.client, client_id = client, endpoint, "consented");
                self.allowed(form, request).await
            }
            Some(DENY) => {
                self.refused(request, "denied", &format!("the person denied client {client}"));
                self.denied(&form.answered(), request)
            }
            _ => page_of(&Trouble::ParameterMissing { name: ANSWER_FIELD }, &request.id),
        }
    }

    async fn allowed(&self, form: Form, request: &SignInRequest) -> Answer {
        let metadata = match self.metadata_of_provider().await {
            Ok(metadata) => metadata,
            Err(fault) => return self.provider_page(&fault, request),
        };
        let visit = self.begin_visit(&metadata, VisitPurpose::Client(form.request), None, request);
        let Some((visit, target)) = visit.and_then(|visit| {
            let target = PageTarget::new(&visit.url)?;
            Some((visit, target))
        }) else {
            return page_of(&Trouble::ProviderUntrusted { provider: &self.provider_host() }, &request.id);
        };
        with_cookies(page(&moving_on(&target)), visit.cookies)
    }

    fn denied(&self, answered: &AnsweredRequest, request: &SignInRequest) -> Answer {
        let error = OAuthError::new(ErrorCode::AccessDenied, "the user denied it");
        let back = answered.with_error(&error, &self.settings.redirects, self.issuer());
        moved_back(back, answered, request)
    }

    /// The fields of a form that one of our own pages posted.
    pub(super) fn form_of(&self, request: &SignInRequest) -> Result<Parameters, Answer> {
        if request.origin.as_deref() != Some(self.issuer()) {
            self.refused(request, "origin", "the form was posted by another page");
            return Err(page_of(&Trouble::OtherBrowser, &request.id));
        }
        Parameters::of_form(request.content_type.as_deref(), &request.body).map_err(|fault| {
            self.refused(request, "form", &fault.to_string());
            parameters_page(&fault, &request.id)
        })
    }
}

/// A page that moves on to the client.
pub(super) fn moved_back(
    back: Result<String, identity::redirect_uri::RedirectFault>,
    answered: &AnsweredRequest,
    request: &SignInRequest,
) -> Answer {
    match back.ok().and_then(|url| PageTarget::new(&url)) {
        Some(target) => page(&moving_on(&target)),
        None => page_of(
            &Trouble::RedirectRefused {
                client: &answered.request().client_name,
                redirect: &answered.request().redirect_uri,
                entry: None,
            },
            &request.id,
        ),
    }
}
