//! Errors of OAuth as values: which one, by whose fault, and the answer that tells it.
//!
//! Invariants: a description is written here or names a parameter, and never shows what a client presented; it has only the
//! characters that RFC 6749 §5.2 lets in.

use std::borrow::Cow;

use serde_json::json;

/// The side that has to change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The client sent what it must not.
    Client,
    /// A rule of this gateway, or the user, said no.
    Policy,
    /// The provider did not answer as it should.
    Provider,
    /// The gateway, its store or its settings.
    Gateway,
}

/// Defines the codes, with their words and statuses.
macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident = $word:literal, $status:literal;)*) => {
        /// The codes of errors (RFC 6749 §4.1.2.1 and §5.2, 7009, 7591, 8707, `OpenID` Connect Core §3.1.2.6).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ErrorCode { $($(#[$doc])* $code,)* }

        impl ErrorCode {
            /// The word that stands for it.
            pub fn word(self) -> &'static str {
                match self { $(Self::$code => $word,)* }
            }

            /// The status of an answer that tells it.
            fn status(self) -> u16 {
                match self { $(Self::$code => $status,)* }
            }
        }
    };
}

codes! {
    /// A parameter is missing, wrong, or stands twice.
    InvalidRequest = "invalid_request", 400;
    /// The client is unknown, or did not prove that it is the one it names.
    InvalidClient = "invalid_client", 400;
    /// The code or the refresh token is over, used, or of another client.
    InvalidGrant = "invalid_grant", 400;
    /// The client may not do that.
    UnauthorizedClient = "unauthorized_client", 400;
    /// Another grant than `authorization_code` and `refresh_token`.
    UnsupportedGrantType = "unsupported_grant_type", 400;
    /// Another response than `code`.
    UnsupportedResponseType = "unsupported_response_type", 400;
    /// A request object.
    RequestNotSupported = "request_not_supported", 400;
    /// Scopes that are none.
    InvalidScope = "invalid_scope", 400;
    /// No endpoint of that name.
    InvalidTarget = "invalid_target", 400;
    /// The user or a rule said no.
    AccessDenied = "access_denied", 403;
    /// A fault of ours.
    ServerError = "server_error", 500;
    /// The provider or the store cannot be had now.
    TemporarilyUnavailable = "temporarily_unavailable", 503;
    /// A redirect URI that may not be registered.
    InvalidRedirectUri = "invalid_redirect_uri", 400;
    /// Another member of a registration.
    InvalidClientMetadata = "invalid_client_metadata", 400;
}

/// An error: its code, a description for the developer of the client, and the side that it comes from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {description}", .code.word())]
pub struct OAuthError {
    /// Its code.
    pub code: ErrorCode,
    /// A sentence for people.
    pub description: Cow<'static, str>,
    /// The side that has to change something.
    pub fault: Fault,
    /// Seconds after which another try makes sense.
    pub retry_after_s: Option<u32>,
}

/// The memory for an answer in JSON: the longest have two tokens.
const JSON_BYTES: usize = 4 << 10;

/// An answer, ready to be sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Names in lower case, and values.
    pub headers: Vec<(&'static str, String)>,
    /// The body; it may hold a secret.
    pub body: String,
}

impl std::fmt::Debug for Answer {
    /// Without the body, which may hold a token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").field("status", &self.status).finish_non_exhaustive()
    }
}

impl Answer {
    /// JSON that nobody keeps.
    pub fn json(status: u16, body: &serde_json::Value) -> Self {
        let headers =
            [("content-type", "application/json"), ("cache-control", "no-store"), ("pragma", "no-cache")];
        let headers = headers.map(|(name, value)| (name, value.to_owned())).to_vec();
        // Written once: no part of what may be secret is left behind.
        let mut text = Vec::with_capacity(JSON_BYTES);
        let written = serde_json::to_writer(&mut text, body).ok();
        let text = written.and_then(|()| String::from_utf8(text).ok());
        Self { status, headers, body: text.unwrap_or_default() }
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(present, _)| *present == name).map(|(_, value)| value.as_str())
    }
}

