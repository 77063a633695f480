//! `Mcp-Param-*` headers of a `tools/call`, where the tool is known to have some: a server behind the gateway, or
//! something in front of it, may decide by them, so they must say what the body says.
//!
//! What is known of a tool may be out of date, so a call is refused only after its upstream was asked again.

use super::Proxy;
use super::context::RequestContext;
use crate::catalog::lists;
use crate::line::message::Message;
use crate::session::Session;
use crate::upstream::Upstream;
use config::ParamHeaders;
use protocol::error::{ClientError, Error};
use protocol::param_headers::check;
use protocol::route::Route;

impl Proxy {
    /// Compares the headers of a call with its arguments. Costs nothing where no tool has such headers.
    pub(super) async fn check_params(
        &self,
        cx: &RequestContext<'_>,
        message: &Message,
        route: &Route<'_>,
    ) -> Result<(), Error> {
        let upstream = &cx.view.snapshot.upstreams[cx.endpoint.members[route.member]];
        if self.compare_params(cx, upstream, message, &route.inner).is_ok() {
            return Ok(());
        }
        Box::pin(lists::refetch_tools(&self.worker, cx.view, upstream)).await;
        self.compare_params(cx, upstream, message, &route.inner)
    }

    /// Within a session parameters need not be mirrored, as its revision does not know them. They must be by a client that
    /// mirrored any, and where the operator says so.
    #[cold]
    pub(super) async fn check_params_of_session(
        &self,
        cx: &RequestContext<'_>,
        message: &Message,
        route: &Route<'_>,
    ) -> Result<(), Error> {
        let sessions = &self.worker.state.sessions;
        let mirrors = |session: &Session| {
            if cx.head.has_param {
                sessions.note_mirroring(session.owner());
            }
            cx.head.has_param || sessions.is_mirroring(session.grant.id)
        };
        let is_required = cx.endpoint.config.param_headers == ParamHeaders::Required;
        if is_required || cx.session.as_ref().is_some_and(mirrors) {
            self.check_params(cx, message, route).await?;
        }
        Ok(())
    }

    fn compare_params(
        &self,
        cx: &RequestContext<'_>,
        upstream: &Upstream,
        message: &Message,
        tool: &str,
    ) -> Result<(), Error> {
        let Some(annotations) = upstream.annotated.of(tool) else { return Ok(()) };
        let mut scratch = self.worker.scratch.borrow_mut();
        let document = scratch.index(&message.body, cx.depth_max()).map_err(|_| ClientError::NotJson)?;
        let arguments = document.root().get("params").and_then(|params| params.get("arguments"));
        check(&annotations, arguments, cx.fields)
            .map_err(|mismatch| ClientError::HeaderMismatch { why: mismatch.to_string().into() }.into())
    }
}
