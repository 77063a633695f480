//! What an upstream and a client have to do with each other in the legacy era.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use crate::session::outbox::{Addressee, SessionOutbox};
use crate::session::{Session, UpstreamSession};
use crate::snapshot::Endpoint;
use crate::upstream::Upstream;
use protocol::version::LegacyVersion;

/// Where a message of an upstream belongs: whom it comes from, and which client's session it is part of.
#[derive(Clone, Debug)]
pub(crate) struct InSession {
    pub upstream: Arc<Upstream>,
    pub upstream_session: Arc<UpstreamSession>,
    pub session: Session,
    /// What is on its way in the client's session.
    pub outbox: Arc<SessionOutbox>,
    pub endpoint: Rc<Arc<Endpoint>>,
    /// The upstream's place in the endpoint.
    pub member: usize,
}

impl InSession {
    pub(crate) fn addressee(&self) -> Addressee {
        let (upstream, session) =
            (Arc::clone(&self.upstream.session_key), Arc::clone(&self.upstream_session));
        Addressee { upstream, session }
    }

    pub(crate) fn client_version(&self) -> LegacyVersion {
        self.session.grant.version
    }

    /// Whether the client comes back for the rest of a reply that breaks off. Clients before 2025-11-25 need not, and
    /// take the empty event that only carries an id for a broken message.
    pub(crate) fn client_resumes(&self) -> bool {
        self.session.has_resumption && self.client_version() >= LegacyVersion::V2025_11_25
    }
}

/// A request that a client is to answer.
#[derive(Debug)]
pub(crate) struct PendingAnswer {
    /// The id by which the client knows it.
    pub public_id: Box<str>,
    /// When the upstream has waited long enough.
    pub due: Instant,
    pub session: InSession,
}
