//! Digests of what a value is bound to, and random names.
//!
//! A code or a token is bound to texts that whoever presents it names again, so a digest of them is enough, however long they
//! are.

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokens::sealing::hex;

/// A digest of texts, each with its length: no other texts have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

/// The random name of a grant.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct GrantId(pub [u8; 16]);

impl Fingerprint {
    /// The digest of these texts.
    pub fn of(texts: &[&str]) -> Self {
        let mut digest = Sha256::new();
        for text in texts {
            digest.update((text.len() as u64).to_be_bytes());
            digest.update(text);
        }
        Self(digest.finalize().into())
    }

    /// True for the digest of these texts. The time it takes tells nothing.
    pub fn is_of(&self, texts: &[&str]) -> bool {
        self.0.ct_eq(&Self::of(texts).0).into()
    }

    /// The name of a record of the store.
    pub fn record_name(&self, kind: &str) -> String {
        format!("{kind}/{}", hex(&self.0))
    }
}

impl GrantId {
    /// The name of its record in the store.
    pub fn record_name(self) -> String {
        format!("grant/{}", hex(&self.0))
    }
}

impl std::fmt::Debug for GrantId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.record_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_kept_apart() {
        let found = Fingerprint::of(&["ab", "c"]);
        assert!(found.is_of(&["ab", "c"]));
        for other in [&["a", "bc"][..], &["abc"], &["ab", "c", ""], &["ab"], &[]] {
            assert!(!found.is_of(other), "{other:?}");
        }
        assert_eq!(GrantId([0xab; 16]).record_name(), format!("grant/{}", "ab".repeat(16)));
    }
}
