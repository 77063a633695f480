//! What the gateway answers from what it knows of its upstreams: introductions, lists, and streams of their changes.

use std::sync::Arc;

use super::context::RequestContext;
use super::permit::OwnName;
use super::{NAMES_PATIENCE, Proxy, RequestDecision};
use crate::catalog::lists::owner::ListOwner;
use crate::catalog::lists::upstream_dialect::NO_CAPABILITIES;
use crate::catalog::lists::{self, ListRequest};
use crate::catalog::subscriptions;
use crate::line::legacy::{self, SessionHolder};
use crate::line::message::{Message, UNNAMED_VERSION};
use crate::line::relay::{EventsKind, events_response, json_response};
use crate::tables::lists::{CatalogQuery, Dialect, List};
use crate::telemetry::calls::Spoken;
use crate::upstream::{Upstream, headers};
use http::StatusCode;
use protocol::error::{ClientError, Error};
use protocol::route::{Kind, Route, Style};
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
        let owners = self.list_owners(cx, list).await;
        let ask = ListRequest {
            list,
            dialect,
            cursor: cursor.as_deref(),
            id: message.id(),
            class: &cx.caller()?.class,
            asker: Some(&*cx.call),
            owners: &owners,
        };
        let answer = lists::list(&self.worker, cx.view, cx.endpoint, ask).await?;
        Ok(RequestDecision::Answer(json_response(StatusCode::OK, answer)))
    }

    /// In whose name each upstream is asked for a list; empty where all are asked in the gateway's.
    async fn list_owners(&self, cx: &RequestContext<'_>, list: List) -> Vec<ListOwner> {
        let members = 0..cx.endpoint.members.len();
        let is_own = |upstream: &Arc<Upstream>| {
            !upstream.access.forward.is_empty()
                || (cx.session.is_some()
                    && (upstream.changes.were_told_apart() || upstream.has_process_per_session()))
        };
        if !members.clone().filter_map(|member| cx.upstream(member)).any(is_own) {
            return Vec::new();
        }
        let owners = members.map(|member| self.list_owner(cx, member, list));
        Box::pin(futures_util::future::join_all(owners)).await
    }

    async fn list_owner(&self, cx: &RequestContext<'_>, member: usize, list: List) -> ListOwner {
        let Some(upstream) = cx.upstream(member) else { return ListOwner::Gateway };
        let shown = headers::shown(cx.fields, &upstream.access.forward);
        let Some(session) = cx.session.as_ref().filter(|_| upstream.session_era() == Ok(Era::Legacy)) else {
            return shown.map_or(ListOwner::Gateway, ListOwner::Shown);
        };
        let sessions = &self.worker.state.sessions;
        let opened = sessions.opened(session.grant.id, &upstream.session_key);
        let opened = opened.filter(|opened| {
            if opened.lists.is_lost() {
                let holder = SessionHolder::Client(session.clone(), None);
                legacy::lose(&self.worker, cx.view, upstream, &holder, opened);
            }
            !opened.lists.is_lost()
        });
        match (opened, shown) {
            (Some(opened), Some(shown)) => {
                opened.shown.set(&shown);
                ListOwner::Session(opened, Some(shown))
            }
            (Some(opened), None) => {
                let changed = CatalogQuery::List(list).changed();
                let is_own = upstream.has_process_per_session()
                    || changed.is_some_and(|changed| opened.lists.has(changed));
                if is_own { ListOwner::Session(opened, None) } else { ListOwner::Gateway }
            }
            (None, None) => ListOwner::Gateway,
            (None, Some(shown)) => {
                let holder = SessionHolder::Client(session.clone(), Some(Arc::clone(&shown)));
                match legacy::upstream_session(&self.worker, cx.view, upstream, &holder, None).await {
                    Ok(opened) => ListOwner::Session(opened, Some(shown)),
                    // Why it cannot be opened shows in the list.
                    Err(_) => ListOwner::Shown(shown),
                }
            }
        }
    }

    /// Where a name leads that only this caller may be shown, in lists of its own.
    pub(super) async fn find_own<'n>(
        &self,
        cx: &RequestContext<'_>,
        kind: Kind,
        public: &'n str,
    ) -> Result<OwnName<'n>, Error> {
        let list = match kind {
            Kind::Tool => List::Tools,
            Kind::Prompt => List::Prompts,
            Kind::Resource | Kind::Task => return Ok(OwnName::Unknown),
        };
        if cx.endpoint.naming.style() != Style::Bare {
            return Ok(OwnName::Unknown);
        }
        let class = &cx.caller()?.class;
        let owners = self.list_owners(cx, list).await;
        let directory = cx.endpoint.names.directory();
        // A name that all are shown is not one of its own.
        let mut is_absent = !owners.is_empty() && directory.offer(kind, public).is_none();
        for (member, owner) in owners.into_iter().enumerate() {
            let Some(upstream) = cx.upstream(member).filter(|_| class.reaches(member)) else { continue };
            let is_shown = || {
                cx.endpoint.naming.shows(kind, member, public)
                    && cx.endpoint.allows(class, kind, member, public)
            };
            if owner.is_gateway() {
                is_absent &= directory.was_listed(member);
                continue;
            }
            if !is_shown() {
                continue;
            }
            let declared = cx.session.as_ref().map_or(NO_CAPABILITIES, |session| &session.grant.capabilities);
            let dialect = match &cx.session {
                Some(session) => Dialect::Legacy(session.grant.version, declared.as_bytes()),
                None => Dialect::Modern(NO_CAPABILITIES.as_bytes()),
            };
            let part = lists::own_part(&self.worker, cx.view, upstream, list, dialect, owner).await;
            match part {
                Some(part) if part.content.named(list).any(|(name, _)| name == public) => {
                    return Ok(OwnName::Found(Route { member, inner: public.into() }));
                }
                Some(_) => {}
                None => is_absent = false,
            }
        }
        Ok(if is_absent { OwnName::Absent } else { OwnName::Unknown })
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
