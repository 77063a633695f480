//! `Mcp-Param-*` headers of a `tools/call`, where the tool is known to have some: a server behind the gateway, or
//! something in front of it, may decide by them, so they must say what the body says.
//!
//! What is known of a tool may be out of date, so a call is refused only after its upstream was asked again.

use std::rc::Rc;

use http::HeaderMap;

use super::Proxy;
use crate::catalog::lists;
use crate::context::worker::View;
use crate::line::message::Message;
use crate::snapshot::Endpoint;
use crate::upstream::Upstream;
use protocol::error::{ClientError, Error};
use protocol::param_headers::check;
use protocol::route::Route;

impl Proxy {
    /// Compares the headers of a call with its arguments. Costs nothing where no tool has such headers.
    pub(super) async fn check_params(
        &self,
        view: &Rc<View>,
        endpoint: &Endpoint,
        headers: &HeaderMap,
        message: &Message,
        route: &Route<'_>,
    ) -> Result<(), Error> {
        let upstream = &view.snapshot.upstreams[endpoint.members[route.member]];
        let depth_max = view.snapshot.limits.json_depth_max;
        if self.compare_params(upstream, headers, message, &route.inner, depth_max).is_ok() {
            return Ok(());
        }
        Box::pin(lists::refetch_tools(&self.worker, view, upstream)).await;
        self.compare_params(upstream, headers, message, &route.inner, depth_max)
    }

    fn compare_params(
        &self,
        upstream: &Upstream,
        headers: &HeaderMap,
        message: &Message,
        tool: &str,
        depth_max: usize,
    ) -> Result<(), Error> {
        let Some(annotations) = upstream.annotated.of(tool) else { return Ok(()) };
        let mut scratch = self.worker.scratch.borrow_mut();
        let document = scratch.index(&message.body, depth_max).map_err(|_| ClientError::NotJson)?;
        let arguments = document.root().get("params").and_then(|params| params.get("arguments"));
        check(&annotations, arguments, headers)
            .map_err(|mismatch| ClientError::HeaderMismatch { why: mismatch.to_string().into() }.into())
    }
}
