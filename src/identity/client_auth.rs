//! The proof of a client at `/token` and `/revoke` that it is itself.
//!
//! Not here: signatures of assertions, which the caller checks; and that an assertion is used once.
//!
//! Invariants: a client that has a proof shows it, by one method alone; a proof that is shown is checked or refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tokens::jwt::{TYPES_OF_ASSERTIONS, Token, seconds};

use crate::client::{Client, ClientSource};
use crate::oauth_error::{ErrorCode, OAuthError};
use crate::parameters::{Parameters, form_decoded};
use crate::presented::Presented;
use crate::sealed::client_id::AuthMethod;
use crate::sealed::{Kind, Seals};
use crate::server_metadata::ASSERTION_ALGORITHMS;

/// The kind of assertions (RFC 7523).
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// An assertion is good for so long after its making at most, and its `jti` is remembered for that.
pub const ASSERTION_LIFE_MAX_S: u64 = 10 * 60;
/// The clocks of clients differ by so much.
const LEEWAY_S: u64 = 60;
const JTI_BYTES_MAX: usize = 256;
const HEADER_BYTES_MAX: usize = 4 << 10;

/// A client as a request names it, and its proof.
#[derive(Clone, Debug)]
pub struct ShownClient {
    /// Its id.
    pub id: String,
    /// Its proof.
    pub proof: Proof,
}

/// A proof.
#[derive(Clone, Debug)]
pub enum Proof {
    /// None.
    None,
    /// A secret in the header: decoded as RFC 6749 has it, and as it came, which is what some send.
    Basic(Presented, Presented),
    /// A secret in the body.
    Post(Presented),
    /// An assertion.
    Assertion(Presented),
}

/// An assertion that is to be used once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssertionUse {
    /// Its name, which is the client's own.
    pub jti: String,
    /// Until then it has to be remembered.
    pub until_s: u64,
}

impl ShownClient {
    /// Reads the header `Authorization` and the parameters of a request.
    pub fn read(authorization: Option<&[u8]>, parameters: &Parameters) -> Result<Self, OAuthError> {
        let in_body = parameters.get("client_id");
        let basic = authorization.map(read_basic).transpose()?;
        let assertion = parameters.get("client_assertion");
        let secret = parameters.get("client_secret");
        if [basic.is_some(), assertion.is_some(), secret.is_some()].into_iter().filter(|is| *is).count() > 1 {
            return Err(invalid_request("the client proves itself in more than one way"));
        }
        if let Some((id, proof)) = basic {
            if in_body.is_some_and(|named| named != id) {
                return Err(invalid_request("client_id is not the client of the header authorization"));
            }
            return Ok(Self { id, proof });
        }
        if let Some(assertion) = assertion {
            if parameters.get("client_assertion_type") != Some(ASSERTION_TYPE) {
                return Err(invalid_request("client_assertion_type is none that this server has"));
            }
            let named = Token::read_as(assertion, &TYPES_OF_ASSERTIONS)
                .and_then(|token| token.claims.get("sub").and_then(Value::as_str).map(str::to_owned))
                .ok_or(invalid_client("the assertion is no signed token with a subject"))?;
            if in_body.is_some_and(|id| id != named) {
                return Err(invalid_request("client_id is not the client of the assertion"));
            }
            return Ok(Self { id: named, proof: Proof::Assertion(Presented::new(assertion)) });
        }
        let id = in_body.ok_or(invalid_request("client_id is missing"))?.to_owned();
        Ok(Self { id, proof: secret.map_or(Proof::None, |secret| Proof::Post(Presented::new(secret))) })
    }

    /// True where an error is told with a challenge.
    pub fn has_tried_basic(&self) -> bool {
        matches!(self.proof, Proof::Basic(..))
    }

