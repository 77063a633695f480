//! What browsers must be told before they let a page of another origin read a reply.
//!
//! Whether an origin is allowed at all is decided before, by `auth::origin`.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, VARY,
};
use http::{HeaderValue, StatusCode};
use protocol::fields::{FieldName, Fields};

use crate::line::response::ClientResponse;

const METHODS: HeaderValue = HeaderValue::from_static("POST, OPTIONS");
const METHODS_OF_SESSIONS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE, OPTIONS");
const EXPOSED: HeaderValue =
    HeaderValue::from_static("Mcp-Session-Id, WWW-Authenticate, Retry-After, RateLimit, RateLimit-Policy");
const MAX_AGE_S: HeaderValue = HeaderValue::from_static("600");
const VARY_ORIGIN: HeaderValue = HeaderValue::from_static("Origin");

/// Lets the page of an allowed `origin` read `response`.
pub(crate) fn allow(response: &mut ClientResponse, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    headers.insert(VARY, VARY_ORIGIN);
}

/// The answer to OPTIONS from an allowed origin, or from no origin; [`allow`] is still to be called. `has_sessions`:
/// the endpoint serves revisions with sessions.
pub(crate) fn preflight(request: &Fields, has_sessions: bool) -> ClientResponse {
    let methods = if has_sessions { METHODS_OF_SESSIONS } else { METHODS };
    let mut response = ClientResponse::empty(StatusCode::NO_CONTENT);
    response.headers_mut().insert(ALLOW, methods.clone());
    if request.first(FieldName::Origin).is_some() {
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
        headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE_S);
        let asked = request.first(FieldName::AccessControlRequestHeaders);
        if let Some(asked) = asked.and_then(|asked| HeaderValue::from_bytes(asked).ok()) {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, asked);
        }
    }
    response
}
