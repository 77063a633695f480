//! `/userinfo`: the claims of the user that an access token was made for (`OpenID` Connect Core §5.3).

use bytes::Bytes;
use hyper::{Request, header};
use serde_json::Value;

use super::Provider;
use super::answer::{Answer, OAuthFault};
use super::users::User;

impl Provider {
    /// Answers at `/userinfo`.
    pub(super) fn userinfo(&self, request: &Request<Bytes>, now_s: u64) -> Answer {
        let mut values = request.headers().get_all(header::AUTHORIZATION).iter();
        let shown = match (values.next().and_then(|value| value.to_str().ok()), values.next()) {
            (Some(value), None) => value.split_once(' '),
            _ => None,
        };
        let token = shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token);
        let grant = token.and_then(|token| self.grants.of_access_token(token, now_s));
        match grant.and_then(|grant| User::find(grant.user.name, &self.faults.now)) {
            Some(user) => Answer::json(Value::Object(user.claims(&self.faults.now))),
            None => OAuthFault::InvalidToken.into_answer(),
        }
    }
}
