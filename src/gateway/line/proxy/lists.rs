//! What the gateway answers from what it knows of its upstreams: introductions, lists, and streams of their changes.

use super::context::RequestContext;
use super::{NAMES_PATIENCE, Proxy, RequestDecision};
use crate::catalog::lists::upstream_dialect::NO_CAPABILITIES;
use crate::catalog::lists::{self, ListRequest};
use crate::catalog::subscriptions;
use crate::line::message::{Message, UNNAMED_VERSION};
use crate::line::relay::{EventsKind, events_response, json_response};
use crate::tables::lists::{Dialect, List};
use crate::telemetry::calls::Spoken;
use http::StatusCode;
use protocol::error::{ClientError, Error};
use protocol::route::Kind;
use protocol::version::{Era, Eras, LegacyVersion, supported_versions};

/// Longer capabilities of a client are refused where lists depend on them.
const CAPABILITIES_BYTES_MAX: usize = 16 * 1024;

impl Proxy {
    pub(super) async fn discover(
        &self,
        cx: &RequestContext<'_>,
        message: &Message,
    ) -> Result<RequestDecision, Error> {
        let capabilities = capabilities(message)?;
        let (worker, id, place) = (&self.worker, message.id(), (cx.endpoint, &cx.caller()?.class));
        let supported = supported_versions(cx.served);
        let answer = lists::discover(worker, cx.view, place, capabilities, id, &supported).await?;
        Ok(RequestDecision::Answer(json_response(StatusCode::OK, answer)))
    }

    pub(super) async fn list(
        &self,
        cx: &RequestContext<'_>,
        message: &Message,
    ) -> Result<RequestDecision, Error> {
        let list = List::of(message.method).ok_or(ClientError::Method)?;
        let legacy_version = (message.era == Era::Legacy).then(|| legacy_version(cx));
        if let Some(version) = legacy_version {
            cx.call.spoken.set(Spoken::Legacy(version));
        }
        let cursor = message.cursor()?;
        let declared = cx.session.as_ref().map_or(NO_CAPABILITIES, |session| &session.grant.capabilities);
        let dialect = match legacy_version {
            Some(version) => Dialect::Legacy(version, declared.as_bytes()),
            None => Dialect::Modern(capabilities(message)?),
        };
        let ask = ListRequest {
            list,
            dialect,
            cursor: cursor.as_deref(),
            id: message.id(),
            class: &cx.caller()?.class,
            asker: Some(&*cx.call),
        };
        let answer = lists::list(&self.worker, cx.view, cx.endpoint, ask).await?;
        Ok(RequestDecision::Answer(json_response(StatusCode::OK, answer)))
    }

    /// `subscriptions/listen` names what it is about in the body alone; what it cannot name, it does not get.
    pub(super) async fn listen(
        &self,
        cx: &RequestContext<'_>,
        message: &Message,
    ) -> Result<RequestDecision, Error> {
        let names_max = cx.view.snapshot.limits.subscription_uris_max;
        let mut filter = self.reader(cx.view, Eras::BOTH).filter(message, names_max).await?;
        let endpoint = cx.endpoint;
        if !filter.uris.is_empty() && endpoint.naming.needs_directory() {
            endpoint.names.settled(NAMES_PATIENCE).await;
        }
        filter.uris.retain(|uri| self.find_route(cx, Kind::Resource, &uri.value).is_ok());
        self.learn_tasks(cx, filter.task_ids.iter().map(|task| &*task.value)).await;
        filter.task_ids.retain_mut(|task| {
            let route = self.find_route(cx, Kind::Task, &task.value);
            // From here on it is known to be the caller's, and spelled as everybody's.
            let found =
                route.map(|route| endpoint.naming.spell(Kind::Task, route.member, &route.inner).into_owned());
            found.map(|found| task.value = found).is_ok()
        });
        let (state, payer) = (&self.worker.state, cx.call.payer());
        let place = (&**endpoint, &**cx.caller()?, payer);
        let mut subscription =
            subscriptions::client::open(state, &cx.view.snapshot, place, message.id(), filter)?;
        let response = events_response(EventsKind::Subscription, move |cx| subscription.poll(cx));
        Ok(RequestDecision::Answer(response))
    }
}

/// What the client says it can do, as it wrote it.
fn capabilities(message: &Message) -> Result<&[u8], ClientError> {
    let span = message.envelope.meta.as_ref().and_then(|meta| meta.client_capabilities.clone());
    let capabilities = span.and_then(|span| message.body.get(span)).unwrap_or(b"{}");
    // Every upstream is sent them with every page.
    if capabilities.len() > CAPABILITIES_BYTES_MAX {
        return Err(ClientError::Params { why: "the client's capabilities are longer than 16 KiB" });
    }
    Ok(capabilities)
}

/// What is spoken in a session, or by a request without one.
fn legacy_version(cx: &RequestContext<'_>) -> LegacyVersion {
    if let Some(session) = &cx.session {
        return session.grant.version;
    }
    let text = cx.head.version.as_str().unwrap_or(UNNAMED_VERSION);
    LegacyVersion::of(text).unwrap_or(LegacyVersion::NEWEST)
}
