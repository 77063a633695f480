//! An issuer of tokens: keys of its own, tokens signed with them, and the configuration that trusts it.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};

/// What the claim `iss` is.
pub(crate) const ISSUER: &str = "https://issuer.example";
/// The URL of the endpoint that tokens are for.
pub(crate) const RESOURCE: &str = "https://mcp.example/mcp";

/// A key that tokens are signed with.
pub(crate) struct SigningKey {
    key: EncodingKey,
    algorithm: Algorithm,
    id: String,
    /// Of an Ed25519 key, its public half.
    public: Vec<u8>,
}

impl SigningKey {
    /// An RSA key, which takes a moment.
    pub(crate) fn rsa(id: &str) -> Self {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).expect("a key");
        let key = EncodingKey::from_rsa_pem(pair.serialize_pem().as_bytes()).expect("a key");
        Self { key, algorithm: Algorithm::RS256, id: id.into(), public: Vec::new() }
    }

    /// A key on the curve P-256.
    pub(crate) fn ec(id: &str) -> Self {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key");
        let key = EncodingKey::from_ec_der(pair.serialized_der());
        Self { key, algorithm: Algorithm::ES256, id: id.into(), public: Vec::new() }
    }

    /// An Ed25519 key.
    pub(crate) fn ed(id: &str) -> Self {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
        let key = EncodingKey::from_ed_der(pair.serialized_der());
        Self { key, algorithm: Algorithm::EdDSA, id: id.into(), public: pair.public_key_raw().to_vec() }
    }

    /// Its public half.
    pub(crate) fn jwk(&self) -> Value {
        let mut jwk = if self.algorithm == Algorithm::EdDSA {
            json!({ "kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(&self.public) })
        } else {
            let jwk = Jwk::from_encoding_key(&self.key, self.algorithm).expect("a public key");
            serde_json::to_value(jwk).expect("JSON")
        };
        jwk["kid"] = json!(self.id);
        jwk["use"] = json!("sig");
        jwk
    }

    /// The header of its tokens.
    pub(crate) fn header(&self) -> Value {
        json!({ "alg": format!("{:?}", self.algorithm), "typ": "JWT", "kid": self.id })
    }

    /// A token with these claims.
    pub(crate) fn token(&self, claims: &Value) -> String {
        self.sign(&self.header().to_string(), &claims.to_string())
    }

    /// A token of this text, whatever it says.
    pub(crate) fn sign(&self, header: &str, claims: &str) -> String {
        self.sign_by(self.algorithm, header, claims)
    }

    /// A token that is signed in another way.
    pub(crate) fn sign_by(&self, algorithm: Algorithm, header: &str, claims: &str) -> String {
        sign(&self.key, algorithm, header, claims)
    }
}

/// A token of this text, signed with this key.
pub(crate) fn sign(key: &EncodingKey, algorithm: Algorithm, header: &str, claims: &str) -> String {
    let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), key, algorithm).expect("a signature");
    format!("{message}.{signature}")
}

/// The document with these keys.
pub(crate) fn jwks(keys: &[&SigningKey]) -> String {
    json!({ "keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>() }).to_string()
}

/// Seconds since 1970.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs()
}

/// Claims that pass at the endpoint for an hour, with `changes` to them; a change to null leaves a claim out.
pub(crate) fn claims(subject: &str, changes: &Value) -> Value {
    let mut claims = json!({
        "iss": ISSUER, "aud": RESOURCE, "sub": subject, "iat": now_s(), "exp": now_s() + 3600,
    });
    for (name, value) in changes.as_object().into_iter().flatten() {
        claims[name] = value.clone();
    }
    claims.as_object_mut().expect("an object").retain(|_, value| !value.is_null());
    claims
}

/// The configuration of the issuer; `lines` say where its keys are.
pub(crate) fn jwt(lines: &str) -> String {
    format!("[[jwt]]\nname = \"test\"\nissuer = \"{ISSUER}\"\n{lines}")
}