    /// Checks the proof. `is_signed` is asked about the signature of an assertion, which is by the client's own keys;
    /// `audiences` are the names that assertions may have for us: the issuer, and the URL of the request.
    pub fn check(
        &self,
        client: &Client,
        seals: &Seals,
        audiences: &[&str],
        now_s: u64,
        is_signed: impl FnOnce(&Token<'_>) -> bool,
    ) -> Result<Option<AssertionUse>, OAuthError> {
        if self.id != client.id {
            return Err(invalid_client("the client is unknown here"));
        }
        let is_right = |secret: &Presented| match &client.source {
            ClientSource::Registered => seals.is_mac_of(Kind::ClientSecret, &client.id, secret.expose()),
            ClientSource::Configured { secret: Some(expected) } => secret.is(expected.expose()),
            _ => false,
        };
        match (client.auth_method, &self.proof) {
            (AuthMethod::None, Proof::None) => Ok(None),
            (AuthMethod::None, _) => Err(invalid_client("the client has no proof that could be checked")),
            (_, Proof::None) => Err(invalid_client("the client does not prove that it is itself")),
            (AuthMethod::Basic | AuthMethod::Post, Proof::Basic(decoded, raw))
                if is_right(decoded) || is_right(raw) =>
            {
                Ok(None)
            }
            (AuthMethod::Basic | AuthMethod::Post, Proof::Post(secret)) if is_right(secret) => Ok(None),
            (AuthMethod::PrivateKeyJwt, Proof::Assertion(assertion)) => {
                judge_assertion(assertion, &client.id, audiences, now_s, is_signed).map(Some)
            }
            _ => Err(invalid_client("the proof of the client is wrong")),
        }
    }
}

/// The id, and the secret where there is one.
fn read_basic(header: &[u8]) -> Result<(String, Proof), OAuthError> {
    let wrong = || invalid_client("the header authorization is not that of a client (Basic)");
    if header.len() > HEADER_BYTES_MAX {
        return Err(wrong());
    }
    let text = std::str::from_utf8(header).map_err(|_| wrong())?;
    let (scheme, encoded) = text.split_once(' ').ok_or_else(wrong)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(wrong());
    }
    let pair = zeroize::Zeroizing::new(STANDARD.decode(encoded.trim()).map_err(|_| wrong())?);
    let (id, secret) =
        std::str::from_utf8(&pair).ok().and_then(|pair| pair.split_once(':')).ok_or_else(wrong)?;
    let id = form_decoded(id).unwrap_or_else(|| id.to_owned());
    if id.is_empty() {
        return Err(wrong());
    }
    if secret.is_empty() {
        return Ok((id, Proof::None));
    }
    let decoded = zeroize::Zeroizing::new(form_decoded(secret).unwrap_or_default());
    Ok((id, Proof::Basic(Presented::new(&decoded), Presented::new(secret))))
}

