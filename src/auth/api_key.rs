//! API keys: 256 random bits, of which only the SHA-256 digest is configured.
//!
//! A digest of a random key needs no salt and no slow hash: there is nothing to guess. The digest finds the
//! key, and is then compared in constant time, so neither the table nor the comparison tells a caller how
//! close a wrong key came. Keys are never logged.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::Principal;
use crate::protocol::error::PolicyError;
use crate::protocol::head::Field;

/// What every key starts with, so that leaked keys are easy to search for.
const KEY_PREFIX: &str = "tl_";

/// The configured keys.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ApiKeys {
    by_tag: HashMap<u64, Vec<Holder>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Holder {
    digest: [u8; 32],
    name: Arc<str>,
}

impl ApiKeys {
    /// Builds the table from (name, SHA-256 of the key).
    pub fn new(keys: impl IntoIterator<Item = (String, [u8; 32])>) -> Self {
        let mut table = Self::default();
        for (name, digest) in keys {
            table.by_tag.entry(tag(&digest)).or_default().push(Holder { digest, name: name.into() });
        }
        table
    }

    /// Whose key `Authorization` presents.
    pub fn authenticate(&self, authorization: Field<'_>) -> Result<Principal, PolicyError> {
        let value = match authorization {
            Field::Absent => return Err(PolicyError::NoCredentials),
            Field::Many | Field::Malformed => return Err(PolicyError::BadCredentials),
            Field::One(value) => value.as_bytes(),
        };
        let (scheme, key) = value.split_at_checked(7).ok_or(PolicyError::BadCredentials)?;
        if !scheme.eq_ignore_ascii_case(b"bearer ") {
            return Err(PolicyError::BadCredentials);
        }
        let digest: [u8; 32] = Sha256::digest(key.trim_ascii()).into();
        self.by_tag
            .get(&tag(&digest))
            .into_iter()
            .flatten()
            .find(|holder| bool::from(holder.digest.ct_eq(&digest)))
            .map(|holder| Principal::ApiKey(Arc::clone(&holder.name)))
            .ok_or(PolicyError::BadCredentials)
    }
}

fn tag(digest: &[u8; 32]) -> u64 {
    let mut start = [0; 8];
    start.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(start)
}

/// A new key and the hexadecimal digest to configure. Fails only if the system has no randomness.
pub fn generate() -> Result<(String, String), getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    let key = format!("{KEY_PREFIX}{}", hex(&bytes));
    let digest = hex(&Sha256::digest(key.as_bytes()));
    Ok((key, digest))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_whose_key_it_is() {
        let digest = |key: &str| Sha256::digest(key.as_bytes()).into();
        let keys = ApiKeys::new([("a".to_owned(), digest("tl_a")), ("b".to_owned(), digest("tl_b"))]);
        let refused = Err(PolicyError::BadCredentials);
        for (field, expected) in [
            (Field::One("Bearer tl_a"), Ok(Principal::ApiKey("a".into()))),
            (Field::One("bearer  tl_b "), Ok(Principal::ApiKey("b".into()))),
            (Field::One("Bearer tl_c"), refused.clone()),
            (Field::One("Bearer "), refused.clone()),
            (Field::One("Basic tl_a"), refused.clone()),
            (Field::One("tl_a"), refused.clone()),
            (Field::Many, refused.clone()),
            (Field::Absent, Err(PolicyError::NoCredentials)),
        ] {
            assert_eq!(keys.authenticate(field), expected, "{field:?}");
        }
    }

    #[test]
    fn a_generated_key_matches_its_digest() {
        let (key, digest) = generate().expect("randomness");
        assert_eq!(digest, hex(&Sha256::digest(key.as_bytes())));
        assert_ne!(generate().expect("randomness").0, key);
    }
}
