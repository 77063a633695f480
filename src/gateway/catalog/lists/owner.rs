//! In whose name an upstream is asked for a list: mostly the gateway's, for everybody.
//!
//! Where headers of clients are handed on, servers may show each client another list: then it is asked for with these
//! headers. A server may also change the lists of one session alone: a client whose session was told of that is given the
//! lists of this session.

use std::sync::Arc;

use http::HeaderMap;

use crate::session::UpstreamSession;
use crate::tables::lists::cache::{ContentDigest, Scope, digest};
use crate::upstream::headers::fingerprint;
use protocol::error::UpstreamError;

#[derive(Clone, Debug, Default)]
pub(crate) enum ListOwner {
    #[default]
    Gateway,
    /// A client, in its own session with the upstream, with what it has shown of the headers that are handed on.
    Session(Arc<UpstreamSession>, Option<Arc<HeaderMap>>),
    /// The gateway, with what a client has shown of the headers that are handed on.
    Shown(Arc<HeaderMap>),
}

impl ListOwner {
    pub(crate) fn is_gateway(&self) -> bool {
        matches!(self, Self::Gateway)
    }

    pub(super) fn is_session(&self) -> bool {
        matches!(self, Self::Session(..))
    }

    /// In whose name it is asked for after this error, as a session without a list of its own would; `None`: nobody's.
    pub(super) fn after(&self, error: &UpstreamError) -> Option<Self> {
        match self {
            Self::Session(_, None) => Some(Self::Gateway),
            Self::Session(_, Some(shown)) if *error == UpstreamError::SessionLost => {
                Some(Self::Shown(Arc::clone(shown)))
            }
            Self::Session(_, Some(_)) | Self::Gateway | Self::Shown(_) => None,
        }
    }

    pub(super) fn scope(&self) -> Scope {
        match self {
            Self::Gateway => Scope::Gateway,
            Self::Session(session, shown) => {
                let generation = session.generation.to_le_bytes();
                let shown = shown.as_ref().map(|shown| fingerprint(shown)).unwrap_or_default();
                Scope::Of(digest(&[b"session", &generation, &shown]))
            }
            Self::Shown(shown) => Scope::Of(digest(&[b"shown", &fingerprint(shown)])),
        }
    }

    pub(super) fn shown(&self) -> Option<&Arc<HeaderMap>> {
        match self {
            Self::Shown(shown) => Some(shown),
            Self::Session(_, shown) => shown.as_ref(),
            Self::Gateway => None,
        }
    }
}

/// A digest that tells lists of these owners apart from all others; `None` where all are the gateway's.
pub(super) fn said(owners: &[ListOwner]) -> Option<ContentDigest> {
    if owners.iter().all(ListOwner::is_gateway) {
        return None;
    }
    let scopes: Vec<ContentDigest> = owners
        .iter()
        .map(|owner| match owner.scope() {
            Scope::Gateway => ContentDigest::default(),
            Scope::Of(scope) => scope,
        })
        .collect();
    Some(digest(&scopes.iter().map(|scope| &scope[..]).collect::<Vec<_>>()))
}
