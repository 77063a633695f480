//! Requests of clients and browsers to sign-in: it is read or refused, within its bounds; whatever is taken, readers of URLs, of
//! forms and of JSON read in the same way, and nobody is sent to an address that is not allowed.

use std::sync::LazyLock;

use ::tokens::jwt::Token;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use identity::authorize::{AuthorizeRequest, AuthorizeRules};
use identity::browser_cookies::{BrowserCookie, CookieRules};
use identity::client::{Client, ClientSource, DeniedClients};
use identity::client_auth::{Proof, ShownClient};
use identity::parameters::Parameters;
use identity::pkce::CodeChallenge;
use identity::presented::Presented;
use identity::provider::callback::{Callback, CallbackOutcome};
use identity::redirect_uri::{AllowedRedirects, RedirectKind};
use identity::registration::{NAME_BYTES_MAX, Registration};
use identity::revocation;
use identity::sealed::client_id::AuthMethod;
use identity::sealed::cookies::{SignInCookie, VisitPurpose};
use identity::sealed::fingerprint::Fingerprint;
use identity::sealed::form::{Form, JudgedRequest};
use identity::sealed::{Kind, Nonce, Seals};
use identity::token_request::TokenRequest;
use serde_json::{Value, json};
use url::{Url, form_urlencoded};

use super::provider::{METADATA, PROVIDER};

pub(super) const ISSUER: &str = "https://mcp.example.com";
pub(super) const NONCE: Nonce = [9; 12];
const ENDPOINTS: [&str; 2] = ["https://mcp.example.com/mcp", "https://mcp.example.com/other"];
const REGISTERED: [&str; 3] = ["http://localhost/callback", "https://claude.ai/cb", "app.example:/cb"];
const FORMS: &[u8] = b"application/x-www-form-urlencoded";
const NOW_S: u64 = 1_000_000;
const SAID_BYTES_MAX: usize = 200;

pub(super) static SEALS: LazyLock<Seals> =
    LazyLock::new(|| Seals::from_text(&"7".repeat(64)).expect("a key"));
static REDIRECTS: LazyLock<AllowedRedirects> =
    LazyLock::new(|| AllowedRedirects::new(&["https://claude.ai", REGISTERED[2]]).expect("entries"));

/// The first byte says which request the rest is.
pub fn requests(input: &[u8]) {
    let Some((kind, input)) = input.split_first() else { return };
    let text = std::str::from_utf8(input).ok();
    match kind % 5 {
        0 => text.map_or((), authorize),
        1 => token(input),
        2 => register(input),
        3 => cookies(input),
        _ => text.map_or((), callback),
    }
}

/// The query of `/authorize`.
fn authorize(query: &str) {
    let Ok(request) = AuthorizeRequest::read(query) else { return };
    assert_pairs(query, |name| request.parameter(name));
    let Some(id) = request.client_id() else { return };
    let client = client(id, ClientSource::Registered, AuthMethod::None);
    let denied = DeniedClients::new(["evil.example".to_owned()]);
    let rules = AuthorizeRules { redirects: &REDIRECTS, endpoints: &ENDPOINTS, denied: &denied };
    let Ok((judged, redirect)) = request.judge(&client, rules) else { return };
    let at = Url::parse(redirect.text()).expect("browsers read it, too");
    match redirect.kind {
        RedirectKind::Loopback => {
            assert_eq!((at.scheme(), at.host_str(), at.path()), ("http", Some("localhost"), "/callback"));
        }
        RedirectKind::Https | RedirectKind::PrivateScheme => {
            assert!(REGISTERED[1..].contains(&redirect.text()));
        }
    }
    assert_eq!(judged.state.as_deref(), request.parameter("state"));
    assert!(ENDPOINTS.contains(&&*judged.endpoint));
    let cookie = SignInCookie {
        purpose: VisitPurpose::Client(judged.clone()),
        state: [1; 16],
        nonce: [2; 16],
        verifier: Presented::new(&"v".repeat(43)),
        remembered_for: Some(Fingerprint([3; 32])),
        expires_s: u64::MAX,
    };
    assert!(SEALS.seal(NONCE, ISSUER, &cookie).is_some(), "nobody is asked about what no cookie holds");
    let form = Form { request: judged.clone(), expires_s: u64::MAX };
    assert!(SEALS.seal(NONCE, ISSUER, &form).is_some());
    let back = form.answered().with_code("tlo_x", &REDIRECTS, ISSUER).expect("it is still allowed");
    let back = Url::parse(&back).expect("a URL");
    assert_eq!((back.scheme(), back.host(), back.port()), (at.scheme(), at.host(), at.port()));
    let mut expected = vec![("code".to_owned(), "tlo_x".to_owned())];
    expected.extend(judged.state.map(|state| ("state".to_owned(), state)));
    expected.push(("iss".to_owned(), ISSUER.to_owned()));
    assert_eq!(back.query_pairs().into_owned().collect::<Vec<_>>(), expected);
}

