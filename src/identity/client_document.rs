//! Client ID Metadata Documents: those that are believed, and for how long.
//!
//! Not here: the fetch, and its addresses ([`crate::public_address`]).
//!
//! Invariants: a document is believed only of the client whose id is its URL, to the letter. It has no secret: who could read
//! it would have it, too.

use serde_json::Value;
use tokens::jwt::TokenMembers;

use crate::client::{Client, ClientKeys, ClientSource, ClientUrlFault, check_url};
use crate::oauth_error::{ErrorCode, OAuthError};
use crate::redirect_uri::well_formed;
use crate::registration::{self, shown_name};
use crate::sealed::client_id::AuthMethod;

/// Bytes of a document.
pub const DOCUMENT_BYTES_MAX: usize = 16 << 10;
/// The least and the most time for which a document is kept.
pub const KEPT_MIN_S: u64 = 5 * 60;
/// See [`KEPT_MIN_S`].
pub const KEPT_MAX_S: u64 = 24 * 60 * 60;
/// The time for which a failure is kept.
pub const FAILURE_KEPT_S: u64 = 10;

/// Members of a key (RFC 7518 §6) that its public half does not have.
const SECRET_MEMBERS: [&str; 8] = ["d", "dp", "dq", "k", "oth", "p", "q", "qi"];

