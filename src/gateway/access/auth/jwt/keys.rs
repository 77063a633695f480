//! The public keys of an issuer: a JWK set (RFC 7517), of which only what can check a token is kept.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::DecodingKey;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::identity::refusal::CredentialFault;
use config::Algorithm;
use tokens::jwt::Token;

const KEYS_MAX: usize = 256;
/// 2048 bits: shorter RSA keys are not safe.
const MODULUS_BYTES_MIN: usize = 256;
const MODULUS_BYTES_MAX: usize = 1024;

#[derive(Clone, Debug)]
pub(crate) struct KeySet {
    keys: Vec<VerificationKey>,
    /// Of the document, to see whether it changed.
    pub digest: [u8; 32],
}

#[derive(Clone, Debug)]
struct VerificationKey {
    id: Option<Box<str>>,
    kind: KeyKind,
    /// The only algorithm it may be used with.
    algorithm: Option<Algorithm>,
    public: DecodingKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyKind {
    Rsa,
    P256,
    P384,
    Ed25519,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwksError {
    #[error("not a JWK set: JSON with an array `keys`")]
    Form,
    #[error("more than {KEYS_MAX} keys")]
    TooMany,
    #[error("no public key that can check signatures (RSA from 2048 bits, P-256, P-384, Ed25519)")]
    NoneUsable,
}

#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<Box<str>>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Reads a document. Keys of other kinds and for other purposes are left out.
    pub(crate) fn read(document: &[u8]) -> Result<Self, JwksError> {
        let JwkSet { keys } = serde_json::from_slice(document).map_err(|_| JwksError::Form)?;
        if keys.len() > KEYS_MAX {
            return Err(JwksError::TooMany);
        }
        let written = keys.into_iter().filter_map(|key| serde_json::from_value(key).ok());
        let keys: Vec<VerificationKey> = written.filter_map(VerificationKey::new).collect();
        if keys.is_empty() {
            return Err(JwksError::NoneUsable);
        }
        Ok(Self { keys, digest: Sha256::digest(document).into() })
    }

    pub(crate) fn count(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn check(&self, token: &Token<'_>, algorithm: Algorithm) -> Result<(), CredentialFault> {
        let key = self.find(token.key_id.as_deref(), algorithm)?;
        let (signature, message) = (token.signature, token.message.as_bytes());
        let algorithm = algorithm.label().parse().map_err(|_| CredentialFault::Algorithm)?;
        match jsonwebtoken::crypto::verify(signature, message, &key.public, algorithm) {
            Ok(true) => Ok(()),
            _ => Err(CredentialFault::Signature),
        }
    }

    /// The key that a token names; of a token that names none, the only one that fits.
    fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Result<&VerificationKey, CredentialFault> {
        let mut named = self.keys.iter().filter(|key| id.is_none() || key.id.as_deref() == id).peekable();
        if named.peek().is_none() {
            return Err(CredentialFault::UnknownKey);
        }
        let mut fitting = named.filter(|key| key.fits(algorithm));
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Ok(key),
            (Some(_), Some(_)) => Err(CredentialFault::UnknownKey),
            (None, _) => Err(CredentialFault::Algorithm),
        }
    }
}

impl VerificationKey {
    fn new(written: Jwk) -> Option<Self> {
        let may_check = written.purpose.as_deref().is_none_or(|purpose| purpose == "sig")
            && written.key_ops.as_ref().is_none_or(|operations| operations.iter().any(|op| op == "verify"));
        if !may_check {
            return None;
        }
        // An algorithm without a name here is one that the key must not be used with.
        let algorithm = match &written.alg {
            Some(name) => Some(Algorithm::of(name)?),
            None => None,
        };
        let (kind, public) = match (written.kty.as_str(), written.crv.as_deref()) {
            ("RSA", _) => (KeyKind::Rsa, rsa(&written.n?, &written.e?)?),
            ("EC", Some("P-256")) => (KeyKind::P256, point(&written.x?, &written.y?, 32)?),
            ("EC", Some("P-384")) => (KeyKind::P384, point(&written.x?, &written.y?, 48)?),
            ("OKP", Some("Ed25519")) => {
                let x = written.x.filter(|x| bytes_in(x) == Some(32))?;
                (KeyKind::Ed25519, DecodingKey::from_ed_components(&x).ok()?)
            }
            _ => return None,
        };
        let key = Self { id: written.kid, kind, algorithm, public };
        key.algorithm.is_none_or(|algorithm| key.fits(algorithm)).then_some(key)
    }