/// The header `Authorization` and a body of `/token` or `/revoke`, with a line feed between.
fn token(input: &[u8]) {
    let (header, body) = halves(input);
    let Ok(parameters) = Parameters::of_form(Some(FORMS), body) else { return };
    assert_pairs_of_bytes(body, |name| parameters.get(name));
    if let Ok(shown) = ShownClient::read((!header.is_empty()).then_some(header), &parameters) {
        assert_proof(&shown, header);
    }
    match TokenRequest::read(&parameters) {
        Ok(TokenRequest::Code { verifier, .. }) => {
            assert!((43..=128).contains(&verifier.expose().len()));
        }
        Ok(TokenRequest::Refresh { token, .. }) => assert!(!token.expose().is_empty()),
        Err(error) => {
            assert!(error.answer(false).status >= 400);
        }
    }
    if let Ok(token) = revocation::read(&parameters)
        && let Ok(Some(_)) = revocation::grant_of(&token, "c", &SEALS, ISSUER)
    {
        assert!(
            [Kind::AccessToken, Kind::RefreshToken]
                .iter()
                .any(|kind| token.expose().starts_with(kind.prefix()))
        );
    }
}

/// Only what has the client's own proof passes.
fn assert_proof(shown: &ShownClient, header: &[u8]) {
    let passes = |client: &Client, is_signed: bool| {
        shown.check(client, &SEALS, &[ISSUER], NOW_S, |_: &Token<'_>| is_signed).is_ok()
    };
    let secret = Some(Presented::new("secret"));
    let with_secret = client(&shown.id, ClientSource::Configured { secret }, AuthMethod::Basic);
    let public = client(&shown.id, ClientSource::Registered, AuthMethod::None);
    let signing = client(&shown.id, ClientSource::Document { keys: None }, AuthMethod::PrivateKeyJwt);
    assert_eq!(passes(&public, true), matches!(shown.proof, Proof::None));
    assert!(!passes(&signing, false));
    match &shown.proof {
        Proof::None => assert!(!passes(&with_secret, true) && !passes(&signing, true)),
        Proof::Post(secret) => assert_eq!(passes(&with_secret, true), secret.is("secret")),
        Proof::Basic(decoded, raw) => {
            let text = std::str::from_utf8(header).expect("text");
            let pair = STANDARD.decode(text.split_once(' ').expect("a scheme").1.trim()).expect("base64");
            assert!(pair.ends_with(raw.expose().as_bytes()));
            assert_eq!(passes(&with_secret, true), decoded.is("secret") || raw.is("secret"));
        }
        Proof::Assertion(_) => {
            assert!(!passes(&with_secret, true));
            if passes(&signing, true) {
                assert!(!passes(&client("another", signing.source.clone(), signing.auth_method), true));
            }
        }
    }
}

/// The body of `/register`.
fn register(body: &[u8]) {
    let Ok(registration) = Registration::read(Some(b"application/json"), body, &REDIRECTS, NOW_S) else {
        return;
    };
    let asked: Value = serde_json::from_slice(body).expect("another reader takes it, too");
    let mut asked = asked["redirect_uris"].as_array().expect("a list").iter();
    let Ok(answer) = registration.answer(&SEALS, NONCE, ISSUER) else { return };
    let said: Value = serde_json::from_str(&answer.body).expect("JSON");
    for uri in said["redirect_uris"].as_array().expect("a list") {
        assert!(asked.any(|asked| asked == uri), "what is kept was asked for, in that order");
        let uri = uri.as_str().expect("a text");
        let at = Url::parse(uri).expect("browsers read it, too");
        let is_loopback = ["localhost", "127.0.0.1", "[::1]"].contains(&at.host_str().unwrap_or_default());
        match at.scheme() {
            "http" => assert!(is_loopback, "{uri}"),
            "https" => assert_eq!((at.host_str(), at.port()), (Some("claude.ai"), None), "{uri}"),
            _ => assert_eq!(uri, REGISTERED[2]),
        }
    }
    let id = said["client_id"].as_str().expect("an id");
    let client = Client::registered(id, &SEALS, ISSUER).expect("its id holds it");
    assert!(client.name.len() <= NAME_BYTES_MAX && !client.name.contains(char::is_control));
    assert_eq!(json!(client.redirect_uris), said["redirect_uris"]);
    assert_eq!(said["token_endpoint_auth_method"], client.auth_method.word());
    let secret = said["client_secret"].as_str();
    assert_eq!(secret.is_some(), client.auth_method.has_secret());
    assert!(secret.is_none_or(|secret| SEALS.is_mac_of(Kind::ClientSecret, id, secret)));
}

/// Headers `Cookie`, each in a line.
fn cookies(input: &[u8]) {
    let headers = || input.split(|byte| *byte == b'\n');
    for rules in [CookieRules::of("https://a.example"), CookieRules::of("http://127.0.0.1")] {
        for cookie in [
            BrowserCookie::SignIn([0xab; 16]),
            BrowserCookie::Consent,
            BrowserCookie::Page,
            BrowserCookie::Form,
        ] {
            if let Some(value) = rules.find(cookie, headers()) {
                assert!(!value.contains(';') && value.trim() == value);
                let _ = SEALS.open::<SignInCookie>(value, ISSUER, NOW_S);
            }
        }
        for ended in rules.too_many(headers()) {
            let (name, attributes) = ended.split_once('=').expect("a name");
            assert!(
                name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)),
                "{ended}"
            );
            assert!(attributes.starts_with("; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"), "{ended}");
        }
    }
}

