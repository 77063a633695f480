//! The key of ID tokens (ES256), made at the start and kept in memory.

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

const COORDINATE_BYTES: usize = 32;
const ID_CHARACTERS: usize = 16;

/// A key pair on the curve P-256.
pub(super) struct SigningKey(EcdsaKeyPair);

impl SigningKey {
    /// A new pair; fails without randomness.
    pub(super) fn generate() -> Result<Self, Unspecified> {
        EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map(Self)
    }

    /// A token with these claims.
    pub(super) fn token(&self, claims: Map<String, Value>) -> Result<String, Unspecified> {
        let header = json!({ "alg": "ES256", "typ": "JWT", "kid": self.id() });
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(header), part(Value::Object(claims)));
        let signature = self.0.sign(&SystemRandom::new(), message.as_bytes())?;
        Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref())))
    }

    /// Its public half, as a JSON Web Key.
    pub(super) fn jwk(&self) -> Value {
        let (x, y) = self.coordinates();
        json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y, "use": "sig", "alg": "ES256", "kid": self.id() })
    }

    /// The begin of a coordinate: another key has another id, also after a new start.
    fn id(&self) -> String {
        self.coordinates().0.chars().take(ID_CHARACTERS).collect()
    }

    /// The uncompressed point is a byte that says so, and two coordinates.
    fn coordinates(&self) -> (String, String) {
        let point = self.0.public_key().as_ref();
        let (x, y) =
            point.get(1..).unwrap_or_default().split_at_checked(COORDINATE_BYTES).unwrap_or_default();
        (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y))
    }
}