    fn fits(&self, algorithm: Algorithm) -> bool {
        let kind = match algorithm {
            Algorithm::RS256
            | Algorithm::RS384
            | Algorithm::RS512
            | Algorithm::PS256
            | Algorithm::PS384
            | Algorithm::PS512 => KeyKind::Rsa,
            Algorithm::ES256 => KeyKind::P256,
            Algorithm::ES384 => KeyKind::P384,
            Algorithm::EdDSA => KeyKind::Ed25519,
        };
        self.kind == kind && self.algorithm.is_none_or(|only| only == algorithm)
    }
}

fn rsa(n: &str, e: &str) -> Option<DecodingKey> {
    let modulus = URL_SAFE_NO_PAD.decode(n).ok()?;
    let significant = modulus.iter().skip_while(|byte| **byte == 0).count();
    let is_sized = (MODULUS_BYTES_MIN..=MODULUS_BYTES_MAX).contains(&significant);
    is_sized.then(|| DecodingKey::from_rsa_components(n, e).ok()).flatten()
}

fn point(x: &str, y: &str, bytes: usize) -> Option<DecodingKey> {
    let is_sized = bytes_in(x) == Some(bytes) && bytes_in(y) == Some(bytes);
    is_sized.then(|| DecodingKey::from_ec_components(x, y).ok()).flatten()
}

fn bytes_in(base64: &str) -> Option<usize> {
    URL_SAFE_NO_PAD.decode(base64).ok().map(|bytes| bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The P-256 key of RFC 7517, appendix A.1, without its purpose.
    const P256: &str = r#""kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM""#;

    fn set(keys: &[&str]) -> Result<KeySet, JwksError> {
        KeySet::read(format!(r#"{{"keys":[{}]}}"#, keys.join(",")).as_bytes())
    }

    #[test]
    fn keeps_keys_that_can_check_signatures() {
        let short_rsa = format!(r#"{{"kty":"RSA","n":"{}","e":"AQAB"}}"#, URL_SAFE_NO_PAD.encode([1; 128]));
        for (what, members, is_kept) in [
            ("plain", "", true),
            ("for signatures", r#","use":"sig""#, true),
            ("for encryption", r#","use":"enc""#, false),
            ("to verify", r#","key_ops":["verify"]"#, true),
            ("to sign", r#","key_ops":["sign"]"#, false),
            ("of its algorithm", r#","alg":"ES256""#, true),
            ("of another algorithm", r#","alg":"RS256""#, false),
            ("of a secret's algorithm", r#","alg":"HS256""#, false),
            ("with more", r#","x5u":"https://evil.example","d":"AA""#, true),
        ] {
            let key = format!("{{{P256}{members}}}");
            assert_eq!(set(&[&key]).is_ok(), is_kept, "{what}");
        }
        for key in [
            r#"{"kty":"oct","k":"c2VjcmV0"}"#,
            r#"{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}"#,
            r#"{"kty":"OKP","crv":"Ed25519","x":"AA"}"#,
            r#"{"kty":"OKP","crv":"X25519","x":"AA"}"#,
            short_rsa.as_str(),
            "7",
        ] {
            assert_eq!(set(&[key]).err(), Some(JwksError::NoneUsable), "{key}");
        }
        assert_eq!(KeySet::read(b"[]").err(), Some(JwksError::Form));
        assert_eq!(set(&vec!["1"; 257]).err(), Some(JwksError::TooMany));
    }

    #[test]
    fn finds_the_key_that_a_token_names() {
        let named = |id: &str| format!(r#"{{{P256},"kid":"{id}"}}"#);
        let (a, b) = (named("a"), named("b"));
        let one = set(&[&a]).expect("keys");
        let two = set(&[&a, &b]).expect("keys");
        for (keys, id, algorithm, refusal) in [
            (&one, Some("a"), Algorithm::ES256, None),
            (&one, None, Algorithm::ES256, None),
            (&one, Some("A"), Algorithm::ES256, Some(CredentialFault::UnknownKey)),
            (&one, Some(""), Algorithm::ES256, Some(CredentialFault::UnknownKey)),
            (&one, Some("a"), Algorithm::ES384, Some(CredentialFault::Algorithm)),
            (&one, Some("a"), Algorithm::RS256, Some(CredentialFault::Algorithm)),
            (&two, Some("b"), Algorithm::ES256, None),
            (&two, None, Algorithm::ES256, Some(CredentialFault::UnknownKey)),
        ] {
            assert_eq!(keys.find(id, algorithm).err(), refusal, "{id:?} {algorithm:?}");
        }
    }
}
