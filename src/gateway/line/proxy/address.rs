//! A message as its upstream is to get it: in its spelling, with an id of the gateway's own where that is needed.

use std::borrow::Cow;
use std::rc::Rc;

use http::HeaderValue;

use super::Proxy;
use super::context::RequestContext;
use super::permit::Admitted;
use crate::access::policy::Reach;
use crate::line::message::Message;
use crate::mapper::{Completion, Mapper, Restriction};
use crate::session::Session;
use crate::session::outbox::CallInFlight;
use crate::snapshot::Endpoint;
use crate::telemetry::tools::ToolId;
use crate::upstream::Upstream;
use crate::upstream::own_id::{OwnId, SessionTag};
use protocol::envelope::Reference;
use protocol::error::{ClientError, Error};
use protocol::header::encode_value;
use protocol::json::{Document, Literal, quote};
use protocol::method::{Method, NameSource};
use protocol::route::{Kind, Route};
use protocol::splice::{Edit, Segments, splice};
use protocol::version::Era;

/// A message ready for its upstream.
pub(super) struct Outbound {
    /// The upstream's place in the endpoint.
    pub(super) member: usize,
    pub(super) body: Segments,
    pub(super) change: BodyChange,
    pub(super) is_safe_to_repeat: bool,
    /// The tool that is called; for the metrics.
    pub(super) tool: Option<ToolId>,
    /// What is subscribed to, as its upstream spells it.
    pub(super) uri: Option<Box<str>>,
    /// What the client's words stand for, where any are others than the upstream's.
    pub(super) rewrite: Option<Rc<Rewrite>>,
    /// What its cancellation finds it by, until it has its answer.
    pub(super) announced: Option<CallInFlight>,
}

/// How the body differs from the client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyChange {
    None,
    /// It has another id.
    Id,
    Names,
}

impl BodyChange {
    fn of(has_other_names: bool, has_other_id: bool) -> Self {
        match (has_other_names, has_other_id) {
            (false, false) => Self::None,
            (false, true) => Self::Id,
            (true, _) => Self::Names,
        }
    }
}

/// What differs between a message of a client and that of its upstream.
#[derive(Clone, Default)]
pub(super) struct Rewrite {
    /// What replaces `Mcp-Name`.
    pub(super) inner_name: Option<HeaderValue>,
    /// What maps the names in the reply.
    pub(super) mapper: Option<Mapper>,
    /// The id it has towards its upstream.
    pub(super) own_id: Option<OwnId>,
}

impl Proxy {
    /// Spells a message as its upstream does. `literal` is the name it is routed by, where the body has one.
    pub(super) fn address(
        &self,
        cx: &RequestContext<'_>,
        message: &Message,
        route: &Admitted<'_>,
        literal: Option<&Literal>,
    ) -> Outbound {
        let session = cx.session.as_ref();
        let new_mapper = || self.mapper_of(cx, message, route, literal);
        let mapper = (!cx.is_transparent()).then(new_mapper);
        let mut edits = match &mapper {
            Some(mapper) if message.envelope.has_other_names => {
                mapper.inner_names(&mut self.worker.scratch.borrow_mut(), &message.body)
            }
            _ => Vec::new(),
        };
        let other_name = literal.filter(|literal| !literal.equals(&message.body, &route.inner));
        if let Some(literal) = other_name {
            edits.push(Edit { span: literal.span.clone(), with: quote(&route.inner).into() });
        }
        // Within a session only who mirrors the name has it mirrored.
        let is_mirrored =
            message.method.subject().is_some() && (session.is_none() || cx.head.name.is_present());
        let inner_name = other_name.filter(|_| is_mirrored);
        let inner_name = inner_name.and_then(|_| HeaderValue::from_str(&encode_value(&route.inner)).ok());
        let upstream = cx.upstream(route.member);
        let own_id = upstream
            .filter(|upstream| mapper.is_some() || session.is_some() || upstream.config.unique_ids)
            .and_then(|upstream| own_id(message, session, upstream));
        let change = BodyChange::of(!edits.is_empty(), own_id.is_some());
        edits.extend(own_id.as_ref().map(|(_, edit)| edit.clone()));
        edits.sort_unstable_by_key(|edit| edit.span.start);
        let body = splice(&message.body, &edits);
        // By the rule for lists: what credentials or rules can change is nobody else's.
        let is_private =
            message.method == Method::ResourcesRead && message.era == Era::Modern && !cx.endpoint.is_open();
        let mapper = if is_private {
            Some(mapper.unwrap_or_else(new_mapper).restricting(Restriction::Private))
        } else {
            mapper
        };
        let own_id = own_id.map(|(own_id, _)| own_id);
        let is_rewritten = inner_name.is_some() || mapper.is_some() || own_id.is_some();
        let called = upstream.filter(|_| message.method == Method::ToolsCall);
        Outbound {
            is_safe_to_repeat: message.method.is_safe_to_repeat()
                || called.is_some_and(|upstream| upstream.may_call_twice(&route.inner)),
            tool: called.map(|upstream| note_tool(cx.endpoint, upstream, route)),
            uri: matches!(message.method, Method::Subscribe | Method::Unsubscribe)
                .then(|| (*route.inner).into()),
            member: route.member,
            body,
            change,
            rewrite: is_rewritten.then(|| Rc::new(Rewrite { inner_name, mapper, own_id })),
            announced: None,
        }
    }

