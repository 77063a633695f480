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

use crate::identity::{Principal, VerifiedIdentity};
use config::{self, API_KEY_PREFIX};

/// The configured keys.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ApiKeys {
    by_tag: HashMap<u64, Vec<ApiKeyHolder>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ApiKeyHolder {
    digest: [u8; 32],
    principal: Principal,
    expires_s: Option<u64>,
}

impl ApiKeys {
    /// The table of the configured keys.
    pub fn new(keys: &[config::ApiKey]) -> Self {
        let mut table = Self::default();
        for key in keys {
            let words = |words: &[String]| words.iter().map(|word| word.as_str().into()).collect();
            let principal = Principal::Known(Arc::new(VerifiedIdentity {
                id: format!("key:{}", key.name).into(),
                name: key.name.as_str().into(),
                groups: words(&key.groups),
                scopes: words(&key.scopes),
                expires_s: key.expires_s,
                ..VerifiedIdentity::default()
            }));
            table.by_tag.entry(tag(&key.sha256)).or_default().push(ApiKeyHolder {
                digest: key.sha256,
                principal,
                expires_s: key.expires_s,
            });
        }
        table
    }

    /// Whether the principal with this id has the same keys in `other`, and they mean the same.
    pub fn are_alike_for(&self, other: &Self, id: &str) -> bool {
        let holders = |keys: &Self| {
            let all = keys.by_tag.values().flatten();
            let mut held: Vec<_> = all.filter(|holder| holder.principal.id() == id).cloned().collect();
            held.sort_unstable_by_key(|holder| holder.digest);
            held
        };
        self == other || holders(self) == holders(other)
    }

    /// Whose key it is at `now_s`, and when it ends. `Err`: it is over.
    pub(crate) fn find(
        &self,
        key: &str,
        now_s: u64,
    ) -> Option<Result<(&Principal, Option<u64>), KeyExpired>> {
        let digest: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        self.by_tag
            .get(&tag(&digest))
            .into_iter()
            .flatten()
            .find(|holder| bool::from(holder.digest.ct_eq(&digest)))
            .map(|holder| match holder.expires_s {
                Some(expires_s) if expires_s <= now_s => Err(KeyExpired),
                expires_s => Ok((&holder.principal, expires_s)),
            })
    }
}

/// The key was good once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyExpired;

/// True for what can only be meant as a key.
pub fn is_key(credential: &str) -> bool {
    credential.starts_with(API_KEY_PREFIX)
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
    let key = format!("{API_KEY_PREFIX}{}", hex(&bytes));
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

    fn key(name: &str, key: &str) -> config::ApiKey {
        let sha256 = Sha256::digest(key.as_bytes()).into();
        config::ApiKey {
            name: name.into(),
            sha256,
            expires_s: None,
            description: None,
            groups: vec!["g".into()],
            scopes: vec!["s".into()],
        }
    }

    #[test]
    fn finds_whose_key_it_is() {
        let keys = ApiKeys::new(&[key("a", "tl_a"), key("b", "tl_b")]);
        for (presented, id) in [
            ("tl_a", Some("key:a")),
            ("tl_b", Some("key:b")),
            ("tl_c", None),
            ("tl_", None),
            ("tl_aa", None),
            ("TL_A", None),
            ("", None),
        ] {
            let found = keys.find(presented, 0).map(|found| found.unwrap().0.id());
            assert_eq!(found, id, "{presented}");
        }
        let Some(Ok((Principal::Known(identity), None))) = keys.find("tl_a", 0) else { panic!("nobody") };
        assert_eq!((&*identity.groups[0], &*identity.scopes[0]), ("g", "s"));
    }

    #[test]
    fn a_key_ends_at_its_moment() {
        let keys = ApiKeys::new(&[config::ApiKey { expires_s: Some(100), ..key("a", "tl_a") }]);
        assert_eq!(keys.find("tl_a", 99).unwrap().unwrap().1, Some(100));
        assert_eq!(keys.find("tl_a", 100), Some(Err(KeyExpired)));
        assert_eq!(keys.find("tl_b", 100), None);
    }

    #[test]
    fn a_generated_key_matches_its_digest() {
        let (key, digest) = generate().expect("randomness");
        assert_eq!(digest, hex(&Sha256::digest(key.as_bytes())));
        assert_ne!(generate().expect("randomness").0, key);
    }
}
