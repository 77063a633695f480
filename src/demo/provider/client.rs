//! The proof of the client at `/token` and `/revoke`: its secret, by a header or in the body.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::Request;
use hyper::header::{self, HeaderMap};

use super::answer::OAuthFault;
use super::form::{Form, decoded};
use super::settings::ProviderSettings;
use crate::http::media_types;

/// Reads the form of a request that the client must have sent.
pub(super) fn authenticated(
    request: &Request<Bytes>,
    settings: &ProviderSettings,
) -> Result<Form, OAuthFault> {
    let mut types = media_types(request.headers(), header::CONTENT_TYPE);
    if types.next().as_deref() != Some("application/x-www-form-urlencoded") || types.next().is_some() {
        return Err(OAuthFault::InvalidRequest("the body must be a form".into()));
    }
    if request.uri().query().is_some() {
        return Err(OAuthFault::InvalidRequest("parameters belong into the body".into()));
    }
    let form = Form::read(request.body())?;
    let in_header = read_basic(request.headers())?;
    let (id, secret) = match (in_header, form.get("client_secret")) {
        (Some(_), Some(_)) => {
            return Err(OAuthFault::InvalidRequest("the client shows its secret in two ways".into()));
        }
        (Some((id, secret)), None) => (id, secret),
        (None, Some(secret)) => (form.required("client_id")?.to_owned(), secret.to_owned()),
        (None, None) => return Err(OAuthFault::InvalidClient),
    };
    if form.get("client_id").is_some_and(|named| named != id) {
        return Err(OAuthFault::InvalidRequest("client_id is not the client of the header".into()));
    }
    let is_same =
        |shown: &str, expected: &str| verify_slices_are_equal(shown.as_bytes(), expected.as_bytes()).is_ok();
    if is_same(&id, &settings.client_id) && is_same(&secret, &settings.client_secret) {
        Ok(form)
    } else {
        Err(OAuthFault::InvalidClient)
    }
}

/// The id and the secret of `Authorization: Basic`, each form-encoded (RFC 6749 §2.3.1).
fn read_basic(headers: &HeaderMap) -> Result<Option<(String, String)>, OAuthFault> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(OAuthFault::InvalidRequest("the header authorization stands twice".into()));
    }
    let read = || {
        let (scheme, encoded) = value.to_str().ok()?.split_once(' ')?;
        let pair = scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(encoded))?.ok()?;
        let colon = pair.iter().position(|byte| *byte == b':')?;
        let (id, secret) = pair.split_at(colon);
        Some((decoded(id)?, decoded(secret.strip_prefix(b":")?)?))
    };
    read().map(Some).ok_or(OAuthFault::InvalidClient)
}
