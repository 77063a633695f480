//! Texts that sign-in fetches or is told: documents of clients, and metadata, answers, ID tokens and keys of the provider. They are
//! read or refused; whatever is taken, `serde_json` and a reader of URLs read in the same way.

use std::sync::LazyLock;

use ::tokens::jwt::TokenMembers;
use identity::client::{ClientKeys, ClientSource};
use identity::client_document;
use identity::pkce::CodeChallenge;
use identity::provider::answer::{self, AnswerFault};
use identity::provider::id_token::{self, ExpectedIdToken};
use identity::provider::metadata::{ProviderMetadata, Visit, is_own_parameter, jwks_uri};
use identity::redirect_uri::{AllowedRedirects, well_formed};
use identity::resource;
use identity::uri::Uri;
use serde_json::Value;
use url::{Host, Url};

use super::sign_in::halves;

pub(super) const PROVIDER: &str = "https://login.example.com";
const CLIENT_ID: &str = "gateway";
const VISIT_NONCE: &str = "nonce";
const NOW_S: u64 = 1_000_000;
const LEEWAY_S: u64 = 60;

pub(super) static METADATA: LazyLock<ProviderMetadata> = LazyLock::new(|| {
    let document = format!(
        r#"{{"issuer":"{PROVIDER}","authorization_endpoint":"{PROVIDER}/a","token_endpoint":"{PROVIDER}/t",
           "jwks_uri":"{PROVIDER}/k","authorization_response_iss_parameter_supported":true}}"#
    );
    ProviderMetadata::read(PROVIDER, document.as_bytes()).expect("metadata")
});

/// The first byte says which document the rest is.
pub fn documents(input: &[u8]) {
    let Some((kind, input)) = input.split_first() else { return };
    match kind % 6 {
        0 => of_client(input),
        1 => std::str::from_utf8(input).map_or((), uri),
        2 => metadata(input),
        3 => answer(input),
        4 => id_token(input),
        _ => keys(input),
    }
}

/// A URL and the document there, with a line feed between.
fn of_client(input: &[u8]) {
    let (url, body) = halves(input);
    let Ok(url) = std::str::from_utf8(url) else { return };
    let Ok(client) = client_document::read(url, Some(b"application/json"), body) else { return };
    // A browser need not know every name; the one that fetches looks the very text up.
    if let Ok(at) = Url::parse(url) {
        let is_named = matches!(at.host(), Some(Host::Domain(name)) if name.contains('.'));
        assert!(is_named && at.scheme() == "https" && at.port().is_none(), "{url}");
        assert!(at.username().is_empty() && at.password().is_none() && at.fragment().is_none(), "{url}");
    }
    let said: Value = serde_json::from_slice(body).expect("another reader takes it, too");
    assert_eq!((&*client.id, said["client_id"].as_str()), (url, Some(url)));
    assert!(said.get("client_secret").is_none() && !client.auth_method.has_secret());
    assert!(!client.name.contains(char::is_control));
    assert!(!client.redirect_uris.is_empty());
    for uri in &client.redirect_uris {
        assert!(said["redirect_uris"].as_array().is_some_and(|all| all.iter().any(|one| one == &**uri)));
        assert_target(uri);
    }
    if let ClientSource::Document { keys: Some(ClientKeys::Set(set)) } = &client.source {
        keys(set.as_bytes());
        assert!(client_document::check_keys(&said["jwks"]).is_ok());
    }
}

/// A URI: a browser takes it for the same one, and is sent to none that runs something.
fn uri(text: &str) {
    let _ = resource::is_same(text, PROVIDER);
    let Ok(uri) = Uri::read(text) else { return };
    assert_eq!(uri.text, text);
    if uri.is_web()
        && let Ok(browser) = Url::parse(text)
    {
        assert!(
            browser.username().is_empty() && browser.password().is_none() && browser.fragment().is_none()
        );
        assert_eq!(browser.port_or_known_default(), uri.port_or_default());
        // A browser escapes an apostrophe of a query.
        let query = uri.query.map(|query| query.replace('\'', "%27"));
        assert_eq!(
            (browser.path(), browser.query()),
            (if uri.path.is_empty() { "/" } else { uri.path }, query.as_deref())
        );
        let host = uri.host.expect("a host").to_ascii_lowercase();
        match browser.host().expect("a host") {
            Host::Domain(name) => assert_eq!(name, host),
            Host::Ipv4(address) => assert_eq!(address.to_string(), host),
            Host::Ipv6(address) => {
                assert_eq!(host.trim_matches(['[', ']']).parse(), Ok(address));
            }
        }
        assert!(
            uri.is_at_host(browser.host_str().expect("a host"))
                || uri.port_or_default() != Some(if browser.scheme() == "https" { 443 } else { 80 })
                || uri.has_address()
        );
    }
    if well_formed(text).is_ok() {
        assert_target(text);
    }
    if let Ok(allowed) = AllowedRedirects::new(&[text]) {
        let kind = allowed.judge(text).expect("what an entry names is allowed");
        assert_eq!(allowed.choose(&[text], Some(text)).expect("and registered").kind, kind);
    }
}

