//! `/authorize`: judges the visit of a browser, shows its page, and sends it back with a code.
//!
//! The page's form goes to the very address of the visit, so nothing is remembered between the two, and both are judged alike.
//!
//! Invariant: client and redirect URI are judged first; until they are known, every error is a page.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use hyper::{Method, Request, StatusCode};

use super::answer::Answer;
use super::discovery::SCOPES;
use super::form::{self, Form};
use super::grants::Visit;
use super::users::User;
use super::{Provider, page};

/// An error that the client is told (RFC 6749 §4.1.2.1), and its reason.
struct VisitFault(&'static str, &'static str);

impl Provider {
    /// Answers at `/authorize`.
    pub(super) fn authorize(&self, request: &Request<Bytes>, now_s: u64) -> Answer {
        let query = request.uri().query().unwrap_or_default();
        let Ok(form) = Form::read(query.as_bytes()) else {
            return refused("A parameter of this address stands twice, or cannot be read.");
        };
        if form.get("client_id") != Some(&self.settings.client_id) {
            return refused("The application is unknown here: its client_id is not the configured one.");
        }
        let redirect_uri = form.get("redirect_uri").unwrap_or_default();
        if !self.settings.redirect_uris.iter().any(|known| known == redirect_uri) {
            return refused("The application wants you to go back to an address that is not registered.");
        }
        let outcome = check(&form).and_then(|challenge| {
            if request.method() == Method::GET {
                return match form.get("prompt") {
                    Some("none") => Err(VisitFault("login_required", "users sign in at each visit")),
                    _ => Ok(page::sign_in(query, redirect_uri, form.get("login_hint"), &self.faults.now)),
                };
            }
            self.answered(request, &form, challenge, now_s)
        });
        outcome.unwrap_or_else(|VisitFault(code, why)| {
            self.back(&form, &[("error", code), ("error_description", why)])
        })
    }

    /// The way back, as the page was answered.
    fn answered(
        &self,
        request: &Request<Bytes>,
        form: &Form,
        challenge: Vec<u8>,
        now_s: u64,
    ) -> Result<Answer, VisitFault> {
        let answer = Form::read(request.body())
            .map_err(|_| VisitFault("invalid_request", "the answer of the page cannot be read"))?;
        let denied = VisitFault("access_denied", "the user cancelled, or is not there");
        let user = answer.get("user").and_then(|name| User::find(name, &self.faults.now)).ok_or(denied)?;
        let scopes: Vec<&str> = scopes(form).filter(|scope| SCOPES.contains(scope)).collect();
        let visit = Visit {
            user,
            redirect_uri: form.get("redirect_uri").unwrap_or_default().to_owned(),
            challenge,
            nonce: form.get("nonce").map(str::to_owned),
            scope: scopes.join(" "),
            signed_in_s: now_s,
        };
        let code = self.grants.issue_code(visit, now_s);
        let code = code.map_err(|_| VisitFault("server_error", "the system has no randomness to give"))?;
        Ok(self.back(form, &[("code", &code)]))
    }

    /// Back to the client, with `state` and `iss` (RFC 9207).
    fn back(&self, form: &Form, outcome: &[(&str, &str)]) -> Answer {
        let address = form.get("redirect_uri").unwrap_or_default();
        let mark = if address.contains('?') { '&' } else { '?' };
        let state = form.get("state").map(|state| ("state", state));
        let parameters: Vec<_> =
            outcome.iter().copied().chain(state).chain([("iss", &*self.issuer)]).collect();
        Answer::Redirect(format!("{address}{mark}{}", form::encoded(&parameters)))
    }
}

/// Judges all but client and redirect URI. Returns the challenge.
fn check(form: &Form) -> Result<Vec<u8>, VisitFault> {
    for (name, code) in [("request", "request_not_supported"), ("request_uri", "request_uri_not_supported")] {
        if form.get(name).is_some() {
            return Err(VisitFault(code, "parameters belong into the query"));
        }
    }
    if form.get("response_type") != Some("code") {
        return Err(VisitFault("unsupported_response_type", "response_type must be code"));
    }
    if form.get("response_mode").is_some_and(|mode| mode != "query") {
        return Err(VisitFault("invalid_request", "response_mode must be query"));
    }
    if !scopes(form).any(|scope| scope == "openid") {
        return Err(VisitFault("invalid_scope", "scope must hold openid"));
    }
    if form.get("code_challenge_method") != Some("S256") {
        return Err(VisitFault("invalid_request", "PKCE is required: code_challenge_method must be S256"));
    }
    let challenge = form.get("code_challenge").and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
    challenge
        .filter(|challenge| challenge.len() == digest::SHA256_OUTPUT_LEN)
        .ok_or(VisitFault("invalid_request", "code_challenge is missing, or no SHA-256 digest in base64url"))
}

fn scopes(form: &Form) -> impl Iterator<Item = &str> {
    form.get("scope").unwrap_or_default().split(' ')
}

fn refused(why: &str) -> Answer {
    Answer::Page { status: StatusCode::BAD_REQUEST, html: page::refused(why) }
}