impl OAuthError {
    /// An error by the fault that its code has at most times.
    pub fn new(code: ErrorCode, description: impl Into<Cow<'static, str>>) -> Self {
        let fault = match code {
            ErrorCode::AccessDenied => Fault::Policy,
            ErrorCode::ServerError => Fault::Gateway,
            ErrorCode::TemporarilyUnavailable => Fault::Provider,
            _ => Fault::Client,
        };
        Self { code, description: in_charset(description.into()), fault, retry_after_s: None }
    }

    /// The same by another's fault.
    #[must_use]
    pub fn by(mut self, fault: Fault) -> Self {
        self.fault = fault;
        self
    }

    /// The same, with the time of the next try.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// The answer of `/token`, `/register` and `/revoke`. A client that tried Basic is told so by a challenge (RFC 6749 §5.2);
    /// others get none, which would make a browser ask for a password.
    pub fn answer(&self, has_tried_basic: bool) -> Answer {
        let body = json!({ "error": self.code.word(), "error_description": self.description });
        let is_challenged = self.code == ErrorCode::InvalidClient && has_tried_basic;
        let mut answer = Answer::json(if is_challenged { 401 } else { self.code.status() }, &body);
        if is_challenged {
            answer.headers.push(("www-authenticate", "Basic realm=\"token\", charset=\"UTF-8\"".to_owned()));
        }
        if let Some(seconds) = self.retry_after_s {
            answer.headers.push(("retry-after", seconds.to_string()));
        }
        answer
    }

    /// The parameters that tell it in a redirect.
    pub fn parameters(&self) -> [(&'static str, &str); 2] {
        [("error", self.code.word()), ("error_description", &self.description)]
    }
}

/// Only what RFC 6749 §5.2 lets in.
fn in_charset(text: Cow<'static, str>) -> Cow<'static, str> {
    let fits = |c: char| matches!(c, ' '..='~') && c != '"' && c != '\\';
    if text.chars().all(fits) {
        return text;
    }
    text.chars().map(|c| if fits(c) { c } else { '\'' }).collect::<String>().into()
}

impl From<crate::parameters::ParameterFault> for OAuthError {
    fn from(fault: crate::parameters::ParameterFault) -> Self {
        Self::new(ErrorCode::InvalidRequest, fault.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_json_that_nobody_keeps() {
        let answer = OAuthError::new(ErrorCode::InvalidGrant, "the code is over").answer(false);
        assert_eq!(answer.status, 400);
        assert_eq!(answer.body, r#"{"error":"invalid_grant","error_description":"the code is over"}"#);
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("www-authenticate"), None);
    }

    #[test]
    fn a_challenge_goes_to_clients_that_tried_basic_alone() {
        let error = OAuthError::new(ErrorCode::InvalidClient, "the secret is wrong");
        assert_eq!((error.answer(false).status, error.answer(true).status), (400, 401));
        assert!(
            error.answer(true).header("www-authenticate").is_some_and(|value| value.starts_with("Basic "))
        );
        let other = OAuthError::new(ErrorCode::InvalidGrant, "over").answer(true);
        assert_eq!((other.status, other.header("www-authenticate")), (400, None));
    }

    #[test]
    fn errors_have_a_fault_and_a_time_of_the_next_try() {
        let error =
            OAuthError::new(ErrorCode::TemporarilyUnavailable, "the provider is away").retry_after(30);
        assert_eq!(error.fault, Fault::Provider);
        assert_eq!(error.answer(false).header("retry-after"), Some("30"));
        assert_eq!(error.by(Fault::Gateway).fault, Fault::Gateway);
    }

    #[test]
    fn a_description_has_only_what_fits() {
        let error = OAuthError::new(ErrorCode::InvalidRequest, "a \"b\"\\\n\u{e4}");
        assert_eq!(error.description, "a 'b''''");
    }
}
