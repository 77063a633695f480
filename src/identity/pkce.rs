//! Proof Key for Code Exchange (RFC 7636), S256 alone: towards our clients, and towards the provider.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::oauth_error::{ErrorCode, OAuthError};

/// Bytes of a digest.
const DIGEST_BYTES: usize = 32;

/// The digest of a verifier that is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeChallenge(pub [u8; DIGEST_BYTES]);

impl CodeChallenge {
    /// Reads `code_challenge` and `code_challenge_method`. Where the method is missing it is `plain`, which proves nothing.
    pub fn read(challenge: Option<&str>, method: Option<&str>) -> Result<Self, OAuthError> {
        let refused = |why| Err(OAuthError::new(ErrorCode::InvalidRequest, why));
        let Some(challenge) = challenge else {
            return refused("code_challenge is missing: PKCE is required");
        };
        if method != Some("S256") {
            return refused("code_challenge_method must be S256");
        }
        match URL_SAFE_NO_PAD.decode(challenge).ok().and_then(|digest| digest.try_into().ok()) {
            Some(digest) => Ok(Self(digest)),
            None => refused("code_challenge is not a SHA-256 digest in base64url"),
        }
    }

    /// The challenge of a verifier.
    pub fn of(verifier: &str) -> Self {
        Self(Sha256::digest(verifier).into())
    }

    /// Its text, as the parameter has it.
    pub fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// True for its verifier. The time it takes tells nothing of the digest.
    pub fn is_of(&self, verifier: &str) -> bool {
        is_verifier(verifier) && self.0.ct_eq(&Self::of(verifier).0).into()
    }
}

/// A verifier of our own, of random bytes.
pub fn verifier(random: &[u8; DIGEST_BYTES]) -> Zeroizing<String> {
    Zeroizing::new(URL_SAFE_NO_PAD.encode(random))
}

/// 43 to 128 unreserved characters (RFC 7636 §4.1).
pub fn is_verifier(text: &str) -> bool {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    (43..=128).contains(&text.len()) && text.bytes().all(is_unreserved)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7636, appendix B.
    const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    #[test]
    fn the_example_of_the_rfc_holds() {
        let challenge = CodeChallenge::read(Some(CHALLENGE), Some("S256")).expect("a challenge");
        assert!(challenge.is_of(VERIFIER));
        assert_eq!(challenge.text(), CHALLENGE);
        let other = VERIFIER.replace('X', "Y");
        assert!(!challenge.is_of(&other) && !challenge.is_of("") && !challenge.is_of(CHALLENGE));
        assert!(is_verifier(&verifier(&[255; 32])));
    }

    #[test]
    fn bad_input_anything_but_s256_is_refused() {
        for (challenge, method) in [
            (None, Some("S256")),
            (Some(CHALLENGE), None),
            (Some(CHALLENGE), Some("plain")),
            (Some(CHALLENGE), Some("s256")),
            (Some(VERIFIER.split_at(42).0), Some("S256")),
            (Some("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cN"), Some("S256")),
            (Some("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw+cM"), Some("S256")),
            (Some("E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM="), Some("S256")),
        ] {
            let error = CodeChallenge::read(challenge, method).expect_err("an error");
            assert_eq!(error.code, ErrorCode::InvalidRequest, "{challenge:?}");
        }
    }

    #[test]
    fn a_verifier_has_its_length_and_characters() {
        for (text, expected) in [
            ("a".repeat(42), false),
            ("a".repeat(43), true),
            ("a".repeat(128), true),
            ("a".repeat(129), false),
            ("a".repeat(43) + "~._-", true),
            ("a".repeat(43) + "+", false),
            ("a".repeat(43) + "\u{e4}", false),
        ] {
            assert_eq!(is_verifier(&text), expected, "{text}");
        }
    }
}
