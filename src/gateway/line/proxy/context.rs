//! What the steps of one request know of it.

use std::rc::Rc;
use std::sync::Arc;

use crate::access::caller::Caller;
use crate::context::call::Call;
use crate::context::worker::View;
use crate::session::Session;
use crate::snapshot::Endpoint;
use crate::tables::sse_sessions::SseSessionId;
use crate::telemetry::calls::Spoken;
use crate::upstream::Upstream;
use protocol::error::{ClientError, PolicyError};
use protocol::fields::Fields;
use protocol::head::Head;
use protocol::route::Style;
use protocol::version::{Era, Eras};

/// A request to an endpoint, on its way to an answer or an upstream.
pub(super) struct RequestContext<'r> {
    pub(super) view: &'r Rc<View>,
    pub(super) endpoint: &'r Rc<Arc<Endpoint>>,
    /// The eras that the endpoint served when the request came.
    pub(super) served: Eras,
    pub(super) head: &'r Head<'r>,
    pub(super) fields: &'r Fields,
    /// The client's session, in the legacy era, once it was looked for.
    pub(super) session: Option<Session>,
    pub(super) call: &'r mut Call,
}

impl<'r> RequestContext<'r> {
    pub(super) fn new(
        view: &'r Rc<View>,
        endpoint: &'r Rc<Arc<Endpoint>>,
        head: &'r Head<'r>,
        fields: &'r Fields,
        call: &'r mut Call,
    ) -> Self {
        Self { view, endpoint, served: endpoint.eras(), head, fields, session: None, call }
    }

    /// Where the call has come to, and in which era as far as headers say.
    pub(super) fn note_endpoint(&mut self) {
        self.call.endpoint = Some(Rc::clone(self.endpoint));
        self.call.seen.era = self.head.era().unwrap_or(Era::Modern);
        if self.head.era() == Some(Era::Modern) {
            self.call.spoken.set(Spoken::Modern);
        }
    }

    pub(super) fn caller(&self) -> Result<&Rc<Caller>, PolicyError> {
        self.call.caller()
    }

    pub(super) fn session(&self) -> Result<&Session, ClientError> {
        self.session.as_ref().ok_or(ClientError::NoSession)
    }

    pub(super) fn depth_max(&self) -> usize {
        self.view.snapshot.limits.json_depth_max
    }

    /// The upstream at this place in the endpoint.
    pub(super) fn upstream(&self, member: usize) -> Option<&'r Arc<Upstream>> {
        self.view.snapshot.upstreams.get(*self.endpoint.members.get(member)?)
    }

    pub(super) fn may_be_legacy(&self) -> bool {
        self.served.legacy && self.head.era() != Some(Era::Modern)
    }

    /// Whether the client may speak HTTP+SSE.
    pub(super) fn has_sse(&self) -> bool {
        self.endpoint.config.sse && self.may_be_legacy()
    }

    /// The session of HTTP+SSE that the target names.
    pub(super) fn sse_session(&self, query: Option<&str>) -> Option<SseSessionId> {
        query.filter(|_| self.has_sse()).and_then(SseSessionId::in_query)
    }

    /// Whether names are spelled alike on both sides.
    pub(super) fn is_transparent(&self) -> bool {
        self.endpoint.naming.style() == Style::Transparent
    }

    /// Whether what the caller gets is exactly what the one upstream wrote.
    pub(super) fn is_untouched(&self) -> Result<bool, PolicyError> {
        Ok(self.endpoint.is_untouched_for(&self.caller()?.class))
    }
}
