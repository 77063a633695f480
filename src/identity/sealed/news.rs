//! News of a grant while tokens of it may still be good.
//!
//! It stands in a record of its own, and is told to other gateways in the same form, bound to the name of that record.

use tokens::fields::{FieldReader, FieldWriter};

use super::{Kind, Sealable};

/// An event in the life of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It was ended.
    Ended,
    /// Tokens that were issued before or in this second say what was true of the person before.
    ChangedAt(u64),
}

impl News {
    /// The one that counts of both: what ended stays ended.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::ChangedAt(one), Self::ChangedAt(another)) => Self::ChangedAt(one.max(another)),
            _ => Self::Ended,
        }
    }
}

impl Sealable for News {
    const KIND: Kind = Kind::News;

    /// It ends with its record.
    fn expires_s(&self) -> Option<u64> {
        None
    }

    fn write(&self, to: &mut FieldWriter) {
        to.optional_number(match self {
            Self::Ended => None,
            Self::ChangedAt(at_s) => Some(*at_s),
        });
    }

    fn read(from: &mut FieldReader<'_>) -> Option<Self> {
        Some(from.optional_number()?.map_or(Self::Ended, Self::ChangedAt))
    }
}
