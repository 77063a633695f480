//! The revisions of MCP that Trunkline knows, and the era each belongs to.
//!
//! Invariant: both lists are newest first; a version is in exactly one of them.

use std::fmt;

use serde::Deserialize;

/// Revisions that carry version and capabilities in every request (2026-07-28 and later), newest first.
pub const MODERN: &[&str] = &["2026-07-28"];

/// Revisions that open a session with `initialize`, newest first.
pub const LEGACY: &[&str] = &["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

crate::words! {
    /// The two kinds of revisions, which differ in how a conversation begins.
    #[derive(Hash, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Era reads of, says label {
        /// Revisions of [`MODERN`]: every request stands for itself.
        Modern = "modern",
        /// Revisions of [`LEGACY`]: `initialize`, sessions, streams opened by GET.
        Legacy = "legacy",
    }
}

impl Era {
    /// The era of a revision. One that is unknown is treated by the rules of the modern era, and refused with −32022.
    pub fn of_version(text: &str) -> Option<Self> {
        if MODERN.contains(&text) {
            Some(Self::Modern)
        } else {
            LEGACY.contains(&text).then_some(Self::Legacy)
        }
    }

    /// The one that it is not.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Legacy => Self::Modern,
            Self::Modern => Self::Legacy,
        }
    }
}

/// A set of eras.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Eras {
    /// Whether [`Era::Legacy`] is among them.
    pub legacy: bool,
    /// Whether [`Era::Modern`] is among them.
    pub modern: bool,
}

impl Eras {
    /// Every era.
    pub const BOTH: Self = Self { legacy: true, modern: true };

    /// Only this era.
    pub fn only(era: Era) -> Self {
        Self { legacy: era == Era::Legacy, modern: era == Era::Modern }
    }

    /// Whether the era is among them.
    pub fn contains(self, era: Era) -> bool {
        match era {
            Era::Legacy => self.legacy,
            Era::Modern => self.modern,
        }
    }

    /// Those that are in both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { legacy: self.legacy && other.legacy, modern: self.modern && other.modern }
    }

    /// True if there is none.
    pub fn is_empty(self) -> bool {
        !self.legacy && !self.modern
    }
}

impl FromIterator<Era> for Eras {
    fn from_iter<I: IntoIterator<Item = Era>>(eras: I) -> Self {
        let none = Self { legacy: false, modern: false };
        eras.into_iter().fold(none, |eras, era| Self {
            legacy: eras.legacy || era == Era::Legacy,
            modern: eras.modern || era == Era::Modern,
        })
    }
}

impl fmt::Display for Eras {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self { legacy: true, modern: true } => "modern and legacy",
            Self { legacy: true, modern: false } => "legacy",
            Self { legacy: false, modern: true } => "modern",
            Self { legacy: false, modern: false } => "none",
        })
    }
}

/// The revisions of these eras, newest first: what `server/discover` and error −32022 list.
pub fn supported_versions(eras: Eras) -> Vec<&'static str> {
    let modern = MODERN.iter().filter(|_| eras.modern);
    modern.chain(LEGACY.iter().filter(|_| eras.legacy)).copied().collect()
}

crate::words! {
    /// A revision of the legacy era; later ones are greater.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum LegacyVersion reads of, says as_str {
        V2024_11_05 = "2024-11-05",
        V2025_03_26 = "2025-03-26",
        V2025_06_18 = "2025-06-18",
        V2025_11_25 = "2025-11-25",
    }
}

impl LegacyVersion {
    /// What is offered where nothing else is known.
    pub const NEWEST: Self = Self::V2025_11_25;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_legacy_revisions_are_the_enum() {
        let written: Vec<&str> = LegacyVersion::ALL.iter().rev().map(|version| version.as_str()).collect();
        assert_eq!(written, LEGACY);
        assert_eq!(LegacyVersion::of(LEGACY[0]), Some(LegacyVersion::NEWEST));
        assert_eq!(LegacyVersion::of(MODERN[0]), None);
    }

    #[test]
    fn the_versions_of_eras_are_one_list() {
        for (eras, versions) in [
            (Eras::BOTH, [MODERN, LEGACY].concat()),
            (Eras::only(Era::Modern), MODERN.to_vec()),
            (Eras::only(Era::Legacy), LEGACY.to_vec()),
        ] {
            assert_eq!(supported_versions(eras), versions, "{eras}");
            assert!(versions.is_sorted_by(|newer, older| newer > older));
        }
    }

    #[test]
    fn sorts_versions() {
        for (text, version) in [
            ("2026-07-28", Some(Era::Modern)),
            ("2025-11-25", Some(Era::Legacy)),
            ("2024-11-05", Some(Era::Legacy)),
            ("1900-01-01", None),
            ("", None),
            ("2026-07-28 ", None),
        ] {
            assert_eq!(Era::of_version(text), version, "{text:?}");
        }
    }
}
