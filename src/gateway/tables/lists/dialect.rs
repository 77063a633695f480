//! In which protocol a list is asked for.

use protocol::version::{Era, LegacyVersion};

/// The protocol of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Dialect<'a> {
    /// The modern era.
    Modern {
        /// The client's capabilities: a JSON object, as it wrote it.
        capabilities: &'a [u8],
    },
    /// The legacy era.
    Legacy {
        /// What the client speaks.
        version: LegacyVersion,
        /// The client's capabilities: a JSON object.
        capabilities: &'a [u8],
    },
}

impl Dialect<'_> {
    /// Its era.
    pub(crate) fn era(self) -> Era {
        match self {
            Self::Modern { .. } => Era::Modern,
            Self::Legacy { .. } => Era::Legacy,
        }
    }
}
