//! Answers of the provider, and the errors of OAuth.

use bytes::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Map, Value, json};

/// An answer before it is bytes.
#[derive(Debug)]
pub(super) enum Answer {
    /// JSON, with the challenge that a 401 has.
    Json { status: StatusCode, body: Map<String, Value>, challenge: Option<&'static str> },
    /// A page for a browser.
    Page { status: StatusCode, html: String },
    /// A browser goes on to this address.
    Redirect(String),
    /// A status alone.
    Empty(StatusCode),
}

/// The cause for which a request of the client is refused.
#[derive(Debug)]
pub(super) enum OAuthFault {
    /// The request is none; with the reason.
    InvalidRequest(String),
    /// It does not prove that it is the client.
    InvalidClient,
    /// The code or refresh token is not, or no longer, good.
    InvalidGrant(&'static str),
    /// `grant_type` is none of ours.
    UnsupportedGrantType,
    /// The access token is not, or no longer, good.
    InvalidToken,
    /// The system has no randomness to give.
    NoRandomness,
}

impl Answer {
    /// JSON with 200. Anything but an object becomes an empty one.
    pub(super) fn json(body: Value) -> Self {
        let body = if let Value::Object(members) = body { members } else { Map::new() };
        Self::Json { status: StatusCode::OK, body, challenge: None }
    }

    /// The response. Nothing of it is kept by caches, and its pages run nothing and stand in no frame. No `form-action`:
    /// a browser would apply it to the address that it goes back to.
    pub(super) fn into_response(self) -> Response<Bytes> {
        let (status, body) = match &self {
            Self::Json { status, body, .. } => (*status, Value::Object(body.clone()).to_string()),
            Self::Page { status, html } => (*status, html.clone()),
            Self::Redirect(_) => (StatusCode::SEE_OTHER, String::new()),
            Self::Empty(status) => (*status, String::new()),
        };
        let named: &[(HeaderName, &str)] = match &self {
            Self::Json { challenge: None, .. } => &[(header::CONTENT_TYPE, "application/json")],
            Self::Json { challenge: Some(challenge), .. } => {
                &[(header::CONTENT_TYPE, "application/json"), (header::WWW_AUTHENTICATE, challenge)]
            }
            Self::Page { .. } => &[
                (header::CONTENT_TYPE, "text/html; charset=utf-8"),
                (
                    header::CONTENT_SECURITY_POLICY,
                    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
                ),
                (header::REFERRER_POLICY, "same-origin"),
            ],
            Self::Redirect(address) => &[(header::LOCATION, address)],
            Self::Empty(_) => &[],
        };
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        for (name, value) in named {
            headers.extend(HeaderValue::try_from(*value).ok().map(|value| (name.clone(), value)));
        }
        response
    }
}

impl OAuthFault {
    /// The error as RFC 6749 §5.2 and RFC 6750 §3 have it.
    pub(super) fn into_answer(self) -> Answer {
        let bad = StatusCode::BAD_REQUEST;
        let (status, code, why) = match self {
            Self::InvalidRequest(why) => (bad, "invalid_request", why),
            Self::InvalidClient => {
                (StatusCode::UNAUTHORIZED, "invalid_client", "the client id or its secret is wrong".into())
            }
            Self::InvalidGrant(why) => (bad, "invalid_grant", why.into()),
            Self::UnsupportedGrantType => {
                (bad, "unsupported_grant_type", "it is authorization_code or refresh_token".into())
            }
            Self::InvalidToken => {
                (StatusCode::UNAUTHORIZED, "invalid_token", "the access token is not good".into())
            }
            Self::NoRandomness => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "server_error",
                "the system has no randomness to give".into(),
            ),
        };
        let challenge = match code {
            "invalid_client" => Some("Basic realm=\"demo\""),
            "invalid_token" => Some("Bearer error=\"invalid_token\""),
            _ => None,
        };
        let body = json!({ "error": code, "error_description": why });
        match Answer::json(body) {
            Answer::Json { body, .. } => Answer::Json { status, body, challenge },
            other => other,
        }
    }
}

impl From<getrandom::Error> for OAuthFault {
    fn from(_: getrandom::Error) -> Self {
        Self::NoRandomness
    }
}

impl From<aws_lc_rs::error::Unspecified> for OAuthFault {
    fn from(_: aws_lc_rs::error::Unspecified) -> Self {
        Self::NoRandomness
    }
}
