//! The form of a JSON web token: its three parts, its header, its claims as they are written, and what of them is text.
//!
//! Not here: signatures, and what claims must say (`gateway::access::auth::jwt`).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;
use zeroize::Zeroize as _;

/// What `typ` may be: a token of any kind, or an access token (RFC 9068). Other kinds of tokens have other purposes.
const TYPES: [&str; 4] = ["jwt", "at+jwt", "application/jwt", "application/at+jwt"];
/// Values of `typ` of the assertion of a client (RFC 7523): an access token is none, whoever signed it.
pub const TYPES_OF_ASSERTIONS: [&str; 4] =
    ["jwt", "client-authentication+jwt", "application/jwt", "application/client-authentication+jwt"];
/// Values of `typ` of an ID token (`OpenID` Connect Core): an access token is none, though the same key signs it.
pub const TYPES_OF_ID_TOKENS: [&str; 2] = ["jwt", "application/jwt"];
/// Members of a header, and claims. Each is compared with all before it, and anybody may send a token.
const MEMBERS_MAX: usize = 256;
/// How deep texts are looked for.
const DEPTH_MAX: usize = 4;

/// A token, as it is written.
#[derive(Debug)]
pub struct Token<'t> {
    /// How it says it is signed.
    pub algorithm: String,
    /// Which key it says it is signed with.
    pub key_id: Option<Box<str>>,
    /// What is signed.
    pub message: &'t str,
    /// The signature, in base64.
    pub signature: &'t str,
    /// What it says.
    pub claims: TokenMembers,
}

/// The members of an object, each once, in their order.
#[derive(Debug, Default)]
pub struct TokenMembers(Vec<(String, Value)>);

impl<'t> Token<'t> {
    /// Takes a token apart. `None`: it is none, a member occurs twice, it has more than 256 claims, or an extension that must be
    /// understood.
    pub fn read(text: &'t str) -> Option<Self> {
        Self::read_as(text, &TYPES)
    }

    /// The same of a token for another purpose, with the types that it may say it is of, in lower case. Saying none is no fault.
    pub fn read_as(text: &'t str, types: &[&str]) -> Option<Self> {
        let (message, signature) = text.rsplit_once('.')?;
        let (header, payload) = message.split_once('.')?;
        let header = decode(header)?;
        let said = |name: &str| match header.get(name) {
            None | Some(Value::Null) => Some(None),
            Some(value) => value.as_str().map(Some),
        };
        let is_known = |typ: &str| types.iter().any(|known| typ.eq_ignore_ascii_case(known));
        if header.get("crit").is_some() || !said("typ")?.is_none_or(is_known) {
            return None;
        }
        let (algorithm, key_id) = (said("alg")??.into(), said("kid")?.map(Box::from));
        Some(Self { algorithm, key_id, message, signature, claims: decode(payload)? })
    }
}

/// True for what has the shape of a token: three parts with dots between.
pub fn is_token(text: &str) -> bool {
    text.bytes().filter(|byte| *byte == b'.').count() == 2
}

fn decode(part: &str) -> Option<TokenMembers> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

impl TokenMembers {
    /// What the member of that name says.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(present, _)| present == name).map(|(_, value)| value)
    }

    /// Takes the texts that stand right in the object out of memory.
    pub fn wipe(&mut self) {
        for (_, value) in &mut self.0 {
            if let Value::String(text) = value {
                text.zeroize();
            }
        }
    }

    /// Texts, numbers and truth values, each as text; of arrays one each; of objects under `outer.inner`.
    pub fn texts(&self) -> Vec<(Box<str>, Box<str>)> {
        let mut texts = Vec::new();
        for (name, value) in &self.0 {
            collect(&mut texts, name, value, 0);
        }
        texts
    }
}

/// Seconds since 1970, in whole ones.
pub fn seconds(value: &Value) -> Option<u64> {
    if let Some(whole) = value.as_u64() {
        return Some(whole);
    }
    let fraction = value.as_f64().filter(|seconds| (0.0..1e15).contains(seconds))?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was checked to fit")]
    Some(fraction as u64)
}

fn collect(texts: &mut Vec<(Box<str>, Box<str>)>, name: &str, value: &Value, depth: usize) {
    if depth > DEPTH_MAX {
        return;
    }
    match value {
        Value::String(text) => texts.push((name.into(), text.as_str().into())),
        Value::Number(number) => texts.push((name.into(), number.to_string().into())),
        Value::Bool(truth) => texts.push((name.into(), truth.to_string().into())),
        Value::Array(values) => values.iter().for_each(|value| collect(texts, name, value, depth + 1)),
        Value::Object(members) => {
            for (inner, value) in members {
                collect(texts, &format!("{name}.{inner}"), value, depth + 1);
            }
        }
        Value::Null => {}
    }
}

impl<'de> Deserialize<'de> for TokenMembers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TokenMembersVisitor;
        impl<'de> Visitor<'de> for TokenMembersVisitor {
            type Value = TokenMembers;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<TokenMembers, A::Error> {
                let mut members = TokenMembers::default();
                while let Some((name, value)) = entries.next_entry::<String, Value>()? {
                    if members.0.len() >= MEMBERS_MAX {
                        return Err(A::Error::custom("too many members"));
                    }
                    // Of two, another reader might believe the other.
                    if members.get(&name).is_some() {
                        return Err(A::Error::custom("a member occurs twice"));
                    }
                    members.0.push((name, value));
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(TokenMembersVisitor)
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
        assert_eq!((&*read.algorithm, read.key_id.as_deref()), ("ES256", Some("k")));
        assert_eq!(read.claims.get("sub"), Some(&Value::from("a")));
        assert_eq!(format!("{}.{}", read.message, read.signature), text);
        assert!(Token::read_as(&text, &TYPES_OF_ASSERTIONS).is_none(), "an access token is no assertion");
    }

    #[test]
    fn refuses_what_is_not_one() {
        let good = r#"{"alg":"RS256"}"#;
        for (what, text) in [
            ("two parts", "e30.e30".to_owned()),
            ("padding", token(good, "{}").replacen('.', "=.", 1)),
            ("not base64", format!("{}.!.x", URL_SAFE_NO_PAD.encode(good))),
            ("not JSON", token(good, "{")),
            ("not an object", token(good, "[]")),
            ("a claim twice", token(good, r#"{"sub":"a","sub":"b"}"#)),
            ("alg twice", token(r#"{"alg":"RS256","alg":"ES256"}"#, "{}")),
            ("no alg", token("{}", "{}")),
            ("a header that is no object", token(r#"["RS256",null,null,null]"#, "{}")),
            ("a header's member twice", token(r#"{"alg":"RS256","jku":"a","jku":"b"}"#, "{}")),
            ("an odd key id", token(r#"{"alg":"RS256","kid":7}"#, "{}")),
            ("crit without a list", token(r#"{"alg":"RS256","crit":null}"#, "{}")),
            ("crit", token(r#"{"alg":"RS256","crit":["b64"]}"#, "{}")),
            ("another type", token(r#"{"alg":"RS256","typ":"logout+jwt"}"#, "{}")),
            ("deep", token(good, &"[".repeat(100_000))),
            ("257 claims", token(good, &so_many(257))),
        ] {
            assert!(Token::read(&text).is_none(), "{what}");
        }
        assert!(Token::read(&token(good, &so_many(256))).is_some());
    }

    fn so_many(claims: usize) -> String {
        let claims: Vec<String> = (0..claims).map(|number| format!("\"c{number}\":1")).collect();
        format!("{{{}}}", claims.join(","))
    }
}
