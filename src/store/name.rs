//! Names of records: a kind, a slash, and the rest.
//!
//! Invariants: a name has at most [`NAME_BYTES_MAX`] bytes, none of which is a control character, so that it can stand in
//! the log and in a key of Redis. A name is not secret: it is stored in clear.

use std::fmt;

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// The longest kind, in bytes.
pub const KIND_BYTES_MAX: usize = 32;

/// The name of one record, such as `grant/7f3a…`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<str>);

/// The reason that a text is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is longer than [`NAME_BYTES_MAX`].
    #[error("a name of a record has more than {NAME_BYTES_MAX} bytes")]
    TooLong,
    /// It does not begin with a kind and a slash, with something after it.
    #[error("a name of a record is a kind of a-z, 0-9, - and _, a slash, and the rest")]
    NoKind,
    /// It has a control character.
    #[error("a name of a record has a control character")]
    Control,
}

impl Name {
    /// Takes a whole name.
    pub fn new(name: &str) -> Result<Self, NameError> {
        if name.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong);
        }
        let is_of_kind = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        match name.split_once('/') {
            Some((kind, rest)) if (1..=KIND_BYTES_MAX).contains(&kind.len()) && !rest.is_empty() => {
                if !kind.bytes().all(is_of_kind) {
                    return Err(NameError::NoKind);
                }
            }
            _ => return Err(NameError::NoKind),
        }
        if name.chars().any(char::is_control) {
            return Err(NameError::Control);
        }
        Ok(Self(name.into()))
    }

    /// The whole name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part before the first slash.
    pub fn kind(&self) -> &str {
        kind_of(&self.0)
    }
}

/// The part before the first slash.
pub(crate) fn kind_of(name: &str) -> &str {
    name.split_once('/').map_or(name, |(kind, _)| kind)
}

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, formatter)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_kind_and_a_rest() {
        let longest = format!("grant/{}", "x".repeat(NAME_BYTES_MAX - "grant/".len()));
        for good in ["grant/7f", "a/b/c", "client-id_2/é", &longest] {
            assert_eq!(Name::new(good).expect("a name").as_str(), good);
        }
        assert_eq!(Name::new("a/b/c").expect("a name").kind(), "a");
        for (bad, error) in [
            ("", NameError::NoKind),
            ("grant", NameError::NoKind),
            ("grant/", NameError::NoKind),
            ("/x", NameError::NoKind),
            ("Grant/x", NameError::NoKind),
            ("gr ant/x", NameError::NoKind),
            (&format!("{}/x", "k".repeat(KIND_BYTES_MAX + 1)), NameError::NoKind),
            (&format!("{longest}x"), NameError::TooLong),
            ("grant/a\nb", NameError::Control),
            ("grant/a\u{85}b", NameError::Control),
        ] {
            assert_eq!(Name::new(bad), Err(error), "{bad:?}");
        }
    }
}