fn judge_assertion(
    assertion: &Presented,
    client_id: &str,
    audiences: &[&str],
    now_s: u64,
    is_signed: impl FnOnce(&Token<'_>) -> bool,
) -> Result<AssertionUse, OAuthError> {
    let token = Token::read_as(assertion.expose(), &TYPES_OF_ASSERTIONS)
        .ok_or(invalid_client("the assertion is no signed token"))?;
    let claim = |name: &str| token.claims.get(name);
    let named = |name: &str| claim(name).and_then(Value::as_str);
    if !ASSERTION_ALGORITHMS.contains(&&*token.algorithm) {
        return Err(invalid_client("the assertion is signed by an algorithm that this server does not take"));
    }
    if named("iss") != Some(client_id) || named("sub") != Some(client_id) {
        return Err(invalid_client("the assertion is of another client"));
    }
    let is_ours = |audience: &Value| audience.as_str().is_some_and(|audience| audiences.contains(&audience));
    // For several audiences, another of them could use it here.
    let is_for_us = match claim("aud") {
        Some(Value::Array(several)) => !several.is_empty() && several.iter().all(is_ours),
        Some(one) => is_ours(one),
        None => false,
    };
    if !is_for_us {
        return Err(invalid_client("the assertion is not for this server"));
    }
    let time = |name: &str| {
        claim(name).map(|value| seconds(value).ok_or(invalid_client("a time of the assertion is none")))
    };
    let expires_s = time("exp").transpose()?.ok_or(invalid_client("the assertion never expires"))?;
    let issued_s = time("iat").transpose()?;
    for time_s in [time("nbf").transpose()?, issued_s].into_iter().flatten() {
        if time_s > now_s.saturating_add(LEEWAY_S) {
            return Err(invalid_client("the assertion is not good yet"));
        }
    }
    // Some libraries let theirs be good for an hour. It is so for a shorter time here, if it says when it was made.
    let expires_s =
        issued_s.map_or(expires_s, |made_s| expires_s.min(made_s.saturating_add(ASSERTION_LIFE_MAX_S)));
    if expires_s.saturating_add(LEEWAY_S) <= now_s {
        return Err(invalid_client("the assertion has expired"));
    }
    if expires_s > now_s.saturating_add(ASSERTION_LIFE_MAX_S + LEEWAY_S) {
        return Err(invalid_client("the assertion is good for too long"));
    }
    let jti = named("jti").filter(|jti| (1..=JTI_BYTES_MAX).contains(&jti.len()));
    let jti = jti.ok_or(invalid_client("the assertion has no jti"))?.to_owned();
    if !is_signed(&token) {
        return Err(invalid_client("the assertion is not signed by a key of the client"));
    }
    Ok(AssertionUse { jti, until_s: expires_s.saturating_add(LEEWAY_S) })
}

fn invalid_request(why: &'static str) -> OAuthError {
    OAuthError::new(ErrorCode::InvalidRequest, why)
}

fn invalid_client(why: &'static str) -> OAuthError {
    OAuthError::new(ErrorCode::InvalidClient, why)
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::parameters::to_form;
    use crate::sealed::client_id::RegisteredClient;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use proptest::prelude::*;
    use serde_json::json;

    const ISSUER: &str = "https://mcp.example.com";
    const NOW_S: u64 = 1_000_000;

    fn seals() -> &'static Seals {
        static SEALS: LazyLock<Seals> = LazyLock::new(|| Seals::ephemeral(&[7; 32]).expect("keys"));
        &SEALS
    }

    fn parameters(pairs: &[(&str, &str)]) -> Parameters {
        Parameters::of_query(&to_form(pairs.iter().copied())).expect("parameters")
    }

    fn basic(id: &str, secret: &str) -> Vec<u8> {
        format!("Basic {}", STANDARD.encode(format!("{id}:{secret}"))).into_bytes()
    }

    fn client(auth_method: AuthMethod, source: ClientSource) -> Client {
        let (id, name) = ("c".to_owned(), String::new());
        Client { id, name, source, redirect_uris: Vec::new(), auth_method }
    }

    fn configured(secret: &str) -> Client {
        client(AuthMethod::Basic, ClientSource::Configured { secret: Some(Presented::new(secret)) })
    }

    fn check(client: &Client, authorization: Option<&[u8]>, pairs: &[(&str, &str)]) -> Result<(), ErrorCode> {
        let shown = ShownClient::read(authorization, &parameters(pairs)).map_err(|error| error.code)?;
        shown.check(client, seals(), &[ISSUER], NOW_S, |_| true).map(|_| ()).map_err(|error| error.code)
    }

    #[test]
    fn a_secret_may_come_by_header_or_body_and_however_it_is_escaped() {
        let client = configured("a+b%41:c");
        assert_eq!(check(&client, Some(&basic("c", "a+b%41:c")), &[]), Ok(()));
        assert_eq!(check(&client, Some(&basic("c", "a%2Bb%2541%3Ac")), &[("client_id", "c")]), Ok(()));
        assert_eq!(check(&client, None, &[("client_id", "c"), ("client_secret", "a+b%41:c")]), Ok(()));
    }

    #[test]
    fn a_registered_secret_is_checked_without_a_store() {
        let registered = RegisteredClient {
            registered_s: 1,
            name: String::new(),
            redirect_uris: Vec::new(),
            auth_method: AuthMethod::Post,
        };
        let (id, secret) = registered.issue(seals(), [1; 12], ISSUER).expect("issued");
        let secret = secret.expect("a secret");
        let client = Client::registered(&id, seals(), ISSUER).expect("a client");
        assert_eq!(check(&client, None, &[("client_id", &id), ("client_secret", &secret)]), Ok(()));
        assert_eq!(check(&client, Some(&basic(&id, &secret)), &[]), Ok(()));
        let wrong = format!("{}x", *secret);
        for pairs in [&[("client_id", &*id), ("client_secret", &wrong)][..], &[("client_id", &id)]] {
            assert_eq!(check(&client, None, pairs), Err(ErrorCode::InvalidClient));
        }
    }

    #[test]
    fn bad_input_wrong_and_doubled_proofs_are_refused() {
        let public = client(AuthMethod::None, ClientSource::Registered);
        assert_eq!(check(&public, None, &[("client_id", "c")]), Ok(()));
        assert_eq!(check(&public, Some(&basic("c", "")), &[]), Ok(()));
        assert_eq!(check(&public, None, &[("client_id", "c"), ("client_secret", "")]), Ok(()));
        let client = configured("secret");
        let good = basic("c", "secret");
        for (client, header, pairs, expected) in [
            (&public, Some(&good), &[][..], ErrorCode::InvalidClient),
            (&public, None, &[("client_id", "c"), ("client_secret", "x")], ErrorCode::InvalidClient),
            (&client, None, &[("client_id", "c")], ErrorCode::InvalidClient),
            (&client, None, &[], ErrorCode::InvalidRequest),
            (&client, Some(&basic("c", "wrong")), &[], ErrorCode::InvalidClient),
            (&client, Some(&basic("d", "secret")), &[], ErrorCode::InvalidClient),
            (&client, Some(&basic("", "secret")), &[], ErrorCode::InvalidClient),
            (&client, Some(&b"Bearer x".to_vec()), &[("client_id", "c")], ErrorCode::InvalidClient),
            (&client, Some(&b"Basic !".to_vec()), &[], ErrorCode::InvalidClient),
            (&client, Some(&b"Basic".to_vec()), &[], ErrorCode::InvalidClient),
            (&client, Some(&vec![b'a'; 5000]), &[], ErrorCode::InvalidClient),
            (&client, Some(&good), &[("client_id", "d")], ErrorCode::InvalidRequest),
            (&client, Some(&good), &[("client_secret", "secret")], ErrorCode::InvalidRequest),
            (&client, Some(&good), &[("client_assertion", "x")], ErrorCode::InvalidRequest),
        ] {
            assert_eq!(check(client, header.map(Vec::as_slice), pairs), Err(expected), "{pairs:?}");
        }
    }

    fn assertion(changed: &Value) -> String {
        assertion_of(&json!({ "alg": "ES256" }), changed)
    }

    fn assertion_of(header: &Value, changed: &Value) -> String {
        let mut claims =
            json!({ "iss": "c", "sub": "c", "aud": ISSUER, "exp": NOW_S + 60, "iat": NOW_S, "jti": "j" });
        for (name, value) in changed.as_object().expect("an object") {
            claims[name] = value.clone();
        }
        claims.as_object_mut().expect("an object").retain(|_, value| !value.is_null());
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.c2ln", part(header), part(&claims))
    }

    fn check_assertion(assertion: &str, is_signed: bool) -> Result<Option<AssertionUse>, OAuthError> {
        let pairs = [("client_assertion", assertion), ("client_assertion_type", ASSERTION_TYPE)];
        let shown = ShownClient::read(None, &parameters(&pairs))?;
        let client = client(AuthMethod::PrivateKeyJwt, ClientSource::Document { keys: None });
        shown.check(&client, seals(), &[ISSUER, "https://mcp.example.com/token"], NOW_S, |_| is_signed)
    }

    #[test]
    fn an_assertion_is_good_once_for_us_and_for_a_short_time() {
        let used = AssertionUse { jti: "j".into(), until_s: NOW_S + 120 };
        assert_eq!(check_assertion(&assertion(&json!({})), true), Ok(Some(used)));
        assert!(
            check_assertion(&assertion(&json!({ "aud": ["https://mcp.example.com/token"] })), true).is_ok()
        );
        let until_s = NOW_S + ASSERTION_LIFE_MAX_S + 60;
        let long = assertion(&json!({ "exp": NOW_S + 3600 }));
        assert_eq!(check_assertion(&long, true), Ok(Some(AssertionUse { jti: "j".into(), until_s })));
        assert!(check_assertion(&assertion(&json!({ "exp": NOW_S + 660, "iat": null })), true).is_ok());
        for changed in [
            json!({ "iss": "d" }),
            json!({ "sub": "d" }),
            json!({ "iss": null }),
            json!({ "aud": "https://other.example" }),
            json!({ "aud": [ISSUER, "https://other.example"] }),
            json!({ "aud": [] }),
            json!({ "aud": null }),
            json!({ "exp": NOW_S - 60 }),
            json!({ "exp": null }),
            json!({ "exp": "soon" }),
            json!({ "exp": NOW_S + 661, "iat": null }),
            json!({ "exp": NOW_S + 3600, "iat": NOW_S - 660 }),
            json!({ "exp": NOW_S + 3600, "iat": NOW_S + 61 }),
            json!({ "iat": "now" }),
            json!({ "iat": NOW_S + 61 }),
            json!({ "nbf": NOW_S + 61 }),
            json!({ "jti": null }),
            json!({ "jti": "" }),
            json!({ "jti": "j".repeat(257) }),
        ] {
            let error = check_assertion(&assertion(&changed), true).expect_err("refused");
            assert_eq!(error.code, ErrorCode::InvalidClient, "{changed}");
        }
        assert!(check_assertion(&assertion(&json!({})), false).is_err(), "not signed");
        assert!(check_assertion("a.b", true).is_err());
    }

    #[test]
    fn bad_input_an_assertion_is_of_its_kind_and_signed_as_the_metadata_say() {
        let check = |header: &Value| check_assertion(&assertion_of(header, &json!({})), true);
        for typ in [Value::Null, json!("JWT"), json!("client-authentication+jwt")] {
            assert!(check(&json!({ "alg": "ES256", "typ": typ })).is_ok(), "{typ}");
        }
        assert!(ASSERTION_ALGORITHMS.iter().all(|known| check(&json!({ "alg": known })).is_ok()));
        for header in [
            json!({ "alg": "none" }),
            json!({ "alg": "HS256" }),
            json!({ "alg": "es256" }),
            json!({ "alg": "RS1" }),
            json!({ "alg": "ES256", "typ": "at+jwt" }),
            json!({ "alg": "ES256", "typ": "logout+jwt" }),
        ] {
            let error = check(&header).expect_err("refused");
            assert_eq!(error.code, ErrorCode::InvalidClient, "{header}");
        }
    }

    #[test]
    fn a_client_with_keys_never_comes_without_its_assertion() {
        let client = client(AuthMethod::PrivateKeyJwt, ClientSource::Document { keys: None });
        for pairs in [&[("client_id", "c")][..], &[("client_id", "c"), ("client_secret", "x")]] {
            assert_eq!(check(&client, None, pairs), Err(ErrorCode::InvalidClient));
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(header: Vec<u8>, text in any::<String>()) {
            let _ = ShownClient::read(Some(&header), &Parameters::default());
            let encoded = format!("Basic {}", STANDARD.encode(&text));
            let _ = ShownClient::read(Some(encoded.as_bytes()), &Parameters::default());
            if let Ok(parameters) = Parameters::of_query(&to_form([("client_assertion", &*text)])) {
                let _ = ShownClient::read(None, &parameters);
            }
        }
    }
}