/// The query with which a browser comes back from the provider.
fn callback(query: &str) {
    let Ok(read) = Callback::read(query) else { return };
    if read.check_issuer(&METADATA).is_err() {
        return;
    }
    let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let said =
        |name: &str| pairs.iter().find(|(present, _)| present == name).map(|(_, value)| value.as_str());
    assert_eq!(said("iss"), Some(PROVIDER));
    assert_eq!(URL_SAFE_NO_PAD.decode(said("state").expect("a state")).as_deref(), Ok(&read.state[..]));
    match read.outcome {
        CallbackOutcome::Code(code) => assert_eq!(said("code"), Some(code.expose())),
        CallbackOutcome::Error { code, description } => {
            for text in [code, description] {
                assert!(text.len() <= SAID_BYTES_MAX && !text.contains(char::is_control));
            }
        }
    }
}

/// A request that was judged.
pub(super) fn judged() -> JudgedRequest {
    JudgedRequest {
        client_id: "client".to_owned(),
        client_name: "Client".to_owned(),
        redirect_uri: REGISTERED[1].to_owned(),
        endpoint: ENDPOINTS[0].to_owned(),
        scopes: vec!["a".to_owned()],
        state: None,
        challenge: CodeChallenge([1; 32]),
    }
}

fn client(id: &str, source: ClientSource, auth_method: AuthMethod) -> Client {
    let redirect_uris = REGISTERED.map(str::to_owned).to_vec();
    Client { id: id.to_owned(), name: "Client".to_owned(), source, redirect_uris, auth_method }
}

/// A reader of forms finds the same parameters, and each once.
fn assert_pairs<'p>(query: &str, read: impl Fn(&str) -> Option<&'p str>) {
    assert_pairs_of_bytes(query.as_bytes(), read);
}

fn assert_pairs_of_bytes<'p>(form: &[u8], read: impl Fn(&str) -> Option<&'p str>) {
    let pairs: Vec<(String, String)> = form_urlencoded::parse(form).into_owned().collect();
    for (at, (name, value)) in pairs.iter().enumerate() {
        assert!(pairs[..at].iter().all(|(before, _)| before != name), "{name} stands twice");
        assert_eq!(read(name), Some(value.as_str()).filter(|value| !value.is_empty()), "{name}");
    }
}

/// The parts before and after the first line feed.
pub(super) fn halves(input: &[u8]) -> (&[u8], &[u8]) {
    let at = input.iter().position(|byte| *byte == b'\n');
    at.map_or((&[], input), |at| (&input[..at], &input[at + 1..]))
}