/// A browser that is sent there runs nothing, and leaves the computer by https alone.
fn assert_target(uri: &str) {
    let Ok(at) = Url::parse(uri) else { return };
    assert!(!["javascript", "data", "file", "blob", "vbscript", "about"].contains(&at.scheme()), "{uri}");
    let is_loopback = ["localhost", "127.0.0.1", "[::1]"].contains(&at.host_str().unwrap_or_default());
    assert!(at.scheme() != "http" || is_loopback, "{uri}");
}

/// The metadata of the provider.
fn metadata(body: &[u8]) {
    let Ok(read) = ProviderMetadata::read(PROVIDER, body) else { return };
    let said: Value = serde_json::from_slice(body).expect("another reader takes it, too");
    assert_eq!(jwks_uri(PROVIDER, body).as_deref(), Ok(&*read.jwks_uri));
    let mut endpoints = vec![
        ("authorization_endpoint", &read.authorization_endpoint),
        ("token_endpoint", &read.token_endpoint),
        ("jwks_uri", &read.jwks_uri),
    ];
    endpoints.extend(read.userinfo_endpoint.as_ref().map(|url| ("userinfo_endpoint", url)));
    endpoints.extend(read.revocation_endpoint.as_ref().map(|url| ("revocation_endpoint", url)));
    for (name, url) in endpoints {
        assert_eq!(said[name], **url);
        assert!(Url::parse(url).is_ok_and(|at| at.scheme() == "https") || url.contains("xn--"), "{url}");
    }
    let (scopes, parameters) = (["email".to_owned()], [("prompt".to_owned(), "consent".to_owned())]);
    let challenge = CodeChallenge([1; 32]);
    let visit = Visit {
        client_id: CLIENT_ID,
        redirect_uri: "https://mcp.example.com/sign-in/callback",
        state: "state",
        nonce: VISIT_NONCE,
        challenge,
        scopes: &scopes,
        parameters: &parameters,
    };
    let Ok(visit) = Url::parse(&read.visit(&visit)) else { return };
    let own = visit.query_pairs().filter(|(name, _)| is_own_parameter(name));
    let own: Vec<_> = own.map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
    assert!(own.contains(&("state".to_owned(), "state".to_owned())), "{own:?}");
    assert!(own.contains(&("nonce".to_owned(), VISIT_NONCE.to_owned())), "{own:?}");
}

/// A status in two bytes, and an answer of the token endpoint. What does not say so ends nothing.
fn answer(input: &[u8]) {
    let Some((status, body)) = input.split_first_chunk::<2>() else { return };
    let status = u16::from_be_bytes(*status) % 600;
    match answer::read(status, body) {
        Ok(tokens) => assert!(status == 200 && !tokens.access_token.expose().is_empty()),
        Err(AnswerFault::Ended(error)) => {
            assert!(status < 500 && error.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
        }
        Err(_) => {}
    }
}

/// The claims of an ID token, or userinfo.
fn id_token(body: &[u8]) {
    let Ok(claims) = serde_json::from_slice::<TokenMembers>(body) else { return };
    let said: Value = serde_json::from_slice(body).expect("another reader takes it, too");
    let expected = ExpectedIdToken {
        issuer: PROVIDER,
        client_id: CLIENT_ID,
        nonce: Some(VISIT_NONCE),
        subject: None,
        groups_claim: "realm.groups",
        leeway_s: LEEWAY_S,
    };
    let Ok(subject) = id_token::judge(&claims, &expected, NOW_S) else { return };
    assert_eq!(said["sub"], *subject);
    assert!(!subject.is_empty() && !subject.contains(char::is_control));
    assert_eq!((&said["iss"], &said["nonce"]), (&Value::from(PROVIDER), &Value::from(VISIT_NONCE)));
    let is_ours = |audience: &Value| audience == CLIENT_ID;
    let several = said["aud"].as_array();
    assert!(is_ours(&said["aud"]) || several.is_some_and(|all| all.iter().any(is_ours)));
    assert!(several.is_none_or(|all| all.len() == 1) || is_ours(&said["azp"]));
    assert!(said["exp"].as_f64().is_some_and(|end_s| end_s > (NOW_S - LEEWAY_S) as f64));
    assert!(id_token::judge_userinfo(&claims, subject, "realm.groups").is_ok());
    assert!(id_token::judge_userinfo(&claims, "another", "realm.groups").is_err() || subject == "another");
    let before = ExpectedIdToken { subject: Some("another"), ..expected };
    assert!(id_token::judge(&claims, &before, NOW_S).is_err() || subject == "another");
}

/// A set of keys: none of those that are taken is secret.
fn keys(body: &[u8]) {
    let Ok(set) = serde_json::from_slice::<Value>(body) else { return };
    if client_document::check_keys(&set).is_ok() {
        let keys = set["keys"].as_array().expect("a list");
        assert!(!keys.is_empty() && keys.iter().all(|key| key["kty"] != "oct" && key.get("d").is_none()));
    }
}