/// The cause for which an id or its document is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentFault {
    /// Its URL.
    #[error(transparent)]
    Url(#[from] ClientUrlFault),
    /// Another content type.
    #[error("it is not JSON by its content type")]
    ContentType,
    /// Too many bytes.
    #[error("it is longer than {DOCUMENT_BYTES_MAX} bytes")]
    TooLong,
    /// No JSON object whose members stand once.
    #[error("it is not a JSON object whose members stand once")]
    Json,
    /// Another `client_id`.
    #[error("its client_id is not the URL it was fetched from")]
    ClientId,
    /// A member that is wrong.
    #[error("its member {0} is wrong or missing")]
    Member(&'static str),
    /// It has a secret, or a key that anybody could sign with.
    #[error("it holds a secret, which everybody can read")]
    Secret,
}

impl From<DocumentFault> for OAuthError {
    fn from(fault: DocumentFault) -> Self {
        Self::new(ErrorCode::InvalidClient, format!("the document of the client is refused: {fault}"))
    }
}

/// The client of the document that was fetched from `url`, without a redirect.
pub fn read(url: &str, content_type: Option<&[u8]>, body: &[u8]) -> Result<Client, DocumentFault> {
    check_url(url)?;
    if !is_json(content_type.unwrap_or_default()) {
        return Err(DocumentFault::ContentType);
    }
    if body.len() > DOCUMENT_BYTES_MAX {
        return Err(DocumentFault::TooLong);
    }
    let members: TokenMembers = serde_json::from_slice(body).map_err(|_| DocumentFault::Json)?;
    if members.get("client_id").and_then(Value::as_str) != Some(url) {
        return Err(DocumentFault::ClientId);
    }
    if members.get("client_secret").is_some() || members.get("client_secret_expires_at").is_some() {
        return Err(DocumentFault::Secret);
    }
    let grants = registration::texts(&members, "grant_types").ok_or(DocumentFault::Member("grant_types"))?;
    if !grants.is_empty() && !grants.contains(&"authorization_code") {
        return Err(DocumentFault::Member("grant_types"));
    }
    let responses = registration::texts(&members, "response_types");
    if !responses.is_some_and(|responses| responses.is_empty() || responses.contains(&"code")) {
        return Err(DocumentFault::Member("response_types"));
    }
    let (auth_method, keys) = auth_of(&members)?;
    let name = members.get("client_name").map_or(Some(""), Value::as_str);
    Ok(Client {
        id: url.to_owned(),
        name: shown_name(name.ok_or(DocumentFault::Member("client_name"))?),
        source: ClientSource::Document { keys },
        redirect_uris: redirect_uris_of(&members)?,
        auth_method,
    })
}

/// Those that could be used at all; documents name some for other servers.
fn redirect_uris_of(members: &TokenMembers) -> Result<Vec<String>, DocumentFault> {
    let fault = DocumentFault::Member("redirect_uris");
    let uris = registration::texts(members, "redirect_uris").ok_or(fault.clone())?;
    if uris.len() > registration::REDIRECT_URIS_MAX {
        return Err(fault);
    }
    let good: Vec<String> =
        uris.into_iter().filter(|uri| well_formed(uri).is_ok()).map(str::to_owned).collect();
    if good.is_empty() { Err(fault) } else { Ok(good) }
}

fn auth_of(members: &TokenMembers) -> Result<(AuthMethod, Option<ClientKeys>), DocumentFault> {
    let fault = DocumentFault::Member("token_endpoint_auth_method");
    let method = match members.get("token_endpoint_auth_method") {
        None => AuthMethod::None,
        Some(word) => word.as_str().and_then(AuthMethod::from_word).ok_or(fault.clone())?,
    };
    match method {
        AuthMethod::None => Ok((method, None)),
        AuthMethod::Basic | AuthMethod::Post => Err(fault),
        AuthMethod::PrivateKeyJwt => {
            let keys = match (members.get("jwks"), members.get("jwks_uri")) {
                (Some(set), None) => {
                    check_keys(set)?;
                    ClientKeys::Set(set.to_string())
                }
                (None, Some(Value::String(url))) => {
                    check_url(url).map_err(|_| DocumentFault::Member("jwks_uri"))?;
                    ClientKeys::Url(url.clone())
                }
                _ => return Err(DocumentFault::Member("jwks")),
            };
            Ok((method, Some(keys)))
        }
    }
}

/// Refuses a set of keys that has none, or one that is no secret of the client any more: a symmetric one, or a private half.
pub fn check_keys(set: &Value) -> Result<(), DocumentFault> {
    let fault = DocumentFault::Member("jwks");
    let keys = set.get("keys").and_then(Value::as_array).filter(|keys| !keys.is_empty());
    for key in keys.ok_or(fault.clone())? {
        let key = key.as_object().ok_or(fault.clone())?;
        let is_symmetric = key.get("kty").is_none_or(|kind| kind == "oct");
        if is_symmetric || SECRET_MEMBERS.iter().any(|name| key.contains_key(*name)) {
            return Err(DocumentFault::Secret);
        }
    }
    Ok(())
}

/// The time for which a document is kept, by its `Cache-Control`, within our bounds.
pub fn kept_s(cache_control: Option<&str>) -> u64 {
    let directives = || cache_control.unwrap_or_default().split(',').map(str::trim);
    let is_kept_by_nobody =
        |directive: &str| ["no-store", "no-cache"].iter().any(|name| directive.eq_ignore_ascii_case(name));
    if directives().any(is_kept_by_nobody) {
        return KEPT_MIN_S;
    }
    let ages = directives().filter_map(|directive| {
        let (name, value) = directive.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("max-age")
            .then(|| value.trim().trim_matches('"').parse::<u64>().ok())?
    });
    ages.min().unwrap_or(KEPT_MIN_S).clamp(KEPT_MIN_S, KEPT_MAX_S)
}

/// `application/json`, and types that end with `+json`.
fn is_json(content_type: &[u8]) -> bool {
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let essence = essence.to_ascii_lowercase();
    essence == b"application/json" || (essence.starts_with(b"application/") && essence.ends_with(b"+json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const URL: &str = "https://app.example.com/oauth/client.json";
    const JSON: Option<&[u8]> = Some(b"application/json; charset=utf-8");

    fn document() -> Value {
        json!({
            "client_id": URL,
            "client_name": "Example",
            "client_uri": "https://app.example.com",
            "redirect_uris": ["http://127.0.0.1:3000/callback", "https://app.example.com/cb", "javascript:alert(1)"],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        })
    }

    fn with(name: &str, value: Value) -> Result<Client, DocumentFault> {
        let mut document = document();
        document[name] = value;
        read(URL, JSON, document.to_string().as_bytes())
    }

    fn without(name: &str) -> Result<Client, DocumentFault> {
        let mut document = document();
        document.as_object_mut().expect("an object").remove(name);
        read(URL, JSON, document.to_string().as_bytes())
    }

    #[test]
    fn a_document_is_a_client() {
        let client = with("unknown", json!([1])).expect("a client");
        assert_eq!((&*client.id, &*client.name), (URL, "Example"));
        assert_eq!(client.redirect_uris, ["http://127.0.0.1:3000/callback", "https://app.example.com/cb"]);
        assert_eq!(
            (client.auth_method, client.host().as_deref()),
            (AuthMethod::None, Some("app.example.com"))
        );
        for name in ["client_name", "grant_types", "response_types", "token_endpoint_auth_method"] {
            assert!(without(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_client_with_keys_is_one_with_keys() {
        let mut document = document();
        document["token_endpoint_auth_method"] = json!("private_key_jwt");
        let read = |document: &Value| read(URL, JSON, document.to_string().as_bytes());
        assert_eq!(read(&document).err(), Some(DocumentFault::Member("jwks")));
        document["jwks_uri"] = json!("https://app.example.com/keys");
        assert!(matches!(
            read(&document).expect("a client").source,
            ClientSource::Document { keys: Some(ClientKeys::Url(_)) }
        ));
        document["jwks"] = json!({ "keys": [] });
        assert_eq!(read(&document).err(), Some(DocumentFault::Member("jwks")), "both");
        document["jwks"] = Value::Null;
        document["jwks_uri"] = json!("https://10.0.0.1/keys");
        assert!(read(&document).is_err());
    }

    #[test]
    fn bad_input_keys_that_everybody_could_sign_with_are_refused() {
        let read = |keys: Value| {
            let mut document = document();
            document["token_endpoint_auth_method"] = json!("private_key_jwt");
            document["jwks"] = keys;
            read(URL, JSON, document.to_string().as_bytes())
        };
        let good = json!({ "kty": "EC", "crv": "P-256", "x": "a", "y": "b" });
        assert!(read(json!({ "keys": [good] })).is_ok());
        for key in [
            json!({ "kty": "oct", "k": "c2VjcmV0" }),
            json!({ "kty": "oct" }),
            json!({ "kty": "EC", "crv": "P-256", "x": "a", "y": "b", "d": "c" }),
            json!({ "kty": "RSA", "n": "a", "e": "AQAB", "p": "b" }),
        ] {
            assert_eq!(read(json!({ "keys": [good, key] })).err(), Some(DocumentFault::Secret), "{key}");
        }
        for keys in [json!({}), json!({ "keys": {} }), json!({ "keys": ["a"] }), json!({ "keys": [] })] {
            assert_eq!(read(keys.clone()).err(), Some(DocumentFault::Member("jwks")), "{keys}");
        }
    }

    #[test]
    fn bad_input_hostile_documents_are_refused() {
        for (name, value, expected) in [
            ("client_id", json!("https://app.example.com/oauth/client.json/"), DocumentFault::ClientId),
            ("client_id", json!("https://APP.example.com/oauth/client.json"), DocumentFault::ClientId),
            ("client_id", json!([URL]), DocumentFault::ClientId),
            ("client_secret", json!("x"), DocumentFault::Secret),
            ("redirect_uris", json!([]), DocumentFault::Member("redirect_uris")),
            ("redirect_uris", json!(["javascript:alert(1)"]), DocumentFault::Member("redirect_uris")),
            ("redirect_uris", json!("https://app.example.com/cb"), DocumentFault::Member("redirect_uris")),
            ("redirect_uris", json!([1]), DocumentFault::Member("redirect_uris")),
            ("redirect_uris", json!(vec!["http://localhost/"; 65]), DocumentFault::Member("redirect_uris")),
            ("client_name", json!({}), DocumentFault::Member("client_name")),
            ("grant_types", json!(["implicit"]), DocumentFault::Member("grant_types")),
            ("response_types", json!(["token"]), DocumentFault::Member("response_types")),
            (
                "token_endpoint_auth_method",
                json!("client_secret_post"),
                DocumentFault::Member("token_endpoint_auth_method"),
            ),
            ("token_endpoint_auth_method", json!("x"), DocumentFault::Member("token_endpoint_auth_method")),
        ] {
            assert_eq!(with(name, value).err(), Some(expected), "{name}");
        }
        assert_eq!(without("client_id").err(), Some(DocumentFault::ClientId));
        assert_eq!(without("redirect_uris").err(), Some(DocumentFault::Member("redirect_uris")));
        for (body, expected) in [
            ("", DocumentFault::Json),
            ("[]", DocumentFault::Json),
            ("<html>", DocumentFault::Json),
            (r#"{"client_id":"a","client_id":"b"}"#, DocumentFault::Json),
            (&*"[".repeat(10_000), DocumentFault::Json),
            (&*" ".repeat(DOCUMENT_BYTES_MAX + 1), DocumentFault::TooLong),
        ] {
            assert_eq!(read(URL, JSON, body.as_bytes()).err(), Some(expected));
        }
        let good = document().to_string();
        for content_type in [None, Some(&b"text/html"[..]), Some(b"text/json"), Some(b"application/jsonp")] {
            assert_eq!(read(URL, content_type, good.as_bytes()).err(), Some(DocumentFault::ContentType));
        }
        assert!(read(URL, Some(b"application/cimd+json"), good.as_bytes()).is_ok());
    }

    #[test]
    fn a_document_is_kept_within_bounds() {
        for (header, expected) in [
            (None, KEPT_MIN_S),
            (Some("no-store"), KEPT_MIN_S),
            (Some("max-age=0"), KEPT_MIN_S),
            (Some("public, Max-Age=3600"), 3600),
            (Some("max-age=3600, max-age=600"), 600),
            (Some("max-age=99999999"), KEPT_MAX_S),
            (Some("max-age=99999999999999999999999"), KEPT_MIN_S),
            (Some("max-age"), KEPT_MIN_S),
            (Some("no-store, max-age=3600"), KEPT_MIN_S),
            (Some("max-age=3600, No-Cache"), KEPT_MIN_S),
            (Some("s-maxage=5000"), KEPT_MIN_S),
        ] {
            assert_eq!(kept_s(header), expected, "{header:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in any::<String>(), bytes: Vec<u8>) {
            let _ = read(&text, Some(&bytes), &bytes);
            let _ = read(URL, JSON, &bytes);
            let _ = kept_s(Some(&text));
        }

        /// The document of another URL makes no client, whoever wrote it.
        #[test]
        fn no_document_is_another_clients(id in "https://[a-z.]{1,20}/[a-z]{1,8}") {
            if let Ok(client) = with("client_id", json!(id)) {
                prop_assert_eq!(client.id, id);
            }
        }
    }
}
