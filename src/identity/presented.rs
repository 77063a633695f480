//! A secret that a client, a browser or a provider presented: a code, a token, a verifier, a password.
//!
//! It is shown nowhere, and gone from memory with its value.

use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// A secret as it was presented.
#[derive(Clone)]
pub struct Presented(Zeroizing<String>);

impl Presented {
    /// Takes a copy of it.
    pub fn new(text: &str) -> Self {
        Self(Zeroizing::new(text.to_owned()))
    }

    /// The secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// True where it is `expected`. The time it takes tells no more than the length.
    pub fn is(&self, expected: &str) -> bool {
        !expected.is_empty() && self.0.as_bytes().ct_eq(expected.as_bytes()).into()
    }
}

impl std::fmt::Debug for Presented {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_compared_and_not_shown() {
        let secret = Presented::new("swordfish");
        assert!(secret.is("swordfish") && !secret.is("swordfisk") && !secret.is(""));
        assert!(!Presented::new("").is(""), "nothing proves nothing");
        assert_eq!(format!("{secret:?}"), "…");
    }
}
