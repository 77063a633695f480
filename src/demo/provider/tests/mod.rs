//! The provider judged by what it answers, without sockets; and once over HTTP.

mod bad_visits;
mod faults;
mod tokens;
mod visits;
mod walk;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use hyper::{Request, Response, StatusCode};
use serde_json::Value;

use super::form::{Form, encoded};
use super::{Provider, ProviderSettings};

const ISSUER: &str = "http://127.0.0.1:9000";
const CALLBACK: &str = "http://127.0.0.1:8080/sign-in/callback";
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const SECRET: &str = "s+cr:t%";
const NOW_S: u64 = 1_700_000_000;

fn settings() -> ProviderSettings {
    ProviderSettings {
        client_id: "trunkline".into(),
        client_secret: SECRET.into(),
        redirect_uris: vec![CALLBACK.into(), "https://mcp.example.com/back?a=b".into()],
        takes_faults: true,
    }
}

fn provider() -> Provider {
    Provider::new(ISSUER.into(), settings()).unwrap()
}

/// The query of a good visit, with changes to it; an empty value leaves a parameter out.
fn visit(changes: &[(&str, &str)]) -> String {
    let challenge = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, VERIFIER.as_bytes()));
    let good = [
        ("response_type", "code"),
        ("client_id", "trunkline"),
        ("redirect_uri", CALLBACK),
        ("scope", "openid profile offline_access unknown"),
        ("state", "a state&more"),
        ("nonce", "a nonce"),
        ("code_challenge", &challenge),
        ("code_challenge_method", "S256"),
    ];
    query(&good, changes)
}

/// The form of a good exchange of a code, likewise.
fn exchange(code: &str, changes: &[(&str, &str)]) -> String {
    let good = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", CALLBACK),
        ("code_verifier", VERIFIER),
    ];
    query(&good, changes)
}

fn refresh(token: &str) -> String {
    encoded(&[("grant_type", "refresh_token"), ("refresh_token", token)])
}

fn query(good: &[(&str, &str)], changes: &[(&str, &str)]) -> String {
    let kept = good.iter().filter(|(name, _)| !changes.iter().any(|(changed, _)| changed == name));
    let others = changes.iter().filter(|(_, value)| !value.is_empty());
    encoded(&kept.chain(others).copied().collect::<Vec<_>>())
}

fn basic() -> String {
    format!("Basic {}", STANDARD.encode(format!("trunkline:{}", &encoded(&[("", SECRET)])[1..])))
}

/// A provider that is asked at a time.
struct Asked {
    provider: Provider,
    now_s: u64,
}

impl Asked {
    fn new() -> Self {
        Self { provider: provider(), now_s: NOW_S }
    }

    fn send(&mut self, request: http::request::Builder, body: &str) -> Response<Bytes> {
        let request = request.body(Bytes::copy_from_slice(body.as_bytes())).unwrap();
        self.provider.answer(&request, self.now_s)
    }

    fn get(&mut self, target: &str) -> Response<Bytes> {
        self.send(Request::get(target), "")
    }

    /// Answers the page of a visit; returns the parameters of the way back.
    fn answer_page(&mut self, query: &str, answer: &str) -> Form {
        let response = self.send(Request::post(format!("/authorize?{query}")), answer);
        assert_eq!(response.status(), StatusCode::SEE_OTHER, "{response:?}");
        let location = response.headers()["location"].to_str().unwrap();
        Form::read(location.split_once('?').unwrap().1.as_bytes()).unwrap()
    }

    /// A code for a user.
    fn code(&mut self, user: &str) -> String {
        self.answer_page(&visit(&[]), &format!("user={user}")).get("code").unwrap().to_owned()
    }

    /// Sends a form as the client.
    fn post(&mut self, path: &str, form: &str) -> (StatusCode, Value) {
        self.post_as(path, Some(&basic()), form)
    }

    fn post_as(&mut self, path: &str, authorization: Option<&str>, form: &str) -> (StatusCode, Value) {
        let mut request =
            Request::post(path).header("content-type", "application/x-www-form-urlencoded; charset=UTF-8");
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let response = self.send(request, form);
        assert_eq!(response.headers()["cache-control"], "no-store");
        (response.status(), serde_json::from_slice(response.body()).unwrap_or_default())
    }

    fn tokens(&mut self, form: &str) -> Value {
        let (status, tokens) = self.post("/token", form);
        assert_eq!(status, StatusCode::OK, "{tokens}");
        tokens
    }

    /// The error with which a form is refused at `/token`.
    fn refusal(&mut self, form: &str) -> String {
        let (status, error) = self.post("/token", form);
        assert!(status.is_client_error(), "{status} {error}");
        error["error"].as_str().unwrap().to_owned()
    }

    fn userinfo(&mut self, token: &str) -> (StatusCode, Value) {
        let request = Request::get("/userinfo").header("authorization", format!("Bearer {token}"));
        let response = self.send(request, "");
        (response.status(), serde_json::from_slice(response.body()).unwrap_or_default())
    }

    fn faults(&mut self, faults: &Value) {
        let response = self.send(Request::post("/faults"), &faults.to_string());
        assert_eq!(response.status(), StatusCode::NO_CONTENT, "{response:?}");
    }
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name}: {value}"))
}

/// The claims of a token whose signature is that of the published key.
fn claims(token: &str, keys: &Value) -> Value {
    let parts: Vec<&str> = token.split('.').collect();
    let [header, claims, signature] = parts[..] else { panic!("no token: {token}") };
    let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
    let header: Value = serde_json::from_slice(&decoded(header)).unwrap();
    let key = keys["keys"].as_array().unwrap().iter().find(|key| key["kid"] == header["kid"]).unwrap();
    assert_eq!((&header["alg"], &key["kty"], &key["crv"]), (&"ES256".into(), &"EC".into(), &"P-256".into()));
    let point = [vec![4], decoded(text(key, "x")), decoded(text(key, "y"))].concat();
    let public =
        aws_lc_rs::signature::UnparsedPublicKey::new(&aws_lc_rs::signature::ECDSA_P256_SHA256_FIXED, point);
    let message = token.rsplit_once('.').unwrap().0;
    public.verify(message.as_bytes(), &decoded(signature)).unwrap();
    serde_json::from_slice(&decoded(claims)).unwrap()
}
