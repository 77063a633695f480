//! The revisions of MCP that Trunkline knows, and the era each belongs to.
//!
//! Invariant: both lists are newest first; a version is in exactly one of them.

/// Revisions that carry version and capabilities in every request (2026-07-28 and later), newest first.
pub const MODERN: &[&str] = &["2026-07-28"];

/// Revisions that open a session with `initialize`, newest first.
pub const LEGACY: &[&str] = &["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// What a version string means to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A revision of [`MODERN`].
    Modern,
    /// A revision of [`LEGACY`].
    Legacy,
    /// Neither: treated by the rules of the modern era and refused with −32022.
    Unknown,
}

impl Version {
    /// Sorts a version string.
    pub fn of(text: &str) -> Self {
        if MODERN.contains(&text) {
            Self::Modern
        } else if LEGACY.contains(&text) {
            Self::Legacy
        } else {
            Self::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_versions() {
        for (text, version) in [
            ("2026-07-28", Version::Modern),
            ("2025-11-25", Version::Legacy),
            ("2024-11-05", Version::Legacy),
            ("1900-01-01", Version::Unknown),
            ("", Version::Unknown),
            ("2026-07-28 ", Version::Unknown),
        ] {
            assert_eq!(Version::of(text), version, "{text:?}");
        }
    }
}
