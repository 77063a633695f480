//! In which era an upstream is asked for a list: the client's own wherever it speaks that, else the other one, in the
//! words of which the client's capabilities are then said. Clients of both eras so share what was fetched once.

use bytes::Bytes;

use super::cache::{DialectKey, digest};
use super::learn::CAPABILITIES;
use super::{Dialect, Kind};
use crate::protocol::error::UpstreamError;
use crate::protocol::json::Scratch;
use crate::protocol::translation::capabilities;
use crate::protocol::version::{Era, LegacyVersion};
use crate::upstream::Upstream;

/// The capabilities of a client that has none.
pub const NO_CAPABILITIES: &str = "{}";

/// The protocol in which to ask, and what goes with it.
#[derive(Clone, Debug)]
pub enum Tongue {
    /// The newest modern revision, with the client's capabilities.
    Modern(Bytes),
    /// A session of the gateway's own, which declares the client's capabilities: servers offer more to those who
    /// can do more.
    Legacy(LegacyVersion, Bytes),
}

impl Tongue {
    /// As `upstream` is asked for a client of this dialect.
    pub(super) fn for_client(
        upstream: &Upstream,
        dialect: Dialect<'_>,
        kind: Kind,
        depth_max: usize,
    ) -> Result<Self, UpstreamError> {
        let own = Self::of(dialect);
        let era = upstream.era_for(own.era())?;
        Ok(match own {
            own if own.era() == era => own,
            // How a legacy server introduces itself is known, and the same for all.
            Self::Modern(_) if kind == Kind::Discover => Self::of(Dialect::Legacy {
                version: LegacyVersion::NEWEST,
                capabilities: NO_CAPABILITIES.as_bytes(),
            }),
            Self::Modern(capabilities) => Self::Legacy(LegacyVersion::NEWEST, capabilities),
            Self::Legacy(_, capabilities) => {
                Self::Modern(capabilities::across(&capabilities, (&mut Scratch::default(), depth_max)))
            }
        })
    }

    /// As the gateway asks on its own behalf for all that there is: in the era that the upstream speaks, in the modern
    /// one if it speaks both, or nothing is known.
    pub(super) fn own(upstream: &Upstream) -> Self {
        Self::of(if upstream.lacks(Era::Modern) {
            Dialect::Legacy { version: LegacyVersion::NEWEST, capabilities: NO_CAPABILITIES.as_bytes() }
        } else {
            Dialect::Modern { capabilities: CAPABILITIES.as_bytes() }
        })
    }

    /// A client's dialect.
    pub(super) fn of(dialect: Dialect<'_>) -> Self {
        match dialect {
            Dialect::Modern { capabilities } => Self::Modern(Bytes::copy_from_slice(capabilities)),
            Dialect::Legacy { version, capabilities } => {
                Self::Legacy(version, Bytes::copy_from_slice(capabilities))
            }
        }
    }

    /// What is asked in it is kept under this.
    pub fn key(&self) -> DialectKey {
        match self {
            Self::Modern(capabilities) => DialectKey::Modern(digest(&[capabilities])),
            Self::Legacy(version, capabilities) => DialectKey::Legacy(*version, digest(&[capabilities])),
        }
    }

    /// Its era.
    pub fn era(&self) -> Era {
        match self {
            Self::Modern(_) => Era::Modern,
            Self::Legacy(..) => Era::Legacy,
        }
    }
}
