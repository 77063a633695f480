//! In which era an upstream is asked for a list: the client's own wherever it speaks that, else the other one, in the
//! words of which the client's capabilities are then said. Clients of both eras so share what was fetched once.
//!
//! A modern upstream is told the capabilities as the client wrote them. With a legacy one they are declared in a session
//! of the gateway's own, which serves all who can do the same: there they are what is [`specified`], in one spelling.

use std::cell::OnceCell;

use bytes::Bytes;

use super::learn::CAPABILITIES;
use super::owner::ListOwner;
use crate::session::SessionId;
use crate::tables::lists::cache::digest;
use crate::tables::lists::{CatalogQuery, Dialect, DialectKey};
use crate::upstream::Upstream;
use crate::upstream::headers::fingerprint;
use protocol::error::UpstreamError;
use protocol::json::{Document, Scratch, Value};
use protocol::translation::capabilities::across;
use protocol::translation::declared::specified;
use protocol::version::{Era, LegacyVersion};

/// The requests of servers that clients may take, in the order in which they are declared.
const KINDS: [&str; 3] = ["elicitation", "roots", "sampling"];

/// The capabilities of a client that has none.
pub(crate) const NO_CAPABILITIES: &str = "{}";

/// The gateway's own session in which lists are fetched in this name, for clients with these capabilities.
pub(super) fn own_session(owner: &ListOwner, version: LegacyVersion, capabilities: &Bytes) -> SessionId {
    match owner {
        ListOwner::Shown(shown) => {
            SessionId::declaring(version, &digest(&[capabilities, &fingerprint(shown)]))
        }
        _ if *capabilities == NO_CAPABILITIES => SessionId::own(version),
        ListOwner::Gateway | ListOwner::Session(..) => {
            SessionId::declaring(version, &digest(&[capabilities]))
        }
    }
}

/// How an upstream is asked: in the newest modern revision with the client's capabilities, or in a session of the gateway's
/// own, which declares what is specified of them: servers offer more to those who can do more.
pub(crate) type UpstreamDialect = Dialect<Bytes>;

/// How upstreams are asked for one client, each dialect with the key under it. Made once for all of them.
#[derive(Debug)]
pub(super) struct UpstreamDialects<'d> {
    dialect: Dialect<&'d [u8]>,
    /// That of the client's era, and that of the other, once an upstream needs them.
    own: OnceCell<(UpstreamDialect, DialectKey)>,
    other: OnceCell<(UpstreamDialect, DialectKey)>,
    /// The one of programs with sessions, which are asked the same whatever clients declare: with one session for lists, and
    /// with more.
    alike: OnceCell<(UpstreamDialect, DialectKey)>,
    alike_but_for_kinds: OnceCell<(UpstreamDialect, DialectKey)>,
    kind: CatalogQuery,
    depth_max: usize,
}

impl<'d> UpstreamDialects<'d> {
    pub(super) fn new(dialect: Dialect<&'d [u8]>, kind: CatalogQuery, depth_max: usize) -> Self {
        Self {
            dialect,
            own: OnceCell::new(),
            other: OnceCell::new(),
            alike: OnceCell::new(),
            alike_but_for_kinds: OnceCell::new(),
            kind,
            depth_max,
        }
    }

    /// `owner`: in whose name it is asked. The session of a client is of the client's era.
    pub(super) fn of(
        &self,
        upstream: &Upstream,
        owner: &ListOwner,
    ) -> Result<&(UpstreamDialect, DialectKey), UpstreamError> {
        let own = self.dialect.era();
        let era = if owner.is_session() { own } else { asked_in(upstream, own)? };
        Ok(if era == Era::Legacy && upstream.is_child() {
            if upstream.list_sessions_max() == 1 {
                self.alike.get_or_init(|| UpstreamDialect::of_no_client().keyed())
            } else {
                self.alike_but_for_kinds.get_or_init(|| self.kinds().keyed())
            }
        } else if era == own {
            self.own.get_or_init(|| UpstreamDialect::of(self.dialect, self.depth_max).keyed())
        } else {
            self.other.get_or_init(|| self.across().keyed())
        })
    }

    /// To a program with sessions, with no more than which kinds of requests the client takes.
    fn kinds(&self) -> UpstreamDialect {
        let (Dialect::Modern(capabilities) | Dialect::Legacy(_, capabilities)) = self.dialect;
        let mut scratch = Scratch::default();
        let root = scratch.index(capabilities, self.depth_max).ok().map(Document::root);
        let is_declared = |kind: &str| root.is_some_and(|root| root.get(kind).is_some_and(Value::is_object));
        let declared = KINDS.iter().filter(|kind| is_declared(kind)).map(|kind| format!("\"{kind}\":{{}}"));
        let declared = declared.collect::<Vec<_>>().join(",");
        UpstreamDialect::Legacy(LegacyVersion::NEWEST, format!("{{{declared}}}").into())
    }

    /// The same in the other era.
    fn across(&self) -> UpstreamDialect {
        let across =
            |all: &[u8]| across(&Bytes::copy_from_slice(all), (&mut Scratch::default(), self.depth_max));
        match self.dialect {
            // How a legacy server introduces itself is known, and the same for all.
            Dialect::Modern(_) if self.kind == CatalogQuery::Discover => {
                UpstreamDialect::Legacy(LegacyVersion::NEWEST, Bytes::from_static(NO_CAPABILITIES.as_bytes()))
            }
            Dialect::Modern(capabilities) => {
                let capabilities = &across(capabilities);
                UpstreamDialect::of(Dialect::Legacy(LegacyVersion::NEWEST, capabilities), self.depth_max)
            }
            Dialect::Legacy(_, capabilities) => UpstreamDialect::Modern(across(capabilities)),
        }
    }
}