    fn mapper_of(
        &self,
        cx: &RequestContext<'_>,
        message: &Message,
        route: &Route<'_>,
        literal: Option<&Literal>,
    ) -> Mapper {
        let mapper = Mapper::new(Rc::clone(cx.endpoint), route.member, message.method, cx.depth_max())
            .for_owner(&self.worker.state.sessions, cx.call.principal().id());
        let is_of_task = message.method.subject() == Some(NameSource::TaskId);
        match literal.filter(|_| is_of_task).and_then(|literal| literal.decode(&message.body)) {
            Some(public) => mapper.about(&route.inner, &public),
            None => mapper,
        }
    }

    /// `completion/complete` names what it completes in the body alone.
    pub(super) async fn complete(
        &self,
        cx: &RequestContext<'_>,
        message: &Message,
    ) -> Result<Outbound, Error> {
        self.settle_names(cx.endpoint).await;
        let (kind, literal) = match &message.envelope.reference {
            Some(Reference::Prompt(literal)) => (Kind::Prompt, literal.clone()),
            Some(Reference::Resource(literal)) => (Kind::Resource, literal.clone()),
            None => return Err(ClientError::Params { why: "params.ref names no prompt or resource" }.into()),
        };
        let public = literal.decode(&message.body).map(Cow::into_owned);
        let public = public.ok_or(ClientError::Params { why: "params.ref is not valid text" })?;
        let route = self.find_route(cx, kind, &public)?;
        let route = self.admit_call(cx, message, route).await?;
        let reach = cx.caller()?.class.reach(route.member);
        let sees_all = cx.endpoint.naming.hides_nothing() && reach == Reach::Everything;
        let completion = (kind == Kind::Resource && !sees_all)
            .then(|| self.completion(cx, message, &route))
            .transpose()?;
        let (method, depth_max) = (message.method, cx.depth_max());
        let mut outbound = self.address(cx, message, &route, Some(&literal));
        if let Some(completion) = completion {
            let rewrite = Rc::make_mut(outbound.rewrite.get_or_insert_default());
            let mapper = rewrite.mapper.take();
            let mapper = mapper
                .unwrap_or_else(|| Mapper::new(Rc::clone(cx.endpoint), route.member, method, depth_max));
            rewrite.mapper = Some(mapper.restricting(Restriction::Completion(Rc::new(completion))));
        }
        Ok(outbound)
    }

    /// What is completed of a resource template.
    fn completion(
        &self,
        cx: &RequestContext<'_>,
        message: &Message,
        route: &Route<'_>,
    ) -> Result<Completion, Error> {
        let wrong = |why| Error::from(ClientError::Params { why });
        let mut scratch = self.worker.scratch.borrow_mut();
        let request = scratch.index(&message.body, cx.depth_max()).map(Document::root);
        let request = request.map_err(|_| wrong("params cannot be read"))?;
        let place = (cx.endpoint, &cx.caller()?.class);
        Completion::new(place, (route.member, &route.inner), request).map_err(wrong)
    }
}

/// The tool that a call is counted as, at the endpoint and at its upstream.
fn note_tool(endpoint: &Endpoint, upstream: &Upstream, route: &Route<'_>) -> ToolId {
    let tool = upstream.tools.find(&route.inner);
    endpoint
        .series
        .note_tool(tool, || endpoint.naming.spell(Kind::Tool, route.member, &route.inner).into_owned());
    upstream.durations.note_tool(tool, &route.inner);
    tool
}

/// An id of the gateway's own for a request, and where to put it. None for a child: what carries its messages has ids of
/// its own.
fn own_id(message: &Message, session: Option<&Session>, upstream: &Upstream) -> Option<(OwnId, Edit)> {
    if upstream.is_child() {
        return None;
    }
    let span = message.envelope.id.clone()?;
    let tag = session.map(|session| SessionTag::new(session.grant.id.0, &upstream.session_key));
    let own_id = OwnId::new(message.body.slice(span.clone()), tag.unwrap_or_default());
    let edit = Edit { span, with: own_id.sent().clone() };
    Some((own_id, edit))
}
