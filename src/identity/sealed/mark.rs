//! A mark: what its name says was done, or is being done, until a second.

use tokens::fields::{FieldReader, FieldWriter};

use super::{Kind, Sealable};

/// The mark of what was done once, or of whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The last second in which it counts.
    pub until_s: u64,
}

impl Sealable for Mark {
    const KIND: Kind = Kind::Mark;

    fn expires_s(&self) -> Option<u64> {
        Some(self.until_s.saturating_add(1))
    }

    fn write(&self, to: &mut FieldWriter) {
        to.number(self.until_s);
    }

    fn read(from: &mut FieldReader<'_>) -> Option<Self> {
        Some(Self { until_s: from.number()? })
    }
}
