//! In which protocol a list is asked for, with the client's capabilities.

use super::cache::{ContentDigest, digest};
use protocol::version::{Era, LegacyVersion};

/// `C` is the client's capabilities: a JSON object as it wrote it, or what stands for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Dialect<C> {
    Modern(C),
    Legacy(LegacyVersion, C),
}

/// What is asked for in a dialect is kept under this.
pub(crate) type DialectKey = Dialect<ContentDigest>;

impl<C> Dialect<C> {
    pub(crate) fn era(&self) -> Era {
        match self {
            Self::Modern(_) => Era::Modern,
            Self::Legacy(..) => Era::Legacy,
        }
    }
}

impl<C: AsRef<[u8]>> Dialect<C> {
    pub(crate) fn key(&self) -> DialectKey {
        match self {
            Self::Modern(capabilities) => Dialect::Modern(digest(&[capabilities.as_ref()])),
            Self::Legacy(version, capabilities) => {
                Dialect::Legacy(*version, digest(&[capabilities.as_ref()]))
            }
        }
    }
}