/// True for a dialect in which the gateway asks on its own behalf.
pub(super) fn is_own(dialect: &DialectKey) -> bool {
    *dialect == UpstreamDialect::of_no_client().key() || *dialect == UpstreamDialect::of_all().key()
}

/// The era in which it is asked for a client of `own`. As long as it is not known what a program speaks, it is asked to
/// initialize first: many refuse, or do not survive, whatever else comes before that.
fn asked_in(upstream: &Upstream, own: Era) -> Result<Era, UpstreamError> {
    if !upstream.is_child() || upstream.eras().is_some() {
        return upstream.era_for(own);
    }
    let is_reached = own == Era::Legacy || upstream.config.bridge.is_on;
    if is_reached { Ok(Era::Legacy) } else { Err(upstream.unasked()) }
}

impl UpstreamDialect {
    /// As the gateway asks on its own behalf for all that there is: in the era that the upstream speaks, in the modern
    /// one if it speaks both, or nothing is known of a server that is no program.
    pub(super) fn own(upstream: &Upstream) -> Self {
        let is_unknown = upstream.is_child() && upstream.eras().is_none();
        if is_unknown || upstream.lacks(Era::Modern) { Self::of_no_client() } else { Self::of_all() }
    }

    /// For whatever clients there may be.
    fn of_all() -> Self {
        Self::Modern(Bytes::from_static(CAPABILITIES.as_bytes()))
    }

    /// In the session that the gateway has anyway.
    fn of_no_client() -> Self {
        Self::Legacy(LegacyVersion::NEWEST, Bytes::from_static(NO_CAPABILITIES.as_bytes()))
    }

    pub(super) fn of(dialect: Dialect<&[u8]>, depth_max: usize) -> Self {
        match dialect {
            Dialect::Modern(capabilities) => Self::Modern(Bytes::copy_from_slice(capabilities)),
            Dialect::Legacy(version, capabilities) => {
                Self::Legacy(version, specified(capabilities, (&mut Scratch::default(), depth_max)))
            }
        }
    }

    /// With the key under which what it brings is cached.
    pub(super) fn keyed(self) -> (Self, DialectKey) {
        let key = self.key();
        (self, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_gateway_claims_is_spelled_as_it_is_declared() {
        for capabilities in [NO_CAPABILITIES, CAPABILITIES] {
            let capabilities = capabilities.as_bytes();
            let dialect = Dialect::Legacy(LegacyVersion::NEWEST, capabilities);
            assert_eq!(UpstreamDialect::of(dialect, 16).key(), dialect.key());
        }
    }

    #[test]
    fn of_what_a_client_declares_a_program_is_told_the_kinds() {
        let tools = CatalogQuery::List(super::super::List::Tools);
        for (declared, expected) in [
            ("{}", "{}"),
            (r#"{"roots":{"listChanged":true},"x":{},"tasks":{}}"#, r#"{"roots":{}}"#),
            (r#"{"sampling":{"tools":{}},"elicitation":{"url":{}}}"#, r#"{"elicitation":{},"sampling":{}}"#),
            (r#"{"sampling":7}"#, "{}"),
        ] {
            for dialect in [
                Dialect::Modern(declared.as_bytes()),
                Dialect::Legacy(LegacyVersion::V2025_03_26, declared.as_bytes()),
            ] {
                let asked = UpstreamDialects::new(dialect, tools, 16).kinds();
                let expected = Bytes::copy_from_slice(expected.as_bytes());
                assert_eq!(asked, UpstreamDialect::Legacy(LegacyVersion::NEWEST, expected), "{declared}");
            }
        }
    }

    #[test]
    fn a_client_is_introduced_in_both_eras_by_what_both_know() {
        const DECLARED: &[u8] = br#"{"tasks":{},"roots":{"listChanged":true},"x":{}}"#;
        const SPECIFIED: &[u8] = br#"{"roots":{"listChanged":true},"tasks":{}}"#;
        const ACROSS: &[u8] = br#"{"roots":{},"x":{}}"#;
        let tools = CatalogQuery::List(super::super::List::Tools);
        let modern = Dialect::Modern(DECLARED);
        let legacy = Dialect::Legacy(LegacyVersion::NEWEST, DECLARED);
        let none = NO_CAPABILITIES.as_bytes();
        for (dialect, kind, (era, expected)) in [
            (modern, tools, (Era::Legacy, &br#"{"roots":{}}"#[..])),
            (modern, CatalogQuery::Discover, (Era::Legacy, none)),
            (legacy, tools, (Era::Modern, ACROSS)),
        ] {
            let dialects = UpstreamDialects::new(dialect, kind, 16);
            let (UpstreamDialect::Modern(said) | UpstreamDialect::Legacy(_, said)) =
                UpstreamDialect::of(dialect, 16);
            assert_eq!(&*said, if dialect.era() == Era::Legacy { SPECIFIED } else { DECLARED });
            let across = dialects.across();
            let (UpstreamDialect::Modern(said) | UpstreamDialect::Legacy(_, said)) = &across;
            assert_eq!((across.era(), &**said), (era, expected), "{dialect:?} {kind:?}");
        }
    }
}
