//! `/register`: a client registers itself. Nothing is stored; its id holds the registration.

use identity::oauth_error::{Answer, ErrorCode, OAuthError};
use identity::registration::Registration;

use super::desk::{SignInDesk, SignInRequest};
use super::troubles::WHY_CHARS_MAX;
use crate::access::auth::sign_in::settings::SignIn;
use crate::clock::now_s;
use crate::telemetry::logs::beginning;

impl SignInDesk {
    pub(super) fn register(&self, request: &SignInRequest) -> Answer {
        match self.registered(request) {
            Ok(answer) => {
                self.series.registrations.inc();
                answer
            }
            Err(error) => {
                self.refused(request, "register", &error.to_string());
                error.answer(false)
            }
        }
    }

    fn registered(&self, request: &SignInRequest) -> Result<Answer, OAuthError> {
        if !self.settings.config.registration {
            let why = "clients do not register themselves here: ask for a client id";
            return Err(OAuthError::new(ErrorCode::AccessDenied, why));
        }
        let redirects = &self.settings.redirects;
        let registration =
            Registration::read(request.content_type.as_deref(), &request.body, redirects, now_s())?;
        if !registration.left_out.is_empty() && self.admits_line() {
            let (client, left_out) = (request.client, registration.left_out.join("; "));
            let left_out = beginning(&left_out, WHY_CHARS_MAX);
            tracing::info!(target: "audit", %client, left_out, "a client is registered without some redirect_uris");
        }
        let nonce = SignIn::nonce().ok_or(OAuthError::new(ErrorCode::ServerError, "no randomness"))?;
        registration.answer(&self.settings.seals, nonce, self.issuer())
    }
}
