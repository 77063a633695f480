//! The form of a token: its three parts, its header, its claims as they are written. Checks no signature.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use crate::identity::refusal::CredentialFault;
use config::Algorithm;

/// What `typ` may be: a token of any kind, or an access token (RFC 9068). Other kinds of tokens have other purposes.
const TYPES: [&str; 4] = ["jwt", "at+jwt", "application/jwt", "application/at+jwt"];

#[derive(Debug)]
pub(crate) struct Token<'t> {
    /// How it says it is signed.
    pub algorithm: Algorithm,
    pub key_id: Option<Box<str>>,
    pub message: &'t str,
    /// The signature, in base64.
    pub signature: &'t str,
    pub claims: Claims,
}

/// Claims, each once, in the order of the token.
#[derive(Debug, Default)]
pub(crate) struct Claims(pub Vec<(String, Value)>);

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<Box<str>>,
    typ: Option<String>,
    crit: Option<IgnoredAny>,
}

impl<'t> Token<'t> {
    pub(crate) fn read(text: &'t str) -> Result<Self, CredentialFault> {
        let (message, signature) = text.rsplit_once('.').ok_or(CredentialFault::TokenForm)?;
        let (header, payload) = message.split_once('.').ok_or(CredentialFault::TokenForm)?;
        let header: Header = decode(header)?;
        let is_known = |typ: &String| TYPES.iter().any(|known| typ.eq_ignore_ascii_case(known));
        if header.crit.is_some() || !header.typ.as_ref().is_none_or(is_known) {
            return Err(CredentialFault::TokenForm);
        }
        let algorithm = Algorithm::of(&header.alg).ok_or(CredentialFault::Algorithm)?;
        Ok(Self { algorithm, key_id: header.kid, message, signature, claims: decode(payload)? })
    }
}

/// True for what has the shape of a token: three parts with dots between.
pub(crate) fn is_token(text: &str) -> bool {
    text.bytes().filter(|byte| *byte == b'.').count() == 2
}

fn decode<T: for<'de> Deserialize<'de>>(part: &str) -> Result<T, CredentialFault> {
    let json = URL_SAFE_NO_PAD.decode(part).map_err(|_| CredentialFault::TokenForm)?;
    serde_json::from_slice(&json).map_err(|_| CredentialFault::TokenForm)
}

impl Claims {
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(present, _)| present == name).map(|(_, value)| value)
    }
}

impl<'de> Deserialize<'de> for Claims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ClaimsVisitor;
        impl<'de> Visitor<'de> for ClaimsVisitor {
            type Value = Claims;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Claims, A::Error> {
                let mut claims = Claims::default();
                while let Some((name, value)) = members.next_entry::<String, Value>()? {
                    // Of two, another reader might believe the other.
                    if claims.get(&name).is_some() {
                        return Err(A::Error::custom("a claim occurs twice"));
                    }
                    claims.0.push((name, value));
                }
                Ok(claims)
            }
        }
        deserializer.deserialize_map(ClaimsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(header: &str, claims: &str) -> String {
        format!("{}.{}.c2ln", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn takes_a_token_apart() {
        let text = token(r#"{"alg":"ES256","kid":"k","typ":"at+JWT","jwk":{}}"#, r#"{"sub":"a","n":1}"#);
        let read = Token::read(&text).expect("a token");
        assert_eq!((read.algorithm, read.key_id.as_deref()), (Algorithm::ES256, Some("k")));
        assert_eq!(read.claims.get("sub"), Some(&Value::from("a")));
        assert_eq!(format!("{}.{}", read.message, read.signature), text);
    }

    #[test]
    fn refuses_what_is_not_one() {
        let good = r#"{"alg":"RS256"}"#;
        for (what, text, expected) in [
            ("two parts", "e30.e30".to_owned(), CredentialFault::TokenForm),
            ("padding", token(good, "{}").replacen('.', "=.", 1), CredentialFault::TokenForm),
            ("not base64", format!("{}.!.x", URL_SAFE_NO_PAD.encode(good)), CredentialFault::TokenForm),
            ("not JSON", token(good, "{"), CredentialFault::TokenForm),
            ("not an object", token(good, "[]"), CredentialFault::TokenForm),
            ("a claim twice", token(good, r#"{"sub":"a","sub":"b"}"#), CredentialFault::TokenForm),
            ("alg twice", token(r#"{"alg":"RS256","alg":"ES256"}"#, "{}"), CredentialFault::TokenForm),
            ("no alg", token("{}", "{}"), CredentialFault::TokenForm),
            ("alg of none", token(r#"{"alg":"none"}"#, "{}"), CredentialFault::Algorithm),
            ("alg of a secret", token(r#"{"alg":"HS256"}"#, "{}"), CredentialFault::Algorithm),
            ("another case", token(r#"{"alg":"rs256"}"#, "{}"), CredentialFault::Algorithm),
            ("crit", token(r#"{"alg":"RS256","crit":["b64"]}"#, "{}"), CredentialFault::TokenForm),
            (
                "another type",
                token(r#"{"alg":"RS256","typ":"logout+jwt"}"#, "{}"),
                CredentialFault::TokenForm,
            ),
            ("deep", token(good, &"[".repeat(100_000)), CredentialFault::TokenForm),
        ] {
            assert_eq!(Token::read(&text).err(), Some(expected), "{what}");
        }
    }
}
