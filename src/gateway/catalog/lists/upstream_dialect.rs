//! In which era an upstream is asked for a list: the client's own wherever it speaks that, else the other one, in the
//! words of which the client's capabilities are then said. Clients of both eras so share what was fetched once.
//!
//! A modern upstream is told the capabilities as the client wrote them. With a legacy one they are declared in a session
//! of the gateway's own, which serves all who can do the same: there they are what is [`specified`], in one spelling.

use std::cell::OnceCell;

use bytes::Bytes;

use super::learn::CAPABILITIES;
use crate::session::SessionId;
use crate::tables::lists::CatalogQuery;
use crate::tables::lists::Dialect;
use crate::tables::lists::cache::{DialectKey, digest};
use crate::upstream::Upstream;
use protocol::error::UpstreamError;
use protocol::json::Scratch;
use protocol::translation::capabilities::across;
use protocol::translation::declared::specified;
use protocol::version::{Era, LegacyVersion};

/// The capabilities of a client that has none.
pub(crate) const NO_CAPABILITIES: &str = "{}";

/// The gateway's own session in which lists are fetched for clients with these capabilities.
pub(super) fn own_session(version: LegacyVersion, capabilities: &Bytes) -> SessionId {
    if *capabilities == NO_CAPABILITIES {
        SessionId::own(version)
    } else {
        SessionId::declaring(version, &digest(&[capabilities]))
    }
}

/// The protocol in which to ask, and what goes with it.
#[derive(Clone, Debug)]
pub(crate) enum UpstreamDialect {
    /// The newest modern revision, with the client's capabilities.
    Modern(Bytes),
    /// A session of the gateway's own, which declares what is specified of the client's capabilities: servers offer more
    /// to those who can do more.
    Legacy(LegacyVersion, Bytes),
}

/// How upstreams are asked for one client, each tongue with what is kept under it. Made once for all of them.
#[derive(Debug)]
pub(super) struct UpstreamDialects<'d> {
    dialect: Dialect<'d>,
    /// That of the client's era, and that of the other, once an upstream needs them.
    own: OnceCell<(UpstreamDialect, DialectKey)>,
    other: OnceCell<(UpstreamDialect, DialectKey)>,
    kind: CatalogQuery,
    depth_max: usize,
}

impl<'d> UpstreamDialects<'d> {
    pub(super) fn new(dialect: Dialect<'d>, kind: CatalogQuery, depth_max: usize) -> Self {
        Self { dialect, own: OnceCell::new(), other: OnceCell::new(), kind, depth_max }
    }

    /// As `upstream` is asked.
    pub(super) fn of(&self, upstream: &Upstream) -> Result<&(UpstreamDialect, DialectKey), UpstreamError> {
        let own = self.dialect.era();
        Ok(if upstream.era_for(own)? == own {
            self.own.get_or_init(|| UpstreamDialect::of(self.dialect, self.depth_max).keyed())
        } else {
            self.other.get_or_init(|| self.across().keyed())
        })
    }

    /// The same in the other era.
    fn across(&self) -> UpstreamDialect {
        let across =
            |all: &[u8]| across(&Bytes::copy_from_slice(all), (&mut Scratch::default(), self.depth_max));
        match self.dialect {
            // How a legacy server introduces itself is known, and the same for all.
            Dialect::Modern { .. } if self.kind == CatalogQuery::Discover => {
                UpstreamDialect::Legacy(LegacyVersion::NEWEST, Bytes::from_static(NO_CAPABILITIES.as_bytes()))
            }
            Dialect::Modern { capabilities } => {
                let capabilities = &across(capabilities);
                UpstreamDialect::of(
                    Dialect::Legacy { version: LegacyVersion::NEWEST, capabilities },
                    self.depth_max,
                )
            }
            Dialect::Legacy { capabilities, .. } => UpstreamDialect::Modern(across(capabilities)),
        }
    }
}

impl UpstreamDialect {
    /// As the gateway asks on its own behalf for all that there is: in the era that the upstream speaks, in the modern
    /// one if it speaks both, or nothing is known.
    pub(super) fn own(upstream: &Upstream) -> Self {
        if upstream.lacks(Era::Modern) {
            Self::Legacy(LegacyVersion::NEWEST, Bytes::from_static(NO_CAPABILITIES.as_bytes()))
        } else {
            Self::Modern(Bytes::from_static(CAPABILITIES.as_bytes()))
        }
    }

    pub(super) fn of(dialect: Dialect<'_>, depth_max: usize) -> Self {
        match dialect {
            Dialect::Modern { capabilities } => Self::Modern(Bytes::copy_from_slice(capabilities)),
            Dialect::Legacy { version, capabilities } => {
                Self::Legacy(version, specified(capabilities, (&mut Scratch::default(), depth_max)))
            }
        }
    }

    fn key(&self) -> DialectKey {
        DialectKey::of(match self {
            Self::Modern(capabilities) => Dialect::Modern { capabilities },
            Self::Legacy(version, capabilities) => Dialect::Legacy { version: *version, capabilities },
        })
    }

    /// With the key under which what it brings is cached.
    pub(super) fn keyed(self) -> (Self, DialectKey) {
        let key = self.key();
        (self, key)
    }

    pub(crate) fn era(&self) -> Era {
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
    fn what_the_gateway_claims_is_spelled_as_it_is_declared() {
        for capabilities in [NO_CAPABILITIES, CAPABILITIES] {
            let capabilities = capabilities.as_bytes();
            let dialect = Dialect::Legacy { version: LegacyVersion::NEWEST, capabilities };
            assert_eq!(UpstreamDialect::of(dialect, 16).key(), DialectKey::of(dialect));
        }
    }

    #[test]
    fn a_client_is_introduced_in_both_eras_by_what_both_know() {
        const DECLARED: &[u8] = br#"{"tasks":{},"roots":{"listChanged":true},"x":{}}"#;
        const SPECIFIED: &[u8] = br#"{"roots":{"listChanged":true},"tasks":{}}"#;
        const ACROSS: &[u8] = br#"{"roots":{},"x":{}}"#;
        let tools = CatalogQuery::List(super::super::List::Tools);
        let modern = Dialect::Modern { capabilities: DECLARED };
        let legacy = Dialect::Legacy { version: LegacyVersion::NEWEST, capabilities: DECLARED };
        let none = NO_CAPABILITIES.as_bytes();
        for (dialect, kind, (era, expected)) in [
            (modern, tools, (Era::Legacy, &br#"{"roots":{}}"#[..])),
            (modern, CatalogQuery::Discover, (Era::Legacy, none)),
            (legacy, tools, (Era::Modern, ACROSS)),
        ] {
            let tongues = UpstreamDialects::new(dialect, kind, 16);
            let (UpstreamDialect::Modern(said) | UpstreamDialect::Legacy(_, said)) =
                UpstreamDialect::of(dialect, 16);
            assert_eq!(&*said, if dialect.era() == Era::Legacy { SPECIFIED } else { DECLARED });
            let across = tongues.across();
            let (UpstreamDialect::Modern(said) | UpstreamDialect::Legacy(_, said)) = &across;
            assert_eq!((across.era(), &**said), (era, expected), "{dialect:?} {kind:?}");
        }
    }
}
