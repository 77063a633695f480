//! What clients are told of the authorization servers of an endpoint (RFC 9728): open to everybody and every origin, as
//! it is what somebody without credentials begins with.

use crate::line::request_header::RequestHeader;
use crate::line::response::ClientResponse;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ALLOW,
    CACHE_CONTROL, CONTENT_LENGTH,
};
use http::{HeaderValue, Method as HttpMethod, StatusCode};

use crate::context::worker::View;
use crate::line::relay::{ReplyBody, json_response};
use protocol::error::ClientError;

const METHODS: &str = "GET, HEAD, OPTIONS";
const ANY: HeaderValue = HeaderValue::from_static("*");
const MAX_AGE: HeaderValue = HeaderValue::from_static("public, max-age=300");

/// The answer to a request for metadata, where there are any at this path. `host`: the one that the request names.
pub(super) fn metadata<'h>(
    view: &View,
    request: &RequestHeader,
    host: impl FnOnce() -> Result<&'h str, ClientError>,
) -> Result<ClientResponse, ClientError> {
    let document = std::str::from_utf8(request.path())
        .ok()
        .and_then(|path| view.snapshot.metadata_at(path, host))
        .ok_or(ClientError::NoEndpoint)?;
    let mut response = match request.method {
        HttpMethod::GET | HttpMethod::HEAD => json_response(StatusCode::OK, document.clone()),
        HttpMethod::OPTIONS => {
            let mut response = ClientResponse::empty(StatusCode::NO_CONTENT);
            let headers = response.headers_mut();
            headers.insert(ALLOW, HeaderValue::from_static(METHODS));
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, ANY);
            response
        }
        _ => return Err(ClientError::HttpMethod { allow: METHODS }),
    };
    if request.method == HttpMethod::HEAD {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(document.len()));
        response.body = ReplyBody::empty();
    }
    response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
    if request.method != HttpMethod::OPTIONS {
        response.headers_mut().insert(CACHE_CONTROL, MAX_AGE);
    }
    Ok(response)
}
