//! In which protocol a list is asked for.

use protocol::version::{Era, LegacyVersion};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Dialect<'a> {
    Modern {
        /// The client's capabilities: a JSON object, as it wrote it.
        capabilities: &'a [u8],
    },
    Legacy {
        version: LegacyVersion,
        /// The client's capabilities: a JSON object.
        capabilities: &'a [u8],
    },
}

impl Dialect<'_> {
    pub(crate) fn era(self) -> Era {
        match self {
            Self::Modern { .. } => Era::Modern,
            Self::Legacy { .. } => Era::Legacy,
        }
    }
}
