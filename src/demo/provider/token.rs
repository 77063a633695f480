//! `/token` and `/revoke`: codes and refresh tokens become tokens, and tokens end.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest;
use bytes::Bytes;
use hyper::{Request, StatusCode};
use serde_json::{Map, Value, json};

use super::Provider;
use super::answer::{Answer, OAuthFault};
use super::client::authenticated;
use super::faults::change;
use super::form::Form;
use super::grants::{ACCESS_TOKEN_LIFE_S, Grant};
use super::users::User;

/// The life of an ID token.
const ID_TOKEN_LIFE_S: u64 = 300;

impl Provider {
    /// Answers at `/token`.
    pub(super) fn token(&self, request: &Request<Bytes>, now_s: u64) -> Answer {
        let tokens =
            authenticated(request, &self.settings).and_then(|form| match form.required("grant_type")? {
                "authorization_code" => self.of_code(&form, now_s),
                "refresh_token" => self.of_refresh_token(&form, now_s),
                _ => Err(OAuthFault::UnsupportedGrantType),
            });
        tokens.map_or_else(OAuthFault::into_answer, Answer::json)
    }

    /// Answers at `/revoke` (RFC 7009).
    pub(super) fn revoke(&self, request: &Request<Bytes>) -> Answer {
        let form = match authenticated(request, &self.settings) {
            Ok(form) => form,
            Err(fault) => return fault.into_answer(),
        };
        match form.required("token") {
            Ok(token) => self.grants.revoke(token),
            Err(fault) => return fault.into_answer(),
        }
        Answer::Empty(StatusCode::OK)
    }

    fn of_code(&self, form: &Form, now_s: u64) -> Result<Value, OAuthFault> {
        let code = form.required("code")?;
        let visit = self.grants.use_code(code, now_s)?;
        if form.required("redirect_uri")? != visit.redirect_uri {
            return Err(OAuthFault::InvalidGrant("redirect_uri is not that of the visit"));
        }
        let verifier = form.required("code_verifier")?;
        let shown = digest::digest(&digest::SHA256, verifier.as_bytes());
        if verify_slices_are_equal(shown.as_ref(), &visit.challenge).is_err() {
            return Err(OAuthFault::InvalidGrant("code_verifier is not that of code_challenge"));
        }
        self.check_user(visit.user)?;
        let (key, grant) = self.grants.open(code, &visit)?;
        self.tokens(&key, &grant, visit.nonce.as_deref(), now_s)
    }

    fn of_refresh_token(&self, form: &Form, now_s: u64) -> Result<Value, OAuthFault> {
        let (key, grant) = self.grants.refreshed(form.required("refresh_token")?)?;
        if let Err(fault) = self.check_user(grant.user) {
            self.grants.end(&key);
            return Err(fault);
        }
        self.tokens(&key, &grant, None, now_s)
    }

    fn check_user(&self, user: &User) -> Result<(), OAuthFault> {
        let found = User::find(user.name, &self.faults.now);
        found.map(|_| ()).ok_or(OAuthFault::InvalidGrant("the user is there no longer"))
    }

    /// An access token and an ID token, and the next refresh token where the visit asked for one.
    fn tokens(&self, key: &str, grant: &Grant, nonce: Option<&str>, now_s: u64) -> Result<Value, OAuthFault> {
        let mut tokens = json!({
            "access_token": self.grants.issue_access_token(key, now_s)?,
            "token_type": "Bearer",
            "expires_in": ACCESS_TOKEN_LIFE_S,
            "id_token": self.key.token(self.id_token(grant, nonce, now_s))?,
            "scope": grant.scope,
        });
        if grant.scope.split(' ').any(|scope| scope == "offline_access") {
            tokens["refresh_token"] = json!(self.grants.next_refresh_token(key)?);
        }
        Ok(tokens)
    }

    /// The claims of an ID token (`OpenID` Connect Core §2); after a refresh it has no nonce (§12.2).
    fn id_token(&self, grant: &Grant, nonce: Option<&str>, now_s: u64) -> Map<String, Value> {
        let mut claims = grant.user.claims(&self.faults.now);
        let own = json!({
            "iss": self.issuer,
            "aud": self.settings.client_id,
            "iat": now_s,
            "exp": now_s.saturating_add(ID_TOKEN_LIFE_S),
            "auth_time": grant.signed_in_s,
            "nonce": nonce,
        });
        change(&mut claims, own.as_object().unwrap_or(&Map::new()));
        change(&mut claims, &self.faults.now.id_token);
        claims
    }
}
