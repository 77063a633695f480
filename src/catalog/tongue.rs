//! In which era an upstream is asked for a list: the client's own wherever it speaks that, else the other one, in the
//! words of which the client's capabilities are then said. Clients of both eras so share what was fetched once.

use std::cell::OnceCell;

use bytes::Bytes;

use super::cache::DialectKey;
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

/// How upstreams are asked for one client, each tongue with what is kept under it. Made once for all of them.
#[derive(Debug)]
pub(super) struct Tongues {
    own: (Tongue, DialectKey),
    /// That of the other era, once an upstream needs it.
    other: OnceCell<(Tongue, DialectKey)>,
    kind: Kind,
    depth_max: usize,
}

impl Tongues {
    /// Those for a client of this dialect, which has this key.
    pub(super) fn new((dialect, key): (Dialect<'_>, DialectKey), kind: Kind, depth_max: usize) -> Self {
        Self { own: (Tongue::of(dialect), key), other: OnceCell::new(), kind, depth_max }
    }

    /// As `upstream` is asked.
    pub(super) fn of(&self, upstream: &Upstream) -> Result<&(Tongue, DialectKey), UpstreamError> {
        let own = self.own.0.era();
        let is_own = upstream.era_for(own)? == own;
        Ok(if is_own { &self.own } else { self.other.get_or_init(|| self.across().keyed()) })
    }

    /// The same in the other era.
    fn across(&self) -> Tongue {
        let across = |all: &Bytes| capabilities::across(all, (&mut Scratch::default(), self.depth_max));
        match &self.own.0 {
            // How a legacy server introduces itself is known, and the same for all.
            Tongue::Modern(_) if self.kind == Kind::Discover => {
                Tongue::Legacy(LegacyVersion::NEWEST, Bytes::from_static(NO_CAPABILITIES.as_bytes()))
            }
            Tongue::Modern(all) => Tongue::Legacy(LegacyVersion::NEWEST, across(all)),
            Tongue::Legacy(_, all) => Tongue::Modern(across(all)),
        }
    }
}

impl Tongue {
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
    fn key(&self) -> DialectKey {
        DialectKey::of(match self {
            Self::Modern(capabilities) => Dialect::Modern { capabilities },
            Self::Legacy(version, capabilities) => Dialect::Legacy { version: *version, capabilities },
        })
    }

    /// With that.
    pub(super) fn keyed(self) -> (Self, DialectKey) {
        let key = self.key();
        (self, key)
    }

    /// Its era.
    pub fn era(&self) -> Era {
        match self {
            Self::Modern(_) => Era::Modern,
            Self::Legacy(..) => Era::Legacy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_introduced_in_both_eras_by_what_both_know() {
        const DECLARED: &[u8] = br#"{"tasks":{},"roots":{"listChanged":true}}"#;
        const ACROSS: &[u8] = br#"{"roots":{}}"#;
        let tools = Kind::List(super::super::List::Tools);
        let modern = Dialect::Modern { capabilities: DECLARED };
        let legacy = Dialect::Legacy { version: LegacyVersion::NEWEST, capabilities: DECLARED };
        let none = NO_CAPABILITIES.as_bytes();
        for (dialect, kind, (era, expected)) in [
            (modern, tools, (Era::Legacy, ACROSS)),
            (modern, Kind::Discover, (Era::Legacy, none)),
            (legacy, tools, (Era::Modern, ACROSS)),
        ] {
            let tongues = Tongues::new((dialect, DialectKey::of(dialect)), kind, 16);
            assert_eq!(tongues.own.0.key(), tongues.own.1);
            let across = tongues.across();
            let (Tongue::Modern(said) | Tongue::Legacy(_, said)) = &across;
            assert_eq!((across.era(), &**said), (era, expected), "{dialect:?} {kind:?}");
        }
    }
}
